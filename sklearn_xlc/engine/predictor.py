"""Compute features, best labels and scores of a fitted network, batch by batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.validation import _num_samples

from sklearn_xlc._bounds import check_dense_size
from sklearn_xlc._config import get_config, memory_limit
from sklearn_xlc.batches import Batch, BatchIterator, Rows, features_of, make_batch
from sklearn_xlc.distributed.agreement import agreed_batch
from sklearn_xlc.encoders import MLPEncoder
from sklearn_xlc.engine.building import inputs_for
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.memory import SMALL, available_memory, refuse_beyond
from sklearn_xlc.engine.validation import check_features
from sklearn_xlc.heads import Head
from sklearn_xlc.training import XLCNet
from sklearn_xlc.training.devices import TORCH_DTYPES, numpy_dtype, shared_tensor
from sklearn_xlc.training.digests import digest_of
from sklearn_xlc.training.heap import keep_memory

#: Samples per batch in prediction.
PREDICT_BATCH = 512
#: Features in a larger batch of a search for the best labels: fewer batches cost less.
_FEATURES = 2**21


@dataclass(frozen=True)
class Predictor:
    """Rank, score and encode validated samples with a fitted network, its label code and ranker."""

    net: XLCNet
    code: LabelCode
    sparse: bool
    ranker: Any = None

    @property
    def head(self) -> Head:
        """Head of the network."""
        return self.net.module_.head

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return self.code.n_labels

    @property
    def dtype(self) -> np.dtype:
        """Type of the scores."""
        return numpy_dtype(self.net.module_)

    def features(
        self, X: Any, n_rows: int = PREDICT_BATCH, asked: str = ""
    ) -> Iterator[tuple[slice, Any]]:
        """Yield slices and features of batches of at most `n_rows`; `asked` names the output."""
        keep_memory()
        start = 0
        if asked:
            n_rows = agreed_batch(self.head, n_rows, lambda: _described(X, asked))
        for batch in self.batches(X, n_rows):
            stop = start + len(batch)
            features = self.net.features(batch)
            check_features(features, start)
            yield slice(start, stop), features
            start = stop

    def batches(self, X: Any, n_rows: int) -> Iterable[Batch]:
        """Return batches of at most `n_rows` validated samples."""
        net = self.net
        rows = _rows_of(X)
        if rows.X.dtype != object:
            rows = replace(rows, X=rows.X.astype(self.dtype, copy=False))
        n_instances = max(1, rows.n_instances)
        rows = inputs_for(net.module_.encoder, rows, self.sparse)
        batch_size = max(1, min(n_rows, self.most_at_once() * len(rows) // n_instances))
        device = torch.device(net.device)
        if batch_size >= len(rows) and _is_shared(net.module_.encoder, rows):
            return [make_batch(rows).to(device)]
        return BatchIterator(rows, batch_size, None, device)

    def most_at_once(self) -> int:
        """Return the batch size of a search for the best labels."""
        encoder = self.net.module_.encoder
        if type(encoder) is not MLPEncoder:
            return PREDICT_BATCH
        return max(PREDICT_BATCH, min(4 * PREDICT_BATCH, _FEATURES // len(encoder.input.bias)))

    def rows_at_once(self, row_bytes: int, most: int | None = None) -> int:
        """Return the batch size within `working_memory`, at least one."""
        return max(1, min(most or PREDICT_BATCH, memory_limit() // max(1, row_bytes)))

    def rows_beside(
        self,
        shape: tuple[int, int],
        dtype: Any,
        remedy: str,
        row_bytes: int = 0,
        at_most: int | None = None,
    ) -> int:
        """Return the batch size within the memory limits, beside a dense output.

        Raise MemoryError if the output, or its smallest batch, does not fit.
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        most = max(1, min(shape[0], self.rows_at_once(row_bytes, at_most)))
        # Fewer than these would make prediction slow and save little.
        least = max(1, min(most, size // 8 // max(1, row_bytes)))
        check_dense_size(shape, dtype, remedy, least * row_bytes)
        left = get_config()["dense_limit"] - size
        n_rows = max(least, min(most, left // max(1, row_bytes)))
        if size + n_rows * row_bytes > SMALL:
            left, what = available_memory(), f"a dense result of shape {shape}"
            refuse_beyond(size + least * row_bytes, left, what, remedy)
            n_rows = max(least, int(min(n_rows, (left - size) / max(1, row_bytes))))
        return n_rows

    def topk(
        self,
        X: Any,
        k: int,
        n_rows: int | None = None,
        by_label: bool = False,
        proba: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return label ids and scores of validated samples, both of shape (n_samples, k).

        Best labels come first, or lowest ids with `by_label`. `n_rows` is the batch size; with
        `proba` scores are probabilities.
        """
        dtype, head = self.dtype, self.head
        n_rows = n_rows or self.rows_at_once(head.bytes_per_row(k), self.most_at_once())
        ids = np.empty((_num_samples(X), k), dtype=np.int64)
        scores = np.empty((_num_samples(X), k), dtype=dtype)
        for rows, features in self.features(X, n_rows, f"the best {k} labels, {proba=}"):
            with self.net.predicting(features):
                best, positions = head.topk(features, k)
                if proba and head.link == "softmax":
                    best = (best - head.scores(features).logsumexp(1, keepdim=True)).exp()
                elif proba:
                    best = self.probabilities(best)
            found, values = self.code.to_ids(positions.cpu().numpy()), best.cpu().numpy()
            if by_label:
                order = np.argsort(found, axis=1)
                found, values = (np.take_along_axis(a, order, 1) for a in (found, values))
            scores[rows], ids[rows] = values, found
        return ids, scores

    def checked_topk(
        self, X: Any, k: int, names: Any, by_label: bool = False, proba: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return label ids and scores; raise MemoryError if they and `names` would not fit."""
        scores = self.dtype
        dtype = np.dtype([("id", np.int64), ("score", scores), ("name", names)])
        head = self.head
        normalised = proba and head.link == "softmax"  # by the scores of all labels
        row_bytes = head.bytes_per_row(None if normalised else k) + k * dtype.itemsize
        most = None if normalised else self.most_at_once()
        n_rows = self.rows_beside((_num_samples(X), k), dtype, "a smaller k", row_bytes, most)
        return self.topk(X, k, n_rows, by_label, proba)

    def topk_sparse(self, X: Any, k: int) -> sp.csr_matrix:
        """Return scores of the k best labels of validated samples, in the order of the labels."""
        ids, scores = self.checked_topk(X, k, np.int32, by_label=True)
        indptr = np.arange(0, ids.size + 1, k)
        shape = (len(ids), self.n_labels)
        return sp.csr_matrix((scores.ravel(), ids.ravel(), indptr), shape=shape)

    def ranked(self, features: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and ids of the k best labels of a batch."""
        head = self.head
        scores, positions = head.topk(features, k)
        if head.link == "softmax":  # log-probabilities are comparable across samples
            scores = scores - head.scores(features).logsumexp(1)[:, None]
        return scores.cpu().numpy(), self.code.to_ids(positions.cpu().numpy())

    def best_sets(self, features: Any, k: int) -> tuple[np.ndarray, sp.csr_matrix]:
        """Return scores of the k best label sets of a batch, and the sets, k rows a sample."""
        head: Any = self.head
        scores, sets = head.topk_sets(features, k)
        ids = self.code.to_ids(sets.ids.cpu().numpy())
        return scores.cpu().numpy(), self.code.label_sets(sets.indptr.cpu().numpy(), ids)

    def topk_sets(self, X: Any, k: int) -> tuple[list[sp.csr_matrix], np.ndarray]:
        """Return the best k label sets of validated samples, and their scores."""
        head: Any = self.head
        row_bytes = head.bytes_per_row_of_sets(k)
        n_rows = self.rows_beside((_num_samples(X), k), self.dtype, "a smaller k", row_bytes)
        scores, sets = np.empty((_num_samples(X), k), dtype=self.dtype), []
        for rows, features in self.features(X, n_rows, f"the best {k} label sets"):
            with self.net.predicting(features):
                scores[rows], found = self.best_sets(features, k)
            sets.append(found)
        return [sp.vstack([found[rank::k] for found in sets], "csr") for rank in range(k)], scores

    def calibrated(self, scores: Any) -> Any:
        """Return calibrated scores, as an array or a tensor."""
        return scores if self.ranker is None else self.ranker(scores)

    def probabilities(self, scores: Any) -> Any:
        """Return probabilities of all labels from their scores."""
        return self.head.probabilities(self.calibrated(scores))

    def head_inputs(self, X: Any) -> np.ndarray:
        """Return the inputs of the head's last layer for validated samples."""
        inputs, features = self.head.layer_inputs, self.features(X)
        with self.net.predicting():
            return np.concatenate([inputs(batch).cpu().numpy() for _, batch in features])

    def dense_features(self, X: Any, width: int) -> np.ndarray:
        """Return dense features of validated samples."""
        given = _rows_of(X).X.dtype
        dtype = given if given in TORCH_DTYPES else self.dtype
        shape = (_num_samples(X), width)
        at_once = self.rows_beside(shape, dtype, "parts of X", 2 * width * dtype.itemsize)
        out = np.empty(shape, dtype=dtype)
        for rows, features in self.features(X, at_once):
            out[rows] = features_of(features).cpu().numpy()
        return out

    def dense_scores(self, X: Any, link: Any) -> np.ndarray:
        n_rows, n_labels = _num_samples(X), self.n_labels
        head, dtype = self.head, self.dtype
        remedy = "predict_topk, which gives the best labels"
        # Beside the scores: their order by label, and two temporaries of the link.
        row_bytes = head.bytes_per_row() + 3 * n_labels * dtype.itemsize
        at_once = self.rows_beside((n_rows, n_labels), dtype, remedy, row_bytes)
        positions = self.code.positions
        order = None if positions is None else shared_tensor(positions)
        out = np.empty((n_rows, n_labels), dtype=dtype)
        for rows, features in self.features(X, at_once, "scores of all labels"):
            with self.net.predicting(features):
                scores = head.scores(features)
                scores = scores if order is None else scores[:, order.to(scores.device)]
                out[rows] = link(scores).cpu().numpy()
                del scores  # before the next batch makes its own
        return out


def _rows_of(X: Any) -> Rows:
    return X if isinstance(X, Rows) else Rows(X)


def _described(X: Any, asked: str) -> dict[str, Any]:
    """Samples, and what the head finds: the same in all processes that hold it."""
    rows = _rows_of(X)
    return {
        "prediction": asked,
        "shape of X": tuple(rows.X.shape),
        "number of samples": len(rows),
        "digest of samples": digest_of(rows, whole=False),
    }


def _is_shared(encoder: Any, rows: Rows) -> bool:
    """Return whether a batch may share the caller's memory, which saves a copy."""
    is_read_only = type(encoder) is MLPEncoder
    return is_read_only and rows.sparse and rows.members is None and rows.X.data.flags.writeable
