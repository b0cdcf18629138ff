"""Small data, small estimators of every kind, and what makes two of them the same."""

import hashlib
from functools import cache

import joblib
import numpy as np
import scipy.sparse as sp

from _factories import EVERY, quick
from sklearn_xlc import AggregatedLabelClassifier, EAGLETransformer

#: Shape of the training data.
N_SAMPLES, N_FEATURES, N_LABELS = 12, 6, 4
#: A network that takes milliseconds.
TINY = {"encoder__hidden_layer_sizes": (4,), "max_epochs": 1, "learning_rate": "auto"}
#: Every estimator with class labels and with an indicator, as far as it takes them.
ESTIMATORS = [
    *EVERY,
    ("aggregated", False),
    ("aggregated", True),
    ("eagle", False),
    ("eagle", True),
]
METHODS = [
    "predict",
    "decision_function",
    "predict_proba",
    "predict_topk",
    "predict_topk_sparse",
    "predict_label_set_scores",
    "transform",
]


def build(name, **params):
    """Unfitted estimator of that name."""
    if name == "eagle":
        return EAGLETransformer(random_state=0).set_params(**params)
    if name == "aggregated":
        inner = quick("flat", **TINY)
        eagle = EAGLETransformer(random_state=0)
        return AggregatedLabelClassifier(inner, eagle).set_params(**params)
    estimator = quick(name, **TINY)
    if "head__embedding_dim" in estimator.get_params():
        estimator.set_params(head__embedding_dim=3)
    if name == "flat-rank":  # at most the features
        estimator.set_params(head__rank=3)
    return estimator.set_params(**params)


def make_X(seed=0, n_samples=N_SAMPLES):
    """Multiples of one half up to 4, exact in any floating type; half of them zero."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-8, 9, (n_samples, N_FEATURES)) / 2
    X[rng.random(X.shape) < 0.5] = 0
    X[np.arange(n_samples), np.arange(n_samples) % N_FEATURES] = 1.5
    return X


def make_y(multilabel, seed=0, n_samples=N_SAMPLES):
    """Classes in turn, or an indicator with a sample without label."""
    if not multilabel:
        return np.arange(n_samples) % N_LABELS
    Y = (np.random.default_rng(seed).random((n_samples, N_LABELS)) < 0.4).astype(int)
    Y[0], Y[1] = 0, 1
    return Y


@cache
def fitted(name, multilabel, dtype="float64", sparse=False):
    """Fitted estimator, which nothing may change."""
    X = make_X().astype(dtype)
    return build(name).fit(sp.csr_matrix(X) if sparse else X, make_y(multilabel))


def _arrays(value):
    """Part of an attribute that can be compared byte by byte."""
    return value if isinstance(value, (np.ndarray, sp.spmatrix, int, float, str, tuple)) else None


def state(estimator):
    """What a failed call may not change: attributes, their identity, and weights."""
    attributes = vars(estimator)
    digest = hashlib.sha256()
    inner = getattr(estimator, "estimator_", estimator)
    if hasattr(inner, "net_"):
        for name, tensor in inner.net_.module_.state_dict().items():
            digest.update(name.encode() + tensor.numpy().tobytes())
    plain = {name: _arrays(value) for name, value in attributes.items()}
    identity = {name: id(value) for name, value in attributes.items()}
    return identity, digest.hexdigest(), joblib.hash(plain)


def outputs(estimator, X, methods=METHODS, **params):
    """Results of all prediction methods, as arrays."""
    found = {}
    for name in methods:
        if not hasattr(estimator, name):
            continue
        call = getattr(estimator, name)
        if name == "predict_label_set_scores" and getattr(estimator, "classes_", None) is not None:
            code = getattr(estimator, "_code", None)
            if code is not None and not code.multilabel:
                continue
        result = call(X, k=2, **params) if "topk" in name else call(X, **params)
        for i, part in enumerate(result if isinstance(result, tuple) else (result,)):
            found[name, i] = part.toarray() if sp.issparse(part) else _as_array(part)
    return found


def _as_array(result):
    """Array of a result; of tags, an array of lists."""
    if not (isinstance(result, list) and any(isinstance(row, list | set) for row in result)):
        return np.asarray(result)
    rows = np.empty(len(result), dtype=object)
    rows[:] = [sorted(row) for row in result]
    return rows


def assert_usable(estimator, X, n_samples):
    """Predictions have the right shape, and scores are finite."""
    for (name, i), part in outputs(estimator, X).items():
        assert len(part) == n_samples, f"{name} has {len(part)} rows"
        if part.dtype.kind == "f" and name not in ("predict", "predict_label_set_scores"):
            values = part if (name, i) != ("predict_topk", 0) else np.zeros(1)
            assert np.isfinite(values).all(), f"{name} is not finite"


def assert_same(found, expected, what="outputs"):
    """Equal bit for bit; NaN equals itself."""
    assert found.keys() == expected.keys()
    for key, part in found.items():
        other = expected[key]
        assert part.dtype == other.dtype, f"{what} of {key}: {part.dtype} and {other.dtype}"
        np.testing.assert_array_equal(part, other, err_msg=f"{what} of {key}")


def assert_finite_weights(estimator):
    """No parameter or buffer of the network is NaN or infinite."""
    inner = getattr(estimator, "estimator_", estimator)
    if hasattr(inner, "net_"):
        for name, tensor in inner.net_.module_.state_dict().items():
            assert not tensor.is_floating_point() or tensor.isfinite().all(), f"{name} not finite"
