"""Validate X (rows of numbers, strings or a mapping of arrays), y and sample weights."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, KeysView, Mapping, Set
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import _num_samples
from torch import Tensor

from sklearn_xlc._checks import (
    DTYPES,
    as_array,
    can_be_squared,
    check_sample_weight,
    check_sparse,
    check_X,
    check_y,
    is_indicator,
    is_text,
    refuse_no_values,
    without_tensor,
)
from sklearn_xlc._compat import is_number
from sklearn_xlc._csr import canonical
from sklearn_xlc._ids import as_ids, as_list, ids_of
from sklearn_xlc._labels import as_objects, is_list, plain
from sklearn_xlc._tags import (
    NamedSets,
    aligned,
    check_type_of_labels,
    index_of,
    named_sets,
    plain_sets,
    with_tags,
)
from sklearn_xlc.batches import Bags, Columns, Rows, features_of
from sklearn_xlc.encoders import FORMS, accepted_forms, encoder_part
from sklearn_xlc.engine.class_weights import weigh_samples
from sklearn_xlc.engine.label_code import LabelCode, SoftLabels, code_of, with_classes
from sklearn_xlc.engine.resolve import keeps_type
from sklearn_xlc.training import TORCH_DTYPES, numpy_dtype

_HELD = {"rows": "rows of numbers", "text": "strings", "mapping": "a mapping of arrays"}
_REMEDY = {
    "rows": "give X in that form, or pass an encoder that accepts rows of numbers",
    "text": "vectorize the strings, for instance by a TfidfVectorizer in a Pipeline, or pass an "
    "encoder that accepts text, such as encoder='text'",
    "mapping": "join the arrays into one, or pass an encoder that accepts mappings",
}


@dataclass
class TrainingData:
    """Validated training data: samples of positive weight with label ids, and label names.

    `n_seen`: number of samples of this call and of those before it. `indexes`: those of X and y.
    `n_given`, `kept`: number of samples of this call, and positions of those of positive weight
    (None: of all). `split`: positions in `rows` to train on and to hold out, as the user's splitter
    says; None: they are drawn at random. `of_classes`: mean class weight of the samples, divided by
    that of all classes.
    """

    rows: Rows
    code: LabelCode
    n_seen: int = 0
    indexes: tuple[Any, ...] = ()
    n_given: int = 0
    kept: np.ndarray | None = None
    split: tuple[np.ndarray, np.ndarray] | None = None
    of_classes: float = 1.0

    def with_ids(self) -> TrainingData:
        """Return the data with the ids of the samples, for a ranker with memory."""
        n_given = self.n_given or len(self.rows)
        ids = ids_of(n_given, self.n_seen - self.n_given, *self.indexes)
        rows = replace(self.rows, ids=ids if self.kept is None else ids[self.kept])
        return replace(self, rows=rows)


def validate_X(estimator: Any, X: Any, reset: bool) -> Any:
    """Validate X, and return samples in the form read by the encoder.

    With `reset` the estimator gets form, columns and names of X, and numbers get the type of the
    new model: that of X by the rule `keeps_type`, or of the `precision`. Otherwise X is checked
    against them.
    """
    if reset:
        accepts = accepted_forms(encoder_part(estimator.encoder))
        form = _form_of(X, accepts)
        if form not in {"rows" if name in ("dense", "csr") else name for name in accepts}:
            read = " or ".join(FORMS[name] for name in accepts)
            raise ValueError(
                f"X holds {_HELD[form]}, but the encoder reads {read}; {_REMEDY[form]}"
            )
        estimator._form = form
    else:
        form = _form_of(X, (estimator._form,))
        if form != estimator._form:
            raise ValueError(
                f"X holds {_HELD[form]}, but held {_HELD[estimator._form]} in the first fit; give "
                "the same form"
            )
    if form == "rows":
        fitted = None if reset else numpy_dtype(estimator.net_.module_)
        precision = estimator.precision
        if reset and not keeps_type(precision, _n_samples(X)):
            fitted = np.dtype(np.float64 if precision == "float64" else np.float32)
        if not reset and _is_plain(estimator, X):
            # Same result as scikit-learn's checks, which take longer for one sample.
            checked = canonical(check_sparse(X, "X") if sp.issparse(X) else X)
            if can_be_squared(checked, fitted):
                return checked
        X = check_X(estimator, X, reset, fitted)
        if not reset or fitted is None or keeps_type(precision, X.shape[0], lambda: _is_blurred(X)):
            return X
        return X.astype(fitted, copy=False)
    if reset:  # an earlier fit may have seen columns
        for name in ("n_features_in_", "feature_names_in_"):
            vars(estimator).pop(name, None)
    return _some_samples(_check_text(X) if form == "text" else _check_mapping(estimator, X, reset))


def _some_samples(samples: Any) -> Any:
    if not len(samples):
        raise ValueError("X has 0 samples; at least 1 is required")
    return samples


def _is_plain(estimator: Any, X: Any) -> bool:
    """Return whether scikit-learn's checks would return X itself, if its numbers are finite."""
    return (
        type(X) in (np.ndarray, sp.csr_matrix, sp.csr_array)
        and X.dtype in DTYPES
        and X.ndim == 2
        and X.shape[0] > 0
        and X.shape[1] == estimator.n_features_in_
        and not hasattr(estimator, "feature_names_in_")
    )


