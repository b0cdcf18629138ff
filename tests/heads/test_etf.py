"""The ETF head: the implicit form, the pick-all-labels loss, and the collapse that it causes."""

import copy
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch.autograd import gradcheck

from _factories import ONE_EACH, ROW_WEIGHT, SEVERAL
from sklearn_xlc.batches import Targets
from sklearn_xlc.geometry import simplex_etf
from sklearn_xlc.heads import ETFHead, PickAllLabels, chunked
from sklearn_xlc.metrics import neural_collapse
from sklearn_xlc.training import RowOptimizer

N_LABELS, N_FEATURES = 11, 6
FORMS = {
    "implicit": {"feature_dim": N_LABELS},
    "minimal": {"feature_dim": N_LABELS - 1},
    "wide": {"feature_dim": N_LABELS + 4},
    "frame": {"feature_dim": 4},
    "no-layer": {},
    "learned": {"feature_dim": 5, "learned": True},
}


def make(multilabel=True, **params):
    torch.manual_seed(0)
    head = ETFHead(N_FEATURES, N_LABELS, multilabel, **params).double()
    if head.bias is not None:
        torch.nn.init.normal_(head.bias)
    return head, torch.randn(4, N_FEATURES, dtype=torch.float64, requires_grad=True)


def explicit_logits(head, features):
    logits = head.inputs(features) @ head.classifier(features).T
    return logits if head.bias is None else logits + head.bias


def definition(head, features, targets, weight):
    """Section 2 of the paper, label by label."""
    logits, rows = explicit_logits(head, features), []
    for row in range(len(targets)):
        positives = targets.ids[targets.indptr[row] : targets.indptr[row + 1]]
        rest = [k for k in range(head.n_labels) if k not in positives.tolist()]
        terms = []
        for k in positives.tolist():
            alone = logits[row, [k, *rest]].logsumexp(0)
            shared = head.criterion.competition
            both = shared * logits[row].logsumexp(0) + (1 - shared) * alone
            terms.append(both - logits[row, k])
        total = sum(terms, torch.zeros((), dtype=logits.dtype))
        rows.append(total / max(1, len(terms)) if head.criterion.reduction == "mean" else total)
    penalty = head.feature_decay * head.inputs(features).square().sum(1)
    return (weight * (torch.stack(rows) + penalty)).mean()


@pytest.mark.parametrize("chunk", [3, 4096])
@pytest.mark.parametrize("form", FORMS)
def test_logits_are_products_with_the_frame(monkeypatch, form, chunk):
    monkeypatch.setattr(chunked, "CHUNK", chunk)
    head, features = make(**FORMS[form])
    expected = explicit_logits(head, features)
    scores = head.scores(features)
    torch.testing.assert_close(scores, expected.log_softmax(1))
    torch.testing.assert_close(head.layer_products(head.inputs(features)) + head.bias, expected)
    if head.weight is None:
        frame = head.classifier(features)
        np.testing.assert_allclose(frame.square().sum(1), 1.0, rtol=1e-12)
        assert head.is_simplex is (form in ("implicit", "minimal", "wide"))
    best, ids = head.topk(features, 4)
    torch.testing.assert_close(best, scores.topk(4)[0])
    torch.testing.assert_close(ids, scores.topk(4)[1])


def test_implicit_form_needs_no_matrix_and_no_parameters():
    head, features = make(feature_dim=N_LABELS, with_bias=False)
    assert head.is_implicit
    head.loss(features, SEVERAL).backward()
    assert not head._tables
    np.testing.assert_allclose(head.classifier(features), simplex_etf(N_LABELS, N_LABELS))
    assert {name for name, _ in head.named_parameters()} == {"projection.weight", "projection.bias"}


