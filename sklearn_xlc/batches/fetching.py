"""Tables that processes hold in parts, read by the first one a few rows at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sklearn_xlc._files import Streamed
from sklearn_xlc.batches.processes import Processes

#: Numbers in a block that travels.
_BLOCK = 2**20
#: Requests that end the reading: all is well, and the first process has failed.
_END, _FAILED = -1, -2


class Fetching:
    """A reading of tables by the first process; the others send what it asks for.

    A context that all processes enter. In it they name their parts of the same tables in the same
    order, and the first process reads the tables, as often as it likes. Those of the others stay at
    the end of the block until it has left it.

    Raises
    ------
    ConnectionError
        In the other processes, at the end of the block, if the first has left it by an error.
    """

    def __init__(self) -> None:
        self.processes: Processes | None = None
        self._parts: list[Tensor] = []

    @property
    def reads(self) -> bool:
        """Whether this process reads the tables: the first one, or one without tables."""
        return self.processes is None or self.processes.rank == 0

    def table(self, part: Tensor, shard: Any) -> Any:
        """A table of which `part` has the rows of this process.

        Returns
        -------
        Table
            In the first process; in the others nothing to read, an empty tensor.
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
        """Numbers `start` to `stop` of a process's part of a table."""
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
    """What the first process sees of a table: an array that is fetched as it is read.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy dtype
    device : torch.device
        Of the part of the first process.
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
        """The table in rows of another length; `n_rows` is -1."""
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
        """The table for a file: blocks of it are fetched as they are written."""

        def blocks() -> Iterator[np.ndarray]:
            for start in range(0, self.size, _BLOCK):
                yield from self._read(start, min(start + _BLOCK, self.size))

        return Streamed(self.shape, self.dtype, blocks)

    def _read(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Numbers `start` to `stop` of all, by the processes that have them."""
        assert self._fetching.processes is not None
        width = self.size // self._n_rows
        edges = [edge * width for edge in self._fetching.processes.edges(self._n_rows)]
        for rank, (first, last) in enumerate(zip(edges, edges[1:])):
            a, b = max(start, first), min(stop, last)
            if a < b:
                yield self._fetching.fetched(self._number, rank, a - first, b - first)
