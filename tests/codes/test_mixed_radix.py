"""The code is a bijection onto existing labels, and its searches equal brute force."""

import functools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from sklearn_xlc.codes import MixedRadix, head_lengths

N_ROWS = 6


def random_lengths(rng, n_labels, n_heads):
    """Lengths that cover the labels in no particular order, often with many codes to spare."""
    lengths = rng.integers(1, 2 + math.ceil(n_labels ** (1 / n_heads)), size=n_heads)
    h = rng.integers(n_heads)
    others = int(np.prod(np.delete(lengths, h)))
    lengths[h] = -(-n_labels // others) + rng.integers(3)
    return tuple(int(length) for length in lengths)


def all_scores(code, heads):
    """Summed score of every existing label, over the heads in order."""
    digits = code.encode(np.arange(code.n_labels))
    total = heads[0][:, digits[:, 0]]
    for h in range(1, code.n_heads):
        total = total + heads[h][:, digits[:, h]]
    return total


def kronecker(vectors):
    """Kronecker product of vectors, the first most significant."""
    return functools.reduce(np.kron, vectors)


def assert_is_exact_topk(code, heads, k, smallest_ids=False):
    scores, ids = code.topk(heads, k)
    dense = all_scores(code, heads)
    assert scores.shape == ids.shape == (len(dense), k)
    assert scores.dtype == dense.dtype
    assert ids.dtype == np.int64
    assert ids.min() >= 0
    assert ids.max() < code.n_labels
    assert (np.diff(np.sort(ids, axis=1)) > 0).all()
    np.testing.assert_array_equal(scores, -np.sort(-dense, axis=1)[:, :k])
    np.testing.assert_array_equal(np.take_along_axis(dense, ids, axis=1), scores)
    if smallest_ids:
        np.testing.assert_array_equal(ids, np.argsort(-dense, axis=1, kind="stable")[:, :k])


def every_code(rng, n_heads, seed):
    """For every sixth C in 2..200 the default lengths and random ones; later seeds have all C."""
    for n_labels in range(2, 201, 1 if seed else 6):
        yield MixedRadix(n_labels, head_lengths(n_labels, n_heads))
        yield MixedRadix(n_labels, random_lengths(rng, n_labels, n_heads))


def some_k(rng, n_labels):
    return {1, min(5, n_labels), int(rng.integers(1, n_labels + 1)), n_labels}


def normal_scores(rng, code, dtype=np.float64):
    return [rng.normal(size=(N_ROWS, length)).astype(dtype) for length in code.lengths]


def adversarial_scores(rng, code):
    """Nearly all the mass on the last code, which names a label only where all codes do."""
    heads = normal_scores(rng, code)
    for scores in heads:
        scores[:, -1] += 100.0
    return heads


# --- the code -------------------------------------------------------------------------------


def test_digits_by_hand():
    code = MixedRadix(24, (2, 3, 4))
    assert code.place_values.tolist() == [12, 4, 1]
    assert code.place_values.dtype == np.int64
    assert (code.n_labels, code.n_heads, code.n_codes) == (24, 3, 24)
    assert code.encode([0, 1, 4, 12, 23]).tolist() == [
        [0, 0, 0],
        [0, 0, 1],
        [0, 1, 0],
        [1, 0, 0],
        [1, 2, 3],
    ]


@pytest.mark.parametrize("lengths", [(24,), (4, 6), (2, 3, 4), (1, 24, 1), (5, 7)])
def test_encoding_is_lexicographic_and_inverts(lengths):
    code = MixedRadix(24, lengths)
    digits = code.encode(np.arange(24))
    assert digits.tolist() == sorted(digits.tolist())
    np.testing.assert_array_equal(code.decode(digits), np.arange(24))


@pytest.mark.parametrize("lengths", [(4, 6), (6, 4), (2, 3, 4), (2, 2, 3, 2)])
def test_one_hot_labels_are_kronecker_products_of_their_digits(lengths):
    """Eqs. 4, 10 and 11 of the paper, written out."""
    code = MixedRadix(24, lengths)
    for label in range(24):
        remainder, digits = label, []
        for h in range(len(lengths)):
            digits.append(remainder // math.prod(lengths[h + 1 :]))
            remainder -= digits[h] * math.prod(lengths[h + 1 :])
        assert code.encode(label).tolist() == digits
        one_hot = kronecker(np.eye(length)[digit] for length, digit in zip(lengths, digits))
        np.testing.assert_array_equal(one_hot, np.eye(24)[label])
        places = [math.prod(lengths[h + 1 :]) for h in range(len(lengths))]
        assert code.decode(digits) == sum(digit * place for digit, place in zip(digits, places))


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.data())
def test_round_trip_to_2_40(data):
    n_labels = data.draw(st.integers(1, 2**40))
    n_heads = data.draw(st.integers(1, 8))
    rule = data.draw(st.sampled_from(["equal", "descending"]))
    code = MixedRadix(n_labels, head_lengths(n_labels, n_heads, rule))
    ids = data.draw(st.lists(st.integers(0, n_labels - 1), max_size=5)) + [0, n_labels - 1]
    digits = code.encode(ids)
    assert digits.shape == (len(ids), n_heads)
    # The digits in Python's unbounded integers.
    exact = [sum(int(d) * int(p) for d, p in zip(row, code.place_values)) for row in digits]
    assert exact == ids
    assert code.decode(digits).tolist() == ids


def test_products_beyond_32_bits_do_not_wrap():
    code = MixedRadix(2**61 + 1, (2**31, 2**30 + 1))
    ids = np.array([2**61, 2**61 - 1, 2**40])
    np.testing.assert_array_equal(code.decode(code.encode(ids)), ids)
    assert code.n_codes == 2**31 * (2**30 + 1)


def test_ids_of_any_shape_and_none():
    code = MixedRadix(10, (4, 3))
    ids = np.arange(10, dtype=np.uint8).reshape(2, 5)
    assert code.encode(ids).shape == (2, 5, 2)
    np.testing.assert_array_equal(code.decode(code.encode(ids)), ids)
    assert code.encode([]).shape == (0, 2)
    assert code.decode(np.empty((0, 2))).shape == (0,)


def test_pickle_and_repr():
    code = MixedRadix(np.int64(10), [4, 3])
    assert repr(code) == "MixedRadix(n_labels=10, lengths=(4, 3))"
    copy = pickle.loads(pickle.dumps(code))
    np.testing.assert_array_equal(copy.encode(np.arange(10)), code.encode(np.arange(10)))


# --- the best labels ------------------------------------------------------------------------


@pytest.mark.parametrize("n_heads", [1, 2, 3, 4])
@pytest.mark.parametrize("make_scores", [normal_scores, adversarial_scores])
def test_topk_equals_brute_force(rng, n_heads, make_scores, global_random_seed):
    for code in every_code(rng, n_heads, global_random_seed):
        heads = make_scores(rng, code)
        for k in some_k(rng, code.n_labels):
            assert_is_exact_topk(code, heads, k)


@pytest.mark.parametrize("n_heads", [1, 2, 3, 4])
def test_ties_go_to_the_smaller_id(rng, n_heads, global_random_seed):
    for code in every_code(rng, n_heads, global_random_seed):
        # Small integers: sums are exact, and tie at almost every boundary.
        heads = [rng.integers(-1, 2, size=(N_ROWS, n)).astype(np.float32) for n in code.lengths]
        for k in some_k(rng, code.n_labels):
            assert_is_exact_topk(code, heads, k, smallest_ids=True)


@pytest.mark.parametrize("n_heads", [1, 2, 3])
def test_topk_with_minus_infinity(rng, n_heads, global_random_seed):
    for code in every_code(rng, n_heads, global_random_seed):
        heads = normal_scores(rng, code)
        for scores in heads:
            scores[rng.random(scores.shape) < 0.4] = -np.inf
            scores[0] = -np.inf
        for k in some_k(rng, code.n_labels):
            assert_is_exact_topk(code, heads, k)


def test_all_mass_on_codes_without_a_label():
    # Labels 0..4 of 3 x 2 codes; everything but the code of "label 5" is impossible.
    code = MixedRadix(5, (3, 2))
    heads = [np.array([[-np.inf, -np.inf, 0.0]]), np.array([[-np.inf, 0.0]])]
    scores, ids = code.topk(heads, 5)
    assert sorted(ids[0]) == [0, 1, 2, 3, 4]
    assert np.isneginf(scores).all()
    assert np.isneginf(code.log_normalizer(heads)).all()


def test_whole_first_digits_without_a_label(rng):
    code = MixedRadix(4, (7, 5))  # only the first parent has children
    heads = adversarial_scores(rng, code)
    assert_is_exact_topk(code, heads, 4)
    assert_is_exact_topk(code, heads, 1)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.data())
