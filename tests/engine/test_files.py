"""Saved without pickle: whatever fits comes back, to the last bit, and nothing else is loaded."""

import copy
import functools
import json
import os
import pickle
import time
import tracemalloc
import zipfile
from collections import OrderedDict
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import skops.io
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest, chi2
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, LeaveOneOut, RepeatedKFold, TimeSeriesSplit
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from skorch.callbacks import EarlyStopping
from torch import nn

from _factories import EVERY, make_groups, make_learnable, once, quick
from sklearn_xlc import (
    AggregatedLabelClassifier,
    EAGLETransformer,
    MIMLClassifier,
    MultiHeadClassifier,
    compress,
    load,
    save,
)
from sklearn_xlc.decisions import Threshold
from sklearn_xlc.encoders import MLP, Text
from sklearn_xlc.engine import files, memory, state
from sklearn_xlc.heads import Cascade, FlatHead
from sklearn_xlc.heads.losses import FocalLoss
from sklearn_xlc.metrics import label_set_scorer, topk_scorer

QUICK = {"encoder": MLP((8,)), "max_epochs": 2, "random_state": 0}
TEXTS = ["a body of salt water", "an animal that barks", "a stream of water"] * 8
KINDS = np.array(["water", "animal", "water"] * 8)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.skops"


@pytest.fixture
def again(path, monkeypatch):
    """Save exactly, and load by a process without pickle: by this package, and by skops alone."""

    def never(*args, **kwargs):
        raise AssertionError("pickle was used")

    def save_and_load(estimator, **params):
        with monkeypatch.context() as patched:
            for name in ("Pickler", "Unpickler", "dump", "dumps", "load", "loads"):
                patched.setattr(pickle, name, never)
            save(estimator, path, exact=True)
            skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path))
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


@pytest.mark.integration
@pytest.mark.parametrize("name, multilabel", once(EVERY))
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
    "search-by-default": GridSearchCV(PIPELINE, SEARCHED, cv=2),
    "search-by-name": GridSearchCV(PIPELINE, SEARCHED, cv=2, scoring="f1_macro"),
    "search-by-sets": GridSearchCV(PIPELINE, SEARCHED, cv=2, scoring=label_set_scorer()),
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


@pytest.mark.integration
@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_around_a_network_come_back(name, again):
    estimator = ESTIMATORS[name].fit(TEXTS, KINDS)
    loaded = again(estimator)
    assert_same(answers(loaded, TEXTS), answers(estimator, TEXTS))
    assert loaded.get_params().keys() == estimator.get_params().keys()
    assert_same(
        answers(loaded.fit(TEXTS, KINDS), TEXTS), answers(estimator.fit(TEXTS, KINDS), TEXTS)
    )


def test_a_model_that_reads_files_of_its_machine_is_refused(path):
    for words in (TfidfVectorizer(input="filename"), HashingVectorizer(input="file")):
        save(make_pipeline(words, NETWORK), path)
        with pytest.raises(ValueError, match="reads the files that samples name"):
            load(path)


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
        groups[groups.sum(axis=1) == 0, 0] = 1
    estimator.fit(X, labels, groups=groups)
    assert_same(answers(again(estimator), X), answers(estimator, X))


def test_a_module_that_was_given_goes_through_pickle_only(path):
    X, y = make_learnable(False)
    encoder = nn.Sequential(nn.Linear(60, 8), nn.ReLU(), nn.BatchNorm1d(8))
    clf = MultiHeadClassifier(**{**QUICK, "encoder": encoder}).fit(X.toarray(), y)
    with pytest.raises(TypeError, match="give an encoder as a class, a function or a part, or use"):
        save(clf, path)
    loaded = joblib_again(clf, path)
    assert_same(answers(loaded, X), answers(clf, X))
    assert torch.equal(loaded.encoder[0].weight, encoder[0].weight)


