"""Decision for the label set with the uniform distribution nearest to the predicted one."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import log_expit, logsumexp

from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc._ranking import ranked_candidates
from sklearn_xlc.decisions._base import Decision, set_sizes, usual_size
from sklearn_xlc.geometry import divergence_label_sets, fit_temperature


class Divergence(Decision):
    r"""Predict the label set with the uniform distribution nearest to the scores.

    The rule minimises the Kullback-Leibler divergence of the set's uniform distribution from the
    predicted distribution over labels. The pick-all-labels loss trains the softmax to be uniform on
    the labels of a sample; this rule recovers the labels without a threshold to tune. If scores are
    log odds, the probabilities of the labels are normalised to a distribution.

    Parameters
    ----------
    temperature : float or "tuned", default=1.0
        Divisor of the log probabilities; below 1, sets have fewer labels. "tuned": the temperature
        with the highest mean F1 of samples held out from training; 1 if none are held out.
    max_labels : int, default=None
        Largest number of labels of a set. None: the 99% quantile of the training samples' numbers
        of labels. A limit is needed: uninformative samples get as many labels as it allows.

    Attributes
    ----------
    temperature_ : float
        Temperature in use.
    max_labels_ : int
        Largest number of labels of a set. Later calls of `partial_fit` never lower it.
    n_labels_ : int
        Number of labels.

    See Also
    --------
    sklearn_xlc.geometry.divergence_label_sets : The derivation.
    Nearest : Compares prototypes, for features that collapse.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.decisions import Divergence
    >>> scores = np.log([[0.45, 0.05, 0.4, 0.1], [0.9, 0.04, 0.03, 0.03]])
    >>> Divergence(max_labels=3).fit(None, np.eye(4), link="exp").decode(scores).toarray()
    array([[1, 0, 1, 0],
           [1, 0, 0, 0]], dtype=int8)
    """

    in_repr = ("temperature_",)
    _at_most_n_labels = "max_labels"
    _parameter_constraints = {
        "temperature": [StrOptions({"tuned"}), Interval(Real, 1e-3, 1e3, closed="both")],
        "max_labels": [None, Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, temperature: Any = 1.0, max_labels: int | None = None) -> None:
        self.temperature = temperature
        self.max_labels = max_labels

    @property
    def fitted_on(self) -> str | None:  # type: ignore[override]
        """Samples to choose a temperature on: held-out ones, or none."""
        return "held" if self.temperature == "tuned" else None

    def fit(
        self,
        scores: np.ndarray | None,
        Y: Any,
        *,
        labels: np.ndarray | None = None,
        sizes: np.ndarray | None = None,
        link: str | None = "sigmoid",
        **context: Any,
    ) -> Divergence:
        super().fit(scores, Y)
        self.link_ = link
        self.max_labels_ = int(self.max_labels or usual_size(set_sizes(Y, sizes)))
        self.temperature_ = 1.0 if self.temperature == "tuned" else float(self.temperature)
        if scores is not None and self.temperature == "tuned":
            scores, labels = ranked_candidates(scores, labels, self.max_labels_)
            self.temperature_ = fit_temperature(
                self._logits(scores), Y, "example_f1", self.max_labels_, labels=labels
            )
        return self

    def partial_fit(
        self, scores: Any, Y: Any, *, sizes: np.ndarray | None = None, **context: Any
    ) -> Divergence:
        usual = usual_size(set_sizes(Y, sizes))
        self.max_labels_ = int(self.max_labels or max(self.max_labels_, usual))
        if self.temperature != "tuned":
            self.temperature_ = float(self.temperature)
        return self

    def n_candidates(self, n_labels: int) -> int | None:
        most = getattr(self, "max_labels_", self.max_labels)
        return None if most is None else most + 1

    def decode(self, scores: np.ndarray, labels: np.ndarray | None = None) -> sp.csr_matrix:
        scores, labels = ranked_candidates(scores, labels, self.max_labels_ + 1)
        sizes = self._nearest(scores, None)[0]
        return self.label_sets(np.arange(labels.shape[1]) < sizes[:, None], labels)

    @property
    def distances_read(self) -> str:
        """Inputs of :meth:`distances`: ranked scores if they are log probabilities, else all."""
        normalized = self.link_ == "exp" and self.temperature_ == 1.0
        return "ranked" if normalized else "scores"

    def distances(self, scores: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
        """Compute the divergences of the predicted and of the second best label set.

        Parameters
        ----------
        scores : ndarray of shape (n_samples, n_labels) or (n_samples, n_candidates)
            Scores of all labels, or of the best labels if `distances_read` is "ranked".
        labels : ndarray of shape (n_samples, n_candidates), default=None
            Ids of the candidates. None: the columns are the labels.

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Kullback-Leibler divergences, the smallest first; infinite if there is no second set.
        """
        constants = None
        if self.distances_read == "scores":
            constants = logsumexp(self._logits(scores) / self.temperature_, axis=1)
        scores, labels = ranked_candidates(scores, labels, self.max_labels_ + 1)
        return self._nearest(scores, constants)[1]

    def _nearest(
        self, scores: np.ndarray, constants: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        return divergence_label_sets(
            self._logits(scores),
            self.temperature_,
            self.max_labels_,
            n_labels=self.n_labels_,
            log_normalizers=constants,
        )

    def _logits(self, scores: np.ndarray) -> np.ndarray:
        """Convert scores to log probabilities, up to a constant per sample."""
        return log_expit(scores) if self.link_ == "sigmoid" else scores
