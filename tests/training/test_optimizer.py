"""The optimiser: torch's own where there is one, and the same steps on rows and chunks."""

import copy
import io
import itertools

import numpy as np
import pytest
import torch
from torch import nn

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import Encoder, MLPEncoder
from sklearn_xlc.heads import CascadeHead, FlatHead
from sklearn_xlc.training import EncoderHead, RowOptimizer
from sklearn_xlc.training import optimizer as optimizer_module
from sklearn_xlc.training.optimizer import INPUT_RATE, parameter_groups

RULES = ["adam", "adagrad", "sgd"]


def parameter(shape=(7, 3), seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype))


def gradients(shape=(7, 3), n_steps=6, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator, dtype=dtype) for _ in range(n_steps)]


def optimizer(p, rule, **options):
    return RowOptimizer([{"params": [p], "rule": rule, **options}], lr=0.1)


def take_steps(p, rule, grads, **options):
    opt = optimizer(p, rule, **options)
    for gradient in grads:
        p.grad = gradient.clone()
        opt.step()
    return opt


def sparse(gradient, rows):
    return torch.sparse_coo_tensor(
        rows[None], gradient[rows], gradient.shape, check_invariants=True
    )


# --- groups of parameters ---------------------------------------------------------------------


def test_a_group_may_be_added_later():
    first, late = parameter(), parameter(seed=2)
    opt = optimizer(first, "sgd")
    opt.add_param_group({"params": iter([late]), "rule": "adagrad"})
    expected = late.detach().clone()
    late.grad = gradients()[0]
    opt.update(first, slice(0, 2), gradients()[1][:2].clone())
    take_steps(expected.requires_grad_(), "adagrad", gradients()[:1])
    opt.step()
    assert torch.equal(late, expected)
    assert opt.param_groups[1]["lr"] == 0.1


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_are_forgotten(set_to_none):
    p, without = parameter(), parameter()
    opt = RowOptimizer([{"params": [p, without], "rule": "sgd"}])
    p.grad = kept = gradients()[0].clone()
    opt.zero_grad(set_to_none)
    assert p.grad is None if set_to_none else not p.grad.any()
    assert without.grad is None
    assert torch.equal(kept, gradients()[0])


# --- whole parameters -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_adam_is_that_of_torch_bit_for_bit(weight_decay, dtype):
    ours, theirs = parameter(dtype=dtype), parameter(dtype=dtype)
    take_steps(ours, "adam", gradients(dtype=dtype), weight_decay=weight_decay)
    opt = torch.optim.AdamW([theirs], lr=0.1, weight_decay=weight_decay, fused=True)
    for gradient in gradients(dtype=dtype):
        theirs.grad = gradient.clone()
        opt.step()
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_sgd_is_the_gradient_with_decoupled_decay(weight_decay):
    p = parameter()
    expected = p.detach().clone()
    for gradient in gradients():
        expected = expected * (1 - 0.1 * weight_decay) - 0.1 * gradient
    take_steps(p, "sgd", gradients(), weight_decay=weight_decay)
    torch.testing.assert_close(p.detach(), expected)


NESTEROV = [False, True]


