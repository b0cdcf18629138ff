"""Digests of values, equal in all processes: they name fits, and tell samples apart."""

from __future__ import annotations

import hashlib
import pickle
import sys
import types
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sklearn_xlc.batches import Rows

#: Packages whose classes and functions count by name: their versions tell them apart.
_KNOWN = {"sklearn_xlc", "sklearn", "skorch", "torch", "numpy", "scipy"} | sys.stdlib_module_names


def digest_of(rows: Rows, *, whole: bool) -> str:
    """Return a digest of samples with their labels and weights.

    Of X it covers all, or 64 evenly spaced samples, so that not all of a large mapped X is read.
    """
    some = rows if whole else rows.take(np.linspace(0, len(rows) - 1, 64).astype(np.int64))
    arrays = [_plain(some.X), some.bags, some.members]
    return short_digest([arrays, _plain(rows.Y), rows.sample_weight])


def _plain(matrix: Any) -> Any:
    """Return the arrays of a CSR matrix, without what SciPy has found out about it."""
    if not sp.issparse(matrix):
        return matrix
    return [matrix.shape, matrix.indptr, matrix.indices, matrix.data]


def short_digest(value: Any) -> str:
    """Return the first 16 digits of :func:`identity`, for messages."""
    return identity(value)[:16]


def identity(value: Any) -> str:
    """Return a digest of any value, equal for equal values in all processes.

    It is that of the value's pickle, of which it changes what differs by chance or is missing:

    - strings and tuples count by their values, wherever Python has several for one;
    - sets count without their order;
    - functions count by name, code, defaults and closure;
    - classes and functions of Python and of packages whose version counts count by name, other
      classes by name, methods, constants and base classes;
    - what cannot be pickled (a file, a lock) counts by its class and attributes.
    """
    pickler = _Digest()
    pickler.dump(value)
    return pickler.hash.hexdigest()


class _Digest(pickle.Pickler):
    """Pickler to a hash; arrays are hashed in place."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        super().__init__(self, 4)

    def write(self, data: Any) -> None:
        """Hash what a file would receive."""
        self.hash.update(data)

    def persistent_id(self, value: Any) -> Any:
        """Return a stand-in for values with varying pickles: arrays, sets, memory addresses."""
        match value:
            case str():
                self.write(value.encode("utf-8", "surrogatepass"))
                return len(value)
            case set() | frozenset():
                return sorted(map(identity, value))
            case tuple() if type(value) is tuple:
                return ["tuple", *value]
            case np.dtype():
                return repr(value)
            case types.BuiltinFunctionType() | types.ModuleType():
                return _name(value)
            case type() | types.FunctionType() if _is_known(value):
                return _name(value)
            case types.CodeType():
                return ["code", value.co_code, value.co_names, value.co_consts]
            case types.CellType():
                return ["cell", *_content(value)]
            case Tensor() if is_plain(value):
                values = value.detach().cpu().contiguous().view(-1)
                self.write(values.view(torch.uint8).numpy().data)
                return ["tensor", str(value.dtype), value.requires_grad, *value.shape]
            case np.ndarray() if not value.dtype.hasobject:
                self.write(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
                return [type(value), value.dtype, *value.shape]
        return None

    def reducer_override(self, value: Any) -> Any:
        """Return the parts of an object; the last one may hold the object itself."""
        if isinstance(value, types.FunctionType):
            parts = (value.__code__, value.__defaults__, value.__kwdefaults__, value.__closure__)
            return type(value), (_name(value),), parts
        if isinstance(value, type):
            return type, (_name(value),), (value.__bases__, _code_of(value))
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:  # not only TypeError: what cannot be pickled raises what it likes
            return type(value), (), dict(getattr(value, "__dict__", {}))
        return (type(value), (reduced,)) if isinstance(reduced, str) else reduced


def _code_of(kind: type) -> dict[str, Any]:
    """Return the methods and constants of a class, without Python's own entries."""
    code: dict[str, Any] = {}
    for name, part in vars(kind).items():
        if isinstance(part, staticmethod | classmethod):
            part = part.__func__
        is_plain = isinstance(part, bool | int | float | str | list | tuple | dict | None)
        if (is_plain and not name.startswith("__")) or isinstance(part, types.FunctionType):
            code[name] = part
        elif isinstance(part, property):
            code[name] = [part.fget, part.fset]
    return code


def _content(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # not assigned yet
        return []


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is numbers in memory: neither sparse nor quantised nor empty."""
    return tensor.layout == torch.strided and not (tensor.is_meta or tensor.is_quantized)


def _is_known(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] in _KNOWN


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}"
