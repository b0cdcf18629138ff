"""Valid, boundary and nonsensical values for every parameter of every estimator."""

import math
import os
import tempfile
import threading
from functools import partial

import numpy as np
import torch
from skorch.callbacks import EarlyStopping
from torch import nn

from attack._models import (
    ESTIMATORS,
    assert_finite_weights,
    assert_usable,
    build,
    make_X,
    make_y,
    state,
)
from attack._trials import REFUSALS, Trial, attack
from sklearn_xlc import EAGLETransformer
from sklearn_xlc.decisions import Divergence, JointMode, Nearest, Seen, Threshold, TopK
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import (
    ETF,
    ArcFace,
    AsymmetricLoss,
    BinaryCrossEntropy,
    Bottleneck,
    Cascade,
    Flat,
    FlatHead,
    FocalLoss,
    Fourier,
    Learned,
    PickAllLabels,
    Product,
    Sampling,
)
from sklearn_xlc.optimizers import SGD
from sklearn_xlc.ranking import Calibration
from sklearn_xlc.training import WeightAveraging

#: What nobody means, and what somebody may. A size of 2**45 is never allocated.
ODD = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    3,
    7,
    2**31,
    2**45,
    2**63,
    2**70,
    -(2**63),
    0.0,
    -0.0,
    0.5,
    1.0,
    2.5,
    -0.5,
    1e-320,
    1e-30,
    1e30,
    1.7e308,
    math.nan,
    math.inf,
    -math.inf,
    np.int64(2),
    np.float32(0.5),
    np.float64(0.25),
    np.bool_(True),
    np.array(3),
    np.array([2, 2]),
    np.array([]),
    "",
    "auto",
    "nonsense",
    b"auto",
    (),
    (2,),
    (2, 2),
    (4, 3, 2),
    (0,),
    (-1,),
    (2.5,),
    ("a",),
    (True,),
    (2**45,),
    [3, 3],
    [None],
    {},
    {"a": 1},
    {1, 2},
    1j,
    len,
    object,
    object(),
    nn.Linear,
    nn.Identity(),
]
#: Parts with parameters of their own.
HEADS = [Flat(rank=2), Product(n_groups=2), Cascade(n_heads=3, embedding_dim=3)]
HEADS += [Sampling(n_sampled_heads=1, shared_heads=False)]
OUTPUTS = [Fourier(init="random"), Bottleneck(), ETF(feature_decay=0.1), Learned()]
#: Parameters whose own parameters are changed, too, where they are parts.
PARTS = {"head", "encoder", "loss", "output"}
#: Values that are likely to matter for the parameter of that name.
VALUES = {
    "n_heads": [1, 2, 3, 5, 60],
    "lengths": [(2, 2), (4,), (1, 4), (4, 1), (3, 3), (2, 1), (2**40, 2**40)] + [(16,), (4, 8)],
    "label_order": ["given", "random", "clustered", [3, 2, 1, 0], [0, 0, 1, 2], [0, 1], "name"],
    "loss": ["auto", "bce", "ce", "focal", "asymmetric", "propensity_bce", "pick_all_labels"]
    + ["joint_ce", "arcface", FocalLoss(), AsymmetricLoss(), PickAllLabels(), BinaryCrossEntropy()]
    + [ArcFace(margin=0.1, scale=8.0)],
    "head": ["auto", "flat", "product", "cascade", "sampling", FlatHead, *HEADS],
    "n_groups": [1, 2, 5],
    "embedding_dim": [1, 3],
    "beam_width": [1, 2, 100],
    "path_exponent": [0, 0.5, 1, 3.0],
    "level_weighting": ["sum", "mean"],
    "n_sampled_heads": [0, 1, 3],
    "shared_heads": [False, True],
    "rank": [None, 1, 3, 50],
    "margin": [0, 0.1, 1.5, 3.1],
    "scale": [1e-3, 1.0, 64.0],
    "decision": ["auto", "threshold", "topk", "divergence", "nearest", "seen"]
    + [TopK(2), TopK(99), Threshold(0.3), Divergence("tuned"), Nearest(), Seen(), JointMode()],
    "ranker": ["auto", None, "calibration", Calibration()],
    "hidden_layer_sizes": [(), (1,), (3, 2), 4, [5]],
    "dropout": [0, 0.5, 0.99, "auto"],
    "encoder": ["auto", "mlp", MLP((3,), n_members=2), nn.Identity(), nn.Linear(6, 3)]
    + [nn.Linear(5, 3), nn.Identity],
    "optimizer": ["auto", "adam", "mixed", "adagrad", "sgd", SGD(momentum=0.9, nesterov=True)],
    "momentum": [0, 0.5, 0.999],
    "nesterov": [False, True],
    "learning_rate": [1e-12, 1e-3, 0.1, 10.0, 1e4, 1e12, 1e38],
    "weight_decay": [0, 1e-3, 1.0, 1e6],
    "batch_size": ["auto", 1, 5, 11, 12, 100],
    "max_epochs": [1, 2],
    "validation_fraction": [0.01, 0.5, 0.99],
    "precision": ["float32", "bfloat16"],
    "callbacks": [None, [], (), [WeightAveraging("swa")], [WeightAveraging("ema")]]
    + [[EarlyStopping(patience=1, load_best=True)]],
    "device": ["auto", "cpu", "cuda:7", "meta", torch.device("cpu")],
    "random_state": [None, 0, 2**32 - 1, np.random.RandomState(0)],
    "max_active": ["auto", 0, 1, 2],
    "n_slack": [0, 1, 50],
    "output": ["dft", "bottleneck", "etf", "learned", *OUTPUTS],
    "init": ["frequencies", "random"],
    "feature_decay": [0, 0.1, 10.0],
    "feature_dim": [None, 1, 3, 4, 9],
    "attention": ["eagle", "mean", "product", None, EAGLETransformer(n_iter=1, random_state=0)],
    "temperature": ["auto", 0, 0.1, 1.0, 1e3],
    "mask": ["select", "multiply"],
    "n_concepts": [1, 3],
    "multiplicity": ["top", "ignore"],
    "contrast": ["background", None],
    "n_iter": ["auto", 0, 1, 3],
    "step_size": ["auto", "full", 0.1, 5.0],
    "sharing": ["auto", "expected", None, 0, 0.5, 1],
    "n_components": [0, 1, 4, 200],
    "shrinkage": ["auto", 1e-6, 1.0],
    "top_k": [None, 1, 3],
    "n_jobs": [None, 1],
    "n_rounds": [1, 2],
    "n_members": [1, 2, 3],
    "n_folds": [2, 3],
}
BOOLEANS = (True, False)
#: Numbers of passes: large ones are valid, and take what they take.
ENDLESS = {"max_epochs", "n_iter", "n_rounds", "n_jobs", "n_members"}
#: Functions of the user's, which raise what they raise.
CALLED = {"encoder", "head"}
#: What is written to, or drawn, where the test runs.
NOT_ODD = {"verbose"}


