"""Sets closed upwards: the best of all by brute force, on lists, in classifiers and files."""

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold

from sklearn_xlc import MultiHeadClassifier, load, save
from sklearn_xlc.decisions import Decision, Divergence, Nearest, Taxonomy, Threshold, TopK
from sklearn_xlc.encoders import MLP
from sklearn_xlc.metrics import ancestors_of, label_set_score, label_set_scorer

N_LABELS = 7


def draw_parents(rng, most, n_labels=N_LABELS):
    """Parents among smaller labels: a tree, or a graph with several parents."""
    return {
        label: rng.choice(label, min(label, int(rng.integers(most + 1))), replace=False).tolist()
        for label in range(n_labels)
    }


def closed_sets(parents):
    above = ancestors_of(parents)
    return np.array(
        [
            taken
            for taken in itertools.product([False, True], repeat=N_LABELS)
            if all(taken[up] for label in range(N_LABELS) if taken[label] for up in above[label])
        ]
    )


def is_closed(sets, parents):
    above = ancestors_of(parents)
    sets = sp.csr_matrix(sets)
    rows = [set(ids.tolist()) for ids in np.split(sets.indices, sets.indptr[1:-1])]
    return all(above.get(label, frozenset()) <= row for row in rows for label in row)


@pytest.mark.parametrize("link", ["sigmoid", "exp", None])
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_the_best_closed_set_of_all(seed, most, link):
    rng = np.random.default_rng(seed)
    parents = draw_parents(rng, most)
    scores = rng.normal(size=(30, N_LABELS)) - (1.5 if link == "exp" else 0.0)
    values = {"sigmoid": expit, "exp": np.exp, None: np.copy}[link](scores)
    given = Threshold(0.4) if link else Threshold(0.4, scale="score")
    decision = Taxonomy(parents, given).fit(None, np.eye(N_LABELS), link=link)
    sets = closed_sets(parents)
    best = sets[np.argmax((values - 0.4) @ sets.T, axis=1)]
    found = decision.decode(scores).toarray()
    assert (best != (values > 0.4)).any()
    np.testing.assert_array_equal(found, best)
    order = np.argsort(-scores, axis=1)
    ranked = np.take_along_axis(scores, order, axis=1)
    np.testing.assert_array_equal(decision.decode(ranked, order).toarray(), best)


@pytest.mark.parametrize("rule", [Threshold(0.6), TopK(4), Divergence(max_labels=4), "auto"])
def test_sets_of_short_lists_and_other_rules_are_closed(rule):
    rng = np.random.default_rng(1)
    parents = draw_parents(rng, 2, 40)
    scores = 2 * rng.normal(size=(50, 40))
    order = np.argsort(-scores, axis=1)[:, :8]
    ranked = np.take_along_axis(scores, order, axis=1)
    Y = (rng.random((50, 40)) < 0.1).astype(int)
    decision = Taxonomy(parents, rule).fit(ranked, Y, labels=order)
    sets = decision.decode(ranked, order)
    assert sets.shape == (50, 40)
    assert sets.nnz > 0
    assert is_closed(sets, parents)
    consistent, labels = decision.consistent(ranked, order)
    assert consistent.shape == labels.shape == order.shape
    assert (np.diff(consistent, axis=1) <= 0).all()


def test_a_rule_that_leaves_ancestors_out_gets_them_back():
    class Last(Decision):
        def decode(self, scores, labels=None):
            return self.label_sets(np.arange(scores.shape[1]) == scores.shape[1] - 1, labels)

        def label_sets(self, taken, labels=None):
            return super().label_sets(np.tile(taken, (len(labels), 1)), labels)

    decision = Taxonomy({2: 1, 1: 0}, Last()).fit(None, np.eye(3))
    assert decision.decode(np.array([[3.0, 2.0, 1.0]])).toarray().tolist() == [[1, 1, 1]]


