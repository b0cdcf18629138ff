"""Tables that processes hold in parts, as the first one reads them."""

import numpy as np
import pytest
import torch
from _distributed import in_threads

from sklearn_xlc.distributed import fetching
from sklearn_xlc.distributed.fetching import Fetching
from sklearn_xlc.distributed.shards import Shard


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("shape", [(7, 6), (9,), (4, 2, 3)])
@pytest.mark.parametrize("block", [1, 5, 2**20])
def test_a_table_is_read_as_an_array(monkeypatch, size, shape, block):
    monkeypatch.setattr(fetching, "_BLOCK", block)
    whole = torch.arange(np.prod(shape), dtype=torch.float64).view(shape)
    array = whole.numpy()

    def run(processes):
        shard = Shard(processes, shape[0])
        with Fetching() as reading:
            tables = [reading.table(sign * whole[shard.labels()], shard) for sign in (1, -1)]
            assert reading.reads == (processes.rank == 0)
            if not reading.reads:
                assert [len(table) for table in tables] == [0, 0]
                return
            table, negative = tables
            assert (table.shape, table.dtype) == (array.shape, array.dtype)
            assert (table.ndim, table.size, len(table)) == (array.ndim, array.size, len(array))
            for rows in (slice(None), slice(1, 4), slice(2), slice(3, 3), slice(3, 1), slice(16)):
                np.testing.assert_array_equal(table[rows], array[rows])
            np.testing.assert_array_equal(negative.streamed().array(), -array)
            rows = table.reshape(-1, 3)
            assert rows.shape == (array.size // 3, 3)
            np.testing.assert_array_equal(rows[1:], array.reshape(-1, 3)[1:])

    in_threads(monkeypatch, size, run)


def test_others_hear_of_a_failure_of_the_first(monkeypatch):
    def read(processes):
        with Fetching() as reading:
            reading.table(torch.zeros(2, 3), Shard(processes, 4))
            if processes.rank == 0:
                raise OSError("disk full")

    def run(processes):
        kind = ConnectionError if processes.rank else OSError
        with pytest.raises(kind, match="its message says why" if processes.rank else "disk full"):
            read(processes)

    in_threads(monkeypatch, 2, run)


def test_a_process_without_tables_meets_nobody():
    with Fetching() as reading:
        assert reading.reads
