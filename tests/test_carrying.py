"""Large arrays: written from the model, and read where they belong."""

import io
import pickle
import tracemalloc
import zipfile

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import skops.io
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from skorch.callbacks import EpochScoring
from skorch.utils import to_numpy
from torch import nn

from _factories import quick
from sklearn_xlc import MultiHeadClassifier, compress, load, save
from sklearn_xlc._carrying import without_large
from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel
from sklearn_xlc.encoders import MLP
from sklearn_xlc.metrics import propensities, topk_scorer, topk_scorers
from sklearn_xlc.ranking import BoostedRanker, NearestSamples
from sklearn_xlc.training import CollapseMonitor, WeightAveraging


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.skops"


def peak(function):
    """Return the result of a function, and the bytes that it held at most."""
    tracemalloc.start()
    try:
        return function(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("exact", [True, False])
def test_large_weights_are_written_and_read_in_place(exact, path):
    _, Y = make_extreme_multilabel(150, 60, 30, random_state=0)
    rows = {"format": "csr", "random_state": 0, "dtype": np.float32}
    X = sp.random(150, 6000, 0.05, **rows)  # no column is empty
    clf = quick("flat", encoder=MLP((2000,)), max_epochs=1).fit(X, Y)
    save(clf, path, exact=exact)  # what is imported is not counted
    n_bytes = 4 * clf.n_parameters_
    _, beside = peak(lambda: save(clf, path, exact=exact))
    assert beside < 0.8 * n_bytes  # NumPy writes 16 MiB at a time
    loaded, taken = peak(lambda: load(path))
    assert taken < 1.5 * n_bytes
    plain = skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path))
    expected = loaded.decision_function(X)
    np.testing.assert_array_equal(plain.decision_function(X), expected)
    if exact:
        np.testing.assert_array_equal(clf.decision_function(X), expected)


def test_remembered_samples_are_written_and_read_in_place(path):
    rows = {"format": "csr", "random_state": 0, "dtype": np.float32}
    X, labels = sp.random(20_000, 2000, 0.016, **rows), np.arange(20_000) % 20
    ranker = BoostedRanker([("samples", NearestSamples())], estimator=LogisticRegression())
    clf = quick("flat", encoder=MLP((8,)), max_epochs=1, ranker=ranker).fit(X, labels)
    save(clf, path, exact=True)
    held = clf.ranker_.memory_["samples"]["input"]
    n_bytes = held.data.nbytes + held.indices.nbytes
    _, beside = peak(lambda: save(clf, path, exact=True))
    assert beside < 0.6 * n_bytes
    with open(path, "rb") as file, without_large(file) as light:
        assert len(light.read()) < 0.1 * n_bytes
    loaded = load(path)
    plain = skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path))
    expected = clf.predict_topk(X[:99])[0]
    for again in (loaded, plain):
        np.testing.assert_array_equal(again.predict_topk(X[:99])[0], expected)


@pytest.mark.parametrize("place", [b"weights-99.npy", b"schema.json", b"other", b"\xff", 7])
def test_a_name_in_place_of_weights_is_refused_unless_it_is_theirs(place, path):
    X, Y = make_extreme_multilabel(150, 2000, 400, random_state=0)
    save(quick("flat", encoder=MLP((64,)), max_epochs=1).fit(X, Y), path, exact=True)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    one, other = sorted(name for name in members if name.startswith("weights-"))
    del members[one]
    content = io.BytesIO()
    np.save(content, np.array(other.encode() if place == b"other" else place))
    members["1000.npy"] = content.getvalue()
    members["schema.json"] = members["schema.json"].replace(one.encode(), b"1000.npy")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(ValueError, match="cannot read"):
        load(path)


class Table(nn.Module):
    """Encoder that has learnt a large array beside its weights."""

    accepts = ("dense",)

    def __init__(self, n_features):
        super().__init__()
        self.layer, self.table = nn.Linear(n_features, 16), np.arange(20_000.0)
        self.n_outputs = 16

    def forward(self, rows):
        return self.layer(rows)

    def get_extra_state(self):
        return {"table": self.table}

    def set_extra_state(self, state):
        self.table = state["table"]