def test_consistent_scores_stay():
    parents, scores = {2: 1, 1: 0}, np.array([[3.0, 2.0, 1.0], [50.0, 45.0, 40.0]])
    decision = Taxonomy(parents, Threshold(0.5)).fit(None, np.eye(3))
    found, labels = decision.consistent(scores)
    np.testing.assert_array_equal(found, scores)
    np.testing.assert_array_equal(labels, [[0, 1, 2]] * 2)
    found, labels = decision.consistent(np.array([[0.0, 900.0, -900.0]]))
    assert np.isfinite(found).all()
    assert labels.tolist() == [[0, 1, 2]]


def test_a_threshold_is_tuned_on_consistent_probabilities():
    rng = np.random.default_rng(0)
    parents = draw_parents(rng, 2)
    sets = closed_sets(parents)
    Y = sets[rng.integers(len(sets), size=80)].astype(int)
    scores = 2.0 * Y - 1 + 1.5 * rng.normal(size=Y.shape)
    decision = Taxonomy(parents, Threshold()).fit(scores, Y)
    values, labels = decision.consistent(scores)
    alone = Threshold().fit(values, Y, labels=labels)
    assert decision.decision_.cut_ == alone.cut_
    np.testing.assert_array_equal(
        decision.decode(scores).toarray(), alone.decode(values, labels).toarray()
    )
    assert decision.fitted_on == "held"
    assert Taxonomy(parents, TopK(2)).fitted_on is None


def test_labels_that_go():
    rng = np.random.default_rng(2)
    parents = draw_parents(rng, 2)
    scores = rng.normal(size=(20, N_LABELS))
    decision = Taxonomy(parents, Threshold(0.5)).fit(None, np.eye(N_LABELS))
    origin = np.array([6, 2, 0, 4, 3])
    other = decision.for_labels(origin)
    anew = Taxonomy(parents, Threshold(0.5)).fit(None, np.eye(5), classes=origin)
    np.testing.assert_array_equal(other.ancestors_, anew.ancestors_)
    found = other.decode(scores[:, origin]).toarray()
    np.testing.assert_array_equal(found, anew.decode(scores[:, origin]).toarray())
    assert other.decision_.n_labels_ == 5


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (({"a": "b", "b": "a"},), ValueError, "parents has a cycle: "),
        (([("a", "b")],), TypeError, "parents must be a dict of a label to its parent or parents"),
        ((None,), TypeError, "or a series with the labels in its index, got a NoneType"),
        (({"a": 1.5},), TypeError, "must be a label, or a list of labels"),
        (((label for label in "ab"),), TypeError, "labels in its index, got a generator"),
        (({"a": (up for up in "b")},), TypeError, r"parents\['a'\] must be a label, or a list"),
        (({"a": "b"}, "nearest"), ValueError, "'decision' parameter of Taxonomy must be"),
        (({"a": "b"}, Threshold(per_label=True)), ValueError, "one threshold for all labels"),
        (({"a": "b"}, Threshold([0.1, 0.2])), ValueError, "one threshold for all labels"),
        (({"a": "b"}, TopK(9)), ValueError, "k=9 is more than the 3 labels of y"),
        (({},), ValueError, "parents names none of the 3 labels, such as 'a'; it is empty"),
        (({"x": "y"},), ValueError, "parents names none of the 3 labels, such as 'a'; it names"),
    ],
)
def test_bad_parameters(arguments, error, message):
    X, tags = np.eye(6), [["a"], ["b"], ["c"]] * 2
    with pytest.raises(error, match=message):
        MultiHeadClassifier(decision=Taxonomy(*arguments), max_epochs=1).fit(X, tags)


def test_rules_that_read_no_ranked_labels():
    decision = Taxonomy({0: 1}, Nearest())
    with pytest.raises(ValueError, match="of Taxonomy reads features, but must read ranked"):
        decision.check_labels(sp.csr_matrix(np.eye(3)))


# --- in a classifier ----------------------------------------------------------------------------

PARENTS = {"cat": ["feline", "pet"], "feline": "animal", "dog": ["pet", "animal"], "rose": "plant"}


def samples(n_samples=160):
    """Noisy features of leaves, and tags with all their ancestors."""
    rng = np.random.default_rng(0)
    leaves = rng.choice(["cat", "dog", "rose", "feline"], n_samples)
    X = np.array([[leaf == name for name in ("cat", "dog", "rose", "feline")] for leaf in leaves])
    above = ancestors_of(PARENTS)
    return X + rng.normal(size=X.shape), [[leaf, *sorted(above[leaf])] for leaf in leaves]


