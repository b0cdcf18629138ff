"""Arrays and modules as the estimators need them: dtypes, storage, frequencies, devices, seeds."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from sklearn_xlc.training import Rows, make_batch

#: Rows whose share of non-zeros is below this are cheaper to multiply as sparse ones.
SPARSE_SHARE = 0.1
#: Label frequencies are not taken to be below this when a head starts from them.
RARE = 1e-6

DTYPES = (np.float64, np.float32)
TORCH_DTYPES = {np.dtype(np.float64): torch.float64, np.dtype(np.float32): torch.float32}


def is_sparse(X: Any) -> bool:
    """Whether X is mostly zeros, however it is stored: dense and CSR then take the same path."""
    n_nonzero = X.count_nonzero() if sp.issparse(X) else np.count_nonzero(X)
    return bool(n_nonzero < SPARSE_SHARE * X.shape[0] * X.shape[1])


def canonical(X: Any) -> Any:
    """X with ascending, distinct columns and no stored zeros: the sums of a dense row, in order."""
    if sp.issparse(X) and not (X.has_canonical_format and X.data.all()):
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    return X


def move_columns(Y: sp.csr_matrix, places: np.ndarray) -> sp.csr_matrix:
    moved = sp.csr_matrix((Y.data, places[Y.indices], Y.indptr), shape=Y.shape)
    moved.sort_indices()
    return moved


def frequency(rows: Rows) -> torch.Tensor:
    """Weighted share of the rows that hold each label, of shape (n_labels,)."""
    weight = np.ones(len(rows)) if rows.sample_weight is None else rows.sample_weight
    share = rows.Y.T.astype(np.float64) @ (weight / weight.sum())
    return torch.from_numpy(np.maximum(share, RARE))


def output_width(encoder: nn.Module, rows: Rows) -> int:
    """Number of features, asked of the encoder or seen on two rows."""
    if hasattr(encoder, "n_outputs"):
        return encoder.n_outputs
    encoder.to(TORCH_DTYPES[rows.X.dtype]).eval()
    batch = make_batch(Rows(rows.X[:2], sparse=rows.sparse))
    try:
        with torch.no_grad():
            features = encoder(batch.inputs)
    except RuntimeError as error:
        raise ValueError(
            f"encoder cannot read {len(batch)} row(s) of {rows.X.shape[1]} columns: {error}"
        ) from error
    is_tensor = isinstance(features, torch.Tensor)
    if not is_tensor or features.ndim != 2 or len(features) != len(batch):
        got = f"shape {tuple(features.shape)}" if is_tensor else type(features).__name__
        raise ValueError(
            "encoder must return a tensor of features of shape (n_rows, n_outputs), but for "
            f"{len(batch)} row(s) it returned {got}"
        )
    return features.shape[1]


def numpy_dtype(module: nn.Module) -> np.dtype:
    return np.dtype(str(next(module.parameters()).dtype).removeprefix("torch."))


def resolve_device(device: Any) -> str:
    if str(device) == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
        if resolved.type == "cuda" and not torch.cuda.is_available():
            warnings.warn(
                f"device={device!r} asks for a GPU that is not there; using the CPU", stacklevel=2
            )
            return "cpu"
        torch.ones((), device=resolved).item()
    except RuntimeError as error:
        raise ValueError(
            f"device={device!r} is neither 'auto' nor a torch device of this machine: {error}"
        ) from error
    return str(resolved)


@contextlib.contextmanager
def seeded(rng: np.random.RandomState) -> Iterator[None]:
    """Seed torch for a block and give the caller's generator back as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(rng.randint(2**31 - 1))
        yield
