"""Classifiers as ONNX graphs: encoder, head and the best labels, for servers without Python."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.base import MetaEstimatorMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._files import replacing
from sklearn_xlc.encoders import InputLinear, MLPEncoder
from sklearn_xlc.encoders.mlp import Dropout, MemberLinear, MemberNorm
from sklearn_xlc.engine.fitting import BaseXLCClassifier
from sklearn_xlc.heads import (
    CascadeHead,
    ETFHead,
    FlatHead,
    FourierHead,
    Head,
    MIMLHead,
    PowersetHead,
    ProductHead,
    SamplingHead,
)
from sklearn_xlc.metrics._scorer import unwrapped
from sklearn_xlc.training.devices import numpy_dtype

#: Versions of the operators and of the file, which every runtime since 2023 reads.
OPSET, IR_VERSION = 18, 8
#: A protobuf message is shorter.
LIMIT = 2**31
#: Layers without parameters, and the operators that compute them.
_ACTIVATIONS = {
    nn.ReLU: "Relu",
    nn.Tanh: "Tanh",
    nn.Sigmoid: "Sigmoid",
    nn.Identity: "Identity",
    nn.Dropout: "Identity",
    Dropout: "Identity",
}


def to_onnx(
    estimator: Any,
    path: str | os.PathLike[str] | None = None,
    k: int = 5,
    *,
    inputs: str = "dense",
) -> Any:
    """Export a classifier as an ONNX graph: encoder, head and the best k labels.

    The graph computes what ``predict_topk(X, k)`` does, and its probabilities, up to rounding; any
    runtime of ONNX runs it, without Python, torch or this package.

    Parameters
    ----------
    estimator : estimator
        Fitted classifier of this package, or a search or
        :class:`~sklearn.frozen.FrozenEstimator` around one. Steps of a pipeline before the
        classifier are not exported: export its last step, and give the graph what they return.
    path : str or path-like, default=None
        File to write; None: none is written.
    k : int, default=5
        Number of labels of each sample.
    inputs : {"dense", "csr"}, default="dense"
        Inputs of the graph.

        - "dense": "X", of shape (n_samples, n_features).
        - "csr": "indptr" and "indices" (both int64) and "data" of a CSR matrix, for X with many
          columns. Only the rows of the first layer that occur are read.

    Returns
    -------
    model : onnx.ModelProto
        Outputs are "labels" (entries of ``classes_``, if these are integers or strings; otherwise
        their positions in it), "scores" and, where the loss defines them, "probabilities", all of
        shape (n_samples, k), best label first.

    Raises
    ------
    ImportError
        If ``onnx`` is not installed.
    TypeError
        If the estimator, its encoder or its head cannot be exported; the message says why.
    ValueError
        If `k` is larger than the number of labels, `inputs` is another word, or the graph would
        exceed the 2 GiB that ONNX allows.
    NotFittedError
        If the estimator is not fitted.
    OSError
        If the file cannot be written; an existing one is left as it was.

    See Also
    --------
    save : Writes a file that this package loads, of a quarter of the size.

    Notes
    -----
    "flat" (ensembles and low rank, too), "product", "sampling" and the layers of
    :class:`~sklearn_xlc.DFTSigmoidClassifier` and
    :class:`~sklearn_xlc.ETFNeuralCollapseClassifier` score all labels of a batch at once, so
    that a batch takes memory for (n_samples, n_labels) numbers. "cascade" follows its beam.
    Encoders are the package's perceptron, or :class:`~torch.nn.Sequential` of linear layers,
    layer normalisation and activations. Label sets, decisions, bags and text are not expressed.

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
    classifier = _classifier_of(estimator)
    k = classifier._check_k(check_integer(k, "k"))
    if inputs not in ("dense", "csr"):
        raise ValueError(f"inputs must be 'dense' or 'csr', got {inputs!r}")
    model = _graph_of(_onnx(), classifier, k, inputs)
    if path is not None:
        with replacing(os.fsdecode(path)) as file:
            file.write(model.SerializeToString())
    return model


def _onnx() -> Any:
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise ImportError(
            "to_onnx needs the package onnx; install it by pip install 'sklearn-xlc[onnx]'"
        ) from error


def _classifier_of(estimator: Any) -> Any:
    found, before = unwrapped(estimator)
    if before:
        raise TypeError(
            "to_onnx exports classifiers, and the estimator has steps before its classifier; "
            "export the last step (pipeline[-1]) and give the graph what the others return"
        )
    if isinstance(found, MetaEstimatorMixin) and hasattr(found, "estimator_"):
        return _classifier_of(found.estimator_)
    if not isinstance(found, BaseXLCClassifier):
        raise TypeError(f"to_onnx takes a classifier of sklearn_xlc, got {estimator!r}")
    check_is_fitted(found, "net_")
    return found


