"""The linear program finds the largest ball, and the perceptron finds points of fat cones."""

import time

import numpy as np
import pytest

from sklearn_xlc.geometry import _linear_program as module
from sklearn_xlc.geometry._linear_program import (
    column_scales,
    largest_ball,
    perceptron,
    unit_rows_and_norms,
)


def test_ball_in_a_triangle():
    # x > 0, y > 0, x + y < 2: the inscribed circle has radius 2 - sqrt 2.
    rows = np.array([[1, 0], [0, 1], [-np.sqrt(0.5), -np.sqrt(0.5)]])
    ball = largest_ball(rows, np.array([0, 0, np.sqrt(2)]), 100.0, 10.0)
    radius = 2 - np.sqrt(2)
    assert ball.radius == pytest.approx(radius, abs=1e-8)
    np.testing.assert_allclose(ball.centre, [radius, radius], atol=1e-8)


def test_radius_of_a_cone_is_proportional_to_the_box():
    rows = np.array([[1.0, 0.0], [0.0, 1.0]])
    for box in (1.0, 50.0):
        ball = largest_ball(rows, None, box, 10.0)
        assert ball.radius == pytest.approx(box)
        assert np.abs(ball.centre).max() <= box * (1 + 1e-9)


def test_empty_region_has_no_radius_but_weights():
    rows = np.array([[1.0, 0.0], [-0.6, 0.8], [-0.6, -0.8], [0.0, 1.0]])
    ball = largest_ball(rows, None, 10.0, 10.0)
    assert ball.radius == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(ball.weights @ rows, 0, atol=1e-9)
    assert ball.weights.sum() == pytest.approx(1)
    assert ball.weights.min() >= 0
    assert ball.weights[3] == 0
    ball = largest_ball(rows, np.array([-1.0, -1.0, -1.0, 0.0]), 10.0, 10.0)
    assert ball.radius == pytest.approx(-1)


def test_region_outside_the_box_gives_no_weights():
    ball = largest_ball(np.array([[1.0]]), np.array([-20.0]), 10.0, 10.0)
    assert ball.radius == pytest.approx(-10)
    assert ball.weights is None


@pytest.mark.parametrize("biased", [False, True])
def test_labels_enter_as_needed(biased, monkeypatch, rng):
    rows = unit_rows_and_norms(rng.normal(size=(800, 4)))[0]
    offsets = rng.normal(size=800) if biased else None
    x = rng.normal(size=4)
    signs = np.sign(rows @ x + (offsets if biased else 0))
    rows *= signs[:, None]
    offsets = signs * offsets if biased else None
    ball = largest_ball(rows, offsets, 10.0, 10.0)
    margins = rows @ ball.centre + (offsets if biased else 0)
    assert margins.min() > 0
    # All labels at once: the largest ball.
    monkeypatch.setattr(module, "LABELS_PER_FEATURE", 800)
    largest = largest_ball(rows, offsets, 10.0, 10.0)
    assert 0.9 * largest.radius - 1e-8 <= margins.min() <= largest.radius + 1e-8
    assert largest.radius <= ball.radius + 1e-8


def test_best_ball_is_kept_when_time_runs_out(monkeypatch):
    # The three labels that enter first allow a ball of radius 3 around (3, y), y from 3 to 5; the
    # fourth cuts it to 4.7 - 0.8 y.
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [-0.6, -0.8]])
    offsets = np.array([0.0, 0.0, 6.0, 6.5])
    original = module._solve_dual
    answers = []

    def once(*args):
        answers.append(None if answers else original(*args))
        return answers[-1]

    monkeypatch.setattr(module, "LABELS_PER_FEATURE", 1)
    monkeypatch.setattr(module, "_solve_dual", once)
    ball = largest_ball(rows, offsets, 5.0, 10.0)
    assert len(answers) == 2
    assert 0.7 - 1e-8 <= ball.radius <= 2.3 + 1e-8
    assert ball.radius == pytest.approx((rows @ ball.centre + offsets).min())
    assert ball.weights is None


def test_time_limit(rng):
    rows = unit_rows_and_norms(rng.normal(size=(3000, 60)))[0]
    assert largest_ball(rows, None, 10.0, 0.0) is None


def test_perceptron(rng):
    rows = unit_rows_and_norms(rng.normal(size=(30, 20)))[0]
    signs = np.sign(rows @ rng.normal(size=20))
    z = perceptron(rows, signs, 2000)
    np.testing.assert_array_equal(np.sign(rows @ z), signs)
    assert perceptron(rows, signs, 0) is None
    assert perceptron(np.array([[1.0], [-1.0]]), np.ones(2)) is None
    assert perceptron(np.array([[1.0], [-1.0]]), np.ones(2), deadline=time.monotonic()) is None


def test_perceptron_corrects_the_mean_of_the_rows():
    rows = np.array([[1.0, 0.0]] * 10 + [[-0.8, 0.6]])
    assert (rows @ rows.mean(axis=0)).min() < 0
    z = perceptron(rows, np.ones(11))
    assert (rows @ z).min() > 0


def test_unit_rows_over_the_whole_range_of_floats():
    matrix = np.array([[3e300, 4e300], [3e-300, 4e-300], [0.0, 0.0], [5e-324, 0.0]])
    rows, norms = unit_rows_and_norms(matrix)
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.6, 0.8], [0, 0], [1, 0]])
    np.testing.assert_allclose(norms, [5e300, 5e-300, 0, 5e-324])


def test_column_scales():
    np.testing.assert_array_equal(column_scales(np.array([[1.0, 0.0], [-3.0, 0.0]])), [3.0, 1.0])
