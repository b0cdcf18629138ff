"""Whatever an estimator holds comes back as it was, or is refused by name."""

import collections
import functools
import json
import pathlib

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.decisions import TopK
from sklearn_xlc.encoders import MLP, TextEncoder
from sklearn_xlc.encoders.text import words
from sklearn_xlc.engine.object_tree import describe, rebuild
from sklearn_xlc.heads import FlatHead


def again(value, trusted=()):
    document, arrays = describe(value)
    return rebuild(json.loads(json.dumps(document)), arrays, trusted)


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert one.flags.f_contiguous == other.flags.f_contiguous
        np.testing.assert_array_equal(one, other)
    elif sp.issparse(one):
        assert one.shape == other.shape
        for part in ("data", "indices", "indptr"):
            assert_same(getattr(one, part), getattr(other, part))
    elif isinstance(one, torch.Tensor):
        assert (one.dtype, one.requires_grad) == (other.dtype, other.requires_grad)
        assert torch.equal(one, other)
    elif isinstance(one, set):
        assert one == other
    else:
        assert repr(one) == repr(other)  # NaN, and the types of what containers hold


# --- round trips ------------------------------------------------------------------------------

MATRIX = np.arange(6.0).reshape(2, 3)
VALUES = [
    *(None, True, 3, 2**100, 0.1, float("nan"), -float("inf"), "é", "\ud800"),
    [1, [2.0, None]],
    (1, ("a", [])),
    {"a": 1, "b": {"c": [(1,)]}},
    {1: "a", None: 2, ("x", 3): 4, False: 5.0},
    {"words", "of", "a", "set"},
    frozenset({1, (2, 3)}),
    slice(1, None, 2),
    *(np.float64(0.1), np.int8(-3), np.bool_(True), np.str_("name"), np.str_("")),
    *(np.complex128(1 + 2j), np.longdouble(1) / 3, np.datetime64("2026-11-21")),
    *(np.dtype(np.float32), np.dtype("<U3"), np.dtype(object), np.float32, float, str),
    *(MATRIX, np.asfortranarray(MATRIX), MATRIX[:, ::2], MATRIX[0, 0:0], np.array(3), MATRIX > 2),
    *(MATRIX.astype(complex), MATRIX.astype(np.longdouble), MATRIX.astype("datetime64[s]")),
    *(np.array(["a", "bcd"]), np.array([b"a", b"bcd"]), np.array([], "<U1")),
    *(np.array(["a", 3, None, (1, 2)], dtype=object), np.array([["a"], ["é"]], dtype=object)),
    np.ma.MaskedArray([1.5, 2.5], mask=[True, False]),
    *(sp.csr_matrix(MATRIX), sp.csr_array(MATRIX), sp.csc_matrix(MATRIX), sp.csc_array(MATRIX)),
    *(torch.arange(3), torch.ones(2, 2).T, torch.tensor(2.5, dtype=torch.bfloat16)),
    *(torch.ones(2, requires_grad=True), nn.Parameter(torch.ones(2), requires_grad=False)),
    *(torch.tensor([1 + 2j]), torch.float16, torch.device("cpu"), torch.device("cuda:1")),
    *(pathlib.Path("a/b"), np.tanh, words, TextEncoder, StandardScaler),
    StandardScaler(with_mean=False),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_round_trip(value):
    assert_same(again(value), value)
    assert_same(again([value])[0], value)


def test_arrays_of_another_byte_order_are_made_native():
    made = again(MATRIX.astype(">f4"))
    assert made.dtype == np.dtype(np.float32)
    np.testing.assert_array_equal(made, MATRIX)


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
nested = st.recursive(
    plain,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(plain, inner),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(nested)
def test_containers_round_trip(value):
    assert repr(again(value)) == repr(value)


def test_partial_functions_come_back():
    made = again(functools.partial(TextEncoder, 64, hidden_layer_sizes=(3,)))
    assert (made.func, made.args, made.keywords) == (
        TextEncoder,
        (64,),
        {"hidden_layer_sizes": (3,)},
    )


@pytest.mark.parametrize("kind", ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"])
def test_generators_go_on(kind):
    rng = np.random.Generator(getattr(np.random, kind)(3))
    rng.random(5)
    made = again(rng)
    np.testing.assert_array_equal(made.random(7), rng.random(7))
    state = np.random.RandomState(3)
    state.normal(size=5)
    made = again(state)
    np.testing.assert_array_equal(made.normal(size=7), state.normal(size=7))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)])
        self.layers[2].weight = self.layers[0].weight
        self.register_buffer("hidden", torch.tensor(2.5), persistent=False)
        self.plain = torch.full((2,), 7.0)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x * self.hidden + self.plain.sum()