def model_dtype(X: Any) -> np.dtype:
    """Return the type of the weights: the type of validated X, or float32 without numbers."""
    return X.dtype if X.dtype in TORCH_DTYPES else np.dtype(np.float32)


def _n_samples(X: Any) -> int:
    """Return the number of samples of X, or 0 if it has no length."""
    try:
        return int(_num_samples(X))
    except TypeError:
        return 0


def _is_blurred(X: Any) -> bool:
    """Return whether rounding to float32 moves a column of dense X by 1/1000 of its range.

    Such columns lie far from zero: seconds since 1970, identifiers.
    """
    if sp.issparse(X) or X.dtype != np.float64:
        return False
    low, high = X.min(axis=0), X.max(axis=0)
    moved = np.maximum(abs(low), abs(high)) * np.finfo(np.float32).epsneg
    return bool(((moved > (high - low) / 1000) & (high > low)).any())


def check_features(features: Tensor | Bags, start: int) -> None:
    """Raise ValueError if features (n_samples, n_features) from row `start` on are not finite."""
    values = features_of(features)
    if math.isfinite(float(values.sum())):  # one pass; the sum of finite numbers may overflow
        return
    wrong = ~torch.isfinite(values).reshape(len(values), -1).all(1)
    if not wrong.any():
        return
    row, what = int(wrong.int().argmax()), "row"
    if isinstance(features, Bags):
        row, what = int((features.indptr <= row).sum()) - 1, "bag"
    raise ValueError(
        f"the encoder returned NaN or infinity for {what} {start + row} of X: scale X, or mend the "
        "encoder"
    )


def check_numbers(X: Any, what: str) -> None:
    """Raise ValueError if validated samples are not rows of numbers; `what` needs them."""
    if X.dtype == object:
        raise ValueError(f"{what} is defined only where X holds rows of numbers")