def test_modes_of_the_caller_do_not_matter(path):
    X, y = make_learnable(False)
    clf = quick("flat", max_epochs=2).fit(X, y)
    save(clf, path, exact=True)
    with torch.inference_mode(), torch.device("meta"):
        loaded = load(path)
    assert_same(answers(loaded, X), answers(clf, X))
    assert_same(answers(loaded.partial_fit(X, y), X), answers(clf.partial_fit(X, y), X))


def test_a_file_holds_parameters_once(path):
    X = sp.random(50, 5000, 0.01, format="csr", dtype=np.float32, random_state=0)
    clf = MultiHeadClassifier(**QUICK).partial_fit(X, np.arange(50), classes=np.arange(20_000))
    save(clf, path, exact=True)
    assert path.stat().st_size < 1.1 * 4 * clf.n_parameters_ + clf.classes_.nbytes + 20_000
    assert not any(np.shares_memory(x, load(path).classes_) for x in [clf.classes_])


def test_save_replaces_and_leaves_what_is_mapped(path):
    X, y = make_learnable(False)
    first, second = (quick("flat", max_epochs=n).fit(X, y) for n in (1, 2))
    save(first, path, exact=True)
    old = np.memmap(path, mode="r")
    before = old.tobytes()
    save(second, path, exact=True)
    assert old.tobytes() == before
    assert_same(answers(load(path), X), answers(second, X))


# --- mapped -----------------------------------------------------------------------------------


