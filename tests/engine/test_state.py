"""A saved model: small, exact, mapped into memory where asked, and ready to go on."""

import contextlib
import copy
import functools
import hashlib
import pickle
import re
import subprocess
import sys

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    StackingClassifier,
)
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.multioutput import ClassifierChain
from sklearn.tree import DecisionTreeClassifier
from sklearn.tree._tree import Tree
from torch import nn

from _factories import EVERY, make_groups, make_learnable, quick
from sklearn_xlc import EAGLETransformer, MIMLClassifier, MultiHeadClassifier, load, save
from sklearn_xlc._part import Part
from sklearn_xlc.datasets import make_extreme_multiclass
from sklearn_xlc.encoders import MLP, Encoder
from sklearn_xlc.engine import state
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.state import check_loaded
from sklearn_xlc.heads import Cascade, Product, Sampling
from sklearn_xlc.ranking import BoostedRanker, CooccurringLabels, NearestSamples

N_LABELS = 50
KINDS = [
    {"head": "flat"},
    {"head": Product(label_order="random")},
    {"head": Product(label_order="random", n_groups=2)},
    {"head": Cascade(label_order="random", embedding_dim=8)},
    {"head": Sampling(label_order="random")},
    {"head": "flat", "multilabel": True},
    {"head": Product(label_order="random"), "multilabel": True},
    {"head": Cascade(label_order="random", embedding_dim=8), "multilabel": True},
]
every_kind = pytest.mark.parametrize(
    "kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values()))
)


def fitted(kind, **params):
    kind = dict(kind)
    X, y = make_extreme_multiclass(200, 80, N_LABELS, random_state=0)
    if kind.pop("multilabel", False):
        y = sp.csr_matrix((np.ones(200), y, np.arange(201)), shape=(200, N_LABELS))
    clf = MultiHeadClassifier(
        **kind,
        **params,
        encoder=MLP((16,)),
        max_epochs=3,
        learning_rate=0.02,
        random_state=0,
    )
    return clf.fit(X, y), X, y


@functools.cache
def fitted_once(number, **params):
    """The same for the tests that leave it as it is: kind by its position in `KINDS`."""
    return fitted(KINDS[number], **params)


def answers(clf, X):
    predicted = clf.predict(X)
    predicted = predicted.toarray() if sp.issparse(predicted) else predicted
    return [predicted, clf.decision_function(X), *clf.predict_topk(X, k=4), clf.transform(X)]


def assert_same(first, second):
    for one, other in zip(first, second):
        np.testing.assert_array_equal(one, other)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- round trips ------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("way", ["joblib", "compressed", "pickle", "deepcopy"])
def test_round_trip(kind, way, tmp_path):
    clf, X, _ = fitted_once(KINDS.index(kind))
    if way == "pickle":
        loaded = pickle.loads(pickle.dumps(clf))
    elif way == "deepcopy":
        loaded = copy.deepcopy(clf)
    else:
        joblib.dump(clf, tmp_path / "clf", compress=3 if way == "compressed" else 0)
        loaded = joblib.load(tmp_path / "clf")
    assert_same(answers(clf, X), answers(loaded, X))
    assert set(vars(loaded)) == set(vars(clf))
    assert loaded.loss_curve_ == clf.loss_curve_
    for name, value in clf.net_.module_.state_dict().items():
        copied = loaded.net_.module_.state_dict()[name]
        assert copied.data_ptr() != value.data_ptr() or not value.numel()


ELSEWHERE = """
import sys, joblib, numpy as np, sklearn_xlc
models = joblib.load(sys.argv[1])
files = range(1, len(models), 2)
saved = [(sklearn_xlc.load(f"{sys.argv[1]}{i}"), *models[i][1:]) for i in files]
for clf, X, expected in models + saved:
    labels, scores = clf.predict_topk(X, k=4)
    np.testing.assert_array_equal(clf.decision_function(X), expected[1])
    np.testing.assert_array_equal(labels, expected[2])
    np.testing.assert_array_equal(scores, expected[3])
    np.testing.assert_array_equal(clf.transform(X), expected[4])
"""


