"""Rounds of probabilities: dense labels, the choice without ground truth, and their limits."""

import joblib
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import LinearSVC

from sklearn_xlc import AggregatedLabelClassifier, EAGLETransformer, MultiHeadClassifier
from sklearn_xlc.datasets import make_aggregated, make_extreme_multilabel
from sklearn_xlc.encoders import MLP
from sklearn_xlc.estimators import aggregated_label, assignment_rounds
from sklearn_xlc.metrics import precision_at_k

FLAT = MultiHeadClassifier("flat", random_state=0)
QUICK = MultiHeadClassifier("flat", encoder=MLP((16,)), max_epochs=1, random_state=0)
SEEDED = EAGLETransformer(random_state=0)


class Everyone(BaseEstimator):
    """Assigns all labels of the group to all samples."""

    def fit(self, X, y, groups):
        return self

    def assign(self, X, y, groups):
        return sparse.csr_matrix(y, dtype=np.int8)


def dense_labels(n, n_labels=12, n_features=24, seed=0):
    """Rows that carry a third of the labels; a label is a half-space of dense features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features)).astype(np.float32)
    vectors = rng.normal(size=(n_features, n_labels))
    scores = X @ (vectors / np.linalg.norm(vectors, axis=0))
    return X, sparse.csr_matrix((scores > 0.5).astype(np.int8))


@pytest.fixture(scope="module")
def problem():
    X, Y = dense_labels(1600)
    grouped, groups = make_aggregated(Y[:1200], group_size=4, random_state=0)
    return X[:1200], Y[:1200], grouped, groups, X[1200:], Y[1200:]


@pytest.fixture(scope="module")
def few(problem):
    """Samples of the first groups, what their labels are known for, and their groups."""
    X, _, grouped, groups, _, _ = problem
    kept = groups < 60
    return X[kept], grouped[kept], groups[kept]


@pytest.mark.slow
def test_dense_labels_come_near_the_truth(problem):
    X, Y, grouped, groups, X_test, Y_test = problem

    def share(clf):
        return precision_at_k(Y_test, clf.predict_proba(X_test), k=3)

    # Lists of similar samples make up for a part of what all labels of the group cost.
    flat = clone(FLAT).set_params(ranker="calibration")
    truth, everything = share(flat.fit(X, Y)), share(flat.fit(X, grouped))
    once, rounds = (
        AggregatedLabelClassifier(flat, SEEDED, n_rounds=n).fit(X, grouped, groups)
        for n in (1, "auto")
    )
    assert share(rounds) > everything + 0.6 * (truth - everything)
    assert share(rounds) >= share(once) - 0.01
    # Probabilities of the labels that samples do carry, and of those that they do not.
    assert rounds.posterior_[Y.nonzero()].mean() > 0.6
    others = rounds.posterior_ - rounds.posterior_.multiply(Y)
    assert others.sum() / (grouped.nnz - Y.nnz) < 0.3


@pytest.mark.parametrize("n_rounds", [2, 4])
def test_posterior_is_of_the_group_and_assigned_labels_are_its_most_probable(few, n_rounds):
    X, grouped, groups = few
    clf = AggregatedLabelClassifier(QUICK, SEEDED, n_rounds=n_rounds).fit(X, grouped, groups)
    posterior, allowed = clf.posterior_.toarray(), grouped.toarray() > 0
    assert posterior[~allowed].max() == 0
    assert posterior.max() <= 1
    assert posterior.min() >= 0
    in_group = np.eye(groups.max() + 1)[groups]
    reached = (in_group.T @ posterior)[in_group.T @ allowed > 0]
    assert reached.min() > 1 - 1e-9
    assigned = clf.assigned_.toarray()
    np.testing.assert_array_equal(in_group.T @ assigned > 0, in_group.T @ allowed > 0)
    assert abs(assigned.sum() - posterior.sum()) < 0.1 * assigned.sum()


@pytest.mark.integration
def test_same_fit_twice(few):
    X, grouped, groups = few
    clf = AggregatedLabelClassifier(QUICK, SEEDED)
    first = clf.fit(X, grouped, groups).predict_proba(X)
    np.testing.assert_array_equal(clf.fit(X, grouped, groups).predict_proba(X), first)


@pytest.mark.integration
@pytest.mark.parametrize("inner", [QUICK, OneVsRestClassifier(LogisticRegression())])
def test_folds_side_by_side_give_the_fit_of_one_after_the_other(few, inner):
    X, grouped, groups = few
    clf = AggregatedLabelClassifier(inner, SEEDED, n_rounds=2, n_folds=3)
    expected = clf.fit(X, grouped, groups).predict_proba(X)
    with joblib.parallel_config("threading"):
        found = clone(clf).set_params(n_jobs=2).fit(X, grouped, groups)
    np.testing.assert_array_equal(found.predict_proba(X), expected)
    assert (found.assigned_ != clf.assigned_).nnz == 0


@pytest.mark.slow
def test_blocks_of_samples_make_no_difference(problem, monkeypatch):
    X, _, grouped, groups, _, _ = problem
    clf = AggregatedLabelClassifier(QUICK, SEEDED, n_rounds=2)
    whole = clf.fit(X, grouped, groups).posterior_
    monkeypatch.setattr(assignment_rounds, "BLOCK", 100)
    np.testing.assert_allclose(clf.fit(X, grouped, groups).posterior_.data, whole.data, atol=1e-6)


@pytest.mark.integration
@pytest.mark.parametrize(
    "likelihoods, assigner, soft",
    [
        ([-4.0, -3.0, -3.5], SEEDED, False),
        ([-4.0, -3.5, -3.0], SEEDED, True),
        ([-3.0, -3.5, -4.0], Everyone(), False),
        ([-3.0, -3.0, -3.0], Everyone(), False),
    ],
)
def test_auto_keeps_what_is_best_on_held_out_groups(few, monkeypatch, likelihoods, assigner, soft):
    X, grouped, groups = few
    inner = QUICK if soft else RidgeClassifier()  # a fit of a network takes ten times as long
    grouped = grouped if soft else grouped.toarray()
    of_candidate = iter(likelihoods)

    def judged(data, samples, log_odds):
        assert sorted(samples) == list(range(240))
        return np.full(60, next(of_candidate))

    monkeypatch.setattr(aggregated_label, "group_log_likelihood", judged)
    clf = AggregatedLabelClassifier(inner, SEEDED).fit(X, grouped, groups)
    n_rounds = 1 + soft * aggregated_label.MAX_FITS
    again = AggregatedLabelClassifier(inner, assigner, n_rounds=n_rounds).fit(X, grouped, groups)
    np.testing.assert_array_equal(clf.decision_function(X), again.decision_function(X))
    assert (clf.assigned_ != again.assigned_).nnz == 0
    assert (clf.posterior_ is not None) == soft


@pytest.mark.parametrize("spread, pays", [(2.0, True), (6.0, False)])
def test_auto_assigns_only_where_that_is_clearly_better(few, monkeypatch, spread, pays):
    X, grouped, groups = few
    grouped = grouped.toarray()
    gain = 0.1 + 0.1 * spread * (-1) ** np.arange(60)
    likelihoods = iter([np.zeros(60), gain, gain - 0.1])
    monkeypatch.setattr(aggregated_label, "group_log_likelihood", lambda *_: next(likelihoods))
    clf = AggregatedLabelClassifier(RidgeClassifier(), SEEDED).fit(X, grouped, groups)
    assert (clf.assigned_.nnz < np.count_nonzero(grouped)) == pays
    assert clf.posterior_ is None


def related_groups(n_groups, n_features, shared, seed):
    """Members of groups that have most labels in common, and features that say little of them."""
    rng = np.random.default_rng(seed)
    vectors = np.random.default_rng(99).normal(size=(n_features, 10))
    vectors /= np.linalg.norm(vectors, axis=0)
    of_group = np.repeat(rng.normal(size=(n_groups, 10)), 4, axis=0)
    own = rng.normal(size=of_group.shape)
    latent = np.sqrt(shared) * of_group + np.sqrt(1 - shared) * own
    X = latent @ vectors.T + rng.normal(size=(4 * n_groups, n_features))
    return X, (latent > np.linspace(0, 1.2, 10)).astype(int)


@pytest.mark.integration
@pytest.mark.parametrize(
    "seed, kinds",
    [
        (0, [(40, 0.95)]),
        *(
            pytest.param(seed, [(40, 0.8), (40, 0.95), (150, 0.9)], marks=pytest.mark.slow)
            for seed in (0, 1)
        ),
    ],
)
def test_never_below_all_labels_for_all_members_but_by_noise(seed, kinds):
    gains, gains_of_one_round = [], []
    for n_features, shared in kinds:
        X, Y = related_groups(650, n_features, shared, seed)
        groups = np.arange(600) // 4
        grouped = np.repeat(Y[:600].reshape(150, 4, 10).max(axis=1), 4, axis=0)
        tested = 600 + np.flatnonzero(Y[600:].any(axis=1))
        linear = OneVsRestClassifier(LogisticRegression(C=0.1))

        def share(clf, X=X[tested], Y=Y[tested]):
            return precision_at_k(Y, clf.decision_function(X), k=1)

        everything = share(linear.fit(X[:600], grouped))
        for n_rounds, of in ((1, gains_of_one_round), ("auto", gains)):
            clf = AggregatedLabelClassifier(linear, SEEDED, n_rounds=n_rounds)
            of.append(share(clf.fit(X[:600], grouped, groups)) - everything)
    assert max(gains_of_one_round) < -0.04  # what the choice is for
    assert np.median(gains) >= -0.01
    assert min(gains) > -0.03


@pytest.mark.parametrize("inner", [LogisticRegression(), LinearSVC()])
def test_labels_without_training_samples_get_the_least_score(inner, monkeypatch):
    X, Y = dense_labels(200, n_labels=3)
    X, targets = X.astype(np.float64), sparse.csr_matrix(Y.multiply([1, 0, 1]))
    samples = assignment_rounds.Samples(OneVsRestClassifier(inner), X, Y, targets, {})
    with pytest.warns(UserWarning, match="Label not 1 is present"):
        linear = samples.fit(targets)
    expected = linear.decision_function(X)
    assert (expected.argmax(axis=1) == 1).any()  # scikit-learn's score of such a label is 0
    if hasattr(linear, "predict_proba"):
        limit = np.log(1 / assignment_rounds.EPSILON - 1)
        expected = expected.clip(-limit, limit)
    everyone = np.arange(200)
    for labels in (np.arange(3), np.array([1, 2])):
        found = samples.log_odds(linear, everyone, labels, targets)
        seen = labels != 1
        np.testing.assert_allclose(found[:, seen], expected[:, labels[seen]], rtol=1e-4)
        assert set(found[:, ~seen].ravel()) == {found[:, seen].min()}
    monkeypatch.setattr(assignment_rounds, "BLOCK", 30)
    again = samples.log_odds(linear, everyone, labels, targets)
    np.testing.assert_allclose(again, found, rtol=1e-4)


def test_draws_weigh_as_much_as_their_samples(problem):
    X, _, grouped, groups, _, _ = problem
    seen = []

    class Watch(MultiOutputClassifier):
        def fit(self, X, Y, sample_weight=None):
            seen.append((len(X), sample_weight))
            return super().fit(X, Y, sample_weight=sample_weight)

    given = np.linspace(0.5, 1.5, 1200)
    clf = AggregatedLabelClassifier(Watch(LogisticRegression()), SEEDED, n_rounds=2)
    clf.fit(X, grouped.toarray(), groups, sample_weight=given)
    n_rows, weight = seen[-1]
    assert n_rows == assignment_rounds.N_DRAWS * 1200
    np.testing.assert_allclose(weight.reshape(-1, 1200).sum(axis=0), given)
    assert clf.posterior_ is not None


@pytest.mark.integration
@pytest.mark.parametrize(
    "given",
    [
        "ids",
        *(pytest.param(form, marks=pytest.mark.slow) for form in ("ids of groups", "membership")),
    ],
)
def test_held_out_groups_are_hidden_from_the_choice(problem, given, monkeypatch):
    """Neither the assigner nor a classifier may see the groups that it is judged by."""
    X, _, grouped, groups, _, _ = problem
    kept = groups < 40
    groups, grouped = groups[kept], grouped[kept, :4]
    X = np.column_stack([X[kept], groups / 1000])
    assigned, fitted, judged = [], [], []

    class Assigner(EAGLETransformer):
        def fit(self, X, y, groups=None):
            assigned.append(set(np.asarray(X)[:, -1]))
            return super().fit(X, y, groups)

    class Watch(OneVsRestClassifier):
        def fit(self, X, y):
            self.own_ = set(np.asarray(X)[:, -1])
            fitted.append(self.own_)
            return super().fit(X, y)

        def predict_proba(self, X):
            assert not set(np.asarray(X)[:, -1]) & self.own_
            return super().predict_proba(X)

    def watched(samples, estimator, test, labels, seen):
        judged.append((set(samples.X[test, -1]), len(fitted)))
        return log_odds(samples, estimator, test, labels, seen)

    log_odds = assignment_rounds.Samples.log_odds
    monkeypatch.setattr(assignment_rounds.Samples, "log_odds", watched)

    y, ids = grouped, groups
    if given != "ids":
        y = grouped[np.unique(groups, return_index=True)[1]]
    if given == "membership":
        ids = sparse.csr_matrix(np.eye(40)[groups])
    clf = AggregatedLabelClassifier(Watch(LogisticRegression()), Assigner(random_state=0))
    clf.fit(X, y, ids)
    (held_out, n_fitted), *_ = judged
    assert len(held_out) == 10
    # All that led to the first verdict: classifiers of rounds, and the second assigner.
    assert n_fitted > 4
    assert not any(held_out & each for each in fitted[:n_fitted])
    assert not held_out & assigned[1]
    assert len(clf.estimator_.own_) == len(assigned[0]) == 40


def test_labels_that_a_half_never_saw_stay_as_assigned():
    X, Y = make_extreme_multilabel(200, 40, 6, random_state=0)
    Y = Y.tolil()
    Y[:, 0] = 0
    Y[3, 0] = 1  # a single sample: one half trains without it
    grouped, groups = make_aggregated(Y.tocsr(), group_size=4, random_state=0)
    clf = AggregatedLabelClassifier(QUICK, SEEDED, n_rounds=2).fit(X, grouped, groups)
    first = SEEDED.fit(X, grouped, groups).assign(X, grouped, groups)
    members = np.flatnonzero(groups == groups[3])
    np.testing.assert_array_equal(
        clf.posterior_[members, 0].toarray().ravel(), first[members, 0].toarray().ravel()
    )


class WithoutScores(ClassifierMixin, BaseEstimator):
    """Predicts the label set of the nearest sample."""

    def fit(self, X, y):
        self.nearest_ = KNeighborsRegressor(1).fit(X, y)
        return self

    def predict(self, X):
        return self.nearest_.predict(X).astype(int)


@pytest.mark.filterwarnings("ignore:.*cannot be learnt:UserWarning")
def test_one_round_where_there_is_nothing_to_weigh(few, monkeypatch):
    X, grouped, groups = few
    without_scores = WithoutScores()
    counted = EAGLETransformer(multiplicity="top", random_state=0)
    alone = sparse.csr_matrix(np.ones((240, 12), dtype=int))
    for clf, y, ids in (
        (AggregatedLabelClassifier(without_scores, SEEDED), grouped.toarray(), groups),
        (AggregatedLabelClassifier(QUICK, counted), grouped, groups),
        (AggregatedLabelClassifier(QUICK, SEEDED), grouped, np.arange(240)),
        (AggregatedLabelClassifier(QUICK, SEEDED), alone, np.zeros(240)),
    ):
        assert clf.fit(X, y, ids).posterior_ is None
    monkeypatch.setattr(aggregated_label, "MAX_SCORES", 240 * 12 - 1)
    clf = AggregatedLabelClassifier(QUICK, SEEDED).fit(X, grouped, groups)
    assert clf.posterior_ is None
    np.testing.assert_array_equal(
        clf.predict_proba(X), QUICK.fit(X, clf.assigned_).predict_proba(X)
    )


@pytest.mark.parametrize("form", ["bsr", "coo", "dia", "lil", "dok"])
def test_rounds_on_every_sparse_form_of_y(form):
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(40, 5)), np.arange(40) // 4
    Y = (rng.random((10, 4)) < 0.5).astype(int)
    base = MultiHeadClassifier("flat", max_epochs=2, random_state=0)
    assigner = EAGLETransformer(n_components=2, random_state=0)
    fits = [
        AggregatedLabelClassifier(base, assigner, n_rounds=2).fit(X, y, groups)
        for y in (sparse.csr_matrix(Y), sparse.csr_matrix(Y).asformat(form))
    ]
    np.testing.assert_array_equal(*(clf.decision_function(X) for clf in fits))


def test_a_label_that_a_fold_lacks_is_not_warned_of(rng):
    X, Y = rng.random((60, 8)), (rng.random((30, 4)) < 0.5).astype(int)
    Y[:, 3] = np.arange(30) == 0
    clf = AggregatedLabelClassifier(OneVsRestClassifier(RidgeClassifier()), SEEDED, n_rounds=2)
    assert clf.fit(X, Y, np.arange(60) // 2).assigned_.shape == (60, 4)
