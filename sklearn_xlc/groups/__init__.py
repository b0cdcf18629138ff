"""Groups of samples, from ids or a membership matrix.

:func:`check_groups` converts ids, a membership matrix or None to :class:`Groups`: samples sorted by
group. :class:`~sklearn_xlc.aggregation.Aggregation` adds the labels of the groups. Networks read X
sorted by group, so :class:`~sklearn_xlc.batches.Rows` and :class:`~sklearn_xlc.batches.Bags` hold
only the pointers.
"""

from sklearn_xlc.groups._groups import (
    Groups,
    cap_counts,
    check_group_counts,
    check_groups,
    labels_of_groups,
    split_counts,
    warn_of_group_order,
    warn_without_groups,
)

__all__ = ["Groups", "check_groups"]
