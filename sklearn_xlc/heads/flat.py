"""Flat head: a linear classifier with one output per label."""

from __future__ import annotations

import math
import threading
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc.batches import Targets, generator_for
from sklearn_xlc.heads._base import Head, HeadPart, HeadTask, Update
from sklearn_xlc.heads._whole import ShardOf, whole
from sklearn_xlc.heads.chunked import Drawn, LinearHead, Step
from sklearn_xlc.heads.losses import Labels, Loss
from sklearn_xlc.heads.screening import Screening

#: Largest factor of the loss of a drawn negative. One over the chance of a draw would leave the
#: expected gradient as it is, but rare large steps cost more than this bias.
MOST = 4.0
#: Labels of a batch beside drawn ones, about: 3 to 5 different ones for each of 256 samples.
_OF_BATCH = 1000
#: Products in bfloat16 are of a multiple of so many labels: for each shape oneDNN compiles a kernel
#: of half a megabyte and keeps it, and the number of drawn labels differs from step to step.
_MULTIPLE = 64
#: Held while a search for the best labels is made.
_MAKING = threading.Lock()


class FlatHead(LinearHead):
    """Linear classifier with one row of weights per label.

    Parameters
    ----------
    n_features, n_labels, multilabel : int, int and bool
        As of :class:`Head`.
    memory_limit : int, default=2**30
        As of :class:`ChunkedHead`.
    precision : {"float32", "bfloat16"}, default="float32"
        Precision of matrix products in the fused loss; weights and sums keep their precision.
    width : int, default=None
        `rank` of :class:`Flat`.
    with_bias : bool, default=True
        Whether each label has a bias, which starts at the label's frequency. Otherwise the layer of
        that width has biases.
    loss : str or Loss, default="auto"
        As of :class:`ChunkedHead`.
    n_negatives : int, default=None
        Number of random negative labels of a step, besides the labels of the batch. They estimate
        the normaliser of a row-wise loss. None: all labels.
    n_members : int, default=1
        Number of classifiers trained side by side, each on its own part of the features. Their
        logits are averaged and their losses summed. They share a bias; apart from it, each is
        trained as it would be alone.
    shard_of : callable, default=whole
        As of :class:`ChunkedHead`.

    Attributes
    ----------
    projection : Linear or Identity
        Layer between features and labels.
    weight : Parameter of shape (n_labels, n_features), or (n_labels, width)
        Weights; each member owns as many columns as any other.
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

    shards = True
    #: Search for the best labels, and the weights that it was made for.
    _screening: tuple[Any, Screening] | None = None

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
        n_negatives: int | None = None,
        n_members: int = 1,
        shard_of: ShardOf = whole,
    ) -> None:
        super().__init__(n_features, n_labels, multilabel, memory_limit, loss, shard_of)
        if n_negatives is not None:
            check_integer(n_negatives, "n_negatives")
        self.n_negatives = n_negatives
        self.low_precision = precision == "bfloat16"
        n_inputs = n_features if width is None else check_integer(width, "width")
        # Biases of both layers would add up to biases of the labels.
        self.projection = (
            nn.Identity() if width is None else nn.Linear(n_features, width, bias=not with_bias)
        )
        n_held = self.shard.n_held(n_labels)
        self.weight = nn.Parameter(torch.empty(n_held, n_inputs))
        self.bias = nn.Parameter(torch.zeros(n_held)) if with_bias else None
        self.n_members = check_integer(n_members, "n_members")
        if n_members > 1 and (n_features % n_members or width is not None):
            raise ValueError(
                f"n_members={n_members} needs n_features that they can share equally and "
                f"width=None, got n_features={n_features} and width={width}"
            )
        # Many labels with their losses added up begin at their frequencies, which ranks better.
        self._std = (n_inputs // n_members) ** -0.5 / (10 if multilabel else 2)
        self.shard.draw_normal(self.weight, self._std)
        self._last: dict[int, tuple[Labels, Tensor]] | None = None  # weights read in this step

    @torch.no_grad()
    def imprint_labels(self, positions: Tensor, means: Tensor, mean: Tensor) -> None:
        """Imprint weights (Qi, Brown, Lowe: Low-Shot Learning with Imprinted Weights, CVPR 2018).

        The norm is that of the other labels in the median, and the mean score stays at the prior.
        For classes only: of label sets, labels with few samples would be named too often.
        """
        if not self.criterion.needs_normaliser:
            return
        norms = self.weight[self._others(positions)].norm(dim=1)
        if type(self).logits is not FlatHead.logits or not len(norms):
            return
        has = means.isfinite().all(1)
        positions, mean, means = positions[has], self.inputs(mean[None]), self.inputs(means[has])
        rows = F.normalize(means - mean, dim=1) * norms.median()
        self.weight[positions] = rows.to(self.weight)
        if self.bias is not None:
            self.bias[positions] -= (rows @ mean[0]).to(self.bias) / self.n_members

    def draw(self, targets: Targets) -> Drawn | None:
        """Draw the labels of the batch and random others, if a step then costs less."""
        if self.n_negatives is None or 2 * self.n_negatives >= self.n_labels:
            return None
        device = targets.ids.device
        size, generator = (self.n_negatives,), generator_for(device)
        random = torch.randint(self.n_labels, size, device=device, generator=generator)
        positions, inverse = torch.unique(torch.cat([targets.ids, random]), return_inverse=True)
        # A label is drawn with probability 1 - (1 - 1/n)^m; those of the batch are certain.
        chance = -math.expm1(self.n_negatives * math.log1p(-1 / self.n_labels))
        most = math.inf if self.criterion.needs_normaliser else MOST
        factors = torch.full((len(positions),), min(1 / chance, most), device=device)
        factors[inverse[: len(targets.ids)]] = 1.0
        return Drawn(positions, factors)

    def weights_met(self) -> int:
        """Estimate the weights that a sample meets in training."""
        n_labels = len(self.weight)
        if self.n_negatives is not None:
            n_labels = min(n_labels, self.n_negatives + _OF_BATCH)
        return n_labels * self.weight.shape[1]

    def arranged(
        self, inputs: Tensor, targets: Targets, weights: Tensor
    ) -> tuple[Tensor, Targets, Tensor]:
        """Arrange the batch with separate rows for each member; member losses add up."""
        n_members = self.n_members
        if n_members == 1:
            return inputs, targets, weights
        rows = torch.cat(inputs.chunk(n_members, 1))
        return rows, targets.repeated(n_members), weights.repeat(n_members)

    def put_back(self, gradient: Tensor) -> Tensor:
        return _joined(list(gradient.chunk(self.n_members)), 1)

    def classifier(self, like: Tensor, chunk: slice = slice(None)) -> Tensor:
        """Return the weights of the labels, of shape (chunk, n_features)."""
        weight = self.weight[self.held(chunk)]
        return weight if self.n_members == 1 else weight / self.n_members

    def train(self, mode: bool = True) -> FlatHead:
        if mode:  # weights will change
            self._screening = None
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_screening": None}

    def topk_held(self, inputs: Tensor, k: int) -> tuple[Tensor, Tensor]:
        screening = self._screening_for(inputs, k)
        if screening is None:
            return super().topk_held(inputs, k)
        scaled = inputs if self.n_members == 1 else inputs / self.n_members
        first = self.shard.start

        def compute(rows: Tensor) -> tuple[Tensor, Tensor]:
            best, positions = super(FlatHead, self).topk_held(inputs[rows], k)
            return best, positions - first if first else positions

        best, positions = screening.topk(scaled, k, compute)
        if self.free is not None:  # their low bias has seldom let them in
            rows = self.free[positions + first].any(1).nonzero()[:, 0]
            if len(rows):
                best[rows], positions[rows] = compute(rows)
        return best, positions + first if first else positions

    def _screening_for(self, inputs: Tensor, k: int) -> Screening | None:
        """Return the search for the best labels, or None if all logits are needed or faster."""
        if (
            self.training
            or torch.is_grad_enabled()
            or self.link == "exp"  # the normaliser needs all logits
            or type(self).logits is not FlatHead.logits
            or not Screening.suits(inputs, self.weight, k)
        ):
            return None
        made_for = _state_of(self.weight), _state_of(self.bias), id(self.free)
        with _MAKING:  # once for all threads
            if self._screening is None or self._screening[0] != made_for:
                bias: Tensor | None = self.bias
                if bias is not None and self.free is not None:
                    bias = bias.masked_fill(self.free[self.all_held()], float(bias.min()))
                self._screening = made_for, Screening(self.weight, bias)
            return self._screening[1] if self._screening[1].is_finite else None

    def logits(self, inputs: Tensor, chunk: Labels) -> Tensor:
        held = self.held(chunk)
        bias = None if self.bias is None else self.bias[held]
        if self.training and self.low_precision:
            members = _members(inputs.bfloat16(), self._read(chunk))
            products = _joined([rows @ weight.T for rows, weight in members])
            n_labels = len(held if isinstance(held, Tensor) else self.weight[held])
            logits = products[:, :n_labels].to(inputs.dtype)
            return logits if bias is None else logits.add_(bias)
        if self.training and self.n_members == 1:
            return _products(self._read(chunk), inputs, bias)
        if inputs.shape[1] == self.n_features and self.n_members > 1:  # their mean
            inputs = inputs / self.n_members
        members = _members(inputs, self.weight[held])
        return _joined([F.linear(rows, weight, bias) for rows, weight in members])

    def scores_at(self, features: Tensor, positions: Tensor) -> Tensor:
        if self.link == "exp" or type(self).logits is not FlatHead.logits:
            return super().scores_at(features, positions)
        weight = self.shard.rows_at(self.weight, positions) / self.n_members
        products = torch.einsum("nf,nkf->nk", self.inputs(features), weight)
        return (
            products if self.bias is None else products + self.shard.rows_at(self.bias, positions)
        )

    def backward(
        self, inputs: Tensor, chunk: Labels, gradient: Tensor, into: Tensor, update: Update
    ) -> None:
        held = self.held(chunk)
        weight, product_dtype, n_labels = self._read(chunk), gradient.dtype, gradient.shape[1]
        if self.bias is not None:
            bias_gradient = gradient.sum(0)
        if self.low_precision:
            gradient, inputs = _half(gradient, columns=len(weight) - n_labels), inputs.bfloat16()
        members = _members(inputs, weight)
        slopes = gradient.chunk(len(members)) if members[1:] else (gradient,)
        to_inputs = [slope @ weight for slope, (_, weight) in zip(slopes, members)]
        into += _joined(to_inputs).to(product_dtype)
        to_weights = [slope.T @ rows for slope, (rows, _) in zip(slopes, members)]
        update(self.weight, held, _joined(to_weights, 1)[:n_labels].to(product_dtype))
        if self.bias is not None:
            update(self.bias, held, bias_gradient)

    def loss_and_gradient(self, step: Step) -> tuple[Tensor, Tensor]:
        self._last = {}
        try:
            return super().loss_and_gradient(step)
        finally:
            self._last = None

    def _read(self, chunk: Labels) -> Tensor:
        """Read the weights of a chunk at the precision of products, once for both passes."""
        last = None if self._last is None else self._last.pop(id(chunk), None)
        if last is not None:  # by the backward pass, which comes second
            return last[1]
        held = self.held(chunk)
        weight = self.weight[held] if isinstance(held, slice) else self.weight.index_select(0, held)
        weight = _half(weight, rows=-len(weight) % _MULTIPLE) if self.low_precision else weight
        if self._last is not None:
            self._last[id(chunk)] = chunk, weight  # the chunk is kept, so that its id stays its own
        return weight


class Flat(HeadPart):
    """One output per label: the plain classifier, for class labels and label sets.

    Parameters
    ----------
    n_negatives : int, None or "auto", default="auto"
        Labels that a step draws at random as negatives, in addition to the labels of the batch; of
        a softmax they estimate the normaliser. None: all labels. "auto": 250 beyond 1000 labels,
        or 1000 beyond 8000 classes: a fraction of the time, and equal ranks; otherwise all.
    rank : int, default=None
        Rank of the weights, which are then a product of two matrices (Eq. 17 of [1]_): a linear
        layer of so many units lies between features and labels, at most as many as features. Each
        label still has a bias. None: full rank.

    See Also
    --------
    FlatHead : The module.

    References
    ----------
    .. [1] D. Liang et al., "Multi-Head Encoding for Extreme Label Classification", section 5.1.

    Examples
    --------
    >>> from sklearn_xlc import MultiHeadClassifier
    >>> from sklearn_xlc.heads import Flat
    >>> MultiHeadClassifier(Flat(rank=64)).get_params()["head__rank"]
    64
    """

    head = FlatHead
    takes_members = True
    takes_soft_labels = True

    _parameter_constraints = {
        "n_negatives": [StrOptions({"auto"}), None, Interval(Integral, 1, None, closed="left")],
        "rank": [None, Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, n_negatives: Any = "auto", *, rank: int | None = None) -> None:
        self.n_negatives = n_negatives
        self.rank = rank

    def build(self, task: HeadTask) -> Head:
        if task.n_members > 1 and self.rank is not None:
            raise ValueError(
                f"n_members={task.n_members} needs rank=None, got rank={self.rank}: members have "
                "features of their own, which one layer would mix"
            )
        if self.rank is not None and self.rank > task.n_features:
            raise ValueError(
                f"rank={self.rank} is more than the {task.n_features} features of the encoder, "
                "which are full rank; give fewer, or None"
            )
        return task.build(FlatHead, width=self.rank, n_negatives=self.n_negatives)


class Bottleneck(HeadPart):
    """Plain low-rank layer without biases, for comparison with :class:`Fourier`.

    :class:`~sklearn_xlc.DFTSigmoidClassifier` takes its width from `n_slack`.
    """

    head = FlatHead


def _state_of(parameter: Tensor | None) -> Any:
    """Return the identity and version of a parameter, to detect changes."""
    if parameter is None or parameter.is_inference():
        return id(parameter)
    return parameter.data_ptr(), parameter._version


def _products(weight: Tensor, inputs: Tensor, bias: Tensor | None) -> Tensor:
    """Return logits of shape (n_rows, n_labels), in memory label by label.

    Products with long rows take up to half as long again.
    """
    if bias is None:
        return (weight @ inputs.T).T
    return torch.addmm(bias[:, None], weight, inputs.T).T


def _half(matrix: Tensor, rows: int = 0, columns: int = 0) -> Tensor:
    """Return a matrix in bfloat16, with so many more rows and columns of zeros."""
    half = matrix.bfloat16()
    return F.pad(half, (0, columns, 0, rows)) if rows or columns else half


def _members(inputs: Tensor, weight: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return inputs and weights of each member; one pair if both have the same width.

    In training the rows of the members follow one another. Products with parts of the weights are
    then as fast as with copies, and faster than batched products.
    """
    n_members = weight.shape[1] // inputs.shape[1]
    if n_members == 1:
        return [(inputs, weight)]
    return list(zip(inputs.chunk(n_members), weight.chunk(n_members, 1)))


def _joined(parts: list[Tensor], dim: int = 0) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)
