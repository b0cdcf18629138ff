"""Generators of data with very many labels; label frequencies follow Zipf's law."""

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sklearn_xlc._bounds import check_flag, check_integer, check_real
from sklearn_xlc._checks import check_seed
from sklearn_xlc._csr import IntArray, mix_bits, ones_at, pointers_of, row_numbers

# Number of redraws of a sample's repeated labels; remaining repeats are dropped.
_MAX_REDRAWS = 100


def make_extreme_multiclass(
    n_samples: int = 1000,
    n_features: int = 500,
    n_labels: int = 1000,
    *,
    zipf_exponent: float = 1.0,
    n_features_per_label: int = 8,
    noise: float = 0.25,
    all_classes: bool = False,
    sparse: bool = True,
    random_state: Any = None,
) -> tuple[Any, IntArray]:
    """Generate a multi-class problem with very many classes.

    Every class has a few characteristic features with weights. A sample has the features of its
    class, but each of them is replaced by a random feature with probability `noise`. Samples have
    Euclidean norm one. No array of size ``n_samples * n_labels`` or ``n_labels * n_features`` is
    built, so a million classes fit into memory.

    Parameters
    ----------
    n_samples, n_features : int, default=1000 and 500
        Number of samples, and of features.
    n_labels : int, default=1000
        Number of classes to draw from. Rare classes may not occur in `y`; see `all_classes`.
    zipf_exponent : float, default=1.0
        The r-th most frequent class has a probability proportional to ``r ** -zipf_exponent``;
        0 makes all classes equally likely. Class ids are not ordered by frequency.
    n_features_per_label : int, default=8
        Number of characteristic features of a class.
    noise : float in [0, 1], default=0.25
        Probability of replacing a feature of a sample by noise; at 1 nothing can be learned.
    all_classes : bool, default=False
        Whether every class occurs at least once, which needs ``n_samples >= n_labels``. The
        remaining samples follow Zipf's law.
    sparse : bool, default=True
        Whether to return `X` as a CSR matrix; if False, as an ndarray.
    random_state : int, RandomState instance or None, default=None
        Seed for reproducible data.

    Returns
    -------
    X : csr_matrix or ndarray of shape (n_samples, n_features) and dtype float32
        Samples with at most `n_features_per_label` non-zero features each.
    y : ndarray of shape (n_samples,) and dtype int64
        Class ids in ``range(n_labels)``.

    Examples
    --------
    >>> from sklearn_xlc.datasets import make_extreme_multiclass
    >>> X, y = make_extreme_multiclass(100, 50, 1_000_000, random_state=0)
    >>> X.shape, y.shape
    ((100, 50), (100,))
    """
    _check_common(n_samples, n_features, n_labels, zipf_exponent, n_features_per_label, noise)
    if check_flag(all_classes, "all_classes") and n_samples < n_labels:
        raise ValueError(
            f"all_classes=True needs n_samples >= n_labels, got n_samples={n_samples} and "
            f"n_labels={n_labels}"
        )
    rng = generator(random_state)
    zipf = _Zipf(n_labels, zipf_exponent, rng)
    if all_classes:
        rest = zipf.draw(n_samples - n_labels, rng)
        y = rng.permutation(np.concatenate([np.arange(n_labels), rest]))
    else:
        y = zipf.draw(n_samples, rng)
    indptr = np.arange(n_samples + 1)
    return _rows(y, indptr, n_features, n_features_per_label, noise, sparse, rng), y


def make_extreme_multilabel(
    n_samples: int = 1000,
    n_features: int = 500,
    n_labels: int = 1000,
    *,
    n_labels_per_row: float = 3.0,
    zipf_exponent: float = 1.0,
    n_features_per_label: int = 8,
    noise: float = 0.25,
    allow_unlabeled: bool = False,
    sparse: bool = True,
    random_state: Any = None,
) -> tuple[Any, sp.csr_matrix]:
    """Generate a multi-label problem with very many labels.

    Every label has a few characteristic features with weights. A sample has the features of all its
    labels, but each of them is replaced by a random feature with probability `noise`. Samples have
    Euclidean norm one. No array of size ``n_samples * n_labels`` or ``n_labels * n_features`` is
    built, so a million labels fit into memory.

    Parameters
    ----------
    n_samples, n_features : int, default=1000 and 500
        Number of samples, and of features.
    n_labels : int, default=1000
        Number of labels. Rare labels may not occur in `Y`.
    n_labels_per_row : float, default=3.0
        Mean number of labels of a sample. The number is one (zero with `allow_unlabeled`) plus a
        Poisson-distributed number, and at most `n_labels`, so a mean close to `n_labels` is not
        reached. The labels of a sample are drawn one after the other without replacement.
    zipf_exponent : float, default=1.0
        The r-th most frequent label has, in a single draw, a probability proportional to
        ``r ** -zipf_exponent``; 0 makes all labels equally likely. Label ids are not ordered by
        frequency.
    n_features_per_label : int, default=8
        Number of characteristic features of a label.
    noise : float in [0, 1], default=0.25
        Probability of replacing a feature of a sample by noise; at 1 nothing can be learned.
    allow_unlabeled : bool, default=False
        Whether samples may have no labels. Samples without labels have noise features only, as many
        as one label has.
    sparse : bool, default=True
        Whether to return `X` as a CSR matrix; if False, as an ndarray.
    random_state : int, RandomState instance or None, default=None
        Seed for reproducible data.

    Returns
    -------
    X : csr_matrix or ndarray of shape (n_samples, n_features) and dtype float32
        Samples.
    Y : csr_matrix of shape (n_samples, n_labels) and dtype int32
        Label indicator.

    Examples
    --------
    >>> from sklearn_xlc.datasets import make_extreme_multilabel
    >>> X, Y = make_extreme_multilabel(100, 50, 1_000_000, random_state=0)
    >>> X.shape, Y.shape
    ((100, 50), (100, 1000000))
    """
    _check_common(n_samples, n_features, n_labels, zipf_exponent, n_features_per_label, noise)
    least = 0 if check_flag(allow_unlabeled, "allow_unlabeled") else 1
    check_real(n_labels_per_row, "n_labels_per_row", least, n_labels)
    rng = generator(random_state)
    counts = np.minimum(least + rng.poisson(n_labels_per_row - least, n_samples), n_labels)
    Y = _draw_label_sets(counts, _Zipf(n_labels, zipf_exponent, rng), rng)
    X = _rows(Y.indices, Y.indptr, n_features, n_features_per_label, noise, sparse, rng)
    return X, Y


