"""Exported graphs say what the classifiers say, computed by ONNX Runtime."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from torch import nn

from _factories import EVERY, N_LABELS, make_groups, make_learnable, quick
from sklearn_xlc import AggregatedLabelClassifier, MultiHeadClassifier, to_onnx
from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel
from sklearn_xlc.encoders import MLP, TextEncoder
from sklearn_xlc.heads import FlatHead
from sklearn_xlc.inspection import onnx_graph
from sklearn_xlc.ranking import Calibration

QUICK = {"encoder": MLP((16,)), "max_epochs": 5, "learning_rate": 0.02, "random_state": 0}
#: Heads that are exported, of which the others are slow tests.
SOME = [("flat", True), ("ensemble", False), ("product", False), ("product-groups", False)]
SOME += [("cascade", True), ("cascade-narrow", False), ("dft", True), ("etf", True)]
EXPORTED = [
    pytest.param(*case, marks=[] if case in SOME else pytest.mark.slow)
    for case in EVERY
    if not case[0].startswith(("bags", "powerset"))
]


def run(model, X):
    """Outputs of a graph by name, for dense or CSR samples."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feed = {"X": X}
    if sp.issparse(X):
        feed = {"data": X.data}
        feed |= {name: getattr(X, name).astype(np.int64) for name in ("indptr", "indices")}
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, feed)))


def exported(classifier, X, k=5, **params):
    pytest.importorskip("onnx")
    form = {"inputs": "csr"} if sp.issparse(X) else {}
    return run(to_onnx(classifier, k=k, **form, **params), X)


def assert_same(classifier, X, k=5, digits=1e-5):
    """Fail unless a graph gives the labels, scores and probabilities of the classifier."""
    found = exported(classifier, X, k)
    labels, scores = classifier.predict_topk(X, k)
    np.testing.assert_array_equal(found["labels"], labels)
    np.testing.assert_allclose(found["scores"], scores, rtol=digits, atol=digits)
    assert found["scores"].dtype == scores.dtype
    has_probabilities = hasattr(classifier, "predict_proba")
    assert ("probabilities" in found) == has_probabilities
    if has_probabilities:
        expected = classifier.predict_topk(X, k, proba=True)[1]
        np.testing.assert_allclose(found["probabilities"], expected, rtol=digits, atol=digits)


def thousand(multilabel):
    """Samples to fit, their labels, and a thousand other samples."""
    make = make_extreme_multilabel if multilabel else make_extreme_multiclass
    X, y = make(1300, 150, 60, random_state=0)
    X = sp.csr_matrix(X, dtype=np.float32)
    return X[:300], y[:300], X[300:]


# --- the same answers -------------------------------------------------------------------------


@pytest.mark.parametrize("name, multilabel", EXPORTED)
def test_the_top_five_of_a_thousand_samples_are_those_of_the_classifier(name, multilabel):
    X, y, others = thousand(multilabel)
    clf = quick(name, max_epochs=5)
    if name.startswith(("product", "cascade", "sampling")):
        clf.set_params(head__label_order="random")
    clf.fit(X, y)
    assert_same(clf, others.toarray())
    assert_same(clf, others)


@pytest.mark.parametrize("name, multilabel", [("flat", True), ("cascade", True), ("dft", False)])
def test_double_precision_stays(name, multilabel):
    X, y = make_learnable(multilabel)
    clf = quick(name, max_epochs=5).fit(X, y)
    assert_same(clf, X, digits=1e-11)


@pytest.mark.parametrize(
    "name, multilabel", [("flat", True), ("sampling", False), ("product", False)]
)
def test_labels_that_are_removed_are_left_out(name, multilabel):
    X, y = make_learnable(multilabel)
    clf = quick(name, max_epochs=5).fit(X, y).remove_labels([0, 1, 8])
    found = exported(clf, X, k=20)
    assert not np.isin(found["labels"], [0, 1, 8]).any()
    assert_same(clf, X, k=20, digits=1e-11)


def test_samples_without_entries_and_single_ones():
    X, Y = make_learnable(True, dtype=np.float32)
    clf = quick("flat", max_epochs=5).fit(X, Y)
    empty = sp.csr_matrix((1, X.shape[1]), dtype=np.float32)
    assert_same(clf, sp.vstack([empty, X[:3], empty, empty, X[3:5], empty], "csr"))
    for one in (X[:1], empty):
        assert_same(clf, one)
        assert_same(clf, one.toarray())


@pytest.mark.parametrize("name", ["flat", "etf", "cascade"])
def test_equal_scores_rank_by_position(name):
    X, Y = make_learnable(True, dtype=np.float32)
    clf = quick(name, max_epochs=1).fit(X, Y)
    with torch.no_grad():
        for parameter in clf.net_.module_.head.parameters():
            parameter.zero_()
    assert_same(clf, X[:5], k=N_LABELS - 1)


@pytest.mark.parametrize("shift", [30.0, -30.0])
def test_probabilities_near_one_and_zero_keep_their_digits(shift):
    X, Y = make_learnable(True, dtype=np.float32)
    clf = quick("cascade", max_epochs=5).fit(X, Y)
    head = clf.net_.module_.head
    with torch.no_grad():
        head.first.bias += shift
        head.tables[0].view(-1, head.code.lengths[1], head.embedding_dim + 1)[..., -1] += shift
    assert_same(clf, X)


def test_probabilities_are_calibrated_as_the_classifier_has_them():
    X, Y, others = thousand(True)
    clf = MultiHeadClassifier("flat", **QUICK).fit(X, Y)
    clf.ranker_ = None
    before = exported(clf, others)
    clf.ranker_ = Calibration().fit(clf.decision_function(X), Y)
    clf.ranker_.start_ = float(np.median(before["scores"]))  # both slopes are met
    assert_same(clf, others)
    assert not np.allclose(exported(clf, others)["probabilities"], before["probabilities"])