# --- the graph --------------------------------------------------------------------------------


class Graph:
    """ONNX graph under construction: adds nodes, and names their outputs.

    Parameters
    ----------
    onnx : module
        The package onnx.
    dtype : dtype
        Type of the weights.
    """

    def __init__(self, onnx: Any, dtype: np.dtype) -> None:
        self.onnx, self.dtype = onnx, dtype
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.n_bytes = 0

    def add(self, operator: str, *given: Any, n_outputs: int = 1, **attributes: Any) -> Any:
        """Names of the outputs of an operator on names, arrays and tensors; one name for one."""
        names = [item if isinstance(item, str) else self.constant(item) for item in given]
        outputs = [f"{operator}_{len(self.nodes)}_{i}" for i in range(n_outputs)]
        self.nodes.append(self.onnx.helper.make_node(operator, names, outputs, **attributes))
        return outputs[0] if n_outputs == 1 else outputs

    def constant(self, value: Any) -> str:
        """Name of a constant: floats have the type of the weights, integers 64 bits."""
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().numpy()
        value = np.asarray(value)
        kind = {"f": self.dtype, "i": np.dtype(np.int64)}.get(value.dtype.kind, value.dtype)
        name = f"constant_{len(self.constants)}"
        if kind.kind in "OU":
            text = [str(item).encode() for item in value.ravel()]
            kind_of = self.onnx.TensorProto.STRING
            made = self.onnx.helper.make_tensor(name, kind_of, value.shape, text)
        else:
            self.n_bytes += value.size * kind.itemsize
            if self.n_bytes >= LIMIT:
                raise ValueError("the graph would exceed the 2 GiB that ONNX allows; use save")
            made = self.onnx.numpy_helper.from_array(np.asarray(value, kind, order="C"), name)
        self.constants.append(made)
        return name

    def named(self, name: str, value: str) -> None:
        """Give an output of the graph its name."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))

    def topk(self, scores: str, k: int) -> tuple[str, str]:
        """Best k columns, best first; among equal ones the first."""
        best, columns = self.add("TopK", scores, [k], n_outputs=2, axis=1)
        return best, columns

    def linear(self, rows: str, weight: Any, bias: Any = None) -> str:
        """Rows times the transpose of a weight, plus a bias."""
        products = self.add("MatMul", rows, weight.T)
        return products if bias is None else self.add("Add", products, bias)

    def reduce(self, operator: str, value: str, axis: int = 1) -> str:
        """Reduction over an axis that stays, with one entry."""
        return self.add(operator, value, [axis], keepdims=1)

    def log_softmax(self, value: str) -> str:
        """Log probabilities over the last axis."""
        return self.add("LogSoftmax", value, axis=-1)

    def log_sigmoid(self, value: str) -> str:
        """min(x, 0) - log(1 + u), u = exp(-|x|).

        ONNX has no log1p, and log(1 + u) has no digit of a small u. With w = 1 + u as rounded,
        log(w) u / (w - 1) has all of them.
        """
        small = self.add("Exp", self.add("Neg", self.add("Abs", value)))
        whole = self.add("Add", small, 1.0)
        ratio = self.add("Div", small, self.add("Sub", whole, 1.0))
        rest = self.add("Mul", self.add("Log", whole), ratio)
        rest = self.add("Where", self.add("Greater", whole, 1.0), rest, small)
        return self.add("Sub", self.add("Min", value, 0.0), rest)


def _graph_of(onnx: Any, classifier: Any, k: int, form: str) -> Any:
    """Model of a fitted classifier."""
    module, helper = classifier.net_.module_, onnx.helper
    dtype = numpy_dtype(module)
    graph = Graph(onnx, dtype)
    features = _encoder(graph, module.encoder, form)
    best, positions, everything = _best(graph, module.head, features, k)
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    integer = onnx.TensorProto.INT64
    if form == "dense":
        given = [("X", kind, ["n_samples", classifier.n_features_in_])]
    else:
        given = [("indptr", integer, ["n_rows"]), ("indices", integer, ["n_entries"])]
        given += [("data", kind, ["n_entries"])]
    names = _names(classifier)
    graph.named("labels", graph.add("Gather", names, positions))
    graph.named("scores", best)
    found = [("labels", integer if names.dtype.kind == "i" else onnx.TensorProto.STRING)]
    found += [("scores", kind)]
    if module.head.link is not None:
        probabilities = _probabilities(graph, module.head, best, everything)
        graph.named("probabilities", probabilities)
        found += [("probabilities", kind)]
    made = helper.make_graph(
        graph.nodes,
        type(classifier).__name__,
        [helper.make_tensor_value_info(*info) for info in given],
        [helper.make_tensor_value_info(*info, ["n_samples", k]) for info in found],
        graph.constants,
    )
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(made, opset_imports=opset, ir_version=IR_VERSION)
    model.producer_name = "sklearn_xlc"
    onnx.checker.check_model(model)
    return model


def _names(classifier: Any) -> np.ndarray:
    """Names of the labels in the order of the head, or their ids."""
    classes, code = classifier.classes_, classifier._code
    is_text = classes.dtype.kind == "U" or all(isinstance(name, str) for name in classes)
    is_named = is_text or (classes.dtype.kind in "iu" and classes.dtype != np.uint64)
    names = classes if is_named else np.arange(len(classes))
    names = names if is_text else names.astype(np.int64)
    return names[code.to_ids(np.arange(len(classes)))]


def _probabilities(graph: Graph, head: Head, best: str, everything: str | None) -> str:
    """Probabilities of the best labels, as `Head.probabilities` has them."""
    if head.link == "softmax":
        best = graph.add("Sub", best, graph.reduce("ReduceLogSumExp", str(everything)))
    return graph.add("Sigmoid" if head.link == "sigmoid" else "Exp", best)


# --- encoders ---------------------------------------------------------------------------------


def _encoder(graph: Graph, encoder: nn.Module, form: str) -> str:
    """Features of the samples."""
    if type(encoder) is MLPEncoder:
        layers, first = encoder.layers, encoder.input
    else:
        layers = encoder if type(encoder) is nn.Sequential else nn.Sequential(encoder)
        first = None
    if form == "csr" and first is None:
        raise TypeError("inputs='csr' needs the package's own encoder (encoder=None)")
    features = "X" if first is None else _input_layer(graph, first, form)
    for layer in layers:
        features = _layer(graph, layer, features)
    return features


def _input_layer(graph: Graph, layer: InputLinear, form: str) -> str:
    if form == "dense":
        return graph.linear("X", layer.weight.T, layer.bias)
    # The row of an entry: how many rows but the first have begun before it, or with it.
    n_entries, n_starts = graph.add("Shape", "data"), graph.add("Shape", "indptr")
    length = graph.add("Add", n_entries, [1])
    zeros = graph.add("Expand", [0], length)
    starts = graph.add("Slice", "indptr", [1], graph.add("Sub", n_starts, [1]))
    ones = graph.add("Expand", [1], graph.add("Shape", starts))
    begun = graph.add("ScatterElements", zeros, starts, ones, axis=0, reduction="add")
    rows = graph.add("Slice", graph.add("CumSum", begun, 0), [0], n_entries)
    data = graph.add("Unsqueeze", "data", [1])
    products = graph.add("Mul", graph.add("Gather", layer.weight, "indices", axis=0), data)
    width = layer.weight.shape[1]
    shape = graph.add("Concat", graph.add("Sub", n_starts, [1]), [width], axis=0)
    sums = graph.add("Expand", 0.0, shape)
    at = graph.add("Unsqueeze", rows, [1])
    sums = graph.add("ScatterND", sums, at, products, reduction="add")
    return graph.add("Add", sums, layer.bias)


def _layer(graph: Graph, layer: Any, features: str) -> str:
    kind = type(layer)
    if kind in _ACTIVATIONS:
        return graph.add(_ACTIVATIONS[kind], features)
    if isinstance(layer, nn.LeakyReLU):
        return graph.add("LeakyRelu", features, alpha=layer.negative_slope)
    if kind is nn.Linear or kind is InputLinear:
        weight = layer.weight if kind is nn.Linear else layer.weight.T
        return graph.linear(features, weight, layer.bias)
    if kind is MemberLinear:
        return _member_linear(graph, layer, features)
    if kind in (nn.LayerNorm, MemberNorm) and len(layer.normalized_shape) == 1:
        return _norm(graph, layer, features)
    raise TypeError(
        f"to_onnx cannot express the encoder's layer {kind.__name__}; export an encoder of your "
        "own by torch.onnx, and its features are what transform returns"
    )


def _member_linear(graph: Graph, layer: Any, features: str) -> str:
    n = layer.n_members
    rows = graph.add("Split", features, n_outputs=n, axis=1, num_outputs=n)
    members = zip(rows, layer.weight.chunk(n), layer.bias.chunk(n))
    return graph.add("Concat", *(graph.linear(*member) for member in members), axis=1)


def _norm(graph: Graph, layer: Any, features: str) -> str:
    weight = torch.ones(layer.normalized_shape) if layer.weight is None else layer.weight
    bias = torch.zeros_like(weight) if layer.bias is None else layer.bias
    if type(layer) is nn.LayerNorm:
        both = (weight, bias)
        return graph.add("LayerNormalization", features, *both, axis=-1, epsilon=layer.eps)
    n_members, width = layer.shape
    one = np.ones(width)
    parts = graph.add("Reshape", features, [0, n_members, width])
    normal = graph.add("LayerNormalization", parts, one, 0 * one, axis=-1, epsilon=layer.eps)
    flat = graph.add("Reshape", normal, [0, n_members * width])
    return graph.add("Add", graph.add("Mul", flat, weight), bias)


# --- heads ------------------------------------------------------------------------------------


def _best(graph: Graph, head: Head, features: str, k: int) -> tuple[str, str, str | None]:
    """Scores and positions of the k best labels, and the scores of all unless a beam finds them."""
    if type(head) is CascadeHead:
        return (*_beam(graph, head, features, k), None)
    if type(head) not in _SCORES:
        reason = _REASONS.get(type(head), "it is none of this package's, whose scores are known")
        raise TypeError(f"to_onnx cannot express the head {type(head).__name__}: {reason}")
    scores = _SCORES[type(head)](graph, head, features)
    return (*graph.topk(scores, k), scores)


def _linear_scores(graph: Graph, head: FlatHead | ETFHead | FourierHead, features: str) -> str:
    """Scores of heads that are linear in what a linear layer makes of the features."""
    if type(head.projection) is nn.Linear:
        features = graph.linear(features, head.projection.weight, head.projection.bias)
    if type(head) is FourierHead and head.gain != 1.0:
        gains = np.ones(head.width + head.n_slack)
        gains[: head.width] = head.gain
        features = graph.add("Mul", features, gains)
    bias = getattr(head, "bias", None)
    if type(head) is ETFHead and head.is_implicit:  # Eq. 6: W is never stored
        centred = graph.add("Sub", features, graph.reduce("ReduceMean", features))
        logits = graph.add("Mul", centred, head._implicit_scale())
        logits = logits if bias is None else graph.add("Add", logits, bias)
    else:
        like = torch.empty(0, dtype=next(head.parameters()).dtype)
        logits = graph.linear(features, head.classifier(like), bias)
    return graph.log_softmax(logits) if head.link == "exp" else logits


def _product_scores(graph: Graph, head: ProductHead, features: str) -> str:
    """Sums of the scores of a label's digits; of several groups the mixture (Eq. 16)."""
    lengths, n_groups = head.code.lengths, head.n_groups
    outputs = graph.linear(features, head.linear.weight, head.linear.bias)
    sizes = [*lengths * n_groups, *([n_groups] if n_groups > 1 else [])]
    parts = [outputs]
    if len(sizes) > 1:
        parts = graph.add("Split", outputs, sizes, n_outputs=len(sizes), axis=1)
    digits = head.code.encode(np.arange(head.n_labels))
    squash = graph.log_softmax if head.criterion.needs_normaliser else graph.log_sigmoid
    groups = []
    for group in range(n_groups):
        heads = parts[group * len(lengths) : (group + 1) * len(lengths)]
        at_labels = [
            graph.add("Gather", squash(part), digits[:, h], axis=1) for h, part in enumerate(heads)
        ]
        scores = at_labels[0]
        for more in at_labels[1:]:
            scores = graph.add("Add", scores, more)
        groups.append(scores)
    scores = groups[0]
    if n_groups > 1:
        mixing = graph.add(
            "Split", graph.log_softmax(parts[-1]), n_outputs=n_groups, axis=1, num_outputs=n_groups
        )
        weighted = [graph.add("Add", *pair) for pair in zip(groups, mixing)]
        stacked = [graph.add("Unsqueeze", part, [0]) for part in weighted]
        mixed = graph.reduce("ReduceLogSumExp", graph.add("Concat", *stacked, axis=0), axis=0)
        scores = graph.add("Squeeze", mixed, [0])
    return graph.log_softmax(scores) if head.link == "exp" else scores


