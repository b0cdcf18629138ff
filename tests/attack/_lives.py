"""Every public estimator and part, for random lives: what is drawn, of which data.

`KINDS[name]` has an estimator, the form of its y, the forms of its X, and values of parameters of
which each life draws one. A part that no kind has is found by `test_life.py`.
"""

import atexit
import tempfile
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier
from skorch.callbacks import Callback

from _factories import quick
from sklearn_xlc import (
    AggregatedLabelClassifier,
    EAGLETransformer,
    SentenceVectorizer,
    TextColumns,
    encoders,
    heads,
    optimizers,
    ranking,
)
from sklearn_xlc.decisions import Divergence, RiskControl, Taxonomy, Threshold, TopK

#: Labels, their words, and their parents.
WORDS = dict(zip("abcdefgh", ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]))
PARENTS = {"b": "a", "c": "a", "d": "c", "h": "g"}
ANCESTORS = {"b": {"a"}, "c": {"a"}, "d": {"a", "c"}, "h": {"g"}}
POOL = np.array(list(WORDS))

FEW = {"max_epochs": 2, "batch_size": 32, "random_state": 0}
#: Few bins: a third of a short life was their quantiles.
TREES = HistGradientBoostingClassifier(max_iter=4, max_bins=8, early_stopping=False)
RETRIEVERS = [
    ("nearest", ranking.NearestSamples()),
    ("votes", ranking.FeatureVotes()),
    ("centroids", ranking.LabelCentroids()),
    ("others", ranking.CooccurringLabels()),
]
RANKERS = [
    "auto",
    "calibration",
    None,
    ranking.BoostedRanker(estimator=TREES),
    ranking.BoostedRanker(RETRIEVERS, estimator=TREES),
]
BY_TEXTS = ranking.BoostedRanker(
    [*RETRIEVERS[:1], ("texts", ranking.LabelTexts(WORDS))], estimator=TREES
)
BY_FEATURES = ranking.BoostedRanker(
    [("nearest", ranking.NearestSamples(space="features"))], estimator=TREES
)
RULES = ["auto", Threshold(0.3), TopK(2), Divergence(), "seen", RiskControl(0.4)]
#: Values of parameters of every network.
OPTIMIZERS = ["auto", "adagrad", optimizers.SGD(momentum=0.5), optimizers.Adam(), "mixed"]
LABEL_LOSSES = ["auto", "asymmetric", "focal", "propensity_bce", "pick_all_labels"]
SQUARED = [heads.SquaredError(), heads.PickAllSquaredError()]
FEW_TEXTS = encoders.Text(64, hidden_layer_sizes=(16,), dropout=0.0)
GIVEN = encoders.GivenEncoder(encoders.MLPEncoder)


class Kind(NamedTuple):
    """An estimator with the data that it takes."""

    estimator: Any
    form: str = "tags"
    inputs: tuple[str, ...] = ("numbers", "sparse")
    #: Values of parameters.
    parts: dict[str, list[Any]] = {}
    #: Parameters that change nothing until the next fit.
    later: dict[str, list[Any]] = {}
    #: A package that it needs, and its classes in files.
    needs: str = "sklearn_xlc"
    trusted: tuple[str, ...] = ()

    def is_installed(self):
        return find_spec(self.needs) is not None

    @property
    def is_grouped(self):
        return isinstance(self.estimator, AggregatedLabelClassifier | EAGLETransformer)


def net(name, form, encoder=None, fields=None, **parts):
    """Kind of a classifier with a network."""
    given = {} if encoder is None else {"encoder": encoder}
    rules = {"decision": RULES if form == "tags" else ["auto", RiskControl(0.4)]}
    parts = {"optimizer": OPTIMIZERS, **rules, **parts}
    later = {"decision": ["auto", TopK(3)]}
    return Kind(quick(name, **FEW, **given), form, parts=parts, later=later, **(fields or {}))


