"""
Labels with parents
===================

Concepts of WordNet have parents: a town is a municipality, and this is an urban area. A threshold
decides about each label alone, so that some predicted sets hold a label without its parents.
`decisions.Taxonomy` predicts sets that are closed upwards, the best ones by the probabilities.
"""

# %%
# The parents
# -----------
# The labels of a definition are all concepts above its noun. The data set does not say which of
# them is above which. But labels that are above another are on every sample that has this one, and
# are more frequent: we take these for its parents. With a taxonomy of your own, this step is a
# dictionary that you have.

import textwrap

import numpy as np
from scipy.special import expit, logit
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import load_wordnet_glosses
from sklearn_xlc.decisions import Taxonomy, Threshold
from sklearn_xlc.encoders import MLP
from sklearn_xlc.metrics import label_set_score

glosses = load_wordnet_glosses()
Y = glosses.target[glosses.train_indices]
n_together = (Y.T @ Y).tocoo()
n_samples = np.asarray(Y.sum(axis=0)).ravel()
low, high = n_together.coords
is_above = (n_together.data == n_samples[low]) & (n_samples[high] > n_samples[low])
parents = {}
for label, above in zip(glosses.target_names[low[is_above]], glosses.target_names[high[is_above]]):
    parents.setdefault(str(label), []).append(str(above))
print("town:", parents["town.n.01"])


# %%
# Two decisions on one network
# ----------------------------
# Half of the test definitions set the threshold, as `recalibrate` does with samples that the
# network has not seen. The others are predicted: by a threshold for each label alone, and by one
# on probabilities that are consistent.


def samples(index):
    """Texts and tags of some samples."""
    rows = glosses.target[index]
    return glosses.data[index], [glosses.target_names[row.indices].tolist() for row in rows]


texts, tags = samples(glosses.train_indices)
texts_held, tags_held = samples(glosses.test_indices[::2])
texts_test, tags_test = samples(glosses.test_indices[1::2])
classifier = MultiHeadClassifier(
    encoder=MLP((256,)), decision=Threshold(0.5), ranker=None, random_state=0
)
model = make_pipeline(TfidfVectorizer(sublinear_tf=True, dtype=np.float32), classifier)
vectorizer = model.fit(texts, tags)[0]


def lacking(sets):
    """Share of label sets without one of the parents of a label."""
    return np.mean([any(set(parents.get(tag, ())) - set(tags) for tag in tags) for tags in sets])


found = {}
for decision in (Threshold(min_labels=1), Taxonomy(parents, Threshold(min_labels=1))):
    classifier.set_params(decision=decision).recalibrate(
        vectorizer.transform(texts_held), tags_held
    )
    predicted = model.predict(texts_test)
    micro, hierarchical = (
        label_set_score(tags_test, predicted, "f1_micro", parents=given)
        for given in (None, parents)
    )
    name = type(decision).__name__
    found[name] = micro, lacking(predicted)
    print(
        f"{name}: micro-F1 {micro:.3f}, hierarchical F1 {hierarchical:.3f}, "
        f"{found[name][1]:.0%} of the sets lack a parent"
    )

# %%
# One definition
# --------------
# We take the definition whose probabilities move most. Its set are the labels whose consistent
# probability is above the threshold.

labels, p = classifier.predict_topk(vectorizer.transform(texts_test), k=30, proba=True)
decision, classes = classifier.decision_, classifier.classes_
ids = np.searchsorted(classes.astype(str), labels.astype(str))
scores, ids = decision.consistent(logit(p), ids)
before = [dict(zip(*row)) for row in zip(labels, p)]
after = [dict(zip(*row)) for row in zip(classes[ids], expit(scores))]
moved = [sum(abs(new[tag] - old.get(tag, 0)) for tag in new) for old, new in zip(before, after)]
sample = int(np.argmax(moved))
best = list(after[sample])[:12]
print(f"{texts_test[sample]}: {', '.join(tags_test[sample])}")

try:
    import matplotlib.pyplot as plt
except ImportError:
    print("No figure: plots need matplotlib")
else:
    _, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    at = np.arange(len(best))
    ax.barh(
        at - 0.2,
        [before[sample].get(tag, 0) for tag in best],
        0.4,
        label="probability",
        color="0.7",
    )
    values = [after[sample][tag] for tag in best]
    ax.barh(at + 0.2, values, 0.4, label="consistent probability", color="#0072B2")
    ax.axvline(decision.decision_.threshold_, ls=":", color="k", label="threshold")
    ax.set_yticks(at, [f"{tag}{' (true)' * (tag in tags_test[sample])}" for tag in best])
    ax.invert_yaxis()
    ax.set(xlabel="probability")
    ax.set_title(textwrap.fill(texts_test[sample], 55), fontsize="medium")
    ax.figure.legend(loc="outside lower center", ncols=3, frameon=False)
    plt.show()