def test_modules_come_back_with_what_they_share():
    module = Tied()
    module(torch.randn(9, 3))  # moves the running means
    made = again(module, trusted=[Tied])
    assert made.training
    x = torch.randn(5, 3)
    assert torch.equal(made.eval()(x), module.eval()(x))
    assert made.layers[2].weight is made.layers[0].weight
    assert made.state_dict().keys() == module.state_dict().keys()
    described, arrays = describe(module)
    assert sum(array.size for array in arrays.values()) == 9 + 3 + 3 + 3 + 3 + 3 + 3 + 1 + 1 + 2


def test_layers_of_torch_and_of_this_package_need_no_trust():
    layers = nn.Sequential(
        nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.LayerNorm(32), nn.Dropout(0.5), nn.PReLU()
    )
    for module, shape in ((layers, (2, 1, 10)), (FlatHead(3, 5, True), None)):
        made = again(module.eval())
        assert made.state_dict().keys() == module.state_dict().keys()
        if shape:
            assert torch.equal(made(torch.ones(shape)), module(torch.ones(shape)))


# --- refusals ---------------------------------------------------------------------------------


class Slotted:
    __slots__ = ("a",)


class ListOfMine(list):
    pass


class Reduces:
    def __reduce__(self):
        return print, ("never",)


class OddState:
    def __getstate__(self):
        return [1, 2]


def made_by_hooks():
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(print)
    return layer


def holding_itself():
    value = ([],)
    value[0].append(value)
    return value


@pytest.mark.parametrize(
    "value, match",
    [
        (lambda x: x, r"at\.x\[0\]: the function .*<lambda> cannot be found again by its name"),
        (type("Local", (), {}), "the class .*Local cannot be found again"),
        (b"bytes", "a builtins.bytes cannot be described"),
        (Slotted(), "Slotted cannot be described"),
        (ListOfMine([1]), "ListOfMine cannot be described"),
        (collections.OrderedDict(a=1), "OrderedDict cannot be described"),
        (Reduces(), "Reduces cannot be described"),
        (OddState(), "its state is no dict of attributes"),
        (made_by_hooks(), r"at\.x\[0\]: hooks are code"),
        (holding_itself(), r"at\.x\[0\]\[0\]\[0\]: a tuple that holds itself"),
        (np.rec.array([1]), "convert it by numpy.asarray"),
        (np.zeros(2, [("a", float)]), "an array with fields"),
        (sp.lil_matrix((2, 2)), r"convert it by \.tocsr\(\)"),
        (torch.eye(2).to_sparse(), "a torch.Tensor cannot be described"),
        (DecisionTreeClassifier().fit([[0], [1]], [0, 1]), r"at\.x\[0\]\.tree_: .*_tree\.Tree"),
        (open, "cannot be described"),
        ("".join, "cannot be described"),
    ],
)
def test_what_cannot_be_rebuilt_is_refused_with_its_place(value, match):
    with pytest.raises(TypeError, match=match):
        describe({"x": [value]}["x"], name="at.x")


@pytest.mark.parametrize(
    "root",
    [
        {"is": "no such kind"},
        {"is": "same", "id": 3},
        {"is": "array", "array": "none"},
        {"is": "array", "array": "a", "dtype": "|O", "shape": [1]},
        {"is": "array", "array": "a", "dtype": "<f8", "shape": [99]},
        {"is": "scalar", "dtype": "|O", "bytes": "00" * 8},
        {"is": "object", "class": "os.system", "state": {}},
        {"is": "name", "name": "builtins.eval"},
        {"is": "ufunc", "name": "save"},
        {"is": "generator", "state": {"is": "dict", "items": {"bit_generator": "seed"}}},
        {"is": "tensor", "dtype": "save", "shape": [2], "parameter": False},
        {"is": "partial", "func": 3, "args": [], "keywords": {}},
        {
            "is": "sparse",
            "class": "csr_matrix",
            "shape": [1, 2],
            "data": {"is": "array", "array": "a"},
            "indices": {"is": "array", "array": "a"},
            "indptr": {"is": "array", "array": "a"},
        },
        [],
        {"is": "list"},
    ],
    ids=repr,
)
def test_a_wrong_description_is_refused(root):
    arrays = {"a": np.array([7, 255], dtype=np.uint8)}
    with pytest.raises(ValueError):
        rebuild({"root": root, "names": []}, arrays)


