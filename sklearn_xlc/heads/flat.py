"""One output per label: the plain classifier, and the baseline of all others."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sklearn_xlc._bounds import check_integer
from sklearn_xlc.heads._base import Update
from sklearn_xlc.heads.chunked import ChunkedHead
from sklearn_xlc.heads.losses import Loss


class FlatHead(ChunkedHead):
    """Linear classifier with one row of weights per label.

    Parameters
    ----------
    n_features, n_labels : int
        Width of the encoder's output, and number of labels.
    multilabel : bool
        Whether a sample may hold any number of labels, or exactly one.
    memory_limit : int, default=2**30
        Limit in bytes of the temporary logits.
    precision : {"float32", "bfloat16"}, default="float32"
        Precision of matrix products in the fused loss; weights and sums keep their precision.
    width : int, default=None
        Width of a linear layer between features and labels: the bottleneck of most classifiers with
        many labels. None: no such layer.
    with_bias : bool, default=True
        Whether each label has a bias, which starts at the label's frequency.
    loss : str or Loss, default="auto"
        As in :class:`~sklearn_xlc.heads.ChunkedHead`.

    Attributes
    ----------
    projection : Linear or Identity
        Layer between features and labels.
    weight : Parameter of shape (n_labels, n_features), or (n_labels, width)
    bias : Parameter of shape (n_labels,), or None

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.heads import FlatHead
    >>> head = FlatHead(n_features=4, n_labels=10, multilabel=False)
    >>> scores, ids = head.topk(torch.zeros(3, 4), k=2)
    >>> ids.shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        multilabel: bool,
        memory_limit: int = 2**30,
        precision: str = "float32",
        width: int | None = None,
        with_bias: bool = True,
        loss: str | Loss = "auto",
    ) -> None:
        super().__init__(n_features, n_labels, multilabel, memory_limit, loss)
        self.low_precision = precision == "bfloat16"
        n_inputs = n_features if width is None else check_integer(width, "width")
        self.projection = nn.Identity() if width is None else nn.Linear(n_features, width)
        self.weight = nn.Parameter(torch.empty(n_labels, n_inputs))
        self.bias = nn.Parameter(torch.zeros(n_labels)) if with_bias else None
        nn.init.normal_(self.weight, std=n_inputs**-0.5 / 2)

    def fused_parameters(self) -> list[nn.Parameter]:
        return [self.weight] if self.bias is None else [self.weight, self.bias]

    def set_prior(self, frequency: Tensor) -> None:
        if self.bias is not None:
            with torch.no_grad():
                self.bias.copy_(self.criterion.prior(frequency))

    def inputs(self, features: Tensor) -> Tensor:
        return self.projection(features)

    def classifier(self, like: Tensor, chunk: slice = slice(None)) -> Tensor:
        """Weights of the labels, of shape (chunk, n_features)."""
        return self.weight[chunk]

    def logits(self, inputs: Tensor, chunk: slice) -> Tensor:
        bias = None if self.bias is None else self.bias[chunk]
        if self.training and self.low_precision:
            logits = self._product(inputs, self.weight[chunk].T)
            return logits if bias is None else logits.add_(bias)
        return F.linear(inputs, self.weight[chunk], bias)

    def backward(
        self, inputs: Tensor, chunk: slice, gradient: Tensor, into: Tensor, update: Update
    ) -> None:
        into += self._product(gradient, self.weight[chunk])
        update(self.weight, chunk, self._product(gradient.T, inputs))
        if self.bias is not None:
            update(self.bias, chunk, gradient.sum(0))

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        """Matrix product at the head's precision, in the dtype of `left`."""
        if not self.low_precision:
            return left @ right
        return (left.bfloat16() @ right.bfloat16()).to(left.dtype)
