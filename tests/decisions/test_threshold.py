"""Threshold: given or tuned, for all labels or each, on the scale that is named."""

import datetime
import pickle
from collections import UserDict
from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

from sklearn_xlc import MultiHeadClassifier, load, save
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.decisions import Threshold
from sklearn_xlc.encoders import MLP

CRITERIA = ["micro_f1", "macro_f1", "example_f1", "subset_accuracy", "f1_at_k"]


def make_data(seed, n_samples=40, n_labels=6, digits=1):
    rng = np.random.default_rng(seed)
    Y = (rng.random((n_samples, n_labels)) < 0.3).astype(int)
    Y[0] = 0
    scores = np.round(2.0 * Y - 1.0 + rng.normal(size=Y.shape), digits)
    return scores, Y


def quality(criterion, Y, sets, k=3):
    if criterion == "subset_accuracy":
        return accuracy_score(Y, sets)
    if criterion == "f1_at_k":
        hits = (Y * sets).sum(axis=1)
        precision = np.mean(hits / np.maximum(sets.sum(axis=1), 1))
        recall = np.mean(hits / np.maximum(Y.sum(axis=1), 1))
        return 2 * precision * recall / (precision + recall) if precision else 0.0
    average = {"micro_f1": "micro", "macro_f1": "macro", "example_f1": "samples"}[criterion]
    return f1_score(Y, sets, average=average, zero_division=0)


def sets_above(criterion, scores, cut, k=3):
    taken = scores > cut
    if criterion == "f1_at_k":
        rank = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1)
        taken &= rank < k
    return taken.astype(int)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_tuned_threshold_is_the_best_of_all(criterion, seed):
    scores, Y = make_data(seed)
    decision = Threshold(criterion=criterion, k=3).fit(scores, Y)
    assert decision.fitted_on == "held"
    sets = decision.decode(scores).toarray()
    np.testing.assert_array_equal(sets, sets_above(criterion, scores, decision.cut_))
    cuts = np.r_[np.unique(scores) - 0.05, scores.max() + 1]
    best = max(quality(criterion, Y, sets_above(criterion, scores, cut)) for cut in cuts)
    assert quality(criterion, Y, sets) == pytest.approx(best)


@pytest.mark.parametrize(
    "params",
    [{}, {"per_label": True}, *({"criterion": name} for name in CRITERIA if name != "micro_f1")],
)
def test_labels_that_the_network_does_not_know_are_no_misses(params):
    scores, Y = make_data(0, n_samples=60, n_labels=6)
    known = np.arange(6) < 3
    decision = Threshold(**params).fit(scores, Y, known=known)
    of_known = Threshold(**params).fit(scores[:, :3], Y[:, :3]).cut_
    np.testing.assert_array_equal(np.broadcast_to(decision.cut_, 6)[:3], of_known)
    assert np.any(decision.cut_ != Threshold(**params).fit(scores, Y).cut_)
    sets = decision.decode(scores).toarray()
    assert decision.recall_ == (sets * Y).sum() / Y.sum()  # of all labels


def test_a_recall_that_is_promised_is_that_of_all_labels():
    scores, Y = make_data(0, n_samples=60, n_labels=6)
    decision = Threshold(criterion="recall", at_least=0.8)
    of_all = decision.fit(scores, Y).cut_
    assert decision.fit(scores, Y, known=np.arange(6) < 3).cut_ == of_all


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("criterion", ["micro_f1", "macro_f1"])
def test_thresholds_of_labels_are_the_best_of_all(criterion, seed):
    scores, Y = make_data(seed, n_samples=25, n_labels=3)
    decision = Threshold(criterion=criterion, per_label=True).fit(scores, Y)
    assert decision.cut_.shape == decision.threshold_.shape == (3,)
    sets = decision.decode(scores).toarray()
    np.testing.assert_array_equal(sets, scores > decision.cut_)
    hits, taken = [], []
    for label, score in zip(Y.T, scores.T):
        above = score > np.r_[np.unique(score) - 0.05, score.max() + 1][:, None]
        hits.append((above & (label == 1)).sum(axis=1))
        taken.append(above.sum(axis=1))
    if criterion == "macro_f1":
        own = zip(hits, taken, Y.sum(axis=0))
        best = np.mean([np.max(2 * h / np.maximum(t + n, 1)) for h, t, n in own])
    else:  # over all combinations of three cuts
        best = np.max(2 * sum(np.ix_(*hits)) / (sum(np.ix_(*taken)) + Y.sum()))
    assert quality(criterion, Y, sets) == pytest.approx(best)


