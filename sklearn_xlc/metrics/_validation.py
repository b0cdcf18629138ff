"""Truth and prediction, in whatever form they come, as one form: top-k ids beside the truth."""

from dataclasses import dataclass
from numbers import Integral

import numpy as np
from scipy.sparse import csr_array, issparse

# Scores ranked at a time: bounds the temporaries of a dense prediction to some 100 MB.
_BLOCK_SIZE = 2**22

# Bound of class ids where nothing else bounds them: row times id must fit 64 bits.
_MAX_LABELS = 2**31

_FORMS = (
    "y_pred is either floating or sparse scores of the shape of y_true, or an integer array "
    "(n_samples, >=k) of label ids, best first, -1 for none"
)


@dataclass(frozen=True)
class Ranking:
    """Top-k lists beside the truth: all that a metric reads."""

    top: np.ndarray  # (n_samples, width <= k) int64, best first, -1 for none
    hits: np.ndarray  # (n_samples, width) bool: the label at this place is true
    true: csr_array  # (n_samples, n_labels), canonical, all stored values 1
    n_true: np.ndarray  # (n_samples,) true labels a row
    weight: np.ndarray  # (n_samples,)
    k: int

    def mean(self, values):
        """Weighted mean over the rows."""
        return float(np.average(values, weights=self.weight))


def check_ranking(y_true, y_pred, k, sample_weight=None, n_labels=None):
    """Validate the arguments of a metric; `n_labels` bounds class ids where y_pred does not."""
    k = check_k(k)
    y_pred = _check_prediction(y_pred)
    gives_ids = not issparse(y_pred) and y_pred.dtype.kind in "iu"
    n_labels = (n_labels or _MAX_LABELS) if gives_ids else y_pred.shape[1]
    true = check_labels(y_true, "y_true", n_labels)
    if true.shape[0] != y_pred.shape[0]:
        raise ValueError(
            f"y_true and y_pred must have as many rows: got {true.shape[0]} and {y_pred.shape[0]}."
        )
    if gives_ids:
        top = _check_ids(y_pred, k, true.shape)
    else:
        if y_pred.shape != true.shape:
            raise ValueError(
                f"y_pred holds scores of shape {y_pred.shape}, y_true has shape {true.shape}: "
                f"{_FORMS}."
            )
        top = rank_scores(y_pred, k)
    return Ranking(
        top=top,
        hits=_is_true(top, true),
        true=true,
        n_true=np.diff(true.indptr).astype(np.int64),
        weight=_check_weight(sample_weight, true.shape[0]),
        k=k,
    )


def check_k(k):
    """Return `k` as an int of at least 1."""
    if isinstance(k, bool | np.bool_) or not isinstance(k, Integral):
        raise TypeError(f"k must be an integer >= 1, got {k!r} of type {type(k).__name__}.")
    if k < 1:
        raise ValueError(f"k must be an integer >= 1, got {k}.")
    return int(k)


def check_labels(y, name, n_labels=None):
    """Canonical CSR indicator of a dense or sparse indicator, or of 1-D integer class ids."""
    if not issparse(y):
        y = _as_array(y, name)
    if y.ndim not in (1, 2) or (issparse(y) and y.ndim == 1):
        raise ValueError(
            f"{name} must be an indicator (n_samples, n_labels) or a dense array of class ids "
            f"(n_samples,), got shape {y.shape}."
        )
    if 0 in y.shape:
        raise ValueError(f"{name} must have at least one row and one label, got shape {y.shape}.")
    if y.ndim == 1:
        return _indicator_of_classes(y, name, n_labels)
    if y.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold the numbers 0 and 1 only, got dtype {y.dtype}.")
    indicator = canonical_csr(y)
    if not indicator.data.all():
        indicator = indicator.copy()
        indicator.eliminate_zeros()
    wrong = np.flatnonzero(indicator.data != 1)  # NaN is among them
    if wrong.size:
        row, value = _row_of(indicator, wrong[0]), indicator.data[wrong[0]]
        hint = " Class ids go in a 1-D array." if y.shape[1] == 1 else ""
        raise ValueError(f"{name} must hold 0 and 1 only, got {value} in row {row}.{hint}")
    return indicator


