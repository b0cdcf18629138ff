"""Searching over a pipeline on raw text, in parallel, and taking the winner elsewhere."""

import os

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from joblib.externals.loky import get_reusable_executor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import Pipeline
from skorch.callbacks import Callback

from _factories import QUICK
from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import load_wordnet_glosses, make_extreme_multilabel


def load_kinds():
    """Definitions of nouns, and which of a few frequent concepts each is a kind of."""
    bunch = load_wordnet_glosses()
    chosen = np.argsort(-np.asarray(bunch.target.sum(axis=0)).ravel(), kind="stable")[6:9]
    target = bunch.target[:, chosen].toarray()
    rows = np.flatnonzero(target.sum(axis=1) == 1)[:150]
    return bunch.data[rows], bunch.target_names[chosen][target[rows].argmax(axis=1)]


@pytest.fixture
def fresh_workers(monkeypatch):
    """Processes of joblib that see an environment without a limit of threads."""
    for name in [name for name in os.environ if name.endswith("_NUM_THREADS")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONWARNINGS", "error::UserWarning")
    get_reusable_executor().shutdown()
    yield
    get_reusable_executor().shutdown()


def test_grid_search_in_parallel_over_text(fresh_workers, tmp_path):
    """Workers share the cores, and the winner answers alike in another process."""

    # What is defined inside of a function goes to the workers by value.
    class Modest(Callback):
        def on_train_begin(self, net, **kwargs):
            if 2 * torch.get_num_threads() > max(2, joblib.cpu_count()):
                raise RuntimeError(f"{torch.get_num_threads()} threads in each of two workers")

    def answer(path, texts):
        model = joblib.load(path)
        return os.getpid(), model.predict(texts), model.predict_proba(texts)

    texts, kinds = load_kinds()
    clf = MultiHeadClassifier(**{**QUICK, "max_epochs": 40, "learning_rate": 0.01})
    clf.set_params(callbacks=[Modest()])
    model = Pipeline([("tfidf", TfidfVectorizer(dtype=np.float32)), ("clf", clf)])
    grid = {"clf__algorithm": ["product", "cascade"]}
    search = GridSearchCV(model, grid, n_jobs=2, cv=2, refit=False, error_score="raise")
    search.fit(texts, kinds)
    assert search.best_score_ > 0.6 > 1.5 * np.mean(kinds == kinds[0])

    model.set_params(**search.best_params_, clf__callbacks=None).fit(texts, kinds)
    joblib.dump(model, tmp_path / "best")
    tasks = [joblib.delayed(answer)(tmp_path / "best", texts)]
    (process, labels, probabilities), *_ = joblib.Parallel(n_jobs=2)(tasks)
    assert process != os.getpid()
    np.testing.assert_array_equal(labels, model.predict(texts))
    np.testing.assert_array_equal(probabilities, model.predict_proba(texts))


@pytest.mark.parametrize("algorithm, params", [("flat", {}), ("cascade", {"embedding_dim": 8})])
def test_sparse_y_in_a_search(algorithm, params):
    X, Y = make_extreme_multilabel(120, 40, 15, random_state=0)
    Y = sp.csr_matrix(Y)
    clf = MultiHeadClassifier(algorithm, **params, **{**QUICK, "max_epochs": 60})
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


def test_threads_of_joblib_give_the_scores_of_one_after_the_other():
    X, Y = make_extreme_multilabel(300, 60, 12, random_state=0)
    params = {**QUICK, "max_epochs": 2, "batch_size": 50, "dropout": 0.4}

    def search():
        grid = {"loss": ["bce", "focal"], "learning_rate": [0.01, 0.05]}
        return GridSearchCV(MultiHeadClassifier("flat", **params), grid, cv=2, n_jobs=4).fit(X, Y)

    with joblib.parallel_backend("sequential"):
        expected = search().cv_results_["mean_test_score"]
    with joblib.parallel_backend("threading"):
        np.testing.assert_array_equal(search().cv_results_["mean_test_score"], expected)


@pytest.mark.filterwarnings("ignore:beam_width=. has no effect with algorithm='flat'")
def test_a_search_over_a_parameter_that_only_some_algorithms_read():
    X, Y = make_extreme_multilabel(60, 40, 15, random_state=0)
    clf = MultiHeadClassifier(hidden_layer_sizes=(8,), max_epochs=1, random_state=0)
    grid = {"algorithm": ["flat", "cascade"], "beam_width": [2, 5]}
    search = GridSearchCV(clf, grid, cv=2, error_score="raise", refit=False).fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
