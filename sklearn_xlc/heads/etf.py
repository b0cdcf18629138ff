"""Head with a simplex equiangular tight frame as fixed last layer, or a learnt one."""

from __future__ import annotations

from numbers import Real
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from sklearn_xlc._bounds import check_dense_size, check_integer, check_real
from sklearn_xlc._compat import Interval
from sklearn_xlc.geometry import simplex_etf
from sklearn_xlc.heads._base import HalfLinear, HeadPart, Update
from sklearn_xlc.heads._whole import ShardOf, whole
from sklearn_xlc.heads.chunked import LinearHead
from sklearn_xlc.heads.losses import Loss


class ETFHead(LinearHead):
    r"""Linear classifier with fixed weights, for the pick-all-labels loss [1]_.

    The logits are :math:`z = W h + b`. The rows of W come from
    :func:`~sklearn_xlc.geometry.simplex_etf` and are never trained; if h has as many entries as
    there are labels, :math:`W h = \sqrt{K / (K - 1)} (h - \bar h)` needs no matrix.

    Parameters
    ----------
    n_features, n_labels, multilabel : int, int and bool
        As of :class:`Head`.
    feature_dim : int, default=None
        Number of entries of h, the output of a linear layer on the features. None: h is the
        features.
    learned : bool, default=False
        Train W.
    with_bias : bool, default=True
        Whether each label has a trained bias, which starts at the label's frequency.
    feature_decay : float, default=0.0
        As of :class:`ETF`.
    memory_limit : int, default=2**30
        As of :class:`ChunkedHead`.
    seed : int, default=0
        Seed of the frame that replaces the simplex if h has fewer than K - 1 entries, and of the
        rotation if it has more than K.
    loss : str or Loss, default="auto"
        As of :class:`ChunkedHead`, but "auto" is "pick_all_labels".
    precision : {"float32", "bfloat16"}, default="float32"
        Precision of the matrix products of training; weights and sums keep theirs.
    shard_of : callable, default=whole
        As of :class:`ChunkedHead`.

    Attributes
    ----------
    projection : Linear or Identity
        Layer that computes h.
    weight : Parameter of shape (n_labels, feature_dim), or None
        Learnt W; None if it is fixed.
    bias : Parameter of shape (n_labels,), or None

    Notes
    -----
    **Differences from the paper**

    - Fewer features than K - 1 are allowed: a frame of low coherence replaces the simplex.
    - `feature_decay` weighs a mean over samples, lambda_H of [1]_ a sum.

    References
    ----------
    .. [1] P. Li, X. Li, Y. Wang, Q. Qu. Neural Collapse in Multi-label Learning with
       Pick-all-label Loss. ICML 2024.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.heads import ETFHead
    >>> head = ETFHead(n_features=6, n_labels=5, multilabel=True, feature_dim=5, with_bias=False)
    >>> sum(p.numel() for p in head.parameters())  # the linear layer
    35
    """

    shards = True
    auto_losses = {True: "pick_all_labels", False: "pick_all_labels"}

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        multilabel: bool,
        feature_dim: int | None = None,
        learned: bool = False,
        with_bias: bool = True,
        feature_decay: float = 0.0,
        memory_limit: int = 2**30,
        seed: int = 0,
        loss: str | Loss = "auto",
        precision: str = "float32",
        shard_of: ShardOf = whole,
    ) -> None:
        super().__init__(n_features, n_labels, multilabel, memory_limit, loss, shard_of)
        self.link = "exp" if self.link == "softmax" else self.link
        check_real(feature_decay, "feature_decay", 0)
        self.low_precision = precision == "bfloat16"
        self.feature_decay, self.seed = feature_decay, check_integer(seed, "seed", 0)
        if feature_dim is not None:
            check_integer(feature_dim, "feature_dim")
        # A single label needs no direction: its softmax is 1 for any features.
        feature_dim = 1 if n_labels == 1 else feature_dim
        self.feature_dim = feature_dim or n_features
        self.projection = nn.Identity()
        if feature_dim is not None:
            self.projection = HalfLinear(n_features, feature_dim, self.low_precision)
        n_held = self.shard.n_held(n_labels)
        self.weight = nn.Parameter(torch.empty(n_held, self.feature_dim)) if learned else None
        self._std = self.feature_dim**-0.5
        if self.weight is not None:
            self.shard.draw_normal(self.weight, self._std)
        self.bias = nn.Parameter(torch.zeros(n_held)) if with_bias else None

    @property
    def is_implicit(self) -> bool:
        """Whether W is never stored."""
        return self.weight is None and self.feature_dim == self.n_labels

    @property
    def is_simplex(self) -> bool:
        """Whether all pairs of rows of W have exactly the same angle."""
        has_all = self.weight is None and self.free is None
        return has_all and self.feature_dim >= self.n_labels - 1

    def _first_biases(self, frequency: Tensor) -> Tensor:
        """Return the share of each label among all labels, or its frequency, as a logit."""
        shared = self.criterion.needs_normaliser
        return (frequency / frequency.sum()).log() if shared else self.criterion.prior(frequency)

    def room_for(self, n_labels: int) -> list[tuple[Tensor, Tensor]]:
        if self.weight is None:
            # Vectors of equal angles add up to zero, so none has that angle to all of them.
            raise ValueError(
                self._no_room(
                    n_labels,
                    "has a fixed frame, of equal angles between all pairs of its labels, which "
                    "another label would change (output='learned' grows)",
                )
            )
        return super().room_for(n_labels)

    def penalty(self, inputs: Tensor, weights: Tensor) -> Tensor | float:
        if not self.feature_decay:
            return 0.0
        return self.feature_decay * (weights @ inputs.square().sum(1))

    def logits(self, inputs: Tensor, chunk: slice) -> Tensor:
        products = self._products(inputs, chunk)
        return products if self.bias is None else products.add_(self.bias[self.held(chunk)])

    def _products(self, inputs: Tensor, chunk: slice) -> Tensor:
        if self.is_implicit:
            return (inputs[:, chunk] - inputs.mean(1, keepdim=True)).mul_(self._implicit_scale())
        return self._product(inputs, self.classifier(inputs, chunk).T)

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        if self.training and self.low_precision:
            return (left.bfloat16() @ right.bfloat16()).to(left.dtype)
        return left @ right

    def backward(
        self, inputs: Tensor, chunk: slice, gradient: Tensor, into: Tensor, update: Update
    ) -> None:
        if self.is_implicit:
            scaled = gradient * self._implicit_scale()
            into[:, chunk] += scaled
            into -= scaled.sum(1, keepdim=True) / self.n_labels
        else:
            into += self._product(gradient, self.classifier(inputs, chunk))
            if self.weight is not None:
                update(self.weight, self.held(chunk), self._product(gradient.T, inputs))
        if self.bias is not None:
            update(self.bias, self.held(chunk), gradient.sum(0))

    def layer_products(self, inputs: Tensor) -> Tensor:
        products = torch.cat([self._products(inputs, chunk) for chunk in self.chunks()], dim=1)
        return self.shard.joined_columns(products)

    def classifier(self, like: Tensor, chunk: slice = slice(None)) -> Tensor:
        """Return rows of W, of shape (chunk, feature_dim)."""
        if self.weight is not None:
            return self.weight[self.held(chunk)]
        return self._table("rows", like, self._frame)[self.held(chunk)]

    def _frame(self) -> np.ndarray:
        """Compute the rows of W in this process."""
        if self.n_labels == 1:
            return np.zeros((1, 1))
        # A rotation mixes all entries of h; for as many entries as labels it is not needed.
        seed = None if self.is_implicit else self.seed
        if self.is_implicit:  # training does without: W is as large as all pairs of labels
            shape = self.n_labels, self.feature_dim
            check_dense_size(shape, np.float64, "feature_dim, of fewer numbers a label")
        return simplex_etf(self.n_labels, self.feature_dim, seed)[self.all_held()]

    def _implicit_scale(self) -> float:
        return (self.n_labels / max(1, self.n_labels - 1)) ** 0.5  # Eq. 6


