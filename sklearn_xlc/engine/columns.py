"""Scales of the columns of X: standardised dense ones, and sparse ones in units of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.preprocessing import StandardScaler

from sklearn_xlc._csr import (
    FEW_ENTRIES,
    as_dense,
    evenly_spaced,
    row_blocks,
    row_numbers,
    weighted_quantile,
)
from sklearn_xlc.batches import Rows, SparseRows
from sklearn_xlc.encoders import KEPT_SPREAD, InputLinear
from sklearn_xlc.engine.class_weights import mean_one
from sklearn_xlc.training import shared_tensor

#: Deviation of the values of a column with a long tail, at least, over that of a normal
#: distribution with the same quartiles: standardised, most values would differ by little.
LONG_TAIL = 5.0
#: Distance of the quartiles of a standard normal distribution; least reach over the range.
_QUARTILES, _LEAST_REACH = 1.349, 1e-12
#: Samples, at most, in which tails are looked for, and different values of a column, at least.
_SAMPLES, _LEAST_VALUES = 10_000, 20
#: Factor from the median size of non-zeros to that of columns in other units. On fifteen sets of
#: words and tags columns differ by 8.5 at most.
_OTHER_UNIT = 10.0
#: Share of the squares of others, from which on a column larger by `KEPT_SPREAD` has another unit:
#: .005 on these sets.
_LOUD = 0.1
#: Shares of the other non-zeros, and of the other columns, that may differ by it in samples of one
#: size. Of words of texts one of them is less; of columns in units of their own (log-normal with a
#: deviation of .7) both are more, but where samples have four words.
_MIXED = 0.07, 0.03
#: Norms of samples that a network reads as they are, and scales that float32 can divide by.
_NORMS, _SCALES = (0.1, 1000.0), (1e-30, 1e30)


def standardise(layer: InputLinear, rows: Rows) -> None:
    """Let a layer shorten the long tails of the columns of X, and standardise the columns."""
    mean, deviation = moments(rows)
    centre, reach = long_tails(as_dense(_some(rows)))
    if (reach[deviation > 0] > 0).any():
        layer.shorten(centre, np.where(deviation > 0, reach, 0))
        mean, deviation = moments(rows, layer)
    layer.standardise(mean, deviation)


def rescale(layer: InputLinear, rows: Rows) -> None:
    """Let a layer bring the columns of sparse X that have units of their own to the size of others.

    The size of a column is the root mean square of its non-zeros. Columns of the same unit keep
    their sizes, which tell how much a word matters. Others lose their long tails, and get the
    median size. Counts become logarithms before.
    """
    sizes, n_entries = sizes_of_entries(rows)
    is_odd = _have_other_units(sizes, n_entries)
    if _are_mixed(rows, n_entries, is_odd):
        is_odd = sizes > 0
    if are_counts := rows.holds_counts() and rows.X.max() > 1:
        layer.shorten(np.zeros(len(sizes)), np.ones(len(sizes)))
    elif is_odd.any():
        centre, reach = _long_tails_of_entries(rows, is_odd)
        if reach.any():
            layer.shorten(centre, reach)
    if layer.reach is not None:
        sizes, n_entries = sizes_of_entries(rows, layer)
    unit = weighted_quantile(sizes, n_entries, 0.5)
    scale = np.where(is_odd & (sizes > 0), sizes / (unit or 1.0), 1.0)
    norm = np.sqrt(n_entries @ (sizes / scale) ** 2)
    if norm > 0 and not _NORMS[0] <= norm <= _NORMS[1]:
        scale *= norm
    if are_counts or (scale != 1).any():
        layer.rescale(scale.clip(*_SCALES))


def _long_tails_of_entries(rows: Rows, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return centre and reach of chosen columns with enough entries; see :func:`long_tails`.

    Zeros beyond the number of entries change nothing: zero is the most frequent value.
    """
    centre, reach = np.zeros((2, len(chosen)))
    some = sp.csc_matrix(_some(rows))
    sizes, ends = np.diff(some.indptr), some.indptr
    for column in np.flatnonzero(chosen & (sizes >= _LEAST_VALUES)):
        n_entries, n_zeros = sizes[column], min(sizes[column], some.shape[0] - sizes[column])
        values = np.zeros((n_entries + n_zeros, 1), some.dtype)
        values[:n_entries, 0] = some.data[ends[column] : ends[column + 1]]
        centre[[column]], reach[[column]] = long_tails(values)
    return centre, reach


