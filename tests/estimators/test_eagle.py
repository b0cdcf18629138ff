"""EAGLETransformer: the paper's toy, groups of one, scikit-learn's checks, bad input."""

import copy
import functools
import io
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

import sklearn_xlc
from _factories import SKLEARN_CHECKS
from sklearn_xlc.aggregation import aggregation, expected_samples
from sklearn_xlc.datasets import make_aggregated, make_extreme_multilabel
from sklearn_xlc.estimators.eagle import EAGLETransformer

PAPER = EAGLETransformer(contrast=None, random_state=0)
DEFAULT = EAGLETransformer(random_state=0)
BOTH = pytest.mark.parametrize("eagle", [PAPER, DEFAULT], ids=["paper", "default"])


@parametrize_with_checks(
    [
        EAGLETransformer(),
        EAGLETransformer(contrast=None),
        EAGLETransformer(n_components=0, multiplicity="top"),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# The checks of `set_output` fit on a frame and transform an array, of which scikit-learn warns.
@pytest.mark.filterwarnings("ignore:X (does not have valid|has) feature names:UserWarning")
@pytest.mark.parametrize("name", SKLEARN_CHECKS)
def test_checks_that_scikit_learn_keeps_for_itself(name):
    getattr(estimator_checks, name)("EAGLETransformer", EAGLETransformer())


def test_tags():
    tags = get_tags(EAGLETransformer())
    assert tags.input_tags.sparse
    assert tags.target_tags.required
    assert set(tags.transformer_tags.preserves_dtype) == {"float32", "float64"}


def problem(seed=0, n=200, n_labels=12, size=5):
    """Rows around their labels' directions, in random groups: X, true Y, y of groups, ids."""
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(n_labels, 30))
    Y = np.zeros((n, n_labels), dtype=int)
    Y[np.arange(n), rng.integers(n_labels, size=n)] = 1
    Y[np.arange(n), rng.integers(n_labels, size=n)] = 1
    X = Y @ directions + 0.5 * rng.normal(size=(n, 30)) + 1.0
    groups = rng.permutation(n) // size
    of_group = np.array([Y[groups == group].any(axis=0) for group in range(n // size)]).astype(int)
    return X, Y, of_group[groups], groups


@BOTH
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_iter", [0, "auto"])
@pytest.mark.parametrize("n_groups", [2, 3, 50])
def test_the_toy_of_figure_1(eagle, seed, n_iter, n_groups):
    x = np.array([1.0, -2.0, 0.5])
    X = np.tile([x, -x], (n_groups, 1))
    y, groups = np.ones((2 * n_groups, 2), dtype=int), np.repeat(np.arange(n_groups), 2)
    eagle = clone(eagle).set_params(random_state=seed, n_iter=n_iter)
    assigned = eagle.fit(X, y, groups).assign(X, y, groups).toarray()
    np.testing.assert_array_equal(assigned.sum(axis=1), 1)
    np.testing.assert_array_equal(assigned, np.tile(assigned[:2], (n_groups, 1)))
    np.testing.assert_allclose(np.abs(eagle.transform([x])), 1, rtol=1e-12)


def test_the_toy_has_both_answers():
    X = np.array([[1.0], [-1.0]] * 3)
    y, groups = np.ones((6, 2), dtype=int), [0, 0, 1, 1, 2, 2]
    firsts = {
        clone(PAPER).set_params(random_state=s).fit(X, y, groups).assign(X, y, groups)[0, 0]
        for s in range(20)
    }
    assert firsts == {0, 1}


@BOTH
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_matrix])
def test_groups_of_one_give_y_back(eagle, convert):
    X, Y, _, _ = problem()
    Y[3] = 0
    for groups in (None, np.arange(200), np.eye(200)):
        eagle = clone(eagle).fit(convert(X), convert(Y), groups)
        np.testing.assert_array_equal(eagle.assign(convert(X), convert(Y), groups).toarray(), Y)


def test_without_contrast_and_groups_it_is_parabels_embedding():
    X, Y, _, _ = problem()
    X = np.abs(X)
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    expected = Y.T @ rows
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    for data in (X, sp.csr_array(X)):
        found = clone(PAPER).fit(data, Y).label_embeddings_
        assert sp.issparse(found) == sp.issparse(data)
        found = found.toarray() if sp.issparse(found) else found
        np.testing.assert_allclose(found, expected, atol=1e-13)


def literal_eagle(X, groups, Y, n_iter, similar, step=0.1):
    """Algorithms 1 and 2 of the paper: embeddings, and the labels of the samples.

    The brackets are inner products with the rows of `similar`, the sums are of rows of X.
    """

    def proj(x):
        return x / np.linalg.norm(x)

    members = [np.flatnonzero(groups == group) for group in range(groups.max() + 1)]
    embeddings, assigned = np.zeros((Y.shape[1], X.shape[1])), np.zeros((len(X), Y.shape[1]), int)
    for k in range(Y.shape[1]):
        with_label = [rows for rows in members if Y[rows[0], k]]
        e = proj(sum(X[rows].sum(axis=0) for rows in with_label))
        for _ in range(n_iter):
            g = np.zeros(X.shape[1])
            for rows in with_label:
                v = similar[rows] @ e
                a = v == v.max()
                g += a @ X[rows]
            e = proj(e + step * proj(g))
        embeddings[k] = e
        for rows in with_label:
            assigned[rows[(similar[rows] @ e).argmax()], k] = 1
    return embeddings, assigned


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("normalize", [True, "similarities", False])
@pytest.mark.parametrize("n_iter", [0, 20])
def test_without_contrast_it_is_the_algorithm_of_the_paper(convert, normalize, n_iter):
    X, _, y, groups = problem()
    X = X * np.where(np.random.default_rng(0).random(X.shape) < 0.15, 1, 0)  # zeros for CSR
    X *= np.geomspace(1e-3, 1e3, len(X))[:, None]
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    added, rows = {True: (units, units), False: (X, X), "similarities": (X, units)}[normalize]
    embeddings, assigned = literal_eagle(added, groups, y, n_iter, rows)
    eagle = clone(PAPER).set_params(n_iter=n_iter, normalize=normalize)
    eagle.fit(convert(X), y, groups)
    found = eagle.label_embeddings_
    found = found.toarray() if sp.issparse(found) else found
    np.testing.assert_allclose(found, embeddings, atol=1e-12)
    np.testing.assert_array_equal(eagle.assign(convert(X), y, groups).toarray(), assigned)
    np.testing.assert_allclose(eagle.transform(convert(X)), rows @ embeddings.T, rtol=1e-9)


@pytest.mark.parametrize("normalize", [False, "similarities"])
def test_samples_as_given_have_no_contrast(normalize):
    X, _, y, groups = problem()
    message = f"normalize={normalize!r} needs contrast=None, got contrast='background'"
    with pytest.raises(ValueError, match=message):
        EAGLETransformer(normalize=normalize).fit(X, y, groups)


def test_norms_act_through_sums_or_through_choices():
    """Sample 0 is long and turns the sums of samples as given; sample 3 is long, too."""
    X = np.array([[9.0, 0.0], [1.0, 1.5], [0.1, 0.02], [2.0, 3.0]])
    groups, y, chosen = [0, 0, 1, 1], np.ones((4, 1), dtype=int), {}
    for normalize in (True, "similarities", False):
        eagle = clone(PAPER).set_params(normalize=normalize, n_iter=0).fit(X, y, groups)
        chosen[normalize] = np.flatnonzero(eagle.assign(X, y, groups).toarray()).tolist()
    assert chosen == {True: [1, 2], "similarities": [0, 2], False: [0, 3]}


def test_default_recovers_most_labels_and_more_than_the_paper():
    X, Y, y, groups = problem(n=1000)
    true = {}
    for name, eagle in (("paper", PAPER), ("default", DEFAULT)):
        assigned = clone(eagle).fit(X, y, groups).assign(X, y, groups).toarray()
        assert not (assigned > y).any()
        for group in range(200):
            rows = groups == group
            np.testing.assert_array_equal(assigned[rows].any(axis=0), y[rows][0])
        true[name] = (assigned & Y).sum() / assigned.sum()
    assert true["default"] > 0.85
    assert true["default"] > true["paper"] + 0.05


@BOTH
def test_membership_matrix_is_row_aligned_ids(eagle):
    X, _, y, groups = problem()
    membership = sp.csr_array((np.ones(200), (np.arange(200), groups)))
    of_group = y[np.unique(groups, return_index=True)[1]]
    by_ids = clone(eagle).fit(X, y, groups)
    by_matrix = clone(eagle).fit(X, of_group, membership)
    np.testing.assert_array_equal(by_ids.label_embeddings_, by_matrix.label_embeddings_)
    expected = by_ids.assign(X, y, groups).toarray()
    np.testing.assert_array_equal(by_ids.assign(X, of_group, membership).toarray(), expected)
    np.testing.assert_array_equal(by_ids.assign(X, y, groups.astype(str)).toarray(), expected)


@BOTH
def test_rows_change_neither_by_order_nor_by_length(eagle):
    eagle = clone(eagle).set_params(normalize=True)
    X, _, y, groups = problem()
    expected = clone(eagle).fit(X, y, groups).assign(X, y, groups).toarray()
    rng = np.random.default_rng(0)
    longer = X * 2.0 ** rng.integers(-4, 5, size=(200, 1))
    fitted = clone(eagle).fit(longer, y, groups)
    np.testing.assert_array_equal(fitted.assign(longer, y, groups).toarray(), expected)
    order = rng.permutation(200)
    X, y, groups = X[order], y[order], groups[order]
    fitted = clone(eagle).fit(X, y, groups)
    np.testing.assert_array_equal(fitted.assign(X, y, groups).toarray(), expected[order])


@BOTH
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_equals_sparse(eagle, dtype):
    X, _, y, groups = problem()
    X = (X * (np.abs(X) > 1)).astype(dtype)
    dense = clone(eagle).fit(X, y, groups)
    csr = clone(eagle).fit(sp.csc_matrix(X), sp.csr_matrix(y), groups)
    affinities = dense.transform(X)
    assert affinities.dtype == dtype
    np.testing.assert_array_equal(csr.transform(sp.csr_array(X)), affinities)
    found = csr.assign(sp.csr_array(X), sp.csr_array(y), groups).toarray()
    np.testing.assert_array_equal(dense.assign(X, y, groups).toarray(), found)


def untidy(X):
    """CSR of X with every entry stored in two halves, in random order within each row."""
    coo = sp.coo_matrix(X)
    rows, columns = np.tile(coo.row, 2), np.tile(coo.col, 2)
    order = np.random.default_rng(0).permutation(len(rows))
    order = order[np.argsort(rows[order], kind="stable")]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=X.shape[0]))])
    return sp.csr_matrix((np.tile(coo.data / 2, 2)[order], columns[order], indptr), shape=X.shape)


