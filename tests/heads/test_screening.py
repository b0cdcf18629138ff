"""Screening: the best labels are those of all logits, whatever the numbers."""

import copy
import pickle

import numpy as np
import pytest
import torch

from sklearn_xlc.heads import ChunkedHead, FlatHead, screening
from sklearn_xlc.heads.screening import Screening, largest_input

pytestmark = pytest.mark.skipif(
    not largest_input(), reason="the processor has no fast products of eight-bit integers"
)

N_LABELS, N_FEATURES = 640, 24


@pytest.fixture(params=[0, float("inf")], ids=["eight bits", "floats"])
def way(request, monkeypatch):
    monkeypatch.setattr(screening, "_OF_ROUNDING", request.param)


@pytest.fixture
def eight_bits(monkeypatch):
    monkeypatch.setattr(screening, "_OF_ROUNDING", 0)


both_ways, in_eight_bits = map(pytest.mark.usefixtures, ("way", "eight_bits"))


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def integers(low, high, *shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, shape, generator=generator).float()


def best(inputs, weight, bias, k):
    """Logits and positions of all labels in float64: best first, equal logits by position."""
    logits = inputs.double() @ weight.double().T + (0 if bias is None else bias.double())
    values, order = logits.sort(dim=1, descending=True, stable=True)
    return values[:, :k], order[:, :k]


def search(inputs, weight, bias, k):
    """Result of the search, and how many rows needed all logits."""
    n_open = []

    def compute(rows):
        n_open.append(len(rows))
        return tuple(part.to(t) for part, t in zip(best(inputs[rows], weight, bias, k), TYPES))

    found = Screening(weight, bias)
    assert found.is_finite
    with torch.inference_mode():
        return found.topk(inputs, k, compute), sum(n_open)


TYPES = torch.float32, torch.int64


def peaked(n_rows, seed=0):
    """Inputs and weights of which a few logits of a row stand out, as of trained networks."""
    weight = normal(N_LABELS, N_FEATURES, seed=seed)
    labels = torch.randint(N_LABELS, (n_rows, 8), generator=torch.Generator().manual_seed(seed))
    inputs = (weight[labels] * torch.arange(1, 9)[:, None]).sum(1) / 10
    return inputs, weight, normal(N_LABELS, seed=seed + 1)


@both_ways
@pytest.mark.parametrize("n_rows", [1, 16, 17, 300])
@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.parametrize("positive", [True, False])
def test_finds_the_best_labels(n_rows, k, positive):
    inputs, weight, bias = peaked(n_rows)
    inputs = inputs.relu() if positive else inputs
    (logits, positions), n_open = search(inputs, weight, bias, k)
    expected, expected_positions = best(inputs, weight, bias, k)
    assert torch.equal(positions, expected_positions)
    torch.testing.assert_close(logits.double(), expected, rtol=1e-6, atol=1e-5)
    assert n_open < n_rows / 3 or k == 40


@both_ways
@pytest.mark.parametrize("seed", range(20))
def test_ties_go_to_lower_positions(seed):
    rng = np.random.default_rng(seed)
    span = int(rng.integers(1, 40))
    inputs = integers(-span, span + 1, int(rng.integers(1, 40)), N_FEATURES, seed=seed)
    weight = integers(-span, span + 1, N_LABELS, N_FEATURES, seed=seed + 100)
    bias = integers(-3, 4, N_LABELS, seed=seed) if seed % 2 else None
    k = int(rng.integers(1, 41))
    (logits, positions), _ = search(inputs, weight, bias, k)
    expected, expected_positions = best(inputs, weight, bias, k)  # exact in float32, too
    assert torch.equal(positions, expected_positions)
    assert torch.equal(logits.double(), expected)


@both_ways
@pytest.mark.parametrize("n_labels", [640, 637])
def test_parts_of_labels_and_of_rows(monkeypatch, n_labels):
    monkeypatch.setattr(screening, "_AT_ONCE", 50 * n_labels)
    inputs, weight, bias = (part[-n_labels:] for part in peaked(120))
    inputs[60] = 0
    inputs[61] *= 1e-6  # all labels are among the candidates of the row
    for rows, labels in ((inputs, weight), (inputs.round(), weight.round())):  # with ties, too
        (logits, positions), n_open = search(rows, labels, bias.round(), 5)
        expected, expected_positions = best(rows, labels, bias.round(), 5)
        assert torch.equal(positions, expected_positions)
        torch.testing.assert_close(logits.double(), expected, rtol=1e-6, atol=1e-5)
        assert n_open < 40