def _indicator_of_classes(ids, name, n_labels):
    """One true label a row; as many columns as `n_labels` says, or as the largest id needs."""
    if ids.dtype.kind not in "iu":
        raise TypeError(
            f"A 1-D {name} holds integer class ids, got dtype {ids.dtype}. Encode other class "
            "labels as ids first (sklearn.preprocessing.LabelEncoder); topk_scorer does it itself."
        )
    limit = n_labels or _MAX_LABELS
    wrong = np.flatnonzero((ids < 0) | (ids >= limit))
    if wrong.size:
        raise ValueError(
            f"{name} holds class id {ids[wrong[0]]} in row {wrong[0]}; "
            f"accepted are 0 to {limit - 1}."
        )
    n_labels = n_labels or int(ids.max()) + 1
    parts = (np.ones(ids.size, dtype=np.int8), ids.astype(np.int64), np.arange(ids.size + 1))
    return csr_array(parts, shape=(ids.size, n_labels))


def _check_prediction(y_pred):
    """Sparse scores as canonical CSR; anything else as a 2-D floating or integer array."""
    if issparse(y_pred):
        if y_pred.ndim != 2 or y_pred.dtype.kind not in "biuf":
            raise ValueError(
                "Sparse y_pred must be a 2-D matrix of real scores, "
                f"got shape {y_pred.shape} and dtype {y_pred.dtype}."
            )
        return canonical_csr(y_pred)
    y_pred = _as_array(y_pred, "y_pred")
    if y_pred.dtype.kind not in "iuf":
        raise TypeError(f"y_pred must not be of dtype {y_pred.dtype}: {_FORMS}.")
    if y_pred.ndim != 2:
        raise ValueError(f"y_pred must be 2-D, got shape {y_pred.shape}: {_FORMS}.")
    return y_pred


