"""Table 1 and Fig. 6 of Multi-Head Encoding: label sets as classes, and the accuracy of each head.

    python benchmarks/papers/heads_powerset.py DATA --figures docs/figures

The label set of a sample is one class among 2^C. The paper's images have 20 labels (VOC) and 80
(COCO); here the samples are texts with the 20 and the 80 most frequent labels of `debtags`. "flat"
is the vanilla classifier, one output a label and a cut of its probability: at one half, or tuned
for whole sets on held-out samples. The others are products of heads for b labels each, with all
networks alike but for the last layer; the paper has b = 4 for 20 labels (16 outputs each) and b = 5
for 80 (32 outputs). "clustered" puts similar labels into one head, "4 groups" mixes four products
(Eq. 16), and Algorithm 2 is the paper's binary cross-entropy of all outputs.

MHC and MHS have weights for every class, so that theirs are the label sets *seen in training*,
numbered in the order of the paper's code; so has "one softmax", the vanilla classifier of these
classes. A set not seen is never predicted: "within reach" is the share of test samples whose set
was seen.

Measured on test samples: the share of label sets that are right in every label, F1 of all labels
together, precision of the best labels by their marginal probabilities. Beside them: parameters of
the last layer, and CPU seconds of training.
"""

import time

import numpy as np
import scipy.sparse as sp
from _experiment import WIDTH, parser, print_table, save
from _measure import load_part
from matplotlib import pyplot as plt
from sklearn.metrics import accuracy_score, f1_score

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.decisions import Threshold
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import Product
from sklearn_xlc.metrics import precision_at_k
from sklearn_xlc.plotting import HeadAccuracyDisplay

MINUTES = 4
FULL_MINUTES = 13
DATA = True

#: Numbers of labels, and the labels of each head in the paper.
PAPER = {20: 4, 80: 5}
#: One network for all: only the last layer differs, and nothing is ranked after it.
NETWORK = {
    "encoder": MLP((512,), dropout=0.5),
    "optimizer": "mixed",
    "learning_rate": 2e-3,
    "batch_size": 256,
    "max_epochs": 6,
    "precision": "float32",
    "ranker": None,
}
#: Variants of the paper's heads.
VARIANTS = {
    "clustered": {"head__label_order": "clustered"},
    "4 groups": {"head__n_groups": 4},
    "Algorithm 2": {"loss": "bce"},
}
#: Heads with weights for every class, which are the label sets seen in training.
OF_SEEN_SETS = {"one softmax": "flat", "MHC": "cascade", "MHS": "sampling"}
#: Labels of each head.
BLOCKS = {20: (1, 2, 4, 5, 10), 80: (1, 2, 4, 5, 8)}


def classifiers(n_labels):
    """Classifiers by name."""
    half, tuned = Threshold(0.5), Threshold(criterion="subset_accuracy")
    made = {
        "flat, cut at 1/2": MultiHeadClassifier("flat", decision=half, **NETWORK),
        "flat, tuned cut": MultiHeadClassifier("flat", decision=tuned, **NETWORK),
    }
    for size in BLOCKS[n_labels]:
        made[name_of(n_labels, size)] = product(n_labels, size)
    size = PAPER[n_labels]
    for name, params in VARIANTS.items():
        made[f"{name_of(n_labels, size)}, {name}"] = product(n_labels, size, **params)
    for name, head in OF_SEEN_SETS.items():
        made[f"sets seen, {name}"] = SeenSets(MultiHeadClassifier(head, **NETWORK))
    return made


class SeenSets:
    """Classifier of label sets with one class for each set seen in training.

    The classes are in the order of the sets as binary numbers, most frequent label first, which is
    the order of the paper's code.
    """

    def __init__(self, classifier):
        self.classifier = classifier

    def set_params(self, **params):
        self.classifier.set_params(**params)
        return self

    def fit(self, X, Y):
        self.sets_, classes = np.unique(Y.toarray(), axis=0, return_inverse=True)
        self.classifier.fit(X, classes.ravel())
        self.net_ = self.classifier.net_
        return self

    def predict(self, X):
        return sp.csr_matrix(self.sets_[self.classifier.predict(X)])

    def predict_topk(self, X, k):
        """Best labels by the probability of the sets that hold them."""
        marginals = self.classifier.predict_proba(X) @ self.sets_
        best = np.argsort(-marginals, axis=1, kind="stable")[:, :k]
        return best, np.take_along_axis(marginals, best, axis=1)

    def reach(self, Y):
        """Share of the label sets that were seen in training."""
        seen = {row.tobytes() for row in self.sets_}
        return float(np.mean([row.tobytes() in seen for row in Y.toarray()]))


