"""Searching over a pipeline on raw text, in parallel, and taking the winner elsewhere."""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import GridSearchCV, cross_val_predict

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multilabel

SEARCH = """
import sys
import joblib, numpy as np, torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from skorch.callbacks import Callback
from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import load_wordnet_glosses

class Modest(Callback):
    def on_train_begin(self, net, **kwargs):
        if 2 * torch.get_num_threads() > max(2, joblib.cpu_count()):
            raise RuntimeError(f"{torch.get_num_threads()} threads in each of two workers")

# Definitions of nouns, and which of a few frequent concepts each is a kind of.
bunch = load_wordnet_glosses()
chosen = np.argsort(-np.asarray(bunch.target.sum(axis=0)).ravel(), kind="stable")[6:9]
target = bunch.target[:, chosen].toarray()
rows = np.flatnonzero(target.sum(axis=1) == 1)[:150]
texts, kinds = bunch.data[rows], bunch.target_names[chosen][target[rows].argmax(axis=1)]

clf = MultiHeadClassifier(
    hidden_layer_sizes=(16,), max_epochs=40, learning_rate=0.01, random_state=0
)
model = Pipeline([("tfidf", TfidfVectorizer(dtype=np.float32)), ("clf", clf)])
grid = {"clf__algorithm": ["product", "cascade"]}
search = GridSearchCV(model, grid, n_jobs=2, cv=2, error_score="raise")
search.fit(texts, kinds)
assert search.best_score_ > 0.6 > 1.5 * np.mean(kinds == kinds[0]), search.best_score_
best = search.best_estimator_
joblib.dump((best, texts, (best.predict(texts), best.predict_proba(texts))), sys.argv[1])

model.set_params(clf__callbacks=[Modest()])
search.set_params(refit=False).fit(texts, kinds)
"""

ELSEWHERE = """
import sys, joblib, numpy as np
model, texts, expected = joblib.load(sys.argv[1])
np.testing.assert_array_equal(model.predict(texts), expected[0])
np.testing.assert_array_equal(model.predict_proba(texts), expected[1])
"""


def test_grid_search_in_parallel_over_text(tmp_path):
    """Workers share the cores, and the winner answers alike in another process."""
    free = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    for script in (SEARCH, ELSEWHERE):
        command = [sys.executable, "-W", "error::UserWarning", "-c", script, str(tmp_path / "best")]
        done = subprocess.run(command, env=free, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("algorithm", ["flat", "cascade"])
def test_sparse_y_in_a_search(algorithm):
    X, Y = make_extreme_multilabel(120, 40, 15, random_state=0)
    Y = sp.csr_matrix(Y)
    clf = MultiHeadClassifier(
        algorithm,
        embedding_dim=8,
        hidden_layer_sizes=(16,),
        max_epochs=60,
        learning_rate=0.02,
        random_state=0,
    )
    scorer = make_scorer(f1_score, average="micro", zero_division=0.0)
    search = GridSearchCV(clf, {"dropout": [0.0, 0.1]}, scoring=scorer, cv=2, error_score="raise")
    assert search.fit(X, Y).best_score_ > 0.2
    assert sp.issparse(search.predict(X))


def test_out_of_fold_probabilities():
    X, Y = make_extreme_multilabel(120, 40, 15, random_state=0)
    clf = MultiHeadClassifier(hidden_layer_sizes=(16,), max_epochs=5, random_state=0)
    Y = sp.csr_matrix(Y).toarray()
    probabilities = cross_val_predict(clf, X, Y, cv=2, method="predict_proba")
    assert np.shape(probabilities) == Y.shape
