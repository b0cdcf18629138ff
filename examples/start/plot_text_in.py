"""
Texts in, without a vectorizer
==============================

An encoder may read other samples than vectors of numbers. The encoder "text" reads strings: it
hashes words to the rows of a table and learns the table with the rest of the network. So `fit`
takes a list of texts, and the way to split a text into words is a parameter like any other. The
user guide compares it with TF-IDF, with frozen sentence vectors and with a transformer.
"""

# %%
# Data
# ----
# Definitions of nouns, labelled with everything that the noun is a kind of. We take a third of
# the training part, and the labels that occur in it at least five times.

import numpy as np

from sklearn_xlc.datasets import load_wordnet_glosses

glosses = load_wordnet_glosses()
train, test = glosses.train_indices[::3], glosses.test_indices
frequent = np.flatnonzero(np.asarray(glosses.target[train].sum(axis=0)).ravel() >= 5)
texts_train, Y_train = glosses.data[train].tolist(), glosses.target[train][:, frequent]
texts_test, Y_test = glosses.data[test].tolist(), glosses.target[test][:, frequent]
print(f"{len(train)} texts to learn from, {len(frequent)} labels, the first text:")
print(texts_train[0])

# %%
# Fit and predict
# ---------------
# `encoder` is the name "text", or an object with parameters of its own. `fit` makes the network,
# with weights drawn under `random_state`.

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.metrics import precision_at_k

classifier = MultiHeadClassifier(encoder="text", random_state=0).fit(texts_train, Y_train)
names = glosses.target_names[frequent]
sentence = "a large wild cat with black stripes that lives in Asia"
print(sentence)
print(", ".join(names[classifier.predict_topk([sentence], k=5)[0][0]]))

# %%
# There is no vocabulary, so `partial_fit` learns words that no text before had. One call is enough:
# its sample is a neighbour of the next ones at once.

before = classifier.predict_topk(["smartphone"], k=1)[0][0, 0]
device = int(np.flatnonzero(names == "device.n.01")[0])
y_new = np.zeros((1, len(frequent)), dtype=np.int32)
y_new[0, device] = 1
classifier.partial_fit(["smartphone"], y_new)
after = classifier.predict_topk(["smartphone"], k=1)[0][0, 0]
print(f"'smartphone' before: {names[before]}; after: {names[after]}")

# %%
# Search
# ------
# In a `Pipeline` and in `GridSearchCV` texts stay texts. The parameters of the encoder are nested
# parameters of the classifier. The grid compares words, words with pairs of neighbours, and a
# tokenizer of our own: the groups of four letters in each word, which sees that "running" and
# "runner" have something in common. With ``ranker=None`` the encoders rank alone.

import re

from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_xlc.encoders import Text
from sklearn_xlc.metrics import topk_scorer


def without_brackets(texts):
    """Texts without what stands in brackets."""
    return [re.sub(r"\(.*?\)", "", text) for text in texts]


def four_letters(text):
    """Groups of four characters of each word, with a mark at its ends."""
    marked = [f"<{word}>" for word in re.findall(r"\w+", text.lower())]
    return [word[i : i + 4] for word in marked for i in range(max(1, len(word) - 3))]


pipeline = Pipeline(
    [
        ("clean", FunctionTransformer(without_brackets)),
        ("classifier", MultiHeadClassifier(encoder=Text(), ranker=None, random_state=0)),
    ]
)
grid = [
    {"classifier__encoder__ngram_range": [(1, 1), (1, 2)]},
    {"classifier__encoder__tokenizer": [four_letters]},
]
tokens = ["words", "words and pairs", "groups of four letters"]
search = GridSearchCV(pipeline, grid, scoring=topk_scorer("precision", k=3), cv=2)
search.fit(texts_train, Y_train)
for name, score in zip(tokens, search.cv_results_["mean_test_score"]):
    print(f"{name:24}{score:.3f}")

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(5, 2), layout="constrained")
axes.barh(tokens, search.cv_results_["mean_test_score"])
axes.set_xlabel("P@3, two folds")
axes.invert_yaxis()
plt.show()

# %%
# The best encoder was trained once more on all texts.

best = tokens[search.best_index_]
labels, _ = search.best_estimator_[-1].predict_topk(without_brackets(texts_test), k=3)
print(f"P@3 on the test part, {best}: {precision_at_k(Y_test, labels, k=3):.3f}")
