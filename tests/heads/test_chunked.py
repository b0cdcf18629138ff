"""A head needs no more than its logits and their derivative to have a loss and a ranking."""

import pytest
import torch
from _distributed import in_threads
from torch import nn

from _factories import plain_loss
from sklearn_xlc.batches import ONE_THREAD, Targets, Threads
from sklearn_xlc.distributed.shards import sharding
from sklearn_xlc.heads import (
    ChunkedHead,
    FlatHead,
    PickAllLabels,
    PickAllSquaredError,
    Step,
    chunked,
)

N_LABELS = 10
TARGETS = Targets(torch.tensor([0, 3, 3, 4]), torch.tensor([9, 0, 4, 2]))
ONE_EACH = Targets(torch.arange(4), torch.tensor([9, 0, 4]))


class Scaled(ChunkedHead):
    """Every label repeats one feature, times a scale of its own."""

    def __init__(self, multilabel, memory_limit=2**30):
        super().__init__(N_LABELS, N_LABELS, multilabel, memory_limit)
        generator = torch.Generator().manual_seed(0)
        scale = torch.randn(N_LABELS, dtype=torch.float64, generator=generator)
        self.scale, self.n_products = nn.Parameter(scale), 0

    def fused_parameters(self):
        return [self.scale]

    def logits(self, inputs, chunk):
        self.n_products += 1
        return inputs[:, chunk] * self.scale[chunk]

    def backward(self, inputs, chunk, gradient, into, update):
        into[:, chunk] += gradient * self.scale[chunk]
        update(self.scale, chunk, (gradient * inputs[:, chunk]).sum(0))


class WithPenalty(Scaled):
    def penalty(self, inputs, weights):
        return weights @ inputs.square().sum(1)


def features():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(3, N_LABELS, dtype=torch.float64, generator=generator, requires_grad=True)


def definition(head, inputs, targets):
    weight = torch.ones(3, dtype=torch.float64)
    return plain_loss(inputs * head.scale, targets, weight, head.multilabel)


@pytest.mark.parametrize("kind", [Scaled, WithPenalty])
@pytest.mark.parametrize("chunk", [1, 4, 10, 4096])
@pytest.mark.parametrize("memory_limit", [1, 2**30])
@pytest.mark.parametrize("multilabel", [True, False])
def test_loss_and_gradients(monkeypatch, kind, chunk, memory_limit, multilabel):
    monkeypatch.setattr(chunked, "CHUNK", chunk)
    head, inputs = kind(multilabel, memory_limit), features()
    targets = TARGETS if multilabel else ONE_EACH
    loss = head.loss(inputs, targets)
    loss.backward()
    ours = inputs.grad.clone(), head.scale.grad.clone()
    inputs.grad, head.scale.grad = None, None
    expected = definition(head, inputs, targets)
    if kind is WithPenalty:
        expected = expected + inputs.square().sum() / 3
    expected.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(ours, (inputs.grad, head.scale.grad))


class ByRows(ChunkedHead):
    """Logits from rows of two parameters, differentiated by autograd."""

    def __init__(self, multilabel):
        super().__init__(4, N_LABELS, multilabel)
        generator = torch.Generator().manual_seed(0)
        rows = torch.randn(N_LABELS, 4, dtype=torch.float64, generator=generator)
        self.rows, self.bias = nn.Parameter(rows), nn.Parameter(rows[:, 0].square())

    def fused_parameters(self):
        return [self.rows, self.bias]

    def logits_of(self, inputs, rows, bias):
        return (inputs @ rows.T).tanh() * bias


