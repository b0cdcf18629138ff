"""Every loss through every head that takes it, against dense definitions and autograd.

The definitions below are written from the papers, label by label, and share no code with the
package.
"""

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional as F

from sklearn_xlc.batches import Bags, Targets
from sklearn_xlc.heads import (
    AsymmetricLoss,
    BinaryCrossEntropy,
    CascadeHead,
    ETFHead,
    FlatHead,
    FocalLoss,
    FourierHead,
    Head,
    MIMLHead,
    PickAllLabels,
    PickAllSquaredError,
    PointwiseLoss,
    ProductHead,
    PropensityBinaryCrossEntropy,
    RowwiseLoss,
    SamplingHead,
    SoftmaxCrossEntropy,
    SquaredError,
    chunked,
    fourier,
)
from sklearn_xlc.heads.losses import LOSSES
from sklearn_xlc.metrics import propensities

N_ROWS, N_FEATURES, N_LABELS = 4, 5, 9
LABELS = Targets(torch.tensor([0, 2, 2, 5, 6]), torch.tensor([3, 8, 0, 4, 7, 8]))
CLASSES = Targets(torch.arange(5), torch.tensor([8, 0, 3, 3]))
WEIGHT = torch.tensor([1.0, 0.5, 2.0, 3.0], dtype=torch.float64)
#: Rows of a label matrix that the propensities are estimated from, and their number.
COUNTS, N_SAMPLES = torch.tensor([9.0, 3, 1, 4, 0, 2, 7, 5, 1]), 12.0


def made(loss):
    """A new loss by name, or a copy."""
    return LOSSES[loss]() if isinstance(loss, str) else copy.deepcopy(loss)


class Hinge(PointwiseLoss):
    """Squared hinge: a loss of a user's own, of values only."""

    link = None

    def negative(self, logits):
        return (1 + logits).relu().square()

    def positive(self, logits, labels):
        return (1 - logits).relu().square()


def test_losses_that_are_not_elementwise_are_refused():
    class Summed(Hinge):
        def positive(self, logits, labels):
            return super().positive(logits, labels).sum()

    class OfRows(Hinge):
        def negative(self, logits):
            return super().negative(logits).sum(1, keepdim=True)

    logits = torch.zeros(3, 4)
    with pytest.raises(ValueError, match=r"Summed.positive must .* of shape \(3, 4\), got \(\)"):
        Summed().correction(logits, torch.ones(3, 4), slice(None))
    with pytest.raises(ValueError, match=r"OfRows.negative must .* \(3, 4\), got \(3, 1\)"):
        OfRows().negative_derivative(logits)


class Poly(RowwiseLoss):
    """A row-wise loss of a user's own, of both arguments and values only."""

    def value(self, surprise, margin):
        return surprise - (-surprise).exp() + 0.3 * margin.sigmoid()


class SmoothPoly(Poly):
    """The same with label smoothing."""

    smoothing = 0.3


class FocalSoftmax(SoftmaxCrossEntropy):
    """A loss of one label a row of a user's own."""

    def value(self, surprise, margin=None):
        return (1 - (-surprise).exp()).square() * surprise


class SmoothSoftmax(SoftmaxCrossEntropy):
    """Softmax cross-entropy with label smoothing."""

    smoothing = 0.1


# --- definitions -----------------------------------------------------------------------------


def bce(z, y, label):
    return -y * z.sigmoid().log() - (1 - y) * (-z).sigmoid().log()


def asymmetric(gamma_neg, gamma_pos, clip, weights=(1.0, 1.0)):
    def definition(z, y, label):
        p = z.sigmoid()
        shifted = (p - clip).clamp(min=0)
        positive = -((1 - p) ** gamma_pos) * p.log()
        negative = -(shifted**gamma_neg) * (1 - shifted).log()
        return weights[0] * y * positive + weights[1] * (1 - y) * negative

    return definition


def propensity(z, y, label):
    p = 1 / (1 + (math.log(N_SAMPLES) - 1) * 2.5**0.55 * (COUNTS[label].item() + 1.5) ** -0.55)
    positive = -z.sigmoid().log() / p - (1 - 1 / p) * (-z).sigmoid().log()
    return y * positive - (1 - y) * (-z).sigmoid().log()