def test_rounding_does_not_cost_exactness(data):
    # Float32 sums of such values round heavily and overlap: large, small and signed.
    lengths = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    n_labels = data.draw(st.integers(1, math.prod(lengths)))
    k = data.draw(st.integers(1, n_labels))
    finite = st.floats(-1e8, 1e8, width=32)
    heads = [
        np.array([data.draw(st.lists(finite, min_size=n, max_size=n))], dtype=np.float32)
        for n in lengths
    ]
    assert_is_exact_topk(MixedRadix(n_labels, lengths), heads, k)


@pytest.mark.parametrize("n_labels", [10_000, 9_877, 9_500, 101])
def test_topk_of_long_heads(rng, n_labels):
    code = MixedRadix(n_labels, (100, 100))
    heads = normal_scores(rng, code, np.float32)
    for k in (1, 7, 101):  # the last is longer than a head
        assert_is_exact_topk(code, heads, k)


def test_topk_of_2_40_labels(rng):
    # Too many for brute force: head maxima are the answer where they name a label.
    code = MixedRadix(2**40, (2**20, 2**20))
    heads = normal_scores(rng, code, np.float32)
    scores, ids = code.topk(heads, 3)
    best = [h.argmax(axis=1) for h in heads]
    np.testing.assert_array_equal(ids[:, 0], best[0] * 2**20 + best[1])
    np.testing.assert_array_equal(scores[:, 0], heads[0].max(axis=1) + heads[1].max(axis=1))


