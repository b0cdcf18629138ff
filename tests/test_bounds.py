"""Numbers that a user gives, and the size of dense outputs, within bounds."""

from functools import partial

import numpy as np
import pytest

import sklearn_xlc
from sklearn_xlc._bounds import (
    check_dense_size,
    check_flag,
    check_integer,
    check_real,
)
from sklearn_xlc.encoders import MLPEncoder, TextEncoder
from sklearn_xlc.heads import (
    ArcFace,
    AsymmetricLoss,
    CascadeHead,
    ETFHead,
    FlatHead,
    FocalLoss,
    FourierHead,
    MIMLHead,
    PickAllLabels,
    ProductHead,
    PropensityBinaryCrossEntropy,
    SamplingHead,
)
from sklearn_xlc.training import CosineSchedule, WeightAveraging


@pytest.mark.parametrize("value", ["no", 1, 0.0, None, np.array(True)])
def test_words_and_numbers_are_no_flags(value):
    assert check_flag(np.True_, "proba") is True
    assert check_flag(False, "proba") is False
    with pytest.raises(TypeError, match="proba must be True or False, got"):
        check_flag(value, "proba")


@pytest.mark.parametrize("value", [True, np.True_, float("nan"), 2**63, 10**400, "2", None])
def test_scalars_that_are_no_numbers_of_64_bits(value):
    with pytest.raises((TypeError, ValueError), match="k must be"):
        check_real(value, "k", 1, 2)
    with pytest.raises((TypeError, ValueError), match="k must be"):
        check_integer(value, "k")


@pytest.mark.parametrize("value", [2, np.int8(2), np.uint64(2)])
def test_integers_of_numpy_are_integers(value):
    assert check_integer(value, "k") == 2


@pytest.mark.parametrize(
    "value, error", [(0, ValueError), (1.0, TypeError), (True, TypeError), ("1", TypeError)]
)
def test_integer(value, error):
    assert check_integer(np.int32(2), "k") == 2
    assert check_integer(0, "depth", 0) == 0
    with pytest.raises(error, match="k must be an integer >= 1, got"):
        check_integer(value, "k")
    with pytest.raises(ValueError, match="k must be an integer from 1 to 3, got 4"):
        check_integer(4, "k", 1, 3)


@pytest.mark.parametrize(
    "value, error",
    [
        (-0.1, ValueError),
        (1.1, ValueError),
        (np.nan, ValueError),
        (True, TypeError),
        (1j, TypeError),
    ],
)
def test_real(value, error):
    assert check_real(np.float32(0.5), "noise", 0, 1) == 0.5
    with pytest.raises(error, match=r"noise must be finite and in \[0, 1\], got"):
        check_real(value, "noise", 0, 1)


@pytest.mark.parametrize("value", [0, 1.0])
def test_real_with_bounds_that_are_excluded(value):
    assert check_real(0.5, "share", 0, 1, closed=False) == 0.5
    with pytest.raises(ValueError, match=r"share must be finite and in \(0, 1\), got"):
        check_real(value, "share", 0, 1, closed=False)
    with pytest.raises(ValueError, match="limit must be finite and above 1, got"):
        check_real(value, "limit", 1, closed=False)


@pytest.mark.parametrize("value", [np.inf, 10**400])
def test_real_without_upper_bound(value):
    assert check_real(7, "exponent", 0) == 7
    with pytest.raises(ValueError, match="exponent must be finite and at least 0, got (inf|10)"):
        check_real(value, "exponent", 0)


def test_dense_size():
    with sklearn_xlc.config_context(dense_limit=240):
        check_dense_size((10, 3), np.float64, "top_k")
        with pytest.raises(MemoryError, match=r"\(10, 4\) takes 320 bytes.*240; use top_k, or"):
            check_dense_size((10, 4), np.float64, "top_k")
    # Sizes beyond 64 bits are sizes all the same.
    with pytest.raises(MemoryError):
        check_dense_size((2**40, 2**40), np.float64, "top_k")


#: Parameters of parts that a user builds, each with a good value, and the builder.
PARTS = [
    (lambda **kw: FlatHead(**{**SIZE, **kw}), {"n_features": 3, "n_labels": 9, "memory_limit": 9}),
    (lambda **kw: FlatHead(**SIZE, **kw), {"width": 4}),
    (lambda **kw: ETFHead(**SIZE, **kw), {"feature_dim": 4, "feature_decay": 0.1, "seed": 3}),
    (lambda **kw: FourierHead(**SIZE, **{"max_active": 2, **kw}), {"max_active": 2, "n_slack": 1}),
    (
        lambda **kw: CascadeHead(**SIZE, lengths=(3, 3), **kw),
        {"embedding_dim": 4, "beam_width": 2, "path_exponent": 0.5},
    ),
    (lambda **kw: ProductHead(**SIZE, lengths=(3, 3), **kw), {"n_groups": 2}),
    (
        lambda **kw: SamplingHead(**SIZE, **{"length": 3, **kw}),
        {"length": 3, "n_sampled_heads": 1},
    ),
    (ArcFace, {"margin": 0.5, "scale": 4.0}),
    (
        lambda **kw: MIMLHead(**SIZE, **kw),
        {"n_concepts": 2, "temperature": 0.5, "memory_limit": 9},
    ),
    (
        lambda **kw: MLPEncoder(**{"n_features": 3, "hidden_layer_sizes": (4,), **kw}),
        {"n_features": 3, "dropout": 0.5},
    ),
    (TextEncoder, {"n_buckets": 32}),
    (AsymmetricLoss, {"gamma_neg": 2, "gamma_pos": 0, "clip": 0.05}),
    (FocalLoss, {"gamma": 2, "alpha": 0.5}),
    (PropensityBinaryCrossEntropy, {"a": 0.5, "b": 1.5}),
    (PickAllLabels, {"competition": 0.5, "gamma": 2.0, "smoothing": 0.1}),
    (lambda **kw: CosineSchedule(**{"n_steps": 3, **kw}), {"n_steps": 3, "warmup": 0.1}),
    (partial(WeightAveraging, "ema"), {"decay": 0.9}),
]
SIZE = {"n_features": 3, "n_labels": 9, "multilabel": False}


@pytest.mark.parametrize("wrong", [True, float("nan"), "2", -1, float("inf")], ids=str)
@pytest.mark.parametrize(
    "build, name, right",
    [(build, name, right) for build, kw in PARTS for name, right in kw.items()],
)
def test_numbers_of_parts_are_checked_where_a_user_builds_them(build, name, right, wrong):
    build(**{name: right})
    with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
        build(**{name: wrong})


@pytest.mark.parametrize("sizes", [(), (0,), (True,), (4, 2.5), (-1,), ("3",)])
def test_widths_of_encoders(sizes):
    for build in (partial(MLPEncoder, 3), partial(TextEncoder, 32)):
        with pytest.raises((TypeError, ValueError), match="hidden_layer_sizes (is empty|must be)"):
            build(sizes)
