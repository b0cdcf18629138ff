"""Synthetic multi-label data of any size, made block by block: it never has to fit into memory."""

import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._csr import mix_bits, row_numbers
from sklearn_xlc.datasets import open_csr, save_csr

BLOCK_ROWS = 50_000
#: Number of the block that `test_rows` returns, and of the one whose words make `Documents.idf`.
TEST, COUNTED = 2**31, 2**31 + 1
#: Labels in a topic: neighbours that share half of their features, as in a taxonomy.
TOPIC = 100


class ZipfData:
    """Rows whose features tell their labels; label frequencies follow Zipf's law.

    Every label has `per_label` features of weight 0.5 to 1.5: half its own, half those of its
    topic. A row has those of its labels, a fifth of them replaced by random ones, and norm one.

    Parameters
    ----------
    n_features, n_labels : int
        Columns of X and of Y.
    labels_per_row : float, default=5.4
        Mean number of labels drawn for a row: at least one; repeated ones count once.
    per_label : int, default=10
        Features of a label.
    seed : int, default=0
        Seed of labels and features. Blocks have numbers of their own.
    """

    def __init__(self, n_features, n_labels, labels_per_row=5.4, per_label=10, seed=0):
        self.n_features, self.n_labels = n_features, n_labels
        self.labels_per_row, self.per_label, self.seed = labels_per_row, per_label, seed
        self.cumulated = np.cumsum(1 / np.arange(1, n_labels + 1))
        self.label_of_rank = np.random.default_rng(seed).permutation(n_labels)

    def block(self, n_rows, number):
        """X and Y of one block of rows, CSR."""
        rng = np.random.default_rng([self.seed, number])
        counts = 1 + rng.poisson(self.labels_per_row - 1, n_rows)
        ranks = np.searchsorted(self.cumulated, rng.random(counts.sum()) * self.cumulated[-1])
        labels = self.label_of_rank[np.minimum(ranks, self.n_labels - 1)]
        keys = np.unique(np.repeat(np.arange(n_rows), counts) * self.n_labels + labels)
        rows, labels = np.divmod(keys, self.n_labels)
        indptr = np.searchsorted(rows, np.arange(n_rows + 1))
        ones = np.ones(len(labels), dtype=np.int32)
        Y = sp.csr_matrix((ones, labels, indptr), shape=(n_rows, self.n_labels))
        return self._features(labels, indptr, rng), Y

    def _features(self, labels, indptr, rng):
        of_label = np.arange(self.per_label, dtype=np.uint64)
        is_shared = of_label % np.uint64(2) == 1
        owner = np.where(is_shared, (labels // TOPIC)[:, None] + self.n_labels, labels[:, None])
        words = mix_bits(owner.astype(np.uint64) * np.uint64(self.per_label) + of_label)
        noise = rng.random(words.shape, dtype=np.float32) < 0.2
        words[noise] = rng.integers(2**64, size=np.count_nonzero(noise), dtype=np.uint64)
        columns = ((words >> np.uint64(24)) % np.uint64(self.n_features)).astype(np.int64)
        weights = (words & np.uint64(0xFFFFFF)).astype(np.float32) / np.float32(2**24) + 0.5
        parts = (weights.ravel().astype(np.float32), columns.ravel(), indptr * self.per_label)
        X = sp.csr_matrix(parts, shape=(len(indptr) - 1, self.n_features))
        X.sum_duplicates()
        norms = np.sqrt(np.add.reduceat(X.data**2, X.indptr[:-1]))
        X.data /= norms[row_numbers(X.indptr)]
        return X

    def mapped(self, n_rows, folder=None):
        """X and Y of `n_rows` rows, mapped from files that are deleted with the process."""
        starts = enumerate(range(0, n_rows, BLOCK_ROWS))
        blocks = (self.block(min(BLOCK_ROWS, n_rows - start), number) for number, start in starts)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            save_csr(Path(place, "data.csr"), blocks)
            return open_csr(Path(place, "data.csr"), verify=False)

    def test_rows(self, n_rows):
        """X and Y of rows that no block of `mapped` holds."""
        return self.block(n_rows, number=TEST)


class Documents(ZipfData):
    """Texts as TF-IDF: Zipf's law of words and labels, labels that go together, near duplicates.

    A document has five labels and 30 words on average. Its first label is drawn by frequency; of
    the others three in five are companions of the first, ten labels that are drawn once for all.
    Seven labels in ten bring four of their eight words, half of them shared with the 20 labels of a
    topic; all other words are drawn by frequency. One document in five belongs to a family: its
    labels and words are those of the family, but for a third of the words.

    Parameters
    ----------
    n_rows : int
        Number of documents in the collection. There are as many families as every tenth of them,
        and 200 words for each unit of its square root.
    n_labels : int
        Columns of Y.
    seed : int, default=0
        As of :class:`ZipfData`.
    """

    def __init__(self, n_rows, n_labels, seed=0):
        self.n_families, self.n_labels, self.seed = max(1, n_rows // 10), n_labels, seed
        self.n_features = int(200 * n_rows**0.5)
        rng = np.random.default_rng(seed)
        self.label_of_rank = rng.permutation(n_labels)
        self.word_of_rank = rng.permutation(self.n_features)
        self.idf = np.ones(self.n_features, dtype=np.float32)
        X, _ = self.block(BLOCK_ROWS, COUNTED)
        counts = np.bincount(X.indices, minlength=self.n_features)
        self.idf = (1 + np.log((1 + BLOCK_ROWS) / (1 + counts))).astype(np.float32)

    def block(self, n_rows, number):
        """X and Y of one block of rows, CSR."""
        rng = np.random.default_rng([self.seed, number])
        sources, in_family = rng.integers(2**64, size=n_rows, dtype=np.uint64), rng.random(n_rows)
        is_copy = in_family < 0.2
        sources[is_copy] = 2**40 + rng.integers(
            self.n_families, size=is_copy.sum(), dtype=np.uint64
        )
        rows, labels, slots = self._labels(sources)
        # Four of the eight words of each label: odd ones are those of its topic.
        words, at = _uniform(sources[rows], slots + np.uint64(100), 4), np.repeat(rows, 4)
        picked, owners = (8 * words).astype(np.uint64), labels.astype(np.uint64)[:, None]
        owners = np.where(picked % 2 == 1, owners // 20 + np.uint64(self.n_labels), owners)
        words = mix_bits(owners * np.uint64(8) + picked) % np.uint64(self.n_features)
        words = words.astype(np.int64)
        silent = _uniform(sources[rows], slots + np.uint64(200), 1)[:, 0] < 0.3
        words[silent] = self._frequent(
            _uniform(sources[rows[silent]], slots[silent] + np.uint64(300), 4)
        )
        others = _uniform(sources, np.full(n_rows, 1000, np.uint64), 13)
        words = np.concatenate([words.ravel(), self._frequent(others.ravel())])
        at = np.concatenate([at, np.repeat(np.arange(n_rows), 13)])
        own = is_copy[at] & (rng.random(len(at)) < 1 / 3)
        words[own] = self._frequent(rng.random(own.sum()))
        X = sp.coo_matrix(
            (np.ones(len(at), np.float32), (at, words)), shape=(n_rows, self.n_features)
        ).tocsr()
        X.data = (1 + np.log(X.data)) * self.idf[X.indices]
        X.data /= np.sqrt(np.add.reduceat(X.data**2, X.indptr[:-1]))[row_numbers(X.indptr)]
        Y = sp.coo_matrix(
            (np.ones(len(rows), np.int32), (rows, labels)), shape=(n_rows, self.n_labels)
        ).tocsr()
        Y.data[:] = 1
        return X, Y

    def _labels(self, sources):
        """Rows, labels and their numbers in a row; a label may come twice."""
        first, size = _uniform(sources, np.zeros(len(sources), np.uint64), 2).T
        sizes = 1 + np.minimum(-5 * np.log(1 - size), 30).astype(np.int64)
        rows = np.repeat(np.arange(len(sources)), sizes)
        slots = (np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)).astype("u8")
        drawn, which, one = _uniform(sources[rows], slots + np.uint64(1), 3).T
        heads = self._by_frequency(first)[rows].astype(np.uint64)
        of_head = _uniform(heads, (10 * which).astype(np.uint64), 1)[:, 0]
        labels = self._by_frequency(np.where(one < 0.6, of_head, drawn))
        return rows, np.where(slots == 0, heads.astype(np.int64), labels), slots

    def _by_frequency(self, uniform):
        """Labels of uniform numbers: the one of rank r has a share of log(1 + 1 / r)."""
        ranks = ((self.n_labels + 1.0) ** uniform).astype(np.int64) - 1
        return self.label_of_rank[np.minimum(ranks, self.n_labels - 1)]

    def _frequent(self, uniform):
        """Words of uniform numbers, in the same way."""
        ranks = ((self.n_features + 1.0) ** uniform).astype(np.int64) - 1
        return self.word_of_rank[np.minimum(ranks, self.n_features - 1)]


def _uniform(sources, numbers, n):
    """`n` uniform numbers for each pair of a source and a number, the same for equal pairs."""
    start = mix_bits(mix_bits(sources) + numbers * np.uint64(0x9E3779B97F4A7C15))
    words = mix_bits(start[:, None] + np.arange(n, dtype=np.uint64))
    return (words >> np.uint64(11)) / 2.0**53