def hinge(z, y, label):
    return y * (1 - z).clamp(min=0) ** 2 + (1 - y) * (1 + z).clamp(min=0) ** 2


def squared(z, y, label):
    return (y * (z - 1) ** 2 + (1 - y) * z**2) / 2


def pick_all(competition, gamma=0.0):
    def focal(log_p):
        return -((1 - log_p.exp()) ** gamma) * log_p

    def definition(surprise, margin):
        against_negatives = 1 / (1 + margin.exp())
        return competition * focal(-surprise) + (1 - competition) * focal(against_negatives.log())

    return definition


POINTWISE = {
    "bce": ("bce", bce),
    "asymmetric": ("asymmetric", asymmetric(4.0, 0.0, 0.05)),
    "asymmetric-low": (AsymmetricLoss(0.5, 1.5, 0.2), asymmetric(0.5, 1.5, 0.2)),
    "asymmetric-unclipped": (AsymmetricLoss(2.0, 1.0, 0.0), asymmetric(2.0, 1.0, 0.0)),
    "focal": ("focal", asymmetric(2.0, 2.0, 0.0, (0.25, 0.75))),
    "focal-plain": (FocalLoss(0.5, alpha=None), asymmetric(0.5, 0.5, 0.0)),
    "propensity": ("propensity_bce", propensity),
    "squared": (SquaredError(), squared),
    "hinge": (Hinge(), hinge),
}
ROWWISE = {
    "pick-all": ("pick_all_labels", pick_all(1.0)),
    "pick-all-mean": (PickAllLabels(reduction="mean"), pick_all(1.0)),
    "pick-all-half": (PickAllLabels(0.5, "mean"), pick_all(0.5)),
    "pick-all-apart": (PickAllLabels(0.0), pick_all(0.0)),
    "pick-all-focal": (PickAllLabels(0.5, gamma=1.5), pick_all(0.5, 1.5)),
    "pick-all-smooth": (PickAllLabels(0.5, "mean", 1.5, smoothing=0.2), pick_all(0.5, 1.5)),
    "poly": (Poly(), lambda s, m: s - (-s).exp() + 0.3 / (1 + (-m).exp())),
    "poly-smooth": (SmoothPoly(), lambda s, m: s - (-s).exp() + 0.3 / (1 + (-m).exp())),
}
#: Losses of rows by their own definition.
PICKED = {
    "pick-all-squared": (PickAllSquaredError(), None),
    "pick-all-squared-mean": (PickAllSquaredError("mean"), None),
}
SOFTMAX = {
    "ce": ("ce", lambda surprise, margin: surprise),
    "focal-softmax": (FocalSoftmax(), lambda s, m: (1 - (-s).exp()) ** 2 * s),
}


def definition(criterion, value, logits, targets, weight):
    """Loss of a batch of logits, label by label."""
    if isinstance(criterion, PointwiseLoss) and value is not None:
        rows = torch.arange(len(logits)).repeat_interleave(targets.indptr.diff())
        Y = torch.zeros(logits.shape, dtype=torch.float64)
        Y[rows, targets.ids] = 1.0 if targets.values is None else targets.values
        losses = sum(value(logits[:, k], Y[:, k], k) for k in range(logits.shape[1]))
        return (weight * losses).sum() / len(weight)
    total = torch.zeros((), dtype=torch.float64)
    for row, z in enumerate(logits):
        part = slice(*targets.indptr[row : row + 2].tolist())
        ids = targets.ids[part].tolist()
        values = [1.0] * len(ids) if targets.values is None else targets.values[part].tolist()
        soft = dict(zip(ids, values))
        if isinstance(criterion, PickAllSquaredError):
            unit = torch.eye(len(z)).to(z)
            terms = [y * (z - unit[k]).square().sum() / 2 for k, y in soft.items()]
        else:
            rest = z[[k for k in range(len(z)) if k not in soft]].exp().sum().log()
            log_p, smoothing = z - z.exp().sum().log(), criterion.smoothing
            terms = [
                y * (1 - smoothing) * value(-log_p[k], rest - z[k]) - y * smoothing * log_p.mean()
                for k, y in soft.items()
            ]
        loss = sum(terms) / (max(1e-9, sum(values)) if criterion.reduction == "mean" else 1.0)
        total = total + weight[row] * loss
    return total / len(weight)


