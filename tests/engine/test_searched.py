"""Values of "auto": output layer, and training on sparse X."""

from dataclasses import replace
from unittest.mock import ANY

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc import (
    DFTSigmoidClassifier,
    ETFNeuralCollapseClassifier,
    MIMLClassifier,
    MultiHeadClassifier,
)
from sklearn_xlc.batches import Rows
from sklearn_xlc.encoders import MLP
from sklearn_xlc.engine import searched
from sklearn_xlc.engine.label_code import LabelCode, code_of
from sklearn_xlc.heads import Flat
from sklearn_xlc.training.devices import multiplies_bfloat16


def classifier(n_labels=50, multilabel=True, sparse=True, kind=MultiHeadClassifier, **params):
    """Classifier as it is where it asks for its defaults: labels and form of X are known."""
    clf = kind(**params)
    y = sp.eye(n_labels, format="csr") if multilabel else np.arange(n_labels)
    clf._code, clf._sparse_inputs = code_of(y, y), sparse
    return clf


def rows_of(n_samples, n_stored):
    """Samples of which the last holds all non-zeros, whose arrays take no memory."""
    values, columns = (
        np.broadcast_to(np.ones(1, dtype), n_stored) for dtype in (np.float32, np.int32)
    )
    indptr = np.zeros(n_samples + 1, dtype=np.int32)
    indptr[-1] = n_stored
    return Rows(sp.csr_matrix((values, columns, indptr), shape=(n_samples, n_stored)))


@pytest.mark.parametrize(
    "n_samples, batch_size, max_epochs, rates",
    [
        (1000, 1000, 200, (2e-3, 2e-3)),
        (1001, 256, 19, (4e-3, 4e-3)),
        (5000, 256, 10, (0.7 / 200, 4e-3)),
        (49_999, 256, 4, (1e-3, 4e-3)),
        (50_000, 512, 4, (0.7 / 392, 2**0.5 * 4e-3)),
        (10**6, 512, 3, (1e-3, 2**0.5 * 4e-3)),
    ],
)
def test_steps_and_rates_go_by_the_number_of_samples(n_samples, batch_size, max_epochs, rates):
    """Samples have 70 non-zeros."""
    clf = classifier()
    assert clf._batch_size(n_samples) == batch_size
    assert clf._rule(n_samples) == ("mixed" if n_samples > 1000 else "adam")
    assert clf._max_epochs(n_samples) == max_epochs
    assert clf._rates(rows_of(n_samples, 70 * n_samples)) == pytest.approx(rates)
    assert clf._row_momentum(n_samples) == (n_samples <= 1000)


@pytest.mark.parametrize(
    "n_samples, dropout", [(1000, 0), (1001, 0.5), (10_000, 0.5), (46_416, 0.3), (10**6, 0.2)]
)
def test_dropout_falls_with_the_samples(n_samples, dropout):
    assert classifier()._dropout(rows_of(n_samples, 10)) == pytest.approx(dropout, abs=1e-5)


@pytest.mark.parametrize(
    "length, slope", [(1, 0.0), (70, 0.0), (150, 0.265), (300, 0.5), (999, 0.5)]
)
def test_long_samples_have_leaky_activations_and_lower_rates(length, slope):
    clf, rows = classifier(), rows_of(2000, 2000 * length)
    assert clf._negative_slope(rows) == pytest.approx(slope, abs=1e-3)
    assert clf._rates(rows)[0] == pytest.approx(4e-3 * (70 / length) ** 0.5)
    assert clf._negative_slope(rows_of(1000, 1000 * length)) == 0


@pytest.mark.parametrize(
    "n_stored, width",
    [(0, 512), (2_500_000, 512), (3_200_000, 576), (6_830_000, 832), (10**7, 1024), (10**8, 1024)],
)
def test_many_words_take_a_wide_layer(n_stored, width):
    assert classifier()._hidden_sizes(rows_of(1001, n_stored)) == (width,)


def test_samples_of_weight_zero_and_held_out_ones_do_not_count():
    """Here the last sample holds all non-zeros."""
    rows = rows_of(1500, 10**7)
    rest = rows.select(np.arange(1400))
    assert rest.members is not None
    assert classifier()._hidden_sizes(rows) == (1024,)
    assert classifier()._hidden_sizes(rest) == (512,)