@both_ways
def test_labels_closer_than_the_rounding_are_told_apart():
    inputs = integers(1, 5, 50, N_FEATURES)
    steps = integers(0, 3, N_LABELS, N_FEATURES, seed=1) / 2**12
    weight = integers(-40, 40, 1, N_FEATURES, seed=2) + steps  # exact in float32, too
    (logits, positions), n_open = search(inputs, weight, None, 5)
    expected, expected_positions = best(inputs, weight, None, 5)
    assert torch.equal(positions, expected_positions)
    assert torch.equal(logits.double(), expected)
    assert n_open == 50


@both_ways
@pytest.mark.parametrize(
    "scale, of_bias", [(1e-42, 0), (1e-42, 1e-42), (1e-30, 1e-35), (1e30, 1), (1, 1e37), (1e19, 1)]
)
def test_sizes_of_numbers_do_not_matter(scale, of_bias):
    inputs, weight, bias = peaked(40)
    for small, large in ((inputs, weight * scale), (inputs * scale, weight)):
        (logits, positions), _ = search(small, large, bias * of_bias, 5)
        expected, expected_positions = best(small, large, bias * of_bias, 5)
        assert torch.equal(positions, expected_positions)
        torch.testing.assert_close(logits, expected.float(), rtol=1e-5, atol=1e-44)


@both_ways
def test_rows_of_other_sizes_do_not_spoil_the_rest():
    inputs, weight, bias = peaked(200)
    inputs[3] *= 1e6
    inputs[5] *= 1e-6
    inputs[7] = 0
    (_, positions), n_open = search(inputs, weight, bias, 5)
    assert torch.equal(positions, best(inputs, weight, bias, 5)[1])
    assert n_open < 60


@both_ways
@pytest.mark.parametrize("n_rows", [4, 60])
def test_all_labels_equal(n_rows):
    inputs, weight = integers(-9, 9, n_rows, N_FEATURES), integers(-9, 9, 1, N_FEATURES, seed=1)
    (_, positions), n_open = search(inputs, weight.repeat(N_LABELS, 1), None, 3)
    assert positions.tolist() == [[0, 1, 2]] * n_rows
    assert n_open == n_rows


@both_ways
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_one_row_that_is_not_finite(value):
    inputs, weight, bias = peaked(30)
    inputs[4, 2] = value
    (_, positions), n_open = search(inputs, weight, bias, 5)
    finite = torch.arange(30) != 4
    assert torch.equal(positions[finite], best(inputs, weight, bias, 5)[1][finite])
    assert n_open == 30


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_weights_that_are_not_finite_are_not_searched(value):
    for part in range(2):
        _, weight, bias = peaked(1)
        (weight, bias)[part][3] = value
        assert not Screening(weight, bias).is_finite


@in_eight_bits
@pytest.mark.parametrize("n_rows", [9, 200])
@pytest.mark.parametrize("seed", range(5))
def test_bounds_hold(n_rows, seed):
    inputs, weight, bias = peaked(n_rows, seed)
    inputs[0] *= 5  # cut off
    if seed == 1:
        weight[::2] *= 100
    if seed == 2:
        inputs = inputs.relu()
    if seed == 3:  # what rounding changes lies along the other factor
        inputs = (inputs / inputs.abs().amax() * 40).round() + 0.499 * weight[:n_rows].sign()
    found = Screening(weight, bias)
    assert found._is_rounded_for(n_rows)
    logits, of_group, columns = found._in_eight_bits(inputs, 5)
    sizes = [group.stop - group.start for group in columns.groups]
    assert sum(sizes) == N_LABELS
    radius = np.repeat(of_group, sizes, axis=1)
    exact = (inputs.double() @ weight.double().T + bias.double()).numpy()[:, columns.order]
    error = np.abs(logits.lowest + logits.step * logits.values.astype(np.float64) - exact)
    known = np.ones(error.shape, dtype=bool)
    if np.isfinite(logits.top):
        known = (logits.values > 0) & (logits.values < logits.top)
        assert known.any(1).mean() > 0.9
    bound = radius + logits.half
    assert (error <= bound)[known].all()
    assert (error / bound)[known].max() > 0.05  # and are not without use