def _check_ids(ids, k, true_shape):
    """First k columns of an array of label ids, once all of it is seen to be valid."""
    if ids.shape[1] < k:
        raise ValueError(
            f"y_pred holds {ids.shape[1]} label ids a row, k={k} needs at least {k}; fill with -1."
        )
    if ids.shape == true_shape and ids.shape[1] > 2 and ids.min() >= 0 and ids.max() <= 1:
        raise ValueError(
            "y_pred is an integer array of the shape of y_true that holds 0 and 1 only: it looks "
            "like an indicator, but integers are read as label ids. Pass scores as floating "
            "numbers (y_pred.astype(float)) or as a sparse matrix."
        )
    outside = (ids >= true_shape[1]) | ((ids < -1) if ids.dtype.kind == "i" else False)
    ordered = np.sort(ids, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    for bad, values, what in (
        (outside, ids, f"accepted are 0 to {true_shape[1] - 1}, and -1 for none"),
        (twice, ordered[:, 1:], "and more than once; a row may name a label only once"),
    ):
        if bad.any():
            row, place = np.argwhere(bad)[0]
            raise ValueError(
                f"y_pred names label id {values[row, place]} in row {row}: {what}. "
                "(Integers are read as label ids; pass scores as floating numbers.)"
            )
    return ids[:, :k].astype(np.int64)


def _check_weight(sample_weight, n_samples):
    """Ones, or the finite, non-negative weights of the rows as float64."""
    if sample_weight is None:
        return np.ones(n_samples)
    weight = _as_array(sample_weight, "sample_weight")
    if weight.shape != (n_samples,) or weight.dtype.kind not in "biuf":
        raise ValueError(
            f"sample_weight must be {n_samples} numbers, one a row, "
            f"got shape {weight.shape} and dtype {weight.dtype}."
        )
    weight = weight.astype(np.float64)
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if wrong.size:
        raise ValueError(
            "sample_weight must be finite and not negative, "
            f"got {weight[wrong[0]]} in row {wrong[0]}."
        )
    if not weight.any():
        raise ValueError("sample_weight must not be zero for every row.")
    return weight


def _as_array(values, name):
    """Array of `values`; ragged nesting is refused by name."""
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be a rectangular array or a sparse matrix.") from error


def canonical_csr(matrix):
    """CSR with sorted ids and no duplicates; explicit zeros stay; the argument is not changed."""
    csr = csr_array(matrix)
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return csr


def _row_of(csr, position):
    """Row that holds the stored value at `position`."""
    return int(np.searchsorted(csr.indptr, position, side="right")) - 1


def _is_true(top, true):
    """Which of the ids in `top` are true labels of their row."""
    rows = np.arange(true.shape[0], dtype=np.int64)
    stride = np.int64(true.shape[1])
    # Rows and ids are sorted in canonical CSR, so the joint keys are sorted as well.
    keys = np.repeat(rows, np.diff(true.indptr)) * stride + true.indices
    wanted = np.where(top >= 0, rows[:, None] * stride + top, -1)
    place = np.searchsorted(keys, wanted)
    return np.append(keys, -2)[place] == wanted  # -2: beyond the last key, never wanted


def rank_scores(scores, k):
    """Ids of the k best scores of each row, ties by id, -1 where fewer are ranked; width <= k."""
    width = min(k, scores.shape[1])
    if issparse(scores):
        data = scores.data if scores.dtype.kind == "f" else scores.data.astype(np.float64)
        wrong = np.flatnonzero(np.isnan(data))
        if wrong.size:
            raise ValueError(f"y_pred holds NaN in row {_row_of(scores, wrong[0])}.")
        place = rank_stored(data, scores.indptr, width)
        ranked = np.append(data, -np.inf)[place] > -np.inf
        return np.where(ranked, np.append(scores.indices, -1)[place], -1).astype(np.int64)
    top = np.empty((scores.shape[0], width), dtype=np.int64)
    step = max(1, _BLOCK_SIZE // scores.shape[1])
    for start in range(0, scores.shape[0], step):
        block = scores[start : start + step]
        missing = np.isnan(block).any(axis=1)
        if missing.any():
            raise ValueError(f"y_pred holds NaN in row {start + int(missing.argmax())}.")
        top[start : start + step] = _rank_block(block, width)
    return top


def rank_stored(data, indptr, width):
    """Positions in `data` of the best stored values of each CSR row, best first, -1 for none."""
    n_stored = np.diff(indptr)
    rows = np.repeat(np.arange(n_stored.size), n_stored)
    order = np.lexsort((-data, rows))  # stable: ties stay in the order of ids
    place = np.arange(data.size) - np.repeat(indptr[:-1], n_stored)
    kept = place < width
    best = np.full((n_stored.size, width), -1, dtype=np.int64)
    best[rows[kept], place[kept]] = order[kept]
    return best


def _rank_block(scores, width):
    """Rank dense rows: select what reaches the k-th best score, then sort only that."""
    cut = scores.shape[1] - width
    lowest = np.partition(scores, cut, axis=1)[:, cut, None]
    above = scores > lowest
    tied = scores == lowest
    room = width - above.sum(axis=1, keepdims=True)
    chosen = above | (tied & (tied.cumsum(axis=1) <= room))  # smaller ids win the last places
    ids = chosen.nonzero()[1].reshape(-1, width)
    best = np.take_along_axis(scores, ids, axis=1)
    order = np.argsort(-best, axis=1, kind="stable")
    ranked = np.take_along_axis(best, order, axis=1) > -np.inf
    return np.where(ranked, np.take_along_axis(ids, order, axis=1), -1)