def weights_in_map(model, path):
    """For each weight, whether it lies in the map of a file."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    maps = [[int(end, 16) for end in line[0].split("-")] for line in lines if line[-1] == str(path)]
    places = [parameter.data_ptr() for parameter in model.net_.module_.parameters()]
    return [any(start <= place < end for start, end in maps) for place in places]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="maps are read from /proc")
@pytest.mark.parametrize("name, multilabel", [("flat", True), ("cascade", False)])
def test_weights_of_a_mapped_model_stay_in_the_file(name, multilabel, path):
    X, y = make_learnable(multilabel)
    joblib.dump(quick(name, max_epochs=1).fit(X, y), path)
    mapped = joblib.load(path, mmap_mode="r")
    answers(mapped, X)
    assert all(weights_in_map(mapped, path))
    assert not any(weights_in_map(mapped.partial_fit(X, y), path))


@pytest.mark.parametrize("ranker", ["calibration", "boosted"])
def test_a_mapped_model_comes_back_from_a_file(ranker, again, path):
    X, y = make_learnable(True)
    clf = quick("flat", max_epochs=1, ranker=ranker, decision="seen").fit(X, y)
    joblib.dump(clf, path)
    mapped = joblib.load(path, mmap_mode="r")
    assert_same(answers(again(mapped), X), answers(clf, X))
    mapped.partial_fit(X, y)
    assert_same(answers(again(mapped), X), answers(mapped, X))


# --- rounded ----------------------------------------------------------------------------------


#: The other classifiers are slow tests.
SOME = [("flat", True), ("cascade", False), ("dft", True)]


@pytest.fixture
def rounds_small(monkeypatch):
    """Round weights of any size, those of quick networks too."""
    monkeypatch.setattr(state, "SMALL", 1)


def joblib_again(estimator, path):
    joblib.dump(estimator, path)
    return joblib.load(path)


@pytest.mark.integration
@pytest.mark.usefixtures("rounds_small")
@pytest.mark.parametrize(
    "name, multilabel",
    [pytest.param(*case, marks=[] if case in SOME else pytest.mark.slow) for case in EVERY],
)
def test_every_compressed_classifier_answers_alike_wherever_it_is_stored(name, multilabel, path):
    X, y = make_learnable(multilabel)
    clf = quick(name, max_epochs=2, warm_start=True).fit(X, y)
    before = answers(clf, X)
    small = compress(clf)
    expected = answers(small, X)
    assert not np.array_equal(expected[1], before[1])
    assert_same(answers(clf, X), before)
    save(clf, path)
    assert_same(answers(load(path), X), expected)
    save(small, path, exact=True)  # it stays at six bits
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
    small = compress(estimator)
    expected = answers(small, TEXTS)
    assert not np.array_equal(expected[-1], before[-1])
    assert_same(answers(estimator, TEXTS), before)
    save(estimator, path)
    assert_same(answers(load(path), TEXTS), expected)
    assert_same(answers(joblib_again(small, path), TEXTS), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_compressed_model_is_as_small_in_every_file(dtype, path):
    X = sp.random(500, 2000, 0.01, format="csr", dtype=dtype, random_state=0)
    params = {"encoder": MLP((256,)), "max_epochs": 1, "ranker": None, "random_state": 0}
    clf = MultiHeadClassifier("flat", **params).fit(X, np.arange(500))
    small = compress(clf)
    assert small.decision_function(X).dtype == dtype
    sizes = [len(pickle.dumps(small))]
    for write in (joblib.dump, save):
        write(small, path)
        sizes.append(path.stat().st_size)
    assert 0.75 * clf.n_parameters_ < min(sizes) < max(sizes) < 0.81 * clf.n_parameters_ + 40_000
    exact = np.dtype(dtype).itemsize * clf.n_parameters_
    for write in (joblib.dump, functools.partial(save, exact=True)):
        write(clf, path)
        assert 0.9 * exact < path.stat().st_size < exact + 60_000


@pytest.mark.usefixtures("rounds_small")
@pytest.mark.parametrize("mode", [None, "r", "c"])
def test_a_mapped_compressed_model_predicts_and_goes_on(mode, path):
    X, y = make_learnable(False)
    small = compress(quick("cascade", max_epochs=2).fit(X, y))
    joblib.dump(small, path)
    loaded = joblib.load(path, mmap_mode=mode)
    assert_same(answers(loaded, X), answers(small, X))
    assert_same(answers(loaded.partial_fit(X, y), X), answers(small.partial_fit(X, y), X))


def test_what_cannot_be_compressed_is_refused(path):
    X, y = make_learnable(False)
    clf = MultiHeadClassifier("flat", encoder=MLP((256,)), max_epochs=1).fit(X, y)
    for thing in (3, MultiHeadClassifier, [clf]):
        with pytest.raises(TypeError, match="compress takes an estimator"):
            compress(thing)
    for unfitted in (MultiHeadClassifier(), clone(PIPELINE)):
        with pytest.raises(NotFittedError):
            compress(unfitted)
    with torch.no_grad():
        clf.net_.module_.encoder.input.weight[3, 4] = torch.nan
    for call in (compress, functools.partial(save, path=path)):
        with pytest.raises(ValueError, match=r"encoder\.input\.weight holds .* use exact=True"):
            call(clf)
    assert not path.exists()
    save(clf, path, exact=True)
    with pytest.raises(ValueError, match="input.weight with numbers that are not finite"):
        load(path)


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
    clf = MultiHeadClassifier(decision=OwnDecision(), **{**QUICK, "encoder": OwnEncoder}).fit(X, Y)
    save(clf, path, exact=True)
    names = [f"{__name__}.OwnDecision", f"{__name__}.OwnEncoder"]
    for trusted in ((), [OwnEncoder], ["another.OwnDecision"]):
        with pytest.raises(ValueError, match=r"cannot read .*model\.skops: it uses .*OwnDecision"):
            load(path, trusted=trusted)
    for trusted in ([OwnEncoder, OwnDecision], names):
        assert_same(answers(load(path, trusted=trusted), X), answers(clf, X))


def test_an_object_of_the_user_needs_trust(again):
    encoder = Text(64, hidden_layer_sizes=(8,), tokenizer=OwnTokenizer(True))
    clf = MultiHeadClassifier(**{**QUICK, "encoder": encoder}).fit(TEXTS, KINDS)
    assert_same(answers(again(clf, trusted=[OwnTokenizer]), TEXTS), answers(clf, TEXTS))
    with pytest.raises(ValueError, match="OwnTokenizer"):
        again(clf)


def test_what_cannot_be_saved_is_refused(path):
    X, y = make_learnable(False)
    clf = MultiHeadClassifier(**{**QUICK, "encoder": lambda n: nn.Linear(n, 4)}).fit(X, y)
    with pytest.raises(TypeError, match="<lambda> cannot be found again by its name; use `def`"):
        save(clf, path)
    for thing in (3, MultiHeadClassifier, [clf]):
        with pytest.raises(TypeError, match="save takes an estimator"):
            save(thing, path)
    assert not path.exists()


# --- what is no model, or a damaged one -------------------------------------------------------


def test_other_files_are_refused(path):
    joblib.dump(MultiHeadClassifier(), path)
    with pytest.raises(ValueError, match="no file of sklearn_xlc"):
        load(path)
    skops.io.dump([1, 2], path)
    with pytest.raises(ValueError, match=r"cannot read .*: it holds a list, which is no estimator"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(path.with_name("none"))
    os.mkfifo(path.with_name("pipe"))
    for other in (path.parent, path.with_name("pipe")):
        with pytest.raises(ValueError, match="cannot read .*: it is no ordinary file"):
            load(other)


def damage(whole, rng):
    """A copy with one flipped bit, or the beginning."""
    if rng.random() < 0.25:
        return whole[: rng.integers(len(whole))]
    damaged = bytearray(whole)
    damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
    return damaged


@pytest.mark.parametrize("n_trials", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_damaged_file_loads(path, n_trials):
    rng = np.random.default_rng(0)
    for name, multilabel in (("flat", True), ("cascade", False), ("etf", True)):
        save(quick(name, max_epochs=2).fit(*make_learnable(multilabel)), path)
        whole = path.read_bytes()
        for _ in range(n_trials // 3):
            path.write_bytes(damage(whole, rng))
            with pytest.raises(ValueError, match=r"cannot read .*model\.skops: "):
                load(path)


def test_another_version_is_warned_of(path, monkeypatch):
    monkeypatch.setattr(state, "versions", lambda: {"torch": "0.1"})
    save(NETWORK, path)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match=r"was written with torch 0\.1, this is"):
        load(path)


def test_the_mode_of_the_file_is_that_of_open(path):
    save(BaseEstimator(), path)
    path.with_name("plain").touch()
    assert os.stat(path).st_mode == os.stat(path.with_name("plain")).st_mode


def test_callbacks_of_skorch_that_print_come_back_where_they_are_trusted(again):
    X, y = make_learnable(False)
    clf = MultiHeadClassifier(callbacks=[EarlyStopping(monitor="train_loss")], **QUICK).fit(X, y)
    assert again(clf, trusted=[EarlyStopping, print]).callbacks[0].sink is print
    with pytest.raises(ValueError, match=r"it uses .*skorch\.callbacks\.training\.EarlyStopping"):
        again(clf)


@pytest.mark.parametrize(
    "name", ["flat", "cascade", "ensemble", "product-groups", "dft", "etf-frame"]
)
def test_a_state_does_not_tell_what_the_model_has_done_since(path, name):
    """Nor whether it is a copy, or was loaded: equal models have equal files."""
    X, y = make_learnable(name in ("dft", "ensemble"))
    clf = quick(name, max_epochs=1).fit(X, y)

    def content(model):
        save(model, path, exact=True)
        return path.read_bytes()

    expected = content(clf)
    save(clf, path, exact=True)
    copied, loaded = copy.deepcopy(clf), load(path)
    assert content(copied) == expected
    assert content(loaded) == expected
    clf.predict(X)
    assert content(clf) == expected
    assert content(pickle.loads(pickle.dumps(clf))) == expected
    assert content(clf.partial_fit(X, y)) != expected


def test_a_lack_of_memory_is_no_lack_of_a_plain_form(path, monkeypatch):
    def fails(*args):
        raise MemoryError

    monkeypatch.setattr(skops.io, "dump", fails)
    with pytest.raises(MemoryError):
        save(NETWORK, path)
    assert not path.exists()


def test_the_content_of_sparse_matrices_counts_before_it_is_read(path, monkeypatch):
    """SciPy deflates it within its member, so that few bytes may stand for many."""
    X = sp.csr_matrix(np.ones((1000, 500)))
    model = KNeighborsTransformer(algorithm="brute").fit(X)
    save(model, path)
    assert path.stat().st_size < X.data.nbytes / 100
    assert (load(path)._fit_X != X).nnz == 0
    monkeypatch.setattr(memory, "available_memory", lambda device: X.data.nbytes / 2)
    with pytest.raises(MemoryError, match="the saved model takes about"):
        load(path)


def zeros_in_archive():
    return [bytes(2**20)] * 128


def names_in_archive():
    """An archive of a million members, none of which is there."""
    directory = (b"PK\x01\x02" + bytes(24) + b"\x01\x00" + bytes(16) + b"a") * 2**10
    size = (len(directory) * 2**10).to_bytes(4, "little")
    end = b"PK\x05\x06" + bytes(4) + b"\xff" * 4 + size + bytes(6)
    return [directory] * 2**10 + [end]


@pytest.mark.parametrize("content", [zeros_in_archive, names_in_archive])
def test_a_bomb_within_a_member_is_refused_without_inflating_it(content, path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("1.npz", "w") as member:
            for block in content():
                member.write(block)
        archive.writestr("schema.json", "{}")
    assert_refused_in_small_memory(path, ValueError, "it is damaged, or no file of sklearn_xlc")


def test_a_file_of_joblib_is_refused_with_the_function_that_reads_it(path):
    joblib.dump(LogisticRegression(), path)
    with pytest.raises(ValueError, match="no file of sklearn_xlc.save .* read by joblib.load"):
        load(path)


def test_a_bomb_of_another_compression_is_refused(path):
    """zipfile inflates a block of these at once, whatever size is declared."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("1.npy", bytes(2**27))
        archive.writestr("schema.json", "{}")
    assert_refused_in_small_memory(path, ValueError, "a member that is neither stored nor deflated")


