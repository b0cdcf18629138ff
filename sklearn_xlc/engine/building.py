"""Build encoders and heads, and the label statistics that a head starts from."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from sklearn_xlc._csr import FEW_ENTRIES, row_blocks
from sklearn_xlc.batches import Rows, make_batch
from sklearn_xlc.encoders import Encoder, EncoderPart, accepted_forms, vectorizes
from sklearn_xlc.engine.validation import model_dtype
from sklearn_xlc.heads import Head, HeadPart, HeadTask
from sklearn_xlc.training import EncoderHead
from sklearn_xlc.training.devices import TORCH_DTYPES

#: Label frequencies are not taken to be below this when a head starts from them.
RARE = 1e-6


def n_weights(module: EncoderHead) -> int:
    """Count the parameters that are trained, those that other processes hold included."""
    shards, total = module.head.sharded_parameters(), 0
    for parameter in module.parameters():
        if parameter.requires_grad:
            shard = shards.get(parameter)
            n_rows = shard.n_rows if shard else len(torch.atleast_1d(parameter))
            total += n_rows * math.prod(parameter.shape[1:])
    return total


@torch.no_grad()
def zero_rows(weight: torch.Tensor, rows: np.ndarray) -> None:
    """Set rows of a weight to zero, given by a mask."""
    if rows.any():
        weight[torch.from_numpy(rows).to(weight.device)] = 0


def build_encoder(encoder: Any, X: Any) -> nn.Module:
    """Build the encoder of a part, copy a module, or call a function with the columns of X.

    Raises
    ------
    TypeError
        If the function does not return a module.
    """
    if isinstance(encoder, EncoderPart):
        return encoder.build(X.shape[1] if len(X.shape) > 1 else None, sparse=False)
    if isinstance(encoder, nn.Module):
        return copy.deepcopy(encoder)
    made = encoder(*X.shape[1:])  # strings and mappings have no columns
    if not isinstance(made, nn.Module):
        raise TypeError(
            "encoder must be a torch.nn.Module or a function of n_features that returns one, but "
            f"it returned {type(made).__name__}"
        )
    return made


def build_head(head: Any, task: HeadTask) -> Head:
    """Build the head of a part, or call the user's function.

    Raises
    ------
    TypeError
        If the function does not return a head.
    """
    if isinstance(head, HeadPart):
        return head.build(task)
    made = head(*task.size)
    if not isinstance(made, Head):
        raise TypeError(
            "head must be a function of (n_features, n_labels, multilabel) that returns a "
            f"sklearn_xlc.heads.Head, but it returned {type(made).__name__}"
        )
    return made


def reads_sparse(encoder: Any, rows: Rows) -> bool:
    """Whether an encoder, or the encoders of a class, read X as CSR: only the zeros of X decide."""
    accepts = accepted_forms(encoder)
    if "csr" not in accepts or rows.X.dtype == object:
        return False
    return "dense" not in accepts or rows.is_mostly_zeros()


def inputs_for(encoder: nn.Module, rows: Rows, sparse: bool) -> Rows:
    """Samples without labels, in the form from which batches for an encoder are cut."""
    collate = getattr(encoder, "collate", None)
    if getattr(collate, "__func__", None) is Encoder.collate:
        collate = None  # that of batches: they need not be cut one by one
    if vectorizes(encoder) and rows.sparse and rows.collate is None:  # by `vectorized`
        collate, sparse = None, True
    return replace(rows, Y=None, sample_weight=None, sparse=sparse, collate=collate)


def vectorized(encoder: nn.Module, rows: Rows, first: bool) -> Rows:
    """Samples as the rows of an encoder that is a vectorizer too, made once and not in every epoch.

    In the `first` fit the encoder may learn from the samples.
    """
    if not vectorizes(encoder) or rows.X.dtype != object:
        return rows
    vectorize = getattr(encoder, "fit_vectorize", None) if first else None
    X = (vectorize or encoder.vectorize)(rows.samples())  # type: ignore[operator]
    return replace(rows, X=X, sparse=True, collate=None)


def output_width(encoder: nn.Module, rows: Rows) -> int:
    """Number of features, as the encoder declares it or as computed for two samples.

    Raises
    ------
    ValueError
        If the encoder raises RuntimeError on two samples, or does not return (2, n_outputs).
    """
    if hasattr(encoder, "n_outputs"):
        return int(encoder.n_outputs)  # type: ignore[arg-type]
    encoder.to(TORCH_DTYPES[model_dtype(rows.X)]).eval()
    X = rows.X[:2]
    batch = make_batch(Rows(X, sparse=rows.sparse, collate=rows.collate))
    shape = f" of {X.shape[1]} columns" if len(X.shape) > 1 else ""
    try:
        with torch.no_grad():
            features = encoder(batch.inputs)
    except RuntimeError as error:
        raise ValueError(f"encoder cannot read {len(batch)} sample(s){shape}: {error}") from error
    is_tensor = isinstance(features, torch.Tensor)
    if not is_tensor or features.ndim != 2 or len(features) != len(batch):
        got = f"shape {tuple(features.shape)}" if is_tensor else type(features).__name__
        raise ValueError(
            "encoder must return a tensor of features of shape (n_samples, n_outputs), but for "
            f"{len(batch)} sample(s) it returned {got}"
        )
    return features.shape[1]


def frequency(Y: Any, sample_weight: np.ndarray | None) -> torch.Tensor:
    """Weighted share of the samples that hold each label, of shape (n_labels,)."""
    weight = _weights(Y) if sample_weight is None else mean_one(sample_weight)
    share = _sums_by_label(Y, weight, total=weight.sum())
    return torch.from_numpy(np.maximum(share, RARE))


def label_counts(Y: Any, sample_weight: np.ndarray | None) -> tuple[torch.Tensor, float]:
    """Weighted number of the samples that hold each label, (n_labels,), and of all samples."""
    weight = _weights(Y) if sample_weight is None else sample_weight
    # Bags may count labels; soft labels are below one.
    counts = _sums_by_label(Y, weight, at_most=1)
    return torch.from_numpy(counts), float(weight.sum())


def _weights(Y: Any) -> np.ndarray:
    """A one for each sample, in the memory of one of them."""
    return np.broadcast_to(np.float64(1), Y.shape[0])


def _sums_by_label(
    Y: Any, weight: np.ndarray, total: float = 1.0, at_most: float = np.inf
) -> np.ndarray:
    """Sum over samples of weight / total times entry, block by block and in the order of rows."""
    sums = np.zeros(Y.shape[1])
    for rows in row_blocks(Y.shape[0], 1 + Y.nnz // max(1, Y.shape[0]), FEW_ENTRIES):
        bounds = Y.indptr[rows.start : rows.stop + 1]
        part = slice(bounds[0], bounds[-1])
        of_entry = np.repeat(weight[rows] / total, np.diff(bounds))
        # Not a sum of blocks, which would be rounded in another way than one pass.
        of_entry *= np.minimum(Y.data[part], at_most)
        np.add.at(sums, Y.indices[part].astype(np.intp), of_entry)
    return sums


def mean_one(sample_weight: np.ndarray) -> np.ndarray:
    """Positive weights in float64, scaled to a mean of one.

    The scale of weights does not matter, so neither does the range of float32: scaled first and
    converted then, weights of 1e37 or 1e-40 train as ones do.
    """
    relative = sample_weight.astype(np.float64) / sample_weight.max()
    return relative / relative.mean()
