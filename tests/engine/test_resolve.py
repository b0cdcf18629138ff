"""Rules behind "auto": tables over facts of the data, and counted costs against counts by hand."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc._part import name_of_part
from sklearn_xlc.batches import n_batches
from sklearn_xlc.decisions import RiskControl, Seen, Threshold, TopK
from sklearn_xlc.engine.resolve import (
    AFTER_FIT,
    BATCH,
    BEAM,
    EMBEDDING,
    SMALL_PRODUCTS,
    UPDATE,
    WIDTH,
    Facts,
    HeldOut,
    Task,
    cascade_cost,
    choose_decision,
    choose_head,
    choose_max_active,
    choose_n_candidates,
    choose_ranker,
    choose_retrievers,
    flat_cost,
    hold_out,
    keeps_type,
    resolve,
    resolve_model,
    resolve_training,
)
from sklearn_xlc.engine.settings import Settings
from sklearn_xlc.optimizers import OPTIMIZERS
from sklearn_xlc.ranking import BoostedRanker, Calibration

#: Parameters of which every rule has one to resolve.
AUTO = {
    "head__n_negatives": "auto",
    "encoder__hidden_layer_sizes": "auto",
    "encoder__dropout": "auto",
    "encoder__negative_slope": "auto",
    "precision": "auto",
    "batch_size": "auto",
    "max_epochs": "auto",
    "optimizer": "auto",
    "learning_rate": "auto",
}
#: Parameters that say which samples are held out.
HELD = {
    "validation_fraction": 0.1,
    "early_stopping": False,
    "ranker": "auto",
    "decision": "auto",
    "callbacks": [],
    "warm_start": False,
}


def facts_of(n_samples, length=70, bag_size=0, **others):
    """Facts of samples, or bags, of label sets on sparse X; samples have `length` non-zeros."""
    n_instances = n_samples * (bag_size or 1)
    return Facts(
        **{
            "n_samples": n_samples,
            "n_labels": 50,
            "multilabel": True,
            "n_instances": n_instances,
            "n_nonzeros": length * n_instances,
            "n_train": n_samples,
            "train_length": max(1.0, length),
            "bag_size": bag_size,
            **others,
        }
    )


def dense_of(facts):
    """The same facts of dense X whose columns are standardised."""
    return replace(facts, sparse=False, standardised=True)


def with_nonzeros(n_samples, n_nonzeros):
    return replace(facts_of(n_samples), n_nonzeros=n_nonzeros)


def model(facts, **params):
    """What is resolved of the model, by short names."""
    found = resolve_model({**AUTO, **params}, facts)
    return {name.rpartition("__")[2]: value for name, value in found.items()}


def training(facts, **params):
    """What is resolved of training; "rates" are those of encoder and head."""
    found = resolve_training({**AUTO, **params}, facts)
    found = {name.rpartition("__")[2]: value for name, value in found.items()}
    return found | {"rates": (found.pop("learning_rate"), found.pop("head_learning_rate"))}


def held(facts, decision="auto", is_part=False, **params):
    return hold_out({**HELD, "decision": decision, **params}, facts, is_part=is_part)


# --- samples ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "n_samples, batch_size, max_epochs, rates",
    [
        (64, 64, 200, (2e-3, 2e-3)),
        (65, 65, 83, (4e-3, (65 / 256) ** 0.5 * 4e-3)),
        (256, 256, 42, (4e-3, 4e-3)),
        (1000, 250, 21, (4e-3, (250 / 256) ** 0.5 * 4e-3)),
        (5000, 250, 9, (0.7 / 180, (250 / 256) ** 0.5 * 4e-3)),
        (256 * 195, 256, 4, (1e-3, 4e-3)),
        (256 * 196, 256, 3, (0.7 / 588, 4e-3)),
        (256 * 4000, 256, 3, (1e-3, 4e-3)),
    ],
)
def test_steps_and_rates_go_by_the_number_of_samples(n_samples, batch_size, max_epochs, rates):
    """Samples have 70 non-zeros."""
    assert training(facts_of(n_samples)) == {
        "batch_size": batch_size,
        "max_epochs": max_epochs,
        "optimizer": "mixed" if n_samples > 64 else "adam",
        "row_momentum": n_samples <= 64,
        "rates": pytest.approx(rates),
    }


def test_batches_are_equal_and_at_most_of_one_sample_more_than_a_step():
    for n_samples in (*range(65, 1100, 3), 49_999, 50_001):
        size = training(facts_of(n_samples))["batch_size"]
        count = n_batches(n_samples, size)
        assert size <= 257, n_samples
        assert count == n_batches(n_samples, 256), n_samples
        assert n_samples - (count - 1) * size > size - count, n_samples


@pytest.mark.parametrize("n_samples, batch_size", [(49_920, 256), (50_176, 512)])
def test_a_cascade_updates_most_weights_in_fewer_steps(n_samples, batch_size):
    assert training(facts_of(n_samples, head="cascade"))["batch_size"] == batch_size


@pytest.mark.parametrize("facts", [{}, {"head": "custom"}, {"sparse": False}], ids=str)
def test_steps_fall_by_no_more_than_half_and_rise_by_no_more_than_twice(facts):
    """The number of batches rises by one at a time, and the epochs fall slowly."""
    steps = []
    for n_samples in range(65, 1500):
        found = training(facts_of(n_samples, **facts))
        steps.append(found["max_epochs"] * n_batches(n_samples, found["batch_size"]))
    ratio = np.array(steps[1:]) / steps[:-1]
    assert ratio.min() > 0.9
    assert ratio.max() <= 2


@pytest.mark.parametrize(
    "n_samples, sparse, dropout, batch_size, max_epochs",
    [
        (1, True, 0.0, 1, 200),
        (64, True, 0.0, 64, 200),
        (65, True, 0.7, 65, 300),
        (65, False, 0.2, 65, 300),
        (1000, False, 0.2, 250, 75),
        (256 * 25, True, 0.7, 256, 12),
        (256 * 4000, True, 0.7, 256, 10),
    ],
)
def test_heads_of_the_user_go_by_the_number_of_samples(
    n_samples, sparse, dropout, batch_size, max_epochs
):
    facts = facts_of(n_samples, head="custom", sparse=sparse)
    found = training(facts)
    assert model(facts)["dropout"] == dropout
    assert (found["batch_size"], found["max_epochs"]) == (batch_size, max_epochs)


@pytest.mark.parametrize(
    "n_samples, dropout", [(64, 0), (65, 0.5), (10_000, 0.5), (17_783, 0.25), (10**6, 0)]
)
def test_dropout_falls_with_the_samples(n_samples, dropout):
    assert model(facts_of(n_samples))["dropout"] == pytest.approx(dropout, abs=1e-5)
    many = n_samples if n_samples < 100 else 2 * n_samples  # texts: the same for twice as many
    of_texts = facts_of(many, texts=True, n_nonzeros=0)
    assert model(of_texts)["dropout"] == pytest.approx(dropout, abs=1e-5)


@pytest.mark.parametrize("n_samples", [1, 20, 200, 1000])
@pytest.mark.parametrize("n_streamed", [1000, 5000, 256 * 195])
def test_streams_take_the_rates_of_a_fit_to_their_samples_so_far(n_samples, n_streamed):
    facts = facts_of(n_samples, n_streamed=n_streamed)
    found, of_fit = training(facts), training(facts_of(n_streamed), batch_size=n_samples)
    assert (found["optimizer"], found["row_momentum"]) == ("mixed", False)
    step = found["batch_size"]
    assert step == min(n_samples, 250)
    assert found["max_epochs"] == of_fit["max_epochs"]
    of_fit = training(facts_of(n_streamed), batch_size=step)
    assert found["rates"] == pytest.approx(of_fit["rates"])


def test_after_a_fit_rates_are_lower():
    stream, after = (facts_of(50, n_streamed=5000, follows_fit=each) for each in (False, True))
    rates = training(stream)["rates"]
    assert training(after)["rates"] == pytest.approx([AFTER_FIT * rate for rate in rates])
    given = training(after, learning_rate=0.1)["rates"]
    assert given == (0.1, 0.1)
    few = facts_of(50, follows_fit=True)  # samples that weights stand for
    assert training(few)["rates"] == training(facts_of(50))["rates"]


@pytest.mark.parametrize("n_samples", [1, 64, 65, 10**6])
@pytest.mark.parametrize("others", [{}, {"sparse": False}, {"head": "custom"}], ids=str)
def test_streams_have_no_dropout_and_one_network_whatever_the_first_batch(n_samples, others):
    streams = [facts_of(n, 150, n_streamed=n, **others) for n in (n_samples, 1000)]
    one, other = map(model, streams)
    assert one == other
    assert one["dropout"] == 0


@pytest.mark.parametrize(
    "length, slope", [(1, 0.0), (70, 0.0), (150, 0.265), (300, 0.5), (999, 0.5)]
)
def test_long_samples_have_leaky_activations_and_lower_rates(length, slope):
    facts = facts_of(1000, length)
    assert model(facts)["negative_slope"] == pytest.approx(slope, abs=1e-3)
    assert training(facts)["rates"][0] == pytest.approx(4e-3 * (70 / length) ** 0.5)
    assert model(facts_of(64, length))["negative_slope"] == 0
    of_classes = facts_of(10_000, length, multilabel=False)
    assert model(of_classes)["negative_slope"] == pytest.approx(max(slope, 0.25), abs=1e-3)


@pytest.mark.parametrize("n_nonzeros", [0, 10**5, 10**8])
def test_width_does_not_go_by_the_number_of_words(n_nonzeros):
    assert model(with_nonzeros(1001, n_nonzeros))["hidden_layer_sizes"] == (512,)


def test_lists_make_up_for_a_narrower_network():
    listed = replace(with_nonzeros(1001, 10), lists=True)
    assert model(listed)["hidden_layer_sizes"] == (384,)
    assert model(replace(listed, sparse=False))["hidden_layer_sizes"] == (1024,)


@pytest.mark.parametrize(
    "other",
    [{"sparse": False}, {"multilabel": False, "head": "sampling"}, {"head": "custom"}],
    ids=str,
)
def test_other_kinds_of_data_keep_the_values_of_all_classifiers(other):
    facts = replace(facts_of(6400, **other, fast_bfloat16=True), n_nonzeros=10**5)
    assert model(facts) == {
        "n_negatives": None,
        "hidden_layer_sizes": (1024,),
        "dropout": 0.7 if facts.sparse else 0.2,
        "negative_slope": 0.0,
        "precision": "float32",
    }
    found = training(facts)
    assert (found["rates"], found["optimizer"], found["row_momentum"]) == (
        (2e-3, 2e-3),
        "adam",
        True,
    )
    found = training(facts_of(10**6, **other))
    assert (found["batch_size"], found["max_epochs"]) == (256, 10)


# --- dense samples ----------------------------------------------------------------------------


@pytest.mark.parametrize("n_samples", [10, 64, 65, 1000, 20_000, 60_000])
@pytest.mark.parametrize("head", ["flat", "cascade", "dft", "etf", "custom"])
@pytest.mark.parametrize("multilabel", [True, False])
def test_standardised_columns_take_the_steps_of_words(n_samples, head, multilabel):
    """Steps, optimiser and rate of the head are equal; the encoder moves three times as far."""
    words = facts_of(n_samples, head=head, multilabel=multilabel, fast_bfloat16=True)
    of_words, found = training(words), training(dense_of(words))
    rate, expected = found.pop("rates"), of_words.pop("rates")
    assert found == of_words
    is_searched = head != "custom" and n_samples > 64
    assert rate == pytest.approx((expected[0] * (3 if is_searched else 1), expected[1]))
    assert model(dense_of(words))["precision"] == model(words)["precision"]
    assert held(dense_of(words)) == held(words)


@pytest.mark.parametrize("length", [1, 70, 300])
def test_width_dropout_and_rate_of_dense_samples_do_not_go_by_their_columns(length):
    facts = dense_of(facts_of(5000, length))
    found = model(facts)
    assert found["hidden_layer_sizes"] == (1024,)
    assert (found["dropout"], found["negative_slope"]) == (0.2, 0.0)
    assert training(facts)["rates"][0] == pytest.approx(3 * 0.7 / 180)
    assert model(dense_of(facts_of(64, length)))["dropout"] == 0


# --- heads ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "multilabel, head",
    [
        (False, "flat"),
        (False, "cascade"),
        (False, "product"),
        (True, "cascade"),
        (True, "product"),
    ],
)
def test_heads_but_that_of_many_outputs_are_slower(multilabel, head):
    many, one = (
        facts_of(5000, 1, **other) for other in ({}, {"multilabel": multilabel, "head": head})
    )
    rates, slower = (training(facts)["rates"] for facts in (many, one))
    assert slower == pytest.approx((rates[0], rates[1] / 2))
    assert training(one)["max_epochs"] == training(many)["max_epochs"] == 9
    few = with_nonzeros(1001, 10)
    assert model(replace(few, multilabel=multilabel, head=head))["hidden_layer_sizes"] == (512,)


@pytest.mark.parametrize(
    "n_labels, multilabel, expected",
    [(1000, True, None), (1001, True, 250), (8000, False, None), (8001, False, 1000)],
)
def test_negatives_are_drawn_from_many_labels(n_labels, multilabel, expected):
    facts = facts_of(10, n_labels=n_labels, multilabel=multilabel)
    assert model(facts)["n_negatives"] == expected


@pytest.mark.parametrize("has_it", [True, False])
def test_half_precision_where_the_processor_has_it(has_it):
    facts = facts_of(65, fast_bfloat16=has_it)
    assert model(facts)["precision"] == ("bfloat16" if has_it else "float32")
    assert model(replace(facts, double=True))["precision"] == "float64"
    assert model(facts_of(64, fast_bfloat16=has_it))["precision"] == "float32"


@pytest.mark.parametrize("head", ["dft", "bottleneck"])
@pytest.mark.parametrize("multilabel", [True, False])
def test_the_fourier_layer_takes_the_values_of_flat(head, multilabel):
    flat = facts_of(60_000, 200, multilabel=multilabel, fast_bfloat16=True)
    facts = replace(flat, head=head)
    of_head, of_flat = training(facts), training(flat)
    assert (of_head.pop("row_momentum"), of_flat.pop("row_momentum")) == (True, False)
    assert of_head == of_flat
    assert of_head["rates"][0] == pytest.approx(1e-3 * 0.35**0.5)
    of_head, of_flat = model(facts), model(flat)
    # Features stay non-negative, which `verify(whole_network=True)` builds on.
    assert of_head.pop("negative_slope") == 0 < of_flat.pop("negative_slope")
    assert of_head == of_flat
    assert of_head["hidden_layer_sizes"] == (512,)
    assert of_head["dropout"] == 0


@pytest.mark.parametrize("needed, width", [(0, 512), (512, 512), (600, 600), (2000, 1024)])
def test_features_are_as_many_as_the_fourier_layer_needs(needed, width):
    facts = replace(with_nonzeros(2000, 10), head="dft", needed_width=needed)
    assert model(facts)["hidden_layer_sizes"] == (width,)


@pytest.mark.parametrize("head", ["dft", "etf"])
def test_dense_samples_that_are_not_standardised_keep_the_values_of_all_classifiers(head):
    facts = replace(facts_of(6400, head=head, sparse=False, fast_bfloat16=True), n_nonzeros=10**5)
    assert model(facts)["hidden_layer_sizes"] == (1024,)
    assert model(facts)["precision"] == "float32"
    found = training(facts)
    assert (found["rates"], found["optimizer"], found["max_epochs"]) == ((2e-3, 2e-3), "adam", 12)


@pytest.mark.parametrize("head", ["etf", "learned"])
@pytest.mark.parametrize("multilabel", [True, False])
@pytest.mark.parametrize("n_samples", [64, 1000, 60_000])
def test_the_simplex_takes_the_values_of_flat(head, multilabel, n_samples):
    flat = facts_of(n_samples, 200, multilabel=multilabel, fast_bfloat16=True)
    facts = replace(flat, head=head)
    assert model(facts) == model(flat)
    of_head, of_flat = training(facts), training(flat)
    rates = of_flat.pop("rates")
    half = 2 if multilabel and n_samples > 64 else 1  # the rate of a softmax
    assert of_head.pop("rates") == pytest.approx((rates[0], rates[1] / half))
    assert of_head == of_flat


# --- bags -------------------------------------------------------------------------------------


@pytest.mark.parametrize("multilabel", [True, False])
@pytest.mark.parametrize("n_samples", [64, 1000, 40_000])
def test_bags_of_one_sample_take_the_values_of_flat(multilabel, n_samples):
    flat = facts_of(n_samples, 200, multilabel=multilabel, fast_bfloat16=True)
    facts = replace(flat, head="miml", bag_size=1.0)
    assert model(facts) == model(flat)
    assert training(facts) == training(flat)


@pytest.mark.parametrize(
    "n_bags, size, batch_size, max_epochs",
    [(500, 10, 25, 17), (2560, 2, 128, 11), (5120, 1, 256, 9)],
)
def test_steps_of_bags_have_as_many_samples(n_bags, size, batch_size, max_epochs):
    """Rates, width, dropout and activation are those of the samples, which have 150 non-zeros."""
    facts = facts_of(n_bags, 150, size, head="miml")
    n_steps = max_epochs * 20
    rate = 0.7 / n_steps * (70 / 150) ** 0.5
    assert training(facts) == {
        "batch_size": batch_size,
        "max_epochs": max_epochs,
        "optimizer": "mixed",
        "row_momentum": False,
        "rates": (pytest.approx(rate), pytest.approx(4e-3, rel=0.02)),
    }
    assert model(facts) == model(facts_of(n_bags * size, 150))


def test_few_samples_in_bags_and_other_data_keep_the_values_of_all_classifiers():
    facts = facts_of(6, 150, 10, head="miml", fast_bfloat16=True)
    assert training(facts) == {
        "batch_size": 6,
        "max_epochs": 200,
        "optimizer": "adam",
        "row_momentum": True,
        "rates": (2e-3, 2e-3),
    }
    found = model(facts)
    assert (found["dropout"], found["negative_slope"]) == (0, 0)
    assert found["precision"] == "float32"
    facts = facts_of(640, 15, 10, head="miml", sparse=False)
    found = training(facts)
    assert model(facts)["hidden_layer_sizes"] == (1024,)
    assert found["rates"] == (2e-3, 2e-3)
    assert (found["optimizer"], found["max_epochs"], found["batch_size"]) == ("adam", 12, 25)


@pytest.mark.parametrize(
    "precision, n_samples, is_blurred, expected",
    [
        ("auto", 1000, False, True),
        ("auto", 1001, False, False),
        ("auto", 10**6, True, True),
        ("float32", 1000, True, False),
        ("float64", 10**6, True, False),
    ],
)
def test_few_samples_and_columns_far_from_zero_keep_their_type(
    precision, n_samples, is_blurred, expected
):
    assert keeps_type(precision, n_samples, lambda: is_blurred) == expected


@pytest.mark.parametrize("most_labels, n_labels, expected", [(3, 50, 3), (9, 12, 5), (1, 2, 0)])
def test_guaranteed_label_sets_are_as_large_as_those_of_the_samples(
    most_labels, n_labels, expected
):
    facts = facts_of(5000, head="dft", most_labels=most_labels, n_labels=n_labels)
    assert choose_max_active(most_labels, n_labels) == expected
    assert model(facts, max_active="auto")["max_active"] == expected
    assert "max_active" not in model(facts, max_active=2)
    without = replace(facts, head="bottleneck")
    assert model(without, max_active="auto")["max_active"] == "auto"


# --- what is given ----------------------------------------------------------------------------


def test_what_is_given_is_taken_as_it_is():
    given = {
        "head__n_negatives": 3,
        "encoder__hidden_layer_sizes": (7,),
        "encoder__dropout": 0.1,
        "encoder__negative_slope": 0.2,
        "precision": "float32",
    }
    facts = facts_of(10**6, n_labels=10**5, fast_bfloat16=True)
    assert model(facts, **given) == {}
    assert model(facts, head__n_negatives=None).keys() == model(facts).keys() - {"n_negatives"}
    assert resolve_model({"precision": "float32"}, facts) == {}
    given = {"batch_size": 32, "max_epochs": 7, "learning_rate": 0.5, "optimizer": "sgd"}
    assert training(facts, **given) == {"row_momentum": False, "rates": (0.5, 0.5)}


@pytest.mark.parametrize(
    "params, rates",
    [
        ({"learning_rate": 0.5}, (0.5, 0.5)),
        ({"optimizer__learning_rate": 0.1}, (0.1, 0.1)),
        ({"optimizer__learning_rate": 0.1, "optimizer__head_learning_rate": 0.3}, (0.1, 0.3)),
        ({"optimizer__head_learning_rate": 0.3}, (0.7 / 180, 0.3)),
        ({"optimizer__learning_rate": None, "learning_rate": 0.5}, (0.5, 0.5)),
    ],
)
def test_rates_of_the_classifier_and_of_its_optimiser(params, rates):
    assert training(facts_of(5000), **params)["rates"] == pytest.approx(rates)


def test_rates_go_by_the_steps_that_are_given():
    """So many steps as a table above has for other numbers of samples."""
    found = training(facts_of(5000), batch_size=512, max_epochs=20)
    assert found["rates"] == pytest.approx((0.7 / 200, 2**0.5 * 4e-3))


def test_momentum_of_rows_is_taken_as_it_is_given():
    for given in (True, False):
        found = training(facts_of(5000), optimizer__row_momentum=given)
        assert "row_momentum" not in found


# --- head by cost -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "n_labels, labels_per_sample, width, head",
    [
        (165_000, 5.0, WIDTH, "flat"),
        (185_000, 5.0, WIDTH, "cascade"),
        (50_000, 40.0, 512, "cascade"),  # so many labels a batch are dear to update
        (75_000, None, WIDTH, "flat"),
        (80_000, None, WIDTH, "cascade"),
        (40_000, 5.0, 1024, "cascade"),
        (300_000, 5.0, 256, "flat"),
        (2, None, WIDTH, "flat"),
    ],
)
def test_auto_takes_flat_unless_it_costs_far_more(n_labels, labels_per_sample, width, head):
    """Without a number of labels a sample has one class."""
    task = Task(n_labels, labels_per_sample or 1.0, width)
    assert choose_head(task, multilabel=labels_per_sample is not None) == head


def test_flat_trains_all_labels_or_those_of_the_batch_and_negatives():
    task = Task(n_labels=100, labels_per_sample=0.125, width=8)
    every = flat_cost(task, None)
    assert every == (800 + UPDATE * 800 / BATCH, 800)
    drawn = 32 + 10
    assert flat_cost(task, 10) == (drawn * 8 * (1 + UPDATE / BATCH), 800)
    assert flat_cost(task, 99) == every


@pytest.mark.parametrize("multilabel, met", [(True, BEAM + 1.5), (False, 1)])
def test_cascade_scores_children_of_kept_parents(multilabel, met):
    task = Task(n_labels=64_000, labels_per_sample=1.5, width=16)  # 1600 nodes of 40 children
    dense, children = 1600 * 16 + 16 * EMBEDDING, 40 * EMBEDDING
    touched = 1600 * (1 - (1 - met / 1600) ** BATCH)
    trained = dense + SMALL_PRODUCTS * met * children
    predicted = dense + SMALL_PRODUCTS * BEAM * children
    expected = trained + UPDATE * touched * children / BATCH, predicted
    assert cascade_cost(task, multilabel) == pytest.approx(expected)


def test_a_beam_keeps_no_more_than_there_is():
    task = Task(n_labels=12, labels_per_sample=9.0, width=1)  # 6 nodes of 2 children
    dense, children = 6 + EMBEDDING, 2 * EMBEDDING
    each = dense + SMALL_PRODUCTS * 6 * children
    assert cascade_cost(task, True) == (each + UPDATE * 6 * children / BATCH, each)


# --- held-out samples -------------------------------------------------------------------------

TUNED, FIXED = Threshold(), Threshold(0.3)


@pytest.mark.parametrize(
    "texts, counts, has_word_vectors, expected",
    [
        (True, False, True, "texts"),
        (True, False, False, "words"),
        (False, True, True, "counts"),
        (False, True, False, "counts"),
        (False, False, True, "words"),
    ],
)
def test_retrievers_go_by_the_kind_of_samples(texts, counts, has_word_vectors, expected):
    facts = Facts(n_samples=1000, n_labels=50, multilabel=True, texts=texts, counts=counts)
    assert choose_retrievers(facts, has_word_vectors) == expected


@pytest.mark.parametrize(
    "labels_per_sample, n_listed", [(1.0, 20), (6.6, 20), (19.1, 57), (500.0, 200)]
)
def test_lists_hold_most_true_labels(labels_per_sample, n_listed):
    facts = Facts(1000, 5000, multilabel=True, labels_per_sample=labels_per_sample)
    assert choose_n_candidates(facts) == n_listed


@pytest.mark.parametrize(
    "params, n_held",
    [
        ({}, 115),
        ({"decision": TopK()}, 115),  # for the ranker
        ({"decision": TopK(), "ranker": None}, 0),
        ({"decision": FIXED}, 115),
        ({"ranker": None}, 115),
        ({"validation_fraction": 0.044}, 102),
        ({"validation_fraction": 0.04}, 0),  # too few
        ({"decision": TUNED}, 230),
        ({"early_stopping": True}, 230),
        ({"early_stopping": True, "validation_fraction": 0.0501}, 116),
        ({"ranker": Calibration()}, 115),
        ({"ranker": BoostedRanker()}, 230),
        ({"decision": TopK(), "ranker": Calibration()}, 115),
        ({"decision": TopK(), "ranker": Calibration(), "validation_fraction": 0.04}, 92),
        ({"decision": Seen(), "ranker": None}, 0),
    ],
    ids=str,
)
def test_how_many_samples_are_held_out(params, n_held):
    """Of dense samples, of which no second network is trained."""
    found = held(facts_of(2300, sparse=False), **params)
    assert (found.n_held, found.refit) == (n_held, False)


@pytest.mark.parametrize(
    "facts, params",
    [
        (facts_of(1999, sparse=False), {}),  # too few
        (facts_of(2300, multilabel=False), {}),
        (facts_of(2300, multilabel=False), {"decision": TUNED}),
        (facts_of(2300, soft=True), {}),
        (facts_of(2300, pointwise=False), {}),  # a softmax, or scores of sets
        (facts_of(2300), {"decision": TopK(), "ranker": None}),
    ],
)
def test_nothing_is_held_out_where_nothing_is_fitted_on_it(facts, params):
    assert held(facts, **params) == HeldOut(0, False, 0.1)


@pytest.mark.parametrize(
    "n_split, facts, params, n_held",
    [
        (700, {}, {}, 700),  # neither a second network nor a smaller share
        (100, {}, {}, 100),
        (99, {}, {}, 99),
        (39, {}, {}, 0),  # too few for "auto"
        (99, {"pointwise": False, "one_softmax": True}, {}, 0),
        (99, {}, {"early_stopping": True}, 99),
        (99, {}, {"decision": TUNED}, 99),
        (99, {}, {"ranker": Calibration()}, 99),
        (700, {}, {"decision": TopK(), "ranker": None}, 0),
        (700, {"soft": True}, {}, 0),
    ],
    ids=str,
)
def test_a_splitter_says_how_many_samples_are_held_out(n_split, facts, params, n_held):
    found = held(facts_of(2300, n_split=n_split, **facts), validation_fraction=[], **params)
    assert found == HeldOut(n_held, False, [])


@pytest.mark.parametrize(
    "n_held, params, n_stopping",
    [
        (300, {}, 150),
        (201, {"decision": TopK(), "ranker": Calibration()}, 100),
        (199, {}, 0),  # too few to share: all read the same
        (300, {"decision": TopK(), "ranker": None}, 0),  # nothing else reads them
        (300, {"early_stopping": False, "decision": TUNED}, 0),
        (300, {"decision": RiskControl(), "ranker": Calibration()}, 150),
    ],
    ids=str,
)
def test_early_stopping_reads_samples_of_its_own(n_held, params, n_stopping):
    params = {"early_stopping": True, "validation_fraction": n_held / 3000} | params
    found = held(facts_of(3000, sparse=False), **params)
    assert (found.n_held, found.n_stopping) == (n_held, n_stopping)
    if params.get("decision") is None:  # a guarantee and a splitter exclude each other
        split = held(facts_of(3000, n_split=n_held), **params)
        assert (split.n_held, split.n_stopping) == (n_held, n_stopping)


@pytest.mark.parametrize("n_samples", [30_000, 46_000, 10**6])
def test_at_most_a_thousand_samples_are_held_out(n_samples):
    for sparse in (True, False):
        found = held(facts_of(n_samples, sparse=sparse))
        assert (found.n_held, found.refit) == (1000, False)


@pytest.mark.parametrize("n_samples", [2000, 2003, 2300, 7919, 19_999, 46_000, 10**6 + 3])
def test_a_fraction_gives_the_same_number_of_samples(n_samples):
    """What "auto" holds out, `validation_fraction` asks for in another fit."""
    facts = facts_of(n_samples, sparse=False)
    found = held(facts)
    assert found.n_held > 0
    assert np.ceil(found.validation_fraction * n_samples) == found.n_held
    again = held(facts, decision=TUNED, validation_fraction=found.validation_fraction)
    assert again == found


@pytest.mark.parametrize("multilabel", [True, False])
@pytest.mark.parametrize("n_samples", [248, 3000, 29_999, 46_000, 10**6])
def test_a_named_ranker_learns_from_the_samples_of_auto(n_samples, multilabel):
    others = {"retrieves": True, "one_softmax": not multilabel, "pointwise": multilabel}
    facts = facts_of(n_samples, multilabel=multilabel, **others)
    assert choose_ranker(facts, "auto") == "boosted"
    found = held(facts)
    assert (found.n_held, found.refit) == ((3000, False) if n_samples >= 30_000 else (0, True))
    assert held(facts, ranker=BoostedRanker()) == found
    settled = {"ranker": BoostedRanker(), "validation_fraction": found.validation_fraction}
    assert held(facts, **settled) == found


@pytest.mark.parametrize("n_samples", [248, 29_999])
def test_few_samples_train_a_second_network(n_samples):
    assert held(facts_of(n_samples)) == HeldOut(0, True, "refit")
    assert held(facts_of(n_samples), FIXED) == HeldOut(0, True, "refit")
    assert held(facts_of(n_samples), ranker=None) == HeldOut(0, True, "refit")


@pytest.mark.parametrize(
    "facts, params",
    [
        (facts_of(1500), {"callbacks": ["a callback"]}),
        (facts_of(1500), {"warm_start": True}),
        (facts_of(1500, head="custom"), {}),
        (facts_of(1500, head="sampling"), {}),
        (facts_of(1500, sparse=False), {}),
        (facts_of(1500, bag_size=2.0), {}),
        (facts_of(97), {}),  # too few for a decision
        (facts_of(247, pointwise=False, one_softmax=True), {}),
        (facts_of(1500), {"early_stopping": True}),
        (facts_of(1500), {"decision": TUNED}),
    ],
    ids=str,
)
def test_no_second_network_for_other_fits(facts, params):
    assert not held(facts, **params).refit


@pytest.mark.parametrize(
    "params, refit",
    [
        ({}, True),
        ({"decision": TUNED}, True),
        ({"decision": TUNED, "ranker": None}, True),
        ({"decision": TopK(), "ranker": "calibration"}, True),
        ({"decision": TopK(), "ranker": None}, False),
    ],
    ids=str,
)
def test_a_second_network_can_be_asked_for(params, refit):
    for facts in (facts_of(50), facts_of(10**6, sparse=False, head="custom")):
        found = held(facts, validation_fraction="refit", **params)
        assert found == HeldOut(0, refit, "refit")
    with pytest.raises(ValueError, match="validation_fraction='refit' holds nothing out"):
        held(facts, validation_fraction="refit", early_stopping=True, **params)


@pytest.mark.parametrize(
    "n_samples, n_trained", [(248, 148), (1500, 900), (8000, 4800), (10_000, 5000), (20_000, 8000)]
)
def test_sizes_of_the_part(n_samples, n_trained):
    found = held(facts_of(n_samples), is_part=True)
    assert (n_samples - found.n_held, found.refit) == (n_trained, False)


# --- decision ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "link, ranks_sets, is_enough, expected",
    [
        ("softmax", True, True, ("joint_mode", {})),
        ("softmax", False, False, ("divergence", {})),
        ("exp", False, False, ("divergence", {})),
        (None, False, False, ("topk", {})),
        *(
            (link, False, True, ("threshold", {"min_labels": "auto"}))
            for link in ("sigmoid", "softmax", "exp")
        ),
        (
            "sigmoid",
            False,
            False,
            ("threshold", {"min_labels": "auto", "threshold": 0.0, "scale": "score"}),
        ),
    ],
)
def test_decision_of_auto(link, ranks_sets, is_enough, expected):
    assert choose_decision(link, ranks_sets, is_enough) == expected


# --- all rules --------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [resolve_model, resolve_training])
@pytest.mark.parametrize("n_samples", [100, 5000, 60_000])
def test_rules_are_pure(rule, n_samples):
    """Equal facts and parameters give equal settings, and parameters stay as they are."""
    params = {**AUTO, **HELD, "decision": Threshold()}
    before = copy.copy(params)
    facts = facts_of(n_samples, 33, fast_bfloat16=True)
    found = rule(params, facts)
    assert params == before
    assert rule(dict(reversed(params.items())), copy.deepcopy(facts)) == found
    # What was found is found again by a fit with these settings.
    assert rule({**params, **found}, facts).items() <= found.items()


@pytest.mark.parametrize("n_samples", [100, 5000, 60_000])
def test_settings_are_resolved_to_others(n_samples):
    """Equal facts give equal settings, the given ones stay, and resolved ones are resolved."""
    clf = MultiHeadClassifier("flat", encoder="mlp")
    given = Settings(clf.get_params(deep=False), clf._parts)
    before, facts = given.plain(), facts_of(n_samples, 33, fast_bfloat16=True)
    found = resolve(given, facts)
    assert given.plain() == before
    assert resolve(given, copy.deepcopy(facts)).plain() == found.plain()
    assert resolve(found, facts).plain() == found.plain()
    rules = model(facts) | training(facts)
    encoder, optimizer = found["encoder"], found["optimizer"]
    assert encoder.hidden_layer_sizes == rules["hidden_layer_sizes"]
    assert (encoder.dropout, found["precision"]) == (rules["dropout"], rules["precision"])
    assert found["head"].n_negatives == rules["n_negatives"]
    assert (found["batch_size"], found["max_epochs"]) == (rules["batch_size"], rules["max_epochs"])
    assert name_of_part(optimizer, OPTIMIZERS) == rules["optimizer"]
    assert (optimizer.learning_rate, optimizer.head_learning_rate) == rules["rates"]


def test_held_out_samples_are_pure():
    params, facts = {**HELD, "callbacks": []}, facts_of(2300, sparse=False)
    before = copy.deepcopy(params)
    assert hold_out(params, facts) == hold_out(params, facts)
    assert params == before
