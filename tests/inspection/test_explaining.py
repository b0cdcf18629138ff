"""`explain_topk` against definitions: linear models, autograd, finite differences, planted words.

That contributions add up, for every classifier, is in `test_every_classifier.py`.
"""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler
from torch import nn

from _factories import QUICK, make_learnable, quick
from sklearn_xlc import (
    AggregatedLabelClassifier,
    MIMLClassifier,
    MultiHeadClassifier,
    TextColumns,
    config_context,
    explain_topk,
    predict_topk,
)
from sklearn_xlc.encoders import Encoder, InputLinear, Text
from sklearn_xlc.inspection.explaining import Explanation, remembers_samples
from sklearn_xlc.metrics import topk_scorer
from sklearn_xlc.ranking import BoostedRanker, NearestSamples

#: One word of each text says its label; the other words are drawn for all labels alike.
WORDS = {"cat": "meow", "dog": "woof", "cow": "moo"}


def planted(n_samples=90, seed=0):
    rng = np.random.default_rng(seed)
    tags = [list(WORDS)[i % 3] for i in range(n_samples)]
    fillers = [f"w{i}" for i in range(30)]
    texts = [" ".join([WORDS[tag], *rng.choice(fillers, size=4, replace=False)]) for tag in tags]
    return texts, tags


TEXTS, TAGS = planted()
#: Enough where one word is looked for.
FEW = {**QUICK, "max_epochs": 16, "learning_rate": 0.05}


@pytest.fixture(scope="module")
def pipeline():
    return make_pipeline(TfidfVectorizer(), MultiHeadClassifier(**QUICK)).fit(TEXTS, TAGS)


class Dense(nn.Module):
    """Encoder of dense rows with a smooth layer."""

    def __init__(self, n_features):
        super().__init__()
        self.layer = nn.Linear(n_features, 8)

    def forward(self, rows):
        return torch.tanh(self.layer(rows))


class Sparse(Encoder):
    """Encoder of CSR rows alone, with the input layer of the package."""

    accepts, n_outputs = ("csr",), 8

    def __init__(self, n_features):
        super().__init__()
        self.layer = InputLinear(n_features, 8)

    def forward(self, rows):
        return torch.tanh(self.layer(rows))


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_steps", [1, 5])
def test_exact_without_a_network_between(n_steps):
    X, Y = make_learnable(True)
    X = X.toarray()
    params = {**QUICK, "encoder": nn.Identity, "max_epochs": 5}
    clf = MultiHeadClassifier("flat", **params).fit(X, Y)
    labels = [4, 0, 9]
    found = explain_topk(clf, X[:5], labels=labels, n_columns=60, n_steps=n_steps)
    weight = clf.net_.module_.head.weight.detach().numpy()
    for sample in range(5):
        for rank, label in enumerate(labels):
            expected = X[sample] * weight[label]
            named = {f"x{i}": value for i, value in enumerate(expected) if value}
            names, values = found.columns[sample, rank], found.contributions[sample, rank]
            got = dict(zip(names[: len(named)], values))
            assert got.keys() == named.keys()
            np.testing.assert_allclose([got[name] for name in named], list(named.values()))
    np.testing.assert_allclose(found.errors, 0, atol=1e-12)
    np.testing.assert_allclose(found.scores, clf.decision_function(X[:5])[:, labels])


@pytest.mark.parametrize("encoder", ["auto", Dense, Sparse])
def test_integrated_gradients_by_finite_differences(encoder):
    """The integral over the line, column by column, by scores of shifted samples alone."""
    X, y = make_learnable(False)
    form = sp.csr_matrix if encoder is Sparse else np.asarray
    X = X.toarray()
    params = {**QUICK, "encoder": encoder, "max_epochs": 10, "ranker": None}
    clf = MultiHeadClassifier("flat", **params).fit(form(X), y)
    label, x = y[0], X[0]
    found = explain_topk(clf, form(X[:1]), labels=[label], n_columns=5, n_steps=2000)
    at = np.searchsorted(clf.classes_, label)
    columns = [int(name[1:]) for name in found.columns[0, 0]]
    edges = np.linspace(0, 1, 3001) ** 3
    line = ((edges[1:] + edges[:-1]) / 2)[:, None] * x
    for column, value in zip(columns, found.contributions[0, 0]):
        step = np.zeros_like(x)
        step[column] = 1e-5
        ahead, behind = (clf.decision_function(form(line + s))[:, at] for s in (step, -step))
        integral = np.diff(edges) @ ((ahead - behind) / 2e-5)
        assert value == pytest.approx(x[column] * integral, rel=2e-3)


