"""Modules that processes come to hold in parts."""

import copy
from collections import OrderedDict
from types import SimpleNamespace

import pytest
import torch
from _distributed import in_threads
from torch import nn

from sklearn_xlc.batches import Targets
from sklearn_xlc.distributed.parts import (
    copied,
    held_of_whole,
    joined,
    module_on_first,
    module_state,
    share_out,
    whole_on_first,
)
from sklearn_xlc.distributed.processes import ALONE
from sklearn_xlc.heads import CascadeHead, ETFHead, FlatHead, FourierHead, ProductHead, SamplingHead
from sklearn_xlc.training import EncoderHead
from sklearn_xlc.training.digests import identity
from sklearn_xlc.training.optimizer import RowOptimizer, parameter_groups
from sklearn_xlc.training.resizing import with_room, without_labels

HEADS = {
    "flat": lambda: FlatHead(4, 11, True),
    "exp": lambda: FlatHead(4, 11, True, loss="pick_all_labels"),
    "learned": lambda: ETFHead(4, 11, True, feature_dim=3, learned=True),
    "fixed": lambda: ETFHead(4, 11, True, feature_dim=3),
    "matrix": lambda: FourierHead(4, 11, True, max_active=3, n_slack=2, method="matrix"),
    "fft": lambda: FourierHead(4, 11, True, max_active=3, n_slack=2, method="fft"),
    "sampling": lambda: SamplingHead(4, 11, False, length=2),
    "cascade": lambda: CascadeHead(4, 11, True, (4, 3), embedding_dim=3),
    "classes": lambda: CascadeHead(4, 11, False, (4, 3), embedding_dim=3),
}


def changed(head, n_more):
    """Module, with an optimiser that has stepped, of a head with labels that came, and one gone."""
    module = EncoderHead(nn.Identity(), head).double()
    optimizer = RowOptimizer(parameter_groups(module, "adam", 0.1, 0.0, 0.1))
    features = torch.linspace(-1, 1, 12).view(3, 4).double().requires_grad_()
    targets = Targets(torch.arange(4), torch.tensor([1, 7, 9]))
    head.loss(features, targets, None, optimizer.update).backward()
    optimizer.step()
    if n_more:
        module, optimizer = with_room(module, head.n_labels + n_more, optimizer)
    free = torch.zeros(module.head.n_labels, dtype=torch.bool)
    free[[6, 10]] = True
    module.head.set_free(free)
    return module, optimizer


@pytest.mark.integration
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    ("name", "n_more"),
    [(name, n_more) for name in HEADS for n_more in (0, 2) if (name, n_more) != ("fixed", 2)],
)
def test_a_module_is_shared_out(monkeypatch, name, n_more, size):
    torch.manual_seed(0)
    whole, optimizer = changed(HEADS[name](), n_more)
    inputs = torch.randn(5, 4, dtype=torch.float64)
    best = whole.head.topk(inputs, 4)
    scores = whole.head.scores(inputs)

    def run(processes):
        module, of_it = copy.deepcopy((whole, optimizer))
        if processes.rank:  # all take what the first has
            for tensor in module.head.parameters():
                tensor.data.fill_(7.0)
        share_out(module, processes, of_it)
        shards = module.head.sharded_parameters()
        share_out(module, processes, of_it)  # a second time nothing happens
        for parameter, shard in shards.items():
            assert len(parameter) == shard.n_held() < shard.n_rows
            for value in of_it.state[parameter].values():
                assert value.ndim == 0 or len(value) == shard.n_held()
        return module.head.topk(inputs, 4), module.head.scores(inputs)

    for (found, positions), all_scores in in_threads(monkeypatch, size, run):
        torch.testing.assert_close(found, best[0], rtol=1e-12, atol=1e-12)
        assert torch.equal(positions, best[1])
        torch.testing.assert_close(all_scores, scores, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["flat", "cascade"])
def test_a_copy_has_no_more_than_its_part(monkeypatch, name):
    whole, _ = changed(HEADS[name](), 0)
    before = [tensor.clone() for tensor in whole.parameters()]

    def run(processes):
        made = copied(whole, processes)
        shards = made.head.sharded_parameters()
        assert shards
        for old, new in zip(whole.parameters(), made.parameters(), strict=True):
            part = slice(None) if new not in shards else shards[new].processes.part(len(old))
            assert torch.equal(new, old[part])
            assert new.untyped_storage().nbytes() == new.nbytes
            new.data.zero_()
        return made

    in_threads(monkeypatch, 2, run)
    assert all(map(torch.equal, before, whole.parameters()))
    assert not whole.head.sharded_parameters()
    alone = copied(whole, ALONE)
    assert all(map(torch.equal, before, alone.parameters()))
    assert {p.data_ptr() for p in alone.parameters()}.isdisjoint(
        p.data_ptr() for p in whole.parameters()
    )


def test_heads_without_parts_stay_whole(monkeypatch):
    def run(processes):
        module = EncoderHead(nn.Identity(), ProductHead(4, 9, False, (3, 3)))
        share_out(module, processes)
        return module.head.sharded_parameters()

    assert in_threads(monkeypatch, 2, run) == [{}, {}]


def state_of(module, optimizer):
    """Net and its state, with copies of the weights that a callback has."""
    state = {
        "module": module_state(module),
        "optimizer": optimizer.state_dict(),
        "callbacks": {"average": {"average_": OrderedDict(module.state_dict()), "count_": 3}},
        "other": 3,
    }
    return SimpleNamespace(module_=module, optimizer_=optimizer, device="cpu"), state


@pytest.mark.parametrize("name", HEADS)
def test_states_are_those_of_one_process(monkeypatch, name):
    whole = changed(HEADS[name](), 0)
    _, expected = state_of(*whole)

    def run(processes):
        module, optimizer = copy.deepcopy(whole)
        share_out(module, processes, optimizer)
        net, state = state_of(module, optimizer)
        of_module = module_on_first(module)
        joined = copy.deepcopy(processes.of_first(whole_on_first(net, state)))
        assert identity(of_module) == identity(expected["module"]) or processes.rank
        held = held_of_whole(net, joined)
        assert identity([state[key] for key in state]) == identity([held[key] for key in state])
        for number, parameter in enumerate(optimizer.parameters()):
            if parameter in module.head.sharded_parameters():
                moments = joined["optimizer"]["state"][number]
                moments["exp_avg_sq"] = moments["exp_avg_sq"][:-1]
                with pytest.raises(ValueError, match="a table has .* rows, not"):
                    held_of_whole(net, joined)
        return processes.of_first(whole_on_first(net, state))

    found = in_threads(monkeypatch, 3, run)[0]
    assert identity([found[key] for key in expected]) == identity(list(expected.values()))


@pytest.mark.parametrize("name", HEADS)
def test_parts_leave_labels_out_and_are_joined_again(monkeypatch, name):
    whole = changed(HEADS[name](), 0)
    gone = torch.tensor([1, 5, 8])
    _, expected = state_of(*without_labels(whole[0], gone, whole[1]))
    assert joined(*whole) == whole

    def run(processes):
        module, optimizer = copy.deepcopy(whole)
        share_out(module, processes, optimizer)
        before = identity([module_state(module), optimizer.state_dict()])
        made = without_labels(module, gone, optimizer)
        _, state = state_of(*joined(*made))
        assert not joined(*made)[0].head.sharded_parameters()
        assert identity([module_state(module), optimizer.state_dict()]) == before
        return identity(list(state.values()))

    assert in_threads(monkeypatch, 3, run) == [identity(list(expected.values()))] * 3
