"""Memory stays with the process inside the block, and goes back at its end."""

import sys
import threading

import pytest
import torch

from sklearn_xlc.training import heap
from sklearn_xlc.training.heap import memory_kept, memory_reused

pytestmark = pytest.mark.skipif(heap._glibc() is None, reason="needs glibc")


class Library:
    """Records what a block asks of glibc."""

    def __init__(self):
        self.options, self.trims = {}, 0

    def mallopt(self, option, value):
        self.options[option] = value

    def malloc_trim(self, pad):
        self.trims += 1


@pytest.fixture
def library(monkeypatch):
    library = Library()
    monkeypatch.setattr(heap, "_glibc", lambda: library)
    return library


def page_faults():
    import resource

    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def test_temporaries_of_later_steps_need_no_new_pages():
    def steps():
        for _ in range(10):
            torch.ones(2**22).add(1.0)  # two temporaries of 16 MiB

    with memory_kept():
        page_faults()  # what its import allocates would take the place of a temporary
        steps()
        before = page_faults()
        steps()
        inside = page_faults() - before
    assert inside < 2**12  # pages of one temporary, of the twenty


def test_the_end_restores_and_gives_back(library):
    with memory_kept():
        assert library.options == heap._KEEP
        assert not library.trims
    assert library.options == heap._USUAL
    assert library.trims == 1


def test_the_last_of_several_threads_gives_back(library):
    inside, leave = threading.Event(), threading.Event()

    def other():
        with memory_kept():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait()
    with memory_kept():
        pass
    assert library.options == heap._KEEP
    leave.set()
    thread.join()
    assert library.options == heap._USUAL
    assert library.trims == 1


def test_an_error_restores(library):
    with pytest.raises(RuntimeError, match="of the step"), memory_kept():
        raise RuntimeError("of the step")
    assert library.options == heap._USUAL
    assert not heap._users


def test_elsewhere_nothing_happens(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    heap._glibc.cache_clear()
    try:
        with memory_kept():
            assert heap._glibc() is None
            assert not heap._users
    finally:
        heap._glibc.cache_clear()


def test_predictions_keep_memory_as_a_fit_leaves_it(library):
    memory_reused.cache_clear()
    memory_reused()
    assert library.options == heap._USUAL
    memory_reused.cache_clear()
    with memory_kept():
        memory_reused()
        assert library.options == heap._KEEP
