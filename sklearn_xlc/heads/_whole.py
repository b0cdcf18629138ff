"""Rows of a head's tables in this process: all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sklearn_xlc.heads.losses import Labels


class Whole:
    """All rows of a head's tables, where one process holds the head.

    A table has a row for each label, or for each group of labels. Heads ask this object for the
    rows of their tables, and for sums over all labels. :class:`sklearn_xlc.distributed.Shard`
    answers the same questions for a process that holds some of the rows.
    """

    #: First row of this process.
    start: int = 0
    #: Whether further rows are in other processes.
    is_part = False

    # --- rows and labels ------------------------------------------------------------------

    def n_held(self, n_rows: int) -> int:
        """Return the number of rows in this process, of a table of `n_rows`."""
        return n_rows

    def labels(self, n_labels: int) -> slice:
        """Return the labels with weights in this process."""
        return slice(0, n_labels)

    def own(self, rows: Labels) -> Labels:
        """Return the positions of held rows in the table of this process."""
        return rows

    def holds(self, rows: Tensor) -> Labels:
        """Return a mask of the rows in this process, or a slice of all."""
        return slice(None)

    def chosen(self, labels: Tensor, *values: Tensor, unit: int = 1) -> tuple[Tensor, ...]:
        """Select the labels in this process, `unit` of which share a row, and their `values`."""
        return labels, *values

    def positions(self, labels: Tensor, table: Tensor, width: int) -> Tensor:
        """Return the positions of held labels in ``table.view(-1, width)``."""
        return labels

    def of(self, parameters: Iterable[nn.Parameter]) -> dict[nn.Parameter, Any]:
        """Return the parameters split over processes, each with its shard."""
        return {}

    def refuse_part(self) -> None:
        """Raise ValueError if some rows are in other processes."""

    # --- tables ---------------------------------------------------------------------------

    def joined(self, part: Tensor) -> Tensor:
        """Return the table of all processes from the rows of this one."""
        return part

    def rows_at(self, table: Tensor, labels: Tensor, unit: int = 1) -> Tensor:
        """Return rows of a table by label, from all processes; see :meth:`chosen`."""
        return table[labels]

    def draw_normal(self, table: Tensor, std: float) -> None:
        """Draw normal weights; each process keeps its rows of the single-process draw."""
        with torch.no_grad():
            table.normal_(std=std)

    # --- losses ---------------------------------------------------------------------------

    def sum(self, *tensors: Tensor) -> Sequence[Tensor]:
        """Sum tensors of one type over the processes."""
        return tensors

    def read_by_all(self, tensor: Tensor) -> Tensor:
        """Return the tensor; its gradient is summed over the processes."""
        return tensor

    def sum_of_all(self, own: Tensor) -> Tensor:
        """Sum over the processes, differentiably."""
        return own

    def joined_sum(self, own: Tensor, held: Labels, n_rows: int) -> Tensor:
        """Join rows from all processes (this one has the rows `held`), differentiably."""
        return own

    def logsumexp(self, held: Tensor) -> Tensor:
        """Return the log-sum-exp over the processes of each number."""
        return held

    def surprises(self, logits: Tensor, at: tuple[Any, Tensor]) -> Tensor:
        """Return minus the log probability of each row's label, over columns of all processes.

        `logits` (n_rows, n_held) are those of held columns, `at` rows and columns of held labels.
        """
        return -logits.log_softmax(1)[at]

    def normalisers(
        self, negative: Tensor, highest: Tensor, rows: Tensor, logits: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the log-sum-exp of each row's negatives, and of all labels.

        `negative` (n_rows,) is that of held negatives, `highest` the larger of it and the row's
        logits; `rows` and `logits` are those of held positives (n_positives,).
        """
        total = (negative - highest).exp().index_add(0, rows, (logits - highest[rows]).exp())
        return negative, highest + total.log()

    # --- rankings -------------------------------------------------------------------------

    def merged(self, scores: Tensor, positions: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k best labels of all processes from the best of this one."""
        return scores, positions

    def joined_columns(self, own: Tensor) -> Tensor:
        """Join the columns of all processes."""
        return own


#: The one object of its class that heads need: it has no state.
WHOLE = Whole()

#: ``shard_of(n_labels, unit)`` returns the rows in this process of a table with a row for each
#: `unit` neighbouring labels.
ShardOf = Callable[..., Whole]


def whole(n_labels: int, unit: int = 1) -> Whole:
    """Return all rows of a table, for a head in one process.

    Parameters
    ----------
    n_labels : int
        Number of labels.
    unit : int, default=1
        Number of neighbouring labels that share a row.

    Returns
    -------
    Whole
        The object that stands for all rows.
    """
    return WHOLE
