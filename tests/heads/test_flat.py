"""The flat head: fused steps, precision, ranking, first logits; `test_losses` has its gradients."""

import numpy as np
import pytest
import torch

from _factories import ONE_EACH, ROW_WEIGHT, SEVERAL, plain_loss
from sklearn_xlc.batches import Targets
from sklearn_xlc.heads import (
    FlatHead,
    PickAllLabels,
    PickAllSquaredError,
    SquaredError,
    chunked,
    flat,
)
from sklearn_xlc.heads.screening import largest_input
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


@pytest.mark.parametrize("width", [None, 2])
@pytest.mark.parametrize("rule", ["sgd", "adam", "adagrad"])
@pytest.mark.parametrize("multilabel", [True, False])
def test_fused_step_equals_the_unfused_step(monkeypatch, multilabel, rule, width):
    results = []
    for fused in (True, False):
        monkeypatch.setattr(chunked, "CHUNK", 4 if fused else 4096)
        head, features, targets = make(multilabel, width=width)
        of_labels = {"params": head.fused_parameters(), "rule": rule, "fused": fused}
        rest = {"params": list(head.projection.parameters()), "rule": rule}
        optimizer = RowOptimizer([of_labels, rest], lr=0.1)
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


def test_products_in_half_precision_have_few_shapes(monkeypatch):
    """A kernel is kept for each shape: memory would grow with every number of drawn labels."""
    torch.manual_seed(0)
    head = FlatHead(6, 1000, True, precision="bfloat16", n_negatives=40)
    torch.nn.init.normal_(head.weight)
    targets = [Targets(torch.arange(0, 5 * n + 1, n), torch.arange(5 * n)) for n in range(1, 9)]
    features, read, results = torch.randn(5, 6), FlatHead._read, []

    def counted(head, chunk):
        weight = read(head, chunk)
        sizes.append(len(weight))
        return weight

    monkeypatch.setattr(FlatHead, "_read", counted)
    for multiple in (64, 1):
        monkeypatch.setattr(flat, "_MULTIPLE", multiple)
        sizes, updates = [], []
        for seed, each in enumerate(targets):
            torch.manual_seed(seed)  # of the drawn labels
            loss = head.loss(features, each, None, lambda *update: updates.append(update[1:]))
            updates.append((torch.zeros(1), loss.detach()))
        results.append((sizes, updates))
    (sizes, updates), (others, plain) = results
    assert {size % 64 for size in sizes} == {0}
    assert len(set(sizes)) <= 2 < len(set(others))
    for (rows, update), (same_rows, other) in zip(updates, plain, strict=True):
        assert torch.equal(rows, same_rows)
        torch.testing.assert_close(update, other, rtol=1e-2, atol=1e-4)


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


@pytest.mark.parametrize("chunk", [3, 4096])
@pytest.mark.parametrize("multilabel", [True, False])
def test_low_rank_is_a_dense_layer_whose_weights_are_a_product(monkeypatch, multilabel, chunk):
    """Eq. 17 of the paper: O = W2 W1 F + B."""
    monkeypatch.setattr(chunked, "CHUNK", chunk)
    head, features, targets = make(multilabel, width=2)
    product = head.weight @ head.projection.weight
    assert torch.linalg.matrix_rank(product) == 2
    dense, _, _ = make(multilabel)
    dense.load_state_dict({"weight": product.detach(), "bias": head.bias.detach()})
    torch.testing.assert_close(head.scores(features), dense.scores(features))
    for one, other in zip(head.topk(features, 4), dense.topk(features, 4)):
        torch.testing.assert_close(one, other)
    loss = head.loss(features, targets, ROW_WEIGHT)
    expected = plain_loss(features @ product.T + head.bias, targets, ROW_WEIGHT, multilabel)
    torch.testing.assert_close(loss, expected)
    inputs = [features, *head.parameters()]
    assert len(inputs) == 4
    for one, other in zip(torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs)):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("multilabel, loss", [(True, "bce"), (True, "focal"), (False, "ce")])
def test_gradients_of_low_rank_are_finite_differences(multilabel, loss):
    head, features, targets = make(multilabel, width=2, loss=loss)

    def value(features, *parameters):  # those of the head, which are changed in place
        return head.loss(features, targets, ROW_WEIGHT)

    assert torch.autograd.gradcheck(value, (features, *head.parameters()))


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


