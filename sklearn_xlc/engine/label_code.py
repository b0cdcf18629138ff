"""Label code: from the user's labels to integer ids and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._checks import check_y, plain
from sklearn_xlc._csr import FEW_ENTRIES, index_dtype, one_per_row, row_blocks
from sklearn_xlc._tags import NamedSets, in_form, named_sets
from sklearn_xlc.engine.soft_labels import SoftLabels


@dataclass
class LabelCode:
    """Names of the labels, their positions in the head, and the form of predictions.

    Parameters
    ----------
    classes : ndarray of shape (n_labels,)
        Distinct labels (multi-class), or the names or numbers of the indicator's columns
        (multi-label).
    multilabel : bool
        Whether a sample may have any number of labels, or exactly one.
    sparse_output : bool
        Whether predicted label sets are gathered as a sparse indicator, as where `fit` saw one.
    dtype : dtype
        Type of the indicator.
    positions : ndarray of shape (n_labels,), default=None
        Position of each label in the head. None: label i has position i.
    labels_per_sample : float, default=1.0
        Mean number of labels of a training sample, as the code was made.
    form : str, default=""
        Form of the label sets that `fit` saw, if their labels had names (see `_tags`).
    """

    classes: np.ndarray
    multilabel: bool
    sparse_output: bool
    dtype: Any
    positions: np.ndarray | None = None
    labels_per_sample: float = 1.0
    form: str = ""

    def __getstate__(self) -> dict[str, Any]:
        # With many labels every array counts: the estimator saves the classes as its own.
        return {k: v for k, v in vars(self).items() if k not in ("classes", "_ids")}

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return len(self.classes)

    @property
    def label_order(self) -> np.ndarray:
        """Position of each label in the head."""
        return np.arange(self.n_labels) if self.positions is None else self.positions

    @cached_property
    def _ids(self) -> np.ndarray:
        """Label at each position."""
        return np.argsort(self.label_order)

    def reordered(self, positions: np.ndarray | None) -> LabelCode:
        """Copy with other positions of the labels in the head."""
        return replace(self, positions=positions)

    def to_positions(self, Y: sp.csr_matrix) -> sp.csr_matrix:
        """Move the columns of an indicator from label ids to positions in the head."""
        return Y if self.positions is None else _move_columns(Y, self.positions)

    def from_positions(self, Y: sp.csr_matrix) -> sp.csr_matrix:
        """Move the columns of an indicator from positions in the head to label ids."""
        return Y if self.positions is None else _move_columns(Y, self._ids)

    def by_label(self, columns: np.ndarray) -> np.ndarray:
        """Reorder columns from positions in the head to label ids."""
        return columns if self.positions is None else columns[:, self.positions]

    def by_position(self, values: Any) -> Any:
        """Reorder a value for each label from label ids to positions in the head."""
        return values if self.positions is None else values[self._ids]

    def to_ids(self, positions: np.ndarray) -> np.ndarray:
        """Label ids at positions in the head."""
        return positions if self.positions is None else self._ids[positions]

    def read(self, y: Any) -> Any:
        """Validate a later y: label sets as an indicator of these labels, or class labels."""
        sets = named_sets(y, self.classes) if self.multilabel else None
        return self.encode(check_y(y if sets is None else sets.indicator))

    def encode(self, y: Any) -> sp.csr_matrix:
        """CSR indicator of shape (n_samples, n_labels) of y as returned by :func:`check_y`."""
        if self.multilabel:
            if y.ndim != 2 or y.shape[1] != self.n_labels:
                raise ValueError(
                    f"y must be an indicator with {self.n_labels} columns as in the first fit, "
                    f"got shape {y.shape}"
                )
            return y
        if y.ndim != 1:
            raise ValueError(
                "y was 1-D class labels in the first fit and is an indicator matrix now; "
                "give the same form"
            )
        ids = np.empty(len(y), index_dtype(len(y), self.n_labels))
        for rows in row_blocks(len(y), 1, FEW_ENTRIES):
            ids[rows] = self._ids_of(y[rows])
        return sp.csr_matrix(one_per_row(ids, self.n_labels))

    def _ids_of(self, y: np.ndarray) -> np.ndarray:
        ids = np.searchsorted(self.classes, y)
        ids[ids == self.n_labels] = 0
        unknown = self.classes[ids] != y
        if unknown.any():
            raise ValueError(
                f"y holds the label {plain(y[unknown][0])!r}, which is not one of the "
                f"{self.n_labels} classes of the first fit; name all classes in the first call of "
                "partial_fit (`classes=`), or fit anew without warm_start"
            )
        return ids

    def label_sets(self, indptr: np.ndarray, ids: np.ndarray) -> sp.csr_matrix:
        """Sparse indicator of the labels with these ids."""
        ones = np.ones(len(ids), dtype=self.dtype)
        Y = sp.csr_matrix((ones, ids, indptr), shape=(len(indptr) - 1, self.n_labels))
        Y.sort_indices()
        return Y

    def indicator(self, indptr: np.ndarray, ids: np.ndarray) -> Any:
        """Predicted indicator, sparse or dense."""
        Y = self.label_sets(indptr, ids)
        return Y if self.sparse_output else Y.toarray()

    def give(self, sets: Any, X: Any) -> Any:
        """Predicted indicator in the form of the y that `fit` saw; X may have an index."""
        return in_form(sets, self.classes, self.form, self.dtype, X) if self.form else sets


def _move_columns(Y: sp.csr_matrix, moved_to: np.ndarray) -> sp.csr_matrix:
    """Copy of a matrix whose column j becomes column ``moved_to[j]``."""
    # Indices are sorted in place, and their data with them.
    indices = moved_to.astype(Y.indices.dtype)[Y.indices]
    moved = sp.csr_matrix((Y.data.copy(), indices, Y.indptr), shape=Y.shape)
    moved.sort_indices()
    return moved


def code_of(y: Any, checked: Any, sample_weight: np.ndarray | None = None) -> LabelCode:
    """Build the code of y; `checked` is y, or its indicator, as :func:`check_y` returned it."""
    if sp.issparse(checked):
        named = isinstance(y, NamedSets)
        counts = np.diff(checked.indptr)
        if isinstance(y, SoftLabels):
            counts, y = np.asarray(checked.sum(axis=1)).ravel(), y.like
        # Tensors have other types.
        dtype = y.dtype if named or sp.issparse(y) else np.asarray(y).dtype
        # Samples of weight zero count no more than if they were not there.
        counts = counts if sample_weight is None else counts[sample_weight > 0]
        mean = float(counts.mean()) if len(counts) else 0.0
        classes, form = (y.classes, y.form) if named else (np.arange(checked.shape[1]), "")
        sparse = not y.is_dense if named else sp.issparse(y)
        return LabelCode(classes, True, sparse, dtype, None, mean, form)
    classes = np.unique(checked)
    if len(classes) < 2:
        raise ValueError(
            f"y has one class only ({plain(classes[0])!r}); a classifier needs at least two classes"
        )
    return LabelCode(classes, False, False, classes.dtype)
