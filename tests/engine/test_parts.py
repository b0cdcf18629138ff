"""Parts of classifiers: nested parameters, what "auto" chose, what a head says of itself."""

import inspect
import itertools

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.metrics import average_precision_score, f1_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler

from _factories import make_learnable, quick
from sklearn_xlc import (
    AggregatedLabelClassifier,
    DFTSigmoidClassifier,
    ETFNeuralCollapseClassifier,
    MIMLClassifier,
    MultiHeadClassifier,
)
from sklearn_xlc.datasets import make_extreme_multiclass, make_extreme_multilabel
from sklearn_xlc.decisions import Divergence, Taxonomy, Threshold, TopK
from sklearn_xlc.encoders import MLP, Text, Transformer
from sklearn_xlc.heads import (
    ETF,
    ArcFace,
    AsymmetricLoss,
    Bottleneck,
    Cascade,
    Flat,
    FocalLoss,
    Fourier,
    Learned,
    PickAllLabels,
    PickAllSquaredError,
    Product,
    PropensityBinaryCrossEntropy,
    Sampling,
)
from sklearn_xlc.optimizers import SGD, Adagrad, Adam, Mixed
from sklearn_xlc.ranking import BoostedRanker, Calibration

#: Classifiers, and how many parameters each may have.
MOST = {
    MultiHeadClassifier: 20,
    DFTSigmoidClassifier: 22,
    ETFNeuralCollapseClassifier: 22,
    MIMLClassifier: 24,
}
every_classifier = pytest.mark.parametrize("kind", MOST, ids=lambda kind: kind.__name__)
FIRST = (MultiHeadClassifier, True)

# --- nested parameters ------------------------------------------------------------------------


def test_a_search_over_parts_and_their_parameters():
    X, Y = make_learnable(True, n_rows=60)
    clf = quick("flat", encoder="mlp", ranker=None, max_epochs=1)
    pipeline = Pipeline([("scale", MaxAbsScaler()), ("clf", clf)])
    grid = [
        {"clf__head": ["flat"], "clf__loss": ["asymmetric"], "clf__loss__gamma_neg": [1.0, 3.0]},
        {"clf__head": ["cascade"], "clf__head__beam_width": [2, 5]},
        {"clf__encoder__hidden_layer_sizes": [(4,), (6, 3)]},
        {"clf__decision": ["threshold"], "clf__decision__threshold": [0.2, 0.7]},
    ]
    fits = []

    def score(fitted, X, Y):
        fits.append(fitted[-1])
        return f1_score(Y, fitted.predict(X), average="micro", zero_division=0.0)

    split = [(np.arange(40), np.arange(40, 60))]
    search = GridSearchCV(pipeline, grid, cv=split, scoring=score, error_score="raise", refit=False)
    search.fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert len(fits) == 8
    assert [fit.net_.module_.head.criterion.gamma_neg for fit in fits[:2]] == [1.0, 3.0]
    assert [fit.head_.beam_width for fit in fits[2:4]] == [2, 5]
    assert [fit.transform(X).shape[1] for fit in fits[4:6]] == [4, 3]
    assert [fit.threshold_ for fit in fits[6:]] == pytest.approx([0.2, 0.7])
    assert clf.encoder == "mlp"  # a search changes clones


