"""Find the best labels of a linear layer by eight-bit products and an error bound.

Products of eight-bit integers are ten times faster than products of float32, and exact. The
inequality of Cauchy and Schwarz bounds the rounding error of a logit: if inputs a are rounded to
a + e and weights w to w + d,

    |(a + e)(w + d) - aw| <= |e| |w| + |a + e| |d|,

and all norms are known. A label whose logit is below those of k others by more than twice the bound
is not among the k best. Labels are sorted by their norms, and those of a group share its largest
ones, so that a label with large weights widens no bounds but those of its group. The logits of the
few labels that are left are computed in float32.

Rounding the weights takes as long as all logits of hundreds of rows. Until so many have been asked
for, and where eight bits leave too many labels, products are of float32, whose own rounding bounds
a logit. The labels that are left, and their logits, are the same.
"""

from __future__ import annotations

import functools
import itertools
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sklearn_xlc._csr import pointers_of, row_blocks
from sklearn_xlc._ranking import NO_KEY, keys_of_floats, largest_keys
from sklearn_xlc.batches import instructions

#: Rows whose logits take as long as rounding all weights, and those that a call takes longer.
_OF_ROUNDING, _OF_CALL = 400, 16
#: Logits of eight bits that are held at a time.
_AT_ONCE = 2**25
#: Up to so many rows logits are float32: more of them would wait for the memory.
_FEW = 16
#: Products of more rows are of a multiple of this: for each shape oneDNN compiles a kernel of half
#: a megabyte and keeps it, and batches of queries have many sizes.
_MULTIPLE = 16
#: Rows that show the range of the best logits.
_SHOWN = 16
#: Parts of the labels, for each of the k best, from which a threshold is found.
_PARTS = 8
#: Longest inputs of which sums of products of eight bits fit into 32 bits.
_LONGEST = 2**16
#: Multiply-adds of all logits, and weights, from which screening is faster.
_WORTH, _FEWEST = 2**21, 2**16
#: What rounding inputs changes of a logit, where rounding weights changes one: norms are sorted so.
_OF_INPUTS = 2.0**-7
#: Group of labels whose bounds are the usual ones: most labels have smaller norms.
_USUAL = 1
#: A row with more candidates than this part of the labels takes all logits.
_WIDEST = 16
#: Weights that are rounded at a time: they stay in the cache.
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
def largest_input() -> int:
    """Return the largest integer of an input whose products are fast and exact here, or 0.

    Older instructions saturate the sum of two products at 2^15, which inputs of seven bits avoid.
    """
    found = instructions()
    if any(found.get(name) for name in ("avx512_vnni", "avx_vnni", "amx_int8")):
        largest = 2**8 - 1
    elif found.get("avx2"):
        largest = 2**7 - 1
    else:
        return 0
    try:
        inputs = torch.tensor([[largest] * 64, [0] * 64], dtype=torch.uint8)
        weight = torch.tensor([[127] * 64, [-127] * 64], dtype=torch.int8)
        layer = _Packed.of(weight, torch.tensor([1.0, 0.5]), torch.tensor([1.0, -1.0]))
        expected = (inputs.float() - 3) @ weight.float().T * layer.scales + layer.bias
        with warnings.catch_warnings():  # that sparse CSR tensors are in beta state
            warnings.simplefilter("ignore")
            torch.sparse_csr_tensor([0, 0], [], [], (1, 1), check_invariants=False)
        is_exact = torch.equal(layer.logits(_Rounded(inputs, 1.0, 3)), expected)
        return largest if is_exact else 0
    except (RuntimeError, AttributeError):  # a build of torch without oneDNN
        return 0


class _Rounded(NamedTuple):
    """Inputs ``scale * (numbers - zero)``, with numbers of eight bits."""

    numbers: Tensor
    scale: float
    zero: int


