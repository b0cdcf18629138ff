"""The order of proposals for one label set: the cheapest proof that settles it gives the reason."""

import numpy as np
import pytest

from sklearn_xlc.geometry import fourier_matrix
from sklearn_xlc.geometry._decision import ARGMAXABLE, UNARGMAXABLE, UNKNOWN, decide, prepare
from sklearn_xlc.geometry._validation import check_layer


def verdict(coef, active, intercept=None, time_limit=10.0, **kwargs):
    layer = check_layer(np.asarray(coef, dtype=float), intercept)
    return decide(prepare(layer, **kwargs), np.asarray(active, dtype=np.int64), time_limit)


def test_a_label_without_weights_follows_its_bias():
    coef, intercept = [[1.0, 0.0], [0.0, 0.0]], np.array([0.0, -1.0])
    assert verdict(coef, [0], intercept).status == ARGMAXABLE
    wrong = verdict(coef, [0, 1], intercept)
    assert (wrong.status, wrong.reason, wrong.conflict.tolist()) == (
        UNARGMAXABLE,
        "constant label",
        [1],
    )


@pytest.mark.parametrize("factor", [2.0, -0.5])
def test_parallel_labels_are_settled_without_a_linear_program(factor):
    coef = [[1.0, 2.0], [factor, 2 * factor], [3.0, -1.0]]
    contradiction = [0] if factor > 0 else [0, 1]
    found = verdict(coef, contradiction)
    assert (found.status, found.reason) == (UNARGMAXABLE, "parallel labels")
    assert found.conflict.tolist() == [0, 1]
    agreement = [0, 1] if factor > 0 else [0]
    assert verdict(coef, agreement).status == ARGMAXABLE


def test_parallel_labels_with_biases_leave_an_interval():
    coef, intercept = [[1.0], [1.0]], np.array([0.0, -2.0])  # x > 0 and x < 2
    between = verdict(coef, [0], intercept)
    assert between.status == ARGMAXABLE
    assert 0 < between.witness[0] < 2
    assert verdict(coef, [1], intercept).status == UNARGMAXABLE


def test_the_closed_form_comes_first_for_the_fourier_matrix():
    found = verdict(fourier_matrix(30, 3), [2, 11, 25], max_active=3)
    assert (found.status, found.reason) == (ARGMAXABLE, "closed form")


def test_no_time_is_no_verdict():
    rng = np.random.default_rng(0)
    found = verdict(rng.normal(size=(200, 20)), np.arange(0, 200, 2), time_limit=0.0)
    assert (found.status, found.reason) == (UNKNOWN, "time limit")