# --- theorems on low rank, D. Liang et al., "Multi-Head Encoding" ------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rank", [1, 3])
def test_theorem_2_squared_error_of_low_rank_has_no_other_minima(rank, seed):
    """Eqs. 17 and 18: descent from any start ends in the truncated singular value decomposition."""
    torch.manual_seed(seed)
    n_rows, n_features, n_labels = 40, 6, 8
    features = torch.randn(n_rows, n_features, dtype=torch.float64)
    one_hot = torch.eye(n_labels, dtype=torch.float64)[torch.randint(n_labels, (n_rows,))]
    targets = Targets(torch.arange(n_rows + 1), one_hot.argmax(1))
    head = FlatHead(n_features, n_labels, True, width=rank, with_bias=False, loss=SquaredError())
    head = head.double()
    torch.nn.init.zeros_(head.projection.bias)
    free = [head.projection.weight, head.weight]
    optimizer = torch.optim.LBFGS(free, max_iter=500, line_search_fn="strong_wolfe",
                                  tolerance_grad=1e-10, tolerance_change=1e-14)  # fmt: skip

    def closure():
        optimizer.zero_grad()
        loss = head.loss(features, targets)
        loss.backward()
        return loss

    optimizer.step(closure)
    kept = torch.linalg.svdvals(torch.linalg.qr(features).Q.T @ one_hot)[:rank]
    least = (one_hot.square().sum() - kept.square().sum()) / (2 * n_rows)
    torch.testing.assert_close(closure(), least, rtol=1e-6, atol=0)


def test_theorem_3_rank_one_and_biases_name_every_class():
    """Eqs. 41 to 43, one sample a class: with outputs 2 p t - p^2 the nearest position p wins."""
    n = 30
    torch.manual_seed(0)
    features = torch.randn(n, n, dtype=torch.float64)
    position = torch.arange(n, dtype=torch.float64)
    head = FlatHead(n, n, False, width=1).double()
    with torch.no_grad():
        head.projection.weight[0] = torch.linalg.solve(features, position)
        head.weight[:, 0] = 2 * position
        head.bias.copy_(-position.square())
    assert head.topk(features, 1)[1][:, 0].tolist() == list(range(n))
    with torch.no_grad():  # rank one alone tells two classes apart
        head.bias.zero_()
    assert len(head.topk(features + torch.randn(n, n), 1)[1].unique()) == 2


def test_theorem_3_needs_classes_that_are_points():
    """Three classes of two samples, which a plain layer separates, overlap on every line.

    A layer of rank one names classes in intervals of the line that it projects on.
    """
    degrees = torch.tensor([[-50.0, 50.0], [70.0, 170.0], [190.0, 290.0]], dtype=torch.float64)
    centres, samples = (
        torch.stack([angle.deg2rad().cos(), angle.deg2rad().sin()], -1)
        for angle in (degrees.mean(1), degrees)
    )
    torch.manual_seed(0)
    plain, narrow = (FlatHead(2, 3, False, width=width).double() for width in (None, 1))
    with torch.no_grad():
        plain.weight.copy_(centres)
    assert plain.topk(samples.flatten(0, 1), 1)[1].tolist() == [[0], [0], [1], [1], [2], [2]]
    # Along the line, that is, orthogonal to the direction, the logits do not change at all.
    for _ in range(50):
        for parameter in narrow.parameters():
            torch.nn.init.normal_(parameter)
        direction = narrow.projection.weight[0]
        along = torch.stack([-direction[1], direction[0]])
        points = torch.linspace(-3, 3, 201, dtype=torch.float64)[:, None] * direction
        named = narrow.topk(points, 1)[1]
        assert torch.equal(narrow.topk(points + 5 * along, 1)[1], named)
        assert len(torch.unique_consecutive(named)) == len(named.unique())  # one interval each
    lines = torch.arange(0, 180, 0.5, dtype=torch.float64).deg2rad()
    lines = torch.stack([lines.cos(), lines.sin()])
    low, high = (samples @ lines).aminmax(dim=1)  # (class, line)
    overlap = torch.minimum(high, high.roll(1, 0)) - torch.maximum(low, low.roll(1, 0))
    assert overlap.amax(0).min() > 0.1  # far more than between neighbouring lines