@pytest.mark.integration
def test_round_trip_to_a_new_process(tmp_path):
    models = [(clf, X, answers(clf, X)) for clf, X, _ in map(fitted_once, range(len(KINDS)))]
    joblib.dump(models, tmp_path / "models")
    for i in range(1, len(models), 2):  # test_files.py has files of every classifier
        save(models[i][0], tmp_path / f"models{i}", exact=True)
    subprocess.run([sys.executable, "-c", ELSEWHERE, str(tmp_path / "models")], check=True)


def test_an_unfitted_classifier_round_trips():
    clf = MultiHeadClassifier(Cascade(beam_width=3))
    loaded = pickle.loads(pickle.dumps(clf))
    assert repr(loaded) == repr(clf)
    assert vars(loaded).keys() == vars(clf).keys()


def test_a_loaded_model_is_dumped_again(tmp_path):
    clf, X, _ = fitted(KINDS[3])
    joblib.dump(clf, tmp_path / "first")
    joblib.dump(joblib.load(tmp_path / "first"), tmp_path / "second")
    joblib.dump(joblib.load(tmp_path / "second", mmap_mode="r"), tmp_path / "third")
    sizes = [(tmp_path / name).stat().st_size for name in ("first", "second", "third")]
    assert max(sizes) < 1.01 * min(sizes)
    assert_same(answers(joblib.load(tmp_path / "third"), X), answers(clf, X))


def test_dumping_leaves_the_model_as_it_was():
    clf, X, y = fitted(KINDS[0])
    module, state = clf.net_.module_, set(vars(clf))
    pickle.dumps(clf)
    assert clf.net_.module_ is module
    assert set(vars(clf)) == state
    clf.partial_fit(X, y)


# --- what a file holds ------------------------------------------------------------------------


@every_kind
def test_a_file_holds_parameters_once(kind, tmp_path):
    """1.2 times the parameters and the labels' names; no data, no optimiser, no gradients."""
    kind = dict(kind)
    multilabel = kind.pop("multilabel", False)
    if isinstance(kind["head"], Cascade):
        kind["head"] = Cascade(embedding_dim=64)
    n_labels = 2500
    X = sp.random(100, 2500, 0.01, format="csr", dtype=np.float32, random_state=0)
    y = np.arange(n_labels)[-100:]
    clf = MultiHeadClassifier(**kind, encoder=MLP((64,)), max_epochs=1, warm_start=True)
    if multilabel:
        y = sp.csr_matrix((np.ones(100), y, np.arange(101)), shape=(100, n_labels))
        clf.partial_fit(X, y)
    else:
        clf.partial_fit(X, y, classes=np.arange(n_labels))
    assert clf.net_.optimizer_.state
    joblib.dump(clf, tmp_path / "clf")
    size = (tmp_path / "clf").stat().st_size
    bound = 1.2 * 4 * clf.n_parameters_ + clf.classes_.nbytes
    assert 4 * clf.n_parameters_ < size < bound
    assert not joblib.load(tmp_path / "clf").net_.optimizer_.state


def test_fit_keeps_no_optimizer_state():
    clf, _, _ = fitted(KINDS[0])
    assert not clf.net_.optimizer_.state


# --- memory maps ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, mode, method",
    [
        *((kind, *how) for kind, how in zip(KINDS, [("r", "partial_fit"), ("c", "fit")] * 4)),
        *((KINDS[0], *how) for how in (("c", "fit"), ("r+", "partial_fit"), ("r+", "fit"))),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value,
)
def test_a_mapped_model_predicts_and_goes_on_without_touching_its_file(
    kind, mode, method, tmp_path
):
    clf, X, y = fitted_once(KINDS.index(kind), warm_start=True)
    joblib.dump(clf, tmp_path / "clf")
    before = digest(tmp_path / "clf")
    loaded = joblib.load(tmp_path / "clf", mmap_mode=mode)
    assert_same(answers(clf, X), answers(loaded, X))
    for _ in range(2):
        getattr(loaded, method)(X, y)
    assert not np.array_equal(loaded.decision_function(X), clf.decision_function(X))
    del loaded
    assert digest(tmp_path / "clf") == before
    assert_same(answers(clf, X), answers(joblib.load(tmp_path / "clf"), X))


