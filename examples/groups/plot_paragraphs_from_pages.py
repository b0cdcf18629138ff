"""
Tags of paragraphs from the tags of pages
=========================================

Pages are tagged, paragraphs are not, and yet we want to know what a single paragraph is about: in a
pipeline from raw text, tuned by a search that keeps pages whole, and scored although no paragraph
has a label.
"""

# %%
# Pages
# -----
# A page is made of three to six definitions of the embedded WordNet data, its paragraphs; its tags
# are those of its paragraphs together. The true tags of paragraphs are put aside to check the end.

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse

from sklearn_xlc.datasets import load_wordnet_glosses

glosses = load_wordnet_glosses()
train, test = glosses.train_indices[::2], glosses.test_indices
frequent = np.flatnonzero(np.asarray(glosses.target[train].sum(axis=0)).ravel() >= 10)
names = np.array([name.split(".")[0] for name in glosses.target_names[frequent]])
paragraphs, true_tags = glosses.data[train], glosses.target[train][:, frequent]

rng = np.random.default_rng(0)
lengths = rng.integers(3, 7, size=len(train))
pages = np.repeat(np.arange(len(train)), lengths)[: len(train)]
rng.shuffle(pages)
membership = sparse.csr_array((np.ones(len(pages), dtype=int), (np.arange(len(pages)), pages)))
page_tags = (membership.T @ true_tags > 0).astype(int).tocsr()
tags = sparse.csr_matrix(page_tags[pages])  # row i: the tags of the page of paragraph i
print(
    f"{len(train)} paragraphs on {len(np.unique(pages))} pages with "
    f"{page_tags.sum() / len(np.unique(pages)):.0f} tags each, {len(frequent)} different tags"
)

# %%
# A pipeline, and a search that sees pages only
# ---------------------------------------------
# `groups` is metadata of `fit`: with routing enabled it finds its way through the pipeline, to the
# splitter, which keeps pages whole, and to the scorer. The scorer pools the predictions of a page
# and compares them with its tags, for that is all there is to compare with.
#
# Is it worth while to learn label embeddings in further iterations?

import sklearn
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import Pipeline

from sklearn_xlc import AggregatedLabelClassifier, EAGLETransformer, MultiHeadClassifier
from sklearn_xlc.encoders import MLP
from sklearn_xlc.metrics import precision_at_k, topk_scorer

sklearn.set_config(enable_metadata_routing=True)
classifier = MultiHeadClassifier("flat", encoder=MLP((128,)), max_epochs=15, random_state=0)
wrapped = AggregatedLabelClassifier(classifier, EAGLETransformer(random_state=0))
pipeline = Pipeline(
    [
        ("tfidf", TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32)),
        ("classifier", wrapped.set_fit_request(groups=True)),
    ]
)
search = GridSearchCV(
    pipeline,
    {"classifier__assigner__n_iter": [0, 2]},
    cv=GroupKFold(2),
    scoring=topk_scorer("aggregated_precision", k=3),
)
search.fit(paragraphs, tags, groups=pages)
for n_iter, score in zip([0, 2], search.cv_results_["mean_test_score"]):
    print(f"n_iter={n_iter}: precision at 3 of pages {score:.3f}")

# %%
# Paragraphs
# ----------
# The fitted pipeline tags single paragraphs. One page, whose tags are given together:

model = search.best_estimator_
page = pages[0]
here = np.flatnonzero(pages == page)
print("tags of the page:", ", ".join(names[page_tags[[page]].indices]), "\n")
assigned = model["classifier"].assigned_
for row in here:
    right = set(true_tags[row].indices)
    given = [
        names[tag] + ("" if tag in right else " (wrong)") for tag in sorted(assigned[[row]].indices)
    ]
    print(f"- {paragraphs[row][:90]}\n    {', '.join(given) or '(none)'}")

# %%
# On paragraphs of other pages, against a classifier that takes the tags of a page for those of each
# of its paragraphs, and one that was told the truth:

texts_test, Y_test = glosses.data[test], glosses.target[test][:, frequent]
tfidf = model["tfidf"]
scores = {}
for name, given in (("tags of pages", tags), ("assigned tags", None), ("true tags", true_tags)):
    fitted = model["classifier"].estimator_
    if given is not None:
        fitted = sklearn.clone(classifier).fit(tfidf.transform(paragraphs), given)
    top, _ = fitted.predict_topk(tfidf.transform(texts_test))
    scores[name] = [precision_at_k(Y_test, top, k=k) for k in (1, 3, 5)]
    print(f"{name:14}", " ".join(f"P@{k} {s:.3f}" for k, s in zip((1, 3, 5), scores[name])))
sklearn.set_config(enable_metadata_routing=False)

# %%

figure, axes = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
for place, (name, values) in enumerate(scores.items()):
    axes.bar(np.arange(3) + 0.27 * (place - 1), values, width=0.25, label=f"trained on {name}")
axes.set_xticks(range(3), ["P@1", "P@3", "P@5"])
axes.set_ylabel("precision on single paragraphs")
axes.set_ylim(0, 1.3 * max(map(max, scores.values())))  # room for the legend
axes.legend(fontsize="small")
plt.show()
