"""Targets, row weights and the merging of chunks."""

import pytest
import torch

from sklearn_xlc.batches import Targets
from sklearn_xlc.heads import Head
from sklearn_xlc.heads._base import merge_topk, row_weights


def test_rows_of_positives_with_empty_rows():
    targets = Targets(torch.tensor([0, 2, 2, 3]), torch.tensor([4, 1, 0]))
    assert targets.rows.tolist() == [0, 0, 2]
    assert len(targets) == 3


def test_row_weights_sum_to_one():
    features = torch.zeros(4, 2, dtype=torch.float64)
    assert row_weights(None, features).tolist() == [0.25] * 4
    weights = row_weights(torch.tensor([1.0, 3.0, 0.0, 4.0]), features)
    assert weights.tolist() == [0.125, 0.375, 0.0, 0.5]
    assert weights.dtype == torch.float64


@pytest.mark.parametrize("k", [1, 3, 7, 20])
def test_merged_chunks_are_the_topk_of_the_whole(k):
    torch.manual_seed(0)
    scores = torch.randn(5, 20)
    best = None
    for start in range(0, 20, 6):
        best = merge_topk(best, scores[:, start : start + 6], start, k)
    expected, ids = scores.topk(k, dim=1)
    torch.testing.assert_close(best[0], expected, rtol=0, atol=0)
    torch.testing.assert_close(best[1], ids)


def test_a_head_must_say_how_it_scores():
    with pytest.raises(TypeError, match="abstract"):
        Head(2, 3, True)
