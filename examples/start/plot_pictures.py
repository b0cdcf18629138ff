"""
Pictures of a classifier
========================

Two questions that one number does not answer: are rare labels found, and which labels does the
classifier take for neighbours?
"""

# %%
# Data and models
# ---------------
# Definitions of nouns, labelled with everything that the noun is a kind of; a third of the training
# part. One loss treats all labels alike, the other weighs rare labels up, by their propensities.

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import load_wordnet_glosses
from sklearn_xlc.encoders import MLP

glosses = load_wordnet_glosses()
train, test = glosses.train_indices[::3], glosses.test_indices
texts_test, Y_train, Y_test = glosses.data[test], glosses.target[train], glosses.target[test]
models = {
    loss: make_pipeline(
        TfidfVectorizer(sublinear_tf=True, dtype=np.float32),
        MultiHeadClassifier(loss=loss, encoder=MLP((256,)), random_state=0),
    ).fit(glosses.data[train], Y_train)
    for loss in ("bce", "propensity_bce")
}

# %%
# Rare labels
# -----------
# Recall at 5 in groups of labels, from the rarest to the most frequent. The dashed line names the
# five most frequent labels for every text; the bars show where the true labels are. The weighted
# loss finds more of the labels with four to nine training samples, and fewer of the frequent ones.

from sklearn_xlc.plotting import LabelFrequencyDisplay

recall = {}
for number, (loss, model) in enumerate(models.items()):
    recall[loss] = LabelFrequencyDisplay.from_estimator(
        model,
        texts_test,
        Y_test,
        Y_train,
        name=loss,
        ax=recall["bce"].ax_ if number else None,
        baseline=not number,
    )

# %%
# Neighbours
# ----------
# Labels whose vectors in the last layer are similar are named for the same texts. The two
# directions of largest variance hold a small part of it: the map shows broad regions.

from sklearn_xlc.plotting import LabelMapDisplay

counts = np.asarray(Y_train.sum(axis=0)).ravel()
names = [name.rsplit(".", 2)[0] for name in glosses.target_names]
LabelMapDisplay.from_estimator(models["bce"], names=names, counts=counts, max_labels=500)
