"""Copies of a module and its optimiser in which labels have come or gone."""

import pytest
import torch

from sklearn_xlc.batches import Targets
from sklearn_xlc.encoders import MLPEncoder
from sklearn_xlc.heads import FlatHead
from sklearn_xlc.training import EncoderHead
from sklearn_xlc.training.optimizer import RowOptimizer, parameter_groups
from sklearn_xlc.training.resizing import with_room, without_labels

TARGETS = Targets(torch.tensor([0, 2, 3]), torch.tensor([0, 3, 2]))


def trained(rule="adam"):
    torch.manual_seed(0)
    module = EncoderHead(MLPEncoder(5, (4,), sparse=False), FlatHead(4, 4, multilabel=True))
    optimizer = RowOptimizer(parameter_groups(module, rule, 0.1, 0.0), momentum=0.5)
    step(module, optimizer)
    return module, optimizer


def step(module, optimizer):
    module.head.loss(module(torch.eye(2, 5)), TARGETS, None, optimizer.update).backward()
    optimizer.step()
    optimizer.zero_grad()


def flat_state(module, optimizer):
    weights = [value.clone() for value in module.parameters()]
    return weights + [v.clone() for p in module.parameters() for v in optimizer.state[p].values()]


@pytest.mark.parametrize("rule", ["adam", "adagrad", "sgd"])
def test_rows_that_are_added_and_rows_that_go(rule):
    module, optimizer = trained(rule)
    before = flat_state(module, optimizer)
    larger, its = with_room(module, 7, optimizer)
    assert larger.head.n_labels == 7
    assert larger.head.free.tolist() == [False] * 4 + [True] * 3
    for old, new in zip(before, flat_state(larger, its), strict=True):
        same = new[: len(old)] if new.ndim else new
        assert torch.equal(same, old)
        assert not (new.ndim and new[len(old) :].any())
    assert its.defaults == optimizer.defaults
    step(larger, its)  # places without a label are not trained
    assert not larger.head.weight[4:].any()
    assert not larger.head.bias[4:].any()
    smaller, its = without_labels(module, torch.tensor([1]), optimizer)
    assert smaller.encoder is module.encoder
    assert smaller.head.free.tolist() == [False, True, False, False]
    for old, new in zip(before, flat_state(smaller, its), strict=True):
        assert torch.equal(new[[0, 2, 3]], old[[0, 2, 3]]) if new.ndim and len(new) == 4 else True
    assert not smaller.head.weight[1].any()
    assert not smaller.head.bias[1].any()
    for each in its.state[smaller.head.weight].values():
        assert not (each.ndim and each[1].any())
    for old, new in zip(before, flat_state(module, optimizer), strict=True):
        assert torch.equal(new, old)  # nothing of the module has changed


def test_no_room_and_no_change():
    module, optimizer = trained()
    same, _ = with_room(module, 4, optimizer)
    assert same.head.free is None
    assert torch.equal(same.head.weight, module.head.weight)
    again, _ = without_labels(module, torch.tensor([3]), optimizer)
    less, _ = without_labels(
        again,
        torch.tensor([0]),
        optimizer.moved(module, again, lambda _, value: value),
    )
    assert less.head.free.tolist() == [True, False, False, True]
    assert again.head.free.tolist() == [False, False, False, True]
    assert less.head.topk(torch.ones(1, 4), 2)[1].sort().values.tolist() == [[1, 2]]
