"""
A loss of your own
==================

Some labels of the training data are wrong, as they are wherever people or rules have given them.
The usual loss makes a network learn the wrong ones too. Here we write another one, the generalised
cross-entropy [1]_, which is a formula of one line, and see what it is worth.

.. [1] Z. Zhang, M. R. Sabuncu. Generalized Cross Entropy Loss for Training Deep Neural Networks
   with Noisy Labels. NeurIPS 2018.
"""

# %%
# Data
# ----
# Images of digits. In the training part a share of the labels is replaced by random digits.

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X / 16, y, test_size=0.5, stratify=y, random_state=0
)


def with_wrong_labels(y, share):
    """The labels, of which a share is drawn at random."""
    rng = np.random.default_rng(0)
    return np.where(rng.random(len(y)) < share, rng.integers(10, size=len(y)), y)


# %%
# The formula
# -----------
# A network gives each class a probability. The cross-entropy of a sample is :math:`-\log p`, where
# p is the probability of its label; it grows without bound where the network contradicts a label.
# The generalised one is :math:`(1 - p^q) / q`, which is at most 1/q: the network may give up on a
# label that does not fit. The smaller q, the closer it is to the cross-entropy.
#
# A loss that reads the probability of a sample's label is a `RowwiseLoss`, and its `value` is a
# function of the *surprise*, :math:`-\log p`. That is all: derivatives come from autograd. The
# second argument, by how much other labels beat this one, is not needed here.

from sklearn_xlc.heads import RowwiseLoss


class GeneralisedCrossEntropy(RowwiseLoss):
    """Loss of a label of probability p: (1 - p ** q) / q."""

    def __init__(self, q=0.7):
        super().__init__()
        self.q = q

    def value(self, surprise, margin):
        return (1 - (-self.q * surprise).exp()) / self.q


# %%
# Compare
# -------
# Every classifier takes the loss as its parameter `loss`. The parameters of the loss are part of
# the model, so a search may try several: ``{"loss": [GeneralisedCrossEntropy(q) for q in ...]}``.
#
# Here the network answers alone, as ``ranker=None`` says: the default ranker also asks the most
# similar training images, whose labels outvote wrong ones, and leaves little for a loss to gain.

import matplotlib.pyplot as plt

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import MLP

shares = [0.0, 0.2, 0.4, 0.6]
losses = {
    "cross-entropy": "ce",
    "generalised, q = 0.3": GeneralisedCrossEntropy(0.3),
    "generalised, q = 0.7": GeneralisedCrossEntropy(0.7),
}
accuracy = {name: [] for name in losses}
for share in shares:
    y_noisy = with_wrong_labels(y_train, share)
    for name, loss in losses.items():
        classifier = MultiHeadClassifier(
            "flat", loss=loss, encoder=MLP((256,)), ranker=None, random_state=0
        ).fit(X_train, y_noisy)
        accuracy[name].append(classifier.score(X_test, y_test))
for name, values in accuracy.items():
    print(f"{name:22}" + "".join(f"{value:8.3f}" for value in values))

# %%
# The test labels are all right.

figure, axes = plt.subplots(figsize=(5.5, 3.6), layout="constrained")
for name, values in accuracy.items():
    axes.plot(shares, values, marker="o", label=name)
axes.set(xlabel="share of random labels in training", ylabel="accuracy on the test part")
axes.set_xticks(shares)
axes.legend()
plt.show()

# sphinx_gallery_thumbnail_path = '_static/example_own_loss.png'
