"""Samples in all forms accepted by encoders: rows of numbers, strings, mappings of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from sklearn_xlc.batches.sparse_rows import SparseRows


class Columns:
    """Named arrays with one entry per sample, indexed together.

    Parameters
    ----------
    arrays : mapping of str to {ndarray, sparse matrix}
        Arrays with one entry (row) per sample.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.batches import Columns
    >>> X = Columns({"age": np.array([3, 1, 4]), "size": np.ones((3, 2))})
    >>> X[np.array([2, 0])].arrays["age"]
    array([4, 3])
    """

    dtype = np.dtype(object)

    def __init__(self, arrays: Mapping[Any, Any]) -> None:
        self.arrays = {name: _as_array(name, values) for name, values in arrays.items()}
        sizes = {name: values.shape[0] for name, values in self.arrays.items()}
        if not sizes:
            raise ValueError("X is a mapping without any array; give at least one")
        if len(set(sizes.values())) > 1:
            raise ValueError(
                f"X is a mapping of arrays with different numbers of samples: {sizes}; all must "
                "have the same"
            )
        self.shape = (next(iter(sizes.values())),)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: np.ndarray | slice) -> Columns:
        return Columns({name: values[index] for name, values in self.arrays.items()})


def _as_array(name: Any, values: Any) -> Any:
    if sp.issparse(values):
        return values.tocsr()
    array = np.asarray(values)
    if array.ndim == 0:
        raise ValueError(
            f"X[{name!r}] is a single value; it must be an array with one value per sample"
        )
    return array


def collate(samples: Any) -> Any:
    """Convert samples to tensors, for encoders without a `collate` of their own.

    Parameters
    ----------
    samples : ndarray, sparse matrix, or mapping of such
        Samples of a batch.

    Returns
    -------
    Tensor, SparseRows, or dict of such
        Dense rows, CSR rows, arrays by name. In a mapping wider numbers than float32 become that,
        the type of the weights.

    Raises
    ------
    TypeError
        If an array holds strings or other objects: they need an encoder with a `collate`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.batches import collate
    >>> collate({"age": np.array([3, 1]), "size": np.ones((2, 1))})
    {'age': tensor([3, 1]), 'size': tensor([[1.], [1.]])}
    """
    if isinstance(samples, Mapping):
        return {name: collate(_as_float32(values)) for name, values in samples.items()}
    if sp.issparse(samples):
        return SparseRows.from_csr(samples)
    dense = np.ascontiguousarray(samples)
    if dense.dtype.kind not in "biuf":
        raise TypeError(
            f"samples of dtype {dense.dtype} do not become a tensor; give the encoder a method "
            "collate(samples) that returns what its forward reads"
        )
    dense = dense.astype(dense.dtype.newbyteorder("="), copy=False)  # torch reads no other order
    # A slice shares the caller's memory: it may be read-only, and encoders must not write to it.
    return torch.from_numpy(dense if dense.flags.owndata else dense.copy())


def _as_float32(values: Any) -> Any:
    is_wide = values.dtype.kind == "f" and values.dtype.itemsize > 4
    return values.astype(np.float32) if is_wide else values