@BOTH
@pytest.mark.parametrize("smallest", [1.0, 2.0], ids=["dense", "sparse"])
def test_the_order_of_entries_and_the_container_do_not_matter(eagle, smallest):
    X, Y, _, groups = problem()
    X = X * (np.abs(X) > smallest)
    Y = Y[np.unique(groups, return_index=True)[1]]
    membership = sp.csr_matrix(np.eye(len(Y))[groups])
    reverse = membership[:, ::-1].tocsr()
    reverse.indices = len(Y) - 1 - reverse.indices
    expected = clone(eagle).fit(X, Y, membership)
    for samples in (sp.csr_array(X), untidy(X), sp.csc_matrix(X)):
        for labels in (2 * untidy(Y), sp.coo_array(Y)):
            other = clone(eagle).fit(samples, labels, reverse)
            found = other.label_embeddings_
            found = found.toarray() if sp.issparse(found) else found
            np.testing.assert_array_equal(found, expected.label_embeddings_)
            assigned = other.assign(samples, labels, reverse)
            assert (assigned != expected.assign(X, Y, membership)).nnz == 0
            np.testing.assert_array_equal(other.transform(samples), expected.transform(X))


@BOTH
def test_transform_is_the_cosine(eagle):
    X, _, y, groups = problem()
    eagle = clone(eagle).set_params(normalize=True).fit(X, y, groups)
    vectors = eagle.label_embeddings_
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-12)
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(eagle.transform(X), rows @ vectors.T, atol=1e-13)
    np.testing.assert_array_equal(eagle.transform(np.zeros((2, 30))), 0)