def test_contributions_of_columns_with_long_tails_add_up():
    rng = np.random.default_rng(0)
    X = np.exp(2.5 * rng.normal(size=(300, 4)))
    X[::4] = 0
    clf = MultiHeadClassifier(random_state=0, max_epochs=5)
    clf.fit(X, (X[:, 0] > X[:, 1]).astype(int))
    assert clf.net_.module_.encoder.input.reach is not None
    found = explain_topk(clf, X[:6], k=2, n_steps=500)
    np.testing.assert_allclose(found.errors, 0, atol=5e-3)
    assert not found.contributions[0].any()
    assert found.contributions[1:4].all()


def test_hashed_columns_have_the_contributions_of_others():
    few, _ = make_learnable(False)
    X, y = sp.csr_matrix(few, shape=few.shape), np.arange(few.shape[0]) % 5
    X.resize(X.shape[0], 800)
    clf = quick("flat").fit(X, y)
    assert len(clf.net_.module_.encoder.input.weight) < 100
    found = explain_topk(clf, X[:6], k=2, n_steps=5000)
    np.testing.assert_allclose(found.errors, 0, atol=1e-3)
    assert found.contributions.any()


def test_a_word_that_determines_the_label_comes_first(pipeline):
    labels, words, contributions = found = explain_topk(pipeline, TEXTS[:9], k=1)
    assert labels[:, 0].tolist() == TAGS[:9]
    assert words[:, 0, 0].tolist() == [WORDS[tag] for tag in TAGS[:9]]
    assert (contributions[:, 0, 0] > 0).all()
    others = explain_topk(pipeline, TEXTS[:1], labels=["dog", "cow"])
    assert others.labels.tolist() == [["dog", "cow"]]
    for same in (np.array(["dog", "cow"]), pd.Series(["dog", "cow"]), ("dog", "cow")):
        assert explain_topk(pipeline, TEXTS[:1], labels=same).labels.tolist() == [["dog", "cow"]]
    assert explain_topk(pipeline, TEXTS[:1], labels="dog").labels.tolist() == [["dog"]]
    lowest = [names[names != ""][-1] for names in others.columns[0]]
    assert lowest == ["meow", "meow"]
    assert (np.abs(found.errors) < 0.05).all()


@pytest.mark.parametrize(
    "first", [TextColumns("text"), FunctionTransformer(lambda table: table["text"])]
)
@pytest.mark.parametrize("more", [[], ["passthrough"], [make_pipeline(MaxAbsScaler())]])
def test_words_are_named_behind_a_step_that_reads_a_table(pipeline, first, more):
    table = pd.DataFrame({"text": TEXTS})
    model = make_pipeline(first, TfidfVectorizer(), *more, MultiHeadClassifier(**QUICK))
    found = explain_topk(model.fit(table, TAGS), table[:9], k=1)
    names = set(pipeline[0].get_feature_names_out())
    assert set(found.columns.ravel().tolist()) <= names
    assert found.columns[:, 0, 0].tolist() == [WORDS[tag] for tag in TAGS[:9]]
    frozen = make_pipeline(FrozenEstimator(model[:-1]), FrozenEstimator(model[-1]))
    assert explain_topk(frozen, table[:1], k=1).columns[0, 0, 0] == WORDS[TAGS[0]]


