"""Find the best labels of each row, in one list or in chunks; equal scores rank by position."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

#: Labels that are merged at once, as a multiple of the number to find.
WIDTH = 16


def is_exporting() -> bool:
    """Return whether a graph is traced for ONNX, as torch 2.13 does."""
    return bool(getattr(torch.compiler, "is_exporting", bool)())


def topk_by_position(
    scores: Tensor, k: int, positions: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Find the best k columns of each row; equal scores rank by position.

    Parameters
    ----------
    scores : tensor of shape (n_rows, n_columns)
        Scores, in any order.
    k : int
        Number of columns, at most `n_columns`.
    positions : tensor of shape (n_rows, n_columns), default=None
        Position of each entry's label. None: its column.

    Returns
    -------
    scores, positions : tensors of shape (n_rows, k)
        Best first.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.heads import topk_by_position
    >>> topk_by_position(torch.tensor([[1.0, 2.0, 1.0, 1.0]]), 3)[1]
    tensor([[1, 0, 2]])
    """
    if is_exporting():  # no branch; of equal scores ONNX takes the first columns
        if positions is not None:
            positions, order = positions.sort(dim=1)
            scores = scores.gather(1, order)
        best, columns = scores.topk(k, dim=1)
        return best, columns if positions is None else positions.gather(1, columns)
    # One more than k shows whether the last column is tied with one left out.
    best, columns = scores.topk(min(k + 1, scores.shape[1]), dim=1)
    tied = (best[:, 1:] == best[:, :-1]).any(1)
    best, columns = best[:, :k], columns[:, :k]
    found = columns if positions is None else positions.gather(1, columns)
    if not tied.any():
        return best, found
    best, found = best.contiguous(), found.contiguous()
    rows = scores[tied]
    if positions is not None:
        own, order = positions[tied].sort(dim=1, stable=True)
        rows = rows.gather(1, order)
    last = best[tied, -1:]
    above, equal = (rows > last) | rows.isnan(), rows == last
    keep = above | (equal & (equal.cumsum(1) <= k - above.sum(1, keepdim=True)))
    columns = keep.nonzero()[:, 1].view(-1, k)
    values, order = rows.gather(1, columns).sort(dim=1, descending=True, stable=True)
    columns = columns.gather(1, order)
    best[tied] = values
    found[tied] = columns if positions is None else own.gather(1, columns)
    return best, found


def merge_topk(
    best: tuple[Tensor, Tensor] | None, scores: Tensor, start: int, k: int
) -> tuple[Tensor, Tensor]:
    """Merge the k best labels so far with the scores of the next chunk of labels.

    Parameters
    ----------
    best : pair of tensors of shape (n_rows, at most k), or None
        Scores and positions so far, all positions below `start`; None before the first chunk.
    scores : tensor of shape (n_rows, chunk)
        Scores of the labels ``start, start + 1, ...``.
    start, k : int
        Position of the chunk's first label, and number of labels.

    Returns
    -------
    scores, positions : tensors of shape (n_rows, at most k)
        Best first, equal scores by position.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.heads import merge_topk
    >>> best = merge_topk(None, torch.tensor([[3.0, 1.0]]), 0, k=2)
    >>> merge_topk(best, torch.tensor([[3.0, 2.0]]), 2, k=2)[1]
    tensor([[0, 2]])
    """
    scores, ids = topk_by_position(scores, min(k, scores.shape[1]))
    ids = ids + start
    if best is not None:
        # In both lists equal scores are in order of position, and the first has lower positions.
        scores, ids = torch.cat([best[0], scores], dim=1), torch.cat([best[1], ids], dim=1)
        scores, order = topk_by_position(scores, min(k, scores.shape[1]))
        ids = ids.gather(1, order)
    return scores, ids


def topk_of_chunks(chunks: Iterable[tuple[int, Tensor]], k: int) -> tuple[Tensor, Tensor]:
    """Find the k best labels over chunks of labels, in linear time for any k.

    Parameters
    ----------
    chunks : iterable of (int, tensor of shape (n_rows, chunk))
        Position of the first label of each chunk, and the scores of its labels, in order.
    k : int
        Number of labels, at most that of all chunks.

    Returns
    -------
    scores, positions : tensors of shape (n_rows, k)
        Best first, equal scores by position.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.heads import topk_of_chunks
    >>> chunks = [(0, torch.tensor([[3.0, 1.0]])), (2, torch.tensor([[3.0, 2.0]]))]
    >>> topk_of_chunks(chunks, k=2)[1]
    tensor([[0, 2]])
    """
    best: tuple[Tensor, Tensor] | None = None
    waiting: list[Tensor] = []
    width = first = 0
    for start, scores in chunks:
        first = first if waiting else start
        waiting.append(scores)
        width += scores.shape[1]
        # A merge sorts k labels twice, which takes as long as looking at many more.
        if width >= WIDTH * k:
            best = merge_topk(best, torch.cat(waiting, dim=1) if waiting[1:] else scores, first, k)
            waiting, width = [], 0
    if waiting:
        best = merge_topk(best, torch.cat(waiting, dim=1), first, k)
    assert best is not None
    return best
