"""Bad input is refused by a message that names the culprit and what is accepted."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

from _factories import with_value
from sklearn_xlc import (
    AggregatedLabelClassifier,
    DFTSigmoidClassifier,
    EAGLETransformer,
    ETFNeuralCollapseClassifier,
    MIMLClassifier,
    MultiHeadClassifier,
    SentenceVectorizer,
    config_context,
)
from sklearn_xlc.aggregation import aggregation
from sklearn_xlc.codes import label_order
from sklearn_xlc.decisions import JointMode
from sklearn_xlc.encoders import MLP
from sklearn_xlc.geometry import verify_argmaxable
from sklearn_xlc.groups import check_groups
from sklearn_xlc.heads import (
    ETF,
    ArcFace,
    Cascade,
    Flat,
    FlatHead,
    FocalLoss,
    Product,
    Sampling,
)
from sklearn_xlc.metrics import precision_at_k
from sklearn_xlc.optimizers import SGD, Adagrad, Adam, Mixed
from sklearn_xlc.training.devices import numpy_dtype

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 4))
y = np.arange(30) % 10
Y = (rng.random((30, 10)) < 0.3).astype(int)


quick = partial(MultiHeadClassifier, encoder=MLP((4,)), max_epochs=1, random_state=0)


PARAMETERS = {
    "head": ["tree", 3, None],
    "encoder": ["tree", 3],
    "loss": ["mse", None],
    "ranker": ["isotonic", True],
    "decision": ["best", None, 0.5],
    "optimizer": ["rmsprop", None],
    "learning_rate": [0, -0.1, "fast"],
    "weight_decay": [-1e-3, None],
    "batch_size": [0, 1.5, "all"],
    "max_epochs": [0, 1.5, "many", 10**12],
    "early_stopping": ["yes", 2],
    "validation_fraction": [0.0, 1.0],
    "class_weight": ["even", 2.0],
    "precision": ["float16", None],
    "callbacks": ["bar", 3],
    "checkpoint": [3, True],
    "device": [3, None],
    "warm_start": ["yes", 2],
    "random_state": [-1, "seed"],
    "verbose": [-1, "loud"],
}
DIGITS = {
    "n_heads": [0, 2.0, "two", 65, 2**63],
    "lengths": [3, "equal"],
    "label_order": ["sorted", None],
}
#: Parts, the parameter of the classifier that takes them, and bad values of their own parameters.
PARTS = {
    Flat: ("head", {"n_negatives": [0, 1.5, "all"], "rank": [0, 1.5, "full"]}),
    Product: ("head", {**DIGITS, "n_groups": [0, 1.5]}),
    Cascade: (
        "head",
        {
            **DIGITS,
            "embedding_dim": [0, 1.5],
            "beam_width": [0, 1.5],
            "path_exponent": [-0.1, "half", 1001.0],
            "level_weighting": ["median", None],
        },
    ),
    Sampling: (
        "head",
        {
            **DIGITS,
            "n_sampled_heads": [-1, 1.5],
            "shared_heads": ["yes", 2],
            "correction": ["yes", 2],
        },
    ),
    MLP: (
        "encoder",
        {
            "hidden_layer_sizes": [0, -1, 1.5, "big", None],
            "dropout": [-0.1, 1.0, "none"],
            "n_members": [0, 1.5, "auto"],
            "negative_slope": ["leaky", None],
        },
    ),
}
RATES = {"learning_rate": [0, -0.1, "fast"], "weight_decay": [-1e-3, "some"]}
PARTS |= dict.fromkeys((Adam, Mixed, Adagrad), ("optimizer", RATES))
PARTS[SGD] = ("optimizer", {**RATES, "momentum": [-0.1, 1.0, None], "nesterov": ["yes", 2]})


def test_every_parameter_is_here():
    assert set(PARAMETERS) == set(MultiHeadClassifier().get_params())
    for part, (room, bad) in PARTS.items():
        others = {"head_learning_rate", "row_momentum"} if room == "optimizer" else set()
        assert set(bad) == set(part().get_params()) - others


@pytest.mark.parametrize(
    "name, value", [(name, value) for name, values in PARAMETERS.items() for value in values]
)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_parameters(method, name, value):
    clf = quick(**{name: value})
    message = rf"The '{name}' parameter of MultiHeadClassifier must be .* Got {value!r} instead"
    with pytest.raises(ValueError, match=message):
        getattr(clf, method)(X, y)


@pytest.mark.parametrize(
    "part, room, name, value",
    [
        (part, room, name, value)
        for part, (room, bad) in PARTS.items()
        for name, values in bad.items()
        for value in values
    ],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_parameters_of_parts(method, part, room, name, value):
    clf = quick(**{room: part(**{name: value})})
    message = rf"The '{name}' parameter of {part.__name__} must be .* Got {value!r} instead"
    with pytest.raises(ValueError, match=message):
        getattr(clf, method)(X, y)
    assert not hasattr(clf, "classes_")


TOGETHER = [
    # parameters, y, what the message says
    ({"head": "sampling"}, Y, "(?i:sampling).* needs exactly one label per sample.*'flat'"),
    ({"head": FlatHead, "loss": "ce"}, y, "head.*FlatHead.*loss='ce'"),
    ({"head": "flat", "loss": FocalLoss()}, y, r"loss=FocalLoss\(gamma=2.0.*'ce', 'pick_all"),
    ({"head": "cascade", "loss": "propensity_bce"}, Y, "loss='propensity_bce' is not defined"),
    ({"head": "flat", "loss": "bce"}, y, "loss='bce' is not defined.*multi-class.*'ce'"),
    ({"head": "flat", "loss": "ce"}, Y, "loss='ce' is not defined.*multi-label.*'bce'"),
    ({"head": "cascade", "loss": "arcface"}, y, "loss='arcface'.*(?i:cascade)"),
    ({"head": "cascade", "loss": ArcFace()}, y, "loss=ArcFace.*(?i:cascade)"),
    ({"head": "product", "loss": "arcface"}, y, "loss='arcface'.*'bce', 'ce', 'focal', 'joint_ce'"),
    ({"head": "sampling", "loss": "joint_ce"}, y, "loss='joint_ce'.*'arcface', 'auto', 'ce'"),
    ({"head": "auto", "loss": "joint_ce"}, y, "loss='joint_ce'.*(?i:flat)"),
    ({"head": Product(n_groups=2), "loss": "bce"}, y, "n_groups=2 needs.*loss='ce'"),
    ({"head": Product(n_groups=2), "loss": "bce"}, Y, "n_groups=2 needs.*loss='ce'"),
    ({"head": Product(lengths=[8, 100])}, Y, r"lengths=\(8, 100\).*of two"),
    ({"head": Product(lengths=[16, 16])}, Y, "lengths=.* hold 8 labels.*=10"),
    ({"head": Product(lengths=[1024.0])}, Y, "lengths=.*must be an integer"),
    ({"head": "product", "loss": "pick_all_labels"}, Y, "loss='pick.*'bce', 'ce'.*'joint_ce'"),
    ({"head": "flat", "decision": JointMode()}, Y, "JointMode.*FlatHead does not.*'product'"),
    (
        {"head": Flat(rank=3), "encoder": MLP((4,), n_members=2)},
        y,
        "n_members=2 needs rank=None, .* rank=3",
    ),
    ({"head": Flat(rank=5), "encoder": MLP((4,))}, y, "rank=5 is more than the 4 features"),
    *(
        ({"head": head, "encoder": MLP((4,), n_members=2)}, y, "n_members=2 needs .*(?i:flat)")
        for head in ("product", "cascade", "sampling", FlatHead)
    ),
    ({"head": Cascade(n_heads=1)}, y, "n_heads or lengths of at least two.*'flat'"),
    ({"head": Cascade(lengths=[10])}, y, r"at least two heads.*\(10,\)"),
    ({"head": Sampling(n_heads=3)}, y, "n_heads=2 or lengths=.number of sub-heads"),
    ({"head": Product(lengths=[3, 3])}, y, r"lengths=\(3, 3\).* is 9.*=10"),
    ({"head": Product(lengths=[])}, y, "lengths.*at least one head"),
    ({"head": Product(lengths=[-5, -2])}, y, "lengths.*must be an integer >= 1"),
    ({"head": Product(lengths=[3.5, 3])}, y, "lengths.*must be an integer"),
    ({"head": Cascade(lengths=[2**40] * 2)}, y, "lengths.*less than 2.*62"),
    *(
        ({"head": Product(label_order=order)}, y, f"label_order.*{message}")
        for order, message in [
            ([0] * 10, "permutation.*position 0.*more than once, 1 never"),
            ([0, 1], r"shape \(10,\), got shape \(2,\)"),
            (np.arange(10) + 1, "position 10 for label 9"),
            (np.arange(10) / 2, "integers, got dtype float64"),
        ]
    ),
    ({"class_weight": {2: -1.0}}, y, "class_weight must map labels to.*-1.0 for the label 2"),
    ({"class_weight": {2: np.inf}}, Y, "class_weight must map labels to finite.*got inf"),
    ({"class_weight": {2: "two"}}, Y, "class_weight must map labels to finite.*got 'two'"),
    ({"class_weight": "balanced", "head": "cascade"}, Y, "CascadeHead.*no labels.*'flat'"),
    ({"encoder": MLP(())}, y, "hidden_layer_sizes is empty; give at least one"),
    ({"encoder": MLP((4, 0))}, y, "hidden_layer_sizes must be an integer >= 1, got 0"),
    ({"encoder": MLP((4, 0.5))}, y, "hidden_layer_sizes must be an integer >= 1, got 0.5"),
    ({"optimizer": SGD(nesterov=True)}, y, "nesterov=True needs momentum above"),
    ({"device": "gpu"}, y, "device='gpu' is neither 'auto' nor a torch device of this"),
    ({"device": "meta"}, y, "device='meta' is neither 'auto' nor a torch device of this machine"),
    ({"callbacks": [3]}, y, "callbacks must hold skorch callbacks.*got 3"),
    ({"callbacks": [("mine", print)]}, y, r"callbacks must hold.*got \('mine', .*print"),
    (
        {"early_stopping": True, "validation_fraction": 0.99},
        y,
        "validation_fraction=0.99 leaves no sample to train on.*30 sample",
    ),
    (
        {"optimizer": "sgd", "learning_rate": 1e300, "max_epochs": 3},
        y,
        r"(loss became|step of the optimizer became too large).*lower learning_rate=1e\+300 or sc",
    ),
]


@pytest.mark.parametrize("params, target, message", TOGETHER, ids=lambda value: str(value)[:60])
def test_parameters_that_do_not_suit_each_other_or_the_data(params, target, message):
    with pytest.raises((ValueError, TypeError), match=message):
        quick(**params).fit(X, target)


USELESS = [
    # estimator, y, the value that cannot be used
    (quick(Product(lengths=(4, 3), n_heads=3)), y, "n_heads=3"),
    (quick(Product(n_heads=3)), Y, "n_heads=3"),
    (MIMLClassifier(None, temperature=2.0, max_epochs=1), Y, "temperature=2.0"),
    (DFTSigmoidClassifier(max_active=2, output="bottleneck", max_epochs=1), Y, "max_active=2"),
    (EAGLETransformer(contrast=None, shrinkage=0.1), Y, "shrinkage=0.1"),
    (EAGLETransformer(n_iter=0, temperature=1.0), Y, "temperature=1.0"),
    (EAGLETransformer(n_iter=0, step_size=0.5), Y, "step_size=0.5"),
    (EAGLETransformer(multiplicity="top", sharing=0.5), Y, "sharing=0.5"),
    (AggregatedLabelClassifier(quick(), n_rounds=1, n_folds=3), Y, "n_folds=3"),
    (AggregatedLabelClassifier(quick(), validation_fraction=0.2), Y, "validation_fraction=0.2"),
]


@pytest.mark.parametrize("estimator, target, value", USELESS, ids=[case[2] for case in USELESS])
def test_a_value_that_cannot_be_used_is_refused(estimator, target, value):
    estimator = clone(estimator)
    with pytest.raises(ValueError, match=f"{value} cannot be used .*; leave it at its default, "):
        estimator.fit(X, target)
    assert not hasattr(estimator, "classes_")


def test_values_that_can_be_used_are_not_refused():
    quick(Cascade(n_heads=3, beam_width=4, path_exponent=1.0)).fit(X, Y)
    quick(early_stopping=True, validation_fraction=0.2).fit(X, y)
    # What a classifier does not read for class labels may stand there: a search sets it for both.
    quick(Cascade(path_exponent=1.0, level_weighting="mean"), validation_fraction=0.2).fit(X, y)
    quick(decision="threshold", validation_fraction=0.2).fit(X, Y)
    quick(Sampling(lengths=np.array([4, 3])), loss=ArcFace(margin=0.1)).fit(X, y)


@pytest.mark.parametrize(
    "estimator, names",
    [
        (
            MultiHeadClassifier,
            "learning_rate weight_decay batch_size max_epochs validation_fraction random_state",
        ),
        (lambda **params: MultiHeadClassifier(Product(**params)), "n_heads n_groups"),
        (
            lambda **params: MultiHeadClassifier(Cascade(**params)),
            "n_heads embedding_dim beam_width path_exponent",
        ),
        (lambda **params: MultiHeadClassifier(Sampling(**params)), "n_heads n_sampled_heads"),
        (lambda **params: MultiHeadClassifier(encoder=MLP(**params)), "dropout"),
        (lambda **params: MultiHeadClassifier(optimizer=SGD(**params)), "momentum"),
        (DFTSigmoidClassifier, "max_active n_slack"),
        (ETFNeuralCollapseClassifier, "feature_dim"),
        (lambda **params: ETFNeuralCollapseClassifier(ETF(**params)), "feature_decay"),
        (MIMLClassifier, "temperature n_concepts"),
        (SentenceVectorizer, "max_length"),
        (
            EAGLETransformer,
            "n_iter step_size temperature sharing n_components shrinkage top_k n_jobs random_state",
        ),
    ],
)
@pytest.mark.parametrize(
    "value",
    [True, np.True_, float("nan"), float("inf"), 10**400, "2", np.array(2)],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_number_of_64_bits(estimator, names, value):
    for name in names.split():
        with pytest.raises(ValueError, match=f"The '{name}' parameter of .* must be .* Got"):
            estimator(**{name: value}).fit(X, Y)


@pytest.mark.parametrize(
    "name, params",
    [
        ("hidden_layer_sizes", {"encoder": MLP([True, 10])}),
        ("lengths", {"head": Product(lengths=[True, 10])}),
    ],
)
def test_sequences_that_hold_booleans(name, params):
    with pytest.raises(
        TypeError, match=rf"{name}.* must be an? (number|integer >= 1), got True of type bool"
    ):
        quick(**params).fit(X, y)


def test_early_stopping_with_one_row_of_positive_weight():
    weight = np.zeros(30)
    weight[4] = 1.0
    with pytest.raises(
        ValueError, match=r"no sample to train on.* 1 sample\(s\) of positive weight"
    ):
        quick(early_stopping=True).fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize(
    "bad, message",
    [
        (with_value(X, np.nan), "X contains NaN"),
        (with_value(X, np.inf), "X contains infinity"),
        (X[:0], "0 sample.* a minimum of 1 is required"),
        (X[:, :0], "0 feature.* a minimum of 1 is required"),
        (X[1:], r"inconsistent numbers of samples: \[29, 30\]"),
        (X + 1j, "Complex data not supported"),
    ],
)
def test_X(make, bad, message):
    with pytest.raises(ValueError, match=message):
        quick().fit(make(bad), y[: len(bad)] if len(bad) == 0 else y)


@pytest.mark.parametrize(
    "bad, message",
    [
        (X[0], "Expected 2D array, got 1D array"),
        (X[None], r"dim 3(, while dim|\. MultiHeadClassifier expected) <= 2"),
        (np.full((30, 4), "a"), "could not convert string to float"),
    ],
)
def test_dense_X(bad, message):
    with pytest.raises(ValueError, match=message):
        quick().fit(bad, y)


@pytest.mark.parametrize(
    "bad, message",
    [
        (None, "requires y to be passed"),
        (with_value(y, np.nan), "Input y contains NaN"),
        (with_value(y, np.inf), "Input y contains infinity"),
        (y + 0.5, "Unknown label type: y holds continuous numbers"),
        ((y % 3) * 1e300, "Unknown label type: y holds continuous numbers"),
        (y + 1j, "Complex data not supported"),
        (y * 0, r"y has one class only \(0\); a classifier needs at least two"),
        (np.full(30, "a"), r"y has one class only \('a'\)"),
        (y[1:], r"inconsistent numbers of samples: \[30, 29\]"),
        (3, r"y must be class labels of shape \(n_samples,\) or an indicator.*got shape \(\)"),
        ("labels", r"y must be class labels.*got shape \(\)"),
        (Y[None], r"y must be class labels.*got shape \(1, 30, 10\)"),
        (Y[:, :0], r"y must be class labels.*got shape \(30, 0\)"),
        ([1, "a"] * 15, "y mixes labels of different types .*convert them to one type"),
        (["a", None] * 15, r"y\[1\] is None: every sample needs a class label"),
        (["a", np.nan] * 15, r"y\[1\] is NaN: every sample needs a class label"),
        (np.array(["a", pd.NA] * 15), r"y\[1\] is <NA>: every sample needs a class label"),
        ([{1}, {2.5, 3}] * 15, r"y\[1\] holds the tag 2.5 of type float; tags are str or int"),
        ([[1], ["a", 3]] * 15, r"y\[0\] holds the tag 1 of type int; tags are strings, or all are"),
        ([["a"], None] * 15, r"y\[1\] is None, but others are sets of tags; leave the sample out"),
        ([[], []] * 15, "y holds no tag: at least one sample must have one"),
        (Y[1:], r"inconsistent numbers of samples: \[30, 29\]"),
        (Y * 0, "no row of y has a label: at least one row of an indicator must hold a one"),
        (
            with_value(Y, 2),
            "y must hold 0 and 1 only, got 2(.0)? in row 7, .*; for one label per sample",
        ),
        (with_value(Y, -1), "got -1 in row 7, column .; for one label per sample pass a 1-D y"),
        (with_value(Y, 0.5), "got 0.5 in row 7, .* use sklearn.preprocessing.MultiLabelBin"),
        (with_value(Y, np.nan), "Input y contains NaN"),
        (Y.astype(str), "y must be a two-dimensional matrix of numbers, got shape .* and dtype <U"),
        (Y.astype(object), "y must be a two-dimensional matrix of numbers.* dtype object"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else type(value).__name__,
)
def test_y(bad, message):
    with pytest.raises(ValueError, match=message):
        quick().fit(X, bad)


@pytest.mark.parametrize("make", [sp.csr_matrix, sp.coo_array, sp.lil_matrix])
@pytest.mark.parametrize(
    "bad, message",
    [
        (Y[1:], r"inconsistent numbers of samples: \[30, 29\]"),
        (Y * 0, "no row of y has a label"),
        (Y[:, :0], r"a sparse y must have shape \(n_samples, n_labels\), got \(30, 0\)"),
        (
            with_value(Y, 2),
            "y must hold 0 and 1 only, got 2(.0)? in row 7, .*; for one label per sample",
        ),
        (with_value(Y, 0.5), "got 0.5 in row 7"),
        (with_value(Y, np.nan), "got nan in row 7"),
        (Y + 1j, "dtype complex128"),
    ],
)
def test_sparse_y(make, bad, message):
    with pytest.raises(ValueError, match=message):
        quick().fit(X, make(bad))


def test_a_label_twice_in_a_row():
    indptr = np.r_[0, 2, np.arange(3, 32)]
    twice = sp.csr_matrix((np.ones(31), np.full(31, 4), indptr), shape=(30, 10))
    with pytest.raises(ValueError, match="y holds an entry of the sparse indicator more than once"):
        quick().fit(X, twice)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    "weight, message",
    [
        (np.ones(29), r"sample_weight.shape == \(29,\), expected \(30,\)"),
        (np.ones((30, 2)), "Sample weights must be 1D"),
        (-np.ones(30), r"sample_weight must be finite and at least 0, got -1.0 in row 0"),
        (np.zeros(30), "Sample weights must contain at least one non-zero"),
        (with_value(np.ones(30), np.nan), "sample_weight must be finite .*, got nan in row 7"),
        (with_value(np.ones(30), np.inf), "sample_weight must be finite .*, got inf in row 7"),
    ],
)
def test_sample_weight(method, weight, message):
    with pytest.raises(ValueError, match=message):
        getattr(quick(), method)(X, Y, sample_weight=weight)


class Pair(nn.Module):
    def forward(self, rows):
        return rows, rows


class Mean(nn.Module):
    def forward(self, rows):
        return rows.mean(0, keepdim=True)


@pytest.mark.parametrize(
    "encoder, message",
    [
        (lambda n: n, "encoder must be a torch.nn.Module or a function .*it returned int"),
        (MLP, r"encoder=MLP is a class of parts: give an object, encoder=MLP\(\)"),
        (lambda: 3, r"encoder must be a function of \(n_features\), got one of \(\)"),
        (nn.Linear(7, 3), r"encoder cannot read 2 sample\(s\) of 4 columns.*2x4 and 7x3"),
        (nn.Embedding(3, 3), r"encoder cannot read 2 sample\(s\) of 4 columns"),
        (nn.Flatten(0), r"shape \(n_samples, n_outputs\), but for 2 sample\(s\) .* shape \(8,\)"),
        (nn.Unflatten(1, (2, 2)), r"shape \(n_samples, n_outputs\).* shape \(2, 2, 2\)"),
        (Mean(), r"shape \(n_samples, n_outputs\), but for 2 sample\(s\) .* shape \(1, 4\)"),
        (Pair(), "encoder must return a tensor of features.* it returned tuple"),
    ],
)
def test_encoder(encoder, message):
    with pytest.raises((TypeError, ValueError), match=message):
        quick(encoder=encoder).fit(X, y)


@pytest.mark.parametrize(
    "first, then, message",
    [
        ({"y": y}, None, "classes must be passed on the first call to partial_fit"),
        ({"y": y[:, None]}, None, "classes must be passed on the first call to partial_fit"),
        ({"y": y, "classes": [0, 1]}, None, "label 2, which is not one of the 2 classes.*classes="),
        ({"y": y * 0, "classes": [0]}, None, "one class only .*at least two"),
        ({"y": y, "classes": range(10)}, {"y": y + 5}, "label 10, which is not one of the 10"),
        ({"y": y, "classes": range(10)}, {"y": y.astype(str)}, "label '0', which is not one of"),
        ({"y": y, "classes": range(10)}, {"y": y, "classes": [0, 1]}, "not the same as on last"),
        ({"y": y, "classes": range(10)}, {"y": y, "classes": [*range(9), 11]}, "it lacks 9; name"),
        (
            {"y": y, "classes": range(10)},
            {"y": y, "classes": [*range(10), "a"]},
            "adds 'a', but the",
        ),
        ({"y": y, "classes": range(10)}, {"y": y, "classes": [[*range(10)]]}, "one-dimensional"),
        ({"y": Y}, {"y": Y, "classes": range(12)}, r"with 12 columns .* got shape \(30, 10\)"),
        ({"y": y, "classes": range(10)}, {"y": Y}, "1-D class labels in the first fit and is an i"),
        ({"y": Y}, {"y": y}, r"an indicator with 10 columns as in the first fit, got shape \(30,"),
        ({"y": Y}, {"y": Y[:, :5]}, r"with 10 columns as in the first fit, got shape \(30, 5\)"),
        ({"y": Y}, {"y": sp.csr_matrix(Y[:, :5])}, r"with 10 columns .*got shape \(30, 5\)"),
        ({"y": Y}, {"X": X[:, :2], "y": Y}, "X has 2 features, .* expecting 4 features"),
    ],
)
def test_partial_fit(first, then, message):
    clf = quick()
    if then is not None:
        clf.partial_fit(X, **first)
    with pytest.raises(ValueError, match=message):
        clf.partial_fit(**{"X": X, **(then or first)})


@pytest.mark.parametrize(
    "labels, message",
    [
        ([10], "labels must be some of the 10 labels in classes_, got 10"),
        (["a"], "labels must be some of the 10 labels in classes_, got 'a'"),
        ([[1, 2]], "got an array of shape"),
        (3, r"labels must be array-like, got 3; give a list, \[3\]"),
        ("ab", r"labels must be array-like, got 'ab'; give a list, \['ab'\]"),
        ({3}, r"labels must be array-like, got \{3\}; give a list, \[3\]"),
        (range(9), "9 of 10 labels cannot be removed: at least 2 must stay"),
    ],
)
def test_remove_labels(labels, message):
    clf = quick("flat").fit(X, y)
    with pytest.raises(ValueError, match=message):
        clf.remove_labels(labels)
    assert clf.remove_labels([]).predict_topk(X, 10)[0].shape == (30, 10)
    with pytest.raises(ValueError, match="MultiHeadClassifier.*not fitted"):
        quick().remove_labels([0])


def test_warm_start_with_new_classes():
    clf = quick(warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="label 10, which is not one of the 10.*warm_start"):
        clf.fit(X, y + 1)


HUGE = {
    "mark of missing values": (np.float32(-3.4e38), np.float32),
    "float64 beyond the float32 of the model": (1e39, np.float32),
    "above the root of the largest float64": (2e154, np.float64),
}
LARGE = [
    MultiHeadClassifier("flat"),
    MultiHeadClassifier("cascade"),
    DFTSigmoidClassifier(),
    ETFNeuralCollapseClassifier(),
    MIMLClassifier(),
    EAGLETransformer(),
]


def test_nan_is_found_where_scikit_learn_is_told_not_to_look():
    with config_context(assume_finite=True):
        for make in (np.asarray, sp.csr_matrix):
            with pytest.raises(ValueError, match="X holds nan in row 7, column 1: numbers above"):
                MultiHeadClassifier("flat").fit(make(with_value(X, np.nan)), Y)


@pytest.mark.parametrize("estimator", LARGE, ids=lambda est: type(est).__name__)
@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, sp.csc_array])
@pytest.mark.parametrize("value, dtype", HUGE.values(), ids=HUGE)
def test_numbers_whose_squares_overflow(estimator, make, value, dtype):
    estimator = clone(estimator)
    if hasattr(estimator, "max_epochs"):
        estimator.set_params(encoder=MLP((10,)), max_epochs=1)
    bad = with_value(X.astype(dtype), value)
    message = f"in row 7, column 1: numbers above .* overflow in {dtype.__name__}; scale X"
    if bad.dtype == dtype:
        with pytest.raises(ValueError, match=message):
            estimator.fit(make(bad), Y)
    estimator.fit(X.astype(dtype), Y)
    if type(estimator) is EAGLETransformer and bad.dtype != dtype:
        return  # it has no precision of its own: that of X counts
    for method in (*METHODS, "partial_fit", "assign"):
        if hasattr(estimator, method):
            labels = (Y,) if method in ("partial_fit", "assign") else ()
            with pytest.raises(ValueError, match=message):
                getattr(estimator, method)(make(bad), *labels)


class Inverse(nn.Module):
    """Returns infinity for zeros."""

    def forward(self, rows):
        return 1 / rows


@pytest.mark.parametrize("estimator", [MultiHeadClassifier, MIMLClassifier])
def test_features_that_are_not_finite(estimator):
    clf = estimator(encoder=Inverse(), max_epochs=1).fit(np.abs(X) + 1, Y)
    kind = "bag" if estimator is MIMLClassifier else "row"
    many = np.tile(np.abs(X) + 1, (40, 1))
    many[1111, 2] = 0
    for method in METHODS:
        with pytest.raises(ValueError, match=f"NaN or infinity for {kind} 1111 of X: scale X"):
            getattr(clf, method)(many)


DOORS = {
    "X in fit": lambda bad: quick().fit(bad, y),
    "X in predict": lambda bad: quick().fit(X, y).predict(bad),
    "y": lambda bad: quick().fit(X, bad),
    "X in bags": lambda bad: MIMLClassifier(max_epochs=1).fit(bad, y),
    "y of bags": lambda bad: MIMLClassifier(max_epochs=1).fit(X, bad),
    "groups": lambda bad: check_groups(bad, 30),
    "X in EAGLE": lambda bad: EAGLETransformer().fit(bad, y),
    "y in EAGLE": lambda bad: EAGLETransformer().fit(X, bad),
    "X in AggregatedLabelClassifier": lambda bad: AggregatedLabelClassifier(quick()).fit(bad, y),
    "y in AggregatedLabelClassifier": lambda bad: AggregatedLabelClassifier(quick()).fit(X, bad),
    "true labels": lambda bad: precision_at_k(bad, Y.astype(float), k=1),
    "scores": lambda bad: precision_at_k(Y, bad, k=1),
    "label order": lambda bad: label_order("clustered", 10, bad, Y),
    "aggregation": lambda bad: aggregation(bad, Y[:4]),
    "coefficients": lambda bad: verify_argmaxable(bad, np.eye(30, dtype=int)),
    "label sets": lambda bad: verify_argmaxable(np.eye(4), bad),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csc_array])
def test_broken_sparse_matrices_are_refused_at_every_door(door, make):
    broken = make((np.abs(X) > 0.5).astype(float))
    broken.indices[3] = 10**9
    with pytest.raises(ValueError, match="is not a valid CS. matrix: indices must be <"):
        DOORS[door](broken)


METHODS = [
    "predict",
    "decision_function",
    "predict_proba",
    "predict_log_proba",
    "predict_topk",
    "predict_topk_sparse",
    "transform",
]


@pytest.mark.parametrize("method", METHODS)
def test_prediction(method):
    with pytest.raises(NotFittedError, match="not fitted yet. Call 'fit'"):
        getattr(quick(), method)(X)
    clf = quick().fit(X, Y)
    with pytest.raises(ValueError, match="X has 2 features, .* expecting 4 features"):
        getattr(clf, method)(X[:, :2])
    with pytest.raises(ValueError, match="X contains NaN"):
        getattr(clf, method)(with_value(X, np.nan))
    with pytest.raises(ValueError, match="0 sample"):
        getattr(clf, method)(X[:0])


@pytest.mark.parametrize("method", ["predict_topk", "predict_topk_sparse"])
@pytest.mark.parametrize(
    "k, error, message",
    [
        (0, ValueError, "k must be an integer >= 1, got 0"),
        (-3, ValueError, "k must be an integer >= 1, got -3"),
        (11, ValueError, "k=11 must be at most the number of labels, 10"),
        (2.0, TypeError, "k must be an integer >= 1, got 2.0"),
        ("all", TypeError, "k must be an integer >= 1, got .all."),
    ],
)
def test_k(method, k, error, message):
    clf = quick().fit(X, y)
    with pytest.raises(error, match=message):
        getattr(clf, method)(X, k=k)


@pytest.mark.parametrize("method", [each for each in METHODS if "topk" not in each])
def test_dense_limit(method):
    clf = quick().fit(X, Y)
    with config_context(dense_limit=100), pytest.raises(MemoryError) as caught:
        getattr(clf, method)(X)
    for part in ("dense result of shape (30, ", " bytes", "dense_limit=100; use ", "set_config"):
        assert part in str(caught.value)


def test_probabilities_that_are_not_defined():
    clf = quick("product", loss="bce").fit(X, y)
    with pytest.raises(AttributeError, match="predict_proba"):
        clf.predict_proba(X)


def test_a_missing_gpu_is_warned_of(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.warns(UserWarning, match="device='cuda' needs a GPU, but there is none; using"):
        clf = quick(device="cuda").fit(X, y)
    assert clf.net_.device == "cpu"


def test_float32_of_other_libraries_is_float32():
    import polars as pl

    numbers = X.astype(np.float32)
    expected = clone(quick()).fit(numbers, y)
    assert numpy_dtype(expected.net_.module_) == np.float32
    frame = pl.DataFrame(numbers, schema=[f"x{i}" for i in range(numbers.shape[1])])
    tensor = torch.from_numpy(numbers)
    for given in (frame, tensor, tensor.clone().requires_grad_()):
        fitted = clone(quick()).fit(given, y)
        scores = fitted.decision_function(given)
        assert scores.dtype == np.float32, type(given)
        np.testing.assert_array_equal(scores, expected.decision_function(numbers))