# --- heads: how to make one, and its dense logits ------------------------------------------------


def flat(multilabel, loss, **params):
    return FlatHead(N_FEATURES, N_LABELS, multilabel, loss=loss, **params)


def fourier_head(multilabel, loss, **params):
    return FourierHead(N_FEATURES, N_LABELS, multilabel, 2, 2, method="chunk", loss=loss, **params)


def etf(multilabel, loss, **params):
    params = {"feature_dim": N_LABELS, "feature_decay": 0.0, **params}
    return ETFHead(N_FEATURES, N_LABELS, multilabel, loss=loss, **params)


def miml(multilabel, loss, **params):
    return MIMLHead(N_FEATURES, N_LABELS, multilabel, 2, loss=loss, **params)


def product(multilabel, loss):
    return ProductHead(N_FEATURES, N_LABELS, multilabel, (3, 3), loss)


def cascade(multilabel, loss):
    return CascadeHead(
        N_FEATURES, N_LABELS, multilabel, (3, 3), embedding_dim=3, beam_width=3, loss=loss
    )


def sampling(multilabel, loss):
    return SamplingHead(N_FEATURES, N_LABELS, multilabel, 3, loss, n_sampled_heads=3)


CHUNKED = {"flat": flat, "fourier": fourier_head, "etf": etf}
#: Of a head that has one logit a label: make it, and the losses of each task.
CASES = [
    (make, name, loss, True, soft)
    for make, losses in [
        *((make, POINTWISE | ROWWISE | PICKED) for make in CHUNKED.values()),
        (miml, POINTWISE),
    ]
    for name, loss in losses.items()
    for soft in (False, True)
] + [
    (make, name, loss, False, soft)
    for make, losses in [
        *((make, SOFTMAX | ROWWISE | PICKED) for make in CHUNKED.values()),
        (miml, SOFTMAX),
        (sampling, SOFTMAX),
    ]
    for name, loss in losses.items()
    for soft in (False, True)
]
#: Soft labels are the loss's, and chunks the head's. A plain layer stands for all heads with the
#: other losses of a kind: of soft labels, and in one chunk.
OF_EACH_KIND = ("bce", "propensity", "pick-all", "poly-smooth", "pick-all-squared", "ce")
SLOW = [case for case in CASES if case[0] is not flat and case[1] not in OF_EACH_KIND and case[-1]]
WHOLE = [case for case in CASES if case[0] is flat or (case[1] in OF_EACH_KIND and not case[-1])]
IDS = [f"{make.__name__}-{name}-{multi}-{soft}" for make, name, _, multi, soft in CASES]


def make_targets(multilabel, soft):
    """Positives; soft ones of a class share a sample between two classes."""
    if multilabel:
        values = torch.tensor([0.3, 1.0, 0.8, 0.05, 0.6, 0.9], dtype=torch.float64)
        return Targets(LABELS.indptr, LABELS.ids, values) if soft else LABELS
    if not soft:
        return CLASSES
    ids = torch.tensor([2, 8, 0, 5, 3, 4, 3])
    values = torch.tensor([0.3, 0.7, 0.5, 0.5, 1.0, 0.2, 0.8], dtype=torch.float64)
    return Targets(torch.tensor([0, 2, 4, 5, 7]), ids, values)


def ready(make, loss, multilabel, **params):
    """A head with random weights and known label counts, and features that need a gradient."""
    torch.manual_seed(0)
    head = make(multilabel, loss, **params).double()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    head.criterion.fit(COUNTS.double(), N_SAMPLES)
    return head, torch.randn(N_ROWS, N_FEATURES, dtype=torch.float64, requires_grad=True)


def inputs_of(head, features):
    """What a head reads; bags of one instance have the logits of their instance."""
    if not isinstance(head, MIMLHead):
        return features
    return Bags(features, torch.arange(N_ROWS + 1), features)


