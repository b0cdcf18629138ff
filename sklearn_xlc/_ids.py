"""Ids of samples, the index of a series, and arrays of strings in a compact form for files."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from sklearn_xlc._labels import as_objects, listable, plain
from sklearn_xlc._tags import index_of
from sklearn_xlc._warn import warn

#: Form of an array of strings: bytes of all of them, and where each ends.
_PACKED = {"utf8", "ends"}


def as_list(values: Any) -> list[Any]:
    """Return the entries of an array-like or another iterable, or a single value, in a list."""
    values = listable(values) if isinstance(values, np.ndarray) else values
    listed = values.tolist() if hasattr(values, "tolist") else values
    is_one = isinstance(listed, str | bytes) or not np.iterable(listed)
    return [listed] if is_one else list(listed)


def as_ids(values: Any) -> npt.NDArray[Any]:
    """Return ids as an array of integers, or of objects.

    Parameters
    ----------
    values : array-like of shape (n_samples,), pandas index, or a single id
        Ids. Integers and strings stay as they are; others, such as dates, become strings.

    Returns
    -------
    ndarray of shape (n_samples,), int64 or object
        Ids.

    Examples
    --------
    >>> from sklearn_xlc._ids import as_ids
    >>> as_ids([3, 1])
    array([3, 1])
    >>> as_ids([3, "b"])
    array([3, 'b'], dtype=object)
    """
    named = [int(each) if isinstance(each, Integral) else str(each) for each in as_list(values)]
    if all(isinstance(each, int) for each in named):
        return np.array(named, dtype=np.int64)
    return as_objects(named)


def ids_of(n_samples: int, start: int, *indexes: Any) -> npt.NDArray[Any]:
    """Return ids of samples: the entries of an index, or positions.

    Parameters
    ----------
    n_samples : int
        Number of samples.
    start : int
        Position of the first sample.
    *indexes : pandas.Index or None
        The first of them counts that has an entry for each sample. The default index of pandas
        (0, 1, 2 and so on) does not count.

    Returns
    -------
    ndarray of shape (n_samples,)
        Ids: names as objects, integers among them; positions as int64.
    """
    for index in indexes:
        if index is not None and len(index) == n_samples and not is_default(index):
            return as_objects(as_ids(index).tolist())
    return np.arange(start, start + n_samples)


def is_default(index: Any) -> bool:
    """Return whether an index counts from 0: pandas makes it where none is given."""
    return getattr(index, "start", None) == 0 and getattr(index, "step", None) == 1


def warn_of_order(X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> None:
    """Warn if X names the same samples as y, groups or weights, in another order.

    Parameters
    ----------
    X, y, sample_weight, groups : object
        Arguments of an estimator: an index of pandas names samples. Weights are compared to y if X
        has no index of its own.

    Warns
    -----
    UserWarning
        If two indexes hold the same entries, in different orders. Rows are read by position, as
        scikit-learn does. The default index of pandas (0, 1, 2 and so on) says nothing of order.

    Examples
    --------
    >>> import warnings
    >>> import pandas as pd
    >>> from sklearn_xlc._ids import warn_of_order
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_order(pd.Series([1, 2], ["a", "b"]), pd.Series([3, 4], ["b", "a"]))
    >>> len(caught)
    1
    """
    compare_indexes(index_of(X), index_of(y))
    compare_indexes(index_of(X), index_of(groups), y="groups")
    warn_of_weight_order(sample_weight, X, y)


def warn_of_weight_order(sample_weight: Any, X: Any, y: Any) -> None:
    """Warn if weights name the same samples as X, or else y, in another order."""
    index, name = index_of(X), "X"
    if index is None or is_default(index):
        index, name = index_of(y), "y"
    compare_indexes(index, index_of(sample_weight), name, "sample_weight")


def compare_indexes(of_X: Any, of_y: Any, X: str = "X", y: str = "y") -> None:
    """Warn if two indexes, of arguments of these names, have the same entries in other orders."""
    if any(each is None or is_default(each) for each in (of_X, of_y)) or of_X.equals(of_y):
        return
    # What pandas has for this raises errors, or warns, of entries that it cannot sort together.
    if len(of_X) == len(of_y) and set(of_X) == set(of_y):
        warn(
            f"{X} and {y} have the same index in different orders, and rows are read by position; "
            f"if the index names samples, pass {y}.loc[{X}.index], otherwise "
            f"{X}.reset_index(drop=True)"
        )


def holds_booleans(values: Any) -> bool:
    """Return whether a value of an array-like is True or False."""
    return not {bool, np.bool_}.isdisjoint(map(type, as_list(values)))


def refuse_mask(labels: Any, classes: npt.NDArray[Any]) -> None:
    """Raise ValueError for booleans in place of labels, as True would be read as label 1."""
    if classes.dtype.kind != "b" and holds_booleans(labels):
        raise ValueError("labels must be entries of classes_, got booleans; give classes_[mask]")


def by_label(values: Any, name: str, labels: Any = ()) -> Any:
    """Return a dict for a series whose index names labels; return other values as they are.

    Parameters
    ----------
    values : pandas.Series or object
        Values of labels.
    name : str
        Name of the argument, for messages.
    labels : iterable, default=()
        Labels. The default index of pandas (0, 1, 2 and so on) names them only if it holds each of
        them and no others; another index always names labels.
    """
    is_series = hasattr(values, "iloc") and values.ndim == 1  # lists have a method named index
    if not is_series or (is_default(values.index) and set(values.index) != set(labels)):
        return values
    twice = values.index[values.index.duplicated()]
    if len(twice):
        raise ValueError(f"the index of {name} holds {plain(twice[0])!r} twice")
    return dict(zip(values.index, values))


def in_order(values: Any, labels: Any, name: str) -> Any:
    """Return the values of a series in the order of labels; return other values as they are.

    Raises
    ------
    ValueError
        If the index of the series names labels, but not all of these.
    """
    named = values if labels is None else by_label(values, name, labels)
    if named is values:
        return values
    if lacking := [label for label in labels if label not in named]:
        raise ValueError(
            f"the index of {name} lacks the label {plain(lacking[0])!r}: give a series with a "
            "value for each label, or an array in their order"
        )
    return np.array([named[label] for label in labels])


def packed(values: Any) -> Any:
    """Return an array of strings as UTF-8 and the ends of the strings; other values unchanged.

    Strings of a fixed width would all have the length of the longest.
    """
    is_objects = isinstance(values, np.ndarray) and values.dtype == object and values.ndim == 1
    if not (is_objects and {*map(type, values)} == {str}):
        return values
    texts = [item.encode("utf-8", "surrogatepass") for item in values]
    return {"utf8": np.frombuffer(b"".join(texts), np.uint8), "ends": np.cumsum([*map(len, texts)])}


def unpacked(plain: Any) -> Any:
    """Return the array of a result of :func:`packed`; other values unchanged."""
    if not (isinstance(plain, dict) and plain.keys() == _PACKED):
        return plain
    utf8, ends = plain["utf8"].tobytes(), plain["ends"].tolist()
    starts = [0, *ends[:-1]]
    if ends != sorted(ends) or ends[-1] != len(utf8) or ends[0] < 0:
        raise ValueError("the names in a saved state do not fit together")
    return as_objects(utf8[a:b].decode("utf-8", "surrogatepass") for a, b in zip(starts, ends))
