"""Every parameter is trained once: by the rule of its kind, at the rate its encoder asks for."""

import numpy as np
import pytest
import torch
from torch import nn

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import Encoder, MLPEncoder
from sklearn_xlc.heads import CascadeHead, FlatHead
from sklearn_xlc.training import EncoderHead
from sklearn_xlc.training.parameter_groups import INPUT_RATE, parameter_groups


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