# --- labels and estimators --------------------------------------------------------------------


@pytest.mark.parametrize("labels", ["tags", str, object, np.int8, float, "datetime64[D]"])
def test_labels_are_names_where_onnx_has_their_type(labels):
    X, y = make_learnable(False, dtype=np.float32)
    if labels == "tags":
        y = [[f"é{number}", "all"] for number in y]
    else:
        y = y.astype(str).astype(labels) if labels != "datetime64[D]" else y.astype(labels)
    clf = MultiHeadClassifier("flat", **QUICK).fit(X, y)
    found, expected = exported(clf, X)["labels"], clf.predict_topk(X, 5)[0]
    if labels in (float, "datetime64[D]"):
        assert found.dtype == np.int64
        found = clf.classes_[found]
    np.testing.assert_array_equal(found, expected)


def test_a_classifier_within_others_is_found(routing):
    X, y = make_learnable(False, dtype=np.float32)
    grid = {"encoder__dropout": [0.0]}
    search = GridSearchCV(MultiHeadClassifier("flat", **QUICK), grid, cv=2).fit(X, y)
    expected = search.predict(X)
    for estimator in (search, FrozenEstimator(search), make_pipeline(search.best_estimator_)):
        np.testing.assert_array_equal(exported(estimator, X)["labels"][:, 0], expected)
    X, groups, labels = make_groups(0)
    inner = MultiHeadClassifier("flat", **QUICK)
    clf = AggregatedLabelClassifier(inner, n_rounds=1).set_fit_request(groups=True)
    clf.fit(X, labels, groups=groups)
    np.testing.assert_array_equal(exported(clf, X)["labels"], clf.predict_topk(X, 5)[0])


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    pytest.importorskip("onnx")
    X, y = make_learnable(False, dtype=np.float32)
    clf = quick("flat", max_epochs=1).fit(X, y)
    model = to_onnx(clf, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == model.SerializeToString()
    with pytest.raises(FileNotFoundError, match="nothing was written"):
        to_onnx(clf, tmp_path / "no" / "model.onnx")


# --- what is refused --------------------------------------------------------------------------


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"to_onnx needs the package onnx; install .*\[onnx\]"):
        to_onnx(quick("flat", max_epochs=1).fit(*make_learnable(False)))


class OwnHead(FlatHead):
    pass


class OwnLayer(nn.Module):
    def forward(self, x):
        return x[:, :8]


def of_texts():
    clf = MultiHeadClassifier(**{**QUICK, "encoder": TextEncoder(n_buckets=16)})
    return clf.fit([f"word{i} of" for i in range(20)], range(20))


@pytest.mark.filterwarnings("ignore:no groups were given:UserWarning")
@pytest.mark.parametrize(
    "make, match",
    [
        (lambda X, y: LogisticRegression().fit(X, y), "takes a classifier of sklearn_xlc, got Log"),
        (lambda X, y: 3, "takes a classifier of sklearn_xlc, got 3"),
        (
            lambda X, y: make_pipeline(TfidfVectorizer(), MultiHeadClassifier()),
            r"steps before its classifier; export the last step \(pipeline\[-1\]\)",
        ),
        (lambda X, y: quick("bags", max_epochs=1).fit(X, y), "MIMLHead: its samples come in bags"),
        (
            lambda X, y: quick("powerset", max_epochs=1).fit(X, np.eye(23, dtype=int)[y]),
            "PowersetHead: it searches among whole label sets",
        ),
        (
            lambda X, y: MultiHeadClassifier(head=OwnHead, **QUICK).fit(X, y),
            "the head OwnHead: it is none of this package's",
        ),
        (
            lambda X, y: MultiHeadClassifier(**{**QUICK, "encoder": OwnLayer()}).fit(
                X.toarray(), y
            ),
            "the encoder's layer OwnLayer; export an encoder of your own by torch.onnx",
        ),
        (lambda X, y: of_texts(), "the encoder's layer TextEncoder"),
    ],
)
def test_what_is_not_expressed_is_refused_with_its_reason(make, match):
    pytest.importorskip("onnx")
    with pytest.raises(TypeError, match=match):
        to_onnx(make(*make_learnable(False)))


def test_wrong_parameters_are_refused():
    X, y = make_learnable(False)
    clf = quick("flat", max_epochs=1).fit(X, y)
    with pytest.raises(NotFittedError):
        to_onnx(MultiHeadClassifier())
    for k in (0, 24):
        with pytest.raises(ValueError, match=f"k.*{k}"):
            to_onnx(clf, k=k)
    with pytest.raises(TypeError, match="k must be"):
        to_onnx(clf, k=1.5)
    with pytest.raises(ValueError, match="inputs must be 'dense' or 'csr', got 'sparse'"):
        to_onnx(clf, inputs="sparse")


def test_what_onnx_cannot_hold_is_refused(monkeypatch, tmp_path):
    pytest.importorskip("onnx")
    X, y = make_learnable(False)
    clf = quick("flat", max_epochs=1).fit(X, y)
    dense = MultiHeadClassifier(**{**QUICK, "encoder": nn.Linear(60, 8)}).fit(X.toarray(), y)
    with pytest.raises(TypeError, match="inputs='csr' needs the package's own encoder"):
        to_onnx(dense, inputs="csr")
    monkeypatch.setattr(onnx_graph, "LIMIT", 1000)
    with pytest.raises(ValueError, match="2 GiB that ONNX allows"):
        to_onnx(clf, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
