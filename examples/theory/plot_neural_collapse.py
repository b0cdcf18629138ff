"""
Neural collapse: features move to the corners of a simplex
==========================================================

Images of two digits each, made from scikit-learn's digits. A classifier is trained on every label
of an image (pick-all-labels loss). While it trains, the features of images with one digit gather at
the corners of a simplex, and those of images with two digits at sums of two corners [1]_. So the
last layer may be fixed from the start, and it costs no parameters.

.. [1] P. Li, X. Li, Y. Wang, Q. Qu. Neural Collapse in Multi-label Learning with Pick-all-label
   Loss. ICML 2024.
"""

# %%
# Images of label sets
# --------------------
# Every digit alone, and every pair of digits, on a canvas of twice the size.

import numpy as np
from sklearn.metrics import accuracy_score, f1_score
from torch import nn

from sklearn_xlc import ETFNeuralCollapseClassifier
from sklearn_xlc.datasets import make_label_set_images
from sklearn_xlc.heads import ETF, Learned
from sklearn_xlc.metrics import soft_label_mass
from sklearn_xlc.training import CollapseMonitor

images, Y = make_label_set_images(n_per_class=120, n_per_pair=30, random_state=0)
X = images.reshape(len(images), -1).astype(np.float32)
X_train, Y_train, X_test, Y_test = X[:2000], Y[:2000], X[2000:], Y[2000:]
print(f"{len(X_train)} training images of {X.shape[1]} pixels, {Y.shape[1]} labels")


# %%
# A small convolutional network makes the features. Its last layer is linear: rectified features
# cannot be centred, and could not become a simplex.


def encoder(n_features):
    return nn.Sequential(
        nn.Unflatten(1, (1, 16, 16)),
        nn.Conv2d(1, 24, 3, padding=1, stride=2),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.Conv2d(24, 48, 3, padding=1, stride=2),
        nn.BatchNorm2d(48),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(768, 32),
    )


# %%
# A fixed and a learnt last layer
# -------------------------------
# Loss and feature decay are those of the paper, which sums the decay over a batch instead of
# averaging it. The monitor measures the collapse of the training features after every epoch.

BATCH_SIZE = 64
decay = {"feature_decay": 5e-4 * BATCH_SIZE, "fit_intercept": False}


def fit(output):
    classifier = ETFNeuralCollapseClassifier(
        output,
        loss="pick_all_labels",
        encoder=encoder,
        decision="nearest",
        batch_size=BATCH_SIZE,
        max_epochs=40,
        callbacks=[CollapseMonitor(X_train, Y_train)],
        random_state=0,
    )
    return classifier.fit(X_train, Y_train)


classifiers = {"fixed": fit(ETF(**decay)), "learnt": fit(Learned(**decay))}
print(f"{'last layer':12} {'parameters':>10} {'soft IoU':>9} {'F1':>6} {'subset':>7}")
for name, classifier in classifiers.items():
    predicted = classifier.predict(X_test)
    mass = soft_label_mass(Y_test, classifier.predict_proba(X_test))
    f1 = f1_score(Y_test, predicted, average="micro")
    subset = accuracy_score(Y_test, predicted)
    print(f"{name:12} {classifier.n_parameters_:10,} {mass:9.3f} {f1:6.3f} {subset:7.3f}")

# %%
# The fixed layer predicts label sets as well as the learnt layer. (Its probabilities, which soft
# IoU adds up, are less sharp: the rows of a simplex have norm one, and decay keeps the norms of
# features small.)
#
# Collapse, seen
# --------------
# All measures are zero for features that have collapsed: NC1 is the spread within a class, of
# images with one digit or, as "nc1_2", with two; NC2 and NC3 are the distance of class means, and
# of means and weights, from a simplex; NCm compares the mean of a label set with the sum of the
# means of its labels.

for measure in ("nc1", "nc1_2", "nc2_means", "nc3", "ncm_2"):
    values = classifiers["fixed"].net_.history[:, measure]
    print(f"{measure:10} first epoch {values[0]:.3f}, last epoch {values[-1]:.4f}")

try:
    import matplotlib.pyplot as plt
except ImportError:
    print("Install matplotlib to see the pictures.")
else:
    from sklearn_xlc.plotting import NeuralCollapseDisplay

    classifier = classifiers["fixed"]
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    NeuralCollapseDisplay.from_estimator(classifier, ax=axes[0])
    axes[0].set_title("measures over the epochs")
    parts = {"training images": (X_train, Y_train), "test images": (X_test, Y_test)}
    for ax, (title, (X_part, Y_part)) in zip(axes[1:], parts.items()):
        features = classifier.transform(X_part)
        NeuralCollapseDisplay.from_features(
            features, Y_part, classifier.output_weights_, labels=(0, 1, 2), ax=ax
        )
        ax.set_title(title)
    plt.show()

# %%
# Training images of one digit lie at the corners, those of two on the sums of two corners. Test
# images follow, with a spread that training images do not have.
