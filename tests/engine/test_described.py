"""Through skops and MLflow: as much comes back as from a pickle, and few classes need trust."""

import copy
import json
import pickle

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
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
)
from sklearn_xlc.decisions import Threshold
from sklearn_xlc.encoders import MLP, Text
from sklearn_xlc.engine import packing
from sklearn_xlc.engine.described import Described
from sklearn_xlc.heads import FlatHead
from sklearn_xlc.heads.losses import FocalLoss

QUICK = {"encoder": MLP((8,)), "max_epochs": 2, "random_state": 0}
TEXTS = ["a body of salt water", "an animal that barks", "a stream of water"] * 8
KINDS = np.array(["water", "animal", "water"] * 8)
DESCRIBED = "sklearn_xlc.engine.described.Described"
#: The other classifiers are slow tests.
SOME = [("flat", True), ("cascade", False), ("dft", True), ("bags", False)]
every = pytest.mark.parametrize(
    "name, multilabel",
    [pytest.param(*case, marks=[] if case in SOME else pytest.mark.slow) for case in EVERY],
)


def name_of(kind):
    return f"{kind.__module__}.{kind.__qualname__}"


def answers(estimator, X):
    names = ("predict", "decision_function", "transform")
    found = [getattr(estimator, name)(X) for name in names if hasattr(estimator, name)]
    found += estimator.predict_topk(X, k=2) if hasattr(estimator, "predict_topk") else []
    return [part.toarray() if sp.issparse(part) else np.asarray(part) for part in found]


def assert_same(first, second):
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def through_skops(estimator, trusted=None):
    """The estimator that skops gives back, if nothing but `trusted` needs trust."""
    io = pytest.importorskip("skops.io")
    data = io.dumps(estimator)
    needed = io.get_untrusted_types(data=data)
    trusted = [DESCRIBED, name_of(type(estimator))] if trusted is None else trusted
    assert set(needed) <= set(trusted)
    return io.loads(data, trusted=trusted)


def through_json(value):
    """What a way of saving gives back that knows JSON, NumPy's arrays and `__getstate__`."""
    if isinstance(value, Described):
        made = Described.__new__(Described)
        made.__setstate__(through_json(value.__getstate__()))
        return made
    if isinstance(value, dict):
        return {key: through_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(through_json, value))
    if type(value) is np.ndarray:
        return value.copy()
    return json.loads(json.dumps(value))


# --- round trips ------------------------------------------------------------------------------


@every
def test_a_state_is_json_and_arrays(name, multilabel):
    X, y = make_learnable(multilabel)
    clf = quick(name, max_epochs=2).fit(X, y)
    made = type(clf)()
    made.__setstate__(through_json(clf.__getstate__()))
    assert_same(answers(made, X), answers(clf, X))
    assert vars(made).keys() == vars(clf).keys()


@every
def test_every_classifier_comes_back_and_goes_on(name, multilabel):
    X, y = make_learnable(multilabel)
    clf = quick(name, max_epochs=2).fit(X, y)
    loaded = through_skops(clf)
    assert_same(answers(loaded, X), answers(clf, X))
    assert loaded.loss_curve_ == clf.loss_curve_
    assert_same(answers(loaded.partial_fit(X, y), X), answers(clf.partial_fit(X, y), X))


PIPELINE = make_pipeline(TfidfVectorizer(dtype=np.float32), MultiHeadClassifier(**QUICK))
TEXT = Text(n_buckets=64, hidden_layer_sizes=(8,))


@pytest.mark.parametrize(
    "estimator, more",
    [
        (PIPELINE, []),
        (FrozenEstimator(PIPELINE), []),
        (
            GridSearchCV(PIPELINE, {"multiheadclassifier__max_epochs": [1, 2]}, cv=2),
            [
                "sklearn.model_selection._split.StratifiedKFold",
                "sklearn.metrics._scorer._PassthroughScorer",
            ],
        ),
        (MultiHeadClassifier(**{**QUICK, "encoder": TEXT}), []),
    ],
    ids=["pipeline", "frozen", "search", "text-encoder"],
)
def test_estimators_around_a_network_come_back(estimator, more):
    fitted = estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator
    fitted.fit(TEXTS, KINDS)
    trusted = [DESCRIBED, name_of(MultiHeadClassifier), *more]
    assert_same(answers(through_skops(estimator, trusted), TEXTS), answers(estimator, TEXTS))


def test_a_compressed_classifier_comes_back(monkeypatch):
    monkeypatch.setattr(packing, "SMALL", 1)
    X, y = make_learnable(False)
    small = compress(quick("flat", max_epochs=2).fit(X, y), "int4")
    loaded = through_skops(small)
    assert_same(answers(loaded, X), answers(small, X))
    assert len(pickle.dumps(loaded)) < 1.02 * len(pickle.dumps(small))  # it stays at four bits


def test_a_mapped_classifier_comes_back(tmp_path):
    X, y = make_learnable(False)
    clf = quick("flat", max_epochs=2).fit(X, y)
    joblib.dump(clf, tmp_path / "clf")
    mapped = joblib.load(tmp_path / "clf", mmap_mode="r")
    assert_same(answers(through_skops(mapped), X), answers(clf, X))