def dense_logits(head, features):
    if isinstance(head, MIMLHead):
        return head.instance_logits(inputs_of(head, features), slice(0, N_LABELS))
    if isinstance(head, SamplingHead):
        return features @ head.weight.view(-1, N_FEATURES)[:N_LABELS].T
    inputs = head.inputs(features)
    return torch.cat([head.logits(inputs, chunk) for chunk in head.chunks()], dim=1)


@pytest.fixture
def chunk(request, monkeypatch):
    for module in (chunked, fourier):
        monkeypatch.setattr(module, "CHUNK", request.param)
    return request.param


@pytest.mark.parametrize(
    "chunk, make, name, loss, multilabel, soft",
    [pytest.param(2, *case, marks=pytest.mark.slow if case in SLOW else ()) for case in CASES]
    + [(4096, *case) for case in WHOLE],
    ids=[f"chunks-{case}" for case in IDS] + [f"whole-{IDS[CASES.index(case)]}" for case in WHOLE],
    indirect=["chunk"],
)
def test_every_loss_in_every_head(monkeypatch, chunk, make, name, loss, multilabel, soft):
    """Equal to its definition, as its gradients are; fused, chunked and recomputed alike."""
    loss, value = loss
    params = {"memory_limit": 1} if chunk == 2 and make is not sampling else {}
    head, features = ready(make, loss, multilabel, **params)
    monkeypatch.setattr(type(head), "forward", type(head).loss, raising=False)
    targets = make_targets(multilabel, soft)
    inputs = inputs_of(head, features)
    result = head.loss(inputs, targets, WEIGHT)
    expected = definition(head.criterion, value, dense_logits(head, features), targets, WEIGHT)
    torch.testing.assert_close(result, expected)
    variables = [features, *head.parameters()]
    ours = torch.autograd.grad(result, variables)
    theirs = torch.autograd.grad(expected, variables, materialize_grads=True)
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one.to_dense(), other)
    with torch.no_grad():
        torch.testing.assert_close(head.loss(inputs, targets, WEIGHT), result)
    check_fused(head, inputs, targets, dict(zip(map(id, variables), ours)))
    if chunk == 2 and name in OF_EACH_KIND:  # the others have the gradient of their definition
        loss = partial(head.loss, targets=targets, sample_weight=WEIGHT)
        assert gradcheck(lambda x: loss(inputs_of(head, x)), (features,), fast_mode=True)


def check_fused(head, inputs, targets, gradients):
    """Gradients that `update` is given, chunk by chunk, are those of the unfused loss."""
    seen = {id(p): torch.zeros_like(p) for p in head.fused_parameters()}

    def update(parameter, rows, gradient):
        seen[id(parameter)][rows] += gradient

    head.loss(inputs, targets, WEIGHT, update)
    for key, total in seen.items():
        torch.testing.assert_close(total, gradients[key])


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("name", [name for name in POINTWISE if name != "propensity"])
def test_nodes_of_a_cascade_and_digits_of_a_product(name, soft):
    """Every node or digit is scored like a label; here the beam holds all of them."""
    loss, value = POINTWISE[name]
    targets = make_targets(True, soft)
    head, features = ready(cascade, loss, True)
    first = head.first(features)
    query = torch.cat([head.queries[0](features), torch.ones(N_ROWS, 1).double()], dim=1)
    second = query @ head.tables[0].view(N_LABELS, -1).T
    expected = sum(
        definition(head.criterion, value, logits, digits(targets, size, "max"), WEIGHT)
        for logits, size in ((first, 3), (second, 1))
    )
    torch.testing.assert_close(head.loss(features, targets, WEIGHT), expected)
    head, features = ready(product, loss, False)
    targets = make_targets(False, soft)
    parts = head.linear(features).split(3, dim=1)
    expected = sum(
        definition(head.criterion, value, part, digits(targets, size, "sum"), WEIGHT)
        for part, size in zip(parts, (3, 1))
    )
    torch.testing.assert_close(head.loss(features, targets, WEIGHT), expected / 6)
    assert gradcheck(lambda x: head.loss(x, targets, WEIGHT), (features,))


