"""Shards of heads: the labels of each process, and what they add up to."""

import pytest
import torch
from _distributed import in_threads
from hypothesis import given
from hypothesis import strategies as st

from sklearn_xlc.distributed.processes import ALONE, Processes
from sklearn_xlc.distributed.shards import Shard, in_parts, sharding
from sklearn_xlc.heads import WHOLE, FlatHead, Whole, topk_by_position, whole


@given(st.integers(1, 60), st.integers(1, 7), st.integers(1, 5))
def test_every_label_is_held_once(n_labels, unit, size):
    n_rows = -(-n_labels // unit)
    shards = [Shard(Processes(rank, size), n_labels, unit) for rank in range(size)]
    labels = [label for shard in shards for label in range(n_labels)[shard.labels()]]
    assert labels == list(range(n_labels))
    rows = torch.arange(n_rows)
    held = [shard.own(rows[shard.holds(rows)]).tolist() for shard in shards]
    assert held == [list(range(shard.n_held())) for shard in shards]


@pytest.mark.parametrize("shape", [(5, 3), (47, 37), (1000, 70), (40_000, 33), (33, 2, 3)])
@pytest.mark.parametrize("size", [2, 3])
def test_parts_of_a_table_are_drawn_as_the_whole(shape, size):
    torch.manual_seed(0)
    whole = torch.empty(shape).normal_(std=0.3)
    after = torch.rand(3)
    parts = []
    for rank in range(size):
        torch.manual_seed(0)
        shard = Shard(Processes(rank, size), shape[0])
        parts.append(torch.empty(shard.n_held(), *shape[1:]))
        shard.draw_normal(parts[-1], 0.3)
        assert torch.equal(torch.rand(3), after)
    assert torch.equal(torch.cat(parts), whole)


def test_positives_are_those_of_the_labels_held():
    shard = Shard(Processes(1, 2), 10)
    ids, held = shard.chosen(torch.tensor([1, 7, 0, 8, 5]), torch.arange(5))
    assert ids.tolist() == [7, 8, 5]
    assert held.tolist() == [1, 3, 4]


@pytest.mark.parametrize("k", [1, 4, 7])
def test_best_labels_of_all_processes(monkeypatch, k):
    scores = torch.randint(0, 3, (5, 7)).float()

    def run(processes):
        shard = Shard(processes, 7)
        own = scores[:, shard.labels()]
        best, positions = topk_by_position(own, min(k, shard.n_held()))
        return *shard.merged(best, positions + shard.start, k), shard.joined_columns(own)

    expected, positions = topk_by_position(scores, k)
    for best, found, columns in in_threads(monkeypatch, 3, run):
        assert torch.equal(best, expected)
        assert torch.equal(found, positions)
        assert torch.equal(columns, scores)


def test_cross_entropy_and_its_gradient(monkeypatch):
    torch.manual_seed(0)
    features = torch.randn(4, 3, dtype=torch.float64)
    weight = torch.randn(7, 3, dtype=torch.float64)
    true, share = torch.tensor([6, 0, 3, 3]), torch.tensor([0.1, 0.2, 0.3, 0.4]).double()

    def run(processes):
        shard = Shard(processes, 7)
        inputs = features.clone().requires_grad_()
        table = weight[shard.labels()].clone().requires_grad_()
        held = shard.holds(true)
        at = held.nonzero()[:, 0], shard.own(true[held])
        logits = shard.read_by_all(inputs) @ table.T
        loss = share @ shard.surprises(logits, at).square()
        loss.backward()
        return loss.detach(), inputs.grad, table.grad

    inputs, table = (each.clone().requires_grad_() for each in (features, weight))
    surprises = torch.nn.functional.cross_entropy(inputs @ table.T, true, reduction="none")
    loss = share @ surprises.square()
    loss.backward()
    results = in_threads(monkeypatch, 2, run)
    for value, grad, _ in results:
        torch.testing.assert_close(value, loss.detach())
        torch.testing.assert_close(grad, inputs.grad)
    torch.testing.assert_close(torch.cat([grad for *_, grad in results]), table.grad)


def test_products_are_made_where_rows_are_held(monkeypatch):
    torch.manual_seed(0)
    queries, table = torch.randn(3, 2).double(), torch.randn(5, 2).double()
    rows, parents = torch.tensor([0, 0, 1, 2, 2]), torch.tensor([4, 0, 2, 3, 3])
    slopes = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]).double()

    def run(processes):
        shard = Shard(processes, 5)
        given = queries.clone().requires_grad_()

        held = shard.holds(parents)
        own = (shard.read_by_all(given)[rows[held]] * table[parents[held]]).sum(1)
        found = shard.joined_sum(own, held, len(rows))
        (found @ slopes).backward()
        return found.detach(), given.grad

    expected = queries.clone().requires_grad_()
    products = (expected[rows] * table[parents]).sum(1)
    (products @ slopes).backward()
    for found, grad in in_threads(monkeypatch, 2, run):
        torch.testing.assert_close(found, products.detach())
        torch.testing.assert_close(grad, expected.grad)


def test_sums_of_what_each_process_has_found(monkeypatch):
    def run(processes):
        own = torch.full((2,), float(processes.rank), requires_grad=True)
        total = Shard(processes, 5).sum_of_all(own)
        (3 * total).sum().backward()
        sums = Shard(processes, 5).sum(own.detach(), torch.tensor(1.0))
        return total.tolist(), own.tolist(), own.grad.tolist(), [each.tolist() for each in sums]

    for rank, found in enumerate(in_threads(monkeypatch, 3, run)):
        assert found == ([3.0, 3.0], [rank] * 2, [3.0, 3.0], [[3.0, 3.0], 3.0])


@pytest.mark.parametrize("unit", [1, 2])
def test_rows_of_labels_of_all_processes(monkeypatch, unit):
    table = torch.randn(11, 3)
    labels = torch.tensor([[0, 10], [5, 5], [6, 3]])

    def run(processes):
        shard = Shard(processes, 11, unit)
        return shard.rows_at(table[shard.labels()], labels, unit)

    assert all(torch.equal(found, table[labels]) for found in in_threads(monkeypatch, 3, run))


def test_a_shard_answers_all_that_a_whole_table_is_asked():
    asked = {name for name in vars(Whole) if not name.startswith("_")}
    assert asked <= set(vars(Shard))
    assert sharding(ALONE) is whole


def test_only_classes_that_say_so_are_shared():
    class Own(FlatHead):
        """May read its weights in its own way."""

    shard_of = sharding(Processes(0, 2))
    assert Own(3, 10, False, shard_of=shard_of).shard is WHOLE
    head = FlatHead(3, 10, False, shard_of=shard_of)
    assert len(head.weight) == 5
    assert in_parts(head)
    with pytest.raises(ValueError, match="2 processes cannot share 1 labels"):
        FlatHead(3, 1, True, shard_of=shard_of)
    with pytest.raises(ValueError, match=r"gather\(estimator\)"):
        head.label_vectors()