class ETF(HeadPart):
    """Fixed last layer: a simplex equiangular tight frame.

    Parameters
    ----------
    feature_decay : float, default=0.0
        Weight of the mean squared norm of the features in the loss. Equation 4 of [1]_ has the sum
        over the samples of a batch, so that its lambda_H times the batch size is `feature_decay`:
        5e-4 at 128 samples is 0.064.
    fit_intercept : bool, default=True
        Whether to train a bias for each label.

    See Also
    --------
    Learned : A trained matrix.
    ETFHead : The module.

    References
    ----------
    .. [1] P. Li, X. Li, Y. Wang, Q. Qu. Neural Collapse in Multi-label Learning with
       Pick-all-label Loss. ICML 2024.

    Examples
    --------
    >>> from sklearn_xlc import ETFNeuralCollapseClassifier
    >>> ETFNeuralCollapseClassifier().set_params(output__feature_decay=1e-3).output
    ETF(feature_decay=0.001)
    """

    head = ETFHead
    #: Whether the matrix is trained.
    learned: ClassVar[bool] = False

    _parameter_constraints = {
        "feature_decay": [Interval(Real, 0, None, closed="left")],
        "fit_intercept": ["boolean"],
    }

    def __init__(self, feature_decay: float = 0.0, *, fit_intercept: bool = True) -> None:
        self.feature_decay = feature_decay
        self.fit_intercept = fit_intercept


class Learned(ETF):
    """Trained last layer, in place of the fixed one.

    Parameters
    ----------
    feature_decay : float, default=0.0
        Weight of the mean squared norm of the features in the loss, as of :class:`ETF`.
    fit_intercept : bool, default=True
        Whether to train a bias for each label.

    See Also
    --------
    ETF : A fixed simplex.
    """

    learned = True
