"""Make lists of labels, and describe each pair of a sample and a listed label by numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sklearn_xlc._config import memory_limit
from sklearn_xlc._csr import IntArray, row_blocks, rows_in
from sklearn_xlc.ranking._order import ListedPairs, worst_listed
from sklearn_xlc.ranking.base import Array, Retriever, Samples, listed_labels
from sklearn_xlc.ranking.search import distinct

#: Place of the count of a label among the numbers of a pair.
_COUNT = 2
#: Samples of a label whose count is read half as it is, and half as it was.
_FEW = 10
#: Samples that are described at a time, at most, and bytes of temporary arrays for each entry.
_ROWS, _BYTES = 1024, 64


@dataclass(frozen=True)
class Describing:
    """Lists of the network and of retrievers, and the numbers that describe a listed label.

    Parameters
    ----------
    retrievers : list of (str, Retriever)
        Fitted retrievers.
    read_by : callable
        Returns, from samples, a function of the name of a retriever: what it reads of them.
    log_counts : ndarray of shape (n_labels,)
        Logarithm of one more than the training samples with each label.
    log_ratio : float
        Logarithm of the training samples that were known when a classifier learnt the numbers, over
        those known now. A label that grew as all others did is as frequent as before; of labels
        with few samples, the number tells how much is known of them, which has grown.
    n_first : int
        Number of the network's best labels in a list, at most.
    hides_unseen : bool
        Whether a list leaves out what the network says of labels without training samples: noise.
    """

    retrievers: list[tuple[str, Retriever]]
    read_by: Callable[[Samples], Callable[[str], Any]]
    log_counts: Array
    log_ratio: float
    n_first: int
    hides_unseen: bool

    @property
    def names(self) -> list[str]:
        """Names of the numbers."""
        names = ["score", "below_best", "count"]
        for name, each in self.retrievers:
            names += [f"{name}__{number}" for number in each.get_feature_names_out()]
        return names

    @property
    def monotonic(self) -> list[int]:
        """1 for each number that never lowers a label as it grows, 0 for the others."""
        return [1, 1, 0, *(sign for _, each in self.retrievers for sign in each.monotonic)]

    def pairs(self, scores: Array, labels: Array, samples: Samples | None) -> ListedPairs:
        """Return all pairs of sample and listed label, sorted; in blocks of samples."""
        sizes = [each.entries_per_sample for _, each in self.retrievers]
        at_once = memory_limit() // (_BYTES * max(1, *sizes, self.n_first))
        parts = []
        for part in row_blocks(len(scores), 1, max(1, min(_ROWS, at_once))):
            some = {space: rows_in(X, part) for space, X in (samples or {}).items()}
            found = self._of_block(scores[part], labels[part], some)
            parts.append(found._replace(rows=found.rows + part.start))
        if not parts:
            none = np.empty(0, np.int64)
            return ListedPairs(none, none, np.empty(0), np.empty((0, 0), np.float32))
        return ListedPairs(*(np.concatenate(column) for column in zip(*parts)))

    def _of_block(self, scores: Array, labels: Array, samples: Samples) -> ListedPairs:
        scores, labels = self._first(scores, labels)
        read_by, own = self.read_by(samples), self._keys(labels)
        found = [each.search(read_by(name), scores, labels) for name, each in self.retrievers]
        added = [
            _checked_candidates(name, each.candidates(one), len(labels), len(self.log_counts))
            for (name, each), one in zip(self.retrievers, found)
        ]
        keys = distinct(np.concatenate([own, *map(self._keys, added)]))
        rows, listed = np.divmod(keys, max(1, len(self.log_counts)))
        present, positions = labels >= 0, np.searchsorted(keys, own)
        # A label that the network does not list scores a little less than its last one.
        last = worst_listed(scores, labels)
        last = np.where(np.isfinite(last), last, 1)
        values, by_network = (last - 1)[rows].astype(np.float32), np.full(len(keys), -np.inf)
        values[positions] = by_network[positions] = scores[present]
        best = np.where(present, scores, -np.inf).max(axis=1, initial=-np.inf)
        best = np.where(np.isfinite(best), best, 0).astype(np.float32)
        columns = [values, values - best[rows], self._counts_then(listed)]
        numbers = [
            _checked_numbers(name, each, each.numbers(one, rows, listed), len(rows))
            for (name, each), one in zip(self.retrievers, found)
        ]
        described = np.concatenate([np.stack(columns, axis=1), *numbers], axis=1)
        return ListedPairs(rows, listed, by_network, described.astype(np.float32))

    def _counts_then(self, labels: IntArray) -> Array:
        """Return logarithms of counts, those of many samples as they were to be expected then."""
        now = self.log_counts[labels]
        return now + self.log_ratio * (1 - _FEW / (np.expm1(now) + _FEW))

    def _first(self, scores: Array, labels: Array) -> tuple[Array, Array]:
        """Return the network's lists: labels that are left out, and what is no score, are -1."""
        scores, n_labels = scores[:, : self.n_first], len(self.log_counts)
        labels = listed_labels(scores, labels[:, : self.n_first]).astype(np.int64)
        if labels.size and labels.max() >= n_labels:
            raise ValueError(
                f"the network lists label {labels.max()}, but only {n_labels} labels are "
                "remembered: call remember again after labels were added"
            )
        if self.hides_unseen:
            scores = np.where(self.log_counts[labels] > 0, scores, -np.inf)
            labels = listed_labels(scores, labels)
        return scores, labels

    def _keys(self, labels: Array) -> IntArray:
        """Return one integer for each pair of a sample and a label."""
        rows, columns = np.nonzero(labels >= 0)
        return rows * np.int64(len(self.log_counts)) + labels[rows, columns]


def hide_equal_counts(pairs: ListedPairs, remembered: Any, held: Any) -> None:
    """Set counts of labels to zero where labels differ less in size than by chance.

    Of labels of one size, the more samples are remembered, the fewer are held out: trees would
    learn that a label with many is false. `remembered`, `held`: indicators of labels.
    """
    counts = np.bincount(np.concatenate([remembered.indices, held.indices]))
    counts = counts[counts > 0]
    # Both are equal in a Poisson distribution.
    if len(pairs.rows) and counts.size and counts.var() < counts.mean():
        pairs.numbers[:, _COUNT] = 0


def _checked_candidates(name: str, labels: Any, n_samples: int, n_labels: int) -> Array:
    """Return the labels that a retriever lists; raise ValueError if they are none."""
    labels = np.asarray(labels)
    is_matrix = labels.ndim == 2 and (len(labels) == n_samples or not labels.size)
    is_matrix &= labels.dtype.kind in "iu" or not labels.size
    if not is_matrix or labels.max(initial=-1) >= n_labels:
        raise ValueError(
            f"candidates of the retriever {name!r} must be labels below {n_labels} in an array of "
            f"{n_samples} rows of integers, got {labels.max(initial=-1)} in shape {labels.shape} "
            f"of dtype {labels.dtype}"
        )
    return labels


def _checked_numbers(name: str, retriever: Retriever, numbers: Any, n_pairs: int) -> Array:
    """Return what a retriever says of labels; raise ValueError for another shape, or NaN."""
    numbers = np.asarray(numbers)
    expected = (n_pairs, len(retriever.monotonic))
    if numbers.shape != expected or not np.isfinite(numbers).all():
        raise ValueError(
            f"numbers of the retriever {name!r} must be finite and of shape {expected}, got "
            + (f"shape {numbers.shape}" if numbers.shape != expected else "NaN or infinity")
        )
    return numbers
