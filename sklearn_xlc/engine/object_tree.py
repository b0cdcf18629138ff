"""An estimator as a document and arrays, and back: what pickle does, without running code.

:func:`describe` walks an object and everything it holds; :func:`rebuild` makes it again. Every
kind of object has a pair of functions here, and a tag in the table at the end; whatever has none is
refused. Which classes and functions may be found by name is decided in `engine.names`.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import pathlib
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import Bunch
from torch import nn

from sklearn_xlc._files import DTYPES, Streamed
from sklearn_xlc.distributed.fetching import Table
from sklearn_xlc.engine import pretrained
from sklearn_xlc.engine.names import Finder, is_known, name_of
from sklearn_xlc.engine.packing import PackedWeight
from sklearn_xlc.engine.tree_walk import PLAIN, Kind, Reader, Writer

#: What every module has, in addition to the attributes of its class, and its type.
_OF_EVERY_MODULE = {name: type(part) for name, part in vars(nn.Module()).items()}
#: What a state as a dict does not hold of subclasses of these.
_BUILT_IN = (dict, list, tuple, set, frozenset, str, bytes, bytearray, int, float, complex)
_TORCH_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.complex64, torch.complex128),
    )
}
_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


def describe(value: Any, name: str = "estimator", strict: bool = True) -> tuple[Any, dict]:
    """Describe an object as a document of JSON and arrays.

    Parameters
    ----------
    value : object
        Estimator, or anything that one may hold.
    name : str, default="estimator"
        What messages and names of arrays call it.
    strict : bool, default=True
        Whether to refuse what cannot be rebuilt. False: such an object is described by the name of
        its class alone, and objects that are held twice are described twice, so that two
        descriptions are equal if the objects are, whatever they share.

    Returns
    -------
    document : object
        For :func:`rebuild`.
    arrays : dict of str to ndarray
        Arrays by name.

    Raises
    ------
    TypeError
        If `strict` and the object holds something that cannot be rebuilt; the message says where.
    """
    writer = Writer(_KINDS, strict)
    document = {"root": writer.node(value, name), "names": sorted(writer.names)}
    return document, writer.arrays


def rebuild(document: Any, arrays: dict[str, np.ndarray], trusted: Iterable[Any] = ()) -> Any:
    """Rebuild an object from the result of :func:`describe`.

    Parameters
    ----------
    document : object
        Description.
    arrays : dict of str to ndarray
        Arrays of the description; the object keeps them.
    trusted : iterable of class, function or str, default=()
        What may be used beyond this package, scikit-learn's estimators and plain torch modules.

    Returns
    -------
    object

    Raises
    ------
    ValueError
        If the description names other classes or functions, or is none.
    """
    try:
        find = Finder(document["names"], trusted).find
        reader = Reader(_KINDS, arrays, find)
        made = reader.value(document["root"])
    except (ValueError, MemoryError, Warning):
        raise
    except Exception as error:  # a wrong description fails anywhere
        raise ValueError(f"its description is not valid ({error!r})") from error
    if reader.arrays:
        raise ValueError(f"its description does not use the array {min(reader.arrays)!r}")
    return made


# --- containers -------------------------------------------------------------------------------


def _describe_dict(writer: Writer, value: dict, where: str) -> dict[str, Any]:
    if {str}.issuperset(map(type, value)):
        if PLAIN.issuperset(map(type, value.values())):
            return {"items": dict(value)}
        return {
            "items": {key: writer.node(item, f"{where}[{key!r}]") for key, item in value.items()}
        }
    return {
        "keys": writer.nodes(value, f"{where}.keys()"),
        "values": [writer.node(item, f"{where}[{key!r}]") for key, item in value.items()],
    }


def _rebuild_dict(reader: Reader, node: dict[str, Any]) -> dict:
    made: dict = reader.made(node, {})
    if "items" in node:
        made.update((key, reader.value(item)) for key, item in node["items"].items())
    else:
        made.update(zip(reader.values(node["keys"]), reader.values(node["values"]), strict=True))
    return made


def _describe_items(writer: Writer, value: Any, where: str) -> dict[str, Any]:
    return {"items": writer.nodes(value, where)}


def _rebuild_list(reader: Reader, node: dict[str, Any]) -> list:
    made: list = reader.made(node, [])
    made.extend(reader.values(node["items"]))
    return made


def _describe_set(writer: Writer, value: Any, where: str) -> dict[str, Any]:
    return {"items": sorted(writer.nodes(value, where), key=json.dumps)}  # sets have no order


def _describe_slice(writer: Writer, value: slice, where: str) -> dict[str, Any]:
    return {"items": writer.nodes((value.start, value.stop, value.step), where)}


# --- numpy and scipy --------------------------------------------------------------------------


def _describe_streamed(writer: Writer, value: Streamed, where: str) -> dict[str, Any]:
    return {"array": writer.array(value, where)}


def _describe_array(writer: Writer, value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, Table):
        return _describe_streamed(writer, value.streamed(), where)
    if type(value) not in (np.ndarray, np.memmap):
        return writer.refuse(value, where, "convert it by numpy.asarray")
    if value.dtype.hasobject or value.dtype.names:
        if value.dtype != object:
            return writer.refuse(value, where, "an array with fields has no plain form")
        return {"shape": list(value.shape), "objects": writer.nodes(value.ravel().tolist(), where)}
    value = value.astype(value.dtype.newbyteorder("="), copy=False)
    in_columns = value.ndim > 1 and value.flags.f_contiguous and not value.flags.c_contiguous
    node: dict[str, Any] = {"order": "F"} if in_columns else {}
    value = value.T if in_columns else value
    if value.dtype.name not in DTYPES:
        node |= {"dtype": value.dtype.str, "shape": list(value.shape)}
        value = np.frombuffer(value.tobytes(), np.uint8)
    return node | {"array": writer.array(value, where)}


def _rebuild_array(reader: Reader, node: dict[str, Any]) -> np.ndarray:
    if "objects" in node:
        made = np.empty(len(node["objects"]), dtype=object)
        made[:] = reader.values(node["objects"])
        return made.reshape(node["shape"])
    made = reader.array(node["array"])
    if "dtype" in node:
        made = _array_of_bytes(made.tobytes(), node["dtype"], node["shape"])
    return made.T if node.get("order") == "F" else made


def _array_of_bytes(content: bytes, dtype: str, shape: list[int]) -> np.ndarray:
    checked = np.dtype(dtype)
    # Bytes would be taken for addresses; without bytes there would be any number of items.
    if checked.hasobject or not checked.itemsize:
        raise ValueError(f"an array of bytes cannot have the type {dtype}")
    return np.ndarray(tuple(shape), checked, bytearray(content))


def _describe_scalar(writer: Writer, value: np.generic, where: str) -> dict[str, Any]:
    array = np.asarray(value)
    if array.dtype.hasobject or array.dtype.names:
        return writer.refuse(value, where)
    return {"dtype": array.dtype.str, "bytes": array.tobytes().hex()}


def _rebuild_scalar(reader: Reader, node: dict[str, Any]) -> Any:
    return _array_of_bytes(bytes.fromhex(node["bytes"]), node["dtype"], [])[()]


def _describe_dtype(writer: Writer, value: np.dtype, where: str) -> dict[str, Any]:
    return writer.refuse(value, where) if value.names else {"name": value.str}


def _describe_masked(writer: Writer, value: np.ma.MaskedArray, where: str) -> dict[str, Any]:
    parts = {"data": value.data, "mask": value.mask, "fill_value": value.fill_value}
    return {key: writer.node(part, f"{where}.{key}") for key, part in parts.items()}


def _rebuild_masked(reader: Reader, node: dict[str, Any]) -> np.ma.MaskedArray:
    mask, fill_value = reader.value(node["mask"]), reader.value(node["fill_value"])
    return np.ma.MaskedArray(_plain_array(reader, node["data"]), mask, fill_value=fill_value)


def _plain_array(reader: Reader, node: Any) -> np.ndarray:
    """Array of a description; what else could be converted to one might become too large."""
    made = reader.value(node)
    if not isinstance(made, np.ndarray):
        raise ValueError(f"an array is described as a {type(made).__name__}")
    return made


def _describe_sparse(writer: Writer, value: Any, where: str) -> dict[str, Any]:
    if value.format not in ("csr", "csc"):
        return writer.refuse(value, where, "convert it by .tocsr()")
    parts = {key: getattr(value, key) for key in ("data", "indices", "indptr")}
    node = {key: writer.node(part, f"{where}.{key}") for key, part in parts.items()}
    return node | {"class": type(value).__name__, "shape": list(value.shape)}


def _rebuild_sparse(reader: Reader, node: dict[str, Any]) -> Any:
    kinds = {kind.__name__: kind for kind in (sp.csr_array, sp.csr_matrix, sp.csc_array)}
    kind = (kinds | {"csc_matrix": sp.csc_matrix})[node["class"]]
    parts = tuple(_plain_array(reader, node[key]) for key in ("data", "indices", "indptr"))
    made = kind(parts, shape=tuple(node["shape"]))
    made.check_format(full_check=True)  # a wrong index would read memory of others
    return made


def _describe_random_state(writer: Writer, value: Any, where: str) -> dict[str, Any]:
    return {"state": writer.node(value.get_state(legacy=False), where)}


def _rebuild_random_state(reader: Reader, node: dict[str, Any]) -> np.random.RandomState:
    made = np.random.RandomState()
    made.set_state(_state_of_bits(reader, node))
    return made


def _describe_generator(writer: Writer, value: Any, where: str) -> dict[str, Any]:
    state = value.bit_generator.state
    if state["bit_generator"] not in _BIT_GENERATORS:
        return writer.refuse(value, where)
    return {"state": writer.node(state, where)}


def _state_of_bits(reader: Reader, node: dict[str, Any]) -> dict[str, Any]:
    """State of a generator; NumPy does not check its position in its buffer."""
    state = reader.value(node["state"])
    if state["bit_generator"] not in _BIT_GENERATORS:
        raise ValueError("there is no such random generator")  # a name may be a huge object
    if not (0 <= state["state"].get("pos", 0) <= 624 and 0 <= state.get("buffer_pos", 0) <= 4):
        raise ValueError("the state of a random generator is not valid")
    return state


def _rebuild_generator(reader: Reader, node: dict[str, Any]) -> np.random.Generator:
    state = _state_of_bits(reader, node)
    bits = getattr(np.random, state["bit_generator"])()
    bits.state = state
    return np.random.Generator(bits)


# --- torch ------------------------------------------------------------------------------------


def _describe_tensor(writer: Writer, value: torch.Tensor, where: str) -> dict[str, Any]:
    if type(value) not in (torch.Tensor, nn.Parameter) or value.layout != torch.strided:
        return writer.refuse(value, where)
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in _TORCH_DTYPES:
        return writer.refuse(value, where)
    node = {
        "dtype": dtype,
        "parameter": isinstance(value, nn.Parameter),
        "requires_grad": value.requires_grad,
    }
    if value.is_meta:  # its values are elsewhere
        return node | {"shape": list(value.shape)}
    value = value.detach().cpu().resolve_conj().resolve_neg()
    if value.dtype == torch.bfloat16:
        value = value.view(torch.int16)
    return node | {"values": writer.node(value.numpy(), where)}


def _rebuild_tensor(reader: Reader, node: dict[str, Any]) -> torch.Tensor:
    dtype = _TORCH_DTYPES[node["dtype"]]
    if "shape" in node:
        made = torch.empty(node["shape"], dtype=dtype, device="meta")
    else:
        # A mapped array is read-only; weights, which are shared, are no part of a description.
        made = torch.from_numpy(np.require(_plain_array(reader, node["values"]), requirements="W"))
        made = made.view(dtype) if dtype == torch.bfloat16 else made
        if made.dtype != dtype:
            raise ValueError(f"a tensor of type {dtype} has values of type {made.dtype}")
    if node["parameter"]:
        return nn.Parameter(made, node["requires_grad"])
    return made.requires_grad_(node["requires_grad"])


def _describe_module(writer: Writer, value: nn.Module, where: str) -> dict[str, Any]:
    inside = vars(value)
    if not (writer.strict or (is_known(type(value)) and _is_whole(inside))):
        return writer.refuse(value, where)
    hooks = [key for key in _OF_EVERY_MODULE if key.endswith("_hooks") and inside.get(key)]
    if hooks and writer.strict:
        raise TypeError(
            f"cannot save {where}: hooks are code; remove them (they are in {hooks[0]})"
        )
    if pretrained.is_transformer(type(value)):
        return pretrained.describe(writer, value, where)
    own = {key: item for key, item in inside.items() if key not in _OF_EVERY_MODULE}
    named = {key: inside[key] for key in ("_parameters", "_buffers", "_modules")}
    return {
        "class": writer.name(type(value), where) if writer.strict else name_of(type(value)),
        "training": value.training,
        "transient": sorted(inside["_non_persistent_buffers_set"]),
        "own": _describe_parts(writer, own, where),
        **{key: _describe_parts(writer, parts, where) for key, parts in named.items()},
    }


def _is_whole(inside: dict[str, Any]) -> bool:
    """Whether a module has what every module has."""
    return all(
        name in inside and (kind is type(None) or type(inside[name]) is kind)
        for name, kind in _OF_EVERY_MODULE.items()
    )


def _describe_parts(writer: Writer, parts: dict[str, Any], where: str) -> dict[str, Any]:
    return {key: writer.node(part, f"{where}.{key}") for key, part in parts.items()}


def _rebuild_module(reader: Reader, node: dict[str, Any]) -> nn.Module:
    if "config" in node:
        return pretrained.rebuild(reader, node)
    kind = reader.find(node["class"])
    made = reader.made(node, kind.__new__(kind))
    nn.Module.__init__(made)
    made.training = bool(node["training"])
    inside = vars(made)
    inside["_non_persistent_buffers_set"].update(node["transient"])
    for key in ("_parameters", "_buffers", "_modules"):
        inside[key].update((name, reader.value(part)) for name, part in node[key].items())
    inside.update((name, reader.value(part)) for name, part in node["own"].items())
    return made


# --- classes, functions and objects -----------------------------------------------------------


def _describe_name(writer: Writer, value: Any, where: str) -> dict[str, Any]:
    if not writer.strict:
        return {"name": f"{value.__module__}.{value.__qualname__}"}
    return {"name": writer.name(value, where)}


def _describe_ufunc(writer: Writer, value: np.ufunc, where: str) -> dict[str, Any]:
    known = getattr(np, value.__name__, None) is value
    return {"name": value.__name__} if known else writer.refuse(value, where)


def _rebuild_ufunc(reader: Reader, node: dict[str, Any]) -> np.ufunc:
    made = vars(np).get(node["name"])
    if not isinstance(made, np.ufunc):
        raise ValueError(f"numpy.{node['name']} is no ufunc")
    return made


def _describe_partial(writer: Writer, value: functools.partial, where: str) -> dict[str, Any]:
    parts = {"func": value.func, "args": list(value.args), "keywords": dict(value.keywords)}
    return {key: writer.node(part, f"{where}.{key}") for key, part in parts.items()}


def _rebuild_partial(reader: Reader, node: dict[str, Any]) -> functools.partial:
    func, args, keywords = (reader.value(node[key]) for key in ("func", "args", "keywords"))
    return functools.partial(func, *args, **keywords)


def _describe_object(writer: Writer, value: Any, where: str) -> dict[str, Any]:
    """Any other object: its class, and its state as a dict of attributes."""
    kind = type(value)
    if not writer.strict and not is_known(kind):
        return writer.refuse(value, where)
    own_way = (
        kind.__reduce_ex__ is not object.__reduce_ex__
        or kind.__reduce__ is not object.__reduce__
        or isinstance(value, _BUILT_IN)
        or hasattr(kind, "__getnewargs__")
        or hasattr(kind, "__getnewargs_ex__")
    )
    if own_way or not hasattr(value, "__dict__"):
        return writer.refuse(value, where)
    state = getattr(value, "_full_state", value.__getstate__)()
    if not isinstance(state, dict | None) or not {str}.issuperset(map(type, state or {})):
        return writer.refuse(value, where, "its state is no dict of attributes")
    state = dict(state or {})
    if not writer.strict:
        state.pop("_sklearn_version", None)  # that of whoever describes it
    name = writer.name(kind, where) if writer.strict else name_of(kind)
    return {"class": name, "state": _describe_parts(writer, state, where)}


def _rebuild_object(reader: Reader, node: dict[str, Any]) -> Any:
    kind = reader.find(node["class"])
    made = reader.made(node, kind.__new__(kind))
    state = {key: reader.value(part) for key, part in node["state"].items()}
    if issubclass(kind, BaseEstimator) and kind.__module__.startswith("sklearn_xlc."):
        state = _defaults(kind) | state  # it may have parameters that the file is older than
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    else:
        vars(made).update(state)
    return made


def _defaults(kind: type) -> dict[str, Any]:
    """Defaults of the parameters of an estimator."""
    if kind.__init__ is object.__init__:  # type: ignore[misc]
        return {}
    parameters = inspect.signature(kind.__init__).parameters  # type: ignore[misc]
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }


#: Kinds of objects by tag; the first whose types fit describes an object.
_KINDS: dict[str, Kind] = {
    "dict": Kind((dict,), _describe_dict, _rebuild_dict, filled=True),
    "bunch": Kind((Bunch,), _describe_dict, lambda r, n: Bunch(**_rebuild_dict(r, n))),
    "list": Kind((list,), _describe_items, _rebuild_list, filled=True),
    "tuple": Kind((tuple, torch.Size), _describe_items, lambda r, n: tuple(r.values(n["items"]))),
    "set": Kind((set,), _describe_set, lambda r, n: set(r.values(n["items"]))),
    "frozenset": Kind((frozenset,), _describe_set, lambda r, n: frozenset(r.values(n["items"]))),
    "slice": Kind((slice,), _describe_slice, lambda r, n: slice(*r.values(n["items"]))),
    "masked": Kind((np.ma.MaskedArray,), _describe_masked, _rebuild_masked),
    "packed": Kind(
        (PackedWeight,),
        lambda w, value, where: {"parts": w.node(value.parts(), where)},
        lambda r, n: r.value(n["parts"]),
    ),
    "streamed": Kind((Streamed,), _describe_streamed, lambda r, n: r.array(n["array"])),
    "array": Kind((np.ndarray, Table), _describe_array, _rebuild_array, subclasses=True),
    "scalar": Kind((np.generic,), _describe_scalar, _rebuild_scalar, subclasses=True),
    "dtype": Kind((np.dtype,), _describe_dtype, lambda r, n: np.dtype(n["name"]), subclasses=True),
    "sparse": Kind((sp.sparray, sp.spmatrix), _describe_sparse, _rebuild_sparse, subclasses=True),
    "random_state": Kind((np.random.RandomState,), _describe_random_state, _rebuild_random_state),
    "generator": Kind((np.random.Generator,), _describe_generator, _rebuild_generator),
    "module": Kind((nn.Module,), _describe_module, _rebuild_module, subclasses=True, filled=True),
    "tensor": Kind((torch.Tensor,), _describe_tensor, _rebuild_tensor, subclasses=True),
    "torch_dtype": Kind(
        (torch.dtype,),
        lambda w, value, where: {"name": str(value).removeprefix("torch.")},
        lambda r, n: _TORCH_DTYPES[n["name"]],
    ),
    "device": Kind(
        (torch.device,),
        lambda w, value, where: {"name": str(value)},
        lambda r, n: torch.device(n["name"]),
    ),
    "path": Kind(
        (pathlib.PurePath,),
        lambda w, value, where: {"name": os.fspath(value)},
        lambda r, n: pathlib.Path(n["name"]),
        subclasses=True,
    ),
    "partial": Kind((functools.partial,), _describe_partial, _rebuild_partial),
    "ufunc": Kind((np.ufunc,), _describe_ufunc, _rebuild_ufunc),
    "print": Kind(
        (BuiltinFunctionType,),  # skorch's callbacks hold it
        lambda w, value, where: {} if value is print else w.refuse(value, where),
        lambda r, n: print,
    ),
    "name": Kind((type, FunctionType), _describe_name, lambda r, n: r.find(n["name"]), True),
    "object": Kind((object,), _describe_object, _rebuild_object, subclasses=True, filled=True),
}