@pytest.mark.parametrize(
    "room, name, params, kind",
    [
        ("head", "flat", {"rank": 3}, Flat),
        ("head", "product", {"n_heads": 3, "lengths": (4, 4, 4)}, Product),
        ("head", "cascade", {"beam_width": 3}, Cascade),
        ("head", "sampling", {"n_sampled_heads": 2}, Sampling),
        ("encoder", "mlp", {"hidden_layer_sizes": (8,), "dropout": 0.5}, MLP),
        ("encoder", "text", {"n_buckets": 64}, Text),
        ("loss", "asymmetric", {"gamma_neg": 2.0}, AsymmetricLoss),
        ("loss", "focal", {"gamma": 1.0}, FocalLoss),
        ("loss", "arcface", {"margin": 0.1, "scale": 8.0}, ArcFace),
        ("decision", "threshold", {"threshold": 0.3}, Threshold),
        ("decision", "divergence", {"temperature": 0.5}, Divergence),
        ("decision", "topk", {"k": 2}, TopK),
        ("optimizer", "sgd", {"momentum": 0.9, "nesterov": True}, SGD),
    ],
)
def test_a_name_becomes_the_part_whose_parameter_is_set(room, name, params, kind):
    nested = {f"{room}__{key}": value for key, value in params.items()}
    in_turn = MultiHeadClassifier(**{room: name}).set_params(**nested)
    at_once = MultiHeadClassifier().set_params(**{room: name}, **nested)
    for clf in (in_turn, at_once, clone(at_once)):
        part = getattr(clf, room)
        assert type(part) is kind
        assert {key: part.get_params()[key] for key in params} == params
        assert {key: clf.get_params()[key] for key in nested} == nested


@pytest.mark.parametrize(
    "kind, params, output",
    [
        (DFTSigmoidClassifier, {"output__init": "random"}, Fourier),
        (ETFNeuralCollapseClassifier, {"output__feature_decay": 0.1}, ETF),
        (
            ETFNeuralCollapseClassifier,
            {"output": "learned", "output__fit_intercept": False},
            Learned,
        ),
    ],
)
def test_output_layers_are_parts(kind, params, output):
    clf = kind().set_params(**params)
    assert type(clf.output) is output
    assert params.items() - {("output", "learned")} <= clf.get_params().items()


@pytest.mark.parametrize(
    "params, names",
    [
        ({"head__beam_width": 3}, ["'cascade'", "'flat'", "'product'", "'sampling'"]),
        ({"head": "auto", "head__rank": 3}, ["'cascade'", "'flat'", "'product'", "'sampling'"]),
        ({"encoder__dropout": 0.5}, ["'mlp'", "'text'"]),
        ({"loss__gamma_neg": 2.0}, ["'asymmetric'", "'focal'"]),
        ({"decision__threshold": 0.5}, ["'threshold'", "'topk'"]),
        ({"ranker__slope": 1.0}, ["'calibration'"]),
        ({"ranker": None, "ranker__slope": 1.0}, ["'calibration'"]),
        ({"optimizer__momentum": 0.9}, ["'adam'", "'mixed'", "'adagrad'", "'sgd'"]),
    ],
    ids=str,
)
def test_auto_and_none_have_no_parameters(params, names):
    clf = MultiHeadClassifier()
    before = clf.get_params()
    with pytest.raises(ValueError, match="auto|None") as caught:
        clf.set_params(**params)
    for name in names:
        assert name in str(caught.value)
    assert clf.get_params() == before


def test_names_become_parts_at_every_level():
    clf = MultiHeadClassifier(decision=Taxonomy({}, "threshold"))
    clf.set_params(decision__decision__threshold=0.3)
    assert clf.decision.decision.threshold == 0.3
    clf.set_params(decision__decision="topk", decision__decision__k=2)
    assert type(clf.decision.decision) is TopK
    assert clone(clf).get_params()["decision__decision__k"] == 2


@pytest.mark.parametrize(
    "owner, param, message",
    [
        (Taxonomy({}), "decision__threshold", r"decision='auto'.*\['threshold', 'topk'\]"),
        (BoostedRanker(), "estimator__max_iter", "estimator=None .*an object"),
        (BoostedRanker("words"), "near__index__n_bits", "index=None .*an object"),
        (BoostedRanker("texts"), "near_in_meaning__vectorizer__a", "vectorizer='wordllama'"),
        (Cascade(), "label_order__seed", "label_order='"),
        (Cascade(), "beam_width__x", "no parameter 'x'"),
        (AggregatedLabelClassifier(MultiHeadClassifier()), "assigner__n_jobs", "assigner=None"),
        (AggregatedLabelClassifier(MultiHeadClassifier()), "estimator__head__rank", "'cascade'"),
    ],
    ids=str,
)
def test_what_has_no_parameters_is_said_at_every_level(owner, param, message):
    with pytest.raises(ValueError, match=message):
        owner.set_params(**{param: 1})
    room = {Taxonomy: "decision", BoostedRanker: "ranker", Cascade: "head"}.get(type(owner))
    if room:
        with pytest.raises(ValueError, match=message):
            MultiHeadClassifier(**{room: owner}).set_params(**{f"{room}__{param}": 1})