@pytest.mark.parametrize("exact", [True, False])
def test_what_an_encoder_has_learnt_beside_its_weights_comes_back(exact, path):
    X, y = make_extreme_multiclass(300, 50, 10, random_state=0)
    clf = MultiHeadClassifier(encoder=Table, max_epochs=1).fit(X.toarray(), y)
    save(clf, path, exact=exact)
    again = load(path, trusted=[Table]).net_.module_.encoder
    np.testing.assert_array_equal(again.table, np.arange(20_000.0))


class Pickled(BaseEstimator):
    """Estimator whose state holds a pickle of a classifier, as text and as bytes."""

    def __init__(self, clf=None):
        self.clf = clf

    def __getstate__(self):
        blob = pickle.dumps(self.clf)
        return {"text": blob.decode("latin1"), "blob": blob}

    def __setstate__(self, state):
        assert state["text"].encode("latin1") == state["blob"]
        self.clf = pickle.loads(state["blob"])


@pytest.mark.parametrize("exact", [True, False])
def test_a_pickle_within_a_file_has_its_weights(exact, path):
    X, Y = make_extreme_multilabel(150, 2000, 400, random_state=0)
    clf = quick("flat", encoder=MLP((64,)), max_epochs=1).fit(X, Y)
    save(Pickled(clf), path, exact=exact)
    again = load(path, trusted=[Pickled]).clf
    expected = (clf if exact else compress(clf)).decision_function(X)
    np.testing.assert_array_equal(again.decision_function(X), expected)


TAGS = [["a"], ["a", "b"], ["c"], []]
OF_TAGS = propensities(TAGS)
SCORERS = {
    "one": (topk_scorer("precision", 3), True),
    "propensities": (topk_scorer("psp", 3, propensities=OF_TAGS), True),
    "several": (topk_scorers(["psp", "ndcg"], [1, 3], propensities=OF_TAGS), "psp_at_1"),
}


@pytest.mark.parametrize("scoring, refit", SCORERS.values(), ids=SCORERS)
def test_scorers_of_ours_come_back_without_being_named(scoring, refit, path):
    search = GridSearchCV(quick("flat"), {"max_epochs": [1]}, scoring=scoring, refit=refit)
    save(search, path)
    loaded = load(path).scoring
    assert repr(loaded) == repr(scoring)
    model = quick("flat", max_epochs=1).fit(np.eye(4), TAGS)
    assert loaded(model, np.eye(4), TAGS) == scoring(model, np.eye(4), TAGS)


def test_propensities_come_back_with_that_of_labels_never_seen(path):
    save(GridSearchCV(quick("flat"), {}, scoring=SCORERS["propensities"][0]), path)
    loaded = load(path).scoring.metric_params["propensities"]
    assert loaded == OF_TAGS
    assert dict(loaded) == dict(OF_TAGS)
    assert loaded["never seen"] == OF_TAGS["never seen"] == OF_TAGS.unseen
    assert repr(loaded) == repr(dict(OF_TAGS))
    assert pd.Series(loaded).to_dict() == dict(OF_TAGS)


def test_callbacks_of_ours_come_back_without_being_named(path):
    X, Y = make_extreme_multilabel(60, 20, 5, random_state=0)
    ours = [("watch", CollapseMonitor(X, Y)), WeightAveraging("ema")]
    clf = quick("flat", callbacks=ours, max_epochs=1).fit(X, Y)
    save(clf, path, exact=True)
    loaded = load(path)
    assert [*map(type, loaded.callbacks)] == [tuple, WeightAveraging]
    assert loaded.callbacks[0][1].X is None  # samples stay at home
    np.testing.assert_array_equal(loaded.predict_topk(X)[0], clf.predict_topk(X)[0])


def test_a_scorer_of_ours_within_a_callback_of_skorch_needs_no_name(path):
    watch = EpochScoring(topk_scorer("precision", 1), lower_is_better=False)
    save(quick("flat", callbacks=[watch]), path)
    loaded = load(path, trusted=[EpochScoring, to_numpy])
    assert repr(loaded.callbacks[0].scoring) == "topk_scorer(precision_at_k, k=1)"
