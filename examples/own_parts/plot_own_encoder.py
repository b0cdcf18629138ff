"""
An encoder of your own
======================

What turns samples into features is a parameter: any `torch.nn.Module` will do. Here it is a small
convolutional network for images of digits, which knows something that the default multilayer
perceptron has to learn from the data: that a digit stays the same digit when it moves.
"""

# %%
# Data
# ----
# The 8 x 8 digits of scikit-learn, each moved by up to a pixel in both directions. An estimator
# takes a vector of numbers per sample, here 64 pixels.

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

X, y = load_digits(return_X_y=True)
images = np.pad((X / 16).astype(np.float32).reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
corners = np.random.default_rng(0).integers(0, 3, size=(len(images), 2))
moved = [image[i : i + 8, j : j + 8] for image, (i, j) in zip(images, corners)]
X = np.stack(moved).reshape(-1, 64)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
print(f"{len(X_train)} images to learn from, {len(X_test)} to test on")

# %%
# Three images of each of four digits: the same digit stands in another place.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(3, 4, figsize=(4, 3), layout="constrained")
for digit, column in enumerate(axes.T):
    for ax, image in zip(column, X[y == digit]):
        ax.imshow(image.reshape(8, 8), cmap="gray_r")
        ax.axis("off")
plt.show()

# %%
# Encoder
# -------
# The module is given a batch of samples as a tensor of shape ``(n_samples, 64)``, brings them into
# the shape of images, and returns ``(n_samples, n_outputs)``. The estimator adds the output layer.
# The parameter is either a module, which is copied with the weights it has, or a function of the
# number of columns that makes one. The function is the better choice for a network without weights
# yet: it is called in `fit` under `random_state`. A subclass of `sklearn_xlc.encoders.Encoder` may
# also read sparse matrices, strings or several arrays by name.

from torch import nn


def convolutional(n_features):
    """Two convolutions, pooling, and 128 features."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
    )


# %%
# Compare
# -------
# Both networks train with the same settings. "auto", the default, is a multilayer perceptron;
# `sklearn_xlc.encoders.MLP` has its widths and its dropout. Both answer alone, as ``ranker=None``
# says: the default ranker, which beside "auto" also asks similar images, would help one of them.

from sklearn_xlc import MultiHeadClassifier

print(f"\n{'encoder':24}{'parameters':>12}{'accuracy':>10}")
for name, encoder in [("default (perceptron)", "auto"), ("convolutional", convolutional)]:
    classifier = MultiHeadClassifier(
        encoder=encoder, ranker=None, batch_size=64, max_epochs=40, random_state=0
    ).fit(X_train, y_train)
    accuracy = classifier.score(X_test, y_test)
    print(f"{name:24}{classifier.n_parameters_:12,}{accuracy:10.3f}")

# %%
# Use the features
# ----------------
# A fitted classifier is a transformer too. The features of the convolutional network serve any
# estimator, here nearest neighbours.

from sklearn.neighbors import KNeighborsClassifier

print(f"\n{'5 nearest neighbours of':24}{'accuracy':>10}")
for name, features_train, features_test in [
    ("pixels", X_train, X_test),
    ("learnt features", classifier.transform(X_train), classifier.transform(X_test)),
]:
    neighbours = KNeighborsClassifier().fit(features_train, y_train)
    print(f"{name:24}{neighbours.score(features_test, y_test):10.3f}")
