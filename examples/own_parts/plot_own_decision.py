"""
A decision of your own
======================

A classifier scores every label, but how many of the best ones should it name? Its *decision* says
that. Here we write one, by a rule from the literature [1]_: it names as many labels as promise the
highest F1, the harmonic mean of precision (how many of the labels named are true) and recall (how
many of the true labels are named).

.. [1] N. Ye, K. M. A. Chai, W. S. Lee, H. L. Chieu. Optimizing F-measure: A Tale of Two Approaches.
   ICML 2012.
"""

# %%
# Data
# ----
# 2653 definitions of nouns, with labels for everything that the noun is a kind of: a town is a
# municipality, a region, and so on.

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from sklearn_xlc.datasets import load_wordnet_glosses

glosses = load_wordnet_glosses()
train, test = glosses.train_indices[::3], glosses.test_indices
frequent = np.flatnonzero(np.asarray(glosses.target[train].sum(axis=0)).ravel() >= 5)
vectorizer = TfidfVectorizer(sublinear_tf=True, dtype=np.float32).fit(glosses.data[train])
X_train, X_test = (vectorizer.transform(glosses.data[part]) for part in (train, test))
Y_train, Y_test = (glosses.target[part][:, frequent] for part in (train, test))

# %%
# The rule
# --------
# Let the best labels of a sample be true with probabilities :math:`p_1 \ge p_2 \ge ...` If we name
# the first m of them, the F1 to expect is close to
# :math:`2 (p_1 + ... + p_m) / (m + \sum_i p_i)`. We take the m for which this is highest.
# `decode` is given the scores of the best labels, best first, and the numbers of these labels;
# `label_sets` turns a mask of those to name into the result.

from scipy.special import expit

from sklearn_xlc.decisions import Decision, Threshold


class ExpectedF1(Decision):
    """As many of the best labels as promise the highest F1 of the sample."""

    def decode(self, scores, labels=None):
        p = expit(scores)  # scores are log odds
        sizes = np.arange(1, p.shape[1] + 1)
        expected = 2 * p.cumsum(axis=1) / (sizes + p.sum(axis=1, keepdims=True))
        return self.label_sets(sizes <= 1 + expected.argmax(axis=1)[:, None], labels)


# %%
# A rule that learns
# ------------------
# A network is rarely as sure as it should be. `fitted_on` asks for samples that are held out of
# training; from their scores and labels a logistic regression learns what a score is worth.

from sklearn.linear_model import LogisticRegression


class CalibratedF1(ExpectedF1):
    """The same, with probabilities that are right on held-out samples."""

    fitted_on = "held"

    def fit(self, scores, Y, *, labels=None, **context):
        self.slope_, self.offset_ = 1.0, 0.0
        if scores is not None:  # None: there are no held-out samples, as in `partial_fit`
            rows = np.repeat(np.arange(len(labels)), labels.shape[1])
            is_true = np.asarray(Y[rows, labels.ravel()]).ravel()
            model = LogisticRegression().fit(scores.reshape(-1, 1), is_true)
            self.slope_, self.offset_ = model.coef_[0, 0], model.intercept_[0]
        return super().fit(scores, Y)

    def decode(self, scores, labels=None):
        return super().decode(self.slope_ * scores + self.offset_, labels)


# %%
# Compare
# -------
# A probability above one half, the same number of labels for each sample, one threshold tuned for
# all, and our rule. It aims at the mean F1 of the samples, and is best there once it is calibrated.
# The micro-averaged F1 counts the labels of all samples together; for that one a tuned threshold is
# better. With ``ranker=None`` a decision reads the scores of the network as they are.

from sklearn.metrics import f1_score

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import MLP

scores = {}
print(f"\n{'decision':14}{'labels':>8}{'F1 of samples':>15}{'micro-F1':>10}")
decisions = {
    "one half": Threshold(0.5),
    "topk": "topk",
    "Threshold": Threshold(),
    "ExpectedF1": ExpectedF1(),
    "CalibratedF1": CalibratedF1(),
}
for name, decision in decisions.items():
    classifier = MultiHeadClassifier(
        decision=decision, ranker=None, encoder=MLP((128,)), max_epochs=25, random_state=0
    ).fit(X_train, Y_train)
    Y_pred = classifier.predict(X_test)
    kinds = ["samples", "micro"]
    f1 = scores[name] = [f1_score(Y_test, Y_pred, average=k, zero_division=0) for k in kinds]
    print(f"{name:14}{Y_pred.sum() / len(test):8.1f}{f1[0]:15.3f}{f1[1]:10.3f}")

# %%
# What the calibrated rule weighs, for four test samples: the F1 that it expects of each number of
# labels, and the number that it takes.

import matplotlib.pyplot as plt

rule = classifier.decision_
n_candidates = 2 * int(Y_train.sum(axis=1).max())  # as many as the rule is given
_, logits = classifier.predict_topk(X_test[:4], k=n_candidates)
p = expit(rule.slope_ * logits + rule.offset_)
sizes = np.arange(1, p.shape[1] + 1)
expected = 2 * p.cumsum(axis=1) / (sizes + p.sum(axis=1, keepdims=True))
figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
for curve in expected:
    (line,) = axes.plot(sizes[:15], curve[:15])
    axes.plot(1 + curve.argmax(), curve.max(), "o", color=line.get_color())
axes.set(xlabel="number of labels", ylabel="expected F1", ylim=(0, 1))
plt.show()
