"""Report of the errors of predicted label sets: a row for each label, the worst first."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._csr import uneven_blocks
from sklearn_xlc._ranking import rank_stored
from sklearn_xlc.metrics import check_label_sets

#: Pairs of a missed and a wrongly predicted label that are counted at once.
_PAIRS = 10_000_000
_HEADS = ["label", "support", "predicted", "precision", "recall", "f1"]


@dataclass(frozen=True, eq=False, repr=False)
class LabelReport:
    """Errors of predicted label sets, label by label; shown as a table of the worst labels.

    Labels have a row if they are true or predicted for a sample. The label with the most errors,
    missed or wrongly predicted, comes first; equal numbers are in the order of F1, smallest first,
    and then of the labels.

    Parameters
    ----------
    labels : ndarray of shape (n_labels,)
        Labels.
    support, predicted, hits : ndarray of shape (n_labels,)
        Number of samples with the label, of samples for which it is predicted, and of both.
    predicted_instead, instead_of : ndarray of shape (n_labels, n_confused)
        Labels that are wrongly predicted most often where the label is missed, and labels that are
        missed most often where it is wrongly predicted. None if there are fewer.
    n_predicted_instead, n_instead_of : ndarray of shape (n_labels, n_confused)
        Numbers of these samples.
    n_samples : int
        Number of samples.

    Attributes
    ----------
    precision, recall, f1 : ndarray of shape (n_labels,)
        Precision is NaN for a label that is never predicted, recall for one that is never true.
    """

    #: Labels that a notebook or a terminal shows.
    N_SHOWN: ClassVar[int] = 10

    labels: npt.NDArray[Any]
    support: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.int64]
    hits: npt.NDArray[np.int64]
    predicted_instead: npt.NDArray[Any]
    instead_of: npt.NDArray[Any]
    n_predicted_instead: npt.NDArray[np.int64]
    n_instead_of: npt.NDArray[np.int64]
    n_samples: int

    @property
    def precision(self) -> npt.NDArray[Any]:
        """Share of right predictions of each label."""
        return _share(self.hits, self.predicted)

    @property
    def recall(self) -> npt.NDArray[Any]:
        """Share of the samples of each label for which it is predicted."""
        return _share(self.hits, self.support)

    @property
    def f1(self) -> npt.NDArray[Any]:
        """Harmonic mean of precision and recall; 0 without a hit."""
        return _share(2 * self.hits, self.support + self.predicted)

    def to_frame(self) -> Any:
        """Make a pandas frame with a row for each label, the worst first.

        Returns
        -------
        pandas.DataFrame
            Columns "label", "support", "predicted", "precision", "recall", "f1", and
            "predicted_instead" and "instead_of" as text, such as "dog (3), fox (1)".

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        import pandas as pd

        columns = {"label": self.labels, **{name: getattr(self, name) for name in _HEADS[1:]}}
        for name in ("predicted_instead", "instead_of"):
            columns[name] = [self._confused(name, row) for row in range(len(self.labels))]
        return pd.DataFrame(columns)

    def _confused(self, name: str, row: int, most: int | None = None) -> str:
        pairs = zip(getattr(self, name)[row][:most], getattr(self, f"n_{name}")[row])
        return ", ".join(f"{label} ({n})" for label, n in pairs if n)

    def _title(self) -> str:
        hits, n_true, n_predicted = self.hits.sum(), self.support.sum(), self.predicted.sum()
        totals = f"precision {hits / max(1, n_predicted):.3f}, recall {hits / max(1, n_true):.3f}"
        return f"LabelReport of {self.n_samples} samples, {len(self.labels)} labels: {totals}"

    def _lines(self, most: int | None = None) -> Iterator[list[str]]:
        yield [*_HEADS, "predicted instead", "instead of"]
        shares = np.column_stack([self.precision, self.recall, self.f1])
        for row in range(min(self.N_SHOWN, len(self.labels))):
            counts = [str(self.support[row]), str(self.predicted[row])]
            cells = ["-" if np.isnan(share) else f"{share:.2f}" for share in shares[row]]
            confused = [
                self._confused(name, row, most) for name in ("predicted_instead", "instead_of")
            ]
            yield [str(self.labels[row]), *counts, *cells, *confused]

    def _more(self) -> list[str]:
        n_more = len(self.labels) - self.N_SHOWN
        return [f"... {n_more} more labels"] if n_more > 0 else []

    def __repr__(self) -> str:
        table = list(self._lines(most=1))
        widths = [max(map(len, column)) for column in zip(*table)]
        left = {0, len(_HEADS), len(_HEADS) + 1}
        lines = [
            "  ".join(
                cell.ljust(width) if i in left else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(cells, widths))
            ).rstrip()
            for cells in table
        ]
        return "\n".join([self._title(), *lines, *self._more()])

    def _repr_html_(self) -> str:
        head, *rows = self._lines()
        heads = "".join(f"<th>{name}</th>" for name in head)
        lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in cells) for cells in rows]
        lines += [f'<td colspan="{len(head)}">{line}</td>' for line in self._more()]
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><caption>{self._title()}</caption><tr>{heads}</tr>{body}</table>"


