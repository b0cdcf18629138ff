"""Odd arguments for every function of the rooms without a network, and for explanations."""

import importlib
import os
import re
import tempfile
import warnings
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cache, partial
from importlib.util import find_spec

import joblib
import numpy as np
import pandas as pd
import scipy.sparse as sp

from attack._kinds import X_KINDS
from attack._trials import Trial, attack
from sklearn_xlc import (
    MultiHeadClassifier,
    codes,
    datasets,
    decisions,
    explain_topk,
    geometry,
    groups,
    metrics,
    to_onnx,
)
from sklearn_xlc.aggregation import aggregation
from sklearn_xlc.encoders import MLP
from sklearn_xlc.groups import check_groups

N, L, F = 8, 5, 4
#: Numbers and words in place of an argument; sizes that no machine has, and none in between.
ODD = [None, True, False, 0, 1, 2, -1, 3, L, L + 1, 2**45, 2**63, 2**70, -(2**63), 0.0, -0.0, 0.5]
ODD += [1.0, 2.5, 1e-320, 1e30, 1.7e308, np.nan, np.inf, -np.inf, np.int64(2), np.float32(0.5)]
ODD += [np.bool_(True), np.array(3), np.array([2, 2]), np.array([]), np.zeros((0, 3)), "", "auto"]
ODD += ["equal", "nonsense", b"x", (), (2,), (2, 3), (0,), (2.5,), ("a",), [1, 0, 1, 0, 0], [[]]]
ODD += [[None], [[1], [1, 2]], {}, {"a": 1}, {1, 2}, 1j, len, object, object(), np.eye(L), range(3)]
ODD += [np.full((N, L), np.nan), np.zeros((N, L)), np.ones((N, L)), np.full((N, L), 1e300)]
ODD += [np.zeros((N, L), dtype=complex), np.full((N, L), "a"), np.zeros((N, L, 1)), sp.eye(L)]
ODD += [sp.csr_array((N, L)), sp.coo_array([1.0, 2.0]), -np.ones((N, L)), np.arange(N), np.ones(N)]
ODD += [{0: [1, 2]}, [{"a": 1}], [{1, 2}], [[1, "a"]], [None, 1], [np.nan, 1], [1j], [len], [()]]
ODD += [["a", "b"], ["1", "2"], [10**30], [True, False], [[[1]]], [[True]], [[1.0, None]], [-1, 2]]
ODD += [
    np.array([1, None]),
    np.array([{}]),
    np.array("a"),
    np.array([], dtype=object),
    bytearray(b"a"),
]
ODD += [
    np.zeros(3, dtype=[("a", int)]),
    np.full((N, L), None),
    np.array([1, 2], "M8[D]"),
    ...,
    slice(3),
]
ODD += [
    np.timedelta64(3),
    np.datetime64("NaT"),
    np.uint8(3),
    np.str_("a"),
    pd.NA,
    pd.Series(["a", None]),
]
ODD += [
    pd.DataFrame({"a": [1, 0]}),
    pd.Index([1, 2]),
    Decimal("1.5"),
    Fraction(1, 2),
    date(2020, 1, 1),
]
ODD += [
    sp.csr_array((0, 0)),
    np.zeros((0, 0)),
    np.full((N, L), 2**70, dtype=object),
    frozenset({1}),
]
#: Loops of so many steps are valid, and take what they take.
ENDLESS = {"n_samples", "n_per_class", "n_per_pair", "n_per_triple", "n_per_quadruple", "cv"}
ENDLESS |= {"n_labels_per_row", "n_features_per_label", "max_pairs", "time_limit", "n_jobs"}
ENDLESS |= {"n_steps"}


def scores(rng):
    return rng.integers(-4, 5, (N, L)) / 2


def features(rng):
    return rng.normal(size=(N, F))


def indicator(rng):
    Y = (rng.random((N, L)) < 0.5).astype(int)
    Y[0], Y[1] = 0, 1
    return Y