def torch_sgd(p, grads, **options):
    opt = torch.optim.SGD([p], lr=0.1, momentum=0.9, **options)
    for step, gradient in enumerate(grads):
        opt.param_groups[0]["lr"] = 0.1 / (1 + step)
        p.grad = gradient.clone()
        opt.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("nesterov", NESTEROV)
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("form", ["whole", "rows", "chunks"])
def test_sgd_with_momentum_is_that_of_torch_bit_for_bit(form, weight_decay, nesterov, dtype):
    """Also in tables where each step touches all rows, and as learning rates change."""
    ours, theirs = parameter(dtype=dtype), parameter(dtype=dtype)
    options = {"weight_decay": weight_decay, "nesterov": nesterov}
    torch_sgd(theirs, gradients(dtype=dtype), **options)
    opt = optimizer(ours, "sgd", momentum=0.9, fused=form == "chunks", **options)
    for step, gradient in enumerate(gradients(dtype=dtype)):
        opt.param_groups[0]["lr"] = 0.1 / (1 + step)
        if form == "chunks":
            for rows in (slice(0, 4), torch.tensor([6, 4, 5])):
                opt.update(ours, rows, gradient[rows].clone())
        else:
            ours.grad = gradient.clone() if form == "whole" else sparse(gradient, torch.arange(7))
        opt.step()
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("nesterov", NESTEROV)
def test_lazy_momentum_is_that_of_the_steps_that_touch_a_row(nesterov):
    """A row is moved by its own gradients only, as if the other steps had not been."""
    p = parameter()
    expected = p.detach().clone()
    touched = [[5, 0], [0], [], [3, 5, 6], [0], [6]]
    opt = optimizer(p, "sgd", momentum=0.9, nesterov=nesterov)
    for rows, gradient in zip(touched, gradients()):
        p.grad = sparse(gradient, torch.tensor(rows, dtype=torch.int64))
        opt.step()
    for row in range(7):
        own = [g[row] for rows, g in zip(touched, gradients()) if row in rows]
        velocity = torch.zeros(3, dtype=torch.float64)
        for gradient in own:
            velocity = 0.9 * velocity + gradient
            expected[row] -= 0.1 * (gradient + 0.9 * velocity if nesterov else velocity)
    torch.testing.assert_close(p.detach(), expected)


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_adagrad_divides_a_row_by_the_root_of_its_sum_of_mean_squares(weight_decay):
    p = parameter()
    expected, total = p.detach().clone(), torch.zeros(7, dtype=torch.float64)
    for gradient in gradients():
        total += gradient.square().mean(1)
        step = gradient / (total.sqrt() + 1e-8)[:, None]
        expected = expected * (1 - 0.1 * weight_decay) - 0.1 * step
    take_steps(p, "adagrad", gradients(), weight_decay=weight_decay)
    torch.testing.assert_close(p.detach(), expected)


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_scaled_sgd_divides_by_the_root_mean_square_of_all_that_steps_touched(weight_decay):
    """A running mean over steps, each of which counts as one however many rows it touches."""
    p = parameter()
    opt = optimizer(p, "scaled", weight_decay=weight_decay)
    expected, weights, squares = p.detach().clone(), [], []
    for n_rows, gradient in zip((7, 1, 3, 5, 0, 2), gradients()):
        rows = torch.arange(7)[:n_rows]
        p.grad = sparse(100 * gradient, rows)
        opt.step()
        if n_rows:
            squares.append((100 * gradient[rows]).square().mean())
            weights = [0.99 * weight for weight in weights] + [1.0]
            mean = sum(w * s for w, s in zip(weights, squares)) / sum(weights)
            expected[rows] *= 1 - 0.1 * weight_decay
            expected[rows] -= 0.1 * 100 * gradient[rows] / mean.sqrt()
    torch.testing.assert_close(p.detach(), expected)


def test_scaled_sgd_of_zeros_moves_nothing():
    p = parameter()
    expected = p.detach().clone()
    take_steps(p, "scaled", [torch.zeros(7, 3, dtype=torch.float64)] * 2)
    assert torch.equal(p.detach(), expected)


def test_adagrad_on_rows_of_one_number_is_that_of_torch():
    ours, theirs = parameter((9, 1)), parameter((9, 1))
    take_steps(ours, "adagrad", gradients((9, 1)))
    opt = torch.optim.Adagrad([theirs], lr=0.1, eps=1e-8)
    for gradient in gradients((9, 1)):
        theirs.grad = gradient.clone()
        opt.step()
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", [(), (4,), (3, 2, 2)])
def test_parameters_of_any_shape(rule, shape):
    p, flat = parameter(shape), parameter(shape)
    grads = gradients(shape)
    take_steps(p, rule, grads)
    flat = nn.Parameter(flat.detach().reshape(max(1, len(torch.atleast_1d(p))), -1))
    take_steps(flat, rule, [gradient.reshape(flat.shape) for gradient in grads])
    torch.testing.assert_close(p.detach().reshape(flat.shape), flat.detach())


@pytest.mark.parametrize("rule", RULES)
def test_parameters_that_are_not_contiguous(rule):
    """Autograd gives a gradient the strides of its parameter, whatever these are."""
    shape, layout = (4, 3, 2, 2), torch.channels_last
    p = parameter(shape)
    other = nn.Parameter(p.detach().clone().to(memory_format=layout))
    take_steps(p, rule, gradients(shape))
    take_steps(other, rule, [g.to(memory_format=layout) for g in gradients(shape)])
    torch.testing.assert_close(p, other)


