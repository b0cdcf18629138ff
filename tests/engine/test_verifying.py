"""Label sets that an output layer, and the network before it, can predict."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.optimize import linprog
from scipy.special import logit

from _factories import QUICK, built
from sklearn_xlc import DFTSigmoidClassifier
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.decisions import Threshold
from sklearn_xlc.encoders import MLP

N_LABELS = 30
QUICK = {**QUICK, "encoder": MLP((32,)), "max_epochs": 60}
quick = partial(built, DFTSigmoidClassifier(n_slack=4, **QUICK))


@pytest.fixture(scope="module")
def data():
    X, Y = make_extreme_multilabel(300, 80, N_LABELS, random_state=0)
    return X.astype(np.float64), sp.csr_matrix(Y)


def reached(clf, sets, cut=0.0):
    """Whether some e >= 0 has (W (P e + b) - cut) of the wanted signs: one LP a set."""
    head, W = clf.net_.module_.head, clf.output_weights_
    gains = np.ones(W.shape[1])
    if clf.max_active_ is not None:
        gains[: 2 * clf.max_active_ + 1] = head.gain
    P = gains[:, None] * head.projection.weight.detach().double().numpy()
    b = gains * head.projection.bias.detach().double().numpy()
    answers = []
    for y in sets:
        signs = np.where(y, 1, -1)
        # Largest t <= 1 with s_i (w_i P e + e0 (w_i b - cut)) >= t and e0 >= t; 0 if none is above.
        rows = np.column_stack([signs[:, None] * (W @ P), signs * (W @ b - cut)])
        rows = np.vstack([rows, np.append(np.zeros(P.shape[1]), 1)])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        result = linprog(
            np.append(np.zeros(rows.shape[1]), -1),
            A_ub=np.column_stack([-rows, np.ones(len(rows))]),
            b_ub=np.zeros(len(rows)),
            bounds=[(0, 1e4)] * rows.shape[1] + [(None, 1)],
        )
        answers.append(result.x[-1])
    return np.array(answers)


@pytest.mark.parametrize("output", ["dft", "bottleneck"])
@pytest.mark.parametrize("threshold", [0.5, 0.1])
@pytest.mark.filterwarnings("ignore:the encoder has 7 outputs")
def test_whole_network_is_the_cone_of_rectified_features(data, output, threshold):
    X, Y = data
    params = {"encoder": MLP((7,)), "decision": Threshold(threshold), "max_epochs": 20}
    clf = quick(output=output, n_slack=5, **params).fit(X, Y)
    sets = Y[:40].toarray()
    report = clf.verify(sets, whole_network=True)
    margin = reached(clf, sets, logit(threshold))
    clear = (margin > 1e-7) | (margin < 1e-12)
    assert clear.sum() > 30
    np.testing.assert_array_equal(report.status[clear], margin[clear] > 1e-7)
    assert 0 < report.n_argmaxable < 40
    # A set out of reach of every input of the output layer is out of reach of features.
    assert not (report.status == 1)[clf.verify(sets).status == 0].any()
    found = report.status == 1
    assert (report.witness[found] > 0).all()
    # Labels that contradict each other are labels, not features.
    for conflict in report.conflicts:
        assert conflict is None or conflict.max(initial=0) < N_LABELS
    # What the network predicts of a sample is within its reach.
    predicted = clf.verify(clf.predict(X), X, whole_network=True)
    assert set(predicted.reason) == {"point"}


def test_features_of_an_own_encoder_are_as_signed_as_in_x(data):
    X, Y = data
    params = {"n_slack": 3, "encoder": lambda n: torch.nn.Linear(n, 6), "max_active": 2}
    with pytest.warns(UserWarning, match="the encoder has 6 outputs|more than max_active=2"):
        clf = quick(**params).fit(X, Y)
    sets = Y[:40]
    free = clf.verify(sets, whole_network=True)
    both_signs = clf.verify(sets, X, whole_network=True)
    np.testing.assert_array_equal(free.status, both_signs.status)
    with torch.no_grad():
        clf.net_.module_.encoder.bias += 1e3  # no sample has a negative feature now
    positive = clf.verify(sets, X, whole_network=True)
    assert positive.n_argmaxable < free.n_argmaxable


@pytest.mark.parametrize("threshold", [0.05, np.linspace(0.02, 0.4, N_LABELS)], ids=["one", "each"])
@pytest.mark.parametrize("output", ["dft", "bottleneck"])
def test_what_is_predicted_is_argmaxable_at_every_threshold(data, output, threshold):
    X, Y = data
    clf = quick(output=output, n_slack=2, decision=Threshold(threshold)).fit(X, Y)
    report = clf.verify(clf.predict(X), X)
    assert set(report.reason) == {"point"}
