"""Data and measures that the experiments on multi-head encoding share."""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from _measure import load_part

from sklearn_xlc.metrics import precision_at_k


class Data(NamedTuple):
    """Samples and what to fit on (classes or an indicator), and test samples as an indicator."""

    X: object
    y: object
    X_test: object
    Y_test: sp.csr_matrix

    @property
    def Y(self):
        return self.y if sp.issparse(self.y) else indicator(self.y, self.Y_test.shape[1])


def indicator(classes, n_classes):
    """CSR indicator of one class a sample."""
    ones = np.ones(len(classes), dtype=np.float32)
    return sp.csr_matrix((ones, (np.arange(len(classes)), classes)), (len(classes), n_classes))


def some(n_rows, n_wanted):
    """Numbers of `n_wanted` random rows, always the same."""
    return np.random.default_rng(0).permutation(n_rows)[:n_wanted]


def labels_of(folder, name, n_train, n_test=3000):
    """Random samples of a data set of texts with many labels."""
    X, Y = load_part(folder / name, "trn")
    X_test, Y_test = load_part(folder / name, "tst")
    rows, test = some(X.shape[0], n_train), some(X_test.shape[0], n_test)
    return Data(X[rows], Y[rows], X_test[test], Y_test[test])


def classes_of(folder, name, n_train, n_test=3000, choose=None):
    """The same with one class a sample: `choose`, by default its most frequent label."""
    choose = choose or most_frequent_labels
    data = labels_of(folder, name, n_train, n_test)
    counts = np.asarray(load_part(folder / name, "trn")[1].sum(0)).ravel()
    rows, classes = choose(data.y, counts)
    test, test_classes = choose(data.Y_test, counts)
    Y_test = indicator(test_classes, len(counts))
    return Data(data.X[rows], classes, data.X_test[test], Y_test)


def most_frequent_labels(Y, counts):
    """Rows that have labels, and the label of each with the largest count."""
    rows = np.flatnonzero(np.diff(Y.indptr))
    parts = (Y.indices[Y.indptr[row] : Y.indptr[row + 1]] for row in rows)
    return rows, np.array([labels[counts[labels].argmax()] for labels in parts])


def digits(folder, n_train, n_test=5000):
    """Random images of MNIST."""
    with np.load(Path(folder, "mnist", "mnist.npz")) as images:
        parts = []
        for part, n_rows in (("train", n_train), ("test", n_test)):
            y = images[f"y_{part}"]
            rows = some(len(y), n_rows)
            X = images[f"X_{part}"][rows].reshape(len(rows), -1)
            parts += [(X / 255).astype(np.float32), y[rows].astype(np.int64)]
    X, y, X_test, y_test = parts
    return Data(X, y, X_test, indicator(y_test, 10))


def measure(classifier, data, n_train=2000):
    """P@1/3/5 on test samples and P@1 on training samples, in per cent."""
    top = classifier.predict_topk(data.X_test, k=min(5, len(classifier.classes_)))[0]
    trained = classifier.predict_topk(data.X[:n_train], k=1)[0]
    result = {f"P@{k}": 100 * precision_at_k(data.Y_test, top, k=k) for k in (1, 3, 5)}
    result["train P@1"] = 100 * precision_at_k(data.Y[:n_train], trained, k=1)
    result["first head"] = 100 * _right_group(classifier, data.Y_test, top[:, 0])
    return result


def _right_group(classifier, Y, best):
    """Share of samples whose best label has the first digit of a true label."""
    group = np.full(Y.shape[1], -1)
    lengths = getattr(classifier.head_, "lengths", ())  # others score each label by itself
    group[classifier.classes_] = classifier.label_order_ // math.prod(lengths[1:])
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    right = group[Y.indices] == group[best[rows]]
    return float((np.bincount(rows, right, minlength=Y.shape[0]) > 0).mean())


def grouped(rows, *keys):
    """Rows by the values of some keys, in the order in which these first come."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups.items()


def mean_and_error(values):
    """Mean, and its standard error (NaN for a single value)."""
    values = np.asarray(values, dtype=float)
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else math.nan
    return values.mean(), error


def with_error(values):
    """Mean and standard error as text."""
    mean, error = mean_and_error(values)
    return f"{mean:.1f}" if math.isnan(error) else f"{mean:.1f} ± {error:.1f}"
