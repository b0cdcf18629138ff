"""Export classifiers as ONNX graphs, for servers without Python."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim

from sklearn_xlc._bounds import check_option
from sklearn_xlc._compat import imported
from sklearn_xlc._files import replacing
from sklearn_xlc._labels import are_texts
from sklearn_xlc._warn import warn
from sklearn_xlc.batches import SparseRows
from sklearn_xlc.encoders import FORMS, accepted_forms
from sklearn_xlc.engine import predictor_of
from sklearn_xlc.heads import topk_by_position
from sklearn_xlc.inspection.explaining import classifier_in
from sklearn_xlc.metrics import unwrapped
from sklearn_xlc.training import is_of_an_allocator

#: Versions of the operators and of the file, which every runtime since 2023 reads.
OPSET, IR_VERSION = 18, 8
#: A protobuf message is shorter.
LIMIT = 2**31


def to_onnx(
    estimator: Any,
    path: str | os.PathLike[str] | None = None,
    k: int | None = None,
    *,
    inputs: str = "dense",
) -> Any:
    """Export a classifier as an ONNX graph: encoder, head and the best k labels.

    The graph computes ``predict_topk(X, k)`` and the probabilities, up to rounding. Any ONNX engine
    runs it, without Python, torch or this package. A ranker that remembers training samples, such
    as "boosted", is not part of it: the labels are then those of the network, with a warning.

    Parameters
    ----------
    estimator : estimator
        Fitted classifier of this package, or a search or
        :class:`~sklearn.frozen.FrozenEstimator` around one. Export the last step of a pipeline, and
        feed the graph with the output of the steps before it.
    path : str or path-like, default=None
        File to write; None: none is written.
    k : int, default=None
        Number of labels of each sample. None: 5, or all of fewer.
    inputs : {"dense", "csr"}, default="dense"
        Inputs of the graph. "dense": "X", of shape (n_samples, n_features). "csr": "indptr" and
        "indices" (both int64) and "data" of a CSR matrix, for X with many columns. Numbers are
        float32, or float64 if ``settings_["precision"]`` is, as up to 1000 samples of float64.

    Returns
    -------
    model : onnx.ModelProto
        Outputs are "labels", "scores" and, if the loss defines them, "probabilities", all of shape
        (n_samples, k), best label first. Labels are entries of ``classes_`` if these are integers
        or strings, otherwise positions in ``classes_``.

    Raises
    ------
    ImportError
        If ``onnx`` or ``onnxscript`` is not installed.
    TypeError
        If the estimator, its encoder or its head cannot be exported; the message says why.
    ValueError
        If `k` is larger than the number of labels, `inputs` is not valid, or the graph would exceed
        the 2 GiB of ONNX.
    OSError
        If the file cannot be written; an existing one is left as it was.

    Warns
    -----
    UserWarning
        If the ranker is not part of the graph.

    See Also
    --------
    save : Writes a file for this package, of a quarter of the size.

    Notes
    -----
    :func:`torch.onnx.export` traces the network, which takes one to three seconds. It also traces
    encoders and heads of your own that consist of its operators; a size read by ``len`` would fix
    the number of samples, so that they must read it from ``shape``.

    "cascade" follows its beam, unless probabilities of classes are calibrated: then, and with the
    other heads, the graph scores all labels of a batch at once, and needs memory for
    (n_samples, n_labels) numbers. Label sets, decisions, bags and text are not supported.

    Examples
    --------
    >>> import sklearn_xlc
    >>> from sklearn_xlc.datasets import make_extreme_multiclass
    >>> X, y = make_extreme_multiclass(300, 50, 10, random_state=0)
    >>> clf = sklearn_xlc.MultiHeadClassifier(max_epochs=2, random_state=0).fit(X, y)
    >>> model = sklearn_xlc.to_onnx(clf, k=3)  # doctest: +SKIP
    >>> [output.name for output in model.graph.output]  # doctest: +SKIP
    ['labels', 'scores', 'probabilities']
    """
    classifier, before = classifier_in(estimator, "to_onnx")
    if before:
        raise TypeError(
            "to_onnx exports classifiers, and the estimator has steps before its classifier; "
            "export the last step (pipeline[-1]) and give the graph what the others return"
        )
    predictor = predictor_of(classifier)
    k = predictor.check_k(k)
    if predictor.lists:
        warn(
            f"the graph has the network alone: {type(classifier.ranker_).__name__} ranks by "
            "training samples, which it cannot hold; recalibrate(X, y, ranker='calibration') fits "
            "one that it holds"
        )
    check_option(inputs, "inputs", "dense", "csr")
    classes = unwrapped(estimator)[0].classes_  # of tags, where a meta-estimator has read them
    model = _model_of(_onnx(), classifier, classes, k, inputs)
    if path is not None:
        with replacing(os.fsdecode(path)) as file:
            file.write(model.SerializeToString())
    return model


def _onnx() -> Any:
    message = (
        "to_onnx needs the packages onnx and onnxscript, and torch 2.13; install them by pip "
        "install 'sklearn-xlc[onnx]'"
    )
    if torch.__version__ < "2.13":  # before, it fails on what it traces
        raise ImportError(message)
    imported("onnxscript", message)
    return imported("onnx", message)


# --- the network, in operators of ONNX ----------------------------------------------------------


class _Rows(SparseRows):
    """CSR rows of a graph."""

    def through(self, layer: Any) -> Tensor:
        # Differences of running sums, in double precision: onnxruntime adds into rows from several
        # threads at once (ScatterND), and then loses some of what it adds.
        weight, bias = layer.of_columns(self.indices)
        products = weight * layer.entries(self.data, self.indices)[:, None]
        products = torch.cat([products.new_zeros(1, products.shape[1]), products])
        sums = products.cumsum(0, dtype=torch.float64)
        of_rows = sums.index_select(0, self.indptr[1:]) - sums.index_select(0, self.indptr[:-1])
        return of_rows.to(bias.dtype) + bias


class _Network(nn.Module):
    """Encoder, head and ranking of a classifier, from arrays to arrays."""

    def __init__(self, encoder: nn.Module, head: Any, classifier: Any, k: int) -> None:
        super().__init__()
        self.encoder, self.head, self.k = encoder, head, k
        self.n_features, self.predictor = classifier.n_features_in_, predictor_of(classifier)

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Return positions and scores of the best labels, and probabilities if there are any."""
        rows: Any = given[0]
        if len(given) > 1:
            rows = _Rows(given[0], given[1], given[2], self.n_features)
        features = self.encoder(rows).to(given[-1].dtype)
        scores, nodes = self.head._candidates(features, self.k)
        link, scores = self.predictor.link, self.predictor.calibrated(scores)
        best, positions = topk_by_position(scores, self.k, nodes)
        if link is None:
            return positions, best
        if link == "softmax":
            if self.predictor.ranker is not None and not self.head.searches_all:
                # Candidates of a beam sum to one before a calibration, not after it.
                scores = self.predictor.calibrated(self.head.scores(features))
            shares = (best - scores.logsumexp(1, keepdim=True)).exp()
            return positions, best, self.predictor.mixed(shares)
        return positions, best, self.head.probabilities(best)


