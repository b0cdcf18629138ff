"""Row weights, ties, and what every head keeps to."""

from functools import partial

import pytest
import torch

from _factories import make_targets
from sklearn_xlc.heads import (
    AsymmetricLoss,
    CascadeHead,
    Flat,
    FlatHead,
    FourierHead,
    Head,
    HeadPart,
    HeadTask,
    MIMLHead,
    PowersetHead,
    head_part,
    row_weights,
    topk_by_position,
)


def test_row_weights_do_not_depend_on_the_other_rows_of_a_batch():
    features = torch.zeros(4, 2, dtype=torch.float64)
    assert row_weights(None, features).tolist() == [0.25] * 4
    weights = row_weights(torch.tensor([1.0, 3.0, 0.0, 4.0]), features)
    assert weights.tolist() == [0.25, 0.75, 0.0, 1.0]
    assert weights.dtype == torch.float64


def test_a_head_must_say_how_it_scores():
    with pytest.raises(TypeError, match="abstract"):
        Head(2, 3, True)


class Searching(FlatHead):
    searches_all = False


@pytest.mark.parametrize(
    "head",
    [
        FlatHead(3, 20, True),
        CascadeHead(3, 20, True, (4, 5), embedding_dim=4),
        CascadeHead(3, 20, False, (3, 3, 3), embedding_dim=4),
        FourierHead(3, 20, True, 2, n_slack=1, method="chunk"),
    ],
    ids=lambda head: type(head).__name__,
)
@torch.no_grad()
def test_the_copy_for_a_graph_ranks_the_same(head):
    features = torch.randn(5, 3)
    head.eval().set_free(torch.arange(20) % 7 == 0)
    scores, positions = head._for_graph(4)._candidates(features, 4)
    found = topk_by_position(scores, 4, positions)
    for one, other in zip(found, head.topk(features, 4), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "head, why",
    [
        (MIMLHead(3, 4, True), "MIMLHead: its samples come in bags"),
        (PowersetHead(3, 4, True), "PowersetHead: it searches among whole label sets"),
        (Searching(3, 4, True), "Searching: its best labels are not those of its scores"),
    ],
)
def test_a_head_says_why_no_graph_computes_it(head, why):
    with pytest.raises(TypeError, match=f"to_onnx cannot express the head {why}"):
        head._for_graph(2)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("loss", ["bce", "pick_all_labels"])
def test_a_loss_that_is_not_finite_updates_nothing(value, loss):
    head, features = FlatHead(3, 5, True, loss=loss), torch.full((2, 3), value)
    updates = []
    with pytest.raises(FloatingPointError, match="the training loss became"):
        head.loss(features, make_targets([[0], [2]]), None, lambda *given: updates.append(given))
    assert not updates


@pytest.mark.parametrize(
    "head",
    [
        CascadeHead(6, 60, True, (5, 4, 3), embedding_dim=7),
        FourierHead(6, 60, True, max_active=2, n_slack=5),
        FlatHead(6, 60, True),
    ],
    ids=lambda head: type(head).__name__,
)
def test_bias_columns_are_where_the_prior_goes(head):
    before = {name: p.detach().clone() for name, p in head.named_parameters()}
    head.set_prior(torch.linspace(0.01, 0.4, 60))
    columns = {id(p): (length, column) for p, length, column in head.bias_columns()}
    for name, parameter in head.named_parameters():
        changed = parameter.detach() != before[name]
        if parameter.ndim == 1:
            continue
        length, column = columns.pop(id(parameter), (parameter.shape[1], None))
        moved = changed.view(-1, length).any(0).nonzero().flatten().tolist()
        assert moved == ([] if column is None else [column])
    assert not columns


def test_head_of_a_part_or_a_function():
    task = HeadTask(5, 7, True, loss="bce")
    for head in (Flat(n_negatives=None), FlatHead, partial(FlatHead, width=2)):
        made = head_part(head).build(task)
        assert type(made) is FlatHead
        assert (made.n_features, made.n_labels, made.multilabel) == (5, 7, True)
    with pytest.raises(TypeError, match="head must be a function of .* it returned tuple"):
        head_part(lambda *size: size).build(task)
    with pytest.raises(TypeError, match="unexpected keyword argument 'breadth'"):
        task.build(FlatHead, breadth=2)


class PassingHead(FlatHead):
    def __init__(self, *args, scale=1.0, **params):
        super().__init__(*args, **params)
        self.scale = scale


class Passing(HeadPart):
    head = PassingHead

    def __init__(self, scale=2.0, width=3):
        self.scale = scale
        self.width = width


def test_a_constructor_may_pass_arguments_on():
    made = Passing().build(HeadTask(5, 7, True, loss="asymmetric", memory_limit=99))
    assert (made.scale, made.weight.shape, made.memory_limit) == (2.0, (7, 3), 99)
    assert type(made.criterion) is AsymmetricLoss


def test_a_loss_that_a_head_does_not_take_is_refused():
    class Own(FlatHead):
        def __init__(self, n_features, n_labels, multilabel):
            super().__init__(n_features, n_labels, multilabel)

    class OwnPart(HeadPart):
        head = Own

    for loss in ("auto", "bce"):
        assert type(OwnPart().build(HeadTask(5, 7, True, loss=loss))) is Own
    with pytest.raises(ValueError, match=r"head=OwnPart\(\) takes no loss; .* got loss='asymm"):
        OwnPart().build(HeadTask(5, 7, True, loss="asymmetric"))
