"""Checkpoints of a fit: written after epochs, and found when the same fit starts again."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import re
import tempfile
import time
import types
import warnings
from pathlib import Path
from typing import Any

from skorch.callbacks import Callback

from sklearn_xlc._files import read_mapped, write
from sklearn_xlc.distributed.fetching import Fetching
from sklearn_xlc.distributed.parts import held_of_whole, module_state, whole_on_first
from sklearn_xlc.distributed.processes import ALONE, Alone
from sklearn_xlc.training.encoding import Encoder, decode, identity

#: Number of the format, part of a fit's name: files of another format are not looked at.
FORMAT = 1
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

    A file holds weights and buffers, the optimiser's state, random generators, the history, and the
    state of callbacks (attributes whose names end in "_", as skorch has it). A resumed fit ends in
    the same bytes as one without interruption. The last two files are kept, and only the last one
    once the fit is finished.

    Parameters
    ----------
    folder : str or path-like
        Folder of the files; created if missing.
    fit : str
        Name of the fit, unique in the folder; files are named ``<fit>-<epoch>.xlc``.
    processes : Alone or Processes, default=ALONE
        Processes of the fit, of which the first writes.

    Raises
    ------
    OSError
        If the folder cannot be created or written to.

    Warns
    -----
    UserWarning
        If a checkpoint of the fit cannot be read. The previous one is used, if there is one.
    """

    def __init__(self, folder: str | os.PathLike[str], fit: str, processes: Alone = ALONE) -> None:
        self.folder, self.fit = Path(folder).absolute(), fit  # a callback may change directory
        self.seed, self.processes = 0, processes
        self._prepare(os.fspath(folder))
        self._start = ""
        self._finished = False
        self._saved_at, self._took = 0.0, 0.0
        #: Files to remove once there are better ones, and the last one that can be read.
        self._old: list[Path] = self._files()
        self._last: Path | None = None
        self._found = self._newest()

    def seed_or(self, seed: int) -> int:
        """Return the seed of the resumed fit, or else `seed`; for ``random_state=None``."""
        self.seed = self._found[1]["seed"] if self._found else seed
        return self.seed

    def resume(self, net: Any) -> bool:
        """Continue from the newest checkpoint, if there is one.

        Parameters
        ----------
        net : XLCNet
            Net after ``on_train_begin``, before its first step.

        Returns
        -------
        bool
            Whether the fit was finished.

        Raises
        ------
        TypeError
            If a file cannot hold the state of a callback.

        Warns
        -----
        UserWarning
            If the checkpoint belongs to a fit with other initial weights.
        """
        with Fetching() as fetching:
            state = _state(net, fetching)
            self._start = identity(state["module"])
            _encoded(state)
        self._start = self.processes.of_first(self._start)
        found, self._found = self._found, None
        if found is None:
            return False
        path, document, arrays = found
        if document["start"] != self._start:
            warnings.warn(
                f"{path} is not used, and training begins anew: it belongs to a fit that began "
                "with other weights. Either weights from which the encoder or the head starts have "
                "changed, or they are drawn at random without a seed",
                stacklevel=2,
            )
            return False
        state = decode(document["state"], arrays, net.device, copies=False)
        _restore(net, held_of_whole(net, state))
        self._last, self._finished = path, document["finished"]
        # A kill may have come before the others were removed.
        if self._finished and self.processes.is_first:
            self._remove_old(path, finished=True)
        return self._finished

    def save(self, net: Any, finished: bool = False) -> None:
        """Write a checkpoint, unless the last one is recent and took long to write.

        Parameters
        ----------
        net : XLCNet
            Net between two epochs, or after the last one.
        finished : bool, default=False
            Whether training has ended; the checkpoint is then always written.

        Raises
        ------
        OSError
            If the file cannot be written; earlier ones stay unchanged.
        """
        began = time.monotonic()
        is_due = finished or began - self._saved_at >= PAUSE * self._took
        is_due = self.processes.of_first(is_due)  # clocks differ
        if self._finished or not is_due:
            return
        with Fetching() as fetching:
            state, arrays = _encoded(_state(net, fetching))
            if self.processes.is_first:
                about = {"start": self._start, "seed": self.seed, "finished": finished}
                self._write({"state": state, **about}, arrays, len(net.history))
        self._finished = finished
        self._saved_at = time.monotonic()
        self._took = self._saved_at - began

    def _write(self, document: dict[str, Any], arrays: dict[str, Any], n_epochs: int) -> None:
        path = self.folder / f"{self.fit}-{n_epochs}.xlc"
        try:
            write(path, document, arrays, kind="checkpoint")
        except ConnectionError:  # of another process
            raise
        except OSError as error:
            raise OSError(
                error.errno,
                f"checkpoint={str(self.folder)!r}: nothing could be written after epoch "
                f"{n_epochs}: {error.strerror}; make room there or give another folder, and call "
                "fit again",
            ) from error
        self._remove_old(path, document["finished"])

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
            match = re.fullmatch(rf"{re.escape(self.fit)}-(\d+)\.xlc", path.name)
            if match:
                epochs[path] = int(match[1])
        return sorted(epochs, key=epochs.__getitem__)

    def _newest(self) -> tuple[Path, Any, Any] | None:
        """Return the newest readable checkpoint, with its document and arrays."""
        found = self._readable() if self.processes.is_first else None
        path = self.processes.of_first(None if found is None else found[0])
        if path is None or found is not None:
            return found
        return path, *read_mapped(path, kind="checkpoint")

    def _readable(self) -> tuple[Path, Any, Any] | None:
        for path in reversed(self._old):
            try:
                return path, *read_mapped(path, kind="checkpoint", verify=True)
            except FileNotFoundError:  # another process runs the same fit, and is further on
                continue
            except (OSError, ValueError) as error:
                is_first = path == self._old[0]
                instead = "training begins anew" if is_first else "the one before it is tried"
                warnings.warn(f"checkpoint: {error}; {instead}", stacklevel=2)
        return None

    def _remove_old(self, newest: Path, finished: bool) -> None:
        """Remove all checkpoints but the newest and, unless `finished`, the previous one."""
        keep = {newest} if finished else {newest, self._last}
        for path in self._old:
            if path not in keep:
                path.unlink(missing_ok=True)
        self._old = [path for path in {*self._old, newest} if path in keep]
        self._last = newest