def test_a_mapped_model_goes_on_as_the_one_in_memory(tmp_path):
    clf, X, y = fitted(KINDS[3])
    joblib.dump(clf, tmp_path / "clf")
    mapped = joblib.load(tmp_path / "clf", mmap_mode="r")
    for _ in range(3):
        clf.partial_fit(X, y)
        mapped.partial_fit(X, y)
    assert_same(answers(clf, X), answers(mapped, X))


@pytest.mark.parametrize("name", ["encoder.input.weight", "head.weight", "head.bias"])
@pytest.mark.parametrize("ranker", ["auto", None])
def test_mapped_weights_are_read_by_the_first_prediction(name, ranker, tmp_path):
    clf, X, _ = fitted(KINDS[5], ranker=ranker)
    with torch.no_grad():
        clf.net_.module_.get_parameter(name).view(-1)[0] = np.nan
    joblib.dump(clf, tmp_path / "clf")
    mapped = joblib.load(tmp_path / "clf", mmap_mode="r")
    for predict in [mapped.predict, mapped.predict_topk, mapped.decision_function] * 2:
        with pytest.raises(ValueError, match=f"the saved model has {name} with numbers .* finite"):
            predict(X)


# --- what a state is ---------------------------------------------------------------------------


def plain_or(value, path="state"):
    """Assert that a value is plain: no module, tensor, enum or object but parts and label codes."""
    known = (bool, int, float, str, type(None), np.ndarray, np.generic, type)
    if isinstance(value, dict):
        for key, item in value.items():
            assert type(key) is str, f"{path} has the key {key!r}"
            plain_or(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        for item in value:
            plain_or(item, f"{path}[]")
    elif isinstance(value, Part | LabelCode):
        plain_or({**vars(value), "dtype": None, "classes": None}, f"{path}:{type(value).__name__}")
    else:
        assert isinstance(value, known), f"{path} is a {type(value)}"


@pytest.mark.parametrize("name, multilabel", EVERY)
def test_the_state_is_plain(name, multilabel):
    state = quick(name, max_epochs=1, loss="auto").fit(*make_learnable(multilabel)).__getstate__()
    plain_or({key: value for key, value in state.items() if key != "loss"})


class Odd(nn.Module):
    """Tied weights, a frozen one, buffers in and out of the state, a plain tensor."""

    def __init__(self, n_features=60):
        super().__init__()
        self.one, self.other = nn.Linear(n_features, 3), nn.Linear(3, 3)
        self.last = nn.Linear(3, 3)
        self.last.weight = self.other.weight
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("kept", torch.arange(3))
        self.register_buffer("hidden", torch.tensor(2.5), persistent=False)
        self.plain = torch.full((2,), 7.0)

    def forward(self, x):
        return self.last(self.other(self.one(x))) * self.hidden + self.kept + self.plain.sum()


@pytest.mark.parametrize("encoder", [Odd, Odd()], ids=["class", "module"])
def test_a_module_of_any_kind_comes_back(encoder):
    X, y = make_learnable(False)
    clf = MultiHeadClassifier(encoder=encoder, max_epochs=1, random_state=0).fit(X.toarray(), y)
    weights = clf.__getstate__()["_net"]["weights"]
    assert {"encoder.other.weight", "encoder.hidden", "encoder.frozen"} < set(weights)
    assert "encoder.last.weight" not in weights
    clf.net_.module_.encoder.one.bias.requires_grad_(False)
    loaded = pickle.loads(pickle.dumps(clf))
    assert_same(answers(loaded, X.toarray()), answers(clf, X.toarray()))
    made = loaded.net_.module_.encoder
    assert made.other.weight is made.last.weight
    assert not made.frozen.requires_grad
    assert not made.one.bias.requires_grad
    assert made.one.weight.requires_grad
    assert not made.training


class Counting(Encoder):
    """Learns a vocabulary, which it returns as its extra state."""

    accepts = ("text",)
    n_outputs = 4

    def __init__(self):
        super().__init__()
        self.words, self.layer = {}, nn.Linear(20, 4)

    def collate(self, samples):
        counts = torch.zeros(len(samples), 20)
        for row, text in enumerate(samples):
            for word in text.split():
                counts[row, self.words.setdefault(word, len(self.words))] += 1
        return counts

    def forward(self, counts):
        return self.layer(counts)

    def get_extra_state(self):
        return dict(self.words)

    def set_extra_state(self, state):
        self.words = dict(state)


def test_what_an_encoder_learns_beside_its_weights_comes_back(tmp_path):
    texts, kinds = ["salt water", "wild animal", "water"] * 5, [0, 1, 0] * 5
    clf = MultiHeadClassifier(encoder=Counting, max_epochs=2, random_state=0).fit(texts, kinds)
    save(clf, tmp_path / "clf", exact=True)
    for loaded in (pickle.loads(pickle.dumps(clf)), load(tmp_path / "clf", trusted=[Counting])):
        assert loaded.net_.module_.encoder.words == {"salt": 0, "water": 1, "wild": 2, "animal": 3}
        np.testing.assert_array_equal(
            loaded.decision_function(["animal salt"]), clf.decision_function(["animal salt"])
        )


@pytest.mark.filterwarnings("ignore:.* rows of y have more than")
def test_labels_that_came_and_went_stay_so():
    X, Y = make_learnable(True)
    for name in ("flat", "cascade", "dft", "pick-all", "bags"):
        weight = None if name == "cascade" else {0: 3.0}
        clf = quick(name, max_epochs=2, class_weight=weight).fit(X, Y[:, :20])
        clf.partial_fit(X, Y, classes=np.arange(Y.shape[1])).remove_labels([1, 2])
        loaded = pickle.loads(pickle.dumps(clf))
        assert_same(answers(loaded, X), answers(clf, X))
        loaded.partial_fit(X, Y[:, [0, *range(3, 23)]])


def test_parameters_set_after_a_fit_leave_what_is_saved():
    X, Y = make_learnable(True)
    for name, later in (("dft", {"n_slack": 2, "output": "bottleneck"}), ("etf", {"loss": "bce"})):
        clf = quick(name, max_epochs=2).fit(X, Y)
        expected = answers(clf, X)
        loaded = pickle.loads(pickle.dumps(clf.set_params(**later)))
        with pytest.warns(UserWarning, match="fit again"):
            found = answers(loaded, X)
        assert_same(found, expected)


def test_weights_of_a_file_or_read_only_ones_are_borrowed(tmp_path):
    clf, _, _ = fitted(KINDS[0])
    assert not pickle.loads(pickle.dumps(clf))._weights_borrowed
    joblib.dump(clf, tmp_path / "saved")
    for mode in ("r", "r+", "c"):
        assert joblib.load(tmp_path / "saved", mmap_mode=mode)._weights_borrowed


# --- damage -----------------------------------------------------------------------------------


def spoilt(clf, **changes):
    """Load the state of a classifier with other weights, by their names with two underscores."""
    state = clf.__getstate__()
    weights = state["_net"]["weights"]
    for name, value in changes.items():
        weights[name.replace("__", ".")] = value
    made = object.__new__(type(clf))
    made.__setstate__({**state, "_net": {**state["_net"], "weights": weights}})
    return made


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"head__bias": np.zeros(3, np.float32)}, r"head\.bias of shape \(3,\), but its module \("),
        ({"head__weight": None}, r"head\.weight of shape None"),
        ({"head__bias": np.full(39, np.nan, np.float32)}, "numbers that are not finite"),
        ({"head__bias": np.zeros(39, np.int64)}, "of type int64"),
        ({"head__bias": np.zeros(39, np.float64)}, "have several types"),
        ({"head__more": np.zeros(3, np.float32)}, r"has head\.more, but its module has not"),
        ({"head__weight": {"shape": [50, 16]}}, "a rounded weight of shape"),
    ],
)
def test_other_weights_are_refused(changes, match):
    with pytest.raises(ValueError, match=match):
        spoilt(fitted_once(0)[0], **changes)