# --- rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("rule", RULES)
def test_row_updates_are_dense_updates_of_the_touched_rows(rule, weight_decay):
    """Rows without a gradient stay as they are, with their state."""
    touched, p = torch.tensor([5, 0, 3]), parameter()
    before = p.detach().clone()
    part = nn.Parameter(p.detach()[touched].clone())
    take_steps(
        p, rule, [sparse(gradient, touched) for gradient in gradients()], weight_decay=weight_decay
    )
    take_steps(part, rule, [g[touched] for g in gradients()], weight_decay=weight_decay)
    torch.testing.assert_close(p.detach()[touched], part.detach(), rtol=1e-12, atol=1e-12)
    rest = [1, 2, 4, 6]
    assert torch.equal(p.detach()[rest], before[rest])


@pytest.mark.parametrize("rule", RULES)
def test_a_row_given_twice_gets_the_sum(rule):
    once, twice = parameter(), parameter()
    (gradient,) = gradients(n_steps=1)
    rows = torch.tensor([4, 1])
    take_steps(once, rule, [sparse(gradient, rows)])
    halves = torch.cat([gradient[rows] * 0.25, gradient[rows] * 0.75])
    doubled = torch.sparse_coo_tensor(
        rows.repeat(2)[None], halves, gradient.shape, check_invariants=True
    )
    take_steps(twice, rule, [doubled])
    torch.testing.assert_close(once, twice)


def test_lazy_adam_without_momentum_is_adam_with_beta1_zero():
    touched, p = torch.tensor([5, 0, 3]), parameter()
    part = nn.Parameter(p.detach()[touched].clone())
    rows = [sparse(gradient, touched) for gradient in gradients()]
    opt = take_steps(p, "adam", rows, row_momentum=False)
    take_steps(part, "adam", [g[touched] for g in gradients()], betas=(0.0, 0.999))
    torch.testing.assert_close(p.detach()[touched], part.detach(), rtol=1e-12, atol=1e-12)
    assert "exp_avg" not in opt.state[p]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lazy_adam_in_blocks_is_that_of_one_row_at_a_time(dtype, monkeypatch):
    shape = (50, 6)
    whole, blocks = parameter(shape, dtype=dtype), parameter(shape, dtype=dtype)
    rows = torch.randperm(50, generator=torch.Generator().manual_seed(3))[:31]
    grads = [sparse(gradient, rows) for gradient in gradients(shape, dtype=dtype)]
    take_steps(whole, "adam", grads)
    monkeypatch.setattr(optimizer_module, "_BLOCK", 7 * 6)
    take_steps(blocks, "adam", grads)
    torch.testing.assert_close(whole, blocks, rtol=1e-6, atol=1e-7)


def test_a_parameter_may_be_updated_by_rows_and_by_chunks():
    """The first moment begins with the first chunk; the second moment has seen all steps."""
    p = parameter()
    first, second = gradients(n_steps=2)
    opt = optimizer(p, "adam", fused=True, row_momentum=False)
    opt.update(p, torch.tensor([2, 5]), first[[2, 5]])
    opt.step()
    opt.update(p, slice(0, 7), second)
    opt.step()
    square = 0.001 * second.square()
    square[[2, 5]] += 0.999 * 0.001 * first[[2, 5]].square()
    assert opt.state[p]["step"] == 2
    torch.testing.assert_close(opt.state[p]["exp_avg_sq"], square)
    torch.testing.assert_close(opt.state[p]["exp_avg"], 0.1 * second)


def test_lazy_adam_counts_steps_of_the_parameter():
    """A row touched in the third step has a moment of one gradient, and a count of three."""
    p = parameter()
    first, _, third = gradients(n_steps=3)
    opt = optimizer(p, "adam")
    before = p.detach().clone()
    for gradient, row in ((first, 0), (first, 0), (third, 6)):
        p.grad = sparse(gradient, torch.tensor([row]))
        opt.step()
    assert opt.state[p]["step"] == 3
    mean, square = 0.1 * third[6], 0.001 * third[6].square()
    step = (mean / (1 - 0.9**3)) / ((square / (1 - 0.999**3)).sqrt() + 1e-8)
    torch.testing.assert_close(p.detach()[6], before[6] - 0.1 * step)