def test_an_unfitted_classifier_comes_back():
    parts = {"loss": FocalLoss(gamma=1.0), "decision": Threshold("tuned")}
    clf = MultiHeadClassifier(FlatHead, device=torch.device("cpu"), **parts)
    assert repr(through_skops(clf)) == repr(clf)


def test_classifiers_of_groups_come_back(routing):
    X, groups, labels = make_groups(0)
    eagle = EAGLETransformer().set_fit_request(groups=True)
    inner = MultiHeadClassifier(**QUICK).set_fit_request(sample_weight=True)
    whole = AggregatedLabelClassifier(inner).set_fit_request(groups=True)
    for estimator in (eagle, whole):
        estimator.fit(X, labels, groups=groups)
        assert_same(answers(through_skops(estimator), X), answers(estimator, X))


@pytest.mark.parametrize("way", [through_skops, pickle, copy.copy, copy.deepcopy])
def test_metadata_requests_come_back(way, routing):
    clf = MIMLClassifier().set_fit_request(groups=True, sample_weight="weight")
    made = pickle.loads(pickle.dumps(clf)) if way is pickle else way(clf)
    assert repr(made.get_metadata_routing()) == repr(clf.get_metadata_routing())
    made.set_fit_request(groups=False)
    assert clf.get_metadata_routing().fit.requests["groups"] is True


class OwnEncoder(nn.Module):
    def __init__(self, n_features=60):
        super().__init__()
        self.layer = nn.Linear(n_features, 8)

    def forward(self, x):
        return self.layer(x).relu()


def test_classes_of_the_user_and_of_skorch_need_trust():
    X, y = make_learnable(False)
    callbacks = [EarlyStopping(monitor="train_loss")]
    clf = MultiHeadClassifier(callbacks=callbacks, **{**QUICK, "encoder": OwnEncoder()})
    clf.fit(X.toarray(), y)
    io = pytest.importorskip("skops.io")
    data = io.dumps(clf)
    known = {DESCRIBED, name_of(MultiHeadClassifier)}
    needed = io.get_untrusted_types(data=data)
    assert set(needed) == known | {name_of(OwnEncoder), name_of(EarlyStopping)}
    assert_same(answers(io.loads(data, trusted=needed), X), answers(clf, X))


def test_what_cannot_be_described_is_refused_with_its_place():
    clf = MultiHeadClassifier(**{**QUICK, "encoder": lambda n: nn.Linear(n, 4)})
    clf.fit(*make_learnable(False))
    state = clf.__getstate__()
    assert callable(state["encoder"])
    clf.net_.module_.encoder.activation = lambda x: x
    with pytest.raises(TypeError, match=r"net_\.module_\.encoder\.activation: .* cannot be found"):
        clf.__getstate__()["_parts"].__getstate__()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*type hint:UserWarning")  # of mlflow's own functions
def test_mlflow_saves_by_its_default(tmp_path):
    flavour = pytest.importorskip("mlflow.sklearn")
    estimator = PIPELINE.fit(TEXTS, KINDS)
    flavour.save_model(
        estimator,
        tmp_path / "model",
        pip_requirements=[],
        skops_trusted_types=[DESCRIBED, name_of(MultiHeadClassifier)],
    )
    assert (tmp_path / "model" / "model.skops").exists()
    assert_same(answers(flavour.load_model(tmp_path / "model"), TEXTS), answers(estimator, TEXTS))


# --- what is refused --------------------------------------------------------------------------


def state_of(**changed):
    clf = MultiHeadClassifier(loss=FocalLoss())
    return {**clf.__getstate__()["_parts"].__getstate__(), **changed}


def refused(state, match):
    with pytest.raises(ValueError, match=match):
        Described.__new__(Described).__setstate__(state)


def test_names_are_no_trust():
    """skops makes strings without asking; they must not stand for classes that it asks for."""
    document = {"root": {"is": "name", "name": "os.system"}, "names": ["os.system"]}
    state = state_of(document=json.dumps(document), trusted=["os.system"])
    refused(state, "it trusts what is no class")
    refused({**state, "trusted": []}, "it uses os.system, which is not part of")


@pytest.mark.parametrize("kind", [2, None, "1"])
def test_another_format_is_refused(kind):
    refused(state_of(format=kind), f"the saved classifier has format {kind}; this version .* 1")


@pytest.mark.parametrize("document", ["", "[", "3", "null", '{"names": []}', "[" * 10**5])
def test_what_is_no_description_is_refused(document):
    refused(state_of(document=document), ".")


def test_another_version_is_warned_of():
    other = {**_files.versions(), "sklearn_xlc": "0.0.1"}
    with pytest.warns(UserWarning, match="classifier was written with sklearn_xlc 0.0.1"):
        Described.__new__(Described).__setstate__(state_of(versions=other))


def test_a_description_does_not_hide_in_another_one(tmp_path):
    """`load` counts what a file describes, and would not see through a second one."""
    root = {"is": "object", "class": DESCRIBED, "state": {}}
    _files.write(tmp_path / "file", {"root": root, "names": [DESCRIBED]}, {}, kind="model")
    with pytest.raises(ValueError, match=f"it uses {DESCRIBED}, which is not part of"):
        load(tmp_path / "file")
