"""Rankers of streams: they list a batch, hold it out for a while, and remember it."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._csr import IntArray, mix_bits, places_of
from sklearn_xlc._ids import as_ids
from sklearn_xlc._part import is_auto
from sklearn_xlc.ranking.base import Array, Samples, listed_labels
from sklearn_xlc.ranking.calibration import Calibration, identity
from sklearn_xlc.ranking.memory import Memory, joined, taken
from sklearn_xlc.ranking.retrieving import Retrieving

#: Samples of a stream that are held out at a time, at most, and to learn from, at least.
MOST_HELD, LEAST_HELD = 3000, 100
#: Shares of all samples from which on those that a fit held out, and those of a stream, which are
#: neighbours at once, are taken into a new index.
GROWTH, GROWTH_OF_STREAM = 0.02, 0.1
#: Factor by which the samples grow without new ones, until what was learnt is out of date.
STALE = 4


class Streaming(Retrieving):
    """Base class of rankers with a memory; they learn from batches of a stream.

    Attributes
    ----------
    held_ : dict of str to ndarray, or None
        Held-out samples since the ranker was last learnt, at most 3000: "keys" of their content,
        "scores" and "labels" of the network's lists, and "before", how many samples the network had
        seen.
    n_learnt_ : int
        Number of samples seen when the ranker was last learnt; 0: it waits.
    """

    n_candidates: Any
    max_samples: int
    memory_: Any = None
    estimator_: Any = None
    trees_: Any = None
    network_share_ = 0.0
    held_: Any = None
    n_learnt_: Any = None
    n_known_ = n_counted_ = 0
    n_seen_: int
    n_indexed_: int

    @property
    def _n_first(self) -> int:
        """Number of the network's labels in a list."""
        return 20 if is_auto(self.n_candidates) else int(self.n_candidates)

    @property
    def remembered(self) -> tuple[Samples, Any] | None:
        return (self.memory_["samples"], self.memory_["labels"]) if self.memory_ else None

    @property
    def streams(self) -> bool:
        # Held-out samples are described as they are remembered, and known by what is read of them.
        named = [each for _, each in self._named()]
        is_read = any(each.reads for each in named) and "labels" not in self.reads
        return is_read and all(set(each.reads) <= set(each.fitted_to) for each in named)

    @property
    def waits(self) -> bool:
        return self.n_learnt_ == 0

    def partial_fit(
        self,
        scores: Any,
        Y: Any,
        labels: Any,
        samples: Samples,
        sample_weight: Any = None,
        link: str = "sigmoid",
    ) -> Streaming:
        if not self.streams:
            self._remember_more(samples, Y, sample_weight, in_stream=True)
            return self
        if self.memory_ is None:
            self._begin(samples, link)
        elif self.n_learnt_ is None:  # learnt by `fit`
            self.n_learnt_, self._of_fit = max(1, self.n_seen_), True
        n_before = self.n_seen_
        are_named = "ids" in samples and not _are_positions(np.asarray(samples["ids"]), n_before)
        more, used = self._as_memory(samples, Y, sample_weight)
        more["samples"]["keys"] = keys_of(more["samples"])
        if self.memory_ is not None and "keys" not in self.memory_["samples"]:
            keys = keys_of(self.memory_["samples"])
            self.memory_ = {**self.memory_, "samples": {**self.memory_["samples"], "keys": keys}}
        is_new = self._take_in(more, are_named)
        if n_before and labels.shape[1]:
            lists = np.asarray(scores)[used][is_new], np.asarray(labels)[used][is_new]
            self._hold(more["samples"]["keys"][is_new], *lists, n_before)
        if self.n_seen_ >= 2 * self.n_learnt_:
            self._learn(link)
        return self

    def _remember_more(
        self, samples: Samples, Y: Any, sample_weight: Any, in_stream: bool = False
    ) -> None:
        """Remember later samples; `in_stream`: retrievers know them at once."""
        names_before = self.names_
        more, _ = self._as_memory(self._without_names(samples, Y), Y, sample_weight)
        if "keys" in self.memory_["samples"]:
            more["samples"]["keys"] = keys_of(more["samples"])
        self._keep(joined(self.memory_, more))
        if in_stream:
            self._add_to_index(more)
        else:
            self._drop_old_index()
        # Last: what is fitted to all samples here has the later ones.
        if self.retrievers_ is not None and not np.array_equal(self.names_, names_before):
            # The others know no label by name.
            reading = {name for name, each in self.retrievers_ if "labels" in each.fitted_to}
            self._fit_to_memory(self.retrievers_, reading)
            self._count_labels()

    def _drop_old_index(self, growth: float = GROWTH) -> None:
        n_more = self.n_seen_ - self.n_indexed_
        if self.retrievers_ is not None and n_more > growth * len(self.memory_["weights"]):
            self.retrievers_ = None

    def _add_to_index(self, more: Memory) -> None:
        """Let retrievers know samples of a stream, unless they are fitted to all again."""
        self._drop_old_index(GROWTH_OF_STREAM)
        if self.retrievers_ is not None and len(more["weights"]):
            read_by, Y, weight = self._read_by(more["samples"]), more["labels"], more["weights"]
            self.retrievers_ = [
                (name, each.with_later(read_by(name), Y, weight)) for name, each in self.retrievers_
            ]
            if not self.log_counts_[Y.indices].all():  # a label has its first samples
                self._count_labels()

    def _begin(self, samples: Samples, link: str) -> None:
        """Start without a sample: the map of scores is the identity."""
        self.check()
        if self.axes_ is None:
            self.begin(samples)
        self.held_ = self.retrievers_ = None
        self.estimator_ = self.trees_ = None
        self.n_seen_ = self.n_indexed_ = self.n_learnt_ = 0
        self.line_, self.network_share_ = identity(), 0.0
        self._of_fit = False
        self._fit_vectorizers(samples)
        nothing = np.empty((0, 1))
        self.calibration_ = Calibration().fit(nothing, sp.csr_array((0, 1)), link=link)

    def _take_in(self, more: Memory, are_named: bool) -> Array:
        """Remember samples, each once; return the mask of new ones.

        A sample that comes again has the first id, and the largest set of labels. It is remembered
        twice if neither set is within the other, or if it has a name of its own.
        """
        if self.memory_ is None:
            is_new, whole = np.ones(len(more["weights"]), dtype=bool), more
        else:
            samples, of_more = self.memory_["samples"], more["samples"]
            row = rows_of_keys(samples["keys"], of_more["keys"])
            is_new = row < 0
            if are_named:
                row = _rows_of_names(samples, of_more)
            again = np.flatnonzero(row >= 0)
            old, new = self.memory_["labels"][row[again]], more["labels"][again]
            common = np.asarray(old.multiply(new).sum(axis=1)).ravel()
            is_known = np.diff(new.indptr) == common
            grows = again[~is_known & (np.diff(old.indptr) == common)]
            first, is_within = _largest(row[grows], more["labels"][grows])
            ids = of_more["ids"].astype(object)
            ids[grows[first]] = samples["ids"][row[grows[first]]]
            of_more["ids"] = as_ids(ids)
            left, gone = np.ones(len(is_new), bool), np.zeros(len(samples["keys"]), bool)
            left[again[is_known]] = left[grows[is_within]] = False
            gone[row[grows]] = True
            self.n_indexed_ += int(np.count_nonzero(~left))
            more = more if left.all() else taken(more, left)
            whole = joined(taken(self.memory_, ~gone) if gone.any() else self.memory_, more)
        self._keep(whole)
        self._add_to_index(more)
        return is_new

    def _hold(self, keys: Array, scores: Array, labels: Array, n_before: int) -> None:
        """Hold out samples with their lists."""
        width = self._n_first
        scores, labels = scores[:, :width], labels[:, :width]
        missing = ((0, 0), (0, width - labels.shape[1]))
        more = {
            "keys": keys,
            "scores": np.pad(scores, missing, constant_values=-np.inf),
            "labels": np.pad(listed_labels(scores, labels), missing, constant_values=-1),
            "before": np.full(len(keys), n_before),
        }
        held = self.held_ or {name: array[:0] for name, array in more.items()}
        held = {name: np.concatenate([held[name], array]) for name, array in more.items()}
        # Lists of a network that had seen less than half of the samples tell too little of it.
        used = np.flatnonzero(2 * held["before"] >= self.n_seen_)[-MOST_HELD:]
        self.held_ = {name: array[used] for name, array in held.items()}

    def _learn(self, link: str) -> None:
        """Learn from held-out samples.

        Where there are none, or the stream is sorted, go back to the network's order if what was
        learnt is old, or was learnt from samples that came sorted.
        """
        whole, held = self.memory_, self.held_
        before = np.empty(0) if held is None else held["before"]
        used = np.flatnonzero(2 * before >= self.n_seen_)
        if len(used) >= LEAST_HELD:
            at = rows_of_keys(whole["samples"]["keys"], held["keys"][used])
            used, at = used[at >= 0], at[at >= 0]
            last = np.unique(at[::-1], return_index=True)[1]  # of a sample that came several times
            last = np.sort(len(at) - 1 - last)
            used, at = used[last], at[last]
            most = len(whole["weights"]) // 2  # others are left to search
            used, at = used[-most:], at[-most:]
        if len(used) < LEAST_HELD or _are_strange(whole["labels"], at):
            n_first = len(whole["weights"]) - (self.n_seen_ - self.n_learnt_)
            first = np.arange(max(0, n_first - MOST_HELD), max(0, n_first))
            is_old = self.n_seen_ >= STALE * self.n_learnt_
            if not self._of_fit and (is_old or _are_strange(whole["labels"], first)):
                self.n_learnt_ = 0
            return
        out = taken(whole, at)
        self.memory_ = taken(whole, ~np.isin(whole["samples"]["keys"], held["keys"][used]))
        self._index()
        lists = held["scores"][used], out["labels"], held["labels"][used]
        self.fit(*lists, samples=out["samples"], sample_weight=out["weights"], link=link)
        self.memory_, self.retrievers_, self.held_ = whole, None, None
        self.n_learnt_ = self.n_seen_

    def _held_for(self, memory: Memory, origin: Array | None = None) -> Any:
        """Return the remembered held-out samples, with changed labels if `origin` is given."""
        if self.held_ is None:
            return None
        kept = rows_of_keys(memory["samples"]["keys"], self.held_["keys"]) >= 0
        held = {name: array[kept] for name, array in self.held_.items()}
        if origin is not None:
            n_before = max(origin.max(initial=-1), held["labels"].max(initial=-1)) + 1
            places = places_of(origin, n_before + 1)
            labels = places[held["labels"]]  # -1: the last entry, which is -1
            held |= {"labels": labels, "scores": np.where(labels < 0, -np.inf, held["scores"])}
        return held


