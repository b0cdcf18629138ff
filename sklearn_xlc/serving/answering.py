"""Answers of a fitted model in plain lists, for the service and the command line."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

import sklearn_xlc
from sklearn_xlc._ids import as_list
from sklearn_xlc._tags import in_form
from sklearn_xlc.inspection import remembers_samples
from sklearn_xlc.metrics import unwrapped

#: Training samples that an explanation names, unless a number is given.
N_EXAMPLES = 3


class Answering:
    """Ranks, predicts and explains with a fitted estimator; results are lists, as of JSON.

    Parameters
    ----------
    estimator : estimator
        Fitted classifier, or a pipeline or search with one.
    path : str or path-like, default=None
        Its file, for messages.

    Attributes
    ----------
    classifier : estimator
        The classifier in pipelines and searches.
    columns : TextColumns or None
        The step that reads columns of tables.
    """

    def __init__(self, estimator: Any, path: Any = None) -> None:
        if not hasattr(estimator, "classes_"):
            what = f"a {type(estimator).__name__}, which predicts no labels"
            raise ValueError(what if path is None else f"{path} holds {what}")
        self.estimator = estimator
        self.classifier, before = unwrapped(estimator)
        first = before[0][0] if before else None
        self.columns = first if isinstance(first, sklearn_xlc.TextColumns) else None

    @property
    def classes(self) -> Any:
        """Labels of the model, as an array."""
        classes = self.estimator.classes_
        # A list of the classes of each column: 0 and 1.
        return np.arange(len(classes)) if isinstance(classes, list) else np.asarray(classes)

    @property
    def has_probabilities(self) -> bool:
        """Whether labels have probabilities, not only scores."""
        return hasattr(self.classifier, "predict_proba")

    def column_names(self) -> list[str]:
        """Return the text columns of a table; none for a model without tables."""
        return [] if self.columns is None else as_list(self.columns.columns)

    def topk(self, X: Any, k: int, proba: bool = True) -> tuple[list, list]:
        """Return the best k labels of each sample, all if there are less, and probabilities."""
        k = min(k, len(self.estimator.classes_))
        labels, scores = sklearn_xlc.predict_topk(self.estimator, X, k, proba=proba)
        return labels.tolist(), scores.tolist()

    def predict(self, X: Any) -> list:
        """Return the predictions of samples: the class of each, or a list of its labels."""
        found = self.estimator.predict(X)
        if sp.issparse(found) or np.ndim(found) == 2:
            return in_form(found, self.classes, "list of list").tolist()
        # The order of a set of strings is another in each process.
        found = [sorted(row) if isinstance(row, set | frozenset) else row for row in as_list(found)]
        return [row if np.isscalar(row) else as_list(row) for row in found]

    def label_sets(self, X: Any) -> list[list]:
        """Return the predicted labels of each sample; one for a model of classes."""
        return [as_list(row) for row in self.predict(X)]

    def explain(self, X: Any, k: int, n_words: int, n_examples: int | None = None) -> list[list]:
        """Return `Explanation.to_list` with a "probability" of each label, if there are any.

        `n_examples` None: `N_EXAMPLES`, if the model remembers training samples.
        """
        k = min(k, len(self.estimator.classes_))
        if n_examples is None:
            n_examples = N_EXAMPLES * remembers_samples(self.estimator)
        found = sklearn_xlc.explain_topk(
            self.estimator, X, k, examples=n_examples, n_columns=n_words
        ).to_list()
        if self.has_probabilities:
            for labels, values in zip(found, self.topk(X, k)[1]):
                for label, value in zip(labels, values):
                    label["probability"] = value
        return found
