"""
Labels that are known for groups only
=====================================

A page has tags, its paragraphs have none; an order has categories, its items have none. Training
with the labels of a group for each of its samples can fail completely, as a tiny example shows.
`AggregatedLabelClassifier` first finds out which sample has which label.
"""

# %%
# Two labels, both on every group
# -------------------------------
# Every group has the samples x and -x, and both labels. It is impossible to know which label
# belongs to x, but possible to know that x and -x have different labels: this is Figure 1 of Shen
# et al., `Extreme Multi-label Classification from Aggregated Labels`, ICML 2020.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from sklearn_xlc import AggregatedLabelClassifier, EAGLETransformer

x = np.array([1.0, 0.6])
X = np.tile([x, -x], (3, 1))
groups = [0, 0, 1, 1, 2, 2]
Y = np.ones((6, 2), dtype=int)

# %%
# A classifier trained with both labels for every sample predicts both labels. (It gets one more
# sample, without labels, because it needs negative samples.) The wrapped classifier separates the
# samples: one label for each side.

wrapped = AggregatedLabelClassifier(
    OneVsRestClassifier(LogisticRegression(C=10)), EAGLETransformer(contrast=None, random_state=0)
)
wrapped.fit(X, Y, groups=groups)
assigned = wrapped.assigned_.toarray()
naive = OneVsRestClassifier(LogisticRegression(C=10)).fit(
    np.vstack([X, 0 * x]), np.vstack([Y, [0, 0]])
)
print("samples that would get both labels:", (naive.predict(X) == 1).all(axis=1).sum(), "of 6")
print(
    "labels assigned to x, -x, x, -x, ...:",
    assigned.argmax(axis=1),
    "labels per sample:",
    assigned.sum(axis=1),
)

# %%
# Left: the given data. Right: the assigned labels, and the line at which the two scores are equal.
# Equal samples are drawn a little apart.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained", sharey=True)
apart = X + 0.18 * (np.array(groups) - 1)[:, None] * [-0.6, 1.0]
for group in range(3):
    left.plot(*apart[2 * group : 2 * group + 2].T, color="0.75", zorder=1)
left.scatter(*apart.T, color="0.3", s=40, zorder=2)
left.set_title("groups (lines): each has labels 0 and 1")
grid = np.stack(np.meshgrid(np.linspace(-2, 2, 200), np.linspace(-1.8, 1.8, 200)), axis=-1)
scores = wrapped.decision_function(grid.reshape(-1, 2))
difference = (scores[:, 1] - scores[:, 0]).reshape(200, 200)
right.contourf(grid[..., 0], grid[..., 1], difference > 0, levels=1, alpha=0.15, cmap="coolwarm")
for label, color, marker in ((0, "tab:blue", "o"), (1, "tab:red", "s")):
    right.scatter(*apart[assigned[:, label] == 1].T, s=40, color=color, marker=marker, label=label)
right.legend(title="assigned")
right.set_title("one label per sample")
for axes in (left, right):
    axes.set(xlim=(-2, 2), ylim=(-1.8, 1.8), xlabel="first feature")
left.set_ylabel("second feature")
plt.show()

# %%
# Real text: definitions in random groups
# ---------------------------------------
# Each definition of the embedded WordNet data has about five labels. We hide them: only random
# groups of definitions have labels. Then we compare, at several group sizes, four ways to assign
# labels to samples: all labels to all samples; the method of the paper, without contrast to the
# background; the default; and the true labels, as an upper limit.

from sklearn.feature_extraction.text import TfidfVectorizer

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import load_wordnet_glosses, make_aggregated
from sklearn_xlc.encoders import MLP
from sklearn_xlc.metrics import precision_at_k

glosses = load_wordnet_glosses()
train, test = glosses.train_indices[::3], glosses.test_indices
frequent = np.flatnonzero(np.asarray(glosses.target[train].sum(axis=0)).ravel() >= 5)
vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32)
X_train = vectorizer.fit_transform(glosses.data[train])
X_test = vectorizer.transform(glosses.data[test])
Y_train, Y_test = glosses.target[train][:, frequent], glosses.target[test][:, frequent]
classifier = MultiHeadClassifier("flat", encoder=MLP((64,)), max_epochs=15, random_state=0)
print(f"{len(train)} texts, {len(frequent)} labels, {Y_train.sum() / len(train):.1f} per text")

# %%
# The method of the paper fails here: the groups of a label have most in common what all texts have
# in common, so a few typical samples get most of the labels.

sizes = (2, 4, 8)
names = ("all labels to all", "contrast=None", "default")
oracle = precision_at_k(Y_test, classifier.fit(X_train, Y_train).predict_topk(X_test)[0], k=1)
found = {name: [] for name in names}
print(f"P@1 with the true labels: {oracle:.3f}\n{'group size':10} {'':24} {'true':>6} {'P@1':>6}")
for size in sizes:
    grouped, groups = make_aggregated(Y_train, group_size=size, random_state=0)
    for name, assigner in zip(names, (None, EAGLETransformer(contrast=None), EAGLETransformer())):
        given = grouped
        if assigner is not None:
            given = assigner.fit(X_train, grouped, groups).assign(X_train, grouped, groups)
        true = given.multiply(Y_train).sum() / given.sum()
        top, _ = classifier.fit(X_train, given).predict_topk(X_test)
        found[name].append((true, precision_at_k(Y_test, top, k=1)))
        print(f"{size:10} {name:24} {true:6.3f} {found[name][-1][1]:6.3f}")

# %%
# "True" is the share of the assigned labels that are true.

figure, axes = plt.subplots(figsize=(5.5, 3.6), layout="constrained")
for name, marker in zip(names, "sov"):
    axes.plot(sizes, [p1 for _, p1 in found[name]], marker=marker, label=name)
axes.axhline(oracle, color="0.4", linestyle="--", label="true labels")
axes.set(xlabel="samples per group", ylabel="P@1 of the classifier on test data", xticks=sizes)
axes.set_ylim(0, 1.15 * oracle)
axes.legend(loc="lower left")
plt.show()