TEXTS = {"ranker": [*RANKERS, BY_TEXTS], "fields": {"inputs": ("texts",)}}
BERT = {"needs": "transformers", "trusted": ("transformers.models.bert.modeling_bert.BertModel",)}
TINY = {
    "ranker": [*RANKERS[:3], BY_FEATURES],
    "encoder": encoders.Transformer("tiny"),
    "fields": {**TEXTS["fields"], **BERT},
}
GROUPED = AggregatedLabelClassifier(quick("flat", **FEW), EAGLETransformer(random_state=0))
LATER = {"n_rounds": [1, 2]}
KINDS = {
    "flat, classes": net("flat", "classes", ranker=RANKERS, loss=["ce", "pick_all_labels"]),
    "flat, tags": net(
        "flat",
        "tags",
        ranker=RANKERS,
        loss=[*LABEL_LOSSES, *SQUARED],
        decision=[*RULES, "nearest", Taxonomy(PARENTS)],
    ),
    "rank, classes": net("flat-rank", "classes", ranker=RANKERS),
    "rank, tags": net("flat-rank", "tags", ranker=RANKERS, loss=LABEL_LOSSES),
    "given, classes": net("flat", "classes", encoder=GIVEN, head=[heads.GivenHead(heads.FlatHead)]),
    "given, tags": net("flat", "tags", encoder=GIVEN, head=[heads.GivenHead(heads.FlatHead)]),
    "cascade, classes": net("cascade", "classes", ranker=RANKERS),
    "cascade, tags": net("cascade", "tags", ranker=RANKERS, loss=LABEL_LOSSES[:3]),
    "product": net("product", "classes", ranker=RANKERS, loss=["ce", "bce", "focal", "joint_ce"]),
    "powerset": net("powerset", "tags", loss=["ce", "bce"], decision=["joint_mode", "topk"]),
    "sampling": net("sampling", "classes", ranker=RANKERS, loss=["auto", heads.ArcFace(0.1, 8.0)]),
    "dft, classes": net("dft", "classes"),
    "dft, tags": net("dft", "tags", loss=LABEL_LOSSES),
    "bottleneck": net("bottleneck", "tags", loss=LABEL_LOSSES),
    "etf, classes": net("etf", "classes"),
    "etf, tags": net("etf", "tags", loss=[*LABEL_LOSSES, *SQUARED], decision=[*RULES, "nearest"]),
    "pick-all": net("pick-all", "tags", decision=[*RULES, "nearest"]),
    "bags": net("bags", "tags", loss=LABEL_LOSSES[:4]),
    "texts, classes": net("flat", "classes", encoder=FEW_TEXTS, **TEXTS),
    "texts, tags": net("flat", "tags", encoder=FEW_TEXTS, **TEXTS),
    "tiny, classes": net("flat", "classes", **TINY),
    "tiny, tags": net("flat", "tags", **TINY),
    "aggregated, classes": Kind(GROUPED, "classes", parts={"n_rounds": [1, 2]}, later=LATER),
    "aggregated, tags": Kind(
        GROUPED, parts={"n_rounds": [1, 2], "decision": [None, RiskControl(0.4)]}, later=LATER
    ),
    "eagle, classes": Kind(EAGLETransformer(random_state=0), "classes", later={"n_iter": [1]}),
    "eagle, tags": Kind(
        EAGLETransformer(random_state=0),
        parts={"contrast": ["background", None], "top_k": [None, 2]},
        later={"n_iter": [1, 2]},
    ),
    "columns": Kind(
        TextColumns(["title", "body"], labels="tags", ids="id"),
        inputs=("table",),
        later={"separator": [None, ";"]},
    ),
    "sentences": Kind(
        SentenceVectorizer(), inputs=("texts",), later={"max_length": [8]}, needs="wordllama"
    ),
    "sentences, tiny": Kind(
        SentenceVectorizer("tiny"),
        inputs=("texts",),
        later={"device": ["cpu"]},
        needs="transformers",
    ),
}


# --- data ---------------------------------------------------------------------------------------


def samples(kind, X_form, rng, names, pool):
    """Samples that show their labels, by their names."""
    n = len(names)
    has = rng.random((n, len(pool))) < 0.3
    first = np.arange(n) // (1 + kind.is_grouped) % len(pool)
    has[np.arange(n), first] = True
    tags = [pool[row].tolist() for row in has]
    y = pool[first] if kind.form == "classes" else tags
    noise = rng.normal(0, 0.1, (n, len(POOL))).round(3)
    return features(X_form, noise, tags, names), pd.Series(y, index=names)


def features(X_form, noise, tags, names):
    if X_form in ("numbers", "sparse"):
        shown = noise + [[label in row for label in POOL] for row in tags]
        if X_form == "sparse":
            return sp.csr_matrix(np.where(shown > 0.1, shown, 0))
        return pd.DataFrame(shown, index=names, columns=[f"x{i}" for i in range(len(POOL))])
    other = [f"of{abs(int(row[0] * 50))}" for row in noise]
    texts = [" ".join([*map(WORDS.get, row), word]) for row, word in zip(tags, other)]
    if X_form == "texts":
        return pd.Series(texts, index=names)
    columns = {"title": other, "body": texts, "tags": tags, "id": names}
    return pd.DataFrame(columns, index=names)


#: Faults of X by its form.
FAULTS = {
    "numbers": ["nan", "columns", "strings"],
    "sparse": ["nan", "columns"],
    "texts": ["none"],
    "table": ["columns"],
}


def spoilt(X, y, weight, fault):
    """The samples with a fault."""
    if fault == "nan":
        if isinstance(X, pd.DataFrame):
            X.iloc[3, 2] = np.nan
        else:
            X.data[3] = np.nan
    elif fault == "columns":
        X = X.iloc[:, 2:] if isinstance(X, pd.DataFrame) else X[:, 2:]
    elif fault == "rows":
        y = y.iloc[1:]
    elif fault == "strings":
        X["x1"] = "a"
    elif fault == "none":
        X.iloc[3] = None
    elif fault == "weights":
        weight = -weight
    return X, y, weight


@cache
def tiny():
    """Folder of a transformer of one layer, which knows the words of the labels."""
    import tokenizers
    import torch
    import transformers

    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    words = ["[PAD]", "[UNK]", *WORDS.values()]
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=len(words), hidden_size=8, **sizes)
    transformers.BertModel(config).save_pretrained(folder.name)
    model = tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder.name)
    return folder


class Interrupt(Callback):
    """Ctrl-C after some steps."""

    def __init__(self, after):
        self.left = after

    def on_batch_end(self, net, training=False, **_):
        self.left -= training
        if self.left == 0:
            raise KeyboardInterrupt


# --- what is drawn ------------------------------------------------------------------------------


def classes_in(value, names=()):
    """Classes of an estimator or part, or of the name of one, and of its parameters."""
    if isinstance(value, list | tuple):
        return set().union(*(classes_in(each, names) for each in value))
    if isinstance(value, str) and value in names:
        value = names[value]()
    if not isinstance(value, BaseEstimator | heads.Loss):
        return set()
    parts = getattr(value, "_parts", {})
    own = [classes_in(v, parts.get(name, ())) for name, v in value.get_params(deep=False).items()]
    return {type(value)}.union(*own)


def classes_drawn():
    """Classes of all that lives are drawn from."""
    found = set()
    for kind in KINDS.values():
        names = getattr(kind.estimator, "_parts", {})
        found |= classes_in(kind.estimator).union(
            *(classes_in(values, names.get(name, ())) for name, values in kind.parts.items())
        )
    return found
