"""What every head shares: its targets, its duties, and the merging of chunked top-k lists."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from sklearn_xlc.batches import Targets

#: ``update(parameter, rows, gradient)`` applies one optimiser step to ``parameter[rows]``.
Update = Callable[[nn.Parameter, slice, Tensor], None]


class Head(nn.Module, ABC):
    """Base of all heads. A head owns the output space and knows nothing of scikit-learn.

    Parameters
    ----------
    n_features : int
        Width of the encoder's output.
    n_labels : int
        Number of labels; places run from 0 to ``n_labels - 1``.
    multilabel : bool
        Whether a row may hold any number of labels, or exactly one.

    Attributes
    ----------
    link : {"softmax", "sigmoid", "exp", None}
        How ``scores`` become probabilities. With "sigmoid" a label is predicted where its score
        is positive.
    """

    link: str | None = None

    def __init__(self, n_features: int, n_labels: int, multilabel: bool) -> None:
        super().__init__()
        self.n_features, self.n_labels, self.multilabel = n_features, n_labels, multilabel

    def row_parameters(self) -> list[nn.Parameter]:
        """Parameters whose gradient touches few rows a batch and arrives as a sparse tensor."""
        return []

    def fused_parameters(self) -> list[nn.Parameter]:
        """Parameters that :meth:`loss` updates itself when it is given `update`."""
        return []

    def set_prior(self, frequency: Tensor) -> None:
        """Start from label frequencies, of shape (n_labels,), relative to the number of rows."""

    @abstractmethod
    def loss(
        self,
        features: Tensor,
        targets: Targets,
        sample_weight: Tensor | None = None,
        update: Update | None = None,
    ) -> Tensor:
        """Mean loss of a batch: ``sum(weight * row loss) / sum(weight)``.

        With `update`, the parameters named by :meth:`fused_parameters` have taken their step
        when this returns, and the loss carries a gradient for everything else. Without it the
        loss is an ordinary differentiable function of features and parameters.
        """

    @abstractmethod
    def topk(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Scores and places of the k best labels, both (n_rows, k), best first."""

    @abstractmethod
    def scores(self, features: Tensor) -> Tensor:
        """Scores of every label, of shape (n_rows, n_labels)."""


def row_weights(sample_weight: Tensor | None, features: Tensor) -> Tensor:
    """Weight of each row in the mean loss, of shape (n_rows,), summing to one."""
    if sample_weight is None:
        return features.new_full((len(features),), 1.0 / len(features))
    return (sample_weight / sample_weight.sum()).to(features)


def merge_topk(best: tuple[Tensor, Tensor] | None, scores: Tensor, start: int, k: int):  # type: ignore[no-untyped-def]
    """Join the k best so far with a chunk of scores whose first column is label `start`."""
    scores, ids = scores.topk(min(k, scores.shape[1]), dim=1)
    ids = ids + start
    if best is not None:
        scores, ids = torch.cat([best[0], scores], dim=1), torch.cat([best[1], ids], dim=1)
        scores, order = scores.topk(min(k, scores.shape[1]), dim=1)
        ids = ids.gather(1, order)
    return scores, ids
