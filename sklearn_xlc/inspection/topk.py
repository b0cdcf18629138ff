"""Rank the labels of samples with any estimator, pipeline or search."""

from __future__ import annotations

import functools
import html
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import _num_samples, check_is_fitted

from sklearn_xlc._bounds import check_flag, checked_k, is_path
from sklearn_xlc._tags import index_of
from sklearn_xlc.engine import load
from sklearn_xlc.metrics import best_labels, classes_of, unwrapped
from sklearn_xlc.training import numpy_dtype


class _Pair(NamedTuple):
    labels: Any
    scores: Any


class TopLabels(_Pair):
    """Best labels of samples: a pair ``(labels, scores)``, shown as a table.

    Attributes
    ----------
    labels : ndarray of shape (n_samples, k)
        Labels, best first.
    scores : ndarray of shape (n_samples, k)
        Their scores or probabilities.
    """

    #: Samples that a notebook or a terminal shows.
    N_SHOWN = 10
    #: "score" or "probability": what the second array holds.
    kind = "score"
    #: Index of X, if it was a frame or series of pandas.
    index: Any = None

    def to_frame(self) -> Any:
        """Make a pandas frame with a row for each sample and label.

        Returns
        -------
        pandas.DataFrame
            Columns "sample" (entry of the index of X, or row of X without one), "rank" (from 1
            on), "label", and "score" or "probability".

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        import pandas as pd

        n_samples, k = self.labels.shape
        samples = pd.RangeIndex(n_samples) if self.index is None else self.index
        return pd.DataFrame(
            {
                "sample": samples.repeat(k),
                "rank": np.tile(np.arange(1, k + 1), n_samples),
                "label": self.labels.ravel(),
                self.kind: self.scores.ravel(),
            }
        )

    def _lines(self) -> Iterator[tuple[str, list[str]]]:
        samples = range(len(self.labels)) if self.index is None else self.index
        for sample, labels, scores in zip(samples[: self.N_SHOWN], self.labels, self.scores):
            yield str(sample), [f"{label} {score:.3g}" for label, score in zip(labels, scores)]
        if len(self.labels) > self.N_SHOWN:
            yield "...", [f"{len(self.labels) - self.N_SHOWN} more samples"]

    def __repr__(self) -> str:
        lines = [f"{sample}: {', '.join(cells)}" for sample, cells in self._lines()]
        return "\n".join(["TopLabels of samples", *lines])

    def _repr_html_(self) -> str:
        rows = [
            "<td>".join([f"<th>{html.escape(sample)}</th>", *map(html.escape, cells)])
            for sample, cells in self._lines()
        ]
        ranks = "".join(f"<th>{rank}</th>" for rank in range(1, self.labels.shape[1] + 1))
        return "<tr>".join(["<table>", f"<th>sample</th>{ranks}", *rows]) + "</table>"


class LazyTopLabels(_Pair):
    """Best labels of a dask collection: a pair ``(labels, scores)`` of dask arrays.

    Both arrays come from the same tasks. ``compute()`` of the pair, or ``dask.compute(labels,
    scores)``, ranks each partition once; computing the arrays one by one ranks it twice.

    Attributes
    ----------
    labels, scores : dask.array.Array of shape (n_samples, k)
        Labels, best first, and scores or probabilities; a chunk for each partition.
    """

    kind = "score"

    def compute(self, **options: Any) -> TopLabels:
        """Rank all partitions and gather the result.

        Parameters
        ----------
        **options : dict
            Options of ``dask.compute``, such as `scheduler`.

        Returns
        -------
        TopLabels
            Pair of arrays.
        """
        import dask

        return _of_kind(TopLabels(*dask.compute(*self, **options)), self.kind)

    def persist(self, **options: Any) -> LazyTopLabels:
        """Rank all partitions and keep the result on the workers.

        Parameters
        ----------
        **options : dict
            Options of ``dask.persist``.

        Returns
        -------
        LazyTopLabels
            Pair of dask arrays, with chunks computed or in computation by the workers.
        """
        import dask

        return _of_kind(LazyTopLabels(*dask.persist(*self, **options)), self.kind)

    def __repr__(self) -> str:
        n_partitions, k = self.labels.numblocks[0], self.labels.shape[1]
        return f"LazyTopLabels of {n_partitions} partitions, k={k}: compute() ranks them"


def _of_kind(pair: Any, kind: str, X: Any = None) -> Any:
    """Set what a pair holds, and the index of X if it has one."""
    pair.kind = kind
    pair.index = index_of(X)
    return pair


def predict_topk(estimator: Any, X: Any, k: int | None = 5, *, proba: bool = False) -> Any:
    """Find the best k labels of each sample, through pipelines, searches and frozen estimators.

    Parameters
    ----------
    estimator : estimator, str or path-like
        Fitted classifier, or a :class:`~sklearn.pipeline.Pipeline`, search or
        :class:`~sklearn.frozen.FrozenEstimator` around one. Classifiers of other packages rank by
        ``decision_function`` or ``predict_proba`` of all labels. A path names a file of
        :func:`save`; each process loads it once.
    X : {array-like, sparse matrix, dataframe} or dask collection
        Samples, as input of the outermost estimator; or an array, dataframe or series of dask with
        such samples (or CSR matrices) as partitions, ranked when the result is computed.
    k : int or None, default=5
        Number of labels, at most the number of labels there are. None: 5, or all of fewer.
    proba : bool, default=False
        Whether to return probabilities, in place of scores on the scale of ``decision_function``.

    Returns
    -------
    TopLabels or LazyTopLabels
        Pair ``(labels, scores)`` of arrays of shape (n_samples, k), best first, shown as a table in
        notebooks; ``to_frame()`` makes a pandas frame. For a dask collection, a pair of dask arrays
        with a chunk for each partition; ``compute()`` gives the pair of arrays.

    Raises
    ------
    ValueError
        If a pipeline makes another number of rows of X than it has samples, such as a vectorizer of
        a frame, which reads the names of its columns.
    OSError
        If there is no such file.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_xlc import MultiHeadClassifier, predict_topk
    >>> texts = ["a cat on a mat", "a dog on a bed", "a cat and a dog"] * 10
    >>> tags = [["cat"], ["dog"], ["cat", "dog"]] * 10
    >>> clf = MultiHeadClassifier(max_epochs=40, random_state=0)
    >>> model = make_pipeline(TfidfVectorizer(), clf)
    >>> labels, probabilities = predict_topk(model.fit(texts, tags), ["my cat"], k=1, proba=True)
    >>> labels
    array([['cat']], dtype=object)
    """
    kind = "probability" if check_flag(proba, "proba") else "score"
    if is_collection(X):
        lazy = LazyTopLabels(*rank_partitions(estimator, X, k, proba))
        return _of_kind(lazy, kind)
    found = TopLabels(*best_labels(opened(estimator), X, k, proba))
    check_rows(X, len(found.labels))
    return _of_kind(found, kind, X)


def check_rows(X: Any, n_rows: int) -> None:
    """Raise ValueError unless the estimators gave a row for each sample of X."""
    samples = next(iter(X.values()), ()) if isinstance(X, Mapping) else X
    n_samples = _num_samples(samples)
    if n_rows != n_samples:
        raise ValueError(
            f"X has {n_samples} samples, and the estimator made {n_rows} rows of it: a vectorizer "
            "reads a frame as the names of its columns; give it a column, such as X['text'], or "
            "put a ColumnTransformer before it"
        )


#: Number of loaded models kept by a process; a worker may serve several computations.
KEPT = 4
_loading = threading.Lock()


def opened(model: Any) -> Any:
    """Load the estimator of a file, once and again when the file is replaced; return others."""
    if not is_path(model):
        return model
    found = os.stat(model)
    with _loading:  # threads that begin together would all load it
        return _loaded(
            os.path.abspath(model), found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
        )


@functools.lru_cache(maxsize=KEPT)
def _loaded(path: str, *version: int) -> Any:
    return load(path)


def is_collection(X: Any) -> bool:
    """Return whether X is a dask collection, without an import of dask."""
    dask = sys.modules.get("dask")
    return dask is not None and bool(dask.is_dask_collection(X))


def rank_partitions(model: Any, X: Any, k: int | None, proba: bool) -> tuple[Any, Any]:
    """Return labels and scores as dask arrays with a chunk for each partition of X.

    One task for each partition makes both chunks.
    """
    import dask
    import dask.array as da

    k, labels, scores = _shape_of_lists(opened(model), k)
    parts, sizes = _parts(X)
    # A path travels with each task, an estimator as a result that all tasks take.
    held = os.path.abspath(model) if is_path(model) else dask.delayed(model, traverse=False)
    ranked = dask.delayed(_rank_part, nout=2, pure=False)
    found = [ranked(held, part, k, proba, labels, scores) for part in parts]
    return tuple(  # type: ignore[return-value]
        da.concatenate(
            [da.from_delayed(one[i], (size, k), dtype) for one, size in zip(found, sizes)]
        )
        for i, dtype in enumerate((labels, scores))
    )


def _parts(X: Any) -> tuple[list[Any], list[float]]:
    """Return the delayed partitions of a collection and their sizes; nan if unknown."""
    kind = type(X)
    if not (hasattr(kind, "to_delayed") and hasattr(kind, "ndim")):
        raise TypeError(
            "X must be an array, a dataframe or a series of dask, or samples in memory, got a "
            f"{kind.__module__}.{kind.__qualname__}"
        )
    if not hasattr(X, "chunks"):
        parts = list(X.to_delayed())
        return parts, [np.nan] * len(parts)
    if any(number > 1 for number in X.numblocks[1:]):  # a sample is not cut
        X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
    return X.to_delayed().ravel().tolist(), list(X.chunks[0])


def _shape_of_lists(estimator: Any, k: int | None) -> tuple[int, np.dtype, np.dtype]:
    """Return the number of labels and both types in advance; float64 for others' scores."""
    check_is_fitted(estimator)
    found, _ = unwrapped(estimator)
    classes, multilabel = classes_of(found)
    named = hasattr(found, "predict_topk") or not multilabel
    k = checked_k(k, 2**63 if classes is None else len(classes))
    network = getattr(unwrapped(estimator, deep=True)[0], "net_", None)
    scores = np.float64 if network is None else numpy_dtype(network.module_)
    labels = np.int64 if classes is None or not named else np.asarray(classes).dtype
    return k, np.dtype(labels), np.dtype(scores)


def _rank_part(
    model: Any, X: Any, k: int, proba: bool, labels: np.dtype, scores: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Rank the labels of a partition, even an empty one."""
    if not X.shape[0]:
        return np.empty((0, k), dtype=labels), np.empty((0, k), dtype=scores)
    found, values = best_labels(opened(model), X, k, proba)
    return found, values.astype(scores, copy=False)
