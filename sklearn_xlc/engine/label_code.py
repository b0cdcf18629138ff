"""Map the user's labels to integer ids and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._carrying import carried
from sklearn_xlc._checks import as_array, check_y, naming
from sklearn_xlc._compat import check_partial_fit_first_call
from sklearn_xlc._csr import index_dtype, one_per_row, ones_at, places_of
from sklearn_xlc._ids import as_list, refuse_mask
from sklearn_xlc._labels import (
    exact,
    exact_array,
    joined_labels,
    kind_of,
    listable,
    of_one_kind,
    plain,
)
from sklearn_xlc._part import sets_state
from sklearn_xlc._tags import (
    NamedSets,
    in_form,
    is_form,
    named_sets,
    plain_sets,
    refuse_other_types,
    refuse_unnamed,
    warn_of_joined_tags,
)

_NO_CLASSES = "y was 1-D class labels in the first fit and is {} now; give the same form"


@dataclass(frozen=True)
class SoftLabels:
    """Soft targets of `fit`: probabilities in (0, 1], canonical float32 CSR (n_samples, n_labels).

    Losses read the probabilities. Counts and decisions take labels above one half as true. `like`
    is an indicator in the form of predictions.
    """

    probabilities: sp.csr_matrix
    like: Any


@carried
@dataclass
class LabelCode:
    """Names of the labels, their positions in the head, and the form of predictions.

    Parameters
    ----------
    classes : ndarray of shape (n_labels,)
        Distinct labels (multi-class), or the names or numbers of the indicator's columns
        (multi-label).
    multilabel, sparse_output : bool
        Whether a sample may have any number of labels; whether predictions are sparse, as y was.
    dtype : dtype
        Type of the indicator.
    positions : ndarray of shape (n_labels,), default=None
        Position of each label in the head. None: label i has position i.
    labels_per_sample : float, default=1.0
        Mean number of labels of a training sample in the first fit.
    form : str, default=""
        Form of the label sets in `fit`, if their labels had names (see `_tags`).
    n_positions, n_first : int, default=None
        Number of positions of the head, empty ones included (None: one for each label), and of
        labels in the first fit, if labels were added or removed since.
    """

    classes: np.ndarray
    multilabel: bool
    sparse_output: bool
    dtype: Any
    positions: np.ndarray | None = None
    labels_per_sample: float = 1.0
    form: str = ""
    n_positions: int | None = None
    n_first: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        # With many labels every array counts: the estimator saves the classes itself.
        state = {k: v for k, v in vars(self).items() if k not in ("classes", "_ids")}
        return state | {"dtype": np.dtype(self.dtype).str}

    @sets_state
    def __setstate__(self, state: dict[str, Any]) -> None:
        form = state["form"]
        is_code = {type(state[name]) for name in ("multilabel", "sparse_output")} == {bool}
        if not (is_code and (form == "" or (state["multilabel"] and is_form(form)))):
            raise ValueError("a saved label code says nothing of the form of its labels")
        vars(self).update(state | {"dtype": np.dtype(state["dtype"])})

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
        """Label id at each position; -1 where there is none."""
        return places_of(self.label_order, self.n_positions or self.n_labels)

    def reordered(self, positions: np.ndarray | None) -> LabelCode:
        """Copy the code with other positions of the labels in the head."""
        return replace(self, positions=positions)

    def to_positions(self, Y: sp.csr_matrix) -> sp.csr_matrix:
        """Move the columns of an indicator from label ids to positions in the head."""
        return Y if self.positions is None else _move_columns(Y, self.positions, len(self._ids))

    def from_positions(self, Y: sp.csr_matrix) -> sp.csr_matrix:
        """Move the columns of an indicator from positions in the head to label ids."""
        return Y if self.positions is None else _move_columns(Y, self._ids, self.n_labels)

    def by_label(self, columns: np.ndarray) -> np.ndarray:
        """Reorder columns from positions in the head to label ids."""
        return columns if self.positions is None else columns[:, self.positions]

    def by_position(self, values: Any, empty: float = 0.0) -> Any:
        """Reorder a value for each label by positions in the head; fill in `empty` elsewhere."""
        if self.positions is None:
            return values
        moved = values[self._ids]
        moved[self._ids < 0] = empty
        return moved

    def to_ids(self, positions: np.ndarray) -> np.ndarray:
        """Return the label ids at positions in the head."""
        return positions if self.positions is None else self._ids[positions]

    def with_labels(self, names: Sequence[Any]) -> tuple[LabelCode, np.ndarray]:
        """Return a code with further labels, and their positions: empty ones first, then new ones.

        Known labels keep their positions. Class labels stay sorted; new columns of an indicator
        follow the known ones.
        """
        classes, n_known = joined_labels(self.classes, names), len(self._ids)
        empty = np.flatnonzero(self._ids < 0)[: len(names)]
        new = np.concatenate([empty, n_known + np.arange(len(names) - len(empty))])
        positions = np.concatenate([self.label_order, new])
        if not self.multilabel:
            order = np.argsort(classes, kind="stable")
            classes, positions = classes[order], positions[order]
        n_positions = max(n_known, int(positions.max()) + 1)
        return self._changed(classes, positions, n_positions), new

    def without_labels(self, ids: np.ndarray) -> LabelCode:
        """Return a code without some labels; their positions become empty."""
        kept = np.delete(np.arange(self.n_labels), ids)
        return self._changed(self.classes[kept], self.label_order[kept], len(self._ids))

    def _changed(self, classes: np.ndarray, positions: np.ndarray, n_positions: int) -> LabelCode:
        is_plain = np.array_equal(positions, np.arange(n_positions))
        return replace(
            self,
            classes=classes,
            positions=None if is_plain else positions,
            n_positions=n_positions,
            n_first=self.n_first or self.n_labels,
        )

    def unknown_of(self, classes: Any) -> list[Any]:
        """Return the new labels in `classes` of a later `partial_fit`, in their order."""
        given = np.asarray(classes)
        if given.ndim != 1:
            raise ValueError(f"classes must be one-dimensional, got shape {given.shape}")
        # An array of a list would make one type of several.
        names, known = dict.fromkeys(self._values(classes, "classes")), self.classes.tolist()
        missing = next((name for name in known if name not in names), None)
        if missing is not None:
            raise ValueError(
                f"classes is not the same as on last call, to which it may only add: it lacks "
                f"{plain(missing)!r}; name the labels in classes_ and new ones, or call "
                "remove_labels"
            )
        of_known = set(known)
        added = [name for name in names if name not in of_known]
        number = Integral if self.multilabel else Real
        for name in added:
            kind = kind_of(name, number)
            if kind != kind_of(known[0], number):
                raise ValueError(
                    f"classes adds {plain(name)!r}, but the labels known so far are of another "
                    f"type, like {plain(known[0])!r}"
                )
            if kind == "number" and not float(name).is_integer():
                raise ValueError(
                    f"classes adds {plain(name)!r}, which is no whole number: no y may hold it"
                )
        return [int(name) for name in added] if self.classes.dtype.kind in "iu" else added

    def _values(self, labels: Any, name: str) -> list[Any]:
        """List labels as values of the type of the classes, if these are dates or durations."""
        dtype = self.classes.dtype
        if dtype.kind not in "mM":
            return as_list(labels)
        with naming(name):
            given = np.asarray(labels, dtype=f"{dtype.kind}8")
        values = given.astype(dtype)
        differ = values != given
        if differ.any():
            raise ValueError(
                f"{name} holds {given[differ][0]}, but the labels known so far are of type "
                f"{dtype.str[1:]}"
            )
        return values.tolist()

    def check_columns(self, names: list[Any]) -> None:
        """Raise ValueError unless names of the columns of y are the labels, in their order."""
        if names != self.classes.tolist():
            raise ValueError(
                "classes names the columns in another order than classes_, or one of them twice: "
                "the columns of y are the labels in classes_, then new ones; give such a y, and "
                "classes=[*clf.classes_, ...] with the names of the new ones"
            )

    def ids_of(self, labels: Any) -> np.ndarray:
        """Return the ids of the given labels, ascending."""
        names = as_array(labels, "labels")
        if names.ndim != 1:
            what = f"an array of shape {names.shape}" if names.ndim else repr(labels)
            listed = labels if isinstance(labels, set | frozenset) else [labels]
            remedy = "" if names.ndim else f"; give a list, {[*listed]!r}"
            raise ValueError(f"labels must be array-like, got {what}{remedy}")
        refuse_mask(labels, self.classes)
        ids = {name: i for i, name in enumerate(self.classes.tolist())}
        # A list may hold labels that are arrays or tensors of no dimension.
        values = self._values(labels if self.classes.dtype.kind in "mM" else names, "labels")
        unknown = [name for name in values if name not in ids]
        if unknown:
            raise ValueError(
                f"labels must be some of the {self.n_labels} labels in classes_, got "
                f"{plain(unknown[0])!r}"
            )
        return np.unique(np.array([ids[name] for name in values], dtype=np.int64))

    @property
    def kind_of_tags(self) -> str:
        """Return the kind of the type of labels given as tags, "" for others."""
        return self.classes.dtype.kind if self.multilabel and " of " in self.form else ""

    def sets(self, y: Any, known: bool = True, **options: Any) -> NamedSets | None:
        """Read a later y as label sets with names, as the first fit did; None if it has no names.

        With `known` labels must be known, and columns are in the order of `classes`. Raises
        ValueError if the first fit was on class labels.
        """
        if not self.multilabel:
            found = named_sets(y, as_tags=False, needs_tags=False)
            if found is not None and (np.diff(found.indicator.indptr) != 1).any():
                raise ValueError(_NO_CLASSES.format("label sets"))
            return None
        classes = self.classes if known else None
        found = named_sets(y, classes, as_tags=self.kind_of_tags == "i", **options)
        if found is None and self.kind_of_tags:
            refuse_unnamed(y)
        return found

    def read(self, y: Any) -> Any:
        """Validate a later y, and return it as :meth:`encode` does."""
        return self.encode(check_y(plain_sets(self.sets(y) or y)))

    def encode(self, y: Any) -> sp.csr_matrix:
        """Encode y, checked by :func:`check_y`, as CSR of shape (n_samples, n_labels)."""
        if self.multilabel:
            if y.ndim != 2 or y.shape[1] != self.n_labels:
                raise ValueError(
                    f"y must be an indicator with {self.n_labels} columns as in the first fit, "
                    f"got shape {y.shape}; more columns need as many `classes=` in partial_fit"
                )
            return y
        if y.ndim != 1:
            raise ValueError(_NO_CLASSES.format("an indicator matrix"))
        classes, y = of_one_kind(self.classes, y)
        try:
            ids = np.searchsorted(classes, y)
        except TypeError:  # they have no order in common
            raise ValueError(
                f"y holds the label {plain(y[0])!r}, but other labels are of another type, like "
                f"{plain(self.classes[0])!r}: none would be equal"
            ) from None
        ids[ids == self.n_labels] = 0
        unknown = classes[ids] != y
        if unknown.any():
            raise ValueError(
                f"y holds the label {plain(y[unknown][0])!r}, which is not one of the "
                f"{self.n_labels} classes known so far; name it in `classes=` of partial_fit, or "
                "fit anew without warm_start"
            )
        ids = ids.astype(index_dtype(len(y), self.n_labels))
        return sp.csr_matrix(one_per_row(ids, self.n_labels))

    def label_sets(self, indptr: np.ndarray, ids: np.ndarray) -> sp.csr_matrix:
        """Return the sparse indicator of label ids."""
        return ones_at(ids, indptr, self.n_labels, self.dtype)

    def give(self, sets: Any, index: Any = None) -> Any:
        """Return predicted label sets by name, if labels have names, with the index of X if any."""
        return in_form(sets, self.classes, self.form, self.dtype, index) if self.form else sets


def _move_columns(Y: sp.csr_matrix, moved_to: np.ndarray, n_columns: int) -> sp.csr_matrix:
    """Copy a matrix, and move column j to column ``moved_to[j]`` of `n_columns`."""
    # Indices are sorted in place, and their data with them.
    indices = moved_to.astype(Y.indices.dtype)[Y.indices]
    moved = sp.csr_matrix((Y.data.copy(), indices, Y.indptr), shape=(Y.shape[0], n_columns))
    moved.sort_indices()
    return moved


def code_of(y: Any, checked: Any, sample_weight: np.ndarray | None = None) -> LabelCode:
    """Build the code of y; `checked` is the result of :func:`check_y` for y or its indicator."""
    if sp.issparse(checked):
        # Samples of weight zero count no more than if they were not there.
        is_used = None if sample_weight is None else sample_weight > 0
        used = checked if is_used is None or is_used.all() else checked[np.flatnonzero(is_used)]
        total = used.data.sum(dtype=np.float64)  # of soft labels, their probabilities
        mean = float(total) / max(1, used.shape[0])
        given = plain_sets(y)
        if given is y or not y.form:  # an indicator
            is_sparse = sp.issparse(given)
            dtype = given.dtype if is_sparse else np.asarray(given).dtype  # also of tensors
            names = np.arange(checked.shape[1]) if given is y else y.classes
            return LabelCode(names, True, is_sparse, dtype, None, mean)
        if not y.is_frame:
            warn_of_joined_tags(y.classes, in_lists=True)
        return LabelCode(y.classes, True, not y.is_dense, y.dtype, None, mean, y.form)
    classes = np.unique(checked)
    if len(classes) < 2:
        one = f"y has one class only ({plain(classes[0])!r})" if len(classes) else "none is named"
        raise ValueError(f"{one}; a classifier needs at least two classes")
    warn_of_joined_tags(classes)
    return LabelCode(classes, False, False, classes.dtype)


def code_of_first(classifier: Any, classes: Any) -> LabelCode:
    """Build the code of the class labels that the first `partial_fit` names, and set `classes_`."""
    if classes is None:
        raise ValueError(
            "classes must be passed on the first call to partial_fit: all class labels that will "
            "occur, such as classes=np.unique(y) of the y of all calls"
        )
    given = exact(classes)
    check_partial_fit_first_call(classifier, given)
    found = listable(classifier.classes_)
    if found.dtype.kind == "U":  # cut off null characters at the ends
        found = exact_array(sorted(set(as_list(given))))
    return code_of(found, found)


def with_classes(y: Any, classes: list[Any]) -> Any:
    """Return class labels followed by further classes; an indicator unchanged."""
    if not classes or sp.issparse(y):
        return y
    refuse_other_types(y[0], classes, Real)
    known = set(y.tolist())  # as y has them: 1 is True
    further = [label for label in classes if label not in known]
    return joined_labels(y, further) if further else y
