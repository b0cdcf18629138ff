"""Layers are read from arrays, fitted estimators and torch modules alike."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.tree import DecisionTreeClassifier

from sklearn_xlc.geometry import verify_argmaxable
from sklearn_xlc.geometry._validation import check_assignments, check_layer


@pytest.fixture
def data(rng):
    X = rng.normal(size=(60, 4))
    return X, (X @ rng.normal(size=(4, 5)) + 0.3 > 0).astype(int)


@pytest.mark.parametrize(
    "make",
    [
        lambda: OneVsRestClassifier(LogisticRegression()),
        lambda: MultiOutputClassifier(LogisticRegression()),
        lambda: RidgeClassifier(),
    ],
)
def test_fitted_multilabel_estimators(make, data):
    X, Y = data
    model = make().fit(X, Y)
    predicted = np.asarray(model.predict(X))
    report = verify_argmaxable(model, predicted)
    assert report.n_argmaxable == len(X)
    layer = check_layer(model, None)
    assert layer.coef.shape == (5, 4)
    np.testing.assert_array_equal(X @ layer.coef.T + layer.intercept > 0, predicted > 0)
    np.testing.assert_array_equal(report.witness @ layer.coef.T + layer.intercept > 0, predicted)


def test_constant_labels_of_one_vs_rest(data):
    X, Y = data
    Y = Y.copy()
    Y[:, 1], Y[:, 2] = 0, 1
    with pytest.warns(UserWarning, match="is present in all training examples"):
        model = OneVsRestClassifier(LogisticRegression()).fit(X, Y)
    layer = check_layer(model, None)
    np.testing.assert_array_equal(layer.coef[1:3], 0)
    np.testing.assert_array_equal(layer.intercept[1:3], [-1, 1])
    assert verify_argmaxable(model, model.predict(X)).n_argmaxable == len(X)


def test_binary_classifier_is_one_label(data):
    X, Y = data
    model = LogisticRegression().fit(X, Y[:, 0])
    assert verify_argmaxable(model, [[0], [1]]).status.tolist() == [1, 1]
    layer = check_layer(model.sparsify(), None)
    assert layer.coef.shape == (1, 4)


def test_torch_modules(rng):
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        module = torch.nn.Linear(3, 6).to(dtype)
        layer = check_layer(module, None)
        np.testing.assert_array_equal(layer.coef, module.weight.detach().double().numpy())
        np.testing.assert_array_equal(layer.intercept, module.bias.detach().double().numpy())
    assert check_layer(torch.nn.Linear(3, 6, bias=False), None).is_cone
    weight = torch.ones(2, 3, requires_grad=True)
    np.testing.assert_array_equal(check_layer(weight, [1.0, 2.0]).coef, np.ones((2, 3)))


@pytest.mark.parametrize("container", [np.array, list, sp.csr_array, pd.DataFrame])
def test_array_likes(container):
    layer = check_layer(container([[1.0, 0.0], [0.0, 2.0]]), None)
    np.testing.assert_array_equal(layer.coef, [[1, 0], [0, 2]])
    assert layer.is_cone


def test_scalar_and_zero_biases():
    np.testing.assert_array_equal(check_layer(np.eye(3), 0.5).intercept, [0.5, 0.5, 0.5])
    assert check_layer(np.eye(3), 0.0).is_cone
    assert check_layer(np.eye(3), np.zeros(3)).is_cone


def test_bad_layers(data):
    X, Y = data
    with pytest.raises(ValueError, match="LogisticRegression has neither coef_ nor estimators_"):
        check_layer(LogisticRegression(), None)
    with pytest.raises(TypeError, match="got the class"):
        check_layer(LogisticRegression, None)
    with pytest.raises(ValueError, match="binary linear classifier.*DecisionTreeClassifier"):
        check_layer(MultiOutputClassifier(DecisionTreeClassifier()).fit(X, Y), None)
    with pytest.raises(ValueError, match="binary linear classifier"):
        check_layer(RandomForestClassifier(n_estimators=2).fit(X, Y), None)
    with pytest.raises(ValueError, match=r"the same features for all labels.*\[4, 5, 6, 7, 8\]"):
        check_layer(ClassifierChain(LogisticRegression()).fit(X, Y), None)
    with pytest.raises(ValueError, match="intercept must be None if coef is a model"):
        check_layer(SimpleNamespace(weight=np.eye(2), bias=None), [0.0, 0.0])


def test_assignments_are_copied_and_canonical():
    Y = sp.csr_array((np.array([1, 0, 1]), np.array([3, 2, 0]), np.array([0, 3])), (1, 4))
    sets = check_assignments(Y, "Y")
    np.testing.assert_array_equal(sets.indices, [0, 3])
    np.testing.assert_array_equal(Y.indices, [3, 2, 0])
    np.testing.assert_array_equal(Y.data, [1, 0, 1])
