"""Optimisers as parts: what each hands to the training loop, and what it refuses."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from _factories import make_learnable, quick
from sklearn_xlc.optimizers import OPTIMIZERS, SGD, Adagrad, Adam, Mixed, Optimizer
from sklearn_xlc.training.optimizer import RULES

PARTS = [Adam, Mixed, Adagrad, SGD]
every_part = pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)


def test_names():
    assert OPTIMIZERS == {"adam": Adam, "mixed": Mixed, "adagrad": Adagrad, "sgd": SGD}
    assert {part.rule for part in PARTS} == set(OPTIMIZERS)
    assert set(OPTIMIZERS) <= set(RULES)


@every_part
def test_parts_have_what_the_training_loop_reads(part):
    made = part()
    assert isinstance(made, Optimizer)
    made.check()
    rates = made.learning_rate, made.head_learning_rate, made.weight_decay
    assert rates == (None, None, None)  # those of the classifier
    assert (made.momentum, made.nesterov) == (0.0, False)
    assert made.row_momentum == ("auto" if isinstance(made, Adam) else True)


@every_part
def test_parameters_are_stored_as_they_are(part):
    made = part(0.125, head_learning_rate=0.25, weight_decay=0.5)
    assert (made.learning_rate, made.head_learning_rate, made.weight_decay) == (0.125, 0.25, 0.5)
    copy = clone(made)
    assert copy.get_params() == made.get_params()
    assert type(copy) is part


@every_part
@pytest.mark.parametrize(
    "name, value",
    [
        ("learning_rate", 0.0),
        ("learning_rate", "auto"),
        ("head_learning_rate", -1.0),
        ("weight_decay", -0.1),
        ("weight_decay", np.inf),
    ],
)
def test_rates_are_checked(part, name, value):
    message = f"The '{name}' parameter of {part.__name__} must be .* Got {value!r} instead"
    with pytest.raises(ValueError, match=message):
        part(**{name: value}).check()


def test_nesterov_needs_momentum():
    SGD(momentum=0.9, nesterov=True).check()
    with pytest.raises(ValueError, match="nesterov=True needs momentum above zero, got momentum=0"):
        SGD(nesterov=True).check()


@every_part
@pytest.mark.parametrize("head_rate", [None, 0.25])
def test_the_loop_has_these_rates(part, head_rate):
    X, y = make_learnable(False)
    optimizer = part(0.125, head_learning_rate=head_rate, weight_decay=0.5)
    clf = quick("flat", optimizer=optimizer, learning_rate="auto", max_epochs=1).fit(X, y)
    groups = clf.net_.optimizer_.param_groups
    of_input = {0.375} if part is Mixed else set()  # three times the rate
    assert {group["lr"] for group in groups} == {0.125, head_rate or 0.125} | of_input
    assert {group["weight_decay"] for group in groups} <= {0.0, 0.5}
    assert 0.5 in {group["weight_decay"] for group in groups}
    assert (
        optimizer.get_params()
        == part(0.125, head_learning_rate=head_rate, weight_decay=0.5).get_params()
    )


@every_part
def test_an_object_trains_as_its_name(part):
    X, y = make_learnable(True)
    name = next(name for name, kind in OPTIMIZERS.items() if kind is part)
    fits = [
        quick("flat", max_epochs=2, optimizer=name, learning_rate=0.01, weight_decay=0.1),
        quick("flat", max_epochs=2, optimizer=part(), learning_rate=0.01, weight_decay=0.1),
        quick("flat", max_epochs=2, optimizer=part(0.01, weight_decay=0.1), learning_rate="auto"),
    ]
    curves = [clf.fit(X, y).loss_curve_ for clf in fits]
    assert curves[0] == curves[1] == curves[2]
    assert all(clf.settings_["optimizer"] == name for clf in fits)


def test_rows_without_momentum_train_otherwise():
    X = sp.random(150, 2000, 0.01, format="csr", random_state=0)  # rows of the input layer
    y = np.arange(150) % 9
    fits = [
        quick("flat", max_epochs=2, batch_size=50, optimizer=Adam(row_momentum=rows)).fit(X, y)
        for rows in (True, False)
    ]
    assert fits[0].loss_curve_ != fits[1].loss_curve_
    assert [clf.settings_["optimizer__row_momentum"] for clf in fits] == [True, False]
