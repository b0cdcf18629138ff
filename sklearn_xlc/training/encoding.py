"""Values as a JSON document and arrays, for checkpoints and for digests of fits."""

from __future__ import annotations

import sys
import types
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sklearn_xlc._files import Streamed, digest
from sklearn_xlc.batches import Rows
from sklearn_xlc.distributed.fetching import Table
from sklearn_xlc.training.devices import shared_tensor

_PLAIN = (type(None), bool, int, float, str)
_CONTAINERS = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_MAPPINGS = {"dict": dict, "OrderedDict": OrderedDict}
#: Integers of the same size in place of tensor types that NumPy lacks.
_BITS = {1: torch.uint8, 2: torch.int16}
#: Packages whose classes count by name.
_KNOWN = {"sklearn_xlc", "sklearn", "skorch", "torch", "numpy", "scipy"} | sys.stdlib_module_names


class Encoder:
    """Encode values as a JSON document and arrays; :func:`decode` is the inverse.

    Supported are None, numbers, str, list, tuple, set, dict, OrderedDict, numbers and arrays of
    NumPy, tensors, tables split over processes, and random generators of NumPy and torch. Decoding
    restores the type and the bits of every value, but tensors and tables become plain tensors. A
    tensor that occurs twice becomes two tensors.

    Attributes
    ----------
    arrays : dict of str to ndarray
        Arrays of the values encoded so far, by the path to the value. They share memory with
        tensors on the CPU.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray | Streamed] = {}

    def encode(self, value: Any, where: str = "value") -> Any:
        """Return the document of a value; `where` names it in messages.

        Raises
        ------
        TypeError
            If the value is, or contains, an object of another type.
        """
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind in _CONTAINERS.values():
            return self._container(value, where)
        if kind in _MAPPINGS.values():
            items = [
                [self.encode(k, f"{where} key"), self.encode(v, f"{where}.{k}")]
                for k, v in value.items()
            ]
            if kind is dict and all(type(k) is str for k in value):
                return {"{}": dict(items)}
            return {kind.__name__: items}
        if isinstance(value, Tensor | Table):
            return {"tensor": self._tensor(value, where)}
        if isinstance(value, np.generic) and value.dtype.kind in "biuf" and value.itemsize <= 8:
            return {"scalar": [value.dtype.str, value.item()]}
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if kind is np.random.Generator:
            return {"Generator": self.encode(value.bit_generator.state, where)}
        if kind is np.random.RandomState:
            return {"RandomState": self.encode(value.get_state(), where)}
        if kind is torch.Generator:
            state = self.encode(value.get_state(), where)
            return {"torch.Generator": [value.device.type == "cpu", state]}
        return self._other(value, where)

    def _container(self, value: Any, where: str) -> Any:
        items = [self.encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
        kind = type(value)
        return items if kind is list else {kind.__name__: items}

    def _tensor(self, value: Tensor | Table, where: str) -> dict[str, Any]:
        if isinstance(value, Table):
            about = {"dtype": value.dtype.name, "cpu": value.device.type == "cpu"}
            return {**about, "array": self._store(value.streamed(), where)}
        if value.layout != torch.strided or value.device.type == "meta" or value.is_quantized:
            return self._other(value, where)
        value = value.detach()
        found: dict[str, Any] = {"dtype": str(value.dtype).removeprefix("torch.")}
        # Layers and optimisers may rely on the order in memory (channels last).
        strides = torch.empty_like(value, device="meta").stride()
        if not value.is_contiguous() and strides == value.stride():
            found["strides"] = list(strides)
        found["cpu"] = value.device.type == "cpu"
        value = value.cpu()
        try:
            array = value.numpy()
        except TypeError:  # bfloat16 and smaller
            array = value.contiguous().view(_BITS[value.element_size()]).numpy()
        return {**found, "array": self._store(array, where)}

    def _array(self, value: np.ndarray, where: str) -> Any:
        if type(value) is not np.ndarray or value.dtype.kind not in "biufc":
            return self._other(value, where)
        return {"array": self._store(value, where)}

    def _store(self, array: np.ndarray | Streamed, where: str) -> str:
        while where in self.arrays:  # keys 1 and "1" of a dict
            where += "'"
        self.arrays[where] = array
        return where

    def _other(self, value: Any, where: str) -> Any:
        raise TypeError(f"{where} holds an object of type {type(value).__qualname__}")


def decode(
    document: Any, arrays: Mapping[str, np.ndarray], device: Any = "cpu", copies: bool = True
) -> Any:
    """Restore a value from its document and arrays.

    Parameters
    ----------
    document : object
        Document of :meth:`Encoder.encode`.
    arrays : mapping of str to ndarray
        Arrays of the encoder.
    device : str or torch.device, default="cpu"
        Device of the tensors that were not on the CPU.
    copies : bool, default=True
        Whether tensors are copies. False: they may share the memory of the arrays; do not write to
        them.

    Returns
    -------
    object
        The value; its arrays are copies.
    """
    if isinstance(document, list):
        return [decode(item, arrays, device, copies) for item in document]
    if not isinstance(document, dict):
        return document
    ((kind, content),) = document.items()
    if kind == "{}":
        return {k: decode(v, arrays, device, copies) for k, v in content.items()}
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](decode(content, arrays, device, copies))
    if kind in _MAPPINGS:
        return _MAPPINGS[kind](decode(content, arrays, device, copies))
    if kind == "tensor":
        return _tensor(content, arrays, device, copies)
    if kind == "scalar":
        return np.dtype(content[0]).type(content[1])
    if kind == "array":
        return np.array(arrays[content])
    return _generator(kind, decode(content, arrays), device)


def _tensor(
    content: dict[str, Any], arrays: Mapping[str, np.ndarray], device: Any, copies: bool
) -> Tensor:
    dtype, array = getattr(torch, content["dtype"]), arrays[content["array"]]
    value = torch.from_numpy(np.array(array, order="C")) if copies else shared_tensor(array)
    value = value if value.dtype == dtype else value.view(dtype)
    if "strides" in content:
        value = torch.empty_strided(value.shape, content["strides"], dtype=dtype).copy_(value)
    return value if content["cpu"] else value.to(device)


def _generator(kind: str, state: Any, device: Any) -> Any:
    if kind == "Generator":
        bits = getattr(np.random, state["bit_generator"])()
        bits.state = state
        return np.random.Generator(bits)
    if kind == "RandomState":
        random_state = np.random.RandomState()
        random_state.set_state(state)
        return random_state
    assert kind == "torch.Generator", f"a value of unknown kind {kind!r}"
    generator = torch.Generator("cpu" if state[0] else device)
    return generator.set_state(state[1])


# --- what tells values apart ------------------------------------------------------------------


def digest_of_some(rows: Rows) -> str:
    """Return the digest of 64 evenly spaced samples, with their labels and weights.

    It changes with the data and with their order, without reading all of a large mapped X.
    """
    some = rows.take(np.unique(np.linspace(0, len(rows) - 1, 64).astype(np.int64)))
    return short_digest([some.X, some.Y, some.bags, some.sample_weight])


def short_digest(value: Any) -> str:
    """Return the first 16 digits of :func:`identity`, for messages."""
    return identity(value)[:16]


def identity(value: Any) -> str:
    """Return a digest of a value, equal for equal values in all processes.

    The digest covers:

    - numbers, arrays, tensors and containers: their values;
    - functions: name, code, defaults and closure;
    - classes of Python and of packages whose version counts: their names;
    - other classes: name, methods, constants and base classes;
    - other objects: class and pickled state, or attributes if they cannot be pickled (a file, a
      lock).

    Parameters
    ----------
    value : object
        Any value.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    encoder = _Describer()
    document = encoder.encode(value)
    return digest(document, encoder.arrays)