def test_the_largest_come_first_and_the_others_are_added_up(pipeline):
    whole = explain_topk(pipeline, TEXTS[:4], k=3, n_columns=5)
    part = explain_topk(pipeline, TEXTS[:4], k=3, n_columns=2)
    assert (np.diff(whole.contributions) <= 0).all()
    np.testing.assert_allclose(whole.others, 0, atol=1e-12)
    largest = -np.sort(-np.abs(whole.contributions))[..., :2]
    np.testing.assert_allclose(-np.sort(-np.abs(part.contributions)), largest)
    np.testing.assert_allclose(
        part.others, whole.contributions.sum(axis=2) - part.contributions.sum(axis=2), atol=1e-12
    )


def test_as_wide_as_the_widest_sample(pipeline):
    found = explain_topk(pipeline, [TEXTS[0], "meow w3", "unknown"], k=2, n_columns=10**9)
    assert found.columns.shape == found.contributions.shape == (3, 2, 5)
    assert np.count_nonzero(found.contributions[:, 0], axis=1).tolist() == [5, 2, 0]
    assert explain_topk(pipeline, ["unknown"], k=2).columns.shape == (1, 2, 0)


def test_more_steps_are_closer(pipeline):
    errors = [
        np.abs(explain_topk(pipeline, TEXTS[:6], k=3, n_steps=n).errors).max() for n in (16, 1024)
    ]
    assert errors[1] < errors[0] / 10


def test_too_few_steps_are_warned_of(pipeline):
    with pytest.warns(UserWarning, match=r"miss up to \d+% of what .* raise n_steps=1"):
        explain_topk(pipeline, TEXTS[:6], k=3, n_steps=1)


def test_parts_of_the_line_give_the_same(pipeline):
    whole = explain_topk(pipeline, TEXTS[:2], k=2)
    row = pipeline[-1].net_.module_.head.bytes_per_row()
    with config_context(working_memory=10 * row / 2**20):
        parts = explain_topk(pipeline, TEXTS[:2], k=2)
    np.testing.assert_allclose(parts.contributions, whole.contributions, rtol=1e-9, atol=1e-12)


def test_an_empty_sample_has_no_contributions(pipeline):
    found = explain_topk(pipeline, ["unknown words"], k=2)
    np.testing.assert_array_equal(found.scores, found.baselines)
    assert found.columns.size == found.contributions.size == len(found.to_frame()) == 0


def test_it_leaves_the_model_and_torch_as_they_were(pipeline):
    before = pipeline.decision_function(TEXTS)
    gradients = [p.grad for p in pipeline[-1].net_.module_.parameters()]
    with torch.no_grad():
        explain_topk(pipeline, TEXTS[:2], k=2)
        assert not torch.is_grad_enabled()
    after = [p.grad for p in pipeline[-1].net_.module_.parameters()]
    assert all(one is other for one, other in zip(after, gradients))
    np.testing.assert_array_equal(pipeline.decision_function(TEXTS), before)


# --- names, and what is wrapped around a classifier ---------------------------------------------


@pytest.mark.integration
def test_through_pipelines_searches_and_frozen_estimators(pipeline):
    expected = explain_topk(pipeline, TEXTS[:2], k=2)
    search = GridSearchCV(
        pipeline, {"multiheadclassifier__max_epochs": [80]}, cv=KFold(2), scoring=topk_scorer("f1")
    ).fit(TEXTS, TAGS)
    wrapped = make_pipeline(FrozenEstimator(pipeline[:-1]), FrozenEstimator(pipeline[-1]))
    for estimator in (search, wrapped, FrozenEstimator(pipeline)):
        found = explain_topk(estimator, TEXTS[:2], k=2)
        np.testing.assert_array_equal(found.columns, expected.columns)
        np.testing.assert_array_equal(found.contributions, expected.contributions)
    alone = explain_topk(pipeline[-1], pipeline[:-1].transform(TEXTS[:2]), k=2)
    np.testing.assert_array_equal(alone.contributions, expected.contributions)
    names = pipeline[0].get_feature_names_out()
    assert names[int(alone.columns[0, 0, 0][1:])] == "meow"


def test_nested_steps_pass_names_on():
    inner = make_pipeline(MaxAbsScaler(), MultiHeadClassifier(**FEW))
    model = make_pipeline(TfidfVectorizer(), inner).fit(TEXTS, TAGS)
    assert explain_topk(model, TEXTS[:1], k=1).columns[0, 0, 0] == "meow"