# --- chunks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("rule", RULES)
def test_chunks_equal_the_whole_bit_for_bit(rule, weight_decay, dtype):
    """What a fused head does: hand over slices of rows, then `step`.

    Slices begin at multiples of the vector width of the processor, as the heads' do.
    """
    shape, edges = (37, 5), [0, 16, 32, 37]
    whole, chunked = parameter(shape, dtype=dtype), parameter(shape, dtype=dtype)
    grads = gradients(shape, dtype=dtype)
    take_steps(whole, rule, grads, weight_decay=weight_decay)
    opt = optimizer(chunked, rule, weight_decay=weight_decay, fused=True)
    for gradient in grads:
        for start, stop in zip(edges[:-1], edges[1:]):
            opt.update(chunked, slice(start, stop), gradient[start:stop].clone())
        opt.step()
    assert torch.equal(whole, chunked)


def test_fused_and_ordinary_parameters_live_together():
    plain, fused = parameter(), parameter((4, 2), seed=3)
    opt = RowOptimizer(
        [{"params": [plain], "rule": "adam"}, {"params": [fused], "rule": "adam", "fused": True}],
        lr=0.1,
    )
    alone, lone_fused = parameter(), parameter((4, 2), seed=3)
    grads, fused_grads = gradients(), gradients((4, 2))
    for gradient, fused_gradient in zip(grads, fused_grads):
        opt.update(fused, slice(0, 4), fused_gradient.clone())
        plain.grad = gradient.clone()
        opt.step()
    take_steps(alone, "adam", grads)
    take_steps(lone_fused, "adam", fused_grads)
    assert torch.equal(plain, alone)
    assert torch.equal(fused, lone_fused)


# --- options and state ------------------------------------------------------------------------


def test_groups_have_their_own_rates():
    slow, fast = parameter(), parameter()
    opt = RowOptimizer(
        [{"params": [slow], "rule": "sgd", "lr": 0.01}, {"params": [fast], "rule": "sgd"}], lr=1.0
    )
    (gradient,) = gradients(n_steps=1)
    before = slow.detach().clone()
    slow.grad, fast.grad = gradient.clone(), gradient.clone()
    opt.step()
    torch.testing.assert_close(slow.detach(), before - 0.01 * gradient)
    torch.testing.assert_close(fast.detach(), before - gradient)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    "rule, fused", [("scaled", False), *itertools.product(RULES, (False, True))]
)
def test_a_saved_state_goes_on_bit_for_bit(rule, fused, momentum):
    def step(opt, p, gradient):
        if fused:
            opt.update(p, slice(0, 7), gradient.clone())
        else:
            p.grad = gradient.clone()
        opt.step()

    p = parameter()
    opt = optimizer(p, rule, fused=fused, momentum=momentum)
    *first, last = gradients()
    for gradient in first:
        step(opt, p, gradient)
    file = io.BytesIO()
    torch.save(copy.deepcopy(opt.state_dict()), file)
    other = nn.Parameter(p.detach().clone())
    resumed = optimizer(other, rule, fused=fused, momentum=momentum)
    file.seek(0)
    resumed.load_state_dict(torch.load(file))
    step(opt, p, last)
    step(resumed, other, last)
    assert torch.equal(p, other)


def test_what_has_no_gradient_stays():
    p = parameter()
    before = p.detach().clone()
    opt = optimizer(p, "adam", weight_decay=0.5)
    opt.step()
    assert torch.equal(p, before)
    assert not opt.state


@pytest.mark.parametrize(
    "rule, momentum, numbers",
    [("adam", 0.9, 2 * 21 + 1), ("adagrad", 0.9, 7), ("sgd", 0.0, 0), ("sgd", 0.9, 21)],
)
def test_size_of_the_state(rule, momentum, numbers):
    p = parameter()
    opt = take_steps(p, rule, gradients(), momentum=momentum)
    assert sum(np.size(value.numpy()) for value in opt.state[p].values()) == numbers


