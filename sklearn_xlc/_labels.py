"""Values of labels: missing ones, and arrays that hold, join and find labels as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from contextlib import suppress
from itertools import chain
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

#: Missing values as they are printed, of Python, NumPy, pandas and `decimal`, and their names.
_MISSING = {"None": "None", "nan": "NaN", "NaN": "NaN", "<NA>": "<NA>", "NaT": "NaT"}
#: Types of a value that holds several.
LISTS = (list, tuple, set, frozenset, np.ndarray)


def plain(label: Any) -> Any:
    """Convert a NumPy scalar to a Python value, for messages."""
    return label.item() if isinstance(label, np.generic) else label


def is_list(value: Any) -> bool:
    """Return whether a value holds several: a list, tuple, set or array."""
    return isinstance(value, LISTS)


def kind_of(label: Any, number: Any) -> str:
    """Return "text", "number" or "other": labels of two kinds are never equal."""
    return "text" if isinstance(label, str) else "number" if isinstance(label, number) else "other"


def are_texts(values: Iterable[Any]) -> bool:
    """Return whether all values are strings."""
    return all(isinstance(value, str) for value in values)


def are_alike(label: Any, other: Any) -> bool:
    """Return whether both labels are strings, or none is: a string equals no number."""
    return isinstance(label, str) == isinstance(other, str)


def missing_value(value: Any) -> str | None:
    """Return the name of a missing value, such as "NaN"; None for other values."""
    # Of what has a length the text may be long, or read a damaged matrix beyond its ends.
    return None if isinstance(value, Sized) else _MISSING.get(str(value))


def none_for_missing(labels: np.ndarray) -> np.ndarray:
    """Return an array of labels with None in place of missing values."""
    if labels.dtype != object or {*map(type, labels.flat)} <= {str, int, type(None)}:
        return labels
    named = labels.copy()
    for place, label in np.ndenumerate(labels):
        if missing_value(label):
            named[place] = None
    return named


def check_objects(labels: np.ndarray, name: str = "y") -> None:
    """Raise ValueError unless all objects are labels of one sortable type."""
    if {*map(type, labels)} == {str}:
        return
    for row, label in enumerate(labels):
        if missing := missing_value(label):
            raise ValueError(f"{name}[{row}] is {missing}: every sample needs a class label")
        if is_list(label):
            raise ValueError(
                f"{name}[{row}] is a {type(label).__name__} of labels; for several labels a sample "
                "pass an indicator (sklearn.preprocessing.MultiLabelBinarizer(sparse_output=True))"
            )
    try:
        sorted(list(set(labels)) * 2)  # also compares each label with itself
    except (TypeError, RuntimeError):  # the second of tensors
        kinds = {type(label).__name__ for label in labels}
        if len(kinds) == 1:
            raise ValueError(
                f"{name}[0] is of type {kinds.pop()}: a class label is a string or a number, and "
                "several labels of a sample are a list of them"
            ) from None
        mixed = "mixes labels of different types (such as str and int); convert them to one type"
        raise ValueError(f"{name} {mixed}") from None


def refuse_missing(labels: np.ndarray, name: str = "y") -> None:
    """Raise ValueError if a class label is missing, or objects are no labels of one type."""
    if labels.dtype == object or (labels != labels).any():  # NaN and NaT
        check_objects(labels, name)


def as_objects(values: Iterable[Any]) -> np.ndarray:
    """Return values, which may be sequences, as an array of objects."""
    return np.fromiter(values, dtype=object)


def exact_array(labels: Any) -> npt.NDArray[Any]:
    """Return labels as an array whose `tolist` gives them, as far as an array can hold them."""
    return listable(_exact(labels, np.asarray(labels)))


def exact(labels: Any) -> Any:
    """Return labels as they are, or as an array where NumPy or scikit-learn would misread them.

    NumPy makes floats of a list with integers below and beyond 2**63, strings of numbers beside
    strings, cuts null characters off strings, and takes the names of an enumeration of strings, cut
    to the length of its values. `listable` says what else is changed.
    """
    array = np.asarray(labels)
    found = listable(_exact(labels, array))
    return labels if found is array else found


def _exact(labels: Any, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `array`, which NumPy has made of labels, or another one if it changed their list."""
    if not isinstance(labels, list | tuple) or not array.size:
        return array
    if array.ndim == 2 and array.dtype.kind == "U":
        return _exact([*chain.from_iterable(labels)], array.ravel()).reshape(array.shape)
    if array.ndim != 1:
        return array
    kinds = set(map(type, labels)) if array.dtype.kind in "Uf" else set[type]()
    if array.dtype.kind == "U" and not all(issubclass(kind, str) for kind in kinds):
        return as_objects(labels)  # NaN would become the string "nan"
    if array.dtype.kind == "U":
        # Plain strings can only have become shorter, which takes no second list of them.
        if kinds <= {str, np.str_} and sum(map(len, labels)) == np.char.str_len(array).sum():
            return array
        texts = list(map(str.__str__, labels))
        return array if array.tolist() == texts else as_objects(texts)
    if array.dtype.kind == "f" and all(issubclass(kind, Integral) for kind in kinds):
        dtype = np.int64 if max(labels) < 2**63 else np.uint64 if min(labels) >= 0 else object
        return np.array(list(map(int, labels)), dtype=dtype)
    return array


def listable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of labels whose `tolist` gives the labels.

    Of times finer than microseconds it gives integers. Those of NumPy's StringDType, which
    scikit-learn does not read, become objects.
    """
    if array.dtype.kind == "T":
        return array.astype(object)
    if array.dtype.kind == "M" and np.datetime_data(array.dtype)[0] in ("ns", "ps", "fs", "as"):
        rounded = array.astype("M8[us]")
        return rounded if ((rounded == array) | np.isnat(array)).all() else array
    return array


def of_one_kind(
    first: npt.NDArray[Any], second: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return two arrays of labels, as objects where NumPy would compare integers as floats."""
    is_whole = {first.dtype.kind, second.dtype.kind} <= {"i", "u"}
    if is_whole and np.result_type(first, second).kind == "f":
        return first.astype(object), second.astype(object)
    return first, second


def joined_labels(labels: npt.NDArray[Any], further: Sequence[Any]) -> npt.NDArray[Any]:
    """Append further labels of their type to an array of labels; integers stay integers."""
    dtype = labels.dtype if labels.dtype.kind in "OMmf" else None  # integers may need more bits
    added = np.asarray(exact(further), dtype=dtype)
    joined = np.concatenate(of_one_kind(labels, added))
    if joined.dtype != object or labels.dtype.kind not in "iu":
        return joined
    for kind in (labels.dtype, added.dtype):
        with suppress(OverflowError):
            return joined.astype(kind)
    raise ValueError(
        f"labels are integers from {joined.min()} to {joined.max()}, which 64 bits cannot hold; "
        "give labels as strings"
    )


def class_ids(labels: npt.NDArray[Any], classes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the position of each label in `classes`; -1 for unknown labels."""
    numeric = [array.dtype.kind in "biuf" for array in (labels, classes)]
    if numeric[0] != numeric[1]:
        raise ValueError(
            f"class labels of dtype {labels.dtype} cannot be compared to the estimator's classes_ "
            f"of dtype {classes.dtype}"
        )
    labels, classes = of_one_kind(labels, classes)
    order = np.argsort(classes, kind="stable")
    positions = np.searchsorted(classes, labels, sorter=order)
    ids = order[np.minimum(positions, classes.size - 1)]
    return np.where(classes[ids] == labels, ids, -1)
