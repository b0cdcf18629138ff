"""Saved without pickle: whatever fits comes back, to the last bit, and nothing else is loaded."""

import copy
import functools
import json
import os
import pickle
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import InconsistentVersionWarning, NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest, chi2
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from skorch.callbacks import EarlyStopping
from torch import nn

from _factories import EVERY, make_groups, make_learnable, quick
from sklearn_xlc import (
    AggregatedLabelClassifier,
    EAGLETransformer,
    MIMLClassifier,
    MultiHeadClassifier,
    _files,
    compress,
    load,
    save,
)
from sklearn_xlc.decisions import Threshold
from sklearn_xlc.encoders import MLP, Text
from sklearn_xlc.engine import packing
from sklearn_xlc.heads import Cascade, FlatHead
from sklearn_xlc.heads.losses import FocalLoss
from sklearn_xlc.metrics import topk_scorer

QUICK = {"encoder": MLP((8,)), "max_epochs": 2, "random_state": 0}
TEXTS = ["a body of salt water", "an animal that barks", "a stream of water"] * 8
KINDS = np.array(["water", "animal", "water"] * 8)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.xlc"


@pytest.fixture
def again(path, monkeypatch):
    """Save exactly and load, in a process that has no pickle."""

    def never(*args, **kwargs):
        raise AssertionError("pickle was used")

    def save_and_load(estimator, **params):
        with monkeypatch.context() as patched:
            for name in ("Pickler", "Unpickler", "dump", "dumps", "load", "loads"):
                patched.setattr(pickle, name, never)
            save(estimator, path, storage="float32")
            return load(path, **params)

    return save_and_load


def answers(estimator, X):
    methods = ("predict", "decision_function", "predict_proba", "transform")
    found = [getattr(estimator, name)(X) for name in methods if hasattr(estimator, name)]
    if hasattr(estimator, "predict_topk"):
        found.append(estimator.predict_topk(X, k=2))
    flat = [
        part for answer in found for part in (answer if isinstance(answer, tuple) else [answer])
    ]
    return [part.toarray() if sp.issparse(part) else part for part in flat]


def assert_same(first, second):
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


# --- round trips ------------------------------------------------------------------------------


@pytest.mark.parametrize("name, multilabel", EVERY)
def test_every_classifier_comes_back_to_the_bit_and_goes_on(name, multilabel, again):
    X, y = make_learnable(multilabel)
    clf = quick(name, max_epochs=2).fit(X, y)
    loaded = again(clf)
    assert_same(answers(loaded, X), answers(clf, X))
    assert vars(loaded).keys() == vars(clf).keys()
    assert loaded._code.classes is loaded.classes_
    assert loaded.loss_curve_ == clf.loss_curve_
    assert_same(answers(loaded.partial_fit(X, y), X), answers(clf.partial_fit(X, y), X))


