"""
Model selection with GridSearchCV
=================================

The head, its lengths and the learning rate are ordinary parameters, so the tools of scikit-learn
choose them. Two things are special to large label spaces: the score should look at the first few
labels only, and the labels are a sparse matrix.
"""

# %%
# Data
# ----
# A third of the definitions of the quick start, and the labels that occur among them often enough
# to be learnt.

import numpy as np

from sklearn_xlc.datasets import load_wordnet_glosses

glosses = load_wordnet_glosses()
train, test = glosses.train_indices[::3], glosses.test_indices
frequent = np.flatnonzero(np.asarray(glosses.target[train].sum(axis=0)).ravel() >= 3)
texts_train, Y_train = glosses.data[train], glosses.target[train][:, frequent]
texts_test, Y_test = glosses.data[test], glosses.target[test][:, frequent]
print(f"{len(train)} texts to learn from, {len(test)} to test on, {len(frequent)} labels")

# %%
# Search
# ------
# `topk_scorer` makes a scorer that asks the classifier at the end of the pipeline for its best
# labels, without a matrix of all scores. The keys of a grid are those of any pipeline. The head is
# a part of the classifier, and the parameters of a part are nested: ``head__lengths``. A list of
# grids pairs a head with its parameters. The first level of a cascade scores groups of labels, the
# second the labels of the best groups. The lengths are the number of groups and their size.
#
# Heads and rates are compared by the network alone: without a ranker, and with a decision that is
# not learnt, a fit trains one network only. With ``n_jobs=2`` two fits run at a time, each on one
# thread: `fit` never changes the number of threads that joblib has given to it.

import time

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.codes import head_lengths
from sklearn_xlc.encoders import MLP
from sklearn_xlc.metrics import topk_scorer

network = MultiHeadClassifier(
    encoder=MLP(256), ranker=None, decision="topk", max_epochs=20, random_state=0
)
pipeline = Pipeline(
    [
        ("tfidf", TfidfVectorizer(sublinear_tf=True, dtype=np.float32)),
        ("classifier", network),
    ]
)
n_labels = len(frequent)
square = head_lengths(n_labels, 2, rule="equal")
descending = head_lengths(n_labels, 2, rule="descending")
learning_rates = [2e-3, 8e-3, 3e-2]
grid = [
    {
        "classifier__head": ["flat"],
        "classifier__learning_rate": learning_rates,
    },
    {
        "classifier__head": ["cascade"],
        "classifier__head__lengths": [square, descending],
        "classifier__learning_rate": learning_rates,
    },
]
search = GridSearchCV(pipeline, grid, scoring=topk_scorer("precision", k=5), cv=2, n_jobs=2)
start = time.perf_counter()
search.fit(texts_train, Y_train)
print(f"{len(search.cv_results_['params'])} settings tried in {time.perf_counter() - start:.0f} s")

# %%
# Results
# -------
# All settings, best first.

results = search.cv_results_
print(f"\n{'head':12}{'head__lengths':16}{'learning_rate':>14}{'P@5':>8}{'fit s':>8}")
for i in np.argsort(results["rank_test_score"], kind="stable"):
    setting = {
        key.removeprefix("classifier__"): value for key, value in results["params"][i].items()
    }
    print(
        f"{setting['head']:12}{setting.get('head__lengths', '')!s:16}"
        f"{setting['learning_rate']:14}{results['mean_test_score'][i]:8.3f}"
        f"{results['mean_fit_time'][i]:8.1f}"
    )

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
for head, lengths in [("flat", None), ("cascade", square), ("cascade", descending)]:
    score_of = {
        str(params["classifier__learning_rate"]): score
        for params, score in zip(results["params"], results["mean_test_score"])
        if params["classifier__head"] == head and params.get("classifier__head__lengths") == lengths
    }
    axes.plot(*zip(*score_of.items()), marker="o", label=f"{head} {lengths or ''}")
axes.set(xlabel="learning rate", ylabel="P@5, two folds")
axes.legend()
plt.show()

# %%
# The search has fitted the best setting once more, on all of its data. Its own score is that of the
# same scorer, here on the test part.

print(f"\nBest: {search.best_params_}")
print(f"P@5 on the test part: {search.score(texts_test, Y_test):.3f}")

# %%
# Cross-validation
# ----------------
# `GridSearchCV` and `RandomizedSearchCV` accept sparse labels, and `cross_val_score` does not;
# `cross_val_topk` does its work.

from sklearn_xlc.metrics import cross_val_topk

folds = cross_val_topk(search.best_estimator_, texts_train, Y_train, k=5, cv=2, n_jobs=2)
print(f"P@5 of the folds: {', '.join(f'{value:.3f}' for value in folds)}")

# sphinx_gallery_thumbnail_path = '_static/example_text_grid_search.png'