@functools.cache
def fitted_once(working_memory, convert):
    """X and an assigner fitted to it, which tests copy."""
    X, _, y, groups = problem(n=2000)
    X = convert(X)
    with config_context(working_memory=working_memory):
        return X, clone(DEFAULT).fit(X, y, groups)


@pytest.mark.parametrize("top_k", [1, 3, 12, 50])
@pytest.mark.parametrize("working_memory", [1, 512])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
def test_top_k_are_the_largest_affinities(top_k, working_memory, convert):
    X, eagle = fitted_once(working_memory, convert)
    with config_context(working_memory=working_memory):
        full = eagle.transform(X)
        found = copy.copy(eagle).set_params(top_k=top_k).transform(X)
    assert found.shape == full.shape
    assert found.has_sorted_indices
    k = min(top_k, 12)
    np.testing.assert_array_equal(np.diff(found.indptr), k)
    bound = -np.sort(-full, axis=1)[:, k - 1 : k]
    expected = np.where(full >= bound, full, 0)
    np.testing.assert_allclose(found.toarray(), expected, atol=1e-13)


def test_counts():
    X = np.array([[1.0, 0], [0.9, 0.1], [0, 1], [1, 0], [0, 1], [0.1, 1]])
    y, groups = np.array([[2, 1]] * 3 + [[1, 2]] * 3), [0, 0, 0, 1, 1, 1]
    for contrast in (None, "background"):
        eagle = EAGLETransformer(contrast=contrast, sharing=None, n_components=0, random_state=0)
        ignored = clone(eagle).fit(X, y, groups).assign(X, y, groups).toarray()
        np.testing.assert_array_equal(ignored.sum(axis=0), [2, 2])
        eagle.set_params(multiplicity="top")
        found = eagle.fit(X, y, groups).assign(X, y, groups).toarray()
        np.testing.assert_array_equal(found.sum(axis=0), [3, 3])
    # Both labels are on all groups: only the counts tell them apart.
    np.testing.assert_array_equal(found, [[1, 0], [1, 0], [0, 1], [1, 0], [0, 1], [0, 1]])


