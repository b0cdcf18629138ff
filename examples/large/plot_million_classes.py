"""
A million classes on a laptop
=============================

A plain output layer has one row of weights for each class, so a million classes need a million
outputs per sample in every step. The product of two heads needs two times a thousand outputs: a
class is a pair of digits, and each head scores one digit. This example trains on one and a half
million samples of a million classes.
"""

# %%
# Data
# ----
# Class frequencies follow Zipf's law, like those of words, products or proteins: a few classes have
# thousands of samples, and most have one. 5000 samples are held out, but never the first sample of
# a class.

import numpy as np

from sklearn_xlc.datasets import make_extreme_multiclass

N_CLASSES = 1_000_000
X, y = make_extreme_multiclass(
    n_samples=1_500_000,
    n_features=20_000,
    n_labels=N_CLASSES,
    all_classes=True,
    random_state=0,
)
_, first = np.unique(y, return_index=True)
others = np.setdiff1d(np.arange(len(y)), first)
test = np.random.default_rng(0).choice(others, size=5000, replace=False)
train = np.setdiff1d(np.arange(len(y)), test)
print(f"{len(train):,} samples of {len(np.unique(y[train])):,} classes to learn from")

# %%
# Fit
# ---
# One pass over the data.

import time

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import MLP

classifier = MultiHeadClassifier(
    "product", encoder=MLP(256, dropout=0), batch_size=512, max_epochs=1, random_state=0
)
start = time.perf_counter()
classifier.fit(X[train], y[train])
print(
    f"Fitted in {time.perf_counter() - start:.0f} s: heads of length {classifier.head_.lengths}, "
    f"{classifier.n_parameters_ / 1e6:.1f} million parameters"
)

# %%
# The peak memory is that of the whole process, including the data and all libraries.

try:
    import resource
    import sys
except ImportError:  # Windows
    pass
else:
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    print(f"Peak memory of the process: {peak / 2**30:.2f} GiB")

# %%
# Predict
# -------
# `predict_topk` finds exactly the five best of a million classes, without computing a million
# scores per sample.

start = time.perf_counter()
labels, scores = classifier.predict_topk(X[test], k=5)
seconds = time.perf_counter() - start
hit = labels[:, 0] == y[test]
in_five = (labels == y[test][:, None]).any(axis=1)
most_frequent = np.bincount(y[train]).argmax()
print(f"Five best classes of {len(test)} samples in {seconds:.2f} s")
print(f"Right class first: {hit.mean():.3f}, among the first five: {in_five.mean():.3f}")
print(f"Always the most frequent class: {(y[test] == most_frequent).mean():.3f}")

# %%
# Which classes are learnt?
# -------------------------
# One pass teaches the network classes with twenty samples or more, but not rare ones: a thousand
# classes share each output of a head. The ranker finds these: it adds the classes of similar
# training samples to the network's list, and ranks both.

n_rows = np.bincount(y[train])[y[test]]
groups = {
    "1": (1, 1),
    "2-4": (2, 4),
    "5-19": (5, 19),
    "20-99": (20, 99),
    "100 or more": (100, None),
}
alone = classifier.recalibrate(ranker=None).predict(X[test]) == y[test]
print(f"\n{'training samples':24}{'share of test':>14}{'network':>10}{'ranked':>10}")
accuracy = {"network": {}, "ranked": {}}
for name, (low, high) in groups.items():
    group = (n_rows >= low) & (n_rows <= (high or n_rows.max()))
    accuracy["network"][name], accuracy["ranked"][name] = alone[group].mean(), hit[group].mean()
    print(f"{name:24}{group.mean():14.2f}{alone[group].mean():10.3f}{hit[group].mean():10.3f}")

try:
    import matplotlib.pyplot as plt
except ImportError:
    print("Install matplotlib to draw them: pip install matplotlib")
else:
    figure, ax = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for shift, (way, of_groups) in zip((-0.2, 0.2), accuracy.items()):
        ax.bar(np.arange(len(groups)) + shift, of_groups.values(), width=0.4, label=way)
    ax.set_xticks(range(len(groups)), groups)
    ax.set(xlabel="training samples of the class", ylabel="accuracy", ylim=(0, 1))
    ax.legend(loc="upper left")
    plt.show()
# sphinx_gallery_thumbnail_path = '_static/example_million_classes.png'

# %%
# What a plain output layer would need
# ------------------------------------
# Computed for the same 256 features and batches of 512 samples in single precision, with Adam,
# which stores two more numbers per weight. A plain layer computes all logits at once. The head
# "flat" computes them for one chunk of labels at a time, and needs as much memory for weights and
# Adam.

n_outputs = {"plain": len(classifier.classes_), "product": sum(classifier.head_.lengths)}
print(f"\n{'':32}{'plain':>12}{'product':>12}")
for name, count in {
    "outputs per sample": n_outputs,
    "weights and Adam, MiB": {key: 3 * 4 * 257 * value / 2**20 for key, value in n_outputs.items()},
    "logits of a batch, MiB": {key: 4 * 512 * value / 2**20 for key, value in n_outputs.items()},
}.items():
    print(f"{name:32}{count['plain']:12,.0f}{count['product']:12,.0f}")