def test_equal_rows_get_equal_answers_alone_and_together(rng):
    code = MixedRadix(150, (7, 5, 5))
    heads = [rng.integers(0, 3, size=(N_ROWS, n)).astype(float) for n in code.lengths]
    together = code.topk(heads, 20)
    for row in range(N_ROWS):
        alone = code.topk([scores[row : row + 1] for scores in heads], 20)
        np.testing.assert_array_equal(alone[0][0], together[0][row])
        np.testing.assert_array_equal(alone[1][0], together[1][row])


def test_topk_leaves_the_scores_alone(rng):
    code = MixedRadix(11, (4, 3))
    heads = normal_scores(rng, code)
    copies = [scores.copy() for scores in heads]
    code.topk(heads, 4)
    code.log_normalizer(heads)
    for scores, copy in zip(heads, copies):
        np.testing.assert_array_equal(scores, copy)


@pytest.mark.parametrize(
    "dtypes, expected",
    [
        (("f4", "f4"), "f4"),
        (("f8", "f8"), "f8"),
        (("f4", "f8"), "f8"),
        (("f2", "f2"), "f4"),
        (("i8", "f4"), "f8"),
    ],
)
def test_dtype_of_the_scores(dtypes, expected):
    code = MixedRadix(5, (3, 2))
    heads = [np.zeros((2, n), dtype=dtype) for n, dtype in zip(code.lengths, dtypes)]
    assert code.topk(heads, 2)[0].dtype == expected
    assert code.log_normalizer(heads).dtype == expected


def test_no_rows():
    code = MixedRadix(5, (3, 2))
    scores, ids = code.topk([np.empty((0, 3)), np.empty((0, 2))], 4)
    assert scores.shape == ids.shape == (0, 4)
    assert code.log_normalizer([np.empty((0, 3)), np.empty((0, 2))]).shape == (0,)


def test_theorem_1_fails_on_raw_logits_and_holds_after_log_softmax():
    # Products of logits: the largest is at digits (0, 0), while each head's argmax is 1. Sums of
    # log-probabilities have no such trap, which is why only they are combined here.
    logits = [np.array([[-3.0, -1.0]]), np.array([[-2.0, -1.0]])]
    products = np.outer(logits[0], logits[1])
    assert np.unravel_index(products.argmax(), products.shape) == (0, 0)
    assert [int(scores.argmax()) for scores in logits] == [1, 1]
    log_probabilities = [z - logsumexp(z, axis=1, keepdims=True) for z in logits]
    probabilities = np.outer(*[np.exp(z) for z in log_probabilities])
    _, ids = MixedRadix(4, (2, 2)).topk(log_probabilities, 1)
    assert ids[0, 0] == probabilities.argmax() == 3


