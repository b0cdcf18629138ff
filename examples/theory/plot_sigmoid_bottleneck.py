"""
Three labels, two features: the sigmoid bottleneck
==================================================

An output layer predicts a label where its logit is positive. Each label is a line that cuts the
space of features in two, and a label set can be predicted only if the lines leave a region for it.
Three lines through one point cut the plane into six regions, but three labels have eight sets: two
can never be predicted, whatever the input and however long the training [1]_.

.. [1] A. Grivas, A. Vergari, A. Lopez. Taming the Sigmoid Bottleneck: Provably Argmaxable Sparse
   Multi-Label Classification. AAAI 2024. Figure 1.
"""

# %%
# Who is missing
# --------------
# The columns of `every` are labels, its rows all label sets. The verifier says which of them a
# layer can predict; a count of the regions, which depends on the numbers alone, must agree.

import numpy as np

from sklearn_xlc.geometry import (
    count_argmaxable,
    fourier_matrix,
    verify_argmaxable,
)

every = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)])
coef = np.array([[1.0, 0.1], [-0.6, 0.8], [-0.3, -1.0]])
bias = np.array([-0.45, -0.25, -0.35])


def name(labels):
    """A label set in braces."""
    return "{" + ", ".join("ABC"[i] for i in np.flatnonzero(labels)) + "}"


layers = {
    "2 features": (coef, None),
    "2 features and biases": (coef, bias),
    "Fourier, 3 features": (fourier_matrix(n_labels=3, max_active=1), None),
}
missing = {}
for title, (weights, intercept) in layers.items():
    report = verify_argmaxable(weights, every, intercept)
    missing[title] = [name(labels) for labels in every[report.status == 0]]
    print(f"{title}: {report.n_argmaxable} of 8 label sets; missing: {missing[title] or 'none'}")

counts = [
    count_argmaxable(n_labels=3, n_features=2),
    count_argmaxable(n_labels=3, n_features=2, intercept=True),
    count_argmaxable(n_labels=3, n_features=3),
]
print("counted by formula:", *counts)

# %%
# Biases move the lines off the common point, which opens one region more. The Fourier layer of
# `DFTSigmoidClassifier` with ``max_active=1`` has three features, and room for every set.
#
# The picture
# -----------
# Each region and its label set; an arrow points to the side of its line where the label is
# predicted. The first Fourier column is constant, so that a slice through the three dimensions of
# that layer is a layer of two features with equal biases. A bias is fixed after training, but the
# feature may have either sign: label sets that are missing in one slice are present in the other.


def draw(ax, weights, intercept, title):
    """Regions, their boundaries and their names."""
    side = np.linspace(-1.6, 1.6, 500)
    points = np.stack(np.meshgrid(side, side), axis=-1)
    active = points @ weights.T + (0 if intercept is None else intercept) > 0
    code = active @ [1, 2, 4]
    letters = []
    ax.imshow(
        code,
        extent=(-1.6, 1.6, -1.6, 1.6),
        origin="lower",
        cmap="Pastel1",
        vmin=-0.5,
        vmax=8.5,
        interpolation="nearest",
    )
    for i, letter in enumerate("ABC"):
        level = points @ weights[i] + (0 if intercept is None else intercept[i])
        ax.contour(side, side, level, levels=[0], colors="0.3", linewidths=1.2)
        unit = weights[i] / np.linalg.norm(weights[i])
        offset = 0 if intercept is None else -intercept[i] / np.linalg.norm(weights[i])
        base = offset * unit + 1.43 * np.array([-unit[1], unit[0]])
        ax.annotate("", base + 0.25 * unit, base, arrowprops={"arrowstyle": "->", "color": "0.3"})
        letters.append(np.clip(base + 0.33 * unit, side[0] + 0.1, side[-1] - 0.1))
        ax.text(*letters[-1], letter, ha="center", va="center", color="0.3")
    for value in np.unique(code):
        inside = points[code == value]
        # The point that is farthest from boundaries and letters, not too near to the frame.
        inside = inside[np.abs(inside).max(axis=1) < 1.15]
        levels = np.abs(inside @ weights.T + (0 if intercept is None else intercept))
        distance = (levels / np.linalg.norm(weights, axis=1)).min(axis=1)
        to_letters = np.linalg.norm(inside[:, None] - letters, axis=2).min(axis=1)
        best = inside[np.minimum(distance, to_letters).argmax()]
        labels = (value >> np.arange(3)) & 1
        ax.text(*best, name(labels), ha="center", va="center", weight="bold", size=9)
    gone = [name(labels) for labels in every if labels @ [1, 2, 4] not in code]
    ax.set(
        title=f"{title}\n{8 - len(gone)} regions; missing: {', '.join(gone)}", xticks=[], yticks=[]
    )


try:
    import matplotlib.pyplot as plt
except ImportError:
    print("Install matplotlib to see the picture.")
else:
    fourier = layers["Fourier, 3 features"][0]
    pictures = {title: layers[title] for title in list(layers)[:2]}
    for level in (0.42, -0.42):
        title = f"Fourier, slice where the first feature is {level}"
        pictures[title] = fourier[:, 1:], level * fourier[:, 0]
    figure, axes = plt.subplots(2, 2, figsize=(8, 9), layout="constrained")
    for ax, (title, layer) in zip(axes.ravel(), pictures.items()):
        draw(ax, *layer, title)
    plt.show()
