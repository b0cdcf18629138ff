"""Validation of true and predicted labels, and their common form :class:`Ranking`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._checks import (
    as_array,
    check_equal,
    check_indicator,
    check_sample_weight,
    check_sparse,
)
from sklearn_xlc._csr import (
    BoolArray,
    FloatArray,
    IntArray,
    canonical,
    one_per_row,
    row_blocks,
    row_of,
)
from sklearn_xlc._ids import compare_indexes
from sklearn_xlc._labels import are_texts, none_for_missing
from sklearn_xlc._ranking import find_hits, rank_rows, rank_stored
from sklearn_xlc._tags import NamedSets, aligned, check_type_of_labels, index_of, named_sets

# Default bound of class ids: row times id must fit into 64 bits.
_MAX_LABELS = 2**31

_FORMS = (
    "y_pred is either floating or sparse scores of the shape of y_true, or an integer array "
    "(n_samples, >=k) of label ids, best first, -1 for none"
)


@dataclass(frozen=True)
class Ranking:
    """Top-k ids and true labels, the input of all ranking metrics."""

    top: IntArray  # (n_samples, width <= k), best first, -1 for none
    hits: BoolArray  # (n_samples, width): the label of this rank is true
    true: sp.csr_array  # (n_samples, n_labels), canonical, all stored values 1
    n_true: IntArray  # (n_samples,) true labels of each sample
    weight: FloatArray  # (n_samples,)
    k: int
    classes: npt.NDArray[Any] | None = None  # (n_labels,) where labels have names

    def mean(self, values: npt.NDArray[Any]) -> float:
        """Compute the weighted mean over the samples."""
        return float(np.average(values, weights=self.weight))


def check_ranking(
    y_true: Any, y_pred: Any, k: Any, sample_weight: Any = None, n_labels: int | None = None
) -> Ranking:
    """Validate the arguments of a metric; `n_labels` bounds class ids if y_pred does not."""
    k = check_integer(k, "k")
    compare_indexes(index_of(y_true), index_of(y_pred), "y_true", "y_pred")
    compare_indexes(index_of(y_true), index_of(sample_weight), "y_true", "sample_weight")
    y_true, y_pred, classes = by_name(y_true, y_pred, "y_true")
    y_pred = check_prediction(y_pred)
    n_columns = (n_labels or _MAX_LABELS) if holds_ids(y_pred) else y_pred.shape[1]
    true = check_labels(y_true, "y_true", n_columns)
    check_equal("rows", y_true=true.shape[0], y_pred=y_pred.shape[0])
    if holds_ids(y_pred):
        top = check_ids(y_pred, k, true.shape)
    else:
        if y_pred.shape != true.shape:
            raise ValueError(
                f"y_pred holds scores of shape {y_pred.shape}, y_true has shape {true.shape}: "
                f"{_FORMS}"
            )
        top = rank_scores(y_pred, k)
    return Ranking(
        top=top,
        hits=find_hits(top, true),
        true=true,
        n_true=np.diff(true.indptr).astype(np.int64),
        weight=check_weight(sample_weight, true.shape[0]),
        k=k,
        classes=classes,
    )


def by_name(y_true: Any, y_pred: Any, name: str) -> tuple[Any, Any, npt.NDArray[Any] | None]:
    """Convert named labels: true labels to an indicator, predicted names to ids.

    Returned are also the names of the columns: of a frame, then of others that are predicted; of
    tags sorted, so that no tie tells which are true. Arguments without names stay as they are, with
    None.
    """
    sets, names = sets_beside(y_true, y_pred, name)
    if sets is None:
        return y_true, y_pred, None
    if names is None or names.ndim != 2 or not _are_names(names, sets):
        if sets.is_frame:
            refuse_other_order(y_pred, sets)
            return sets.indicator, y_pred, sets.classes
        raise TypeError(
            f"{name} holds tags, whose columns have no order: y_pred must be an array of shape "
            "(n_samples, >=k) with the names of the best labels, the first of the two arrays that "
            "predict_topk returns"
        )
    labels = names.ravel().tolist()
    none = (None,) if -1 in sets.classes else (None, -1)
    predicted = {label: None for label in dict.fromkeys(labels) if label not in none}
    check_type_of_labels(sets, predicted, name)
    union = dict.fromkeys([*sets.classes.tolist(), *predicted])
    if not sets.is_frame:  # a tag of another type is none that y_true could name
        union = dict.fromkeys(sorted(union, key=lambda label: (isinstance(label, str), label)))
    true, classes = aligned(sets, union)
    at = {label: position for position, label in enumerate(classes)} | dict.fromkeys(none, -1)
    ids = np.fromiter(map(at.__getitem__, labels), np.int64, len(labels))
    return true, ids.reshape(names.shape), np.array(classes, dtype=object)


def sets_beside(
    y_true: Any, y_pred: Any, name: str
) -> tuple[NamedSets | None, npt.NDArray[Any] | None]:
    """Read named label sets, or classes that are strings, beside an array of predicted names.

    Returned is also the array; None for sparse predictions.
    """
    names = None if sp.issparse(y_pred) else none_for_missing(as_array(y_pred, "y_pred"))
    return named_sets(_as_sets(y_true, names), name=name, needs_tags=False), names


def _as_sets(y_true: Any, names: npt.NDArray[Any] | None) -> Any:
    """Return classes that are strings as sets of one label, where names are predicted."""
    if names is None or names.ndim != 2 or names.dtype.kind not in "OUS" or sp.issparse(y_true):
        return y_true
    is_column = np.iterable(y_true) and not isinstance(y_true, str | dict)
    is_column = is_column and len(getattr(y_true, "shape", "1")) == 1
    if is_column and len(y_true) and are_texts(y_true):
        return [(label,) for label in y_true]
    return y_true


def refuse_other_order(y_pred: Any, sets: NamedSets, name: str = "y_pred") -> None:
    """Raise ValueError if a frame of scores has the columns of a frame of labels in disorder."""
    found, expected = list(getattr(y_pred, "columns", ())), sets.classes.tolist()
    if found != expected and set(found) == set(expected):
        raise ValueError(
            f"the columns of y_true and {name} are the same labels in two orders; give "
            f"{name}[y_true.columns]"
        )


def refuse_tags(y: Any, name: str, ordered: str) -> None:
    """Raise TypeError for tags, which do not say in which order `ordered` stand."""
    sets = named_sets(y, name=name, needs_tags=False)
    if sets is not None and not sets.is_frame:
        raise TypeError(
            f"{name} holds tags, which do not tell the order of {ordered}: give an indicator whose "
            "columns are in this order"
        )


def _are_names(y_pred: npt.NDArray[Any], sets: NamedSets) -> bool:
    """Return whether predictions are names of labels, rather than scores or column numbers."""
    is_whole = y_pred.dtype.kind in "iu"
    if sets.is_frame and is_whole:
        return sets.classes.dtype.kind == "i"
    return is_whole or y_pred.dtype.kind in "OUS"


def check_labels(y: Any, name: str, n_labels: int | None = None) -> sp.csr_array:
    """Convert an indicator, tags or 1-D class ids to a canonical CSR indicator."""
    sets = named_sets(y, name=name)
    y = y if sets is None else sets.indicator
    if not sp.issparse(y):
        y = as_array(y, name)
    if y.ndim not in (1, 2) or (sp.issparse(y) and y.ndim == 1):
        raise ValueError(
            f"{name} must be an indicator (n_samples, n_labels) or a dense array of class ids "
            f"(n_samples,), got shape {y.shape}"
        )
    if 0 in y.shape:
        raise ValueError(f"{name} must have at least one row and one label, got shape {y.shape}")
    if y.ndim == 1:
        return _indicator_of_classes(y, name, n_labels)
    return check_indicator(y, name, "class ids go in a 1-D array" if y.shape[1] == 1 else "")


def _indicator_of_classes(ids: npt.NDArray[Any], name: str, n_labels: int | None) -> sp.csr_array:
    """Build a CSR of one true label per sample, with `n_labels` or enough columns."""
    if ids.dtype.kind not in "iu":
        raise TypeError(
            f"a 1-D {name} holds integer class ids, got dtype {ids.dtype}; encode other class "
            "labels as ids first (sklearn.preprocessing.LabelEncoder), as topk_scorer does"
        )
    limit = n_labels or _MAX_LABELS
    wrong = np.flatnonzero((ids < 0) | (ids >= limit))
    if wrong.size:
        raise ValueError(
            f"{name} holds class id {ids[wrong[0]]} in row {wrong[0]}; "
            f"accepted are 0 to {limit - 1}"
        )
    return one_per_row(ids.astype(np.int64), n_labels or int(ids.max()) + 1)


def check_prediction(y_pred: Any) -> Any:
    """Validate predictions: sparse scores as canonical CSR, else a floating or integer array."""
    if sp.issparse(y_pred):
        if y_pred.ndim != 2 or y_pred.dtype.kind not in "biuf":
            raise ValueError(
                "a sparse y_pred must be a 2-D matrix of real scores, "
                f"got shape {y_pred.shape} and dtype {y_pred.dtype}"
            )
        return canonical(sp.csr_array(check_sparse(y_pred, "y_pred")), keep_zeros=True)
    y_pred = as_array(y_pred, "y_pred")
    if y_pred.dtype.kind not in "iuf":
        raise TypeError(f"y_pred must not be of dtype {y_pred.dtype}: {_FORMS}")
    if y_pred.ndim != 2:
        raise ValueError(f"y_pred must be 2-D, got shape {y_pred.shape}: {_FORMS}")
    return y_pred


def holds_ids(y_pred: Any) -> bool:
    """Return whether a validated prediction holds label ids rather than scores."""
    return not sp.issparse(y_pred) and y_pred.dtype.kind in "iu"


def check_ids(ids: npt.NDArray[Any], k: int, true_shape: tuple[int, int]) -> IntArray:
    """Validate an array of label ids, and return its first k columns."""
    if ids.shape[1] < k:
        raise ValueError(
            f"y_pred holds {ids.shape[1]} label ids per sample, k={k} needs at least {k}; fill "
            f"with -1, or call predict_topk(X, k={k})"
        )
    if ids.shape == true_shape and ids.shape[1] > 2 and ids.min() >= 0 and ids.max() <= 1:
        raise ValueError(
            "y_pred is an integer array of the shape of y_true that holds 0 and 1 only: it looks "
            "like an indicator, but integers are read as label ids; pass scores as floating "
            "numbers (y_pred.astype(float)) or as a sparse matrix"
        )
    outside = (ids >= true_shape[1]) | ((ids < -1) if ids.dtype.kind == "i" else False)
    ordered = np.sort(ids, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    for bad, values, what in (
        (outside, ids, f": accepted are 0 to {true_shape[1] - 1}, and -1 for none"),
        (twice, ordered[:, 1:], " more than once; a row may name a label only once"),
    ):
        if bad.any():
            row, rank = np.argwhere(bad)[0]
            raise ValueError(
                f"y_pred names label id {values[row, rank]} in row {row}{what}; integers are "
                "read as label ids, pass scores as floating numbers"
            )
    return ids[:, :k].astype(np.int64)


def check_weight(sample_weight: Any, n_samples: int) -> FloatArray:
    """Validate sample weights: finite, non-negative float64; ones if None."""
    weight = check_sample_weight(sample_weight, np.empty(n_samples))
    # Only ratios matter, and the sum of finite weights may overflow.
    with np.errstate(over="ignore"):
        return weight if np.isfinite(weight.sum()) else weight / weight.max()


def rank_scores(scores: Any, k: int) -> IntArray:
    """Return the ids of the k best scores of each sample, ties by id; -1 if fewer are ranked."""
    width = min(k, scores.shape[1])
    if sp.issparse(scores):
        data = scores.data if scores.dtype.kind == "f" else scores.data.astype(np.float64)
        wrong = np.flatnonzero(np.isnan(data))
        if wrong.size:
            raise ValueError(f"y_pred holds NaN in row {row_of(scores, wrong[0])}")
        best = rank_stored(data, scores.indptr, width)
        ranked = np.append(data, -np.inf)[best] > -np.inf
        return np.where(ranked, np.append(scores.indices, -1)[best], -1).astype(np.int64)
    top = np.empty((scores.shape[0], width), dtype=np.int64)
    for rows in row_blocks(*scores.shape):
        missing = np.isnan(scores[rows]).any(axis=1)
        if missing.any():
            raise ValueError(f"y_pred holds NaN in row {rows.start + int(missing.argmax())}")
        best, ids = rank_rows(scores[rows], width)
        top[rows] = np.where(best > -np.inf, ids, -1)
    return top
