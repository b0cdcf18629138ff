"""What every decision owes its user: parameters, forms, and scores ranked or whole."""

import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from sklearn_xlc._ranking import rank_rows
from sklearn_xlc.decisions import (
    Decision,
    Divergence,
    LinearLayer,
    Nearest,
    Seen,
    Taxonomy,
    Threshold,
    TopK,
)

N_LABELS = 12
SCORED = [
    Threshold(0.3),
    Threshold(np.linspace(0.2, 0.7, N_LABELS)),
    Threshold(),
    Threshold(criterion="f1_at_k", k=3),
    Threshold(criterion="macro_f1", per_label=True),
    TopK(),
    TopK(2),
    Divergence(),
    Divergence("tuned", max_labels=4),
]
FEATURED = [Nearest(), Nearest(3), Seen()]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    Y = (rng.random((80, N_LABELS)) < 0.2).astype(int)
    return 3.0 * Y - 1.5 + rng.normal(size=Y.shape), Y


@pytest.mark.parametrize("link", ["sigmoid", "exp"])
@pytest.mark.parametrize("decision", SCORED, ids=str)
def test_ranked_scores_give_the_same_sets_as_all_scores(data, decision, link):
    scores, Y = data
    if link == "exp":
        scores = scores - np.log(np.exp(scores).sum(axis=1))[:, None]
    best, labels = rank_rows(scores, N_LABELS)
    whole = clone(decision).fit(scores, Y, link=link)
    ranked = clone(decision).fit(best, sp.csr_matrix(Y), labels=labels, link=link)
    sets = whole.decode(scores)
    assert sets.shape == Y.shape
    assert sets.has_canonical_format
    width = ranked.n_candidates(N_LABELS) or N_LABELS
    few = ranked.decode(best[:, :width], labels=labels[:, :width])
    np.testing.assert_array_equal(few.toarray(), sets.toarray())


@pytest.mark.parametrize("decision", [*SCORED, *FEATURED], ids=str)
def test_parameters_are_stored_and_cloned(decision):
    copy = clone(decision).set_params(**decision.get_params())
    assert type(copy) is type(decision)
    assert str(copy) == str(decision)
    assert copy.reads == ("features" if decision in FEATURED else "ranked")


@pytest.mark.parametrize("decision", [*SCORED, *FEATURED], ids=str)
def test_fit_changes_nothing_that_was_given(data, decision):
    scores, Y = data
    before = scores.copy(), Y.copy(), repr(decision.get_params())
    layer = LinearLayer(np.eye(N_LABELS))
    fitted = clone(decision).fit(scores, Y, layer=layer)
    beside = {"layer": layer} if decision in FEATURED else {}
    fitted.decode(scores, **beside)
    np.testing.assert_array_equal(scores, before[0])
    np.testing.assert_array_equal(Y, before[1])
    assert repr(fitted.get_params()) == before[2]


class Positive(Decision):
    """The least that a decision needs."""

    def decode(self, scores, labels=None):
        return self.label_sets(scores > 0, labels)


def test_a_decision_of_ones_own_needs_a_rule_only(data):
    scores, Y = data
    decision = Positive().fit(None, Y)
    assert decision.n_labels_ == N_LABELS
    assert decision.partial_fit(None, Y) is decision
    np.testing.assert_array_equal(decision.decode(scores).toarray(), scores > 0)
    assert decision.n_candidates(N_LABELS) is None
    assert not decision.needs_more(scores)
    decision.check_labels(sp.csr_matrix(Y))
    decision.check_head(sp.csr_matrix(Y), link=None, n_features=3)


@pytest.mark.parametrize("attribute, value", [("reads", "feature"), ("fitted_on", "validation")])
def test_a_decision_that_reads_what_there_is_not_is_refused(attribute, value, data):
    decision = Positive().fit(None, data[1])
    setattr(decision, attribute, value)
    with pytest.raises(ValueError, match=f"{attribute} of Positive must be one of .*'{value}'"):
        decision.check_labels(sp.csr_matrix(data[1]))


@pytest.mark.parametrize(
    "decision, message",
    [
        (TopK(0), "'k' parameter of TopK"),
        (Threshold(np.nan), "'threshold' parameter"),
        (Threshold(min_labels=-1), "'min_labels' parameter"),
        (Threshold(criterion="x"), "'criterion' parameter"),
        (Nearest(), "give layer="),
    ],
    ids=str,
)
def test_fit_refuses_what_a_classifier_refuses(decision, message, data):
    with pytest.raises(ValueError, match=message):
        decision.fit(*data)


def test_a_mask_of_another_shape_is_refused():
    decision = Positive().fit(None, np.zeros((1, 5)))
    with pytest.raises(ValueError, match=r"taken must have shape \(2, 5\), got \(2, 4\)"):
        decision.label_sets(np.ones((2, 4), dtype=bool))
    with pytest.raises(ValueError, match=r"taken must have shape \(2, 3\), got \(2, 5\)"):
        decision.label_sets(np.ones((2, 5), dtype=bool), np.zeros((2, 3), dtype=int))


def test_a_decision_without_a_rule_is_none():
    with pytest.raises(TypeError, match="abstract"):
        Decision()


def test_label_sets_of_candidates():
    decision = Positive().fit(None, np.zeros((1, 5)))
    taken = np.array([[True, False, True], [False, False, False], [True, True, True]])
    labels = np.array([[4, 1, 0], [1, 2, 3], [3, 0, 2]])
    expected = [[1, 0, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 1, 1, 0]]
    np.testing.assert_array_equal(decision.label_sets(taken, labels).toarray(), expected)


def test_linear_layer():
    W = np.arange(6.0).reshape(3, 2)
    layer = LinearLayer(W)
    assert not layer.is_simplex
    np.testing.assert_array_equal(layer.products(np.array([[1.0, 2.0]])), [[2.0, 8.0, 14.0]])


FEATURES, SCORES = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[2.0, -1.0], [-1.0, 1.0]])


@pytest.mark.parametrize(
    "decision, inputs, numbers",
    [
        (Divergence(), None, "temperature_=1"),
        (Divergence("tuned"), SCORES, r"temperature_=[\d.]+"),
        (Threshold([0.2, 0.7]), None, "threshold_=0.2 to 0.7"),
        (Nearest(), FEATURES, r"label_set_scales_=[\d.]+ to [\d.]+"),
        (Seen(), FEATURES, "n_sets_=2"),
        (Taxonomy({1: 0}, Threshold(0.5)), None, r"decision_=.*\): threshold_=0.5"),
    ],
    ids=str,
)
def test_reprs_show_what_was_fitted(decision, inputs, numbers):
    before = repr(decision)
    text = repr(decision.fit(inputs, np.eye(2), layer=LinearLayer(np.eye(2))))
    assert text.startswith(before)
    assert re.fullmatch(": " + numbers, text[len(before) :])