def test_a_label_that_is_not_held_out_takes_the_common_threshold():
    scores, Y = make_data(0)
    Y[:, 2], scores[:, 2] = 0, -5.0
    common = Threshold().fit(scores, Y).cut_
    assert Threshold(criterion="macro_f1", per_label=True).fit(scores, Y).cut_[2] == common
    scores[7, 2] = 9.0
    cut = Threshold(criterion="macro_f1", per_label=True).fit(scores, Y).cut_[2]
    assert cut == 9.0


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.8])
def test_a_given_threshold_is_a_probability(threshold):
    scores, Y = make_data(0, digits=8)
    decision = Threshold(threshold).fit(None, Y)
    assert decision.threshold_ == pytest.approx(threshold)
    np.testing.assert_array_equal(decision.decode(scores).toarray(), expit(scores) > threshold)
    shares = scores - np.log(np.exp(scores).sum(axis=1))[:, None]
    decision = Threshold(threshold).fit(None, Y, link="exp")
    np.testing.assert_array_equal(decision.decode(shares).toarray(), np.exp(shares) > threshold)


def test_a_given_threshold_may_be_a_score():
    scores, Y = make_data(0)
    for link in ("sigmoid", "exp", None):
        decision = Threshold(-0.3, scale="score").fit(None, Y, link=link)
        assert decision.cut_ == -0.3
        np.testing.assert_array_equal(decision.decode(scores).toarray(), scores > -0.3)
    assert decision.threshold_ == -0.3


def test_a_threshold_for_each_label():
    scores, Y = make_data(0, digits=8)
    thresholds = np.linspace(0.1, 0.9, 6)
    decision = Threshold(thresholds).fit(None, Y)
    np.testing.assert_array_equal(decision.decode(scores).toarray(), expit(scores) > thresholds)
    np.testing.assert_allclose(decision.threshold_, thresholds)
    ranked = np.sort(scores, axis=1)[:, ::-1]
    assert decision.needs_more(ranked[:, :2])
    assert not decision.needs_more(np.full((3, 2), -9.0))


@pytest.mark.parametrize("names", [list("cab"), [2, 0, 1]])
def test_a_series_has_the_thresholds_of_its_labels(names):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(40, 4)), pd.DataFrame(rng.integers(0, 2, size=(40, 3)), columns=names)
    given = pd.Series([0.2, 0.5, 0.7], names)
    model = MultiHeadClassifier(encoder=MLP(4), max_epochs=1, random_state=0)
    for threshold in (given, given[::-1], given.to_numpy()):
        model.set_params(decision=Threshold(threshold)).fit(X, Y)
        np.testing.assert_allclose(model.threshold_, given, rtol=1e-12)
        model.partial_fit(X, Y[sorted(names)])
        np.testing.assert_allclose(model.threshold_, given, rtol=1e-12)


def test_a_series_that_lacks_a_label_is_refused_before_training():
    X, Y = np.zeros((4, 2)), pd.DataFrame([[0, 1], [1, 0]] * 2, columns=["a", "b"])
    model = MultiHeadClassifier(decision=Threshold(pd.Series([0.2, 0.5], ["a", "x"])))
    with pytest.raises(ValueError, match="the index of threshold lacks the label 'b'"):
        model.fit(X, Y)
    assert not hasattr(model, "net_")


def test_nothing_held_out():
    Y = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    assert Threshold().fit(None, Y).threshold_ == 0.5
    assert Threshold().fit(None, Y, link="exp").threshold_ == pytest.approx(0.5 / 3)
    few = Threshold().fit(None, Y, link="exp", sizes=np.array([0, 0, 1]))
    assert few.threshold_ == pytest.approx(0.5)


