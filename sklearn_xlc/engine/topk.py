"""The best labels of samples, whatever is wrapped around a classifier."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any

import numpy as np

from sklearn_xlc._bounds import check_integer
from sklearn_xlc.metrics._scorer import all_scores, innermost
from sklearn_xlc.metrics._validation import rank_scores


class TopLabels(tuple[np.ndarray, np.ndarray]):
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

    def __new__(cls, labels: np.ndarray, scores: np.ndarray) -> TopLabels:
        """Make the pair."""
        return super().__new__(cls, (labels, scores))

    def __getnewargs__(self) -> tuple[np.ndarray, np.ndarray]:
        return self[0], self[1]

    @property
    def labels(self) -> np.ndarray:
        """Labels, best first."""
        return self[0]

    @property
    def scores(self) -> np.ndarray:
        """Scores or probabilities of the labels."""
        return self[1]

    def to_frame(self) -> Any:
        """Make a pandas frame: a row for each label of each sample.

        Returns
        -------
        pandas.DataFrame
            Columns "sample" (row of X), "rank" (from 1 on), "label" and "score".

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        import pandas as pd

        n_samples, k = self.labels.shape
        return pd.DataFrame(
            {
                "sample": np.repeat(np.arange(n_samples), k),
                "rank": np.tile(np.arange(1, k + 1), n_samples),
                "label": self.labels.ravel(),
                "score": self.scores.ravel(),
            }
        )

    def _lines(self) -> Iterator[tuple[str, list[str]]]:
        for sample, (labels, scores) in enumerate(zip(self.labels, self.scores)):
            if sample == self.N_SHOWN:
                yield "...", [f"{len(self.labels) - sample} more samples"]
                return
            yield str(sample), [f"{label} {score:.3g}" for label, score in zip(labels, scores)]

    def __repr__(self) -> str:
        lines = [f"{sample}: {', '.join(cells)}" for sample, cells in self._lines()]
        return "\n".join(["TopLabels of samples", *lines])

    def _repr_html_(self) -> str:
        rows = [
            "<td>".join([f"<th>{sample}</th>", *map(html.escape, cells)])
            for sample, cells in self._lines()
        ]
        ranks = "".join(f"<th>{rank}</th>" for rank in range(1, self.labels.shape[1] + 1))
        return "<tr>".join(["<table>", f"<th>sample</th>{ranks}", *rows]) + "</table>"


def predict_topk(estimator: Any, X: Any, k: int = 5, *, proba: bool = False) -> TopLabels:
    """Find the best k labels of each sample, through pipelines, searches and frozen estimators.

    Parameters
    ----------
    estimator : estimator
        Fitted classifier, or a :class:`~sklearn.pipeline.Pipeline`, search or
        :class:`~sklearn.frozen.FrozenEstimator` around one. Labels of classifiers of other
        packages are ranked by ``decision_function`` or ``predict_proba``, computed for all labels.
    X : {array-like, sparse matrix, dataframe}
        Samples, as the outermost estimator takes them.
    k : int, default=5
        Number of labels, at most the number of labels there are.
    proba : bool, default=False
        Whether to return probabilities, in place of scores on the scale of ``decision_function``.

    Returns
    -------
    TopLabels
        Pair ``(labels, scores)`` of arrays of shape (n_samples, k), best first. It shows itself as
        a table in notebooks; ``to_frame()`` makes a pandas frame.

    Raises
    ------
    TypeError
        If the estimator ranks no labels.
    ValueError
        If `k` is larger than the number of labels, or `proba` is set and there are no
        probabilities.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_xlc import MultiHeadClassifier, predict_topk
    >>> texts = ["a cat on a mat", "a dog on a bed", "a cat and a dog"] * 10
    >>> tags = [["cat"], ["dog"], ["cat", "dog"]] * 10
    >>> model = make_pipeline(TfidfVectorizer(), MultiHeadClassifier(random_state=0))
    >>> labels, probabilities = predict_topk(model.fit(texts, tags), ["my cat"], k=1, proba=True)
    >>> labels
    array([['cat']], dtype=object)
    """
    found, X = innermost(estimator, X)
    if hasattr(found, "predict_topk"):
        return TopLabels(*found.predict_topk(X, k, **({"proba": True} if proba else {})))
    k = check_integer(k, "k")
    classes = getattr(found, "classes_", None)
    multilabel = isinstance(classes, list) or getattr(found, "multilabel_", False)
    scores = all_scores(found, X, multilabel, proba=proba)
    if k > scores.shape[1]:
        raise ValueError(f"k={k} must be at most the number of labels, {scores.shape[1]}")
    ids = rank_scores(scores, k)
    best = np.asarray(scores[np.arange(len(ids))[:, None], ids])
    named = classes is not None and not multilabel
    return TopLabels(np.asarray(classes)[ids] if named else ids, best)
