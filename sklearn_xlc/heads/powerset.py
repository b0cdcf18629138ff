"""Powerset product: a label set is one class of 2**C, and each head scores a few labels."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sklearn_xlc._bounds import check_integer
from sklearn_xlc.batches import Targets
from sklearn_xlc.codes import LabelBlocks
from sklearn_xlc.heads.digits import DigitHead
from sklearn_xlc.heads.losses import Loss
from sklearn_xlc.heads.ranking import topk_by_position


class PowersetHead(DigitHead):
    """Product of heads over the label powerset (multi-label).

    The label set of a sample is read as one class among ``2**n_labels`` (section 6.1 of [1]_). The
    labels are cut into blocks, and a head has one output for every set of labels of its block,
    ``2**b`` for b labels: within a block labels may depend on each other in any way, given the
    features; blocks are independent, unless there are several groups of heads. The number of a
    label set is never formed, so that there may be any number of labels.

    Parameters
    ----------
    n_features, n_labels, multilabel : int, int and bool
        As of :class:`Head`; a sample has any number of labels.
    lengths : sequence of int, default=None
        Number of outputs of each head, as in :class:`~sklearn_xlc.codes.LabelBlocks`. None: blocks
        of 4 labels.
    loss, n_groups : object, default="auto" and 1
        As of :class:`ProductHead`, over the digits of the label set; with several groups blocks
        depend on each other, too.
    memory_limit : int, default=2**30
        Limit in bytes of the temporary logits of a step. Beyond it, the samples of a batch are cut
        into parts, whose logits are computed twice.

    Notes
    -----
    The score of a label is the log odds of its marginal probability, the sum over the sets of its
    block that hold it: exact, and with "ce" a probability by `link`. :meth:`topk_sets` ranks whole
    sets, exactly with one group; with several as :class:`ProductHead` ranks labels.

    **Differences from the paper**

    - As in :class:`ProductHead`, scores are sums of log-softmaxes or log-sigmoids, and the default
      loss is the sum of the cross-entropies of the heads; "bce" is that of Algorithm 2.
    - [1]_ only names the most probable set; marginal probabilities and the k best sets are ours.

    References
    ----------
    .. [1] D. Liang et al., "Multi-Head Encoding for Extreme Label Classification".

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.heads import PowersetHead
    >>> head = PowersetHead(n_features=3, n_labels=100, multilabel=True, lengths=[32] * 20)
    >>> scores, sets = head.topk_sets(torch.zeros(2, 3), k=4)  # four sets of two samples
    >>> scores.shape, len(sets)
    (torch.Size([2, 4]), 8)
    """

    ranks_sets = True
    auto_losses = {True: "ce", False: "ce"}
    _no_graph = "it searches among whole label sets"
    code: LabelBlocks

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        multilabel: bool,
        lengths: Sequence[int] | None = None,
        loss: str | Loss = "auto",
        n_groups: int = 1,
        memory_limit: int = 2**30,
    ) -> None:
        code = LabelBlocks(n_labels, lengths)
        super().__init__(n_features, n_labels, multilabel, code, loss, n_groups)
        self.memory_limit = check_integer(memory_limit, "memory_limit")
        self.link = "sigmoid" if self.criterion.link == "softmax" else None

    def _first_biases(self, frequency: Tensor) -> Tensor:
        # As if labels were independent.
        sets = [independent(part) for part in self._by_block(frequency[None])]
        return self.criterion.prior(torch.cat([part.flatten() for part in sets]))

    def set_n_labels(self, n_labels: int) -> None:
        super().set_n_labels(n_labels)
        args, params = self.made_with  # grown in one step, it would have other blocks
        given = {**dict(zip(inspect.signature(type(self)).parameters, args)), **params}
        self.made_with = [], {**given, "n_labels": n_labels, "lengths": self.code.lengths}

    def start_labels(self, positions: Tensor, frequency: Tensor) -> None:
        n_known = int(self.code.starts.tolist().index(int(positions.min())))
        outputs = torch.arange(sum(self.code.lengths), device=positions.device)
        biases = self._first_biases(frequency)
        self._start_outputs(outputs[sum(self.code.lengths[:n_known]) :], biases)

    # --- blocks of one size, side by side ---------------------------------------------------

    def _runs(self) -> list[tuple[int, int]]:
        """Runs of equal blocks: their number of labels, and the number of blocks."""
        return [(size, len(list(run))) for size, run in groupby(self.code.sizes.tolist())]

    def _by_block(self, labels: Tensor) -> list[Tensor]:
        """Reshape values of labels, (n, n_labels), to (n, n_blocks, size) for every run."""
        runs = self._runs()
        parts = labels.split([size * count for size, count in runs], dim=1)
        return [part.view(len(labels), count, size) for part, (size, count) in zip(parts, runs)]

    def _by_head(self, logits: Tensor) -> list[Tensor]:
        """Reshape logits, (n, n_groups, n_outputs), to (n, n_groups, n_blocks, 2**size) by run."""
        runs = self._runs()
        parts = logits.split([2**size * count for size, count in runs], dim=2)
        return [part.unflatten(2, (count, 2**size)) for part, (size, count) in zip(parts, runs)]

    # --- training ---------------------------------------------------------------------------

    def _digits(self, targets: Targets) -> Tensor:
        """Compute the digits of the label sets, of shape (n_rows, n_heads)."""
        starts = torch.as_tensor(self.code.starts, device=targets.ids.device)
        heads = torch.searchsorted(starts, targets.ids, right=True) - 1
        bits = torch.ones_like(targets.ids) << (starts[heads + 1] - 1 - targets.ids)
        digits = targets.ids.new_zeros(len(targets) * self.code.n_heads)
        at = targets.rows * self.code.n_heads + heads
        return digits.index_add_(0, at, bits).view(len(targets), -1)

    def loss_of(self, features: Tensor, targets: Targets, weights: Tensor) -> Tensor:
        if targets.values is not None:
            raise ValueError("targets must be label sets: soft targets or counts have no digits")
        digits, n_rows = self._digits(targets), self._rows_at_once()
        if n_rows >= len(features):
            return self._loss_of_rows(features, digits, weights)
        parts = zip(features.split(n_rows), digits.split(n_rows), weights.split(n_rows))
        losses = [
            checkpoint(self._loss_of_rows, *part, use_reentrant=False, preserve_rng_state=False)
            for part in parts
        ]
        return torch.stack(losses).sum()

    def _loss_of_rows(self, features: Tensor, digits: Tensor, weights: Tensor) -> Tensor:
        logits, mixing = self._outputs(features)
        if self.joint or not self.criterion.needs_normaliser:
            rows = torch.arange(len(features), device=features.device)
            at, values = (rows[:, None], self._columns(digits)), torch.ones_like(weights)
            return self._concatenated_loss(logits[:, 0], at, weights, values)
        runs = self._by_head(logits)
        products = mixing
        for run, of_run in zip(runs, digits.split([run.shape[2] for run in runs], dim=1)):
            at = of_run[:, None, :, None].expand(-1, self.n_groups, -1, -1)
            products = products + run.log_softmax(3).gather(3, at)[..., 0].sum(2)
        # Minus the log probability of the label set; Eq. 16 with several groups.
        return weights @ self.criterion.value(-products.logsumexp(1))

    def _rows_at_once(self) -> int:
        """Return the number of samples per part, for logits and temporaries in `memory_limit`."""
        return max(1, self.memory_limit // self._step_bytes_of_row())

    def _step_bytes_of_row(self) -> int:
        return 4 * self.n_groups * sum(self.code.lengths) * self._itemsize

    # --- prediction -------------------------------------------------------------------------

    def bytes_per_row(self, k: int | None = None) -> int:
        # Logits, their log-softmax and two halves of it; log odds and what ranks them.
        per_label = (4 + 2 * self.n_groups) * self.n_labels
        return self._step_bytes_of_row() + (per_label + 6 * (k or 0)) * self._itemsize

    def bytes_per_row_of_sets(self, k: int) -> int:
        """Estimate the bytes per sample of :meth:`topk_sets`."""
        # Parents and digits of every head, the digits found, and the labels of the sets.
        n_candidates = self.n_groups * max(2 * k, 16) if self.n_groups > 1 else k
        return self.bytes_per_row() + n_candidates * 32 * self.code.n_heads + 12 * k * self.n_labels

    def scores(self, features: Tensor) -> Tensor:
        logits, mixing = self._outputs(features)
        of_runs = [log_marginals(self._squash(run)) for run in self._by_head(logits)]
        sides = (torch.cat([part.flatten(2) for part in side], dim=2) for side in zip(*of_runs))
        holding, without = ((mixing[:, :, None] + side).logsumexp(1) for side in sides)
        return holding - without

    def topk(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return topk_by_position(self.scores(features), k)

    @torch.no_grad()
    def topk_sets(self, features: Tensor, k: int) -> tuple[Tensor, Targets]:
        """Return scores of the k best label sets, (n_rows, k), best first, and the sets.

        Scores are log probabilities with "ce", otherwise sums over the digits. Row ``k * i + j`` of
        the sets is set j of sample i.
        """
        logits, mixing = self._outputs(features)
        runs = [self._squash(run).cpu().numpy() for run in self._by_head(logits)]
        if self.n_groups == 1 and k == 1:  # Theorem 1, for all heads at once
            scores = sum(run.max(axis=3).sum(axis=2) for run in runs)
            digits = np.concatenate([run.argmax(axis=3) for run in runs], axis=2)
        else:
            scores, digits = self._search(runs, mixing.cpu().numpy(), k)
        sets = self.code.decode(digits.reshape(-1, self.code.n_heads))
        indptr, ids = torch.from_numpy(sets.indptr).long(), torch.from_numpy(sets.indices).long()
        return torch.as_tensor(scores).to(features), Targets(indptr, ids).to(features.device)

    def _search(
        self, runs: list[np.ndarray], mixing: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and digits of the k best label sets, head by head."""
        groups = [
            [run[:, group, block] for run in runs for block in range(run.shape[2])]
            for group in range(self.n_groups)
        ]
        if self.n_groups > 1:
            return self._mixture_topk(groups, mixing, k)
        return self.code.topk(groups[0], k)


def independent(probabilities: Tensor) -> Tensor:
    """Probabilities (..., 2**b) of all sets of independent labels; the first is the top bit."""
    sets = torch.ones_like(probabilities[..., :1])
    for p in probabilities.unbind(-1):
        sets = torch.stack([sets * (1 - p[..., None]), sets * p[..., None]], dim=-1).flatten(-2)
    return sets


def log_marginals(log_sets: Tensor) -> tuple[Tensor, Tensor]:
    """Log probabilities (..., b) of labels' presence and absence, from sets (..., 2**b)."""
    holding, without = [], []
    while log_sets.shape[-1] > 1:  # the first label halves the sets; then it is summed out
        halves = log_sets.chunk(2, dim=-1)
        without.append(halves[0].logsumexp(-1))
        holding.append(halves[1].logsumexp(-1))
        log_sets = torch.logaddexp(*halves)
    return torch.stack(holding, dim=-1), torch.stack(without, dim=-1)
