"""RiskControl: cuts by brute force from the papers' formulas, risks of new samples, bad input."""

import math
import pickle
import tracemalloc
import warnings
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import clone

from sklearn_xlc.decisions import RiskControl, risk_control
from sklearn_xlc.decisions.risk_control import bets, log_capital

DISCOVERY = {"risk": "false_discovery", "confidence": 0.9}


def draw(seed, n_samples=150, n_labels=12, decimals=None, every=True):
    """Scores that are log odds, and labels drawn from them; ties if rounded."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(-1, 1.5, (n_samples, n_labels)).astype(np.float32)
    Y = (rng.random(scores.shape) < expit(scores)).astype(int)
    if every:
        Y[np.arange(n_samples), scores.argmax(axis=1)] = 1
    return scores if decimals is None else np.round(scores, decimals), Y


def sets_at(scores, cut, min_labels=0):
    """Predicted sets, dense: the first labels of a sample, and all at or above the cut."""
    rank = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1)
    return (scores >= cut) | (rank < min_labels)


def mean_miss(sets, Y):
    return np.mean((~sets & (Y > 0)).sum(axis=1) / np.maximum(1, Y.sum(axis=1)))


def mean_false(sets, Y):
    return np.mean((sets & (Y == 0)).sum(axis=1) / np.maximum(1, sets.sum(axis=1)))


@pytest.mark.parametrize(
    ("alpha", "decimals", "every"), [(0.05, None, False), (0.1, 1, True), (0.3, 0, False)]
)
def test_the_cut_is_the_largest_that_keeps_the_bound(alpha, decimals, every):
    scores, Y = draw(0, decimals=decimals, every=every)
    decision = RiskControl(alpha).fit(scores, Y)
    n, allowed = len(Y), []
    for cut in [np.inf, *np.unique(scores)]:  # (n R + B) / (n + 1) <= alpha, B = 1
        risk = mean_miss(sets_at(scores, cut, int(every)), Y)
        if n / (n + 1) * risk + 1 / (n + 1) <= alpha:
            allowed.append((cut, risk))
    cut, risk = max(allowed)
    assert decision.min_labels_ == int(every)
    # The risk is constant between true labels: the sets of the largest score above the next.
    assert decision.cut_ <= cut
    np.testing.assert_array_equal(
        sets_at(scores, decision.cut_) & (Y > 0), sets_at(scores, cut) & (Y > 0)
    )
    assert decision.risk_ == pytest.approx(risk, abs=1e-12)
    np.testing.assert_array_equal(
        decision.decode(scores).toarray(), sets_at(scores, decision.cut_, int(every))
    )


def test_the_cut_is_a_score_of_a_true_label():
    scores, Y = draw(1)
    cut = RiskControl(0.1, min_labels=0).fit(scores, Y).cut_
    assert (scores[Y > 0] == np.float32(cut)).any()


def test_class_labels_are_split_conformal_prediction():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(199, 9))
    y = scores.argmax(axis=1)
    y[::3] = rng.integers(9, size=len(y[::3]))
    true = scores[np.arange(199), y]
    for alpha in (0.05, 0.1, 0.25, 0.29):
        # The (n + 1)(1 - alpha)-th smallest of the negated scores, rounded up.
        rank = math.ceil(round(200 * (1 - alpha), 9))
        expected = -np.sort(-true)[rank - 1]
        decision = RiskControl(alpha, min_labels=0).fit(scores, np.eye(9)[y])
        assert decision.cut_ == expected


def test_lists_and_all_scores_agree_and_lists_end():
    scores, Y = draw(2, n_labels=30)
    order = np.argsort(-scores, axis=1, kind="stable")
    lists = np.take_along_axis(scores, order, axis=1), order
    whole = RiskControl(0.2).fit(scores, Y)
    listed = RiskControl(0.2).fit(lists[0], sp.csr_matrix(Y), labels=lists[1])
    assert (whole.cut_, whole.risk_) == (listed.cut_, listed.risk_)
    assert whole.unreachable_ == 0
    short = RiskControl(0.8, k=4).fit(scores, Y)
    sets = np.zeros(Y.shape, dtype=bool)
    np.put_along_axis(sets, order[:, :4], True, axis=1)
    assert short.unreachable_ == pytest.approx(mean_miss(sets, Y), abs=1e-12)
    assert short.k_ == 4
    assert short.decode(scores).sum(axis=1).max() <= 4
    given = short.decode(*(part[:, :12] for part in lists))
    np.testing.assert_array_equal(given.toarray(), short.decode(scores).toarray())


def test_more_labels_are_asked_for_up_to_k():
    scores, Y = draw(3, n_labels=30)
    decision = RiskControl(0.3, k=20).fit(scores, Y)
    ranked = -np.sort(-scores, axis=1)
    n_first = decision.n_candidates(30)
    assert RiskControl(k=20).n_candidates(30) == 20 >= n_first
    sizes = (scores >= decision.cut_).sum(axis=1)
    for width in (5, n_first - 1):
        for row, size in zip(ranked, sizes):
            assert decision.needs_more(row[None, :width]) == (size >= width)
    assert not decision.needs_more(ranked[:, :20])


def reference_bets(past, n, alpha, level):
    """Bets from the formula, in a loop: of 0/1 losses first, then of the variance seen."""
    largest = alpha * (1 - alpha)
    seen = (4 * largest + sum((loss - alpha) ** 2 for loss in past)) / (4 + len(past))
    return [
        min(0.75 / (1 - alpha), math.sqrt(-2 * math.log(level) / (n * variance)))
        for variance in [largest] * len(past) + [seen] * (n - len(past))
    ]


def reference_accepts(losses, past, alpha, level):
    """Play against the hypothesis on one sample after the other, until the capital suffices."""
    capital = 1.0
    for bet, loss in zip(reference_bets(past, len(losses), alpha, level), losses):
        capital *= 1 - bet * (loss - alpha)
        if capital >= 1 / level:
            return True
    return False


def losses_at(cuts, scores, Y, min_labels=0, false=False):
    """Losses of the samples in their random order, by cut."""
    order = np.argsort(np.random.default_rng(0).permutation(len(Y)))
    losses = []
    for cut in cuts:
        sets = sets_at(scores, cut, min_labels)
        wrong, of = (sets & (Y == 0), sets) if false else (~sets & (Y > 0), Y)
        losses.append(wrong.sum(axis=1) / np.maximum(1, of.sum(axis=1)))
    return np.array(losses)[:, order]


def test_the_capital_is_a_product():
    losses = np.array([[0.0, 1.0], [0.5, 0.25], [0.0, 0.0]])
    wagers, capital = np.array([0.5, 1.0, 0.25]), log_capital(losses, np.array([0.5, 1, 0.25]), 0.2)
    for cut in range(2):
        product = Fraction(1)
        for i, (wager, loss) in enumerate(zip(wagers, losses[:, cut])):
            product *= 1 - Fraction(wager) * (Fraction(loss) - Fraction(1, 5))
            assert math.exp(capital[i, cut]) == pytest.approx(float(product), rel=1e-12)


def test_bets_by_the_formula_read_earlier_losses_only():
    past = np.array([0.0, 0.5, 0.0, 1.0, 0.0])
    for alpha, level in [(0.1, 0.1), (0.02, 0.05), (0.6, 0.3)]:
        found = bets(past, 20, alpha, level)
        np.testing.assert_allclose(found, reference_bets(past, 20, alpha, level), rtol=1e-12)
        np.testing.assert_array_equal(found[:5], bets(past * 0, 20, alpha, level)[:5])


def test_no_capital_grows_beyond_its_chance():
    rng = np.random.default_rng(0)
    for draws in (rng.random((2000, 60)) < 0.2, rng.beta(0.4, 1.6, (2000, 60))):
        for level in (0.05, 0.1, 0.3):
            won = 0
            for losses in draws.astype(float):
                wagers = bets(losses[:15], 60, 0.2, level)
                won += log_capital(losses[:, None], wagers, 0.2).max() >= -math.log(level)
            error = math.sqrt(level * (1 - level) / 2000)
            assert 0.05 * level < won / 2000 <= level + 2 * error


def test_false_discovery_takes_the_last_cut_before_the_first_refusal():
    scores, Y = draw(4, n_samples=400)
    decision = RiskControl(0.3, **DISCOVERY).fit(scores, Y)
    cuts = np.linspace(12, -12, 1000, dtype=np.float32)
    losses = losses_at(cuts, scores, Y, false=True)
    past = next(
        before[:100] for before, after in zip(losses, losses[1:]) if after[:100].mean() > 0.3
    )
    chosen = None
    for cut, of_cut in zip(cuts, losses):
        if not reference_accepts(of_cut, past, 0.3, 0.1):
            break
        chosen = cut, of_cut.mean()
    assert decision.cut_ == float(chosen[0])
    assert decision.risk_ == pytest.approx(chosen[1], abs=1e-12)
    assert decision.min_labels_ == 0
    again = RiskControl(0.3, **DISCOVERY).fit(scores, sp.csr_matrix(Y))
    assert again.cut_ == decision.cut_


def test_samples_may_be_read_in_blocks(monkeypatch):
    scores, Y = draw(4, n_samples=300)
    whole = RiskControl(0.3, **DISCOVERY).fit(scores, Y)
    monkeypatch.setattr(risk_control, "CHUNK", 7000)  # seven samples
    assert RiskControl(0.3, **DISCOVERY).fit(scores, Y).cut_ == whole.cut_


@pytest.mark.integration
def test_misses_with_confidence():
    scores, Y = draw(5, n_samples=300, n_labels=5)
    decision = RiskControl(0.2, confidence=0.9).fit(scores, Y)
    cuts = np.unique(scores)[::-1]
    losses = losses_at(cuts, scores, Y, min_labels=1)
    past = next(of_cut[:75] for of_cut in losses if of_cut[:75].mean() <= 0.2)
    kept = [cut for cut, of_cut in zip(cuts, losses) if reference_accepts(of_cut, past, 0.2, 0.1)]
    assert kept == list(cuts[len(cuts) - len(kept) :])  # all below an accepted one
    np.testing.assert_array_equal(
        sets_at(scores, decision.cut_) & (Y > 0), sets_at(scores, max(kept)) & (Y > 0)
    )
    assert decision.cut_ < RiskControl(0.2).fit(scores, Y).cut_


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_the_mean_risk_of_new_samples(alpha):
    scores, Y = draw(6, n_samples=4000, n_labels=8, every=False)
    rng, risks = np.random.default_rng(1), []
    for _ in range(100):
        order = rng.permutation(len(Y))
        own, new = order[:100], order[100:2100]
        decision = RiskControl(alpha).fit(scores[own], Y[own])
        risks.append(mean_miss(decision.decode(scores[new]).toarray() > 0, Y[new]))
    error = np.std(risks) / np.sqrt(len(risks))
    assert alpha - 0.02 < np.mean(risks) < alpha + 2 * error


@pytest.mark.parametrize("params", [DISCOVERY, {"confidence": 0.9}])
def test_the_risk_is_kept_with_confidence(params):
    scores, Y = draw(7, n_samples=20_000, n_labels=6)
    rng, measure = np.random.default_rng(2), mean_false if "risk" in params else mean_miss
    kept = 0
    for _ in range(40):
        own = rng.choice(len(Y), 150, replace=False)
        cut = RiskControl(0.3, min_labels=0, **params).fit(scores[own], Y[own]).cut_
        kept += measure(sets_at(scores[::20], cut), Y[::20]) <= 0.3 + 0.01
    assert kept >= 36


def test_groups_count_the_labels_of_any_member():
    scores, Y = draw(8, n_samples=120, n_labels=10)
    groups = np.random.default_rng(0).integers(40, size=120)
    of_groups = np.zeros((40, 10), dtype=int)
    np.maximum.at(of_groups, groups, Y)
    best = np.full((40, 10), -np.inf, dtype=np.float32)
    np.maximum.at(best, groups, scores)
    order = np.argsort(-scores, axis=1, kind="stable")
    lists = np.take_along_axis(scores, order, axis=1)
    for params in ({}, {"confidence": 0.8}, DISCOVERY):
        given = RiskControl(0.3, min_labels=0, **params)
        expected = clone(given).fit(best, of_groups)
        found = clone(given).fit(lists, of_groups, labels=order, groups=groups)
        assert (found.cut_, found.n_samples_) == (expected.cut_, 40)
        assert found.risk_ == pytest.approx(expected.risk_, abs=1e-12)


def test_the_smallest_alpha_is_named_and_can_be_kept():
    scores, Y = draw(9, n_samples=50, n_labels=30)
    for params in ({"k": 3}, {"k": 3, "confidence": 0.9}, {**DISCOVERY, "min_labels": 1}):
        with pytest.raises(ValueError, match="the smallest alpha that can is") as error:
            RiskControl(0.03, **params).fit(scores, Y)
        for _ in range(2):  # of the samples' number, then of their risks
            least = float(
                str(error.value).split("the smallest alpha that can is ")[1].split(";")[0]
            )
            try:
                RiskControl(least, **params).fit(scores, Y)
                break
            except ValueError as next_error:
                assert "sample(s) to calibrate on" in str(error.value)
                error.value.args = next_error.args
        RiskControl(least, **params).fit(scores, Y)
        with pytest.raises(ValueError, match="cannot be kept"):
            RiskControl(least - 2e-4, **params).fit(scores, Y)
    with pytest.raises(ValueError, match=r"are not among the best 3, where lists end.*larger k"):
        RiskControl(0.1, k=3).fit(scores, Y)
    with pytest.raises(ValueError, match="with 5 sample.*alpha that can is 0.1667; .*recalibrate"):
        RiskControl(0.1).fit(scores[:5], Y[:5])
    RiskControl(1 / 6).fit(scores[:5], Y[:5])
    with pytest.raises(ValueError, match="nor can any alpha below 1"):
        RiskControl(0.9, k=1).fit(-scores[:8], np.eye(30, dtype=int)[scores[:8].argmax(axis=1)])


def test_samples_without_labels_have_no_risk():
    scores, Y = draw(10)
    with_empty = RiskControl(0.1, min_labels=0).fit(
        np.concatenate([scores, scores]), np.concatenate([Y, 0 * Y])
    )
    assert with_empty.cut_ > RiskControl(0.1, min_labels=0).fit(scores, Y).cut_
    nothing = RiskControl(0.1).fit(scores, 0 * Y)
    assert (nothing.cut_, nothing.risk_, nothing.decode(scores).nnz) == (np.inf, 0, 0)


def test_a_hundred_thousand_labels_in_bounded_memory():
    rng = np.random.default_rng(0)
    n_samples, n_labels, width = 2000, 100_000, 100
    labels = (rng.integers(n_labels, size=(n_samples, 1)) + np.arange(width) * 7) % n_labels
    scores = -np.sort(-rng.normal(size=(n_samples, width)), axis=1)
    true = labels[np.arange(n_samples)[:, None], rng.integers(60, size=(n_samples, 3))]
    Y = sp.csr_matrix(
        (np.ones(true.size), (np.repeat(np.arange(n_samples), 3), true.ravel())),
        shape=(n_samples, n_labels),
    )
    Y.data[:] = 1
    for params in ({}, DISCOVERY):
        tracemalloc.start()
        decision = RiskControl(0.9 if params else 0.2, **params)
        sets = decision.fit(scores, Y, labels=labels).decode(scores, labels)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert sets.shape == Y.shape
        assert sets.nnz
        assert peak < 200e6 < Y.shape[0] * Y.shape[1] * 8


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"alpha": 0}, "alpha"),
        ({"alpha": 1.0}, "alpha"),
        ({"risk": "fdr"}, "risk"),
        ({"risk": "false_discovery"}, "bound with confidence holds: give confidence"),
        ({"confidence": 1.5}, "confidence"),
        ({"k": 0}, "'k'"),
        ({"min_labels": 7, "k": 5}, "min_labels=7 is more than k=5"),
    ],
)
def test_parameters_are_checked(params, message):
    with pytest.raises(ValueError, match=message):
        RiskControl(**params).fit(*draw(0))
    with pytest.raises(ValueError, match=message):
        RiskControl(**params).check_labels(sp.csr_matrix(np.eye(12)))


def test_inputs_are_checked():
    scores, Y = draw(0)
    with pytest.raises(ValueError, match="nothing else was learnt from.*recalibrate"):
        RiskControl().fit(None, Y)
    with pytest.raises(ValueError, match="150 rows, and Y has 149"):
        RiskControl().fit(scores, Y[1:])
    with pytest.raises(ValueError, match="NaN"):
        RiskControl().fit(np.where(scores > 2, np.nan, scores), Y)
    with pytest.raises(ValueError, match="these scores have none"):
        RiskControl(**DISCOVERY).fit(scores, Y, link=None)
    with pytest.raises(ValueError, match="more than the 12 labels"):
        RiskControl(min_labels=13).check_labels(sp.csr_matrix(Y))
    with pytest.raises(ValueError, match="alpha=0.1 cannot be kept with 8 sample"):
        RiskControl().check_samples(8)
    RiskControl().check_samples(9)


def test_the_end_of_the_guarantee_is_told():
    decision = RiskControl(0.2).fit(*draw(0))
    with pytest.warns(UserWarning, match=r"partial_fit changes scores: RiskControl\(alpha=0.2"):
        assert decision.partial_fit(None, None) is decision


def test_the_fitted_decision_shows_its_numbers_and_survives_pickle():
    scores, Y = draw(0)
    decision = RiskControl(0.2).fit(scores, Y)
    text = repr(decision)
    assert all(f"{name}=" in text for name in ("alpha", "cut_", "n_samples_", "risk_"))
    assert "cut_" not in repr(clone(decision))
    loaded = pickle.loads(pickle.dumps(decision))
    assert vars(loaded) == vars(decision)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fewer = loaded.for_labels(np.array([0, 1, -1, 3]))
    assert (fewer.n_labels_, fewer.k_, fewer.cut_) == (4, 4, decision.cut_)
