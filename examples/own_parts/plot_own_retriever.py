"""
A retriever of your own
=======================

A ranker puts labels of similar training samples beside those of the network. What "similar" means
depends on your data, and you know it best. Here the samples are definitions. A definition first
names what a thing is, and then what sets it apart: "a *bird* that eats insects". Its *genus* [1]_
says much about its labels, so we list the labels of all definitions with the same genus.

.. [1] Aristotle. Topics, Book VI: a definition is genus and differences.
"""

# %%
# Data
# ----
# Definitions of nouns, with labels for everything that the noun is a kind of.

import numpy as np

from sklearn_xlc.datasets import load_wordnet_glosses

glosses = load_wordnet_glosses()
texts = np.asarray(glosses.data, dtype=object)
train, test = glosses.train_indices[::2], glosses.test_indices

# %%
# The genus is, roughly, the last word before the first comma, preposition or relative pronoun.

import re

END = re.compile(
    r"[,;:(]|\b(?:that|which|who|where|when|of|for|in|on|at|by|with|from|to|as|and|or|used|having|"
    r"made|found|native|containing|consisting|usually|resembling)\b"
)


def genus(text):
    before = END.split(text, maxsplit=1)[0].split()
    return before[-1] if before else ""


for text in texts[[0, 2, 4]]:
    print(f"{genus(text):>10} <- {text[:60]}")

# %%
# The retriever
# -------------
# It `reads` the samples as they came, learns in `fit` which labels go with a genus, and looks
# samples up in `search`. From what was found `candidates` lists labels, and `numbers` describes any
# listed label, by whomever it was listed: the share of the definitions of this genus that have it,
# and how many definitions that are. Boosted trees learn what these numbers are worth;
# `monotonic` says that more is never worse.

import scipy.sparse as sp

from sklearn_xlc.ranking import Retriever


class SameGenus(Retriever):
    """Labels of the definitions with the same genus."""

    reads = ("given",)
    monotonic = (1, 1)

    def __init__(self, n_labels=10):
        self.n_labels = n_labels

    def get_feature_names_out(self, input_features=None):
        return np.array(["share", "definitions"])

    def fit(self, samples, Y, sample_weight=None):
        words = np.array([genus(text) for text in samples["given"]])
        self.genera_, of = np.unique(words, return_inverse=True)
        self.counts_ = np.bincount(of).astype(np.float32)
        entries = 1 / (1 + self.counts_[of])  # one more than there are: a single one proves little
        member = sp.csr_array((entries, (of, np.arange(len(of)))))
        self.shares_ = sp.csr_array(member @ Y.astype(np.float32))
        return self

    def search(self, samples, scores, labels):
        words = np.array([genus(text) for text in samples["given"]])
        at = np.minimum(np.searchsorted(self.genera_, words), len(self.genera_) - 1)
        is_known = (self.genera_[at] == words).astype(np.float32)
        return sp.csr_array(self.shares_[at] * is_known[:, None]), is_known * self.counts_[at]

    def candidates(self, found):
        shares = found[0]
        listed = np.full((shares.shape[0], self.n_labels), -1)  # -1: no label
        for row, (start, stop) in enumerate(zip(shares.indptr, shares.indptr[1:])):
            best = np.argsort(-shares.data[start:stop], kind="stable")[: self.n_labels]
            listed[row, : len(best)] = shares.indices[start:stop][best]
        return listed

    def numbers(self, found, rows, labels):
        shares, counts = found
        return np.stack([np.asarray(shares[rows, labels]).ravel(), counts[rows]], axis=1)


# %%
# Compare
# -------
# The network alone, the default lists, and the default lists with our retriever in addition.

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.metrics import precision_at_k
from sklearn_xlc.ranking import (
    BoostedRanker,
    CooccurringLabels,
    FeatureVotes,
    LabelCentroids,
    NearestSamples,
)

words = [
    ("near", NearestSamples()),
    ("centroids", LabelCentroids()),
    ("votes", FeatureVotes()),
    ("together", CooccurringLabels()),
]
rankers = {
    "network": None,
    "lists": BoostedRanker(words),
    "lists, genus": BoostedRanker([*words, ("genus", SameGenus())]),
}
precision = {}
print(f"{'':14}{'P@1':>7}{'P@3':>7}{'P@5':>7}")
for name, ranker in rankers.items():
    classifier = MultiHeadClassifier(encoder="text", ranker=ranker, random_state=0)
    classifier.fit(texts[train], glosses.target[train])
    best, _ = classifier.predict_topk(texts[test], k=5)
    precision[name] = [precision_at_k(glosses.target[test], best, k) for k in (1, 3, 5)]
    print(f"{name:14}" + "".join(f"{value:7.3f}" for value in precision[name]))

# %%
# Our retriever is a part like others: `set_params(ranker__genus__n_labels=5)`, searches, joblib and
# `sklearn_xlc.save` know it (`load` asks you to trust a class of yours by its name).

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
for i, (name, values) in enumerate(precision.items()):
    axes.bar(np.arange(3) + 0.27 * (i - 1), values, width=0.25, label=name)
axes.set(xticks=range(3), xticklabels=["1", "3", "5"], xlabel="labels named", ylabel="precision")
figure.legend(loc="outside upper center", ncols=3)
plt.show()