# --- what a checkpoint holds ------------------------------------------------------------------


def _state(net: Any, fetching: Fetching) -> dict[str, Any]:
    """Return the state of a net between two epochs; rank 0 has it for all processes."""
    state = {
        "history": list(net.history),
        "module": module_state(net.module_),
        "frozen": [name for name, p in net.module_.named_parameters() if not p.requires_grad],
        "optimizer": net.optimizer_.state_dict(),
        "rng": net.rng.bit_generator.state,
        "generators": [generator.get_state() for generator in net.generators],
        "callbacks": {name: _callback_state(callback) for name, callback in net.callbacks_},
    }
    return whole_on_first(net, state, fetching)


def _encoded(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Encode a state as a document and arrays."""
    encoder = Encoder()
    try:
        document = {name: encoder.encode(value, name) for name, value in state.items()}
    except TypeError as error:
        raise TypeError(
            f"checkpoint: {error}, which a file cannot hold; an attribute of a callback that "
            'training does not depend on needs a name that does not end in "_"'
        ) from None
    return {"{}": document}, encoder.arrays


def _restore(net: Any, state: dict[str, Any]) -> None:
    """Load copies of a state into a net."""
    net.history.extend(state["history"])
    net.module_.load_state_dict(state["module"]["state_dict"])
    buffers = dict(net.module_.named_buffers())
    for name, value in state["module"]["buffers"].items():
        buffers[name].copy_(value)
    for name, parameter in net.module_.named_parameters():
        parameter.requires_grad_(name not in state["frozen"])
    net.optimizer_.load_state_dict(state["optimizer"])
    net.rng.bit_generator.state = state["rng"]
    for generator, saved in zip(net.generators, state["generators"]):
        generator.set_state(saved)
    for name, callback in net.callbacks_:
        if name in state["callbacks"]:
            _restore_callback(callback, copy.deepcopy(state["callbacks"][name]))


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
        if not name.endswith("()"):
            setattr(callback, name, saved)
            continue
        value = getattr(callback, name[:-2])
        if isinstance(value, Callback):
            _restore_callback(value, saved)
        else:
            value.load_state_dict(saved)
