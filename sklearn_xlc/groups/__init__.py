"""Groups of samples, from ids or a membership matrix.

:func:`check_groups` turns ids, a membership matrix or None into :class:`Groups`, a list of samples
sorted by group. The whole package uses this form: :class:`~sklearn_xlc.aggregation.Aggregation`
adds the labels of the groups; a network reads X sorted by group, so that
:class:`~sklearn_xlc.batches.Rows` and :class:`~sklearn_xlc.batches.Bags` need only the pointers.
"""

from sklearn_xlc.groups._groups import Groups, check_groups

__all__ = ["Groups", "check_groups"]
