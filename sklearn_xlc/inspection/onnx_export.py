"""Export classifiers as ONNX graphs, for servers without Python."""

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
from sklearn_xlc.engine.base import BaseXLCClassifier
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
from sklearn_xlc.inspection.onnx_graph import Graph, encoder_features
from sklearn_xlc.metrics import unwrapped
from sklearn_xlc.training.devices import numpy_dtype

#: Versions of the operators and of the file, which every runtime since 2023 reads.
OPSET, IR_VERSION = 18, 8


def to_onnx(
    estimator: Any,
    path: str | os.PathLike[str] | None = None,
    k: int = 5,
    *,
    inputs: str = "dense",
) -> Any:
    """Export a classifier as an ONNX graph: encoder, head and the best k labels.

    The graph computes ``predict_topk(X, k)`` and the probabilities, up to rounding. Any ONNX engine
    runs it, without Python, torch or this package.

    Parameters
    ----------
    estimator : estimator
        Fitted classifier of this package, or a search or
        :class:`~sklearn.frozen.FrozenEstimator` around one. Export the last step of a pipeline, and
        feed the graph with the output of the steps before it.
    path : str or path-like, default=None
        File to write; None: none is written.
    k : int, default=5
        Number of labels of each sample.
    inputs : {"dense", "csr"}, default="dense"
        Inputs of the graph.

        - "dense": "X", of shape (n_samples, n_features).
        - "csr": "indptr" and "indices" (both int64) and "data" of a CSR matrix, for X with many
          columns.

    Returns
    -------
    model : onnx.ModelProto
        Outputs are "labels", "scores" and, if the loss defines them, "probabilities", all of shape
        (n_samples, k), best label first. Labels are entries of ``classes_`` if these are integers
        or strings, otherwise positions in ``classes_``.

    Raises
    ------
    ImportError
        If ``onnx`` is not installed.
    TypeError
        If the estimator, its encoder or its head cannot be exported; the message says why.
    ValueError
        If `k` is larger than the number of labels, `inputs` is not valid, or the graph would exceed
        the 2 GiB of ONNX.
    NotFittedError
        If the estimator is not fitted.
    OSError
        If the file cannot be written; an existing one is left as it was.

    See Also
    --------
    save : Writes a file for this package, of a quarter of the size.

    Notes
    -----
    "cascade" follows its beam. The other heads score all labels of a batch at once, and need memory
    for (n_samples, n_labels) numbers: "flat" (ensembles and low rank, too), "product", "sampling"
    and the heads of :class:`~sklearn_xlc.DFTSigmoidClassifier` and
    :class:`~sklearn_xlc.ETFNeuralCollapseClassifier`. Encoders are the package's perceptron, or
    :class:`~torch.nn.Sequential` of linear layers, layer normalisation and activations. Label sets,
    decisions, bags and text are not supported.

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
    if not isinstance(inputs, str) or inputs not in ("dense", "csr"):
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


def _graph_of(onnx: Any, classifier: Any, k: int, form: str) -> Any:
    """Return the model of a fitted classifier."""
    module, helper = classifier.net_.module_, onnx.helper
    dtype = numpy_dtype(module)
    graph = Graph(onnx, dtype)
    features = encoder_features(graph, module.encoder, form)
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
        odds = _calibrated(graph, getattr(classifier, "ranker_", None), best)
        probabilities = _probabilities(graph, module.head, odds, everything)
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
    """Return the names or ids of the labels, in the order of the head."""
    classes, code = classifier.classes_, classifier._code
    is_text = classes.dtype.kind == "U" or all(isinstance(name, str) for name in classes)
    is_named = is_text or (classes.dtype.kind in "iu" and classes.dtype != np.uint64)
    names = classes if is_named else np.arange(len(classes))
    names = names if is_text else names.astype(np.int64)
    # Where no label is, any name: it is never among the best.
    return names[code.to_ids(np.arange(code.n_positions or len(classes)))]


def _calibrated(graph: Graph, calibration: Any, best: str) -> str:
    """Add the calibration: a line, with slope one below its start."""
    if calibration is None:
        return best
    above = graph.add("Max", best, calibration.start_)
    line = graph.add("Add", graph.add("Mul", above, calibration.slope_), calibration.offset_)
    return graph.add("Add", line, graph.add("Sub", best, above))


def _probabilities(graph: Graph, head: Head, best: str, everything: str | None) -> str:
    """Add probabilities of the best labels, as in `Head.probabilities`."""
    if head.link == "softmax":
        best = graph.add("Sub", best, graph.reduce("ReduceLogSumExp", str(everything)))
    return graph.add("Sigmoid" if head.link == "sigmoid" else "Exp", best)


# --- heads ------------------------------------------------------------------------------------


def _best(graph: Graph, head: Head, features: str, k: int) -> tuple[str, str, str | None]:
    """Add scores and positions of the k best labels, and all scores without a beam."""
    if type(head) is CascadeHead and head.free is not None:
        raise TypeError(
            "to_onnx cannot express a CascadeHead from which labels were removed: fit it anew"
        )
    if type(head) is CascadeHead:
        return (*_beam(graph, head, features, k), None)
    if type(head) not in _SCORES:
        reason = _REASONS.get(type(head), "it is none of this package's, whose scores are known")
        raise TypeError(f"to_onnx cannot express the head {type(head).__name__}: {reason}")
    scores = _SCORES[type(head)](graph, head, features)
    return (*graph.topk(scores, k), scores)


def _linear_scores(graph: Graph, head: FlatHead | ETFHead | FourierHead, features: str) -> str:
    """Add scores of a linear head, with or without a projection."""
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
    logits = _left_out(graph, head, logits)
    return graph.log_softmax(logits) if head.link == "exp" else logits


def _left_out(graph: Graph, head: Head, logits: str) -> str:
    """Set logits to minus infinity at positions without a label."""
    if head.free is None:
        return logits
    return graph.add("Add", logits, np.where(head.free.cpu().numpy(), -np.inf, 0.0))


def _product_scores(graph: Graph, head: ProductHead, features: str) -> str:
    """Add the sums of scores of a label's digits, or the mixture of groups (Eq. 16)."""
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
    scores = _left_out(graph, head, scores)
    return graph.log_softmax(scores) if head.link == "exp" else scores