def test_partial_fit_keeps_a_tuned_threshold_and_takes_a_new_one():
    scores, Y = make_data(0)
    decision = Threshold().fit(scores, Y)
    tuned = decision.cut_
    assert decision.partial_fit(None, Y[:2]).cut_ == tuned
    assert decision.set_params(threshold=0.5).partial_fit(None, Y).cut_ == 0.0


def test_at_most_k_labels():
    scores, Y = make_data(0)
    decision = Threshold(criterion="f1_at_k", k=2).fit(scores, Y)
    assert decision.n_candidates(6) == 2
    assert np.diff(decision.decode(scores).indptr).max() <= 2
    assert not decision.needs_more(scores)


@pytest.mark.parametrize(
    "params, message",
    [
        ({"threshold": 0.0}, r"threshold=0.0 must be between 0 and 1, both excluded"),
        ({"threshold": 1.0}, r"threshold=1.0 must be between 0 and 1"),
        ({"threshold": np.nan, "scale": "score"}, r"a float in the range \(-inf, inf\)"),
        ({"threshold": [np.nan] * 3, "scale": "score"}, "must be between -inf and inf"),
        ({"threshold": [0.5, 0.5]}, "one for each of the 3 labels of y, got shape"),
        ({"threshold": [[1], [1, 2]]}, r"one number, or one for each .* got \[\[1\], \[1, 2\]\]"),
        ({"threshold": [{}]}, r"one number, or one for each .* got \[\{\}\]"),
        ({"threshold": "best"}, "'threshold' parameter of Threshold must be"),
        ({"threshold": {"a": 1.0}}, r"threshold\['a'\] must be between 0 and 1, both excluded"),
        ({"threshold": {"a": "b"}}, r"threshold\['a'\] must be between 0 and 1, both excluded"),
        ({"threshold": {2: True}}, r"threshold\[2\] must be between 0 and 1, both excluded"),
        ({"threshold": {"a": np.inf}, "scale": "score"}, r"threshold\['a'\] must be between -inf"),
        (
            {"threshold": {"a": 0.5}, "criterion": "recall", "at_least": 0.9},
            "criterion='recall' is reached by one threshold for all labels",
        ),
        ({"criterion": "auc"}, "'criterion' parameter of Threshold must be"),
        ({"k": 0}, "'k' parameter of Threshold must be"),
        ({"scale": "odds"}, "'scale' parameter of Threshold must be"),
        ({"criterion": "subset_accuracy", "per_label": True}, "per_label=True needs criterion="),
        ({"criterion": "precision"}, "criterion='precision' needs at_least, such as at_least=0.9"),
        ({"at_least": 0.9}, "at_least=0.9 needs criterion='precision' or 'recall', got 'micro_f1'"),
        ({"at_least": 0.0}, "'at_least' parameter of Threshold must be"),
        ({"at_least": 1.1, "criterion": "recall"}, "'at_least' parameter of Threshold must be"),
        ({"threshold": 0.5, "at_least": 0.9}, "at_least=0.9 cannot be used with threshold=0.5"),
        ({"threshold": 0.5, "per_label": True}, "per_label=True cannot be used with threshold=0.5"),
        ({"threshold": 0.5, "criterion": "macro_f1"}, "criterion='macro_f1' cannot be used with"),
        ({"threshold": 0.5, "k": 3}, "k=3 cannot be used with threshold=0.5"),
        ({"k": 3}, "k=3 cannot be used with criterion='micro_f1'"),
        ({"scale": "score"}, "scale='score' cannot be used with threshold='tuned'"),
        (
            {"criterion": "precision", "at_least": 0.9, "min_labels": "auto"},
            "min_labels='auto' predicts labels below the threshold",
        ),
        (
            {"criterion": "recall", "at_least": 0.9, "per_label": True},
            "per_label=True needs criterion=",
        ),
    ],
)
def test_bad_parameters(params, message):
    with pytest.raises(ValueError, match=message):
        Threshold(**params).check_labels(sp.csr_matrix(np.eye(3)))


def test_a_probability_needs_scores_that_have_one():
    Y = sp.csr_matrix(np.eye(3))
    with pytest.raises(ValueError, match="this classifier's scores have none; use scale='score'"):
        Threshold(0.3).check_head(Y, link=None, n_features=2)
    Threshold(0.3, scale="score").check_head(Y, link=None, n_features=2)
    Threshold().check_head(Y, link=None, n_features=2)


