"""Errors of torch: those of allocators stay, others name the module."""

import numpy as np
import pytest

from sklearn_xlc.training.errors import failure_of, is_of_an_allocator


@pytest.mark.parametrize("kind", [RuntimeError, IndexError])
def test_a_failure_names_the_module_and_keeps_its_cause(kind):
    cause = kind("shapes do not match")
    with (
        pytest.raises(ValueError, match="the encoder Net failed: shapes do not") as caught,
        failure_of("the encoder Net"),
    ):
        raise cause
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
        KeyboardInterrupt(),
        ValueError("what the module says itself"),
    ],
)
def test_other_errors_are_left_alone(error):
    with pytest.raises(type(error)) as caught, failure_of("the encoder Net"):
        raise error
    assert caught.value is error


def test_errors_of_allocators():
    assert is_of_an_allocator(MemoryError())
    assert is_of_an_allocator(MemoryError("std::bad_alloc"))
    assert is_of_an_allocator(RuntimeError("CUDA out of memory. Tried to allocate"))
    assert is_of_an_allocator(RuntimeError("could not create a primitive"))
    assert not is_of_an_allocator(MemoryError("a dense result of shape (3, 3) takes"))
    assert not is_of_an_allocator(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_of_an_allocator(np.exceptions.AxisError("axis 3 is out of bounds"))