def test_a_description_that_is_none_or_endless_is_refused():
    deep = {"is": "list", "items": []}
    for _ in range(5000):
        deep = {"is": "list", "items": [deep]}
    for document in (None, [], {"root": 1}, {"root": deep, "names": []}, {"names": [3], "root": 1}):
        with pytest.raises(ValueError, match="its description is not valid"):
            rebuild(document, {})


# --- descriptions made on purpose -------------------------------------------------------------


def doubled(kind, n_times):
    """A list of containers, each of which holds the one before it twice."""
    items = [{"is": kind, "id": 0, "items": ["x"]}]
    for i in range(n_times):
        items.append({"is": kind, "id": i + 1, "items": [{"is": "same", "id": i}] * 2})
    return {"is": "list", "items": items}


LAST = {"is": "same", "id": 60}
EMPTY = {"is": "array", "array": "empty", "dtype": "<U0", "shape": [10**12]}


@pytest.mark.parametrize(
    "kind, node",
    [
        ("tuple", {"is": "set", "items": [LAST]}),  # hashed
        ("list", {"is": "generator", "state": {"is": "dict", "items": {"bit_generator": LAST}}}),
        ("list", {"is": "masked", "data": LAST, "mask": False, "fill_value": None}),  # converted
    ],
    ids=["hash", "message", "array"],
)
def test_a_small_file_describes_nothing_huge(kind, node):
    root = {"is": "list", "items": [doubled(kind, 60), node]}
    with pytest.raises(ValueError, match="too large for its size"):
        rebuild({"root": root, "names": []}, {})


def test_what_is_shared_often_is_not_too_large():
    words = [f"word {i}" for i in range(2000)]
    made = again([words] * 2000)
    assert made[0] == words
    assert all(item is made[0] for item in made)


@pytest.mark.parametrize(
    "node, match",
    [
        ({"is": "masked", "data": EMPTY, "mask": True, "fill_value": None}, "bytes .* type <U0"),
        ({"is": "list", "items": [{"is": "array", "array": "empty"}] * 2}, "KeyError"),
        ({"is": "masked", "data": 3, "mask": True, "fill_value": 3}, "described as a int"),
        (
            {
                "is": "tensor",
                "dtype": "complex128",
                "parameter": False,
                "requires_grad": False,
                "values": {"is": "array", "array": "empty"},
            },
            "complex128 has values of type torch.uint8",
        ),
    ],
    ids=["no bytes", "an array twice", "no array", "a wider type"],
)
def test_no_copy_is_larger_than_what_is_written(node, match):
    with pytest.raises(ValueError, match=match):
        rebuild({"root": node, "names": []}, {"empty": np.zeros(0, np.uint8)})


@pytest.mark.parametrize("position", [-1, 625, 10**8])
def test_generators_read_nothing_beyond_their_state(position):
    document, arrays = describe(np.random.RandomState(0))
    document["root"]["state"]["items"]["state"]["items"]["pos"] = position
    with pytest.raises(ValueError, match="state of a random generator"):
        rebuild(document, arrays)
    document, arrays = describe(np.random.Generator(np.random.Philox(0)))
    document["root"]["state"]["items"]["buffer_pos"] = position
    with pytest.raises(ValueError, match="state of a random generator"):
        rebuild(document, arrays)


def test_parameters_that_a_file_is_older_than_have_their_defaults():
    document, arrays = describe(
        MultiHeadClassifier("flat", decision=TopK(k=3), encoder=MLP(dropout=0.5))
    )
    state = document["root"]["state"]
    del state["ranker"], state["callbacks"], state["decision"]["state"]["k"]
    made = rebuild(json.loads(json.dumps(document)), arrays)
    assert repr(made) == repr(
        MultiHeadClassifier("flat", decision=TopK(), encoder=MLP(dropout=0.5))
    )
    assert vars(made).keys() == vars(MultiHeadClassifier()).keys()