def test_classes_have_no_parameters_to_set():
    with pytest.raises(ValueError, match="no parameter 'dropout'"):
        MultiHeadClassifier(encoder=MLP).set_params(encoder__dropout=0.5)


@pytest.mark.parametrize("value", ["auto", "flat", Flat()], ids=["auto", "name", "object"])
def test_a_mixed_grid_is_refused(value):
    X, Y = make_learnable(True)
    clf = quick("flat", max_epochs=1)
    message = "(head='auto' has none|no parameter 'beam_width').*list of dicts"
    with pytest.raises(ValueError, match=message):
        clf.set_params(head=value, head__beam_width=3)
    grid = {"head": [value, "cascade"], "head__beam_width": [2, 5]}
    search = GridSearchCV(clf, grid, cv=2, error_score="raise")
    with pytest.raises(ValueError, match=message):
        search.fit(X, Y)


# --- rates ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["learning_rate", "weight_decay"])
@pytest.mark.parametrize("part", [Adam, Mixed, Adagrad, SGD])
def test_a_rate_is_given_in_one_place(part, name):
    X, y = make_learnable(False)
    shared = {"head": "flat", "max_epochs": 2, "random_state": 0}
    clf = MultiHeadClassifier(optimizer=part(**{name: 0.01}), **{name: 0.02}, **shared)
    with pytest.raises(ValueError, match=name):
        clf.fit(X, y)
    assert not hasattr(clf, "net_")
    one = MultiHeadClassifier(optimizer=part(), **{name: 0.01}, **shared).fit(X, y)
    other = MultiHeadClassifier(optimizer=part(**{name: 0.01}), **shared).fit(X, y)
    assert one.loss_curve_ == other.loss_curve_


# --- what "auto" chose ------------------------------------------------------------------------


def make_data(multilabel, n_rows):
    if multilabel:
        X, Y = make_extreme_multilabel(n_rows, 60, 23, random_state=0)
        return X, sp.csr_matrix(Y)
    return make_extreme_multiclass(n_rows, 60, 23, zipf_exponent=0.5, random_state=0)


