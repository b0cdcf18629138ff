"""The cascade head against a slow implementation that walks over labels one by one."""

import pytest
import torch
from _distributed import in_threads
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from sklearn_xlc.batches import Targets
from sklearn_xlc.distributed.shards import sharding
from sklearn_xlc.heads import CascadeHead

LENGTHS = [(5, 3), (4, 2, 2), (3, 2, 2, 2), (2, 7)]
N_FEATURES, N_LABELS, N_ROWS = 4, 13, 5
MULTILABEL = Targets(torch.tensor([0, 2, 2, 5, 6, 7]), torch.tensor([3, 12, 0, 4, 7, 12, 12]))
MULTICLASS = Targets(torch.arange(6), torch.tensor([12, 0, 3, 3, 8]))
WEIGHT = torch.tensor([1.0, 0.5, 2.0, 0.0, 3.0], dtype=torch.float64)


def make(multilabel, lengths, scale=1.0, **kwargs):
    torch.manual_seed(len(lengths))
    kwargs = {"beam_width": 99, **kwargs}
    head = CascadeHead(N_FEATURES, N_LABELS, multilabel, lengths, embedding_dim=3, **kwargs)
    head = head.double()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    features = torch.randn(N_ROWS, N_FEATURES, dtype=torch.float64, requires_grad=True)
    return head, features, MULTILABEL if multilabel else MULTICLASS


def node_logits(head, features):
    """Logits of every existing node of every level, each (n_rows, n_nodes)."""
    levels = [features @ head.first.weight.T + head.first.bias]
    for level, (query, table) in enumerate(zip(head.queries, head.tables), start=1):
        u = features @ query.weight.T + query.bias
        rows = table.view(-1, head.embedding_dim + 1)[: head.n_nodes[level]]
        levels.append(u @ rows[:, :-1].T + rows[:, -1])
    return levels