@pytest.mark.parametrize("min_labels", [1, 2, 4])
@pytest.mark.parametrize("params", [{"threshold": 0.9}, {}, {"per_label": True}])
def test_so_many_best_labels_are_predicted_at_least(min_labels, params):
    scores, Y = make_data(1, digits=8)
    decision = Threshold(min_labels=min_labels, **params).fit(scores, Y)
    assert decision.min_labels_ == min_labels
    rank = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1)
    expected = (scores > decision.cut_) | (rank < min_labels)
    np.testing.assert_array_equal(decision.decode(scores).toarray(), expected)
    labels = np.argsort(-scores, axis=1, kind="stable")
    best = np.take_along_axis(scores, labels, axis=1)
    np.testing.assert_array_equal(decision.decode(best, labels).toarray(), expected)
    assert (decision.n_candidates(6) or 2) >= min_labels


def test_a_label_for_every_sample_if_every_training_sample_has_one():
    scores, Y = make_data(0)
    assert Threshold(0.5, min_labels="auto").fit(scores, Y).min_labels_ == 0
    some = Threshold(0.999, min_labels="auto").fit(scores, Y, sizes=np.array([1, 3, 2]))
    assert some.min_labels_ == 1
    assert (some.decode(scores).sum(axis=1) >= 1).all()
    assert Threshold(0.5).fit(scores, Y, sizes=np.array([1, 3, 2])).min_labels_ == 0


def test_one_sample_without_labels_in_any_call_allows_empty_sets():
    full, empty = np.array([1, 2]), np.array([1, 0])
    for params in ({}, {"threshold": 0.0, "scale": "score"}):
        decision = Threshold(min_labels="auto", **params).fit(None, np.eye(2), sizes=full)
        found = []
        for sizes in (full, empty, full):
            decision.partial_fit(None, np.eye(2), sizes=sizes)
            found.append(decision.min_labels_)
        assert found == [1, 0, 0]
        assert decision.set_params(min_labels=2).partial_fit(None, np.eye(2)).min_labels_ == 2


def test_min_labels_must_suit_the_labels():
    Y = sp.csr_matrix(np.eye(3, dtype=int))
    with pytest.raises(ValueError, match="min_labels=4 is more than the 3 labels of y"):
        Threshold(min_labels=4).check_labels(Y)
    with pytest.raises(ValueError, match="min_labels=3 is more than k=2"):
        Threshold(min_labels=3, k=2, criterion="f1_at_k").check_labels(Y)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("criterion", ["precision", "recall"])
def test_a_precision_or_recall_is_reached_with_as_many_or_few_labels_as_possible(criterion, seed):
    scores, Y = make_data(seed)
    measure = {"precision": precision_score, "recall": recall_score}[criterion]
    decision = Threshold(criterion=criterion, at_least=0.7).fit(scores, Y)
    assert decision.fitted_on == "held"
    sets = decision.decode(scores).toarray()
    assert measure(Y, sets, average="micro") >= 0.7
    cuts = np.r_[np.unique(scores) - 0.05]
    reaching = [c for c in cuts if measure(Y, scores > c, average="micro", zero_division=0) >= 0.7]
    best = min(reaching) if criterion == "precision" else max(reaching)
    np.testing.assert_array_equal(sets, scores > best)
    assert decision.precision_ == precision_score(Y, sets, average="micro")
    assert decision.recall_ == recall_score(Y, sets, average="micro")
    shown = f"threshold_={decision.threshold_:.4g}, precision_={decision.precision_:.4g}, "
    assert f"{shown}recall_={decision.recall_:.4g}" in repr(decision)


def test_every_tuned_threshold_says_its_precision_and_recall():
    scores, Y = make_data(0)
    for params in ({}, {"per_label": True}, {"criterion": "f1_at_k", "k": 2}, {"min_labels": 1}):
        decision = Threshold(**params).fit(scores, Y)
        sets = decision.decode(scores).toarray()
        assert decision.precision_ == precision_score(Y, sets, average="micro")
        assert decision.recall_ == recall_score(Y, sets, average="micro")
    decision.set_params(threshold=0.5, min_labels=0).partial_fit(None, Y)
    assert not hasattr(decision, "precision_")
    assert not hasattr(Threshold(0.5).fit(None, Y), "precision_")