def prediction(metric, rng, **params):
    ranked = rng.permuted(np.tile(np.arange(L), (N, 1)), axis=1)
    y_pred = [scores(rng), sp.csr_array(scores(rng)), ranked][rng.integers(3)]
    return metric, {"y_true": indicator(rng), "y_pred": y_pred, "k": 3, **params}


def of_ranking(name, rng):
    weighted = {"sample_weight": rng.random(N) + 0.1} if rng.random() < 0.5 else {}
    return prediction(getattr(metrics, name), rng, **weighted)


def of_propensity(name, rng):
    params = {"propensities": 1 - 0.9 * rng.random(L), "normalize": bool(rng.integers(2))}
    return prediction(getattr(metrics, name), rng, **params)


def code_topk(n_labels, lengths, log_scores, k):
    return codes.MixedRadix(n_labels, lengths).topk(log_scores, k)


def code_digits(n_labels, lengths, ids, digits):
    code = codes.MixedRadix(n_labels, lengths)
    return code.encode(ids), code.decode(digits)


def decide(name, inputs, given, **params):
    """Check, fit, and decode with a decision of those parameters."""
    decision = getattr(decisions, name)(**params)
    layer = decisions.LinearLayer(np.eye(L), is_simplex=True)
    Y = sp.csr_matrix(given)
    decision.check_labels(Y)
    decision.check_head(Y, link="sigmoid", n_features=L, layer=layer)
    beside = {"layer": layer} if decision.reads == "features" else {"link": "sigmoid"}
    decision.fit(inputs, Y, **beside)
    return (
        decision.decode(inputs, layer) if decision.reads == "features" else decision.decode(inputs)
    )


def decision_of(name, rng, **params):
    return partial(decide, name, scores(rng), indicator(rng)), params


def block_digits(n_labels, lengths, Y):
    code = codes.LabelBlocks(n_labels, lengths)
    return code.decode(code.encode(Y))


def block_topk(lengths, log_scores, k):
    return codes.LabelBlocks(L, lengths).topk(log_scores, k)


def write(X, Y):
    with tempfile.TemporaryDirectory() as folder:
        datasets.dump_xmc_file(X, Y, os.path.join(folder, "some.txt"))
        return datasets.load_xmc_file(os.path.join(folder, "some.txt"), dtype=np.float64)


def save_and_open(X):
    with tempfile.TemporaryDirectory() as folder:
        datasets.save_csr(os.path.join(folder, "some.csr"), X)
        return datasets.open_csr(os.path.join(folder, "some.csr"))


def groups_of(given, n_samples, allow_empty=True):
    found = check_groups(given, n_samples, allow_empty)
    return found.membership(), found.sizes


@cache
def fitted():
    rng = np.random.default_rng(0)
    X, Y = features(rng), indicator(rng)
    return MultiHeadClassifier(encoder=MLP((4,)), max_epochs=3, random_state=0).fit(X, Y)


def explained(X, k, labels, n_columns, n_steps):
    with warnings.catch_warnings():  # that there are too few steps
        warnings.simplefilter("ignore", UserWarning)
        params = {"labels": labels, "n_columns": n_columns, "n_steps": n_steps}
        return explain_topk(fitted(), X, k, **params)


def exported(k, inputs):
    return to_onnx(fitted(), k=k, inputs=inputs)


def small(**params):
    return {"n_samples": 9, "n_features": 20, "n_labels": 5, "random_state": 0, **params}


