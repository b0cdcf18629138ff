"""Encoders: sparse rows give what dense rows give, forward and backward."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from sklearn_xlc._config import setting
from sklearn_xlc.batches import Rows, SparseRows, lengthened, make_batch
from sklearn_xlc.encoders import DRAWS_LATER, InputLinear, MLPEncoder, mlp


def random_rows(n_rows=7, n_features=12, density=0.3, dtype=np.float64, seed=0):
    """CSR rows, one of them empty, with columns that nothing uses."""
    X = sp.random(n_rows, n_features, density, format="lil", dtype=dtype, random_state=seed)
    X[2] = 0
    X[:, 5] = 0
    return X.tocsr()


def sparse_batch(X):
    return make_batch(Rows(X, sparse=True)).inputs


def dense_gradient(parameter):
    gradient = parameter.grad
    return gradient.to_dense() if gradient.is_sparse else gradient


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-13), (np.float32, 1e-5)])
@pytest.mark.parametrize("density", [0.0, 0.05, 0.5])
def test_sparse_rows_equal_dense_rows(density, dtype, tolerance):
    X = random_rows(density=density, dtype=dtype)
    torch.manual_seed(0)
    layer = InputLinear(12, 5).to(getattr(torch, np.dtype(dtype).name))
    target = torch.randn(7, 5, dtype=layer.weight.dtype)
    outputs, gradients = [], []
    for rows in (sparse_batch(X), torch.from_numpy(X.toarray())):
        layer.zero_grad()
        output = layer(rows)
        ((output - target) ** 2).sum().backward()
        outputs.append(output.detach())
        gradients.append([dense_gradient(layer.weight), layer.bias.grad])
    torch.testing.assert_close(*outputs, rtol=tolerance, atol=tolerance)
    for one, other in zip(*gradients):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=10 * tolerance)


def layer_with_few_rows(used, n_outputs=4, n_members=2):
    with setting(DRAWS_LATER, True):
        layer = InputLinear(len(used), n_outputs, n_members)
    layer._keep(torch.from_numpy(used))
    layer._draw()
    return layer.double()


def of_all_columns(layer, dtype=torch.float64):
    whole = InputLinear(layer.n_features, layer.weight.shape[1]).to(dtype)
    whole.weight.data = layer.weight.data[layer.row_of.long()].clone()
    whole.bias.data = layer.bias.data.clone()
    for name in ("scale", "centre", "reach"):
        setattr(whole, name, getattr(layer, name))
    return whole


@pytest.mark.parametrize("reads", ["plain", "scaled", "shortened"])
def test_a_layer_with_rows_of_few_columns_is_the_layer_of_all(reads):
    rng = np.random.default_rng(0)
    used = np.zeros(40, dtype=bool)
    used[[3, 4, 11, 30]] = True
    layer = layer_with_few_rows(used)
    assert layer.weight.shape == (5, 4)
    layer.bias.data = torch.randn(4, dtype=torch.float64)
    if reads != "plain":
        layer.rescale(rng.uniform(1, 2, 40))
    if reads == "shortened":
        layer.shorten(rng.random(40), np.full(40, 0.5))
    whole = of_all_columns(layer)
    given = sp.random(9, 40, 0.5, "csr", rng=rng)
    seen = given.multiply(used).tocsr()
    for X in (given, seen):
        for rows in (sparse_batch(X), torch.from_numpy(X.toarray())):
            torch.testing.assert_close(layer(rows), whole(rows))
    batch, target = sparse_batch(seen), torch.randn(9, 4, dtype=torch.float64)
    for each in (layer, whole):
        (each(batch) * target).sum().backward()
    origin = layer.row_of.long()
    torch.testing.assert_close(dense_gradient(layer.weight)[origin], dense_gradient(whole.weight))
    (rows, of_layer), (columns, of_whole) = (
        each.gradients(sparse_batch(seen), target)[each.weight] for each in (layer, whole)
    )
    assert torch.equal(rows, origin[columns])
    torch.testing.assert_close(of_layer, of_whole)
    for of in (slice(None), torch.tensor([30, 2, 3])):
        some = slice(None) if isinstance(of, slice) else of
        weights = [each.of_columns(some)[0] for each in (layer, whole)]
        torch.testing.assert_close(*weights)


def test_the_gradient_of_what_a_layer_with_few_rows_reads():
    used = np.arange(20) % 7 == 0
    layer, batch = layer_with_few_rows(used), sparse_batch(random_rows(4, 20, 0.5))
    whole, gradients = of_all_columns(layer), []
    for each in (layer, whole):
        batch.data = batch.data.detach().requires_grad_()
        each(batch).square().sum().backward()
        gradients.append(batch.data.grad)
    torch.testing.assert_close(*gradients)


def test_rows_come_for_columns_that_have_none():
    used = np.arange(20) % 7 == 0
    layer = layer_with_few_rows(used)
    weight, before = layer.weight, of_all_columns(layer).weight
    layer._hold_also(torch.from_numpy(np.flatnonzero(used)))
    assert layer.weight is weight
    layer._hold_also(torch.tensor([5, 7, 19]))
    assert len(layer.weight) == 6
    assert torch.equal(of_all_columns(layer).weight, before)
    layer.weight.data[4:] = 1.0
    layer.weight.requires_grad_(False)
    layer._hold_also(torch.tensor([5, 1]))
    assert len(layer.weight) == 7
    assert not layer.weight.requires_grad
    of_columns, _ = layer.of_columns()
    assert of_columns[[5, 19]].eq(1).all()
    assert not of_columns[[1, 2]].any()
    torch.testing.assert_close(of_columns[used], before[used])
    whole = InputLinear(20, 2)
    weight = whole.weight
    whole._hold_also(torch.tensor([5]))
    assert whole.weight is weight


def test_rows_come_while_a_graph_lives():
    layer, batch = layer_with_few_rows(np.arange(20) % 7 == 0), random_rows(4, 20, 0.5)
    kept = layer(sparse_batch(batch)).sum()
    layer._hold_also(torch.arange(20))
    layer(sparse_batch(batch)).square().sum().backward()
    assert layer.weight.grad.shape == layer.weight.shape
    kept.backward()


def test_another_thread_may_predict_while_rows_come(monkeypatch):
    layer, rows = layer_with_few_rows(np.arange(20) % 7 == 0), sparse_batch(random_rows(4, 20, 0.5))
    expected = layer(rows).detach()

    def predicts_meanwhile(table, n_rows):
        assert torch.equal(layer(rows), expected)
        return lengthened(table, n_rows)

    monkeypatch.setattr(mlp, "lengthened", predicts_meanwhile)
    layer._hold_also(torch.arange(20))
    assert len(layer.weight) == 21


def test_the_gradient_of_rows_that_have_come_is_a_sum():
    layer = layer_with_few_rows(np.arange(20) % 7 == 0)
    layer._hold_also(torch.arange(20).flip(0))  # rows in another order than columns
    whole, batch = of_all_columns(layer), sparse_batch(random_rows(4, 20, 0.5))
    for each in (layer, whole):
        (each(batch) + each(batch)).square().sum().backward()
    found = dense_gradient(layer.weight)[layer.row_of.long()]
    torch.testing.assert_close(found, dense_gradient(whole.weight))


def test_the_sparse_gradient_holds_the_columns_of_the_batch():
    X = random_rows()
    layer = InputLinear(12, 5).double()
    layer(sparse_batch(X)).sum().backward()
    gradient = layer.weight.grad
    assert gradient.is_sparse
    assert gradient.shape == (12, 5)
    rows = gradient._indices()[0]
    np.testing.assert_array_equal(rows, np.unique(X.indices))


def test_gradcheck():
    X = random_rows(4, 6, 0.5)
    batch = sparse_batch(X)

    class Dense(torch.autograd.Function):
        """The sparse layer with its gradient made dense, as `gradcheck` needs it."""

        @staticmethod
        def forward(ctx, weight):
            with torch.enable_grad():
                ctx.layer = InputLinear(6, 3).double()
                ctx.layer.weight.data = weight.detach().clone()
                ctx.output = ctx.layer(batch)
            return ctx.output.detach()

        @staticmethod
        def backward(ctx, gradient):
            ctx.output.backward(gradient, retain_graph=True)
            dense = dense_gradient(ctx.layer.weight)
            ctx.layer.weight.grad = None
            return dense

    weight = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Dense.apply, (weight,))


@pytest.mark.parametrize("sizes", [(4,), (6, 5), (3, 3, 3)])
def test_mlp_is_its_layers(sizes):
    X = random_rows()
    torch.manual_seed(0)
    encoder = MLPEncoder(12, sizes).double()
    features = torch.from_numpy(X.toarray()) @ encoder.input.weight + encoder.input.bias
    linears = [layer for layer in encoder.layers if isinstance(layer, nn.Linear)]
    assert [layer.out_features for layer in linears] == list(sizes[1:])
    features = torch.relu(nn.functional.layer_norm(features, sizes[:1]))
    for layer, size in zip(linears, sizes[1:]):
        features = torch.relu(nn.functional.layer_norm(layer(features), (size,)))
    for rows in (sparse_batch(X), torch.from_numpy(X.toarray())):
        torch.testing.assert_close(encoder(rows), features)
    assert encoder.n_outputs == sizes[-1]


def member_of(encoder, member, sizes):
    """Encoder of one member, with its weights."""
    single = MLPEncoder(12, sizes).double()
    theirs = dict(encoder.named_parameters())
    for name, parameter in single.named_parameters():
        dim = 1 if name == "input.weight" else 0
        parameter.data.copy_(theirs[name].detach().chunk(3, dim)[member])
    return single


@pytest.mark.parametrize("sizes", [(4,), (6, 5), (3, 3, 3)])
def test_members_are_networks_side_by_side(sizes):
    X = random_rows()
    torch.manual_seed(0)
    encoder = MLPEncoder(12, sizes, n_members=3).double()
    for parameter in encoder.parameters():
        parameter.data += torch.randn_like(parameter)
    assert encoder.n_outputs == 3 * sizes[-1]
    for rows in (sparse_batch(X), torch.from_numpy(X.toarray())):
        encoder.zero_grad()
        features = encoder(rows)
        slopes = torch.randn_like(features)
        features.backward(slopes)
        gradients = {name: p.grad.to_dense() for name, p in encoder.named_parameters()}
        for member, (ours, slope) in enumerate(zip(features.chunk(3, 1), slopes.chunk(3, 1))):
            single = member_of(encoder, member, sizes)
            theirs = single(rows)
            torch.testing.assert_close(ours, theirs)
            theirs.backward(slope)
            for name, parameter in single.named_parameters():
                part = gradients[name].chunk(3, 1 if name == "input.weight" else 0)[member]
                torch.testing.assert_close(part, parameter.grad.to_dense())


def test_members_begin_like_networks_of_their_own():
    torch.manual_seed(0)
    encoder = MLPEncoder(500, (100, 900), n_members=5)
    alone = MLPEncoder(500, (100, 900))
    layers = zip(
        (encoder.input.weight, encoder.layers[2].weight, encoder.layers[2].bias),
        (alone.input.weight, alone.layers[2].weight, alone.layers[2].bias),
    )
    for together, single in layers:
        torch.testing.assert_close(together.std(), single.std(), rtol=0.1, atol=0)
        torch.testing.assert_close(together.abs().max(), single.abs().max(), rtol=0.1, atol=0)


def test_leaky_layers():
    X, slope = torch.from_numpy(random_rows().toarray()), 0.3
    torch.manual_seed(0)
    leaky = MLPEncoder(12, (6, 5), negative_slope=slope).double()
    relu = MLPEncoder(12, (6, 5)).double()
    relu.load_state_dict(leaky.state_dict())
    steps = (relu.input, relu.layers[0], relu.layers[2], relu.layers[3])
    features = X
    for linear, norm in (steps[:2], steps[2:]):
        values = norm(linear(features))
        features = values.where(values > 0, slope * values)
    torch.testing.assert_close(leaky(X), features)
    assert not torch.equal(leaky(X), relu(X))


def test_dropout_is_for_training():
    encoder = MLPEncoder(12, (50, 50), dropout=0.5)
    assert sum(isinstance(layer, nn.Dropout) for layer in encoder.layers) == 2
    assert not any(isinstance(layer, nn.Dropout) for layer in MLPEncoder(12, (5,)).layers)
    rows = torch.randn(3, 12)
    assert not torch.equal(encoder(rows), encoder(rows))
    encoder.eval()
    assert torch.equal(encoder(rows), encoder(rows))


@pytest.mark.parametrize("sparse", [True, False])
def test_row_parameters_are_those_of_a_sparse_input(sparse):
    encoder = MLPEncoder(12, (5,), sparse=sparse)
    assert encoder.row_parameters() == ([encoder.input.weight] if sparse else [])


def test_the_input_layer_has_a_rule_of_its_own():
    for sparse in (True, False):
        encoder = MLPEncoder(12, (5,), sparse=sparse)
        assert encoder.input_parameters() == [encoder.input.weight]


def test_standardised_columns_are_those_of_a_plain_layer_on_columns_brought_to_one_scale():
    rng = np.random.default_rng(0)
    spread = np.array([1e-6, 0.5, 1, 2, 9, 20, 1])
    X = rng.normal(size=(400, 7)) * spread + 10 * spread
    X[:, 6] = 3.0  # constant
    plain = InputLinear(7, 4, sparse=False).double()
    layer = InputLinear(7, 4, sparse=False).double()
    layer.load_state_dict(plain.state_dict())
    assert not layer.is_standardised()
    torch.testing.assert_close(layer(torch.from_numpy(X)), plain(torch.from_numpy(X)))
    deviation = X.std(0)
    deviation[6] = 0
    layer.standardise(X.mean(0), deviation)
    assert layer.is_standardised()
    assert not layer.weight[6].any()
    # Deviations keep their proportions between a third and three times the median.
    unit = np.median(deviation[:6])
    scaled = ((X - X.mean(0)) / np.where(deviation, deviation, 1))[:, :6]
    scaled *= np.clip(deviation[:6] / unit, 1 / 3, 3)
    np.testing.assert_allclose(scaled.std(0)[[0, 5]], [1 / 3, 3])
    expected = plain(torch.from_numpy(np.column_stack([scaled, np.zeros(400)])))
    torch.testing.assert_close(layer(torch.from_numpy(X)), expected)
    weight, bias = layer.of_columns()
    torch.testing.assert_close(torch.from_numpy(X) @ weight + bias, expected)
    rows = sparse_batch(sp.csr_matrix(X))
    torch.testing.assert_close(layer(rows), expected)


def test_columns_of_other_units_get_the_same_deviation():
    scale = np.array([1.0, 2.0, 0.1, 29.0, 0.0])
    layer = InputLinear(5, 4, sparse=False)
    layer.standardise(np.zeros(5), scale)
    median = 1.5
    kept = scale[:4] / layer.scale.numpy()[:4]
    np.testing.assert_allclose(kept, [1 / median, 2 / median, 1 / 3, 3], rtol=1e-6)
    scale[3] = 46.0  # more than thirty times the median
    layer.standardise(np.zeros(5), scale)
    np.testing.assert_allclose(scale[:4] / layer.scale.numpy()[:4], 1, rtol=1e-6)
    assert layer.scale[4] == median  # it may vary later in a stream


def test_long_tails_are_shortened_before_columns_are_standardised():
    rng = np.random.default_rng(0)
    X = np.exp(2 * rng.normal(size=(400, 3))) * [1, 1, 100]
    X[::3] = 0
    plain = InputLinear(3, 4, sparse=False).double()
    layer = InputLinear(3, 4, sparse=False).double()
    layer.load_state_dict(plain.state_dict())
    assert layer.reach is None
    layer.shorten(np.array([0.5, 0, 50]), np.array([0.25, 0, 25]))
    assert layer.reach is not None
    z = (X - [0.5, 0, 50]) / [0.25, 1, 25]
    short = np.where([True, False, True], np.sign(z) * np.log1p(np.abs(z)), X)
    np.testing.assert_allclose(layer.shortened(torch.from_numpy(X)).numpy(), short)
    layer.standardise(short.mean(0), short.std(0))
    scaled = torch.from_numpy((short - layer.mean.numpy()) / layer.scale.numpy())
    torch.testing.assert_close(layer.standardised(torch.from_numpy(X)), scaled)
    expected = plain(scaled)
    torch.testing.assert_close(layer(torch.from_numpy(X)), expected)
    rows = sparse_batch(sp.csr_matrix(X))
    torch.testing.assert_close(layer(rows), expected)
    weight, bias = layer.of_columns()
    entries = layer.entries(torch.from_numpy(X))
    assert not entries[::3].any()
    torch.testing.assert_close(entries @ weight + bias, expected)


def test_sparse_layers_are_not_standardised():
    layer = InputLinear(3, 2)
    assert layer.mean is None
    assert not layer.is_standardised()
    assert layer.reach is None
    assert layer.of_columns() == (layer.weight, layer.bias)
    assert set(layer.state_dict()) == {"weight", "bias"}


def test_sparse_rows_know_their_length_and_move():
    batch = sparse_batch(random_rows())
    assert len(batch) == 7
    moved = batch.to(torch.device("cpu"))
    assert isinstance(moved, SparseRows)
    assert moved.n_features == 12
    torch.testing.assert_close(InputLinear(12, 2).double()(moved).shape, torch.Size([7, 2]))


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_index_types(index_type):
    X = random_rows()
    layer = InputLinear(12, 3).double()
    expected = layer(torch.from_numpy(X.toarray()))
    X.indices, X.indptr = X.indices.astype(index_type), X.indptr.astype(index_type)
    torch.testing.assert_close(layer(sparse_batch(X)), expected)