def digits(targets, size, join):
    """Targets of the nodes of `size` labels (of the last digit: modulo 3, if they add up)."""
    rows = [{} for _ in range(N_ROWS)]
    for row, label, y in zip(targets.rows, targets.ids, targets.values_like(WEIGHT)):
        node = int(label) // size % (3 if join == "sum" else 99)
        before = rows[row].get(node, 0.0)
        rows[row][node] = before + float(y) if join == "sum" else max(before, float(y))
    indptr = torch.as_tensor(np.cumsum([0, *map(len, rows)]))
    ids = torch.tensor([node for row in rows for node in row])
    values = torch.tensor([y for row in rows for y in row.values()], dtype=torch.float64)
    return Targets(indptr, ids, values)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("name", SOFTMAX)
@pytest.mark.parametrize("make", [product, cascade])
def test_classes_of_digits(make, name, soft):
    """The surprise of a class is the sum of those of its digits."""
    loss, value = SOFTMAX[name]
    head, features = ready(make, loss, False)
    targets = make_targets(False, soft)
    scores = head.scores(features)  # log-probabilities: each class exists
    with torch.no_grad():
        expected = definition(head.criterion, value, scores.detach(), targets, WEIGHT)
        torch.testing.assert_close(head.loss(features, targets, WEIGHT), expected)
    if make is product:
        assert gradcheck(lambda x: head.loss(x, targets, WEIGHT), (features,))


# --- single losses -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", POINTWISE)
def test_derivatives_and_forms_agree(name):
    criterion = made(POINTWISE[name][0])
    criterion.fit(torch.tensor([5.0, 2.0]).double(), N_SAMPLES)
    z = torch.randn(30, 2, dtype=torch.float64) * 3
    y, labels = torch.rand(30, 2, dtype=torch.float64), slice(0, 2)
    logits = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(criterion.negative(logits).sum(), logits)
    torch.testing.assert_close(criterion.negative_derivative(z.clone()), slope)
    excess, slope = criterion.correction(z, y, labels)
    mixed = y * criterion.positive(z, labels) + (1 - y) * criterion.negative(z)
    torch.testing.assert_close(excess, mixed - criterion.negative(z))
    torch.testing.assert_close(criterion(z, y, labels), mixed)
    value = criterion(logits, y, labels) - criterion.negative(logits)
    torch.testing.assert_close(slope, torch.autograd.grad(value.sum(), logits)[0])


