"""Operators of graphs keep the digits of NumPy and torch, and encoders give the same features."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.special import log_expit
from torch import nn

from sklearn_xlc.batches import Rows, make_batch
from sklearn_xlc.encoders import MLPEncoder
from sklearn_xlc.inspection.onnx_graph import Graph, encoder_features

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def run(graph, result, **given):
    """Value of a name of a graph."""
    helper = onnx.helper
    info = {
        name: helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim
        )
        for name, value in given.items()
    }
    graph.named("result", result)
    kind = helper.np_dtype_to_tensor_dtype(graph.dtype)
    out = helper.make_tensor_value_info("result", kind, None)
    made = helper.make_graph(graph.nodes, "test", list(info.values()), [out], graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, given)[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_sigmoid_keeps_its_digits(dtype):
    x = np.r_[-np.inf, np.linspace(-90, 90, 3001), np.inf].astype(dtype)
    graph = Graph(onnx, np.dtype(dtype))
    found = run(graph, graph.log_sigmoid("x"), x=x)
    exact = log_expit(x.astype(np.float64))
    normal = exact < -np.finfo(dtype).tiny
    np.testing.assert_allclose(found[normal], exact[normal], rtol=8 * np.finfo(dtype).eps)
    np.testing.assert_allclose(found[~normal], 0, atol=np.finfo(dtype).tiny)


def features_of(encoder, X):
    form = "csr" if sp.issparse(X) else "dense"
    graph = Graph(onnx, X.dtype)
    given = {"X": X}
    if form == "csr":
        given = {name: getattr(X, name).astype(np.int64) for name in ("indptr", "indices")}
        given["data"] = X.data
    return run(graph, encoder_features(graph, encoder, form), **given)


@pytest.mark.parametrize("n_members", [1, 3])
@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_perceptrons_read_dense_and_sparse_rows(n_members, slope):
    X = sp.random(9, 30, 0.2, format="csr", dtype=np.float32, random_state=0)
    X = sp.vstack([X[:0], sp.csr_matrix((2, 30), dtype=np.float32), X], "csr")
    encoder = MLPEncoder(30, (8, 6), 0.5, True, n_members, slope).eval()
    with torch.no_grad():
        expected = encoder(make_batch(Rows(X)).inputs).numpy()
    for form in (X, X.toarray()):
        np.testing.assert_allclose(features_of(encoder, form), expected, rtol=1e-5, atol=1e-6)


def test_layers_of_the_user():
    layers = [nn.Linear(7, 12), nn.Tanh(), nn.LayerNorm(12, elementwise_affine=False), nn.Sigmoid()]
    layers += [nn.Linear(12, 8, bias=False), nn.LeakyReLU(0.1), nn.Dropout(0.2), nn.Identity()]
    encoder = nn.Sequential(*layers).eval()
    X = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    expected = encoder(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(features_of(encoder, X), expected, rtol=1e-5, atol=1e-6)


def test_sparse_rows_give_the_same_features_each_time():
    """Several threads that add into one row would lose some of it, now and then."""
    X = sp.random(1000, 150, 0.2, format="csr", dtype=np.float32, random_state=0)
    encoder = MLPEncoder(150, (16,)).eval()
    first = features_of(encoder, X)
    for _ in range(40):
        np.testing.assert_array_equal(features_of(encoder, X), first)
