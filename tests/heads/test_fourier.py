"""The Fourier head: three ways to one product, its gradients, and its first logits."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from _factories import ONE_EACH, ROW_WEIGHT, SEVERAL, plain_loss
from sklearn_xlc.distributed.processes import Processes
from sklearn_xlc.distributed.shards import sharding
from sklearn_xlc.geometry import (
    fourier_adjoint,
    fourier_forward,
    fourier_matrix,
    verify_argmaxable,
)
from sklearn_xlc.heads import FourierHead, chunked, fourier
from sklearn_xlc.training import EncoderHead, RowOptimizer
from sklearn_xlc.training.resizing import with_room

N_FEATURES = 4


def make(n_labels=11, max_active=2, n_slack=3, multilabel=True, **kwargs):
    torch.manual_seed(0)
    head = FourierHead(N_FEATURES, n_labels, multilabel, max_active, n_slack, **kwargs).double()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    return head, torch.randn(4, N_FEATURES, dtype=torch.float64, requires_grad=True)


@pytest.fixture(params=["matrix", "fft", "chunk"])
def method(request, monkeypatch):
    monkeypatch.setattr(fourier, "CHUNK", 4)
    return request.param


def definition(head, features, targets, weight):
    coefficients = head.projection(features)
    basis = torch.as_tensor(fourier_matrix(head.n_labels, head.max_active))
    logits = head.gain * coefficients[:, : head.width] @ basis.T
    logits = logits + coefficients[:, head.width :] @ head.slack.T
    return plain_loss(logits, targets, weight, head.multilabel)


@pytest.mark.parametrize(
    "n_labels, max_active",
    [(11, 0), (11, 5), (12, 5), (257, 10), (4095, 40), (10_007, 80), (100_000, 3), (100_003, 3)],
)
def test_three_ways_agree_with_the_kernels(n_labels, max_active):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2, 3, dtype=torch.float64, generator=generator)
    gradient = torch.randn(2, n_labels, dtype=torch.float64, generator=generator)
    for way in ("matrix", "fft", "chunk"):
        torch.manual_seed(1)
        head = FourierHead(3, n_labels, True, max_active, method=way).double()
        torch.nn.init.normal_(head.projection.weight)
        inputs = head.inputs(features).detach()
        logits = torch.cat([head.logits(inputs, chunk) for chunk in head.chunks()], 1)
        expected = fourier_forward(inputs.numpy(), n_labels)
        np.testing.assert_allclose(logits.numpy(), expected, rtol=0, atol=1e-10 * head.gain)
        into = torch.zeros_like(inputs)
        for chunk in head.chunks():
            head.backward(inputs, chunk, gradient[:, chunk].contiguous(), into, None)
        expected = fourier_adjoint(gradient.numpy(), max_active)
        np.testing.assert_allclose(into.numpy(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n_slack", [0, 3])
@pytest.mark.parametrize("multilabel", [True, False])
def test_loss_is_its_definition_and_its_gradient_is_right(monkeypatch, method, multilabel, n_slack):
    monkeypatch.setattr(FourierHead, "forward", FourierHead.loss)  # for functional_call
    head, features = make(multilabel=multilabel, n_slack=n_slack, method=method)
    targets = SEVERAL if multilabel else ONE_EACH
    loss = head.loss(features, targets, ROW_WEIGHT)
    torch.testing.assert_close(loss, definition(head, features, targets, ROW_WEIGHT))
    with torch.no_grad():
        torch.testing.assert_close(head.loss(features, targets, ROW_WEIGHT), loss)
    names = [name for name, p in head.named_parameters() if p.numel()]
    tensors = [dict(head.named_parameters())[n].detach().clone().requires_grad_() for n in names]

    def call(features, *parameters):
        return torch.func.functional_call(
            head, dict(zip(names, parameters)), (features, targets, ROW_WEIGHT)
        )

    # Every entry of one method; the three agree (see the tests of the kernels).
    assert gradcheck(call, (features, *tensors), fast_mode=method != "matrix")


@pytest.mark.parametrize("rule", ["sgd", "adam", "adagrad"])
def test_fused_step_equals_the_unfused_step(method, rule):
    results = []
    for fused in (True, False):
        head, features = make(method=method)
        fused_group = {"params": head.fused_parameters(), "rule": rule, "fused": fused}
        rest = {"params": list(head.projection.parameters()), "rule": rule}
        optimizer = RowOptimizer([fused_group, rest], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            update = optimizer.update if fused else None
            head.loss(features, SEVERAL, None, update).backward()
            optimizer.step()
        results.append([p.detach().clone() for p in head.parameters()])
    for one, other in zip(*results):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("multilabel", [True, False])
@pytest.mark.parametrize("n_slack", [1, 5])
def test_first_logits_are_the_frequency_of_each_label(method, multilabel, n_slack):
    torch.manual_seed(0)
    head = FourierHead(N_FEATURES, 11, multilabel, 2, n_slack, method=method).double()
    frequency = torch.rand(11, dtype=torch.float64) * 0.2 + 0.01
    frequency = frequency if multilabel else frequency / frequency.sum()
    head.set_prior(frequency)
    scores = head.scores(torch.randn(3, N_FEATURES, dtype=torch.float64))
    probabilities = scores.sigmoid() if multilabel else scores.softmax(1)
    torch.testing.assert_close(probabilities, frequency.expand(3, -1), rtol=1e-12, atol=1e-14)


def test_first_logits_without_slack_are_the_mean_number_of_labels(method):
    head = FourierHead(N_FEATURES, 11, True, 2, method=method).double()
    frequency = torch.rand(11, dtype=torch.float64) * 0.2
    head.set_prior(frequency)
    scores = head.scores(torch.randn(3, N_FEATURES, dtype=torch.float64))
    expected = torch.logit(frequency.mean()).expand(3, 11)  # logit(mean labels a row / n)
    torch.testing.assert_close(scores, expected, rtol=1e-12, atol=1e-14)


def test_gradients_of_half_precision_are_close_and_logits_exact(method):
    head, features = make(method=method, precision="bfloat16")
    head, features = head.float(), features.detach().float().requires_grad_()
    exact, _ = make(method=method)
    exact.float().load_state_dict(head.state_dict())
    expected = exact.loss(features, SEVERAL)
    (slope,) = torch.autograd.grad(expected, features)
    seen = []
    loss = head.loss(features, SEVERAL, None, lambda p, rows, gradient: seen.append(gradient.dtype))
    (low_slope,) = torch.autograd.grad(loss, features)
    assert torch.equal(loss, expected)
    torch.testing.assert_close(low_slope, slope, rtol=0, atol=2e-2 * float(slope.abs().max()))
    assert torch.equal(low_slope, slope) == (method == "fft")  # a transform has one precision
    assert set(seen) == {torch.float32}


@pytest.mark.parametrize("k", [1, 4, 11])
def test_topk_is_the_order_of_the_scores(method, k):
    head, features = make(method=method)
    scores, ids = head.topk(features, k)
    expected, expected_ids = head.scores(features).topk(k, dim=1)
    torch.testing.assert_close(scores, expected)
    torch.testing.assert_close(ids, expected_ids)


def test_output_weights_give_the_scores(method):
    head, features = make(method=method)
    expected = head.inputs(features).detach().numpy() @ head.output_weights().T
    np.testing.assert_allclose(head.scores(features).detach().numpy(), expected, atol=1e-12)


def test_tables_are_not_saved_and_not_parameters():
    head, features = make(n_labels=5000, max_active=40, n_slack=0)
    expected = head.scores(features)
    assert len(pickle.dumps(head)) < 20_000
    assert sum(p.numel() for p in head.parameters()) == 81 * (N_FEATURES + 1)
    again = copy.deepcopy(head)
    assert not again._tables
    torch.testing.assert_close(again.scores(features), expected, rtol=0, atol=0)


def test_as_many_columns_as_labels_are_refused():
    with pytest.raises(ValueError, match="max_active=3 needs 7 Fourier columns, more than n_la"):
        FourierHead(N_FEATURES, 6, True, 3)


def test_single_precision_at_a_million_labels_is_close():
    torch.manual_seed(0)
    head = FourierHead(3, 1_000_000, True, 80)
    torch.nn.init.normal_(head.projection.weight, std=0.1)
    features = torch.randn(1, 3)
    with torch.no_grad():
        scores = head.scores(features)[0]
        exact = fourier_forward(head.inputs(features)[0].double().numpy(), 1_000_000)
    assert np.abs(scores.numpy() - exact).max() < 1e-5 * np.abs(exact).max()
    assert chunked.CHUNK < 1_000_000


@pytest.mark.parametrize(
    "n_labels, max_active, memory_limit, way",
    [
        (1_000, 80, 2**30, "matrix"),
        (4_000, 80, 2**30, "fft"),
        (4_001, 80, 2**30, "matrix"),  # a prime
        (4_000, 30, 2**30, "matrix"),
        (30_000, 30, 2**30, "chunk"),
        (30_000, 80, 2**30, "fft"),
        (30_000, 80, 2**24, "chunk"),  # its logits would not fit
        (1_000_000, 80, 2**30, "chunk"),
    ],
)
def test_the_fastest_way_is_chosen(n_labels, max_active, memory_limit, way):
    head = FourierHead(3, n_labels, True, max_active, memory_limit=memory_limit)
    assert head.method == way


def grown(head, n_labels):
    """Head with positions for labels that came later, made as a classifier makes it."""
    module = EncoderHead(torch.nn.Identity(), head)
    head = with_room(module, n_labels, RowOptimizer([{"params": list(module.parameters())}]))[
        0
    ].head
    head.set_free(torch.zeros(n_labels, dtype=torch.bool))
    torch.nn.init.normal_(head.slack)
    return head


def test_labels_that_come_later_lie_between_the_others(method):
    head, features = make(method=method, n_labels=11)
    before = head.output_weights()
    head = grown(grown(head, 14), 37)  # halves, quarters and three quarters of the gaps
    weights = head.output_weights()
    np.testing.assert_array_equal(weights[:11, :5], before[:, :5])
    angles = np.arctan2(weights[:, 2], weights[:, 1]) % (2 * np.pi) * 11 / (2 * np.pi)
    parts = [0.0] * 11 + [0.5] * 11 + [0.25] * 11 + [0.75] * 4
    np.testing.assert_allclose(angles, np.arange(37) % 11 + parts, atol=1e-12)
    inputs = head.inputs(features)
    expected = inputs @ torch.from_numpy(weights).T
    torch.testing.assert_close(head.scores(features), expected)
    loss = head.loss(features, SEVERAL, ROW_WEIGHT)
    plain = plain_loss(expected, SEVERAL, ROW_WEIGHT, True)
    torch.testing.assert_close(loss, plain)
    parameters = [features, head.projection.weight]
    for one, other in zip(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(plain, parameters)
    ):
        torch.testing.assert_close(one, other)


def test_the_guarantee_holds_for_labels_that_come_later():
    head, _ = make(n_labels=7, max_active=2, n_slack=0)
    weights = grown(head, 12).output_weights()
    sets = [np.isin(np.arange(12), pair) for pair in itertools.combinations(range(12), 2)]
    assert verify_argmaxable(weights, np.array(sets, dtype=int)).status.tolist() == [1] * len(sets)


@pytest.mark.parametrize("n_slack", [0, 2])
def test_what_is_cut_is_a_table_of_the_shard(n_slack):
    """Otherwise nothing knows that a table in a state is a part of a larger one."""
    head = FourierHead(N_FEATURES, 11, True, 2, n_slack, shard_of=sharding(Processes(0, 2)))
    shards = head.sharded_parameters()
    assert (head.slack in shards) == (len(head.slack) < 11) == bool(n_slack)
