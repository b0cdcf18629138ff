"""
Label embeddings are pictures
=============================

`EAGLETransformer` learns an embedding of each label, a direction in the space of the samples. If
samples are images, it is an image. Here labels are known for groups of four digits only, and yet
the pictures show what each label means.
"""

# %%
# Groups of four digits
# ---------------------
# The 8 x 8 digits of scikit-learn, put into groups at random. A group has the set of labels of its
# four digits; which digit has which label is forgotten.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from sklearn_xlc import EAGLETransformer
from sklearn_xlc.datasets import make_aggregated

X, y = load_digits(return_X_y=True)
X = X / 16
Y = np.eye(10, dtype=int)[y]
Y_grouped, groups = make_aggregated(Y, group_size=4, random_state=0)
Y_grouped = Y_grouped.toarray()  # a row for each digit, with the labels of its group
print(f"{len(np.unique(groups))} groups, with {Y_grouped.sum(axis=1).mean():.1f} labels on average")

# %%
# Pictures
# --------
# The mean over the groups of a label resembles the mean of all digits, because about three in four
# digits of a group have another label. The method of the paper, ``contrast=None``, finds a
# direction that is close to at least one digit of each group, and so the digit: this is Figure 5 of
# Shen et al., `Extreme Multi-label Classification from Aggregated Labels`, ICML 2020. The default
# finds the difference between a label and the background. It is positive (red) where only this
# digit has ink, and negative (blue) where only other digits have ink.

paper = EAGLETransformer(contrast=None, random_state=0).fit(X, Y_grouped, groups)
default = EAGLETransformer(random_state=0).fit(X, Y_grouped, groups)
pictures = {
    "mean of the\nlabel's digits\n(not known)": [X[y == label].mean(axis=0) for label in range(10)],
    "mean of the\nlabel's groups": Y_grouped.T @ X / Y_grouped.sum(axis=0)[:, None],
    "EAGLE,\ncontrast=None": paper.label_embeddings_,
    "EAGLE,\ndefault": default.label_embeddings_,
}
figure, axes = plt.subplots(4, 10, figsize=(9, 4.2), layout="constrained")
for row, (name, images) in zip(axes, pictures.items()):
    row[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for cell, image in zip(row, images):
        colors = {"cmap": "gray_r"}
        if image.min() < -0.1:
            colors = {"cmap": "RdBu_r", "vmin": -abs(image).max(), "vmax": abs(image).max()}
        cell.imshow(image.reshape(8, 8), **colors)
        cell.set(xticks=[], yticks=[])
for label, cell in enumerate(axes[0]):
    cell.set_title(label)
plt.show()

# %%
# What they are for
# -----------------
# Each label of a group is assigned to the digit closest to its embedding. The share of labels that
# are assigned to a digit of this label, and the share of single digits for which the closest
# embedding is that of the true label:

start = EAGLETransformer(contrast=None, n_iter=0, random_state=0).fit(X, Y_grouped, groups)
right = {}
for name, eagle in (("mean of the groups", start), ("contrast=None", paper), ("default", default)):
    assigned = eagle.assign(X, Y_grouped, groups).toarray()
    right[name] = (assigned * Y).sum() / assigned.sum(), (eagle.transform(X).argmax(1) == y).mean()
    print(f"{name:18}  labels {right[name][0]:.3f}  digits {right[name][1]:.3f}")