class _Packed(NamedTuple):
    """Linear layer with weights of eight bits, in the memory layout of oneDNN."""

    weight: Tensor
    scales: Tensor
    zeros: Tensor
    bias: Tensor

    @classmethod
    def of(cls, numbers: Tensor, scales: Tensor, bias: Tensor) -> _Packed:
        weight = torch.ops.onednn.qlinear_prepack(numbers, None)
        return cls(weight, scales, torch.zeros(len(bias), dtype=torch.int64), bias)

    def logits(self, inputs: _Rounded) -> Tensor:
        return self._product(inputs, self.bias, 1.0, torch.float32)

    def steps(self, inputs: _Rounded, lowest: float, step: float) -> Tensor:
        """Compute ``(logits - lowest) / step`` as integers, clipped to 0 and 255."""
        return self._product(inputs, self.bias - lowest, step, torch.uint8)

    def _product(self, inputs: _Rounded, bias: Tensor, step: float, dtype: torch.dtype) -> Tensor:
        layer, n_rows = (self.weight, self.scales, self.zeros, bias), len(inputs.numbers)
        if n_rows > _MULTIPLE:
            inputs = inputs._replace(numbers=F.pad(inputs.numbers, (0, 0, 0, -n_rows % _MULTIPLE)))
        return torch.ops.onednn.qlinear_pointwise(
            *(*inputs, *layer, step, 0, dtype, "none", [], "")
        )[:n_rows]


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
    """Labels of rows, sorted by row; row i begins at ``starts[i]``."""

    rows: np.ndarray
    labels: np.ndarray
    starts: np.ndarray


class _Errors(NamedTuple):
    """What rounding may change: norms of the inputs' errors, of rounded inputs, and the rest."""

    error: np.ndarray
    norm: np.ndarray
    beside: np.ndarray

    def radius(self, norms: np.ndarray) -> np.ndarray:
        """Bound errors of logits (n_rows, n); `norms` (2, n): of weights, of their errors."""
        error, norm, beside = (each.astype(np.float32)[:, None] for each in self)
        return (error * norms[0] + norm * norms[1]) * np.float32(_SLACK) + beside


class _Columns(NamedTuple):
    """Labels in groups of contiguous columns; `order`: label of each column."""

    order: np.ndarray
    groups: list[slice]


class _Table(NamedTuple):
    """Weights of eight bits in columns, and the largest norms of each group (2, n_groups)."""

    columns: _Columns
    norms: np.ndarray
    layer: _Packed

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor) -> _Table:
        n_labels, n_features = weight.shape
        numbers, scales = torch.empty(weight.shape, dtype=torch.int8), torch.empty(n_labels)
        norms = np.empty((2, n_labels))  # of the weights, and of what rounding them changes
        for part in row_blocks(n_labels, n_features, _CACHED):
            rows = weight[part]
            scales[part] = scale = (rows.abs().amax(1) / 127).clamp_(min=_TINY)
            units = rows / scale[:, None]
            numbers[part] = rounded = units.round()
            norms[0, part] = rows.double().norm(dim=1).numpy()
            norms[1, part] = (scale.double() * units.sub_(rounded).double().norm(dim=1)).numpy()
        order = np.argsort(norms[0] * _OF_INPUTS + norms[1], kind="stable")
        # Three of four labels, three of four of the others, ..., those with the largest norms.
        edges = n_labels - (n_labels >> np.arange(0, n_labels.bit_length() + 2, 2))
        groups = [slice(*ends) for ends in itertools.pairwise(edges) if ends[0] < ends[1]]
        with np.errstate(over="ignore"):
            starts = [group.start for group in groups]
            norms = np.maximum.reduceat(norms[:, order], starts, axis=1).astype(np.float32)
        at = torch.from_numpy(order)
        return cls(_Columns(order, groups), norms, _Packed.of(numbers[at], scales[at], bias[at]))


#: Logits of rows, bounds of their errors for each group (n_rows, n_groups), and their columns.
_Bounded = tuple[_Logits, np.ndarray, _Columns]