def _sampling_scores(graph: Graph, head: SamplingHead, features: str) -> str:
    weight, scale = head._test_weight()
    if head.angular is not None:
        norm = graph.add("ReduceL2", features, [1], keepdims=1)
        features = graph.add("Div", features, graph.add("Max", norm, 1e-12))
        weight = scale * nn.functional.normalize(weight)
    return _left_out(graph, head, graph.linear(features, weight))


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
    """Add the best labels in the beam of a cascade, as in `CascadeHead._leaves`."""
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
    """Sort a beam by its nodes."""
    nodes, order = graph.add("TopK", nodes, [width], n_outputs=2, axis=1, largest=0)
    return graph.add("GatherElements", path, order, axis=1), nodes


def _children(
    graph: Graph, head: CascadeHead, level: int, features: str, nodes: str
) -> tuple[str, str, str]:
    """Add log probabilities of the children of nodes, the children, and whether they exist.

    All three have the shape (n_samples, n_nodes, length).
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
    """Compute s - log(1 - exp(s)), with 1 - exp(s) = -2 t / (1 - t) and t = tanh(s / 2)."""
    tiny = float(np.finfo(graph.dtype).tiny)
    scores = graph.add("Min", scores, -tiny)
    t = graph.add("Tanh", graph.add("Mul", scores, 0.5))
    ratio = graph.add("Div", graph.add("Mul", t, -2.0), graph.add("Sub", 1.0, t))
    return graph.add("Sub", scores, graph.add("Log", ratio))