def _sampling_scores(graph: Graph, head: SamplingHead, features: str) -> str:
    weight, scale = head._test_weight()
    if head.arcface:
        norm = graph.add("ReduceL2", features, [1], keepdims=1)
        features = graph.add("Div", features, graph.add("Max", norm, 1e-12))
        weight = scale * nn.functional.normalize(weight)
    return graph.linear(features, weight)


_REASONS: dict[type[Head], str] = {
    MIMLHead: "its samples come in bags",
    PowersetHead: "it searches among whole label sets",
}
_SCORES: dict[type[Head], Callable[..., str]] = {
    FlatHead: _linear_scores,
    ETFHead: _linear_scores,
    FourierHead: _linear_scores,
    ProductHead: _product_scores,
    SamplingHead: _sampling_scores,
}


def _beam(graph: Graph, head: CascadeHead, features: str, k: int) -> tuple[str, str]:
    """Best labels below the beam of a cascade, as `CascadeHead._leaves` finds them."""
    width = min(head._beam_for(k), head.n_nodes[0])
    logits = graph.linear(features, head.first.weight, head.first.bias)
    path, nodes = graph.topk(logits, width)
    if head.multilabel:
        path = graph.log_sigmoid(path)
    else:
        path = graph.add("Sub", path, graph.reduce("ReduceLogSumExp", logits))
    for level in range(1, head.code.n_heads):
        # In the order of the nodes, so that equal scores below rank by position.
        path, nodes = _by_node(graph, path, nodes, width)
        own, children, exist = _children(graph, head, level, features, nodes)
        is_last = level + 1 == head.code.n_heads
        parent = graph.add("Unsqueeze", path, [2])
        weight = head.path_exponent if is_last else 1.0
        scores = graph.add("Add", graph.add("Mul", parent, weight), own)
        if is_last and head.multilabel:
            scores = _log_odds(graph, scores)
        exist = graph.add("And", exist, graph.add("Greater", parent, -np.inf))
        scores = graph.add("Where", exist, scores, -np.inf)
        n_children = width * head.code.lengths[level]
        flat, of_flat = (graph.add("Reshape", x, [0, n_children]) for x in (scores, children))
        n_kept = k if is_last else min(head._beam_for(k), head.n_nodes[level], n_children)
        path, columns = graph.topk(flat, n_kept)
        nodes = graph.add("GatherElements", of_flat, columns, axis=1)
        nodes = graph.add("Min", nodes, [head.n_nodes[level] - 1])
        width = n_kept
    return path, nodes


