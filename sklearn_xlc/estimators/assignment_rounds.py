"""Reassign the labels of groups by classifiers trained on other groups, where useful."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import logit
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from sklearn_xlc._checks import check_csr, is_indicator
from sklearn_xlc._compat import check_method_params
from sklearn_xlc._csr import (
    IntArray,
    as_dense,
    canonical,
    find_entries,
    joined_ranges,
    one_per_row,
    places_of,
    row_blocks,
    row_numbers,
)
from sklearn_xlc._part import is_auto
from sklearn_xlc.aggregation import (
    EPSILON,
    Aggregation,
    assign_by_scores,
    draw_labels,
    noisy_or_posterior,
    run_tasks,
)
from sklearn_xlc.engine import BaseXLCClassifier, SoftLabels
from sklearn_xlc.metrics import all_scores

#: Number of scores in memory at once.
BLOCK = 2**24
#: Weight of the assigner beside the classifiers of a round, as a number of samples.
STRENGTH = 20
#: Smaller probabilities of a label are set to zero.
SMALLEST = 1e-3
#: Number of draws from probabilities, for classifiers that are trained on labels only.
N_DRAWS = 4
#: Training and test samples of a fold.
Fold = tuple[IntArray, IntArray]


class Samples:
    """Training samples, to fit classifiers on some of them and score others."""

    def __init__(
        self, estimator: Any, X: Any, y: Any, assigned: Any, fit_params: Any, n_jobs: Any = None
    ) -> None:
        self.estimator, self.fit_params, self.n_jobs = estimator, fit_params, n_jobs
        self.X = X.tocsr() if sp.issparse(X) else X if hasattr(X, "shape") else np.asarray(X)
        reads_soft_labels = getattr(estimator, "_reads_soft_labels", None)
        self.takes_soft_labels = reads_soft_labels is not None and reads_soft_labels(assigned)
        self.one_label, self.sparse = not is_indicator(y), sp.issparse(y)
        #: No samples, with labels in the form of y.
        self.like = (sp.csr_matrix(y) if self.sparse else np.asarray(y))[:0]
        if not (self.one_label or self.sparse):
            self.like = check_csr(self.like, "y").toarray()  # of numbers that SciPy reads
        self.classes = np.unique(y) if self.one_label else np.arange(np.shape(y)[-1])
        self.names = self.classes
        expected = (self.X.shape[0], len(self.classes))
        if assigned.shape != expected:
            raise ValueError(
                f"the assigner must return labels of shape {expected}, got {assigned.shape}"
            )

    def indicator(self, y: Any) -> sp.csr_array:
        """Return the labels of y as a matrix of numbers."""
        if self.one_label:
            return one_per_row(np.searchsorted(self.classes, y), len(self.classes))
        return canonical(check_csr(y, "y"))

    def fit(self, assigned: sp.csr_matrix, index: Any = None) -> Any:
        """Fit a classifier on labels in the form of y, or on probabilities, or on draws of them.

        Of some samples by their `index`, it is a classifier for scores only.
        """
        estimator = self.estimator if index is None else self._for_scores()
        labels: Any
        n_draws = 1
        if assigned.dtype.kind == "f":
            assigned = _without_small(assigned)
            if self.takes_soft_labels:
                labels = SoftLabels(assigned, self.like)
                return self._fit(estimator, labels, index)
            n_draws = N_DRAWS
            index = np.tile(np.arange(assigned.shape[0]) if index is None else index, n_draws)
            assigned = draw_labels(assigned, n_draws)
        if self.one_label:
            rows = row_numbers(assigned.indptr)
            labels = self.classes[assigned.indices]
            index = rows if index is None else index[rows]
        elif self.sparse:
            labels = sp.csr_matrix(assigned, dtype=self.like.dtype)
        else:
            labels = assigned.toarray().astype(self.like.dtype)
        return self._fit(estimator, labels, index, 1 / n_draws)

    def fit_on(self, targets: sp.csr_matrix, train: IntArray) -> Any:
        """Fit a classifier on a part, which may lack a label or have it throughout."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Label (not )?.* is present in all training examples")
            return self.fit(targets[train], train)

    def _for_scores(self) -> Any:
        """Return a classifier for scores only: without held-out samples for "auto"."""
        estimator = self.estimator
        if isinstance(estimator, BaseXLCClassifier) and is_auto(estimator.decision):
            return clone(estimator).set_params(decision="topk")
        return estimator

    def run(self, function: Any, shared: tuple[Any, ...], tasks: Sequence[tuple[Any, ...]]) -> Any:
        """Return ``function(self, *shared, *task)`` of each task."""
        return run_tasks(function, (self, *shared), tasks, self.n_jobs, prefer=None)

    def _fit(self, estimator: Any, labels: Any, index: Any, weight: float = 1.0) -> Any:
        """Fit a classifier; draws of a sample weigh as much as one, if it takes weights."""
        params = dict(check_method_params(self.X, self.fit_params, index))
        if weight != 1 and has_fit_parameter(estimator, "sample_weight"):
            given = params.get("sample_weight")
            given = np.ones(len(index)) if given is None else np.asarray(given)
            params["sample_weight"] = weight * given
        X = self.X if index is None else _safe_indexing(self.X, index)
        return clone(estimator).fit(X, labels, **params)

    def scores(
        self, estimator: Any, test: IntArray, proba: bool = False
    ) -> Iterator[tuple[IntArray, npt.NDArray[Any]]]:
        """Yield blocks of test samples with their scores, a column for each label of `columns`."""
        n_columns = len(self.columns(estimator))
        for part in row_blocks(len(test), len(self.classes), BLOCK):
            X = _safe_indexing(self.X, test[part])
            found = all_scores(estimator, X, not self.one_label, n_columns, proba)
            yield test[part], as_dense(found)

    def log_odds(
        self, estimator: Any, test: IntArray, labels: IntArray, seen: sp.csr_matrix
    ) -> npt.NDArray[np.float64]:
        """Score some labels of the test samples; unseen labels get the least of all scores.

        One-vs-rest classifiers of scikit-learn score a label without samples as 0, often the best.
        """
        columns, proba = self.columns(estimator), hasattr(estimator, "predict_proba")
        position = places_of(columns, len(self.classes))
        position[np.asarray(seen.sum(axis=0)).ravel() == 0] = -1
        known = position[labels] >= 0
        scores = np.zeros((len(test), len(labels)))
        blocks = self.scores(estimator, test, proba)
        scores[:, known] = np.concatenate([of[:, position[labels[known]]] for _, of in blocks])
        if proba:
            scores = logit(np.clip(scores, EPSILON, 1 - EPSILON))
        scores[:, ~known] = scores[:, known].min(initial=0)
        return scores

    def columns(self, estimator: Any) -> IntArray:
        """Return the label of each column of scores of a classifier."""
        if not self.one_label:
            return np.arange(len(self.classes))
        return np.searchsorted(self.classes, estimator.classes_)