def classifier(rule, **params):
    quick = {"encoder": MLP((16,), dropout=0.0), "max_epochs": 8, "learning_rate": 0.05}
    return MultiHeadClassifier("flat", decision=rule, random_state=0, **(quick | params))


def test_tags_of_a_classifier(tmp_path):
    X, tags = samples()
    clf = classifier(Taxonomy(PARENTS), validation_fraction=0.3).fit(X[:120], tags[:120])
    predicted = clf.predict(X[120:])
    above = ancestors_of(PARENTS)
    assert all(above[tag] <= set(row) for row in predicted for tag in row)
    assert label_set_score(tags[120:], predicted, "f1_micro", parents=PARENTS) > 0.6
    assert isinstance(clf.decision_.decision_, Threshold)
    save(clf, tmp_path / "model.skops")
    for other in (load(tmp_path / "model.skops"), clone(clf).fit(X[:120], tags[:120])):
        assert other.decision.parents == PARENTS
        assert other.predict(X[120:]).tolist() == predicted.tolist()
    clf.set_params(decision__decision=TopK(2)).recalibrate(X[:120], tags[:120])
    assert all(len(row) >= 2 for row in clf.predict(X))


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_parents_of_a_column(missing, tmp_path):
    X, tags = samples()
    pairs = [(name, up) for name, ups in PARENTS.items() for up in np.atleast_1d(ups).tolist()]
    names, above = zip(*pairs, ("animal", missing), ("plant", missing))
    column = pd.Series(above, names, dtype=object)
    clf = classifier(Taxonomy(column)).fit(X, tags)
    expected = classifier(Taxonomy(PARENTS)).fit(X, tags)
    np.testing.assert_array_equal(clf.decision_.ancestors_, expected.decision_.ancestors_)
    assert clf.predict(X).tolist() == expected.predict(X).tolist()
    search = GridSearchCV(clf, {}, scoring=label_set_scorer(parents=column))
    for model in (clf, search, classifier(Taxonomy({"cat": missing}))):
        save(model, tmp_path / "model.skops", exact=True)
        loaded = load(tmp_path / "model.skops")
    loaded = loaded.set_params(decision=Taxonomy([1]))
    with pytest.raises(TypeError, match="parents must be a dict"):
        clone(loaded).fit(X, tags)
    save(clf, tmp_path / "model.skops", exact=True)
    loaded = load(tmp_path / "model.skops")
    assert ancestors_of(loaded.decision.parents) == ancestors_of(column)
    assert loaded.predict(X).tolist() == clf.predict(X).tolist()


def test_a_label_that_comes_later_is_connected():
    X, tags = samples()
    known = [[tag for tag in row if tag not in ("cat", "feline")] for row in tags]
    clf = classifier(Taxonomy(PARENTS, Threshold(0.3)), ranker=None).fit(X, known)
    classes = [*clf.classes_, "cat", "feline"]
    clf.partial_fit(X, tags, classes=classes)
    for _ in range(5):
        clf.partial_fit(X, tags)
    names = clf.classes_.tolist()
    pairs = {(names[label], names[above]) for label, above in clf.decision_.ancestors_}
    expected = ancestors_of(PARENTS)
    assert pairs == {(label, up) for label in names for up in expected[label]}
    assert any("cat" in row for row in clf.predict(X))
    clf.remove_labels(["pet"])
    assert all("feline" in row for row in clf.predict(X) if "cat" in row)


def test_a_search_over_the_inner_rule():
    X, tags = samples(90)
    grid = {"decision__decision": [Threshold(0.999), Threshold(0.4)]}
    scorer = label_set_scorer("f1_micro", parents=PARENTS)
    clf = classifier(Taxonomy(PARENTS), ranker=None)
    search = GridSearchCV(clf, grid, scoring=scorer, cv=KFold(2), error_score="raise")
    assert search.fit(X, tags).best_params_["decision__decision"].threshold == 0.4