@in_eight_bits
@pytest.mark.parametrize("n_rows", [9, 200])
@pytest.mark.parametrize("k", [1, 5, 20])
def test_norms_of_groups_leave_fewer_of_many_candidates(n_rows, k, monkeypatch):
    inputs, weight, bias = peaked(n_rows)
    weight[::3] *= 0.01
    bias[::3] *= 4
    bias -= 30 * (torch.arange(N_LABELS) % 3 > 0)  # small rows of weights lead
    inputs[1] *= 1e3  # cut off
    n_left, candidates = [], Screening._candidates
    monkeypatch.setattr(screening, "_WIDEST", 1)
    # Seven bits, as on older processors: with eight, fewer candidates are left to begin with.
    monkeypatch.setattr(screening, "largest_input", lambda: 2**7 - 1)

    def counted(self, logits, radius, *beside):
        widest = np.broadcast_to(radius.max(axis=1, keepdims=True), radius.shape)
        by_widest, left = (candidates(self, logits, each, *beside) for each in (widest, radius))
        n_left.append([len(pairs.rows) for pairs, _ in (by_widest, left)])
        return left

    monkeypatch.setattr(Screening, "_candidates", counted)
    (scores, positions), _ = search(inputs, weight, bias, k)
    expected, order = best(inputs, weight, bias, k)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(positions, order)
    before, after = np.sum(n_left, axis=0)
    # Of few rows, logits are no steps: few candidates are left, but for the row that is cut off.
    assert 0 < after < before / (2 if n_rows > screening._FEW else 1)


@both_ways
@pytest.mark.parametrize("n_rows", [1, 200])
@pytest.mark.parametrize("k", [1, 5, 20])
def test_few_large_labels_leave_the_bounds_of_others_alone(n_rows, k, monkeypatch):
    inputs, weight, bias = peaked(n_rows)
    n_pairs, exact = [], Screening._exact

    def counted(self, inputs, pairs):
        n_pairs.append(len(pairs.rows))
        return exact(self, inputs, pairs)

    monkeypatch.setattr(Screening, "_exact", counted)
    monkeypatch.setattr(screening, "_WIDEST", 1)
    for factor in (1, 20):
        weight[[7, 300, 501]] *= factor
        bias[[7, 300, 501]] -= 20 * (factor - 1)
        (scores, positions), n_open = search(inputs, weight, bias, k)
        expected, order = best(inputs, weight, bias, k)
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(positions, order)
        assert n_open == 0
    assert n_pairs[1] <= 1.1 * n_pairs[0] + 8 * n_rows


@in_eight_bits
def test_products_of_many_rows_have_few_shapes(monkeypatch):
    """A kernel is kept for each shape: memory would grow with every size of a batch."""
    product, sizes = torch.ops.onednn.qlinear_pointwise, []

    def counted(numbers, *rest):
        sizes.append(len(numbers))
        return product(numbers, *rest)

    monkeypatch.setattr(torch.ops.onednn, "qlinear_pointwise", counted)
    for n_rows in (9, 16, 17, 40, 47):
        inputs, weight, bias = peaked(n_rows)
        (scores, positions), _ = search(inputs, weight, bias, 5)
        expected, order = best(inputs, weight, bias, 5)
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(positions, order)
    assert set(sizes) == {9, 16, 32, 48}


@pytest.mark.parametrize("seed", range(5))
def test_bounds_of_floats_hold(seed):
    inputs, weight, bias = (10.0 ** (4 * seed - 8) * part for part in peaked(60, seed))
    logits, radius, columns = Screening(weight, bias)._in_floats(inputs, 5)
    exact = (inputs.double() @ weight.double().T + bias.double()).numpy()[:, columns.order]
    error = np.abs(logits.values - exact)
    assert (error <= radius).all()
    assert (radius < 1e-3 * np.abs(exact).max()).all()  # and are not without use