@pytest.mark.parametrize("rule", ["adam", "adagrad", "sgd"])
@pytest.mark.parametrize(
    "gradient, lr, decay",
    [(np.nan, 0.1, 0), (np.inf, 0.1, 0), (1e20, 0.1, 0), (1.0, 1e20, 0), (1.0, 1.0, 3.0)],
)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_step_that_would_overflow_is_refused(rule, gradient, lr, decay, momentum):
    weight = torch.nn.Parameter(torch.ones(2, 2))
    group = {"params": [weight], "rule": rule, "lr": lr, "weight_decay": decay}
    optimizer = RowOptimizer([group], momentum=momentum)
    weight.grad = torch.tensor([[1.0, 1.0], [1.0, gradient]])
    with pytest.raises(FloatingPointError, match="step of the optimizer"):
        optimizer.step()
    with pytest.raises(FloatingPointError, match="step of the optimizer"):
        optimizer.update(weight, slice(None), weight.grad)
    assert weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("rule, momentum", [("adam", 0), ("adagrad", 0), ("sgd", 0), ("sgd", 0.9)])
def test_the_largest_steps_keep_weights_and_state_finite(rule, momentum):
    weight = torch.nn.Parameter(torch.ones(2, 2))
    group = {"params": [weight], "rule": rule, "lr": 1.0, "nesterov": True}
    optimizer = RowOptimizer([group], momentum=momentum)
    for _ in range(10):
        weight.grad = torch.full((2, 2), 9e18 * (1 - momentum))
        optimizer.step()
    with pytest.raises(FloatingPointError, match="step of the optimizer"):
        optimizer.update(weight, slice(None), torch.full((2, 2), 1e19 * (1 - momentum)))
    state = optimizer.state[weight].values()
    assert all(values.isfinite().all() for values in (weight, *state))


@pytest.mark.parametrize("wrong", [0, 1])
def test_one_gradient_that_is_not_finite_is_enough(wrong):
    ps = [parameter(), parameter((2, 3))]
    before = [p.detach().clone() for p in ps]
    opt = RowOptimizer([{"params": ps, "rule": "adam"}])
    for p in ps:
        p.grad = torch.ones_like(p)
    ps[wrong].grad[0, 0] = float("nan")
    with pytest.raises(FloatingPointError, match="too large, or not a number"):
        opt.step()
    assert all(map(torch.equal, ps, before))


def test_updates_of_an_unfinished_step_are_forgotten():
    p = parameter()
    opt = optimizer(p, "sgd")
    opt._safe.append(torch.tensor(False))  # as on a GPU, where only `step` raises
    opt.zero_grad()
    p.grad = torch.ones_like(p)
    opt.step()


# --- groups: every parameter is trained once --------------------------------------------------


class Pretrained(Encoder):
    """A body that learns slowly under a layer that does not."""

    n_outputs = 4

    def __init__(self, n_features=6, groups=None):
        super().__init__()
        self.body, self.top = nn.Linear(n_features, 5), nn.Linear(5, 4)
        self.groups = groups

    def parameter_groups(self):
        if self.groups is not None:
            return self.groups(self)
        return [
            {"params": [self.body.weight], "lr": 2e-5, "weight_decay": 0.3},
            {"params": iter([self.body.bias]), "lr": 2e-5},
        ]

    def forward(self, rows):
        return self.top(torch.relu(self.body(rows)))


def options_of(module, rule="adam", lr=0.01, weight_decay=0.1):
    groups = parameter_groups(module, rule, lr, weight_decay)
    assert all(group["params"] for group in groups)
    assert sum(len(group["params"]) for group in groups) == len(list(module.parameters()))
    return {p: group for group in groups for p in group["params"]}


@pytest.mark.parametrize("rule", ["adam", "mixed", "adagrad", "sgd"])
@pytest.mark.parametrize("sparse", [False, True])
def test_rules(rule, sparse):
    for head in (FlatHead(4, 5, False), CascadeHead(4, 5, True, (3, 2), 4)):
        module = EncoderHead(MLPEncoder(6, (4,), sparse=sparse), head)
        options = options_of(module, rule)
        assert set(options) == set(module.parameters())
        fused = head.fused_parameters()
        for p in module.parameters():
            mixed = rule == "mixed" and p is module.encoder.input.weight
            others = "adam" if rule == "mixed" else rule
            assert options[p]["rule"] == ("scaled" if mixed else others)
            assert options[p]["lr"] == pytest.approx(0.01 * (INPUT_RATE if mixed else 1))
            assert options[p]["weight_decay"] == (0.1 if p.ndim > 1 else 0.0)
            assert options[p]["fused"] == any(p is other for other in fused)


