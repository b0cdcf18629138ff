"""Every kind of X, y and sample_weight that somebody may pass, with what is right for it.

`X_KINDS[name]` is `(outcome, dtype, make)`: the outcome as in `Trial`, the type that a model of it
has (None: the result has values of its own, and is compared with nothing), and a function of the
plain array and a generator. Labels keep their order, so that models of them are the same.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse as sp
import torch

BAD, ANY, GOOD = "refusal", "either", "result"


def changed(array, value, dtype=None):
    """Copy of the array that holds the value in one place."""
    array = array.astype(dtype or np.result_type(array, np.asarray(value)))
    array[(array.shape[0] // 2,) + (1,) * (array.ndim - 1)] = value
    return array


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def memory_map(array, mode="r"):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "array.npy"
        np.save(path, array)
        return np.load(path, mmap_mode=mode)


def strided(array):
    return np.repeat(array, 2, axis=0)[::2]


def backwards(array):
    return array[::-1].copy()[::-1]


def csr(array, **changes):
    """CSR of the array with some of its parts replaced, unchecked."""
    matrix = sp.csr_matrix(array)
    for name, change in changes.items():
        vars(matrix)[name] = change(getattr(matrix, name))
    return matrix


def unsorted(array):
    matrix = sp.csr_matrix(array)
    for start, stop in zip(matrix.indptr, matrix.indptr[1:]):
        matrix.indices[start:stop] = matrix.indices[start:stop][::-1].copy()
        matrix.data[start:stop] = matrix.data[start:stop][::-1].copy()
    matrix.has_sorted_indices = False
    return matrix


def in_halves(array):
    """CSR with every entry stored twice, at half its value."""
    matrix = sp.coo_matrix(array)
    parts = (np.tile(matrix.data / 2, 2), (np.tile(matrix.row, 2), np.tile(matrix.col, 2)))
    doubled = sp.coo_matrix(parts, shape=array.shape)
    order = np.argsort(doubled.row, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(doubled.row, minlength=len(array)))])
    return sp.csr_matrix((doubled.data[order], doubled.col[order], indptr), shape=array.shape)


def stored_zeros(array):
    matrix = sp.csr_matrix(np.ones_like(array))
    matrix.data = array.ravel().astype(array.dtype).copy()
    return matrix


def wide_indices(array):
    matrix = sp.csr_matrix(array)
    matrix.indices, matrix.indptr = (
        matrix.indices.astype(np.int64),
        matrix.indptr.astype(np.int64),
    )
    return matrix


def last(value):
    def change(part):
        part = part.copy()
        part[-1] = value
        return part

    return change


def frame(array, dtype=None):
    names = [f"x{i}" for i in range(array.shape[1])]
    return pd.DataFrame(array, columns=names).astype(dtype or array.dtype)


def whole(array):
    return np.round(array * 2)


X_KINDS = {
    # dense, of the same values
    "float64": (GOOD, "float64", lambda X, rng: X),
    "float32": (GOOD, "float32", lambda X, rng: X.astype(np.float32)),
    "float16": (GOOD, "float64", lambda X, rng: X.astype(np.float16)),
    "longdouble": (GOOD, "float64", lambda X, rng: X.astype(np.longdouble)),
    "big endian": (GOOD, "float64", lambda X, rng: X.astype(">f8")),
    "big endian float32": (ANY, None, lambda X, rng: X.astype(">f4")),
    "object": (GOOD, "float64", lambda X, rng: X.astype(object)),
    "lists": (GOOD, "float64", lambda X, rng: X.tolist()),
    "tuples": (GOOD, "float64", lambda X, rng: tuple(map(tuple, X.tolist()))),
    "list of arrays": (GOOD, "float64", lambda X, rng: list(X)),
    "Fortran order": (GOOD, "float64", lambda X, rng: np.asfortranarray(X)),
    "read-only": (GOOD, "float64", lambda X, rng: read_only(X)),
    "read-only float32": (GOOD, "float32", lambda X, rng: read_only(X.astype(np.float32))),
    "strided": (GOOD, "float64", lambda X, rng: strided(X)),
    "strided columns": (GOOD, "float64", lambda X, rng: np.repeat(X, 3, axis=1)[:, ::3]),
    "backwards": (GOOD, "float64", lambda X, rng: backwards(X)),
    "broadcast": (ANY, None, lambda X, rng: np.broadcast_to(X[:1], X.shape)),
    "memory map": (GOOD, "float64", lambda X, rng: memory_map(X)),
    "memory map float32": (GOOD, "float32", lambda X, rng: memory_map(X.astype(np.float32), "c")),
    "masked": (ANY, None, lambda X, rng: np.ma.masked_array(X, rng.random(X.shape) < 0.2)),
    "matrix": (ANY, None, lambda X, rng: np.asmatrix(X)),
    "structured": (ANY, None, lambda X, rng: X.view([("a", "f8"), ("b", "f8")])),
    # dense, of other values
    "int8": (GOOD, None, lambda X, rng: whole(X).astype(np.int8)),
    "int64": (GOOD, None, lambda X, rng: whole(X).astype(np.int64)),
    "uint64": (GOOD, None, lambda X, rng: np.abs(whole(X)).astype(np.uint64)),
    "bool": (GOOD, None, lambda X, rng: X != 0),
    "zeros": (GOOD, None, lambda X, rng: np.zeros_like(X)),
    "empty rows": (GOOD, None, lambda X, rng: X * (np.arange(len(X)) % 3 > 0)[:, None]),
    "constant": (GOOD, None, lambda X, rng: np.full_like(X, 7.0)),
    "one column": (ANY, None, lambda X, rng: X[:, :1]),
    "duplicate columns": (GOOD, None, lambda X, rng: np.repeat(X[:, :3], 2, axis=1)),
    "negative zeros": (GOOD, None, lambda X, rng: np.where(X == 0, -0.0, X)),
    "denormal": (GOOD, None, lambda X, rng: X * 1e-310),
    "tiny float32": (GOOD, None, lambda X, rng: (X * 1e-40).astype(np.float32)),
    "large": (ANY, None, lambda X, rng: X * 1e6),
    "huge float32": (ANY, None, lambda X, rng: (X * 1e37).astype(np.float32)),
    "sentinel float32": (
        ANY,
        None,
        lambda X, rng: changed(X.astype(np.float32), np.float32(-3.4e38)),
    ),
    "sentinel": (ANY, None, lambda X, rng: changed(X, -3.4e38)),
    "huge": (ANY, None, lambda X, rng: X * 1e300),
    "one huge": (ANY, None, lambda X, rng: changed(X, 1.7e308)),
    "big integers": (ANY, None, lambda X, rng: changed(X, 2**62, np.int64)),
    "datetimes": (ANY, None, lambda X, rng: whole(X).astype("M8[s]")),
    "timedeltas": (ANY, None, lambda X, rng: whole(X).astype("m8[s]")),
    "numbers as text": (ANY, None, lambda X, rng: X.astype(str)),
    # sparse
    **{
        f"{kind}_{name}": (
            GOOD,
            "float64",
            lambda X, rng, kind=kind, name=name: getattr(sp, f"{kind}_{name}")(X),
        )
        for kind in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")
        for name in ("matrix", "array")
    },
    "csr float32": (GOOD, "float32", lambda X, rng: sp.csr_matrix(X.astype(np.float32))),
    "csr int": (GOOD, None, lambda X, rng: sp.csr_matrix(whole(X).astype(int))),
    "csr bool": (GOOD, None, lambda X, rng: sp.csr_array(X != 0)),
    "csr longdouble": (GOOD, "float64", lambda X, rng: sp.csr_matrix(X.astype(np.longdouble))),
    "unsorted": (GOOD, "float64", lambda X, rng: unsorted(X)),
    "in halves": (GOOD, "float64", lambda X, rng: in_halves(X)),
    "stored zeros": (GOOD, "float64", lambda X, rng: stored_zeros(X)),
    "wide indices": (GOOD, "float64", lambda X, rng: wide_indices(X)),
    "read-only csr": (GOOD, "float64", lambda X, rng: csr(X, data=read_only, indices=read_only)),
    "csr without entries": (GOOD, None, lambda X, rng: sp.csr_matrix(X.shape)),
    "csr huge": (ANY, None, lambda X, rng: sp.csr_matrix(X * 1e300)),
    "coo 1-D": (BAD, None, lambda X, rng: sp.coo_array(X[:, 0])),
    # frames and tensors
    "pandas": (GOOD, "float64", lambda X, rng: frame(X)),
    "pandas float32": (GOOD, "float32", lambda X, rng: frame(X, "float32")),
    "pandas nullable": (GOOD, "float64", lambda X, rng: frame(X, "Float64")),
    "pandas sparse": (GOOD, "float64", lambda X, rng: frame(X, pd.SparseDtype("float64", 0.0))),
    "pandas mixed": (GOOD, None, lambda X, rng: frame(whole(X)).astype({"x0": int, "x1": bool})),
    "pandas missing": (BAD, None, lambda X, rng: frame(changed(X, np.nan), "Float64")),
    "pandas text": (BAD, None, lambda X, rng: frame(X).assign(x1="a")),
    "pandas series": (BAD, None, lambda X, rng: pd.Series(X[:, 0])),
    "polars": (GOOD, "float64", lambda X, rng: pl.DataFrame(frame(X).to_dict("list"))),
    "polars integers": (GOOD, None, lambda X, rng: pl.DataFrame(whole(X).astype(int))),
    "polars null": (BAD, None, lambda X, rng: pl.DataFrame({"a": [None, *X[1:, 0]]})),
    "torch": (GOOD, "float64", lambda X, rng: torch.tensor(X)),
    "torch integers": (GOOD, None, lambda X, rng: torch.tensor(whole(X)).long()),
    "torch with gradient": (ANY, None, lambda X, rng: torch.tensor(X, requires_grad=True)),
    "torch bfloat16": (ANY, None, lambda X, rng: torch.tensor(X).bfloat16()),
    "torch sparse": (ANY, None, lambda X, rng: torch.tensor(X).to_sparse()),
    # not valid
    "no rows": (BAD, None, lambda X, rng: X[:0]),
    "no columns": (BAD, None, lambda X, rng: X[:, :0]),
    "no rows, csr": (BAD, None, lambda X, rng: sp.csr_matrix(X[:0])),
    "one row": (ANY, None, lambda X, rng: X[:1]),
    "too short": (BAD, None, lambda X, rng: X[:-1]),
    "too long": (BAD, None, lambda X, rng: np.vstack([X, X])),
    "too long, csr": (BAD, None, lambda X, rng: sp.csr_matrix(np.vstack([X, X[:1]]))),
    "1-D": (BAD, None, lambda X, rng: X[:, 0]),
    "3-D": (BAD, None, lambda X, rng: X[:, :, None]),
    "scalar": (BAD, None, lambda X, rng: 3.0),
    "0-D": (BAD, None, lambda X, rng: np.array(3.0)),
    "None": (BAD, None, lambda X, rng: None),
    "one string": (BAD, None, lambda X, rng: "text"),
    "bytes": (BAD, None, lambda X, rng: b"text"),
    "strings": (BAD, None, lambda X, rng: ["a", "b"] * (len(X) // 2)),
    "table of strings": (BAD, None, lambda X, rng: np.full(X.shape, "a")),
    "dict": (BAD, None, lambda X, rng: {"a": X[:, 0]}),
    "empty list": (BAD, None, lambda X, rng: []),
    "empty dict": (BAD, None, lambda X, rng: {}),
    "set": (BAD, None, lambda X, rng: {1.0, 2.0}),
    "generator": (BAD, None, lambda X, rng: (row for row in X)),
    "function": (BAD, None, lambda X, rng: len),
    "ragged": (BAD, None, lambda X, rng: [row[: 1 + i % 3] for i, row in enumerate(X.tolist())]),
    "holds None": (BAD, None, lambda X, rng: changed(X, None, object)),
    "holds text": (BAD, None, lambda X, rng: changed(X, "a", object)),
    "holds an array": (BAD, None, lambda X, rng: [*X[1:], X]),
    "complex": (BAD, None, lambda X, rng: X + 1j),
    "nan": (BAD, None, lambda X, rng: changed(X, np.nan)),
    "nan float32": (BAD, None, lambda X, rng: changed(X, np.nan).astype(np.float32)),
    "inf": (BAD, None, lambda X, rng: changed(X, np.inf)),
    "-inf": (BAD, None, lambda X, rng: changed(X, -np.inf)),
    "csr nan": (BAD, None, lambda X, rng: csr(X, data=last(np.nan))),
    "csr inf": (BAD, None, lambda X, rng: csr(X, data=last(np.inf))),
    "csr complex": (BAD, None, lambda X, rng: sp.csr_matrix(X + 0j)),
    "csr object": (BAD, None, lambda X, rng: csr(X, data=lambda d: d.astype(object))),
    "infinite longdouble": (BAD, None, lambda X, rng: X * np.longdouble("1e4000")),
    # corrupt CSR
    "column too large": (BAD, None, lambda X, rng: csr(X, indices=last(10**6))),
    "column beyond int32": (BAD, None, lambda X, rng: csr(X, indices=last(2**31 - 1))),
    "column negative": (BAD, None, lambda X, rng: csr(X, indices=last(-1))),
    "indptr falls": (BAD, None, lambda X, rng: csr(X, indptr=lambda p: p[::-1].copy())),
    "indptr too large": (BAD, None, lambda X, rng: csr(X, indptr=last(10**6))),
    "indptr negative": (BAD, None, lambda X, rng: csr(X, indptr=lambda p: -p)),
    "indptr short": (BAD, None, lambda X, rng: csr(X, indptr=lambda p: p[:-1])),
    "indptr from one": (BAD, None, lambda X, rng: csr(X, indptr=lambda p: np.r_[1, p[1:]])),
    "data short": (BAD, None, lambda X, rng: csr(X, data=lambda d: d[:-2])),
    "indices short": (BAD, None, lambda X, rng: csr(X, indices=lambda d: d[:-2])),
}
#: Kinds of other numbers of rows, which no model has to refuse in `predict`.
OTHER_LENGTHS = {"too short", "too long", "too long, csr"}

NAMES = np.array(["ant", "bee", "cat", "dog"])

Y_CLASSES = {
    # class labels in the same order
    "int64": (GOOD, True, lambda y, rng: y),
    "int8": (GOOD, True, lambda y, rng: y.astype(np.int8)),
    "uint8": (GOOD, True, lambda y, rng: y.astype(np.uint8)),
    "floats": (GOOD, True, lambda y, rng: y.astype(float)),
    "negative": (GOOD, True, lambda y, rng: y - 2),
    "large": (GOOD, True, lambda y, rng: y + 2**62),
    "list": (GOOD, True, lambda y, rng: y.tolist()),
    "tuple": (GOOD, True, lambda y, rng: tuple(y.tolist())),
    "strings": (GOOD, True, lambda y, rng: NAMES[y]),
    "objects": (GOOD, True, lambda y, rng: NAMES[y].astype(object)),
    "list of str": (GOOD, True, lambda y, rng: NAMES[y].tolist()),
    "unicode": (GOOD, True, lambda y, rng: np.array(["a", "é", "λ", "🙂"])[y]),
    "bytes": (ANY, False, lambda y, rng: NAMES[y].astype("S")),
    "read-only": (GOOD, True, lambda y, rng: read_only(y)),
    "strided": (GOOD, True, lambda y, rng: strided(y)),
    "memory map": (GOOD, True, lambda y, rng: memory_map(y)),
    "series": (GOOD, True, lambda y, rng: pd.Series(NAMES[y])),
    "shuffled index": (GOOD, True, lambda y, rng: pd.Series(y, index=rng.permutation(len(y)))),
    "categories": (GOOD, True, lambda y, rng: pd.Series(NAMES[y]).astype("category")),
    "nullable": (ANY, False, lambda y, rng: pd.Series(y).astype("Int64")),
    "polars": (GOOD, True, lambda y, rng: pl.Series(NAMES[y].tolist())),
    "torch": (GOOD, True, lambda y, rng: torch.tensor(y)),
    "column": (ANY, False, lambda y, rng: y[:, None]),
    "bool": (ANY, False, lambda y, rng: y > 1),
    "one class": (ANY, False, lambda y, rng: y * 0),
    "all different": (GOOD, False, lambda y, rng: np.arange(len(y))),
    "dates": (ANY, False, lambda y, rng: y.astype("M8[D]")),
    "decimals": (BAD, False, lambda y, rng: y + 0.5),
    "nan": (BAD, False, lambda y, rng: changed(y, np.nan)),
    "inf": (BAD, False, lambda y, rng: changed(y, np.inf)),
    "None inside": (BAD, False, lambda y, rng: changed(NAMES[y], None, object)),
    "nan inside": (BAD, False, lambda y, rng: changed(NAMES[y], np.nan, object)),
    "mixed": (BAD, False, lambda y, rng: changed(NAMES[y], 3, object)),
    "sets": (ANY, False, lambda y, rng: [{value} for value in y]),
    "sets of halves": (BAD, False, lambda y, rng: [{value + 0.5} for value in y]),
    "sets and none": (BAD, False, lambda y, rng: [{value} for value in y[:-1]] + [None]),
    "sets and classes": (BAD, False, lambda y, rng: [{value} for value in y[:-1]] + [1]),
    "mixed sets": (BAD, False, lambda y, rng: [{value} for value in y[:-1]] + [{"a"}]),
    "dicts": (BAD, False, lambda y, rng: [{value: 1} for value in y]),
    "functions": (BAD, False, lambda y, rng: [len] * len(y)),
    "complex": (BAD, False, lambda y, rng: y + 1j),
    "too short": (BAD, False, lambda y, rng: y[:-1]),
    "too long": (BAD, False, lambda y, rng: np.r_[y, y]),
    "empty": (BAD, False, lambda y, rng: y[:0]),
    "3-D": (BAD, False, lambda y, rng: y[:, None, None]),
    "ragged": (ANY, False, lambda y, rng: [[int(v)] * (1 + i % 3) for i, v in enumerate(y)]),
    "lists of lists": (
        BAD,
        False,
        lambda y, rng: [[[int(v)]] * (1 + i % 3) for i, v in enumerate(y)],
    ),
    "None": (BAD, False, lambda y, rng: None),
    "scalar": (BAD, False, lambda y, rng: 1),
    "one string": (BAD, False, lambda y, rng: "a" * len(y)),
    "dict": (BAD, False, lambda y, rng: dict(enumerate(y.tolist()))),
    "generator": (BAD, False, lambda y, rng: (value for value in y)),
}
Y_INDICATORS = {
    "int64": (GOOD, True, lambda Y, rng: Y),
    "bool": (GOOD, True, lambda Y, rng: Y.astype(bool)),
    "uint8": (GOOD, True, lambda Y, rng: Y.astype(np.uint8)),
    "float32": (GOOD, True, lambda Y, rng: Y.astype(np.float32)),
    "lists": (GOOD, True, lambda Y, rng: Y.tolist()),
    "Fortran order": (GOOD, True, lambda Y, rng: np.asfortranarray(Y)),
    "read-only": (GOOD, True, lambda Y, rng: read_only(Y)),
    "memory map": (GOOD, True, lambda Y, rng: memory_map(Y)),
    **{
        f"{kind}_{name}": (
            GOOD,
            True,
            lambda Y, rng, kind=kind, name=name: getattr(sp, f"{kind}_{name}")(Y),
        )
        for kind in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")
        for name in ("matrix", "array")
    },
    "csr bool": (GOOD, True, lambda Y, rng: sp.csr_matrix(Y.astype(bool))),
    "unsorted": (GOOD, True, lambda Y, rng: unsorted(Y)),
    "stored zeros": (GOOD, True, lambda Y, rng: stored_zeros(Y)),
    "wide indices": (GOOD, True, lambda Y, rng: wide_indices(Y)),
    "read-only csr": (GOOD, True, lambda Y, rng: csr(Y, data=read_only, indices=read_only)),
    "pandas": (GOOD, True, lambda Y, rng: frame(Y)),
    "polars": (GOOD, True, lambda Y, rng: pl.DataFrame(Y)),
    "torch": (GOOD, True, lambda Y, rng: torch.tensor(Y)),
    "one label": (ANY, False, lambda Y, rng: sp.csr_matrix(Y[:, :1])),
    "tags": (GOOD, False, lambda Y, rng: [np.flatnonzero(row).tolist() for row in Y]),
    "sets of names": (
        GOOD,
        False,
        lambda Y, rng: [{f"t{i}" for i in np.flatnonzero(r)} for r in Y],
    ),
    "column of tags": (
        GOOD,
        False,
        lambda Y, rng: pd.Series([np.flatnonzero(r).tolist() for r in Y]),
    ),
    "no tags": (BAD, False, lambda Y, rng: [[] for _ in Y]),
    "frame with a gap": (BAD, False, lambda Y, rng: frame(Y).astype(float).mask(Y > 0)),
    "no column twice": (GOOD, False, lambda Y, rng: np.repeat(Y[:, :2], 2, axis=1)),
    "all labels": (GOOD, False, lambda Y, rng: np.ones_like(Y)),
    "no label": (ANY, False, lambda Y, rng: np.zeros_like(Y)),
    "no column": (BAD, False, lambda Y, rng: Y[:, :0]),
    "no column, csr": (BAD, False, lambda Y, rng: sp.csr_matrix(Y[:, :0])),
    "twos": (ANY, False, lambda Y, rng: 2 * Y),
    "in halves": (ANY, False, lambda Y, rng: in_halves(Y)),
    "twice": (ANY, False, lambda Y, rng: in_halves(2 * Y).astype(np.int8)),
    "halves": (BAD, False, lambda Y, rng: Y / 2),
    "negative": (BAD, False, lambda Y, rng: -Y),
    "huge": (BAD, False, lambda Y, rng: Y * 1e300),
    "nan": (BAD, False, lambda Y, rng: changed(Y, np.nan)),
    "inf": (BAD, False, lambda Y, rng: changed(Y, np.inf)),
    "csr nan": (BAD, False, lambda Y, rng: csr(Y.astype(float), data=last(np.nan))),
    "complex": (BAD, False, lambda Y, rng: Y + 0j),
    "text": (BAD, False, lambda Y, rng: np.array(["no", "yes"])[Y]),
    "objects": (ANY, False, lambda Y, rng: Y.astype(object)),
    "holds None": (BAD, False, lambda Y, rng: changed(Y, None, object)),
    "too short": (BAD, False, lambda Y, rng: Y[:-1]),
    "too short, csr": (BAD, False, lambda Y, rng: sp.csr_matrix(Y[:-1])),
    "too long": (BAD, False, lambda Y, rng: np.vstack([Y, Y])),
    "3-D": (BAD, False, lambda Y, rng: Y[:, :, None]),
    "column too large": (BAD, False, lambda Y, rng: csr(Y, indices=last(10**6))),
    "column negative": (BAD, False, lambda Y, rng: csr(Y, indices=last(-1))),
    "indptr falls": (BAD, False, lambda Y, rng: csr(Y, indptr=lambda p: p[::-1].copy())),
    "indptr too large": (BAD, False, lambda Y, rng: csr(Y, indptr=last(10**6))),
    "data short": (BAD, False, lambda Y, rng: csr(Y, data=lambda d: d[:-2])),
}
#: Counts of labels, which some estimators read.
COUNTS = {"twos", "twice", "in halves"}

WEIGHTS = {
    "None": (GOOD, lambda n, rng: None),
    "ones": (GOOD, lambda n, rng: np.ones(n)),
    "list": (GOOD, lambda n, rng: [1.0] * n),
    "random": (GOOD, lambda n, rng: rng.random(n) + 0.1),
    "with zeros": (GOOD, lambda n, rng: np.arange(n) % 5 > 0),
    "integers": (GOOD, lambda n, rng: np.arange(n) % 5 + 1),
    "float32": (GOOD, lambda n, rng: np.ones(n, dtype=np.float32)),
    "series": (GOOD, lambda n, rng: pd.Series(np.ones(n), index=rng.permutation(n))),
    "read-only": (GOOD, lambda n, rng: read_only(np.ones(n))),
    "one of many": (GOOD, lambda n, rng: np.r_[1e6, np.ones(n - 1)]),
    "tiny": (ANY, lambda n, rng: np.full(n, 1e-300)),
    "tiny float32": (ANY, lambda n, rng: np.full(n, 1e-40, dtype=np.float32)),
    "huge": (ANY, lambda n, rng: np.full(n, 1e300)),
    "huge for float32": (ANY, lambda n, rng: np.full(n, 1e37)),
    "huge and tiny": (ANY, lambda n, rng: np.r_[1e300, np.full(n - 1, 1e-300)]),
    "number": (ANY, lambda n, rng: 2.0),
    "zeros": (BAD, lambda n, rng: np.zeros(n)),
    "negative": (BAD, lambda n, rng: np.r_[-1.0, np.ones(n - 1)]),
    "nan": (BAD, lambda n, rng: np.r_[np.nan, np.ones(n - 1)]),
    "inf": (BAD, lambda n, rng: np.r_[np.inf, np.ones(n - 1)]),
    "too short": (BAD, lambda n, rng: np.ones(n - 1)),
    "too long": (BAD, lambda n, rng: np.ones(2 * n)),
    "2-D": (BAD, lambda n, rng: np.ones((n, 2))),
    "empty": (BAD, lambda n, rng: []),
    "strings": (BAD, lambda n, rng: ["a"] * n),
    "one string": (BAD, lambda n, rng: "balanced"),
    "dict": (BAD, lambda n, rng: {0: 1.0}),
    "None inside": (BAD, lambda n, rng: [None] * n),
    "complex": (BAD, lambda n, rng: np.ones(n) + 1j),
}
