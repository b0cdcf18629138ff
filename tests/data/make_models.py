"""Write files of `save` with the predictions expected of them, for `tests/test_old_files.py`.

    python tests/data/make_models.py [NAME ...]

Files that lie in `tests/data/models` are never written again: every later version must read them.
So a new kind gets an entry below and its files by this script; an old entry stays as it was. A new
format of files gets new entries, whose names say the format.
"""

import functools
import json
import sys
from pathlib import Path

import numpy as np
import sklearn
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from sklearn_xlc import (
    AggregatedLabelClassifier,
    DFTSigmoidClassifier,
    EAGLETransformer,
    ETFNeuralCollapseClassifier,
    MIMLClassifier,
    MultiHeadClassifier,
    _files,
    load,
    predict_topk,
    save,
)
from sklearn_xlc.encoders import TextEncoder
from sklearn_xlc.engine import packing
from sklearn_xlc.metrics import topk_scorer

FOLDER = Path(__file__).parent / "models"
SMALL = {"hidden_layer_sizes": (6,), "max_epochs": 30, "learning_rate": 0.05, "random_state": 0}
TEXTS = ["a body of salt water", "an animal that barks", "a stream of water", "a wild animal"]
TAGS = [["water", "sea"], ["animal"], ["water"], ["animal", "wild"]]
N_FEATURES, N_LABELS, N_SAMPLES = 10, 6, 60


def samples(multilabel):
    """Samples of small integers, and classes or label sets that follow from them."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, size=(N_SAMPLES, N_FEATURES)).astype(np.float64)
    scores = (X - 1.5) @ rng.normal(size=(N_FEATURES, N_LABELS))
    return X, (scores > 1).astype(int) if multilabel else scores.argmax(axis=1)


def bags():
    """Samples in groups of three, and the label sets of the groups."""
    X, Y = samples(True)
    groups = np.arange(N_SAMPLES) // 3
    return X, Y.reshape(-1, 3, N_LABELS).max(axis=1), groups


def fitted(estimator, multilabel=False):
    return estimator.fit(*samples(multilabel))


def of_texts(estimator, y):
    return estimator.fit(TEXTS * 6, y * 6)


def of_groups(estimator):
    X, Y, groups = bags()
    with sklearn.config_context(enable_metadata_routing=True):
        return estimator.fit(X, Y, groups=groups)


def multi_head(algorithm, multilabel=False, **params):
    return lambda: fitted(MultiHeadClassifier(algorithm, **SMALL, **params), multilabel)


def pipeline():
    return make_pipeline(TfidfVectorizer(dtype=np.float32), MultiHeadClassifier("flat", **SMALL))


def searched():
    grid = {"multiheadclassifier__learning_rate": [0.05, 0.1]}
    return GridSearchCV(pipeline(), grid, cv=2, scoring=topk_scorer("recall", k=1))


def text_encoder():
    encoder = functools.partial(TextEncoder, n_buckets=16, hidden_layer_sizes=(4,))
    return MultiHeadClassifier("flat", encoder=encoder, **SMALL)


#: Storage, and a function that fits the estimator. Files of format 1 hold exact weights.
KINDS = {
    "flat": ("float32", multi_head("flat")),
    "flat-label-sets": ("float32", multi_head("flat", True)),
    "flat-low-rank": ("float32", multi_head("flat", rank=2)),
    "ensemble": ("float32", multi_head("flat", n_members=2)),
    "product": ("float32", multi_head("product")),
    "powerset": ("float32", multi_head("product", True)),
    "cascade": ("float32", multi_head("cascade", embedding_dim=4)),
    "cascade-label-sets": ("float32", multi_head("cascade", True, embedding_dim=4)),
    "sampling": ("float32", multi_head("sampling")),
    "dft": ("float32", lambda: fitted(DFTSigmoidClassifier(n_slack=0, **SMALL), True)),
    "etf": ("float32", lambda: fitted(ETFNeuralCollapseClassifier(**SMALL), True)),
    "miml": ("float32", lambda: of_groups(MIMLClassifier(**SMALL))),
    "eagle": ("float32", lambda: of_groups(EAGLETransformer())),
    "aggregated": (
        "float32",
        lambda: of_groups(AggregatedLabelClassifier(MultiHeadClassifier("flat", **SMALL))),
    ),
    "pipeline": ("float32", lambda: of_texts(pipeline(), ["sea", "dog", "river", "wolf"])),
    "pipeline-tags": ("float32", lambda: of_texts(pipeline(), TAGS)),
    "search": ("float32", lambda: of_texts(searched(), ["sea", "dog", "river", "wolf"])),
    "frozen": ("float32", lambda: FrozenEstimator(of_texts(pipeline(), TAGS))),
    "text-encoder": ("float32", lambda: of_texts(text_encoder(), TAGS)),
    "format-2-float32": ("float32", multi_head("flat", True)),
    "format-2-float16": ("float16", multi_head("flat", True)),
    "format-2-int8": ("int8", multi_head("flat", True)),
    "format-2-int6": ("int6", multi_head("flat", True)),
    "format-2-int4": ("int4", multi_head("cascade", True, embedding_dim=4)),
    "format-2-pipeline": ("int8", lambda: of_texts(pipeline(), TAGS)),
}


def listed(value):
    """An answer as JSON holds it."""
    return value.tolist() if hasattr(value, "tolist") else value


def answers(estimator, X):
    """What the methods of an estimator say of X, by name."""
    names = [name for name in ("predict", "predict_proba", "transform") if hasattr(estimator, name)]
    found = {name: listed(getattr(estimator, name)(X)) for name in names}
    if "predict" in names:
        labels, scores = predict_topk(estimator, X, k=3)
        found |= {"labels": listed(labels), "scores": listed(scores)}
    return found


def write(name):
    """Write the file of that name, and its samples and answers beside it."""
    storage, make = KINDS[name]
    path = FOLDER / f"{name}.xlc"
    if path.exists():
        raise SystemExit(f"{path} is there, and is never written again")
    model = make()
    is_text = hasattr(model, "steps") or name in ("search", "frozen", "text-encoder")
    X = TEXTS if is_text else samples(False)[0][:5]
    _files.FORMAT, packing.SMALL = 2 if name.startswith("format-2") else 1, 1
    save(model, path, storage)
    record = {"X": listed(X), "answers": answers(load(path), X)}
    path.with_suffix(".json").write_text(json.dumps(record) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:] or [kind for kind in KINDS if not (FOLDER / f"{kind}.xlc").exists()]:
        write(name)
