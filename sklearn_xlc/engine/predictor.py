"""Compute features, best labels and scores of a fitted network, batch by batch."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.validation import check_is_fitted
from torch.nn import functional as F

from sklearn_xlc._bounds import check_dense_size, check_flag, checked_k
from sklearn_xlc._config import get_config, memory_limit
from sklearn_xlc._csr import row_blocks, rows_in
from sklearn_xlc._ranking import lists_as_csr
from sklearn_xlc.batches import (
    ONE_THREAD,
    Batch,
    BatchIterator,
    Rows,
    Threads,
    features_of,
    is_ours,
    make_batch,
    one_thread_of_blas,
    usual_threads,
)
from sklearn_xlc.distributed import agreed_batch, processes_of
from sklearn_xlc.encoders import InputLinear, MLPEncoder, is_perceptron
from sklearn_xlc.engine.building import inputs_for, vectorized
from sklearn_xlc.engine.columns import as_read, width_of_standardised
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.memory import SMALL, refuse_beyond
from sklearn_xlc.engine.validation import check_features
from sklearn_xlc.ranking import (
    among_all,
    class_probabilities,
    listed_probabilities,
    log_shares,
    with_unlisted,
)
from sklearn_xlc.training import (
    TORCH_DTYPES,
    XLCNet,
    check_unread,
    digest_of,
    keep_memory,
    numpy_dtype,
    shared_tensor,
)

#: Samples per batch in prediction.
PREDICT_BATCH = 512
#: Features in a larger batch of a search for the best labels: fewer batches cost less.
_FEATURES = 2**21
#: Numbers that torch's kernels compute at a time, at most.
_OF_VECTORS = 64
#: Scores of all labels from which probabilities are made at a time.
_IN_CACHES = 2**18
#: Samples of a batch, at least, where many samples are divided among threads.
_LEAST_BATCH = 256

#: Scores and labels of lists of samples, best first.
Lists = tuple[np.ndarray, np.ndarray]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Encoded:
    """Features of a batch of samples, and what the ranker reads of them, by space.

    `lists` keeps the ranker's lists, once they are made.
    """

    features: Any
    read: dict[str, Any]
    lists: list[Lists] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def is_divisible(self) -> bool:
        """Whether samples can be taken; those of bags stay together."""
        return isinstance(self.features, torch.Tensor)

    def take(self, index: np.ndarray) -> Encoded:
        """Return the samples of `index`."""
        features = self.features[torch.from_numpy(index).to(self.features.device)]
        return Encoded(features, {name: read[index] for name, read in self.read.items()})


def predictor_of(classifier: Any) -> Predictor:
    """Return the predictor of a fitted classifier; other rooms read it by this function."""
    if not hasattr(classifier, "net_"):
        check_is_fitted(classifier, "net_")
    return Predictor(
        classifier.net_, classifier._code, classifier._sparse_inputs, classifier.ranker_
    )


def samples_of(classifier: Any, X: Any) -> Rows:
    """Return validated samples for the predictor of a fitted classifier."""
    return classifier._validate_predict(X)


def truth_of(classifier: Any, y: Any) -> Any:
    """Return true labels: class labels, or an indicator with columns of unseen labels last."""
    return classifier._truth(y)


@dataclass(frozen=True)
class Predictor:
    """Rank, score and encode validated samples with a fitted network, its label code and ranker."""

    net: XLCNet
    code: LabelCode
    sparse: bool
    ranker: Any = None

    @property
    def head(self) -> Any:
        """Head of the network."""
        return self.net.module_.head

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return self.code.n_labels

    def check_k(self, k: int | None) -> int:
        """Return the validated number of labels of each sample."""
        return checked_k(k, self.n_labels)

    @property
    def dtype(self) -> np.dtype:
        """Type of the scores."""
        return numpy_dtype(self.net.module_)

    def features(
        self, X: Rows, n_rows: int = PREDICT_BATCH, asked: str = ""
    ) -> Iterator[tuple[slice, Any]]:
        """Yield slices and features of batches of at most `n_rows`; `asked` names the output."""
        keep_memory()
        if asked:
            n_rows = agreed_batch(self.head, n_rows, lambda: _described(X, asked))
        for part, batch in _numbered(self.batches(X, n_rows)):
            yield part, self._features(part, batch)

    def _features(self, part: slice, batch: Batch) -> Any:
        check_unread(self.net.module_)
        features = self.net.features(batch)
        check_features(features, part.start)
        return features

    def batches(self, rows: Rows, n_rows: int) -> Iterable[Batch]:
        """Return batches of at most `n_rows` validated samples."""
        encoder, device = self.net.module_.encoder, torch.device(self.net.device)
        if rows.X.dtype != object:
            rows = replace(rows, X=rows.X.astype(self.dtype, copy=False))
        n_instances = max(1, rows.n_instances)
        rows = inputs_for(encoder, rows, self.sparse)
        batch_size = max(1, min(n_rows, self.most_at_once() * len(rows) // n_instances))
        is_read_only = type(encoder) is MLPEncoder and rows.sparse and rows.members is None
        if batch_size >= len(rows) and is_read_only and rows.X.data.flags.writeable:
            return [make_batch(rows).to(device)]  # in the caller's memory, which saves a copy
        return BatchIterator(rows, batch_size, None, device)

    def most_at_once(self) -> int:
        """Return the batch size of a search for the best labels."""
        encoder = self.net.module_.encoder
        if type(encoder) is not MLPEncoder:
            return PREDICT_BATCH
        return max(PREDICT_BATCH, min(4 * PREDICT_BATCH, _FEATURES // len(encoder.input.bias)))

    def rows_at_once(self, row_bytes: int, most: int = PREDICT_BATCH) -> int:
        """Return the batch size within `working_memory`, at least one."""
        together = max(1, row_bytes) * self._n_together
        return max(1, min(most, memory_limit() // together))

    @property
    def _n_together(self) -> int:
        """Number of batches in memory, at most: threads compute them side by side."""
        n_threads = usual_threads()
        return n_threads if n_threads > 1 and self._is_shareable else 1

    def rows_beside(
        self,
        shape: tuple[int, int],
        dtype: Any,
        remedy: str,
        row_bytes: int,
        at_most: int = PREDICT_BATCH,
    ) -> int:
        """Return the batch size within the memory limits, beside a dense output.

        Raise MemoryError if the output, or its smallest batch, does not fit.
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        most = max(1, min(shape[0], self.rows_at_once(row_bytes, at_most)))
        row_bytes *= self._n_together
        # Fewer than these would make prediction slow and save little.
        least = max(1, min(most, size // 8 // max(1, row_bytes)))
        check_dense_size(shape, dtype, remedy, least * row_bytes)
        left = get_config()["dense_limit"] - size
        n_rows = max(least, min(most, left // max(1, row_bytes)))
        if size + n_rows * row_bytes > SMALL:
            what = f"a dense result of shape {shape}"
            room = refuse_beyond(size + least * row_bytes, what, remedy) - size
            n_rows = max(least, int(min(n_rows, room / max(1, row_bytes))))
        return n_rows

    # --- ranked labels ----------------------------------------------------------------------

    @property
    def lists(self) -> bool:
        """Whether the ranker makes lists of labels, in an order of its own."""
        return self.ranker is not None and not self.ranker.keeps_order

    def each(
        self, rows: Rows, n_rows: int, asked: str, compute: Callable[[slice, Encoded], Result]
    ) -> Iterator[tuple[slice, Result]]:
        """Yield slices of batches, and what `compute` returns of the slice and the encoded batch.

        Many samples are computed in threads, several batches side by side. `asked` names the output
        for messages.
        """
        keep_memory()
        if self.lists:
            with one_thread_of_blas():
                self.ranker.prepare()
            if "input" in self.ranker.reads:  # texts are read once for both
                rows = vectorized(self.net.module_.encoder, rows, False)
        if asked:
            n_rows = agreed_batch(self.head, n_rows, lambda: _described(rows, asked))
        threads = self._threads(len(rows))
        if threads.n > 1:  # as many batches for each
            n_batches = threads.n * -(-len(rows) // (threads.n * n_rows))
            n_rows = min(n_rows, max(_LEAST_BATCH, -(-len(rows) // n_batches)))

        def of_batch(numbered: tuple[slice, Batch]) -> tuple[slice, Result]:
            part, batch = numbered
            features = self._features(part, batch)
            with self.net.predicting(features):
                return part, compute(part, Encoded(features, self._read(rows, part, features)))

        with (
            one_thread_of_blas() if self.lists else contextlib.nullcontext(),
            contextlib.closing(_numbered(self.batches(rows, n_rows))) as batches,
        ):
            yield from threads.map(of_batch, batches)

    def _threads(self, n_samples: int) -> Threads:
        if n_samples < 2 * _LEAST_BATCH or not self._is_shareable:
            return ONE_THREAD
        return Threads.for_work(n_samples * self.net.n_met)

    @property
    def _is_shareable(self) -> bool:
        """Whether several threads may predict at once: the parts are ours, in one process.

        On a GPU the network's own order gains nothing by threads.
        """
        encoder, head = self.net.module_.encoder, self.head
        is_plain = is_perceptron(encoder) and is_ours(type(head))
        ranks_alone = self.ranker is not None and not self.ranker.is_threadsafe
        device = torch.device(self.net.device).type
        gains = device == "cpu" or (device == "cuda" and self.lists)
        is_alone = processes_of(head).size == 1  # messages to others have one order
        return is_plain and gains and is_alone and not ranks_alone

    def _read(self, rows: Rows, part: slice, features: Any) -> dict[str, Any]:
        """Return what the ranker reads of samples, by the names of its spaces."""
        spaces = self.ranker.reads if self.lists else ()
        read: dict[str, Any] = {}
        if "input" in spaces:
            read["input"] = self.inputs(rows.take(part))
        if "given" in spaces:
            read["given"] = rows.take(part).as_given()
        if "features" in spaces:
            read["features"] = features_of(features).cpu().numpy()
        return read

    def inputs(self, rows: Rows) -> Any:
        """Return samples as the encoder reads them: CSR, or dense, with columns as scaled.

        Standardised columns stand beside one of ones. Rankers compare directions, and where few
        columns vary, the length of a sample tells as much.
        """
        encoder = self.net.module_.encoder
        X = vectorized(encoder, rows, False).X
        if width_of_standardised(encoder):
            return np.insert(as_read(encoder.input, rows.samples()), 0, 1, axis=1)
        X = sp.csr_matrix(X) if self.sparse and not sp.issparse(X) else X
        layer = getattr(encoder, "input", None)
        return as_read(layer, X) if isinstance(layer, InputLinear) and self.sparse else X

    @property
    def link(self) -> str | None:
        """Function from scores to probabilities; corrected classes are normalised again."""
        corrected = self.ranker is not None and not self.code.multilabel
        return "softmax" if corrected else self.head.link

    def best(self, batch: Encoded, k: int, normalised: bool = False) -> Lists:
        """Return the scores and ids of the network's k best labels of a batch.

        Scores of classes are log probabilities if `normalised`, which computes the scores of all.
        """
        head = self.head
        scores, positions = head.topk(batch.features, k)
        if normalised and head.link == "softmax":
            scores = scores - head.scores(batch.features).logsumexp(1, keepdim=True)
        return scores.cpu().numpy(), self.code.to_ids(positions.cpu().numpy())

    def ranked(self, batch: Encoded, k: int) -> Lists:
        """Return scores and ids of the k best labels of a batch, in the ranker's order."""
        if not self.lists:
            return self.completed(None, self.best(batch, k), k)
        lists, network = self.listed(batch, k)
        if network[1].shape[1] < k and _are_short(lists, k):
            network = self.best(batch, k)
        return self.completed(lists, network, k)

    def listed(self, batch: Encoded, k: int = 0) -> tuple[Lists, Lists]:
        """Return the ranker's lists, padded with label -1, and the network's, of k labels at best.

        A wider beam would find other labels than those that are ranked: it is as wide as the
        ranker reads.
        """
        n_read = self.ranker.n_listed(self.n_labels, self.link)
        width = max(k, n_read) if self.head.searches_all else n_read
        of_classes, shares = not self.code.multilabel, self.ranker.reads_shares
        scores, ids = self.best(batch, width, normalised=of_classes and not shares)
        if not batch.lists:  # what follows asks for them again
            read = log_shares(scores[:, :n_read]) if of_classes and shares else scores[:, :n_read]
            batch.lists.append(self._ranked(read, ids[:, :n_read], batch.read))
        return batch.lists[0], (scores, ids)

    def lists_of(self, batch: Encoded) -> Lists:
        """Return the ranker's lists, as :meth:`listed`, made once for a batch."""
        return batch.lists[0] if batch.lists else self.listed(batch)[0]

    def _ranked(self, scores: np.ndarray, ids: np.ndarray, read: dict[str, Any]) -> Lists:
        """Return the ranker's lists; of processes that hold the network each ranks a part."""

        def of(part: slice) -> Lists:
            own = {space: rows_in(X, part) for space, X in read.items()}
            return self.ranker.rank(scores[part], ids[part], own)  # type: ignore[no-any-return]

        return _stacked(processes_of(self.head).shared(len(scores), of))

    def completed(self, lists: Lists | None, network: Lists, k: int) -> Lists:
        """Return the k best labels: those of the ranker's lists, then others in network order.

        `network`: scores and ids of its best labels, at least `k`. `lists` None: the ranker keeps
        their order.
        """
        if lists is not None and not _are_short(lists, k):
            return lists[0][:, :k], lists[1][:, :k]
        # Of the network's k best labels, at least as many are in no list as a list is short of k.
        scores, ids = self.calibrated(network[0][:, :k]), network[1][:, :k]
        return (scores, ids) if lists is None else with_unlisted(*lists, scores, ids, k)

    def all_scores(self, batch: Encoded, out: Any = None) -> Any:
        """Return the scores of all labels of a batch, in the order of the labels, as a tensor.

        `out`: tensor to write to.
        """
        return self._of_all(batch, self._in_order, out)

    def all_probabilities(self, batch: Encoded, out: Any = None) -> Any:
        """Return the probabilities of all labels of a batch, as :meth:`all_scores`."""

        def of(scores: Any, lists: Lists | None) -> Any:
            scores = self._in_order(scores, lists)
            if self.link != "softmax":
                return self._alone(scores)
            if lists is None:
                return self.mixed(scores.softmax(1))
            floor = self.ranker.floor_
            return torch.from_numpy(class_probabilities(*lists, scores.numpy(), floor))

        return self._of_all(batch, of, out)

    def _alone(self, scores: Any) -> Any:
        """Return probabilities of labels by themselves from their scores.

        Torch rounds the last numbers of an array in another way than whole vectors of them. Zeros
        behind them keep the order of the scores, and a sample the same in any batch.
        """
        if not is_ours(type(self.head).probabilities):
            return self.head.probabilities(scores)
        padded = F.pad(scores.flatten(), (0, -scores.numel() % _OF_VECTORS))
        return self.head.probabilities(padded)[: scores.numel()].view(scores.shape)

    def _of_all(
        self, batch: Encoded, values: Callable[[Any, Lists | None], Any], out: Any = None
    ) -> Any:
        """Return values of all labels, made of the network's scores and the ranker's lists, if any.

        On the processor a few samples at a time: what is between stays in caches.
        """
        head, positions = self.head, self.code.positions
        scores = head.scores(batch.features)
        lists = self.lists_of(batch) if self.lists else None
        at = None if positions is None else shared_tensor(positions).to(scores.device)
        at_once = _IN_CACHES if scores.device.type == "cpu" else scores.numel()
        for part in row_blocks(len(scores), self.n_labels, at_once):
            some = scores[part] if at is None else scores[part][:, at]
            found = values(self.calibrated(some), lists and (lists[0][part], lists[1][part]))
            out = found.new_empty(len(scores), self.n_labels) if out is None else out
            out[part] = found
        return out

    def _in_order(self, scores: Any, lists: Lists | None) -> Any:
        """Return scores of all labels, those in the ranker's lists above all others."""
        if lists is None:
            return scores
        return torch.from_numpy(among_all(*lists, scores.cpu().numpy()))

    def mixed(self, shares: Any) -> Any:
        """Return probabilities by a softmax with the share that all classes have alike."""
        floor = 0.0 if self.ranker is None else self.ranker.floor_
        return shares + floor * (1 / self.n_labels - shares) if floor else shares

    def calibrated(self, scores: Any) -> Any:
        """Return calibrated scores, as an array or a tensor."""
        return scores if self.ranker is None else self.ranker(scores)

    def topk(
        self, X: Rows, k: int, n_rows: int | None = None, proba: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return label ids and scores of validated samples, both of shape (n_samples, k).

        Best labels come first. `n_rows` is the batch size; with `proba` scores are probabilities.
        """
        n_rows = n_rows or self.rows_at_once(self.head.bytes_per_row(k), self.most_at_once())
        ids = np.empty((len(X), k), dtype=np.int64)
        scores = np.empty((len(X), k), dtype=self.dtype)

        def best(_: slice, batch: Encoded) -> tuple[np.ndarray, np.ndarray]:
            values, found = self.ranked(batch, k)
            if proba:
                values = self.probabilities_of(batch, values, found)
            return values, found

        for rows, (values, found) in self.each(X, n_rows, f"the best {k} labels, {proba=}", best):
            scores[rows], ids[rows] = values, found
        return ids, scores

    def probabilities_of(self, batch: Encoded, scores: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return the probabilities of ranked labels of a batch."""
        if self.link != "softmax":
            return self._alone(torch.from_numpy(scores)).numpy()  # type: ignore[no-any-return]
        if self.lists and not _are_short(lists := self.lists_of(batch), ids.shape[1]):
            listed = listed_probabilities(*lists, self.n_labels)[0]
            return listed[:, : ids.shape[1]].astype(scores.dtype)
        # Which the classes of a sample share.
        n_rows = self.rows_at_once(self.head.bytes_per_row())
        if len(batch) > n_rows and batch.is_divisible:  # lists were expected to be long enough
            parts = [np.arange(len(batch))[part] for part in row_blocks(len(batch), 1, n_rows)]
            return np.concatenate(
                [self.probabilities_of(batch.take(part), scores[part], ids[part]) for part in parts]
            )
        every = self.all_probabilities(batch).cpu().numpy()
        return np.take_along_axis(every, ids, axis=1)

    def checked_topk(
        self, X: Rows, k: int, names: Any, proba: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return label ids and scores; raise MemoryError if they and `names` would not fit."""
        if check_flag(proba, "proba") and self.link is None:
            raise ValueError(
                "proba=True needs a loss that defines probabilities, and the classifier was fitted "
                "with another; use proba=False, or another loss"
            )
        dtype = np.dtype([("id", np.int64), ("score", self.dtype), ("name", names)])
        normalised = proba and self.link == "softmax"  # by the scores of all labels
        if self.lists:
            normalised = normalised and k > self.ranker.n_listed(self.n_labels, self.link)
        row_bytes = self.head.bytes_per_row(None if normalised else k) + k * dtype.itemsize
        most = PREDICT_BATCH if normalised else self.most_at_once()
        n_rows = self.rows_beside((len(X), k), dtype, "a smaller k", row_bytes, most)
        return self.topk(X, k, n_rows, proba)

    def topk_sparse(self, X: Rows, k: int) -> sp.csr_matrix:
        """Return scores of the k best labels of validated samples, in the order of the labels."""
        ids, scores = self.checked_topk(X, k, np.int32)
        return lists_as_csr(scores, ids, self.n_labels)

    def best_sets(self, features: Any, k: int) -> tuple[np.ndarray, sp.csr_matrix]:
        """Return scores of the k best label sets of a batch, and the sets, k rows a sample."""
        scores, sets = self.head.topk_sets(features, k)
        ids = self.code.to_ids(sets.ids.cpu().numpy())
        return scores.cpu().numpy(), self.code.label_sets(sets.indptr.cpu().numpy(), ids)

    def topk_sets(self, X: Rows, k: int | None) -> tuple[list[sp.csr_matrix], np.ndarray]:
        """Return the best k label sets of validated samples, and their scores."""
        k = checked_k(k, 2**self.n_labels, f"label sets of {self.n_labels} labels")
        row_bytes = self.head.bytes_per_row_of_sets(k)
        n_rows = self.rows_beside((len(X), k), self.dtype, "a smaller k", row_bytes)
        scores, sets = np.empty((len(X), k), dtype=self.dtype), []
        for rows, features in self.features(X, n_rows, f"the best {k} label sets"):
            with self.net.predicting(features):
                scores[rows], found = self.best_sets(features, k)
            sets.append(found)
        return [sp.vstack([found[rank::k] for found in sets], "csr") for rank in range(k)], scores

    def head_inputs(self, X: Rows) -> np.ndarray:
        """Return the inputs of the head's last layer for validated samples."""
        inputs, features = self.head.layer_inputs, self.features(X)
        with self.net.predicting():
            return np.concatenate([inputs(batch).cpu().numpy() for _, batch in features])

    def dense_features(self, X: Rows, width: int) -> np.ndarray:
        """Return dense features of validated samples."""
        dtype = X.X.dtype if X.X.dtype in TORCH_DTYPES else self.dtype
        shape = (len(X), width)
        at_once = self.rows_beside(shape, dtype, "parts of X", 2 * width * dtype.itemsize)
        out = np.empty(shape, dtype=dtype)
        for rows, features in self.features(X, at_once):
            out[rows] = features_of(features).cpu().numpy()
        return out

    def dense(self, X: Rows, values: Callable[[Encoded, Any], Any]) -> np.ndarray:
        """Return values of all labels of validated samples: scores, or probabilities."""
        shape, dtype = (len(X), self.n_labels), self.dtype
        remedy = "predict_topk, which gives the best labels"
        # Beside the scores: their order by label, and two temporaries of the link.
        row_bytes = self.head.bytes_per_row() + 3 * self.n_labels * dtype.itemsize
        at_once = self.rows_beside(shape, dtype, remedy, row_bytes)
        out = np.empty(shape, dtype=dtype)

        def fill(rows: slice, batch: Encoded) -> None:
            values(batch, torch.from_numpy(out[rows]))

        for _ in self.each(X, at_once, "scores of all labels", fill):
            pass
        return out


def _numbered(batches: Iterable[Batch]) -> Generator[tuple[slice, Batch], None, None]:
    """Yield batches with the slices of their samples."""
    start = 0
    for batch in batches:
        yield slice(start, start + len(batch)), batch
        start += len(batch)


def _are_short(lists: Lists, k: int) -> bool:
    """Return whether some lists have fewer than k labels."""
    return int(np.count_nonzero(lists[1] >= 0, axis=1).min(initial=k)) < k


def _stacked(parts: list[Lists]) -> Lists:
    """Stack the lists of samples, the shorter ones padded with label -1."""
    if len(parts) == 1:
        return parts[0]
    width = max(ids.shape[1] for _, ids in parts)

    def padded(values: np.ndarray, fill: float) -> np.ndarray:
        return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=fill)

    scores = [padded(each, -np.inf) for each, _ in parts]
    return np.concatenate(scores), np.concatenate([padded(ids, -1) for _, ids in parts])


def _described(rows: Rows, asked: str) -> dict[str, Any]:
    """Samples, and what the head finds: the same in all processes that hold it."""
    return {
        "prediction": asked,
        "shape of X": tuple(rows.X.shape),
        "number of samples": len(rows),
        "digest of samples": digest_of(rows, whole=False),
    }
