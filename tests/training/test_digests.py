"""Digests: equal for equal values in all processes, and different for different ones."""

import functools
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from skorch.callbacks import EarlyStopping, GradientNormClipping
from torch import nn

from sklearn_xlc.batches import Columns, Rows
from sklearn_xlc.decisions import Threshold
from sklearn_xlc.heads import AsymmetricLoss
from sklearn_xlc.training.digests import digest_of, identity


class Thing:
    def __init__(self, a=1, lock=False):
        self.a, self.itself = a, self
        if lock:
            self.inner = {"lock": threading.Lock(), "when": a}


def adder(n):
    return lambda x: x + n


def with_weight(value):
    layer = nn.Linear(2, 2)
    nn.init.constant_(layer.weight, value)
    nn.init.zeros_(layer.bias)
    return layer


def different():
    """Values of which no two are the same."""
    return [
        None, 0, 0.0, False, "", "0", (), [], {}, set(), b"", 1j, 2j, ..., print, len, np, sp,
        [1, 2], (1, 2), [[1], 2], {"a": 1}, {"a": 2}, {"b": 1}, {1, 2}, {1, 3}, [1.0, 2],
        np.float32(1), np.float64(1), np.arange(3), np.arange(3.0), np.arange(3)[:, None],
        np.array(["a", "b"]), np.array(["ab", ""]), np.array(["a", "b"], object),
        np.array(["ab", ""], object), np.array([["a", "b"]], object), np.array([1, "b"], object),
        sp.eye(3, format="csr"), sp.eye(3, format="csc"), 2 * sp.eye(3, format="csr"),
        torch.zeros(2), torch.ones(2), torch.ones(2, 1), torch.ones(2, dtype=torch.bfloat16),
        nn.Parameter(torch.ones(2)), Thing, Thing(), Thing(2), adder(1), adder(2),
        lambda x: x + 1, lambda x: x - 1, lambda x, y=1: x, lambda x, y=2: x, lambda x, *, y=1: x,
        functools.partial(adder, 1), functools.partial(adder, 2), Thing().__init__,
        with_weight(0.0), with_weight(1.0), with_weight(1.0).requires_grad_(False),
        nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)), nn.Dropout(0.1), nn.Dropout(0.2),
        EarlyStopping(patience=3), EarlyStopping(patience=4), GradientNormClipping(0.1),
        Threshold(0.1), Threshold(0.2), AsymmetricLoss(), AsymmetricLoss(gamma_neg=3),
        np.random.RandomState(0), np.random.RandomState(1), np.random.default_rng(0),
        torch.Generator().manual_seed(0), torch.Generator().manual_seed(1), Thing(lock=True),
    ]  # fmt: skip


def test_different_values_have_different_identities():
    torch.manual_seed(0)
    values = different()
    assert len({identity(value) for value in values}) == len(values)


def test_equal_values_have_equal_identities():
    for make in (lambda: adder(1), Thing, lambda: with_weight(2.0), lambda: {"a", "b", "c"}):
        assert identity(make()) == identity(make())
    assert identity(np.arange(6).reshape(2, 3).T) == identity(np.arange(6).reshape(2, 3).T.copy())


def test_what_holds_a_resource_counts_by_all_else():
    held = [Thing(rate, lock=True) for rate in (1, 1, 2)]
    assert identity(held[0]) == identity(held[1]) != identity(Thing())
    assert identity(held[0]) != identity(held[2])


class Refusing:
    def __init__(self, rate):
        self.rate = rate

    def __reduce_ex__(self, protocol):
        raise RuntimeError("never pickled")


def test_what_refuses_to_be_pickled_counts_by_its_attributes():
    assert identity(Refusing(1)) == identity(Refusing(1)) != identity(Refusing(2))


def edited(source):
    """Class whose source somebody has edited, as in a notebook."""
    namespace = {"nn": nn, "__name__": "__main__"}
    exec(f"class Mine(nn.Module):\n    {source}", namespace)
    return namespace["Mine"]


def test_classes_count_by_their_code():
    sources = [
        "def forward(self, x): return x + 1",
        "def forward(self, x): return x - 1",
        "def forward(self, x): return super().forward(x)",
        "rate = 1",
        "rate = 2",
        "@staticmethod\n    def forward(x): return x",
        "@classmethod\n    def forward(cls, x): return -x",
        "@property\n    def forward(self): return 3",
        "@property\n    def forward(self): return 4",
    ]
    for make in (lambda kind: kind, lambda kind: kind(), lambda kind: type("Of", (kind,), {})):
        found = [{identity(make(edited(source))) for _ in range(2)} for source in sources]
        assert all(len(same) == 1 for same in found)
        assert len(set.union(*found)) == len(sources)


def test_a_function_that_calls_itself():
    def one(n):
        return two(n)

    before = identity(one)

    def two(n):
        return one(n - 1)

    assert identity(one) != before


@pytest.mark.slow
def test_identities_are_those_of_other_processes():
    code = "\n".join(
        [
            "import numpy as np, torch, sys, __main__",
            "import training.test_digests as module",
            "torch.manual_seed(0)",
            "print(*[module.identity(value) for value in module.different()])",
        ]
    )
    path = "\n".join(f"import sys; sys.path.insert(0, {p!r})" for p in reversed(sys.path))
    found = {
        subprocess.run(
            [sys.executable, "-c", f"{path}\n{code}"],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


# --- samples ----------------------------------------------------------------------------------


def samples(form):
    """Two hundred samples, of which number 7 is none of the 64."""
    numbers = np.random.default_rng(0).random((200, 5))
    X = {
        "csr": lambda: sp.csr_matrix(numbers),
        "dense": lambda: numbers,
        "texts": lambda: np.array([str(row) for row in numbers], object),
        "columns": lambda: Columns({"ids": numbers}),
    }[form]()
    return Rows(X, sp.csr_matrix(numbers > 0.5), np.ones(200))


def with_other_value(rows):
    if sp.issparse(rows.X):
        rows.X.data[7 * 5 + 2] += 1
    elif isinstance(rows.X, Columns):
        rows.X.arrays["ids"][7, 2] += 1
    else:
        rows.X[7] = rows.X[7] + rows.X[7]


def with_other_label(rows):
    first = rows.Y.indptr[7]
    rows.Y.indices[first : first + 2] = rows.Y.indices[first : first + 2][::-1]


def with_other_weight(rows):
    rows.sample_weight[7] += 1


@pytest.mark.parametrize("form", ["csr", "dense", "texts", "columns"])
@pytest.mark.parametrize("whole", [True, False])
def test_samples_differ(form, whole):
    assert digest_of(samples(form), whole=whole) == digest_of(samples(form), whole=whole)
    for change in (with_other_value, with_other_label, with_other_weight):
        other = samples(form)
        change(other)
        is_seen = whole or change is not with_other_value
        assert (digest_of(samples(form), whole=whole) != digest_of(other, whole=whole)) == is_seen


def test_what_scipy_has_found_out_does_not_count():
    rows = samples("csr")
    before = digest_of(rows, whole=True)
    assert rows.X.has_canonical_format
    assert digest_of(rows, whole=True) == before
