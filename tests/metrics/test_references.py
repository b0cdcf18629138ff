"""Independent implementations: scikit-learn, napkinXC, and the constants napkinXC gave."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.metrics import ndcg_score, precision_score, recall_score, top_k_accuracy_score
from sklearn.utils import check_random_state

from sklearn_xlc import metrics

KS = (1, 3, 5)


def problem():
    """200 rows over 40 labels: empty rows, labels never seen in training, no tied scores."""
    random_state = check_random_state(20160813)
    frequency = 0.4 / (1 + np.arange(40))
    Y_train = (random_state.uniform(size=(500, 40)) < frequency).astype(int)
    y_true = (random_state.uniform(size=(200, 40)) < frequency).astype(int)
    y_score = random_state.uniform(size=y_true.shape) + 0.3 * y_true
    return Y_train, y_true, y_score


def ours(y_true, y_score, p, k):
    given = {"propensities": p}
    return {
        "precision": metrics.precision_at_k(y_true, y_score, k),
        "recall": metrics.recall_at_k(y_true, y_score, k),
        "ndcg": metrics.ndcg_at_k(y_true, y_score, k),
        "coverage": metrics.coverage_at_k(y_true, y_score, k),
        "psp": metrics.psp_at_k(y_true, y_score, k, **given),
        "psndcg": metrics.psndcg_at_k(y_true, y_score, k, **given),
        "psp raw": metrics.psp_at_k(y_true, y_score, k, normalize=False, **given),
        "psndcg raw": metrics.psndcg_at_k(y_true, y_score, k, normalize=False, **given),
    }


# napkinXC 0.7.2 on problem(), whose random state is 20160813; k = 1, 3, 5.
NAPKIN = {
    "precision": (0.465, 0.2283333333333335, 0.15099999999999972),
    "recall": (0.25100000000000006, 0.33366666666666667, 0.3671666666666667),
    "ndcg": (0.465, 0.3678064355654754, 0.3779233381536632),
    "coverage": (0.6923076923076923, 0.7692307692307693, 0.8205128205128205),
    "psp": (0.48167757484877255, 0.41131362134989047, 0.43650441733261086),
    "psndcg": (0.48167757484877255, 0.412592122178337, 0.42507423490502955),
    "psp raw": (1.1013828838213102, 0.5329853095629419, 0.350422874783853),
    "psndcg raw": (1.1013828838213102, 0.8483622691463806, 0.8676527871933977),
}
NAPKIN_INVERSE_PROPENSITIES = {0: 1.4715489417731813, 7: 2.453756201283647, 39: 3.660163133574117}


@pytest.mark.parametrize("place, k", list(enumerate(KS)))
def test_constants_of_napkinxc(place, k):
    Y_train, y_true, y_score = problem()
    assert (y_true.sum(axis=1) == 0).sum() > 10
    values = ours(y_true, y_score, metrics.propensities(Y_train), k)
    assert values.keys() == NAPKIN.keys()
    for name, value in values.items():
        assert value == pytest.approx(NAPKIN[name][place], rel=1e-12), name


def test_propensities_of_napkinxc():
    inverse = 1 / metrics.propensities(problem()[0])
    places, expected = zip(*NAPKIN_INVERSE_PROPENSITIES.items())
    np.testing.assert_allclose(inverse[list(places)], expected, rtol=1e-12)


@pytest.mark.parametrize("as_csr", [False, True])
def test_napkinxc_itself(as_csr):
    theirs = pytest.importorskip("napkinxc.metrics")
    Y_train, y_true, y_score = problem()
    p = metrics.propensities(Y_train)
    inverse = theirs.Jain_et_al_inverse_propensity(Y_train)
    np.testing.assert_allclose(1 / p, inverse, rtol=1e-12)
    for a, b in ((0.5, 0.4), (0.6, 2.6)):
        np.testing.assert_allclose(
            metrics.propensities(Y_train, a, b),
            theirs.Jain_et_al_propensity(csr_matrix(Y_train), a, b),
            rtol=1e-12,
        )
    if as_csr:  # half of the scores, negative ones among them, so that rows are of uneven length
        stored = check_random_state(1).uniform(size=y_score.shape) < 0.5
        rows, columns = np.nonzero(stored)
        y_score = csr_matrix((y_score[stored] - 1, (rows, columns)), shape=y_true.shape)
        y_true = csr_matrix(y_true)
    expected = {
        "precision": theirs.precision_at_k(y_true, y_score),
        "recall": theirs.recall_at_k(y_true, y_score),
        "ndcg": theirs.ndcg_at_k(y_true, y_score),
        "coverage": theirs.coverage_at_k(y_true, y_score),
        "psp": theirs.psprecision_at_k(y_true, y_score, inverse),
        "psndcg": theirs.psndcg_at_k(y_true, y_score, inverse),
        "psp raw": theirs.psprecision_at_k(y_true, y_score, inverse, normalize=False),
        "psndcg raw": theirs.psndcg_at_k(y_true, y_score, inverse, normalize=False),
    }
    for k in range(1, 6):
        for name, value in ours(y_true, y_score, p, k).items():
            assert value == pytest.approx(expected[name][k - 1], rel=1e-12), (name, k)


@pytest.mark.parametrize("k", KS)
def test_sklearn_on_rows_that_have_labels(k):
    _, y_true, y_score = problem()
    filled = y_true.any(axis=1)
    y_true, y_score = y_true[filled], y_score[filled]
    weight = check_random_state(0).uniform(size=len(y_true))
    top = np.zeros_like(y_true)
    np.put_along_axis(top, np.argsort(-y_score, axis=1)[:, :k], 1, axis=1)
    for w in (None, weight):
        assert metrics.ndcg_at_k(y_true, y_score, k, sample_weight=w) == pytest.approx(
            ndcg_score(y_true, y_score, k=k, sample_weight=w), rel=1e-12
        )
        given = {"average": "samples", "sample_weight": w}
        assert metrics.precision_at_k(y_true, y_score, k, sample_weight=w) == pytest.approx(
            precision_score(y_true, top, **given), rel=1e-12
        )
        assert metrics.recall_at_k(y_true, y_score, k, sample_weight=w) == pytest.approx(
            recall_score(y_true, top, **given), rel=1e-12
        )


@pytest.mark.parametrize("k", KS)
def test_sklearn_top_k_accuracy_is_the_recall_of_one_class_a_row(k):
    _, _, y_score = problem()
    y = np.arange(200) % 40
    assert metrics.recall_at_k(y, y_score, k) == pytest.approx(
        top_k_accuracy_score(y, y_score, k=k)
    )
