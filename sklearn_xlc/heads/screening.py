"""Best labels of a linear layer in a fraction of the time: products of eight bits, and a bound.

Products of eight-bit integers are ten times faster than those of float32, and exact. What rounding
changes in a logit is bounded by the inequality of Cauchy and Schwarz: if inputs a are rounded to
a + e and weights w to w + d,

    |(a + e)(w + d) - aw| <= |e| |w| + |a + e| |d|,

where all norms are known. A label whose upper bound is below the lower bounds of k others is not
among the k best. Logits of the few labels that are left are computed in float32.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sklearn_xlc._csr import row_blocks
from sklearn_xlc.heads.ranking import topk_by_position

#: Logits of eight bits that are held at a time.
_AT_ONCE = 2**24
#: Up to so many rows, or logits, these are float32: more of them would wait for the memory.
_FEW, _FEW_LOGITS = 16, 2**19
#: Labels beyond k that are computed for each of few rows.
_FIRST = 48
#: Longest inputs of which sums of products of eight bits fit into 32 bits.
_LONGEST = 2**16
#: Numbers of weights from which screening is faster than all logits, for one row and for several.
_WORTH, _SEVERAL = (2**21, 2**18), 8
#: Weights that are rounded, or gathered, at a time: they stay in the cache.
_CACHED = 2**18
#: Bounds are wider by this share, and by these digits of the largest terms, for their own rounding.
_SLACK, _EPS = 1 + 2.0**-10, 2.0**-22
#: Smaller scales become this one: their numbers would have too few digits.
_TINY = 2.0**-100
#: Logits that may be larger are not screened.
_HUGE = 2.0**100
#: What the rounding of an input to a number may be wrong by, in units of the scale.
_INEXACT = 2.0**-14

#: Best logits of rows, and their positions.
Compute = Callable[[Tensor], tuple[Tensor, Tensor]]


@functools.cache
def multiplies_int8() -> bool:
    """Whether torch multiplies eight-bit integers here at full speed, and without saturation."""
    found = torch.cpu.get_capabilities()
    if not any(found.get(name) for name in ("avx512_vnni", "avx_vnni", "amx_int8")):
        return False
    try:  # older instructions saturate the sum of two products at 2^15
        inputs = torch.tensor([[255] * 64, [0] * 64], dtype=torch.uint8)
        weight = torch.tensor([[127] * 64, [-127] * 64], dtype=torch.int8)
        layer = _Packed.of(weight, torch.tensor([1.0, 0.5]), torch.tensor([1.0, -1.0]))
        expected = (inputs.float() - 3) @ weight.float().T * layer.scales + layer.bias
        with warnings.catch_warnings():  # that sparse CSR tensors are in beta state
            warnings.simplefilter("ignore")
            torch.sparse_csr_tensor([0, 0], [], [], (1, 1), check_invariants=False)
        return torch.equal(layer.logits(_Rounded(inputs, 1.0, 3)), expected)
    except (RuntimeError, AttributeError):  # a build of torch without oneDNN
        return False


class _Rounded(NamedTuple):
    """Inputs ``scale * (numbers - zero)``, where numbers have eight bits."""

    numbers: Tensor
    scale: float
    zero: int


class _Packed(NamedTuple):
    """Linear layer with weights of eight bits, in the order in which oneDNN reads them."""

    weight: Tensor
    scales: Tensor
    bias: Tensor

    @classmethod
    def of(cls, numbers: Tensor, scales: Tensor, bias: Tensor) -> _Packed:
        return cls(torch.ops.onednn.qlinear_prepack(numbers, None), scales, bias)

    def logits(self, inputs: _Rounded) -> Tensor:
        return self._product(inputs, self.bias, 1.0, torch.float32)

    def steps(self, inputs: _Rounded, lowest: float, step: float) -> Tensor:
        """``(logits - lowest) / step`` as integers from 0 to 255; others become 0 or 255."""
        return self._product(inputs, self.bias - lowest, step, torch.uint8)

    def _product(self, inputs: _Rounded, bias: Tensor, step: float, dtype: torch.dtype) -> Tensor:
        zeros = torch.zeros(len(bias), dtype=torch.int64)
        return torch.ops.onednn.qlinear_pointwise(
            *(*inputs, self.weight, self.scales, zeros, bias, step, 0, dtype, "none", [], "")
        )


class _Norms(NamedTuple):
    """Norms of the rows of the weights, and of what rounding changes in them."""

    full: np.ndarray
    error: np.ndarray


class _Radius(NamedTuple):
    """Bounds of the errors of each row's logits, from the norms of labels."""

    error: np.ndarray
    rounded: np.ndarray
    beside: np.ndarray

    def at(self, norms: _Norms, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """|e| |w| + |a + e| |d|, and what sums in float32 may differ by."""
        sums = self.error[rows] * norms.full + self.rounded[rows] * norms.error
        return sums * _SLACK + self.beside[rows]


class _Logits(NamedTuple):
    """Logits ``lowest + step * values``, to within `half`.

    Where `top` is finite, values of `top` stand for any larger logits, and 0 for any lower.
    """

    values: np.ndarray
    lowest: float = 0.0
    step: float = 1.0
    half: float = 0.0
    top: float = np.inf


class _Pairs(NamedTuple):
    """Labels of rows, in order of the rows."""

    rows: np.ndarray
    labels: np.ndarray

    def padded(self, values: Tensor, n_rows: int, k: int, fill: float) -> Tensor:
        """Values of the pairs as a matrix, a row for each row, at least k columns wide."""
        sizes = np.bincount(self.rows, minlength=n_rows)
        starts = np.cumsum(sizes) - sizes
        columns = np.arange(len(self.rows)) - starts[self.rows]
        out = values.new_full((n_rows, max(k, int(sizes.max()))), fill)
        out[torch.from_numpy(self.rows), torch.from_numpy(columns)] = values
        return out


class Screening:
    """Search for the best labels of a linear layer, which computes few logits in float32.

    The result is that of all logits in float32, whatever the numbers: where bounds leave too many
    labels of a row, all of its logits are computed. (A sum in float32 depends on the order of its
    terms, and so on the size of the batch: labels whose logits agree but for the last digits may
    change places.)

    Parameters
    ----------
    weight : tensor of shape (n_labels, n_features), float32
        Weights; kept, and beside them numbers of eight bits, a quarter of their size.
    bias : tensor of shape (n_labels,), or None
        Biases.

    Attributes
    ----------
    is_finite : bool
        Whether weights and biases are; otherwise there is nothing to search by.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.heads.screening import Screening, multiplies_int8
    >>> weight = torch.eye(4).repeat(10, 1) * torch.arange(40)[:, None]
    >>> if multiplies_int8():
    ...     search = Screening(weight, None)
    ...     _, labels = search.topk(torch.eye(4), 1, lambda rows: weight.T[rows].topk(1))
    ...     assert labels.flatten().tolist() == [36, 37, 38, 39]
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        n_labels, n_features = weight.shape
        numbers, scales = torch.empty(weight.shape, dtype=torch.int8), torch.empty(n_labels)
        norms = _Norms(np.empty(n_labels), np.empty(n_labels))
        for part in row_blocks(n_labels, n_features, _CACHED):
            rows = weight[part]
            scales[part] = scale = (rows.abs().amax(1) / 127).clamp_(min=_TINY)
            units = rows / scale[:, None]
            numbers[part] = rounded = units.round()
            norms.full[part] = rows.double().norm(dim=1).numpy()
            errors = scale.double() * units.sub_(rounded).double().norm(dim=1)
            norms.error[part] = errors.numpy()
        self._weight = weight
        self._bias = torch.zeros(n_labels) if bias is None else bias
        self._norms, self._largest = norms, _Norms(norms.full.max(), norms.error.max())
        self._largest_bias = float(self._bias.abs().max())
        self.is_finite = bool(np.isfinite(norms.full).all()) and math.isfinite(self._largest_bias)
        if self.is_finite:
            self._layer = _Packed.of(numbers, scales, self._bias)

    @staticmethod
    def suits(inputs: Tensor, weight: Tensor, k: int) -> bool:
        """Whether screening is possible, and faster than all logits."""
        return (
            inputs.dtype == weight.dtype == torch.float32
            and inputs.is_cpu
            and weight.numel() >= _WORTH[len(inputs) >= _SEVERAL]
            and 48 * k <= weight.shape[0]  # otherwise bounds leave too many labels
            and weight.shape[1] <= _LONGEST
            and multiplies_int8()
        )

    def topk(self, inputs: Tensor, k: int, compute: Compute) -> tuple[Tensor, Tensor]:
        """Logits and positions of the k best labels, best first, equal logits by position.

        Parameters
        ----------
        inputs : tensor of shape (n_rows, n_features), float32
            Inputs of the layer.
        k : int
            Number of labels, at most an eighth of all.
        compute : callable
            Computes logits and positions from all logits of the rows that it is given.

        Returns
        -------
        logits, positions : tensors of shape (n_rows, k)
        """
        best, positions = inputs.new_empty(len(inputs), k), torch.empty(len(inputs), k).long()
        is_open = np.ones(len(inputs), dtype=bool)
        for part in row_blocks(len(inputs), len(self._bias), _AT_ONCE):
            found = self._search(inputs[part], k)
            if found is not None:
                best[part], positions[part], is_open[part] = found
        if is_open.any():
            rows = torch.from_numpy(np.flatnonzero(is_open))
            best[rows], positions[rows] = compute(rows)
        return best, positions

    def _search(self, inputs: Tensor, k: int) -> tuple[Tensor, Tensor, np.ndarray] | None:
        """Logits and positions of the best labels, and a mask of rows where they are not known."""
        bounded = self._rounded(inputs.numpy())
        if bounded is None:
            return None
        rounded, radius = bounded
        logits = self._logits(rounded, k, radius)
        if len(inputs) <= _FEW:
            found = self._among_first(inputs, torch.from_numpy(logits.values), k, radius)
            if found is not None:
                return *found, np.zeros(len(inputs), dtype=bool)
        pairs, is_open = self._candidates(logits, k, radius)
        pairs = self._narrowed(pairs, logits, k, radius)
        best = pairs.padded(self._exact(inputs, pairs), len(inputs), k, -np.inf)
        positions = pairs.padded(torch.from_numpy(pairs.labels), len(inputs), k, 0)
        return *topk_by_position(best, k, positions), is_open

    def _rounded(self, inputs: np.ndarray) -> tuple[_Rounded, _Radius] | None:
        """Inputs in eight bits, and the bounds that follow; None: numbers are too large for any."""
        low, high = inputs.min(1), inputs.max(1)
        if not (high.max() < _HUGE and low.min() > -_HUGE):  # NaN is not, either
            return None
        # Numbers beyond twice the usual are cut off: one such row shall not spoil the others.
        middle = len(low) // 2
        lowest = min(max(low.min(), 2 * np.partition(low, middle)[middle]), 0.0)
        highest = max(min(high.max(), 2 * np.partition(high, middle)[middle]), 0.0)
        scale = np.float32(max((highest - lowest) / 255, _TINY))
        zero = np.rint(-lowest / scale)
        units = inputs / scale + zero
        numbers = np.rint(units)
        np.clip(numbers, 0, 255, out=numbers)
        rounded = _Rounded(torch.from_numpy(numbers.astype(np.uint8)), float(scale), int(zero))
        inexact = _INEXACT * inputs.shape[1] ** 0.5
        error = float(scale) * (_norms(np.subtract(units, numbers, out=units)) + inexact)
        norm = float(scale) * _norms(np.subtract(numbers, zero, out=numbers))
        size = (error + norm) * self._largest.full + self._largest_bias
        if not size.max() < _HUGE:
            return None
        beside = size * ((inputs.shape[1] + 64) * _EPS) + _TINY
        return rounded, _Radius(error, norm, beside)

    def _logits(self, inputs: _Rounded, k: int, radius: _Radius) -> _Logits:
        n_rows = len(inputs.numbers)
        if n_rows <= _FEW or n_rows * len(self._bias) <= _FEW_LOGITS:
            return _Logits(self._layer.logits(inputs).numpy())
        # Steps must be fine around the k best logits, which a few rows show.
        some = inputs._replace(numbers=inputs.numbers[:: n_rows // _FEW].contiguous())
        best = self._layer.logits(some).topk(k).values
        low, high = float(best[:, -1].min()), float(best.max())
        lowest = low - (high - low) - 2 * float(np.median(radius.at(self._largest)))
        step = max((high + (high - low) / 4 - lowest) / 255, _TINY)
        values = self._layer.steps(inputs, lowest, step)
        return _Logits(values.numpy(), lowest, step, 0.51 * step + abs(lowest) * _EPS, 255)

    def _among_first(
        self, inputs: Tensor, logits: Tensor, k: int, radius: _Radius
    ) -> tuple[Tensor, Tensor] | None:
        """Best labels if they are surely among those with the largest logits, for few rows."""
        first, labels = logits.topk(min(k + _FIRST, logits.shape[1]))
        norms = _Norms(*(part[labels[:, :k].numpy()] for part in self._norms))
        lower = first[:, :k].numpy() - radius.at(norms, np.arange(len(inputs))[:, None])
        if not (lower.min(1) > first[:, -1].numpy() + radius.at(self._largest)).all():
            return None
        weights = self._weight.index_select(0, labels.flatten()).view(*labels.shape, -1)
        exact = weights.mul_(inputs[:, None]).sum(2).add_(self._bias[labels])
        return topk_by_position(exact, k, labels)

    def _candidates(self, logits: _Logits, k: int, radius: _Radius) -> tuple[_Pairs, np.ndarray]:
        """Pairs with the labels that may be among the k best, and a mask of rows with too many.

        The mask's rows have no pairs.
        """
        values, n_labels = logits.values, logits.values.shape[1]
        # The labels are cut into parts. The k-th best of the best of each is at most the k-th best.
        size = min(n_labels // (8 * k), 32)
        n_parts = n_labels // size
        parts = torch.from_numpy(values[:, : size * n_parts]).unflatten(1, (size, n_parts)).amax(1)
        reach = 2 * (radius.at(self._largest) + logits.half) / logits.step
        least = parts.topk(k).values[:, -1].numpy() - reach
        is_open = (least < 1) & (logits.top < np.inf)
        least = np.where(is_open, logits.top, least).astype(values.dtype)[:, None]
        found = values >= least
        if np.count_nonzero(found) > found.size // 8:
            is_open |= np.count_nonzero(found, axis=1) > n_labels // 8
        found[is_open] = False
        rows, labels = np.divmod(np.flatnonzero(found), n_labels)
        return _Pairs(rows, labels), is_open

    def _narrowed(self, pairs: _Pairs, logits: _Logits, k: int, radius: _Radius) -> _Pairs:
        """Pairs whose upper bound is not below the k-th lower bound of the row."""
        rows, labels = pairs
        values = logits.values[rows, labels]
        norms = _Norms(self._norms.full[labels], self._norms.error[labels])
        width = radius.at(norms, rows) + logits.half
        middle = logits.lowest + logits.step * values.astype(np.float64)
        lower = pairs.padded(torch.from_numpy(middle - width), len(logits.values), k, -np.inf)
        kth = lower.topk(k).values[:, -1].numpy()
        kept = (middle + width >= kth[rows]) | (values == logits.top)
        return _Pairs(rows[kept], labels[kept])

    def _exact(self, inputs: Tensor, pairs: _Pairs) -> Tensor:
        """Logits of the pairs in float32; each is the same whatever other pairs there are."""
        labels, n_rows, n_labels = torch.from_numpy(pairs.labels), len(inputs), len(self._bias)
        pointers = torch.from_numpy(np.searchsorted(pairs.rows, np.arange(n_rows + 1)))
        biases = self._bias.index_select(0, labels)
        size = n_rows, n_labels
        sparse = torch.sparse_csr_tensor(pointers, labels, biases, size, check_invariants=False)
        return torch.sparse.sampled_addmm(sparse, inputs, self._weight.T).values()


def _norms(rows: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,ij->i", rows, rows), dtype=np.float64)