def product(n_labels, size, **params):
    """Product of heads for `size` labels each."""
    lengths = [2**size] * -(-n_labels // size)
    return MultiHeadClassifier(Product(lengths=lengths), **NETWORK).set_params(**params)


def name_of(n_labels, size):
    return f"{-(-n_labels // size)} heads of {2**size}"


def measure(classifier, train, test, seed):
    """Row of the table, and the fitted classifier."""
    start = time.process_time()
    classifier.set_params(random_state=seed).fit(*train)
    seconds = time.process_time() - start
    X, Y = test
    predicted, best = classifier.predict(X), classifier.predict_topk(X, k=3)[0]
    return {
        "parameters": sum(p.numel() for p in classifier.net_.module_.head.parameters()),
        "label sets right": 100 * accuracy_score(Y, predicted),
        "micro-F1": 100 * f1_score(Y, predicted, average="micro"),
        "P@1": 100 * precision_at_k(Y, best, k=1),
        "P@3": 100 * precision_at_k(Y, best, k=3),
        "within reach": 100 * (classifier.reach(Y) if isinstance(classifier, SeenSets) else 1.0),
        "in training": 100 * accuracy_score(train[1], classifier.predict(train[0])),
        "seconds": seconds,
    }


def main():
    arguments = parse_arguments()
    (X, Y), (X_test, Y_test) = (load_part(arguments.data / "debtags", p) for p in ("trn", "tst"))
    frequent = np.argsort(-np.asarray(Y.sum(axis=0)).ravel(), kind="stable")
    rows, seeds = [], range(3 if arguments.full else 1)
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH, 3.0), sharey=True, layout="constrained")
    for n_labels, ax in zip(PAPER, axes):
        train, test = (X, Y[:, frequent[:n_labels]]), (X_test, Y_test[:, frequent[:n_labels]])
        for name, classifier in classifiers(n_labels).items():
            if arguments.only and name not in arguments.only:
                continue
            found = [measure(classifier, train, test, seed) for seed in seeds]
            rows.append({"labels": n_labels, "classifier": name, **summary(found)})
            print(rows[-1]["labels"], name, rows[-1]["label sets right"], flush=True)
            if name == name_of(n_labels, PAPER[n_labels]):
                draw(ax, classifier, train, test, n_labels)
    axes[0].set_ylim(0.3, 1.02)
    print_table(rows)
    save(arguments, "heads_powerset", rows, figure)


def parse_arguments():
    options = parser(__doc__, data=True)
    options.add_argument("--only", nargs="+", help="names of classifiers; default: all")
    return options.parse_args()


def summary(found):
    """Means over the seeds, with their standard error where there are several."""
    result = {}
    for key in found[0]:
        values = np.array([row[key] for row in found])
        error = f" ± {values.std(ddof=1) / len(values) ** 0.5:.1f}" if len(values) > 1 else ""
        result[key] = (
            f"{values.mean():.0f}" if key == "parameters" else f"{values.mean():.1f}{error}"
        )
    return result


def draw(ax, classifier, train, test, n_labels):
    """Accuracy of each head on training and test samples (Fig. 6)."""
    for samples, name in ((train, "training"), (test, "test")):
        display = HeadAccuracyDisplay.from_estimator(classifier, *samples, name=name, ax=ax)
        print(f"accuracy of heads, {n_labels} labels, {name}: {np.round(display.accuracy, 3)}")
    ax.set(title=f"{n_labels} labels: {name_of(n_labels, PAPER[n_labels])}")
    ax.label_outer()


if __name__ == "__main__":
    main()