class _Describer(Encoder):
    """Encoder of any object, for digests; its documents are never decoded."""

    def __init__(self) -> None:
        super().__init__()
        #: Numbers of objects by id; the objects are kept, so that no other one gets their id.
        self._seen: dict[int, tuple[int, Any]] = {}

    def _container(self, value: Any, where: str) -> Any:
        if isinstance(value, set | frozenset):
            return {"set": sorted(identity(item) for item in value)}
        return super()._container(value, where)

    def _tensor(self, value: Tensor | Table, where: str) -> dict[str, Any]:
        return {**super()._tensor(value, where), "trained": value.requires_grad}

    def _store(self, array: np.ndarray | Streamed, where: str) -> str:
        return super()._store(array, str(len(self.arrays)))

    def _array(self, value: np.ndarray, where: str) -> Any:
        if value.dtype != object:
            return {"array": [self._store(np.asarray(value), where), type(value).__qualname__]}
        items = value.ravel().tolist()
        if all(type(item) is str for item in items):  # a million texts are hashed as one
            text = "".join(items).encode("utf-8", "surrogatepass")
            lengths = np.array([len(item) for item in items], dtype=np.int64)
            return {"texts": self.encode([np.frombuffer(text, np.uint8), lengths, value.shape])}
        return {"objects": self.encode([items, value.shape])}

    def _other(self, value: Any, where: str) -> Any:
        if isinstance(value, types.BuiltinFunctionType | types.ModuleType):
            return {"name": _name(value)}
        if isinstance(value, type) and _root(value) in _KNOWN:
            return {"name": _name(value)}
        if isinstance(value, bytes | bytearray | complex | types.EllipsisType):
            return {"constant": repr(value)}
        if id(value) in self._seen:
            return {"seen": self._seen[id(value)][0]}
        self._seen[id(value)] = (len(self._seen), value)
        if isinstance(value, type):
            return {"class": [_name(value), self.encode([value.__bases__, _code_of(value)])]}
        if isinstance(value, types.FunctionType):
            cells = [_content(cell) for cell in value.__closure__ or ()]
            parts = [value.__code__, value.__defaults__, value.__kwdefaults__, cells]
            return {"function": [_name(value), self.encode(parts)]}
        if isinstance(value, types.CodeType):
            return {"code": self.encode([value.co_code, value.co_names, value.co_consts])}
        return {"object": [self.encode(type(value)), self.encode(_state(value))]}


def _state(value: Any) -> Any:
    """Return the pickled state of an object, or else its attributes."""
    try:
        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, str):
            return reduced
        # The last two are iterators over the items of lists and dicts.
        return [*reduced[:3], *(list(items or ()) for items in reduced[3:5])]
    except Exception:  # not only TypeError: what cannot be pickled raises what it likes
        return dict(getattr(value, "__dict__", {}))


def _code_of(kind: type) -> dict[str, Any]:
    """Return the methods and constants of a class, without Python's own entries."""
    code: dict[str, Any] = {}
    for name, part in vars(kind).items():
        if isinstance(part, staticmethod | classmethod):
            part = part.__func__
        is_constant = type(part) in (*_PLAIN, list, tuple, dict) and not name.startswith("__")
        if is_constant or isinstance(part, types.FunctionType):
            code[name] = part
        elif isinstance(part, property):
            code[name] = [part.fget, part.fset]
    return code


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return ...


def _root(value: Any) -> str:
    return str(getattr(value, "__module__", "")).partition(".")[0]


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}"
