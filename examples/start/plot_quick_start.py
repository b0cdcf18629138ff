"""
Quick start: thousands of labels for short texts
================================================

WordNet defines a noun in a few words, and says what the noun is a kind of: a town is a
municipality, an urban area, a region, and so on. From 8000 such definitions we learn to name the
right ones of 2475 concepts for definitions not seen in training. The data come with the package,
and everything here takes less than a minute on a laptop.
"""

# %%
# Data
# ----
# The input is raw text. The labels are a sparse indicator matrix: a row for each definition, a
# column for each concept, and about six ones in a row.

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
# A classifier of this package is the last step of an ordinary pipeline. The features stay sparse
# all the way into the network; ``dtype=np.float32`` saves half of their memory.

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
    f"Fitted in {time.perf_counter() - start:.0f} s: head {classifier.settings_['head']!r}, "
    f"{classifier.n_features_in_} features, {classifier.n_parameters_ / 1e6:.0f} million parameters"
)

# %%
# How good is it?
# ---------------
# P@k is the share of true labels among the first k that a model names. `predict_topk` finds these
# through the pipeline, without a matrix of all scores. To compare with: the most frequent labels,
# whatever the text.

from sklearn_xlc import predict_topk
from sklearn_xlc.metrics import precision_at_k

labels, probabilities = predict_topk(model, texts_test, k=5, proba=True)
frequency = np.asarray(Y_train.sum(axis=0)).ravel()
most_frequent = np.argsort(-frequency, kind="stable")[:5]
rankings = {
    "most frequent labels": np.tile(most_frequent, (len(test), 1)),
    "MultiHeadClassifier": labels,
}
print(f"\n{'':22}{'P@1':>7}{'P@3':>7}{'P@5':>7}")
for name, ranking in rankings.items():
    row = [precision_at_k(Y_test, ranking, k=k) for k in (1, 3, 5)]
    print(f"{name:22}" + "".join(f"{value:7.3f}" for value in row))

# %%
# Rare labels
# -----------
# Most labels are rare. How many of the true ones are found, in groups of labels from the rarest to
# the most frequent? (This needs matplotlib, and is left out without.)

from sklearn_xlc.plotting import LabelFrequencyDisplay

try:
    LabelFrequencyDisplay.from_estimator(model, texts_test, Y_test, Y_train)
except ImportError as error:
    print(f"\nNo figure: {error}")

# %%
# What does it say?
# -----------------
# Here are the first three definitions of the test part, with the five best labels and their
# probabilities. A star marks the labels that are true.


def readable(name):
    """Name of a WordNet concept without part of speech and number of the sense."""
    return name.rsplit(".", 2)[0].replace("_", " ")


for row in range(3):
    true = Y_test[row].indices
    print(f"\n{readable(glosses.synset_names[test[row]])}: {texts_test[row]}")
    print("  true labels: " + ", ".join(readable(glosses.target_names[label]) for label in true))
    for label, probability in zip(labels[row], probabilities[row]):
        mark = "*" if label in true else " "
        print(f"  {mark} {probability:4.0%}  {readable(glosses.target_names[label])}")

# %%
# Save and load
# -------------
# The whole pipeline goes into one file. It holds the weights once, rounded to 6 bits, the heaviest
# words of the training texts, by which labels are ranked, and not the state of the optimiser.
# ``exact=True`` would keep the weights as they are, in several times the bytes; joblib works too.

import tempfile
from pathlib import Path

import sklearn_xlc

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.skops"
    sklearn_xlc.save(model, path)
    print(f"\nThe saved pipeline takes {path.stat().st_size / 2**20:.0f} MiB")
    loaded = sklearn_xlc.load(path)

again = predict_topk(loaded, texts_test, k=5).labels
print(f"P@1 of the loaded pipeline: {precision_at_k(Y_test, again, k=1):.3f}")