def test_the_sizes_of_members_count_before_any_is_read(path, monkeypatch):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("1.npz", bytes(2**24))
    monkeypatch.setattr(memory, "available_memory", lambda device: 2**23)
    monkeypatch.setattr(zipfile.ZipFile, "open", None)
    with pytest.raises(MemoryError, match="the saved model takes about"):
        load(path)


def test_the_checksum_is_checked_before_any_member_is_read(path, monkeypatch):
    save(KNeighborsTransformer().fit(sp.csr_matrix(np.eye(9))), path)
    damaged = bytearray(path.read_bytes())
    damaged[40] ^= 1
    path.write_bytes(damaged)
    monkeypatch.setattr(zipfile.ZipFile, "open", None)
    with pytest.raises(ValueError, match="does not match its checksum"):
        load(path)


def test_no_address_of_the_process_is_in_a_file(path):
    """Equal models have equal files."""
    vectorizer = CountVectorizer(stop_words=["the"]).fit(["the one", "the other"])
    vectorizer.transform(["the one"])
    save(vectorizer, path)
    with zipfile.ZipFile(path) as archive:
        assert str(id(vectorizer.stop_words)) not in archive.read("schema.json").decode()
    assert load(path).transform(["the other"]).toarray().tolist() == [[0, 1]]