def assign_anew(
    samples: Samples,
    data: Aggregation,
    assigned: sp.csr_matrix,
    folds: Sequence[Fold],
    use_counts: bool,
) -> sp.csr_matrix:
    """Assign each label to the samples with the highest scores, as many as had it before."""
    scores = candidates(data)
    for entries, values in samples.run(_scores_of_fold, (assigned, scores, False), folds):
        scores.data[entries] = values
    totals = None if use_counts else np.asarray(assigned.sum(axis=0)).ravel()
    return assign_by_scores(data, scores, use_counts=use_counts, totals=totals)


def _scores_of_fold(
    samples: Samples,
    targets: sp.csr_matrix,
    like: sp.csr_matrix,
    proba: bool,
    train: IntArray,
    test: IntArray,
) -> tuple[npt.NDArray[Any], ...]:
    """Score the entries of the test samples in `like`, by a classifier fitted on the others.

    Labels that it has not seen score as in the targets.
    """
    n_labels, fitted = like.shape[1], samples.fit_on(targets, train)
    columns, known, parts = samples.columns(fitted), np.zeros(n_labels, dtype=bool), []
    known[columns] = np.bincount(targets[train].indices, minlength=n_labels)[columns] > 0
    for block, found in samples.scores(fitted, test, proba):
        values = np.zeros((len(block), n_labels))
        values[:, columns] = found
        values[:, ~known] = targets[block][:, np.flatnonzero(~known)].toarray()
        sizes = np.diff(like.indptr)[block]
        entries = joined_ranges(like.indptr[block], sizes)
        rows = np.repeat(np.arange(len(block)), sizes)
        parts.append((entries, values[rows, like.indices[entries]]))
    return tuple(map(np.concatenate, zip(*parts)))


