"""
Which words raised a label
==========================

`explain_topk` says which words of a text, or columns of a table, raised or lowered the score of a
label, and by how much. We ask it about definitions of WordNet, and then check what it says: a text
without its most important words should lose its label.
"""

# %%
# Model
# -----
# Definitions of nouns, labelled with everything that the noun is a kind of. We take a third of the
# training part. The model is an ordinary pipeline.

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from sklearn_xlc import MultiHeadClassifier, explain_topk
from sklearn_xlc.datasets import load_wordnet_glosses
from sklearn_xlc.encoders import MLP

glosses = load_wordnet_glosses()
train, test = glosses.train_indices[::3], glosses.test_indices
tags = [
    [name.rsplit(".", 2)[0] for name in glosses.target_names[row.indices]]
    for row in glosses.target[train]
]
model = make_pipeline(
    TfidfVectorizer(sublinear_tf=True, dtype=np.float32),
    MultiHeadClassifier(encoder=MLP((256,)), random_state=0),
).fit(glosses.data[train], tags)

# %%
# Words
# -----
# In a notebook, the result is a table: blue words raised the score of the label, orange ones
# lowered it. The score is the baseline, that of an empty text, plus all contributions.

texts = [
    "a large wild cat with black stripes that lives in Asia",
    "a vessel with sails that carries passengers and cargo",
    "a person who plays the violin in an orchestra",
]
explanation = explain_topk(model, texts, k=2, n_columns=6)
explanation

# %%
# It unpacks into three arrays, and is a data frame on request.

labels, words, contributions = explanation
for text, label, most in zip(texts, labels[:, 0], words[:, 0, 0]):
    print(f"{text!r} is {label!r}, most of all because of {most!r}")

# %%
# Asked about a label that is not among the best, it says what speaks against it.

other = explain_topk(model, texts[:1], labels=["plant"], n_columns=6)
print(other)

# %%
# Is it true?
# -----------
# We delete words from 200 test texts, one after the other: those first that contributed most to
# the best label, or in an order drawn by lot. If contributions mean something, the score of the
# label falls faster in the first order.

texts_test = glosses.data[test[:200]]
best = explain_topk(model, texts_test, k=1, n_columns=100)
positions = np.searchsorted(model[-1].classes_, best.labels[:, 0])
split, rng = model[0].build_analyzer(), np.random.default_rng(0)
orders = {
    "by contribution": best.columns[:, 0].tolist(),
    "by lot": [rng.permutation(split(text)).tolist() for text in texts_test],
}


def mean_score_without(order, n_words):
    """Mean score of the best labels, without the first words of an order."""
    rest = [
        " ".join(word for word in split(text) if word not in words[:n_words])
        for text, words in zip(texts_test, order)
    ]
    return model.decision_function(rest)[np.arange(len(rest)), positions].mean()


curves = {
    name: [mean_score_without(order, n_words) for n_words in range(7)]
    for name, order in orders.items()
}

# %%
# Left, the words of the first text and its best label; right, the scores.

import matplotlib.pyplot as plt

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
shown = [pair for pair in zip(words[0, 0], contributions[0, 0]) if pair[0]][::-1]
colours = ["#0072B2" if value > 0 else "#D55E00" for _, value in shown]
left.barh(*zip(*shown), color=colours)
left.axvline(0, color="0.3", linewidth=1)
left.set(title=f"score of {labels[0, 0]!r}", xlabel="contribution (log odds)")
for (name, curve), marker, colour in zip(curves.items(), "os", ["#0072B2", "#D55E00"]):
    right.plot(curve, marker=marker, color=colour, label=name)
right.set(xlabel="words deleted", ylabel="mean score of the best label", title="200 texts")
right.legend(title="words are deleted")
plt.show()