@pytest.mark.parametrize(
    "change",
    [lambda a: a.T.copy(), lambda a: a[1:], lambda a: a[..., None], lambda a: a.astype(complex)],
)
def test_other_label_embeddings_are_refused(change):
    X, Y = make_learnable(True)
    clf = quick("bags", max_epochs=1).fit(X.toarray(), Y)
    vectors = clf.__getstate__()["_net"]["weights"]["head.label_embeddings"]
    with pytest.raises(ValueError, match="label_embeddings of"):
        spoilt(clf, head__label_embeddings=change(vectors))


def test_lost_label_embeddings_are_refused():
    X, Y = make_learnable(True)
    state = quick("bags", max_epochs=1).fit(X.toarray(), Y).__getstate__()
    del state["_net"]["weights"]["head.label_embeddings"]
    with pytest.raises(ValueError, match="it lacks label_embeddings"):
        object.__new__(MIMLClassifier).__setstate__(state)


@functools.cache
def with_ranker():
    X, Y = make_learnable(True)
    ranker = BoostedRanker([("near", NearestSamples()), ("together", CooccurringLabels())])
    clf = quick("flat", max_epochs=1, ranker=ranker, encoder=MLP((8,))).fit(X, Y)
    clf.predict_topk(X, k=3)  # makes the index
    return clf