class Screening:
    """Search for the best labels of a linear layer with few logits in float32.

    The result equals the ranking of all logits in float32, for any inputs: if the bounds leave too
    many labels of a row, all of its logits are computed. (A sum in float32 depends on the order of
    its terms: labels with logits equal up to the last digits may change places.) `weight`
    (n_labels, n_features) is kept, and beside it numbers of eight bits, a quarter of its size, once
    they are worth their time. No search is possible unless `is_finite`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        n_labels, n_features = weight.shape
        self._weight = weight
        self._bias = torch.zeros(n_labels) if bias is None else bias
        self._largest = float(torch.linalg.vector_norm(weight, dim=1).max())
        if not _TINY < self._largest**2 < _HUGE:  # squares may be no numbers of float32
            self._largest = max(map(abs, map(float, weight.aminmax()))) * n_features**0.5
        self._largest_bias = float(self._bias.abs().max())
        self.is_finite = bool(np.isfinite([self._largest, self._largest_bias]).all())
        self._table: _Table | None = None
        self._n_asked, self._making = 0, threading.Lock()

    @staticmethod
    def suits(inputs: Tensor, weight: Tensor, k: int) -> bool:
        """Return whether screening is possible, and faster than all logits."""
        return (
            inputs.dtype == weight.dtype == torch.float32
            and inputs.is_cpu
            and weight.numel() >= max(_FEWEST, _WORTH / max(1, len(inputs)))
            and 24 * k <= weight.shape[0]  # otherwise bounds leave too many labels
            and weight.shape[1] <= _LONGEST
            and largest_input() > 0
        )

    def topk(self, inputs: Tensor, k: int, compute: Compute) -> tuple[Tensor, Tensor]:
        """Return logits and positions (n_rows, k) of the best labels, equal logits by position.

        `compute` does so from all logits of the given rows; k is small (:meth:`suits`).
        """
        best, positions = inputs.new_empty(len(inputs), k), torch.empty(len(inputs), k).long()
        is_open = np.ones(len(inputs), dtype=bool)
        ways = [(self._in_floats, 4)]
        if self._is_rounded_for(len(inputs)):
            ways.insert(0, (self._in_eight_bits, 1))
        for bound, n_bytes in ways:
            at_once = max(1, _AT_ONCE // (n_bytes * len(self._bias)))
            for rows in _blocks(is_open, at_once):
                some = inputs[rows]
                bounded = bound(some, k)
                if bounded is not None:
                    pairs, is_open[rows] = self._candidates(*bounded, k)
                    best[rows], positions[rows] = _best_of(pairs, self._exact(some, pairs), k)
        if is_open.any():
            rows = torch.from_numpy(np.flatnonzero(is_open))
            best[rows], positions[rows] = compute(rows)
        return best, positions

    def _is_rounded_for(self, n_rows: int) -> bool:
        """Return whether there is a table of eight bits; make it once it is worth its time."""
        if self._table is None:
            with self._making:
                self._n_asked += n_rows + _OF_CALL
                if self._table is None and self._n_asked >= _OF_ROUNDING:
                    self._table = _Table.of(self._weight, self._bias)
        return self._table is not None

    def _in_eight_bits(self, inputs: Tensor, k: int) -> _Bounded | None:
        rounded = self._rounded(inputs)
        if rounded is None:
            return None
        numbers, errors = rounded
        table: Any = self._table
        radius = errors.radius(table.norms)
        return self._logits(numbers, k, radius), radius, table.columns

    def _in_floats(self, inputs: Tensor, k: int) -> _Bounded | None:
        norms = torch.linalg.vector_norm(inputs, dim=1, dtype=torch.float64)
        beside = self._beside(norms.numpy(), inputs.shape[1])
        if beside is None:
            return None
        logits = F.linear(inputs, self._weight, self._bias).numpy()
        columns = _Columns(np.arange(len(self._bias)), [slice(len(self._bias))])
        return _Logits(logits), beside.astype(np.float32)[:, None], columns

    def _beside(self, norms: np.ndarray, n_features: int) -> np.ndarray | None:
        """Bound what float32 changes of logits of inputs with the norms; None: too large ones."""
        size = norms * self._largest + self._largest_bias
        if not size.max() < _HUGE:  # NaN is not, either
            return None
        return size * ((n_features + 64) * _EPS) + _TINY

    def _rounded(self, inputs: Tensor) -> tuple[_Rounded, _Errors] | None:
        """Round inputs to eight bits; return them with what bounds the logits of each row.

        Return None for too large numbers.
        """
        low, high = inputs.amin(1).numpy(), inputs.amax(1).numpy()
        if not (high.max() < _HUGE and low.min() > -_HUGE):  # NaN is not, either
            return None
        # Numbers beyond twice the usual are cut off: one such row shall not spoil the others.
        lowest = min(max(float(low.min()), 2 * _middle(low)), 0.0)
        highest = max(min(float(high.max()), 2 * _middle(high)), 0.0)
        largest = largest_input()
        scale = float(np.float32(max((highest - lowest) / largest, _TINY)))
        zero = int(np.rint(-lowest / scale))
        eight_bits = np.empty(inputs.shape, dtype=np.uint8)
        error, norm = np.empty(len(inputs)), np.empty(len(inputs))
        for part in row_blocks(len(inputs), inputs.shape[1], _CACHED // 2):
            units = inputs[part] / scale
            units = units.add_(zero) if zero else units
            numbers = units.round().clamp_(0, largest)
            eight_bits[part] = numbers.numpy()  # in a quarter of torch's time
            error[part] = _norms(units.sub_(numbers))
            norm[part] = _norms(numbers.sub_(zero) if zero else numbers)
        rounded = _Rounded(torch.from_numpy(eight_bits), scale, zero)
        error = scale * (error + _INEXACT * inputs.shape[1] ** 0.5)
        norm *= scale
        beside = self._beside(error + norm, inputs.shape[1])
        return None if beside is None else (rounded, _Errors(error, norm, beside))

    def _logits(self, inputs: _Rounded, k: int, radius: np.ndarray) -> _Logits:
        n_rows, table = len(inputs.numbers), self._table
        assert table is not None
        if n_rows <= _FEW:
            return _Logits(table.layer.logits(inputs).numpy())
        # Steps must be fine around the k-th best logits, whose range a few rows show.
        some = inputs._replace(numbers=inputs.numbers[:: n_rows // _SHOWN].contiguous())
        kth = _kth_largest(table.layer.logits(some).numpy(), k)
        usual = _middle(radius[:, min(_USUAL, radius.shape[1] - 1)])
        spread = float(kth.max() - kth.min())
        lowest = float(kth.min()) - spread - 2 * usual
        step = max((3 * spread + 3 * usual) / 255, _TINY)
        values = table.layer.steps(inputs, lowest, step)
        return _Logits(values.numpy(), lowest, step, 0.51 * step + abs(lowest) * _EPS, 255)

    def _candidates(
        self, logits: _Logits, radius: np.ndarray, columns: _Columns, k: int
    ) -> tuple[_Pairs, np.ndarray]:
        """Return pairs of candidates for the k best, and a mask of rows with too many.

        The mask's rows have no pairs.
        """
        values, n_labels = logits.values, len(self._bias)
        with np.errstate(over="ignore"):
            radius = (radius + np.float32(logits.half)) / np.float32(logits.step)
        n_times = (n_labels // (_PARTS * k)).bit_length() - 1
        folded = [_folded(values[:, group], n_times) for group in columns.groups]
        least = [part - radius[:, i : i + 1] for i, part in enumerate(folded)]
        least = _kth_largest(np.concatenate(least, axis=1), k)[:, None] - radius
        if logits.top < np.inf:  # 0 stands for any lower logit
            least = np.floor(least.clip(0)).astype(values.dtype)
        found, most = np.empty(values.shape, dtype=bool), n_labels // _WIDEST
        for i, group in enumerate(columns.groups):
            np.greater_equal(values[:, group], least[:, i : i + 1], out=found[:, group])
        is_open = np.zeros(len(found), dtype=bool)
        if np.count_nonzero(found) > most * len(found) // 2:  # their places would take memory
            is_open = np.count_nonzero(found, axis=1) > most
            found[is_open] = False
        rows, labels = np.divmod(np.flatnonzero(found), n_labels)
        is_many = np.bincount(rows, minlength=len(found)) > most
        if is_many.any():
            rows, labels = rows[~is_many[rows]], labels[~is_many[rows]]
        starts = pointers_of(np.bincount(rows, minlength=len(values)))
        return _Pairs(rows, columns.order[labels], starts), is_open | is_many

    def _exact(self, inputs: Tensor, pairs: _Pairs) -> Tensor:
        """Compute the logits of the pairs in float32, each independent of the other pairs."""
        labels, n_rows, n_labels = torch.from_numpy(pairs.labels), len(inputs), len(self._bias)
        pointers, biases = torch.from_numpy(pairs.starts), self._bias.index_select(0, labels)
        size = n_rows, n_labels
        sparse = torch.sparse_csr_tensor(pointers, labels, biases, size, check_invariants=False)
        return torch.sparse.sampled_addmm(sparse, inputs, self._weight.T).values()


def _blocks(is_open: np.ndarray, at_once: int) -> Iterator[Any]:
    """Yield indices of the open rows: slices of all, or arrays."""
    rows = None if is_open.all() else np.flatnonzero(is_open)
    n_rows = len(is_open) if rows is None else len(rows)
    for start in range(0, n_rows, at_once):
        part = slice(start, start + at_once)
        yield part if rows is None else rows[part]


def _norms(rows: Tensor) -> np.ndarray:
    return torch.linalg.vector_norm(rows, dim=1).double().numpy()


def _middle(values: np.ndarray) -> float:
    """Return the median (the upper one), in a fifth of the time of NumPy's for few values."""
    return float(np.partition(values, len(values) // 2)[len(values) // 2])


def _folded(values: np.ndarray, n_times: int) -> np.ndarray:
    """Return largest values of a few parts of each row: the k-th best of them is no larger.

    Columns are folded, largest of two at a time. Of an odd number, the last is left out.
    """
    n_times = min(n_times, values.shape[1].bit_length() - 1)
    if len(values) <= _FEW:  # one call costs less than many
        n_parts = values.shape[1] >> n_times
        kept = values[:, : n_parts << n_times]
        return kept.reshape(len(values), -1, n_parts).max(axis=1)
    parts = torch.from_numpy(values)
    for _ in range(n_times):
        parts = torch.maximum(*parts[:, : parts.shape[1] // 2 * 2].chunk(2, dim=1))
    return parts.numpy()


def _kth_largest(values: np.ndarray, k: int) -> np.ndarray:
    """Return the k-th largest value of each row, in a tenth of the time of torch's topk."""
    place = values.shape[1] - k
    return np.partition(values, place, axis=1)[:, place]


def _best_of(pairs: _Pairs, logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return logits and labels of the best k pairs of each row, equal logits by position.

    One sort of joint keys orders both: apart from the sign, the bits of a float32 have its order.
    """
    sizes = np.diff(pairs.starts)
    keys = np.full((len(sizes), max(k, int(sizes.max()))), NO_KEY)
    columns = np.arange(len(pairs.rows)) - pairs.starts[pairs.rows]
    keys[pairs.rows, columns] = keys_of_floats(logits.numpy(), pairs.labels)
    best, labels = largest_keys(keys, k)
    return torch.from_numpy(best), torch.from_numpy(labels)