def _have_other_units(sizes: np.ndarray, n_entries: np.ndarray) -> np.ndarray:
    """Return which columns have units of their own.

    A column that most samples have needs to be less large than a rare one to outshout all others.
    """
    unit = weighted_quantile(sizes, n_entries, 0.5)
    is_large, squares = sizes > KEPT_SPREAD * unit, n_entries * sizes**2
    is_loud = is_large & (squares > _LOUD * squares[~is_large].sum())
    return _differ(sizes, unit, _OTHER_UNIT) | is_loud  # type: ignore[no-any-return]


def _differ(sizes: np.ndarray, unit: float, factor: float) -> np.ndarray:
    return (sizes > factor * unit) | ((sizes > 0) & (sizes * factor < unit))


def _are_mixed(rows: Rows, n_entries: np.ndarray, is_odd: np.ndarray) -> bool:
    """Return whether the sizes of columns tell nothing: many differ, `is_odd` left aside.

    They are judged in samples of one size: TF-IDF makes the words of long texts small. A few
    frequent words, which it makes small, too, have many of the non-zeros, but are few columns.
    """
    sizes = sizes_of_entries(rows, common=~is_odd)[0]
    differs = _differ(sizes, weighted_quantile(sizes, n_entries, 0.5), KEPT_SPREAD)
    rest = np.where(is_odd, 0, n_entries)
    shares = [each @ differs / max(each.sum(), 1e-300) for each in (rest, np.sign(rest))]
    return all(share > most for share, most in zip(shares, _MIXED))


