"""A device that only pretends: it computes on the CPU, and refuses what a GPU would refuse.

Within :func:`pretended`, tensors of the device "lazy" hold numbers. Kernels that mix them with
tensors of the CPU raise, as on a GPU, and so does NumPy. Where the program would wait for a GPU,
because it reads numbers or their count, the line of the package is noted.
"""

import contextlib
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

#: As tensors say it; who asks for a device leaves out the number, as with "cuda".
DEVICE = torch.device("lazy", 0)
_AUTOCAST = torch.autocast
#: The device's global generator.
_GLOBAL = torch.Generator()
_RANDOM = SimpleNamespace(
    get_rng_state=lambda device: _GLOBAL.get_state(),
    set_rng_state=lambda state, device: _GLOBAL.set_state(state),
)
_aten = torch.ops.aten
#: Kernels whose results have as many numbers as the values say, so that a GPU is waited for.
_COUNTING = {
    _aten.nonzero.default,
    _aten.masked_select.default,
    _aten._unique2.default,
    _aten.unique_consecutive.default,
    _aten.unique_dim.default,
    _aten.bincount.default,
}
#: Kernels that count the true values of a mask among their indices.
_INDEXING = {_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default}


class OnDevice(torch.Tensor):
    """A tensor of the device, whose numbers lie in `held`."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=None if held.is_sparse else held.stride(),
            storage_offset=None if held.is_sparse else held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=DEVICE,
        )

    def __init__(self, held):
        self.held = held

    def __getitem__(self, index):
        # Torch makes a tensor of a list beside the dispatcher.
        index = torch.tensor(index, device=DEVICE) if isinstance(index, list) else index
        return super().__getitem__(index)

    @property
    def data(self):
        return super().data

    @data.setter
    def data(self, values):
        torch.Tensor.data.__set__(self, values)
        self.held = values.held

    def tolist(self):
        return self.cpu().tolist()

    def numpy(self, *, force=False):
        if force:
            return self.detach().cpu().numpy()
        raise TypeError("NumPy cannot read tensors of the device: copy them to the CPU first")

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError(f"{function} on a tensor of the pretended device, outside of it")


class Pretending(TorchDispatchMode):
    """Context of one thread; :func:`pretended` enters it in the thread that calls.

    `waits` counts by place how often the program would wait for a GPU.
    """

    def __init__(self):
        super().__init__()
        self.waits = Counter()

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # otherwise torch loads its compiler, which takes seconds

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given, spec = pytree.tree_flatten((args, kwargs))
        tensors = [each for each in given if isinstance(each, torch.Tensor)]
        of_device = [each for each in tensors if isinstance(each, OnDevice)]
        wanted = kwargs.get("device")
        wanted = None if wanted is None else torch.device(wanted)
        is_wanted = wanted is not None and wanted.type == DEVICE.type
        if not of_device and not is_wanted:
            return function(*args, **kwargs)
        copies = function in (_aten._to_copy.default, _aten.copy_.default)
        self._check(function, tensors, copies)
        on_cpu = wanted is not None and not is_wanted
        leaves = copies and of_device and (on_cpu or not isinstance(args[0], OnDevice))
        if leaves or _reads(function, tensors, kwargs):
            self._note()
        held = [each.held if isinstance(each, OnDevice) else each for each in given]
        held = [torch.device("cpu") if isinstance(h, torch.device) else h for h in held]
        inner_args, inner_kwargs = pytree.tree_unflatten(held, spec)
        found = function(*inner_args, **inner_kwargs)
        if function is _aten.copy_.default and not isinstance(args[0], OnDevice):
            return args[0]
        return found if on_cpu else self._wrapped(found, of_device)

    def _check(self, function, tensors, copies):
        if function in _INDEXING and isinstance(tensors[0], OnDevice):
            n_values = function is not _aten.index.Tensor  # indices may lie on the CPU
            tensors = [tensors[0], *tensors[len(tensors) - n_values :]]
        mixed = [t for t in tensors if not isinstance(t, OnDevice) and t.ndim]
        if mixed and len(mixed) < len(tensors) and not copies:
            shapes = [tuple(tensor.shape) for tensor in tensors]
            raise RuntimeError(f"{function} mixes the CPU with the device: shapes {shapes}")

    def _wrapped(self, found, given):
        places = {id(each.held): each for each in given}

        def wrap(value):
            if not isinstance(value, torch.Tensor):
                return value
            return places.get(id(value)) if id(value) in places else OnDevice(value)

        return pytree.tree_map(wrap, found)

    def _note(self):
        frame = sys._getframe()
        while frame is not None and "/sklearn_xlc/" not in frame.f_code.co_filename:
            frame = frame.f_back
        if frame is not None:
            file = frame.f_code.co_filename.rpartition("/sklearn_xlc/")[2]
            self.waits[f"{file}:{frame.f_lineno} {frame.f_code.co_name}"] += 1


def _reads(function, tensors, kwargs):
    """Whether a kernel reads numbers before it returns, or how many of them are true."""
    if function is _aten.repeat_interleave.Tensor:
        return kwargs.get("output_size") is None
    if function in _INDEXING:
        return any(tensor.dtype == torch.bool for tensor in tensors[1:])
    return function is _aten._local_scalar_dense.default or function in _COUNTING


class _Generator(torch.Generator):
    """One of the CPU, which says that it is of another device: by no number, as in torch."""

    def __new__(cls, device="cpu"):
        self = super().__new__(cls)
        self.said = torch.device(device)
        return self

    device = property(lambda self: self.said)


def _to_device(make):
    def made(data, *, dtype=None, device=None, **kwargs):
        if isinstance(data, OnDevice):
            return data.to(dtype=dtype, device=device)
        found = make(data, dtype=dtype, **kwargs)
        return found if device is None else found.to(device)

    return made


def _autocast(device_type, dtype=None, enabled=True):
    of_cpu = "cpu" if torch.device(device_type).type == DEVICE.type else device_type
    return _AUTOCAST(of_cpu, dtype=dtype, enabled=enabled)


def _without_gradient(mode=True):
    return torch.no_grad() if mode else torch.enable_grad()


@contextlib.contextmanager
def pretended():
    """Let tensors of the device "lazy" hold numbers; gives the places that wait for a GPU."""
    with pytest.MonkeyPatch.context() as patch, Pretending() as mode:
        patch.setattr(torch, "Generator", _Generator)
        # Views of parameters cannot be inference tensors where they wrap others.
        patch.setattr(torch, "inference_mode", _without_gradient)
        patch.setattr(torch, "autocast", _autocast)
        patch.setattr(torch, "get_device_module", lambda device: _RANDOM)
        patch.setattr(torch, DEVICE.type, _RANDOM, raising=False)
        for name in ("tensor", "as_tensor"):  # these allocate beside the dispatcher
            patch.setattr(torch, name, _to_device(getattr(torch, name)))
        yield mode.waits