def shorter(matrix):
    return matrix[:-1]


def with_nan(array):
    array = array.copy()
    array.reshape(-1)[:1] = np.nan
    return array


#: Where in a classifier with a ranker, what is there instead, and what is said.
HOSTILE = [
    ("ranker_.trees_[leaves]", with_nan, "NaN"),
    ("ranker_.trees_[leaves]", lambda a: a.astype(">f4"), "do not fit"),
    ("ranker_.trees_[leaves]", shorter, "another shape"),
    ("ranker_.trees_[leaves]", lambda a: np.tile(a, 99), "do not fit"),
    ("ranker_.trees_[baseline]", lambda a: "x", "do not fit"),
    ("ranker_.trees_[masks]", shorter, "do not fit"),
    ("ranker_.trees_[masks]", lambda m: [each.astype("f4") for each in m], "another shape"),
    ("ranker_.trees_[thresholds]", lambda t: [each[None] for each in t], "do not fit"),
    ("ranker_.memory_[weights]", lambda a: np.full(3, 2.0), "weights of shape"),
    ("ranker_.memory_[weights]", lambda a: a * np.inf, "weights that are not finite"),
    ("ranker_.memory_[samples][ids]", shorter, "ids of shape"),
    ("ranker_.memory_[samples][input]", shorter, "input of shape"),
    ("ranker_.memory_[samples][input]", lambda X: X * np.nan, "NaN"),
    ("ranker_.memory_[samples]", lambda samples: [], "no samples"),
    ("ranker_.memory_[labels]", lambda Y: Y[:, :-1], "log_counts_ of a saved ranker"),
    ("ranker_.memory_[labels]", lambda Y: 2 * Y, "zeros and ones"),
    ("ranker_.line_.slope_", lambda a: float("nan"), "not finite"),
    ("ranker_.calibration_.slope_", lambda a: float("inf"), "not finite"),
    ("ranker_.log_counts_", shorter, "log_counts_"),
    ("ranker_.propensities_", lambda a: a.astype("M8[s]"), "propensities_"),
    ("ranker_.n_seen_", lambda n: None, "n_seen_"),
    ("ranker_.n_candidates", lambda n: -1, "n_candidates"),
    ("ranker_.retrievers[0][1].alpha", lambda a: float("nan"), "alpha"),
    ("ranker_.retrievers_[0][1].labels_", lambda Y: Y[:, :-1], "other labels"),
    ("ranker_.retrievers_[0][1].index_[vectors]", lambda X: X * np.nan, "NaN"),
    ("ranker_.retrievers_[0][1].weights_", lambda w: np.full(99, np.nan), "NaN"),
    ("ranker_.retrievers_[1][1].shares_", lambda X: X[:, :-1], "other labels"),
    ("decision_.n_labels_", lambda n: 3, "other ones in its decision"),
    ("decision_.min_labels", lambda n: None, "min_labels"),
    ("decision_", lambda part: delattr, "decision_"),
    ("classes_", shorter, "39 labels|49 labels|labels, and other ones"),
    ("_code.positions", lambda p: np.zeros(len(with_ranker().classes_), int), "other ones"),
    ("_code.n_positions", lambda n: 10**6, "other ones"),
    ("ranker_.propensities_", lambda a: -a, "propensities_"),
    ("ranker_.trees_[leaves]", lambda a: np.full(a.shape, 1e38), "do not fit"),
    ("_code.form", lambda form: True, "form of its labels"),
    ("_code.form", lambda form: "list of dict", "form of its labels"),
    ("_code.form", lambda form: "os of set", "form of its labels"),
]


