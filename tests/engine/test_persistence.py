"""A saved model: small, exact, mapped into memory where asked, and ready to go on."""

import copy
import hashlib
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from sklearn_xlc import MultiHeadClassifier, _files, save
from sklearn_xlc.datasets import make_extreme_multiclass
from sklearn_xlc.encoders import MLP
from sklearn_xlc.engine.persistence import _digest_of_rest, is_borrowed, load_module, save_module
from sklearn_xlc.heads import Cascade, Product, Sampling

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
    clf, X, _ = fitted(kind)
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
saved = [(sklearn_xlc.load(f"{sys.argv[1]}{i}"), *rest) for i, (_, *rest) in enumerate(models)]
for clf, X, expected in models + saved:
    labels, scores = clf.predict_topk(X, k=4)
    np.testing.assert_array_equal(clf.decision_function(X), expected[1])
    np.testing.assert_array_equal(labels, expected[2])
    np.testing.assert_array_equal(scores, expected[3])
    np.testing.assert_array_equal(clf.transform(X), expected[4])
"""


def test_round_trip_to_a_new_process(tmp_path):
    models = [(clf, X, answers(clf, X)) for clf, X, _ in map(fitted, KINDS)]
    joblib.dump(models, tmp_path / "models")
    for i, (clf, _, _) in enumerate(models):
        save(clf, tmp_path / f"models{i}", storage="float32")
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
    n_labels = 20_000
    X = sp.random(300, 5000, 0.01, format="csr", dtype=np.float32, random_state=0)
    y = np.r_[np.arange(n_labels), np.zeros(0, int)][-300:]
    clf = MultiHeadClassifier(**kind, encoder=MLP((64,)), max_epochs=1, warm_start=True)
    if multilabel:
        y = sp.csr_matrix((np.ones(300), y, np.arange(301)), shape=(300, n_labels))
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


@every_kind
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize("method", ["partial_fit", "fit"])
def test_a_mapped_model_predicts_and_goes_on_without_touching_its_file(
    kind, mode, method, tmp_path
):
    clf, X, y = fitted(kind, warm_start=True)
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


# --- modules ----------------------------------------------------------------------------------


class Odd(nn.Module):
    """Tied weights, a frozen one, buffers in and out of the state, a plain tensor."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        self.other.weight = self.one.weight
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("kept", torch.arange(3))
        self.register_buffer("hidden", torch.tensor(2.5), persistent=False)
        self.plain = torch.full((2,), 7.0)

    def forward(self, x):
        return self.other(self.one(x)) * self.hidden + self.kept + self.plain.sum()


def test_a_module_of_any_kind_comes_back():
    module = Odd()
    saved = save_module(module)
    assert set(saved["weights"]) == {
        "one.weight",
        "one.bias",
        "other.bias",
        "frozen",
        "kept",
        "hidden",
    }
    loaded = load_module(pickle.loads(pickle.dumps(saved)))
    x = torch.randn(5, 3)
    assert torch.equal(loaded(x), module(x))
    assert loaded.one.weight is loaded.other.weight
    assert not loaded.frozen.requires_grad
    assert loaded.one.weight.requires_grad
    assert not loaded.training
    assert module.training
    again = load_module(saved)
    assert again.one is not module.one


def test_weights_of_a_file_or_read_only_ones_are_borrowed(tmp_path):
    saved = save_module(nn.Linear(2, 2))
    assert not is_borrowed(saved)
    joblib.dump(saved, tmp_path / "saved")
    for mode in ("r", "r+", "c"):
        assert is_borrowed(joblib.load(tmp_path / "saved", mmap_mode=mode))
    saved["weights"]["bias"].flags.writeable = False
    assert is_borrowed(saved)


# --- damage -----------------------------------------------------------------------------------


