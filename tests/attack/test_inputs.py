"""Every kind of X, y and sample_weight for every estimator, in `fit` and in prediction."""

import copy
from functools import cache, partial

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from attack._kinds import (
    ANY,
    BAD,
    COUNTS,
    GOOD,
    OTHER_LENGTHS,
    WEIGHTS,
    X_KINDS,
    Y_CLASSES,
    Y_INDICATORS,
)
from attack._models import (
    ESTIMATORS,
    METHODS,
    N_LABELS,
    assert_finite_weights,
    assert_same,
    assert_usable,
    build,
    fitted,
    make_X,
    make_y,
    outputs,
    state,
)
from attack._trials import Trial, attack

#: Estimators that read counts of labels in place of an indicator.
READ_COUNTS = ("bags", "bags-multiply", "eagle", "aggregated")


def fit_and_watch(estimator, X, y, **params):
    """Fit; if that raises, nothing may have changed."""
    before = state(estimator)
    known = hasattr(estimator, "classes_")
    predicted = outputs(estimator, make_X()) if known else None
    try:
        estimator.fit(X, y, **params)
    except Exception:
        assert state(estimator) == before, "a refused fit has changed the estimator"
        if known:
            assert_same(outputs(estimator, make_X()), predicted)
        else:
            with pytest.raises(NotFittedError):
                check_is_fitted(estimator)
        raise
    assert_finite_weights(estimator)
    return estimator


def fresh(name, multilabel, refit):
    return copy.deepcopy(fitted(name, multilabel)) if refit else build(name)


def n_rows(X):
    return X.shape[0] if hasattr(X, "shape") else len(X)


@cache
def reference(name, multilabel, dtype, seed):
    """Results of a model of plain dense X."""
    X = make_X(seed).astype(dtype)
    return outputs(build(name).fit(X, make_y(multilabel, seed)), X)


def fit_X(name, multilabel, kind, seed, rng, refit):
    """Fit on a kind of X: usable, and the same as on a plain array of the same values."""
    _, dtype, make = X_KINDS[kind]
    X, y = make(make_X(seed), rng), make_y(multilabel, seed)
    if kind == "one row":
        y = y[1:2]
    estimator = fit_and_watch(fresh(name, multilabel, refit), X, y)
    if kind == "structured":
        return
    assert_usable(estimator, X, n_rows(X))
    if dtype is not None:
        assert_same(outputs(estimator, X), reference(name, multilabel, dtype, seed))
    elif sp.issparse(X) and kind != "csr huge":
        dense = outputs(build(name).fit(X.toarray(), y), X.toarray())
        assert_same(outputs(estimator, X), dense)


def fit_y(name, multilabel, kind, seed, rng, refit):
    """Fit on a kind of y: the same model as for the plain one."""
    _, same, make = (Y_INDICATORS if multilabel else Y_CLASSES)[kind]
    X, y = make_X(seed), make(make_y(multilabel, seed), rng)
    estimator = fit_and_watch(fresh(name, multilabel, refit), X, y)
    assert_usable(estimator, X, len(X))
    if not same:
        return
    expected = reference(name, multilabel, "float64", seed)
    found = outputs(estimator, X, ["decision_function", "transform"])
    assert_same(found, {key: expected[key] for key in found})
    if hasattr(estimator, "predict"):
        predicted = estimator.predict(X)
        assert sp.issparse(predicted) == (multilabel and sp.issparse(y))
        if multilabel:
            predicted = predicted.toarray() if sp.issparse(predicted) else predicted
            np.testing.assert_array_equal(predicted, expected["predict", 0])
        else:
            ids = np.searchsorted(estimator.classes_, predicted)
            np.testing.assert_array_equal(ids, expected["predict", 0])


def fit_weight(name, multilabel, kind, seed, rng, refit):
    """Fit with a kind of weights; equal ones are none."""
    X, y = make_X(seed), make_y(multilabel, seed)
    weight = WEIGHTS[kind][1](len(X), rng)
    estimator = fresh(name, multilabel, refit)
    fit_and_watch(estimator, X, y, sample_weight=weight)
    assert_usable(estimator, X, len(X))
    if kind in ("None", "ones", "list", "float32", "series", "read-only"):
        expected = reference(name, multilabel, "float64", seed)
        assert_same(outputs(estimator, X), expected)


def fit_cases():
    for name, multilabel in ESTIMATORS:
        for kind in X_KINDS:
            yield "X", name, multilabel, kind
        for kind in Y_INDICATORS if multilabel else Y_CLASSES:
            yield "y", name, multilabel, kind
        for kind in WEIGHTS if name not in ("eagle",) else ():
            yield "weight", name, multilabel, kind


