"""Multi-Head Product: a few short heads whose scores add up to the score of a label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sklearn_xlc.batches import Targets
from sklearn_xlc.codes import MixedRadix
from sklearn_xlc.heads._base import Head, Update, row_weights

#: Candidates a group and row at which the search for the k best of a mixture stops doubling.
MAX_CANDIDATES = 4096


class ProductHead(Head):
    """Product of H short heads (multi-class).

    A label is the tuple of its mixed-radix digits, and head h scores digit h: ``sum(lengths)``
    outputs stand for ``prod(lengths)`` labels (Eqs. 4 to 11 of [1]_). Heads are combined by the sum
    of log-softmaxes (or log-sigmoids for "bce"), never by products of raw logits, for which
    Theorem 1 does not hold.

    Parameters
    ----------
    n_features, n_labels, multilabel
        See :class:`~sklearn_xlc.heads.Head`; `multilabel` must be False.
    lengths : sequence of int
        Length of each head.
    loss : {"ce", "bce", "joint_ce"}, default="ce"
        - "ce": cross-entropy of each head, summed. The probability of a label is the product of
          softmaxes, renormalised over the labels that exist.
        - "bce": mean binary cross-entropy over the concatenated logits (Algorithm 2 of [1]_).
        - "joint_ce": one softmax over the concatenated logits, each true digit a target; its
          floor is ``H log H``, not 0.
    n_groups : int, default=1
        Number G of groups of heads. With G > 1 (loss "ce" only) the label probability is a mixture
        of G products, ``sum_g pi_g prod_h softmax(O_g^h)``: a non-negative CP decomposition of
        rank G (Eq. 16 of [1]_, with probabilities for its raw outputs, so that it is normalised
        without a sum over all labels). The dial between one product and the flat head.

    Notes
    -----
    With one group :meth:`topk` is exact in ``O(sum(lengths))``. With several, the best candidates
    of each group are scored exactly, and their number is doubled until no other label can reach
    the k best (its score is at most the mixture of the groups' last candidates), or until it
    reaches ``MAX_CANDIDATES``; only in the latter case may a label be missed.

    References
    ----------
    .. [1] D. Liang et al., "Multi-Head Encoding for Extreme Label Classification".
    """

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        multilabel: bool,
        lengths: Sequence[int],
        loss: str = "ce",
        n_groups: int = 1,
    ) -> None:
        super().__init__(n_features, n_labels, multilabel)
        self.code = MixedRadix(n_labels, lengths)
        self.loss_name, self.n_groups = loss, n_groups
        self.link = "exp" if loss == "ce" else None
        n_mixing = n_groups if n_groups > 1 else 0
        self.linear = nn.Linear(n_features, n_groups * sum(self.code.lengths) + n_mixing)
        nn.init.normal_(self.linear.weight, std=n_features**-0.5 / 2)
        nn.init.zeros_(self.linear.bias)

    def set_prior(self, frequency: Tensor) -> None:
        """Start every head at the frequencies of its digits; groups differ by their weights."""
        marginals = []
        digits = torch.as_tensor(self.code.encode(np.arange(self.n_labels)))
        for h, length in enumerate(self.code.lengths):
            marginal = frequency.new_zeros(length).index_add(
                0, digits[:, h].to(frequency.device), frequency
            )
            marginals.append(marginal.clamp(1e-7, 1 - 1e-3))
        prior = torch.cat(marginals).repeat(self.n_groups)
        with torch.no_grad():
            start = torch.logit(prior) if self.loss_name == "bce" else prior.log()
            self.linear.bias[: len(start)] = start

    def _outputs(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the heads, (n_rows, n_groups, sum(lengths)), and log weights of the groups."""
        n_outputs = self.n_groups * sum(self.code.lengths)
        outputs = self.linear(features)
        heads = outputs[:, :n_outputs].view(len(features), self.n_groups, -1)
        return heads, outputs[:, n_outputs:].log_softmax(1)

    def _digits(self, targets: Targets) -> Tensor:
        place_values = torch.as_tensor(self.code.place_values, device=targets.ids.device)
        lengths = torch.as_tensor(self.code.lengths, device=targets.ids.device)
        return targets.ids[:, None] // place_values % lengths  # (n_rows, H), Eq. 10

    def _offsets(self, device: torch.device) -> Tensor:
        """Column at which each head begins in the concatenation."""
        return torch.tensor([0, *np.cumsum(self.code.lengths)[:-1].tolist()], device=device)

    def loss(  # noqa: D102
        self,
        features: Tensor,
        targets: Targets,
        sample_weight: Tensor | None = None,
        update: Update | None = None,
    ) -> Tensor:
        logits, mixing = self._outputs(features)
        digits = self._digits(targets)
        weights = row_weights(sample_weight, features)
        true = digits + self._offsets(digits.device)  # (n_rows, H) columns of the concatenation
        if self.loss_name == "ce":
            chosen = [
                head.log_softmax(2)[torch.arange(len(head), device=head.device), :, digits[:, h]]
                for h, head in enumerate(logits.split(self.code.lengths, dim=2))
            ]
            log_products = torch.stack(chosen).sum(0)  # (n_rows, n_groups)
            if self.n_groups == 1:
                return -(weights @ log_products[:, 0])
            return -(weights @ (mixing + log_products).logsumexp(1))  # Eq. 16, as a mixture
        flat = logits[:, 0]
        if self.loss_name == "joint_ce":
            return -(weights @ flat.log_softmax(1).gather(1, true).sum(1))
        positive = flat.gather(1, true).sum(1)
        return weights @ ((F.softplus(flat).sum(1) - positive) / flat.shape[1])

    def _log_scores(self, features: Tensor) -> tuple[list[list[np.ndarray]], np.ndarray]:
        """Additive scores of every group's heads, in NumPy, and the groups' log weights."""
        logits, mixing = self._outputs(features)
        groups = []
        for group in range(self.n_groups):
            parts = logits[:, group].split(self.code.lengths, dim=1)
            squash = F.logsigmoid if self.loss_name == "bce" else _log_softmax
            groups.append([squash(part).cpu().numpy() for part in parts])
        return groups, mixing.cpu().numpy()

    @torch.no_grad()
    def topk(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:  # noqa: D102
        groups, mixing = self._log_scores(features)
        if self.n_groups == 1:
            scores, ids = self.code.topk(groups[0], k)
            if self.link == "exp":
                scores = scores - self.code.log_normalizer(groups[0])[:, None]
        else:
            scores, ids = self._mixture_topk(groups, mixing, k)
        return torch.as_tensor(scores).to(features), torch.as_tensor(ids, device=features.device)

    def _mixture_topk(
        self, groups: list[list[np.ndarray]], mixing: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        n_candidates = min(self.n_labels, max(2 * k, 16))
        while True:
            found = [self.code.topk(heads, n_candidates) for heads in groups]
            candidates = np.sort(np.concatenate([ids for _, ids in found], axis=1), axis=1)
            scores = self._mixture_scores(groups, mixing, candidates)
            repeated = candidates[:, 1:] == candidates[:, :-1]
            scores[:, 1:][repeated] = -np.inf
            order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            best = np.take_along_axis(scores, order, axis=1)
            last = np.stack([group_scores[:, -1] for group_scores, _ in found], axis=1)
            # A label that no group holds scores at most the mixture of the groups' last ones.
            ceiling = np.logaddexp.reduce(mixing + last, axis=1)
            if n_candidates >= min(self.n_labels, MAX_CANDIDATES) or (best[:, -1] >= ceiling).all():
                break
            n_candidates = min(2 * n_candidates, self.n_labels, max(MAX_CANDIDATES, k))
        return best - self._mixture_normalizer(groups, mixing), np.take_along_axis(
            candidates, order, axis=1
        )

    def _mixture_scores(
        self, groups: list[list[np.ndarray]], mixing: np.ndarray, ids: np.ndarray
    ) -> np.ndarray:
        digits = self.code.encode(ids)
        per_group = [
            sum(np.take_along_axis(head, digits[..., h], axis=1) for h, head in enumerate(heads))
            + mixing[:, group, None]
            for group, heads in enumerate(groups)
        ]
        return np.logaddexp.reduce(per_group, axis=0)

    def _mixture_normalizer(self, groups: list[list[np.ndarray]], mixing: np.ndarray) -> np.ndarray:
        mass = [self.code.log_normalizer(heads) for heads in groups]
        return np.logaddexp.reduce(np.stack(mass, axis=1) + mixing, axis=1)[:, None]

    @torch.no_grad()
    def scores(self, features: Tensor) -> Tensor:  # noqa: D102
        groups, mixing = self._log_scores(features)
        ids = np.broadcast_to(np.arange(self.n_labels), (len(features), self.n_labels))
        if self.n_groups == 1:
            digits = self.code.encode(np.arange(self.n_labels))
            scores = sum(head[:, digits[:, h]] for h, head in enumerate(groups[0]))
            if self.link == "exp":
                scores = scores - self.code.log_normalizer(groups[0])[:, None]
        else:
            scores = self._mixture_scores(groups, mixing, ids)
            scores = scores - self._mixture_normalizer(groups, mixing)
        return torch.as_tensor(scores).to(features)


def _log_softmax(logits: Tensor) -> Tensor:
    return logits.log_softmax(1)
