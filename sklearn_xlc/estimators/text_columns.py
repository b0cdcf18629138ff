"""TextColumns: read texts and labels from the columns of a table."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from sklearn_xlc._checks import refuse_no_values
from sklearn_xlc._compat import fit_context
from sklearn_xlc._ids import as_list
from sklearn_xlc._labels import are_alike, are_texts, as_objects, is_list, missing_value
from sklearn_xlc._tags import row_of_indicator

#: A string or an integer, and an array of several of them, as NumPy prints it: without commas.
_ITEM = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?\d+""")
_ARRAY = re.compile(rf"\[\s*(?:(?:{_ITEM.pattern})\s+)+(?:{_ITEM.pattern})\s*\]")


class TextColumns(TransformerMixin, BaseEstimator):
    """Join text columns of a table to one text a sample, and read labels from another column.

    As the first step of a :class:`~sklearn.pipeline.Pipeline` it lets a classifier of texts take
    whole tables. The pipeline, and each file of it, then knows which columns of a table it reads.
    The command line makes such pipelines.

    Parameters
    ----------
    columns : str or sequence of str
        Columns with texts, joined with blanks between them. A missing text is empty, and a number
        is written out.
    labels : str, default=None
        Column with labels, for :meth:`labels_of`.
    separator : str, default=None
        What separates labels in a string. Blanks around labels are dropped, and empty labels, too.
        A column that shows a list in each entry is read as lists all the same.
        None: an entry is a list of labels, or a string that shows one (``["a", "b"]``, or ``['a'
        'b']``, as NumPy prints arrays), or else the only class of the sample.
    ids : str, default=None
        Column with names of samples, for :meth:`ids_of`. The texts of a pandas frame have them as
        index, so that explanations name training samples by them.

    See Also
    --------
    sklearn.compose.ColumnTransformer : Transforms columns one by one.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_xlc import MultiHeadClassifier, TextColumns
    >>> table = {
    ...     "title": ["sea", "dog", "lake"] * 10,
    ...     "body": ["salt water", "it barks", "fresh water"] * 10,
    ...     "tags": ["water; salty", "animal", "water"] * 10,
    ... }
    >>> columns = TextColumns(["title", "body"], labels="tags", separator=";")
    >>> columns.transform(table)[:2]
    array(['sea salt water', 'dog it barks'], dtype=object)
    >>> columns.labels_of(table)[:2]
    [['water', 'salty'], ['animal']]
    >>> clf = MultiHeadClassifier(encoder="text", max_epochs=10, random_state=0)
    >>> model = make_pipeline(columns, clf)
    >>> model.fit(table, columns.labels_of(table)).predict(["a dog that barks"])
    array([list(['animal'])], dtype=object)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "columns": [str, list, tuple],
        "labels": [str, None],
        "separator": [str, None],
        "ids": [str, None],
    }

    def __init__(
        self,
        columns: Any,
        *,
        labels: str | None = None,
        separator: str | None = None,
        ids: str | None = None,
    ) -> None:
        self.columns = columns
        self.labels = labels
        self.separator = separator
        self.ids = ids

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> TextColumns:
        """Check parameters and columns.

        Parameters
        ----------
        X : dataframe, mapping of columns, or sequence of str
            Table, or texts.
        y : object, default=None
            Ignored.

        Returns
        -------
        self : object
            The transformer.

        Raises
        ------
        ValueError
            If a parameter is not valid, or X lacks a column.
        """
        self._check_names()
        self.transform(X)
        if self.ids is not None and _is_table(X):
            self.ids_of(X)
        return self

    def transform(self, X: Any) -> Any:
        """Return one text for each sample.

        Parameters
        ----------
        X : dataframe, mapping of columns, or sequence of str
            Table. Texts are returned as they are.

        Returns
        -------
        ndarray of str of shape (n_samples,), or pandas.Series
            Texts. A Series for a pandas frame, with the ids as index, or its index where the frame
            has no column of ids, as new samples may.

        Raises
        ------
        ValueError
            If X lacks a column, or columns of a mapping are not equally long.
        TypeError
            If X is neither a table nor texts, or a column holds neither texts nor numbers.
        """
        if not _is_table(X):
            # NumPy would make strings of a list, each as wide as the longest.
            shaped = X if hasattr(X, "ndim") else np.asarray(X, dtype=object)
            if shaped.ndim != 1:
                raise TypeError(
                    f"X must be a table with the columns {self._names()}, or a sequence of texts, "
                    f"got a {type(X).__name__}"
                )
            return X
        parts = [_texts(_column(X, name), X, name) for name in self._names()]
        if len(set(map(len, parts))) > 1:
            sizes = dict(zip(self._names(), map(len, parts)))
            raise ValueError(f"columns of X must be equally long, got {sizes}")
        texts = as_objects(" ".join(filter(None, row)) for row in zip(*parts))
        if not hasattr(X, "iloc"):
            return texts
        import pandas as pd

        return pd.Series(texts, index=self.ids_of(X) if self.ids in X.columns else X.index)

    def labels_of(self, X: Any) -> list[Any]:
        """Read the labels of samples, as y of ``fit``.

        Parameters
        ----------
        X : dataframe or mapping of columns
            Table with the column `labels`.

        Returns
        -------
        list
            Lists of labels; or one class for each sample, if there is no `separator` and the column
            holds neither lists nor strings that show lists. An empty or missing entry, which a CSV
            file does not tell apart, is a list without labels: leave out rows with unknown ones.

        Raises
        ------
        ValueError
            If a parameter is not valid, or X lacks the column, or no sample has a label, or some
            sample has no class, or labels are neither strings nor integers, or some are strings and
            others numbers, or equally long lists of 0 and 1 may be an indicator.
        """
        self._validate_params()
        self._check_names()
        if self.labels is None:
            raise ValueError("labels_of needs the parameter labels, the name of a column")
        entries = ["" if missing_value(each) else each for each in _column(X, self.labels)]
        labels: list[list[Any] | None]  # None: the entry is a class
        if self.separator is None or _show_lists(entries):
            labels = [_listed(each) if _has_text(each) else [] for each in entries]
        else:
            labels = [_split(each, self.separator) for each in entries]
        if not any(each is None or each for each in labels):
            raise ValueError(f"column {self.labels!r} has no labels: all its entries are empty")
        if None in labels:
            for row, (entry, listed) in enumerate(zip(entries, labels)):
                if listed is not None:
                    said = "is empty"
                    if _has_text(entry):
                        said = f"is {entry!r}, and others hold one class"
                    raise ValueError(
                        f"at {_place(X, row)}: column {self.labels!r} {said}; without a separator "
                        "each sample has one class"
                    )
        self._check_types(X, labels, entries)
        if None in labels:
            return entries
        # They may say by 0 and 1 of each label whether a sample has it.
        if (wrong := row_of_indicator(labels)) is not None:
            raise ValueError(
                f"at {_place(X, wrong)}: column {self.labels!r} holds {labels[wrong]!r}, and all "
                "lists are equally long and hold 0 and 1; labels are named, not marked by 0 and 1"
            )
        return labels

    def _check_types(self, X: Any, labels: list[list[Any] | None], entries: list[Any]) -> None:
        """Raise ValueError unless labels are strings, or all are integers; classes, or numbers."""
        first = None
        for row, (listed, entry) in enumerate(zip(labels, entries)):
            # True and False are classes, but no labels of a list, as for `fit`.
            known = (str, Real, np.bool_) if listed is None else (str, Integral)
            for label in [entry] if listed is None else listed:
                first = label if first is None else first
                said = "labels are strings or integers"
                if isinstance(label, known) and not (listed and isinstance(label, bool)):
                    if are_alike(label, first):
                        continue
                    said = f"others are of another type, such as {first!r}"
                raise ValueError(
                    f"at {_place(X, row)}: column {self.labels!r} holds the label {label!r}; {said}"
                )

    def ids_of(self, X: Any) -> list[Any]:
        """Return the names of samples.

        Parameters
        ----------
        X : dataframe or mapping of columns
            Table with the column `ids`.

        Returns
        -------
        list
            Entries of the column.

        Raises
        ------
        ValueError
            If X lacks the column.
        """
        if self.ids is None:
            raise ValueError("ids_of needs the parameter ids, the name of a column")
        return list(_column(X, self.ids))

    def _check_names(self) -> None:
        """Raise ValueError if columns have no names, or nothing separates labels."""
        if not self._names() or not are_texts(self._names()):
            raise ValueError(f"columns must be names of columns, got {self.columns!r}")
        if self.separator == "":
            raise ValueError("separator must have a character, or be None")

    def _names(self) -> list[str]:
        return as_list(self.columns)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.requires_fit = False
        return tags


def _is_table(X: Any) -> bool:
    refuse_no_values(X, "X")
    return isinstance(X, Mapping) or hasattr(X, "columns")


def _column(X: Any, name: str) -> Any:
    """Return the entries of a column; ValueError names the available columns."""
    if not _is_table(X):
        raise TypeError(f"X must be a table with the column {name!r}, got a {type(X).__name__}")
    names = list(getattr(X, "columns", X))
    if name not in names:
        raise ValueError(f"no column {name!r}; the columns are {', '.join(map(repr, names))}")
    if names.count(name) > 1:
        raise ValueError(f"{names.count(name)} columns have the name {name!r}")
    values = X[name]
    return values.to_list() if hasattr(values, "to_list") else list(values)


def _texts(values: Iterable[Any], X: Any, name: str) -> list[str]:
    """Return the entries of a column as strings."""
    texts = ["" if missing_value(value) else value for value in values]
    for row, value in enumerate(texts):
        if is_list(value) or isinstance(value, Mapping | bytes):
            raise TypeError(f"at {_place(X, row)}: column {name!r} holds {value!r}, no text")
    return list(map(str, texts))


def _place(X: Any, row: int) -> str:
    """Name a sample by the index of a table, or by its position."""
    index = getattr(X, "index", None)
    return f"row {row}" if index is None else str(index[row])


def _split(entry: Any, separator: str) -> list[Any]:
    if is_list(entry):
        return list(entry)
    if isinstance(entry, Mapping | bytes):  # no label, as is said where it stands
        return [entry]
    return [label for part in str(entry).split(separator) if (label := part.strip())]


def _has_text(entry: Any) -> bool:
    return is_list(entry) or bool(str(entry).strip())


def _show_lists(entries: list[Any]) -> bool:
    """Return whether each entry is a list or shows one, which a separator would tear apart."""
    filled = (entry for entry in entries if _has_text(entry))
    return all(_listed(entry) is not None for entry in filled)


def _listed(entry: Any) -> list[Any] | None:
    """Read a list, or one that a string shows in JSON or in Python; None if it is none."""
    if is_list(entry):
        return list(entry)
    if not (isinstance(entry, str) and entry.strip()[:1] == "[" and entry.strip()[-1:] == "]"):
        return None
    text = entry.strip()
    if _ARRAY.fullmatch(text):  # Python would join 'a' 'b' to one string
        text = f"[{', '.join(_ITEM.findall(text))}]"
    for read in (json.loads, ast.literal_eval):
        try:
            return list(read(text))
        except (ValueError, SyntaxError):
            continue
    return None