def test_theorem_4_fails_and_a_bound_by_the_range_of_the_changes_holds():
    """Eq. 20, the printed bound, and 2 tanh(r / 4) for changes of logits in an interval of r."""

    def error(before, after):
        heads = [FlatHead(1, before.shape[1], False).double() for _ in range(2)]
        one, rows = torch.ones(len(before), 1).double(), []
        for head, logits in zip(heads, (before, after)):
            head.set_prior(logits.softmax(1)[0])
            with torch.no_grad():
                head.weight.copy_(logits[0, :, None] - head.bias[:, None])
            rows.append(head.probabilities(head.scores(one)))
        return (rows[0] - rows[1]).abs().sum(1)

    before = torch.tensor([[0.9, 0.1]], dtype=torch.float64).log()
    change = torch.tensor([[-5.0, 0.0]], dtype=torch.float64)
    assert error(before, before + change) > 1.68
    assert change.expm1().abs().sum() < 1
    torch.manual_seed(0)
    for _ in range(20):
        before, change = 3 * torch.randn(2, 1, 6, dtype=torch.float64)
        width = change.max() - change.min()
        assert error(before, before + change) <= 2 * torch.tanh(width / 4)
    for width in (0.1, 1.0, 6.0):  # two classes, half of the way on either side
        half = torch.tensor([[width / 2, 0.0]], dtype=torch.float64)
        expected = torch.tensor([2 * np.tanh(width / 4)])
        torch.testing.assert_close(error(-half, half), expected)


# --- drawn negatives --------------------------------------------------------------------------


def collected(head, features, targets):
    """Loss, gradient of the features and gradients that the step hands to the optimiser."""
    gradients = {}

    def update(parameter, rows, gradient):
        whole = gradients.setdefault(parameter, torch.zeros_like(parameter))
        whole[rows] += gradient

    features = features.detach().requires_grad_()
    loss = head.loss(features, targets, None, update)
    loss.backward()
    return [loss.detach(), features.grad, gradients[head.weight], gradients[head.bias]]


def test_a_draw_holds_the_labels_of_the_batch_and_random_others():
    head, _, targets = make(True, n_negatives=4)
    of_batch = targets.ids.unique()
    n_drawn = torch.zeros(N_LABELS)
    for _ in range(2000):
        drawn = head.draw(targets)
        assert torch.equal(drawn.positions, drawn.positions.unique())
        n_drawn[drawn.positions] += 1
        is_of_batch = torch.isin(drawn.positions, of_batch)
        assert torch.equal(drawn.positions[is_of_batch], of_batch)
        assert (drawn.factors[is_of_batch] == 1).all()
    chance = 1 - (1 - 1 / N_LABELS) ** 4
    assert torch.allclose(drawn.factors[~is_of_batch], torch.tensor(1 / chance))
    others = torch.ones(N_LABELS, dtype=bool)
    others[of_batch] = False
    assert (n_drawn[others] / 2000 - chance).abs().max() < 0.05  # 4.7 standard errors


def test_factors_are_bounded():
    head, _, targets = make(True, n_negatives=1)
    assert sorted(head.draw(targets).factors.unique().tolist()) in ([1.0], [1.0, flat.MOST])


@pytest.mark.parametrize("chunk", [2, 4096])
def test_loss_and_gradients_of_a_draw(monkeypatch, chunk):
    """Those of the drawn labels alone, with a factor on the loss of all their negatives."""
    monkeypatch.setattr(chunked, "CHUNK", chunk)
    head, features, targets = make(True, n_negatives=3)
    drawn = head.draw(targets)
    monkeypatch.setattr(head, "draw", lambda targets: drawn)
    found = collected(head, features, targets)
    logits = (features @ head.weight.T + head.bias)[:, drawn.positions]
    multi_hot = torch.zeros(len(targets), N_LABELS, dtype=features.dtype)
    multi_hot[targets.rows, targets.ids] = 1.0
    y = multi_hot[:, drawn.positions]
    each = torch.nn.functional.softplus(logits) * drawn.factors - y * logits
    expected = torch.autograd.grad(each.sum(1).mean(), [features, head.weight, head.bias])
    torch.testing.assert_close(found[0], each.sum(1).mean().detach())
    for one, other in zip(found[1:], expected):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("memory_limit", [1, 2**30])