def values_within(value):
    """All values of nested dicts and sequences."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [each for part in value for each in values_within(part)]
    return [value]


@pytest.fixture(params=["two epochs", pytest.param("all epochs", marks=pytest.mark.slow)])
def epochs(request):
    """Two epochs tell equal models from others; whole fits are slow."""
    if request.param == "two epochs":
        request.getfixturevalue("two_epochs")


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:no groups were given:UserWarning")
@pytest.mark.usefixtures("epochs")
@pytest.mark.parametrize(
    "kind, multilabel, n_rows",  # with many samples one kind by default
    [
        pytest.param(*case, marks=[] if case[2] == 150 or case[:2] == FIRST else pytest.mark.slow)
        for case in itertools.product(MOST, (False, True), (150, 2300))
    ],
)
def test_settings_make_the_same_model(kind, multilabel, n_rows):
    X, y = make_data(multilabel, n_rows)
    clf = kind(random_state=0).fit(X, y)
    values = values_within(clf.settings_)
    assert all(value is None or isinstance(value, bool | int | float | str) for value in values)
    assert "auto" not in values
    again = kind(random_state=0).set_params(**clf.settings_).fit(X, y)
    assert again.settings_ == clf.settings_
    assert again.loss_curve_ == clf.loss_curve_
    states = [each.net_.module_.state_dict() for each in (clf, again)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    for method in ("predict", "predict_proba"):
        one, other = (getattr(each, method)(X) for each in (clf, again))
        if sp.issparse(one):
            one, other = one.toarray(), other.toarray()
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "given",
    [
        {"optimizer": "adam"},
        {"optimizer": "sgd"},
        {"optimizer": Adagrad(head_learning_rate=0.02)},
        {"optimizer": SGD(momentum=0.9)},
        {"optimizer": Adam(weight_decay=1e-3)},
        {"learning_rate": 0.01},
        {"weight_decay": 0.01},
        {"learning_rate": 0.01, "optimizer": "sgd", "weight_decay": 0.01},
        {"batch_size": 100, "max_epochs": 3},
    ],
    ids=str,
)
def test_settings_repeat_what_was_given(given, two_epochs):
    """Where a second network decides, too, which has fewer samples and rates by rule of its own."""
    X, Y = make_data(True, 600)
    clf = MultiHeadClassifier(random_state=0, ranker="calibration", **given).fit(X, Y)
    assert clf.settings_["validation_fraction"] == "refit"
    for again in (clone(clf), MultiHeadClassifier(random_state=0)):
        again.set_params(**clf.settings_).fit(X, Y)
        assert again.settings_ == clf.settings_
        assert again.loss_curve_ == clf.loss_curve_
        np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
        assert again.decision_.threshold_ == clf.decision_.threshold_


@pytest.mark.parametrize("head", [ETF(), Learned()])
def test_settings_name_the_loss_that_a_head_has_by_default(head):
    X, Y = make_data(True, 150)
    clf = quick("flat", head=head, loss="auto", max_epochs=1).fit(X, Y)
    assert clf.settings_["loss"] == "pick_all_labels"
    assert type(clf.net_.module_.head.criterion) is PickAllLabels


def test_settings_hold_class_weights_by_string():
    X, y = make_data(False, 150)
    weights = {label: np.float32(1 + label) for label in set(y.tolist())}
    by_name = {f"class {label:02}": weight for label, weight in weights.items()}
    named = quick("flat", class_weight=by_name).fit(X, [f"class {label:02}" for label in y])
    assert named.settings_["class_weight"] == by_name
    assert {type(weight) for weight in named.settings_["class_weight"].values()} == {float}
    plain = quick("flat", class_weight=weights).fit(X, y)
    assert "class_weight" not in plain.settings_  # whose keys would be no strings
    assert plain.loss_curve_ == named.loss_curve_


def test_fitted_parts_are_objects():
    X, Y = make_data(True, 2300)
    clf = MultiHeadClassifier(max_epochs=1, random_state=0).fit(X, Y)
    assert (type(clf.head_), type(clf.decision_)) == (Flat, Threshold)
    assert (type(clf.encoder_), type(clf.ranker_)) == (MLP, BoostedRanker)
    assert (clf.head, clf.decision, clf.encoder, clf.ranker) == ("auto",) * 4
    few = MultiHeadClassifier(max_epochs=1, ranker=None, random_state=0).fit(X, Y)
    assert few.ranker_ is None


# --- size of the interface --------------------------------------------------------------------


@every_classifier
def test_parameters_are_few(kind):
    names = list(inspect.signature(kind).parameters)
    assert len(names) <= MOST[kind]
    assert set(names) == set(kind().get_params())


def test_base_classes_are_few():
    assert len(MultiHeadClassifier.__mro__) <= 11


@every_classifier
def test_methods_are_few(kind):
    """Functions, properties and conditional methods that modules of this package define."""
    found = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("sklearn_xlc"):
            continue
        for name, value in vars(base).items():
            conditional = type(value).__name__ == "_AvailableIfDescriptor"
            functions = (staticmethod, classmethod, property)
            if inspect.isfunction(value) or isinstance(value, functions) or conditional:
                found.add(name)
    assert len(found) <= 60, sorted(found)


# --- parts are estimators ---------------------------------------------------------------------

PARTS = [
    Flat(rank=3),
    Product(n_groups=2, label_order="random"),
    Cascade(beam_width=3, path_exponent=1.0),
    Sampling(n_sampled_heads=2, correction=True),
    Fourier(init="random"),
    Bottleneck(),
    ETF(feature_decay=0.1),
    Learned(fit_intercept=False),
    ArcFace(margin=0.1, scale=8.0),
    AsymmetricLoss(gamma_neg=3.0),
    FocalLoss(gamma=1.0),
    PickAllLabels(0.5, smoothing=0.1),
    PickAllSquaredError("mean"),
    PropensityBinaryCrossEntropy(a=0.6, b=2.6),
    MLP((8,), dropout=0.5, n_members=2),
    Text(n_buckets=64, ngram_range=(1, 2)),
    Transformer("a folder", max_length=9),
    Adam(0.01),
    Mixed(weight_decay=0.1),
    Adagrad(0.01),
    SGD(momentum=0.9, nesterov=True),
    Calibration(),
    Threshold(0.3),
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_parts_are_cloned_with_their_parameters(part):
    params = part.get_params()
    assert list(params) == sorted(inspect.signature(type(part)).parameters)
    copy = clone(part)
    assert copy is not part
    assert type(copy) is type(part)
    assert copy.get_params() == params
    assert repr(copy) == repr(part)
    assert clone(part).set_params(**params).get_params() == params
    with pytest.raises(ValueError, match="nobody"):
        clone(part).set_params(nobody=3)


def test_a_clone_of_a_classifier_has_parts_of_its_own():
    clf = MultiHeadClassifier(
        Cascade(beam_width=3), encoder=MLP((8,)), loss=FocalLoss(), optimizer=Adam()
    )
    copy = clone(clf).set_params(head__beam_width=9, encoder__dropout=0.5, loss__gamma=1.0)
    assert (clf.head.beam_width, clf.encoder.dropout, clf.loss.gamma) == (3, "auto", 2.0)
    assert (copy.head.beam_width, copy.encoder.dropout, copy.loss.gamma) == (9, 0.5, 1.0)


# --- what a head's part says of itself --------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "is_indicator", "message"),
    [
        ("multi-class", True, "OfOneTask.* needs exactly one label per sample"),
        ("multi-label", False, "OfOneTask.* needs label sets"),
    ],
)
def test_a_head_is_refused_for_other_tasks(task, is_indicator, message):
    class OfOneTask(Flat):
        tasks = (task,)

    X, Y = make_learnable(True)
    y = np.asarray(Y.argmax(1)).ravel()
    clf = quick("flat", head=OfOneTask(), max_epochs=1)
    assert clf.__sklearn_tags__().classifier_tags.multi_label == (not is_indicator)
    with pytest.raises(ValueError, match=message):
        clf.fit(X, Y if is_indicator else y)
    clf.fit(X, y if is_indicator else Y)


def test_members_are_refused_by_a_head_that_does_not_build_them():
    class OfOneMember(Flat):
        takes_members = False

    clf = MultiHeadClassifier(OfOneMember(), encoder=MLP((16,), n_members=2))
    with pytest.raises(ValueError, match="n_members=2 needs head='flat'"):
        clf.fit(*make_learnable(True))


@pytest.mark.integration
def test_a_head_learns_from_probabilities_where_its_part_says_so():
    class OfLabels(Flat):
        takes_soft_labels = False

    X, Y = make_extreme_multilabel(100, 60, 12, random_state=0)
    groups = np.repeat(np.arange(50), 2)
    of_groups = sp.csr_matrix((Y[::2] + Y[1::2]) > 0).astype(int)
    brief = {"encoder": MLP((16,)), "max_epochs": 8, "learning_rate": 0.06, "random_state": 0}
    scores = []
    for part in (Flat(), OfLabels()):
        rounds = AggregatedLabelClassifier(MultiHeadClassifier(part, **brief), n_rounds=3)
        scores.append(rounds.fit(X, of_groups, groups=groups).decision_function(X))
    assert not np.allclose(*scores)  # of the later rounds
    by_chance = np.random.RandomState(0).rand(*Y.shape)
    low, *found = (average_precision_score(Y.toarray(), s) for s in (by_chance, *scores))
    assert min(found) > low