def flipped_in(path, array, bit=3):
    """Flip a bit of an array within an uncompressed file."""
    content = bytearray(path.read_bytes())
    content[content.index(array.tobytes()) + array.nbytes // 2] ^= 1 << bit
    path.write_bytes(content)


@pytest.mark.parametrize("way", ["joblib", "pickle"])
@pytest.mark.parametrize("what", ["weight", "classes"])
def test_a_flipped_bit_is_found(way, what, tmp_path):
    clf, _, _ = fitted(KINDS[0])
    path = tmp_path / "clf"
    joblib.dump(clf, path) if way == "joblib" else path.write_bytes(pickle.dumps(clf))
    weight = clf.net_.module_.head.weight.detach().numpy()
    flipped_in(path, weight if what == "weight" else clf.classes_)
    name = "head.weight" if what == "weight" else "parameters or labels"
    with pytest.raises(ValueError, match=f"the saved classifier is damaged: .*{name} do not match"):
        joblib.load(path) if way == "joblib" else pickle.loads(path.read_bytes())


def test_mapped_weights_are_not_read_at_load(tmp_path):
    clf, _, _ = fitted(KINDS[0])
    joblib.dump(clf, tmp_path / "clf")
    flipped_in(tmp_path / "clf", clf.net_.module_.head.weight.detach().numpy())
    joblib.load(tmp_path / "clf", mmap_mode="r")


def test_a_copy_needs_no_checksums(monkeypatch):
    clf, X, _ = fitted(KINDS[0])

    def never(array):
        raise AssertionError("a checksum was computed")

    monkeypatch.setattr("sklearn_xlc.engine.persistence._checksum", never)
    assert_same(answers(copy.deepcopy(clf), X), answers(clf, X))
    copy.copy(clf)


@pytest.mark.parametrize("package", ["sklearn_xlc", "numpy"])
def test_a_file_of_another_version_is_loaded(package, monkeypatch):
    clf, X, _ = fitted(KINDS[0])
    other = {**_files.versions(), package: "0.0.1"}
    monkeypatch.setattr("sklearn_xlc.engine.persistence.versions", lambda: other)
    # Another version may describe the same state otherwise; weights are still compared.
    monkeypatch.setattr("sklearn_xlc.engine.persistence._digest_of_rest", lambda state: "")
    dumped = pickle.dumps(clf)
    monkeypatch.undo()
    if package == "numpy":
        assert_same(answers(pickle.loads(dumped), X), answers(clf, X))
    else:
        with pytest.warns(UserWarning, match="classifier was written with sklearn_xlc 0.0.1"):
            pickle.loads(dumped)


def test_a_file_without_checksums_is_loaded():
    clf, X, _ = fitted(KINDS[0])
    state = clf._full_state()
    loaded = MultiHeadClassifier()
    loaded.__setstate__(state)
    assert_same(answers(loaded, X), answers(clf, X))


class Recounted(nn.Module):
    """A module of the user's, whose attributes change when it is copied."""

    def __init__(self, n_features):
        super().__init__()
        self.layer, self.cache = nn.Linear(n_features, 4), lambda: 0

    def forward(self, x):
        return self.layer(x)

    def __getstate__(self):
        return {**vars(self), "cache": None}


def test_what_the_user_defines_is_compared_by_name_only(tmp_path):
    X, y = make_extreme_multiclass(50, 20, 5, random_state=0)
    clf = MultiHeadClassifier(encoder=Recounted, max_epochs=1).fit(X.toarray(), y)
    clf.note = lambda: 0
    state = clf._full_state()
    before = _digest_of_rest(state)
    assert before == _digest_of_rest({**state, "note": lambda: 1})
    assert before != _digest_of_rest({**state, "t_": 0})


@pytest.mark.parametrize("name", sorted(vars(nn.Module())))
def test_a_module_that_lost_an_attribute_of_every_module_is_seen(name):
    """A flipped bit can make the attribute another instruction of the pickle."""
    clf, _, _ = fitted(KINDS[0])
    state = clf._full_state()
    before = _digest_of_rest(state)
    layer = state["_saved_module"]["skeleton"].encoder.layers[0]
    whole = vars(layer).pop(name)
    assert _digest_of_rest(state) != before
    vars(layer)[name] = whole
    assert _digest_of_rest(state) == before
    if whole is not None:
        vars(layer)[name] = 5
        assert _digest_of_rest(state) != before


def test_a_format_of_the_future_is_refused():
    saved = {**save_module(nn.Linear(2, 2)), "version": 4}
    with pytest.raises(ValueError, match="saved model has format 4; .* 1 to 3; install the vers"):
        load_module(saved)
