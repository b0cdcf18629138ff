"""Composed images show what their labels say, as often as asked for, and nothing else."""

import itertools
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

from sklearn_xlc.datasets import make_label_set_images


@pytest.fixture
def flat():
    """Images of one value each, which tells class and image: 10 * class + number + 1."""
    labels = np.repeat([0, 1, 2, 3, 4], 6)
    values = 10 * labels + np.tile(np.arange(6), 5) + 1
    return np.broadcast_to(values[:, None, None], (30, 4, 6)).astype(np.uint8), labels


def label_sets(Y):
    return Counter(tuple(np.flatnonzero(y).tolist()) for y in Y)


def test_numbers_of_every_label_set(flat):
    X, Y = make_label_set_images(
        *flat, n_per_class=7, n_per_pair=3, n_per_triple=2, n_per_quadruple=1, random_state=0
    )
    assert X.shape == (5 * 7 + 10 * 3 + 10 * 2 + 5, 8, 12)
    assert X.dtype == np.uint8
    assert Y.shape == (len(X), 5)
    assert Y.dtype == np.int32
    expected = {
        labels: number
        for m, number in {1: 7, 2: 3, 3: 2, 4: 1}.items()
        for labels in itertools.combinations(range(5), m)
    }
    assert label_sets(Y) == expected
    assert len(set(map(tuple, Y[:20]))) > 5  # in random order