def test_names_of_unions_and_columns():
    texts = pd.DataFrame({"title": TEXTS, "body": [text[::-1] for text in TEXTS]})
    columns = [("title", TfidfVectorizer(), "title"), ("body", TfidfVectorizer(), "body")]
    union = FeatureUnion([("a", TfidfVectorizer()), ("b", TfidfVectorizer(ngram_range=(2, 2)))])
    for vectorizer, X, names in (
        (ColumnTransformer(columns), texts, {"title__meow", "body__woem"}),
        (union, TEXTS, {"a__meow", "b__meow w8"}),
    ):
        model = make_pipeline(vectorizer, MultiHeadClassifier(**FEW)).fit(X, TAGS)
        found = explain_topk(model, X[:1], k=1, n_columns=len(names))
        assert set(found.columns[0, 0]) == names


@pytest.mark.filterwarnings("ignore:This Pipeline instance is not fitted yet:FutureWarning")  # 1.6
def test_names_of_frames_and_none_at_all():
    X = pd.DataFrame(np.eye(3).repeat(5, axis=0), columns=["red", "green", "blue"])
    y = np.arange(3).repeat(5)
    clf = MultiHeadClassifier(**FEW).fit(X, y)
    assert explain_topk(clf, X[:1], k=1).columns[0, 0, 0] == "red"
    hashed = make_pipeline(HashingVectorizer(n_features=64), MultiHeadClassifier(**FEW))
    names = explain_topk(hashed.fit(TEXTS, TAGS), TEXTS[:1], k=1).columns[0, 0]
    assert names[0] == f"x{hashed[0].transform(['meow']).indices[0]}"


def test_tokens_of_texts():
    encoder = Text(2**12, hidden_layer_sizes=(16,), ngram_range=(1, 2))
    text = "Meow w3 w4 w3"
    clf = MultiHeadClassifier(**{**QUICK, "encoder": encoder})
    clf.fit([*TEXTS, text], [*TAGS, TAGS[0]])
    found = explain_topk(clf, [text + " unseen"], k=1, n_columns=9)
    assert found.columns[0, 0, 0] == "meow"
    named = set(found.columns[0, 0]) - {""}  # words never seen have raised nothing
    assert named == {"meow", "w3", "w4", "meow w3", "w3 w4", "w4 w3"}
    one_row = MultiHeadClassifier(**{**FEW, "encoder": Text(1)}).fit(TEXTS, TAGS)
    assert explain_topk(one_row, ["a b a"], k=1).columns[0, 0, 0] == "a | b"


def test_words_of_a_text_are_read_once(monkeypatch):
    clf = MultiHeadClassifier(**{**FEW, "encoder": Text(2**12)}).fit(TEXTS, TAGS)
    encoder, read = clf.net_.module_.encoder, []
    tokens_of = encoder.tokens_of
    monkeypatch.setattr(encoder, "tokens_of", lambda text: read.append(text) or tokens_of(text))
    explain_topk(clf, TEXTS[:2], k=3, n_columns=5)  # each for three labels of five words
    assert read == list(TEXTS[:2])


def test_each_sample_of_a_bag_is_explained():
    X = TfidfVectorizer().fit_transform(TEXTS)
    Y = np.array([[tag == name for name in WORDS] for tag in TAGS]).astype(int)
    groups = np.arange(90) // 2
    bags = np.stack([Y[groups == group].max(axis=0) for group in range(45)])
    assigning = AggregatedLabelClassifier(MultiHeadClassifier(**FEW), n_rounds=1)
    for clf in (MIMLClassifier(**FEW), assigning):
        clf.fit(X, bags, groups=groups)
        found = explain_topk(clf, X[:4], k=1)
        assert found.labels.shape == (4, 1)
        np.testing.assert_array_equal(found.labels, predict_topk(clf, X[:4], k=1).labels)
    of_bags = [[name for name, has in zip(WORDS, bag) if has] for bag in bags]
    named = assigning.fit(X, of_bags, groups=sp.csr_matrix(np.eye(45)[groups]))
    found = explain_topk(named, X[:4], k=1)
    np.testing.assert_array_equal(found.labels, predict_topk(named, X[:4], k=1).labels)
    asked = explain_topk(named, X[:4], labels=found.labels[0])
    np.testing.assert_array_equal(asked.scores[0], found.scores[0])


