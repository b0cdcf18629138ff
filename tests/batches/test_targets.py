"""Ragged positives, and the soft targets beside them."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sklearn_xlc.batches import Rows, Targets, make_batch


def test_rows_of_positives_with_empty_rows():
    targets = Targets(torch.tensor([0, 2, 2, 3]), torch.tensor([4, 1, 0]))
    assert targets.rows.tolist() == [0, 0, 2]
    assert len(targets) == 3


def test_targets_are_one_unless_they_are_soft():
    like = torch.zeros((), dtype=torch.float64)
    targets = Targets(torch.tensor([0, 1, 3]), torch.tensor([4, 1, 0]))
    assert targets.values_like(like).tolist() == [1.0, 1.0, 1.0]
    assert targets.values_like(like).dtype == torch.float64
    soft = Targets(targets.indptr, targets.ids, torch.tensor([0.5, 1.0, 0.25]))
    assert soft.values_like(like).tolist() == [0.5, 1.0, 0.25]
    assert soft.values_like(like).dtype == torch.float64


@pytest.mark.parametrize("values", [None, torch.tensor([0.5, 1.0, 0.25])])
def test_repeated_rows_follow_one_another(values):
    targets = Targets(torch.tensor([0, 2, 2, 3]), torch.tensor([4, 1, 0]), values)
    twice = targets.repeated(2)
    assert twice.rows.tolist() == [0, 0, 2, 3, 3, 5]
    assert twice.ids.tolist() == [4, 1, 0, 4, 1, 0]
    assert len(twice) == 6
    like = torch.zeros(())
    assert twice.values_like(like).tolist() == 2 * targets.values_like(like).tolist()


def test_all_of_it_moves():
    soft = Targets(torch.tensor([0, 1]), torch.tensor([4]), torch.tensor([0.5]))
    moved = soft.to(torch.device("meta"))
    assert moved.indptr.is_meta
    assert moved.ids.is_meta
    assert moved.values.is_meta
    assert Targets(soft.indptr, soft.ids).to(torch.device("meta")).values is None


def test_a_floating_indicator_makes_soft_targets():
    Y = sp.csr_matrix(np.array([[0, 0.5, 1], [0, 0, 0], [0.25, 0, 0]]))
    soft = make_batch(Rows(np.zeros((3, 2)), Y).take(np.array([2, 0]))).targets
    assert soft.ids.tolist() == [0, 1, 2]
    assert soft.values.tolist() == [0.25, 0.5, 1.0]
    hard = make_batch(Rows(np.zeros((3, 2)), (Y > 0).astype(np.int8))).targets
    assert hard.values is None