def _largest(groups: IntArray, Y: Any) -> tuple[IntArray, Array]:
    """Return the row with most labels of each group, and the mask of others within that of theirs.

    One sample may come several times in a batch: only one of them can have the first id.
    """
    order = np.lexsort((-np.diff(Y.indptr), groups))
    _, start, size = np.unique(groups[order], return_index=True, return_counts=True)
    first, largest = order[start], np.empty(len(groups), dtype=np.int64)
    largest[order] = np.repeat(first, size)
    common = np.asarray(Y.multiply(Y[largest]).sum(axis=1)).ravel()
    is_within = np.diff(Y.indptr) == common
    is_within[first] = False
    return first, is_within


def _are_strange(Y: Any, rows: IntArray) -> bool:
    """Return whether rows come from a part of the stream that is sorted by labels.

    There most samples have a label of the one before, and less than half as many have a label of a
    sample of another part, drawn at random. What is learnt from few labels does not hold of others.
    """
    is_other = np.ones(Y.shape[0], dtype=bool)
    is_other[rows] = False
    others = np.flatnonzero(is_other)
    if len(rows) < 2 or not len(others):
        return False
    rows = np.sort(rows)
    drawn = np.random.RandomState(0).randint(len(others), size=len(rows) - 1)
    before = Y[rows[:-1]].astype(np.float32)  # labels are counted in 8 bits

    def share(of: IntArray) -> Any:
        return np.mean(np.asarray(before.multiply(Y[of]).sum(axis=1)) > 0)

    near = share(rows[1:])
    return bool(near > 0.5 and 2 * share(others[drawn]) < near)