# --- training samples ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def remembering():
    """Pipeline with a ranker, fitted to a frame whose index names samples."""
    texts, tags = planted(400)
    frame = pd.DataFrame({"text": texts, "tags": [[tag] for tag in tags]})
    frame = frame.set_axis([f"s{i}" for i in range(400)])
    ranker = BoostedRanker([("near", NearestSamples(max_df=1.0))])
    clf = MultiHeadClassifier(**{**FEW, "max_epochs": 5, "ranker": ranker})
    words = TfidfVectorizer(ngram_range=(1, 2))  # so many columns that rows are mostly zeros
    return make_pipeline(words, clf).fit(frame["text"], frame["tags"]), frame


def test_examples_have_the_label_and_are_near(remembering):
    pipeline, frame = remembering
    texts = pd.Series(planted(5, seed=1)[0], index=list("abcde"))
    found = explain_topk(pipeline, texts, k=2, examples=3)
    assert found.examples.shape == found.cosines.shape == (5, 2, 3)
    vectorizer = pipeline[0]
    every = (vectorizer.transform(texts) @ vectorizer.transform(frame["text"]).T).toarray()
    for sample, rank in np.ndindex(5, 2):
        label, ids = found.labels[sample, rank], found.examples[sample, rank]
        having = frame["tags"].map(lambda tags, label=label: label in tags).to_numpy()
        assert all(frame.loc[name, "tags"] == [label] for name in ids)
        best = np.sort(every[sample][having])[::-1][:3]
        np.testing.assert_allclose(found.cosines[sample, rank], best, rtol=1e-3)
    by_label = explain_topk(pipeline, texts, labels=found.labels[0].tolist(), examples=1)
    np.testing.assert_array_equal(by_label.examples[0], found.examples[0, :, :1])
    for other in (explain_topk(pipeline, texts, k=2), found):
        assert repr(other.to_frame()) == repr(found.to_frame())
        np.testing.assert_array_equal(other.contributions, found.contributions)
    assert explain_topk(pipeline, texts, k=2).examples.shape == (5, 2, 0)


def test_samples_have_the_names_of_predict_topk(remembering):
    texts = pd.Series(["w1 meow", "w2 woof"], index=["<one>", "two"])
    found = explain_topk(remembering[0], texts, k=1, examples=1)
    ranked = predict_topk(remembering[0], texts, k=1)
    for of in ("columns", "examples"):
        assert set(found.to_frame(of)["sample"]) == set(ranked.to_frame()["sample"])
    assert [line.split(":")[0] for line in repr(found).splitlines()[1:]] == ["<one>", "two"]
    assert "&lt;one&gt;</th>" in found._repr_html_()
    assert repr(pickle.loads(pickle.dumps(found))) == repr(found)
    plain = explain_topk(remembering[0], texts.to_list(), k=1)
    assert set(plain.to_frame()["sample"]) == {0, 1}


def test_examples_are_shown(remembering):
    found = explain_topk(remembering[0], ["w1 meow", ""], k=1, examples=2)
    (one, two), (cosine, other) = found.examples[0, 0], found.cosines[0, 0]
    assert f"; near {one} ({cosine:.2f}), {two} ({other:.2f})" in repr(found)
    assert found.examples[1, 0].tolist() == [None, None]
    assert repr(found).splitlines()[-1].endswith(": ")
    page = found._repr_html_()
    assert page.count("<th") == 7 + 2
    assert f"{one} ({cosine:.2f}), {two} ({other:.2f})</td></tr>" in page
    frame = found.to_frame("examples")
    assert frame.columns.tolist() == ["sample", "rank", "label", "score", "example", "cosine"]
    assert frame["example"].tolist() == [one, two]
    copied = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(copied.examples, found.examples)
    np.testing.assert_array_equal(copied.cosines, found.cosines)
    listed = found.to_list()
    assert [each["example"] for each in listed[0][0]["examples"]] == [one, two]
    assert listed[0][0]["examples"][0]["cosine"] == float(cosine)
    assert listed[1][0]["examples"] == []
    with pytest.raises(ValueError, match="of must be 'columns' or 'examples', got 'words'"):
        found.to_frame("words")


