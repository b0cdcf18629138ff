"""Groups of samples, built from ids or a membership matrix; labels of groups, and their counts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import column_or_1d
from sklearn.utils.validation import _num_samples

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._checks import (
    as_array,
    check_counts,
    check_csr,
    check_equal,
    check_indicator,
    check_numbers,
    check_sparse,
    is_indicator,
    refuse_continuous,
)
from sklearn_xlc._csr import IntArray, joined_ranges, one_per_row, pointers_of, row_of
from sklearn_xlc._ids import is_default
from sklearn_xlc._labels import check_objects, missing_value
from sklearn_xlc._tags import index_of, plain_sets
from sklearn_xlc._warn import warn


@dataclass(frozen=True)
class Groups:
    """Samples sorted by group, in CSR form.

    Build it with :func:`check_groups`.

    Parameters
    ----------
    samples : ndarray of shape (n_memberships,) and dtype int64
        Indices of samples, ascending within each group.
    indptr : ndarray of shape (n_groups + 1,) and dtype int64
        Group j owns ``samples[indptr[j]:indptr[j + 1]]``.
    group_of : ndarray of shape (n_samples,) or None
        Group of each sample; None if a sample may be in any number of groups.
    n_samples : int
        Number of samples.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.groups import check_groups
    >>> groups = check_groups(["b", "a", "b"], n_samples=3)
    >>> groups.samples, groups.indptr, groups.group_of
    (array([1, 0, 2]), array([0, 1, 3]), array([1, 0, 1]))
    >>> groups.per_group(np.array([7, 5, 7]), "y")
    array([5, 7])
    """

    samples: IntArray
    indptr: IntArray
    group_of: IntArray | None
    n_samples: int

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @cached_property
    def sizes(self) -> IntArray:
        """Number of samples of each group."""
        return np.diff(self.indptr)

    @cached_property
    def overlap(self) -> bool:
        """Whether a sample is in several groups."""
        return len(self.samples) > 0 and bool(np.bincount(self.samples).max() > 1)

    def check_each_sample(self) -> None:
        """Raise ValueError if a sample is in no group, as its labels are unknown."""
        alone = np.bincount(self.samples, minlength=self.n_samples) == 0
        if alone.any():
            raise ValueError(
                f"sample {alone.argmax()} is in no group, so that nothing is known of its labels; "
                f"leave out such samples ({np.count_nonzero(alone)} of {self.n_samples})"
            )

    def membership(self) -> sp.csr_array:
        """Build the membership matrix: canonical CSR (n_samples, n_groups) of int8."""
        parts = (np.ones(len(self.samples), dtype=np.int8), self.samples, self.indptr)
        return sp.csc_array(parts, shape=(self.n_samples, len(self))).tocsr()

    def take(self, index: npt.NDArray[Any] | slice) -> Groups:
        """Select groups in the order of `index`; `n_samples` stays."""
        sizes = self.sizes[index]
        samples = self.samples[joined_ranges(self.indptr[:-1][index], sizes)]
        return Groups(samples, pointers_of(sizes), None, self.n_samples)

    def gather(self, X: Any) -> Any:
        """Sort the samples of X by group; return X itself if it is sorted already."""
        in_order = len(self.samples) == self.n_samples and (np.diff(self.samples) == 1).all()
        return X if in_order else X[self.samples]

    def is_per_sample(self, n_values: int, name: str) -> bool:
        """Return whether values are per sample; raise if their number fits neither form."""
        if self.group_of is not None and n_values == self.n_samples:
            return True
        if n_values == len(self):
            return False
        samples = "" if self.group_of is None else f"{self.n_samples} (the samples of X) or "
        raise ValueError(
            f"{name} must have length {samples}{len(self)} (the groups), got {n_values}"
        )

    def per_group(self, values: Any, name: str) -> Any:
        """Return one value per group, from values of the groups or of their samples.

        Parameters
        ----------
        values : ndarray of shape (n,), or CSR matrix of n rows, canonical
            One value per sample, equal within each group, or one value per group. If there are as
            many groups as samples, the first form is meant.
        name : str
            Name of `values` in messages.

        Returns
        -------
        ndarray of shape (n_groups,), or CSR matrix of n_groups rows
            Values of the groups.

        Raises
        ------
        ValueError
            If the number of values is wrong, or samples of one group have different values.
        """
        if not self.is_per_sample(values.shape[0], name):
            return values
        assert self.group_of is not None
        first = self.samples[self.indptr[:-1]]
        result = values[first]
        unlike = values != result[self.group_of]
        differs = np.diff(unlike.indptr) > 0 if sp.issparse(unlike) else np.asarray(unlike)
        if differs.any():
            sample = int(differs.argmax())
            raise ValueError(
                f"{name} must be the same in all samples of a group, but row {sample} differs from "
                f"row {first[self.group_of[sample]]} of the same group; give every sample the "
                "value of its group, or one value for each group"
            )
        return result


def warn_without_groups(groups: Any) -> None:
    """Warn if `groups` is None: pipelines and searches do not pass it on by default.

    Examples
    --------
    >>> import warnings
    >>> from sklearn_xlc.groups._groups import warn_without_groups
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_without_groups(None)
    >>> print(caught[0].message)
    no groups were given: every sample is a group of its own...
    """
    if groups is None:
        warn(
            "no groups were given: every sample is a group of its own; pass groups= to fit. A "
            "pipeline or search passes them on after sklearn.set_config(enable_metadata_routing="
            "True), and set_fit_request(groups=True) of this estimator"
        )


def warn_of_group_order(groups: Any, values: Any, name: str = "y") -> None:
    """Warn if values of groups seem to stand in another order than that of their rows.

    Parameters
    ----------
    groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
            (n_samples, n_groups), Groups, or None
        Groups that :func:`check_groups` accepts.
    values : pandas.DataFrame, pandas.Series or object
        Values of groups, or of samples, which have no order of groups.
    name : str, default="y"
        Name of `values` in messages.

    Warns
    -----
    UserWarning
        If the index of `values` holds each id, or column of a membership frame, in another order.
        Rows are read by position. The default index of pandas (0, 1, 2 and so on) names no groups.
        Without another index, if the samples stand group by group, with strings as ids, in another
        order than the sorted one: rows of `values` may then follow the samples.

    Examples
    --------
    >>> import warnings
    >>> import pandas as pd
    >>> from sklearn_xlc.groups._groups import warn_of_group_order
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_group_order(["b", "b", "a"], pd.Series([0, 1], index=["b", "a"]))
    >>> len(caught)
    1
    """
    if groups is None or isinstance(groups, Groups) or sp.issparse(groups):
        return
    index, columns = index_of(values), getattr(groups, "columns", None)
    is_named = index is not None and not is_default(index)
    if columns is not None:
        ids, order = list(columns), "groups.columns"
    elif (array := _as_array(groups)).ndim != 1 or is_named and len(array) == len(index):
        return  # no ids, or a value for each sample
    elif not is_named:
        _warn_of_runs(array, values, name)
        return
    else:
        with suppress(TypeError):  # of several types, which are refused where groups are read
            array = np.unique(array)
        ids, order = array.tolist(), "np.unique(groups)"
    given = index.tolist() if is_named else []
    if given != ids and len(given) == len(ids) and set(given) == set(ids):
        warn(
            f"the index of {name} holds the groups in another order than {order}, in which its "
            f"rows are read; pass {name}.loc[{order}], or {name}.set_axis({order}) if the rows "
            "stand in that order"
        )


def _warn_of_runs(ids: Any, values: Any, name: str) -> None:
    """Warn if samples stand group by group in another order than rows of `values` are read in."""
    n_rows = len(ids)
    with suppress(TypeError):  # None, or what is refused where it is read
        n_rows = _num_samples(plain_sets(values))
    if n_rows == len(ids) or ids.dtype.kind in "biuf":
        return
    names = ids.tolist()
    if not all(isinstance(each, str) for each in names):  # they are not checked: NA compares as NA
        return
    runs = [each for each, _ in groupby(names)]
    read = sorted(set(runs))
    if len(read) == len(runs) == n_rows and read != runs:
        row = next(row for row in range(n_rows) if read[row] != runs[row])
        warn(
            f"rows of {name} are read in the order of np.unique(groups), where row {row} is of "
            f"{read[row]!r}; the samples stand group by group, and there it would be of "
            f"{runs[row]!r}: give {name} the ids as its index, in pandas, or a row for each sample"
        )


def check_groups(groups: Any, n_samples: int, allow_empty: bool = True) -> Groups:
    """Validate groups in any accepted form.

    Parameters
    ----------
    groups : array-like of shape (n_samples,), {array-like, sparse matrix} of shape \
            (n_samples, n_groups), Groups, or None
        Ids of a single type, a 0/1 membership matrix, or None: every sample is a group.
    n_samples : int
        Number of samples.
    allow_empty : bool, default=True
        Whether to allow groups without samples (columns of zeros in a membership matrix).

    Returns
    -------
    Groups
        Groups, in the order of the sorted ids or of the matrix columns.

    Raises
    ------
    ValueError
        If the number of samples is wrong, ids are missing or cannot be sorted, the matrix is not an
        indicator, or a group is empty and `allow_empty` is False.

    Examples
    --------
    >>> from sklearn_xlc.groups import check_groups
    >>> check_groups([[1, 0], [1, 1]], n_samples=2).samples
    array([0, 1, 1])
    """
    check_integer(n_samples, "n_samples", 0)
    if isinstance(groups, Groups):
        result = groups
        check_equal("samples", groups=result.n_samples, X=n_samples)
    elif groups is not None and (given := _as_array(groups)).ndim == 2:
        members = _check_membership(given, n_samples).tocsc()
        indices, indptr = members.indices.astype(np.int64), members.indptr.astype(np.int64)
        result = Groups(indices, indptr, None, n_samples)
    else:
        group_of = np.arange(n_samples) if groups is None else _encode(given, n_samples)
        indptr = pointers_of(np.bincount(group_of)).astype(np.int64)
        result = Groups(np.argsort(group_of, kind="stable"), indptr, group_of, n_samples)
    if not (allow_empty or result.sizes.all()):
        raise ValueError(
            f"column {result.sizes.argmin()} of groups is a group without samples; every group "
            "needs at least one"
        )
    return result


def _as_array(groups: Any) -> Any:
    """Convert to an array, of ids or of memberships, without converting ids of mixed types."""
    if sp.issparse(groups):
        return groups
    if np.ma.is_masked(groups):
        row = np.argwhere(np.ma.getmaskarray(groups))[0, 0]
        raise ValueError(f"groups is masked in row {row}; every sample needs an id")
    array = as_array(groups, "groups")
    if array.ndim == 1 and array.dtype.kind in "fUS" and isinstance(groups, (list, tuple)):
        # 1 and "1" are two ids, and so are 2**63 and 2**63 + 1.
        is_changed = array.dtype.kind != "f" or any(isinstance(i, Integral) for i in groups)
        return np.array(groups, dtype=object) if is_changed else array
    return array


def _encode(groups: Any, n_samples: int) -> IntArray:
    """Encode group ids as integers 0, 1, ... in the order of the sorted ids."""
    ids = np.asarray(groups)
    if ids.shape != (n_samples,):
        raise ValueError(
            f"groups must hold one id for each of the {n_samples} samples, or be a membership "
            f"matrix of shape (n_samples, n_groups), got shape {ids.shape}"
        )
    if ids.dtype == object:
        wrong = np.flatnonzero([missing_value(value) is not None for value in ids])
    else:
        wrong = np.flatnonzero(ids != ids)  # NaN differs from itself
    if len(wrong):
        raise ValueError(
            f"groups holds {ids[wrong[0]]} for row {wrong[0]}; every sample needs an id"
        )
    try:
        found, group_of = np.unique(ids, return_inverse=True)
        # Sets are compared by what they hold, so that sorting leaves equal ones apart.
        if ids.dtype == object and len(set(ids.tolist())) < len(found):
            raise TypeError(f"{ids[0]!r} is compared to others by what it holds")
    except TypeError as error:
        raise ValueError(f"groups must hold ids of one type that can be sorted: {error}") from error
    return group_of.astype(np.int64)


def _check_membership(matrix: Any, n_samples: int) -> sp.csr_array:
    """Validate a 0/1 membership matrix; return canonical CSR."""
    check_equal("rows", **{"groups as a membership matrix": matrix.shape[0], "X": n_samples})
    if matrix.shape[1] == 1 and not sp.issparse(matrix) and not matrix.all():
        raise ValueError(
            "groups is one dense column that holds zeros: give ids as a 1-D array, or the "
            "membership matrix of a single group as a sparse matrix"
        )
    return check_indicator(matrix, "groups as a membership matrix")


# --- labels of groups ----------------------------------------------------------------------------


def split_counts(y: Any) -> tuple[Any, sp.csr_matrix | None]:
    """Split a y of label counts into indicator and counts; return any other y with None.

    Raises
    ------
    ValueError
        If y holds numbers above one, and also negative or fractional numbers.
    """
    if y is None or not is_indicator(y):
        return y, None
    matrix = check_sparse(y, "y") if sp.issparse(y) else np.asarray(y)
    if matrix.dtype.kind not in "iuf" or not (check_csr(matrix, "y").data > 1).any():
        return y, None
    counts = sp.csr_matrix(check_counts(matrix, "y"))
    indicator = counts.astype(bool).astype(np.int8)
    return (indicator if sp.issparse(y) else indicator.toarray()), counts


def check_group_counts(counts: sp.csr_matrix, groups: Groups) -> sp.csr_matrix:
    """Raise ValueError if a label count exceeds the size of the group."""
    wrong = np.flatnonzero(counts.data > _sizes(counts, groups))
    if len(wrong):
        group, label = row_of(counts, wrong[0]), counts.indices[wrong[0]]
        raise ValueError(
            f"y says that label {label} occurs {counts.data[wrong[0]]} times in the group of row "
            f"{groups.samples[groups.indptr[group]]}, which has {groups.sizes[group]} sample(s); "
            "a sample has a label at most once; if the numbers are not counts, set "
            "multiplicity='ignore'"
        )
    return counts


def cap_counts(counts: sp.csr_matrix, groups: Groups) -> sp.csr_matrix:
    """Limit counts to the size of the group."""
    data = np.minimum(counts.data, _sizes(counts, groups))
    return sp.csr_matrix((data, counts.indices, counts.indptr), shape=counts.shape)


def _sizes(counts: sp.csr_matrix, groups: Groups) -> np.ndarray:
    """Return the size of the group of each stored count."""
    return np.repeat(groups.sizes, np.diff(counts.indptr))


def labels_of_groups(y: Any, classes: np.ndarray | None) -> tuple[sp.csr_array, np.ndarray | None]:
    """Return label counts as canonical CSR, and the classes of a 1-D y."""
    if not sp.issparse(y):
        y = check_numbers(as_array(y, "y"), "y", ensure_2d=False, dtype=None, ensure_min_samples=0)
        if y.ndim == 1 or y.shape[1] == 1 and y.dtype.kind not in "biuf":
            y = column_or_1d(y)
            if y.dtype == object:
                check_objects(y)
            return _check_classes(y, classes)
    if 0 in y.shape[1:]:
        raise ValueError(f"y must have a column for each label, got shape {y.shape}")
    return check_counts(y, "y"), None


def _check_classes(y: np.ndarray, classes: np.ndarray | None) -> tuple[sp.csr_array, np.ndarray]:
    """Return the indicator of a 1-D y, and its classes."""
    refuse_continuous(y)
    known, ids = np.unique(y, return_inverse=True)
    if classes is not None:
        unknown = np.flatnonzero(~np.isin(y, classes))
        if len(unknown):
            raise ValueError(
                f"y holds the label {y[unknown[0]]} in row {unknown[0]}, which did not occur in fit"
            )
        known, ids = classes, np.searchsorted(classes, y)
    return one_per_row(ids, len(known), np.int32), known
