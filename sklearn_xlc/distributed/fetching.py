"""Tables distributed over processes, read by the first process in blocks of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sklearn_xlc._files import Streamed
from sklearn_xlc.distributed.processes import Processes

#: Numbers in a message.
_BLOCK = 2**20
#: Requests to end the reading: success, and failure of the first process.
_END, _FAILED = -1, -2


class Fetching:
    """Context to read distributed tables in the first process; the others send their parts.

    All processes enter the context and register their parts of the same tables in the same order.
    The first process may read the tables any number of times. The others answer at the end of the
    block until the first has left it.

    Raises
    ------
    ConnectionError
        In the other processes, at the end of the block, if the first one raises.
    """

    def __init__(self) -> None:
        self.processes: Processes | None = None
        self._parts: list[Tensor] = []

    @property
    def reads(self) -> bool:
        """Whether this process reads tables: the first process, or any if there are no tables."""
        return self.processes is None or self.processes.rank == 0

    def table(self, part: Tensor, shard: Any) -> Any:
        """Register the rows of this process, `part`, as its part of a table.

        Returns
        -------
        Table
            In the other processes, an empty tensor.
        """
        self.processes = shard.processes
        part = part.detach().contiguous()
        self._parts.append(part)
        return Table(self, len(self._parts) - 1, shard.n_rows) if self.reads else part.new_empty(0)

    def __enter__(self) -> Fetching:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if self.processes is None:
            return
        if self.processes.rank:
            self._serve(self.processes)
            return
        for rank in range(1, self.processes.size):
            self._ask(rank, _END if kind is None else _FAILED, 0, 0)

    def _serve(self, processes: Processes) -> None:
        request = self._request(0, 0, 0)
        while True:
            processes.receive(request, 0)
            number, start, stop = request.tolist()
            if number == _END:
                return
            if number == _FAILED:
                raise ConnectionError(
                    "the first process could not do what this one has sent its part of the model "
                    "for: its message says why"
                )
            processes.send(self._parts[number].view(-1)[start:stop], 0)

    def fetched(self, number: int, rank: int, start: int, stop: int) -> np.ndarray:
        """Fetch the numbers `start` to `stop` of a process's part of a table."""
        assert self.processes is not None
        part = self._parts[number].view(-1)
        if rank == 0:
            return part[start:stop].cpu().numpy()
        out = part.new_empty(stop - start)
        self._ask(rank, number, start, stop)
        self.processes.receive(out, rank)
        return out.cpu().numpy()

    def _ask(self, rank: int, *request: int) -> None:
        assert self.processes is not None
        self.processes.send(self._request(*request), rank)

    def _request(self, *request: int) -> Tensor:
        return torch.tensor(request, device=self._parts[0].device)


class Table:
    """Array view of a distributed table; blocks are fetched when they are read.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy dtype
    device : torch.device
        Device of the part of the first process.
    """

    requires_grad = False

    def __init__(self, fetching: Fetching, number: int, n_rows: int) -> None:
        self._fetching, self._number, self._n_rows = fetching, number, n_rows
        part = fetching._parts[number]
        self.device = part.device
        self.dtype = part.new_empty(0).cpu().numpy().dtype
        self.shape = (n_rows, *part.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def reshape(self, n_rows: int, length: int) -> Table:
        """Reshape to rows of `length` numbers; `n_rows` is -1."""
        made = Table(self._fetching, self._number, self._n_rows)
        made.shape = (self.size // length, length)
        return made

    def __getitem__(self, rows: slice) -> np.ndarray:
        first, last, _ = rows.indices(len(self))
        length = math.prod(self.shape[1:])
        read = list(self._read(first * length, max(first, last) * length))
        whole = np.concatenate(read) if read else np.empty(0, self.dtype)
        return whole.reshape(-1, *self.shape[1:])

    def streamed(self) -> Streamed:
        """Return the table for a file; blocks are fetched when they are written."""

        def blocks() -> Iterator[np.ndarray]:
            for start in range(0, self.size, _BLOCK):
                yield from self._read(start, min(start + _BLOCK, self.size))

        return Streamed(self.shape, self.dtype, blocks)

    def _read(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Yield the numbers `start` to `stop` of the table, one process after the other."""
        assert self._fetching.processes is not None
        width = self.size // self._n_rows
        edges = [edge * width for edge in self._fetching.processes.edges(self._n_rows)]
        for rank, (first, last) in enumerate(zip(edges, edges[1:])):
            a, b = max(start, first), min(stop, last)
            if a < b:
                yield self._fetching.fetched(self._number, rank, a - first, b - first)
