"""Norms, statistics and weights that are not finite are refused."""

import pytest
import torch
from torch import nn

from sklearn_xlc.batches import Bags
from sklearn_xlc.training import finite
from sklearn_xlc.training.finite import (
    Statistic,
    check_forward,
    check_unread,
    check_weights,
    running_statistics,
)


def with_buffer(values):
    module = nn.BatchNorm1d(2)
    module.register_buffer("own", torch.as_tensor(values))
    return module


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2e19])
def test_features_that_would_overflow_are_refused(value):
    features = torch.ones(3, 2)
    check_forward(features, [])
    features[1, 0] = value
    for given in (features, Bags(features, torch.arange(4), features)):
        with pytest.raises(FloatingPointError, match="norm of the features became (nan|inf|2e)"):
            check_forward(given, [])


def test_running_statistics_are_small_finite_buffers():
    module = with_buffer([0.0, 1.0])
    found = {statistic.name for statistic in running_statistics(nn.Sequential(module))}
    assert found == {"running_mean", "running_var", "num_batches_tracked", "own"}
    least = torch.finfo(torch.float32).min  # as masks of an attention have it
    for constant in ([0.0, float("-inf")], [0.0, least], torch.zeros(2**16 + 1)):
        assert len(running_statistics(with_buffer(constant))) == 3


def test_a_moved_statistic_is_refused():
    module = with_buffer([0.0])
    module.running_var[0] = float("inf")
    with pytest.raises(FloatingPointError, match="running statistics of the encoder became inf"):
        check_forward(torch.ones(3, 2), [Statistic(module._buffers, "running_var")])


def test_a_statistic_is_put_back_where_it_was():
    module = with_buffer([1.0, 2.0])
    buffer, kept = module.own, [statistic.kept() for statistic in running_statistics(module)]
    module.own.add_(1.0)
    module.own = 0.9 * module.own + module.weight  # as averages of features are kept, too
    for each in kept:
        each()
    assert module.own is buffer
    assert buffer.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights(value):
    module = with_buffer([1.0, 2.0])
    check_weights(module)
    with torch.no_grad():
        module.weight[1] = value
    with pytest.raises(ValueError, match="not finite in weight: lower learning_rate"):
        check_weights(module)


def test_a_buffer_may_hold_infinities_but_not_nan():
    check_weights(with_buffer([float("-inf"), 0.0]))
    with pytest.raises(ValueError, match="in own"):
        check_weights(with_buffer([float("nan")]))


def test_several_threads_may_read_mapped_weights_first(monkeypatch):
    module, read = nn.Linear(2, 2), []
    module.unread = {"weight": False, "bias": False}

    def check_beside_another(name, *_):
        read.append(name)
        module.unread = {}  # the other thread has read all of them

    monkeypatch.setattr(finite, "check_saved", check_beside_another)
    check_unread(module)
    assert sorted(read) == ["bias", "weight"]
    assert module.unread == {}
