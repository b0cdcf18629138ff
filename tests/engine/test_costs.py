"""Counted costs: each against a count by hand."""

import numpy as np
import pytest

from sklearn_xlc.engine.costs import (
    BATCH,
    SMALL_PRODUCTS,
    TRAINING,
    UPDATE,
    Task,
    cascade_cost,
    flat_cost,
)


def test_flat_trains_all_labels_or_those_of_the_batch_and_negatives():
    task = Task(n_labels=100, labels_per_sample=0.125, width=8)
    every = flat_cost(task, None)
    assert every == (TRAINING * 800 + UPDATE * 800 / BATCH, 800)
    assert every.total() == sum(every)
    drawn = 32 + 10
    assert flat_cost(task, 10).training == drawn * 8 * (TRAINING + UPDATE / BATCH)
    assert flat_cost(task, 10).prediction == 800
    assert flat_cost(task, 99).training == every.training


def test_a_low_rank_has_a_layer_between_features_and_labels():
    task = Task(n_labels=100, labels_per_sample=0.125, width=8)
    cost, weights = flat_cost(task, None, rank=3), 8 * 3 + 3 * 100
    assert cost.prediction == weights
    assert cost.training == TRAINING * weights + UPDATE * weights / BATCH
    assert flat_cost(task, 10, rank=3).prediction == weights
    drawn = 8 * 3 + 3 * (32 + 10)
    assert flat_cost(task, 10, rank=3).training == drawn * (TRAINING + UPDATE / BATCH)


@pytest.mark.parametrize("multilabel, met", [(True, 4 + 1.5), (False, 1)])
def test_cascade_scores_children_of_kept_parents(multilabel, met):
    task = Task(n_labels=1200, labels_per_sample=1.5, width=16)
    cost = cascade_cost(task, (400, 3), embedding_dim=5, beam_width=4, multilabel=multilabel)
    dense = 400 * 16 + 16 * 5
    assert cost.prediction == dense + SMALL_PRODUCTS * 4 * 15
    touched = 400 * (1 - (1 - met / 400) ** BATCH)
    trained = dense + SMALL_PRODUCTS * met * 15
    assert cost.training == pytest.approx(TRAINING * trained + UPDATE * touched * 15 / BATCH)


def test_a_beam_keeps_no_more_than_there_is():
    task = Task(n_labels=12, labels_per_sample=9.0, width=1)
    cost = cascade_cost(task, (2, 3, 2), embedding_dim=1, beam_width=5, multilabel=True)
    assert cost.prediction == 2 + 2 + SMALL_PRODUCTS * (2 * 3 + 5 * 2)
    assert np.isfinite(cost.training)
