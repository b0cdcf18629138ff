"""The fused loss of the flat head against autograd, and its ranking."""

import pytest
import torch
from torch.autograd import gradcheck

from _factories import ONE_EACH, ROW_WEIGHT, SEVERAL, plain_loss
from sklearn_xlc.heads import FlatHead, chunked
from sklearn_xlc.training import RowOptimizer

N_LABELS, N_FEATURES = 11, 4


def make(multilabel, dtype=torch.float64, **kwargs):
    torch.manual_seed(0)
    head = FlatHead(N_FEATURES, N_LABELS, multilabel, **kwargs).to(dtype)
    if head.bias is not None:
        torch.nn.init.normal_(head.bias)
    features = torch.randn(4, N_FEATURES, dtype=dtype, requires_grad=True)
    return head, features, SEVERAL if multilabel else ONE_EACH


def definition(head, features, targets, weight):
    logits = features @ head.weight.T + head.bias
    return plain_loss(logits, targets, weight, head.multilabel)


@pytest.mark.parametrize("multilabel", [True, False])
def test_plain_loss_equals_its_definition_and_gradients_are_right(multilabel):
    head, features, targets = make(multilabel)
    loss = head.loss(features, targets, ROW_WEIGHT)
    torch.testing.assert_close(loss, definition(head, features, targets, ROW_WEIGHT))
    assert gradcheck(lambda x, w, b: functional(head, x, w, b, targets), (features, *tensors(head)))


def tensors(head):
    return [p.detach().clone().requires_grad_() for p in (head.weight, head.bias)]


def functional(head, features, weight, bias, targets):
    parameters = {"weight": weight, "bias": bias}
    return torch.func.functional_call(head, parameters, (features, targets, ROW_WEIGHT))


@pytest.fixture(autouse=True)
def loss_as_forward(monkeypatch):
    """functional_call goes through forward."""
    monkeypatch.setattr(FlatHead, "forward", FlatHead.loss)


@pytest.mark.parametrize("chunk", [1, 3, 4096])
@pytest.mark.parametrize("memory_limit", [1, 2**30])
@pytest.mark.parametrize("multilabel", [True, False])
def test_fused_loss_equals_the_plain_one(monkeypatch, multilabel, memory_limit, chunk):
    monkeypatch.setattr(chunked, "CHUNK", chunk)
    head, features, targets = make(multilabel, memory_limit=memory_limit)
    head.loss(features, targets, ROW_WEIGHT).backward()
    expected = {id(p): p.grad for p in head.parameters()}
    feature_gradient, features.grad = features.grad, None

    seen = {id(p): torch.zeros_like(p) for p in head.parameters()}

    def update(parameter, rows, gradient):
        seen[id(parameter)][rows] += gradient

    loss = head.loss(features, targets, ROW_WEIGHT, update)
    loss.backward()
    torch.testing.assert_close(loss, definition(head, features, targets, ROW_WEIGHT))
    torch.testing.assert_close(features.grad, feature_gradient)
    for key, gradient in expected.items():
        torch.testing.assert_close(seen[key], gradient)


@pytest.mark.parametrize("rule", ["sgd", "adam", "adagrad"])
@pytest.mark.parametrize("multilabel", [True, False])
def test_fused_step_equals_the_unfused_step(monkeypatch, multilabel, rule):
    results = []
    for fused in (True, False):
        monkeypatch.setattr(chunked, "CHUNK", 4 if fused else 4096)
        head, features, targets = make(multilabel)
        group = {"params": list(head.parameters()), "rule": rule, "fused": fused}
        optimizer = RowOptimizer([group], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = head.loss(features, targets, None, optimizer.update if fused else None)
            loss.backward()
            optimizer.step()
        results.append([p.detach().clone() for p in head.parameters()])
    for one, other in zip(*results):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_half_precision_is_close_and_keeps_the_weights_type():
    head, features, targets = make(True, torch.float32, precision="bfloat16")
    exact = definition(head, features, targets, torch.ones(4))
    seen = []
    loss = head.loss(features, targets, None, lambda p, rows, gradient: seen.append(gradient.dtype))
    torch.testing.assert_close(loss, exact, rtol=2e-2, atol=0)
    assert set(seen) == {torch.float32}


@pytest.mark.parametrize("k", [1, 4, N_LABELS])
def test_topk_is_the_order_of_the_scores(monkeypatch, k):
    monkeypatch.setattr(chunked, "CHUNK", 3)
    head, features, _ = make(True)
    scores, ids = head.topk(features, k)
    expected, expected_ids = head.scores(features).topk(k, dim=1)
    torch.testing.assert_close(scores, expected)
    torch.testing.assert_close(ids, expected_ids)


@pytest.mark.parametrize("multilabel", [True, False])
def test_prior_is_what_zero_features_predict(multilabel):
    head, _, _ = make(multilabel)
    frequency = torch.rand(N_LABELS, dtype=torch.float64) * 0.2 + 0.01
    frequency = frequency if multilabel else frequency / frequency.sum()
    head.set_prior(frequency)
    scores = head.scores(torch.zeros(1, N_FEATURES, dtype=torch.float64))[0]
    probabilities = scores.sigmoid() if multilabel else scores.softmax(0)
    torch.testing.assert_close(probabilities, frequency)


@pytest.mark.parametrize("multilabel", [True, False])
def test_bottleneck_without_biases_is_a_product_of_two_matrices(multilabel):
    head, features, targets = make(multilabel, width=2, with_bias=False)
    head.set_prior(torch.rand(N_LABELS, dtype=torch.float64))
    inputs = features @ head.projection.weight.T + head.projection.bias
    expected = inputs @ head.weight.T
    torch.testing.assert_close(head.scores(features), expected)
    head.loss(features, targets, ROW_WEIGHT).backward()
    ours = [features.grad.clone(), *(p.grad.clone() for p in head.parameters())]
    head.zero_grad()
    features.grad = None
    head.bias = torch.zeros(N_LABELS, dtype=torch.float64)
    head.projection, linear = torch.nn.Identity(), head.projection
    definition(head, linear(features), targets, ROW_WEIGHT).backward()
    theirs = [features.grad, head.weight.grad, linear.weight.grad, linear.bias.grad]
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one, other)
