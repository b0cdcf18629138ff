"""What processes exchange: parts of rows, sums, and what they say when one is gone."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from _distributed import ThreadsGroup, in_threads
from hypothesis import given
from hypothesis import strategies as st

from sklearn_xlc.distributed import processes
from sklearn_xlc.distributed.processes import (
    ALONE,
    Alone,
    Processes,
    all_processes,
    processes_for,
)


@given(st.integers(0, 100), st.integers(1, 9))
def test_parts_cover_all_rows(n, size):
    parts = [Processes(rank, size).part(n) for rank in range(size)]
    assert [i for part in parts for i in range(n)[part]] == list(range(n))
    edges = Processes(0, size).edges(n)
    assert [(part.start, part.stop) for part in parts] == list(zip(edges, edges[1:]))
    sizes = np.diff(edges)
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_rows_are_joined(monkeypatch, size, n):
    whole = torch.arange(2.0 * n).view(n, 2)

    def run(processes):
        part = whole[processes.part(n)]
        own = processes.part_of_first(whole * (1 - processes.rank))
        assert torch.equal(own, part)
        sizes = [3, 0, 2][:size]
        own = torch.full((sizes[processes.rank],), processes.rank)
        return (
            processes.joined_parts(part, n),
            processes.joined(own, sizes),
        )

    results = in_threads(monkeypatch, size, run)
    for joined, uneven in results:
        torch.testing.assert_close(joined, whole)
        assert uneven.tolist() == [0, 0, 0, 2, 2][: 3 if size == 2 else 5]


def test_numbers_and_objects(monkeypatch):
    def run(processes):
        total = processes.sum(torch.tensor([1.0, processes.rank]))
        stacked = processes.stacked(torch.tensor([processes.rank, 4])).tolist()
        several = processes.sum_together([torch.ones(2, 2), torch.tensor(2.0), torch.ones(0)])
        sums = [each.tolist() for each in several]
        return total.tolist(), stacked, processes.of_first(processes.rank), sums

    expected = [3.0, 3.0], [[0, 4], [1, 4], [2, 4]], 0, [[[3.0, 3.0], [3.0, 3.0]], 6.0, []]
    assert in_threads(monkeypatch, 3, run) == [expected] * 3


def test_a_process_that_is_gone(monkeypatch):
    class Group(ThreadsGroup):
        def all_reduce(self, tensor):
            raise RuntimeError("Connection closed by peer\nmore")

    group = Group(2)
    group.of_thread.rank = 1
    monkeypatch.setattr(processes, "_group", lambda: group)
    with pytest.raises(ConnectionError, match=r"process 1 of 2 waits in vain.*closed by peer\)"):
        Processes(1, 2).sum(torch.zeros(1))


@pytest.mark.parametrize(("size", "said"), [(1, "it is alone"), (3, "there are 3")])
def test_another_group_than_the_one_that_holds_the_parts(monkeypatch, size, said):
    group = ThreadsGroup(size)
    group.of_thread.rank = 0
    monkeypatch.setattr(processes, "_group", lambda: group)
    with pytest.raises(ConnectionError, match=f"of which this one was number 1, and now {said}"):
        Processes(1, 2).sum(torch.zeros(1))


def test_one_process_answers_itself():
    assert all_processes() is ALONE
    assert (ALONE.rank, ALONE.size, ALONE.is_first) == (0, 1, True)
    rng = np.random.RandomState(0)
    assert ALONE.random_state(rng) is rng
    assert ALONE.objects("a") == ["a"]
    assert ALONE.of_first(rng) is rng
    assert ALONE.gpu() == "cuda"


@pytest.mark.parametrize(("uuids", "said"), [("aab", "3 processes have 2"), ("abc", None)])
def test_each_process_needs_a_gpu_of_its_own(monkeypatch, uuids, said):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: processes._group().get_rank())
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda number: SimpleNamespace(uuid=uuids[number])
    )

    def run(processes):
        if said is None:
            return processes.gpu()
        with pytest.raises(ValueError, match=rf"{said}.*give device='cpu'"):
            processes.gpu()
        return None

    expected = [None] * 3 if said else ["cuda:0", "cuda:1", "cuda:2"]
    assert in_threads(monkeypatch, 3, run) == expected


def test_several_processes_answer_all_that_one_is_asked():
    asked = {name for name in vars(Alone) if not name.startswith("_")}
    assert asked - {"is_first", "part"} <= set(vars(Processes)) | {"rank", "size"}
    assert not Processes(1, 2).is_first
    assert Processes(0, 2).is_first


@pytest.mark.parametrize("seed", [None, 3])
def test_random_states_are_those_of_the_first(monkeypatch, seed):
    states = [np.random.RandomState(seed), np.random.RandomState(7)]

    def run(processes):
        return processes.random_state(states[processes.rank]).randint(1000)

    first, second = in_threads(monkeypatch, 2, run)
    assert first == second


@pytest.mark.parametrize("distributed", [True, "auto", False])
def test_processes_of_a_fit(monkeypatch, distributed):
    group = ThreadsGroup(2)
    group.of_thread.rank = 1
    monkeypatch.setattr(processes, "_group", lambda: group)
    assert processes_for(distributed) == (Processes(1, 2) if distributed else ALONE)
    monkeypatch.setattr(processes, "_group", lambda: None)
    if distributed is True:
        with pytest.raises(ValueError, match="needs a process group of several processes"):
            processes_for(distributed)
    else:
        assert processes_for(distributed) is ALONE