@pytest.mark.parametrize("chunk", [2, 4096])
@pytest.mark.parametrize(
    "multilabel, loss",
    [(False, "ce"), (True, "pick_all_labels"), (True, PickAllLabels(smoothing=0.3))],
)
def test_a_softmax_counts_each_drawn_label_for_those_it_stands_for(
    monkeypatch, multilabel, loss, chunk, memory_limit
):
    monkeypatch.setattr(chunked, "CHUNK", chunk)
    head, features, targets = make(multilabel, n_negatives=3, loss=loss, memory_limit=memory_limit)
    drawn = head.draw(targets)
    monkeypatch.setattr(head, "draw", lambda targets: drawn)
    found = collected(head, features, targets)
    logits = features @ head.weight.T + head.bias
    total = (logits[:, drawn.positions].exp() @ drawn.factors.double()).log()
    surprise = total[targets.rows] - logits[targets.rows, targets.ids]
    if isinstance(loss, PickAllLabels):  # so it does in the mean of the logits
        counts = drawn.factors.double()
        mean = logits[:, drawn.positions] @ counts / counts.sum()
        surprise = 0.7 * surprise + 0.3 * (total - mean)[targets.rows]
    expected = surprise.sum() / len(targets)
    torch.testing.assert_close(found[0], expected.detach())
    gradients = torch.autograd.grad(expected, [features, head.weight, head.bias])
    for one, other in zip(found[1:], gradients):
        torch.testing.assert_close(one, other)


def test_factors_of_a_softmax_are_not_bounded():
    head, _, targets = make(False, n_negatives=1)
    factors = {f for _ in range(20) for f in head.draw(targets).factors.unique().tolist()}
    assert sorted(factors) == pytest.approx([1.0, N_LABELS])


def test_draws_are_unbiased_unless_their_factor_is_bounded():
    head, features, targets = make(True, n_negatives=4)
    everything = make(True)[0]
    everything.load_state_dict(head.state_dict())
    exact = collected(everything, features, targets)
    runs = [collected(head, features, targets) for _ in range(600)]
    for number, expected in enumerate(exact):
        values = torch.stack([run[number] for run in runs])
        error = values.std(0) / len(runs) ** 0.5
        assert ((values.mean(0) - expected).abs() <= 5 * error + 1e-12).all()


def test_without_an_optimiser_nothing_is_drawn():
    head, features, targets = make(True, n_negatives=2)
    everything = make(True)[0]
    everything.load_state_dict(head.state_dict())
    with_draws, without = (h.loss(features, targets) for h in (head, everything))
    assert torch.equal(with_draws, without)


@pytest.mark.parametrize("n_negatives", [None, 6, 100])
def test_few_labels_are_all_trained(n_negatives):
    head, _, targets = make(True, n_negatives=n_negatives)
    assert head.draw(targets) is None


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_weights_read_for_a_step_are_not_kept(precision):
    head, features, targets = make(True, torch.float32, precision=precision)
    collected(head, features.detach(), targets)
    assert head._last is None


# --- members ----------------------------------------------------------------------------------

N_MEMBERS = 2


