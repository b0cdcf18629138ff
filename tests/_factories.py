"""Data, quick classifiers and targets of heads that more than one test module needs.

`pythonpath` in `pyproject.toml` puts this folder on the path: `from _factories import ...`.
"""

import re

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
import torch
from sklearn.base import clone

from sklearn_xlc import (
    DFTSigmoidClassifier,
    ETFNeuralCollapseClassifier,
    MIMLClassifier,
    MultiHeadClassifier,
)
from sklearn_xlc.batches import Targets
from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import ArcFace, Cascade, Flat, Product, Sampling

#: Version of scikit-learn, for what its older versions do not offer.
SKLEARN = tuple(int(part) for part in sklearn.__version__.split(".")[:2])

# --- classifiers ------------------------------------------------------------------------------

#: A small network that learns fast: `MultiHeadClassifier(**QUICK)`.
QUICK = {
    "encoder": MLP((16,), dropout=0.0),
    "max_epochs": 80,
    "learning_rate": 0.02,
    "random_state": 0,
}

#: Every output layer of the package, by a name for the test report.
CLASSIFIERS = {
    "flat": MultiHeadClassifier("flat"),
    "ensemble": MultiHeadClassifier("flat", encoder=MLP(n_members=2)),
    "flat-rank": MultiHeadClassifier(Flat(rank=10)),
    "product": MultiHeadClassifier("product"),
    "product-3-heads": MultiHeadClassifier(Product(n_heads=3)),
    "product-groups": MultiHeadClassifier(Product(n_groups=3)),
    "product-bce": MultiHeadClassifier("product", loss="bce"),
    "product-joint": MultiHeadClassifier("product", loss="joint_ce"),
    "powerset": MultiHeadClassifier("product"),
    "powerset-blocks": MultiHeadClassifier(Product(lengths=(256, 4, 32, 256))),
    "powerset-groups": MultiHeadClassifier(Product(lengths=(64,) * 4, n_groups=2)),
    "powerset-bce": MultiHeadClassifier("product", loss="bce"),
    "cascade": MultiHeadClassifier(Cascade(embedding_dim=8, beam_width=30)),
    "cascade-narrow": MultiHeadClassifier(Cascade(embedding_dim=8, beam_width=2)),
    "cascade-3-heads": MultiHeadClassifier(Cascade(n_heads=3, embedding_dim=8, beam_width=30)),
    "sampling": MultiHeadClassifier("sampling"),
    "sampling-arcface": MultiHeadClassifier("sampling", loss=ArcFace(margin=0.1, scale=8.0)),
    "sampling-corrected": MultiHeadClassifier(Sampling(n_sampled_heads=2, correction=True)),
    "sampling-own": MultiHeadClassifier(Sampling(n_sampled_heads=3, shared_heads=False)),
    "dft": DFTSigmoidClassifier(n_slack=8),
    "dft-no-slack": DFTSigmoidClassifier(n_slack=0),
    "bottleneck": DFTSigmoidClassifier(n_slack=32, output="bottleneck"),
    "etf": ETFNeuralCollapseClassifier(),
    "etf-frame": ETFNeuralCollapseClassifier(feature_dim=12),
    "pick-all": ETFNeuralCollapseClassifier("learned", feature_dim=16),
    "bags": MIMLClassifier(),
    "bags-multiply": MIMLClassifier(None, mask="multiply"),
}
#: Names of the classifiers of the multi-class and of the multi-label tests.
MULTI_CLASS = [
    name for name in CLASSIFIERS if name != "dft-no-slack" and not name.startswith("powerset")
]
MULTI_LABEL = [
    name
    for name in CLASSIFIERS
    if name != "cascade-narrow" and not name.startswith(("product", "sampling"))
]
EVERY = [(name, False) for name in MULTI_CLASS] + [(name, True) for name in MULTI_LABEL]
_BOTH = [name for name in MULTI_CLASS if name in MULTI_LABEL]


