"""Synthetic multi-label data of any size, made block by block: it never has to fit into memory."""

import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from sklearn_xlc._csr import mix_bits, row_numbers
from sklearn_xlc.datasets import open_csr, save_csr

BLOCK_ROWS = 50_000
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
        return self.block(n_rows, number=2**31)
