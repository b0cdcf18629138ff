"""Checkpoints of a fit: written after epochs, and found when the same fit starts again."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import math
import os
import pickle
import re
import tempfile
import time
import types
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from skorch.callbacks import Callback
from torch import Tensor

from sklearn_xlc._files import replacing
from sklearn_xlc._warn import warn
from sklearn_xlc.distributed import ALONE, Alone, held_of_whole, module_state, whole_on_first
from sklearn_xlc.training.digests import identity, is_plain
from sklearn_xlc.training.finite import check_like

#: Shortest time between two checkpoints, in multiples of the time to write one.
PAUSE = 20
#: Seconds without a write after which a temporary file counts as left over from a killed fit.
ABANDONED = 600
#: Types of classes and functions, which are no state.
_CODE = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    functools.partial,
)


class Checkpoints:
    """Checkpoints of one fit; other fits may share the folder.

    A file ``<fit>-<epoch>.pt`` holds weights and buffers, the optimiser's state, random generators,
    the history, and the state of callbacks (attributes whose names end in "_", as skorch has it). A
    resumed fit ends in the same bytes as one without interruption. The last two files are kept, and
    only the last one once the fit is finished. The first of the `processes` writes. A file that
    cannot be read gives a UserWarning, and the previous one is used.

    ``torch.load(path, weights_only=True)`` reads a file. Its last 32 bytes are the SHA-256 of the
    others. What it holds is checked before it is used, so that no file can run code, or make a
    kernel of torch write beyond a tensor.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        fit: str,
        processes: Alone = ALONE,
        device: str = "cpu",
    ) -> None:
        self.folder, self.fit = Path(folder).absolute(), fit  # a callback may change directory
        self.seed, self.processes, self.device = 0, processes, device
        self._prepare(os.fspath(folder))
        self._start = ""
        self._finished = False
        self._saved_at, self._took = 0.0, 0.0
        #: Files to remove once there are better ones, and the last one that can be read.
        self._old: list[Path] = self._files()
        self._last: Path | None = None
        self._untried = list(self._old)
        self._found = self._newest()

    def seed_or(self, seed: int) -> int:
        """Return the seed of the resumed fit, or else `seed`; for ``random_state=None``."""
        self.seed = self._found[1]["seed"] if self._found else seed
        return self.seed

    def resume(self, net: Any) -> bool:
        """Continue from the newest fitting checkpoint; return whether the fit was finished.

        A checkpoint of a fit with other initial weights, or one that cannot be a state of the net,
        gives a UserWarning; a callback whose state no file can hold, a TypeError.
        """
        self._start = self.processes.of_first(identity(_state(net)["module"]))
        while self._found is not None:
            path, document = self._found
            if document["start"] != self._start:
                warn(
                    f"{path} is not used, and training begins anew: it belongs to a fit that began "
                    "with other weights. Either weights from which the encoder or the head starts "
                    "have changed, or they are drawn at random without a seed"
                )
                break
            try:
                _restore(net, document["state"])
            except Exception as error:  # whatever a hostile file makes Python or torch raise
                self._warn(path, f"cannot use {path}: {error!r}")
                self._found = self._newest()
                continue
            self._found, self._last, self._finished = None, path, document["finished"]
            # A kill may have come before the others were removed.
            if self._finished and self.processes.is_first:
                self._remove_old(path, finished=True)
            return self._finished
        self._found = None
        return False

    def save(self, net: Any, finished: bool = False) -> None:
        """Write a checkpoint, unless training goes on, and the last one is recent and took long.

        OSError in all processes if the file cannot be written; earlier ones stay unchanged.
        """
        began = time.monotonic()
        is_due = finished or began - self._saved_at >= PAUSE * self._took
        is_due = self.processes.of_first(is_due)  # clocks differ
        if self._finished or not is_due:
            return
        state, error = _state(net), None
        if self.processes.is_first:
            about = {"start": self._start, "seed": self.seed, "finished": finished}
            error = self._write({"state": state, **about}, len(net.history))
        if error := self.processes.of_first(error):
            raise error
        self._finished = finished
        self._saved_at = time.monotonic()
        self._took = self._saved_at - began

    def _write(self, document: dict[str, Any], n_epochs: int) -> OSError | None:
        """Write a file; on failure return the error for all processes."""
        path = self.folder / f"{self.fit}-{n_epochs}.pt"
        try:
            with replacing(os.fspath(path)) as file:
                hashed: Any = _Hashed(file)
                torch.save(document, hashed)
                hashed.finish()
        except OSError as error:
            return OSError(
                error.errno,
                f"checkpoint={str(self.folder)!r}: nothing could be written after epoch "
                f"{n_epochs}: {error.strerror}; make room there or give another folder, and call "
                "fit again",
            )
        self._remove_old(path, document["finished"])
        return None

    # --- files ------------------------------------------------------------------------------

    def _prepare(self, folder: str) -> None:
        """Create the folder, test writing, and remove temporary files of killed fits."""
        try:
            os.makedirs(folder, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise OSError(
                error.errno,
                f"checkpoint={folder!r} must be a folder that can be made and written: "
                f"{error.strerror}",
            ) from error
        for path in self.folder.glob(".sklearn_xlc-*.tmp"):
            with contextlib.suppress(OSError):  # renamed or removed by another process
                if time.time() - path.stat().st_mtime > ABANDONED:
                    path.unlink()

    def _files(self) -> list[Path]:
        """Return the checkpoints of the fit, oldest first."""
        epochs = {}
        for path in self.folder.iterdir():
            match = re.fullmatch(rf"{re.escape(self.fit)}-(\d+)\.pt", path.name)
            if match and path.is_file():  # a FIFO would be waited for
                epochs[path] = int(match[1])
        return sorted(epochs, key=epochs.__getitem__)

    def _newest(self) -> tuple[Path, Any] | None:
        """Return the newest readable file not tried yet, and its contents."""
        found = self._readable() if self.processes.is_first else None
        path = self.processes.of_first(None if found is None else found[0])
        return found if path is None or found is not None else (path, self._read(path))

    def _readable(self) -> tuple[Path, Any] | None:
        while self._untried:
            path = self._untried.pop()
            try:
                return path, self._read(path)
            except FileNotFoundError:  # another process runs the same fit, and is further on
                continue
            except Exception as error:  # whatever a hostile file makes Python or torch raise
                self._warn(path, f"cannot read {path}: {error}")
        return None

    def _warn(self, path: Path, what: str) -> None:
        if self.processes.is_first:
            is_last = path == self._old[0]
            instead = "training begins anew" if is_last else "the one before it is tried"
            warn(f"checkpoint: {what}; {instead}")

    def _read(self, path: Path) -> dict[str, Any]:
        """Return what a file holds, mapped into memory; raise unless it is whole."""
        content = np.memmap(path, np.uint8, mode="r").data
        if content[-32:] != hashlib.sha256(content[:-32]).digest():
            raise ValueError("it is damaged: its content does not match its digest")
        try:
            document = torch.load(os.fspath(path), self._placed, weights_only=True, mmap=True)
        except pickle.UnpicklingError:  # torch's message says how to run the code of a file
            raise ValueError("it holds something else than the state of a fit") from None
        seed, is_finished = document["seed"], document["finished"]
        if type(is_finished) is not bool or type(seed) is not int or not 0 <= seed < 2**32:
            raise ValueError("it holds something else than the state of a fit")
        for _, tensor in _items(document):
            # No view that repeats a number: its copy may be of any size.
            if isinstance(tensor, Tensor) and (not is_plain(tensor) or _is_view(tensor)):
                raise ValueError("it holds a tensor that is not all its numbers")
        return document

    def _placed(self, storage: Any, location: str) -> Any:
        return storage if location == "cpu" else storage.to(device=self.device)

    def _remove_old(self, newest: Path, finished: bool) -> None:
        """Remove all checkpoints but the newest and, unless `finished`, the previous one."""
        keep = {newest} if finished else {newest, self._last}
        for path in self._old:
            if path not in keep:
                path.unlink(missing_ok=True)
        self._old = [path for path in {*self._old, newest} if path in keep]
        self._last = newest


class _Hashed:
    """File for `torch.save` that hashes what it writes, so that no copy is held in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.flush, self.hash = file, file.flush, hashlib.sha256()
        self._error: BaseException | None = None

    def write(self, data: Any) -> int:
        """Write bytes; keep an error for :meth:`finish`, as torch would raise one of its own."""
        try:
            if self._error is None:
                self.file.write(data)
                self.hash.update(data)
        except BaseException as error:
            self._error = error
        return len(data)

    def finish(self) -> None:
        """Write the digest of all bytes; raise if some could not be written."""
        if self._error is not None:
            raise self._error
        self.file.write(self.hash.digest())


# --- what a checkpoint holds ------------------------------------------------------------------


def _state(net: Any) -> dict[str, Any]:
    """Return the state of a net between two epochs; rank 0 has it for all processes."""
    state = {
        **_beside(net),
        "module": module_state(net.module_),
        "frozen": [name for name, p in net.module_.named_parameters() if not p.requires_grad],
        "optimizer": net.optimizer_.state_dict(),
    }
    return {name: _plain(value, name) for name, value in whole_on_first(net, state).items()}


def _beside(net: Any) -> dict[str, Any]:
    """Return the state beside weights and moments."""
    return {
        "history": list(net.history),
        "rng": net.rng.bit_generator.state,
        "generators": [generator.get_state() for generator in net.generators],
        "callbacks": {name: _callback_state(callback) for name, callback in net.callbacks_},
    }


def _plain(value: Any, where: str) -> Any:
    """Copy a value as one that ``torch.load(weights_only=True)`` reads; tensors are shared."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind in (list, tuple, set):
        return kind([_plain(item, f"{where}[{i}]") for i, item in enumerate(value)])
    if kind in (dict, OrderedDict):
        items = value.items()
        return kind((_plain(k, f"{where} key"), _plain(v, f"{where}.{k}")) for k, v in items)
    if isinstance(value, np.generic) and value.dtype.kind in "biuf" and value.itemsize <= 8:
        return value.item()
    if isinstance(value, Tensor) and is_plain(value) and type(value.detach()) is Tensor:
        value = value.detach()
        return value.clone() if _is_view(value) else value
    raise TypeError(
        f"checkpoint: {where} holds an object of type {kind.__qualname__}, which a file cannot "
        "hold: it holds numbers, strings, tensors, and lists, tuples, sets and dicts of them. Give "
        "the object a state_dict and load_state_dict; or, if training does not depend on this "
        'attribute of a callback, a name that does not end in "_"'
    )


def _is_view(tensor: Tensor) -> bool:
    return tensor.nbytes != tensor.untyped_storage().nbytes()


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield all items of nested containers, with their keys."""
    if isinstance(value, dict):
        pairs = [*value.items(), *((None, key) for key in value)]
    else:
        pairs = [(None, item) for item in value] if isinstance(value, list | tuple | set) else []
    for name, item in pairs:
        yield name, item
        yield from _items(item)


def _restore(net: Any, state: dict[str, Any]) -> None:
    """Load copies of a state into a net, or raise and leave the net as it is."""
    _check_history(state["history"], net.max_epochs)
    state = held_of_whole(net, state)
    _check_module(net, state)
    before = copy.deepcopy(_beside(net))
    try:
        _restore_beside(net, state)
        net.optimizer_.load_state_dict(state["optimizer"])
    except BaseException:
        _restore_beside(net, before)
        raise
    net.module_.load_state_dict(state["module"]["state_dict"])
    buffers = dict(net.module_.named_buffers())
    for name, value in state["module"]["buffers"].items():
        buffers[name].copy_(value)
    for name, parameter in net.module_.named_parameters():
        parameter.requires_grad_(name not in state["frozen"])


def _restore_beside(net: Any, state: dict[str, Any]) -> None:
    net.history.clear()
    net.history.extend(state["history"])
    net.rng.bit_generator.state = state["rng"]
    if not state["generators"]:
        raise ValueError("it has no state of a generator")
    # That of a GPU is the second: a fit that goes on elsewhere has none, or draws from its seed.
    for generator, saved in zip(net.generators, state["generators"]):
        generator.set_state(saved)
    for name, callback in net.callbacks_:
        if name in state["callbacks"]:
            _restore_callback(callback, copy.deepcopy(state["callbacks"][name]))


def _check_history(history: list[dict[str, Any]], max_epochs: int) -> None:
    """Raise unless a history has the rows of epochs."""
    if not 0 < len(history) <= max_epochs:
        raise ValueError(f"it has {len(history)} epochs of {max_epochs}")
    for number, row in enumerate(history, 1):
        is_whole = type(row["batches"]) is list and type(row["train_batch_count"]) is int
        if row["epoch"] != number or not (is_whole and math.isfinite(row["train_loss"])):
            raise ValueError(f"row {number} of its history is none of an epoch")


def _check_module(net: Any, state: dict[str, Any]) -> None:
    """Raise unless weights and buffers, and copies of callbacks, are as those of a net."""
    own, found = module_state(net.module_), state["module"]
    for name, value in own["state_dict"].items():
        if not isinstance(value, Tensor):  # a state of the module's own may be anything
            own["state_dict"][name] = found["state_dict"][name]
    check_like(found, own, "module")
    for name, value in _items(state["callbacks"]):
        if isinstance(value, Tensor) and name in own["state_dict"]:
            check_like(value, own["state_dict"][name], f"{name} in a callback")
    if not set(state["frozen"]) <= dict(net.module_.named_parameters()).keys():
        raise ValueError(f"it has the frozen weights {state['frozen']}")


def _callback_state(callback: Callback) -> dict[str, Any]:
    """Return the state of a callback: its pickled attributes with a final "_".

    An object with a state of its own has the entry ``name()``.
    """
    pickled = callback.__getstate__()
    state = {}
    for name, value in vars(callback).items():
        is_left_out = isinstance(pickled, dict) and name not in pickled
        if not name.endswith("_") or is_left_out or isinstance(value, _CODE):
            continue
        if isinstance(value, Callback):
            state[f"{name}()"] = _callback_state(value)
        elif hasattr(value, "load_state_dict"):
            state[f"{name}()"] = value.state_dict()
        else:
            state[name] = value
    return state


def _restore_callback(callback: Callback, state: dict[str, Any]) -> None:
    for name, saved in state.items():
        if name.endswith("_") and not name.endswith("__"):
            setattr(callback, name, saved)
            continue
        value = getattr(callback, name.removesuffix("()"))
        if isinstance(value, Callback):
            _restore_callback(value, saved)
        else:
            value.load_state_dict(saved)