def _form_of(X: Any, accepts: Collection[str]) -> str:
    """Return "rows", "text" or "mapping"; a data frame is a mapping if `accepts` has it."""
    if sp.issparse(X):  # dok_matrix is a dict
        return "rows"
    if isinstance(X, str):
        raise ValueError(f"X is one string: {X!r}; give a sequence with one string a sample")
    if isinstance(X, Mapping):
        return "mapping"
    refuse_no_values(X, "X")
    _refuse_unordered(X)
    if set(accepts) == {"text"} and hasattr(X, "columns") and len(X.columns):
        raise ValueError(
            "X is a data frame, but samples are strings; give one column, such as "
            f"X[{X.columns[0]!r}]"
        )
    if set(accepts) == {"text"} and getattr(X, "ndim", 1) == 2 and X.dtype.kind in "OSTU":
        raise ValueError(
            f"X has shape {X.shape}, but samples are strings; give one column, such as X[:, 0]"
        )
    is_empty = hasattr(X, "__len__") and getattr(X, "shape", None) != () and not len(X)
    if is_text(X) or (is_empty and "text" in accepts):
        return "text"
    if set(accepts) == {"text"} and _holds_no_rows(X):
        return "text"  # the check of texts says what it holds
    return "mapping" if "mapping" in accepts and hasattr(X, "columns") else "rows"


def _holds_no_rows(X: Any) -> bool:
    """Return whether X is one-dimensional and begins with None, a dict, a number or the like."""
    is_flat = getattr(X, "ndim", 1) == 1 and hasattr(X, "__iter__")
    return is_flat and not is_list(next(iter(X), None))


def _refuse_unordered(X: Any) -> None:
    """Raise ValueError for samples that are in no order, read once only, or bytes."""
    if isinstance(X, Set) and not isinstance(X, KeysView) or isinstance(X, Iterator):
        raise ValueError(
            f"X is a {type(X).__name__}; give its samples as a list, in the order of y"
        )
    first = X[0] if isinstance(X, list | tuple) and X else None
    if isinstance(first, bytes) or getattr(getattr(X, "dtype", None), "kind", "") == "S":
        raise ValueError("X holds bytes; decode them to strings, such as X[0].decode()")


def check_texts(X: Any) -> np.ndarray:
    """Return the strings of a list, Series or array as an array."""
    form = _form_of(X, ("text",))
    if form != "text":
        raise ValueError(f"X holds {_HELD[form]}; give one string per sample")
    return _some_samples(_check_text(X))


def _check_text(X: Any) -> np.ndarray:
    samples = as_objects(X)
    for i, sample in enumerate(samples):
        if not isinstance(sample, str):
            raise ValueError(
                f"samples are strings, but X[{i}] is {plain(sample)!r} of type "
                f"{type(sample).__name__}; give one string per sample"
            )
    return samples


def _check_mapping(estimator: Any, X: Any, reset: bool) -> Columns:
    """Check arrays by name: all in the first fit, later the arrays of the same names."""
    names = list(getattr(X, "columns", X)) if reset else estimator._widths
    missing = [name for name in names if name not in X]
    if missing:
        raise ValueError(f"X lacks arrays that it had in the first fit: {missing}")
    arrays = {name: without_tensor(X[name], f"X[{name!r}]") for name in names}
    for name, values in arrays.items():
        if sp.issparse(values):
            arrays[name] = check_sparse(values, f"X[{name!r}]")
    columns = Columns(arrays)
    widths = {name: values.shape[1:] for name, values in columns.arrays.items()}
    if not reset and widths != estimator._widths:
        name = next(name for name in names if widths[name] != estimator._widths[name])
        raise ValueError(
            f"each sample of X[{name!r}] has shape {widths[name]}, but had shape "
            f"{estimator._widths[name]} in the first fit"
        )
    estimator._widths = widths
    return columns


# --- y and sample_weight --------------------------------------------------------------------------


def named_labels(y: Any, code: LabelCode | None, classes: Any = None, counts: bool = False) -> Any:
    """Return label sets with named labels, if labels have names; otherwise y.

    `classes` are those of `partial_fit`. In a first call they name the columns of an indicator.
    """
    is_first, given = code is None and classes is not None, None
    if is_first:
        given = as_array(classes, "classes")
        if given.ndim != 1:
            what = f"an array of shape {given.shape}" if given.ndim else repr(classes)
            raise ValueError(f"classes must be array-like of shape (n_labels,), got {what}")
        if given.dtype == object and any(
            isinstance(name, set | frozenset | list) for name in given
        ):
            raise ValueError(
                "classes holds lists or sets of labels, and must hold single labels; give "
                "classes=sorted(set().union(*y)) of the y of all calls"
            )
    read = named_sets(y, given, counts=counts) if code is None else code.sets(y, counts=counts)
    if is_first and (read is not None or is_indicator(y)):
        names = as_list(classes)
        _check_first_classes(names, y, read)
        if read is None:
            read = NamedSets(y, as_ids(names), form="")
    if classes is not None and read is None and code is not None and code.multilabel:
        code.check_columns(as_list(classes))
    return y if read is None else read._replace(names=index_of(y))


