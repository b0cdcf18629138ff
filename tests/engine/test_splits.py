"""Samples are held out as a splitter, or pairs of positions, say."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    GroupShuffleSplit,
    KFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import sklearn_xlc
from _factories import make_learnable
from sklearn_xlc import MIMLClassifier, MultiHeadClassifier
from sklearn_xlc.decisions import RiskControl
from sklearn_xlc.engine.plan import Plan
from sklearn_xlc.engine.splits import split_by
from sklearn_xlc.metrics import expected_calibration_error
from sklearn_xlc.ranking import BoostedRanker, NearestSamples


@pytest.fixture(scope="module")
def data():
    X, Y = make_learnable(True, 300)
    X = X.toarray()
    X[:, 0] = np.arange(1, 301)  # the position of a row, from 1
    return sp.csr_matrix(X), Y


def classifier(splitter, **params):
    params = {"head": "flat", "max_epochs": 1, "random_state": 0} | params
    return MultiHeadClassifier(validation_fraction=splitter, **params)


def tags_of(Y):
    return [[f"t{label}" for label in np.flatnonzero(row)] for row in Y]


def column_of(Y):
    return pd.Series(tags_of(Y))


def planned(clf, X, y, sample_weight=None):
    """Plan of a fit."""
    data = clf._validate_fit(X, y, sample_weight, None)
    return Plan(clf, split_by(clf.validation_fraction, X, y, data), going_on=False)


def positions(clf, X, y, sample_weight=None):
    """Positions in X that a fit trains on, and those that it holds out."""
    parts = planned(clf, X, y, sample_weight).split(np.random.RandomState(0))
    return [(part.as_given()[:, [0]].toarray().ravel() - 1).tolist() for part in parts]


@pytest.mark.parametrize(
    "splitter",
    [TimeSeriesSplit(4, gap=7), KFold(3), ShuffleSplit(2, test_size=0.3, random_state=1)],
    ids=str,
)
def test_the_last_pair_of_a_splitter_counts(splitter, data):
    pairs = list(splitter.split(*data))
    expected = [np.sort(part).tolist() for part in pairs[-1]]
    assert positions(classifier(splitter, ranker="calibration"), *data) == expected
    if sum(map(len, expected)) == 300:
        assert positions(classifier(pairs, ranker="calibration"), *data) == expected


def test_a_splitter_sees_what_fit_is_given():
    class Weeks:
        def split(self, X, y=None, groups=None):
            seen.append((X, y))
            yield np.flatnonzero(X["week"] < 3), np.flatnonzero(X["week"] == 3)

        def get_n_splits(self, X=None, y=None, groups=None):
            return 1

    seen = []
    X = pd.DataFrame({"a": np.random.default_rng(0).normal(size=80), "week": np.arange(80) // 20})
    tags = [["first"] if a > 0 else ["second", "both"] for a in X["a"]]
    clf = classifier(Weeks(), ranker="calibration").fit(X, tags)
    assert seen[0][0] is X
    assert seen[0][1] is tags
    data = clf._validate_fit(X, tags, None, None)
    train, held = split_by(Weeks(), X, tags, data).split
    assert (train.tolist(), held.tolist()) == (list(range(60)), list(range(60, 80)))


def test_positions_are_those_in_X_with_samples_of_weight_zero(data):
    weight = np.ones(300)
    weight[[0, 5, 290]] = 0
    pairs = [(np.arange(280), np.arange(299, 279, -1))]
    train, held = positions(classifier(pairs, ranker="calibration"), *data, weight)
    assert train == [i for i in range(280) if i not in (0, 5)]
    assert held == [i for i in range(280, 300) if i != 290]
    with pytest.raises(ValueError, match="samples of positive weight to train.*got 278 and 0"):
        classifier(pairs).fit(*data, np.r_[weight[:280], np.zeros(20)])


def test_a_fit_is_that_of_its_splitter(data, tmp_path):
    splitter = StratifiedShuffleSplit(1, test_size=60, random_state=3)
    X, y = data[0], np.arange(300) % 3
    pairs = list(splitter.split(X, y))
    clf = classifier(splitter, ranker="calibration").fit(X, y)
    expected = clf.predict_proba(X)
    assert (expected != classifier(0.2, ranker="calibration").fit(X, y).predict_proba(X)).any()
    settings = clf.settings_
    assert "validation_fraction" not in settings  # it is no plain value
    again = clone(clf).set_params(**settings).fit(X, y)
    sklearn_xlc.save(clf, tmp_path / "model.skops", exact=True)
    others = [
        classifier(pairs, ranker="calibration").fit(X, y),
        again,
        pickle.loads(pickle.dumps(clf)),
        sklearn_xlc.load(tmp_path / "model.skops"),
        sklearn_xlc.load(tmp_path / "model.skops").fit(X, y),
    ]
    for other in others:
        np.testing.assert_array_equal(other.predict_proba(X), expected)


@pytest.mark.parametrize("params", [{}, {"ranker": None, "decision": "topk"}], ids=str)
def test_samples_are_held_out_only_for_what_reads_them(params, data):
    """As with a fraction; "auto" needs 100 samples."""
    held = planned(classifier(KFold(10), **params), *data).split(np.random.RandomState(0))[1]
    assert held is None


def test_bags_and_their_samples(data):
    bags = np.repeat(np.arange(100), 3)
    labels = data[1][:100].toarray()[bags] if sp.issparse(data[1]) else data[1][:100][bags]
    clf = MIMLClassifier(validation_fraction=KFold(5), ranker="calibration", max_epochs=1)
    clf.fit(data[0], labels, bags)
    assert clf.ranker_.slope_ > 0
    too_many = clone(clf).set_params(validation_fraction=[(range(200), range(200, 300))])
    with pytest.raises(ValueError, match="positions from 0 to 299, and X has 100 samples"):
        too_many.fit(data[0], labels, bags)


def test_it_is_searched_and_cloned(data):
    pipeline = make_pipeline(MaxAbsScaler(), classifier(0.1, ranker="calibration"))
    grid = {"multiheadclassifier__validation_fraction": [0.2, KFold(3)]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(*data)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_checkpoints_belong_to_a_split(data, tmp_path):
    """A splitter without a seed would go on from a network that has seen the held-out samples."""
    names = set()
    for splitter in (ShuffleSplit(1, test_size=0.2), *2 * [KFold(3)]):
        for _ in range(2):
            plan = planned(classifier(splitter, checkpoint=tmp_path), *data)
            plan.begin()
            names.add(plan.checkpoints.fit)
    assert len(names) == 3  # two draws, and one of the splitter that draws nothing


@pytest.mark.parametrize(
    ("splitter", "message"),
    [
        (GroupShuffleSplit(), r"needs the groups .*=list\(splitter.split\(X, y, groups\)\)"),
        ([], "the last pair is None"),
        ([1, 2], "the last pair is 2"),
        ([(range(299), [300])], "positions from 0 to 300, and X has 300 samples"),
        ([(range(299), [-1])], "positions from -1 to 298"),
        ([(range(299), [5])], "has a sample twice"),
        ([([], range(300))], "got 0 and 300"),
        ([(range(290), [295])], "has 291 of the 300 samples"),
        ([(np.linspace(0, 1, 9), [5])], "must be integers"),
        ([([[0, 1]], [5])], "must be integers"),
        ([([[0], [1, 2]], [5])], "must be a rectangular array"),
    ],
    ids=str,
)
def test_what_is_no_split_is_refused_before_work_starts(splitter, message, data, monkeypatch):
    monkeypatch.setattr("sklearn_xlc.engine.base.Trainer", None)
    clf = classifier(splitter)
    with pytest.raises(ValueError, match=message):
        clf.fit(*data)
    assert not hasattr(clf, "classes_")


@pytest.mark.parametrize("form", [sp.csr_matrix, np.asarray, pd.DataFrame, tags_of, column_of])
@pytest.mark.parametrize(
    "splitter",
    [
        StratifiedKFold(2),
        StratifiedGroupKFold(2),
        StratifiedShuffleSplit(1, test_size=60, random_state=0),
    ],
    ids=lambda splitter: type(splitter).__name__,
)
def test_label_sets_are_not_stratified(splitter, form, data, monkeypatch):
    monkeypatch.setattr("sklearn_xlc.engine.base.Trainer", None)
    X, Y = data
    with pytest.raises(ValueError, match=r"needs class labels, .*=\[\(train, held_out\)\]"):
        classifier(splitter).fit(X, form(Y.toarray() if sp.issparse(Y) else Y))


def test_errors_of_a_splitter_about_classes_are_not_about_groups(data):
    y = np.r_[np.zeros(299, int), 1]
    with pytest.raises(ValueError, match="^The least populated class"):
        classifier(StratifiedShuffleSplit(1, test_size=60)).fit(data[0], y)
    with pytest.raises(ValueError, match="needs the groups"):
        classifier(StratifiedGroupKFold(2)).fit(data[0], np.arange(300) % 3)


@pytest.mark.parametrize("splitter", ["0.1", 3, 1.0, None, {0.1}, "split"])
def test_other_values_are_refused(splitter, data):
    with pytest.raises(ValueError, match="'validation_fraction' parameter"):
        classifier(splitter).fit(*data)


def test_a_guarantee_needs_samples_of_its_own(data):
    clf = classifier(KFold(3), decision=RiskControl(0.3))
    with pytest.raises(ValueError, match="a splitter holds out some for all"):
        clf.fit(*data)
    X, Y = data
    clf.set_params(decision="auto").fit(X[:200], Y[:200])
    assert clf.recalibrate(X[200:], Y[200:], decision=RiskControl(0.3)).predict(X).shape == Y.shape


@pytest.mark.integration
@pytest.mark.parametrize("is_grouped", [False, True])
def test_groups_teach_what_neighbours_are_worth(is_grouped):
    """Near duplicates among held-out samples make neighbours look more reliable than they are."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(1000), 4)
    words = (rng.random((1000, 150)) < 0.06)[groups]
    X = sp.csr_matrix((words | (rng.random(words.shape) < 0.003)).astype(np.float32))
    of_groups = X[::4] @ rng.normal(size=(150, 40)) + 4 * rng.normal(size=(1000, 40))
    Y = (of_groups > np.quantile(of_groups, 0.95, axis=1, keepdims=True)).astype(int)[groups]
    train, new = np.flatnonzero(groups < 800), np.flatnonzero(groups >= 800)
    splitter = GroupShuffleSplit(1, test_size=0.25, random_state=0)
    pairs = list(splitter.split(X[train], Y[train], groups[train]))
    near = BoostedRanker([("near", NearestSamples())])
    clf = classifier(pairs if is_grouped else 0.25, ranker=near, max_epochs=8)
    clf.fit(X[train], Y[train])
    best, probabilities = clf.predict_topk(X[new], k=1, proba=True)
    error = expected_calibration_error(Y[new], best, probabilities)[0]
    assert (error < 0.15) == is_grouped
    assert (error > 0.2) == (not is_grouped)
