"""Multi-Head Product: a few short heads whose scores add up to the score of a label."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._csr import row_blocks
from sklearn_xlc.batches import Targets
from sklearn_xlc.codes import LabelBlocks, MixedRadix
from sklearn_xlc.heads._base import Head, Update, origins, row_weights
from sklearn_xlc.heads.losses import Loss, PointwiseLoss, SoftmaxCrossEntropy

#: Candidates per group and sample at which the search for the k best of a mixture stops doubling.
MAX_CANDIDATES = 4096


class DigitHead(Head):
    """Base class of heads with outputs for digits: a linear layer, and the losses of all digits.

    Parameters
    ----------
    n_features, n_labels : int
        Width of the encoder's output, and number of labels.
    multilabel : bool
        Whether a sample may hold any number of labels, or exactly one.
    code : MixedRadix or LabelBlocks
        Digits of a label, or of a label set.
    loss : str or Loss
        A pointwise loss without parameters per label, a softmax cross-entropy, or "joint_ce".
    n_groups : int, default=1
        Number of groups of heads.
    """

    own_losses: ClassVar[tuple[str, ...]] = ("joint_ce",)
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
        self.joint = isinstance(loss, str) and loss == "joint_ce"
        n_mixing = n_groups if n_groups > 1 else 0
        self.linear = nn.Linear(n_features, n_groups * sum(code.lengths) + n_mixing)
        nn.init.normal_(self.linear.weight, std=n_features**-0.5 / 2)
        nn.init.zeros_(self.linear.bias)

    @classmethod
    def accepts(cls, kind: type[Loss], multilabel: bool) -> bool:
        """Whether it can train digits, of which each sample has one in every head."""
        return issubclass(kind, (PointwiseLoss, SoftmaxCrossEntropy)) and not kind.per_label

    # --- labels that come later -------------------------------------------------------------

    def _lengths_for(self, n_labels: int) -> tuple[int, ...]:
        """Lengths of the heads for more labels, under which the present ones keep their digits."""
        raise NotImplementedError

    def room_for(self, n_labels: int) -> list[tuple[Tensor, Tensor]]:
        lengths, device, n_outputs = self._lengths_for(n_labels), self.linear.weight.device, 0
        if lengths == self.code.lengths:
            return []  # codes to spare
        rows = []
        for _ in range(self.n_groups):
            for old, new in zip_longest(self.code.lengths, lengths, fillvalue=0):
                own = origins(old, new - old, device)
                rows.append(torch.where(own < 0, own, own + n_outputs))
                n_outputs += old
        rows.append(torch.arange(n_outputs, len(self.linear.weight), device=device))  # the mixing
        return [(self.linear.weight, torch.cat(rows)), (self.linear.bias, torch.cat(rows))]

    def set_n_labels(self, n_labels: int) -> None:
        lengths = self._lengths_for(n_labels)
        super().set_n_labels(n_labels)
        self.code = type(self.code)(n_labels, lengths)

    @torch.no_grad()
    def _start_outputs(self, outputs: Tensor, start: Tensor) -> None:
        """Initialise some outputs of each group, with the biases `start` of all outputs of one."""
        for group in range(self.n_groups):
            rows = outputs + group * sum(self.code.lengths)
            new = self.linear.weight.new_empty(len(rows), self.n_features)
            self.linear.weight[rows] = nn.init.normal_(new, std=self.n_features**-0.5 / 2)
            self.linear.bias[rows] = start[outputs].to(new)

    def _outputs(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the heads, (n_rows, n_groups, sum(lengths)), and log weights of the groups."""
        n_outputs = self.n_groups * sum(self.code.lengths)
        outputs = self.linear(features)
        heads = outputs[:, :n_outputs].view(len(features), self.n_groups, -1)
        return heads, outputs[:, n_outputs:].log_softmax(1)

    def _concatenated_loss(
        self, logits: Tensor, at: tuple[Tensor, Tensor], weights: Tensor, values: Tensor
    ) -> Tensor:
        """Loss over the concatenation of all heads, of which ``logits[at]`` are the true digits.

        Row ``at[0]`` has the weight `weights` and, for each of its codes, the soft target `values`.
        """
        rows = at[0][:, 0]
        if isinstance(self.criterion, PointwiseLoss):  # Algorithm 2
            each = weights / logits.shape[1]
            excess = self.criterion.excess(logits[at], values[:, None], slice(None))
            return each @ self.criterion.negative(logits).sum(1) + each[rows] @ excess.sum(1)
        assert isinstance(self.criterion, SoftmaxCrossEntropy)
        share = self.criterion.share(weights, rows, values)
        return share @ self.criterion.value(-logits.log_softmax(1)[at]).sum(1)

    def _columns(self, digits: Tensor) -> Tensor:
        """Columns of digits in the concatenation of all heads; both of shape (n, n_heads)."""
        offsets = [0, *np.cumsum(self.code.lengths)[:-1].tolist()]
        return digits + torch.tensor(offsets, device=digits.device)

    def _squash(self, logits: Tensor) -> Tensor:
        """Additive scores of the digits of a head, on the last axis."""
        return logits.log_softmax(-1) if self.criterion.needs_normaliser else F.logsigmoid(logits)

    # --- groups: a mixture of products ------------------------------------------------------

    def _n_codes(self) -> int:
        """Number of labels, or of label sets."""
        raise NotImplementedError

    def _merged(self, codes: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Codes of all groups in one order, and which of them, from the second on, repeat."""
        raise NotImplementedError

    def _to_digits(self, codes: np.ndarray) -> np.ndarray:
        """Digits of codes, on an additional last axis."""
        raise NotImplementedError

    def _mixture_topk(
        self,
        groups: list[list[np.ndarray]],
        mixing: np.ndarray,
        k: int,
        n_candidates: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores and codes of the k best, from the best candidates of every group."""
        most = self._n_codes()
        n_candidates = n_candidates or min(most, max(2 * k, 16))
        found = [self.code.topk(heads, n_candidates) for heads in groups]
        codes, repeated = self._merged([codes for _, codes in found])
        scores = self._mixture_scores(groups, mixing, self._to_digits(codes))
        scores[:, 1:][repeated] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        best = np.take_along_axis(scores, order, axis=1)
        codes = codes[np.arange(len(codes))[:, None], order]
        if n_candidates >= min(most, MAX_CANDIDATES):
            return best, codes
        last = np.stack([group_scores[:, -1] for group_scores, _ in found], axis=1)
        # What no group holds scores at most the mixture of the groups' last ones.
        open_rows = np.flatnonzero(best[:, -1] < np.logaddexp.reduce(mixing + last, axis=1))
        n_candidates = min(2 * n_candidates, most, max(MAX_CANDIDATES, k))
        for part in row_blocks(len(open_rows), n_candidates * len(groups) * len(groups[0])):
            rows = open_rows[part]
            parts = [[head[rows] for head in heads] for heads in groups]
            best[rows], codes[rows] = self._mixture_topk(parts, mixing[rows], k, n_candidates)
        return best, codes

    def _mixture_scores(
        self, groups: list[list[np.ndarray]], mixing: np.ndarray, digits: np.ndarray
    ) -> np.ndarray:
        """Logarithm of the mixture of products, unnormalised (Eq. 16)."""
        per_group = [
            sum(np.take_along_axis(head, digits[..., h], axis=1) for h, head in enumerate(heads))
            + mixing[:, group, None]
            for group, heads in enumerate(groups)
        ]
        return np.logaddexp.reduce(per_group, axis=0)


class ProductHead(DigitHead):
    """Product of H short heads (multi-class).

    A label is the tuple of its mixed-radix digits, and head h scores digit h: ``sum(lengths)``
    outputs stand for ``prod(lengths)`` labels (Eqs. 4 to 11 of [1]_). The score of a label is the
    sum of log-softmaxes (with "bce", log-sigmoids) of its digits, never a product of raw logits,
    for which Theorem 1 does not hold.

    Parameters
    ----------
    n_features, n_labels : int
        Width of the encoder's output, and number of labels.
    multilabel : bool
        Must be False: a sample has exactly one label.
    lengths : sequence of int
        Number of outputs of each head.
    loss : str or Loss, default="auto"
        - "auto", "ce" or an object of its kind: sum of the cross-entropies of the heads. The
          probability of a label is the product of softmaxes, renormalised over the labels that
          exist.
        - "bce" or another pointwise loss without parameters per label: mean over the concatenated
          logits, in which each true digit is a positive (Algorithm 2 of [1]_).
        - "joint_ce": one softmax over the concatenated logits, in which each true digit is a
          target; its minimum is ``H log H``, not 0.
    n_groups : int, default=1
        Number G of groups of heads. With G > 1 (loss "ce" only) the label probability is a mixture
        of G products, ``sum_g pi_g prod_h softmax(O_g^h)``: a non-negative CP decomposition of rank
        G (Eq. 16 of [1]_, with probabilities in place of raw outputs, so that the mixture is
        normalised without a sum over all labels). More groups come closer to the flat head.

    Notes
    -----
    With one group :meth:`topk` is exact in ``O(sum(lengths))``. With several, the best candidates
    of each group are scored exactly, and their number is doubled until no other label can reach the
    k best (its score is at most the mixture of the groups' last candidates), or until it reaches
    ``MAX_CANDIDATES``; only then may a label be missed.

    **Differences from the paper**

    - Scores are sums of log-softmaxes or log-sigmoids; [1]_ multiplies raw logits, too.
    - Labels that do not exist, where ``prod(lengths)`` exceeds `n_labels`, are never ranked.
    - Eq. 16 of [1]_ adds products of raw outputs; `n_groups` mixes products of softmaxes.

    References
    ----------
    .. [1] D. Liang et al., "Multi-Head Encoding for Extreme Label Classification".
    """

    leaves_out = True
    code: MixedRadix

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        multilabel: bool,
        lengths: Sequence[int],
        loss: str | Loss = "auto",
        n_groups: int = 1,
    ) -> None:
        code = MixedRadix(n_labels, lengths)
        super().__init__(n_features, n_labels, multilabel, code, loss, n_groups)
        self.link = "exp" if self.criterion.needs_normaliser and not self.joint else None

    def set_prior(self, frequency: Tensor) -> None:
        """Start every head at the frequencies of its digits; groups differ by their weights."""
        start = self._first_biases(frequency).repeat(self.n_groups)
        with torch.no_grad():
            self.linear.bias[: len(start)] = start

    def _first_biases(self, frequency: Tensor) -> Tensor:
        marginals = []
        digits = torch.as_tensor(self.code.encode(np.arange(self.n_labels)))
        for h, length in enumerate(self.code.lengths):
            marginal = frequency.new_zeros(length).index_add(
                0, digits[:, h].to(frequency.device), frequency
            )
            marginals.append(marginal)
        return self.criterion.prior(torch.cat(marginals))

    def _lengths_for(self, n_labels: int) -> tuple[int, ...]:
        # No place value depends on the length of the first head, whose digit is the first.
        return self.code.longer(n_labels).lengths

    def room_for(self, n_labels: int) -> list[tuple[Tensor, Tensor]]:
        tensors = super().room_for(n_labels)
        if tensors and self.n_groups > 1:
            # A mixture weighs them, so that labels would not all shift by the same number.
            raise ValueError(
                self._no_room(
                    n_labels,
                    f"has {self.code.n_codes} codes, and more digits would change the softmax of "
                    f"each of its n_groups={self.n_groups} groups in another way",
                )
            )
        return tensors

    def start_labels(self, positions: Tensor, frequency: Tensor) -> None:
        first = (positions // int(self.code.place_values[0])).unique()
        known = torch.arange(self.n_labels, device=positions.device)
        known = known[~torch.isin(known, positions)]
        known = known if self.free is None else known[~self.free[known]]
        known = known // int(self.code.place_values[0])
        self._start_outputs(first[~torch.isin(first, known)], self._first_biases(frequency))

    def _digits(self, targets: Targets) -> Tensor:
        place_values = torch.as_tensor(self.code.place_values, device=targets.ids.device)
        lengths = torch.as_tensor(self.code.lengths, device=targets.ids.device)
        return targets.ids[:, None] // place_values % lengths  # (n_positives, H), Eq. 10

    def loss(
        self,
        features: Tensor,
        targets: Targets,
        sample_weight: Tensor | None = None,
        update: Update | None = None,
    ) -> Tensor:
        logits, mixing = self._outputs(features)
        digits, rows = self._digits(targets), targets.rows
        weights, values = row_weights(sample_weight, features), targets.values_like(features)
        if self.joint or isinstance(self.criterion, PointwiseLoss):
            at = rows[:, None], self._columns(digits)
            return self._concatenated_loss(logits[:, 0], at, weights, values)
        assert isinstance(self.criterion, SoftmaxCrossEntropy)
        share = self.criterion.share(weights, rows, values)
        chosen = [
            head.log_softmax(2)[rows, :, digits[:, h]]
            for h, head in enumerate(logits.split(self.code.lengths, dim=2))
        ]
        products = torch.stack(chosen).sum(0)  # logarithms, (n_positives, n_groups)
        if self.n_groups == 1:
            return share @ self.criterion.value(-products[:, 0])
        return share @ self.criterion.value(-(mixing[rows] + products).logsumexp(1))  # Eq. 16

    def _log_scores(self, features: Tensor) -> tuple[list[list[np.ndarray]], np.ndarray]:
        """Additive scores of every group's heads, in NumPy, and the groups' log weights."""
        logits, mixing = self._outputs(features)
        groups = []
        for group in range(self.n_groups):
            parts = logits[:, group].split(self.code.lengths, dim=1)
            groups.append([self._squash(part).cpu().numpy() for part in parts])
        return groups, mixing.cpu().numpy()

    @torch.no_grad()
    def topk(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        groups, mixing = self._log_scores(features)
        n_free = 0 if self.free is None else int(self.free.sum())
        if self.n_groups == 1:
            scores, ids = self.code.topk(groups[0], k + n_free)
        else:
            scores, ids = self._mixture_topk(groups, mixing, k + n_free)
        if self.free is not None:
            kept = np.argsort(self.free.cpu().numpy()[ids], axis=1, kind="stable")[:, :k]
            scores, ids = (np.take_along_axis(each, kept, axis=1) for each in (scores, ids))
        if self.link == "exp":
            scores = scores - self._normalizer(groups, mixing)
        return torch.as_tensor(scores).to(features), torch.as_tensor(ids, device=features.device)

    def scores_at(self, features: Tensor, positions: Tensor) -> Tensor:
        logits, mixing = self._outputs(features)
        heads = [self._squash(head) for head in logits.split(self.code.lengths, dim=2)]
        digits = self.code.encode(positions.cpu().numpy())
        products = torch.zeros_like(logits[:, :, :1])
        for h, head in enumerate(heads):
            of_head = torch.as_tensor(digits[..., h], device=head.device)
            at = of_head[:, None].expand(-1, self.n_groups, -1)
            products = products + head.gather(2, at)  # (n_rows, n_groups, k)
        if self.link is None:
            return products[:, 0]
        mass = self._log_mass(heads)[:, :, None]
        if self.n_groups > 1:  # Eq. 16
            products, mass = products + mixing[:, :, None], mass + mixing[:, :, None]
        return products.logsumexp(1) - mass.logsumexp(1)

    def label_vectors(self) -> Tensor:
        columns = torch.as_tensor(self.code.encode(np.arange(self.n_labels)))
        rows = self._columns(columns).to(self.linear.weight.device)
        groups = self.linear.weight[: self.n_groups * sum(self.code.lengths)].chunk(self.n_groups)
        # The score of a label adds up those of its digits.
        return torch.cat([group[rows].sum(1) for group in groups], dim=1)

    def _log_mass(self, heads: list[Tensor]) -> Tensor:
        """Log probability that the digits of softmaxes belong to a label that exists."""
        edge, terms = torch.zeros_like(heads[0][..., 0]), []
        last = self.code.encode(np.array([self.n_labels - 1]))[0]
        for head, digit in zip(
            heads, last.tolist()
        ):  # smaller here, equal to the last label before
            if digit:
                terms.append(edge + head[..., :digit].logsumexp(-1))
            edge = edge + head[..., digit]
        mass = torch.stack([*terms, edge]).logsumexp(0)
        if self.free is None:
            return mass
        gone = self.code.encode(np.flatnonzero(self.free.cpu().numpy()))
        parts = [head[..., torch.as_tensor(gone[:, h])] for h, head in enumerate(heads)]
        return _without(mass, torch.stack(parts).sum(0).logsumexp(-1))

    def _n_codes(self) -> int:
        return self.n_labels

    def _merged(self, codes: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        ids = np.sort(np.concatenate(codes, axis=1), axis=1)
        return ids, ids[:, 1:] == ids[:, :-1]

    def _to_digits(self, codes: np.ndarray) -> np.ndarray:
        return self.code.encode(codes)

    def _normalizer(self, groups: list[list[np.ndarray]], mixing: np.ndarray) -> np.ndarray:
        """Log of what the products, or their mixture, give all labels that exist, (n_rows, 1)."""
        mixing = mixing if self.n_groups > 1 else np.zeros_like(mixing, shape=(len(mixing), 1))
        if self.free is not None:  # a difference needs more digits
            groups = [[head.astype(np.float64) for head in heads] for heads in groups]
        mass = np.stack([self.code.log_normalizer(heads) for heads in groups], axis=1)
        total = np.logaddexp.reduce(mass + mixing, axis=1)[:, None]
        if self.free is None:
            return total
        digits = self.code.encode(np.flatnonzero(self.free.cpu().numpy()))
        gone = np.full_like(total, -np.inf)
        for part in row_blocks(len(digits), len(total) * len(groups)):
            scores = self._mixture_scores(groups, mixing, digits[None, part])
            gone = np.logaddexp(gone, np.logaddexp.reduce(scores, axis=1, keepdims=True))
        return _without(torch.from_numpy(total), torch.from_numpy(gone)).numpy()

    @torch.no_grad()
    def scores(self, features: Tensor) -> Tensor:
        groups, mixing = self._log_scores(features)
        if self.n_groups == 1:
            digits = self.code.encode(np.arange(self.n_labels))
            scores = sum(head[:, digits[:, h]] for h, head in enumerate(groups[0]))
        else:
            ids = np.broadcast_to(np.arange(self.n_labels), (len(features), self.n_labels))
            scores = self._mixture_scores(groups, mixing, self.code.encode(ids))
        if self.link == "exp":
            scores = scores - self._normalizer(groups, mixing)
        return self._labelled(torch.as_tensor(scores).to(features), slice(None))


def _without(total: Tensor, gone: Tensor) -> Tensor:
    """Logarithm of a total less a part of it, from their logarithms."""
    share = (gone.double() - total.double()).clamp(max=-1e-14)
    return (total + torch.log(-torch.expm1(share))).to(total)
