"""Lists of the network and of retrievers, and the numbers of their pairs, row by row."""

import numpy as np
import pytest
import sklearn

from sklearn_xlc.ranking import Retriever, describing
from sklearn_xlc.ranking.describing import Describing

N_LABELS, N_FIRST = 6, 3


class Listed(Retriever):
    """Lists two labels for all samples, and says their distance from the sample's number."""

    reads = ("input",)
    monotonic = [0]

    def __init__(self, labels=(3, 1), mistake=None):
        self.labels = labels
        self.mistake = mistake

    def get_feature_names_out(self, input_features=None):
        return np.array(["distance"])

    def search(self, samples, scores, labels):
        return samples["input"]

    def candidates(self, found):
        if self.mistake == "rows":
            found = found[:-1]
        labels = np.tile(self.labels, (len(found), 1))
        labels = labels.astype(float) if self.mistake == "floats" else labels
        labels = labels + 10**6 if self.mistake == "labels" else labels
        return labels.tolist() if self.mistake == "lists" else labels

    def numbers(self, found, rows, labels):
        assert (np.diff(rows * 1000 + labels) > 0).all()
        numbers = np.abs(found[rows] - labels)[:, None]
        if self.mistake == "shape":
            return numbers[:, [0, 0]]
        if self.mistake == "lists":
            return numbers.tolist()
        return np.where(rows[:, None] == 0, np.nan, numbers) if self.mistake == "nan" else numbers


def make(*retrievers, hides_unseen=False, counts=(4, 1, 0, 2, 7, 3), log_ratio=0.0):
    named = [(f"r{number}", each) for number, each in enumerate(retrievers)]
    log_counts = np.log1p(counts).astype(np.float32)
    return Describing(
        named, lambda samples: lambda name: samples, log_counts, log_ratio, N_FIRST, hides_unseen
    )


def make_lists(rng, n=40):
    """Scores, best first, and labels; some ends of lists are empty."""
    scores = -np.sort(-rng.normal(size=(n, N_FIRST + 1)), axis=1)
    labels = np.argsort(rng.random((n, N_LABELS)), axis=1)[:, : N_FIRST + 1]
    empty = np.arange(N_FIRST + 1) >= rng.integers(0, N_FIRST + 2, (n, 1))
    return np.where(empty, -np.inf, scores), np.where(empty, -1, labels)


def by_rows(describing, scores, labels, samples):
    """The same, a pair at a time."""
    found = []
    for row, (own, ids) in enumerate(zip(scores[:, :N_FIRST], labels[:, :N_FIRST])):
        listed = {int(label): score for label, score in zip(ids, own) if label >= 0}
        if describing.hides_unseen:
            listed = {k: v for k, v in listed.items() if describing.log_counts[k] > 0}
        more = {label for _, each in describing.retrievers for label in each.labels}
        best, last = max(listed.values(), default=0), min(listed.values(), default=1)
        for label in sorted({*listed, *more}):
            score = listed.get(label, last - 1)
            numbers = [score, score - best, describing.log_counts[label]]
            numbers += [abs(samples["input"][row] - label)] * len(describing.retrievers)
            found.append((row, label, listed.get(label, -np.inf), numbers))
    return found


@pytest.mark.parametrize("hides_unseen", [False, True])
@pytest.mark.parametrize("n_retrievers", [0, 1, 2])
def test_pairs_by_definition(hides_unseen, n_retrievers, rng):
    some = make(*[Listed(), Listed((5, 1))][:n_retrievers], hides_unseen=hides_unseen)
    scores, labels = make_lists(rng)
    samples = {"input": rng.integers(0, 9, len(scores))}
    found = some.pairs(scores, labels, samples)
    rows, listed, by_network, numbers = zip(*by_rows(some, scores, labels, samples))
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.labels, listed)
    np.testing.assert_array_equal(found.by_network, by_network)
    np.testing.assert_allclose(found.numbers, numbers, rtol=1e-6, atol=1e-6)
    assert len(some.names) == len(some.monotonic) == found.numbers.shape[1]
    assert some.names[:3] == ["score", "below_best", "count"]
    assert some.names[3:] == [f"r{number}__distance" for number in range(n_retrievers)]


def test_parts_within_the_working_memory_equal_the_whole(rng, monkeypatch):
    some, (scores, labels) = make(Listed()), make_lists(rng, 80)
    samples = {"input": rng.integers(0, 9, len(scores))}
    whole, sizes = some.pairs(scores, labels, samples), []
    search = Listed.search
    monkeypatch.setattr(
        Listed, "search", lambda self, *given: sizes.append(len(given[1])) or search(self, *given)
    )
    with sklearn.config_context(working_memory=0.005):
        parts = some.pairs(scores, labels, samples)
    assert max(sizes) < 50
    monkeypatch.setattr(describing, "_ROWS", 7)
    for found in (parts, some.pairs(scores, labels, samples)):
        for each, expected in zip(found, whole):
            np.testing.assert_array_equal(each, expected)
    assert max(sizes[-12:]) <= 7


def test_no_samples_have_no_pairs(rng):
    found = make(Listed()).pairs(np.empty((0, 2)), np.empty((0, 2), int), {"input": np.empty(0)})
    assert [len(each) for each in found] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "mistake, message",
    [
        ("rows", "candidates of the retriever 'r1' must be labels below .* rows"),
        ("labels", "candidates of the retriever 'r1' must be labels below"),
        ("floats", "candidates of the retriever 'r1' must be labels below .* float64"),
        ("shape", "numbers of the retriever 'r1' must be finite and of shape"),
        ("nan", "numbers of the retriever 'r1' must be finite and of shape"),
    ],
)
def test_mistakes_of_a_retriever_are_named(mistake, message, rng):
    some, (scores, labels) = make(Listed(), Listed(mistake=mistake)), make_lists(rng)
    with pytest.raises(ValueError, match=message):
        some.pairs(scores, labels, {"input": rng.integers(0, 9, len(scores))})


def test_lists_are_read_as_arrays(rng):
    (scores, labels), samples = make_lists(rng), {"input": rng.integers(0, 9, 40)}
    found, expected = (
        make(Listed(mistake=kind)).pairs(scores, labels, samples) for kind in ("lists", None)
    )
    for each, right in zip(found, expected):
        np.testing.assert_array_equal(each, right)


def test_labels_that_are_not_remembered_are_named():
    with pytest.raises(ValueError, match="lists label 6, but only 6 labels are remembered"):
        make().pairs(np.ones((1, 1)), np.full((1, 1), 6), {})


def test_counts_are_those_of_as_many_samples_as_were_known_then(rng):
    scores, labels = make_lists(rng)
    counts = np.array([40, 1, 0, 2, 7, 3])
    before = make(counts=counts).pairs(scores, labels, None)
    quarter = make(counts=4 * counts, log_ratio=np.log(1 / 4)).pairs(scores, labels, None)
    share = 4 * counts / (4 * counts + 10)
    expected = np.log(4 * counts + 1) - np.log(4) * share
    np.testing.assert_allclose(quarter.numbers[:, 2], expected[quarter.labels], rtol=1e-6)
    assert (quarter.numbers[:, 2] == 0).any()  # a label without samples has none
    many = before.labels == 0
    np.testing.assert_allclose(quarter.numbers[many, 2], before.numbers[many, 2], rtol=0.08)
    for column in (0, 1):
        np.testing.assert_array_equal(quarter.numbers[:, column], before.numbers[:, column])
