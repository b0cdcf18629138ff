"""AggregatedLabelClassifier: every kind of classifier, refinement, routing, checks, bad input."""

import io

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import RandomForestClassifier, StackingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from _factories import N_LABELS, make_learnable
from sklearn_xlc import (
    AggregatedLabelClassifier,
    DFTSigmoidClassifier,
    EAGLETransformer,
    MultiHeadClassifier,
    config_context,
    predict_topk,
)
from sklearn_xlc.datasets import make_aggregated, make_extreme_multiclass, make_extreme_multilabel
from sklearn_xlc.decisions import RiskControl
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import Cascade
from sklearn_xlc.metrics import precision_at_k, topk_scorer

LINEAR = OneVsRestClassifier(LogisticRegression(C=100.0, max_iter=1000))
#: Its strong penalty ends a fit in a quarter of the steps, where nothing is said of quality.
PENALIZED = OneVsRestClassifier(LogisticRegression())
SEEDED = EAGLETransformer(random_state=0)
PAPER_START = EAGLETransformer(contrast=None, n_iter=0, random_state=0)
QUICK = {"encoder": MLP((32,)), "max_epochs": 30, "random_state": 0}
BRIEF = {**QUICK, "max_epochs": 2}
SMALL = AggregatedLabelClassifier(PENALIZED)
#: Checks that scikit-learn runs on its own estimators only.
MORE_CHECKS = [
    "check_dataframe_column_names_consistency",
    "check_n_features_in_after_fitting",
    "check_param_validation",
]


