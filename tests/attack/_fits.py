"""Small classifiers that draw at random wherever they can, and what makes two fits the same."""

import hashlib

import numpy as np
import scipy.sparse as sp

from _factories import CLASSIFIERS, EVERY, make_learnable, quick

#: Every random part switched on: order of the batches, dropout, sampled heads.
RANDOM = {
    "encoder__dropout": 0.3,
    "batch_size": 32,
    "max_epochs": 3,
}
#: Names of all classifiers.
NAMES = list(CLASSIFIERS)


def data_of(name, n_rows=150):
    """X and y for a classifier of that name: class labels, or an indicator where it needs one."""
    return make_learnable((name, False) not in EVERY, n_rows=n_rows)


def model_of(name, seed=0, **params):
    """Unfitted classifier of that name which draws wherever it can."""
    return quick(name, **{**RANDOM, "random_state": seed, **params})


def fitted(name, seed=0, **params):
    """Fitted classifier of that name."""
    return model_of(name, seed, **params).fit(*data_of(name))


def answers_of(model, X):
    """Bytes of all that a model says of X."""
    labels, scores = model.predict_topk(X, k=5)
    sets = model.predict(X)
    parts = [sets.indptr, sets.indices] if sp.issparse(sets) else [sets]
    return b"".join(np.ascontiguousarray(part).tobytes() for part in [labels, scores, *parts])


def digest_of(model, X):
    """Digest of weights, loss curve and predictions: equal for fits that are equal to the bit."""
    digest = hashlib.sha256(answers_of(model, X))
    for name, value in sorted(model.net_.module_.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().numpy().tobytes())
    digest.update(np.asarray(model.loss_curve_, dtype=np.float64).tobytes())
    return digest.hexdigest()