def test_what_cannot_be_reached_is_said():
    scores, Y = make_data(0)
    with pytest.warns(UserWarning, match=r"a precision of at least 1.0 .*: the best is 0\.2"):
        decision = Threshold(criterion="precision", at_least=1.0).fit(scores - 9 * (Y == 1), Y)
    assert decision.precision_ < 1
    ranked = np.argsort(-scores, axis=1)[:, :2]
    with pytest.warns(UserWarning, match=r"a recall of at least 0.99 .*: the best is 0\.[0-9]+"):
        decision = Threshold(criterion="recall", at_least=0.99).fit(
            np.take_along_axis(scores, ranked, axis=1), Y, labels=ranked
        )
    assert 0.3 < decision.recall_ < 0.99
    with pytest.warns(UserWarning, match="held out from training, and there are none: the thresh"):
        Threshold(criterion="recall", at_least=0.9).fit(None, Y)


def test_candidates_for_a_precision():
    scores, Y = make_data(0)
    decision = Threshold(criterion="precision", at_least=0.6)
    assert decision.n_candidates(6) == 6
    assert decision.n_candidates(10_000) == 256
    decision.fit(scores, Y)
    assert decision.n_candidates(10_000) is None
    assert decision.in_order
    assert decision.needs_more(np.full((1, 255), 9.0))
    assert not decision.needs_more(np.full((1, 256), 9.0))
    sets = decision.for_labels(np.arange(300) % 6).decode(np.full((1, 300), 9.0))
    assert sets.nnz == 256


@pytest.mark.parametrize("criterion", ["precision", "recall"])
def test_predicted_sets_have_the_quality_that_the_rule_says(criterion):
    X, Y = make_extreme_multilabel(600, 200, 400, random_state=0)
    rule = Threshold(criterion=criterion, at_least=0.75)
    quick = {"encoder": MLP((32,), dropout=0.0), "max_epochs": 10, "ranker": None}
    clf = MultiHeadClassifier("flat", decision=rule, learning_rate=0.02, random_state=0, **quick)
    clf.fit(X[:400], sp.csr_matrix(Y[:400]))
    assert getattr(clf.decision_, f"{criterion}_") >= 0.75
    assert clf.settings_["decision__at_least"] == 0.75
    clf.recalibrate(X[400:], sp.csr_matrix(Y[400:]))
    sets, rule = clf.predict(X[400:]), clf.decision_
    assert rule.precision_ == precision_score(Y[400:], sets, average="micro")
    assert rule.recall_ == recall_score(Y[400:], sets, average="micro")
    copied = pickle.loads(pickle.dumps(clf)).decision_
    assert (copied.precision_, copied.recall_) == (rule.precision_, rule.recall_)


@pytest.mark.parametrize("exact", [True, False])
def test_a_series_is_kept_by_files(tmp_path, exact):
    X, Y = make_extreme_multilabel(300, 60, 8, random_state=1)
    names = np.array(list("abcdefgh"))
    tags = [names[np.flatnonzero(y)].tolist() for y in Y.toarray()]
    cuts = pd.Series(np.linspace(0.1, 0.3, 9), [*names, "another"])[::-1]
    clf = MultiHeadClassifier(decision=Threshold(cuts), max_epochs=2, random_state=0).fit(X, tags)
    save(clf, tmp_path / "clf", exact=exact)
    for again in (load(tmp_path / "clf"), pickle.loads(pickle.dumps(clf))):
        pd.testing.assert_series_equal(again.decision.threshold, cuts)
        np.testing.assert_array_equal(again.decision_.threshold_, clf.decision_.threshold_)
    clf.remove_labels(["c"])
    left = [[tag for tag in each if tag != "c"] for each in tags]
    clf.partial_fit(X, left).recalibrate(X, left)
    expected = cuts[clf.classes_.tolist()].to_numpy()
    np.testing.assert_allclose(clf.decision_.threshold_, expected)


NAMES = np.array(list("abcdef"))