def named(value):
    """Name of a case in the suite: the same in every process, so without addresses."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", str(value))


def once(cases):
    """Cases of `EVERY` with one kind of labels a classifier, in turns; the other kind is slow.

    For what the head itself is tested for with both, or what does not ask for the kind.
    """
    return [
        pytest.param(*case, marks=pytest.mark.slow)
        if case[0] in _BOTH and case[1] != (_BOTH.index(case[0]) % 2 == 0)
        else case
        for case in cases
    ]


def quick(name, **params):
    """Unfitted classifier of that name, with `QUICK` and the given parameters, nested ones too.

    What `CLASSIFIERS` says of the perceptron stays, unless `encoder` is given.
    """
    clf = clone(CLASSIFIERS[name])
    encoder = clf.encoder if isinstance(clf.encoder, MLP) else MLP()
    few = QUICK["encoder"]  # so few units that none is dropped
    encoder.set_params(hidden_layer_sizes=few.hidden_layer_sizes, dropout=few.dropout)
    return clf.set_params(**{**QUICK, "encoder": encoder, **params})


def built(default, **params):
    """A copy of the classifier `default` with the given parameters, nested ones too."""
    return clone(default).set_params(**params)


# --- checks -----------------------------------------------------------------------------------

#: Checks that scikit-learn runs on its own estimators only.
SKLEARN_CHECKS = [
    "check_dataframe_column_names_consistency",
    "check_get_feature_names_out_error",
    "check_global_output_transform_pandas",
    "check_global_set_output_transform_polars",
    "check_inplace_ensure_writeable",
    "check_n_features_in_after_fitting",
    "check_param_validation",
    "check_set_output_transform",
    "check_set_output_transform_pandas",
    "check_set_output_transform_polars",
    "check_transformer_get_feature_names_out",
    "check_transformer_get_feature_names_out_pandas",
]

# --- data -------------------------------------------------------------------------------------

#: Labels of `make_learnable`.
N_LABELS = 23


def make_learnable(multilabel, n_rows=150, dtype=np.float64):
    """CSR X and y that a small network learns; a row without label and a label without row."""
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


def make_X(density=0.05, n_rows=60, n_features=40, seed=0):
    """Dense array with few entries, at least one in each row."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features))
    X[rng.random(X.shape) > density] = 0.0
    X[np.arange(n_rows), np.arange(n_rows) % n_features] = 1.0
    return X


def make_y(multilabel, n_rows=60, n_labels=9, seed=0):
    """Classes in turn, or an indicator whose row 0 and column 3 are empty."""
    if not multilabel:
        return np.arange(n_rows) % n_labels
    Y = (np.random.default_rng(seed).random((n_rows, n_labels)) < 0.2).astype(int)
    Y[0] = Y[:, 3] = 0
    return Y


def with_value(array, value):
    """A copy of `array` that holds `value` in row 7, of a type wide enough for it."""
    changed = array.astype(np.result_type(array, type(value)))
    changed[(7,) + (1,) * (array.ndim - 1)] = value
    return changed


def make_groups(seed, n_rows=20, n_groups=6, n_labels=7, most=1, n_features=5):
    """Unit rows in any number of groups, and counts up to `most` of the labels of each group.

    A row of X is zero, a group is empty and a label has no group.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features)) + 0.5
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X[rng.integers(n_rows)] = 0
    membership = (rng.random((n_rows, n_groups)) < 0.3).astype(int)
    membership[:, rng.integers(n_groups)] = 0
    shape = (n_groups, n_labels)
    labels = rng.integers(1, most + 1, size=shape) * (rng.random(shape) < 0.4)
    labels[:, rng.integers(n_labels)] = 0
    return X, membership, labels


# --- heads ------------------------------------------------------------------------------------


def make_targets(lists):
    """Targets whose row i holds the ids `lists[i]`."""
    indptr = np.cumsum([0, *map(len, lists)])
    return Targets(torch.as_tensor(indptr), torch.as_tensor(np.concatenate(lists).astype(int)))


#: Four rows of up to eleven labels, one row empty; four rows of one label each; weights of both.
SEVERAL = make_targets([[3, 10], [], [0, 4, 7], [10]])
ONE_EACH = make_targets([[10], [0], [3], [3]])
ROW_WEIGHT = torch.tensor([1.0, 0.5, 2.0, 3.0], dtype=torch.float64)


def plain_loss(logits, targets, weight, multilabel):
    """Mean of weighted binary cross-entropy summed over labels, or of cross-entropy, by autograd.

    Independent of the package's losses.
    """
    indicator = torch.zeros_like(logits)
    indicator[targets.rows, targets.ids] = 1.0
    if multilabel:
        softplus = torch.nn.functional.softplus
        rows = (indicator * softplus(-logits) + (1 - indicator) * softplus(logits)).sum(1)
    else:
        rows = -(indicator * logits.log_softmax(1)).sum(1)
    return (weight * rows).mean()