def test_an_image_shows_exactly_its_labels(flat):
    X, Y = make_label_set_images(
        *flat, n_per_class=20, n_per_pair=20, n_per_triple=10, n_per_quadruple=10, random_state=1
    )
    for image, y in zip(X, Y):
        values, counts = np.unique(image[image > 0], return_counts=True)
        assert sorted((values - 1) // 10) == np.flatnonzero(y).tolist()
        assert np.all(counts == 24)  # whole: four pixels high, they are not moved by default
        for value in values:
            top, left = np.argwhere(image == value).min(axis=0)
            assert np.all(image[top : top + 4, left : left + 6] == value)


def test_two_images_are_in_opposite_corners(flat):
    X, Y = make_label_set_images(*flat, n_per_pair=60, max_shift=0, random_state=2)
    corners = X[:, ::4, ::6] > 0
    single = Y.sum(axis=1) == 1
    assert not corners[:, 0, 1].any()
    assert not corners[:, 1, 0].any()
    assert corners[~single][:, [0, 1], [0, 1]].all()
    assert np.all(corners[single].sum(axis=(1, 2)) == 1)
    upper = (X[~single, 0, 0] - 1) // 10 == Y[~single].argmax(axis=1)
    assert 0.4 < upper.mean() < 0.6
    assert 0.4 < corners[single][:, 0, 0].mean() < 0.6


@pytest.mark.parametrize("max_shift, expected", [(None, [0, 1]), (0, [0]), (3, [0, 1, 2, 3])])
def test_shifts_go_towards_the_middle(max_shift, expected, rng):
    images = np.ones((4, 8, 8))
    X, _ = make_label_set_images(
        images, [0, 1, 0, 1], n_per_class=200, n_per_pair=0, max_shift=max_shift, random_state=0
    )
    for axis in (1, 2):
        start = X.max(axis=axis).argmax(axis=1)
        assert sorted(set(np.minimum(start, 8 - start))) == expected
        assert X.max(axis=axis).sum(axis=1).tolist() == [8] * 400


def test_shift_of_the_paper():
    X, _ = make_label_set_images(
        np.ones((1, 28, 28)), ["a"], n_per_class=400, n_per_pair=0, random_state=0
    )
    start = X.max(axis=2).argmax(axis=1)
    assert np.minimum(start, 28 - start).max() == 6


def test_overlaps_show_the_larger_value():
    images = np.stack([np.full((2, 2), 1.0), np.full((2, 2), 5.0)])
    X, _ = make_label_set_images(
        images, [0, 1], n_per_class=0, n_per_pair=200, max_shift=2, random_state=0
    )
    assert np.all((X == 5).sum(axis=(1, 2)) == 4)
    assert set(np.unique((X == 1).sum(axis=(1, 2)))) == {0, 2, 3, 4}


def test_a_sequence_divides_the_sets_into_groups(flat):
    _, Y = make_label_set_images(*flat, n_per_class=4, n_per_pair=(8, 3, 1), random_state=0)
    counts = label_sets(Y)
    assert sorted(n for s, n in counts.items() if len(s) == 2) == [1] * 3 + [3] * 3 + [8] * 4
    _, other = make_label_set_images(*flat, n_per_class=4, n_per_pair=(8, 3, 1), random_state=1)
    assert label_sets(other) != counts
    _, Y = make_label_set_images(*flat, n_per_class=[2, 0], n_per_pair=np.array([1]))
    assert sorted(n for s, n in label_sets(Y).items() if len(s) == 1) == [2, 2, 2]


def test_label_sets_can_be_held_out(flat):
    images, labels = flat
    names = np.array(["ant", "bee", "cat", "dog", "elk"])
    _, Y = make_label_set_images(
        images, names[labels], n_per_class=2, held_out=[("dog", "bee"), ("elk",), ["cat", "ant"]]
    )
    found = label_sets(Y)
    assert Y.shape[1] == 5
    assert not {(1, 3), (4,), (0, 2)} & set(found)
    assert len(found) == 5 + 10 - 3


def test_images_are_used_in_turn(flat):
    X, _ = make_label_set_images(*flat, n_per_class=9, n_per_pair=3, random_state=0)
    uses = Counter(v for image in X for v in np.unique(image[image > 0]).tolist())
    # A class is wanted 9 + 4 * 3 = 21 times, and has six images.
    for label in range(5):
        assert sorted(uses[10 * label + n + 1] for n in range(6)) == [3, 3, 3, 4, 4, 4]


def test_colours_stay_together(rng):
    images = rng.integers(1, 255, (6, 5, 5, 3)).astype(np.uint8)
    X, Y = make_label_set_images(
        images, [0, 1, 2, 0, 1, 2], n_per_class=3, n_per_pair=0, max_shift=0, random_state=0
    )
    assert X.shape == (9, 10, 10, 3)
    for image, y in zip(X, Y):
        corner = image[:5, :5] if image[0, 0].any() else image[5:, 5:]
        (source,) = np.flatnonzero((images == corner).all(axis=(1, 2, 3)))
        assert y[source % 3] == 1


def test_digits_by_default():
    X, Y = make_label_set_images(random_state=0)
    assert X.shape == (10 * 100 + 45 * 20, 16, 16)
    assert X.dtype == np.float32
    assert X.min() == 0
    assert X.max() == 1
    digits = {tuple(d.ravel()) for d in (load_digits().images / 16).astype(np.float32)}
    single = X[Y.sum(axis=1) == 1][:20]
    for image in single:
        windows = [image[a : a + 8, b : b + 8] for a in range(9) for b in range(9)]
        assert any(
            tuple(w.ravel()) in digits and w.sum() == pytest.approx(image.sum()) for w in windows
        )


def test_same_seed_same_images(flat):
    first = make_label_set_images(*flat, random_state=4)
    again = make_label_set_images(*flat, random_state=np.random.RandomState(4))
    other = make_label_set_images(*flat, random_state=5)
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert np.any(first[0] != other[0])


def test_more_labels_than_classes_is_nothing():
    _, Y = make_label_set_images(
        np.ones((2, 2, 2)), [3, 5], n_per_class=1, n_per_triple=4, n_per_pair=2
    )
    assert label_sets(Y) == {(0,): 1, (1,): 1, (0, 1): 2}


X = np.ones((2, 4, 4))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: make_label_set_images(X), ValueError, "images and labels must be given together"),
        (lambda: make_label_set_images(labels=[0]), ValueError, "must be given together"),
        (lambda: make_label_set_images(X, [0]), ValueError, "inconsistent numbers of samples"),
        (lambda: make_label_set_images(X[0], [0] * 4), ValueError, r"images must have shape"),
        (
            lambda: make_label_set_images(-X, [0, 1]),
            ValueError,
            "Negative values in data passed to images",
        ),
        (lambda: make_label_set_images(n_per_pair=-1), ValueError, "n_per_pair must be .*, got -1"),
        (lambda: make_label_set_images(n_per_pair=1.5), TypeError, "n_per_pair must be an int or"),
        (lambda: make_label_set_images(n_per_pair=()), TypeError, "n_per_pair must be an int or"),
        (
            lambda: make_label_set_images(n_per_pair=sp.coo_array([1, 0])),
            TypeError,
            "n_per_pair must be an int or",
        ),
        (lambda: make_label_set_images(n_per_class=[1.5]), TypeError, "n_per_class must be an in"),
        (lambda: make_label_set_images(max_shift=9), ValueError, "max_shift must be .*, got 9"),
        (lambda: make_label_set_images(held_out=[(1, 10)]), ValueError, "held_out names 10"),
        (lambda: make_label_set_images(held_out=[3]), TypeError, "sequence of tuples"),
        (lambda: make_label_set_images(n_per_class=0, n_per_pair=0), ValueError, "leave no image"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