def test_sharing():
    X, Y, y, groups = problem(n=2000, n_labels=4)
    fitted = {
        sharing: clone(DEFAULT).set_params(sharing=sharing).fit(X, y, groups)
        for sharing in (None, "expected", 0.3, 0.9)
    }
    found = {sharing: eagle.assign(X, y, groups) for sharing, eagle in fitted.items()}
    best = found[None].toarray()
    n_best = np.array([len(np.unique(groups[column > 0])) for column in y.T])
    np.testing.assert_array_equal(best.sum(axis=0), n_best)
    _, rows = np.unique(groups, return_index=True)
    data, rates = aggregation(np.eye(400)[groups], y[rows]), fitted["expected"].sharing_rates_
    totals = expected_samples(data, rates)
    np.testing.assert_array_equal(found["expected"].toarray().sum(axis=0), np.round(totals))
    np.testing.assert_allclose(totals, Y.sum(axis=0), rtol=0.1)
    np.testing.assert_allclose(totals, expected_samples(data), rtol=0.1)
    assert found[0.3].nnz > found[0.9].nnz > found[None].nnz
    assert all(fitted[sharing].sharing_rates_ is None for sharing in (None, 0.3, 0.9))
    for assigned in found.values():
        assert not (assigned.toarray() > y).any()