def test_kronecker_product_of_figure_11():
    heads = [np.array([0.3, 0.7]), np.array([0.8, 0.2]), np.array([0.6, 0.4])]
    scores, ids = MixedRadix(8, (2, 2, 2)).topk([np.log(head)[None] for head in heads], 8)
    products = np.empty(8)
    products[ids[0]] = np.exp(scores[0])
    expected = [0.144, 0.096, 0.036, 0.024, 0.336, 0.224, 0.084, 0.056]
    np.testing.assert_allclose(products, expected, rtol=1e-12)


@pytest.mark.parametrize("lengths", [(7, 5), (4, 5, 3), (3, 2, 4, 2)])
def test_theorem_1_holds_for_positive_scores(rng, lengths):
    """Eq. 8: the argmax of the product is the product of the argmaxes."""
    code = MixedRadix(math.prod(lengths), lengths)
    for _ in range(50):
        heads = [rng.gamma(0.5, size=length) for length in lengths]
        best = int(kronecker(heads).argmax())
        digits = [int(head.argmax()) for head in heads]
        assert kronecker(np.eye(len(head))[head.argmax()] for head in heads).argmax() == best
        assert code.decode(digits) == best
        assert code.topk([np.log(head)[None] for head in heads], 1)[1] == best


def test_corollary_1_needs_positive_heads_and_an_error_below_half_the_lead(rng):
    """Eq. 9 for the best approximation of rank one, in the norms of the paper and its proof."""
    # Four equal scores outweigh the largest one, whichever norm measures the approximation.
    scores = np.array([[1.0, 0.0, 0.0], [0.0, 0.9, 0.9], [0.0, 0.9, 0.9]])
    u, s, v = np.linalg.svd(scores)
    best = s[0] * np.outer(u[:, 0], v[0])
    np.testing.assert_allclose(best, scores * (scores == 0.9), atol=1e-12)
    assert scores.argmax() == 0
    assert best.argmax() != 0
    code = MixedRadix(20, (5, 4))
    for _ in range(50):
        heads = [rng.gamma(0.5, size=length) for length in code.lengths]
        product = kronecker(heads)
        order = product.argsort()
        lead = product[order[-1]] - product[order[-2]]
        error = rng.uniform(-1, 1, size=20)
        error[order[-2:]] = 1, -1  # the worst: the second best gains what the best loses
        best = code.topk([np.log(head)[None] for head in heads], 1)[1].item()
        assert (product + 0.49 * lead * error).argmax() == best
        assert (product + 0.51 * lead * error).argmax() == order[-2] != best
    # Heads that are not positive miss the best label of their own product, without any error.
    heads = [np.array([-3.0, -1.0]), np.array([-2.0, -1.0])]
    assert MixedRadix(4, (2, 2)).topk([head[None] for head in heads], 1)[1].item() == 3
    assert kronecker(heads).argmax() == 0


# --- the normalizer -------------------------------------------------------------------------


@pytest.mark.parametrize("n_heads", [1, 2, 3, 4])
def test_log_normalizer_equals_brute_force(rng, n_heads, global_random_seed):
    for code in every_code(rng, n_heads, global_random_seed):
        heads = normal_scores(rng, code)
        for scores in heads:
            scores[rng.random(scores.shape) < 0.2] = -np.inf
        expected = logsumexp(all_scores(code, heads), axis=1)
        np.testing.assert_allclose(code.log_normalizer(heads), expected, rtol=1e-12, atol=1e-12)


def test_log_normalizer_of_extreme_scores():
    code = MixedRadix(5, (3, 2))
    for shift in (-1e4, 1e4):  # exponentials underflow and overflow
        heads = [np.full((1, 3), shift), np.zeros((1, 2))]
        np.testing.assert_allclose(code.log_normalizer(heads), shift + np.log(5), rtol=1e-15)


def test_renormalised_probabilities_sum_to_one(rng):
    code = MixedRadix(103, (11, 10))
    heads = [z - logsumexp(z, axis=1, keepdims=True) for z in adversarial_scores(rng, code)]
    scores, _ = code.topk(heads, code.n_labels)
    mass = np.exp(scores - code.log_normalizer(heads)[:, None]).sum(axis=1)
    np.testing.assert_allclose(mass, 1.0, rtol=1e-12)


