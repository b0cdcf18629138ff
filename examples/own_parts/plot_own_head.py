"""
A head of your own
==================

The last layer of a classifier, its *head*, turns features of a sample into a score for each class.
Usually that is a linear layer. Here we write another one from the literature [1]_, in which classes
are points at the border of a disc and samples are points inside it, and plug it in.

.. [1] M. Ghadimi Atigh, M. Keller-Ressel, P. Mettes. Hyperbolic Busemann Learning with Ideal
   Prototypes. NeurIPS 2021.
"""

# %%
# The head
# --------
# In hyperbolic geometry the border of the disc (or ball) is infinitely far away. A sample x is
# close to the class p at the border by :math:`\log \frac{1 - |x|^2}{|x - p|^2}`.
#
# A subclass of `ChunkedHead` has two duties. `fused_parameters` names the parameters with a row for
# each label. `logits_of` gives the scores of some labels from their rows, as those of a million
# need not fit into memory. Autograd does the calculus. Ranking and all losses come with the base
# class.

import torch
from torch import nn
from torch.nn import functional as F

from sklearn_xlc.heads import ChunkedHead, FlatHead


class HyperbolicHead(ChunkedHead):
    """Classes at the border of a ball, samples inside it."""

    def __init__(self, n_features, n_labels, multilabel, width=2, loss="auto"):
        super().__init__(n_features, n_labels, multilabel, loss=loss)
        self.projection = nn.Linear(n_features, width)
        self.points = nn.Parameter(torch.randn(n_labels, width))

    def fused_parameters(self):
        return [self.points]

    def inputs(self, features):  # any vector becomes a point inside the ball
        vector = self.projection(features)
        norm = vector.norm(dim=1, keepdim=True).clamp(1e-6, 6.0)  # not on the border
        return (norm / 2).tanh() * F.normalize(vector)

    def logits_of(self, inputs, points):
        squares = inputs.square().sum(1, keepdim=True)
        return ((1 - squares) / (1 + squares - 2 * inputs @ F.normalize(points).T)).log()


# %%
# Compare
# -------
# `head` takes the class, or a `functools.partial` of it. `FlatHead` with a `width` is the linear
# layer of as many dimensions. With two dimensions 200 classes have more room in the hyperbolic
# head, with three both are alike, with ten the linear layer is better.

from functools import partial

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multiclass
from sklearn_xlc.encoders import MLP

X, y = make_extreme_multiclass(6000, 1000, 200, random_state=0)
settings = {"encoder": MLP(64, dropout=0.2), "learning_rate": 1e-2, "random_state": 0}
accuracy = {}
print(f"{'dimensions':>10}{'linear':>12}{'hyperbolic':>12}")
for width in (2, 3, 10):
    for kind in (FlatHead, HyperbolicHead):
        model = MultiHeadClassifier(head=partial(kind, width=width), max_epochs=15, **settings)
        accuracy[kind, width] = model.fit(X[:4500], y[:4500]).score(X[4500:], y[4500:])
    print(f"{width:10}{accuracy[FlatHead, width]:12.3f}{accuracy[HyperbolicHead, width]:12.3f}")

# %%
# Look at it
# ----------
# Two dimensions can be drawn. These are images of digits not seen in training; 0 and 9 ended up
# side by side, and are confused.

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

X, y = load_digits(return_X_y=True)
classifier = MultiHeadClassifier(head=HyperbolicHead, **settings).fit(X[:900] / 16, y[:900])
head = classifier.net_.module_.head
inside = head.inputs(torch.from_numpy(classifier.transform(X[900:] / 16))).detach().numpy()
figure, axes = plt.subplots(figsize=(5, 5), layout="constrained")
axes.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.6"))
axes.scatter(*inside.T, c=y[900:], cmap="tab10", s=6)
for digit, point in enumerate(F.normalize(head.points).detach().numpy()):
    axes.text(*(1.08 * point), digit, color=f"C{digit}", ha="center", va="center", fontsize=14)
axes.axis("equal")
axes.axis("off")
plt.show()
