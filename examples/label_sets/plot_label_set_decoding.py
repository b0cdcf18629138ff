"""
Label sets without thresholds
=============================

Scores tell which labels are likely; a label set also needs their number. A threshold must be tuned,
and no single threshold is best for all samples. `ETFNeuralCollapseClassifier` compares label *sets*
instead: on images it finds pairs that were never seen in training, and on text it shows which
decoder needs collapsed features.
"""

# %%
# Pairs that were never seen
# --------------------------
# Images of two digits. Five pairs are held out of training: their digits are seen, alone and in
# other pairs, but never together.

import numpy as np
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import accuracy_score, f1_score

from sklearn_xlc import ETFNeuralCollapseClassifier, MultiHeadClassifier
from sklearn_xlc.datasets import load_wordnet_glosses, make_label_set_images
from sklearn_xlc.decisions import Threshold
from sklearn_xlc.encoders import MLP

digits, y = load_digits(return_X_y=True)
digits = digits.reshape(-1, 8, 8).astype(np.float32) / 16
held_out = [(0, 1), (2, 7), (3, 8), (4, 9), (5, 6)]
sizes = {"n_per_class": 150, "n_per_pair": 40}
images, Y_train = make_label_set_images(
    digits[:1200], y[:1200], **sizes, held_out=held_out, random_state=0
)
test_images, Y_test = make_label_set_images(digits[1200:], y[1200:], **sizes, random_state=1)
X_train, X_test = (part.reshape(len(part), -1) for part in (images, test_images))
unseen = np.any([Y_test[:, pair].all(axis=1) for pair in held_out], axis=0)
print(
    f"{len(X_train)} training images; of {len(X_test)} test images {unseen.sum()} show unseen pairs"
)

# %%
# The first image of each of these pairs:

import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, len(held_out), figsize=(6, 1.6), layout="constrained")
for ax, pair in zip(axes, held_out):
    first = Y_test[:, pair].all(axis=1).argmax()
    ax.imshow(test_images[first], cmap="gray_r")
    ax.set_title(f"{pair[0]} and {pair[1]}", fontsize=10)
    ax.axis("off")
plt.show()

# %%
# Three ways to decode label sets from the same kind of network, and for comparison a threshold on
# one output per label.

common = {"encoder": MLP((512,)), "max_epochs": 30, "random_state": 0}
models = {
    decision: ETFNeuralCollapseClassifier(decision=decision, **common)
    for decision in ("divergence", "nearest", "seen")
}
models["threshold 0.5"] = MultiHeadClassifier(
    "flat", decision=Threshold(0.5), ranker=None, **common
)
images_score = {}
print(f"{'exact label sets':16} {'seen sets':>10} {'unseen pairs':>13}")
for name, model in models.items():
    right = (model.fit(X_train, Y_train).predict(X_test) == Y_test).all(axis=1)
    images_score[name] = right[~unseen].mean(), right[unseen].mean()
    print(f"{name:16} {images_score[name][0]:10.3f} {images_score[name][1]:13.3f}")

# %%
# "seen" can only predict sets of the training data, so it never finds a new pair. The others
# search all sets, at the cost of one sort per sample.
#
# How certain is the prediction? If it is uncertain, the second best set is nearly as good.

best, second = models["divergence"].predict_label_set_scores(X_test).T
right = (models["divergence"].predict(X_test) == Y_test).all(axis=1)
clear = second - best > np.median(second - best)
print(f"exact where the second set is far behind: {right[clear].mean():.3f}")
print(f"exact where it is near:                   {right[~clear].mean():.3f}")

# %%
# When collapse does not help
# ---------------------------
# Definitions of words, and the 100 most frequent kinds of things that they are. Here the features
# of test samples do not gather at the prototypes, because a definition of a dozen words is too
# short. "nearest" then predicts far too many labels; "divergence" does not need collapse.

glosses = load_wordnet_glosses()
train, test = glosses.train_indices, glosses.test_indices
frequent = np.argsort(-np.asarray(glosses.target[train].sum(axis=0)).ravel())[:100]
tfidf = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
X_train, X_test = tfidf.fit_transform(glosses.data[train]), tfidf.transform(glosses.data[test])
Y_train, Y_test = glosses.target[train][:, frequent], glosses.target[test][:, frequent]

text_score = {}
print(f"{'text':14} {'mean labels':>13} {'example-F1':>11} {'exact sets':>11}")
print(f"{'truth':14} {Y_test.sum() / Y_test.shape[0]:13.2f}")
for name in ("divergence", "nearest", "threshold 0.5"):
    model = models[name].set_params(max_epochs=8)
    sets = model.fit(X_train, Y_train).predict(X_test)
    f1 = f1_score(Y_test, sets, average="samples", zero_division=0)
    text_score[name] = sets.sum() / sets.shape[0], f1, accuracy_score(Y_test, sets)
    print(f"{name:14} {text_score[name][0]:13.2f} {f1:11.3f} {text_score[name][2]:11.3f}")
