"""
From the network's list to the ranked list
==========================================

For texts a classifier does not rank labels by its network alone. Training samples that are like a
new text add labels to the network's list, and boosted trees rank all of them by what network and
samples say. We follow one definition of WordNet through these steps, and ask for the training
samples behind a label.
"""

# %%
# Model
# -----
# Definitions of nouns, labelled with everything that the noun is a kind of. The index of the series
# has the names of the nouns in WordNet: by them we will know the training samples again.

import copy

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from sklearn_xlc import MultiHeadClassifier, explain_topk
from sklearn_xlc.datasets import load_wordnet_glosses
from sklearn_xlc.encoders import MLP
from sklearn_xlc.metrics import precision_at_k

glosses = load_wordnet_glosses()


def readable(names):
    """Names of WordNet concepts without part of speech and number of the sense."""
    return [name.rsplit(".", 2)[0].replace("_", " ") for name in names]


def samples(index):
    """Texts and tags of some samples, by the names of their nouns."""
    names = glosses.synset_names[index]
    tags = [readable(glosses.target_names[row.indices]) for row in glosses.target[index]]
    return pd.Series(glosses.data[index], names), pd.Series(tags, names)


texts, tags = samples(glosses.train_indices[::3])
texts_test, tags_test = samples(glosses.test_indices)
model = make_pipeline(
    TfidfVectorizer(sublinear_tf=True, dtype=np.float32),
    MultiHeadClassifier(encoder=MLP((256,)), random_state=0),
).fit(texts, tags)
vectorizer, classifier = model
ranker = classifier.ranker_
print(f"{len(texts)} definitions, {len(classifier.classes_)} labels, {ranker}")

# %%
# Two rankings
# ------------
# Without its ranker, a copy of the classifier ranks by the network. Of the first labels, more are
# true with the ranker.

network = copy.deepcopy(classifier).recalibrate(ranker=None)
X_test = vectorizer.transform(texts_test)
by_network, log_odds = network.predict_topk(X_test, k=20)
ranked, probabilities = classifier.predict_topk(X_test, k=20, proba=True)
for name, labels in (("network", by_network), ("ranked", ranked)):
    row = [precision_at_k(tags_test, labels, k) for k in (1, 3, 5)]
    print(f"{name:8} P@1, P@3, P@5: " + ", ".join(f"{value:.3f}" for value in row))

# %%
# The lists of one sample
# -----------------------
# We take the sample that gains most true labels among the first eight. (Most samples gain less, and
# some lose.) Each retriever suggests labels for it.

hits = [
    [len(set(row[:8]) & set(true)) for row, true in zip(labels, tags_test)]
    for labels in (by_network, ranked)
]
sample = int(np.argmax(np.subtract(*hits[::-1])))
true = set(tags_test.iloc[sample])
print(f"{texts_test.index[sample]!r}: {texts_test.iloc[sample]}")

coordinates = classifier.transform(X_test[[sample]]) @ ranker.axes_  # as the network sees it
x = {"input": X_test[[sample]], "features": coordinates}
ids = np.searchsorted(classifier.classes_, by_network[[sample]])
suggested = {}
found = {name: each.search(x, log_odds[[sample]], ids) for name, each in ranker.retrievers_}
for name, each in ranker.retrievers_:
    listed = each.candidates(found[name]).ravel()
    suggested[name] = classifier.classes_[listed[listed >= 0]].tolist()
    print(f"{name:16} {', '.join(suggested[name])}")

# %%
# Numbers
# -------
# Each label of the list is described by numbers. The first three are its score by the network, the
# distance to the best score, and the logarithm of its number of training samples; the retrievers
# add theirs. The trees have learnt from definitions that network and retrievers had not seen how
# true labels look in these numbers.

first = ranked[sample, :8]
at, rows = np.searchsorted(classifier.classes_, first), np.zeros(8, dtype=int)
order = np.argsort(at)  # retrievers want ascending ids
numbers = [each.numbers(found[name], rows, at[order]) for name, each in ranker.retrievers_]
table = pd.DataFrame(
    np.concatenate(numbers, axis=1),
    index=first[order],
    columns=ranker.get_feature_names_out()[3:],
).loc[first]
scores = dict(zip(by_network[sample], log_odds[sample]))
table.insert(0, "score", [scores.get(label, np.nan) for label in first])
table.insert(0, "probability", probabilities[sample, :8])
table.insert(0, "true", [label in true for label in first])
print(table.round(2).T.to_string())

# %%
# A picture of it
# ---------------
# Lines follow a label from the network's first eight labels, and from those of the nearest
# definitions, into the ranked list. Labels without a line come from further down in the network's
# list, from centroids, or from definitions that the network takes for similar. Green labels are
# true, and marked with a star.

import matplotlib.pyplot as plt

figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")


def draw(title, labels, values, x, side):
    """Draw a column of labels on one side of x."""
    ax.text(x, 0.9, title, ha=side, weight="bold")
    for row, (label, value) in enumerate(zip(labels, values)):
        colour, mark = ("#00784F", "* ") if label in true else ("#9A3B00", "")
        ax.text(x, -row, f"{mark}{label}  {value}", ha=side, va="center", color=colour)


def link(labels, start, end):
    """Draw lines from a column of labels to the ranked list."""
    for row, label in enumerate(first):
        if label in labels:
            colour = "#00784F" if label in true else "#9A3B00"
            ax.plot([start, end], [-labels.index(label), -row], color=colour, alpha=0.5)


best, near = by_network[sample, :8].tolist(), suggested["near"]
draw("network, log odds", best, [f"{value:+.1f}" for value in log_odds[sample]], 0, "right")
draw("ranked", first, [f"{value:.0%}" for value in probabilities[sample]], 1, "center")
draw("nearest definitions", near, [""] * 8, 2, "left")
link(best, 0.03, 0.47)
link(near, 1.97, 1.53)
ax.set(xlim=(-0.85, 2.75), ylim=(-7.5, 1.4))
ax.axis("off")
plt.show()

# %%
# Training samples behind a label
# -------------------------------
# `explain_topk` names the words that raised a label's score, and with `examples` the nearest
# definitions that have the label.

explanation = explain_topk(
    model, texts_test.iloc[[sample]], labels=first[:3], examples=3, n_columns=4
)
print(explanation)
for noun in dict.fromkeys(explanation.to_frame("examples")["example"]):
    print(f"  {noun}: {texts[noun]}")

# %%
# A file of the model keeps the words of these samples. One of them can be taken out, or all: the
# classifier then ranks by its network, with probabilities that were calibrated in the fit.

gone = explanation.examples[0, 0, 0]
classifier.forget([gone])
again = explain_topk(model, texts_test.iloc[[sample]], labels=first[:1], examples=3)
print(f"without {gone!r}: {again.examples[0, 0].tolist()}")
print(classifier.forget().ranker_)