@pytest.mark.parametrize("chunk", [1, 4, 4096])
@pytest.mark.parametrize("multilabel", [True, False])
def test_logits_from_rows_are_differentiated(monkeypatch, chunk, multilabel):
    monkeypatch.setattr(chunked, "CHUNK", chunk)
    head, inputs = ByRows(multilabel), features()[:, :4].detach().requires_grad_()
    targets = TARGETS if multilabel else ONE_EACH
    variables = [inputs, *ByRows(multilabel).parameters()]
    loss = head.loss(inputs, targets)
    ours = torch.autograd.grad(loss, [inputs, *head.fused_parameters()])
    logits = (inputs @ variables[1].T).tanh() * variables[2]
    expected = plain_loss(logits, targets, torch.ones(3, dtype=torch.float64), multilabel)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(ours, torch.autograd.grad(expected, variables))
    assert [length for _, length in head.label_rows()] == [4, 1]


def test_a_parameter_that_labels_share_has_no_rows_of_theirs():
    class Shared(Scaled):
        def __init__(self):
            super().__init__(True)
            self.slope, self.bias = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(3))

        def fused_parameters(self):
            return [self.scale, self.slope, self.bias]

    head = Shared()
    assert [(p is head.scale, length) for p, length in head.label_rows()] == [(True, 1)]


def test_a_head_without_logits_says_what_to_define():
    class Empty(ChunkedHead):
        def fused_parameters(self):
            return []

    with pytest.raises(NotImplementedError, match="Empty defines neither logits_of"):
        Empty(2, 3, True).scores(torch.ones(1, 2))


def test_chunks_cover_every_label_once(monkeypatch):
    monkeypatch.setattr(chunked, "CHUNK", 4)
    assert Scaled(True).chunks() == [slice(0, 4), slice(4, 8), slice(8, 10)]


@pytest.mark.parametrize("multilabel", [True, False])
def test_without_gradients_nothing_is_computed_twice(monkeypatch, multilabel):
    monkeypatch.setattr(chunked, "CHUNK", 4)
    head = Scaled(multilabel, memory_limit=1)
    with torch.no_grad():
        head.loss(features(), TARGETS if multilabel else ONE_EACH)
    assert head.n_products == 3


def test_update_takes_the_place_of_gradients():
    head, inputs, seen = Scaled(True), features(), []
    head.loss(inputs, TARGETS, None, lambda *step: seen.append(step)).backward()
    assert head.scale.grad is None
    assert inputs.grad is not None
    assert [(step[0] is head.scale, step[1]) for step in seen] == [(True, slice(0, 10))]


def test_topk_and_scores(monkeypatch):
    monkeypatch.setattr(chunked, "CHUNK", 4)
    head, inputs = Scaled(True), features()
    torch.testing.assert_close(head.scores(inputs), inputs * head.scale)
    best, ids = head.topk(inputs, 5)
    torch.testing.assert_close(best, head.scores(inputs).topk(5)[0])
    torch.testing.assert_close(ids, head.scores(inputs).topk(5)[1])