def sizes_of_entries(
    rows: Rows, layer: InputLinear | None = None, common: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the root mean square of the non-zeros of columns, and their number a sample.

    Samples count by their weights. Non-zeros are those that a `layer` has shortened, if given.
    With a mask of `common` columns, samples are first brought to one size in these.
    """
    weights = None if rows.sample_weight is None else mean_one(rows.sample_weight)
    squares, counts = np.zeros((2, rows.X.shape[1]))
    row_size, at_once = max(1, rows.n_stored() // len(rows)), max(FEW_ENTRIES, len(counts))
    for part in row_blocks(len(rows), row_size, at_once):
        X = sp.csr_matrix(rows.X[part if rows.members is None else rows.members[part]])
        data, of_entries = shared_tensor(X.data).double(), None
        if layer is not None:
            data = layer.entries(data, shared_tensor(X.indices).long())
        squared = data.square().numpy()
        if common is not None:
            of_row, is_common = row_numbers(X.indptr), common[X.indices]
            sums = np.bincount(of_row, squared * is_common, X.shape[0])
            means = sums / np.maximum(1, np.bincount(of_row, is_common, X.shape[0]))
            squared /= np.where(means > 0, means, 1)[of_row]
        if weights is not None:
            of_entries = weights[part][row_numbers(X.indptr)]
            squared *= of_entries
        counts += np.bincount(X.indices, of_entries, len(counts))
        squares += np.bincount(X.indices, squared, len(counts))
    return np.sqrt(squares / np.where(counts > 0, counts, 1)), counts / len(rows)


def long_tails(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the values of columns with long tails are densest, and how far that reaches.

    Equal values count once, and the most frequent one not at all: a column of many zeros and some
    amounts is judged by the amounts. One that fewer than half of the samples have may be a code for
    missing values, far from all others. The centre is that of the shortest interval with a tenth of
    the values, and the reach half of its length. The reach of other columns is 0.
    """
    centre, reach = np.zeros((2, X.shape[1]))
    for column in range(X.shape[1]):
        values, counts = np.unique(X[:, column].astype(np.float64), return_counts=True)
        has_code = 2 * counts.max() < len(X)  # more often it is no code for missing values
        values = np.delete(values, counts.argmax())
        if len(values) < _LEAST_VALUES:
            continue
        low, high = np.interp([0.25, 0.75], np.linspace(0, 1, len(values)), values)  # quartiles
        spread = max(values.std(), X[:, column].std() if has_code else 0.0)
        if spread * _QUARTILES <= LONG_TAIL * (high - low):
            continue
        n_more = len(values) // 10
        lengths = values[n_more:] - values[:-n_more]
        first = lengths.argmin()
        centre[column] = values[[first, first + n_more]].mean()
        reach[column] = max(lengths[first] / 2, _LEAST_REACH * (values[-1] - values[0]))
    return centre, reach


def as_read(layer: InputLinear, X: Any) -> Any:
    """Return rows of X as a layer reads them: CSR, or dense."""
    if not sp.issparse(X):
        return layer.standardised(shared_tensor(np.asarray(X)).to(layer.bias)).cpu().numpy()
    if not layer.scales_sparse():
        return X
    read = layer.rescaled(SparseRows.from_csr(X).to(layer.bias.device))
    return sp.csr_matrix((read.data.cpu().numpy(), X.indices, X.indptr), shape=X.shape)


def width_of_standardised(encoder: Any) -> int:
    """Return the number of columns in which rankers read standardised samples; 0: there are none.

    One is of ones.
    """
    layer = getattr(encoder, "input", None)
    if not (isinstance(layer, InputLinear) and layer.is_standardised()):
        return 0
    return 1 + len(layer.weight)


def scales_of(X: Any) -> dict[str, np.ndarray]:
    """Return what a layer learns of the columns of X, CSR or dense; see :func:`scaled`."""
    layer = _layer_for(X)
    (rescale if sp.issparse(X) else standardise)(layer, Rows(X, sparse=sp.issparse(X)))
    return {name: buffer.numpy() for name, buffer in layer.named_buffers()}


def scaled(X: Any, scales: dict[str, np.ndarray]) -> Any:
    """Return rows of X as a layer that has learnt these scales reads them."""
    if not scales:
        return X
    layer = _layer_for(X)
    for name, values in scales.items():
        setattr(layer, name, shared_tensor(values))
    return as_read(layer, X)


def _layer_for(X: Any) -> InputLinear:
    with torch.random.fork_rng(devices=[]):  # its weight is not read
        layer = InputLinear(X.shape[1], 1, sparse=sp.issparse(X))
    return layer.double() if X.dtype == np.float64 else layer


def moments(rows: Rows, layer: InputLinear | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the columns of X; samples count by their weights.

    They are those of columns that a `layer` has shortened, if it is given. The deviation of a
    column is 0 if it is constant but for rounding.
    """
    scaler = StandardScaler()
    # It takes columns for constant whose deviation is small beside the sum of the weights.
    weights = None if rows.sample_weight is None else mean_one(rows.sample_weight)
    for part in row_blocks(rows.n_instances, rows.X.shape[1]):
        X = as_dense(rows.X[part if rows.members is None else rows.members[part]])
        if layer is not None:
            X = layer.shortened(shared_tensor(np.asarray(X)).double()).numpy()
        weight = None if weights is None else weights[part]
        with np.errstate(invalid="ignore"):  # a variance of zero may be rounded below it
            scaler.partial_fit(X, sample_weight=weight)
    deviation = np.sqrt(scaler.var_.clip(min=0))
    return scaler.mean_, np.where(scaler.scale_ == deviation, deviation, 0.0)


def _some(rows: Rows) -> Any:
    """Return rows of X of evenly spaced samples, at most 10 000."""
    return rows.take(evenly_spaced(len(rows), _SAMPLES)).X