def _log_sigmoid(x: Tensor) -> Tensor:
    """Compute min(x, 0) - log(1 + u), with u = exp(-|x|).

    ONNX has no log1p. With w = 1 + u as rounded, log(w) - ((w - 1) - u) / w keeps a small u.
    """
    u = (-x.abs()).exp()
    w = 1 + u
    return x.clamp(max=0) - (w.log() - ((w - 1) - u) / w)


def _expm1(x: Tensor) -> Tensor:
    """Compute exp(x) - 1 = 2 t / (1 - t), with t = tanh(x / 2), which keeps a small x."""
    t = (x / 2).tanh()
    return torch.where(x > 1, x.exp() - 1, 2 * t / (1 - t))


def _clamp(x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    x = x if low is None else torch.where(x < low, low, x)
    return x if high is None else torch.where(x > high, high, x)


_aten = torch.ops.aten
#: Functions that lose digits in torch.onnx, in others that do not.
_IN_OPERATORS: Any = {
    _aten.log_sigmoid.default: _log_sigmoid,
    _aten.expm1.default: _expm1,
    _aten.clamp.default: _clamp,
    _aten.clip.default: _clamp,
    _aten.clamp_min.default: _clamp,
    _aten.clamp_max.default: lambda x, high: _clamp(x, None, high),
}


def _scalar(number: Any, dtype: Any = -1, **_: Any) -> Any:
    """Add a constant of a type; torch.onnx rounds it to single precision before."""
    ir, onnxscript = map(importlib.import_module, ("onnx_ir", "onnxscript"))
    kind = ir.DataType.FLOAT if dtype == -1 else dtype
    return onnxscript.opset18.Constant(value=ir.tensor(number, dtype=kind))


# --- the graph --------------------------------------------------------------------------------


def _traced(network: _Network, form: str) -> Any:
    """Return the network as a model of the package onnx-ir."""
    like = next(network.parameters())
    n_samples, n_rows, n_entries = Dim("n_samples"), Dim("n_rows", min=3), Dim("n_entries")
    dims: dict[str, Any]
    if form == "dense":
        dims = {"X": n_samples}
        example = [like.new_zeros(2, network.n_features)]
    else:
        dims = {"indptr": n_rows, "indices": n_entries, "data": Dim.DYNAMIC}
        indptr = torch.tensor([0, 2, 5], device=like.device)
        example = [indptr, torch.zeros_like(indptr).repeat(2)[1:], like.new_zeros(5)]
    network(*example)  # what heads make once is then no part of the graph
    shapes = (tuple({0: dim} for dim in dims.values()),)
    exported = torch.export.export(network, tuple(example), dynamic_shapes=shapes)
    names = ["positions", "scores", "probabilities"]
    made: Any = torch.onnx.export(
        exported.run_decompositions(_IN_OPERATORS),
        input_names=list(dims),
        output_names=names[: 2 + (network.head.link is not None)],
        dynamic_shapes=shapes,
        opset_version=OPSET,
        custom_translation_table={_aten.scalar_tensor.default: _scalar},
        verbose=False,
    )
    return made.model


def _model_of(onnx: Any, classifier: Any, classes: np.ndarray, k: int, form: str) -> Any:
    """Return the graph of a fitted classifier."""
    net = classifier.net_
    encoder, head = net.module_.encoder, net.module_.head._for_graph(k)
    for shard in head.sharded_parameters().values():
        shard.refuse_part()
    names = f"the encoder {type(encoder).__name__} with the head {type(head).__name__}"
    read = accepted_forms(encoder)
    if form not in read:
        raise TypeError(
            f"inputs={form!r} needs an encoder of {FORMS[form]}, and {type(encoder).__name__} "
            f"reads {' or '.join(FORMS[name] for name in read)}"
        )
    network = _Network(encoder, head, classifier, k).eval()
    with net.predicting(), _without_noise():
        try:
            traced = _traced(network, form)
        except Exception as error:
            if is_of_an_allocator(error):
                raise
            reason = str(error.__cause__ or error).partition("\n")[0]
            raise TypeError(f"torch.onnx cannot express {names}: {reason}") from error
    if sum(value.const_value.nbytes for value in traced.graph.initializers.values()) >= LIMIT:
        raise ValueError("the graph would exceed the 2 GiB that ONNX allows; use save")
    ir = importlib.import_module("onnx_ir")
    ir.passes.common.ClearMetadataAndDocStringPass()(traced)  # it names files of this machine
    model = ir.to_proto(traced)
    model.producer_name, model.producer_version = "sklearn_xlc", ""
    model.ir_version = IR_VERSION
    graph = model.graph
    graph.name = type(classifier).__name__
    del graph.value_info[:]
    # torch has no strings.
    labels = onnx.numpy_helper.from_array(_labels(classifier, classes), "names")
    graph.initializer.append(labels)
    graph.node.append(onnx.helper.make_node("Gather", ["names", "positions"], ["labels"]))
    graph.output[0].name = "labels"
    graph.output[0].type.tensor_type.elem_type = labels.data_type
    onnx.checker.check_model(model)
    return model


@contextlib.contextmanager
def _without_noise() -> Iterator[None]:
    """Silence warnings of torch to itself, and that torchvision is not installed."""
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = log.level
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*treespec, LeafSpec", FutureWarning)
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(level)


def _labels(classifier: Any, classes: np.ndarray) -> np.ndarray:
    """Return the names or ids of the labels, in the order of the head."""
    code = predictor_of(classifier).code
    is_text = classes.dtype.kind == "U" or are_texts(classes)
    is_named = is_text or (classes.dtype.kind in "iu" and classes.dtype != np.uint64)
    names = classes if is_named else np.arange(len(classes))
    names = names.astype(object if is_text else np.int64)
    # Where no label is, any name: it is never among the best.
    return names[code.to_ids(np.arange(code.n_positions or len(classes)))]
