"""
Which label sets can my classifier never predict?
=================================================

Reduce text to a few features, put one logistic regression per label on top, and the result looks
like any other classifier. But with fewer features than labels, most label sets are predicted for no
input at all. Here we check the label sets of the test data, for three common classifiers; then we
train a classifier for which the answer is known in advance.
"""

# %%
# A classifier with a bottleneck
# ------------------------------
# The embedded glosses: definitions of words, and the 60 most frequent kinds of things that these
# words are. Scikit-learn's classifier sees 10 features of each text.

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from sklearn_xlc import DFTSigmoidClassifier
from sklearn_xlc.datasets import load_wordnet_glosses
from sklearn_xlc.encoders import MLP
from sklearn_xlc.geometry import verify_argmaxable
from sklearn_xlc.metrics import f1_at_k

glosses = load_wordnet_glosses()
train, test = glosses.train_indices, glosses.test_indices
frequent = np.argsort(-np.asarray(glosses.target[train].sum(axis=0)).ravel(), kind="stable")[:60]
Y_train, Y_test = glosses.target[train][:, frequent], glosses.target[test][:, frequent]
tfidf = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
X_train, X_test = tfidf.fit_transform(glosses.data[train]), tfidf.transform(glosses.data[test])

svd = TruncatedSVD(10, random_state=0).fit(X_train)
model = OneVsRestClassifier(LogisticRegression())
model.fit(svd.transform(X_train), Y_train)

# %%
# The distinct label sets of the test data. The verifier takes the fitted classifier. It first tries
# the test samples as inputs: a label set that is predicted for one of them is argmaxable.

sets = np.unique(Y_test.toarray(), axis=0)
report = verify_argmaxable(model, sets, points=svd.transform(X_test), time_limit=2.0)
print(report)

# %%
# For a set that is not argmaxable the report has a proof: a few labels that contradict each other,
# in general one more than there are features. No input gives all of them the wanted signs, whatever
# the other labels.

names = np.array([name.split(".")[0] for name in glosses.target_names[frequent]])
for row in np.flatnonzero(report.status == 0)[:3]:
    conflict = report.conflicts[row]
    present = sets[row, conflict] == 1
    print(f"\nnever: {', '.join(names[conflict[present]]) or 'nothing'}")
    print(f"  without any of: {', '.join(names[conflict[~present]])}")

# %%
# The verifier also takes torch layers, here one that is not trained. Training changes which label
# sets are argmaxable, but not how many: the number depends only on the numbers of labels and
# features, as long as the weights are in general position.

import torch

from sklearn_xlc.geometry import count_argmaxable

torch.manual_seed(0)
layer = torch.nn.Linear(10, 60)
print(f"not trained: {verify_argmaxable(layer, sets, time_limit=2.0)}")
share = count_argmaxable(n_labels=60, n_features=10, intercept=True) / 2**60
print(f"share of all sets of 60 labels that can be predicted: {share:.1e}")

# %%
# Bottleneck and Fourier layer, side by side
# ------------------------------------------
# `DFTSigmoidClassifier` with ``output="bottleneck"`` is a neural network with a plain layer of d
# learnt columns. The default output adds fixed Fourier columns, which guarantee that small label
# sets are argmaxable. The table shows F1@3 on the test data, trainable parameters of the output
# layer, and the numbers of label sets that are not argmaxable or unknown.

print(
    f"{'output':12} {'d':>3} {'parameters':>11} {'F1@3':>6} {'not argmaxable':>15} {'unknown':>8}"
)
rows, reports = [], {}
for output in ("bottleneck", "dft"):
    for d in (5, 10, 20):
        classifier = DFTSigmoidClassifier(
            output=output, n_slack=d, encoder=MLP((128,)), max_epochs=15, random_state=0
        ).fit(X_train, Y_train)
        verdict = classifier.verify(sets, X_test, time_limit=2.0)
        top, _ = classifier.predict_topk(X_test, k=3)
        head = classifier.net_.module_.head
        size, f1 = sum(p.numel() for p in head.parameters()), f1_at_k(Y_test, top, k=3)
        rows.append((output, d, size, f1, verdict.n_unargmaxable))
        reports[output, d] = classifier.verify(sets, time_limit=2.0, search_radius=True)
        print(
            f"{output:12} {d:3} {size:11,} {f1:6.3f} {verdict.n_unargmaxable:15} "
            f"{verdict.n_unknown:8}"
        )

# %%
# Pictures
# --------
# Left: quality against the number of parameters. Right: the radius of each set's region, with
# inputs in a box of fixed size, found without the test samples. A hollow marker is the radius of
# the first witness; the region may be larger. With a bottleneck many sets have no region; with
# Fourier columns all sets have one, and none is small.

try:
    import matplotlib.pyplot as plt
except ImportError:
    print("Install matplotlib to see the pictures.")
else:
    from sklearn_xlc.plotting import ArgmaxabilityDisplay

    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for output, marker in (("bottleneck", "o"), ("dft", "^")):
        sizes, quality = np.array([row[2:4] for row in rows if row[0] == output]).T
        axes[0].plot(sizes, quality, marker=marker, label=output)
    axes[0].set(xlabel="trainable parameters of the output layer", ylabel="F1@3")
    axes[0].legend()
    for ax, output in zip(axes[1:], ("bottleneck", "dft")):
        ArgmaxabilityDisplay.from_report(reports[output, 10], ax=ax)
        ax.set_title(f"{output}, d = 10")
    plt.show()
