"""Callbacks: rates follow the schedule, averages are averages."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from skorch.callbacks import Callback, EarlyStopping
from torch import nn

from sklearn_xlc.training import CosineSchedule, WeightAveraging, copied


class FakeNet:
    """What callbacks see of a net: an optimiser, a module, a history."""

    def __init__(self, rates=(1.0, 50.0), max_epochs=1):
        groups = [{"lr": rate, "peak_lr": rate} for rate in rates]
        self.optimizer_ = SimpleNamespace(param_groups=groups)
        self.module_ = nn.Linear(1, 1)
        self.module_.register_buffer("count", torch.tensor(3))
        self.history, self.max_epochs = [], max_epochs

    @property
    def rates(self):
        return [group["lr"] for group in self.optimizer_.param_groups]

    def set_weight(self, value):
        with torch.no_grad():
            self.module_.weight.fill_(value)


def rates_of(schedule, net, n_steps):
    schedule.on_train_begin(net)
    seen = []
    for _ in range(n_steps):
        schedule.on_batch_begin(net, training=True)
        seen.append(net.rates)
        schedule.on_batch_begin(net, training=False)  # validation batches do not count
    return np.array(seen)


# --- schedule ---------------------------------------------------------------------------------


def test_cosine_schedule_values():
    net = FakeNet()
    seen = rates_of(CosineSchedule(n_steps=20, warmup=0.2), net, 20)
    warm = [(i + 1) / 4 for i in range(4)]
    cosine = [0.5 * (1 + math.cos(math.pi * i / 16)) for i in range(16)]
    np.testing.assert_allclose(seen[:, 0], warm + cosine)
    np.testing.assert_allclose(seen[:, 1], 50 * seen[:, 0])
    assert seen[:, 0].max() == 1.0
    assert 0 < seen[-1, 0] < 0.01


@pytest.mark.parametrize("n_steps", [1, 2, 3])
def test_the_shortest_trainings_have_rates(n_steps):
    seen = rates_of(CosineSchedule(n_steps), FakeNet(), n_steps)
    assert seen[0, 0] == 1.0
    assert (seen > 0).all()


def test_more_steps_than_planned_have_rate_zero():
    seen = rates_of(CosineSchedule(4), FakeNet(), 6)
    np.testing.assert_allclose(seen[4:], 0.0, atol=1e-15)


def test_rates_are_put_back():
    net, schedule = FakeNet(), CosineSchedule(10)
    rates_of(schedule, net, 7)
    schedule.on_train_end(net)
    assert net.rates == [1.0, 50.0]


def test_a_schedule_begins_anew_in_every_training():
    schedule, net = CosineSchedule(10), FakeNet()
    first = rates_of(schedule, net, 10)
    np.testing.assert_array_equal(rates_of(schedule, net, 10), first)


# --- averages ---------------------------------------------------------------------------------


def test_swa_is_the_mean_over_the_last_quarter():
    net, average = FakeNet(max_epochs=8), WeightAveraging("swa")
    average.on_train_begin(net)
    for epoch in range(1, 9):
        net.set_weight(float(epoch))
        average.on_batch_end(net, training=True)
        average.on_epoch_end(net)
    average.on_train_end(net)
    assert net.module_.weight.item() == pytest.approx(7.5)  # epochs 7 and 8
    assert net.module_.count == 3


def test_ema_is_a_moving_average_that_starts_as_a_mean():
    net, average = FakeNet(), WeightAveraging("ema", decay=0.5)
    average.on_train_begin(net)
    expected = None
    for step, value in enumerate([4.0, 2.0, 8.0, 1.0], start=1):
        net.set_weight(value)
        average.on_batch_end(net, training=True)
        average.on_batch_end(net, training=False)
        share = max(0.5, 1 / step)
        expected = value if expected is None else expected + share * (value - expected)
    average.on_epoch_end(net)
    average.on_train_end(net)
    assert expected == 3.25
    assert net.module_.weight.item() == pytest.approx(expected)


@pytest.mark.parametrize("method", ["swa", "ema"])
def test_the_average_of_a_mask_is_the_mask(method):
    net, average = FakeNet(), WeightAveraging(method)
    mask = [0.5, float("-inf"), torch.finfo(torch.float32).min]
    net.module_.register_buffer("mask", torch.tensor(mask))
    average.on_train_begin(net)
    for _ in range(3):
        average.on_batch_end(net, training=True)
        average.on_epoch_end(net)
    average.on_train_end(net)
    assert net.module_.mask.tolist() == mask


@pytest.mark.parametrize("method", ["swa", "ema"])
def test_a_training_without_steps_keeps_its_weights(method):
    net, average = FakeNet(), WeightAveraging(method)
    net.set_weight(5.0)
    average.on_train_begin(net)
    average.on_train_end(net)
    assert net.module_.weight.item() == 5.0


# --- callbacks of the caller ------------------------------------------------------------------


class Mine(Callback):
    def __init__(self):
        self.seen = []


def test_copies():
    mine = Mine()
    given = [mine, ("stop", EarlyStopping()), EarlyStopping]
    copies = copied(given)
    assert copies[0] is not mine
    assert copies[0].seen is not mine.seen
    assert copies[1][0] == "stop"
    assert copies[2] is EarlyStopping
    assert copied(None) == copied(()) == []


@pytest.mark.parametrize("entry", [3, "bar", print, ("name", 3), (), None, int])
def test_what_is_no_callback_is_refused(entry):
    with pytest.raises(TypeError, match="callbacks must hold skorch callbacks"):
        copied([Mine(), entry])
