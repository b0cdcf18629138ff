"""Packed weights: as small as they should be, unpacked to the bit, refused where damaged."""

import copy
import pickle
import tracemalloc

import numpy as np
import pytest

from sklearn_xlc import _files
from sklearn_xlc.engine import packing, rounding
from sklearn_xlc.engine.object_tree import describe, rebuild
from sklearn_xlc.engine.packing import PackedWeight, RowForm, prepared, shape_of, storing, unpacked
from sklearn_xlc.engine.rounding import GRIDS, rounded

STORAGES = list(GRIDS)


def weight(shape=(80, 512), dtype=np.float32, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def packed(array, storage, form=None):
    with storing(storage):
        return prepared("layer.weight", array, form)


def plain(item):
    """What a pickle of it holds."""
    return pickle.loads(pickle.dumps(item))


# --- what is packed ---------------------------------------------------------------------------


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(80, 512), (8, 3, 301), (4096, 1)])
def test_a_weight_comes_back_rounded(storage, dtype, shape):
    array = weight(shape, dtype)
    expected = rounded(array.reshape(shape[0], -1), storage).reshape(shape)
    item = packed(array, storage)
    for found in (unpacked(plain(item)), copy.deepcopy(item)):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == dtype
        assert found.flags.writeable
    assert unpacked(item) is array
    assert shape_of(item) == shape_of(plain(item)) == shape


def test_a_rounded_weight_is_packed_without_being_told():
    for storage in STORAGES:
        array = rounded(weight(), storage)
        for asked in ("float32", *STORAGES[STORAGES.index(storage) :]):
            item = plain(packed(array, asked))
            assert item["storage"] == storage
            np.testing.assert_array_equal(unpacked(item), array)


def test_what_stays_as_it_is():
    for array in (
        weight(),
        weight((4095, 1)),
        weight((5000,)),
        np.arange(10_000).reshape(100, 100),
        np.full((100, 100), np.nan, np.float32),
        rounded(weight(), "int8").astype(np.float16),
    ):
        assert packed(array, "float32") is array
    for array in (weight((4095, 1)), weight((5000,)), np.arange(10_000).reshape(100, 100)):
        assert packed(array, "int4") is array


@pytest.mark.parametrize("storage, bits", [("float16", 16), ("int8", 8), ("int6", 6), ("int4", 4)])
def test_bits_of_a_number(storage, bits):
    array = weight((1000, 512))
    size = 8 * len(pickle.dumps(packed(array, storage))) / array.size
    assert bits <= size < 1.07 * bits


def test_rows_of_zeros_are_not_stored():
    array = weight()
    array[::2], array[3, 100:] = 0.0, 0.0
    for storage in STORAGES:
        item = packed(array, storage)
        assert len(pickle.dumps(item)) < 0.55 * len(pickle.dumps(packed(weight(), storage)))
        np.testing.assert_array_equal(unpacked(plain(item)), rounded(array, storage))
    nothing = np.zeros_like(array)
    np.testing.assert_array_equal(unpacked(plain(packed(nothing, "int8"))), nothing)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("bias", [0, 7, 32])
def test_biases_within_rows_stay_exact_and_spoil_nothing(storage, bias):
    array = weight((100, 10 * 33))
    rows = array.reshape(-1, 33)
    rows[:, bias] = 1000 / 7
    rows[17] = 0
    item = packed(array, storage, RowForm(33, bias))
    for found in (unpacked(plain(item)), copy.deepcopy(item)):
        others = [column for column in range(33) if column != bias]
        np.testing.assert_array_equal(found.reshape(rows.shape)[:, bias], rows[:, bias])
        expected = rounded(rows[:, others], storage)
        np.testing.assert_array_equal(found.reshape(rows.shape)[:, others], expected)
        again = packed(found, "float32", RowForm(33, bias))
        np.testing.assert_array_equal(unpacked(plain(again)), found)
        assert isinstance(again, PackedWeight)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("storage", STORAGES)
def test_weights_that_are_not_finite_are_refused(bad, storage):
    array = weight()
    array[70, 3] = bad
    with pytest.raises(ValueError, match=rf"layer\.weight holds .* {storage} cannot hold.*float32"):
        packed(array, storage)
    assert packed(array, "float32") is array


def test_weights_beyond_a_storage_are_refused():
    array = weight(dtype=np.float64)
    array[0, 0] = 1e5
    with pytest.raises(ValueError, match="above 6.55e\\+04"):
        packed(array, "float16")
    np.testing.assert_allclose(copy.deepcopy(packed(array, "int8")).max(), 1e5, rtol=1e-5)
    array[0, 0] = 1e39
    with pytest.raises(ValueError, match="above 3.4e\\+38"):
        packed(array, "int8")


def test_a_storage_holds_within_its_block_only():
    with pytest.raises(ValueError, match="storage must be one of"), storing("int5"):
        pass
    with pytest.raises(KeyError), storing("int8"):
        raise KeyError
    assert prepared("", array := weight()) is array


# --- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["int8", "int6"])
def test_a_file_holds_the_parts_and_no_more_is_allocated(storage, tmp_path, monkeypatch):
    monkeypatch.setattr(rounding, "_CHUNK", 2**14)
    array = weight((4000, 512))
    tracemalloc.start()
    document, arrays = describe(packed(array, storage))
    _files.write(tmp_path / "file", document, arrays, kind="model")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.3 * array.size  # less than the integers
    found = rebuild(*_files.read(tmp_path / "file", kind="model"))
    np.testing.assert_array_equal(unpacked(found), rounded(array, storage))


@pytest.mark.parametrize("storage", ["int6", "int4"])
def test_a_copy_takes_no_more_than_itself(storage, monkeypatch):
    monkeypatch.setattr(rounding, "_CHUNK", 2**14)
    array = weight((4000, 512))
    item = packed(array, storage)
    tracemalloc.start()
    copied = copy.deepcopy(item)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.05 * copied.nbytes


# --- damaged ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"storage": "int5"},
        {"storage": None},
        {"dtype": "complex64"},
        {"dtype": "object"},
        {"shape": [80]},
        {"shape": [80, 511]},
        {"shape": [79, 512]},
        {"shape": [80, -512]},
        {"shape": [80, 512.0]},
        {"shape": "80"},
        {"shape": [10**12, 512]},
        {"numbers": None},
        {"numbers": np.zeros((80, 512), np.uint8)},
        {"storage": "int6"},
        {"scales": np.zeros((80, 1), np.float32)},
        {"used": None, "scales": np.zeros((79, 2), np.float32)},
        {"used": np.full(10, 255, np.uint8)},
        {"used": np.full(9, 255, np.uint8)},
        {"used": [1] * 80},
        {"length": 0},
        {"length": 511},
        {"length": 256},
        {"length": 512.0},
        {"bias": 512, "biases": np.zeros(79, np.float32)},
        {"bias": 0, "biases": np.zeros(79, np.float64)},
        {"bias": 0},
    ],
    ids=str,
)
def test_parts_that_do_not_fit_are_refused(change):
    array = weight()
    array[5] = 0
    item = plain(packed(array, "int8"))
    unpacked(item)
    with pytest.raises(ValueError, match="a packed weight of"):
        unpacked({**item, **change})


def test_a_small_file_of_a_huge_weight_is_refused(monkeypatch):
    array = weight((4000, 2))
    array[1:] = 0
    item = plain(packed(array, "int8"))
    monkeypatch.setattr(packing, "available_memory", lambda: 10_000)
    with pytest.raises(MemoryError, match="the saved model takes about 32,000 bytes"):
        unpacked(item)