@pytest.mark.parametrize(
    "other",
    [{"sparse": False}, {"encoder": object}, {"multilabel": False, "head": "sampling"}],
)
def test_other_kinds_of_data_keep_the_values_of_all_classifiers(other):
    clf = classifier(**other)
    rows = rows_of(6400, 10**5)
    assert clf._hidden_sizes(rows) == (1024,)
    assert clf._dropout(rows) == (0.7 if clf._sparse_inputs else 0.2)
    assert (clf._batch_size(10**6), clf._max_epochs(10**6)) == (256, 10)
    assert clf._rates(rows) == (2e-3, 2e-3)
    assert clf._row_momentum(6400)
    assert (clf._rule(6400), clf._negative_slope(rows)) == ("adam", 0.0)
    assert not clf._uses_bfloat16(6400)


@pytest.mark.parametrize("multilabel, head", [(False, "flat"), (False, "cascade"),
                                                   (False, "product"), (True, "cascade"),
                                                   (True, "product")])  # fmt: skip
def test_heads_but_that_of_many_outputs_are_slower(multilabel, head):
    many, one = classifier(), classifier(multilabel=multilabel, head=head)
    rates, slower = (clf._rates(rows_of(5000, 5000)) for clf in (many, one))
    assert slower == pytest.approx((rates[0], rates[1] / 2))
    assert one._max_epochs(5000) == many._max_epochs(5000) == 10
    assert one._hidden_sizes(rows_of(1001, 10)) == (512,)


def chosen(n_labels, labels_per_sample=5.0, **params):
    """Algorithm of "auto" for so many labels, or classes (one a sample)."""
    kind = labels_per_sample is not None
    code = LabelCode(np.arange(n_labels), kind, True, float)
    code = replace(code, labels_per_sample=labels_per_sample or 1.0)
    return MultiHeadClassifier(**params)._algorithm(code)


@pytest.mark.parametrize(
    "n_labels, labels_per_sample, params, algorithm",
    [
        (45_000, 5.0, {}, "flat"),
        (55_000, 5.0, {}, "cascade"),
        (45_000, 40.0, {}, "cascade"),  # so many labels a batch are dear to update
        (40_000, None, {}, "flat"),
        (46_000, None, {}, "cascade"),
        (25_000, 5.0, {"encoder": MLP((64, 1024))}, "cascade"),
        (100_000, 5.0, {"encoder": MLP(256)}, "flat"),
        (100_000, 5.0, {"encoder": object}, "cascade"),
        (2, None, {}, "flat"),
    ],
)
def test_auto_takes_flat_unless_it_costs_far_more(n_labels, labels_per_sample, params, algorithm):
    assert chosen(n_labels, labels_per_sample, **params) == algorithm


def test_the_choice_is_that_of_the_samples_that_count():
    Y = sp.csr_matrix(np.array([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]]))
    assert code_of(Y, Y).labels_per_sample == 5 / 3
    assert code_of(Y, Y, np.array([0.0, 2.0, 1.0])).labels_per_sample == 0.5


def test_what_is_given_is_taken_as_it_is():
    assert classifier(optimizer="sgd")._rule(10**6) == "sgd"
    given = {"encoder": MLP((7,), dropout=0.1), "batch_size": 32, "max_epochs": 7}
    clf = classifier(**given, learning_rate=0.5, head=Flat(n_negatives=3), precision="float32")
    assert clf._hidden_sizes(rows_of(2000, 10)) == (7,)
    assert clf._dropout(rows_of(2000, 10)) == 0.1
    assert (clf._batch_size(10**6), clf._max_epochs(10**6)) == (32, 7)
    assert clf._rates(rows_of(10**6, 10**6)) == (0.5, 0.5)
    assert clf._n_negatives(clf._code) == 3
    assert not clf._uses_bfloat16(10**6)
    assert classifier(precision="bfloat16", sparse=False)._uses_bfloat16(10)


@pytest.mark.parametrize("n_labels, expected", [(8000, None), (8001, 1000)])
def test_negatives_are_drawn_from_many_labels(n_labels, expected):
    clf = classifier(n_labels)
    assert clf._n_negatives(clf._code) == expected
    assert classifier(n_labels, head=Flat(n_negatives=None))._n_negatives(clf._code) is None