@pytest.mark.parametrize("where, change, match", HOSTILE, ids=[each[0] for each in HOSTILE])
def test_what_a_ranker_or_code_may_not_hold_is_refused(where, change, match):
    clf = copy.deepcopy(with_ranker())
    clf.ranker_.n_indexed_ -= "retrievers_[" in where  # else they are fitted again
    owner, *rest, last = [clf, *re.findall(r"[^.\[\]]+", where)]
    for name in rest:
        owner = _item(owner, name) if not hasattr(owner, name) else getattr(owner, name)
    if where == "decision_":
        del clf.decision_
    elif isinstance(owner, dict):
        owner[last] = change(owner[last])
    else:
        setattr(owner, last, change(getattr(owner, last)))
    dumped = pickle.dumps(clf)
    with pytest.raises(ValueError, match=match):
        pickle.loads(dumped)


def test_a_buffer_that_is_not_a_number_is_refused():
    X, y = make_learnable(False)
    clf = quick("flat", max_epochs=1).fit(X.toarray(), y)
    scale = clf.__getstate__()["_net"]["weights"]["encoder.input.scale"]
    infinite = np.full_like(scale, np.inf)
    for changed in (with_nan(scale), infinite):  # only masks of the user's modules have infinities
        with pytest.raises(ValueError, match="encoder.input.scale with numbers that are not fini"):
            spoilt(clf, encoder__input__scale=changed)


def test_a_ranker_that_only_remembers_is_copied():
    ranker = BoostedRanker().remember({"input": np.eye(4)}, np.eye(4, dtype=int))
    assert pickle.loads(pickle.dumps(ranker)).memory_["labels"].shape == (4, 4)


def _item(owner, name):
    return owner[int(name) if name.isdigit() else name]


def test_another_format_or_no_network_is_refused():
    clf, _, _ = fitted(KINDS[0])
    state = clf.__getstate__()
    with pytest.raises(ValueError, match="has format 4; this version of sklearn_xlc reads 8"):
        clf.__setstate__({**state, "_net": {**state["_net"], "format": 4}})
    del state["_net"]
    with pytest.raises(ValueError, match="it is fitted, and its network is missing"):
        clf.__setstate__(state)


