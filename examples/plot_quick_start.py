"""
Quick start: thousands of labels for short texts
================================================

WordNet defines a noun in a few words and says what kind of thing it is: a "town" is a
municipality, an urban area, a region, and so on. From 8000 such definitions we learn to name the
right concepts, out of 2475, for definitions that were not seen in training. The data come with the
package, and everything here takes less than a minute on a laptop.
"""

# %%
# Data
# ----
# The input is raw text. The labels are a sparse indicator matrix: one row a definition, one column
# a concept, about six ones a row.

import os

# Threads that wait should sleep, not spin: this matters when the machine does other things too.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from sklearn_xlc.datasets import load_wordnet_glosses

glosses = load_wordnet_glosses()
train, test = glosses.train_indices, glosses.test_indices
texts_train, Y_train = glosses.data[train], glosses.target[train]
texts_test, Y_test = glosses.data[test], glosses.target[test]
print(f"{len(train)} definitions to learn from, {len(test)} to test on")
print(f"{Y_train.shape[1]} labels, {Y_train.nnz / len(train):.1f} a definition on average")

# %%
# Model
# -----
# A classifier of this package is the last step of an ordinary pipeline. Features stay sparse all
# the way into the network, and ``dtype=np.float32`` makes the network train in single precision.

import time

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from sklearn_xlc import MultiHeadClassifier

model = make_pipeline(
    TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, dtype=np.float32),
    MultiHeadClassifier(random_state=0),
)
start = time.perf_counter()
model.fit(texts_train, Y_train)
classifier = model[-1]
print(
    f"Fitted in {time.perf_counter() - start:.0f} s: algorithm {classifier.algorithm_!r}, "
    f"{classifier.n_features_in_} features, {classifier.n_parameters_ / 1e6:.0f} million parameters"
)

# %%
# How good is it?
# ---------------
# P@k is the share of true labels among the first k. `predict_topk` names the best labels without
# making a matrix of all scores. A pipeline does not pass that method on, so the vectoriser and the
# classifier are called one after the other. To compare: always naming the most frequent labels.

from sklearn_xlc.metrics import precision_at_k

labels, scores = classifier.predict_topk(model[:-1].transform(texts_test), k=5)
most_frequent = np.argsort(-np.asarray(Y_train.sum(axis=0)).ravel(), kind="stable")[:5]
rankings = {
    "most frequent labels": np.tile(most_frequent, (len(test), 1)),
    "MultiHeadClassifier": labels,
}
print(f"{'':22}{'P@1':>7}{'P@3':>7}{'P@5':>7}")
for name, ranking in rankings.items():
    row = [precision_at_k(Y_test, ranking, k=k) for k in (1, 3, 5)]
    print(f"{name:22}" + "".join(f"{value:7.3f}" for value in row))

# %%
# What does it say?
# -----------------
# The scores of a multi-label classifier are log odds; `expit` turns them into probabilities.

from scipy.special import expit

names = glosses.target_names
for row in (3, 4, 6):
    true = Y_test[row].indices
    print(f"\n“{texts_test[row]}”")
    print("  true: " + ", ".join(names[true]))
    for label, probability in zip(labels[row], expit(scores[row])):
        mark = "✓" if label in true else " "
        print(f"  {mark} {probability:4.0%}  {names[label]}")

# %%
# Save and load
# -------------
# The whole pipeline is one file. It holds the weights once: no training data, and no state of the
# optimiser.

import tempfile
from pathlib import Path

import joblib

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.joblib"
    joblib.dump(model, path)
    print(f"\nSaved: {path.stat().st_size / 2**20:.0f} MiB")
    loaded = joblib.load(path)

same = (loaded.predict(texts_test) != model.predict(texts_test)).nnz == 0
print(f"The loaded model predicts the same: {same}")