def test_half_precision_where_the_processor_has_it(monkeypatch):
    for has_it in (True, False):
        monkeypatch.setattr(searched, "multiplies_bfloat16", lambda device, has_it=has_it: has_it)
        assert classifier()._uses_bfloat16(1001) == has_it
        assert not classifier()._uses_bfloat16(1000)


def test_the_fitted_net_has_them():
    rng = np.random.default_rng(0)
    X = sp.random(1500, 300, density=0.02, format="csr", dtype=np.float32, random_state=0)
    Y = sp.csr_matrix(rng.random((1500, 20)) < 0.1)
    clf = MultiHeadClassifier(max_epochs=1, random_state=0).fit(X, Y)
    assert type(clf.head_) is Flat
    assert clf.net_.module_.head.n_features == 512
    assert clf.net_.module_.head.low_precision == multiplies_bfloat16("cpu")
    groups, rate = clf.net_.optimizer_.param_groups, 4e-3 * (70 / 6) ** 0.5
    assert [group["rule"] for group in groups] == ["scaled", "adam", "adam"]
    assert [group["peak_lr"] for group in groups] == pytest.approx([3 * rate, rate, 4e-3])
    assert clf.net_.module_.encoder.layers[2].p == 0.5


# --- DFTSigmoidClassifier -------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["dft", "bottleneck"])
@pytest.mark.parametrize("multilabel", [True, False])
def test_the_fourier_layer_takes_the_values_of_flat(output, multilabel):
    clf = classifier(multilabel=multilabel, kind=DFTSigmoidClassifier, output=output)
    clf._typical_size = 5
    flat, rows = classifier(multilabel=multilabel, head="flat"), rows_of(60_000, 200 * 60_000)
    assert clf._hidden_sizes(rows) == flat._hidden_sizes(rows) == (1024,)
    assert clf._rates(rows) == flat._rates(rows) == (pytest.approx(0.7 / 472 * 0.35**0.5), ANY)
    assert clf._dropout(rows) == flat._dropout(rows) == pytest.approx(0.5 - 0.3 * np.log10(6))
    for name in ("_batch_size", "_max_epochs", "_rule", "_uses_bfloat16"):
        assert getattr(clf, name)(len(rows)) == getattr(flat, name)(len(rows))


def test_features_before_the_fourier_layer_stay_non_negative():
    """That is what `verify(whole_network=True)` builds on."""
    assert classifier()._negative_slope(rows_of(2000, 600_000)) > 0
    assert classifier(kind=DFTSigmoidClassifier)._negative_slope(rows_of(2000, 600_000)) == 0


@pytest.mark.parametrize("other", [{"sparse": False}, {"encoder": object}])
def test_the_fourier_layer_keeps_the_values_of_other_data(other):
    clf = classifier(kind=DFTSigmoidClassifier, **other)
    clf._typical_size = 5
    assert clf._hidden_sizes(rows_of(6400, 10**5)) == (1024,)
    assert clf._rates(rows_of(6400, 10**5)) == (2e-3, 2e-3)
    assert (clf._rule(6400), clf._max_epochs(6400), clf._uses_bfloat16(6400)) == ("adam", 12, False)


# --- ETFNeuralCollapseClassifier ------------------------------------------------------------------


@pytest.mark.parametrize("output", ["etf", "learned"])
@pytest.mark.parametrize("multilabel", [True, False])
@pytest.mark.parametrize("n_samples", [1000, 5000, 60_000])
def test_the_simplex_takes_the_values_of_flat(output, multilabel, n_samples):
    clf = classifier(multilabel=multilabel, kind=ETFNeuralCollapseClassifier, output=output)
    flat = classifier(multilabel=multilabel, head="flat")
    rows = rows_of(n_samples, 200 * n_samples)
    for name in ("_hidden_sizes", "_dropout", "_negative_slope"):
        assert getattr(clf, name)(rows) == getattr(flat, name)(rows)
    rates = flat._rates(rows)
    half = 2 if multilabel and n_samples > 1000 else 1  # the rate of a softmax
    assert clf._rates(rows) == pytest.approx((rates[0], rates[1] / half))
    for name in ("_batch_size", "_max_epochs", "_rule", "_row_momentum", "_uses_bfloat16"):
        assert getattr(clf, name)(n_samples) == getattr(flat, name)(n_samples)


