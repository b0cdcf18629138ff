"""Named retrievers: nested parameters, and what each of them reads."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_xlc.ranking import (
    RANKERS,
    BoostedRanker,
    CooccurringLabels,
    FeatureVotes,
    LabelCentroids,
    NearestSamples,
    Retriever,
)


def test_parameters_of_retrievers_are_nested():
    ranker = BoostedRanker()
    assert ranker.get_params(deep=False).keys() == {
        "retrievers", "n_candidates", "estimator", "tail_order", "tail_weight", "max_samples"
    }  # fmt: skip
    assert ranker.get_params()["near__n_neighbors"] == (3, 10, 30)
    ranker.set_params(near__n_neighbors=(4,), n_candidates=7, near__max_df=0.5)
    names = [name for name, _ in ranker.retrievers]
    assert names == ["near", "centroids", "votes", "together", "near_in_features"]
    copied = clone(ranker)
    assert copied.get_params()["near__n_neighbors"] == (4,)
    assert copied.get_params()["near__max_df"] == 0.5
    assert copied.n_candidates == 7
    assert copied.retrievers[0][1] is not ranker.retrievers[0][1]
    ranker.set_params(near=LabelCentroids(), near__space="features")
    assert ranker.get_params()["near__space"] == "features"
    assert ranker.reads == ("features", "input", "ids")
    assert clone(BoostedRanker()).retrievers == "auto"
    ranker.set_params(retrievers=[("c", CooccurringLabels())])
    assert ranker.reads == ("ids",)
    assert RANKERS["boosted"] is BoostedRanker
    with pytest.raises(ValueError, match="wrong"):
        BoostedRanker().set_params(near__wrong=3)
    with pytest.raises(ValueError, match="wrong"):
        BoostedRanker().set_params(wrong=3)


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"retrievers": [("a", 3)]}, "must be a Retriever"),
        ({"retrievers": [NearestSamples()]}, "pairs of a name"),
        (
            {"retrievers": [("a", NearestSamples()), ("a", LabelCentroids())]},
            "retrievers.* not unique",
        ),
        ({"retrievers": [("tail_order", NearestSamples())]}, "conflict .*'tail_order'"),
        ({"retrievers": [("a__b", NearestSamples())]}, "not contain __"),
        ({"retrievers": [("a", NearestSamples(n_neighbors=()))]}, "n_neighbors"),
        ({"n_candidates": 0}, "n_candidates"),
        ({"tail_order": 2.0}, "tail_order"),
        ({"tail_weight": -1.0}, "tail_weight"),
        ({"estimator": 3}, "estimator"),
        ({"estimator": Ridge()}, "'estimator' .* 'predict_proba'.* 'decision_function'"),
    ],
)
def test_wrong_parameters_are_named(wrong, words):
    X, Y = sp.random_array((30, 9), density=0.3, format="csr"), sp.csr_array(np.eye(30)[:, :4])
    with pytest.raises(ValueError, match=words):
        BoostedRanker(**wrong).remember({"input": X}, Y)


@pytest.mark.parametrize(
    "vectorizer", [TfidfVectorizer(), make_pipeline(CountVectorizer(), TfidfTransformer())]
)
def test_vectorizers_of_texts_read_no_numbers(vectorizer):
    ranker = BoostedRanker([("near", NearestSamples(vectorizer=vectorizer))])
    ranker.check_given(np.array(["a", "b"], dtype=object))
    with pytest.raises(TypeError, match="has a vectorizer of texts, and X holds numbers; pass"):
        ranker.check_given(np.eye(2))
    BoostedRanker("counts").check_given(np.eye(2))


class Reads(Retriever):
    """Remembers what it was fitted to."""

    def __init__(self, reads=("input",), vectorizer=None):
        self.reads = reads
        self.vectorizer = vectorizer

    def fit(self, samples, Y, sample_weight=None):
        self.found_ = {space: samples[space] for space in self.reads}
        return self


def double(X):
    return 2.0 * X


def test_each_retriever_reads_its_own_vectors():
    X = np.arange(12.0).reshape(4, 3)
    named = [
        ("plain", Reads(("input",))),
        ("double", Reads(("vectors",), FunctionTransformer(double))),
        ("again", Reads(("vectors",), FunctionTransformer(double))),
        ("raw", Reads(("given",))),
        ("half", Reads(("vectors",), FunctionTransformer())),
    ]
    ranker = BoostedRanker(named)
    assert ranker.reads == ("input", "given", "ids")
    ranker.remember({"input": X, "given": X}, sp.csr_array(np.eye(4)))
    assert ranker.places_ == {"double": 0, "again": 0, "half": 1}
    found = {name: each.found_ for name, each in ranker.retrievers_}
    np.testing.assert_array_equal(found["plain"]["input"], X)
    np.testing.assert_array_equal(found["raw"]["given"], X)
    for name in ("double", "again", "half"):  # eight bits: directions only
        np.testing.assert_array_equal(found[name]["vectors"].max(axis=1), [127] * 4)
    assert found["double"]["vectors"] is found["again"]["vectors"]


def test_sparse_samples_keep_the_features_that_are_read():
    X = sp.random_array(
        (50, 400), density=0.03, format="csr", random_state=np.random.default_rng(0)
    )
    near, votes = NearestSamples(max_features_per_sample=2), FeatureVotes(max_features_per_sample=5)
    for named, most in (([("a", near)], 2), ([("a", near), ("b", votes)], 5)):
        kept = BoostedRanker(named).shortened({"input": X})["input"]
        np.testing.assert_array_equal(np.diff(kept.indptr), np.minimum(np.diff(X.indptr), most))
    assert BoostedRanker([("c", CooccurringLabels())]).shortened({"input": X})["input"].nnz == 0
    whole = BoostedRanker([("a", near), ("r", Reads())]).shortened({"input": X})["input"]
    assert whole.nnz == X.nnz


class FittedToAll(Reads):
    """Is fitted to samples that it does not read later."""

    fitted_to = ("input",)


def test_a_retriever_is_fitted_to_features_that_it_reads_no_more():
    X = sp.random_array((4, 400), density=0.03, format="csr", random_state=0)
    ranker = BoostedRanker([("all", FittedToAll(reads=()))])
    ranker.remember({"input": X}, sp.csr_array(np.eye(4)))
    assert abs(ranker.memory_["samples"]["input"] - X).nnz == 0


def test_features_of_a_network_are_compared_on_axes_and_in_eight_bits(rng):
    X = sp.random(200, 400, 0.02, format="csr", random_state=0)
    features = rng.normal(size=(200, 100)).astype(np.float32)
    features *= np.linspace(1, 0, 100)
    Y = sp.csr_array(np.eye(200, 9, dtype=int))
    ranker = BoostedRanker().remember({"input": X, "features": features}, Y)
    remembered = ranker.memory_["samples"]["features"]
    assert remembered.shape == (200, 64)
    assert remembered.dtype == np.int8
    near = dict(ranker.retrievers_)["near_in_features"]
    found = near.search(ranker._with_vectors({"input": X, "features": features}), None, None)
    unit = features @ ranker.axes_
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    exact = np.sort(unit @ unit.T, axis=1)[:, :-31:-1]
    assert (found.items[:, 0] == np.arange(200)).all()
    np.testing.assert_allclose(found.cosines[:, 0], 1, atol=1e-3)
    np.testing.assert_allclose(found.cosines, exact, atol=0.01)
    in_parts = [ranker.shortened({"features": features[i : i + 40]}) for i in range(0, 200, 40)]
    in_parts = np.concatenate([part["features"] for part in in_parts])
    np.testing.assert_array_equal(in_parts, remembered)
    again = clone(ranker)
    again.begin({"input": X, "features": features})
    again.remember({"input": X, "features": in_parts}, Y)
    np.testing.assert_array_equal(again.axes_, ranker.axes_)
    np.testing.assert_array_equal(again.memory_["samples"]["features"], remembered)


def test_rare_columns_of_counts_weigh_more():
    X = sp.random(80, 200, 0.05, format="csr", random_state=0)
    X.data[:] = np.random.default_rng(0).integers(1, 4, X.nnz)
    Y = sp.csr_array(np.eye(4)[np.arange(80) % 4].astype(int))
    ranker = BoostedRanker("counts").set_params(near__max_df=1.0)
    ranker.remember({"given": X[:60], "features": np.eye(60, 3)}, Y[:60])
    weights = make_pipeline(FunctionTransformer(np.arcsinh), TfidfTransformer()).fit(X[:60])
    known, queries = (weights.transform(part).toarray() for part in (X[:60], X[60:]))
    labels = np.tile(np.arange(4), (20, 1))
    ids, found = ranker.examples({"given": X[60:], "features": np.eye(20, 3)}, labels, 1)
    cosines = np.where(np.arange(60) % 4 == np.arange(4)[:, None], (queries @ known.T)[:, None], -1)
    np.testing.assert_allclose(found[:, :, 0], cosines.max(axis=2), atol=1e-5)
    shared = cosines.max(axis=2) > 0
    np.testing.assert_array_equal(ids[:, :, 0][shared], cosines.argmax(axis=2)[shared])


@pytest.mark.parametrize(
    "retrievers, spaces, without",
    [
        ("words", ("input", "features"), set()),
        ("words", ("input",), {"near_in_features"}),
        (
            "words",
            ("features",),
            {"votes", "near_in_features"},
        ),  # features of a network are not counted
        ("counts", ("given", "features"), set()),
        ("counts", ("given",), {"near_in_features"}),
    ],
)
def test_named_retrievers_are_all_fitted(retrievers, spaces, without):
    X = sp.random(30, 400, 0.02, format="csr", random_state=0)
    samples = {space: X.toarray() if space == "features" else X for space in spaces}
    ranker = BoostedRanker(retrievers).remember(samples, sp.csr_array(np.eye(30, dtype=int)))
    named = [name for name, _ in BoostedRanker(retrievers)._by_name]
    assert [name for name, _ in ranker.retrievers_] == [n for n in named if n not in without]