def test_both_ways_have_equal_digits(monkeypatch):
    inputs, weight, bias = peaked(60)
    inputs[7] *= 1e-6  # eight bits leave too many labels
    found = []
    for of_rounding in (0, np.inf):
        monkeypatch.setattr(screening, "_OF_ROUNDING", of_rounding)
        (logits, positions), n_open = search(inputs, weight, bias, 5)
        assert n_open == 0
        found.append((logits, positions))
    assert all(torch.equal(*parts) for parts in zip(*found))


def test_weights_are_rounded_once_it_is_worth_the_time():
    inputs, weight, bias = peaked(400)
    single, many = Screening(weight, bias), Screening(weight, bias)
    n_before = 0
    while single._table is None:
        single.topk(inputs[n_before : n_before + 1], 5, None)
        n_before += 1
    assert 10 < n_before < 100
    assert not many._is_rounded_for(300)
    assert many._is_rounded_for(300)
    assert Screening(weight, bias)._is_rounded_for(400)


# --- in the head ------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    """Screening of small heads, too."""
    monkeypatch.setattr(screening, "_WORTH", 1)
    monkeypatch.setattr(screening, "_FEWEST", 1)


def make(**params):
    torch.manual_seed(0)
    head = FlatHead(N_FEATURES, N_LABELS, True, **params).eval()
    torch.nn.init.normal_(head.weight)
    if head.bias is not None:
        torch.nn.init.normal_(head.bias)
    return head


@both_ways
@pytest.mark.parametrize(
    "params",
    [{}, {"with_bias": False}, {"width": 12}, {"n_members": 3}, {"loss": "asymmetric"}],
    ids=str,
)
@pytest.mark.parametrize("k", [1, 7])
def test_head_ranks_as_by_all_logits(small, params, k):
    head, features = make(**params), normal(70, N_FEATURES, seed=3)
    with torch.no_grad():
        scores, positions = head.topk(features, k)
        assert head._screening is not None
        expected, expected_positions = ChunkedHead.topk_held(head, head.inputs(features), k)
    assert torch.equal(positions, expected_positions)
    torch.testing.assert_close(scores, expected)


@both_ways
def test_head_of_one_class_a_sample(small):
    torch.manual_seed(0)
    head, features = FlatHead(N_FEATURES, N_LABELS, False).eval(), normal(9, N_FEATURES)
    with torch.no_grad():
        assert torch.equal(head.topk(features, 1)[1][:, 0], head.scores(features).argmax(1))
    assert head._screening is not None


@both_ways
@pytest.mark.parametrize("change", ["step", "copy", "bias"])
def test_search_follows_the_weights(small, change):
    head, features = make(), normal(20, N_FEATURES, seed=3)
    with torch.no_grad():
        head.topk(features, 3)
        if change == "step":  # of an optimiser, past torch's count of changes
            head.train()
            head.weight.data.neg_()
            head.eval()
        elif change == "copy":
            head.load_state_dict({name: -part for name, part in head.state_dict().items()})
        else:
            head.bias[600] = 100.0
        expected = ChunkedHead.topk_held(head, features, 3)[1]
        assert torch.equal(head.topk(features, 3)[1], expected)


def test_search_is_neither_pickled_nor_copied(small):
    head, features = make(), normal(20, N_FEATURES, seed=3)
    before = len(pickle.dumps(head))
    with torch.no_grad():
        expected = head.topk(features, 3)[1]
        assert len(pickle.dumps(head)) == before
        for other in (copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
            assert other._screening is None
            assert torch.equal(other.topk(features, 3)[1], expected)


def test_not_where_it_does_not_apply(small):
    head, features = make(), normal(20, N_FEATURES, seed=3)
    head.topk(features, 3)  # a gradient may be wanted
    with torch.no_grad():
        head.topk(features, N_LABELS // 4)
        head.double().topk(features.double(), 3)
        shared = make(loss="pick_all_labels")
        shared.topk(features, 3)
    assert head._screening is None
    assert shared._screening is None