def _check_first_classes(names: list[Any], y: Any, read: NamedSets | None) -> None:
    """Raise ValueError unless `names` can be those of the labels of y, which holds label sets."""
    if read is None and len(names) != np.shape(y)[1]:
        raise ValueError(
            f"classes has {len(names)} names, and y is an indicator with {np.shape(y)[1]} columns, "
            "which are the labels: name as many, or None"
        )
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"classes names the label {plain(name)!r} more than once")
    is_text = isinstance((names or [""])[0], str)
    for name in names if read is None or not read.is_frame else ():
        is_whole = is_number(name, Integral) and -(2**63) <= name < 2**63
        if not (isinstance(name, str) if is_text else is_whole):
            raise ValueError(
                f"classes holds {plain(name)!r} of type {type(name).__name__}; labels are strings, "
                "or all are integers of 64 bits"
            )


def validated(
    X: Any, y: Any, sample_weight: Any, code: LabelCode | None, ranker: Any = None
) -> tuple[Rows, LabelCode]:
    """Validate y and weights; return samples with label ids, and the given or a new label code.

    A new code also has the labels that the `ranker` can find without samples.
    """
    further: list[Any] = getattr(ranker, "labels_without_samples", list)()
    if isinstance(y, SoftLabels):
        y, checked = y.like, y.probabilities
    else:
        y = named_labels(y, code)
        if code is None and isinstance(y, NamedSets) and y.are_tags:
            y = with_tags(y, further)
        checked = check_y(plain_sets(y))
    check_consistent_length(X, checked)
    if sample_weight is not None:
        sample_weight = check_sample_weight(sample_weight, np.empty(X.shape[0]))
    if code is None:
        code = code_of(y, with_classes(checked, further), sample_weight)
    return Rows(X, code.encode(checked), sample_weight), code


def training_data(classifier: Any, rows: Rows, code: LabelCode, *indexes: Any) -> TrainingData:
    """Select the samples of positive weight; a new code needs a sample with a label.

    `indexes`: those of X and y, if samples are rows.
    """
    is_new, n_given, kept = code is not classifier._code, len(rows), None
    rows, of_classes = weigh_samples(classifier.class_weight, rows, code)
    weight = rows.sample_weight
    if weight is not None:
        with np.errstate(over="ignore"):
            if np.isinf(weight.sum()):
                raise ValueError(
                    "the sum of sample_weight is beyond float64; divide sample_weight by its "
                    "maximum"
                )
        if not weight.all():
            kept = np.flatnonzero(weight)
            rows = rows.select(kept)
    if is_new and rows.Y.nnz == 0:
        raise ValueError(
            "no row of y has a label: at least one row of an indicator must hold a one"
        )
    n_seen = classifier._n_seen + n_given
    return TrainingData(rows, code, n_seen, indexes, n_given, kept, of_classes=of_classes)


def true_labels_of(y: Any, code: LabelCode) -> Any:
    """Return true labels: class labels, or an indicator with columns of unseen labels last."""
    sets = code.sets(y, known=False, needs_tags=False)
    if sets is not None and sets.is_frame:
        return code.read(y)
    if sets is not None:
        check_type_of_labels(sets, code.classes.tolist())
        return aligned(sets, code.classes.tolist())[0]
    checked = check_y(y)
    return code.encode(checked) if code.multilabel else checked