# --- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "n_labels, lengths, error, message",
    [
        (0, (2, 2), ValueError, "n_labels"),
        (4.0, (2, 2), TypeError, "n_labels"),
        (4, (), ValueError, "lengths is empty"),
        (4, (4, 0), ValueError, r"lengths\[1\]"),
        (4, (2.0, 2), TypeError, r"lengths\[0\]"),
        (5, (2, 2), ValueError, r"product of lengths=\(2, 2\) is 4.*n_labels=5"),
        (5, (2**31, 2**31), ValueError, r"less than 2\*\*62"),
        (5, (2**40, 2**40), ValueError, r"less than 2\*\*62"),
    ],
)
def test_bad_codes(n_labels, lengths, error, message):
    with pytest.raises(error, match=message):
        MixedRadix(n_labels, lengths)


@pytest.mark.parametrize(
    "ids, message",
    [
        ([0, 1, 5], r"ids must be in \[0, 5\) \(n_labels=5\), got 5 at row 2"),
        ([0, -1], "got -1 at row 1"),
        ([0.0], "ids must be integers, got dtype float64"),
        ([True], "ids must be integers, got dtype bool"),
        (np.array([2**63], dtype=np.uint64), "ids must be less than"),
    ],
)
def test_bad_ids(ids, message):
    with pytest.raises(ValueError, match=message):
        MixedRadix(5, (3, 2)).encode(ids)


@pytest.mark.parametrize(
    "digits, message",
    [
        ([[0, 0], [3, 0]], r"digits of head 0 must be in \[0, 3\) .*got 3 at row 1"),
        ([3, 0], r"digits of head 0 must be in \[0, 3\) .*got 3$"),
        ([[0, 2]], r"digits of head 1 must be in \[0, 2\) .*got 2 at row 0"),
        ([[0, -1]], "digits of head 1 .*got -1"),
        ([[0, 0], [2, 1]], r"labels named by digits .*\(n_labels=5\), got 5 at row 1"),
        ([[0, 0, 0]], r"one column per head \(2\), got shape \(1, 3\)"),
        (0, r"one column per head \(2\), got shape \(\)"),
        ([[0.0, 1.0]], "digits must be integers"),
        ([[1], [1, 2]], "digits must be a rectangular array"),
    ],
)
def test_bad_digits(digits, message):
    with pytest.raises(ValueError, match=message):
        MixedRadix(5, (3, 2)).decode(digits)


@pytest.mark.parametrize(
    "k, error, message",
    [(6, ValueError, "k=6 .*n_labels=5"), (0, ValueError, "k"), (1.0, TypeError, "k")],
)
def test_bad_k(k, error, message):
    with pytest.raises(error, match=message):
        MixedRadix(5, (3, 2)).topk([np.zeros((1, 3)), np.zeros((1, 2))], k)


@pytest.mark.parametrize("method", ["topk", "log_normalizer"])
@pytest.mark.parametrize(
    "heads, message",
    [
        ([np.zeros((1, 3))], r"one array per head \(2\), got 1"),
        ([np.zeros(3), np.zeros(2)], r"log_scores\[0\] must be 2-D, got shape \(3,\)"),
        ([np.zeros((1, 3)), np.zeros((1, 3))], r"log_scores\[1\] must have shape \(n, 2\)"),
        ([np.zeros((1, 3)), np.zeros((2, 2))], r"log_scores\[1\] must have shape .*the same n"),
        ([np.zeros((1, 3)), np.array([[0.0, np.nan]])], r"log_scores\[1\] holds NaN or \+inf"),
        ([np.array([[0.0, np.inf, 0.0]]), np.zeros((1, 2))], r"log_scores\[0\] holds NaN"),
        ([np.zeros((1, 3), complex), np.zeros((1, 2))], "float32 or float64, got complex"),
    ],
)
def test_bad_scores(method, heads, message):
    code = MixedRadix(5, (3, 2))
    arguments = (heads, 1) if method == "topk" else (heads,)
    with pytest.raises(ValueError, match=message):
        getattr(code, method)(*arguments)


@pytest.mark.parametrize("lengths", [3, None, np.array(3)])
def test_lengths_must_be_a_sequence(lengths):
    with pytest.raises(TypeError, match="lengths must be a sequence of integers"):
        MixedRadix(4, lengths)


@pytest.mark.parametrize("scores", [3.0, np.array(3.0)])
def test_scores_must_be_a_sequence(scores):
    with pytest.raises(TypeError, match="log_scores must be a sequence of arrays, got .*3"):
        MixedRadix(4, (2, 2)).topk(scores, 1)