def test_examples_of_texts_have_the_index_of_X():
    texts, tags = planted(400)
    X = pd.Series(texts, index=np.arange(400) + 1000)
    clf = MultiHeadClassifier(**{**FEW, "max_epochs": 5, "ranker": "boosted", "encoder": Text(16)})
    clf.fit(X, tags)
    found = explain_topk(clf, X[:3], labels=tags[:3], examples=1)
    assert found.examples[range(3), range(3), 0].tolist() == [1000, 1001, 1002]  # themselves
    np.testing.assert_allclose(found.cosines[range(3), range(3), 0], 1, rtol=1e-6)


def test_examples_need_a_ranker_that_remembers(pipeline, remembering):
    assert [remembers_samples(each) for each in (pipeline, remembering[0])] == [False, True]
    with pytest.raises(ValueError, match="None, remembers no training samples.*'boosted'"):
        explain_topk(pipeline, TEXTS[:1], k=1, examples=3)
    calibrated = MultiHeadClassifier(**{**FEW, "max_epochs": 1, "ranker": "calibration"})
    X, Y = make_learnable(True)
    with pytest.raises(ValueError, match="Calibration, remembers no training samples"):
        explain_topk(calibrated.fit(X, Y), X[:1], k=1, examples=3)


# --- what it refuses ----------------------------------------------------------------------------


class Mapping(Encoder):
    accepts, n_outputs = ("mapping",), 3

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, inputs):
        return inputs["a"] * self.weight


class Numbered(Dense):
    """Encoder that counts, so that scores have no gradient."""

    def forward(self, rows):
        return super().forward(rows).detach() + 0 * self.layer.bias


class Halves(Dense):
    def collate(self, samples):
        return torch.from_numpy(samples).to(self.layer.weight.dtype)[:, ::2]


def test_what_has_no_columns_is_refused():
    y, texts = np.arange(30) % 3, ["red pear", "apple"] * 15
    X = np.eye(3)[y]
    clf = MultiHeadClassifier(**{"max_epochs": 1, "encoder": Mapping}).fit({"a": X}, y)
    with pytest.raises(TypeError, match="needs columns, but Mapping reads a mapping of arrays"):
        explain_topk(clf, {"a": X}, k=1)
    clf = MultiHeadClassifier(**{"max_epochs": 1, "encoder": Halves(2)}).fit(X, y)
    with pytest.raises(TypeError, match="collate of Halves makes something else of them"):
        explain_topk(clf, X, k=1)
    clf = MultiHeadClassifier(**{"max_epochs": 1, "encoder": Numbered}).fit(X, y)
    with pytest.raises(
        TypeError, match="follows the gradient of scores, but encoder or head compute"
    ):
        explain_topk(clf, X, k=1)
    with pytest.raises(TypeError, match="with a network.*; got LogisticRegression"):
        explain_topk(LogisticRegression().fit(X, y), X, k=1)
    with pytest.raises(TypeError, match="with a network.*; got LogisticRegression"):
        explain_topk(make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, y), texts)