def test_sparse_matrices_with_wrong_indices_are_refused():
    X, _ = make_extreme_multiclass(100, 20, 5, random_state=0)
    check_loaded({"a": [X, np.array([X, None], dtype=object)]})
    for form in ("csr", "csc", "bsr", "coo"):
        broken = X.asformat(form, copy=True)
        (broken.col if form == "coo" else broken.indices)[3] = 10**6
        with pytest.raises(ValueError, match="a saved matrix is not a valid"):
            check_loaded({"a": [broken]})


def test_trees_with_wrong_children_features_or_categories_are_refused():
    numbers = np.random.default_rng(0).normal(size=(200, 3))
    forest = HistGradientBoostingClassifier(max_iter=2).fit(numbers, numbers[:, 0] > 0)
    check_loaded(forest)
    predictor = forest._predictors[0][0]
    whole = predictor.nodes.copy()
    for name, value, match in (
        ("left", 0, "children"),
        ("right", 0, "children"),
        ("right", 10**6, "children"),
        ("feature_idx", -1, "features beyond the 3"),
        ("feature_idx", 3, "features beyond the 3"),
        ("is_categorical", 1, "categories"),
    ):
        predictor.nodes = whole.copy()
        predictor.nodes[name][0] = value
        with pytest.raises(ValueError, match=f"a tree .*{match}"):
            check_loaded(forest)
    predictor.nodes = whole[:0]
    with pytest.raises(ValueError, match="a tree has no node"):
        check_loaded(forest)


def test_categories_beyond_those_of_a_tree_are_refused():
    numbers = np.random.default_rng(0).integers(9, size=(300, 2))
    forest = HistGradientBoostingClassifier(max_iter=2, categorical_features=[0])
    check_loaded(forest.fit(numbers, numbers[:, 0] % 2))
    predictor = forest._predictors[0][0]
    assert predictor.nodes["is_categorical"].any()
    predictor.raw_left_cat_bitsets = predictor.raw_left_cat_bitsets[:0]
    with pytest.raises(ValueError, match="categories that it does not hold"):
        check_loaded(forest)


def split_by(tree, feature):
    """Let all splits of a tree of scikit-learn be by a feature far beyond those it has learnt."""
    made, state = Tree(2 * feature, tree.tree_.n_classes, 1), tree.tree_.__getstate__()
    state["nodes"]["feature"][state["nodes"]["left_child"] >= 0] = feature
    made.__setstate__(state)
    tree.tree_ = made


@pytest.mark.parametrize(
    "forest",
    [
        DecisionTreeClassifier(),
        ExtraTreesClassifier(2),
        RandomForestClassifier(2),
        GradientBoostingClassifier(n_estimators=2),
        IsolationForest(n_estimators=2),
        BaggingClassifier(n_estimators=2, max_features=0.7),
    ],
    ids=lambda forest: type(forest).__name__,
)
def test_trees_of_more_columns_than_their_forest_are_refused(forest):
    X, y = make_extreme_multiclass(200, 6, 2, random_state=0)
    check_loaded(forest.fit(X.toarray(), y))
    for tree in np.ravel(getattr(forest, "estimators_", forest)):
        split_by(tree, 10**6)
        if tree is not forest:
            tree.n_features_in_ = 2 * 10**6
    with pytest.raises(ValueError, match="a tree splits by features beyond the 6"):
        check_loaded(forest)


def test_trees_within_a_stack_or_chain_have_more_columns():
    X, y = make_extreme_multiclass(200, 6, 3, random_state=0)
    tree = DecisionTreeClassifier()
    stack = StackingClassifier([(f"{i}", tree) for i in range(3)], tree).fit(X.toarray(), y)
    assert stack.final_estimator_.tree_.n_features > 6
    check_loaded(stack)
    chain = ClassifierChain(tree).fit(X.toarray(), np.stack([y == 0, y == 1], axis=1))
    assert chain.estimators_[1].tree_.n_features > 6
    check_loaded(chain)