def label_report(
    y_true: Any, y_pred: Any, *, labels: Any = None, n_confused: int = 3
) -> LabelReport:
    """Report precision, recall and confusions of each label, the worst labels first.

    Two labels are confused if one of them is missed and the other wrongly predicted for the same
    sample. Nothing of the size samples x labels, or labels x labels, is held.

    Parameters
    ----------
    y_true : array-like, sparse matrix, dataframe, or sequence of label sets
        True labels: tags, class labels, or an indicator.
    y_pred : array-like, sparse matrix, dataframe, or sequence of label sets
        Predicted labels, in a form of the same kind, such as the result of ``predict``.
    labels : array-like of shape (n_labels,), default=None
        Names of the columns of indicators. None: the column numbers.
    n_confused : int, default=3
        Number of labels named that are confused with a label.

    Returns
    -------
    LabelReport
        Arrays with a row for each label, shown as a table; ``to_frame()`` makes a pandas frame.

    Raises
    ------
    ValueError, TypeError
        If the label sets are invalid or of different kinds.

    See Also
    --------
    sklearn_xlc.metrics.label_set_score : One number for all labels.
    sklearn.metrics.classification_report : Report for few labels.

    Examples
    --------
    >>> from sklearn_xlc import label_report
    >>> tags = [["cat"], ["cat", "pet"], ["dog"], ["fox"]]
    >>> predicted = [["cat"], ["dog", "pet"], ["dog"], ["dog"]]
    >>> label_report(tags, predicted)
    LabelReport of 4 samples, 4 labels: precision 0.600, recall 0.600
    label  support  predicted  precision  recall    f1  predicted instead  instead of
    dog          1          3       0.33    1.00  0.50                     cat (1)
    fox          1          0          -    0.00  0.00  dog (1)
    cat          2          1       1.00    0.50  0.67  dog (1)
    pet          1          1       1.00    1.00  1.00
    """
    n_confused = check_integer(n_confused, "n_confused")
    true, predicted, names = check_label_sets(y_true, y_pred, labels)
    shared = sp.csr_array(true.multiply(predicted))
    hits, support, n_predicted = (
        np.bincount(matrix.indices, minlength=len(names)) for matrix in (shared, true, predicted)
    )
    errors, total = support + n_predicted - 2 * hits, support + n_predicted
    f1 = 2 * hits / np.maximum(total, 1)
    order = np.lexsort((np.arange(len(names)), f1, -errors))
    order = order[total[order] > 0]
    missed, wrong = (sp.csr_array(matrix - shared) for matrix in (true, predicted))
    for matrix in (missed, wrong):
        matrix.eliminate_zeros()
    instead, n_instead = _most_frequent(missed, wrong, n_confused)
    of, n_of = _most_frequent(wrong, missed, n_confused)
    named: npt.NDArray[Any] = np.full(len(names) + 1, None)  # -1: none
    named[:-1] = names
    return LabelReport(
        labels=names[order],
        support=support[order],
        predicted=n_predicted[order],
        hits=hits[order],
        predicted_instead=named[instead[order]],
        n_predicted_instead=n_instead[order],
        instead_of=named[of[order]],
        n_instead_of=n_of[order],
        n_samples=true.shape[0],
    )


def _share(above: npt.NDArray[Any], below: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.divide(above, below, out=np.full(len(below), np.nan), where=below > 0)


def _most_frequent(
    of: sp.csr_array, among: sp.csr_array, k: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Find the k columns of `among` with the most rows in common with each column of `of`.

    Returns ids and numbers of rows, both (n_columns, k); -1 and 0 if there are fewer.
    """
    n_columns = of.shape[1]
    by_label = sp.csr_array(of.T, dtype=np.int64)
    n_pairs = by_label @ np.diff(among.indptr)
    ids = np.full((n_columns, k), -1, dtype=np.int64)
    counts = np.zeros((n_columns, k), dtype=np.int64)
    used = np.flatnonzero(n_pairs)
    for block in uneven_blocks(n_pairs[used], _PAIRS):
        rows = used[block]
        shared = sp.csr_array(by_label[rows] @ among.astype(np.int64))
        shared.sort_indices()
        best = rank_stored(shared.data, shared.indptr, k)
        ids[rows] = np.append(shared.indices, -1)[best]
        counts[rows] = np.append(shared.data, 0)[best]
    return ids, counts