def test_groups_of_similar_rows_share_their_labels(rng):
    kinds = np.repeat(rng.integers(8, size=300), 6)
    Y = (rng.random((8, 12)) < 0.2)[kinds] & (rng.random((1800, 12)) < 0.8)
    X = Y @ rng.normal(size=(12, 30)) + 0.3 * rng.normal(size=(1800, 30))
    groups = np.repeat(np.arange(300), 6)
    y = np.maximum.reduceat(Y, np.arange(0, 1800, 6))[groups].astype(int)
    shared, single = (
        clone(DEFAULT).set_params(sharing=sharing, n_components=0).fit(X, y, groups)
        for sharing in ("expected", None)
    )
    f1 = [
        f1_score(Y, eagle.assign(X, y, groups).toarray(), average="micro")
        for eagle in (shared, single)
    ]
    assert shared.sharing_rates_.mean() > 0.5
    assert f1[0] > 0.85 > 0.5 > f1[1]


def test_classes():
    X = np.array([[1.0, 0], [0, 1], [1, 0.1], [0.1, 1]])
    eagle = clone(PAPER).fit(X, ["b", "a", "b", "a"])
    assert eagle.classes_.tolist() == ["a", "b"]
    assert eagle.transform(X).argmax(axis=1).tolist() == [1, 0, 1, 0]
    assert eagle.assign(X[:1], ["a"]).toarray().tolist() == [[1, 0]]
    with pytest.raises(ValueError, match="label c in row 1, which did not occur in fit"):
        eagle.assign(X[:2], ["a", "c"])
    with pytest.raises(ValueError, match=r"y must have 2 labels as in fit, got shape \(4, 3\)"):
        eagle.assign(X, np.ones((4, 3)))


@pytest.mark.parametrize(
    "classes",
    [
        pd.Series([2**60 + 1, 2**60, 2**60 + 1, 2**60], dtype="Int64"),
        [2**63 + 1, 1, 2**63 + 1, 1],
        np.array(["b", "a", "b", "a"], np.dtypes.StringDType()),
        ["a\0", "a", "a\0", "a"],
        pd.Series([True, False, True, False], dtype="boolean"),
    ],
    ids=["Int64", "above int64", "StringDType", "null", "boolean"],
)
def test_classes_are_read_as_they_are(classes):
    X = np.array([[1.0, 0], [0, 1], [1, 0.1], [0.1, 1]])
    eagle = clone(PAPER).fit(X, classes)
    assert eagle.classes_.tolist() == sorted(set(classes))
    assert eagle.classes_.dtype.kind != "f"
    assert eagle.assign(X, classes).toarray().tolist() == [[0, 1], [1, 0]] * 2


@BOTH
def test_same_result_in_any_block_and_number_of_jobs(eagle):
    X, _, y, groups = problem()
    X = sp.csr_array(X)
    expected = clone(eagle).fit(X, y, groups)
    found = [expected.assign(X, y, groups).toarray(), expected.transform(X)]
    with config_context(working_memory=1):
        other = clone(eagle).set_params(n_jobs=2).fit(X, y, groups)
        again = [other.assign(X, y, groups).toarray(), other.transform(X)]
    for one, two in zip(found, again):
        np.testing.assert_array_equal(one, two)


@BOTH
def test_saved_model(eagle):
    X, _, y, groups = problem(n=4000)
    eagle = clone(eagle).fit(X, y, groups)
    stream = io.BytesIO()
    joblib.dump(eagle, stream)
    # Nothing in it grows with the number of rows.
    assert stream.tell() < 100_000
    stream.seek(0)
    for loaded in (joblib.load(stream), pickle.loads(pickle.dumps(eagle))):
        np.testing.assert_array_equal(loaded.transform(X), eagle.transform(X))
        found = loaded.assign(X, y, groups).toarray()
        np.testing.assert_array_equal(found, eagle.assign(X, y, groups).toarray())


def test_dense_limit():
    X, _, y, groups = problem()
    eagle = clone(DEFAULT).fit(X, y, groups)
    with sklearn_xlc.config_context(dense_limit=1000):
        with pytest.raises(MemoryError, match=r"shape \(200, 12\) takes .*use top_k"):
            eagle.transform(X)
        with pytest.raises(MemoryError, match=r"shape \(12, 30\) takes .*use transform with"):
            eagle.label_embeddings_
        assert eagle.set_params(top_k=2).transform(X).nnz == 400