def keys_of(samples: Samples) -> Array:
    """Return a number of 64 bits for each sample: equal for equal samples, whatever their "ids".

    Features, which change with the network, count only if there is nothing else.

    Different samples have equal keys with a chance of 2 ** -64; dense and CSR rows have the same.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.ranking.streaming import keys_of
    >>> keys = keys_of({"input": np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])})
    >>> bool(keys[0] == keys[2]), bool(keys[0] == keys[1])
    (True, False)
    """
    total, spaces = None, samples.keys() - {"ids", "keys"}
    for number, space in enumerate(sorted(spaces - {"features"} or spaces)):
        X = samples[space]
        if X.dtype == object:  # texts, as they came
            texts = (text.encode("utf-8", "surrogatepass") for text in X)
            digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
            X = np.frombuffer(digests, np.float64)[:, None]
        X = X if sp.issparse(X) else sp.csr_array(X)
        values = X.data.astype(np.float64).view(np.uint64)
        entries = mix_bits(values + mix_bits(X.indices.astype(np.uint64) + np.uint64(number << 32)))
        entries[X.data == 0] = 0
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entries)])
        keys = sums[X.indptr[1:]] - sums[X.indptr[:-1]]  # modulo 2 ** 64
        total = keys if total is None else total + keys
    return np.empty(0, np.uint64) if total is None else total


