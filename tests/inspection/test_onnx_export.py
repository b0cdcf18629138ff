"""Exported graphs say what the classifiers say, computed by ONNX Runtime."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.special import log_expit
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
from sklearn_xlc.heads import FlatHead, Head, fourier
from sklearn_xlc.inspection import onnx_export
from sklearn_xlc.inspection.explaining import classifier_in
from sklearn_xlc.ranking import Calibration

pytestmark = pytest.mark.integration
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")
if torch.__version__ < "2.13":
    pytest.skip("to_onnx needs torch 2.13", allow_module_level=True)

QUICK = {"encoder": MLP((16,)), "max_epochs": 5, "learning_rate": 0.02, "random_state": 0}
#: Heads that are exported, of which the others are slow tests: tracing takes a second.
SOME = [
    ("cascade", True, "csr"),
    ("cascade-narrow", False, "dense"),
    ("etf", True, "dense"),
]
EXPORTED = [
    pytest.param(*case, marks=[] if case in SOME else pytest.mark.slow)
    for name, multilabel in EVERY
    if not name.startswith(("bags", "powerset"))
    for case in [(name, multilabel, "dense"), (name, multilabel, "csr")]
]


def session_of(model):
    return onnxruntime.InferenceSession(model.SerializeToString())


def run(session, X):
    """Outputs of a graph by name, for dense or CSR samples."""
    feed = {"X": X}
    if sp.issparse(X):
        feed = {"data": X.data}
        feed |= {name: getattr(X, name).astype(np.int64) for name in ("indptr", "indices")}
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, feed)))


def assert_same(classifier, *samples, k=5, digits=1e-5):
    """Session of one graph, which gives the labels, scores and probabilities of the classifier."""
    if getattr(classifier.ranker_, "reads", ()):
        classifier.forget()  # the graph has the network alone
    form = "csr" if sp.issparse(samples[0]) else "dense"
    session = session_of(to_onnx(classifier, k=k, inputs=form))
    for X in samples:
        found = run(session, X)
        labels, scores = classifier.predict_topk(X, k)
        np.testing.assert_array_equal(found["labels"], labels)
        np.testing.assert_allclose(found["scores"], scores, rtol=digits, atol=digits)
        assert found["scores"].dtype == scores.dtype
        has_probabilities = hasattr(classifier, "predict_proba")
        assert ("probabilities" in found) == has_probabilities
        if has_probabilities:
            expected = classifier.predict_topk(X, k, proba=True)[1]
            np.testing.assert_allclose(found["probabilities"], expected, rtol=digits, atol=digits)
    return session


def thousand(multilabel):
    """Samples to fit, their labels, and a thousand other samples."""
    make = make_extreme_multilabel if multilabel else make_extreme_multiclass
    X, y = make(1300, 150, 60, random_state=0)
    X = sp.csr_matrix(X, dtype=np.float32)
    return X[:300], y[:300], X[300:]


# --- the same answers -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the encoder has .* outputs, fewer than the 2:UserWarning")
@pytest.mark.parametrize("name, multilabel, form", EXPORTED)
def test_the_top_five_of_a_thousand_samples_are_those_of_the_classifier(name, multilabel, form):
    X, y, others = thousand(multilabel)
    clf = quick(name, max_epochs=5)
    if name.startswith(("product", "cascade", "sampling")):
        clf.set_params(head__label_order="random")
    clf.fit(X, y)
    samples = others if form == "csr" else others.toarray()
    assert_same(clf, samples, samples[:1])


@pytest.mark.slow
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_long_tails_are_shortened(form):
    rng = np.random.default_rng(0)
    X = np.exp(2.5 * rng.normal(size=(300, 4))).astype(np.float32)
    X[rng.random(X.shape) < 0.3] = 0
    clf = MultiHeadClassifier(random_state=0, max_epochs=5)
    clf.fit(X, (X[:, 0] > X[:, 1]).astype(int))
    assert clf.net_.module_.encoder.input.reach is not None
    assert_same(clf, form(X), k=2)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_hashed_columns_of_which_most_are_empty(form):
    X, y, others = thousand(True)
    X.resize(X.shape[0], 800)
    others.resize(others.shape[0], 800)
    clf = quick("flat", max_epochs=5).fit(X, y)
    assert len(clf.net_.module_.encoder.input.weight) < 160
    assert_same(clf, form(others[:50].toarray()))


def test_a_share_for_all_classes_alike_is_in_the_probabilities():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 6)).astype(np.float32)
    y = X[:, :4].argmax(axis=1)
    y = np.where(rng.random(800) < 0.4, rng.integers(4, size=800), y)  # some labels are wrong
    clf = MultiHeadClassifier(ranker="calibration", random_state=0).fit(X, y)
    assert clf.ranker_.floor_ > 0.1
    assert_same(clf, X, k=4)


@pytest.mark.slow
@pytest.mark.parametrize("name, multilabel", [("flat", True), ("cascade", True), ("dft", False)])
def test_double_precision_stays(name, multilabel):
    X, y = make_learnable(multilabel)
    clf = quick(name, max_epochs=5).fit(X, y)
    assert_same(clf, X, digits=1e-11)


@pytest.mark.parametrize(
    "name, multilabel",
    [("flat", True)]
    + [
        pytest.param(name, multilabel, marks=pytest.mark.slow)
        for name, multilabel in [
            *(("cascade", False), ("cascade", True), ("sampling", False), ("product", False))
        ]
    ],
)
def test_labels_that_are_removed_are_left_out(name, multilabel):
    X, y = make_learnable(multilabel)
    clf = quick(name, max_epochs=5).fit(X, y).remove_labels([0, 1, 8])
    assert not np.isin(clf.predict_topk(X, 20)[0], [0, 1, 8]).any()
    assert_same(clf, X, k=20, digits=1e-11)


@pytest.mark.parametrize(
    "method", ["fft", *(pytest.param(name, marks=pytest.mark.slow) for name in ("chunk", "matrix"))]
)
def test_a_fourier_layer_with_later_labels_is_whole(method, monkeypatch):
    monkeypatch.setattr(fourier, "CHUNK", 7)  # several chunks of labels
    X, Y = make_learnable(True)
    Y = sp.hstack([Y, sp.csr_matrix((Y.shape[0], 30 - N_LABELS), dtype=Y.dtype)], "csr")
    clf = quick("dft", max_epochs=1).partial_fit(X, Y, classes=np.arange(30))
    head = clf.net_.module_.head
    head.method, head.n_grid, head._tables = method, N_LABELS, {}
    assert_same(clf, X, digits=1e-11)


def test_sparse_rows_and_calibrated_probabilities():
    X, Y, others = thousand(True)
    clf = MultiHeadClassifier("flat", **QUICK).fit(X, Y)
    clf.ranker_ = None
    scores, before = (clf.predict_topk(others, proba=proba)[1] for proba in (False, True))
    clf.ranker_ = Calibration().fit(clf.decision_function(X), Y)
    clf.ranker_.start_ = float(np.median(scores))  # both slopes are met
    assert not np.allclose(clf.predict_topk(others, proba=True)[1], before)
    empty = sp.csr_matrix((1, X.shape[1]), dtype=np.float32)
    several = sp.vstack([empty, X[:3], empty, empty, X[3:5], empty], "csr")
    session = assert_same(clf, others, several, X[:1], empty)
    # Several threads that add into one row would lose some of it, now and then.
    first = run(session, others)["scores"]
    for _ in range(40):
        np.testing.assert_array_equal(run(session, others)["scores"], first)


@pytest.mark.parametrize("name", ["etf", pytest.param("cascade", marks=pytest.mark.slow)])
def test_equal_scores_rank_by_position(name):
    X, Y = make_learnable(True, dtype=np.float32)
    clf = quick(name, max_epochs=1).fit(X, Y)
    with torch.no_grad():
        for parameter in clf.net_.module_.head.parameters():
            parameter.zero_()
    assert_same(clf, X[:5], k=N_LABELS - 1)


@pytest.mark.slow  # by default the functions alone: test_functions_keep_their_digits
@pytest.mark.parametrize(
    "shift, dtype, digits",
    [(30.0, np.float64, 1e-11), (30.0, np.float32, 1e-5), (-30.0, np.float32, 1e-5)],
)
def test_probabilities_near_one_and_zero_keep_their_digits(shift, dtype, digits):
    X, Y = make_learnable(True, dtype=dtype)
    clf = quick("cascade", max_epochs=5).fit(X, Y)
    head = clf.net_.module_.head
    with torch.no_grad():
        head.first.bias += shift
        head.tables[0].view(-1, head.code.lengths[1], head.embedding_dim + 1)[..., -1] += shift
    assert_same(clf, X, digits=digits)


class Functions(Head):
    """Scores of one feature: functions whose digits torch.onnx loses."""

    loss = topk = None

    def scores(self, features):
        x = self.zero + features
        bounded = [x.clamp(1e-7, 0.1), x.clip(max=-1e-300), x.clamp_min(0.7) * 0.1]
        return torch.cat([nn.functional.logsigmoid(x), torch.expm1(x), *bounded], 1)


def test_functions_keep_their_digits():
    clf = MultiHeadClassifier("flat", ranker=None, **QUICK).fit(*make_learnable(False))
    head = Functions(1, 5, False)
    head.zero = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    clf.n_features_in_, clf.net_.module_.encoder, clf.net_.module_.head = 1, nn.Identity(), head
    small = np.logspace(-30, 0, 99)
    x = np.r_[-np.inf, np.linspace(-90, 90, 3001), -small, small, np.inf]
    found = run(session_of(to_onnx(clf)), x[:, None])["scores"]
    exact = [log_expit(x), np.expm1(x), x.clip(1e-7, 0.1), x.clip(max=-1e-300), 0.1 * x.clip(0.7)]
    expected = -np.sort(-np.stack(exact, 1), axis=1)
    np.testing.assert_allclose(found, expected, rtol=64 * np.finfo(float).eps)


class OwnHead(FlatHead):
    pass


class OwnLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(1, 4, 5, stride=4), nn.BatchNorm1d(56)

    def forward(self, x):
        return self.norm(nn.functional.gelu(self.conv(x[:, None])).flatten(1))


@pytest.mark.slow
def test_an_encoder_and_a_head_of_the_user_are_traced():
    X, y = make_learnable(False, dtype=np.float32)
    own = {"encoder": OwnLayer(), "head": OwnHead}
    assert_same(MultiHeadClassifier(**{**QUICK, **own}).fit(X.toarray(), y), X.toarray())


# --- labels and estimators --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["tags", str, object, np.int8, float, "datetime64[D]"])
def test_labels_are_names_where_onnx_has_their_type(labels):
    X, y = make_learnable(False, dtype=np.float32)
    if labels == "tags":
        y = [[f"é{number}", "all"] for number in y]
    else:
        y = y.astype(str).astype(labels) if labels != "datetime64[D]" else y.astype(labels)
    clf = MultiHeadClassifier("flat", **QUICK).fit(X, y)
    found = onnx_export._labels(clf, clf.classes_)
    if labels in (float, "datetime64[D]"):
        assert found.dtype == np.int64
        found = clf.classes_[found]
    np.testing.assert_array_equal(found, clf.classes_)
    if labels == "tags":
        assert_same(clf, X)


def test_a_classifier_within_others_is_found(routing):
    X, y = make_learnable(False, dtype=np.float32)
    grid = {"encoder__dropout": [0.0]}
    search = GridSearchCV(MultiHeadClassifier("flat", **QUICK), grid, cv=2).fit(X, y)
    best = search.best_estimator_
    for estimator in (best, search, FrozenEstimator(search), make_pipeline(best)):
        assert classifier_in(estimator, "") == (best, [])
    X, groups, labels = make_groups(0)
    groups[:, 0] = 1  # each sample is in a group
    inner = MultiHeadClassifier("flat", **QUICK)
    clf = AggregatedLabelClassifier(inner, n_rounds=1).set_fit_request(groups=True)
    clf.fit(X, labels, groups=groups)
    assert classifier_in(clf, "")[0] is clf.estimator_


def test_the_graph_names_tags_that_a_meta_estimator_has_read():
    X, groups, labels = make_groups(0)
    groups[:, 0] = 1
    tags = [[f"label {i}" for i in row.nonzero()[0]] for row in labels]
    inner = MultiHeadClassifier("flat", ranker=None, **QUICK)
    clf = AggregatedLabelClassifier(inner, n_rounds=1).fit(X, tags, groups=groups)
    model = to_onnx(clf, k=2)
    found = run(session_of(model), X)["labels"]
    np.testing.assert_array_equal(found, clf.predict_topk(X, k=2)[0])


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    trace, traces = onnx_export._traced, []

    def trace_once(*args):
        traces[:] = traces or [trace(*args)]
        return traces[0]

    monkeypatch.setattr(onnx_export, "_traced", trace_once)
    X, y = make_learnable(False, dtype=np.float32)
    clf = quick("flat", max_epochs=1).fit(X, y)
    model = to_onnx(clf, tmp_path / "model.onnx")
    written = (tmp_path / "model.onnx").read_bytes()
    assert written == model.SerializeToString()
    assert b".py" not in written  # nor any other name of this machine
    info = {
        value.name: value.type.tensor_type for value in (*model.graph.input, *model.graph.output)
    }
    shapes = {name: [d.dim_param or d.dim_value for d in of.shape.dim] for name, of in info.items()}
    best = dict.fromkeys(["labels", "scores", "probabilities"], ["n_samples", 5])
    assert shapes == {"X": ["n_samples", 60], **best}
    assert (model.ir_version, model.opset_import[0].version) == (8, 18)
    weights = sum(p.numel() * p.itemsize for p in clf.net_.module_.parameters())
    assert weights < len(written) < weights + 6000
    with pytest.raises(FileNotFoundError, match="nothing was written"):
        to_onnx(clf, tmp_path / "no" / "model.onnx")
    monkeypatch.setattr(onnx_export, "LIMIT", 1000)
    with pytest.raises(ValueError, match="2 GiB that ONNX allows"):
        to_onnx(clf, tmp_path / "large.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["onnx", "onnxscript"])
def test_a_missing_package_is_named(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        ImportError, match=r"the packages onnx and onnxscript, and torch 2.13; .*\[onnx\]"
    ):
        to_onnx(quick("flat", max_epochs=1).fit(*make_learnable(False)))


class Searching(FlatHead):
    searches_all = False


class Branching(nn.Module):
    def forward(self, x):
        return x[:, :8] if x.sum() > 0 else x[:, 8:16]


class Fixed(nn.Module):
    def forward(self, x):
        return x[:, :8] * len(x)


def of_texts():
    clf = MultiHeadClassifier(**{**QUICK, "encoder": TextEncoder(n_buckets=16)})
    return clf.fit([f"word{i} of" for i in range(20)], range(20))


@pytest.mark.filterwarnings("ignore:no groups were given:UserWarning")
@pytest.mark.parametrize(
    "make, match",
    [
        (
            lambda X, y: LogisticRegression().fit(X, y),
            "to_onnx takes a classifier .*; got Log",
        ),
        (lambda X, y: 3, "takes a classifier .*; got int"),
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
            lambda X, y: MultiHeadClassifier(head=Searching, **QUICK).fit(X, y),
            "the head Searching: its best labels are not those of its scores",
        ),
        (
            lambda X, y: MultiHeadClassifier(**{**QUICK, "encoder": Branching()}).fit(
                X.toarray(), y
            ),
            "express the encoder Branching with the head FlatHead: .*data-dependent",
        ),
        (
            lambda X, y: MultiHeadClassifier(**{**QUICK, "encoder": Fixed()}).fit(X.toarray(), y),
            "express the encoder Fixed with the head FlatHead: .*n_samples",
        ),
        (lambda X, y: of_texts(), "'dense' needs .* numbers, and TextEncoder reads strings"),
    ],
)
def test_what_is_not_expressed_is_refused_with_its_reason(make, match):
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


def test_inputs_that_the_encoder_does_not_read_are_refused():
    X, y = make_learnable(False)
    dense = MultiHeadClassifier(**{**QUICK, "encoder": nn.Linear(60, 8)}).fit(X.toarray(), y)
    with pytest.raises(TypeError, match="inputs='csr' needs an encoder of CSR rows of numbers"):
        to_onnx(dense, inputs="csr")


def test_an_older_torch_is_refused_before_work_starts(monkeypatch):
    clf = quick("flat", max_epochs=1).fit(*make_learnable(False))
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.9.1"))
    with pytest.raises(ImportError, match="torch 2.13"):
        to_onnx(clf)
