"""Guarantees from labels of groups alone."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

import sklearn_xlc
from sklearn_xlc import AggregatedLabelClassifier, EAGLETransformer, MultiHeadClassifier
from sklearn_xlc.datasets import make_aggregated, make_extreme_multilabel
from sklearn_xlc.decisions import RiskControl, TopK
from sklearn_xlc.encoders import MLP
from sklearn_xlc.estimators import group_risk
from sklearn_xlc.groups import check_groups

LINEAR = OneVsRestClassifier(LogisticRegression(C=100, max_iter=50))
NETWORK = MultiHeadClassifier(
    "flat", encoder=MLP((16,)), max_epochs=5, learning_rate=0.02, ranker=None, random_state=0
)


@pytest.fixture(scope="module")
def problem():
    X, Y = make_extreme_multilabel(1200, 100, 10, noise=0.3, random_state=0)
    grouped, groups = make_aggregated(Y, group_size=3, random_state=0)
    return X, grouped, groups


def aware(estimator=LINEAR, alpha=0.2, **params):
    params = {"n_rounds": 1, "decision": RiskControl(alpha), **params}
    return AggregatedLabelClassifier(estimator, EAGLETransformer(random_state=0), **params)


def group_miss(sets, Y, groups):
    """Mean share of the groups' labels that no member claims."""
    sets, Y = (sp.csr_matrix(each).toarray() > 0 for each in (sets, Y))
    risks = []
    for group in np.unique(groups):
        own = Y[groups == group][0]
        claimed = sets[groups == group].any(axis=0)
        risks.append((own & ~claimed).sum() / max(1, own.sum()))
    return np.mean(risks)


@pytest.mark.parametrize("estimator", [LINEAR, NETWORK], ids=["linear", "network"])
def test_the_share_of_labels_that_no_member_claims(estimator, problem):
    X, grouped, groups = problem
    train = np.isin(groups, np.unique(groups)[:250])
    clf = aware(estimator, validation_fraction=0.3).fit(X[train], grouped[train], groups[train])
    assert clf.decision_.n_samples_ == 75
    assert clf.decision_.min_labels_ == 0
    sets = clf.predict(X[~train])
    assert sp.issparse(sets)
    assert sets.shape == (np.count_nonzero(~train), 10)
    assert 0.1 < group_miss(sets, grouped[~train], groups[~train]) < 0.28
    of = check_groups(groups[train], np.count_nonzero(train))
    labels = of.per_group(sp.csr_matrix(grouped[train]), "y")
    held = group_risk.hold_out_groups(of, labels, 0.3, clf.decision_)
    own = group_miss(clf.predict(X[train][held.samples]), grouped[train][held.samples], held.group)
    assert own == pytest.approx(clf.decision_.risk_)


def test_held_out_groups_train_nothing(problem):
    X, grouped, groups = problem
    first = aware(validation_fraction=0.25).fit(X, grouped, groups)
    of = check_groups(groups, len(groups))
    labels = of.per_group(sp.csr_matrix(grouped), "y")
    held = group_risk.hold_out_groups(of, labels, 0.25, RiskControl(0.2))
    assert len(held.samples) == 300 == first.decision_.n_samples_ * 3
    assert not set(held.samples) & set(held.others)
    assert not set(groups[held.samples]) & set(groups[held.others])
    X_other, y_other = X.tolil(), sp.lil_matrix(grouped)
    X_other[held.samples] = X[held.samples] * 2
    y_other[held.samples] = 1 - grouped[held.samples].toarray()
    with pytest.raises(ValueError, match="cannot be kept"):
        aware(alpha=0.001).fit(X, grouped, groups)
    second = aware(alpha=0.5, validation_fraction=0.25).fit(
        X_other.tocsr(), y_other.tocsr(), groups
    )
    for a, b in zip(first.estimator_.estimators_, second.estimator_.estimators_):
        np.testing.assert_array_equal(a.coef_, b.coef_)
    assert (first.assigned_ != second.assigned_).nnz == 0
    assert first.decision_.cut_ != second.decision_.cut_


