"""Warnings are at the line of the user's call, however deep they are given."""

from numbers import Integral

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import deprecated
from skorch.callbacks import Callback, EpochScoring

from _factories import quick
from sklearn_xlc import AggregatedLabelClassifier, EAGLETransformer, MIMLClassifier, explain_topk
from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc._warn import warn
from sklearn_xlc.decisions import RiskControl, Threshold
from sklearn_xlc.encoders import MLP, Text
from sklearn_xlc.metrics import topk_scorer
from sklearn_xlc.ranking import BoostedRanker, LabelTexts

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = (RNG.random((60, 5)) < 0.5).astype(int)
TAGS = [[f"t{i}" for i in np.flatnonzero(row)] for row in Y]
FEW = {"t1": "the text of one label"}
MANY = np.tile(X, (9, 1)), np.tile(Y, (9, 1))
FRAMES = pd.DataFrame(X), pd.DataFrame(Y, index=[f"{i}" for i in range(60)])


class Interrupts(Callback):
    def on_batch_end(self, net, **kwargs):
        raise KeyboardInterrupt


def flat(**params):
    return quick("flat", max_epochs=1, **params)


def set_later():
    clf = flat().fit(X, Y)
    return clf.set_params(decision=Threshold(0.9))


def guaranteed():
    return flat(decision=RiskControl(0.9)).fit(*MANY)


#: Calls that warn, and a part of what they say.
CALLS = {
    "interrupt": (lambda: flat(callbacks=[Interrupts()]).fit(X, Y), "interrupted by user"),
    "pipeline": (
        lambda: make_pipeline(StandardScaler(), flat(callbacks=[Interrupts()])).fit(X, Y),
        "interrupted by user",
    ),
    "scoring": (lambda: flat(callbacks=[EpochScoring("accuracy")]).fit(X, Y), "no held-out"),
    "search": (
        lambda: GridSearchCV(
            flat(class_weight={"none": 2}), {}, cv=2, scoring=topk_scorer("recall", 1)
        ).fit(X, Y),
        "class_weight names labels",
    ),
    "partial_fit": (lambda: flat(ranker="calibration").partial_fit(X, Y), "not by partial_fit"),
    "unlearnt": (lambda: set_later().predict(X), "set after fit"),
    "few": (
        lambda: flat().fit(*MANY).recalibrate(X[:3], Y[:3], ranker="auto", decision="auto"),
        "learns from at least",
    ),
    "order": (
        lambda: flat().fit(
            FRAMES[0].set_axis(FRAMES[1].index), FRAMES[1].loc[FRAMES[1].index[::-1]]
        ),
        "same index in different orders",
    ),
    "narrow": (
        lambda: quick("dft", encoder=MLP((2,)), max_epochs=1).fit(X, Y),
        "the encoder has",
    ),
    "sets": (lambda: quick("dft", max_active=1, max_epochs=1).fit(X, Y), "more than max_active"),
    "blanks": (lambda: flat().fit(X, [[*row, ""] for row in TAGS]), "has no letters"),
    "joined": (lambda: flat().fit(X, [";".join(row) for row in TAGS]), "one string a sample"),
    "no groups": (lambda: MIMLClassifier(max_epochs=1).fit(X, Y), "no groups were given"),
    "transformer": (lambda: EAGLETransformer().fit(X, Y), "no groups were given"),
    "everywhere": (
        lambda: AggregatedLabelClassifier(flat()).fit(
            X, np.ones((60, 2), int), groups=np.arange(60) // 2
        ),
        "labels are in more than",
    ),
    "recall": (
        lambda: flat(decision=Threshold(criterion="precision", at_least=0.99)).partial_fit(X, Y),
        "of at least 0.99",
    ),
    "guarantee": (lambda: guaranteed().partial_fit(X, Y), "no longer guarantees"),
    "explanation": (lambda: explain_topk(flat().fit(X, Y), X * 1e3, n_steps=1), "n_steps=1"),
    "texts": (
        lambda: flat(encoder=Text(64), ranker=BoostedRanker([("texts", LabelTexts(FEW))])).fit(
            [f"a text {i}" for i in range(60)], TAGS
        ),
        "has no text",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_line_is_that_of_the_call(name):
    call, message = CALLS[name]
    with pytest.warns(match=message) as caught:
        call()
    assert {record.filename for record in caught} == {__file__}


# --- what goes: `docs/releasing.md` -----------------------------------------------------------


@deprecated("deprecated in 1.1, gone in 1.3; use sum")
def total(values):
    return sum(values)


class Renamed(EAGLETransformer):
    """An estimator whose parameter `top_k` was `n_best` until version 1.1."""

    _parameter_constraints = {
        **EAGLETransformer._parameter_constraints,
        "n_best": [None, Interval(Integral, 1, None, closed="left"), StrOptions({"deprecated"})],
    }

    def __init__(self, *, top_k=None, n_best="deprecated"):
        super().__init__(top_k=top_k)
        self.n_best = n_best

    def fit(self, X, y, groups=None):
        if self.n_best != "deprecated":
            warn("n_best is deprecated in 1.1, gone in 1.3; use top_k", FutureWarning)
        return super().fit(X, y, groups)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: total([1, 2]), "gone in 1.3; use sum"),
        (lambda: Renamed(n_best=2).fit(X, Y), "gone in 1.3; use top_k"),
        (lambda: make_pipeline(clone(Renamed(n_best=None))).fit(X, Y), "gone in 1.3; use top_k"),
    ],
    ids=["function", "parameter", "pipeline"],
)
def test_what_goes_warns(call, message):
    with pytest.warns(FutureWarning, match=message):
        call()


def test_a_parameter_that_goes_is_silent_and_checked():
    Renamed(top_k=2).fit(X, Y)  # warnings are errors
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="'n_best' parameter of Ren"):
        Renamed(n_best=0).fit(X, Y)