@pytest.mark.parametrize("chunk", [3, 4096])
@pytest.mark.parametrize("mean, decay", [(False, 0.3), (True, 0.0)])
@pytest.mark.parametrize("competition", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("form", ["implicit", "no-layer", "learned"])
def test_loss_is_its_definition_and_its_gradient_is_right(
    monkeypatch, form, competition, decay, mean, chunk
):
    monkeypatch.setattr(chunked, "CHUNK", chunk)
    monkeypatch.setattr(ETFHead, "forward", ETFHead.loss)  # for functional_call
    criterion = PickAllLabels(competition, "mean" if mean else "sum")
    head, features = make(**FORMS[form], feature_decay=decay, loss=criterion)
    loss = head.loss(features, SEVERAL, ROW_WEIGHT)
    torch.testing.assert_close(loss, definition(head, features, SEVERAL, ROW_WEIGHT))
    with torch.no_grad():
        torch.testing.assert_close(head.loss(features, SEVERAL, ROW_WEIGHT), loss)
    names, parameters = zip(*head.named_parameters())

    def call(features, *tensors):
        given = dict(zip(names, tensors))
        return torch.func.functional_call(head, given, (features, SEVERAL, ROW_WEIGHT))

    tensors = [p.detach().clone().requires_grad_() for p in parameters]
    assert gradcheck(call, (features, *tensors), fast_mode=chunk == 3 or mean or competition != 0.3)


@pytest.mark.parametrize("memory_limit", [1, 2**30])
def test_memory_limit_changes_nothing(monkeypatch, memory_limit):
    monkeypatch.setattr(chunked, "CHUNK", 4)
    head, features = make(feature_dim=N_LABELS, memory_limit=memory_limit)
    torch.testing.assert_close(
        head.loss(features, SEVERAL, ROW_WEIGHT), definition(head, features, SEVERAL, ROW_WEIGHT)
    )


def test_one_label_a_row_is_the_softmax_cross_entropy():
    for mean in (False, True):
        criterion = PickAllLabels(reduction="mean" if mean else "sum")
        head, features = make(multilabel=False, feature_dim=N_LABELS, loss=criterion)
        expected = torch.nn.functional.cross_entropy(explicit_logits(head, features), ONE_EACH.ids)
        torch.testing.assert_close(head.loss(features, ONE_EACH), expected)


@pytest.mark.parametrize("mean", [False, True])
def test_rows_without_labels_do_not_matter(mean):
    criterion = PickAllLabels(reduction="mean" if mean else "sum")
    head, features = make(feature_dim=N_LABELS, loss=criterion)
    head.loss(features, SEVERAL).backward()
    assert not features.grad[1].any()
    assert features.grad[0].any()


@pytest.mark.parametrize("competition", [0.0, 0.5, 1.0])
def test_rows_with_every_label(competition):
    head, _ = make(feature_dim=N_LABELS, loss=PickAllLabels(competition))
    features = torch.randn(2, N_FEATURES, dtype=torch.float64, requires_grad=True)
    targets = Targets(torch.tensor([0, N_LABELS, N_LABELS + 1]), torch.arange(N_LABELS + 1) % 11)
    loss = head.loss(features, targets)
    torch.testing.assert_close(loss, definition(head, features, targets, torch.ones(2)))
    loss.backward()
    assert features.grad.isfinite().all()


def test_fused_step_equals_the_unfused_step(monkeypatch):
    results = []
    for fused in (True, False):
        monkeypatch.setattr(chunked, "CHUNK", 4 if fused else 4096)
        head, features = make(**FORMS["learned"])
        group = {"params": head.fused_parameters(), "rule": "adam", "fused": fused}
        rest = {"params": list(head.projection.parameters()), "rule": "adam"}
        optimizer = RowOptimizer([group, rest], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            head.loss(features, SEVERAL, None, optimizer.update if fused else None).backward()
            optimizer.step()
        results.append([p.detach().clone() for p in head.parameters()])
    for one, other in zip(*results):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_prior_is_the_share_of_each_label():
    head, _ = make(feature_dim=N_LABELS)
    torch.nn.init.zeros_(head.projection.bias)
    frequency = torch.rand(N_LABELS, dtype=torch.float64) + 0.1
    head.set_prior(frequency)
    scores = head.scores(torch.zeros(1, N_FEATURES, dtype=torch.float64))[0]
    torch.testing.assert_close(scores.exp(), frequency / frequency.sum())


def test_the_frame_comes_back_from_its_seed():
    head, features = make(feature_dim=4, seed=3)
    expected = head.scores(features)
    again = copy.deepcopy(head)
    assert not again._tables
    torch.testing.assert_close(again.scores(features), expected, rtol=0, atol=0)
    other, _ = make(feature_dim=4, seed=4)
    assert (other.classifier(features) - head.classifier(features)).abs().max() > 0.1


# --- collapse: features that are free to move ------------------------------------------------


def label_sets(n_labels):
    """All sets of one and two labels."""
    singles = [(k,) for k in range(n_labels)]
    pairs = [(j, k) for j in range(n_labels) for k in range(j)]
    sets = singles + pairs
    indptr = np.cumsum([0, *map(len, sets)])
    return sets, Targets(torch.as_tensor(indptr), torch.as_tensor(np.concatenate(sets)))


def best_scale(n_labels, m, decay, mean):
    """C_m of the specification: the loss of h = C sum w_k, with its decay, at its least."""
    weight = 1.0 / m if mean else 1.0

    def value(c):
        spread = (n_labels - m) * math.exp(-c * n_labels / (n_labels - 1))
        length = c**2 * m * (n_labels - m) / (n_labels - 1)
        return weight * m * math.log(m + spread) + decay * length

    return minimize_scalar(value, bounds=(0, 100), method="bounded", options={"xatol": 1e-12}).x


def train_free_features(n_labels, decay, mean, n_copies=2, steps=400):
    sets, targets = label_sets(n_labels)
    criterion = PickAllLabels(reduction="mean" if mean else "sum")
    head = ETFHead(n_labels, n_labels, True, with_bias=False, loss=criterion).double()
    head.feature_decay = decay
    indptr = np.cumsum([0, *map(len, sets * n_copies)])
    targets = Targets(
        torch.as_tensor(indptr), torch.as_tensor(np.concatenate([*sets] * n_copies).astype(int))
    )
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(
        len(sets) * n_copies, n_labels, dtype=torch.float64, generator=generator
    ).requires_grad_()
    solver = torch.optim.LBFGS(
        [features],
        max_iter=steps,
        tolerance_grad=1e-14,
        line_search_fn="strong_wolfe",
        tolerance_change=1e-18,
    )

    def closure():
        solver.zero_grad()
        loss = head.loss(features, targets) * len(features)
        loss.backward()
        return loss

    solver.step(closure)
    return sets, targets, head, features.detach().numpy()


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("n_labels", [4, 7])
def test_free_features_collapse_to_scaled_sums(n_labels, mean):
    decay = 5e-3
    sets, targets, head, features = train_free_features(n_labels, decay, mean)
    W = simplex_etf(n_labels, n_labels)
    for row, labels in enumerate(sets * 2):
        expected = best_scale(n_labels, len(labels), decay, mean) * W[list(labels)].sum(axis=0)
        np.testing.assert_allclose(features[row], expected, rtol=0, atol=1e-4)
    Y = np.zeros((len(features), n_labels), dtype=int)
    for row, labels in enumerate(sets * 2):
        Y[row, list(labels)] = 1
    report = neural_collapse(features, Y, W)
    assert max(report["nc1"], report["nc2_means"], report["nc2_weights"], report["nc3"]) < 1e-3
    assert report["ncm"][2] < 1e-3


@pytest.mark.parametrize("mean", [False, True])
def test_loss_falls_to_its_floor(mean):
    n_labels = 6
    sets, targets = label_sets(n_labels)
    criterion = PickAllLabels(reduction="mean" if mean else "sum")
    head = ETFHead(n_labels, n_labels, True, with_bias=False, loss=criterion).double()
    W = torch.as_tensor(simplex_etf(n_labels, n_labels))
    far = torch.stack([1e3 * W[list(labels)].sum(0) for labels in sets])
    sizes = np.array([len(labels) for labels in sets])
    floor = np.log(sizes) if mean else sizes * np.log(sizes)
    assert float(head.loss(far, targets)) == pytest.approx(floor.mean(), abs=1e-12)
    near = float(head.loss(far / 300, targets))
    assert near > floor.mean() + 1e-3


@pytest.mark.parametrize("form", FORMS)
def test_half_precision_is_close_in_training_and_exact_in_prediction(form):
    exact, features = make(**FORMS[form])
    head, _ = make(**FORMS[form], precision="bfloat16")
    head, exact = head.float(), exact.float()
    features = features.detach().float().requires_grad_()
    assert torch.equal(head.eval().scores(features), exact.eval().scores(features))
    losses = [one.train().loss(features, SEVERAL) for one in (head, exact)]
    assert not torch.equal(*losses)
    torch.testing.assert_close(*losses, rtol=2e-2, atol=0)
    gradients = [
        torch.autograd.grad(loss, [features, *one.parameters()])
        for loss, one in zip(losses, (head, exact))
    ]
    for one, other in zip(*gradients):
        assert one.dtype == torch.float32
        assert (one - other).norm() <= 0.03 * other.norm() + 1e-6