#: Functions, and valid arguments of theirs. Called with the name and a generator.
VALID = {
    "MixedRadix.topk": lambda name, rng: (
        code_topk,
        {
            "n_labels": 5,
            "lengths": (2, 3),
            "log_scores": [rng.random((2, 2)), rng.random((2, 3))],
            "k": 3,
        },
    ),
    "MixedRadix": lambda name, rng: (
        code_digits,
        {"n_labels": 5, "lengths": (2, 3), "ids": [0, 4], "digits": [[0, 1], [1, 1]]},
    ),
    "LabelBlocks": lambda name, rng: (
        block_digits,
        {"n_labels": L, "lengths": [None, (4, 8)][rng.integers(2)], "Y": indicator(rng)},
    ),
    "LabelBlocks.topk": lambda name, rng: (
        block_topk,
        {"lengths": (4, 8), "log_scores": [rng.random((2, 4)), rng.random((2, 8))], "k": 3},
    ),
    "head_lengths": lambda name, rng: (
        codes.head_lengths,
        {"n_labels": 12, "n_heads": 2, "rule": "equal"},
    ),
    "confusion_degree": lambda name, rng: (codes.confusion_degree, {"lengths": (4, 3)}),
    "label_order": lambda name, rng: (
        codes.label_order,
        {
            "order": ["given", "random", "clustered", [4, 3, 2, 1, 0]][rng.integers(4)],
            "n_labels": L,
            "X": features(rng),
            "Y": sp.csr_matrix(indicator(rng)),
            "lengths": [None, (3, 2)][rng.integers(2)],
            "random_state": 0,
        },
    ),
    "coherence": lambda name, rng: (geometry.coherence, {"frame": features(rng)}),
    "count_argmaxable": lambda name, rng: (
        geometry.count_argmaxable,
        {"n_labels": 7, "n_features": 3, "intercept": True},
    ),
    "count_sign_changes": lambda name, rng: (geometry.count_sign_changes, {"y": indicator(rng)}),
    "divergence_label_sets": lambda name, rng: (
        geometry.divergence_label_sets,
        {
            "logits": scores(rng),
            "temperature": 0.7,
            "max_labels": 3,
            "n_labels": [None, L][rng.integers(2)],
            "log_normalizers": [None, rng.random(N)][rng.integers(2)],
        },
    ),
    "nearest_label_sets": lambda name, rng: (
        geometry.nearest_label_sets,
        {
            "logits": scores(rng),
            "scales": [2.0, 1.5, 1.0],
            "max_labels": [None, 2][rng.integers(2)],
            "n_labels": [None, L][rng.integers(2)],
            "squared_norms": [None, rng.random(N)][rng.integers(2)],
        },
    ),
    "greedy_label_sets": lambda name, rng: (
        geometry.greedy_label_sets,
        {
            "logits": scores(rng),
            "weights": rng.normal(size=(L, F)),
            "scales": [2.0, 1.5, 1.0],
            "max_labels": [None, 2][rng.integers(2)],
        },
    ),
    "seen_label_sets": lambda name, rng: (
        geometry.seen_label_sets,
        {"features": features(rng), "prototypes": features(rng)},
    ),
    "label_sets_to_csr": lambda name, rng: (
        geometry.label_sets_to_csr,
        {"ranked": scores(rng), "sizes": rng.integers(1, L, N), "n_labels": None},
    ),
    "fit_label_set_scales": lambda name, rng: (
        geometry.fit_label_set_scales,
        {
            "features": scores(rng),
            "Y": indicator(rng),
            "weights": [None, rng.normal(size=(L, L))][rng.integers(2)],
            "max_labels": [None, 3][rng.integers(2)],
        },
    ),
    "optimal_label_set_scales": lambda name, rng: (
        geometry.optimal_label_set_scales,
        {
            "n_labels": 5,
            "n_samples": [30, 20.0, 0],
            "feature_decay": 0.1,
            "weight_decay": [None, 0.01][rng.integers(2)],
            "reduction": ["sum", "mean"][rng.integers(2)],
        },
    ),
    "fit_temperature": lambda name, rng: (
        geometry.fit_temperature,
        {
            "logits": scores(rng),
            "Y": indicator(rng),
            "criterion": ["example_f1", "micro_f1"][rng.integers(2)],
            "max_labels": [None, 3][rng.integers(2)],
        },
    ),
    "fourier_matrix": lambda name, rng: (
        geometry.fourier_matrix,
        {"n_labels": 9, "max_active": 2, "start": 1, "stop": [None, 5][rng.integers(2)]},
    ),
    "fourier_forward": lambda name, rng: (
        geometry.fourier_forward,
        {"coefficients": rng.random((2, 5)), "n_labels": 9},
    ),
    "fourier_adjoint": lambda name, rng: (
        geometry.fourier_adjoint,
        {"logits": rng.random((2, 9)), "max_active": 2},
    ),
    "fourier_witness": lambda name, rng: (
        geometry.fourier_witness,
        {"y": [1, 0, 0, 1, 0, 0], "max_active": 2},
    ),
    "simplex_etf": lambda name, rng: (
        geometry.simplex_etf,
        {"n_classes": 5, "n_features": 3, "random_state": 0},
    ),
    "welch_bound": lambda name, rng: (geometry.welch_bound, {"n_classes": 5, "n_features": 3}),
    "witness_margin": lambda name, rng: (
        geometry.witness_margin,
        {"weights": np.eye(3), "x": [1.0, -1.0, 2.0], "y": [1, 0, 1]},
    ),
    "is_argmaxable": lambda name, rng: (
        geometry.is_argmaxable,
        {"coef": rng.normal(size=(L, 2)), "y": indicator(rng)[2], "intercept": rng.random(L)},
    ),
    "verify_argmaxable": lambda name, rng: (
        geometry.verify_argmaxable,
        {
            "coef": rng.normal(size=(L, 2)),
            "Y": indicator(rng)[:2],
            "intercept": [None, rng.random(L)][rng.integers(2)],
            "points": [None, rng.normal(size=(3, 2))][rng.integers(2)],
            "max_active": None,
            "box": 1e4,
            "min_radius": 1e-8,
            "time_limit": 1.0,
            "search_radius": bool(rng.integers(2)),
            "n_jobs": None,
        },
    ),
    "certify_reachability": lambda name, rng: (
        geometry.certify_reachability,
        {
            "model": rng.normal(size=(L, 2)),
            "Y": indicator(rng)[:3],
            "confidence": 0.95,
            "intercept": [None, rng.random(L)][rng.integers(2)],
            "time_limit": 1.0,
            "n_jobs": None,
        },
    ),
    **dict.fromkeys(
        [
            "precision_at_k",
            "recall_at_k",
            "r_precision_at_k",
            "f1_at_k",
            "ndcg_at_k",
            "coverage_at_k",
        ],
        of_ranking,
    ),
    **dict.fromkeys(["psp_at_k", "psndcg_at_k"], of_propensity),
    "propensities": lambda name, rng: (
        metrics.propensities,
        {"Y_train": indicator(rng), "a": 0.55, "b": 1.5},
    ),
    "soft_label_mass": lambda name, rng: (
        metrics.soft_label_mass,
        {"y_true": indicator(rng), "y_proba": rng.dirichlet(np.ones(L), N)},
    ),
    "neural_collapse": lambda name, rng: (
        metrics.neural_collapse,
        {
            "features": features(rng),
            "y": [np.arange(N) % 3, indicator(rng)][rng.integers(2)],
            "weights": None,
            "max_pairs": 50,
            "random_state": 0,
        },
    ),
    "aggregated_precision_at_k": lambda name, rng: (
        metrics.aggregated_precision_at_k,
        {
            "y_group": indicator(rng)[:4],
            "y_pred": scores(rng),
            "groups": np.arange(N) // 2,
            "k": 3,
        },
    ),
    "expected_calibration_error": lambda name, rng: (
        metrics.expected_calibration_error,
        {
            "y_true": indicator(rng),
            "labels": rng.permuted(np.tile(np.arange(L), (N, 1)), axis=1)[:, :3],
            "probabilities": rng.random((N, 3)),
            "n_bins": 10,
        },
    ),
    "get_scorer": lambda name, rng: (metrics.get_scorer, {"name": "precision_at_3"}),
    "topk_scorers": lambda name, rng: (
        metrics.topk_scorers,
        {"metrics": ["precision", "recall"], "ks": [1, 3]},
    ),
    "label_set_score": lambda name, rng: (
        metrics.label_set_score,
        {
            "y_true": indicator(rng),
            "y_pred": indicator(rng),
            "metric": "f1_macro",
            "sample_weight": rng.random(len(indicator(rng))),
        },
    ),
    "label_set_scorer": lambda name, rng: (metrics.label_set_scorer, {"metric": "f1_micro"}),
    "topk_scorer": lambda name, rng: (metrics.topk_scorer, {"metric": "precision", "k": 3}),
    "make_extreme_multiclass": lambda name, rng: (
        datasets.make_extreme_multiclass,
        small(zipf_exponent=1.0, noise=0.2, n_features_per_label=3, sparse=bool(rng.integers(2))),
    ),
    "make_extreme_multilabel": lambda name, rng: (
        datasets.make_extreme_multilabel,
        small(zipf_exponent=1.0, noise=0.2, n_labels_per_row=2.0, allow_unlabeled=True),
    ),
    "make_aggregated": lambda name, rng: (
        datasets.make_aggregated,
        {
            "Y": indicator(rng),
            "group_size": 2,
            "X": features(rng),
            "method": ["random", "cluster"][rng.integers(2)],
            "merge": ["set", "list"][rng.integers(2)],
            "random_state": 0,
        },
    ),
    "make_label_set_images": lambda name, rng: (
        datasets.make_label_set_images,
        {
            "images": rng.random((30, 6, 6)),
            "labels": np.arange(30) % 3,
            "n_per_class": 2,
            "n_per_pair": 1,
            "n_per_triple": 1,
            "max_shift": 2,
            "random_state": 0,
        },
    ),
    "dump_xmc_file": lambda name, rng: (write, {"X": features(rng), "Y": indicator(rng)}),
    "save_csr": lambda name, rng: (
        save_and_open,
        {
            "X": [features(rng), (features(rng), indicator(rng)), [features(rng)] * 3][
                rng.integers(3)
            ],
        },
    ),
    "check_groups": lambda name, rng: (
        groups_of,
        {"given": [np.arange(N) // 2, np.eye(N), None][rng.integers(3)], "n_samples": N},
    ),
    "aggregation": lambda name, rng: (
        aggregation,
        {"groups": np.eye(N), "group_labels": indicator(rng)},
    ),
    "explain_topk": lambda name, rng: (
        explained,
        {
            "X": features(rng),
            "k": 2,
            "labels": [None, [0, 3]][rng.integers(2)],
            "n_columns": 3,
            "n_steps": 4,
        },
    ),
    "Threshold": lambda name, rng: decision_of(
        name,
        rng,
        **[
            {"threshold": 0.3},
            {"threshold": rng.random(L) / 2 + 0.1, "scale": "probability"},
            {"criterion": "macro_f1"},
            {"criterion": "f1_at_k", "k": 3},
        ][rng.integers(4)],
        min_labels=[0, 1, "auto"][rng.integers(3)],
    ),
    "Taxonomy": lambda name, rng: decision_of(
        name,
        rng,
        parents={1: 0, 2: [0, 1]},
        decision=["auto", "threshold", "topk"][rng.integers(3)],
    ),
    "RiskControl": lambda name, rng: decision_of(
        name,
        rng,
        alpha=[0.6, 0.9][rng.integers(2)],
        risk="miss",
        confidence=None,
        k=1000,
        min_labels=[0, 1, "auto"][rng.integers(3)],
    ),
    "TopK": lambda name, rng: decision_of(name, rng, k=[None, 2][rng.integers(2)]),
    "Divergence": lambda name, rng: decision_of(
        name,
        rng,
        temperature=["tuned", 0.5][rng.integers(2)],
        max_labels=[None, 2][rng.integers(2)],
    ),
    "Nearest": lambda name, rng: decision_of(name, rng, max_labels=[None, 2][rng.integers(2)]),
    "Seen": lambda name, rng: decision_of(name, rng),
}
if find_spec("onnxscript"):
    VALID["to_onnx"] = lambda name, rng: (
        exported,
        {"k": 2, "inputs": ["dense", "csr"][rng.integers(2)]},
    )
#: Public names that are tried elsewhere, that take no argument, or whose arguments are made by
#: another function of the same room and documented so.
ELSEWHERE = {
    "codes": set(),
    "geometry": {"ArgmaxabilityReport", "Reachability"},
    "metrics": {"cross_val_topk"},
    "datasets": {"iter_parquet", "load_wordnet_glosses", "load_xmc_file", "open_csr"},
    "groups": {"Groups"},
    "decisions": {"Decision", "JointMode", "LinearLayer"},
}


def test_every_function_is_here():
    for room, elsewhere in ELSEWHERE.items():
        module = importlib.import_module(f"sklearn_xlc.{room}")
        names = {name for name in module.__all__ if callable(getattr(module, name))}
        assert names - elsewhere <= set(VALID), f"{room} has functions that no trial calls"
    assert groups.__all__ == ["Groups", "check_groups"]


def digest(arguments):
    return joblib.hash({key: repr(value) for key, value in arguments.items()})


#: Names by which messages speak of arguments.
ALIASES = {"given": "groups", "ks": "k", "metrics": "metric", "model": "model|coef"}


def names_one(message, arguments):
    """Whether a message has the name of an argument of the function."""
    names = "|".join(ALIASES.get(name, name) for name in arguments)
    return re.search(rf"\b({names})s?\b", message) is not None


def run(function, arguments):
    """A call leaves its arguments as they were; NumPy may say that a size is beyond memory."""
    before = digest(arguments)
    try:
        function(**arguments)
    except (TypeError, ValueError) as error:
        # Of X for an estimator scikit-learn's checks speak as of every estimator's.
        if function is not explained and not names_one(str(error), arguments):
            raise AssertionError(f"the message names no argument: {error}") from error
        raise
    except MemoryError as error:
        if "Unable to allocate" not in str(error):
            raise
    finally:
        assert digest(arguments) == before, "the call has changed its arguments"


#: Kinds of arrays; torch itself says of which tensors NumPy makes none.
UNREADABLE = {"torch with gradient", "torch bfloat16", "torch sparse"}
KINDS = [kind for kind in X_KINDS if kind not in UNREADABLE | {"generator", "structured"}]


def odd_value(rng, name, valid):
    """A value in place of a valid one: a number, a word, or another kind of the same array."""
    if isinstance(valid, np.ndarray) and valid.ndim == 2 and rng.random() < 0.5:
        return X_KINDS[KINDS[rng.integers(len(KINDS))]][2](valid.astype(float), rng)
    value = ODD[rng.integers(len(ODD))]
    if name == "n_jobs" or (name == "criterion" and callable(value)):
        return valid  # joblib's, and a function of the user's
    endless = name in ENDLESS and isinstance(value, (int, float)) and abs(value) > 9
    return valid if endless else value


def shown(value):
    text = " ".join(repr(value).split())
    return text if len(text) < 70 else f"{type(value).__name__} {text[:60]}..."


@attack(small=240, whole=9000)
def test_public_functions(rng, index):
    """Valid arguments, and one or two of them odd."""
    name = list(VALID)[index % len(VALID)]
    function, arguments = VALID[name](name, rng)
    n_odd = int(rng.choice([0, 1, 1, 1, 2])) if arguments else 0
    odd = rng.permutation(sorted(arguments))[:n_odd].tolist()
    arguments |= {key: odd_value(rng, key, arguments[key]) for key in odd}
    title = ", ".join(f"{key}={shown(arguments[key])}" for key in odd)
    outcome = "either" if odd else "result"
    return Trial(f"{name}({title})", partial(run, function, arguments), outcome, seconds=10.0)