def value_of(rng, name, default):
    """Value for a parameter: likely, or odd."""
    likely = VALUES.get(name, [default])
    if isinstance(default, bool):
        likely = [*BOOLEANS, 0, 1]
    if name in NOT_ODD:
        return default
    if rng.random() < 0.45:
        return likely[rng.integers(len(likely))]
    odd = ODD[rng.integers(len(ODD))]
    if name in CALLED and callable(odd):
        return default
    too_many = name in ENDLESS and isinstance(odd, int) and odd > 3
    return default if too_many else odd


def surroundings():
    """What a call may not leave behind or change."""
    return {
        "files": sorted(os.listdir()),
        # Those of joblib, which end some time after its processes have gone, are daemons.
        "threads of Python": sum(not each.daemon for each in threading.enumerate()),
        "threads of torch": torch.get_num_threads(),
        "default dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "NumPy's generator": np.random.get_state()[1].tobytes(),  # noqa: NPY002
        "torch's generator": torch.get_rng_state().numpy().tobytes(),
        "NumPy's errors": tuple(np.geterr().items()),
    }


def assert_unchanged(before):
    for name, value in surroundings().items():
        assert value == before[name], f"{name} changed"


def fit(name, multilabel, params, sparse, partial_fit):
    """A finite model, or a refusal that leaves nothing."""
    estimator = build(name).set_params(**params)
    X, y = make_X(), make_y(multilabel)
    before, where = state(estimator), os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        around = surroundings()
        try:
            if partial_fit and hasattr(estimator, "partial_fit"):
                classes = None if multilabel else np.unique(y)
                estimator.partial_fit(X, y, classes=classes)
            else:
                estimator.fit(X, y)
        except Exception:
            assert state(estimator) == before, "a refused fit has changed the estimator"
            assert not hasattr(estimator, "classes_")
            raise
        finally:
            try:
                if params.get("checkpoint") is None:
                    assert_unchanged(around)
            finally:
                os.chdir(where)
        assert_finite_weights(estimator)
        assert_usable(estimator, X, len(X))


def shown(value):
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."


@attack(small=30, whole=11_000)
def test_parameters(rng, index):
    """One to three parameters of random values, the others tiny."""
    name, multilabel = ESTIMATORS[index % len(ESTIMATORS)]
    defaults = {
        key: value
        for key, value in build(name).get_params().items()
        if key.count("__") < 2 and ("__" not in key or key.split("__")[0] in PARTS)
    }
    n_changed = int(rng.choice([1, 1, 2, 3]))
    chosen = rng.permutation(sorted(defaults))[:n_changed].tolist()
    params = {key: value_of(rng, key.split("__")[-1], defaults[key]) for key in chosen}
    if params.get("random_state", 0) is None:
        params["random_state"] = 1
    if params.get("assigner", 0) is None:  # one of no seed
        del params["assigner"]
    run = partial(fit, name, multilabel, params, bool(rng.integers(2)), rng.random() < 0.2)
    title = ", ".join(f"{key}={shown(value)}" for key, value in params.items())
    refusals = (*REFUSALS, OSError) if "checkpoint" in params else REFUSALS
    title = f"{name} {'multi-label' if multilabel else 'multi-class'}: {title}"
    return Trial(title, run, refusals=refusals)