@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_logits_stay_finite(name, dtype):
    check_extreme_logits(POINTWISE[name][0], dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_logits_stay_finite_with_a_clip_that_rounding_swallows(dtype):
    check_extreme_logits(AsymmetricLoss(clip=torch.finfo(dtype).eps / 8), dtype)


def check_extreme_logits(criterion, dtype):
    criterion = made(criterion).to(dtype)
    criterion.fit(torch.tensor([5.0]), N_SAMPLES)
    z = torch.tensor([[-1e3], [-200.0], [-90.0], [0.0], [17.0], [90.0], [1e3]], dtype=dtype)
    for y in (torch.zeros_like(z), torch.ones_like(z)):
        logits = z.clone().requires_grad_()
        value = criterion(logits, y)
        value.sum().backward()
        assert value.isfinite().all()
        assert logits.grad.isfinite().all()
    assert criterion.negative_derivative(z.clone()).isfinite().all()


def test_focal_competition_is_finite_where_a_label_is_certain():
    criterion = PickAllLabels(0.5, gamma=0.5)
    surprise = torch.tensor([0.0, 1e-30, 1e-5, 1.0, 1e3])
    margin = torch.tensor([-1e3, -80.0, -10.0, 0.0, 1e3])
    value, slopes = criterion.value(surprise, margin), criterion.derivative(surprise, margin)
    assert all(part.isfinite().all() for part in (value, *slopes))
    assert value[0].item() == pytest.approx(0, abs=1e-30)
    assert value[4].item() == pytest.approx(1e3)


@pytest.mark.parametrize("smoothing", [0.1, 1.0])
def test_label_smoothing_is_that_of_torch(smoothing):
    """Of classes the loss of torch; of label sets the sum over their labels (footnote 3)."""
    head, features = ready(flat, PickAllLabels(smoothing=smoothing), False)
    logits = dense_logits(head, features)
    expected = F.cross_entropy(logits, CLASSES.ids, label_smoothing=smoothing)
    torch.testing.assert_close(head.loss(features, CLASSES), expected)
    head.multilabel = True
    each = F.cross_entropy(
        logits[LABELS.rows], LABELS.ids, label_smoothing=smoothing, reduction="sum"
    )
    torch.testing.assert_close(head.loss(features, LABELS), each / N_ROWS)


def test_squared_errors_start_where_the_loss_of_a_constant_is_least():
    Y = (torch.rand(40, N_LABELS) < torch.linspace(0.1, 0.6, N_LABELS)).double()
    z = PickAllSquaredError().prior(Y.mean(0)).requires_grad_()
    loss = sum((z - unit).square().sum() for y in Y for unit in torch.diag(y)[y > 0])
    (slope,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(slope, torch.zeros_like(slope), atol=1e-10, rtol=0)


def test_propensities_are_those_of_the_metrics():
    Y = np.zeros((int(N_SAMPLES), N_LABELS), dtype=int)
    for label, count in enumerate(COUNTS.int().tolist()):
        Y[:count, label] = 1
    criterion = PropensityBinaryCrossEntropy(a=0.6, b=2.6).double()
    criterion.fit(COUNTS.double(), N_SAMPLES)
    np.testing.assert_allclose(1 / criterion.inverse, propensities(Y, a=0.6, b=2.6), rtol=1e-12)


def test_propensities_make_the_loss_unbiased():
    """Over all ways in which true labels go missing, the mean is the loss of the true labels."""
    criterion = PropensityBinaryCrossEntropy().double()
    criterion.fit(COUNTS.double(), N_SAMPLES)
    z = torch.randn(N_LABELS, dtype=torch.float64)
    seen, unseen = criterion(z, torch.ones_like(z)), criterion(z, torch.zeros_like(z))
    p = 1 / criterion.inverse
    torch.testing.assert_close(p * seen + (1 - p) * unseen, F.softplus(-z))


def test_heads_start_at_the_prior_of_the_loss():
    frequency = torch.rand(N_LABELS, dtype=torch.float64) * 0.2 + 0.01
    for loss in ("propensity_bce", "focal", "pick_all_labels"):
        for make in (flat, etf):
            head, _ = ready(make, loss, True)
            if make is etf:
                torch.nn.init.zeros_(head.projection.bias)
            head.set_prior(frequency)
            p = head.probabilities(head.scores(torch.zeros(1, N_FEATURES, dtype=torch.float64)))
            expected = frequency
            if loss == "propensity_bce":  # a true label is seen with its propensity
                expected = (frequency * head.criterion.inverse).clamp(max=1 - 1e-3)
            elif loss == "pick_all_labels":
                expected = frequency / frequency.sum()
            torch.testing.assert_close(p[0], expected)


def test_propensities_need_counts():
    head = FlatHead(N_FEATURES, N_LABELS, True, loss="propensity_bce")
    with pytest.raises(RuntimeError, match="propensities are unknown: call fit"):
        head.loss(torch.zeros(N_ROWS, N_FEATURES), LABELS)
    with pytest.raises(ValueError, match="fewer than 3 samples, got 2"):
        head.criterion.fit(COUNTS, 2.0)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: AsymmetricLoss(gamma_neg=-1), "gamma_neg must be finite and at least 0, got -1"),
        (lambda: AsymmetricLoss(clip=1.0), "clip must be below 1, where no negative would cost"),
        (lambda: FocalLoss(alpha=2.0), r"alpha must be finite and in \[0, 1\], got 2.0"),
        (lambda: PropensityBinaryCrossEntropy(a=0), "a must be finite and above 0, got 0"),
        (
            lambda: PickAllLabels(competition=1.5),
            r"competition must be finite and in \[0, 1\], got 1.5",
        ),
        (lambda: PickAllLabels(reduction="max"), "reduction must be 'sum' or 'mean', got 'max'"),
        (
            lambda: PickAllLabels(smoothing=-0.1),
            r"smoothing must be finite and in \[0, 1\], got -0.1",
        ),
        (lambda: PickAllSquaredError("max"), "reduction must be 'sum' or 'mean', got 'max'"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- which head takes which loss ------------------------------------------------------------------


REFUSED = [
    (FlatHead, "ce", True, "use one of .'asymmetric', 'auto', 'bce', 'focal', 'pick_all_labels',"),
    (FlatHead, "bce", False, "with multi-class y; use one of .'auto', 'ce', 'pick_all_labels'.,"),
    (FlatHead, "hinge", True, "loss='hinge' is not defined for FlatHead with multi-label y"),
    (CascadeHead, "propensity_bce", True, "use one of .'asymmetric', 'auto', 'bce', 'focal'.,"),
    (CascadeHead, "pick_all_labels", True, "is not defined for CascadeHead"),
    (CascadeHead, BinaryCrossEntropy(), False, r"loss=BinaryCrossEntropy\(\) is not defined for C"),
    (ProductHead, Poly(), False, "use one of .'asymmetric', 'auto', 'bce', 'ce', 'focal', 'joint_"),
    (ProductHead, "arcface", False, "loss='arcface' is not defined"),
    (SamplingHead, "pick_all_labels", False, "use one of .'arcface', 'auto', 'ce'.,"),
    (MIMLHead, PickAllLabels(), True, "use one of .'asymmetric', 'auto', 'bce', 'focal', 'propens"),
    (MIMLHead, Hinge(), False, "with multi-class y; use one of .'auto', 'ce'.,"),
    (MIMLHead, PickAllSquaredError(), True, "is not defined for MIMLHead with multi-label y"),
    (CascadeHead, PickAllSquaredError(), True, "is not defined for CascadeHead with multi-label y"),
    (ProductHead, PickAllSquaredError(), False, "is not defined for ProductHead"),
    *(
        (kind, SmoothSoftmax(), False, f"{kind.__name__} cannot smooth labels, .* such as 'flat'")
        for kind in (CascadeHead, MIMLHead, ProductHead, SamplingHead)
    ),
    (Head, 3, True, "loss=3 is not defined"),
]


@pytest.mark.parametrize("kind, loss, multilabel, message", REFUSED)
def test_losses_that_make_no_sense_are_refused(kind, loss, multilabel, message):
    with pytest.raises(ValueError, match=message):
        kind.resolve_loss(loss, multilabel)


def test_a_loss_is_copied_and_shows_its_parameters():
    given = PropensityBinaryCrossEntropy(a=0.5)
    head = FlatHead(N_FEATURES, N_LABELS, True, loss=given)
    head.criterion.fit(COUNTS, N_SAMPLES)
    assert not len(given.inverse)
    assert repr(given) == "PropensityBinaryCrossEntropy(a=0.5, b=1.5)"
    assert (
        repr(copy.deepcopy(PickAllLabels(0.5)))
        == "PickAllLabels(competition=0.5, reduction='sum', gamma=0.0, smoothing=0.0)"
    )
    assert repr(Hinge()) == "Hinge()"
    assert "inverse" in "".join(head.state_dict())


@pytest.mark.parametrize("make", [flat, etf, fourier_head])
def test_the_link_is_that_of_the_loss(make):
    assert ready(make, "asymmetric", True)[0].link == "sigmoid"
    assert ready(make, Hinge(), True)[0].link is None
    head, features = ready(make, "pick_all_labels", True)
    assert head.link == "exp"
    scores = head.scores(features)
    torch.testing.assert_close(scores, dense_logits(head, features).log_softmax(1))
    torch.testing.assert_close(head.probabilities(scores).sum(1), torch.ones(N_ROWS).double())
    best, ids = head.topk(features, 4)
    torch.testing.assert_close(best, scores.gather(1, ids))
    with pytest.raises(ValueError, match="defines no probabilities: its link is None"):
        ready(make, Hinge(), True)[0].probabilities(scores)
