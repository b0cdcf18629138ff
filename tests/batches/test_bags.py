"""Bags: instances one after the other, whatever form they have."""

import pytest
import scipy.sparse as sp
import torch

from sklearn_xlc.batches import Bags, SparseRows

INDPTR = torch.tensor([0, 1, 3, 4])


@pytest.mark.parametrize("sparse", [False, True])
def test_owner(sparse):
    instances = torch.ones(4, 2)
    bags = Bags(SparseRows.from_csr(sp.csr_matrix(instances)) if sparse else instances, INDPTR)
    assert len(bags) == 3
    assert bags.owner.tolist() == [0, 1, 1, 2]


def test_moves_to_a_device_and_a_type():
    bags = Bags(torch.ones(4, 2), INDPTR, torch.ones(4, 3))
    assert bags.to(torch.float64).features.dtype == torch.float64
    assert bags.to(torch.float64).instances.dtype == torch.float32
    moved = bags.to(torch.device("meta"))
    assert all(t.is_meta for t in (moved.instances, moved.indptr, moved.features))
    assert Bags(torch.ones(4, 2), INDPTR).to(torch.float64).features is None
