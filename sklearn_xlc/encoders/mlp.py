"""Multilayer perceptron with a first layer for CSR rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextvars import ContextVar
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sklearn_xlc._bounds import check_integer, check_real
from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc.batches import (
    SparseRows,
    generator_for,
    lengthened,
    products,
    rows_drawn,
    sparse_gradient,
)
from sklearn_xlc.encoders._base import Encoder, EncoderPart


class _SparseLinear(torch.autograd.Function):
    """rows @ weight + bias for CSR rows, with a row-sparse gradient of the weight."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, rows: SparseRows) -> Tensor:
        ctx.rows, ctx.shape = rows, weight.shape
        # Detached, or torch would prepare a backward pass of its own.
        return products(rows, weight.detach()).add_(bias)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None]:
        gradient = grad_outputs[0].contiguous()
        columns, grad = _to_weight(ctx.rows, gradient)
        of_weight = sparse_gradient(columns, grad, ctx.shape, ctx.rows.is_ordered)
        return of_weight, gradient.sum(0), None


def _to_weight(rows: SparseRows, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return the columns with an entry in the rows, and the gradient of their weights."""
    # d(rows @ W)/dW = rows' @ grad: a row of the transpose has the samples that hold a column.
    by_column = rows.transpose
    return by_column.columns, products(by_column, gradient)


#: Whether an input layer of sparse batches waits for the columns that samples have, and holds
#: weights for them alone.
DRAWS_LATER: ContextVar[bool] = ContextVar("draws_later", default=False)
#: Factor about their median by which the deviations of standardised columns still differ.
KEPT_SPREAD = 3.0
#: Largest deviation over their median, from which on columns have units that tell nothing.
OTHER_UNITS = 30.0
#: Least unit of a constant column over its value, whose mean is rounded to 16 digits.
_ROUNDING = 1e-9


class InputLinear(nn.Module):
    """Linear layer for dense inputs and :class:`~sklearn_xlc.batches.SparseRows`.

    The weight has one row per column of X, or per column that is not empty in training samples. A
    sparse batch reads and updates only the rows of its non-zero columns. Columns of dense batches
    may be standardised, those of sparse ones scaled, and those with long tails shortened before.

    Parameters
    ----------
    n_features, n_outputs : int
        Number of columns of X, and of outputs.
    n_members : int, default=1
        Number of equal parts of the outputs; each is initialised like a separate layer.
    sparse : bool, default=True
        Whether all batches are sparse; without `mean`, and `scale` at first.

    Attributes
    ----------
    weight : Parameter of shape (n_rows, n_outputs)
    bias : Parameter of shape (n_outputs,)
    row_of : Tensor of shape (n_features,), or None
        Row of the weight for each column; empty ones share the first row, of zeros. None: column i
        has row i.
    mean, scale : Tensor of shape (n_features,), or None
        Subtracted from the columns of dense batches, which are then divided by `scale`. Zero and
        one, until :meth:`standardise` sets them. Columns of sparse batches have no mean, and a
        scale if :meth:`rescale` sets it.
    centre, reach : Tensor of shape (n_features,), or None
        Place of the most values of a column with a long tail, and half the length of that place;
        zero for other columns. None, until :meth:`shorten` sets them.
    """

    has_constant_buffers = True

    _generator: torch.Generator | None
    row_of: Any
    mean: Any
    scale: Any
    centre: Any
    reach: Any

    def __init__(
        self, n_features: int, n_outputs: int, n_members: int = 1, sparse: bool = True
    ) -> None:
        super().__init__()
        self.n_features, self.n_members = n_features, n_members
        self._generator = None
        row_of = None
        if sparse and DRAWS_LATER.get():  # tensors without values, to be counted until then
            self.weight = nn.Parameter(torch.empty(0, n_outputs, device="meta"))
            row_of = torch.empty(n_features, dtype=torch.int32, device="meta")
            seed = int(torch.randint(2**62, (), device="cpu"))
            self._generator = torch.Generator("cpu").manual_seed(seed)
        else:
            self.weight = nn.Parameter(torch.empty(n_features, n_outputs))
            for part in self.weight.data.chunk(n_members, 1):
                nn.init.xavier_uniform_(part)
        self.bias = nn.Parameter(torch.zeros(n_outputs))
        self.register_buffer("row_of", row_of)
        self.register_buffer("mean", None if sparse else torch.zeros(n_features))
        self.register_buffer("scale", None if sparse else torch.ones(n_features))
        self.register_buffer("centre", None)
        self.register_buffer("reach", None)

    def _keep(self, columns: Tensor) -> None:
        """Set the weights of columns outside of a mask to zero, or make rows for the others alone.

        Training never changes the weights of empty columns, but prediction would read them. Of a
        table for hashed words most columns are empty, and there is no row for them. :meth:`_draw`
        fills the rows that are made.
        """
        if self._generator is None:
            self.weight.detach()[~columns] = 0
            return
        self.row_of = torch.where(columns, columns.cumsum(0), 0).int()
        shape = int(columns.sum()) + 1, self.weight.shape[1]
        self.weight = nn.Parameter(self.weight.new_empty(shape))

    def _draw(self) -> None:
        """Draw the weights of rows that have none yet."""
        if self._generator is None:
            return
        n_rows, dtype = len(self.weight) - 1, self.bias.dtype
        widths = [len(part) for part in self.bias.chunk(self.n_members)]
        parts = [torch.zeros(n_rows + 1, width, dtype=dtype) for width in widths]
        for part in parts:
            bound = math.sqrt(6 / (self.n_features + part.shape[1]))  # as of xavier_uniform_
            part[1:].uniform_(-bound, bound, generator=self._generator)
        self.weight = nn.Parameter(torch.cat(parts, 1))
        self._generator = None

    def _without_row(self, columns: Tensor) -> Tensor:
        """Return the columns that have no row of the weight."""
        if self.row_of is None:
            return columns[:0]
        columns = columns.to(self.row_of.device)
        return columns[self.row_of[columns] == 0]

    @torch.no_grad()
    def _hold_also(self, columns: Tensor) -> None:
        """Make rows, of zeros, for the columns that have none, in a new parameter.

        Torch keeps the shape of a parameter as long as any graph does, such as that of a loss.
        """
        columns = self._without_row(columns)
        if not len(columns):
            return
        n_before, row_of = len(self.weight), self.row_of.clone()
        n_rows = n_before + len(columns)
        row_of[columns] = torch.arange(n_before, n_rows).to(row_of)
        longer = lengthened(self.weight.data, n_rows)
        self.weight = nn.Parameter(longer, self.weight.requires_grad)
        self.row_of = row_of  # last: another thread may predict, and reads it first

    def _hold_saved(self, row_of: Any) -> bool:
        """Hold as many rows as saved ones of columns have, without values; False: none could be."""
        is_array = isinstance(row_of, np.ndarray) and row_of.dtype == np.int32
        if not (is_array and row_of.shape == (self.n_features,) and row_of.min() >= 0):
            return False
        shape = int(row_of.max()) + 1, self.weight.shape[1]
        self.row_of = torch.empty(row_of.shape, dtype=torch.int32, device="meta")
        self.weight = nn.Parameter(self.weight.new_empty(shape))
        return True

    def shorten(self, centre: np.ndarray, reach: np.ndarray) -> None:
        """Shorten the tails of columns with a reach above zero, before they are standardised.

        A value x becomes ``sign(z) * log(1 + abs(z))`` with ``z = (x - centre) / reach``: about
        linear within the reach of the centre, and a logarithm beyond.
        """
        self.centre = torch.from_numpy(centre).to(self.bias)
        self.reach = torch.from_numpy(reach).to(self.bias)

    def shortened(self, values: Tensor, columns: slice | Tensor = slice(None)) -> Tensor:
        """Return rows of X, or values in given columns, with short tails."""
        if self.centre is None or self.reach is None:
            return values
        reach = self.reach[columns]
        z = (values - self.centre[columns]) / torch.where(reach > 0, reach, 1)
        return torch.where(reach > 0, z.sign() * (1 + z.abs()).log(), values)

    @torch.no_grad()
    def standardise(self, mean: np.ndarray, deviation: np.ndarray) -> None:
        """Bring the columns of dense batches to mean zero and to similar deviations.

        All are divided by the median of their deviations. Columns with more than three times the
        median, or less than a third, are brought to this limit. Between the limits, columns keep
        their proportions, which may tell how much they matter. Not so where a deviation is thirty
        times the median: columns then have different units, and all get the same deviation.
        Constant columns have a deviation of zero. They are divided by the median, as they may vary
        later in a stream, and where the mean is that large by the least that its rounding does not
        show in; their weights are set to zero, as a fit never changes them.
        """
        varies = deviation > 0
        unit = np.median(deviation[varies]) if varies.any() else 1.0
        spread = KEPT_SPREAD if deviation.max(initial=0) < OTHER_UNITS * unit else 1.0
        kept = np.clip(deviation / unit, 1 / spread, spread)
        self.mean.copy_(torch.from_numpy(mean))
        of_constants = np.maximum(unit, _ROUNDING * np.abs(mean))
        self.scale.copy_(torch.from_numpy(np.where(varies, deviation / kept, of_constants)))
        self.weight[torch.from_numpy(~varies)] = 0

    def rescale(self, scale: np.ndarray) -> None:
        """Divide the columns of sparse batches by `scale`, of shape (n_features,)."""
        self.scale = torch.from_numpy(scale).to(self.bias)

    def scales_sparse(self) -> bool:
        """Return whether the layer changes the columns of sparse batches."""
        return self.mean is None and self.scale is not None

    def rescaled(self, rows: SparseRows) -> SparseRows:
        """Return sparse rows as the weight reads them."""
        if self.scales_sparse():
            scale = self.scale
            rows = rows.with_data(
                lambda data, columns: self.entries(data, columns) / scale[columns]
            )
        return rows if self.row_of is None else rows.renumbered(self.row_of, len(self.weight))

    def is_standardised(self) -> bool:
        """Return whether the layer changes the columns of dense batches."""
        if self.mean is None or self.scale is None:
            return False
        return bool(self.mean.any() or (self.scale != 1).any())

    def standardised(self, rows: Tensor) -> Tensor:
        """Return dense rows as the weight reads them."""
        if self.scale is None:
            return rows
        read = self.entries(rows) if self.mean is None else self.shortened(rows) - self.mean
        return read / self.scale

    def of_columns(self, columns: slice | Tensor = slice(None)) -> tuple[Tensor, Tensor]:
        """Return weight and bias of the same layer for what :meth:`entries` returns.

        The weight has a row for each column, of all by default.
        """
        weight = self._of(columns)
        if self.scale is None:
            return weight, self.bias
        weight = weight / self.scale[columns].unsqueeze(-1)
        if self.mean is None:
            return weight, self.bias
        of_zeros = self.shortened(torch.zeros_like(self.mean))
        return weight, self.bias - ((self.mean - of_zeros) / self.scale) @ self.weight

    def _of(self, columns: slice | Tensor) -> Tensor:
        if self.row_of is not None:
            columns = self.row_of[columns].long()
        return self.weight if isinstance(columns, slice) else self.weight.index_select(0, columns)

    def entries(self, values: Tensor, columns: slice | Tensor = slice(None)) -> Tensor:
        """Return values in columns of X, all by default, shortened, less a shortened zero."""
        if self.centre is None or self.reach is None:
            return values
        return self.shortened(values, columns) - self.shortened(torch.zeros_like(values), columns)

    def forward(self, rows: Tensor | SparseRows) -> Tensor:
        """Map a batch to outputs of shape (n_samples, n_outputs)."""
        if isinstance(rows, SparseRows):
            return rows.through(self)
        rows = self.standardised(rows)
        # Under autocast the product is of bfloat16 matrices, but what follows reads all its digits.
        return (rows @ self._of(slice(None))).to(self.bias.dtype) + self.bias

    def of_rows(self, rows: SparseRows) -> Tensor:
        """Return the outputs, with a row-sparse gradient of the weight."""
        if rows.data.requires_grad or self.mean is not None:
            (weight, bias), data = self.of_columns(), self.entries(rows.data, rows.indices)
            entries = SparseRows(rows.indptr, rows.indices, data, rows.n_features)
            return products(entries, weight).add(bias)
        rows = self.rescaled(rows)
        return _SparseLinear.apply(self.weight, self.bias, rows)

    def is_plain(self) -> bool:
        """Return whether only gradients of a batch change the parameters."""
        return all(p.requires_grad and not p._backward_hooks for p in (self.weight, self.bias))

    def gradients(
        self, rows: SparseRows, gradient: Tensor
    ) -> dict[Tensor, tuple[slice | Tensor, Tensor]]:
        """Return gradients of the parameters from the outputs' gradient, and their rows."""
        return {
            self.weight: _to_weight(self.rescaled(rows), gradient),
            self.bias: (slice(None), gradient.sum(0)),
        }


class Dropout(nn.Dropout):
    """Dropout with draws from the generator of the fit; outside a fit it is torch's.

    One random number of 64 bits serves four features: random numbers take most of the time.
    Features are dropped with a probability of ``round(p * 2**16) / 2**16``.
    """

    def forward(self, features: Tensor) -> Tensor:
        """Return the features; in training set some to zero and scale up the others."""
        generator = generator_for(features.device)
        if generator is None or not self.training or not 0 < self.p < 1:
            return super().forward(features)
        # Comparing integers, and multiplying by what is true, take several times as long as this.
        wide = features.to(torch.promote_types(features.dtype, torch.float32))
        numbers, least, factor = self.draw(wide, generator)
        kept = torch.ops.aten.threshold_backward(wide, numbers, least)
        return (kept * factor).to(features.dtype)

    def draw(self, like: Tensor, generator: torch.Generator) -> tuple[Tensor, float, float]:
        """Draw a number for each feature; return the numbers, a threshold and a factor.

        Features with numbers above the threshold are kept, times the factor. The numbers have shape
        and type of `like`.
        """
        n_dropped = min(round(self.p * 2**16), 2**16 - 1)
        own, n_rows = rows_drawn(len(like))
        shape = (n_rows, *like.shape[1:])
        size = math.prod(shape)
        numbers = torch.empty(-(-size // 4), dtype=torch.int64, device=like.device)
        numbers.random_(-(2**63), None, generator=generator)
        parts = numbers.view(torch.int16)[:size].view(shape)[own].to(like.dtype)
        return parts, n_dropped - 2**15 - 1, 2**16 / (2**16 - n_dropped)


class MemberNorm(nn.LayerNorm):
    """Layer normalisation of each member's features, for networks side by side."""

    def __init__(self, width: int, n_members: int) -> None:
        super().__init__(width * n_members)
        self.shape = (n_members, width)

    def forward(self, features: Tensor) -> Tensor:
        """Normalise features of shape (n_samples, n_members * width)."""
        # Not F.group_norm, which takes three times as long on vectors.
        normal = F.layer_norm(features.view(-1, *self.shape), self.shape[1:], eps=self.eps)
        return normal.flatten(1) * self.weight + self.bias


class MemberLinear(nn.Module):
    """Linear layer of each member on the features of this member, for networks side by side."""

    def __init__(self, n_features: int, n_outputs: int, n_members: int) -> None:
        super().__init__()
        self.n_members, bound = n_members, n_features**-0.5  # as nn.Linear has it
        self.weight = nn.Parameter(torch.empty(n_members * n_outputs, n_features))
        self.bias = nn.Parameter(torch.empty(n_members * n_outputs))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, features: Tensor) -> Tensor:
        """Compute outputs of shape (n_samples, n_members * n_outputs)."""
        n = self.n_members
        members = zip(features.chunk(n, 1), self.weight.chunk(n), self.bias.chunk(n))
        return torch.cat([F.linear(*member) for member in members], 1)


class MLPEncoder(Encoder):
    """Multilayer perceptron for dense rows, and for CSR rows without making them dense.

    Each layer consists of a linear map, layer normalisation, (leaky) ReLU and dropout. Layer
    normalisation works on one sample at a time, so it composes with sample weights.

    Parameters
    ----------
    n_features : int
        Number of columns of X.
    hidden_layer_sizes : sequence of int, default=(1024,)
        Widths of the hidden layers, at least one; the last is the number of features that the head
        receives.
    dropout : float, default=0.0
        As of :class:`MLP`.
    sparse : bool, default=True
        Whether batches are sparse, so that the gradient of the input layer is sparse too.
    n_members : int, default=1
        Number of networks of these widths that read the same samples side by side. The members
        share nothing but the pass over the samples; their features follow one another.
    negative_slope : float, default=0.0
        As of :class:`MLP`.

    Attributes
    ----------
    accepts : tuple
        ``("dense", "csr")``: sparse batches arrive as :class:`~sklearn_xlc.batches.SparseRows`.
    n_outputs : int
        Number of features, of all members together.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.encoders import MLPEncoder
    >>> MLPEncoder(20, (8,))(torch.zeros(3, 20)).shape
    torch.Size([3, 8])
    """

    accepts: Collection[str] = ("dense", "csr")
    layers: Any

    def __init__(
        self,
        n_features: int,
        hidden_layer_sizes: Sequence[int] = (1024,),
        dropout: float = 0.0,
        sparse: bool = True,
        n_members: int = 1,
        negative_slope: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = np.atleast_1d(np.asarray(hidden_layer_sizes, dtype=object)).tolist()
        if not sizes:
            raise ValueError("hidden_layer_sizes is empty; give at least one width")
        widths = [check_integer(size, "hidden_layer_sizes") for size in sizes]
        check_integer(n_features, "n_features")
        dropout = check_real(dropout, "dropout", 0, 1)
        check_integer(n_members, "n_members")
        negative_slope = check_real(negative_slope, "negative_slope", 0, 1)
        self.input = InputLinear(n_features, n_members * widths[0], n_members, sparse)
        layers = _activation(widths[0], dropout, n_members, negative_slope)
        for before, width in pairwise(widths):
            layers.append(_linear(before, width, n_members))
            layers += _activation(width, dropout, n_members, negative_slope)
        self.layers = nn.Sequential(*layers)
        self.n_outputs, self.sparse = n_members * widths[-1], sparse

    def row_parameters(self) -> list[nn.Parameter]:
        """Return the weight of the input layer, if batches are sparse."""
        return [self.input.weight] if self.sparse else []

    def input_parameters(self) -> list[nn.Parameter]:
        """Return the parameters with a separate update rule in "mixed"."""
        return [self.input.weight]

    def forward(self, rows: Tensor | SparseRows) -> Tensor:
        """Compute features of shape (n_samples, n_outputs)."""
        return self.layers(self.input(rows))

    # --- without autograd -------------------------------------------------------------------

    def has_backward(self) -> bool:
        """Return whether :meth:`backward` is defined: for one hidden layer of the usual kind."""
        layers = [type(layer) for layer in self.layers]
        has_dropout = len(layers) == 3
        rate = self.layers[2].p if has_dropout else 0.5
        return layers in _ONE_LAYER and 0 < rate < 1

    def forward_kept(self, rows: SparseRows) -> tuple[Tensor, Kept]:
        """Return features of shape (n_samples, n_outputs), and values for :meth:`backward`.

        The kernels are those of `forward` under autograd, in the same order.
        """
        norm, activation, *dropout = self.layers
        slope = getattr(activation, "negative_slope", 0.0)
        read = self.input.rescaled(rows)
        summed = products(read, self.input.weight.detach()).add_(self.input.bias)
        normal, mean, scale = torch.native_layer_norm(
            summed, norm.normalized_shape, norm.weight, norm.bias, norm.eps
        )
        # In place where nothing reads the values before: what a step touches should stay in caches.
        features = F.leaky_relu(normal, slope) if slope else normal.relu_()
        if not dropout:
            return features, Kept(summed, mean, scale, normal, None, 0.0, 1.0)
        drawn = dropout[0].draw(features, generator_for(features.device))
        numbers, least, factor = drawn
        _where_above(features, numbers, least, grad_input=features).mul_(factor)
        return features, Kept(summed, mean, scale, normal, *drawn)

    def backward(
        self, rows: SparseRows, features: Tensor, kept: Kept, gradient: Tensor
    ) -> dict[Tensor, tuple[slice | Tensor, Tensor]]:
        """Return gradients of the parameters, and the rows with a gradient.

        `rows`, `features` and `kept` are those of :meth:`forward_kept`. The gradient of the
        features, (n_samples, n_outputs), is overwritten.
        """
        norm, activation, *_ = self.layers
        slope = getattr(activation, "negative_slope", 0.0)
        if kept.numbers is not None:
            gradient = gradient.mul_(kept.factor)
        if slope:
            if kept.numbers is not None:
                _where_above(gradient, kept.numbers, kept.least, grad_input=gradient)
            gradient = _leaky_backward(gradient, kept.normal, slope, False)
        else:  # features are above zero where both ReLU and dropout let them pass
            _where_above(gradient, features, 0, grad_input=gradient)
        to_sum, to_weight, to_bias = _norm_backward(
            gradient,
            kept.summed,
            norm.normalized_shape,
            kept.mean,
            kept.scale,
            norm.weight,
            norm.bias,
            [True, True, True],
        )
        of_input, whole = self.input.gradients(rows, to_sum), slice(None)
        return {**of_input, norm.weight: (whole, to_weight), norm.bias: (whole, to_bias)}


class Kept(NamedTuple):
    """Values of the forward pass, for the backward pass."""

    summed: Tensor
    mean: Tensor
    scale: Tensor
    normal: Tensor
    numbers: Tensor | None
    least: float
    factor: float


_kernels = torch.ops.aten
#: Overloads, as choosing one takes longer than a small kernel; the first may write over its input.
_where_above = _kernels.threshold_backward.grad_input
_leaky_backward = _kernels.leaky_relu_backward.default
_norm_backward = _kernels.native_layer_norm_backward.default
#: Layers behind the input layer, of one hidden layer.
_ONE_LAYER = [
    [nn.LayerNorm, activation, *dropout]
    for activation in (nn.ReLU, nn.LeakyReLU)
    for dropout in ([], [Dropout])
]


class MLP(EncoderPart):
    """Multilayer perceptron of dense and CSR rows: the default encoder.

    Parameters
    ----------
    hidden_layer_sizes : int, sequence of int or "auto", default="auto"
        Widths of the hidden layers. "auto": one layer of 384 units for sparse X, of 512 where no
        lists of labels are made, of 1024 for dense X.
    dropout : float or "auto", default="auto"
        Fraction of hidden units that training drops. "auto": none up to 64 samples; beyond, 0.2
        for dense X; for sparse X 0.5 up to 10 000 samples, less the more there are, and none from
        31 600 on.
    n_members : int, default=1
        Networks trained side by side, whose scores are averaged; for ``head="flat"``.
    negative_slope : float or "auto", default="auto"
        Slope of the activation for negative inputs; 0.0 is ReLU. "auto": of sparse X, above zero
        where samples have more than 70 non-zeros on average, and at least 0.25 for classes.

    See Also
    --------
    MLPEncoder : The module.

    Notes
    -----
    A fit to more than 64 samples standardises the columns of dense X
    (:meth:`InputLinear.standardise`). Before, it takes a logarithm of the tails of columns such as
    amounts, whose few large values would leave no difference between the others
    (:meth:`InputLinear.shorten`): where the standard deviation of the values of a column, without
    the most frequent one and without repetitions, or that of the whole column, is five times that
    of a normal distribution with the quartiles of these values. Of sparse X, most columns stay as
    they are (:meth:`InputLinear.rescale`): where the root mean square of a column's non-zeros is
    more than ten times the median of all non-zeros, or less than a tenth, the column has other
    units, and is brought to the median, after the logarithm; and so are all columns where 7% of the
    other non-zeros, and 3% of the columns, differ by a factor of three in samples of equal root
    mean square. Counts, of which some exceed one, become ``log(1 + count)``. Where the norms of
    samples are below 0.1 or above 1000, all columns are divided by one number. In a stream the
    first batch of `partial_fit` decides, if it has 10 samples; otherwise columns stay as they are.

    Examples
    --------
    >>> from sklearn_xlc import MultiHeadClassifier
    >>> from sklearn_xlc.encoders import MLP
    >>> MultiHeadClassifier(encoder=MLP((64,), dropout=0.5)).get_params()["encoder__dropout"]
    0.5
    """

    module = MLPEncoder
    is_planned = standardises = True

    _parameter_constraints = {
        "hidden_layer_sizes": [
            StrOptions({"auto"}),
            "array-like",
            Interval(Integral, 1, None, closed="left"),
        ],
        "dropout": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="left")],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "negative_slope": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="both")],
    }

    def __init__(
        self,
        hidden_layer_sizes: Any = "auto",
        *,
        dropout: Any = "auto",
        n_members: int = 1,
        negative_slope: Any = "auto",
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.dropout = dropout
        self.n_members = n_members
        self.negative_slope = negative_slope

    def reads_sparse(self, is_mostly_zeros: bool) -> bool:
        return is_mostly_zeros


def _linear(n_features: int, n_outputs: int, n_members: int) -> nn.Module:
    if n_members == 1:
        return nn.Linear(n_features, n_outputs)
    return MemberLinear(n_features, n_outputs, n_members)


def _activation(width: int, dropout: float, n_members: int, slope: float) -> list[nn.Module]:
    norm = nn.LayerNorm(width) if n_members == 1 else MemberNorm(width, n_members)
    layers: list[nn.Module] = [norm, nn.LeakyReLU(slope) if slope else nn.ReLU()]
    return [*layers, Dropout(dropout)] if dropout else layers
