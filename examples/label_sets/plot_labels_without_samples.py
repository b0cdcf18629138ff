"""
Labels without training samples
===============================

A catalogue gets a new category, and nobody has filed anything under it yet. A classifier that
learns from samples alone never predicts it. The name of the category says something, though: a
definition that speaks of a river may well be one of a river.
:class:`~sklearn_xlc.ranking.LabelTexts` lists labels by their own texts, and the ranker learns how
far a name alone is to be trusted.
"""

# %%
# Data
# ----
# Definitions of nouns, labelled with everything that the noun is a kind of. Of the rare labels we
# make one in five new: we leave out all training definitions that have it.

import numpy as np

from sklearn_xlc.datasets import load_wordnet_glosses

glosses = load_wordnet_glosses()


def tags_of(rows):
    """Labels of definitions, by their names without part of speech and number of the sense."""
    names = [name.rsplit(".", 2)[0].replace("_", " ") for name in glosses.target_names]
    return [sorted({names[i] for i in glosses.target[row].indices}) for row in rows]


tags, tags_test = tags_of(glosses.train_indices), tags_of(glosses.test_indices)
counts = dict(zip(*np.unique(np.concatenate(tags).tolist(), return_counts=True)))
rare = sorted(tag for tag, count in counts.items() if count <= 5)
new = set(rare[::5])
kept = [not new & set(row) for row in tags]
texts = glosses.data[glosses.train_indices[kept]]
tags = [row for row, is_kept in zip(tags, kept) if is_kept]
texts_test = glosses.data[glosses.test_indices]
with_new = np.array([bool(new & set(row)) for row in tags_test])
print(f"{len(texts)} definitions, {len(counts)} labels, {len(new)} of them new")
print(f"test: {len(texts_test)} definitions, {with_new.sum()} with a new label")

# %%
# Two classifiers
# ---------------
# Both rank what network and similar definitions suggest. One of them also compares a definition
# with the names of all labels. `texts` holds a text for each label, here its name; its labels
# become labels of the classifier, whether a sample has them or not. (Where all labels have samples,
# and are words, ``LabelTexts()`` needs no dictionary.)

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.metrics import precision_at_k
from sklearn_xlc.ranking import (
    BoostedRanker,
    FeatureVotes,
    LabelCentroids,
    LabelTexts,
    NearestSamples,
)

samples = [("near", NearestSamples()), ("centroids", LabelCentroids()), ("votes", FeatureVotes())]
names = LabelTexts({tag: tag for tag in counts})
by_samples, by_texts = (
    MultiHeadClassifier(encoder="text", ranker=BoostedRanker(retrievers), random_state=0)
    for retrievers in (samples, [*samples, ("names", names)])
)
by_samples.fit(texts, tags)
by_texts.fit(texts, tags)
print(f"labels: {len(by_samples.classes_)} and {len(by_texts.classes_)}")

# %%
# What is found
# -------------
# The share of the new labels that are among the best k. Half of the names share a word with
# their definitions. The ranked list comes near to names alone, although labels with samples are
# ranked there, too, which are more probable; these do not suffer.

from sklearn.feature_extraction.text import TfidfVectorizer

sizes = np.arange(1, 21)


def found(labels):
    """Share of the new labels of test definitions that are among the first k, for each k."""
    ranks = [
        row.index(tag) if tag in row else 99
        for row, true in zip(labels.tolist(), np.array(tags_test, dtype=object)[with_new])
        for tag in new & set(true)
    ]
    return np.mean(np.array(ranks)[:, None] < sizes, axis=0)


words = TfidfVectorizer(sublinear_tf=True).fit([*texts, *by_texts.classes_])
cosines = words.transform(texts_test[with_new]) @ words.transform(by_texts.classes_).T
nearest = by_texts.classes_[np.argsort(-cosines.toarray(), axis=1, kind="stable")[:, :20]]
lists = {
    "names alone": nearest,
    "samples and names": by_texts.predict_topk(texts_test[with_new], k=20)[0],
    "samples": by_samples.predict_topk(texts_test[with_new], k=20)[0],
}
for name, labels in lists.items():
    print(f"{name:18} new labels among the best ten: {found(labels)[9]:.0%}")
rest = [row for row, is_new in zip(tags_test, with_new) if not is_new]
others = {}
for name, classifier in (("samples and names", by_texts), ("samples", by_samples)):
    labels = classifier.predict_topk(texts_test[~with_new], k=5)[0]
    others[name] = [precision_at_k(rest, labels, k) for k in (1, 3, 5)]

# %%

import matplotlib.pyplot as plt

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
colours = {"names alone": "#777777", "samples and names": "#00784F", "samples": "#9A3B00"}
for name, labels in lists.items():
    line = "--" if name == "names alone" else "-"
    left.plot(sizes, found(labels), line, color=colours[name], label=name)
left.set(xlabel="labels in the list", title="new labels found", ylim=(-0.02, 0.7))
left.set(xlim=(1, 20), xticks=[1, 5, 10, 15, 20])
left.legend()
for shift, (name, values) in zip((-0.2, 0.2), others.items()):
    bars = right.bar(np.arange(3) + shift, values, 0.38, color=colours[name])
    right.bar_label(bars, fmt="%.2f")
right.set(xticks=range(3), xticklabels=["P@1", "P@3", "P@5"], ylim=(0, 1))
right.set_title("definitions without new labels")
plt.show()

# %%
# One definition
# --------------
# No neighbour and no centroid speaks for a new label. Its name does.

best = lists["samples and names"]
truth = [new & set(row) for row, is_new in zip(tags_test, with_new) if is_new]
row = next(i for i, true in enumerate(truth) if best[i, 0] in true or best[i, 1] in true)
print(texts_test[with_new][row])
labels, probabilities = by_texts.predict_topk(texts_test[with_new][[row]], k=6, proba=True)
for label, probability in zip(labels[0], probabilities[0]):
    print(f"{probability:6.1%}  {label}{'  (new)' if label in new else ''}")
