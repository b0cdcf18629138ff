"""Named label sets: lists and columns of tags, and data frames of indicators."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._bounds import is_word
from sklearn_xlc._checks import check_indicator, refuse_no_values
from sklearn_xlc._csr import as_dense, canonical, ones_at, pointers_of
from sklearn_xlc._labels import LISTS, are_alike, as_objects, is_list, kind_of, missing_value, plain
from sklearn_xlc._warn import warn

#: Types of the label set of one sample, by their names in a form.
_SETS: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "frozenset": frozenset,
    "set": set,
    "array": np.ndarray,
}
_COLUMNS = ("pandas", "polars")
#: All that a form may be.
_FORMS = {f"{of} of {kind}" for of in ("array", "list", "tuple", *_COLUMNS) for kind in _SETS}
_FORMS |= {f"{of} {kind}" for of in _COLUMNS for kind in ("frame", "sparse frame")}
#: Largest number of labels searched for unsplit tags, and what may stand around a tag.
_LOOKED_AT = 10_000
_AROUND_TAGS = " \t\"'[](){}"
_NUMBERS = (int, float, np.number, np.bool_)


class NamedSets(NamedTuple):
    """Label sets with named labels.

    Parameters
    ----------
    indicator : CSR matrix of int8 of shape (n_samples, n_labels)
        Canonical, without stored zeros.
    classes : ndarray of shape (n_labels,)
        Name of each column.
    form : str
        Form of the input for `in_form`, such as "list of set" or "pandas frame". "": `indicator` is
        one as it was given, not validated yet, with columns named beside it.
    dtype : dtype
        Type of the numbers of a frame.
    names : pandas.Index or None
        Index of the samples.
    """

    indicator: sp.csr_matrix
    classes: npt.NDArray[Any]
    form: str
    dtype: Any = np.dtype(np.int8)
    names: Any = None

    @property
    def is_frame(self) -> bool:
        """Whether the input was a frame of indicators, with ordered columns, rather than tags."""
        return self.form.endswith(" frame")

    @property
    def are_tags(self) -> bool:
        """Whether the input was tags."""
        return " of " in self.form

    @property
    def kind_of_tags(self) -> str:
        """Kind of the type of tags; "" where the input was none."""
        return self.classes.dtype.kind if self.are_tags else ""

    @property
    def is_dense(self) -> bool:
        """Whether the input held a number for every label of every sample."""
        return self.is_frame and not self.form.endswith(" sparse frame")


def named_sets(
    y: Any,
    classes: Any = None,
    name: str = "y",
    counts: bool = False,
    needs_tags: bool = True,
    as_tags: bool | None = None,
) -> NamedSets | None:
    """Read label sets with named labels.

    A list of lists of integers holds tags, as a list of lists of strings does. The exception are
    equally long lists of 0 and 1, an indicator; in a column or an array of lists they are refused.

    Parameters
    ----------
    y : object
        Tags: a list, tuple, array, pandas or polars column with one list, tuple, set or array of
        strings or integers per sample. Or a data frame of indicators, one column per label.
        Repeated tags of a sample count once.
    classes : array-like of shape (n_labels,), default=None
        Names of the columns. None: the sorted tags, or the columns of the frame.
    name : str, default="y"
        Name of the argument, for messages.
    counts : bool, default=False
        Whether a matrix of whole numbers may hold counts of labels.
    needs_tags : bool, default=True
        Whether some sample must have a tag, if `classes` is None.
    as_tags : bool, default=None
        Whether an estimator was fitted on integer tags (True), or on other labels (False), as
        which equally long lists of integers are then read. None: there was no fit.

    Returns
    -------
    NamedSets or None
        None if labels have no names: an array, a sparse matrix, or one class label per sample.

    Raises
    ------
    ValueError
        If tags are neither strings nor integers, or not all of one type, or a sample has missing
        tags; if lists of integers may be tags as well as a matrix; if a frame is not an indicator;
        or if a label is not one of `classes`.

    Examples
    --------
    >>> from sklearn_xlc._tags import named_sets
    >>> sets = named_sets([{"red", "round"}, set(), {"red"}])
    >>> sets.classes
    array(['red', 'round'], dtype=object)
    >>> sets.indicator.toarray()
    array([[1, 1],
           [0, 0],
           [1, 0]], dtype=int8)
    """
    if isinstance(y, NamedSets):
        return y
    if y is None or sp.issparse(y):
        return None
    refuse_no_values(y, name)
    y = _from_arrow(y)
    container = type(y).__module__.partition(".")[0]
    if container in _COLUMNS and hasattr(y, "columns"):
        if len(y.columns) > 1:
            return _of_frame(y, classes, container, name)
        y = y[y.columns[0]] if len(y.columns) else ()
    _refuse_array_of_strings(y, name)
    rows, container = _rows(y, container)
    may_be_sets = any(issubclass(kind, LISTS) for kind in {*map(type, rows)})
    first = next(filter(_is_set, rows), None) if may_be_sets else None
    if first is None:
        return None
    may_be_matrix = container in ("list", "tuple")
    if may_be_matrix and not _are_tags(rows, name, counts, as_tags, classes):
        return None
    wrong = None if may_be_matrix or (as_tags and len(first) < 3) else row_of_indicator(rows)
    if wrong is not None:
        raise ValueError(
            f"{name} is a column of equally long lists of 0 and 1, such as "
            f"{list(map(plain, rows[wrong]))}: for an indicator give np.array(list({name})), for "
            "the tags 0 and 1 sets"
        )
    kind = next((label for label, kind in _SETS.items() if isinstance(first, kind)), "list")
    indicator, found = _of_tags(rows, classes, name, needs_tags)
    return NamedSets(indicator, found, f"{container} of {kind}")


def plain_sets(y: Any) -> Any:
    """Convert named label sets to an indicator; return any other y as is."""
    return y.indicator if isinstance(y, NamedSets) else y


def check_type_of_labels(sets: NamedSets, others: Iterable[Any], name: str = "y") -> None:
    """Raise ValueError if labels are strings and others numbers, or the other way round."""
    others = list(others)
    for label in sets.classes[:1].tolist():
        if others and not any(are_alike(each, label) for each in others):
            raise ValueError(
                f"{name} holds the label {plain(label)!r}, but other labels are of another type, "
                f"like {plain(others[0])!r}: none would be equal"
            )


def numbers_columns(estimator: Any) -> bool:
    """Return whether a classifier numbers the columns of y, as those of scikit-learn do.

    It reads a frame by place, whose names may be other numbers.
    """
    classes = getattr(estimator, "classes_", ())
    is_ours = hasattr(estimator, "_kind_of_tags")
    return not is_ours and np.array_equal(classes, np.arange(len(classes)))


def refuse_unnamed(y: Any) -> None:
    """Raise ValueError: the labels of a classifier are tags, and y does not say which it holds."""
    if np.ndim(y) == 1:
        if not len(y):
            return  # said elsewhere
        raise ValueError(
            "y holds one label a sample, and the first fit had tags: give a list of tags for each "
            "sample"
        )
    raise ValueError(
        "y is an indicator without names, and the first fit had tags: give tags, or a frame with a "
        "column for each label"
    )


def aligned(sets: NamedSets, classes: Iterable[Any]) -> tuple[sp.csr_matrix, list[Any]]:
    """Reorder columns: `classes` first; return the indicator and the names of all columns."""
    at = {label: position for position, label in enumerate(classes)}
    columns = [at.setdefault(label, len(at)) for label in sets.classes.tolist()]
    indices = np.asarray(columns, dtype=np.int64)[sets.indicator.indices]
    parts = (sets.indicator.data, indices, sets.indicator.indptr)
    return canonical(sp.csr_matrix(parts, shape=(sets.indicator.shape[0], len(at)))), list(at)


def refuse_other_types(label: Any, further: Iterable[Any], number: Any) -> None:
    """Raise ValueError if a ranker knows labels of another kind than one of y is."""
    for each in further:
        if kind_of(each, number) != kind_of(plain(label), number):
            raise ValueError(
                f"y holds labels like {plain(label)!r}, and the ranker knows labels of another "
                f"type, like {plain(each)!r}: none would be equal"
            )


def with_tags(sets: NamedSets, tags: Iterable[Any]) -> NamedSets:
    """Add tags without samples; tags stay sorted."""
    if not (further := list(tags)):
        return sets
    refuse_other_types(sets.classes.tolist()[0], further, Integral)
    names = sorted({*sets.classes.tolist(), *further})
    classes = np.array(names, dtype=sets.classes.dtype)
    return sets._replace(indicator=aligned(sets, names)[0], classes=classes)


def index_of(X: Any) -> Any:
    """Return the index of a pandas frame or series, also of what was read of one, or None."""
    if isinstance(X, NamedSets):
        return X.names
    if not hasattr(X, "iloc"):  # lists have a method named index
        return None
    import pandas as pd

    return X.index if isinstance(X, pd.DataFrame | pd.Series) else None


def is_form(form: Any) -> bool:
    """Return whether a value is a form of :class:`NamedSets`."""
    return is_word(form, *_FORMS)


def in_form(
    sets: Any, classes: npt.NDArray[Any], form: str, dtype: Any = np.int8, index: Any = None
) -> Any:
    """Convert an indicator to label sets with names.

    Tags become an array of sets, a frame becomes an indicator: rows stand in the order of the
    samples. With an index they become a pandas series or frame. What was read from polars, which
    has no index, becomes polars again.

    Parameters
    ----------
    sets : {ndarray, sparse matrix} of shape (n_samples, n_labels)
        Indicator.
    classes : ndarray of shape (n_labels,)
        Name of each column.
    form : str
        Form of :class:`NamedSets`.
    dtype : dtype, default=np.int8
        Type of the numbers of a frame.
    index : pandas.Index, default=None
        Index of the samples, if they have one.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_matrix
    >>> from sklearn_xlc._tags import in_form
    >>> in_form(csr_matrix([[1, 0], [1, 1]]), np.array(["a", "b"]), "list of tuple")
    array([('a',), ('a', 'b')], dtype=object)
    """
    container, _, kind = form.partition(" ")
    container = "pandas" if index is not None else container
    is_given = index is not None or container == "polars"
    library: Any = importlib.import_module(container) if is_given else None
    if kind.endswith("frame"):
        if kind == "sparse frame":
            table = sp.csr_matrix(sets, dtype=dtype)
        else:
            table = np.asarray(as_dense(sets), dtype=dtype)
        if container == "polars":
            return library.DataFrame(table, schema=list(classes), orient="row")
        if index is None:
            return table
        make = library.DataFrame.sparse.from_spmatrix if sp.issparse(table) else library.DataFrame
        return make(table, index).set_axis(list(classes), axis=1)
    sets = sp.csr_matrix(sets)
    names, bounds, entry = classes[sets.indices], sets.indptr.tolist(), np.array
    if kind != "of array":  # arrays have the type of the classes, though empty
        names, entry = names.tolist(), _SETS[kind.removeprefix("of ")]
    rows = [entry(names[start:stop]) for start, stop in zip(bounds, bounds[1:])]
    if container == "polars":
        tag = library.Int64 if classes.dtype.kind == "i" else library.String
        return library.Series(rows, dtype=library.List(tag))
    column = as_objects(rows)
    return column if index is None else library.Series(column, index)


def _from_arrow(y: Any) -> Any:
    """Return a table or a column of lists of pyarrow as one of pandas; return any other y as is."""
    is_read = hasattr(y, "column_names") or hasattr(getattr(y, "type", None), "value_field")
    return y.to_pandas() if is_read and hasattr(y, "to_pandas") else y


def _refuse_array_of_strings(y: Any, name: str) -> None:
    """Raise ValueError for a matrix of strings: neither classes nor an indicator."""
    if not isinstance(y, np.ndarray) or y.ndim != 2 or y.shape[1] < 2 or not y.size:
        return
    if y.dtype.kind == "U" or (y.dtype == object and isinstance(y.flat[0], str)):
        raise ValueError(
            f"{name} must be a two-dimensional matrix of numbers, got shape {y.shape} and dtype "
            f"{y.dtype}; for tags give a list of lists, {name}.tolist()"
        )


def _rows(y: Any, container: str) -> tuple[Sequence[Any], str]:
    """Return the entries of a sequence or column and its name in a form; none for a matrix."""
    if isinstance(y, Sequence):  # also a column of a data set, whose entries are read one by one
        rows = y if isinstance(y, list | tuple) else list(y)
        return rows, "tuple" if type(y) is tuple else "list"
    if container in _COLUMNS and hasattr(y, "to_list"):
        is_object = getattr(y.dtype, "kind", "O") == "O"  # lists, in polars and Arrow
        return (y.to_list() if is_object else ()), container
    is_column = isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype == object
    return (list(y) if is_column else ()), "array"


def _is_set(row: Any) -> bool:
    return is_list(row) and getattr(row, "ndim", 1) == 1


def _first_other(rows: Sequence[Any]) -> int | None:
    """Find a row that is no label set; None if all are."""
    if {*map(type, rows)} <= {list, tuple, set, frozenset}:  # whose dimension none has to see
        return None
    return next((i for i, row in enumerate(rows) if not _is_set(row)), None)


def _are_like_rows(rows: Sequence[Any]) -> bool:
    """Return whether rows have an order and equally many entries, as those of a matrix have."""
    has_order = not any(issubclass(kind, set | frozenset) for kind in {*map(type, rows)})
    return has_order and _first_other(rows) is None and len(set(map(len, rows))) == 1


def _are_tags(
    rows: Sequence[Any], name: str, counts: bool, as_tags: bool | None, classes: Any
) -> bool:
    """Return whether rows hold tags, rather than numbers of a matrix: equally many in each."""
    if not (_are_like_rows(rows) and len(rows[0])):
        return True
    kinds, width = set(map(type, chain.from_iterable(rows))), len(rows[0])
    if not _are_numbers(kinds):
        return True
    if kinds != _whole(kinds):
        return False
    beyond = any(value not in (0, 1) for value in chain.from_iterable(rows))
    if as_tags:
        return beyond or width < 3  # longer lists of 0 and 1 would repeat a tag
    if beyond and width > 1 and counts:
        if as_tags is None:
            raise ValueError(
                f"{name} holds equally long lists of integers, such as {list(rows[0])!r}: for "
                "counts of labels give an array, for tags a list of sets"
            )
        return False
    if beyond or width > 1 or as_tags is not None:
        return beyond
    if classes is not None and len(classes) > 2:  # no indicator
        return True
    raise ValueError(
        f"{name} holds lists of one 0 or 1 each: for tags give sets, such as "
        f"{{{rows[0][0]}}}, for classes a 1-D {name}, for an indicator of one label an array"
    )


def row_of_indicator(rows: Sequence[Any]) -> int | None:
    """Find a row of equally long lists of 0 and 1 that cannot be sorted tags; None if none is."""
    if not _are_like_rows(rows):
        return None
    kinds = set(map(type, chain.from_iterable(rows)))
    if not _are_numbers(kinds) or any(value not in (0, 1) for value in chain.from_iterable(rows)):
        return None
    may_be_tags: list[list[Any]] = [[0], [1], [0, 1], []]
    return next((i for i, row in enumerate(rows) if list(row) not in may_be_tags), None)


def _of_tags(
    rows: Sequence[Any], classes: Any, name: str, needs_tags: bool
) -> tuple[sp.csr_matrix, npt.NDArray[Any]]:
    """Convert tags to an indicator and the names of its columns."""
    if (position := _first_other(rows)) is not None:
        row = rows[position]
        single = isinstance(row, str | int | np.integer)
        remedy = "leave the sample out, or give an empty list if it has no tags"
        remedy = f"give [{row!r}] for a single tag" if single else remedy
        raise ValueError(f"{name}[{position}] is {row!r}, but others are sets of tags; {remedy}")
    tags = list(chain.from_iterable(rows))
    is_text = _are_texts(tags, rows, name)
    if classes is None:
        if not tags and needs_tags:
            raise ValueError(f"{name} holds no tag: at least one sample must have one")
        ends = () if is_text else (min(tags), max(tags))
        if large := [tag for tag in ends if not -(2**63) <= tag < 2**63]:
            raise ValueError(
                f"{name} holds the tag {large[0]}, which 64 bits cannot hold; give tags as strings"
            )
        names = sorted(map(str.__str__, set(tags))) if is_text else sorted(set(tags))
        if is_text:
            _warn_of_blanks(names, rows, name)
        classes = np.array(names, dtype=object if is_text else np.int64)
    classes = np.asarray(classes)
    ids = {label: position for position, label in enumerate(classes.tolist())}
    try:
        indices = np.fromiter(map(ids.__getitem__, tags), np.int64, len(tags))
    except KeyError as error:
        label = plain(error.args[0])
        raise ValueError(
            f"{name} holds the label {label!r}, which is not one of the {len(classes)} labels "
            "known so far; leave it out, name it in `classes=` of partial_fit, or fit anew without "
            "warm_start"
        ) from None
    indptr = pointers_of([len(row) for row in rows])
    ones = np.ones(len(indices), dtype=np.int32)  # repeated tags are summed
    sets = canonical(sp.csr_matrix((ones, indices, indptr), shape=(len(rows), len(classes))))
    return ones_at(sets.indices, sets.indptr, len(classes)), classes


def _are_numbers(kinds: set[type]) -> bool:
    return all(issubclass(kind, _NUMBERS) for kind in kinds)


def _whole(kinds: set[type]) -> set[type]:
    """Return the types of integers."""
    return {kind for kind in kinds if issubclass(kind, int | np.integer) and kind is not bool}


def _are_texts(tags: Iterable[Any], rows: Sequence[Any], name: str) -> bool:
    """Return whether tags are strings; raise ValueError unless all are, or all are integers."""
    kinds = set(map(type, tags))
    texts = {kind for kind in kinds if issubclass(kind, str)}
    whole = _whole(kinds)
    if kinds in (texts, whole):
        return kinds == texts
    wrong = (kinds - texts - whole) or whole
    position = next(i for i, row in enumerate(rows) if wrong & set(map(type, row)))
    tag = next(tag for tag in rows[position] if type(tag) in wrong)
    rule = "tags are strings, or all are integers" if wrong == whole else "tags are str or int"
    raise ValueError(
        f"{name}[{position}] holds the tag {tag!r} of type {type(tag).__name__}; {rule}"
    )


def _warn_of_blanks(tags: Sequence[Any], rows: Sequence[Any], name: str) -> None:
    """Warn about empty tags and tags differing in blanks only, as after splitting strings."""
    seen = set(tags)
    for tag in tags:
        bare = tag.strip()
        if bare and (bare == tag or bare not in seen):
            continue
        position = next(i for i, row in enumerate(rows) if tag in row)
        said = f" beside {bare!r}; if they are the same, strip() the tags"
        if not bare:
            said = ", which has no letters; no tags are an empty list, but ''.split(';') is ['']"
        warn(f"{name}[{position}] holds the tag {tag!r}{said}")
        return


def joined_tags(names: Sequence[Any]) -> tuple[str, str | None] | None:
    """Find labels like several tags joined to one string; None if there are none.

    Returned are one of the labels, and what separates its tags; None for those that show a list.
    Tags occur in many of the strings, and in any place of them. The parts of a name with commas do
    not: a head such as "Fracture of femur" is first, a modifier such as "left side" is not, and a
    synonym occurs in few names.
    """
    if not len(names) or not isinstance(names[0], str):
        return None
    looked_at = names[:: 1 + (len(names) - 1) // _LOOKED_AT]
    for separator in ";|,":
        joined = [name for name in looked_at if separator in name]
        if joined and _are_joined(looked_at, separator):
            if all(name[:1] + name[-1:] in ("[]", "()", "{}") for name in joined):
                return joined[0], None
            if all(name.count(separator) == name.count(f"{separator} ") for name in joined):
                separator += " "
            return joined[0], separator
    return None


def warn_of_joined_tags(names: npt.NDArray[Any], in_lists: bool = False) -> None:
    """Warn of labels like several tags joined to one string.

    Parameters
    ----------
    names : ndarray of shape (n_labels,)
        Distinct labels.
    in_lists : bool, default=False
        Whether y held lists of labels, rather than one label per sample.
    """
    found = joined_tags(names.tolist())
    if found is None:
        return
    name, separator = found
    apart = "ast.literal_eval(joined)" if separator is None else f"joined.split({separator!r})"
    if in_lists:
        said = f"y holds {name!r} as one tag of {len(names)}; if it is several tags"
        remedy = f"[[tag for joined in tags for tag in {apart}] for tags in y]"
    else:
        said = (
            f"y holds one string a sample, such as {name!r}, and each of the "
            f"{len(names)} distinct strings is a class; if they are tags"
        )
        remedy = f"[{apart} for joined in y]"
    warn(f"{said}, split them: {remedy}")


def _are_joined(names: Sequence[str], separator: str) -> bool:
    """Return whether the parts of names behave as tags: common, and in any place."""
    split = [[part.strip(_AROUND_TAGS) for part in name.split(separator)] for name in names]
    n_names: Counter[str] = Counter()
    places: dict[str, set[int]] = {}
    for parts in split:
        n_names.update(set(parts))
        for place, part in enumerate(parts):
            places.setdefault(part, set()).add(place)
    found = set(chain.from_iterable(parts for parts in split if len(parts) > 1)) - {""}
    if not found:
        return False
    repeated = [part for part in found if n_names[part] > 1]
    n_moving = sum(len(places[part]) > 1 for part in repeated)
    mean = sum(n_names[part] for part in found) / len(found)
    return mean >= 2 and 2 * n_moving >= len(repeated)


def _of_frame(y: Any, classes: Any, container: str, name: str) -> NamedSets:
    """Read a data frame of indicators."""
    names = list(y.columns)
    if twice := [label for label, count in Counter(names).items() if count > 1]:
        raise ValueError(
            f"{name} has several columns of the name {twice[0]!r}; each label needs one of its own"
        )
    _check_names(names, name)
    is_sparse = all(str(kind).startswith("Sparse[") and not kind.fill_value for kind in y.dtypes)
    if not is_sparse:
        _refuse_gaps(y, container, name)
    values = y.sparse.to_coo() if is_sparse else np.asarray(y)
    if values.dtype == object and _are_numbers(set(map(type, values.ravel()))):
        kinds = [getattr(kind, "numpy_dtype", kind) for kind in y.dtypes]  # of nullable columns
        is_plain = all(isinstance(kind, np.dtype) and kind.kind != "O" for kind in kinds)
        values = values.astype(np.result_type(*kinds) if is_plain else np.float64)
    matrix = check_indicator(values, name, "a frame of tags has one column, which holds lists")
    indicator = sp.csr_matrix(matrix)
    labels = as_objects(names)
    if all(isinstance(label, int | np.integer) for label in names):
        labels = labels.astype(np.int64)
    if classes is not None:
        indicator, labels = _columns_of(indicator, labels, np.asarray(classes), name)
    dtype = values.dtype if values.dtype.kind in "biuf" else np.dtype(np.int8)
    return NamedSets(indicator, labels, f"{container}{' sparse' * is_sparse} frame", dtype)


def _refuse_gaps(y: Any, container: str, name: str) -> None:
    """Raise ValueError if a value of a frame is missing."""
    missing = y.isna() if container == "pandas" else y.select([y[c].is_null() for c in y.columns])
    if np.asarray(missing).any():
        row, column = np.argwhere(np.asarray(missing))[0]
        label = list(y.columns)[column]  # not one of NumPy
        raise ValueError(f"{name} has no value in row {row}, column {label!r}; fill it by 0")


def _check_names(names: list[Any], name: str) -> None:
    """Raise ValueError if a column has no name, or only some of the names are strings."""
    for label in names:
        if missing := missing_value(label):
            raise ValueError(
                f"{name} has a column of the name {missing}; name its label, such as by "
                f"{name}.columns.fillna('none')"
            )
        if not are_alike(label, names[0]):
            raise ValueError(
                f"{name} has names of columns of other types than {type(names[0]).__name__}, such "
                f"as {plain(label)!r}: convert them to one, for instance by "
                f"{name}.columns.astype(str)"
            )


def _columns_of(
    indicator: sp.csr_matrix, names: npt.NDArray[Any], classes: npt.NDArray[Any], name: str
) -> tuple[sp.csr_matrix, npt.NDArray[Any]]:
    """Order columns as `classes`, by name; by position if classes are column numbers."""
    at = {label: position for position, label in enumerate(names.tolist())}
    order = [at.get(label, -1) for label in classes.tolist()]
    if len(at) == len(classes) and min(order) >= 0:
        return canonical(indicator[:, order]), classes
    if len(names) == len(classes) and np.array_equal(classes, np.arange(len(classes))):
        return indicator, classes
    differ = sorted(set(map(str, names.tolist())) ^ set(map(str, classes.tolist())))[:3]
    raise ValueError(
        f"the columns of {name} must be the {len(classes)} labels of the first fit; of one of them "
        f"only: {', '.join(differ)}"
    )
