"""MIMLClassifier: bags in every form, attention, counts, going on, scikit-learn, bad input."""

import io
from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from _factories import QUICK, SKLEARN, built
from sklearn_xlc import EAGLETransformer, MIMLClassifier, config_context
from sklearn_xlc.aggregation import unit_rows
from sklearn_xlc.batches import Rows
from sklearn_xlc.decisions import TopK
from sklearn_xlc.encoders import MLP, Encoder, Text
from sklearn_xlc.metrics import precision_at_k, topk_scorer
from sklearn_xlc.training import WeightAveraging

N_LABELS, N_COLUMNS = 5, 12
quick = partial(built, MIMLClassifier(**{**QUICK, "max_epochs": 10}))


def make_rows(n_rows, seed=0, noise=0.5):
    """Rows near the centre of their class, and the classes."""
    centres = np.random.default_rng(99).normal(size=(N_LABELS, N_COLUMNS))
    rng = np.random.default_rng(seed)
    y = rng.integers(N_LABELS, size=n_rows)
    return centres[y] + noise * rng.normal(size=(n_rows, N_COLUMNS)), y


def make_bags(n_rows=240, size=3, seed=0):
    """Rows in no order, counts of labels of the bags (one row a bag), ids, classes of rows."""
    X, y = make_rows(n_rows, seed)
    groups = 10 * (np.random.default_rng(seed + 1).permutation(n_rows) // size)
    counts = np.zeros((n_rows // size, N_LABELS), dtype=int)
    np.add.at(counts, (groups // 10, y), 1)
    return X, counts, groups, y


def membership_of(groups):
    """Membership matrix whose columns are in the order of the sorted ids."""
    place = np.unique(groups, return_inverse=True)[1]
    return sparse.csr_array((np.ones(len(groups)), (np.arange(len(groups)), place)))


@pytest.fixture(scope="module")
def bags():
    X, counts, groups, y = make_bags()
    return X, (counts > 0).astype(int), groups, y


def test_bags_teach_ranker_and_decision_anew(bags):
    X, Y, groups, _ = bags
    clf = quick().fit(X, Y, groups)
    weights = clf.decision_function(X, groups)
    X_more, counts, more, _ = make_bags(900, seed=3)
    clf.recalibrate(X_more, (counts > 0).astype(int), more, ranker="calibration", decision="auto")
    assert type(clf.ranker_).__name__ == "Calibration"
    assert clf.decision_.fitted_on == "held"
    # The calibration is one monotone map of the scores of the network.
    order = np.argsort(weights, axis=None)
    assert (np.diff(clf.decision_function(X, groups).ravel()[order]) >= 0).all()
    before = clf.predict_proba(X, groups)
    with pytest.raises(ValueError, match="belong together"):
        clf.recalibrate(X_more)
    np.testing.assert_array_equal(clf.predict_proba(X, groups), before)
    assert (clf.recalibrate(decision=TopK(1)).predict(X, groups).sum(axis=1) == 1).all()


# --- what it is for ---------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"attention": "mean"},
        {"attention": "product"},
        {"attention": None},
        {"attention": EAGLETransformer(contrast=None)},
        {"mask": "multiply", "attention": "mean"},
        {"n_concepts": 1},
    ],
    ids=str,
)
def test_rows_are_told_apart_by_the_labels_of_their_bags(bags, params):
    X, Y, groups, _ = bags
    X_test, y_test = make_rows(200, seed=5)
    clf = quick(**params, max_epochs=20, learning_rate=0.04).fit(X, Y, groups)
    naive = quick(**params, max_epochs=20, learning_rate=0.04).fit(X, Y[groups // 10])
    assert np.mean(clf.predict_topk(X_test, 1)[0][:, 0] == y_test) > 0.9
    predicted = clf.predict(X_test)
    assert np.mean((predicted == np.eye(N_LABELS)[y_test]).all(axis=1)) > 0.6
    assert naive.predict(X_test).sum() > 1.3 * predicted.sum()  # all labels of bags for all rows
    assert clf.score(X, Y, groups) > 0.9


@pytest.mark.integration
def test_counts_teach_what_sets_cannot():
    """Where bags have nearly all labels, how often they occur is all there is to learn from."""
    X, counts, groups, _ = make_bags(600, size=20)
    assert (counts > 0).mean() > 0.98
    X_test, y_test = make_rows(200, seed=5)
    accuracy = {}
    for multiplicity in ("top", "ignore"):
        clf = quick(multiplicity=multiplicity, max_epochs=25, learning_rate=0.08)
        clf.fit(X, counts, groups)
        accuracy[multiplicity] = np.mean(clf.predict_topk(X_test, 1)[0][:, 0] == y_test)
    assert accuracy["top"] > 0.95
    assert accuracy["top"] > accuracy["ignore"] + 0.2


def test_co_attention_finds_the_way_sooner():
    X, counts, groups, _ = make_bags(600, size=20)
    X_test, y_test = make_rows(200, seed=5)
    accuracy = {}
    for attention in ("eagle", "mean", None):
        clf = quick(attention=attention, max_epochs=10).fit(X, counts, groups)
        accuracy[attention] = np.mean(clf.predict_topk(X_test, 1)[0][:, 0] == y_test)
    assert min(accuracy["eagle"], accuracy["mean"]) > accuracy[None] + 0.1


# --- forms of bags and of y ---------------------------------------------------------------------


def test_ids_matrices_and_repeated_labels_say_the_same(bags):
    X, Y, groups, _ = bags
    expected = quick(max_epochs=2).fit(X, Y, groups)
    scores = expected.decision_function(X, groups)
    matrix = membership_of(groups)
    names = np.array([f"bag {group:05}" for group in groups])
    for y, form in [
        (Y[groups // 10], groups),
        (Y, names),
        (Y, names.tolist()),
        (Y, matrix),
        (Y, matrix.toarray()),
        (Y.astype(bool), matrix),
        (sparse.csr_matrix(Y), groups),
        (sparse.csc_array(Y[groups // 10]), groups),
        (pd.DataFrame(Y), pd.Series(groups)),
    ]:
        clf = quick(max_epochs=2).fit(X, y, form)
        np.testing.assert_array_equal(clf.decision_function(X, form), scores)
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(N_COLUMNS)])
    named = quick(max_epochs=2).fit(frame, Y, groups)
    assert list(named.feature_names_in_) == list(frame.columns)
    np.testing.assert_array_equal(named.decision_function(frame, groups), scores)


def test_order_of_rows_does_not_matter(bags):
    X, Y, groups, _ = bags
    order = np.random.default_rng(3).permutation(len(X))
    clf = quick(max_epochs=4)
    one, other = clone(clf).fit(X, Y, groups), clf.fit(X[order], Y, groups[order])
    expected = one.decision_function(X, groups)
    np.testing.assert_allclose(one.decision_function(X[order], groups[order]), expected, rtol=1e-9)
    np.testing.assert_allclose(other.decision_function(X, groups), expected, rtol=1e-5, atol=1e-5)


def test_sparse_rows_are_like_dense_ones(bags):
    X, Y, groups, _ = bags
    X = np.where(np.abs(X) > 1.2, X, 0)
    dense = quick().fit(X, Y, groups)
    other = quick().fit(sparse.coo_array(X), Y, groups)
    np.testing.assert_allclose(
        other.decision_function(sparse.csr_matrix(X), groups),
        dense.decision_function(X, groups),
        rtol=1e-6,
        atol=1e-6,
    )


@pytest.mark.parametrize(
    "names", [np.arange(5) * 7, np.array(list("edcba"))], ids=["numbers", "names"]
)
def test_one_class_a_bag(names):
    X, y = make_rows(300, noise=1.5)
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    groups = np.arange(300) // 3  # a bag at a border belongs to its first row's class
    of_bags = names[y[::3]]
    clf = quick(max_epochs=40).fit(X, of_bags, groups)
    np.testing.assert_array_equal(clf.classes_, np.sort(names))
    assert clf.score(X, of_bags, groups) > 0.9
    assert clf.score(X, of_bags[groups], groups) == clf.score(X, of_bags, groups)
    np.testing.assert_allclose(clf.predict_proba(X, groups).sum(axis=1), 1)
    assert clf.predict(X, groups).shape == (100,)
    assert clf.predict(X).shape == (300,)
    once, again = (quick(max_epochs=2).fit(X, y, groups) for y in (of_bags, of_bags[groups]))
    np.testing.assert_array_equal(
        again.decision_function(X, groups), once.decision_function(X, groups)
    )


def test_rows_in_many_bags_or_none(bags):
    X, Y, groups, _ = bags
    matrix = membership_of(groups).tolil()
    matrix[0, :4] = 1
    matrix[7, :] = 0
    matrix = matrix.tocsr()
    clf = quick().fit(X, Y, matrix)
    scores = clf.decision_function(X, matrix)
    bag = matrix[:, [2]].nonzero()[0]
    np.testing.assert_allclose(
        scores[2], clf.decision_function(X[bag], np.zeros(len(bag)))[0], rtol=1e-9
    )


def test_without_groups_every_row_is_a_bag(bags):
    X, _, _, y = bags
    own, none = quick().fit(X, y, np.arange(len(X))), quick().fit(X, y)
    np.testing.assert_array_equal(own.decision_function(X), none.decision_function(X))
    assert none.score(X, y) > 0.95


def test_bags_of_weight_zero_are_dropped(bags):
    X, Y, groups, _ = bags
    weight = (np.arange(len(Y)) % 4 > 0).astype(float)
    kept = weight[groups // 10] > 0
    clf = quick(max_epochs=3)
    of_bags = clone(clf).fit(X, Y, groups, sample_weight=weight)
    of_rows = clone(clf).fit(X, Y, groups, sample_weight=weight[groups // 10])
    fewer = clone(clf).fit(X[kept], Y[weight > 0], groups[kept])
    expected = fewer.decision_function(X, groups)
    np.testing.assert_array_equal(of_bags.decision_function(X, groups), expected)
    np.testing.assert_array_equal(of_rows.decision_function(X, groups), expected)
    clf.set_params(attention=None)
    heavy = clone(clf).fit(X, Y, groups, sample_weight=np.full(len(Y), 3.0))
    light = clone(clf).fit(X, Y, groups)
    np.testing.assert_allclose(
        heavy.decision_function(X), light.decision_function(X), rtol=1e-6, atol=1e-6
    )


# --- attention ----------------------------------------------------------------------------------


def test_mean_embeddings_are_means(bags):
    X, Y, groups, _ = bags
    clf = quick(attention="mean").fit(X, Y, groups)
    unit, rows_with = unit_rows(X), Y[groups // 10] > 0
    means = np.array([unit[has].mean(axis=0) for has in rows_with.T]) - unit.mean(axis=0)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(clf.label_embeddings_, means, rtol=1e-6, atol=1e-9)


def test_embeddings_are_those_of_the_transformer(bags):
    X, Y, groups, _ = bags
    eagle = EAGLETransformer(contrast=None, n_iter=3, random_state=0)
    clf = quick(attention=eagle).fit(X, Y, groups)
    assert not hasattr(eagle, "classes_")
    expected = clone(eagle).fit(X, Y[groups // 10], groups).label_embeddings_
    np.testing.assert_allclose(clf.label_embeddings_, expected, rtol=1e-6, atol=1e-9)
    assert quick(attention=None).fit(X, Y, groups).label_embeddings_ is None


def test_product_is_the_co_attention_of_the_paper(bags):
    X, Y, groups, _ = bags
    X = X * np.geomspace(0.1, 3, len(X))[np.random.default_rng(0).permutation(len(X))][:, None]
    clf = quick(attention="product", max_epochs=2).fit(X, Y, groups)
    eagle = EAGLETransformer(contrast=None, normalize="similarities")
    expected = eagle.fit(X, Y[groups // 10], groups).label_embeddings_
    np.testing.assert_allclose(clf.label_embeddings_, expected, rtol=1e-6, atol=1e-9)
    other = quick(attention=eagle, max_epochs=2).fit(X, Y, groups)  # compares by cosine
    assert not clf.net_.module_.head.by_cosine
    assert other.net_.module_.head.by_cosine
    assert not np.allclose(other.decision_function(X, groups), clf.decision_function(X, groups))


def test_embeddings_may_count_where_the_network_does_not():
    X, counts, groups, _ = make_bags(600, size=20)
    eagle = EAGLETransformer(multiplicity="top", random_state=0)
    clf = quick(attention=eagle, multiplicity="ignore").fit(X, counts, groups)
    in_columns_as_read = clone(eagle).set_params(normalize=True)
    expected = in_columns_as_read.fit(X, counts[groups // 10], groups).label_embeddings_
    np.testing.assert_allclose(clf.label_embeddings_, expected, rtol=1e-6, atol=1e-9)
    X, counts, groups, _ = make_bags(4000, size=2)  # enough bags to learn a threshold
    plain = [
        quick(attention=None, multiplicity="ignore", max_epochs=1).fit(X, y, groups)
        for y in (counts, np.minimum(counts, 1))
    ]
    np.testing.assert_array_equal(*(clf.decision_function(X, groups) for clf in plain))
    assert len({repr(clf.decision_) for clf in plain}) == 1


def test_a_high_temperature_is_no_attention(bags):
    X, Y, groups, _ = bags
    short = partial(quick, max_epochs=4)
    plain = short(attention=None).fit(X, Y, groups)
    hot = short(temperature=1e12).fit(X, Y, groups)
    cold = short(temperature=0.2).fit(X, Y, groups)
    scores = [clf.decision_function(X) for clf in (plain, hot, cold)]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-9)
    assert np.abs(scores[0] - scores[2]).max() > 0.1


def test_labels_of_no_bag_are_never_predicted(bags):
    X, Y, groups, _ = bags
    Y = np.insert(Y, 2, 0, axis=1)
    clf = quick().fit(X, Y, groups)
    assert not clf.label_embeddings_[2].any()
    assert not clf.predict(X, groups)[:, 2].any()


#: Rows of twelve bags of three.
TRIPLES = np.random.default_rng(0).normal(size=(36, 5)) + 0.5
LABELS = sparse.csr_matrix((np.random.default_rng(1).random((12, 4)) < 0.4).astype(float))


@pytest.mark.parametrize("n_iter", [0, 3])
def test_learnt_embeddings_are_equal_to_those_of_the_transformer(n_iter):
    rows = Rows(TRIPLES, LABELS, bags=np.arange(0, 37, 3))
    eagle = EAGLETransformer(n_iter=n_iter, random_state=1)
    found = MIMLClassifier(eagle)._embeddings(rows, 0).numpy()
    expected = eagle.fit(TRIPLES, LABELS, np.arange(36) // 3).label_embeddings_
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found.flags.c_contiguous


def test_mean_embeddings_are_the_mean_of_the_bags_less_the_mean_of_all():
    bags = Rows(TRIPLES, LABELS, bags=np.arange(0, 37, 3))
    found = MIMLClassifier("mean")._embeddings(bags, 0).numpy()
    rows = TRIPLES / np.linalg.norm(TRIPLES, axis=1, keepdims=True)
    means = rows.reshape(12, 3, 5).mean(axis=1)
    expected = np.stack([means[LABELS[:, [j]].toarray()[:, 0] > 0].mean(axis=0) for j in range(4)])
    expected = expected - means.mean(axis=0)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_strings_have_no_embeddings():
    rows = Rows(np.array(["a", "b"], dtype=object), LABELS[:2], bags=np.arange(3))
    with pytest.raises(ValueError, match="attention other than attention=None"):
        MIMLClassifier()._embeddings(rows, 0)


# --- training -----------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_model_and_dtype_is_kept(bags):
    X, Y, groups, _ = bags
    params = {"batch_size": 16, "encoder__dropout": 0.2, "max_epochs": 2}
    one, other = (quick(**params).fit(X, Y, groups) for _ in range(2))
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    assert one.decision_function(X).dtype == np.float64
    third = quick(**params, random_state=1)
    assert (third.fit(X, Y, groups).decision_function(X) != one.decision_function(X)).any()
    single = quick(max_epochs=2).fit(X.astype(np.float32), Y, groups)
    assert single.decision_function(X, groups).dtype == single.label_embeddings_.dtype == np.float32


def test_partial_fit_sees_parts_of_the_bags(bags):
    X, Y, groups, _ = bags
    clf = quick()
    for _ in range(15):
        for part in range(3):
            rows = groups // 10 % 3 == part
            clf.partial_fit(X[rows], Y[part::3], groups=groups[rows])
    assert clf.score(X, Y, groups) > 0.8
    X1, y1 = make_rows(60)
    clf = quick().partial_fit(X1[:6], y1[:6], classes=np.arange(N_LABELS))
    assert clf.predict(X1).shape == (60,)
    with pytest.raises(ValueError, match="classes"):
        quick().partial_fit(X1, y1)


def test_meaning_of_numbers_is_that_of_the_first_call():
    X, counts, groups, _ = make_bags(60, size=3)
    sets = np.minimum(counts, 1)
    counted = quick().partial_fit(X, counts, groups=groups)
    assert counted.net_.module_.head.counts
    assert counted.partial_fit(X, sets, groups=groups).net_.module_.head.counts
    plain = quick().partial_fit(X, sets, groups=groups)
    assert not plain.partial_fit(X, counts, groups=groups).net_.module_.head.counts
    again = clone(plain).partial_fit(X, sets, groups=groups).partial_fit(X, sets, groups=groups)
    np.testing.assert_array_equal(again.decision_function(X), plain.decision_function(X))


def test_warm_start_goes_on(bags):
    X, Y, groups, _ = bags
    clf = quick(max_epochs=5, warm_start=True).fit(X, Y, groups)
    embeddings = clf.label_embeddings_
    assert clf.fit(X, Y, groups).n_iter_ == 10
    np.testing.assert_array_equal(clf.label_embeddings_, embeddings)
    assert clf.loss_curve_[-1] < clf.loss_curve_[0]
    assert len(clf.loss_curve_) == 10


def test_early_stopping_holds_out_bags(bags):
    X, Y, groups, _ = bags
    stopped = {"early_stopping": True, "validation_fraction": 0.25, "learning_rate": 0.1}
    clf = quick(max_epochs=300, **stopped).fit(X, Y, groups)
    assert clf.n_iter_ < 300
    assert "valid_loss" in clf.net_.history[-1]
    rows = np.isin(groups, (0, 10))
    with pytest.raises(ValueError, match="validation_fraction=0.9 leaves no"):
        quick(early_stopping=True, validation_fraction=0.9).fit(X[rows], Y[:2], groups[rows])


@pytest.mark.parametrize("average", ["swa", "ema"])
def test_averages_of_weights(bags, average):
    X, Y, groups, _ = bags
    clf = quick(callbacks=[WeightAveraging(average)]).fit(X, Y, groups)
    assert clf.score(X, Y, groups) > 0.8


@pytest.mark.parametrize("sizes", [(4,) * 500, (1,) * 1000 + (200,) * 5], ids=["equal", "ragged"])
def test_automatic_batches_hold_about_256_rows(sizes):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    X, y = make_rows(len(groups))
    Y = np.zeros((len(sizes), N_LABELS), dtype=int)
    Y[groups, y] = 1
    clf = quick(max_epochs=1).fit(X, Y, groups)
    n_steps = clf.net_.history[0, "train_batch_count"]
    assert n_steps == -(-len(sizes) // int(256 * len(sizes) / len(groups)))
    assert quick(batch_size=100, max_epochs=1).fit(X, Y, groups).net_.batch_size == 100


@pytest.mark.parametrize("attention", ["eagle", "product", None])
def test_saved_and_loaded(bags, attention, tmp_path):
    X, Y, groups, _ = bags
    clf = quick(attention=attention).fit(X, Y, groups)
    file = io.BytesIO()
    joblib.dump(clf, file)
    file.seek(0)
    joblib.dump(clf, tmp_path / "clf")
    for loaded in (joblib.load(file), joblib.load(tmp_path / "clf", mmap_mode="r")):
        np.testing.assert_array_equal(
            loaded.decision_function(X, groups), clf.decision_function(X, groups)
        )
        if attention:
            np.testing.assert_array_equal(loaded.label_embeddings_, clf.label_embeddings_)
        loaded.partial_fit(X, Y, groups=groups)
        assert loaded.t_ == clf.t_ + 1


# --- predictions of bags ----------------------------------------------------------------------

PARAMS = {"encoder": MLP((8,)), "max_epochs": 30, "learning_rate": 0.03, "random_state": 0}
#: How a fitted classifier answers, of rows and of what says which bags they are in.
ANSWERS = {
    "decision_function": lambda clf, X, groups: clf.decision_function(X, groups),
    "predict_proba": lambda clf, X, groups: clf.predict_proba(X, groups),
    "predict_log_proba": lambda clf, X, groups: clf.predict_log_proba(X, groups),
    "predict": lambda clf, X, groups: clf.predict(X, groups),
    "labels": lambda clf, X, groups: clf.predict_topk(X, 2, groups)[0],
    "scores": lambda clf, X, groups: clf.predict_topk(X, k=2, groups=groups)[1],
    "sparse": lambda clf, X, groups: clf.predict_topk_sparse(X, 2, groups).toarray(),
}
answers = pytest.mark.parametrize("answer", ANSWERS)


@pytest.fixture(scope="module", params=["multi-label", "multi-class"])
def fitted(request):
    rng = np.random.default_rng(0)
    X, sizes = rng.normal(size=(60, 6)), [1, 5, 2, 8, 4] * 3
    groups = np.repeat(rng.permutation(100)[:15], sizes)
    y = (rng.random((15, 4)) < 0.4).astype(int) if request.param == "multi-label" else None
    y = np.arange(15) % 4 if y is None else y
    order = rng.permutation(60)
    X, groups = X[order], groups[order]
    return MIMLClassifier(**PARAMS).fit(X, y, groups), X, y, groups


@answers
def test_bags_come_in_the_order_of_their_sorted_ids(fitted, answer):
    clf, X, _, groups = fitted
    found = ANSWERS[answer](clf, X, groups)
    for row, name in zip(found, np.unique(groups)):
        one = ANSWERS[answer](clf, X[groups == name], np.zeros((groups == name).sum()))
        np.testing.assert_allclose(one[0], row, rtol=1e-9)


@answers
def test_ids_and_membership_matrix(fitted, answer):
    clf, X, _, groups = fitted
    place = np.unique(groups, return_inverse=True)[1]
    matrix = sparse.csc_array((np.ones(60), (np.arange(60), place)))
    expected = ANSWERS[answer](clf, X, groups)
    np.testing.assert_array_equal(ANSWERS[answer](clf, X, matrix), expected)
    turned = ANSWERS[answer](clf, X, matrix[:, ::-1].toarray())
    np.testing.assert_allclose(turned, expected[::-1], rtol=1e-9)


@answers
def test_batches_do_not_matter(fitted, answer, monkeypatch):
    clf, X, _, groups = fitted
    for form in (groups, None):
        expected = ANSWERS[answer](clf, X, form)
        with monkeypatch.context() as patch:
            patch.setattr("sklearn_xlc.engine.predictor.PREDICT_BATCH", 7)
            np.testing.assert_allclose(ANSWERS[answer](clf, X, form), expected, rtol=1e-9)


def test_the_best_row_decides(fitted):
    """A score of a bag is that of one of its rows; without attention of the best one."""
    clf, X, y, groups = fitted
    plain = MIMLClassifier(None, **PARAMS).fit(X, y, groups)
    for name in np.unique(groups):
        rows, ids = X[groups == name], groups[groups == name]
        scores = plain.decision_function(rows)
        np.testing.assert_allclose(plain.decision_function(rows, ids)[0], scores.max(axis=0))
        near = np.isclose(clf.decision_function(rows), clf.decision_function(rows, ids))
        assert near.any(axis=0).all()


def test_answers_agree(fitted):
    clf, X, _, groups = fitted
    scores, probabilities = clf.decision_function(X, groups), clf.predict_proba(X, groups)
    best = np.sort(scores, axis=1)[:, ::-1][:, :3]
    np.testing.assert_allclose(clf.predict_topk(X, 3, groups)[1], best)
    if scores.shape[1] == 4 and clf.predict(X).ndim == 2:
        expected = probabilities > 0.5
        expected[np.arange(len(expected)), scores.argmax(axis=1)] = True  # all bags have labels
        np.testing.assert_array_equal(clf.predict(X, groups), expected)
    else:
        np.testing.assert_array_equal(clf.predict(X, groups), scores.argmax(axis=1))
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_score_is_the_share_of_bags_whose_best_label_is_right(fitted):
    clf, X, y, groups = fitted
    best = clf.predict_topk(X, 1, groups)[0][:, 0]
    right = y[np.arange(15), best] == 1 if np.ndim(y) == 2 else best == y
    place = np.unique(groups, return_inverse=True)[1]
    weight = np.arange(15.0)
    assert 0 < right.mean()
    assert clf.score(X, y, groups) == pytest.approx(right.mean())
    assert clf.score(X, y[place], groups) == pytest.approx(right.mean())
    expected = pytest.approx(np.average(right, weights=weight))
    assert clf.score(X, y, groups, sample_weight=weight) == expected
    assert clf.score(X, y[place], groups, sample_weight=weight[place]) == expected


def test_score_of_sparse_labels_and_of_counts():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(40, 5)), np.arange(40) // 4
    counts = rng.integers(0, 4, size=(10, 3))
    dense = MIMLClassifier(**PARAMS).fit(X, counts, groups)
    given = sparse.csr_matrix(counts)
    clf = MIMLClassifier(**PARAMS).fit(X, given, groups)
    predicted = clf.predict(X, groups)
    assert sparse.issparse(predicted)
    assert set(predicted.data) <= {1}
    np.testing.assert_array_equal(predicted.toarray(), dense.predict(X, groups))
    best = clf.predict_topk(X, 1, groups)[0][:, 0]
    expected = (counts[np.arange(10), best] > 0).mean()
    for y in (counts, given, (counts > 0).astype(int), given[groups]):
        assert clf.score(X, y, groups) == dense.score(X, y, groups) == pytest.approx(expected)
    with pytest.raises(ValueError, match="y must be an indicator with 3 columns"):
        clf.score(X, counts[:, :2], groups)
    assert clf.score(X, counts, groups, sample_weight=2) == pytest.approx(expected)
    with pytest.raises(ValueError, match="sample_weight must be .*, got nan in row 0"):
        clf.score(X, counts, groups, sample_weight=[np.nan] * 40)


def test_score_of_other_forms_of_X():
    Y = np.eye(2, dtype=int)[np.arange(10) % 2]
    groups = np.repeat(np.arange(10), 2)
    texts = [word for row in Y for word in (["to be"] * 2 if row[0] else ["not me"] * 2)]
    numbers = np.repeat(Y, 2, axis=0).astype(np.float32)
    for X, encoder in ((texts, Text(n_buckets=64)), ({"x": numbers}, Named)):
        clf = MIMLClassifier(None, encoder=encoder, max_epochs=30, random_state=0)
        clf.set_params(learning_rate=0.05).fit(X, Y, groups)
        assert clf.score(X, Y, groups) == 1.0


class Named(Encoder):
    accepts = ("mapping",)

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 8)

    def forward(self, inputs):
        return self.linear(inputs["x"])


def test_a_class_never_seen_is_never_right():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), np.array(list("ab") * 10)
    clf = MIMLClassifier(**PARAMS).fit(X, y)
    assert clf.decision_function(X).shape == (20,)
    assert clf.score(X, np.array(["c"] * 20)) == 0


def test_features_are_those_of_rows(fitted):
    clf, X, _, _ = fitted
    features = clf.transform(X)
    assert features.shape == (60, 8)
    np.testing.assert_allclose(clf.transform(X[7:9]), features[7:9])
    assert list(clf.get_feature_names_out())[:1] == ["mimlclassifier0"]


def test_bad_groups_of_predictions_are_named(fitted):
    clf, X, _, groups = fitted
    for answer in ANSWERS.values():
        with pytest.raises(ValueError, match="one id for each of the 60 samples"):
            answer(clf, X, groups[1:])
    with pytest.raises(ValueError, match="k=5 must be at most the number of labels, 4"):
        clf.predict_topk(X, 5, groups)


def test_large_dense_results_of_bags_are_refused(fitted):
    clf, X, _, groups = fitted
    with config_context(dense_limit=15 * 4 * 8 + 400):  # with temporaries
        assert clf.decision_function(X, groups).shape == (15, 4)
        with pytest.raises(MemoryError, match=r"\(60, 4\)"):
            clf.decision_function(X)


# --- in scikit-learn ----------------------------------------------------------------------------


def test_pipeline_without_routing(bags):
    X, Y, groups, _ = bags
    pipeline = make_pipeline(StandardScaler(), quick())
    pipeline.fit(X, Y[groups // 10], mimlclassifier__groups=groups)
    assert pipeline.predict(X).shape == (240, N_LABELS)
    assert pipeline.predict(X, groups=groups).shape == (80, N_LABELS)
    assert precision_at_k(Y[groups // 10], pipeline[-1].predict_topk(X, 1)[0], k=1) > 0.9


@pytest.mark.integration
def test_groups_are_routed_through_a_search(bags, routing):
    X, Y, groups, y = bags
    clf = quick(max_epochs=15, learning_rate=0.04).set_fit_request(groups=True)
    clf.set_score_request(groups=True)
    pipeline = make_pipeline(StandardScaler(), clf.set_predict_request(groups=True))
    search = GridSearchCV(
        pipeline,
        {"mimlclassifier__temperature": [0.2, 1.0]},
        cv=GroupKFold(3),
        error_score="raise",
    )
    search.fit(X, Y[groups // 10], groups=groups)
    assert search.best_score_ > 0.6  # all labels of a bag that was not seen
    assert search.best_estimator_.predict(X, groups=groups).shape == (80, N_LABELS)
    if SKLEARN >= (1, 8):  # before, `score` of a search passed no metadata on
        assert search.score(X, Y, groups=groups) > 0.9
    rows = search.best_estimator_[-1].predict_topk(search.best_estimator_[0].transform(X), 1)[0]
    assert np.mean(rows[:, 0] == y) > 0.9


def test_rows_are_scored_by_the_labels_of_their_bags(bags, routing):
    X, Y, groups, _ = bags
    result = cross_validate(
        quick(max_epochs=15, learning_rate=0.04).set_fit_request(groups=True),
        X,
        Y[groups // 10],
        params={"groups": groups},
        cv=GroupKFold(3),
        scoring=topk_scorer("aggregated_precision", k=1),
        error_score="raise",
    )
    assert result["test_score"].min() > 0.8


# --- bad input ----------------------------------------------------------------------------------


def spoiled(bags, what):
    X, Y, groups, _ = bags
    X, counts, groups = X, Y[groups // 10].copy(), groups.astype(float)
    matrix = membership_of(groups).toarray()
    if what == "length":
        groups = groups[:-1]
    elif what == "labels":
        counts[7] = 1 - counts[7]
    elif what == "nan":
        groups[11] = np.nan
    elif what == "none":
        groups = groups.astype(object)
        groups[11] = None
    elif what == "negative":
        counts[13] = -2
    elif what == "negative and counts":
        counts[:] = 2
        counts[13, 1] = -2
    elif what == "fractions":
        counts = counts + 1.5
    elif what == "too many":
        counts[groups == groups[0], 0] = 4
    elif what == "y":
        counts = counts[:100]
    elif what == "y of a matrix":
        counts, groups = counts[:100], matrix
    elif what == "rows of a matrix":
        groups = matrix[:-1]
    elif what == "empty bag":
        groups = np.insert(matrix, 5, 0, axis=1)
    elif what == "weighted matrix":
        groups = 0.5 * matrix
    return X, counts, groups


@pytest.mark.parametrize(
    "what, message",
    [
        ("length", r"groups must hold one id for each of the 240 samples.*\(239,\)"),
        ("labels", "y must be the same.* but row .* differs from row"),
        ("nan", "groups holds nan for row 11"),
        ("none", "groups holds None for row 11"),
        ("negative", "-2 in row 13"),
        ("negative and counts", "y must hold counts.*-2 in row 13"),
        ("fractions", "y must hold counts.* in row 0"),
        ("too many", "label 0 occurs 4 times in the group of row .*, which has 3 sample"),
        ("y", r"y must have length 240 \(the samples of X\) or 80 \(the groups\), got 100"),
        ("y of a matrix", r"y must have length 80 \(the groups\), got 100"),
        ("rows of a matrix", "groups as a membership matrix and X must have equally many rows"),
        ("empty bag", "column 5 of groups is a group without samples"),
        ("weighted matrix", "groups as a membership matrix must hold 0 and 1 only, got 0.5"),
    ],
)
def test_bad_input_is_named_and_the_fitted_classifier_kept(bags, what, message):
    X, Y, groups, _ = bags
    clf = quick(max_epochs=2).fit(X, Y, groups)
    before = clf.decision_function(X, groups)
    with pytest.raises(ValueError, match=message):
        clf.fit(*spoiled(bags, what))
    np.testing.assert_array_equal(clf.decision_function(X, groups), before)


def test_bad_weights_are_named(bags):
    X, Y, groups, _ = bags
    with pytest.raises(ValueError, match="sample_weight must have length 240 .* or 80 .*, got 79"):
        quick().fit(X, Y, groups, sample_weight=np.ones(79))
    weight = np.ones(240)
    weight[np.flatnonzero(groups == groups[4])[-1]] = 2
    with pytest.raises(ValueError, match="sample_weight must be the same in all samples"):
        quick().fit(X, Y, groups, sample_weight=weight)
    with pytest.raises(ValueError, match="sample_weight must be .*, got -1.0 in row 0"):
        quick().fit(X, Y, groups, sample_weight=-np.ones(80))


def test_classes_that_differ_inside_a_bag_are_named():
    X, y = make_rows(30)
    with pytest.raises(ValueError, match="row 1 differs from row 0 of the same group"):
        quick().fit(X, np.array(["a", "b"] * 15), np.arange(30) // 2)


@pytest.mark.parametrize(
    "params",
    [
        {"attention": "other"},
        {"attention": StandardScaler()},
        {"temperature": -1},
        {"temperature": 0},
        {"mask": "add"},
        {"n_concepts": 0},
        {"multiplicity": "all"},
    ],
    ids=str,
)
def test_bad_parameters_are_named(bags, params):
    X, Y, groups, _ = bags
    with pytest.raises(ValueError, match=f"'{next(iter(params))}' parameter"):
        quick(**params).fit(X, Y, groups)


def test_embeddings_beyond_the_dense_limit_are_refused(bags):
    X, Y, groups, _ = bags
    from sklearn_xlc import config_context

    with config_context(dense_limit=100), pytest.raises(MemoryError, match="attention=None"):
        quick().fit(X, Y, groups)


@pytest.mark.parametrize("multiplicity", ["top", "ignore"])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_counts_beyond_the_integers_are_refused(multiplicity, make):
    X, counts, groups, _ = make_bags(12)
    counts = counts.astype(float)
    counts[1, 2] = 1e300
    with pytest.raises(ValueError, match=r"y must hold counts of labels.*1e\+300 in row 1, colu"):
        quick(multiplicity=multiplicity).fit(X, make(counts), groups)


def test_label_embeddings_stand_in_the_order_of_the_classes():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(60, 6)).astype(np.float32), np.repeat(np.arange(20), 3)
    y = np.array(list("bdf"))[np.arange(20) % 3]
    clf = quick().fit(X, y, groups=groups)
    before = dict(zip(clf.classes_, clf.label_embeddings_))
    later = np.where(y == "b", "c", y)
    clf.partial_fit(X, later, classes=list("bcdf"), groups=groups)
    found = dict(zip(clf.classes_, clf.label_embeddings_))
    assert sorted(found) == list("bcdf")
    for name in "bdf":
        np.testing.assert_array_equal(found[name], before[name])
    clf.remove_labels(["b"])
    assert clf.label_embeddings_.shape == (3, 6)
    np.testing.assert_array_equal(clf.label_embeddings_, [found[name] for name in clf.classes_])


def as_bags(form):
    """Three bags of two samples, in a form that is no matrix of samples."""
    bags = make_rows(6)[0].reshape(3, 2, -1)
    forms = {
        "array": lambda: bags,
        "arrays": lambda: [bags[0], bags[1][:1], bags[2]],
        "lists": lambda: bags.tolist(),
        "tuple": lambda: tuple(bags),
        "matrices": lambda: [sparse.csr_array(bag) for bag in bags],
        "frames": lambda: [pd.DataFrame(bag) for bag in bags],
    }
    return forms[form]()


@pytest.mark.parametrize("form", ["array", "arrays", "lists", "tuple", "matrices", "frames"])
def test_bags_that_are_no_rows_are_refused_with_what_to_give(form, bags):
    X, groups, tags = as_bags(form), [0, 1, 2], [["a"], ["b"], ["a"]]
    message = r"X holds 3 bags: give the samples of all bags in one matrix, .* groups = np\.repeat"
    for call in (quick().fit, quick().partial_fit):
        with pytest.raises(ValueError, match=message):
            call(X, tags, groups=groups)
    clf = quick(max_epochs=1).fit(bags[0], bags[1], bags[2])
    for call in (clf.predict, clf.predict_topk, partial(clf.score, y=bags[1][:3])):
        with pytest.raises(ValueError, match=message):
            call(X, groups=groups)


def test_groups_in_place_of_classes_are_refused(bags):
    X, Y, groups, _ = bags
    names = np.array(list("abcde"))
    tags = [names[np.flatnonzero(row)].tolist() for row in Y]
    message = "classes has an entry for each of the 240 samples.* takes by name: partial_fit"
    for given in (groups, groups.tolist(), pd.Series(groups), membership_of(groups)):
        for y in (tags, Y):
            with pytest.raises(ValueError, match=message):
                quick().partial_fit(X, y, given)
    with pytest.raises(ValueError, match=message):
        quick().partial_fit(X, tags, groups, names)
    clf = quick().partial_fit(X, tags, names, groups)
    with pytest.raises(ValueError, match=message):
        clf.partial_fit(X, tags, groups)
    clf.partial_fit(X[:5], [["a"]] * 5, names, [0] * 5)  # as many classes as samples


def test_a_first_call_without_classes_says_what_to_give(bags):
    X, _, groups, y = bags
    of_bags = y[np.unique(groups, return_index=True)[1]]
    with pytest.raises(ValueError, match=r"first call to partial_fit: .* classes=np\.unique\(y\)"):
        quick().partial_fit(X, of_bags, groups=groups)
