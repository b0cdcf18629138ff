"""Groups of samples: from ids or a membership matrix, and values that belong to groups.

:func:`check_groups` is the only way in: it turns ids, a membership matrix or None into
:class:`Groups`, the samples of one group after those of another. All rooms share this form:
:class:`~sklearn_xlc.aggregation.Aggregation` adds the labels of the groups; a network reads X
gathered group by group, so that :class:`~sklearn_xlc.batches.Rows` and
:class:`~sklearn_xlc.batches.Bags` need the pointers alone.
"""

from sklearn_xlc.groups._groups import Groups, check_groups

__all__ = ["Groups", "check_groups"]