def test_groups_route_through_a_pipeline_and_feature_names():
    X, _, y, groups = problem()
    pipeline = make_pipeline(clone(DEFAULT))
    found = pipeline.fit(X, y, eagletransformer__groups=groups).transform(X)
    np.testing.assert_array_equal(found, clone(DEFAULT).fit(X, y, groups).transform(X))
    assert pipeline.get_feature_names_out()[:2].tolist() == [
        "eagletransformer0",
        "eagletransformer1",
    ]
    assert GridSearchCV(pipeline, {}).estimator is pipeline


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"groups": [0, 1]}, "groups must hold one id for each of the 4 samples"),
        ({"groups": [0, 0, np.nan, 1]}, "groups holds nan for row 2"),
        (
            {"groups": [0, 1, 1, 0]},
            "y must be the same .*row 2 differs from row 1 of the same group",
        ),
        ({"groups": np.eye(4)[:, :3]}, r"y must have length 3 \(the groups\), got 4"),
        ({"groups": 2 * np.eye(4)}, "0 and 1 only, got 2.0 in row 0"),
        ({"y": -np.eye(4)}, "counts of labels.*got -1.0 in row 0"),
        ({"y": np.eye(4) / 2}, "got 0.5 in row 0"),
        ({"y": sp.csr_array(np.diag([1.0, 1, np.nan, 1]))}, "got nan in row 2"),
        ({"y": np.eye(3)}, r"y must have length 4 \(the samples of X\) or 4 \(the groups\), got 3"),
        ({"y": np.zeros((4, 0))}, "y"),
        ({"y": None}, "requires y to be passed"),
        ({"y": [0.5, 1.5, 2.5, 3.5]}, "continuous"),
        ({"y": np.array([["a", "b"]] * 4)}, "dtype <U1"),
        ({"X": np.full((4, 2), np.nan)}, "X contains NaN"),
    ],
)
def test_bad_input(wrong, message):
    valid = {"X": np.eye(4), "y": np.diag([1, 2, 1, 1]), "groups": [0, 1, 2, 3]}
    with pytest.raises(ValueError, match=message):
        clone(DEFAULT).fit(**{**valid, **wrong})


@pytest.mark.parametrize(
    "parameter, value",
    [
        ("contrast", "mean"),
        ("normalize", "l2"),
        ("n_iter", -1),
        ("step_size", 0),
        ("temperature", -0.1),
        ("sharing", 1.5),
        ("n_components", -1),
        ("shrinkage", 0.0),
        ("multiplicity", "sum"),
        ("top_k", 0),
    ],
)
def test_bad_parameters(parameter, value):
    with pytest.raises(ValueError, match=f"'{parameter}' parameter of EAGLETransformer must be"):
        EAGLETransformer(**{parameter: value}).fit(np.eye(3), np.eye(3))


def test_a_failed_fit_leaves_what_was_fitted():
    X, _, y, groups = problem()
    eagle = EAGLETransformer(random_state=0).fit(X, y, groups)
    before = eagle.transform(X)
    with pytest.raises(ValueError, match="one id for each"):
        eagle.fit(X[:, :5], y, groups[:10])
    np.testing.assert_array_equal(eagle.transform(X), before)


@pytest.mark.parametrize("label", [None, {1}, {"a": 1}, len], ids=str)
def test_labels_that_are_none_are_refused(label):
    y = np.array(["a", "b", "c"], dtype=object)
    y[1] = label
    with pytest.raises(ValueError, match=r"y\[1\] is|y mixes labels of|y\[0\] is 'a', but"):
        EAGLETransformer().fit(np.eye(3), y)


