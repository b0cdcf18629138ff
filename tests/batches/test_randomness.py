"""Generators of a fit, and torch's global ones."""

import threading

import pytest
import torch

from sklearn_xlc.batches import generator_for
from sklearn_xlc.batches.randomness import (
    GLOBAL_LOCK,
    as_global,
    drawing_from,
    new_generators,
    usual_modes,
    with_device,
)

CPU = torch.device("cpu")


def test_generators_of_a_fit():
    generators = new_generators(3)
    assert [generator.device for generator in generators] == [CPU]
    assert torch.equal(
        torch.rand(4, generator=generators[0]),
        torch.rand(4, generator=torch.Generator().manual_seed(3)),
    )
    assert with_device(generators, CPU) is generators
    assert with_device((), torch.device("cuda")) == ()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_generators_of_a_gpu():
    cpu, gpu = with_device(new_generators(3), torch.device("cuda"))
    before = torch.cuda.get_rng_state(gpu.device)
    with drawing_from((cpu, gpu)):
        assert generator_for(torch.zeros((), device="cuda").device) is gpu
    with as_global((cpu, gpu)):
        drawn = torch.rand(4, device=gpu.device)
    expected = torch.rand(4, device="cuda", generator=torch.Generator("cuda").manual_seed(3))
    assert torch.equal(drawn, expected)
    assert torch.equal(torch.cuda.get_rng_state(gpu.device), before)


def test_a_thread_draws_from_its_own_generators():
    seen, generators = [], new_generators(0)
    with drawing_from(generators):
        with drawing_from(()):
            assert generator_for(CPU) is None
        assert generator_for(CPU) is generators[0]
        assert generator_for(torch.device("meta")) is None
        thread = threading.Thread(target=lambda: seen.append(generator_for(CPU)))
        thread.start()
        thread.join()
    assert seen == [None]
    assert generator_for(CPU) is None


def test_generators_in_place_of_the_global_ones():
    generators = new_generators(3)
    own = torch.Generator().manual_seed(3)
    before = torch.get_rng_state()
    for size in (1, 5):
        with as_global(generators):
            assert torch.equal(torch.rand(size), torch.rand(size, generator=own))
            with as_global(generators):  # within itself it changes nothing
                assert torch.equal(torch.rand(3), torch.rand(3, generator=own))
            with drawing_from(generators), as_global(new_generators(7)):
                assert generator_for(CPU) is None
                assert torch.equal(
                    torch.rand(2), torch.rand(2, generator=torch.Generator().manual_seed(7))
                )
            assert torch.equal(torch.rand(2), torch.rand(2, generator=own))
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(generators[0].get_state(), own.get_state())


def test_an_exception_leaves_nothing_behind():
    generators, before = new_generators(3), torch.get_rng_state()

    @as_global(generators)
    def fail():
        assert torch.rand(3).dtype == torch.float32
        raise RuntimeError("inside")

    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(RuntimeError, match="inside"):
            fail()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(torch.get_rng_state(), before)
    drawn = torch.Generator().manual_seed(3)
    torch.rand(3, generator=drawn)
    assert torch.equal(generators[0].get_state(), drawn.get_state())


def test_an_interrupt_at_the_door_leaves_nothing_behind(monkeypatch):
    before, put = torch.get_rng_state(), torch.set_rng_state

    def interrupted(state):
        put(state)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "set_rng_state", interrupted)
    with pytest.raises(KeyboardInterrupt), as_global(new_generators(3)):
        pass
    assert torch.equal(torch.get_rng_state(), before)


def test_one_thread_at_a_time():
    free = []
    with as_global(new_generators(0)):
        thread = threading.Thread(target=lambda: free.append(GLOBAL_LOCK.acquire(blocking=False)))
        thread.start()
        thread.join()
    assert free == [False]


def test_usual_modes():
    settings = torch.inference_mode(), torch.autocast("cpu"), torch.device("meta")
    with settings[0], settings[1], settings[2]:
        for training in (True, False):
            with usual_modes(training):
                product = torch.ones(2, 2) @ torch.ones(2, 2)
                assert product.dtype == torch.float32
                assert product.device == CPU
                assert torch.is_grad_enabled() == training
                assert product.is_inference() != training
        assert torch.zeros(()).is_meta
        assert torch.is_autocast_enabled("cpu")
        assert torch.is_inference_mode_enabled()
    with torch.no_grad(), usual_modes(True):
        assert torch.is_grad_enabled()
