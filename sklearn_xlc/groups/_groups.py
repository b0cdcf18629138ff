"""Groups of rows: ids or a membership matrix, and the labels that belong to groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def check_groups(groups: Any, n_samples: int) -> tuple[sp.csr_array, np.ndarray | None]:
    """Membership matrix of groups in any accepted form, and the group of each row if it has one.

    Parameters
    ----------
    groups : array-like of shape (n_samples,), {array-like, sparse matrix} of shape \
            (n_samples, n_groups), or None
        Ids of any one type, a 0/1 membership matrix, or None where every row is its own group.
    n_samples : int
        Number of rows.

    Returns
    -------
    membership : csr_array of shape (n_samples, n_groups) and dtype int8
        Ones, without stored zeros. Of ids, groups are in the order of sorted ids.
    group_of : ndarray of shape (n_samples,) or None
        None for a membership matrix.

    Raises
    ------
    ValueError
        If the length is wrong, ids are missing or do not sort, or the matrix is no indicator.
    """
    if groups is None:
        group_of = np.arange(n_samples)
    elif sp.issparse(groups) or np.ndim(groups) == 2:
        return _check_membership(groups, n_samples), None
    else:
        group_of = encode_groups(groups, n_samples)
    n_groups = int(group_of.max(initial=-1)) + 1
    parts = (np.ones(n_samples, dtype=np.int8), group_of, np.arange(n_samples + 1))
    return sp.csr_array(parts, shape=(n_samples, n_groups)), group_of


def encode_groups(groups: Any, n_samples: int) -> np.ndarray:
    """Group ids as integers 0, 1, ... in the order of the sorted ids."""
    ids = np.asarray(groups)
    if ids.shape != (n_samples,):
        raise ValueError(
            f"groups must hold one id for each of the {n_samples} rows, or be a membership matrix "
            f"of shape (n_samples, n_groups), got shape {ids.shape}"
        )
    if ids.dtype == object:
        wrong = np.flatnonzero([_is_missing(value) for value in ids])
    else:
        wrong = np.flatnonzero(ids != ids)  # NaN is unlike itself
    if len(wrong):
        raise ValueError(f"groups holds {ids[wrong[0]]} for row {wrong[0]}; every row needs an id")
    try:
        return np.unique(ids, return_inverse=True)[1].astype(np.int64)
    except TypeError as error:
        raise ValueError(f"groups must hold ids of one type that sort together: {error}") from error


def _is_missing(value: Any) -> bool:
    """None, NaN, NaT or pandas' NA, which cannot be compared."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def _check_membership(groups: Any, n_samples: int) -> sp.csr_array:
    """Canonical CSR of a 0/1 membership matrix."""
    matrix = groups if sp.issparse(groups) else np.asarray(groups)
    if matrix.shape[0] != n_samples:
        raise ValueError(
            f"groups as a membership matrix must have {n_samples} rows, one for each row of X, "
            f"got shape {matrix.shape}"
        )
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"groups must hold the numbers 0 and 1, got dtype {matrix.dtype}")
    if matrix.shape[1] == 1 and not sp.issparse(matrix) and not matrix.all():
        raise ValueError(
            "groups is one dense column, and not of ones: give ids as a 1-D array; a membership "
            "matrix of a single group as a sparse matrix"
        )
    membership = sp.csr_array(matrix)
    wrong = np.flatnonzero((membership.data != 0) & (membership.data != 1))
    if len(wrong):
        row = row_of(membership, wrong[0])
        raise ValueError(
            f"groups as a membership matrix must hold 0 and 1 only, got "
            f"{membership.data[wrong[0]]} in row {row}"
        )
    membership = membership.astype(np.int8)
    membership.sum_duplicates()
    membership.eliminate_zeros()
    membership.data[:] = 1
    return membership


def group_labels(
    Y: sp.csr_array, membership: sp.csr_array, group_of: np.ndarray | None, name: str = "y"
) -> sp.csr_array:
    """Labels of each group, from row-aligned ones (ids) or as they are (membership matrix).

    Parameters
    ----------
    Y : csr_array in canonical form, without stored zeros
        Labels: a row for each row of the data where `group_of` is given, else one for each group.
    membership, group_of
        As :func:`check_groups` returns them.
    name : str, default="y"
        What messages call `Y`.

    Returns
    -------
    csr_array of shape (n_groups, n_labels)
        Labels of the groups.

    Raises
    ------
    ValueError
        If the number of rows is wrong, or rows of one group have different labels.
    """
    n_expected = membership.shape[1] if group_of is None else membership.shape[0]
    if Y.shape[0] != n_expected:
        meaning = "group of the membership matrix" if group_of is None else "row of X"
        raise ValueError(
            f"{name} must have {n_expected} rows, one for each {meaning}, got {Y.shape[0]}"
        )
    if group_of is None:
        return Y
    first = np.unique(group_of, return_index=True)[1]
    labels = Y[first]
    _check_alike(Y, labels, group_of, first, name)
    return labels


def _check_alike(
    Y: sp.csr_array, labels: sp.csr_array, group_of: np.ndarray, first: np.ndarray, name: str
) -> None:
    """Refuse rows whose labels are not those of the first row of their group."""
    n_labels = np.diff(Y.indptr)
    differs = n_labels != np.diff(labels.indptr)[group_of]
    rows = np.repeat(np.arange(Y.shape[0]), n_labels)
    comparable = ~differs[rows]
    place = np.arange(Y.nnz) - Y.indptr[rows] + labels.indptr[group_of[rows]]
    rows, place = rows[comparable], place[comparable]
    unlike = (Y.indices[comparable] != labels.indices[place]) | (
        Y.data[comparable] != labels.data[place]
    )
    differs[rows[unlike]] = True
    if differs.any():
        row = int(differs.argmax())
        raise ValueError(
            f"{name} must hold the labels of the group in every one of its rows, but row {row} "
            f"differs from row {first[group_of[row]]} of the same group; for labels a group, one "
            "row each, give groups as a membership matrix"
        )


def row_of(csr: sp.csr_array, position: int) -> int:
    """Row that holds the stored value at `position`."""
    return int(np.searchsorted(csr.indptr, position, side="right")) - 1