def cross_fitted_posterior(
    samples: Samples,
    data: Aggregation,
    assigned: sp.csr_matrix,
    folds: Sequence[Fold],
    n_fits: int,
) -> sp.csr_matrix:
    """Compute the probability of each label of a sample's groups, after `n_fits` rounds.

    In each round, classifiers are trained on the probabilities of the last round, at first on the
    assigned labels. They give probabilities of labels in the groups of the other folds. A noisy-or
    of the group turns these into posteriors. The posterior is averaged with the assigned labels,
    with the weight of 20 samples, since classifiers know little about rare labels.
    """
    prior = _at_entries(assigned, candidates(data))
    posterior = assigned
    for _ in range(n_fits):
        found, weight = _held_out(samples, posterior, prior, folds)
        posterior = noisy_or_posterior(data, found)
        posterior.data = weight * posterior.data + (1 - weight) * prior.data
    return posterior


def held_out_log_odds(
    samples: Samples,
    data: Aggregation,
    assigned: sp.csr_matrix,
    folds: Sequence[Fold],
    held_out: Fold,
    labels: IntArray,
    n_fits: int,
) -> npt.NDArray[np.float64]:
    """Score some labels of held-out samples by classifiers trained on the other samples.

    The first is trained on all labels of the group for all samples, the second on the assigned
    labels, the third on the probabilities after `n_fits` rounds from there. `assigned` and `folds`
    are of the training samples of `held_out`.

    Returns
    -------
    ndarray of shape (3, n_test, n_chosen), or (2, n_test, n_chosen) without rounds
        Log odds of the labels.
    """
    targets = [candidates(data).astype(np.int8), assigned]
    if n_fits:
        targets.append(cross_fitted_posterior(samples, data, assigned, folds, n_fits))
    return np.array(samples.run(_log_odds, (labels, held_out), [(each,) for each in targets]))


def _log_odds(
    samples: Samples, labels: IntArray, fold: Fold, targets: sp.csr_matrix
) -> npt.NDArray[np.float64]:
    """Train on the targets of a fold, and score the others."""
    train, test = fold
    return samples.log_odds(samples.fit_on(targets, train), test, labels, targets[train])


def _held_out(
    samples: Samples, targets: sp.csr_matrix, like: sp.csr_matrix, folds: Sequence[Fold]
) -> tuple[sp.csr_matrix, npt.NDArray[np.float64]]:
    """Compute the probabilities of the entries of `like`, by classifiers of other folds.

    Return also the weight of each, from the number of training samples with the label. Samples that
    are in no test part keep the entries of `like`, with weight zero.
    """
    found, weight = like.copy(), np.zeros(like.nnz)
    of_folds = samples.run(_scores_of_fold, (targets, like, True), folds)
    for (train, _), (entries, q) in zip(folds, of_folds):
        n_carry = np.asarray(targets[train].sum(axis=0), dtype=np.float64).ravel()
        n_carry = n_carry[like.indices[entries]]
        found.data[entries] = q
        weight[entries] = n_carry / (n_carry + STRENGTH)
    return found, weight


def candidates(data: Aggregation) -> sp.csr_matrix:
    """Return CSR with an entry for each label of each sample's groups."""
    found = canonical(sp.csr_matrix(data.groups.membership() @ data.labels))
    found.data = np.ones(found.nnz)
    return found


def _at_entries(assigned: sp.csr_matrix, like: sp.csr_matrix) -> sp.csr_matrix:
    """Return the assigned labels, zeros included, at the entries of another matrix."""
    assigned = canonical(sp.csr_matrix(assigned, dtype=np.float64))
    positions = find_entries(assigned, row_numbers(like.indptr), like.indices)
    data = np.append(assigned.data, 0.0)[positions]
    return sp.csr_matrix((data, like.indices, like.indptr), shape=like.shape)


def _without_small(probabilities: sp.csr_matrix) -> sp.csr_matrix:
    """Copy probabilities in single precision, without very small ones."""
    kept = sp.csr_matrix(probabilities, dtype=np.float32, copy=True)
    kept.data[kept.data < SMALLEST] = 0
    kept.eliminate_zeros()
    return kept