@pytest.mark.parametrize("other", [{"sparse": False}, {"encoder": object}])
def test_the_simplex_keeps_the_values_of_other_data(other):
    clf, rows = classifier(kind=ETFNeuralCollapseClassifier, **other), rows_of(6400, 10**5)
    assert (clf._hidden_sizes(rows), clf._rates(rows)) == ((1024,), (2e-3, 2e-3))
    assert (clf._rule(6400), clf._max_epochs(6400), clf._uses_bfloat16(6400)) == ("adam", 12, False)


def test_the_fitted_simplex_multiplies_at_the_precision_that_was_asked_for():
    X = sp.random(60, 30, density=0.1, format="csr", dtype=np.float32, random_state=0)
    Y = sp.csr_matrix(np.eye(6)[np.arange(60) % 6])
    for precision in ("bfloat16", "float32"):
        clf = ETFNeuralCollapseClassifier(precision=precision, max_epochs=1).fit(X, Y)
        assert clf.net_.module_.head.low_precision == (precision == "bfloat16")


# --- MIMLClassifier -------------------------------------------------------------------------------


def bags_of(n_bags, size, length):
    """Bags of so many samples, each of `length` non-zeros on average."""
    indptr = np.arange(n_bags + 1) * size
    return replace(rows_of(n_bags * size, n_bags * size * length), bags=indptr)


def miml(size, **params):
    clf = classifier(kind=MIMLClassifier, **params)
    clf._bag_size = size
    return clf


@pytest.mark.parametrize("multilabel", [True, False])
@pytest.mark.parametrize("n_samples", [1000, 5000, 40_000])
def test_bags_of_one_sample_take_the_values_of_flat(multilabel, n_samples):
    clf, rows = miml(1, multilabel=multilabel), bags_of(n_samples, 1, 200)
    flat = classifier(multilabel=multilabel, head="flat")
    for name in ("_hidden_sizes", "_dropout", "_negative_slope", "_rates"):
        assert getattr(clf, name)(rows) == getattr(flat, name)(rows)
    for name in ("_batch_size", "_max_epochs", "_rule", "_row_momentum", "_uses_bfloat16"):
        assert getattr(clf, name)(n_samples) == getattr(flat, name)(n_samples)


@pytest.mark.parametrize(
    "n_bags, size, batch_size, max_epochs",
    [(500, 10, 25, 16), (2500, 2, 128, 12), (5000, 1, 256, 10)],
)
def test_steps_of_bags_have_as_many_samples(n_bags, size, batch_size, max_epochs):
    """Rates, width, dropout and activation are those of the samples, which have 150 non-zeros."""
    clf, rows = miml(size), bags_of(n_bags, size, 150)
    assert (clf._batch_size(n_bags), clf._max_epochs(n_bags)) == (batch_size, max_epochs)
    n_steps = max_epochs * 20
    expected = (0.7 / n_steps * (70 / 150) ** 0.5, pytest.approx(4e-3, rel=0.02))
    assert clf._rates(rows) == (pytest.approx(expected[0]), expected[1])
    alone = classifier()
    for name in ("_hidden_sizes", "_dropout", "_negative_slope"):
        assert getattr(clf, name)(rows) == getattr(alone, name)(rows_of(5000, 5000 * 150))
    assert clf._rule(n_bags) == "mixed"
    assert not clf._row_momentum(n_bags)


def test_few_samples_in_bags_and_other_data_keep_the_values_of_all_classifiers():
    clf, rows = miml(10), bags_of(100, 10, 150)
    assert (clf._batch_size(100), clf._max_epochs(100), clf._rates(rows)) == (
        100,
        200,
        (2e-3, 2e-3),
    )
    assert (clf._dropout(rows), clf._negative_slope(rows)) == (0, 0)
    assert (clf._rule(100), clf._uses_bfloat16(100)) == ("adam", False)
    for other in ({"sparse": False}, {"encoder": object}):
        clf, rows = miml(10, **other), bags_of(640, 10, 15)
        assert (clf._hidden_sizes(rows), clf._rates(rows)) == ((1024,), (2e-3, 2e-3))
        assert (clf._rule(640), clf._max_epochs(640), clf._batch_size(640)) == ("adam", 12, 25)
