"""Label sets as digits of blocks, against binary numbers and against all label sets."""

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc.codes import LabelBlocks, MixedRadix

CASES = [
    (5, None),
    (5, (4, 8)),
    (7, (128,)),
    (6, (2, 16, 2)),
    (4, (8, 8)),  # two labels of the second block do not exist
    (1, None),
]


def all_sets(n_labels):
    """Every label set, in the order of their binary numbers."""
    return (np.arange(2**n_labels)[:, None] >> np.arange(n_labels)[::-1]) & 1


def make_scores(code, n_rows, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n_rows, length)).astype(dtype) for length in code.lengths]


def scores_of_all(code, heads):
    """Scores of every label set, of shape (n_rows, 2**n_labels), from its digits."""
    digits = code.encode(all_sets(code.n_labels))
    return sum(head[:, digits[:, h]] for h, head in enumerate(heads))


@pytest.mark.parametrize(("n_labels", "lengths"), CASES)
def test_digits_are_those_of_the_set_as_a_binary_number(n_labels, lengths):
    code, sets = LabelBlocks(n_labels, lengths), all_sets(n_labels)
    expected = MixedRadix(2**n_labels, code.lengths).encode(np.arange(2**n_labels))
    np.testing.assert_array_equal(code.encode(sets), expected)
    np.testing.assert_array_equal(code.encode(sp.coo_array(sets)), expected)
    decoded = code.decode(expected)
    np.testing.assert_array_equal(decoded.toarray(), sets)
    assert decoded.has_canonical_format


def test_labels_that_do_not_exist_have_no_outputs():
    code = LabelBlocks(20, (256,) * 3)
    assert code.lengths == (256, 256, 16)
    assert code.sizes.tolist() == [8, 8, 4]
    assert code.starts.tolist() == [0, 8, 16, 20]
    assert LabelBlocks(16, (256,) * 3).lengths == (256, 256)
    assert LabelBlocks(9).lengths == (16, 16, 2)


def test_more_labels_keep_the_blocks_that_are_there():
    code, sets = LabelBlocks(5, (4, 8)), all_sets(5)
    longer = code.longer(11)
    assert (longer.n_labels, longer.lengths) == (11, (4, 8, 16, 4))
    digits = longer.encode(np.pad(sets, ((0, 0), (0, 6))))
    np.testing.assert_array_equal(digits[:, :2], code.encode(sets))
    assert not digits[:, 2:].any()


@pytest.mark.parametrize("k", [1, 2, 7, 32])
@pytest.mark.parametrize(("n_labels", "lengths"), CASES)
def test_topk_is_that_of_all_label_sets(n_labels, lengths, k):
    code = LabelBlocks(n_labels, lengths)
    k = min(k, 2**n_labels)
    heads = make_scores(code, 20)
    every = scores_of_all(code, heads)
    best, digits = code.topk(heads, k)
    np.testing.assert_allclose(best, -np.sort(-every, axis=1)[:, :k])
    ids = MixedRadix(2**n_labels, code.lengths).decode(digits)
    np.testing.assert_allclose(np.take_along_axis(every, ids, axis=1), best)
    assert all(len(set(row)) == k for row in ids.tolist())


def test_of_equal_scores_the_smaller_digits_come_first():
    code = LabelBlocks(6, (4, 2, 8))
    rng = np.random.default_rng(0)
    heads = [rng.integers(0, 2, size=(30, length)).astype(float) for length in code.lengths]
    every = scores_of_all(code, heads)
    for k in (1, 5, 64):
        best, digits = code.topk(heads, k)
        expected = np.argsort(-every, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(MixedRadix(64, code.lengths).decode(digits), expected)
        np.testing.assert_array_equal(best, np.take_along_axis(every, expected, axis=1))


def test_sets_that_are_impossible_follow_the_others():
    code = LabelBlocks(5, (2, 8, 2))
    rng = np.random.default_rng(0)
    heads = [np.where(rng.random((30, length)) < 0.5, 0, -np.inf) for length in code.lengths]
    every = scores_of_all(code, heads)
    best, digits = code.topk(heads, 20)
    np.testing.assert_array_equal(best, -np.sort(-every, axis=1)[:, :20])
    for row, ids in enumerate(MixedRadix(32, code.lengths).decode(digits)):
        possible = np.flatnonzero(every[row] == 0)[:20]
        assert ids[: len(possible)].tolist() == possible.tolist()
        assert len(set(ids.tolist())) == 20


def test_more_labels_than_a_number_has_bits():
    code = LabelBlocks(1001)
    Y = sp.random(50, 1001, 0.01, random_state=0, format="csr", data_rvs=np.ones)
    digits = code.encode(Y)
    assert digits.shape == (50, 251)
    np.testing.assert_array_equal(code.decode(digits).toarray(), Y.toarray())
    heads = make_scores(code, 3, dtype=np.float32)
    best, found = code.topk(heads, 4)
    assert best.dtype == np.float32
    argmax = np.stack([head.argmax(1) for head in heads], axis=1)
    np.testing.assert_array_equal(found[:, 0], argmax)
    # The second best set differs in one head, by the least that any head loses.
    loss = [np.diff(np.sort(head, axis=1)[:, -2:])[:, 0] for head in heads]
    np.testing.assert_allclose(best[:, 0] - best[:, 1], np.min(loss, axis=0), atol=1e-3)
    assert ((found[:, 1] != argmax).sum(1) == 1).all()


@pytest.mark.parametrize(
    ("n_labels", "lengths", "message"),
    [
        (5, (3, 8), r"lengths=\(3, 8\) must be powers of two from 2"),
        (5, (1, 32), "must be powers of two from 2"),
        (5, (4, 4), r"lengths=\(4, 4\) hold 4 labels, fewer than n_labels=5"),
        (0, None, "n_labels"),
        (5, (), "lengths is empty"),
        (100, (2**62, 2**62), "powers of two from 2 to 2..61"),
    ],
)
def test_bad_lengths(n_labels, lengths, message):
    with pytest.raises(ValueError, match=message):
        LabelBlocks(n_labels, lengths)


def test_more_labels_than_memory_are_refused():
    with pytest.raises(MemoryError, match="more than dense_limit.*fewer labels"):
        LabelBlocks(2**45)


def test_bad_arguments():
    code = LabelBlocks(5, (8, 4))
    with pytest.raises(ValueError, match=r"Y must have 5 columns, got shape \(2, 4\)"):
        code.encode(np.zeros((2, 4), dtype=int))
    with pytest.raises(ValueError, match="Y"):
        code.encode(np.full((2, 5), 2))
    with pytest.raises(ValueError, match=r"one column per head \(2\), got shape \(1, 3\)"):
        code.decode([[1, 1, 1]])
    with pytest.raises(ValueError, match=r"digits must have shape \(n, 2\), got \(2,\)"):
        code.decode([1, 1])
    with pytest.raises(ValueError, match="digits must be integers, got dtype float64"):
        code.decode([[1.0, 1.0]])
    with pytest.raises(ValueError, match=r"head 1 must be in \[0, 4\) .*, got 4 at row 0"):
        code.decode([[1, 4]])
    heads = make_scores(code, 2)
    with pytest.raises(ValueError, match=r"k=33 asks for more label sets than exist: 2\*\*5 for 5"):
        code.topk(heads, 33)
    with pytest.raises(ValueError, match=r"log_scores\[1\] must have shape \(n, 4\)"):
        code.topk([heads[0], heads[0]], 1)
