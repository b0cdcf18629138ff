"""Processes of a fit: one alone, or several with their rows and their communication.

A launcher (``torchrun``, ``accelerate launch``, a cluster) starts the processes and sets up
:mod:`torch.distributed`; this package never imports it on its own. All processes run the same code
on the same data, so that collective calls match.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor


@dataclass(frozen=True)
class Alone:
    """The only process of a fit."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files, and speaks for all."""
        return self.rank == 0

    def objects(self, value: Any) -> list[Any]:
        """Return the value of each process."""
        return [value]

    def shared(self, n: int, compute: Callable[[slice], Any]) -> list[Any]:
        """Return what each process computes of its part of n rows; of no rows there is nothing."""
        return [compute(slice(0, n))]

    def of_first(self, value: Any) -> Any:
        """Return the value of the first process."""
        return value

    def random_state(self, rng: np.random.RandomState) -> np.random.RandomState:
        """Return a random state, equal in all processes."""
        return rng

    def gpu(self) -> str:
        """Return the name of the GPU of this process."""
        return "cuda"


#: The one process of every fit that is not distributed.
ALONE = Alone()


@dataclass(frozen=True)
class Processes(Alone):
    """The processes of the default group of :mod:`torch.distributed`.

    All methods but `part`, `edges` and `shares` are collective: all processes call them, with
    tensors of equal width.

    Examples
    --------
    >>> from sklearn_xlc.distributed.processes import Processes
    >>> Processes(rank=1, size=3).part(10)
    slice(3, 6, None)
    """

    rank: int
    size: int

    def part(self, n: int) -> slice:
        """Return the slice of this process among n rows."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def edges(self, n: int) -> list[int]:
        """Return the start row of each process's part, then n."""
        return [n * rank // self.size for rank in range(self.size + 1)]

    def shares(self, n: int) -> list[int]:
        """Return the number of rows of each process, of n in all."""
        edges = self.edges(n)
        return [stop - start for start, stop in zip(edges, edges[1:])]

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum over the processes, in place."""
        with _meeting(self):
            _group().all_reduce(tensor)
        return tensor

    def sum_together(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Sum each of several tensors of one type over the processes, in one message."""
        message = self.sum(torch.cat([each.detach().reshape(-1) for each in tensors]))
        parts = message.split([each.numel() for each in tensors])
        return [part.view(each.shape) for part, each in zip(parts, tensors)]

    def joined(self, part: Tensor, sizes: Sequence[int]) -> Tensor:
        """Concatenate the rows of all processes; `sizes` are their numbers of rows."""
        most = max(sizes)
        part = _padded(part, most)
        out = part.new_empty(self.size * most, *part.shape[1:])
        with _meeting(self):
            group = _group()  # later versions have another name
            (getattr(group, "all_gather_single", None) or group.all_gather_into_tensor)(out, part)
        if min(sizes) == most:
            return out
        return torch.cat([rows[:size] for rows, size in zip(out.split(most), sizes)])

    def joined_parts(self, part: Tensor, n: int) -> Tensor:
        """Concatenate the rows of all processes, each with its :meth:`part` of n."""
        return self.joined(part, self.shares(n))

    def part_of_first(self, whole: Tensor) -> Tensor:
        """Scatter the rows of a tensor of the first process; the others give one of its shape."""
        sizes, edges = self.shares(len(whole)), self.edges(len(whole))
        most, parts = max(sizes), None
        out = whole.new_empty(most, *whole.shape[1:])
        if self.rank == 0:  # views: the last part, which ends with the tensor, is none of the small
            whole = whole.contiguous()
            parts = [whole[start : start + most] for start in edges[:-1]]
        with _meeting(self):
            _group().scatter(out, parts, src=0)
        return out[: sizes[self.rank]].clone() if min(sizes) < most else out

    def stacked(self, own: Tensor) -> Tensor:
        """Stack the tensors of all processes, of one shape."""
        return self.joined(own[None], [1] * self.size)

    def objects(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.size
        with _meeting(self):
            _group().all_gather_object(values, value)
        return values

    def shared(self, n: int, compute: Callable[[slice], Any]) -> list[Any]:
        part = self.part(n)
        found = self.objects(compute(part) if part.stop > part.start else None)
        return [each for each in found if each is not None]

    def of_first(self, value: Any) -> Any:
        values = [value if self.rank == 0 else None]
        with _meeting(self):
            _group().broadcast_object_list(values)
        return values[0]

    def random_state(self, rng: np.random.RandomState) -> np.random.RandomState:
        if rng is check_random_state(None):
            return np.random.RandomState(self.of_first(rng.randint(2**31 - 1)))
        rng.set_state(self.of_first(rng.get_state()))
        return rng

    def gpu(self) -> str:
        number = torch.cuda.current_device()
        taken = self.objects(str(torch.cuda.get_device_properties(number).uuid))
        if len(set(taken)) < self.size:
            raise ValueError(
                f"device='auto' needs a GPU for each process, but {self.size} processes have "
                f"{len(set(taken))}: start one process for each GPU, or give device='cpu'"
            )
        return f"cuda:{number}"

    def take_first(self, tensor: Tensor) -> None:
        """Broadcast the tensor of the first process, in place."""
        with torch.no_grad(), _meeting(self):
            values = tensor.detach().contiguous()
            _group().broadcast(values, src=0)
            tensor.copy_(values)


def all_processes() -> Alone:
    """Return the processes of the default group, or the one process."""
    group = _group()
    if group is None or not (group.is_available() and group.is_initialized()):
        return ALONE
    if group.get_world_size() == 1:
        return ALONE
    return Processes(group.get_rank(), group.get_world_size())


def processes_for(distributed: bool | str) -> Alone:
    """Return the processes of a fit; True with one process raises ValueError, "auto" takes all."""
    processes = all_processes() if distributed else ALONE
    if distributed is True and processes is ALONE:
        raise ValueError(
            "distributed=True needs a process group of several processes: start the program "
            "with torchrun and call sklearn_xlc.distributed.init() first, or set "
            "distributed='auto'"
        )
    return processes


# --- torch.distributed --------------------------------------------------------------------------


def _padded(part: Tensor, n_rows: int) -> Tensor:
    """Pad with rows of zeros to `n_rows`, in contiguous memory, for messages of equal size."""
    if len(part) == n_rows:
        return part.contiguous()
    return torch.cat([part, part.new_zeros(n_rows - len(part), *part.shape[1:])])


def _group() -> Any:
    return sys.modules.get("torch.distributed")


@contextlib.contextmanager
def _meeting(processes: Processes) -> Iterator[None]:
    """Raise a clear error if other processes have ended."""
    present = all_processes()
    if present != processes:
        now = "it is alone" if present is ALONE else f"there are {present.size}"
        raise ConnectionError(
            f"this is held in parts by {processes.size} processes, of which this one was number "
            f"{processes.rank}, and now {now}: before a group ends, sklearn_xlc.save stores "
            "the whole, and sklearn_xlc.distributed.gather(estimator) gives it to each process"
        )
    try:
        yield
    except RuntimeError as error:
        raise ConnectionError(
            f"process {processes.rank} of {processes.size} waits in vain for another, which has "
            "ended, hangs, or runs other code: look at its messages first. Start all of them "
            "again; with checkpoint= training goes on after the last epoch that was written "
            f"({str(error).strip().splitlines()[0]})"
        ) from error