def test_vocabularies_with_other_columns_are_refused():
    for vectorizer, samples in (
        (TfidfVectorizer(), ["salt water", "wild water"]),
        (DictVectorizer(), [{"salt": 1}, {"wild": 1, "water": 2}]),
    ):
        check_loaded({"a": vectorizer.fit(samples)})
        for column in (10**6, -1, 0):
            vectorizer.vocabulary_["wild"] = column
            with pytest.raises(ValueError, match="vocabulary of 3 words has other columns"):
                check_loaded({"a": vectorizer})
    for vectorizer in (HashingVectorizer(), FeatureHasher()):
        check_loaded(vectorizer)
        with pytest.raises(ValueError, match="n_features"):
            check_loaded(vectorizer.set_params(n_features=0))


def test_mapped_weights_are_not_read_at_load(tmp_path, monkeypatch):
    clf, _, _ = fitted(KINDS[0])
    joblib.dump(clf, tmp_path / "clf")
    read = []
    monkeypatch.setattr(state.np, "isfinite", lambda array: read.append(array) or np.bool_(True))
    joblib.load(tmp_path / "clf", mmap_mode="r")
    assert not any(isinstance(array, np.memmap) for array in read)


def test_a_state_of_another_version_is_loaded_with_a_warning(monkeypatch):
    clf, X, _ = fitted(KINDS[0])
    monkeypatch.setattr(state, "versions", lambda: {"sklearn_xlc": "0.0.1"})
    dumped = pickle.dumps(clf)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match="Classifier was written with sklearn_xlc 0.0.1"):
        loaded = pickle.loads(dumped)
    assert_same(answers(loaded, X), answers(clf, X))


@pytest.mark.parametrize("value", [None, 3, "x", [], {}, 2.5, np.zeros(3), {"a": "x"}, [None]])
def test_a_state_that_lacks_something_or_holds_something_else_is_refused_by_a_value_error(value):
    clf = with_ranker()
    for owner in (clf, clf._code, clf.ranker_, clf.ranker_.retrievers_[0][1], clf.decision_):
        state = owner.__getstate__()
        for name in state:
            others = {other: state[other] for other in state if other != name}
            for changed in (others, others | {name: value}):
                with contextlib.suppress(ValueError):
                    object.__new__(type(owner)).__setstate__(copy.deepcopy(changed))


@pytest.mark.parametrize("value", [None, 3, "x", [], {}])
def test_a_network_that_lacks_something_or_holds_something_else_is_refused(value):
    state = with_ranker().__getstate__()
    for owner in ((), ("head",), ("learnt",), ("weights",)):
        for name in functools.reduce(dict.__getitem__, owner, state["_net"]):
            for changes in (dict.pop, lambda part, name: part.update({name: value})):
                changed = copy.deepcopy(state)
                changes(functools.reduce(dict.__getitem__, owner, changed["_net"]), name)
                with contextlib.suppress(ValueError):
                    object.__new__(MultiHeadClassifier).__setstate__(changed)


def test_a_state_without_a_parameter_is_refused():
    X, groups, labels = make_groups(0)
    eagle = EAGLETransformer().fit(X, labels, groups=groups)
    for owner in (with_ranker(), MLP((8,)), with_ranker().ranker_, with_ranker().decision_, eagle):
        state = owner.__getstate__()
        for name in owner.get_params(deep=False):
            without = {other: value for other, value in state.items() if other != name}
            with pytest.raises(ValueError, match=f"{type(owner).__name__} is damaged: it lacks"):
                object.__new__(type(owner)).__setstate__(without)


def test_settings_that_contradict_the_parts_are_refused():
    state = with_ranker().__getstate__()
    for name, other in (("head", "cascade"), ("encoder", "text")):
        changed = state | {"settings_": state["settings_"] | {name: other}}
        with pytest.raises(ValueError, match=f"its settings name another {name}"):
            object.__new__(MultiHeadClassifier).__setstate__(changed)
