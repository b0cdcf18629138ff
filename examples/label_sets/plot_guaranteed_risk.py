"""
Sets with a guarantee
=====================

How many of a sample's labels will a prediction miss? A tuned threshold makes no promise.
:class:`~sklearn_xlc.decisions.RiskControl` does: for a new sample, drawn as the calibration samples
were, the expected share of missed labels is at most alpha, whatever the network is worth [1]_. The
price is larger sets, and samples that nothing else may be learnt from.

.. [1] A. N. Angelopoulos, S. Bates, A. Fisch, L. Lei, T. Schuster. Conformal Risk Control.
   arXiv:2208.02814, 2022.
"""

# %%
# Data
# ----
# Definitions of nouns, with labels for everything that the noun is a kind of. A third trains the
# network. The others are drawn again and again: half calibrate the decision, half are new.

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

from sklearn_xlc.datasets import load_wordnet_glosses

glosses = load_wordnet_glosses()
order = np.random.RandomState(0).permutation(len(glosses.data))
train, rest = np.split(order, [len(order) // 3])
frequent = np.flatnonzero(np.asarray(glosses.target[train].sum(axis=0)).ravel() >= 5)
texts = np.asarray(glosses.data, dtype=object)
vectorizer = TfidfVectorizer(sublinear_tf=True, dtype=np.float32).fit(texts[train])
X_train, X = (vectorizer.transform(texts[part]) for part in (train, rest))
Y_train, Y = (sp.csr_matrix(glosses.target[part][:, frequent]) for part in (train, rest))
print(f"{X_train.shape[0]} samples train, {X.shape[0]} are left, {Y.shape[1]} labels")

# %%
# One calibration
# ---------------
# `recalibrate` with new samples gives all of them to the decision. The fitted decision shows its
# cut, the number of samples and their risk.

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.decisions import RiskControl

half = X.shape[0] // 2
clf = MultiHeadClassifier(random_state=0).fit(X_train, Y_train)
clf.recalibrate(X[:half], Y[:half], decision=RiskControl(alpha=0.2))
print(clf.decision_)


def share_missed(sets, Y):
    """Mean share of the labels that are not predicted."""
    n_labels, n_found = (np.asarray(part.sum(axis=1)).ravel() for part in (Y, sets.multiply(Y)))
    return np.mean((n_labels - n_found) / np.maximum(1, n_labels))


sets = clf.predict(X[half:])
print(
    f"missed of new samples: {share_missed(sets, Y[half:]):.3f}, labels: {sets.sum(1).mean():.1f}"
)

# %%
# Many calibrations
# -----------------
# The promise is about the mean over draws of calibration samples and new ones. A decision reads
# lists of scores and labels, so that lists are ranked once and the rest is quick.

labels, scores = clf.predict_topk(X, k=Y.shape[1])
N_DRAWS = 30
alphas = np.array([0.05, 0.1, 0.15, 0.2, 0.3, 0.4])
risks, sizes = np.empty((len(alphas), N_DRAWS)), np.empty((len(alphas), N_DRAWS))
for draw in range(N_DRAWS):
    own, new = np.split(np.random.RandomState(draw).permutation(len(scores)), [half])
    for at, alpha in enumerate(alphas):
        decision = RiskControl(alpha).fit(scores[own], Y[own], labels=labels[own])
        sets = decision.decode(scores[new], labels[new])
        risks[at, draw] = share_missed(sets, Y[new])
        sizes[at, draw] = sets.nnz / len(new)
for alpha, of_alpha in zip(alphas, risks):
    print(f"alpha {alpha:.2f}: mean risk {of_alpha.mean():.3f}")

# %%
# On the left the mean risk lies on the promised line, or just below it; single draws lie on both
# sides, which ``RiskControl(alpha, confidence=0.9)`` would avoid nine times in ten. On the right is
# the price: a network that is not sure needs large sets to miss little.

import matplotlib.pyplot as plt

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.plot([0, 0.45], [0, 0.45], color="0.6", linestyle="--", label="promised: at most alpha")
for at, alpha in enumerate(alphas):
    left.scatter(np.full(N_DRAWS, alpha), risks[at], s=6, color="C0", alpha=0.4, linewidths=0)
left.plot(alphas, risks.mean(axis=1), "o-", color="C1", label=f"mean of {N_DRAWS} draws")
left.set(xlabel="alpha", ylabel="share of labels missed", xlim=(0, 0.45), ylim=(0, 0.45))
left.legend(loc="upper left", frameon=False)
right.plot(alphas, sizes.mean(axis=1), "o-", color="C1")
mean_size = Y.nnz / Y.shape[0]
right.axhline(mean_size, color="0.6", linestyle="--")
right.text(0.44, 1.05 * mean_size, "labels that a sample has", ha="right", color="0.4")
right.set(xlabel="alpha", ylabel="predicted labels of a sample", xlim=(0, 0.45), ylim=(4, 400))
right.set_yscale("log")
plt.show()
