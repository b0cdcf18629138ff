"""scikit-learn's own checks: every classifier passes all of them, with no expected failure."""

import pytest
from sklearn.base import clone
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from _factories import SKLEARN_CHECKS
from sklearn_xlc import (
    DFTSigmoidClassifier,
    ETFNeuralCollapseClassifier,
    MIMLClassifier,
    MultiHeadClassifier,
)
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import Cascade, Product

#: Few, long steps: the checks ask for a fit that separates blobs, not for a good one.
QUICK = {"encoder": MLP((16,)), "max_epochs": 3, "learning_rate": 0.2}
#: Slack columns start in pairs that cancel, and Adam magnifies the rounding of what cancels. At a
#: rate of 0.06 one number of 240 differs by 1.6e-7 on some processors; 1e-7 is asked for.
ESTIMATORS = [
    MultiHeadClassifier("flat", **QUICK),
    MultiHeadClassifier("product", **QUICK),
    MultiHeadClassifier(Cascade(embedding_dim=16), **QUICK),
    MultiHeadClassifier("sampling", **QUICK),
    DFTSigmoidClassifier(n_slack=5, **QUICK | {"learning_rate": 0.02}),
    ETFNeuralCollapseClassifier(**QUICK),
    MIMLClassifier(**QUICK),
]
#: What differs from one of the above by a part that the checks hardly meet.
VARIANTS = [
    MultiHeadClassifier("auto", **QUICK),
    MultiHeadClassifier("flat", **{**QUICK, "encoder": MLP((16,), n_members=2)}),
    MultiHeadClassifier(Product(n_groups=2), **QUICK),
    DFTSigmoidClassifier(n_slack=5, output="bottleneck", **QUICK),
    ETFNeuralCollapseClassifier(decision="nearest", **QUICK),
    ETFNeuralCollapseClassifier("learned", decision="seen", **QUICK),
    ETFNeuralCollapseClassifier(decision="threshold", **QUICK),
    MIMLClassifier("mean", mask="multiply", **QUICK),
    MIMLClassifier(None, **QUICK),
]
DEFAULTS = [
    MultiHeadClassifier(),
    DFTSigmoidClassifier(),
    ETFNeuralCollapseClassifier(),
    MIMLClassifier(),
]


#: Each class once.
DEFAULT_SUITE = [ESTIMATORS[0], *ESTIMATORS[4:]]
OTHER_HEADS = [estimator for estimator in ESTIMATORS if estimator not in DEFAULT_SUITE]


@parametrize_with_checks(DEFAULT_SUITE)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(OTHER_HEADS + VARIANTS + DEFAULTS)
def test_scikit_learn_checks_of_variants_and_default_parameters(estimator, check):
    check(estimator)


# The checks of `set_output` fit on a frame and transform an array, of which scikit-learn warns.
@pytest.mark.filterwarnings("ignore:X (does not have valid|has) feature names:UserWarning")
@pytest.mark.parametrize(
    "number, name",  # a classifier of each class; two differ from the first by their heads alone
    [
        pytest.param(
            number,
            name,
            # What is set for all estimators reaches every class in the same way.
            marks=pytest.mark.slow if number in (4, 5) or (number and "global" in name) else [],
        )
        for number in (0, 4, 5, 6)
        for name in SKLEARN_CHECKS
    ],
)
def test_checks_that_scikit_learn_keeps_for_itself(number, name):
    check, estimator = getattr(estimator_checks, name), ESTIMATORS[number]
    check(type(estimator).__name__, clone(estimator))


@pytest.mark.parametrize("estimator", ESTIMATORS + VARIANTS, ids=str)
def test_tags(estimator):
    tags = get_tags(estimator)
    assert tags.input_tags.sparse
    assert tags.classifier_tags.multi_class
    one_label_a_row = getattr(estimator, "head", None) == "sampling"
    assert tags.classifier_tags.multi_label is not one_label_a_row
    assert set(tags.transformer_tags.preserves_dtype) == {"float32", "float64"}