def members_of(head, multilabel, **kwargs):
    """Heads of the single members, with their weights."""
    heads = []
    for weight in head.weight.detach().chunk(N_MEMBERS, 1):
        single = FlatHead(N_FEATURES // N_MEMBERS, N_LABELS, multilabel, **kwargs)
        heads.append(single.to(weight.dtype))
        heads[-1].weight.data.copy_(weight)
        if head.bias is not None:
            heads[-1].bias.data.copy_(head.bias.detach())
    return heads


@pytest.mark.parametrize("chunk", [3, 4096])
@pytest.mark.parametrize(
    "multilabel, loss",
    [
        (True, "bce"),
        (True, "asymmetric"),
        (True, PickAllLabels(smoothing=0.1)),
        (True, PickAllSquaredError()),
        (False, "ce"),
    ],
)
@pytest.mark.parametrize("weight", [None, ROW_WEIGHT], ids=["unweighted", "weighted"])
def test_members_have_the_loss_and_gradients_of_single_heads(
    monkeypatch, multilabel, loss, weight, chunk
):
    monkeypatch.setattr(chunked, "CHUNK", chunk)
    head, features, targets = make(multilabel, n_members=N_MEMBERS, loss=loss)
    value = head.loss(features, targets, weight)
    value.backward()
    total, biases = 0.0, 0.0
    for member, single in enumerate(members_of(head, multilabel, loss=loss)):
        inputs = features.detach().chunk(N_MEMBERS, 1)[member].clone().requires_grad_()
        alone = single.loss(inputs, targets, weight)
        alone.backward()
        total, biases = total + alone.detach(), biases + single.bias.grad
        of_member = head.weight.grad.chunk(N_MEMBERS, 1)[member]
        torch.testing.assert_close(of_member, single.weight.grad)
        torch.testing.assert_close(features.grad.chunk(N_MEMBERS, 1)[member], inputs.grad)
    torch.testing.assert_close(value.detach(), total)
    torch.testing.assert_close(head.bias.grad, biases)


@pytest.mark.parametrize("n_negatives", [None, 2])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_members_train_as_single_heads(precision, n_negatives):
    params = {"precision": precision, "n_negatives": n_negatives, "with_bias": False}
    head, features, targets = make(True, torch.float32, n_members=N_MEMBERS, **params)
    heads = members_of(head, True, **params)
    parts = features.detach().chunk(N_MEMBERS, 1)
    for module, inputs in [(head, features.detach()), *zip(heads, parts)]:
        torch.manual_seed(1)
        group = {"params": list(module.parameters()), "rule": "adam", "fused": True}
        optimizer = RowOptimizer([group], lr=0.1)
        for _ in range(3):
            leaf = inputs.clone().requires_grad_()
            module.loss(leaf, targets, None, optimizer.update).backward()
            optimizer.step()
    together = torch.cat([single.weight.detach() for single in heads], 1)
    tolerance = 1e-4 if precision == "float32" else 1e-2
    torch.testing.assert_close(head.weight.detach(), together, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("multilabel", [True, False])
@pytest.mark.parametrize("k", [1, 4, N_LABELS])
def test_members_average_their_logits(monkeypatch, multilabel, k):
    monkeypatch.setattr(chunked, "CHUNK", 3)
    head, features, _ = make(multilabel, n_members=N_MEMBERS)
    heads = members_of(head, multilabel)
    parts = features.chunk(N_MEMBERS, 1)
    mean = torch.stack([single.scores(part) for single, part in zip(heads, parts)]).mean(0)
    torch.testing.assert_close(head.scores(features), mean)
    torch.testing.assert_close(features @ head.classifier(features).T + head.bias, mean)
    scores, positions = head.topk(features, k)
    best, expected = mean.topk(k, dim=1)
    torch.testing.assert_close(scores, best)
    torch.testing.assert_close(positions, expected)


@pytest.mark.parametrize("params", [{"n_members": 3}, {"n_members": 2, "width": 2}])
def test_members_need_equal_parts_of_the_features(params):
    with pytest.raises(ValueError, match="n_members=. needs n_features that they can share"):
        FlatHead(N_FEATURES, N_LABELS, True, **params)


@pytest.mark.skipif(not largest_input(), reason="no fast products of eight-bit integers here")
def test_the_search_for_the_best_labels_leaves_out_those_removed():
    torch.manual_seed(0)
    head = FlatHead(64, 5000, multilabel=True).eval()
    features = torch.randn(300, 64).relu()
    with torch.no_grad():
        head.weight.mul_(10)
        head.bias.normal_()
        before = head.topk(features, 10)
        free = torch.zeros(5000, dtype=torch.bool)
        free[before[1][:, :2].unique()] = True
        head.weight[free], head.bias[free] = 0.0, 0.0
        head.set_free(free)
        scores, labels = head.topk(features, 5)
        assert head._screening is not None
    expected = head.scores(features).topk(5)
    assert torch.equal(labels, expected.indices)
    torch.testing.assert_close(scores, expected.values)
    kept = ~free[before[1]]
    rows = kept.any(1).nonzero()[:, 0]
    assert len(rows) > 100
    first = kept[rows].int().argmax(1)  # the best of those that stay has the score that it had
    assert torch.equal(scores[rows, 0], before[0][rows, first])