NETWORK = MultiHeadClassifier(**QUICK)
TFIDF = TfidfVectorizer(dtype=np.float32)
SEARCHED = {"multiheadclassifier__learning_rate": [0.1, 0.01]}
PIPELINE = make_pipeline(TFIDF, NETWORK)
ESTIMATORS = {
    "pipeline": PIPELINE,
    "long-pipeline": make_pipeline(
        *(
            TFIDF,
            TruncatedSVD(2, random_state=0),
            StandardScaler(),
            FunctionTransformer(np.tanh),
            NETWORK,
        )
    ),
    "search": GridSearchCV(PIPELINE, SEARCHED, cv=2, scoring=topk_scorer("recall", k=1)),
    "chosen-words": make_pipeline(CountVectorizer(), SelectKBest(chi2, k=3), NETWORK),
    "voting": make_pipeline(
        TFIDF, VotingClassifier([("one", NETWORK), ("other", LogisticRegression())], voting="soft")
    ),
    "calibrated": make_pipeline(TFIDF, CalibratedClassifierCV(NETWORK, cv=2)),
    "one-vs-rest": make_pipeline(TFIDF, OneVsRestClassifier(LogisticRegression())),
    "text-encoder": MultiHeadClassifier(
        **{**QUICK, "encoder": Text(n_buckets=64, hidden_layer_sizes=(8,))}
    ),
    "random-state": make_pipeline(
        TFIDF, MultiHeadClassifier(**{**QUICK, "random_state": np.random.RandomState(3)})
    ),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_around_a_network_come_back(name, again):
    estimator = ESTIMATORS[name].fit(TEXTS, KINDS)
    loaded = again(estimator)
    assert_same(answers(loaded, TEXTS), answers(estimator, TEXTS))
    assert loaded.get_params().keys() == estimator.get_params().keys()
    assert_same(
        answers(loaded.fit(TEXTS, KINDS), TEXTS), answers(estimator.fit(TEXTS, KINDS), TEXTS)
    )


def test_a_frozen_estimator_comes_back(again):
    fitted = PIPELINE.fit(TEXTS, KINDS)
    assert_same(answers(again(FrozenEstimator(fitted)), TEXTS), answers(fitted, TEXTS))


def test_an_unfitted_estimator_comes_back(again):
    parts = {"loss": FocalLoss(gamma=1.0), "decision": Threshold("tuned")}
    for head in (Cascade(beam_width=3), FlatHead, None):
        estimator = MIMLClassifier() if head is None else MultiHeadClassifier(head, **parts)
        loaded = again(estimator)
        assert repr(loaded) == repr(estimator)
        assert vars(loaded).keys() == vars(estimator).keys()


@pytest.mark.parametrize("labels", [str, object, np.int8, "datetime64[D]"])
def test_labels_of_any_type_and_names_of_columns_come_back(labels, again):
    X, y = make_learnable(False)
    frame = pd.DataFrame(X.toarray()).rename(columns="column {}".format)
    y = y.astype("datetime64[D]") if labels == "datetime64[D]" else y.astype(str).astype(labels)
    clf = MultiHeadClassifier(**QUICK).fit(frame, y)
    loaded = again(clf)
    assert_same(answers(loaded, frame), answers(clf, frame))
    assert loaded.classes_.dtype == clf.classes_.dtype
    np.testing.assert_array_equal(loaded.feature_names_in_, clf.feature_names_in_)


@pytest.mark.parametrize("inner", [None, NETWORK])
def test_labels_of_groups_come_back(inner, again, routing):
    X, groups, labels = make_groups(0)
    if inner is None:
        estimator = EAGLETransformer()
    else:
        inner = MultiHeadClassifier(**QUICK).set_fit_request(sample_weight=True)
        estimator = AggregatedLabelClassifier(inner).set_fit_request(groups=True)
    estimator.fit(X, labels, groups=groups)
    assert_same(answers(again(estimator), X), answers(estimator, X))


def test_a_module_that_was_given_comes_back(again):
    X, y = make_learnable(False)
    encoder = nn.Sequential(nn.Linear(60, 8), nn.ReLU(), nn.BatchNorm1d(8))
    clf = MultiHeadClassifier(**{**QUICK, "encoder": encoder}).fit(X.toarray(), y)
    loaded = again(clf)
    assert_same(answers(loaded, X), answers(clf, X))
    assert torch.equal(loaded.encoder[0].weight, encoder[0].weight)


def test_modes_of_the_caller_do_not_matter(path):
    X, y = make_learnable(False)
    clf = quick("flat", max_epochs=2).fit(X, y)
    save(clf, path, storage="float32")
    with torch.inference_mode(), torch.device("meta"):
        loaded = load(path)
    assert_same(answers(loaded, X), answers(clf, X))
    assert_same(answers(loaded.partial_fit(X, y), X), answers(clf.partial_fit(X, y), X))


def test_a_file_holds_parameters_once(path):
    X = sp.random(50, 5000, 0.01, format="csr", dtype=np.float32, random_state=0)
    clf = MultiHeadClassifier(**QUICK).partial_fit(X, np.arange(50), classes=np.arange(20_000))
    save(clf, path, storage="float32")
    bound = 1.1 * 4 * clf.n_parameters_ + clf.classes_.nbytes + 20_000
    assert 4 * clf.n_parameters_ < path.stat().st_size < bound
    assert not any(np.shares_memory(x, load(path).classes_) for x in [clf.classes_])


def test_save_replaces_and_leaves_what_is_mapped(path):
    X, y = make_learnable(False)
    first, second = (quick("flat", max_epochs=n).fit(X, y) for n in (1, 2))
    save(first, path, "float32")
    old = np.memmap(path, mode="r")
    before = old.tobytes()
    save(second, path, "float32")
    assert old.tobytes() == before
    assert_same(answers(load(path), X), answers(second, X))


# --- mapped -----------------------------------------------------------------------------------


def weights_in_map(model, path):
    """For each weight, whether it lies in the map of a file."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    maps = [[int(end, 16) for end in line[0].split("-")] for line in lines if line[-1] == str(path)]
    places = [parameter.data_ptr() for parameter in model.net_.module_.parameters()]
    return [any(start <= place < end for start, end in maps) for place in places]


def assert_close(first, second):
    """Equal but for the last digits, which depend on where in memory the factors lie."""
    for one, other in zip(first, second, strict=True):
        assert one.dtype == other.dtype
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("storage", ["float32", "int6"])
@pytest.mark.parametrize("name, multilabel", [("flat", True), ("cascade", False), ("dft", True)])
def test_a_mapped_model_answers_and_goes_on(name, multilabel, storage, path):
    X, y = make_learnable(multilabel)
    save(quick(name, max_epochs=2).fit(X, y), path, storage=storage)
    before = path.read_bytes()
    mapped, read = load(path, mmap=True), load(path)
    assert_close(answers(mapped, X), answers(read, X))
    assert_close(answers(mapped.partial_fit(X, y), X), answers(read.partial_fit(X, y), X))
    assert path.read_bytes() == before
    save(mapped, path)  # while it is mapped
    assert_same(answers(load(path), X), answers(compress(mapped), X))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_around_a_network_are_mapped(name, path):
    fitted = clone(ESTIMATORS[name]).fit(TEXTS, KINDS)
    save(fitted, path, storage="float32")
    assert_close(answers(load(path, mmap=True), TEXTS), answers(fitted, TEXTS))


def test_tensors_beside_the_weights_of_a_mapped_model_are_copied(path):
    save(MultiHeadClassifier(encoder=nn.Linear(3, 4)), path)
    parameter = load(path, mmap=True).encoder.weight
    with torch.no_grad():
        parameter += 1  # would end the process if it lay in the map


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="maps are read from /proc")
@pytest.mark.parametrize("name, multilabel", [("flat", True), ("cascade", False)])
def test_weights_of_a_mapped_model_stay_in_the_file(name, multilabel, path):
    X, y = make_learnable(multilabel)
    save(quick(name).fit(X, y), path, storage="float32")
    mapped = load(path, mmap=True)
    answers(mapped, X)
    assert all(weights_in_map(mapped, path))
    assert not any(weights_in_map(mapped.partial_fit(X, y), path))


def test_mmap_must_be_a_bool(path):
    save(NETWORK, path)
    with pytest.raises(TypeError, match="mmap must be a bool, got 'r'"):
        load(path, mmap="r")


# --- rounded ----------------------------------------------------------------------------------


#: The other classifiers are slow tests.
SOME = [("flat", True), ("cascade", False), ("dft", True)]


@pytest.fixture
def rounds_small(monkeypatch):
    """Round weights of any size, those of quick networks too."""
    monkeypatch.setattr(packing, "SMALL", 1)


def joblib_again(estimator, path):
    joblib.dump(estimator, path)
    return joblib.load(path)


@pytest.mark.usefixtures("rounds_small")
@pytest.mark.parametrize(
    "name, multilabel",
    [pytest.param(*case, marks=[] if case in SOME else pytest.mark.slow) for case in EVERY],
)
def test_every_compressed_classifier_answers_alike_wherever_it_is_stored(name, multilabel, path):
    X, y = make_learnable(multilabel)
    clf = quick(name, max_epochs=2, warm_start=True).fit(X, y)
    before = answers(clf, X)
    small = compress(clf, "int4")
    expected = answers(small, X)
    assert not np.array_equal(expected[1], before[1])
    assert_same(answers(clf, X), before)
    save(clf, path, "int4")
    assert_same(answers(load(path), X), expected)
    save(small, path)  # it stays at four bits
    assert_same(answers(load(path), X), expected)
    for copied in (joblib_again(small, path), copy.copy(small), copy.deepcopy(small)):
        assert_same(answers(copied, X), expected)
    assert vars(small).keys() == vars(clf).keys()
    assert repr(clone(small)) == repr(clone(clf))
    assert not hasattr(clone(small), "net_")
    for going_on in (joblib_again(small, path), load_of(small, path), small):
        trained = answers(going_on.partial_fit(X, y), X)
        assert not np.array_equal(trained[1], expected[1])
        assert_same(answers(joblib_again(going_on, path), X), trained)  # exact again
    assert_same(answers(small.fit(X, y), X), answers(joblib_again(small, path), X))


def load_of(estimator, path):
    save(estimator, path)
    return load(path)


@pytest.mark.usefixtures("rounds_small")
@pytest.mark.parametrize("name", ["pipeline", "search", "text-encoder"])
def test_networks_within_other_estimators_are_compressed(name, path):
    estimator = ESTIMATORS[name].fit(TEXTS, KINDS)
    before = answers(estimator, TEXTS)
    small = compress(estimator, "int4")
    expected = answers(small, TEXTS)
    assert not np.array_equal(expected[-1], before[-1])
    assert_same(answers(estimator, TEXTS), before)
    save(estimator, path, "int4")
    assert_same(answers(load(path), TEXTS), expected)
    assert_same(answers(joblib_again(small, path), TEXTS), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_compressed_model_is_as_small_in_every_file(dtype, path):
    X = sp.random(500, 2000, 0.01, format="csr", dtype=dtype, random_state=0)
    params = {"encoder": MLP((256,)), "max_epochs": 1, "random_state": 0}
    clf = MultiHeadClassifier("flat", **params).fit(X, np.arange(500))
    exact = np.dtype(dtype).itemsize * clf.n_parameters_
    for storage, n_bytes in {"float16": 2, "int8": 1, "int6": 0.75, "int4": 0.5}.items():
        small = compress(clf, storage)
        assert small.decision_function(X).dtype == dtype
        sizes = [len(pickle.dumps(small))]
        for write in (joblib.dump, functools.partial(save, storage=storage)):
            write(clf if write is not joblib.dump else small, path)
            sizes.append(path.stat().st_size)
        bound = 1.07 * n_bytes * clf.n_parameters_ + 40_000
        assert n_bytes * clf.n_parameters_ < min(sizes) < max(sizes) < bound
    for write in (joblib.dump, functools.partial(save, storage="float32")):
        write(clf, path)
        assert exact < path.stat().st_size < exact + 60_000


@pytest.mark.usefixtures("rounds_small")
@pytest.mark.parametrize("mode", [None, "r", "c"])
def test_a_mapped_compressed_model_predicts_and_goes_on(mode, path):
    X, y = make_learnable(False)
    small = compress(quick("cascade", max_epochs=2).fit(X, y))
    joblib.dump(small, path)
    loaded = joblib.load(path, mmap_mode=mode)
    assert_same(answers(loaded, X), answers(small, X))
    assert_same(answers(loaded.partial_fit(X, y), X), answers(small.partial_fit(X, y), X))


def test_models_have_the_first_format_that_holds_them():
    """Earlier versions read what they can, and refuse the others by their formats."""
    X, y = make_learnable(False)
    clf = MultiHeadClassifier("flat", encoder=MLP((256,)), max_epochs=1).fit(X, y)
    saved = clf._full_state()["_saved_module"]
    assert saved["version"] == 1
    assert all(type(weight) is np.ndarray for weight in saved["weights"].values())
    for storage, version in {"float32": 1, "float16": 2, "int8": 2, "int6": 3, "int4": 2}.items():
        assert compress(clf, storage)._full_state()["_saved_module"]["version"] == version


def test_what_cannot_be_compressed_is_refused(path):
    X, y = make_learnable(False)
    clf = MultiHeadClassifier("flat", encoder=MLP((256,)), max_epochs=1).fit(X, y)
    for thing in (3, MultiHeadClassifier, [clf]):
        with pytest.raises(TypeError, match="compress takes an estimator"):
            compress(thing)
    for unfitted in (MultiHeadClassifier(), clone(PIPELINE)):
        with pytest.raises(NotFittedError):
            compress(unfitted)
    for call in (compress, functools.partial(save, path=path)):
        with pytest.raises(ValueError, match="storage must be one of .*, got 'int2'"):
            call(clf, storage="int2")
    with torch.no_grad():
        clf.net_.module_.encoder.input.weight[3, 4] = torch.nan
    for call in (compress, functools.partial(save, path=path)):
        with pytest.raises(ValueError, match=r"encoder\.input\.weight holds .* use storage='floa"):
            call(clf)
    assert not path.exists()
    assert_same([weights_of(load_exactly(clf, path))], [weights_of(clf)])


def load_exactly(estimator, path):
    save(estimator, path, "float32")
    return load(path)


def weights_of(clf):
    return clf.net_.module_.encoder.input.weight.detach().numpy()


# --- trust ------------------------------------------------------------------------------------


class OwnEncoder(nn.Module):
    def __init__(self, n_features=60):
        super().__init__()
        self.layer = nn.Linear(n_features, 8)

    def forward(self, x):
        return self.layer(x).relu()


class OwnDecision(Threshold):
    pass


class OwnTokenizer:
    def __init__(self, lower):
        self.lower = lower

    def __call__(self, text):
        return (text.lower() if self.lower else text).split()


def test_classes_of_the_user_need_trust(path):
    X, Y = make_learnable(True)
    clf = MultiHeadClassifier(decision=OwnDecision(), **{**QUICK, "encoder": OwnEncoder()}).fit(
        X, Y
    )
    save(clf, path, storage="float32")
    names = [f"{__name__}.OwnDecision", f"{__name__}.OwnEncoder"]
    for trusted in ((), [OwnEncoder], ["another.OwnDecision"]):
        with pytest.raises(ValueError, match=r"cannot read .*model\.xlc: it uses .*OwnDecision"):
            load(path, trusted=trusted)
    for trusted in ([OwnEncoder, OwnDecision], names):
        assert_same(answers(load(path, trusted=trusted), X), answers(clf, X))


def test_an_object_of_the_user_needs_trust(again):
    encoder = Text(64, hidden_layer_sizes=(8,), tokenizer=OwnTokenizer(True))
    clf = MultiHeadClassifier(**{**QUICK, "encoder": encoder}).fit(TEXTS, KINDS)
    assert_same(answers(again(clf, trusted=[OwnTokenizer]), TEXTS), answers(clf, TEXTS))
    with pytest.raises(ValueError, match="OwnTokenizer"):
        again(clf)


def test_what_cannot_be_saved_is_refused_with_its_place(path):
    X, y = make_learnable(False)
    tree = make_pipeline(StandardScaler(), DecisionTreeClassifier()).fit(X.toarray(), y)
    clf = MultiHeadClassifier(**{**QUICK, "encoder": lambda n: nn.Linear(n, 4)}).fit(X, y)
    encoder = nn.Sequential(nn.Linear(60, 8), nn.Sequential(OwnEncoder(8)))
    encoder[1][0].activation = lambda x: x
    deep = MultiHeadClassifier(**{**QUICK, "encoder": encoder}).fit(X, y)
    deep.encoder = "auto"
    for estimator, match in (
        (tree, r"estimator\.steps\[1\]\[1\]\.tree_: a sklearn\.tree\._tree\.Tree cannot be"),
        (clf, r"estimator\.encoder: the function .*<lambda> cannot be found again .* use `def`"),
        (deep, r"estimator\.net_\.module_\.encoder\.1\.0\.activation: .* cannot be found again"),
    ):
        with pytest.raises(TypeError, match=match):
            save(estimator, path)
    for thing in (3, MultiHeadClassifier, [clf]):
        with pytest.raises(TypeError, match="save takes an estimator"):
            save(thing, path)
    assert not path.exists()


# --- what is no model, or a damaged one -------------------------------------------------------


def test_other_files_are_refused(path):
    clf = MultiHeadClassifier()
    joblib.dump(clf, path)
    with pytest.raises(ValueError, match="no file of sklearn_xlc"):
        load(path)
    _files.write(path, {}, {}, kind="checkpoint")
    with pytest.raises(ValueError, match="it is a checkpoint of sklearn_xlc, not a model"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(path.with_name("none"))


@pytest.mark.parametrize(
    "root",
    [
        3,
        {"is": "list", "items": []},
        {"is": "object", "class": "os.system", "state": {}},
        {"is": []},
    ],
    ids=repr,
)
def test_a_description_of_something_else_is_refused(path, root):
    _files.write(path, {"root": root, "names": []}, {}, kind="model")
    with pytest.raises(ValueError, match=r"cannot read .*model\.xlc: it"):
        load(path)


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "joblib.numpy_pickle.load"])
def test_a_file_runs_nothing(path, name):
    root = {"is": "partial", "func": {"is": "name", "name": name}, "args": ["x"], "keywords": {}}
    _files.write(path, {"root": root, "names": [name]}, {}, kind="model")
    with pytest.raises(ValueError, match=f"it uses {name}, which is not part of"):
        load(path)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("bomb",)


def test_a_net_of_skorch_within_a_file_is_not_unpickled(path, monkeypatch):
    """Its `__setstate__` would unpickle an array of the file."""
    monkeypatch.chdir(path.parent)
    state = {
        "device": "cpu",
        "torch_load_kwargs": {"is": "dict", "items": {"weights_only": False}},
        "__cuda_dependent_attributes__": {"is": "array", "array": "bytes"},
    }
    name = "sklearn_xlc.training.net.XLCNet"
    root = {"is": "object", "class": name, "state": state}
    pickled = {"bytes": np.frombuffer(pickle.dumps(Bomb()), np.uint8)}
    _files.write(path, {"root": root, "names": [name]}, pickled, kind="model")
    with pytest.raises(ValueError, match=f"it uses {name}, which is not part of"):
        load(path)
    assert not path.with_name("bomb").exists()


def test_a_missing_weight_or_another_shape_is_refused(path):
    X, y = make_learnable(False)
    save(quick("flat", max_epochs=1).fit(X, y), path)
    document, arrays = _files.read(path, kind="model")
    name = next(name for name in arrays if "bias" in name)
    _files.write(path, document, {**arrays, name: np.zeros(3, np.float32)}, kind="model")
    with pytest.raises(ValueError, match=r"has .*bias of shape \(3,\), but its module has"):
        load(path)


def damage(whole, rng):
    """A copy with one flipped bit, or the beginning."""
    if rng.random() < 0.25:
        return whole[: rng.integers(len(whole))]
    damaged = bytearray(whole)
    damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
    return damaged


def attack(path, write, read, n_trials):
    """Number of damaged files that load, and of those that then predict otherwise."""
    rng = np.random.default_rng(0)
    n_loaded = n_wrong = 0
    for name, multilabel in (("flat", True), ("cascade", False), ("etf", True)):
        X, y = make_learnable(multilabel)
        clf = quick(name, max_epochs=2).fit(X, y)
        write(clf, path)
        whole, expected = path.read_bytes(), answers(clf, X)
        for _ in range(n_trials):
            path.write_bytes(damage(whole, rng))
            try:
                loaded = read(path)
            except Exception:
                continue
            n_loaded += 1
            found = answers(loaded, X)
            same = all(np.array_equal(one, other) for one, other in zip(expected, found))
            n_wrong += not same or repr(loaded) != repr(clf)
    return n_loaded, n_wrong


@pytest.mark.parametrize("n_trials", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_no_damaged_file_loads(path, n_trials):
    exact = functools.partial(save, storage="float32")
    assert attack(path, exact, load, n_trials) == (0, 0)
    mapped = functools.partial(load, mmap=True)
    assert attack(path, exact, mapped, n_trials)[0] == 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n_trials", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_no_damaged_joblib_file_predicts_otherwise(path, n_trials):
    # Some bytes mean nothing: those that align arrays, and marks that pickle never reads.
    assert attack(path, joblib.dump, joblib.load, n_trials)[1] == 0


def test_another_version_of_scikit_learn_is_warned_of(path):
    save(PIPELINE.fit(TEXTS, KINDS), path)
    document, arrays = _files.read(path, kind="model")
    text = json.dumps(document)
    version = document["root"]["state"]["_sklearn_version"]
    document = json.loads(text.replace(json.dumps(version), '"0.1"'))
    _files.write(path, document, arrays, kind="model")
    with pytest.warns(InconsistentVersionWarning, match=r"from version 0\.1"):
        load(path)


def test_the_mode_of_the_file_is_that_of_open(path):
    save(BaseEstimator(), path)
    path.with_name("plain").touch()
    assert os.stat(path).st_mode == os.stat(path.with_name("plain")).st_mode


def test_callbacks_of_skorch_that_print_come_back_where_they_are_trusted(again):
    X, y = make_learnable(False)
    clf = MultiHeadClassifier(callbacks=[EarlyStopping(monitor="train_loss")], **QUICK).fit(X, y)
    assert again(clf, trusted=[EarlyStopping]).callbacks[0].sink is print
    with pytest.raises(ValueError, match=r"it uses skorch\.callbacks\.training\.EarlyStopping"):
        again(clf)


@pytest.mark.parametrize(
    "name", ["flat", "cascade", "ensemble", "product-groups", "dft", "etf-frame"]
)
def test_a_file_does_not_tell_what_the_model_has_done_since(tmp_path, name):
    """Nor whether it is a copy, or was loaded: equal models have equal files."""
    X, y = make_learnable(name in ("dft", "ensemble"))
    clf = quick(name, max_epochs=1).fit(X, y)

    def content(model):
        save(model, tmp_path / "model.xlc", storage="float32")
        return (tmp_path / "model.xlc").read_bytes()

    expected = content(clf)
    copied, loaded = copy.deepcopy(clf), load(tmp_path / "model.xlc")
    assert content(copied) == expected
    assert content(loaded) == expected
    clf.predict(X)
    assert content(clf) == expected
    assert content(pickle.loads(pickle.dumps(clf))) == expected
    assert content(clf.partial_fit(X, y)) != expected
