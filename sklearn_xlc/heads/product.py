"""Multi-Head Product: a few short heads whose scores add up to the score of a label."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from sklearn_xlc._compat import Interval
from sklearn_xlc._csr import row_blocks
from sklearn_xlc._part import refuse_unusable
from sklearn_xlc.batches import Targets
from sklearn_xlc.codes import LabelBlocks, MixedRadix
from sklearn_xlc.heads._base import DigitPart, Head
from sklearn_xlc.heads.digits import DigitHead
from sklearn_xlc.heads.losses import Loss
from sklearn_xlc.heads.powerset import PowersetHead
from sklearn_xlc.heads.ranking import is_exporting


class ProductHead(DigitHead):
    """Product of H short heads (multi-class).

    A label is the tuple of its mixed-radix digits, and head h scores digit h: ``sum(lengths)``
    outputs stand for ``prod(lengths)`` labels (Eqs. 4 to 11 of [1]_). The score of a label is the
    sum of log-softmaxes (with "bce", log-sigmoids) of its digits, never a product of raw logits,
    for which Theorem 1 does not hold.

    Parameters
    ----------
    n_features, n_labels, multilabel : int, int and bool
        As of :class:`Head`; a sample has exactly one label.
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
        G (Eq. 16 of [1]_), normalised without a sum over all labels. More groups come closer to the
        flat head.

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
        self.link = "exp" if self.criterion.link == "softmax" else None

    def _first_biases(self, frequency: Tensor) -> Tensor:
        digits = torch.as_tensor(self.code.encode(np.arange(self.n_labels)).T).to(frequency.device)
        marginals = [
            frequency.new_zeros(length).index_add(0, of_head, frequency)
            for length, of_head in zip(self.code.lengths, digits)
        ]
        return self.criterion.prior(torch.cat(marginals))

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
        known = self._others(positions).nonzero()[:, 0] // int(self.code.place_values[0])
        self._start_outputs(first[~torch.isin(first, known)], self._first_biases(frequency))

    def _digits(self, targets: Targets) -> Tensor:
        place_values = torch.as_tensor(self.code.place_values, device=targets.ids.device)
        lengths = torch.as_tensor(self.code.lengths, device=targets.ids.device)
        return targets.ids[:, None] // place_values % lengths  # (n_positives, H), Eq. 10

    def loss_of(self, features: Tensor, targets: Targets, weights: Tensor) -> Tensor:
        logits, mixing = self._outputs(features)
        digits, rows, values = self._digits(targets), targets.rows, targets.values_like(features)
        if self.joint or not self.criterion.needs_normaliser:
            at = rows[:, None], self._columns(digits)
            return self._concatenated_loss(logits[:, 0], at, weights, values)
        share = self.criterion.share(weights, rows, values)
        chosen = [
            head.log_softmax(2)[rows, :, digits[:, h]]
            for h, head in enumerate(logits.split(self.code.lengths, dim=2))
        ]
        products = torch.stack(chosen).sum(0)  # logarithms, (n_positives, n_groups)
        return share @ self.criterion.value(-(mixing[rows] + products).logsumexp(1))  # Eq. 16

    def _log_scores(self, features: Tensor) -> tuple[list[list[np.ndarray]], np.ndarray]:
        """Compute additive scores of every group's heads, in NumPy, and log weights of groups."""
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
            scores, digits = self._mixture_topk(groups, mixing, k + n_free)
            ids = self.code.decode(digits)
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
        mixing, mass = mixing[:, :, None], self._log_mass(heads)[:, :, None]
        return (products + mixing).logsumexp(1) - (mass + mixing).logsumexp(1)  # Eq. 16

    def label_vectors(self) -> Tensor:
        columns = torch.as_tensor(self.code.encode(np.arange(self.n_labels)))
        rows = self._columns(columns).to(self.linear.weight.device)
        groups = self.linear.weight[: self.n_groups * sum(self.code.lengths)].chunk(self.n_groups)
        # The score of a label adds up those of its digits.
        return torch.cat([group[rows].sum(1) for group in groups], dim=1)

    def _log_mass(self, heads: list[Tensor]) -> Tensor:
        """Compute the log probability of existing labels under the softmaxes of the digits."""
        edge, terms = torch.zeros_like(heads[0][..., 0]), []
        last = self.code.encode(np.array([self.n_labels - 1]))[0]
        # Smaller here, equal to the last label before.
        for head, digit in zip(heads, last.tolist()):
            if digit:
                terms.append(edge + head[..., :digit].logsumexp(-1))
            edge = edge + head[..., digit]
        mass = torch.stack([*terms, edge]).logsumexp(0)
        if self.free is None:
            return mass
        gone = self.code.encode(np.flatnonzero(self.free.cpu().numpy()))
        parts = [head[..., torch.as_tensor(gone[:, h])] for h, head in enumerate(heads)]
        return _without(mass, torch.stack(parts).sum(0).logsumexp(-1))

    def _digits_of_best(self, heads: list[np.ndarray], k: int) -> tuple[np.ndarray, np.ndarray]:
        scores, ids = self.code.topk(heads, k)
        return scores, self.code.encode(ids)

    def _normalizer(self, groups: list[list[np.ndarray]], mixing: np.ndarray) -> np.ndarray:
        """Compute the log probability of all existing labels, of shape (n_rows, 1)."""
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
        if is_exporting():
            return self._traced_scores(features)
        groups, mixing = self._log_scores(features)
        digits = self.code.encode(np.arange(self.n_labels))
        if self.n_groups == 1:
            scores = sum(head[:, digits[:, h]] for h, head in enumerate(groups[0]))
        else:
            scores = self._mixture_scores(groups, mixing, digits[None])
        if self.link == "exp":
            scores = scores - self._normalizer(groups, mixing)
        return self._labelled(torch.as_tensor(scores).to(features), slice(None))

    def _traced_scores(self, features: Tensor) -> Tensor:
        """Compute the same in torch alone, for graphs; sums differ by rounding."""
        logits, mixing = self._outputs(features)
        digits = torch.as_tensor(self.code.encode(np.arange(self.n_labels)), device=logits.device)
        heads = zip(logits.split(self.code.lengths, dim=2), digits.T)
        parts = (self._squash(head).index_select(2, of_head) for head, of_head in heads)
        products = functools.reduce(torch.add, parts)  # (n_rows, n_groups, n_labels)
        products = (products + mixing[:, :, None]).logsumexp(1)  # Eq. 16
        scores = self._labelled(products, slice(None))
        return scores.log_softmax(1) if self.link == "exp" else scores