def test_second_derivatives_are_refused():
    head, inputs = Scaled(True), features()
    (gradient,) = torch.autograd.grad(head.loss(inputs, TARGETS), inputs, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        gradient.sum().backward()


@pytest.mark.parametrize(
    "loss",
    [
        *("bce", "asymmetric", "focal", "pick_all_labels", "ce"),
        PickAllLabels(smoothing=0.2),
        PickAllSquaredError(),
    ],
    ids=str,
)
def test_positions_without_a_label_do_not_count(monkeypatch, loss):
    """Loss, gradient and ranking are those of a head with the other labels alone."""
    monkeypatch.setattr(chunked, "CHUNK", 4)
    multilabel = loss != "ce"
    head = FlatHead(3, 10, multilabel, loss=loss).double()
    kept = torch.tensor([0, 2, 3, 4, 6, 7])
    small = FlatHead(3, len(kept), multilabel, loss=loss).double()
    with torch.no_grad():
        head.weight.normal_()
        small.weight.copy_(head.weight[kept])
    head.set_free(~torch.isin(torch.arange(10), kept))
    features = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    of_small = (
        ([0, 1, 4, 5], [0, 1, 2, 3, 4]) if not multilabel else ([1, 3, 0, 5, 2], [0, 2, 3, 3, 5])
    )
    ids, indptr = (torch.tensor(part) for part in of_small)
    results = []
    for each, labels in ((head, kept[ids]), (small, ids)):
        value = each.loss(features, Targets(indptr, labels))
        results.append((value, *torch.autograd.grad(value, [features, each.weight, each.bias])))
    for one, other in zip(*results):
        torch.testing.assert_close(one[kept] if len(one.shape) and len(one) == 10 else one, other)
    assert not results[0][2][head.free].any()
    best, positions = head.topk(features, 6)
    expected = small.topk(features, 6)
    torch.testing.assert_close(best, expected[0])
    assert torch.equal(positions, kept[expected[1]])
    assert (head.scores(features)[:, head.free] == -torch.inf).all()


@pytest.mark.parametrize("is_drawn", [False, True])
@pytest.mark.parametrize(
    "loss", [PickAllLabels(0.5), PickAllLabels(smoothing=0.3), PickAllSquaredError()], ids=str
)
def test_processes_share_the_loss_of_a_row(monkeypatch, loss, is_drawn):
    """Loss and gradients are those of one process, whichever labels another one holds."""
    monkeypatch.setattr(chunked, "CHUNK", 3)
    ids = torch.tensor([0, 2, 4, 7, 9])
    drawn = chunked.Drawn(ids, torch.tensor([1.0, 1.0, 1.0, 2.5, 1.0])) if is_drawn else None
    monkeypatch.setattr(FlatHead, "draw", lambda self, targets: drawn)
    whole = FlatHead(3, N_LABELS, True, loss=loss).double()
    torch.nn.init.normal_(whole.weight)
    given = torch.randn(3, 3, dtype=torch.float64)

    def gradients(head):
        features, update = given.clone().requires_grad_(), torch.zeros_like(head.weight)

        def collect(parameter, rows, gradient):
            if parameter is head.weight:
                update[rows] += gradient

        value = head.loss(features, TARGETS, None, collect)
        value.backward()
        return value.detach(), features.grad, update

    def run(processes):
        head = FlatHead(3, N_LABELS, True, loss=loss, shard_of=sharding(processes)).double()
        with torch.no_grad():
            head.weight.copy_(whole.weight[head.all_held()])
        return gradients(head)

    expected = gradients(whole)
    results = in_threads(monkeypatch, 2, run)
    for value, to_features, _ in results:
        torch.testing.assert_close(value, expected[0])
        torch.testing.assert_close(to_features, expected[1])
    torch.testing.assert_close(torch.cat([update for *_, update in results]), expected[2])


@pytest.mark.parametrize("n_threads", [2, 3])
@pytest.mark.parametrize("n_negatives", [None, 4])
@pytest.mark.parametrize("loss", ["bce", "focal", "pick_all_labels", "ce"])
def test_chunks_side_by_side_give_the_same_loss_and_steps(loss, n_negatives, n_threads):
    multilabel = loss != "ce"
    targets = TARGETS if multilabel else ONE_EACH
    torch.manual_seed(0)
    head = FlatHead(N_LABELS, 40, multilabel, loss=loss, n_negatives=n_negatives).double()
    inputs, weights = features().detach(), torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    drawn = head.draw(targets)
    assert (drawn is None) == (n_negatives is None)

    def step(threads):
        steps = {parameter: torch.zeros_like(parameter) for parameter in head.fused_parameters()}

        def update(parameter, rows, gradient):
            steps[parameter][rows] += gradient

        with torch.no_grad():
            found = head.loss_and_gradient(Step(inputs, targets, weights, update, drawn, threads))
        return [*found, *steps.values()]

    torch.testing.assert_close(step(Threads(n_threads)), step(ONE_THREAD), rtol=1e-12, atol=1e-12)