def _rows_of_names(samples: Samples, wanted: Samples) -> IntArray:
    """Return the row with each wanted key and id; -1 where there is none."""
    rows = np.flatnonzero(np.isin(samples["keys"], wanted["keys"]))
    keys, ids = samples["keys"][rows].tolist(), samples["ids"][rows].tolist()
    known = dict(zip(zip(keys, ids), rows.tolist()))
    pairs = zip(wanted["keys"].tolist(), wanted["ids"].tolist())
    return np.array([known.get(pair, -1) for pair in pairs], dtype=np.int64)


def _are_positions(ids: Array, n_before: int) -> bool:
    """Return whether ids go on counting after the samples seen before."""
    counts = ids.dtype.kind == "i" and bool((np.diff(ids) > 0).all())
    return counts and bool((ids[:1] >= n_before).all())


def rows_of_keys(keys: Array, wanted: Array) -> IntArray:
    """Return the first row with each wanted key; -1 where there is none."""
    # Few keys end in the same 16 bits as a wanted one: only these are sorted.
    is_end = np.zeros(2**16, dtype=bool)
    is_end[wanted.astype(np.uint16)] = True
    order = np.flatnonzero(is_end[keys.astype(np.uint16)])
    order = order[np.argsort(keys[order], kind="stable")]
    place = np.searchsorted(keys[order], wanted)
    rows = np.full(len(wanted), -1)
    inside = np.flatnonzero(place < len(order))
    found = order[place[inside]]
    rows[inside] = np.where(keys[found] == wanted[inside], found, -1)
    return rows
