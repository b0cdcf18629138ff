"""Label embeddings of bags: those of an EAGLETransformer on the same samples and groups."""

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_xlc import EAGLETransformer
from sklearn_xlc.batches import Rows
from sklearn_xlc.estimators.bag_embeddings import embeddings_of_bags

N_BAGS, SIZE, N_FEATURES = 12, 3, 5
rng = np.random.default_rng(0)
X = rng.normal(size=(N_BAGS * SIZE, N_FEATURES)) + 0.5
Y = sp.csr_matrix((rng.random((N_BAGS, 4)) < 0.4).astype(float))
ROWS = Rows(X, Y, bags=np.arange(0, N_BAGS * SIZE + 1, SIZE))
GROUPS = np.repeat(np.arange(N_BAGS), SIZE)


@pytest.mark.parametrize("n_iter", [0, 3])
def test_equal_to_those_of_the_transformer(n_iter):
    eagle = EAGLETransformer(n_iter=n_iter, random_state=1)
    found = embeddings_of_bags(eagle, ROWS, "top", 2**30, 0)
    expected = eagle.fit(X, Y, GROUPS).label_embeddings_
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found.flags.c_contiguous


def test_the_mean_of_the_bags_less_the_mean_of_all():
    found = embeddings_of_bags("mean", ROWS, "top", 2**30, 0)
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    means = rows.reshape(N_BAGS, SIZE, N_FEATURES).mean(axis=1)
    expected = np.stack([means[Y[:, [j]].toarray()[:, 0] > 0].mean(axis=0) for j in range(4)])
    expected = expected - means.mean(axis=0)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_strings_have_no_embeddings():
    rows = Rows(np.array(["a", "b"], dtype=object), Y[:2], bags=np.arange(3))
    with pytest.raises(ValueError, match="attention other than attention=None"):
        embeddings_of_bags("eagle", rows, "top", 2**30, 0)