@pytest.mark.parametrize(
    "params, error, message",
    [
        ({"k": 0}, ValueError, "k must be an integer >= 1, got 0"),
        ({"k": 4}, ValueError, "k=4 must be at most the number of labels, 3"),
        ({"labels": ["cat", "horse"]}, ValueError, "entries of classes_, got 'horse'"),
        ({"labels": [["cat"]]}, ValueError, r"entries of classes_, got \['cat'\]"),
        ({"labels": []}, ValueError, "entries of classes_, got none"),
        ({"labels": sp.dia_matrix(np.eye(2))}, ValueError, "entries of classes_, got <"),
        ({"examples": -1}, ValueError, "examples must be an integer >= 0, got -1"),
        ({"n_columns": 0}, ValueError, "n_columns must be an integer >= 1, got 0"),
        ({"n_steps": 1.5}, TypeError, "n_steps must be an integer >= 1, got 1.5"),
    ],
)
def test_bad_parameters(pipeline, params, error, message):
    with pytest.raises(error, match=message):
        explain_topk(pipeline, TEXTS[:1], **{"k": 1, **params})


@pytest.fixture
def made():
    """Two labels of eleven samples; the second label of each has one word only."""
    labels = np.array([["<cat>", "dog"]] * 11, dtype=object)
    columns = np.array([[["mat & co", "<b>rug</b>"], ["bed", ""]]] * 11, dtype=object)
    contributions = np.array([[[2.0, -1.0], [0.5, 0.0]]] * 11)
    scores, baselines = np.full((11, 2), 1.5), np.array([[0.25, 1.0]] * 11)
    return Explanation(labels, columns, contributions, scores, baselines, np.full((11, 2), 0.125))


def test_it_unpacks_and_adds_up(made):
    labels, columns, contributions = made
    assert (made.labels is labels, made.columns is columns) == (True, True)
    assert made.contributions is contributions
    np.testing.assert_allclose(made.errors, [[0.125, -0.125]] * 11)
    copy = pickle.loads(pickle.dumps(made))
    for name in ("labels", "columns", "contributions", "scores", "baselines", "others", "errors"):
        np.testing.assert_array_equal(getattr(copy, name), getattr(made, name))


def test_frame(made):
    frame = made.to_frame()
    assert frame.columns.tolist() == [
        "sample", "rank", "label", "score", "baseline", "column", "contribution",
    ]  # fmt: skip
    assert len(frame) == 33
    assert frame.loc[4].tolist() == [1, 1, "<cat>", 1.5, 0.25, "<b>rug</b>", -1.0]
    assert frame.loc[5].tolist() == [1, 2, "dog", 1.5, 1.0, "bed", 0.5]


def test_plain_lists(made):
    listed = made.to_list()
    assert json.loads(json.dumps(listed)) == listed
    assert len(listed) == 11
    words = [("mat & co", 2.0), ("<b>rug</b>", -1.0)]
    assert listed[10][0] == {
        "label": "<cat>",
        "score": 1.5,
        "baseline": 0.25,
        "columns": [{"column": word, "contribution": value} for word, value in words],
        "examples": [],
    }
    assert listed[0][1]["columns"] == [{"column": "bed", "contribution": 0.5}]


def test_text(made):
    lines = repr(made).splitlines()
    assert lines[1] == "0: <cat> 1.5: mat & co +2, <b>rug</b> -1"
    assert lines[2] == "0: dog 1.5: bed +0.5"
    assert lines[-1] == "...: 1 more samples"
    assert len(lines) == 22


def test_table(made):
    page = made._repr_html_()
    assert "&lt;cat&gt;" in page
    assert "mat &amp; co" in page
    assert "&lt;b&gt;rug&lt;/b&gt;" in page
    assert "<cat>" not in page
    assert "<b>rug" not in page
    assert page.count("<tr>") == 22
    words = page.split('<span style="background')
    assert len(words) == 31
    raising, lowering, weaker = words[1:4]
    assert "rgba(0,114,178,0.55)" in raising
    assert "rgba(230,120,0,0.32)" in lowering  # half as strong
    assert "rgba(0,114,178,0.20)" in weaker
    assert "1 more samples" in page


def test_a_sample_without_contributions():
    nothing = np.zeros((1, 1, 2))
    names = np.full((1, 1, 2), "", dtype=object)
    one = np.ones((1, 1))
    made = Explanation(np.array([["a"]]), names, nothing, one, one, one * 0)
    assert len(made.to_frame()) == 0
    assert repr(made).splitlines()[1] == "0: a 1: "
    assert "<span" not in made._repr_html_()