class _Zipf:
    """Distribution of label ids; the probability of a label is a power of its random rank."""

    def __init__(self, n_labels: int, exponent: float, rng: np.random.Generator) -> None:
        self.n_labels = n_labels
        self.cumulated = np.cumsum(np.arange(1, n_labels + 1, dtype=np.float64) ** -exponent)
        self.id_of_rank = rng.permutation(n_labels)

    def draw(self, size: int, rng: np.random.Generator) -> IntArray:
        """Draw label ids independently; int64."""
        ranks = np.searchsorted(self.cumulated, rng.random(size) * self.cumulated[-1], "right")
        # Rounding may push a draw past the last rank.
        return self.id_of_rank[np.minimum(ranks, self.n_labels - 1)]


def _draw_label_sets(counts: IntArray, zipf: _Zipf, rng: np.random.Generator) -> sp.csr_matrix:
    """Draw a CSR indicator with the given number of labels in each row."""
    # Redrawing repeated labels amounts to drawing one after the other without replacement.
    rows = np.repeat(np.arange(len(counts)), counts)
    keys = rows * zipf.n_labels + zipf.draw(len(rows), rng)
    for _ in range(_MAX_REDRAWS):
        keys.sort()
        repeats = np.flatnonzero(keys[1:] == keys[:-1])
        if not repeats.size:
            break
        keys[repeats] += zipf.draw(len(repeats), rng) - keys[repeats] % zipf.n_labels
    keys = np.unique(keys)
    rows, labels = np.divmod(keys, zipf.n_labels)
    indptr = pointers_of(np.bincount(rows, minlength=len(counts)))
    return ones_at(labels, indptr, zipf.n_labels, np.int32)


def _rows(
    labels: npt.NDArray[Any],
    indptr: npt.NDArray[Any],
    n_features: int,
    n_features_per_label: int,
    noise: float,
    sparse: bool,
    rng: np.random.Generator,
) -> Any:
    """Draw samples of norm one; sample i has the labels ``labels[indptr[i] : indptr[i + 1]]``."""
    seed = rng.integers(2**64, dtype=np.uint64)
    counts = np.diff(indptr)
    # A sample without labels has one slot of pure noise.
    slots = np.maximum(counts, 1)
    slot_indptr = pointers_of(slots)
    is_label = np.repeat(counts > 0, slots)
    characters = np.zeros(len(is_label), dtype=np.uint64)
    characters[is_label] = labels
    # Hashing replaces a table of the features of all labels: only drawn labels take memory.
    characters = mix_bits(
        characters[:, None] * np.uint64(n_features_per_label)
        + np.arange(n_features_per_label, dtype=np.uint64)
        + seed
    )
    is_noise = rng.random(characters.shape, dtype=np.float32) < noise
    is_noise |= ~is_label[:, None]
    characters[is_noise] = rng.integers(2**64, size=np.count_nonzero(is_noise), dtype=np.uint64)
    # High bits give the feature, low bits a weight in [0.5, 1.5).
    features = (characters >> np.uint64(24)) % np.uint64(n_features)
    weights = (characters & np.uint64(0xFFFFFF)).astype(np.float32) / np.float32(2**24)
    parts = (
        weights.ravel() + np.float32(0.5),
        features.ravel().astype(np.int64),
        slot_indptr * n_features_per_label,
    )
    X = sp.csr_matrix(parts, shape=(len(counts), n_features))
    X.sum_duplicates()
    norms = np.sqrt(np.add.reduceat(X.data**2, X.indptr[:-1]))
    X.data /= norms[row_numbers(X.indptr)]
    return X if check_flag(sparse, "sparse") else X.toarray()


def generator(random_state: Any) -> np.random.Generator:
    """Return a NumPy generator for a `random_state` of scikit-learn."""
    return np.random.default_rng(check_seed(random_state).randint(2**31, size=4))


def _check_common(
    n_samples: Any,
    n_features: Any,
    n_labels: Any,
    zipf_exponent: Any,
    n_features_per_label: Any,
    noise: Any,
) -> None:
    """Raise TypeError or ValueError if a parameter is out of range."""
    check_integer(n_samples, "n_samples")
    check_integer(n_features, "n_features")
    check_integer(n_labels, "n_labels")
    check_real(zipf_exponent, "zipf_exponent", 0)
    check_integer(n_features_per_label, "n_features_per_label")
    check_real(noise, "noise", 0, 1)
