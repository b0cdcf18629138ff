"""
dask: a search over several processes or machines
=================================================

Searches of scikit-learn run their fits through joblib, and joblib hands them to dask where a client
is at hand: on the cores of this machine, as here, or on a cluster. Nothing changes in the
classifier. This example needs dask (``pip install "dask[distributed]"``).
"""

# %%
# Data
# ----
# A third of the definitions of the quick start.

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from sklearn_xlc.datasets import load_wordnet_glosses

glosses = load_wordnet_glosses()
train, test = glosses.train_indices[::3], glosses.test_indices
frequent = np.flatnonzero(np.asarray(glosses.target[train].sum(axis=0)).ravel() >= 3)
vectorizer = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
X_train = vectorizer.fit_transform(glosses.data[train])
X_test = vectorizer.transform(glosses.data[test])
Y_train, Y_test = glosses.target[train][:, frequent], glosses.target[test][:, frequent]

# %%
# Search
# ------
# With a client, `joblib.parallel_backend` sends the fits to its workers. ``scatter`` sends the data
# once to each of them, not once for each fit.
#
# Python starts the workers anew and lets them import this script, so all that is not to be done by
# each of them stands under ``if __name__ == "__main__"``.

import logging

import joblib
from sklearn.model_selection import GridSearchCV

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import MLP
from sklearn_xlc.metrics import topk_scorer

search = GridSearchCV(
    MultiHeadClassifier("flat", encoder=MLP(64), max_epochs=3, random_state=0),
    {"learning_rate": [1e-3, 4e-3, 1.6e-2]},
    scoring=topk_scorer("precision", k=5),
    cv=2,
)
try:
    from dask.distributed import Client, LocalCluster
except ImportError:
    Client = None
    print('Install dask to run this example: pip install "dask[distributed]"')

if Client is not None and __name__ == "__main__":
    size = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        LocalCluster(**size, silence_logs=logging.ERROR) as cluster,
        Client(cluster) as client,
        joblib.parallel_backend("dask", scatter=[X_train, Y_train]),
    ):
        print(f"{len(client.scheduler_info()['workers'])} workers")
        search.fit(X_train, Y_train)
    print(f"P@5 on the test part: {search.score(X_test, Y_test):.3f}")

# %%
# Results
# -------
# Each worker has one thread. With as many threads the same seed gives the same model wherever it is
# trained, so the search without dask finds the same scores, to the last digit.

from sklearn.base import clone

if Client is not None and __name__ == "__main__":
    here = clone(search).fit(X_train, Y_train)
    print(f"{'learning rate':>13}{'with dask':>11}{'without':>9}")
    for params, *scores in zip(
        here.cv_results_["params"],
        search.cv_results_["mean_test_score"],
        here.cv_results_["mean_test_score"],
    ):
        print(f"{params['learning_rate']:13}{scores[0]:11.4f}{scores[1]:9.4f}")

    import matplotlib.pyplot as plt

    rates = [params["learning_rate"] for params in here.cv_results_["params"]]
    figure, ax = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for found, marker, name in ((search, "o-", "with dask"), (here, "x", "without")):
        ax.plot(rates, found.cv_results_["mean_test_score"], marker, ms=10, mew=2, label=name)
    ax.set(xscale="log", xlabel="learning rate", ylabel="P@5, two folds", ylim=(0, 0.5))
    ax.legend(loc="lower right")
    plt.show()