def test_the_encoder_asks_for_rates():
    module = EncoderHead(Pretrained(), FlatHead(4, 5, False))
    options, body, top = options_of(module), module.encoder.body, module.encoder.top
    assert options[body.weight]["lr"] == options[body.bias]["lr"] == 2e-5
    assert options[top.weight]["lr"] == options[module.head.weight]["lr"] == 0.01
    decays = [options[p]["weight_decay"] for p in (body.weight, body.bias, top.weight, top.bias)]
    assert decays == [0.3, 0.0, 0.1, 0.0]


def test_the_input_table_may_have_a_rate_of_its_own():
    class Slow(MLPEncoder):
        def parameter_groups(self):
            return [{"params": self.input.parameters(), "lr": 0.5}]

    module = EncoderHead(Slow(6, (4,)), FlatHead(4, 5, False))
    options = options_of(module, "mixed")[module.encoder.input.weight]
    assert (options["rule"], options["lr"]) == ("scaled", 0.5)


def test_the_head_may_have_a_rate_of_its_own():
    module = EncoderHead(MLPEncoder(6, (4,)), FlatHead(4, 5, False))
    groups = parameter_groups(module, "adam", 0.1, 0.0, head_lr=0.4)
    rates = {p: group["lr"] for group in groups for p in group["params"]}
    assert {rates[p] for p in module.encoder.parameters()} == {0.1}
    assert {rates[p] for p in module.head.parameters()} == {0.4}


def test_the_schedule_scales_every_peak():
    X, y = np.random.default_rng(0).normal(size=(40, 6)), np.arange(40) % 4
    encoder = Pretrained()
    fitted = [
        MultiHeadClassifier(
            encoder=encoder, optimizer="sgd", learning_rate=0.5, max_epochs=16, random_state=0
        ).fit(X, y)
    ]
    groups = fitted[0].net_.optimizer_.param_groups
    assert sorted({group["peak_lr"] for group in groups}) == [2e-5, 0.5]
    assert all(group["lr"] == group["peak_lr"] for group in groups)  # restored for partial_fit
    trained = fitted[0].net_.module_.encoder
    moved = [
        (after.detach() - before.detach()).abs().max()
        for after, before in zip(trained.parameters(), encoder.double().parameters())
    ]
    assert 0 < max(moved[:2]) < 1e-4 < 1e-2 < max(moved[2:])


def test_a_rate_of_zero_freezes():
    encoder = Pretrained(groups=lambda e: [{"params": e.body.parameters(), "lr": 0}])
    X, y = np.random.default_rng(0).normal(size=(40, 6)), np.arange(40) % 4
    clf = MultiHeadClassifier(encoder=encoder, max_epochs=5, random_state=0).fit(X, y)
    assert torch.equal(clf.net_.module_.encoder.body.weight.float(), encoder.body.weight)


@pytest.mark.parametrize(
    "groups, message",
    [
        (lambda e: [{"params": [e.top.weight]}], r"must hold 'params' and 'lr'.*got \['params'\]"),
        (lambda e: [{"lr": 0.1}], r"must hold 'params' and .* got \['lr'\]"),
        (lambda e: [{"params": [e.top.weight], "lr": 1, "betas": 2}], r"got \['betas', 'lr', 'par"),
        (lambda e: [{"params": [e.top.weight], "lr": -1}], "asks for lr=-1; it must not be neg"),
        (lambda e: [{"params": 2 * [e.top.weight], "lr": 1}], r"of shape \(4, 5\) twice"),
        (lambda e: [{"params": [torch.ones(3)], "lr": 1}], r"of shape \(3,\) that is not a param"),
    ],
)
def test_groups_that_are_not_valid(groups, message):
    with pytest.raises(ValueError, match=message):
        options_of(EncoderHead(Pretrained(groups=groups), FlatHead(4, 5, False)))
