"""The best labels of lists and of chunks, and ties."""

import numpy as np
import pytest
import torch

from sklearn_xlc.batches import Bags
from sklearn_xlc.heads import (
    CascadeHead,
    FlatHead,
    MIMLHead,
    SamplingHead,
    chunked,
    merge_topk,
    ranking,
    topk_by_position,
    topk_of_chunks,
)


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


def ranked(scores, k, positions=None):
    """Best k of each row by a stable sort in NumPy; equal scores by position."""
    positions = (
        np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
        if positions is None
        else positions
    )
    order = np.lexsort((positions, -scores), axis=1)[:, :k]
    return np.take_along_axis(scores, order, 1), np.take_along_axis(positions, order, 1)


@pytest.mark.parametrize("n_values", [1, 2, 5, 1000])
@pytest.mark.parametrize("k", [1, 3, 11, 12])
@pytest.mark.parametrize("permuted", [False, True])
def test_equal_scores_rank_by_position(n_values, k, permuted):
    rng = np.random.default_rng(n_values + k)
    scores = rng.integers(0, n_values, (40, 12)).astype(np.float32)
    scores[::7, ::2] = -np.inf
    positions = rng.permuted(np.tile(np.arange(12) * 3, (40, 1)), axis=1) if permuted else None
    given = None if positions is None else torch.as_tensor(positions)
    best, found = topk_by_position(torch.as_tensor(scores), k, given)
    expected, where = ranked(scores, k, positions)
    np.testing.assert_array_equal(best, expected)
    np.testing.assert_array_equal(found, where)


@pytest.mark.parametrize("size", [1, 4, 5, 12])
@pytest.mark.parametrize("k", [1, 4, 12])
def test_merged_chunks_rank_equal_scores_by_position(size, k):
    scores = np.random.default_rng(size).integers(0, 3, (30, 12)).astype(np.float64)
    best = None
    for start in range(0, 12, size):
        best = merge_topk(best, torch.as_tensor(scores[:, start : start + size]), start, k)
    for one, other in zip(best, ranked(scores, k)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("size", [1, 4, 5, 12])
@pytest.mark.parametrize("k", [1, 4, 9, 12])
def test_topk_of_chunks_is_that_of_the_whole(size, k):
    scores = np.random.default_rng(size).integers(0, 3, (30, 12)).astype(np.float64)
    given = torch.as_tensor(scores)
    found = topk_of_chunks(((i, given[:, i : i + size]) for i in range(0, 12, size)), k)
    for one, other in zip(found, ranked(scores, k)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("k", [1, 30, 4000])
def test_work_of_ranking_chunks_is_linear_in_the_labels(monkeypatch, k):
    columns = []

    def counting(scores, k, positions=None):
        columns.append(scores.shape[1])
        return topk_by_position(scores, k, positions)

    monkeypatch.setattr(ranking, "topk_by_position", counting)
    scores = torch.rand(2, 8000)
    topk_of_chunks(((start, scores[:, start : start + 10]) for start in range(0, 8000, 10)), k)
    assert sum(columns) <= 1.2 * 8000


def test_not_a_number_beside_ties():
    scores = torch.tensor([[1.0, float("nan"), 1.0, 1.0], [float("nan")] * 4])
    best, found = topk_by_position(scores, 3)
    assert found[0].tolist() == [1, 0, 2]
    assert best[1].isnan().all()


@pytest.mark.parametrize("multilabel", [True, False])
@pytest.mark.parametrize("kind", ["flat", "cascade", "sampling", "bags"])
def test_heads_that_know_nothing_rank_by_position(monkeypatch, kind, multilabel):
    monkeypatch.setattr(chunked, "CHUNK", 5)
    head = {
        "flat": lambda: FlatHead(3, 13, multilabel),
        "cascade": lambda: CascadeHead(3, 13, multilabel, (4, 4), beam_width=4),
        "sampling": lambda: SamplingHead(3, 13, multilabel, 4),
        "bags": lambda: MIMLHead(3, 13, multilabel),
    }[kind if kind != "sampling" or not multilabel else "flat"]()
    for parameter in head.parameters():
        torch.nn.init.zeros_(parameter)
    features = torch.randn(2, 3)
    if kind == "bags":
        features = Bags(features, torch.arange(3), features)
    scores = head.scores(features).detach().numpy()
    for k in (1, 4, 13):
        best, ids = head.topk(features, k)
        expected, where = ranked(scores, k)
        np.testing.assert_array_equal(ids, where)
        np.testing.assert_array_equal(best.detach(), expected)
