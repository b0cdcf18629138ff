"""Rankers that learn from a stream: what is held out, what is remembered, when they learn."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.ranking import (
    BoostedRanker,
    Calibration,
    CooccurringLabels,
    NearestSamples,
    Ranker,
    streaming,
)
from sklearn_xlc.ranking.streaming import keys_of, rows_of_keys

N_LABELS = 12


@pytest.fixture(scope="module")
def stream():
    """Sparse samples, labels that their features show, and lists of a poor network."""
    rng = np.random.default_rng(0)
    X = sp.random_array((900, 40), density=0.1, format="csr", random_state=rng)
    X = sp.hstack([X, rng.random((900, 1))], format="csr")  # no two are equal
    Y = sp.csr_array(X[:, :N_LABELS].toarray() > 0.4, dtype=int)
    scores = rng.normal(size=Y.shape) + 0.3 * Y.toarray()
    labels = np.argsort(-scores, axis=1)
    return X, Y, np.take_along_axis(scores, labels, 1), labels


def fed(stream, parts, ranker=None, **params):
    """Ranker after batches of samples; the first has no lists."""
    X, Y, scores, labels = stream
    ranker = ranker or BoostedRanker(**params)
    for rows in parts:
        width = 0 if not hasattr(ranker, "memory_") else N_LABELS
        lists = scores[rows, :width], labels[rows, :width]
        ranker.partial_fit(lists[0], Y[rows], lists[1], {"input": X[rows]})
    return ranker


def in_batches(stop, size=60, start=0):
    return [slice(i, i + size) for i in range(start, stop, size)]


# --- keys ---------------------------------------------------------------------------------------


def test_keys_are_equal_for_equal_samples_only():
    rng = np.random.default_rng(1)
    X = rng.integers(0, 3, (400, 5)) * 1.0
    keys = keys_of({"input": X, "ids": np.arange(400)})
    _, expected = np.unique(X, axis=0, return_inverse=True)
    _, found = np.unique(keys, return_inverse=True)
    assert len(set(zip(expected.ravel(), found))) == len(np.unique(keys)) == expected.max() + 1
    unsorted = sp.csr_array(X)
    for row in range(400):
        part = slice(unsorted.indptr[row], unsorted.indptr[row + 1])
        unsorted.indices[part] = unsorted.indices[part][::-1]
        unsorted.data[part] = unsorted.data[part][::-1]
    np.testing.assert_array_equal(keys_of({"input": unsorted}), keys)
    np.testing.assert_array_equal(keys_of({"input": X.astype(np.float32)}), keys)
    assert (keys_of({"input": X, "vectors 0": X[::-1]}) != keys).any()


def test_keys_of_texts_are_those_of_equal_texts():
    texts = np.array(["a cat", "a dog", "a cat", "", "\ud800"], dtype=object)
    keys = keys_of({"given": texts, "ids": np.arange(5)})
    assert len(set(keys.tolist())) == 4
    assert keys[0] == keys[2]
    both = keys_of({"given": texts, "input": np.ones((5, 1))})
    assert len(set(both.tolist())) == 4


def test_rows_of_keys_are_the_first():
    rng = np.random.default_rng(2)
    keys, wanted = (rng.integers(0, 30, n).astype(np.uint64) for n in (40, 60))
    known = keys.tolist()
    expected = [known.index(key) if key in known else -1 for key in wanted.tolist()]
    np.testing.assert_array_equal(rows_of_keys(keys, wanted), expected)
    np.testing.assert_array_equal(rows_of_keys(keys[:0], wanted), -np.ones(60))


# --- what is held out, and when it is learnt ------------------------------------------------------


def test_it_learns_when_the_samples_have_doubled(stream):
    ranker, learnt = None, []
    for rows in in_batches(900):
        ranker = fed(stream, [rows], ranker)
        learnt.append(ranker.n_learnt_)
    # The lists of the first half tell of a network that had seen little.
    assert learnt == [0, 0, 0, *[240] * 4, *[480] * 8]
    assert not ranker.waits
    assert ranker.trees_ is not None


def test_lists_before_enough_are_those_of_the_network(stream):
    ranker = fed(stream, in_batches(120))
    assert ranker.waits
    assert len(ranker.held_["keys"]) == 60
    X, _, scores, labels = (each[:30] for each in stream)
    ranked, listed = ranker.rank(scores, labels, {"input": X})
    np.testing.assert_array_equal(listed, labels)
    np.testing.assert_array_equal(ranked, scores)


def test_held_out_samples_are_not_searched_while_it_learns(stream, monkeypatch):
    X, Y, scores, labels = stream
    calls = []

    def fit(self, *lists, samples, **options):
        searched = dict(self.retrievers_)["near"]
        calls.append((lists, samples, searched.ids_))
        return kept(self, *lists, samples=samples, **options)

    kept = BoostedRanker.fit
    monkeypatch.setattr(BoostedRanker, "fit", fit)
    ranker = fed(stream, in_batches(480))
    of_lists, held, searched = calls[-1]
    assert len(calls) == 2
    np.testing.assert_array_equal(held["ids"], np.arange(240, 480))
    np.testing.assert_array_equal(searched, np.arange(240))
    expected = scores[240:480], Y[240:480].toarray(), labels[240:480]
    given = of_lists[0], of_lists[1].toarray(), of_lists[2]
    for one, other in zip(given, expected):
        np.testing.assert_array_equal(one[:, :N_LABELS], other)
    ranker.rank(scores[:2], labels[:2], {"input": X[:2]})
    assert len(dict(ranker.retrievers_)["near"].ids_) == 480  # and then all are


def test_it_ranks_better_than_the_network(stream):
    X, Y, scores, labels = stream
    ranker = fed(stream, in_batches(780))
    best = ranker.rank(scores[780:], labels[780:], {"input": X[780:]})[1][:, 0]
    truth, rows = Y[780:].toarray(), np.arange(120)
    assert truth[rows, best].mean() > truth[rows, labels[780:, 0]].mean() + 0.2


def test_reservoir_and_memory_are_bounded(stream, monkeypatch):
    monkeypatch.setattr(streaming, "MOST_HELD", 110)
    monkeypatch.setattr(streaming, "LEAST_HELD", 50)
    ranker, held = None, []
    for rows in in_batches(900):
        ranker = fed(stream, [rows], ranker, max_samples=250)
        held.append(0 if ranker.held_ is None else len(ranker.held_["keys"]))
    assert max(held) == 110
    np.testing.assert_array_equal(ranker.memory_["samples"]["ids"], np.arange(650, 900))
    assert ranker.trees_ is not None


def test_samples_that_come_again_are_remembered_once(stream):
    ranker = fed(stream, in_batches(360))
    indexed = copy.copy(ranker)._index()
    again = fed(stream, in_batches(60), indexed)
    assert again.retrievers_ is not None  # no reason for another index
    again = fed(stream, 5 * in_batches(360), again)
    np.testing.assert_array_equal(again.memory_["samples"]["ids"], np.arange(360))
    # Nothing tells of the network as it is now: in the end it ranks alone, until there is more.
    assert again.waits
    later = fed(stream, in_batches(900, start=360), again)
    assert not later.waits


def test_more_labels_take_the_place_of_fewer(stream):
    X, Y, scores, labels = stream
    ranker = fed(stream, [slice(0, 50)])
    more, other = Y[:50].tolil(), Y[:50].tolil()
    free = int(np.flatnonzero(Y[[3]].toarray()[0] == 0)[0])
    own = int(Y.indices[Y.indptr[7]])
    more[3, free] = 1
    other[7, own], other[7, (own + 1) % N_LABELS] = 0, 1
    for Z in (more, other):
        Z = sp.csr_array(Z)
        ranker.partial_fit(scores[:50], Z, labels[:50], {"input": X[:50]})
    ids = ranker.memory_["samples"]["ids"].tolist()
    assert len(ids) == 51
    assert ids.count(3) == 1
    assert ranker.memory_["labels"][[ids.index(3)]].toarray()[0, free] == 1
    # Names of one's own stay: each of two equal samples can be forgotten.
    named = {"input": X[:2], "ids": np.array(["a", "b"], dtype=object)}
    ranker.partial_fit(scores[:2], Y[:2], labels[:2], named)
    assert ranker.memory_["samples"]["ids"].tolist()[-2:] == ["a", "b"]
    ranker.partial_fit(scores[:2], Y[:2], labels[:2], named)
    assert len(ranker.memory_["weights"]) == 53


def test_an_id_stays_with_one_sample_if_more_labels_come_twice_in_a_batch(stream):
    X, _, scores, labels = stream
    ranker = BoostedRanker()

    def tell(rows, sets):
        Y = np.zeros((len(rows), N_LABELS), dtype=int)
        for row, labels_of in zip(Y, sets):
            row[labels_of] = 1
        given = {"input": X[rows]}
        ranker.partial_fit(scores[rows], sp.csr_array(Y), labels[rows], given)

    def remembered():
        whole = ranker.memory_
        sets = [np.flatnonzero(row).tolist() for row in whole["labels"].toarray()]
        return dict(zip(whole["samples"]["ids"].tolist(), sets)), len(whole["weights"])

    tell([0, 1, 2], [[0], [1], [2]])
    tell([1, 1, 1], [[1, 3], [1, 3, 4], [1, 3, 4]])
    assert remembered() == ({0: [0], 1: [1, 3, 4], 2: [2]}, 3)
    # Of two sets, neither within the other, one has the id.
    tell([2, 0, 2], [[2, 5], [0], [2, 6]])
    assert remembered() == ({0: [0], 1: [1, 3, 4], 2: [2, 5], 8: [2, 6]}, 4)


def test_samples_of_weight_zero_are_neither_held_nor_remembered(stream):
    X, Y, scores, labels = stream
    ranker = fed(stream, [slice(0, 50)])
    weight = np.arange(50) % 2.0
    ranker.partial_fit(scores[50:100], Y[50:100], labels[50:100], {"input": X[50:100]}, weight)
    assert len(ranker.memory_["weights"]) == 75
    np.testing.assert_array_equal(ranker.held_["labels"][:, :N_LABELS], labels[51:100:2])


# --- labels and samples that go -----------------------------------------------------------------


def test_held_lists_follow_labels_and_forgotten_samples(stream):
    ranker = fed(stream, in_batches(120))
    origin = np.array([11, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9])  # 10 goes, another comes
    changed = ranker.for_labels(origin)
    before, after = ranker.held_["labels"], changed.held_["labels"]
    for old, new in zip(before.ravel(), after.ravel()):
        assert new == (-1 if old in (-1, 10) else origin.tolist().index(old))
    assert np.isneginf(changed.held_["scores"][after < 0]).all()
    less = ranker.forget([70, 5])
    assert len(less.held_["keys"]) == 59
    assert len(less.memory_["weights"]) == 118
    assert len(ranker.held_["keys"]) == 60
    assert type(ranker.forget()) is Calibration


@pytest.mark.integration
def test_a_copy_from_a_file_goes_on_alike(stream):
    X, _, scores, labels = stream
    for stop in (120, 300):
        one = fed(stream, in_batches(stop))
        other = fed(stream, in_batches(720, start=stop), pickle.loads(pickle.dumps(one)))
        one = fed(stream, in_batches(720, start=stop), one)
        asked = scores[720:], labels[720:], {"input": X[720:]}
        for found, expected in zip(other.rank(*asked), one.rank(*asked)):
            np.testing.assert_array_equal(found, expected)


def test_a_ranker_learnt_by_fit_learns_anew_from_a_stream(stream):
    X, Y, scores, labels = stream
    ranker = BoostedRanker().remember({"input": X[:200]}, Y[:200])
    ranker.fit(scores[200:300], Y[200:300], labels[200:300], {"input": X[200:300]})
    before = ranker.trees_
    fed(stream, in_batches(360, start=240), ranker)
    assert ranker.trees_ is before
    assert len(ranker.held_["keys"]) == 120
    fed(stream, in_batches(300, start=240), ranker)  # again: nothing to learn from
    fed(stream, in_batches(600, start=360), ranker)
    assert ranker.trees_ is not before


def test_features_of_the_network_may_be_all_that_is_compared(stream):
    X, Y, scores, labels = stream
    lists = [("near", NearestSamples(space="features")), ("together", CooccurringLabels())]
    near = BoostedRanker(lists).remember({"features": X[:100].toarray()}, Y[:100])
    some = slice(80, 120)
    near.partial_fit(scores[some], Y[some], labels[some], {"features": X[some].toarray()})
    assert len(near.memory_["weights"]) == 120  # equal features are those of one sample
    assert len(near.held_["keys"]) == 20
    near = near.forget([3, 125])
    assert len(pickle.loads(pickle.dumps(near)).memory_["weights"]) == 118


def test_other_rankers_remember(stream):
    class Counts(Ranker):
        def remember_more(self, samples, Y, sample_weight=None):
            self.n = Y.shape[0]
            return self

    X, Y, scores, labels = stream
    ranker = Counts()
    assert ranker.partial_fit(scores, Y, labels, {"input": X}) is ranker
    assert ranker.n == 900
    assert not ranker.streams
    assert not ranker.waits


@pytest.mark.parametrize("is_sparse", [False, True])
def test_later_samples_are_shortened_as_those_before(rng, is_sparse):
    few, many = (
        sp.random_array((50, 400), density=each, format="csr", random_state=rng)
        for each in (0.09, 0.12)
    )
    before, later = (few, many) if is_sparse else (many, few)
    Y = sp.csr_array(rng.random((50, 3)) < 0.5, dtype=int)
    ranker = BoostedRanker([("near", NearestSamples())]).remember({"input": before}, Y)
    ranker.remember_more({"input": later}, Y)
    sizes = np.diff(ranker.memory_["samples"]["input"].indptr)
    if is_sparse:
        assert sizes.max() == 32
    else:
        np.testing.assert_array_equal(sizes[50:], np.diff(later.indptr))


class Named(NearestSamples):
    fitted_to = ("input", "labels")
    _of_labels = NearestSamples._of_labels


def test_rankers_that_read_no_sample_or_labels_begin_with_fit(stream):
    assert not BoostedRanker([("named", Named())]).streams
    assert not Named()._follows_labels  # it is fitted to samples, too
    X, Y, scores, labels = stream
    ranker = BoostedRanker([("together", CooccurringLabels())])
    assert not ranker.streams
    assert BoostedRanker([("together", CooccurringLabels()), ("near", NearestSamples())]).streams
    ranker.remember({}, Y[:400]).fit(scores[400:800], Y[400:800], labels[400:800], {})
    assert ranker.partial_fit(scores[800:], Y[800:], labels[800:], {}) is ranker
    assert ranker.memory_["labels"].shape[0] == 500


@pytest.mark.parametrize("n_labels", [3, 256])
def test_rows_whose_labels_others_have_are_not_strange(n_labels):
    Y = sp.csr_array(np.ones((30, n_labels), dtype=np.int8))
    assert not streaming._are_strange(Y, np.arange(10))
    apart = sp.block_diag([Y[:10], Y[10:]], format="csr")
    assert streaming._are_strange(sp.csr_array(apart), np.arange(10))
    assert not streaming._are_strange(Y, np.arange(0))
    assert not streaming._are_strange(Y[:1], [0])


@pytest.mark.parametrize("n_labels", [20, 2000, 20_000])
@pytest.mark.parametrize("n_held", [200, 1000, 1500])
def test_rows_in_random_order_are_like_the_others_and_rows_of_few_labels_are_not(
    n_labels, n_held, rng
):
    shares = 1 / np.arange(1.0, n_labels + 1)
    drawn = rng.choice(n_labels, 3000, p=shares / shares.sum())
    for labels, is_strange in ((drawn, False), (np.sort(drawn)[::-1], True)):
        Y = sp.csr_array((np.ones(3000), (np.arange(3000), labels)), shape=(3000, n_labels))
        assert streaming._are_strange(Y, np.arange(3000 - n_held, 3000)) == is_strange


@pytest.mark.parametrize("sizes", [(400, 300, 300, 200), (200, 200, 200, 200, 200, 200)], ids=str)
def test_a_stream_sorted_by_class_learns_no_lists(sizes, rng):
    y = np.repeat(np.arange(len(sizes)), sizes)
    X = (rng.normal(size=(len(sizes), 10))[y] + rng.normal(size=(len(y), 10))).astype(np.float32)
    clf = MultiHeadClassifier(random_state=0)
    for start in range(0, len(y), 100):
        clf.partial_fit(X[start : start + 100], y[start : start + 100], classes=np.unique(y))
    assert clf.ranker_ is None
    order = rng.permutation(len(y))
    for start in range(0, len(y), 100):
        clf.partial_fit(X[order[start : start + 100]] + 1e-3, y[order[start : start + 100]])
    assert isinstance(clf.ranker_, BoostedRanker)


@pytest.mark.parametrize("n_labels", [2, 5, 100, 1000, 100_000])
def test_labels_in_random_order_are_never_strange(n_labels, rng):
    for n in (200, 400, 1600):
        labels = rng.integers(n_labels, size=n)
        Y = sp.csr_array((np.ones(n, np.int8), (np.arange(n), labels)), shape=(n, n_labels))
        assert not streaming._are_strange(Y, np.arange(n // 2, n))


def test_labels_that_come_and_go_are_not_strange(rng):
    labels = np.arange(3000) // 30 + rng.integers(50, size=3000)  # fifty at a time
    Y = sp.csr_array((np.ones(3000), (np.arange(3000), labels)))
    assert not streaming._are_strange(Y, np.arange(2000, 3000))


def test_repeated_passes_keep_the_trees_as_long_as_before(stream):
    X, Y, scores, labels = stream
    ranker = fed(stream, in_batches(800))
    for _ in range(2):
        ranker = fed(stream, in_batches(800), ranker)
    assert ranker.n_seen_ < streaming.STALE * ranker.n_learnt_
    assert not ranker.waits


def test_what_recalibrate_learnt_stays(rng):
    y = np.repeat(np.arange(4), 300)
    X = (rng.normal(size=(4, 10))[y] + rng.normal(size=(1200, 10))).astype(np.float32)
    clf = MultiHeadClassifier(random_state=0)
    for start in range(0, 1200, 100):
        clf.partial_fit(X[start : start + 100], y[start : start + 100], classes=np.arange(4))
    assert clf.ranker_ is None
    some = rng.permutation(1200)[:400]
    clf.recalibrate(X[some] + 1e-3, y[some])
    trees = clf.ranker_.trees_
    for _ in range(3):
        clf.partial_fit(X[-100:] + 2e-3, y[-100:])
        assert clf.ranker_.trees_ is trees


@pytest.mark.parametrize("times", [2, 5])
def test_samples_that_come_several_times_in_a_batch_are_learnt_from_once(stream, times, rng):
    X, _, scores, labels = stream
    best = X[:, :N_LABELS].toarray().argmax(axis=1)
    stream = X, sp.csr_array(np.eye(N_LABELS, dtype=int)[best]), scores, labels
    rows = [rng.permutation(np.repeat(np.arange(i, i + 60), times)) for i in range(0, 900, 60)]
    of_both = []
    for parts in (rows, in_batches(900)):
        ranker = fed(stream, parts)
        assert ranker.n_learnt_ > 0
        found = ranker.rank(scores, labels, {"input": X})[1][:, 0]
        of_both.append(np.mean(found == best))
    assert of_both[0] > of_both[1] - 0.03


def test_a_known_label_is_counted_with_its_first_samples(stream):
    X, Y, scores, labels = stream
    has = Y[:, 3].toarray().ravel() > 0
    first, late = np.flatnonzero(~has)[:300], np.flatnonzero(has)[:3]
    ranker = BoostedRanker()
    for rows in (first, late):
        ranker = copy.copy(ranker).partial_fit(
            scores[rows], Y[rows], labels[rows], {"input": X[rows], "ids": rows}
        )
        ranker.prepare()
    assert ranker.n_indexed_ < ranker.n_seen_
    np.testing.assert_allclose(np.expm1(ranker.log_counts_[3]), 3, rtol=1e-5)