# OneVsRestClassifier warns where y has one class.
@pytest.mark.filterwarnings("ignore:Label not:UserWarning")
@parametrize_with_checks([SMALL])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Label not:UserWarning")
@parametrize_with_checks(
    [
        clone(SMALL).set_params(n_rounds=2),
        AggregatedLabelClassifier(LogisticRegression()),
        AggregatedLabelClassifier(
            MultiHeadClassifier(
                "flat",
                encoder=MLP((16,)),
                max_epochs=8,
                learning_rate=0.06,
                random_state=0,
            )
        ),
    ]
)
def test_scikit_learn_checks_around_other_classifiers(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", MORE_CHECKS)
def test_checks_that_scikit_learn_keeps_for_itself(name):
    getattr(estimator_checks, name)("AggregatedLabelClassifier", clone(SMALL))


def test_tags_are_those_of_the_classifier():
    clf = AggregatedLabelClassifier(MultiHeadClassifier("flat"))
    assert get_tags(clf).classifier_tags.multi_label
    assert get_tags(clf).input_tags.sparse
    assert not get_tags(AggregatedLabelClassifier(LogisticRegression())).classifier_tags.multi_label


@pytest.fixture(scope="module")
def problem():
    """Rows, their labels, those of their groups, ids; and rows to test on."""
    X, Y = make_extreme_multilabel(900, 300, 20, random_state=0)
    grouped, groups = make_aggregated(Y[:600], group_size=4, random_state=0)
    return X[:600], Y[:600], grouped, groups, X[600:], Y[600:]


@pytest.fixture(scope="module")
def small():
    """The same with fewer rows and labels, for what does not depend on their number."""
    X, Y = make_extreme_multilabel(240, 60, 12, random_state=0)
    grouped, groups = make_aggregated(Y[:160], group_size=2, random_state=0)
    return X[:160], Y[:160], grouped, groups, X[160:], Y[160:]


@pytest.mark.integration
@pytest.mark.parametrize(
    "estimator",
    [
        LINEAR,
        MultiHeadClassifier("flat", **{**QUICK, "max_epochs": 15, "learning_rate": 1e-2}),
        *(
            pytest.param(estimator, marks=pytest.mark.slow)
            for estimator in (
                MultiHeadClassifier(Cascade(embedding_dim=16), **QUICK),
                DFTSigmoidClassifier(n_slack=16, **QUICK),
            )
        ),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.parametrize("dense", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_better_than_to_give_all_labels_to_all_rows(problem, estimator, dense):
    X, _, grouped, groups, X_test, Y_test = problem
    y = grouped.toarray() if dense else grouped
    n_rounds = "auto" if dense and estimator is LINEAR else 1  # a choice takes about thirty fits
    aware = AggregatedLabelClassifier(clone(estimator), SEEDED, n_rounds=n_rounds)
    aware.fit(X, y, groups)
    naive = clone(estimator).fit(X, y)
    scorer = topk_scorer("precision", k=1)
    assert scorer(aware, X_test, Y_test) > scorer(naive, X_test, Y_test) + 0.02
    predicted = aware.predict(X_test)
    assert predicted.shape == Y_test.shape
    if not dense:
        assert sparse.issparse(predicted)


@pytest.mark.parametrize("n_rounds", [1, 2])
def test_assigned_labels_are_of_the_group_and_each_is_carried(small, n_rounds):
    X, _, grouped, groups, _, _ = small
    clf = AggregatedLabelClassifier(PENALIZED, SEEDED, n_rounds=n_rounds).fit(X, grouped, groups)
    assigned = clf.assigned_.toarray()
    allowed = grouped.toarray() != 0
    assert (assigned <= allowed).all()
    for group in np.unique(groups):
        rows = groups == group
        np.testing.assert_array_equal(assigned[rows].any(axis=0), allowed[rows][0])


@pytest.mark.slow
def test_a_second_round_finds_more_of_the_truth(problem):
    X, Y, grouped, groups, _, _ = problem
    assigner = EAGLETransformer(contrast=None, random_state=0)  # leaves much to find

    def share_found(n_rounds):
        clf = AggregatedLabelClassifier(LINEAR, assigner, n_rounds=n_rounds)
        assigned = clf.fit(X, grouped, groups).assigned_
        return assigned.multiply(Y).sum() / assigned.sum()

    once, twice, often = share_found(1), share_found(2), share_found(3)
    assert once + 0.02 < twice <= often


@pytest.mark.integration
def test_rounds_keep_the_number_of_rows_of_each_label(problem):
    X, _, grouped, groups, _, _ = problem
    first, second = (
        AggregatedLabelClassifier(PENALIZED, SEEDED, n_rounds=n).fit(X, grouped, groups).assigned_
        for n in (1, 2)
    )
    assert (first != second).nnz > 0
    n_groups = np.array([len(np.unique(groups[grouped.toarray()[:, k] > 0])) for k in range(20)])
    # As many rows as before, unless some group needs one more so that the label is carried in it.
    assert (second.sum(axis=0) >= np.maximum(n_groups, 0)).all()
    assert np.abs(second.sum(axis=0) - first.sum(axis=0)).max() <= n_groups.max() // 10


def test_classifiers_never_score_groups_that_they_were_trained_on(small):
    X, _, grouped, groups, _, _ = small
    marked = sparse.hstack([X, sparse.csr_array(groups[:, None].astype(float))], format="csr")

    class Watch(ClassifierMixin, BaseEstimator):
        """Remembers its groups and refuses to score them."""

        def fit(self, X, y):
            self.groups_ = set(np.asarray(X[:, [-1]].todense()).ravel())
            self.classes_ = np.arange(y.shape[1])
            return self

        def decision_function(self, X):
            asked = set(np.asarray(X[:, [-1]].todense()).ravel())
            assert not asked & self.groups_
            return np.zeros((X.shape[0], len(self.classes_)))

        def predict(self, X):
            return self.decision_function(X) > 0

    clf = AggregatedLabelClassifier(Watch(), n_rounds=2, n_folds=3).fit(marked, grouped, groups)
    assert clf.estimator_.groups_ == set(groups)


def test_groups_of_one_row_give_back_y(small):
    X, Y, _, _, X_test, _ = small
    clf = AggregatedLabelClassifier(PENALIZED, SEEDED, n_rounds=3).fit(X, Y)
    assert (clf.assigned_ != Y).nnz == 0
    np.testing.assert_allclose(
        clf.decision_function(X_test), clone(PENALIZED).fit(X, Y).decision_function(X_test)
    )


def test_membership_matrix_says_the_same_as_ids(small):
    X, _, grouped, groups, X_test, _ = small
    membership = sparse.csr_array((np.ones(160), (np.arange(160), groups)))
    of_groups = grouped[np.unique(groups, return_index=True)[1]]
    ids = AggregatedLabelClassifier(PENALIZED, SEEDED, n_rounds=2).fit(X, grouped, groups)
    matrix = AggregatedLabelClassifier(PENALIZED, SEEDED, n_rounds=2).fit(X, of_groups, membership)
    np.testing.assert_array_equal(ids.decision_function(X_test), matrix.decision_function(X_test))


def test_rows_of_many_groups(small):
    X, _, grouped, groups, _, _ = small
    membership = sparse.lil_array((160, groups.max() + 1))
    membership[np.arange(160), groups] = 1
    membership[0, :3] = 1  # row 0 connects groups
    of_groups = grouped[np.unique(groups, return_index=True)[1]]
    clf = AggregatedLabelClassifier(PENALIZED, SEEDED, n_rounds=2)
    clf.fit(X, of_groups, membership.tocsr())
    membership[5, :] = 0
    before = clf.assigned_
    with pytest.raises(ValueError, match=r"sample 5 is in no group, .* \(1 of 160\)"):
        clf.fit(X, of_groups, membership.tocsr())
    assert clf.assigned_ is before


@pytest.mark.filterwarnings("ignore:.*cannot be learnt:UserWarning")
def test_counts_are_carried_through_rounds():
    X, Y = make_extreme_multilabel(400, 200, 10, random_state=0)
    grouped, groups = make_aggregated(Y, group_size=5, merge="list", random_state=0)
    assert grouped.max() > 1
    assigner = EAGLETransformer(multiplicity="top", random_state=0)
    clf = AggregatedLabelClassifier(PENALIZED, assigner, n_rounds=2).fit(X, grouped, groups)
    membership = sparse.csr_array((np.ones(400, int), (np.arange(400), groups)))
    of_groups = grouped[np.unique(groups, return_index=True)[1]]
    assert ((membership.T @ clf.assigned_.astype(int)) != of_groups).nnz == 0


@pytest.mark.parametrize("names", [np.arange(5), np.array(list("abcde"))], ids=["numbers", "names"])
@pytest.mark.parametrize("n_rounds", [1, 2])
def test_one_class_a_group(names, n_rounds):
    X, y = make_extreme_multiclass(400, 100, 5, random_state=0)
    groups = y * 100 + np.arange(400) % 40  # rows of a group have one class
    clf = AggregatedLabelClassifier(LogisticRegression(), n_rounds=n_rounds)
    clf.fit(X[:300], names[y[:300]], groups[:300])
    np.testing.assert_array_equal(clf.classes_, names)
    assert clf.score(X[300:], names[y[300:]]) > 0.8


@pytest.mark.parametrize("n_rounds", [1, 2])
def test_lists_of_probabilities_and_frames(n_rounds):
    X, Y = make_extreme_multilabel(200, 30, 6, random_state=0)
    frame = pd.DataFrame(X.toarray(), columns=[f"f{i}" for i in range(30)])
    grouped, groups = make_aggregated(Y, group_size=2, random_state=0)
    forest = RandomForestClassifier(n_estimators=10, random_state=0)
    clf = AggregatedLabelClassifier(forest, SEEDED, n_rounds=n_rounds)
    clf.fit(frame, grouped.toarray(), groups)
    assert list(clf.feature_names_in_) == list(frame.columns)
    assert clf.predict(frame).shape == (200, 6)
    assert not hasattr(clf, "decision_function")


@pytest.mark.parametrize("named", [False, True])
def test_a_classifier_with_an_output_per_label_ranks_by_its_probabilities(small, named):
    X, _, grouped, groups, X_test, Y_test = small
    y, y_test = pd.DataFrame(grouped.toarray()).add_prefix("l"), Y_test.toarray()
    forest = RandomForestClassifier(n_estimators=5, random_state=0)
    clf = AggregatedLabelClassifier(forest, SEEDED, n_rounds=1)
    clf.fit(X, y if named else y.to_numpy(), groups)
    expected = np.column_stack([of[:, 1] for of in clf.estimator_.predict_proba(X_test)])
    np.testing.assert_array_equal(clf.predict_proba(X_test), expected)
    with np.errstate(divide="ignore"):  # of a forest
        np.testing.assert_array_equal(clf.predict_log_proba(X_test), np.log(expected))
    labels, probabilities = predict_topk(clf, X_test, k=2, proba=True)
    np.testing.assert_array_equal(probabilities[:, 0], expected.max(axis=1))
    best = expected.argmax(axis=1)
    np.testing.assert_array_equal(labels[:, 0], y.columns[best] if named else best)
    y_true = pd.DataFrame(y_test, columns=y.columns) if named else y_test
    assert clf.score(X_test, y_true) == precision_at_k(y_test, expected, k=1)


def test_probabilities_of_a_stack_are_those_of_its_labels(small):
    X, _, grouped, groups, X_test, _ = small
    forest = RandomForestClassifier(n_estimators=5, random_state=0)
    stack = StackingClassifier([("trees", forest)], forest, cv=2)
    for model in (stack, make_pipeline(MaxAbsScaler(), stack)):
        clf = AggregatedLabelClassifier(model, SEEDED, n_rounds=1)
        clf.fit(X, grouped.toarray(), groups)
        np.testing.assert_array_equal(clf.predict_proba(X_test) > 0.5, clf.predict(X_test))


@pytest.mark.filterwarnings("ignore:Label .* is present in all training examples")
def test_a_label_of_no_group_is_ranked_last(small):
    X, _, grouped, groups, X_test, _ = small
    y = grouped.toarray()
    y[:, 0] = 0
    for model in (LINEAR, make_pipeline(MaxAbsScaler(), LINEAR)):
        clf = AggregatedLabelClassifier(model, SEEDED, n_rounds=1).fit(X, y, groups)
        labels, scores = predict_topk(clf, X_test, k=y.shape[1])
        assert (labels[:, -1] == 0).all()
        assert (scores[:, -1] < scores[:, -2]).all()


@pytest.mark.parametrize("names", [None, list("abc")])
def test_labels_that_nearly_all_groups_have_are_warned_of(names):
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(800, 4)), np.arange(800) // 4
    of_groups = rng.random((200, 3)) < [0.5, 0.8, 0.98]
    of_groups[:, 0] |= ~of_groups.any(axis=1)
    clf = AggregatedLabelClassifier(PENALIZED, SEEDED, n_rounds=1)

    def fit():
        y = of_groups.astype(int)
        return clf.fit(X, y if names is None else pd.DataFrame(y, columns=names), groups)

    fit()
    of_groups[:, 2] = np.arange(200) != 7
    with pytest.warns(
        UserWarning,
        match="1 of 3 labels are in more than 99% of the groups.*: 2;"
        if names is None
        else "cannot be learnt: c;",
    ):
        fit()


def assigned_by(estimator, X, grouped, groups, **params):
    clf = AggregatedLabelClassifier(estimator, **{"n_rounds": 1} | params)
    return clf.fit(X, grouped, groups)


@pytest.fixture(scope="module")
def seeded():
    """Rows, labels of their groups, and ids; what is assigned depends on the seed."""
    X, Y = make_extreme_multilabel(400, 300, 60, random_state=0)
    grouped, groups = make_aggregated(Y, group_size=3, random_state=0)
    return X, grouped.toarray(), groups


def test_the_seed_of_the_classifier_is_that_of_the_default_assigner(seeded):
    X, grouped, groups = seeded
    by_seed = [
        assigned_by(DecisionTreeClassifier(random_state=seed), X, grouped, groups).assigned_
        for seed in (0, 0, 1)
    ]
    assert (by_seed[0] != by_seed[1]).nnz == 0
    assert (by_seed[0] != by_seed[2]).nnz > 0  # otherwise this tests nothing
    expected = EAGLETransformer(random_state=0).fit(X, grouped, groups).assign(X, grouped, groups)
    nested = [
        make_pipeline(MaxAbsScaler(), DecisionTreeClassifier(random_state=0)),
        MultiOutputClassifier(DecisionTreeClassifier(random_state=np.int64(0))),
        # The outermost one counts, unless it is none that the assigner takes.
        ClassifierWithSeed(DecisionTreeClassifier(random_state=1), random_state=0),
        ClassifierWithSeed(DecisionTreeClassifier(random_state=0)),
        ClassifierWithSeed(DecisionTreeClassifier(random_state=0), np.random.default_rng(0)),
        ClassifierWithSeed(DecisionTreeClassifier(random_state=0), -1),
        ClassifierWithSeed(DecisionTreeClassifier(random_state=0), True),
    ]
    for estimator in nested:
        found = assigned_by(estimator, X, grouped, groups)
        assert (found.assigned_ != expected).nnz == 0
    own = assigned_by(nested[0], X, grouped, groups, assigner=EAGLETransformer(random_state=1))
    assert (own.assigned_ != by_seed[2]).nnz == 0  # an assigner that is given has its own seed


class ClassifierWithSeed(ClassifierMixin, BaseEstimator):
    """Another classifier, and a seed."""

    def __init__(self, estimator, random_state=None):
        self.estimator, self.random_state = estimator, random_state

    def fit(self, X, y):
        self.estimator_ = clone(self.estimator).fit(X, y)
        return self

    def predict(self, X):
        return self.estimator_.predict(X)


@pytest.mark.parametrize("n_rounds", [1, 2, pytest.param("auto", marks=pytest.mark.slow)])
def test_a_fit_is_repeated_by_its_seed(seeded, n_rounds):
    X, grouped, groups = seeded
    for seed in (0, np.random.RandomState(0)):
        estimator = MultiHeadClassifier("flat", **{**BRIEF, "random_state": seed})
        clf = AggregatedLabelClassifier(estimator, n_rounds=n_rounds).fit(X, grouped, groups)
        expected, assigned = clf.predict_proba(X), clf.assigned_
        again = clf.fit(X, grouped, groups)
        assert (again.assigned_ != assigned).nnz == 0
        np.testing.assert_array_equal(again.predict_proba(X), expected)
    # The classifiers are copies with copies of the state, and so is the assigner.
    assert seed.randint(2**31) == np.random.RandomState(0).randint(2**31)


# --- in scikit-learn --------------------------------------------------------------------------


def text_problem(n=240, seed=0):
    """Sentences about topics, the labels of groups of four, ids, and labels of the sentences."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(6, size=(n, 2))
    texts = [
        " ".join(f"topic{t}word{w}" for t in set(row) for w in rng.integers(8, size=6))
        for row in topics
    ]
    Y = np.zeros((n, 6), dtype=int)
    Y[np.arange(n)[:, None], topics] = 1
    groups = rng.permutation(n) // 4
    grouped = np.array([Y[groups == group].any(axis=0) for group in groups]).astype(int)
    return np.array(texts), grouped, groups, Y


def test_pipeline_without_routing():
    texts, grouped, groups, Y = text_problem()
    pipeline = make_pipeline(
        TfidfVectorizer(), AggregatedLabelClassifier(LINEAR, SEEDED, n_rounds=1)
    )
    pipeline.fit(texts, grouped, aggregatedlabelclassifier__groups=groups)
    assert (pipeline.predict(texts) == Y).mean() > 0.95


@pytest.mark.integration
def test_search_over_the_assigner_with_groups_routed(routing):
    texts, grouped, groups, Y = text_problem()
    clf = AggregatedLabelClassifier(LINEAR, SEEDED, n_rounds=1).set_fit_request(groups=True)
    pipeline = make_pipeline(TfidfVectorizer(), clf)
    search = GridSearchCV(
        pipeline,
        {"aggregatedlabelclassifier__assigner__n_iter": [0, 2]},
        cv=GroupKFold(3),
        scoring=topk_scorer("aggregated_precision", k=2),
        error_score="raise",
    )
    search.fit(texts, grouped, groups=groups)
    assert search.best_score_ > 0.8
    assert precision_at_k(Y, search.predict_proba(texts), k=1) > 0.95
    assert search.best_estimator_[-1].assigned_.shape == (240, 6)
    result = cross_validate(
        pipeline,
        texts,
        grouped,
        params={"groups": groups},
        cv=GroupKFold(3),
        scoring=topk_scorer("aggregated_precision", k=2),
        error_score="raise",
    )
    assert len(result["test_score"]) == 3


def test_other_metadata_goes_to_the_classifier(small, routing):
    X, _, grouped, groups, _, _ = small
    inner = MultiHeadClassifier("flat", **BRIEF).set_fit_request(sample_weight=True)
    weight = np.ones(160)
    weight[:80] = 0
    clf = AggregatedLabelClassifier(inner, SEEDED, n_rounds=1)
    clf.fit(X, grouped, groups, sample_weight=weight)
    expected = clone(inner).fit(X, sparse.csr_matrix(clf.assigned_), sample_weight=weight)
    np.testing.assert_array_equal(clf.decision_function(X), expected.decision_function(X))
    with pytest.raises(TypeError, match="sample_wait"):
        clf.fit(X, grouped, groups, sample_wait=weight)


def test_weights_are_cut_to_the_folds(small):
    X, _, grouped, groups, _, _ = small
    inner = MultiHeadClassifier("flat", **BRIEF)
    clf = AggregatedLabelClassifier(inner, SEEDED, n_rounds=2)
    clf.fit(X, grouped, groups, sample_weight=np.linspace(0.5, 1, 160))
    assert clf.predict_topk(X, k=3)[0].shape == (160, 3)
    assert clf.predict_topk_sparse(X, k=3).nnz == 480


@pytest.mark.parametrize("wrong", [-1.0, np.nan])
def test_weights_of_a_score_are_checked(wrong):
    X, y = make_learnable(False)
    clf = AggregatedLabelClassifier(MultiHeadClassifier("flat", **BRIEF), n_rounds=1)
    clf.fit(X, y, np.arange(150))
    weight = np.ones(150)
    assert clf.score(X, y, weight) == clf.score(X, y)
    weight[7] = wrong
    for truth in (y, np.eye(N_LABELS, dtype=int)[y]):
        with pytest.raises(ValueError, match=f"sample_weight must be .*, got {wrong} in row 7"):
            clf.score(X, truth, weight)


def test_scorer_says_that_it_lacks_groups(small):
    X, _, grouped, groups, _, _ = small
    clf = AggregatedLabelClassifier(LINEAR, SEEDED, n_rounds=1).fit(X, grouped, groups)
    scorer = topk_scorer("aggregated_precision", k=1)
    with pytest.raises(TypeError, match="needs the groups of the samples"):
        scorer(clf, X, grouped)
    assert scorer(clf, X, grouped, groups=groups) > 0.9


def test_saved_and_loaded(small):
    X, _, grouped, groups, X_test, _ = small
    clf = AggregatedLabelClassifier(MultiHeadClassifier("flat", **BRIEF), SEEDED, n_rounds=2)
    clf.fit(X, grouped, groups)
    file = io.BytesIO()
    joblib.dump(clf, file)
    file.seek(0)
    loaded = joblib.load(file)
    np.testing.assert_array_equal(loaded.decision_function(X_test), clf.decision_function(X_test))


# --- bad input --------------------------------------------------------------------------------


def spoiled(problem, what):
    X, _, grouped, groups, _, _ = problem
    y, ids = grouped.toarray(), groups.astype(float)
    if what == "length":
        ids = ids[:-1]
    elif what == "labels":
        y[7] = 1 - y[7]
    elif what == "nan":
        ids[11] = np.nan
    elif what == "negative":
        y[13] = -2
    return X, y, ids


@pytest.mark.parametrize(
    "what, message",
    [
        ("length", r"one id for each of the 160 samples.*\(159,\)"),
        ("labels", "but row .* differs from row"),
        ("nan", "nan for row 11"),
        ("negative", "-2 in row 13"),
    ],
)
def test_bad_input_is_named_and_the_fitted_classifier_kept(small, what, message):
    X, _, grouped, groups, X_test, _ = small
    clf = AggregatedLabelClassifier(PENALIZED, SEEDED, n_rounds=1).fit(X, grouped, groups)
    before = clf.decision_function(X_test)
    with pytest.raises(ValueError, match=message):
        clf.fit(*spoiled(small, what))
    np.testing.assert_array_equal(clf.decision_function(X_test), before)


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"estimator": object()}, "estimator"),
        ({"assigner": LINEAR}, "assigner"),
        ({"n_rounds": 0}, "n_rounds"),
        ({"n_rounds": "often"}, "n_rounds"),
        ({"n_folds": 1}, "n_folds"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_bad_parameters(small, parameters, message):
    X, _, grouped, groups, _, _ = small
    clf = AggregatedLabelClassifier(PENALIZED, SEEDED, n_rounds=1)
    for name, value in parameters.items():
        setattr(clf, name, value)
    with pytest.raises(ValueError, match=f"'{message}' parameter"):
        clf.fit(X, grouped, groups)


@pytest.mark.filterwarnings("ignore:.*cannot be learnt:UserWarning")
def test_too_few_groups_for_the_folds(small):
    X, _, grouped, _, _, _ = small
    y = sparse.csr_array(np.ones((160, 12), dtype=int))
    with pytest.raises(ValueError, match="n_folds=2 that share no sample, got 1; use n_rounds=1"):
        AggregatedLabelClassifier(PENALIZED, SEEDED, n_rounds=2).fit(X, y, np.zeros(160))


def test_read_only_labels_are_left_alone(small):
    X, _, grouped, groups, _, _ = small
    y = sparse.csr_array(grouped, copy=True)
    for part in (y.data, y.indices, y.indptr):
        part.flags.writeable = False
    AggregatedLabelClassifier(PENALIZED, SEEDED, n_rounds=2).fit(X, y, groups)


@pytest.mark.parametrize(
    "classes",
    [
        pd.Series([2**60 + 1, 2**60] * 4, dtype="Int64"),
        [2**63 + 1, 1] * 4,
        np.array(["b", "a"] * 4, np.dtypes.StringDType()),
        ["a\0", "a"] * 4,
        pd.Series([True, False] * 4, dtype="boolean"),
    ],
    ids=["Int64", "above int64", "StringDType", "null", "boolean"],
)
def test_classes_are_read_as_they_are(classes):
    X = np.tile(np.eye(2), (4, 1))
    clf = AggregatedLabelClassifier(KNeighborsClassifier(1), SEEDED, n_rounds=1).fit(X, classes)
    assert clf.classes_.tolist() == clf.predict(X[[1, 0]]).tolist() == sorted(set(classes))
    assert clf.score(X, classes) == 1


@pytest.mark.parametrize("dtype", [np.float16, ">i8", ">f4"])
@pytest.mark.parametrize("decision", [None, RiskControl(0.9)])
def test_indicators_of_numbers_that_scipy_does_not_read(small, dtype, decision):
    X, _, grouped, groups, _, _ = small
    grouped = grouped.toarray()
    clf = AggregatedLabelClassifier(PENALIZED, SEEDED, n_rounds=2, decision=decision)
    expected = clone(clf).fit(X, grouped, groups).predict(X)
    found = clf.fit(X, grouped.astype(dtype), groups).predict(X)
    np.testing.assert_array_equal(found, expected)
    if decision is not None:
        with pytest.raises(ValueError, match=r"y must be .* dtype object; numbers\?"):
            clf.fit(X, grouped.astype(object), groups)


class Everyone(BaseEstimator):
    """An assigner without `classes_`, whose labels come in another format."""

    def fit(self, X, y, groups):
        return self

    def assign(self, X, y, groups):
        return sparse.csc_matrix(y)


@pytest.mark.parametrize("n_rounds", [1, 2])
def test_an_assigner_needs_fit_and_assign_only(small, n_rounds):
    X, _, grouped, groups, _, _ = small
    clf = AggregatedLabelClassifier(PENALIZED, Everyone(), n_rounds=n_rounds).fit(
        X, grouped, groups
    )
    np.testing.assert_array_equal(clf.classes_, np.arange(12))
    if n_rounds == 1:
        assert (clf.assigned_ != grouped).nnz == 0


@pytest.mark.filterwarnings("ignore:.*cannot be learnt:UserWarning")
def test_groups_that_share_samples_are_one_fold():
    X, Y = make_extreme_multilabel(240, 60, 3, random_state=0)
    membership = np.zeros((240, 2), dtype=int)
    membership[:200, 0] = 1
    membership[100:, 1] = 1
    y = np.array([[1, 0, 1], [0, 1, 1]])
    with pytest.raises(ValueError, match="share no sample, got 1"):
        AggregatedLabelClassifier(PENALIZED, SEEDED, n_rounds=2).fit(X, y, membership)


def test_a_row_of_several_classes_is_there_for_each():
    X = np.array([[1, 0], [0, 0.1], [0.1, 0.9], [0, 1]])
    groups = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])
    clf = AggregatedLabelClassifier(LogisticRegression(), PAPER_START)
    clf.fit(X, np.array(["a", "b", "c"]), groups)
    assert clf.assigned_[[0]].nnz == 2
    np.testing.assert_array_equal(clf.estimator_.classes_, ["a", "b", "c"])


def test_what_is_saved_holds_no_training_data(small):
    X, _, grouped, groups, X_test, _ = small
    clf = AggregatedLabelClassifier(PENALIZED, SEEDED, n_rounds=1).fit(X, grouped, groups)
    file = io.BytesIO()
    joblib.dump(clf, file)
    inner = io.BytesIO()
    joblib.dump(clf.estimator_, inner)
    assert len(file.getvalue()) < 1.2 * len(inner.getvalue()) + 4000
    file.seek(0)
    loaded = joblib.load(file)
    np.testing.assert_array_equal(loaded.decision_function(X_test), clf.decision_function(X_test))
    assert hasattr(clf, "assigned_")


def test_strings_are_refused_by_the_package():
    """The default assigner reads numbers, whatever the classifier reads."""
    texts, y = ["a b", "c d", "a d", "c b"], [[1, 0], [0, 1]]
    with pytest.raises(ValueError, match="X holds strings, but EAGLETransformer reads rows of num"):
        AggregatedLabelClassifier(MultiHeadClassifier()).fit(texts, y, [0, 0, 1, 1])


@pytest.mark.parametrize("form, n_rounds", [("lists", 2), ("frame", 1)])
def test_names_in_and_names_out(form, n_rounds):
    rng = np.random.default_rng(0)
    Y = np.zeros((120, 6), dtype=int)
    Y[np.arange(120), rng.integers(6, size=120)] = 1
    X = Y @ rng.normal(size=(6, 10)) + 0.1 * rng.normal(size=(120, 10))
    groups = np.arange(120) // 3
    of_groups = np.array([Y[groups == group].max(axis=0) for group in range(40)])
    names = np.array(list("abcdef"), dtype=object)
    if form == "lists":
        y, true = ([names[row > 0].tolist() for row in rows] for rows in (of_groups, Y))
    else:
        y, true = (pd.DataFrame(rows, columns=names) for rows in (of_groups, Y))
    base = MultiHeadClassifier("flat", max_epochs=3, learning_rate=0.01, random_state=0)
    given = of_groups if form == "frame" else sparse.csr_matrix(of_groups, dtype=np.int8)
    plain = AggregatedLabelClassifier(base, SEEDED, n_rounds=n_rounds).fit(X, given, groups)
    clf = AggregatedLabelClassifier(base, SEEDED, n_rounds=n_rounds).fit(X, y, groups)
    np.testing.assert_array_equal(clf.classes_, names)
    np.testing.assert_array_equal(clf.decision_function(X), plain.decision_function(X))
    np.testing.assert_array_equal(clf.predict_topk(X, 2)[0], names[plain.predict_topk(X, 2)[0]])
    assert clf.predict_topk(X, 2, proba=True)[1].max() <= 1
    predicted, indicator = clf.predict(X), plain.predict(X)
    if form == "lists":
        sets = [names[row.indices].tolist() for row in sparse.csr_matrix(indicator)]
        assert predicted.tolist() == sets
    else:
        np.testing.assert_array_equal(predicted, indicator)
        assert predicted.dtype == y.to_numpy().dtype
    assert clf.score(X, true) == plain.score(X, Y) > 0.8
    assert topk_scorer("aggregated_precision", 1)(clf, X, y, groups=groups) > 0.8


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeClassifier(random_state=0),
        KNeighborsClassifier(3),
        MultiOutputClassifier(LogisticRegression()),
        make_pipeline(MaxAbsScaler(), RandomForestClassifier(5, random_state=0)),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.parametrize("n_rounds", [1, 2])
def test_tags_for_classifiers_that_read_dense_labels_only(estimator, n_rounds):
    rng = np.random.default_rng(0)
    Y = np.zeros((120, 6), dtype=int)
    Y[np.arange(120), rng.integers(6, size=120)] = 1
    X = Y @ rng.normal(size=(6, 10)) + 0.1 * rng.normal(size=(120, 10))
    groups, names = np.arange(120) // 3, np.array(list("abcdef"), dtype=object)
    of_groups = np.array([Y[groups == group].max(axis=0) for group in range(40)])
    tags, true = ([names[row > 0].tolist() for row in rows] for rows in (of_groups, Y))
    clf = AggregatedLabelClassifier(estimator, SEEDED, n_rounds=n_rounds).fit(X, tags, groups)
    plain = clone(clf).fit(X, of_groups, groups)
    assert clf.predict(X).tolist() == [names[row > 0].tolist() for row in plain.predict(X)]
    np.testing.assert_array_equal(clf.predict_proba(X), plain.predict_proba(X))
    assert clf.score(X, true) == plain.score(X, Y) > 0.8


def test_tags_stay_sparse_for_classifiers_that_read_them_so(monkeypatch):
    seen = []
    for kind in (MultiHeadClassifier, OneVsRestClassifier, DecisionTreeClassifier):
        monkeypatch.setattr(kind, "fit", lambda self, X, y: seen.append(y) or self)
    X, tags = np.eye(6), [["a"], ["b"], ["a", "b"]] * 2
    for inner in (MultiHeadClassifier(), PENALIZED, DecisionTreeClassifier()):
        clf = AggregatedLabelClassifier(inner, n_rounds=1)
        clf.fit(X, tags, np.arange(6))
        with config_context(dense_limit=1):
            clf.fit(X, tags, np.arange(6))
        clf.fit(X, [["a"], [], ["a"]] * 2, np.arange(6))  # a dense column holds classes
        with config_context(dense_limit=8):  # of two groups and two tags, and six samples
            clf.fit(X, tags[:2], np.arange(6) % 2)
    assert [sparse.issparse(y) for y in seen] == [True] * 8 + [False, True, True, True]


@pytest.mark.parametrize(
    "estimator, message",
    [
        (MultiHeadClassifier, r"estimator=MultiHeadClassifier is a class: give an object"),
        (Ridge(), r"must be a classifier, and Ridge\(\) is a regressor"),
        (make_pipeline(MaxAbsScaler(), Ridge()), "must be a classifier, and Pipeline"),
    ],
)
def test_estimators_that_are_no_classifiers(estimator, message):
    with pytest.raises(TypeError, match=message):
        AggregatedLabelClassifier(estimator).fit(np.eye(4), np.eye(4, dtype=int)[:, :2])
