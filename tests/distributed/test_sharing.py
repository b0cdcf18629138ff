"""Gradients that processes share, and what they read of a batch."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _distributed import in_threads

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.batches import Batch, BatchIterator, Rows, SparseRows, Targets
from sklearn_xlc.distributed import processes
from sklearn_xlc.distributed.processes import Processes
from sklearn_xlc.distributed.shards import sharding
from sklearn_xlc.distributed.sharing import (
    OwnSamples,
    SharedBatches,
    SharedRows,
    of_batch,
    shares_samples,
    stay_alike,
    sum_gradients,
)
from sklearn_xlc.encoders import MLP, MLPEncoder
from sklearn_xlc.encoders.mlp import InputLinear
from sklearn_xlc.heads import FlatHead, ProductHead
from sklearn_xlc.training import EncoderHead
from sklearn_xlc.training.optimizer import RowOptimizer


def test_gradients_add_up(monkeypatch):
    dense, small, table, own = (
        torch.nn.Parameter(torch.zeros(shape)) for shape in [(3, 2), (), (5, 2), (4,)]
    )
    torch.manual_seed(0)
    given = [
        {
            dense: (slice(None), torch.randn(3, 2)),
            small: (slice(None), torch.randn(())),
            table: (rows, torch.randn(len(rows), 2)),
            own: (slice(None), torch.randn(4)),
        }
        for rows in (torch.tensor([1, 4]), torch.tensor([0, 1, 3]))
    ]

    def run(processes):
        beside = [torch.ones(2).double(), torch.tensor(3.0)]
        return sum_gradients(given[processes.rank], processes, [own], beside)

    for rank, (found, sums) in enumerate(in_threads(monkeypatch, 2, run)):
        assert [each.tolist() for each in sums] == [[2.0, 2.0], 6.0]
        for parameter in (dense, small):
            expected = given[0][parameter][1] + given[1][parameter][1]
            torch.testing.assert_close(found[parameter][1], expected)
        rows, values = found[table]
        assert rows.tolist() == [0, 1, 3, 4]
        whole = torch.zeros(5, 2)
        for each in given:
            whole[each[table][0]] += each[table][1]
        torch.testing.assert_close(values, whole[rows])
        assert found[own] is given[rank][own]


@pytest.mark.parametrize("n_own", [0, 2])
@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 2.0, 3.0, 4.0])])
def test_own_samples_of_a_batch(n_own, weight):
    targets = Targets(torch.arange(5), torch.tensor([5, 6, 7, 8]))
    part = OwnSamples(Processes(1, 2), slice(2, 2 + n_own), slice(0, max(1, n_own)), 4)
    batch = Batch(None, targets, weight, 4, part)
    features = torch.randn(max(1, n_own), 3)
    read, labels, weights = part.for_head(FlatHead(3, 9, False), features, batch)
    assert labels.ids.tolist() == ([7, 8] if n_own else [5])
    given = torch.ones(4) if weight is None else weight
    # Heads divide by the number of samples that they see.
    assert (weights / len(read)).tolist() == ((given[2:4] / 4).tolist() if n_own else [0.0])


def test_a_head_in_parts_reads_all_samples(monkeypatch):
    batch = Batch(None, Targets(torch.arange(4), torch.tensor([5, 6, 7])), torch.ones(3), 3)
    head = FlatHead(2, 9, False, shard_of=sharding(Processes(0, 2)))
    features = torch.randn(3, 2)

    def run(processes):
        samples = processes.part(3)
        own = features[samples].clone().requires_grad_()
        part = OwnSamples(processes, samples, samples, 3)
        read, *others = part.for_head(head, own, batch)
        assert others[0] is batch.targets
        assert others[1] is batch.sample_weight
        (read * torch.arange(3)[:, None]).sum().backward()
        return read.detach(), own.grad[:, 0]

    results = in_threads(monkeypatch, 2, run)
    for read, _ in results:
        assert torch.equal(read, features)
    # Gradients of all samples are the same in all processes: none is sent.
    assert torch.cat([grad for _, grad in results]).tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("beside", [False, True])
def test_gradients_of_an_input_layer_by_those_of_its_outputs(monkeypatch, beside):
    X = sp.random(5, 6, 0.5, format="csr", random_state=0)
    whole, other = SparseRows.from_csr(X), SparseRows.from_csr(X[:2])
    torch.manual_seed(0)
    weight, slopes = torch.randn(6, 3).double(), torch.randn(5, 3).double()

    def layer_of():
        layer = InputLinear(6, 3).double()
        with torch.no_grad():
            layer.weight.copy_(weight)
        return layer, RowOptimizer([{"params": list(layer.parameters())}])

    def run(processes):
        (layer, optimizer), part = layer_of(), processes.part(5)
        rows = SharedRows.of_batch(whole, part, processes.shares(5))
        loss = (layer(rows) * slopes[part]).sum() + layer(rows).square().sum()
        if beside:
            loss = loss + layer(other).sum() / 2
        loss.backward()
        given = ProductHead(3, 9, False, (3, 3)), rows, optimizer.gradients(), loss
        gradients, total = of_batch(*given, processes)
        found = []
        for p in layer.parameters():
            found.append(torch.zeros_like(p))
            found[-1][gradients[p][0]] = gradients[p][1]
        return total, found

    layer, _ = layer_of()
    loss = (layer(whole) * slopes).sum() + layer(whole).square().sum()
    loss = loss + layer(other).sum() if beside else loss
    loss.backward()
    for total, found in in_threads(monkeypatch, 2, run):
        torch.testing.assert_close(total, loss.detach())
        torch.testing.assert_close(found[0], layer.weight.grad.to_dense())
        torch.testing.assert_close(found[1], layer.bias.grad)


def test_frozen_input_layers_have_no_gradient():
    rows = SharedRows.of_batch(SparseRows.from_csr(sp.eye(4, format="csr")), slice(0, 2), [2, 2])
    layer = InputLinear(4, 3).double()
    layer.weight.requires_grad_(False)
    layer(rows).sum().backward()
    assert rows.outputs == []
    assert layer.bias.grad is not None


@pytest.mark.parametrize(
    ("widths", "n_words", "dense", "copied"),
    [
        ((512,), 40, False, True),
        ((512,), 370, False, True),
        ((512,), 390, False, False),
        ((1024, 512), 40, False, False),
        ((512,), 40, True, False),
    ],
)
def test_encoders_are_copied_where_messages_would_take_longer(widths, n_words, dense, copied):
    X = sp.random(40, 2000, n_words / 2000, format="csr", random_state=0)
    rows = Rows(X, sparse=not dense)
    head = FlatHead(512, 9, True, shard_of=sharding(Processes(0, 2)))
    encoder = MLPEncoder(2000, widths, sparse=not dense)
    assert shares_samples(EncoderHead(encoder, head), rows, 256) == (not copied)
    # A head that every process has all of has less to do with fewer samples.
    assert shares_samples(EncoderHead(encoder, FlatHead(512, 9, True)), rows, 256)
    # What another encoder computes is not known.
    own = torch.nn.Sequential(encoder)
    assert shares_samples(EncoderHead(own, head), rows, 256)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_weights_that_come_apart_are_those_of_the_first(monkeypatch, dtype):
    def run(processes):
        torch.manual_seed(processes.rank)  # parts of the head differ, as they are of other labels
        head = FlatHead(3, 10, True, shard_of=sharding(processes))
        module = EncoderHead(MLPEncoder(6, (4, 3)), head).to(dtype)
        module.encoder.register_buffer("seen", torch.arange(3) == processes.rank)
        encoder = list(module.encoder.parameters())
        for parameter in encoder:
            parameter.data.copy_(torch.arange(parameter.numel()).view(parameter.shape))
        optimizer = RowOptimizer([{"params": list(module.parameters()), "rule": "adam", "lr": 0.1}])
        optimizer.apply({p: (slice(None), torch.ones_like(p)) for p in encoder})
        before = [tensor.clone() for tensor in module.head.parameters()]
        if processes.rank == 1:
            with torch.no_grad():
                encoder[1].view(-1)[-1] *= 1 + torch.finfo(dtype).eps
            optimizer.state[encoder[1]]["exp_avg"] += 1
            optimizer.state[encoder[0]]["exp_avg"] += 1  # its weights are alike
        stay_alike(module, optimizer, processes)
        for old, new in zip(before, module.head.parameters(), strict=True):
            assert torch.equal(old, new)
        moments = [dict(optimizer.state[parameter]) for parameter in encoder]
        return encoder, moments, module.encoder.seen.tolist()

    (first, of_first, seen), (second, of_second, too) = in_threads(monkeypatch, 2, run)
    assert all(map(torch.equal, first, second))
    assert seen == too == [True, False, False]
    assert torch.equal(of_first[1]["exp_avg"], of_second[1]["exp_avg"])
    assert not torch.equal(of_first[0]["exp_avg"], of_second[0]["exp_avg"])


def test_processes_may_have_no_weights_in_common(monkeypatch):
    def run(processes):
        head = FlatHead(3, 10, True, shard_of=sharding(processes))
        module = EncoderHead(torch.nn.Identity(), head)
        stay_alike(module, RowOptimizer([{"params": list(head.parameters())}]), processes)
        return len(head.weight)

    assert in_threads(monkeypatch, 2, run) == [5, 5]


@pytest.mark.parametrize("form", ["dense", "sparse"])  # samples are shared, or the encoder copied
def test_processes_that_round_otherwise_end_with_the_same_model(monkeypatch, form):
    rng = np.random.default_rng(0)
    X = sp.random(60, 40, 0.1, "csr", np.float32, random_state=rng)
    X = X if form == "sparse" else X.toarray()
    Y = sp.random(60, 12, 0.3, "csr", random_state=rng).sign()
    step = RowOptimizer.require_finite

    def disturbed(optimizer, loss):
        if processes._group().get_rank():
            for group in optimizer.param_groups:
                group["params"][0].data[0] += 0.01
        step(optimizer, loss)

    monkeypatch.setattr(RowOptimizer, "require_finite", disturbed)

    def run(_):
        clf = MultiHeadClassifier("flat", encoder=MLP(8), max_epochs=2, random_state=0)
        return clf.fit(X, Y).transform(X)

    first, second = in_threads(monkeypatch, 2, run)
    np.testing.assert_array_equal(first, second)


# --- rows of a batch ----------------------------------------------------------------------------

SEVEN = sp.random(7, 9, 0.4, format="csr", random_state=0)


def dense_of(rows):
    parts = rows.data.numpy(), rows.indices.numpy(), rows.indptr.numpy()
    return sp.csr_matrix(parts, shape=(len(rows), rows.n_features)).toarray()


@pytest.mark.parametrize("own", [slice(0, 3), slice(3, 7), slice(2, 2)])
def test_own_rows_and_those_of_the_batch(own):
    rows = SharedRows.of_batch(SparseRows.from_csr(SEVEN), own, [3, 4])
    for each in (rows, rows.to(torch.device("cpu"))):
        assert np.array_equal(dense_of(each), SEVEN.toarray()[own])
        assert np.array_equal(dense_of(each.whole), SEVEN.toarray())
        assert each.shares == [3, 4]
        assert each.outputs == []
    rows.transpose_now()
    copy = rows.to(torch.device("cpu"))
    assert "transpose" in vars(copy.whole)
    assert "transpose" not in vars(copy)


@pytest.mark.parametrize("in_bags", [False, True])
def test_processes_read_all_of_a_batch_together(in_bags):
    bags = np.array([0, 2, 3, 7]) if in_bags else None
    rows = Rows(SEVEN, sparse=True, bags=bags)
    n_samples = len(rows)
    device = torch.device("cpu")
    parts = []
    for rank in range(2):
        (batch,) = BatchIterator(rows, n_samples, None, device, SharedBatches(Processes(rank, 2)))
        inputs = batch.inputs.instances if in_bags else batch.inputs
        assert np.array_equal(dense_of(inputs.whole), SEVEN.toarray())
        assert len(inputs) == inputs.shares[rank]
        parts.append(dense_of(inputs))
        if in_bags:
            sizes = np.diff(bags)[Processes(rank, 2).part(n_samples)]
            assert batch.inputs.indptr.diff().tolist() == sizes.tolist()
            assert batch.inputs.indptr[0] == 0
    assert np.array_equal(np.vstack(parts), SEVEN.toarray())


def test_a_process_without_a_sample_reads_the_first():
    (batch,) = BatchIterator(
        Rows(SEVEN[:1], sparse=True), 1, None, torch.device("cpu"), SharedBatches(Processes(0, 2))
    )
    assert batch.own.n_samples == 0
    assert np.array_equal(dense_of(batch.inputs), SEVEN[:1].toarray())
    assert batch.inputs.shares == [0, 1]