@dataclass(eq=False, repr=False, kw_only=True)
class Product(DigitPart):
    """Sum of the log probabilities of independent heads.

    For class labels it is the fastest head and the coarsest: labels with a common digit share
    parameters. For label sets the set of a sample is one class among ``2**n_labels``, and each head
    scores all sets of a few labels; sets have probabilities
    (:meth:`~sklearn_xlc.MultiHeadClassifier.predict_topk_sets`), and the most probable one is
    predicted. It then costs as much as :class:`Flat` with an output for each set of each head.

    Parameters
    ----------
    n_heads : int, default=2
        Number of heads for class labels. Every additional head adds an approximation error (Eq. 14
        of [1]_).
    lengths : sequence of int, default=None
        Number of outputs of each head, the most significant digit first; their product must be at
        least the number of labels. For label sets, powers of two: a head of ``2**b`` outputs scores
        the sets of b labels, and together the heads hold all labels. None: equal lengths by
        :func:`~sklearn_xlc.codes.head_lengths`; for label sets, 16 outputs for every 4 labels.
    label_order : str or array-like of shape (n_labels,), default="given"
        As of :class:`Cascade`. Neighbouring labels share digits; of label sets they share a head,
        which learns how they depend on each other.
    n_groups : int, default=1
        Number of groups of heads (softmax cross-entropy): the probability of a label, or label set,
        is a mixture of `n_groups` products; Eq. 16 of [1]_ adds products of raw outputs. More
        groups depend less on which labels share a head, at a higher cost.

    See Also
    --------
    ProductHead : The module for class labels.
    PowersetHead : The module for label sets.

    Notes
    -----
    Marginal probabilities and the k best label sets are additions to [1]_.

    References
    ----------
    .. [1] D. Liang, H. Zhang, D. Yuan and M. Zhang, "Multi-Head Encoding for Extreme Label
       Classification".

    Examples
    --------
    >>> from sklearn_xlc.heads import Product
    >>> Product(n_heads=3).for_labels(1000, multilabel=False).lengths
    (10, 10, 10)
    """

    head = ProductHead
    rule = "equal"

    n_groups: int = 1

    _parameter_constraints = {
        **DigitPart._parameter_constraints,
        "n_groups": [Interval(Integral, 1, None, closed="left")],
    }

    def head_for(self, multilabel: bool) -> type[Head]:
        return PowersetHead if multilabel else ProductHead

    def check_task(self, n_labels: int, multilabel: bool, loss: str | Loss) -> None:
        super().check_task(n_labels, multilabel, loss)
        criterion = self.head_for(multilabel).resolve_loss(loss, multilabel)
        if self.n_groups > 1 and (not criterion.needs_normaliser or criterion.needs):
            raise ValueError(f"n_groups={self.n_groups} needs loss='ce', got loss={loss!r}")

    def _lengths_for(self, n_labels: int, multilabel: bool) -> tuple[int, ...]:
        if not multilabel:
            return super()._lengths_for(n_labels, multilabel)
        if self.lengths is None:
            refuse_unusable(self, {"n_heads": "with label sets: give lengths"})
        return self._checked(LabelBlocks, n_labels)

    def order_lengths(self, multilabel: bool) -> tuple[int, ...]:
        if not multilabel:
            return self.lengths
        return len(self.lengths), max(self.lengths).bit_length() - 1  # blocks of labels


def _without(total: Tensor, gone: Tensor) -> Tensor:
    """Compute the log of a total less a part, from their logs."""
    share = (gone.double() - total.double()).clamp(max=-1e-14)
    return (total + torch.log(-torch.expm1(share))).to(total)
