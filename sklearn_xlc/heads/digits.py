"""Heads over digits of labels, or of label sets: a linear layer and the losses of digits."""

from __future__ import annotations

from itertools import zip_longest

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._csr import pointers_of, row_blocks
from sklearn_xlc.codes import LabelBlocks, MixedRadix
from sklearn_xlc.heads._base import Head, draw_rows, origins
from sklearn_xlc.heads.losses import Loss, PointwiseLoss, SoftmaxCrossEntropy

#: Candidates per group and sample at which the search for the k best of a mixture stops doubling.
MAX_CANDIDATES = 4096


class DigitHead(Head):
    """Base class of heads with outputs for digits: a linear layer, and the losses of all digits.

    `code` (MixedRadix or LabelBlocks) has the digits of a label, or of a label set. The loss is
    pointwise without parameters per label, a softmax cross-entropy, or "joint_ce".
    """

    kinds_of_loss = (PointwiseLoss, SoftmaxCrossEntropy)
    per_label_losses = False
    offers = ("digits",)
    code: MixedRadix | LabelBlocks

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        multilabel: bool,
        code: MixedRadix | LabelBlocks,
        loss: str | Loss,
        n_groups: int = 1,
    ) -> None:
        super().__init__(n_features, n_labels, multilabel)
        self.code = code
        self.n_groups = check_integer(n_groups, "n_groups")
        self.criterion = self.resolve_loss(loss, multilabel)
        self.joint = self.criterion.needs == "digits"
        n_mixing = n_groups if n_groups > 1 else 0
        self.linear = nn.Linear(n_features, n_groups * sum(code.lengths) + n_mixing)
        nn.init.normal_(self.linear.weight, std=n_features**-0.5 / 2)
        nn.init.zeros_(self.linear.bias)

    @classmethod
    def accepts(cls, kind: type[Loss], multilabel: bool) -> bool:
        """Return whether the loss can train digits, one in every head of each sample."""
        return any(super(DigitHead, cls).accepts(kind, of_sets) for of_sets in (False, True))

    def set_prior(self, frequency: Tensor) -> None:
        """Start the outputs of each group at the label frequencies; groups differ by weights."""
        start = self._first_biases(frequency).repeat(self.n_groups)
        with torch.no_grad():
            self.linear.bias[: len(start)] = start

    def _first_biases(self, frequency: Tensor) -> Tensor:
        """Compute the initial biases of the outputs of a group."""
        raise NotImplementedError

    # --- labels that come later -------------------------------------------------------------

    def room_for(self, n_labels: int) -> list[tuple[Tensor, Tensor]]:
        lengths, n_outputs = self.code.longer(n_labels).lengths, 0
        if lengths == self.code.lengths:
            return []  # codes to spare
        rows = []
        for _ in range(self.n_groups):
            for old, new in zip_longest(self.code.lengths, lengths, fillvalue=0):
                own = origins(old, new - old, torch.device("cpu"))
                rows.append(torch.where(own < 0, own, own + n_outputs))
                n_outputs += old
        rows.append(torch.arange(n_outputs, len(self.linear.weight)))  # the mixing
        origin = torch.cat(rows).to(self.linear.weight.device)
        return [(self.linear.weight, origin), (self.linear.bias, origin)]

    def set_n_labels(self, n_labels: int) -> None:
        super().set_n_labels(n_labels)
        self.code = self.code.longer(n_labels)

    @torch.no_grad()
    def _start_outputs(self, outputs: Tensor, start: Tensor) -> None:
        """Initialise some outputs of each group; `start` has the biases of all outputs."""
        for group in range(self.n_groups):
            rows = outputs + group * sum(self.code.lengths)
            draw_rows(self.linear.weight, rows, self.n_features**-0.5 / 2)
            self.linear.bias[rows] = start[outputs].to(self.linear.bias)

    def _outputs(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Compute logits, (n_rows, n_groups, sum(lengths)), and log weights of the groups."""
        n_outputs = self.n_groups * sum(self.code.lengths)
        outputs = self.linear(features)
        heads = outputs[:, :n_outputs].unflatten(1, (self.n_groups, -1))
        if self.n_groups == 1:
            return heads, outputs.new_zeros(outputs.shape[0], 1)
        return heads, outputs[:, n_outputs:].log_softmax(1)

    def _concatenated_loss(
        self, logits: Tensor, at: tuple[Tensor, Tensor], weights: Tensor, values: Tensor
    ) -> Tensor:
        """Compute the loss over all heads concatenated; ``logits[at]`` are the true digits.

        Row ``at[0]`` has the weight `weights` and, for each of its codes, the soft target `values`.
        """
        rows = at[0][:, 0]
        if not self.criterion.needs_normaliser:  # Algorithm 2
            each = weights / logits.shape[1]
            excess = self.criterion.excess(logits[at], values[:, None], slice(None))
            return each @ self.criterion.negative(logits).sum(1) + each[rows] @ excess.sum(1)
        share = self.criterion.share(weights, rows, values)
        return share @ self.criterion.value(-logits.log_softmax(1)[at]).sum(1)

    def _columns(self, digits: Tensor) -> Tensor:
        """Return the columns of digits in all heads concatenated; both (n, n_heads)."""
        offsets = pointers_of(self.code.lengths)[:-1]
        return digits + torch.as_tensor(offsets, device=digits.device)

    def _squash(self, logits: Tensor) -> Tensor:
        """Compute additive scores of the digits of a head, on the last axis."""
        return logits.log_softmax(-1) if self.criterion.needs_normaliser else F.logsigmoid(logits)

    # --- groups: a mixture of products ------------------------------------------------------

    def _digits_of_best(self, heads: list[np.ndarray], k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and digits of the k best products of one group."""
        return self.code.topk(heads, k)

    def _mixture_topk(
        self,
        groups: list[list[np.ndarray]],
        mixing: np.ndarray,
        k: int,
        n_candidates: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and digits of the k best, from the best candidates of every group."""
        most = 2**self.n_labels if self.multilabel else self.n_labels
        n_candidates = n_candidates or min(most, max(2 * k, 16))
        found = [self._digits_of_best(heads, n_candidates) for heads in groups]
        digits = np.concatenate([digits for _, digits in found], axis=1)
        order = np.lexsort(np.moveaxis(digits[..., ::-1], -1, 0), axis=-1)
        digits = np.take_along_axis(digits, order[..., None], axis=1)
        scores = self._mixture_scores(groups, mixing, digits)
        scores[:, 1:][(digits[:, 1:] == digits[:, :-1]).all(axis=2)] = -np.inf  # repeated
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        best = np.take_along_axis(scores, order, axis=1)
        digits = np.take_along_axis(digits, order[..., None], axis=1)
        if n_candidates >= min(most, MAX_CANDIDATES):
            return best, digits
        last = np.stack([group_scores[:, -1] for group_scores, _ in found], axis=1)
        # What no group holds scores at most the mixture of the groups' last ones.
        open_rows = np.flatnonzero(best[:, -1] < np.logaddexp.reduce(mixing + last, axis=1))
        n_candidates = min(2 * n_candidates, most, max(MAX_CANDIDATES, k))
        for part in row_blocks(len(open_rows), n_candidates * len(groups) * len(groups[0])):
            rows = open_rows[part]
            parts = [[head[rows] for head in heads] for heads in groups]
            best[rows], digits[rows] = self._mixture_topk(parts, mixing[rows], k, n_candidates)
        return best, digits

    def _mixture_scores(
        self, groups: list[list[np.ndarray]], mixing: np.ndarray, digits: np.ndarray
    ) -> np.ndarray:
        """Compute the logarithm of the mixture of products, unnormalised (Eq. 16)."""
        per_group = [
            sum(np.take_along_axis(head, digits[..., h], axis=1) for h, head in enumerate(heads))
            + mixing[:, group, None]
            for group, heads in enumerate(groups)
        ]
        return np.logaddexp.reduce(per_group, axis=0)