@pytest.mark.parametrize("link", ["sigmoid", "exp"])
@pytest.mark.parametrize("params", [{}, {"criterion": "macro_f1", "per_label": True}])
def test_thresholds_of_some_labels_are_given_and_those_of_others_tuned(params, link):
    scores, Y = make_data(0)
    scores -= 3.0 if link == "exp" else 0.0
    context = {"link": link, "classes": NAMES}
    some = Threshold({"b": 0.2, "e": 0.7}, **params).fit(scores, Y, **context)
    np.testing.assert_allclose(some.threshold_[[1, 4]], [0.2, 0.7])
    others = [0, 2, 3, 5]
    alone = Threshold(**params).fit(scores[:, others], Y[:, others], link=link)
    np.testing.assert_allclose(some.threshold_[others], alone.threshold_, rtol=1e-12)
    predicted = some.decode(scores).toarray()
    np.testing.assert_array_equal(predicted, scores > some.cut_)
    assert some.precision_ == pytest.approx((predicted * Y).sum() / predicted.sum())


def test_thresholds_of_all_labels_may_be_given_by_name():
    scores, Y = make_data(0)
    given = dict(zip(NAMES.tolist(), np.linspace(0.1, 0.9, 6).tolist()))
    for params in ({}, {"criterion": "macro_f1", "per_label": True}):
        found = Threshold(given, **params).fit(scores, Y, classes=NAMES)
        np.testing.assert_allclose(found.threshold_, list(given.values()))
    by_score = Threshold(MappingProxyType({"a": -2.0}), scale="score")
    assert by_score.fit(scores, Y, link=None, classes=NAMES).threshold_[0] == -2.0
    with pytest.raises(ValueError, match="is a probability, but this classifier's scores have"):
        Threshold(given).check_head(sp.csr_matrix(Y), link=None, n_features=1)


def test_without_held_out_samples_labels_that_are_not_named_have_the_usual_threshold():
    Y = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]])
    found = Threshold({"c": 0.9}).fit(None, Y, classes=NAMES)
    np.testing.assert_allclose(found.threshold_, [0.5, 0.5, 0.9, 0.5, 0.5, 0.5])
    assert Threshold({}).fit(None, Y, classes=NAMES).threshold_ == 0.5


def test_labels_with_a_threshold_may_be_dates():
    days = [datetime.date(2020, 1, day) for day in (1, 2)]
    decision = Threshold({days[0]: 0.3})
    decision.check_labels(sp.csr_matrix(np.eye(2, dtype=np.int8)))
    decision.check_classes(np.array(days, dtype=object))
    with pytest.raises(ValueError, match=r"datetime.date\(2020, 1, 1\)\] must be"):
        Threshold({days[0]: 3}).check_labels(sp.csr_matrix(np.eye(2, dtype=np.int8)))


def test_thresholds_by_name_in_a_classifier(tmp_path):
    X, Y = make_extreme_multilabel(300, 60, 6, random_state=1)
    tags = [NAMES[row.indices].tolist() for row in Y]
    params = {"encoder": MLP((8,)), "max_epochs": 2, "random_state": 0}
    for unknown in ({"zebra": 0.2}, {"a": 0.2, 3: 0.3}):
        clf = MultiHeadClassifier(decision=Threshold(unknown), **params)
        with pytest.raises(ValueError, match=r"threshold names .*, which .* these are 'a', 'b', "):
            clf.fit(X, tags)
        assert not hasattr(clf, "net_")
    clf.set_params(decision=Threshold(UserDict({"b": 0.001}))).fit(X, tags)
    assert all("b" in row for row in clf.predict(X[:5]))
    save(clf, tmp_path / "clf", exact=True)
    loaded = load(tmp_path / "clf")
    assert loaded.decision.threshold == {"b": 0.001}
    np.testing.assert_array_equal(loaded.decision_.threshold_, clf.decision_.threshold_)
    loaded.partial_fit(X[:1], [["new"]], classes=[*NAMES, "new"])
    loaded.recalibrate(X, tags, decision=Threshold({"b": 0.001, "new": 0.6}))
    at = loaded.classes_.tolist().index
    np.testing.assert_allclose(loaded.decision_.threshold_[[at("b"), at("new")]], [0.001, 0.6])
    clf.remove_labels(["a"])
    assert clf.decision_.threshold_[0] == pytest.approx(0.001)