def _by_node(graph: Graph, path: str, nodes: str, width: int) -> tuple[str, str]:
    """A beam in the order of its nodes."""
    nodes, order = graph.add("TopK", nodes, [width], n_outputs=2, axis=1, largest=0)
    return graph.add("GatherElements", path, order, axis=1), nodes


def _children(
    graph: Graph, head: CascadeHead, level: int, features: str, nodes: str
) -> tuple[str, str, str]:
    """Log probabilities of the children of nodes, the children, and whether they exist.

    All have the shape (n_samples, n_nodes, length).
    """
    length, size = head.code.lengths[level], head.embedding_dim
    table = head.tables[level - 1].view(-1, length, size + 1)
    layer: Any = head.queries[level - 1]
    query = graph.add("Unsqueeze", graph.linear(features, layer.weight, layer.bias), [1, 3])
    weight = graph.add("Gather", table[..., :size], nodes, axis=0)  # (n, width, length, size)
    logits = graph.add("Squeeze", graph.add("MatMul", weight, query), [3])
    logits = graph.add("Add", logits, graph.add("Gather", table[..., size], nodes, axis=0))
    first = graph.add("Mul", graph.add("Unsqueeze", nodes, [2]), [length])
    children = graph.add("Add", first, np.arange(length))
    exist = graph.add("Less", children, [head.n_nodes[level]])
    if head.multilabel:
        return graph.log_sigmoid(logits), children, exist
    logits = graph.add("Where", exist, logits, -np.inf)
    return graph.log_softmax(logits), children, exist


def _log_odds(graph: Graph, scores: str) -> str:
    """S - log(1 - exp(s)), where 1 - exp(s) = -2 t / (1 - t) with t = tanh(s / 2)."""
    tiny = float(np.finfo(graph.dtype).tiny)
    scores = graph.add("Min", scores, -tiny)
    t = graph.add("Tanh", graph.add("Mul", scores, 0.5))
    ratio = graph.add("Div", graph.add("Mul", t, -2.0), graph.add("Sub", 1.0, t))
    return graph.add("Sub", scores, graph.add("Log", ratio))
