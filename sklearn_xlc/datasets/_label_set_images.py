"""Images of several objects each: the pad-stack data of multi-label neural collapse."""

from collections.abc import Sequence
from itertools import combinations
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.utils import check_consistent_length, column_or_1d

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._checks import check_numbers, naming
from sklearn_xlc._csr import IntArray
from sklearn_xlc._labels import is_list
from sklearn_xlc.datasets._generators import generator

Numbers = int | Sequence[int]


def make_label_set_images(
    images: Any = None,
    labels: Any = None,
    *,
    n_per_class: Numbers = 100,
    n_per_pair: Numbers = 20,
    n_per_triple: Numbers = 0,
    n_per_quadruple: Numbers = 0,
    max_shift: int | None = None,
    held_out: Sequence[Any] = (),
    random_state: Any = None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    """Compose images of one to four objects from images of one object each.

    A composed image is twice as high and twice as wide as the given images. On a background of
    zeros it shows one image of each label of its label set, each near a corner of its own: the
    first two near the upper left and the lower right corner, in random order, a third and a fourth
    near the other two. Each image is moved from its corner towards the middle by a random number of
    pixels. Where images overlap, the larger value is taken.

    Parameters
    ----------
    images : array-like of shape (n_images, height, width[, n_channels]), default=None
        Images of one object each, not negative. None: the 8 x 8 digits of scikit-learn, scaled
        to [0, 1].
    labels : array-like of shape (n_images,), default=None
        Classes of the images. None if and only if `images` is None.
    n_per_class : int or sequence of int, default=100
        Number of images of every single class.
    n_per_pair : int or sequence of int, default=20
        Number of images of every pair of classes. A sequence makes the data imbalanced: the pairs
        are divided at random into groups of nearly equal size, one group per number of images.
    n_per_triple, n_per_quadruple : int or sequence of int, default=0
        Number of images of every three and every four classes, as `n_per_pair`.
    max_shift : int, default=None
        Largest shift of an image in either direction, in pixels; 0 leaves it in the corner, without
        overlap. None: less than a quarter of the shorter side, as in the paper.
    held_out : sequence of tuples, default=()
        Label sets to leave out, as tuples of classes.
    random_state : int, RandomState instance or None, default=None
        Seed for reproducible data.

    Returns
    -------
    images : ndarray of shape (n_samples, 2 * height, 2 * width) or with a last axis of n_channels
        Composed images in random order, with the dtype of the given images.
    Y : ndarray of shape (n_samples, n_classes) and dtype int32
        Label indicator; the columns are the sorted classes.

    Notes
    -----
    The paper composes 28 x 28 digits and 32 x 32 colour photographs of ten classes. The balanced
    data have 3100 images per class and 200 per pair. The imbalanced data have 5000 images per class
    and ``n_per_pair=(500, 50, 5)``. The data for the comparison of decoders have 1500 images per
    class and 1000, 750 or 500 per pair. In the paper an image moved beyond the border reappears on
    the other side, and a single object is always in the lower right corner.

    The given images of a class are used in random order, and all of them before any is used again.
    Split the given images first, so that training and test set share none. To test on unseen label
    sets, hold them out of the training set only.

    References
    ----------
    .. [1] P. Li, X. Li, Y. Wang, Q. Qu. Neural Collapse in Multi-label Learning with
       Pick-all-label Loss. ICML 2024. Appendix A.

    Examples
    --------
    >>> from sklearn_xlc.datasets import make_label_set_images
    >>> X, Y = make_label_set_images(n_per_pair=2, held_out=[(2, 7), (3, 8)], random_state=0)
    >>> X.shape, Y.shape
    ((1086, 16, 16), (1086, 10))
    >>> int((Y[:, 2] & Y[:, 7]).sum())
    0
    """
    images, classes, class_ids = _check_images(images, labels)
    height, width = images.shape[1:3]
    if max_shift is None:
        max_shift = -(-min(height, width) // 4) - 1
    max_shift = check_integer(max_shift, "max_shift", 0, min(height, width))
    left_out = _check_held_out(held_out, classes)
    numbers = {
        "n_per_class": n_per_class,
        "n_per_pair": n_per_pair,
        "n_per_triple": n_per_triple,
        "n_per_quadruple": n_per_quadruple,
    }
    rng = generator(random_state)
    sets = [  # one (n_rows, m) array for every number m of labels
        _rows_of_sets(len(classes), m, _check_numbers(value, name), left_out, rng)
        for m, (name, value) in enumerate(numbers.items(), start=1)
    ]
    n_samples = sum(map(len, sets))
    if n_samples == 0:
        raise ValueError(
            "n_per_class, n_per_pair, n_per_triple, n_per_quadruple and held_out leave no image"
        )
    sources = _draw_images(np.concatenate([part.ravel() for part in sets]), class_ids, rng)
    order = rng.permutation(n_samples)
    composed = np.zeros((n_samples, 2 * height, 2 * width, *images.shape[3:]), images.dtype)
    Y = np.zeros((n_samples, len(classes)), dtype=np.int32)
    row, slot = 0, 0
    for part in sets:
        rows = order[row : row + len(part)]
        Y[rows[:, None], part] = 1
        shown = sources[slot : slot + part.size].reshape(part.shape)
        _place(composed, rows, images, shown, max_shift, rng)
        row, slot = row + len(part), slot + part.size
    return composed, Y


def _rows_of_sets(
    n_classes: int,
    m: int,
    counts: tuple[int, ...],
    held_out: set[tuple[int, ...]],
    rng: np.random.Generator,
) -> IntArray:
    """Return label sets of m classes, one row per image."""
    if not any(counts) or m > n_classes:
        return np.empty((0, m), dtype=np.int64)
    allowed = [c for c in combinations(range(n_classes), m) if c not in held_out]
    shuffled = rng.permutation(np.array(allowed, dtype=np.int64).reshape(-1, m))
    groups = np.array_split(shuffled, len(counts))
    return np.concatenate([np.repeat(group, count, 0) for group, count in zip(groups, counts)])


def _draw_images(wanted: IntArray, labels: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw images of the wanted classes; the images of a class are used equally often."""
    pool = rng.permutation(len(labels))
    pool = pool[np.argsort(labels[pool], kind="stable")]  # by class, in random order within
    sizes = np.bincount(labels)
    starts = np.cumsum(sizes) - sizes
    # The t-th demand for a class, in random order, takes its t-th image, and starts again.
    demands = rng.permutation(len(wanted))
    demands = demands[np.argsort(wanted[demands], kind="stable")]
    kind = wanted[demands]
    turn = np.arange(len(wanted)) - np.searchsorted(kind, kind)
    drawn = np.empty(len(wanted), dtype=np.int64)
    drawn[demands] = pool[starts[kind] + turn % sizes[kind]]
    return drawn


def _place(
    composed: npt.NDArray[Any],
    rows: IntArray,
    images: npt.NDArray[Any],
    shown: IntArray,
    max_shift: int,
    rng: np.random.Generator,
) -> None:
    """Compose images in place: one column of `shown` per label, each near its corner."""
    height, width = images.shape[1:3]
    first, second = rng.integers(2, size=(2, len(rows)))
    # Opposite corners for the first two, as in the paper, and the other two for the rest.
    lower = np.stack([first, 1 - first, second, 1 - second])
    right = np.stack([first, 1 - first, 1 - second, second])
    for corner in range(shown.shape[1]):
        shifts = rng.integers(max_shift + 1, size=(2, len(rows)))
        top = np.where(lower[corner], height - shifts[0], shifts[0])
        left = np.where(right[corner], width - shifts[1], shifts[1])
        target = (
            rows[:, None, None],
            top[:, None, None] + np.arange(height)[:, None],
            left[:, None, None] + np.arange(width),
        )
        composed[target] = np.maximum(composed[target], images[shown[:, corner]])


def _check_images(images: Any, labels: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any], IntArray]:
    """Validate images and labels; return images, sorted classes and class indices."""
    if (images is None) != (labels is None):
        raise ValueError("images and labels must be given together, or both be None")
    if images is None:
        digits = load_digits()
        images, labels = (digits.images / 16).astype(np.float32), digits.target
    images = check_numbers(
        images, "images", ensure_2d=False, allow_nd=True, ensure_non_negative=True
    )
    if images.ndim not in (3, 4):
        raise ValueError(
            "images must have shape (n_images, height, width) or (n_images, height, width, "
            f"n_channels), got {images.shape}"
        )
    with naming("labels"):
        labels = column_or_1d(labels)
        check_consistent_length(images, labels)
    classes, class_ids = np.unique(labels, return_inverse=True)
    return images, classes, class_ids


def _check_numbers(value: Any, name: str) -> tuple[int, ...]:
    """Validate numbers of images; return a tuple, one for each group of label sets."""
    values = (value,) if isinstance(value, Integral) else value
    is_sequence = isinstance(values, (tuple, list)) or getattr(values, "ndim", 0) == 1
    if not is_sequence or sp.issparse(values) or not len(values):
        raise TypeError(f"{name} must be an int or a sequence of ints, got {value!r}")
    return tuple(check_integer(v, name, 0) for v in values)


def _check_held_out(held_out: Any, classes: npt.NDArray[Any]) -> set[tuple[int, ...]]:
    """Validate label sets; return tuples of ascending class indices."""
    positions = {label: position for position, label in enumerate(classes.tolist())}
    checked = set()
    for labels in held_out:
        if not is_list(labels):
            raise TypeError(f"held_out must be a sequence of tuples of classes, got {labels!r}")
        unknown = [label for label in labels if label not in positions]
        if unknown:
            raise ValueError(f"held_out names {unknown[0]!r}, which is not a class in labels")
        checked.add(tuple(sorted({positions[label] for label in labels})))
    return checked
