"""Encoding: values come back as they were, and a digest tells values apart."""

import functools
import json
import subprocess
import sys
import threading
from collections import OrderedDict

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from skorch.callbacks import EarlyStopping, GradientNormClipping
from torch import nn

from sklearn_xlc.decisions import Threshold
from sklearn_xlc.heads import AsymmetricLoss
from sklearn_xlc.training.encoding import Encoder, decode, identity


def through_json(value):
    encoder = Encoder()
    document = json.loads(json.dumps(encoder.encode(value)))
    return decode(document, encoder.arrays)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**127),
        0.1 + 0.2,
        float("inf"),
        "a\x00\ud7ffé",
        [1, [2.0, None]],
        (1, (2,)),
        {3, "a"},
        frozenset([1]),
        {},
        {"{}": 1, "tensor": [2]},
        {1: 2, "1": (3,), (4, "b"): None},
        OrderedDict([("b", 1), ("a", 2)]),
        np.float32(0.1),
        np.float64(0.1),
        np.int8(-3),
        np.bool_(True),
        np.uint64(2**64 - 1),
    ],
    ids=repr,
)
def test_values_come_back(value):
    found = through_json(value)
    assert found == value
    assert type(found) is type(value)
    if isinstance(value, OrderedDict):
        assert list(found) == list(value)


def test_nan_comes_back():
    assert np.isnan(through_json(float("nan")))
    assert np.isnan(through_json(np.float32("nan")))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.zeros((0, 3), np.float16),
        np.array(3),
        np.array([True, False]),
        np.arange(6).reshape(2, 3).T[::-1],
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_come_back_as_copies(array):
    found = through_json({"a": array})["a"]
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype
    assert not np.shares_memory(found, array)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.rand(3, 4),
        torch.rand(3, 4).T,
        torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.rand(6, dtype=torch.float64)[::2],
        torch.rand(4, 5).to(torch.bfloat16).T,
        torch.rand(4).to(torch.float8_e4m3fn),
        torch.tensor(3.5),
        torch.tensor(3.5, dtype=torch.bfloat16),
        torch.empty(0, 3),
        torch.tensor([True, False]),
        torch.rand(3).to(torch.complex64),
        torch.ones(1).expand(4),
        nn.Parameter(torch.rand(2)),
    ],
    ids=lambda tensor: f"{tensor.dtype}{tuple(tensor.shape)}{tensor.stride()}",
)
def test_tensors_come_back_as_copies(tensor):
    found = through_json([tensor])[0]
    assert found.dtype == tensor.dtype
    assert found.shape == tensor.shape
    assert found.stride() == torch.empty_like(tensor).stride() or tensor.numel() == 0
    assert torch.equal(found.to(torch.complex128), tensor.detach().to(torch.complex128))
    assert found.data_ptr() != tensor.data_ptr() or tensor.numel() == 0


def test_tensors_share_memory_with_their_arrays():
    tensor, encoder = torch.rand(3), Encoder()
    encoder.encode({"a": {"b": [tensor]}}, "state")
    (name,) = encoder.arrays
    assert name == "state.a.b[0]"
    assert np.shares_memory(encoder.arrays[name], tensor.numpy())


@pytest.mark.parametrize(
    "make, draw",
    [
        (lambda: np.random.default_rng(3), lambda g: g.normal(size=3)),
        (lambda: np.random.Generator(np.random.MT19937(3)), lambda g: g.integers(9, size=3)),
        (lambda: np.random.RandomState(3), lambda g: g.normal(size=3)),
        (lambda: torch.Generator().manual_seed(3), lambda g: torch.rand(3, generator=g).numpy()),
    ],
)
def test_generators_come_back(make, draw):
    generator = make()
    draw(generator)
    found = through_json(generator)
    np.testing.assert_array_equal(draw(found), draw(generator))


@pytest.mark.parametrize(
    "value",
    [object(), np.array([None]), np.array(["a"]), torch.eye(2).to_sparse(), b"a", 1j, print],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_held_is_named(value):
    with pytest.raises(TypeError, match=rf"held\.a\[0\] .* of type {type(value).__name__}"):
        Encoder().encode({"a": [value]}, "held")


# --- identity ---------------------------------------------------------------------------------


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
            "import training.test_encoding as module",
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