@pytest.mark.parametrize(
    "splitter", [LeaveOneOut(), RepeatedKFold(n_repeats=2, random_state=0), TimeSeriesSplit(3)]
)
def test_splitters_of_scikit_learn_are_trusted(splitter, path):
    save(GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=splitter), path)
    assert repr(load(path).cv) == repr(splitter)


@pytest.mark.parametrize("address", [None, 0, "other", 7.5, "each"])
def test_a_member_that_several_objects_read_is_refused(address, path):
    """Each of them would take its memory: 11 kB took gigabytes."""
    scaler = StandardScaler().fit(np.eye(3))
    save(scaler, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(members.pop("schema.json"))
    attributes = schema["content"]["content"]
    node = attributes["mean_"]
    for i in range(2):
        attributes[f"more_{i}"] = node | {"__id__": i + 1000 if address == "each" else address}
    if address is not None:
        attributes["more_0"]["__id__"] = node["__id__"]
    with open(path, "w+b") as file:
        files._write([*members.items(), ("schema.json", json.dumps(schema).encode())], file)
    with pytest.raises(ValueError, match="cannot read .* several objects of it are one member"):
        load(path)


def assert_refused_in_small_memory(path, error, match):
    with pytest.raises(FileNotFoundError):
        load(path.with_name("none"))  # imports what it needs
    assert path.stat().st_size < 2**22
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(error, match=match):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()
    assert time.process_time() - start < 5


def test_exact_weights_are_not_deflated_for_rows_of_zeros_at_their_start(tmp_path):
    weights = np.random.default_rng(0).normal(size=(300, 2000)).astype(np.float32)
    weights[:10] = 0
    for data, method in ((weights, zipfile.ZIP_STORED), (weights * 0, zipfile.ZIP_DEFLATED)):
        with open(tmp_path / "file", "w+b") as file:
            files._write([("weights.npy", data)], file)
        with zipfile.ZipFile(tmp_path / "file") as archive:
            assert archive.getinfo("weights.npy").compress_type == method


def nodes_of(path):
    """Return the number of nodes of a description."""
    found = []
    with zipfile.ZipFile(path) as archive:
        json.loads(archive.read("schema.json"), object_hook=found.append)
    return sum("__loader__" in node for node in found)


def test_a_vocabulary_is_one_node(again, path):
    words = [f"ä\ud800'{i}\n\"[" for i in range(1500)]
    number = {word: i * 2**70 for i, word in enumerate(words)}
    vocabularies = {
        "vocabulary": number,
        "names": dict(zip(words, words)),
        "same": number,
        "few": number.copy(),
    }
    for word in words[5:]:
        del vocabularies["few"][word]
    found = again(FunctionTransformer(kw_args=vocabularies)).kw_args
    assert found == vocabularies
    assert list(found["vocabulary"]) == words
    assert found["same"] is found["vocabulary"]
    assert nodes_of(path) < 100


@pytest.mark.parametrize(
    "value",
    [
        dict.fromkeys(range(1500), 0),
        dict.fromkeys([*map(str, range(1500)), 1500], 0),
        dict.fromkeys(map(str, range(1500)), True),
        dict.fromkeys(map(str, range(1500)), 0.5),
        [*map(str, range(1500))],
        np.array([*map(str, range(1500))], dtype=object),
        OrderedDict.fromkeys(map(str, range(1500)), 0),
    ],
)
def test_what_json_would_change_keeps_its_nodes(value, again, path):
    found = again(FunctionTransformer(kw_args={"value": value})).kw_args["value"]
    np.testing.assert_equal(found, value)
    assert type(found) is type(value)
    assert [*map(type, found)] == [*map(type, value)]
    assert nodes_of(path) > 1500


def test_files_of_skops_alone_keep_their_form(path):
    vectorizer = TfidfVectorizer().fit([f"word{i}" for i in range(1500)])
    save(vectorizer, path)
    assert nodes_of(path) < 100
    skops.io.dump(vectorizer, path)
    assert nodes_of(path) > 1500


def test_a_path_of_checkpoints_is_kept_as_text(tmp_path):
    X, y = make_learnable(False)
    clf = quick("flat", checkpoint=tmp_path / "checkpoints", max_epochs=1).fit(X, y)
    save(clf, tmp_path / "clf")
    assert load(tmp_path / "clf").checkpoint == str(tmp_path / "checkpoints")
