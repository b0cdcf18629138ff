"""Build ONNX graphs, and add encoders to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from sklearn_xlc.encoders import InputLinear, MLPEncoder
from sklearn_xlc.encoders.mlp import Dropout, MemberLinear, MemberNorm

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


class Graph:
    """ONNX graph under construction.

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
        """Add an operator on names, arrays and tensors; return the names of its outputs."""
        names = [item if isinstance(item, str) else self.constant(item) for item in given]
        outputs = [f"{operator}_{len(self.nodes)}_{i}" for i in range(n_outputs)]
        self.nodes.append(self.onnx.helper.make_node(operator, names, outputs, **attributes))
        return outputs[0] if n_outputs == 1 else outputs

    def constant(self, value: Any) -> str:
        """Add a constant and return its name: floats in the type of the weights, or int64."""
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
        """Add the best k columns, best first; ties go to the first column."""
        best, columns = self.add("TopK", scores, [k], n_outputs=2, axis=1)
        return best, columns

    def linear(self, rows: str, weight: Any, bias: Any = None) -> str:
        """Add a linear layer: rows times the transpose of a weight, plus a bias."""
        products = self.add("MatMul", rows, weight.T)
        return products if bias is None else self.add("Add", products, bias)

    def reduce(self, operator: str, value: str, axis: int = 1) -> str:
        """Add a reduction over an axis; the axis is kept, with one entry."""
        return self.add(operator, value, [axis], keepdims=1)

    def log_softmax(self, value: str) -> str:
        """Add log probabilities over the last axis."""
        return self.add("LogSoftmax", value, axis=-1)

    def log_sigmoid(self, value: str) -> str:
        """Add min(x, 0) - log(1 + u), with u = exp(-|x|).

        ONNX has no log1p, and log(1 + u) loses the digits of a small u. With w = 1 + u as rounded,
        log(w) u / (w - 1) keeps them.
        """
        small = self.add("Exp", self.add("Neg", self.add("Abs", value)))
        whole = self.add("Add", small, 1.0)
        ratio = self.add("Div", small, self.add("Sub", whole, 1.0))
        rest = self.add("Mul", self.add("Log", whole), ratio)
        rest = self.add("Where", self.add("Greater", whole, 1.0), rest, small)
        return self.add("Sub", self.add("Min", value, 0.0), rest)


# --- encoders ---------------------------------------------------------------------------------


def encoder_features(graph: Graph, encoder: nn.Module, form: str) -> str:
    """Add the encoder; return the name of the features."""
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
    # Differences of running sums, in double precision: onnxruntime adds into rows from several
    # threads at once (ScatterND), and then loses some of what it adds.
    data = graph.add("Unsqueeze", "data", [1])
    products = graph.add("Mul", graph.add("Gather", layer.weight, "indices", axis=0), data)
    products = graph.add("Concat", np.zeros((1, layer.weight.shape[1])), products, axis=0)
    kind_of = graph.onnx.helper.np_dtype_to_tensor_dtype
    products = graph.add("Cast", products, to=kind_of(np.dtype(np.float64)))
    sums = graph.add("CumSum", products, 0)
    n_starts = graph.add("Shape", "indptr")
    starts = graph.add("Slice", "indptr", [0], graph.add("Sub", n_starts, [1]))
    stops = graph.add("Slice", "indptr", [1], n_starts)
    parts = [graph.add("Gather", sums, edges, axis=0) for edges in (stops, starts)]
    of_rows = graph.add("Cast", graph.add("Sub", *parts), to=kind_of(graph.dtype))
    return graph.add("Add", of_rows, layer.bias)


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