@pytest.mark.integration
def test_every_form_of_y_is_the_same(problem):
    X, grouped, groups = problem
    expected = aware().fit(X, grouped, groups)
    rows = expected.predict(X[:40])
    dense = aware().fit(X, grouped.toarray(), groups).predict(X[:40])
    assert isinstance(dense, np.ndarray)
    np.testing.assert_array_equal(dense, rows.toarray())
    first = np.unique(groups, return_index=True)[1]
    by_group = aware().fit(X, sp.csr_matrix(grouped)[first], groups).predict(X[:40])
    np.testing.assert_array_equal(by_group.toarray(), rows.toarray())
    names = np.array([f"tag {i}" for i in range(10)])
    tags = [list(names[row.indices]) for row in sp.csr_matrix(grouped)]
    lists = aware().fit(X, tags, groups).predict(X[:40])
    assert [set(each) for each in lists] == [set(names[row.indices]) for row in rows]


def test_without_groups_every_sample_is_one(problem):
    X, Y, _ = problem
    with pytest.warns(UserWarning, match="no groups were given"):
        found = aware().fit(X, Y)
    expected = aware().fit(X, Y, np.arange(X.shape[0]))
    assert (found.predict(X) != expected.predict(X)).nnz == 0


def test_blocks_of_samples_give_the_same(problem, monkeypatch):
    X, grouped, groups = problem
    expected = aware().fit(X, grouped, groups)
    monkeypatch.setattr(group_risk, "BLOCK", 700)
    found = aware().fit(X, grouped, groups)
    assert found.decision_.cut_ == expected.decision_.cut_
    assert (found.predict(X) != expected.predict(X)).nnz == 0


def test_it_is_saved(problem, tmp_path):
    X, grouped, groups = problem
    clf = aware(NETWORK).fit(X, grouped, groups)
    sklearn_xlc.save(clf, tmp_path / "model", exact=True)
    for loaded in (sklearn_xlc.load(tmp_path / "model"), pickle.loads(pickle.dumps(clf))):
        assert repr(loaded.decision_) == repr(clf.decision_)
        assert (loaded.predict(X[:50]) != clf.predict(X[:50])).nnz == 0
    with pytest.warns(UserWarning, match=r"exact=False\) changes scores") as told:
        sklearn_xlc.save(clf, tmp_path / "model")
    assert len(told) == 1
    linear = aware(OneVsRestClassifier(LogisticRegression())).fit(X, grouped, groups)
    sklearn_xlc.save(linear, tmp_path / "model")  # nothing is rounded


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"decision": TopK(2)}, "guarantees nothing for groups; use RiskControl"),
        ({"decision": RiskControl(0.01)}, "with 40 sample.*the smallest alpha that can is 0.0244"),
        ({"decision": RiskControl(risk="false_discovery")}, "give confidence"),
        (
            {"decision": RiskControl(risk="false_discovery", confidence=0.9)},
            "of groups only risk='miss' is controlled",
        ),
        ({"validation_fraction": 0.9999}, "leaves no group to train on: there are 400"),
        ({"validation_fraction": 0.0}, "validation_fraction"),
    ],
)
def test_what_cannot_be_guaranteed_is_refused(problem, params, message):
    with pytest.raises(ValueError, match=message):
        aware().set_params(**params).fit(*problem)


def test_groups_must_be_apart_and_labels_sets(problem):
    X, grouped, groups = problem
    with pytest.raises(ValueError, match="needs label sets"):
        aware().fit(X, groups % 3, groups)
    membership = check_groups(groups, len(groups)).membership().toarray()
    membership[5, :2] = 1
    with pytest.raises(ValueError, match="row 5 is in [23] groups.*share no sample"):
        aware().fit(X, grouped[np.unique(groups, return_index=True)[1]], membership)
