"""Settings of a fit: copies of parts, "auto" replaced by what rules say, plain values."""

import copy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import nn

from sklearn_xlc import MultiHeadClassifier, decisions, encoders, heads, optimizers, ranking
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.engine.settings import Settings


def settings(**params):
    clf = MultiHeadClassifier(**params)
    return Settings(clf.get_params(deep=False), clf._parts)


def test_names_become_parts_and_auto_stays():
    found = settings(head="cascade", encoder="mlp", decision="topk", ranker=None, optimizer="sgd")
    assert repr(found["head"]) == repr(heads.Cascade())
    assert repr(found["encoder"]) == repr(encoders.MLP())
    assert repr(found["decision"]) == repr(decisions.TopK())
    assert repr(found["optimizer"]) == repr(optimizers.SGD())
    assert (found["ranker"], found["loss"], found["batch_size"]) == (None, "auto", "auto")


def test_parts_are_copied_and_what_is_no_part_is_not():
    part, module, head = encoders.MLP((3,)), nn.Linear(2, 2), heads.Cascade(label_order=[1, 0])
    found = settings(head=head, encoder=part)
    found = found.replaced({"encoder__dropout": 0.3, "head__beam_width": 3})
    assert (part.dropout, head.beam_width) == ("auto", 10)
    assert (found["encoder"].dropout, found["head"].beam_width) == (0.3, 3)
    assert settings(encoder=module)["encoder"] is module
    assert settings(head=heads.FlatHead)["head"] is heads.FlatHead


def test_flat_parameters_are_those_of_set_params():
    given = {"encoder": encoders.MLP((7,), dropout=0.1), "head": "flat", "loss": "focal"}
    flat = settings(**given, batch_size=3).flat()
    clf = MultiHeadClassifier(**given)
    assert flat.keys() >= clf.get_params(deep=False).keys()
    assert (flat["encoder__hidden_layer_sizes"], flat["encoder__dropout"]) == ((7,), 0.1)
    assert (flat["head__n_negatives"], flat["batch_size"]) == ("auto", 3)
    assert "loss__gamma" in flat
    assert not [name for name in flat if name.startswith(("decision__", "optimizer__"))]


def test_what_rules_find_takes_the_place_of_auto():
    found = settings(head="flat", encoder="mlp")
    rules = {
        "optimizer__learning_rate": 0.1,  # before its part
        "optimizer__momentum": 0.9,  # which this part lacks
        "optimizer": "mixed",
        "head__n_negatives": 5,
        "encoder__dropout": 0.3,
        "batch_size": 32,
        "decision__threshold": 0.5,  # "auto" has no parameters
    }
    before = copy.copy(rules)
    found = found.replaced(rules)
    assert rules == before
    assert repr(found["optimizer"]) == repr(optimizers.Mixed(0.1))
    assert found["head"].n_negatives == 5
    assert found["encoder"].dropout == 0.3
    assert (found["batch_size"], found["decision"]) == (32, "auto")


def test_plain_values_are_those_that_set_params_takes():
    found = settings(
        head=heads.Cascade(lengths=[3, 4], label_order=np.array([1, 0])),
        encoder=encoders.MLP(np.int64(8), dropout=np.float32(0.5)),
        decision="topk",
        ranker=None,
        batch_size=np.int64(7),
        class_weight="balanced",
        learning_rate=0.3,
        random_state=0,
        verbose=1,
        device="cpu",
        checkpoint="folder",
        warm_start=True,
        callbacks=[],
    )
    found = found.replaced({"max_epochs": 3, "optimizer": "adam", "optimizer__learning_rate": 0.3})
    plain = found.plain()
    assert plain["head"] == "cascade"
    assert (plain["head__lengths"], plain["head__label_order"]) == ((3, 4), (1, 0))
    assert (plain["encoder"], plain["encoder__hidden_layer_sizes"]) == ("mlp", 8)
    assert (plain["encoder__dropout"], plain["decision"]) == (0.5, "topk")
    assert plain["ranker"] is None
    assert (plain["batch_size"], plain["max_epochs"]) == (7, 3)
    assert (plain["optimizer"], plain["learning_rate"]) == ("adam", 0.3)
    assert plain["optimizer__learning_rate"] is None  # a rate is given in one place
    assert plain["class_weight"] == "balanced"
    kinds = bool | int | float | str | tuple | None
    assert all(isinstance(value, kinds) for value in plain.values())
    assert "loss" not in plain  # still "auto"
    # What the weights do not depend on, and a rate that was not given.
    left_out = "random_state verbose device checkpoint warm_start callbacks weight_decay"
    assert not set(left_out.split()) & plain.keys()
    MultiHeadClassifier().set_params(**plain)


@pytest.mark.parametrize(
    "params",
    [{"encoder": nn.Linear(2, 2)}, {"head": heads.FlatHead}, {"class_weight": {0: 1.0}}],
    ids=str,
)
def test_objects_are_left_out(params):
    plain = settings(**params).plain()
    assert not [name for name in plain if name.startswith(next(iter(params)))]


def pieces(text):
    return [text[i : i + 3] for i in range(0, len(text), 2)]


@pytest.mark.parametrize(
    "params",
    [
        {"ranker": ranking.BoostedRanker([("near", ranking.NearestSamples())])},
        {"ranker": ranking.BoostedRanker(estimator=HistGradientBoostingClassifier(max_iter=3))},
        {"encoder": encoders.Text(1024, hidden_layer_sizes=(8,), tokenizer=pieces)},
    ],
)
def test_settings_keep_parts_with_values_that_are_not_plain(params):
    """Before, the name of the part stood for one without them."""
    X, Y = make_extreme_multilabel(400, 60, 12, random_state=0)
    X = [" ".join(f"w{j}" for j in row.indices) for row in X] if "encoder" in params else X
    clf = MultiHeadClassifier("flat", max_epochs=2, random_state=0, **params).fit(X, Y)
    same = clone(clf).set_params(**clf.settings_).fit(X, Y)
    np.testing.assert_array_equal(same.decision_function(X), clf.decision_function(X))
