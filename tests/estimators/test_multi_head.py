"""MultiHeadClassifier: its algorithms, the lengths of its heads, the order of labels."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel

N_LABELS = 23
MULTI_CLASS = {
    "flat": {"algorithm": "flat"},
    "product": {"algorithm": "product"},
    "product-3-heads": {"algorithm": "product", "n_heads": 3},
    "product-groups": {"algorithm": "product", "n_groups": 3},
    "product-bce": {"algorithm": "product", "loss": "bce"},
    "product-joint": {"algorithm": "product", "loss": "joint_ce"},
    "cascade": {"algorithm": "cascade", "beam_width": 30},
    "cascade-3-heads": {"algorithm": "cascade", "n_heads": 3, "beam_width": 30},
    "sampling": {"algorithm": "sampling"},
    "sampling-arcface": {"algorithm": "sampling", "loss": "arcface", "margin": 0.1, "scale": 8.0},
    "sampling-corrected": {"algorithm": "sampling", "n_sampled_heads": 2, "correction": True},
}
MULTI_LABEL = {
    "flat": {"algorithm": "flat"},
    "cascade": {"algorithm": "cascade", "beam_width": 30},
    "cascade-3-heads": {"algorithm": "cascade", "n_heads": 3, "beam_width": 30},
}
EVERY = [(name, False) for name in MULTI_CLASS] + [(name, True) for name in MULTI_LABEL]
every_algorithm = pytest.mark.parametrize("name, multilabel", EVERY)


def quick(name="flat", multilabel=False, **params):
    defaults = {
        "hidden_layer_sizes": (16,),
        "embedding_dim": 8,
        "max_epochs": 80,
        "learning_rate": 0.02,
        "random_state": 0,
    }
    chosen = (MULTI_LABEL if multilabel else MULTI_CLASS)[name]
    return MultiHeadClassifier(**{**defaults, **chosen, **params})


def make_data(multilabel, n_rows=150, dtype=np.float64):
    if multilabel:
        X, Y = make_extreme_multilabel(n_rows, 60, N_LABELS, random_state=0)
        Y = sp.csr_matrix(Y)
        Y.data[Y.indptr[3] : Y.indptr[4]] = 0  # row 3 has no label
        Y.data[Y.indices == 5] = 0  # no row has label 5
        Y.eliminate_zeros()
        return X.astype(dtype), Y
    X, y = make_extreme_multiclass(
        n_rows, 60, N_LABELS, zipf_exponent=0.5, all_classes=True, random_state=0
    )
    return X.astype(dtype), y


# --- labels and their order -------------------------------------------------------------------


@every_algorithm
@pytest.mark.parametrize("order", ["given", "random", "clustered", "reversed"])
def test_label_order_moves_places_not_names(name, multilabel, order):
    X, y = make_data(multilabel)
    reversed_places = np.arange(N_LABELS)[::-1]
    label_order = reversed_places if order == "reversed" else order
    clf = quick(name, multilabel, label_order=label_order, max_epochs=60).fit(X, y)
    np.testing.assert_array_equal(np.sort(clf.label_order_), np.arange(N_LABELS))
    if order == "reversed":
        np.testing.assert_array_equal(clf.label_order_, reversed_places)
    if order == "given":
        np.testing.assert_array_equal(clf.label_order_, np.arange(N_LABELS))
    best = clf.predict_topk(X, k=1)[0][:, 0]
    hits = np.asarray(y[np.arange(150), best]).ravel() if multilabel else best == y
    assert np.mean(hits) > 0.85
    scores = clf.decision_function(X)
    np.testing.assert_array_equal(clf.predict_topk(X, k=1)[0][:, 0], scores.argmax(1))


# --- the estimator as a citizen of scikit-learn -----------------------------------------------


def test_auto_takes_the_head_that_suits_the_labels(monkeypatch):
    X, y = make_data(False)
    _, Y = make_data(True)
    assert quick(algorithm="auto").fit(X, y).algorithm_ == "flat"
    monkeypatch.setattr("sklearn_xlc.estimators.multi_head.FLAT_LIMIT", 10)
    assert quick(algorithm="auto").fit(X, y).algorithm_ == "product"
    assert quick(algorithm="auto").fit(X, Y).algorithm_ == "cascade"


def test_head_lengths_are_used():
    X, y = make_data(False)
    clf = quick("product", head_lengths=[4, 6]).fit(X, y)
    assert clf.head_lengths_ == (4, 6)
    assert clf.net_.module_.head.linear.out_features == 10
    assert quick("cascade", head_lengths=(3, 2, 4)).fit(X, y).head_lengths_ == (3, 2, 4)
    assert quick("sampling", head_lengths=(5, 5)).fit(X, y).head_lengths_ == (5, 5)
    assert quick("flat").fit(X, y).head_lengths_ == (N_LABELS,)


def test_parameters_can_be_set_and_cloned():
    clf = quick("cascade", encoder=torch.nn.Linear(60, 4), label_order=np.arange(N_LABELS)[::-1])
    copy = clone(clf)
    assert copy.get_params().keys() == clf.get_params().keys()
    assert copy.encoder is not clf.encoder
    copy.set_params(algorithm="flat", beam_width=3)
    assert (copy.algorithm, copy.beam_width, clf.algorithm) == ("flat", 3, "cascade")
    X, y = make_data(False)
    fitted = clf.fit(X, y)
    assert not hasattr(clone(fitted), "net_")
    assert "MultiHeadClassifier(" in repr(fitted)