#: In an order of no meaning, of which the attack takes the first.
CASES = list(fit_cases())
FIT_CASES = [CASES[i] for i in np.random.default_rng(0).permutation(len(CASES))]
FITS = {"X": fit_X, "y": fit_y, "weight": fit_weight}
OUTCOMES = {
    "X": {kind: case[0] for kind, case in X_KINDS.items()},
    "weight": {kind: case[0] for kind, case in WEIGHTS.items()},
}


@attack(small=20, whole=2600)
def test_inputs(rng, index):
    """Kinds of X, y and weights in `fit`, of new and of fitted estimators."""
    what, name, multilabel, kind = FIT_CASES[index]
    if what == "y":
        outcome = (Y_INDICATORS if multilabel else Y_CLASSES)[kind][0]
        outcome = BAD if kind in COUNTS and name not in READ_COUNTS else outcome
    else:
        outcome = OUTCOMES[what][kind]
    refit = bool(rng.integers(2))
    run = partial(FITS[what], name, multilabel, kind, int(rng.integers(3)), rng, refit)
    title = f"{what} of kind {kind!r}, {name} {'multi-label' if multilabel else 'multi-class'}"
    return Trial(title + " again" * refit, run, outcome)


# --- prediction -------------------------------------------------------------------------------

KS = [  # numbers of labels of a ranked list
    (1, GOOD),
    (N_LABELS, GOOD),
    (np.int64(2), GOOD),
    *[(k, BAD) for k in (N_LABELS + 1, 0, -1, 2**70, 2.0, "3", np.nan, (2,), [1, 2])],
    (None, GOOD),
]


def predict(name, multilabel, dtype, sparse, method, kind, rng):
    """The same result as from plain dense X of the model's type; the model stays as it was."""
    estimator = fitted(name, multilabel, dtype, sparse)
    _, same, make = X_KINDS[kind]
    X = make(make_X(1), rng)
    before = state(estimator)
    params = {"k": 2} if "topk" in method else {}
    try:
        result = outputs(estimator, X, [method])
    finally:
        assert state(estimator) == before, f"{method} has changed the model"
    for part in result.values():
        assert len(part) == n_rows(X)
        if part.dtype.kind == "f" and method != "predict_label_set_scores":
            assert np.isfinite(part).all(), f"{method} is not finite"
    if same is not None and (same == dtype or same == "float64"):
        plain = make_X(1).astype(same)
        assert_same(result, outputs(estimator, plain, [method]), f"{method} {params}")
    elif same is None and sp.issparse(X):
        assert_same(result, outputs(estimator, X.toarray(), [method]))


def rank(name, multilabel, method, k):
    estimator = fitted(name, multilabel)
    before = state(estimator)
    try:
        result = getattr(estimator, method)(make_X(1), k=k)
    finally:
        assert state(estimator) == before
    k = min(5, len(estimator.classes_)) if k is None else k
    if method == "predict_topk":
        labels, scores = result
        assert labels.shape == scores.shape == (len(make_X(1)), k)
        assert (np.diff(scores, axis=1) <= 0).all()
    else:
        assert (np.diff(result.indptr) == k).all()


@attack(small=30, whole=5000)
def test_predict_inputs(rng, index):
    """Kinds of X, and of k, in every prediction method of fitted models."""
    name, multilabel = ESTIMATORS[index % len(ESTIMATORS)]
    offered = [method for method in METHODS if hasattr(fitted(name, multilabel), method)]
    if not multilabel and "predict_label_set_scores" in offered:
        offered.remove("predict_label_set_scores")
    method = offered[rng.integers(len(offered))]
    title = f"{name} {'multi-label' if multilabel else 'multi-class'}.{method}"
    if "topk" in method and rng.random() < 0.4:
        k, outcome = KS[rng.integers(len(KS))]
        return Trial(f"{title} k={k!r}", partial(rank, name, multilabel, method, k), outcome)
    kind = list(X_KINDS)[rng.integers(len(X_KINDS))]
    dtype, sparse = ["float64", "float32"][rng.integers(2)], bool(rng.integers(2))
    outcome = ANY if kind in OTHER_LENGTHS else X_KINDS[kind][0]
    outcome = BAD if kind in ("one column",) else outcome
    run = partial(predict, name, multilabel, dtype, sparse, method, kind, rng)
    return Trial(f"{title} of kind {kind!r}, model of {dtype} {'csr' * sparse}", run, outcome)