def ancestors(head, label):
    """Node of every level on the way to a label."""
    return [label // int(place) for place in head.code.place_values]


def conditional(head, logits, level):
    """Log probability of each node given its parent (multi-class)."""
    if level == 0:
        return logits.log_softmax(1)
    length = head.code.lengths[level]
    return torch.cat([part.log_softmax(1) for part in logits.split(length, dim=1)], dim=1)


def label_scores(head, features):
    levels = node_logits(head, features)
    if head.multilabel:
        levels = [F.logsigmoid(level) for level in levels]
    else:
        levels = [conditional(head, level, i) for i, level in enumerate(levels)]
    columns = []
    for label in range(N_LABELS):
        path = [level[:, node] for level, node in zip(levels, ancestors(head, label))]
        columns.append(head.path_exponent * sum(path[:-1]) + path[-1])
    scores = torch.stack(columns, dim=1)
    return torch.log(scores.exp() / (1 - scores.exp())) if head.multilabel else scores


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("multilabel", [True, False])
def test_full_beam_equals_exhaustive_scoring(multilabel, lengths):
    head, features, _ = make(multilabel, lengths)
    expected = label_scores(head, features).detach()
    torch.testing.assert_close(head.scores(features), expected)
    for k in (1, 4, N_LABELS):
        scores, ids = head.topk(features, k)
        torch.testing.assert_close(scores, expected.topk(k, dim=1).values)
        torch.testing.assert_close(expected.gather(1, ids), scores)
    if not multilabel:
        torch.testing.assert_close(expected.exp().sum(1), torch.ones(N_ROWS, dtype=torch.float64))


class Largest(TorchDispatchMode):
    """The size of the largest tensor that an operation returns."""

    n_numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        self.n_numbers = max(self.n_numbers, getattr(found, "nbytes", 0) // 8)
        return found


@pytest.mark.parametrize("multilabel", [True, False])
def test_all_scores_repeat_no_sample_for_each_node(multilabel):
    head = CascadeHead(N_FEATURES, 64, multilabel, (16, 4), embedding_dim=40).double()
    with Largest() as largest:
        scores = head.scores(torch.zeros(60, N_FEATURES, dtype=torch.float64))
    assert scores.shape == (60, 64)
    assert largest.n_numbers <= 60 * 64  # of pairs, each with an embedding: 60 x 16 x 41


@pytest.mark.parametrize("beam_width", [1, 2, 3])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("multilabel", [True, False])
def test_a_narrow_beam_names_existing_labels_once_and_scores_them_exactly(
    multilabel, lengths, beam_width
):
    head, features, _ = make(multilabel, lengths, scale=4.0, beam_width=beam_width)
    exact = label_scores(head, features).detach()
    for k in (1, 5, N_LABELS):
        scores, ids = head.topk(features, k)
        assert ids.max() < N_LABELS
        assert all(len(set(row)) == k for row in ids.tolist())
        assert (scores > -torch.inf).all()
        torch.testing.assert_close(scores, exact.gather(1, ids), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_multi_class_loss_is_the_negative_log_probability(lengths):
    head, features, targets = make(False, lengths)
    rows = -label_scores(head, features).gather(1, targets.ids[:, None])[:, 0]
    expected = (WEIGHT * rows).mean()
    torch.testing.assert_close(head.loss(features, targets, WEIGHT), expected)


def slow_multilabel_loss(head, features, targets, weight, of_level=sum):
    """Row by row: BCE of the first head, then of the children of beam and true parents.

    `of_level` makes one loss of those of a level's nodes.
    """
    levels = node_logits(head, features)
    total = 0.0
    for row in range(N_ROWS):
        labels = targets.ids[targets.indptr[row] : targets.indptr[row + 1]].tolist()
        true = [{ancestors(head, label)[level] for label in labels} for level in range(len(levels))]
        kept = {node: F.logsigmoid(z).item() for node, z in enumerate(levels[0][row])}
        loss = of_level([bce(z, node in true[0]) for node, z in enumerate(levels[0][row])])
        for level in range(1, len(levels)):
            best = sorted(kept, key=kept.get, reverse=True)[: head.beam_width]
            parents = {node: kept[node] for node in best}
            for node in true[level - 1] - set(best):
                parents[node] = -0.6931
            kept, losses = {}, []
            for parent, path in parents.items():
                length = head.code.lengths[level]
                for node in range(parent * length, (parent + 1) * length):
                    if node < head.n_nodes[level]:
                        z = levels[level][row, node]
                        losses.append(bce(z, node in true[level]))
                        kept[node] = path + F.logsigmoid(z).item()
            loss = loss + of_level(losses)
        total = total + weight[row] * loss
    return total / len(weight)


def bce(logit, positive):
    return F.softplus(-logit if positive else logit)


def mean(values):
    return sum(values) / len(values)


@pytest.mark.parametrize("weighting", [sum, mean], ids=["sum", "mean"])
@pytest.mark.parametrize("beam_width", [1, 2, 99])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_multilabel_loss_and_gradients_equal_the_definition(lengths, beam_width, weighting):
    params = {"beam_width": beam_width, "level_weighting": weighting.__name__}
    head, features, targets = make(True, lengths, **params)
    loss = head.loss(features, targets, WEIGHT)
    expected = slow_multilabel_loss(head, features, targets, WEIGHT, weighting)
    torch.testing.assert_close(loss, expected)
    inputs = [features, *head.parameters()]
    for one, other in zip(torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs)):
        torch.testing.assert_close(one.to_dense(), other)


@pytest.mark.parametrize("multilabel", [True, False])
def test_half_precision_is_close_in_training_and_exact_in_prediction(multilabel):
    exact, features, targets = make(multilabel, (5, 3), scale=0.5, beam_width=2)
    head, _, _ = make(multilabel, (5, 3), scale=0.5, beam_width=2, precision="bfloat16")
    head, exact, features = head.float(), exact.float(), features.detach().float()
    assert torch.equal(head.eval().scores(features), exact.eval().scores(features))
    losses = [one.train().loss(features, targets) for one in (head, exact)]
    assert not torch.equal(*losses)
    torch.testing.assert_close(*losses, rtol=2e-2, atol=0)
    gradients = [torch.autograd.grad(loss, [*one.parameters()]) for loss, one in
                 zip(losses, (head, exact))]  # fmt: skip
    for one, other in zip(*gradients):
        assert one.dtype == torch.float32
        one, other = one.to_dense(), other.to_dense()
        assert (one - other).norm() <= 0.03 * other.norm() + 1e-6


def test_only_rows_of_kept_parents_get_a_gradient():
    head, features, _ = make(True, (5, 3), beam_width=1)
    targets = Targets(torch.tensor([0, 1]), torch.tensor([12]))  # parent 4
    best = int(head.first(features[:1]).argmax())
    head.loss(features[:1], targets).backward()
    gradient = head.tables[0].grad
    assert gradient.is_sparse
    assert set(gradient.coalesce().indices()[0].tolist()) == {4, best}


def test_positives_beyond_the_beam_are_not_dropped():
    head, features, _ = make(True, (5, 3), beam_width=1)
    every = Targets(torch.tensor([0, N_LABELS]), torch.arange(N_LABELS))
    loss = head.loss(features[:1], every)
    levels = node_logits(head, features[:1])
    expected = sum(F.softplus(-level).sum() for level in levels)
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_prior_is_what_zero_features_predict(lengths):
    head, _, _ = make(False, lengths)
    frequency = torch.rand(N_LABELS, dtype=torch.float64) + 0.1
    frequency = frequency / frequency.sum()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
    head.set_prior(frequency)
    scores = head.scores(torch.zeros(1, N_FEATURES, dtype=torch.float64))[0]
    # A node that is its parent's only child is clipped below certainty, hence the tolerance.
    torch.testing.assert_close(scores.exp(), frequency, rtol=2e-3, atol=0)


def test_path_exponent_one_is_the_product_of_all_sigmoids():
    head, features, _ = make(True, (5, 3), path_exponent=1.0)
    first, second = (level.sigmoid() for level in node_logits(head, features))
    product = first.repeat_interleave(3, dim=1)[:, :N_LABELS] * second
    torch.testing.assert_close(head.scores(features).sigmoid(), product)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_vectors_of_labels_meet_the_last_query(lengths):
    head, features, _ = make(True, lengths)
    query = features @ head.queries[-1].weight.T + head.queries[-1].bias
    biases = head.tables[-1].view(-1, head.embedding_dim + 1)[:N_LABELS, -1]
    logits = query @ head.label_vectors().T + biases
    torch.testing.assert_close(logits, node_logits(head, features)[-1][:, :N_LABELS])


@pytest.mark.parametrize("level_weighting", ["sum", "mean"])
@pytest.mark.parametrize("multilabel", [False, True])
def test_processes_train_the_pairs_whose_parents_they_hold(
    monkeypatch, multilabel, level_weighting
):
    torch.manual_seed(0)
    lengths, params = (3, 4, 3), {"embedding_dim": 5, "beam_width": 2}
    params["level_weighting"] = level_weighting
    whole = CascadeHead(6, 34, multilabel, lengths, **params).double()
    with torch.no_grad():
        for table in whole.tables:
            table.normal_()
    given = torch.randn(7, 6).double()
    targets = Targets(torch.arange(8), torch.tensor([0, 3, 33, 17, 9, 9, 20]))
    weight = torch.rand(7).double()

    def run(processes):
        given_shards = {**params, "shard_of": sharding(processes)}
        head = CascadeHead(6, 34, multilabel, lengths, **given_shards).double()
        with torch.no_grad():
            for name, parameter in head.named_parameters():
                values = whole.get_parameter(name)
                shard = head.sharded_parameters().get(parameter)
                parameter.copy_(values if shard is None else values[shard.start : shard.stop])
        features = given.clone().requires_grad_()
        loss = head.loss(features, targets, weight)
        loss.backward()
        tables = [table.grad.to_dense() for table in head.tables]
        return loss.detach(), features.grad, head.queries[1].weight.grad, tables

    features = given.clone().requires_grad_()
    loss = whole.loss(features, targets, weight)
    loss.backward()
    results = in_threads(monkeypatch, 2, run)
    for found, grad, to_query, _ in results:
        torch.testing.assert_close(found, loss.detach())
        torch.testing.assert_close(grad, features.grad)
        torch.testing.assert_close(to_query, whole.queries[1].weight.grad)
    for level, table in enumerate(whole.tables):
        together = torch.cat([tables[level] for *_, tables in results])
        torch.testing.assert_close(together, table.grad.to_dense())