def test_tags_of_groups_are_their_indicator():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(24, 6)), np.arange(24) // 4
    Y = (rng.random((6, 5)) < 0.5).astype(int)
    Y[:, 0] = [1, 0, 1, 0, 1, 0]
    Y[np.arange(5), np.arange(5)] = 1
    names = np.array(["ab", "b", "c", "d", "e"], dtype=object)
    tags = [names[row.astype(bool)].tolist() for row in Y]
    params = {"n_components": 2, "random_state": 0}
    plain = EAGLETransformer(**params).fit(X, Y, groups)
    named = EAGLETransformer(**params).fit(X, tags, groups)
    np.testing.assert_array_equal(named.classes_, names)
    np.testing.assert_array_equal(named.label_embeddings_, plain.label_embeddings_)
    expected = plain.assign(X, Y, groups).toarray()
    np.testing.assert_array_equal(named.assign(X, tags, groups).toarray(), expected)
    per_sample = [tags[group] for group in groups]
    np.testing.assert_array_equal(named.assign(X, per_sample, groups).toarray(), expected)
    with pytest.raises(ValueError, match="y holds the label 'new'"):
        named.assign(X, [*tags[:5], ["new"]], groups)
    with pytest.raises(ValueError, match="y is an indicator without names, and the first fit had"):
        named.assign(X, Y[:, ::-1], groups)


def test_samples_of_several_groups_count_once():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 8))
    truth = X @ rng.normal(size=(8, 6)) / 8**0.5 + 0.3 * rng.normal(size=(600, 6)) > 1.2
    columns = [rng.permutation(600) // 5 for _ in range(3)]
    given = [
        sp.csr_matrix((np.ones(600), (np.arange(600), column)), shape=(600, 120))
        for column in columns
    ]
    n_assigned = []
    for groups in (given[0], sp.hstack([given[0]] * 3), sp.hstack(given)):
        y = groups.T @ truth > 0
        assigned = EAGLETransformer(random_state=0).fit(X, y, groups).assign(X, y, groups)
        n_assigned.append(assigned.sum())
    assert n_assigned[0] == pytest.approx(truth.sum(), rel=0.1)
    assert n_assigned[1] == pytest.approx(n_assigned[0], rel=0.02)
    assert n_assigned[2] == pytest.approx(truth.sum(), rel=0.25)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_columns_in_units_of_their_own_hide_no_other(form, tmp_path):
    X, y = load_wine(return_X_y=True)
    Y = np.eye(3, dtype=int)[y]
    given, groups = make_aggregated(sp.csr_matrix(Y), 3, random_state=0)
    eagle = EAGLETransformer(random_state=0).fit(form(X), given, groups)
    found = eagle.assign(form(X), given, groups)
    assert f1_score(Y, found.toarray(), average="micro") > 0.9
    units = 2.0 ** np.arange(-6, 7)  # every digit stays
    again = EAGLETransformer(random_state=0).fit(form(X * units), given, groups)
    np.testing.assert_array_equal(again.transform(form(X * units)), eagle.transform(form(X)))
    sklearn_xlc.save(eagle, tmp_path / "eagle", exact=True)
    for same in (sklearn_xlc.load(tmp_path / "eagle"), pickle.loads(pickle.dumps(eagle))):
        np.testing.assert_array_equal(same.transform(form(X)), eagle.transform(form(X)))
    for params in ({"normalize": True}, {"contrast": None}):
        raw = EAGLETransformer(random_state=0, **params).fit(X, given, groups)
        assert f1_score(Y, raw.assign(X, given, groups).toarray(), average="micro") < 0.8
    few = slice(0, 60)
    small = EAGLETransformer(random_state=0).fit(X[few], Y[few])
    plain = EAGLETransformer(normalize=True, random_state=0).fit(X[few], Y[few])
    np.testing.assert_array_equal(small.transform(X), plain.transform(X))


def test_numbers_beside_words_hide_no_word():
    X, Y = make_extreme_multilabel(600, 900, 30, random_state=0)
    given, groups = make_aggregated(Y, 3, random_state=0)
    years = sp.csr_matrix(1990.0 + np.arange(600)[:, None] % 30)
    found = [
        EAGLETransformer(random_state=0).fit(each, given, groups).assign(each, given, groups)
        for each in (X, sp.csr_matrix(sp.hstack([X, years])))
    ]
    scores = [f1_score(Y.toarray(), each.toarray(), average="micro") for each in found]
    assert scores[1] > scores[0] - 0.05
