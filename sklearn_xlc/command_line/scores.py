"""Scores of a model on rows with known labels."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from sklearn.preprocessing import MultiLabelBinarizer

from sklearn_xlc._labels import as_objects
from sklearn_xlc.metrics import (
    expected_calibration_error,
    label_set_score,
    ndcg_at_k,
    precision_at_k,
    propensities,
    psp_at_k,
    recall_at_k,
)
from sklearn_xlc.serving import Answering

#: Numbers of labels that are scored.
KS = (1, 3, 5)
#: Names for people, beside those with a number of labels.
NAMES = {
    "n_samples": "rows",
    "precision_micro": "precision of label sets",
    "recall_micro": "recall of label sets",
    "f1_micro": "micro-F1",
    "f1_macro": "macro-F1",
    "calibration_error": "calibration error of the best label",
}
#: The same, of metrics with a number of labels.
OF_METRICS = {"accuracy": "accuracy", "precision": "P", "ndcg": "nDCG", "psp": "PSP"}
#: Types of labels.
KINDS = {str: "strings", int: "integers", float: "numbers", bool: "True and False"}


def are_sets(y: list[Any]) -> bool:
    """Return whether y holds lists of labels, rather than one class for each sample."""
    return isinstance(y[0], list)


def as_column(y: list[Any]) -> Any:
    """Return y for `fit`: lists of 0 and 1 are an indicator there, but labels in a column."""
    return as_objects(y) if are_sets(y) else y


def as_lists(y: list[Any], classes: Any = None) -> list[list[Any]]:
    """Return label sets as lists, with labels of the type of those of the model.

    Parameters
    ----------
    y : list
        Lists of labels, or one class for each sample.
    classes : ndarray of shape (n_labels,), default=None
        Labels of the model.

    Returns
    -------
    list of list
        Labels of each sample.

    Raises
    ------
    ValueError
        If a label is none of that type, nor a string that shows one.
    """
    lists = y if are_sets(y) else [[each] for each in y]
    if classes is None:
        return lists
    like = classes.tolist()[0]
    return [[_in_type(label, like) for label in each] for each in lists]


def _in_type(label: Any, like: Any) -> Any:
    """Return a label in the type of another one."""
    kind, is_text = type(like), isinstance(label, str)
    with contextlib.suppress(ValueError, OverflowError, KeyError):
        named = kind is bool and is_text
        found = {"true": True, "false": False}[label.strip().lower()] if named else kind(label)
        if is_text or found == label:  # 1.5 is no integer
            return found
    raise ValueError(
        f"labels of the model are {KINDS.get(kind, 'others')}, such as {like!r}, and the table has "
        f"{label!r}"
    )


def scores_of(
    answering: Answering,
    X: Any,
    y: list[Any],
    y_train: list[Any] | None = None,
    label_sets: list[list[Any]] | None = None,
) -> dict[str, float]:
    """Score ranked labels, label sets and probabilities.

    Parameters
    ----------
    answering : Answering
        Model.
    X : sequence of str
        Texts.
    y : list
        Lists of labels, or one class for each text.
    y_train : list, default=None
        Labels of the training samples, for PSP. None: without PSP.
    label_sets : list of list, default=None
        Predicted labels. None: they are predicted here.

    Returns
    -------
    dict of str to float
        Scores by name, such as "precision_at_5". For one class a sample, "accuracy_at_k" is the
        share of samples whose class is among the best k.
    """
    classes = answering.classes
    truth = as_lists(y, classes)
    at = {label: number for number, label in enumerate(classes.tolist())}

    def numbered(lists: list[list[Any]]) -> list[set[int]]:
        return [{at.setdefault(label, len(at)) for label in each} for each in lists]

    # By numbers: label sets of 0 and 1 alone would be read as an indicator, those of True are none.
    true = numbered(truth)
    ks = [k for k in KS if k <= len(classes)]
    ranked, values = answering.topk(X, max(ks), proba=answering.has_probabilities)
    labels = np.array([[at[label] for label in row] for row in ranked])
    found: dict[str, float] = {"n_samples": len(truth)}
    if are_sets(y):
        found |= {f"precision_at_{k}": precision_at_k(true, labels, k) for k in ks}
        found[f"ndcg_at_{ks[-1]}"] = ndcg_at_k(true, labels, ks[-1])
    else:
        found |= {f"accuracy_at_{k}": recall_at_k(true, labels, k) for k in ks}
    if y_train is not None:
        weights = propensities(numbered(as_lists(y_train, classes)))
        found |= {f"psp_at_{k}": psp_at_k(true, labels, k, propensities=weights) for k in ks}
    predicted = numbered(answering.label_sets(X) if label_sets is None else label_sets)
    # With one class a sample, micro-averages are all the accuracy.
    names = ("precision_micro", "recall_micro", "f1_micro")[0 if are_sets(y) else 2 :]
    found |= {name: label_set_score(true, predicted, name) for name in names}
    known = set().union(*true)  # the mean F1 is that of the labels of the truth
    found["f1_macro"] = label_set_score(true, [each & known for each in predicted], "f1_macro")
    if answering.has_probabilities:
        best = np.array(values)[:, :1]
        found["calibration_error"] = expected_calibration_error(true, labels[:, :1], best)[0]
    return {name: value if name == "n_samples" else float(value) for name, value in found.items()}


def indicators(truth: list[list[Any]], predicted: list[list[Any]]) -> tuple[Any, Any, Any]:
    """Return true and predicted labels as indicators, and the label of each column."""
    binarizer = MultiLabelBinarizer(sparse_output=True).fit([*truth, *predicted])
    return binarizer.transform(truth), binarizer.transform(predicted), binarizer.classes_


def as_text(scores: dict[str, float]) -> str:
    """Return a table of two columns, with the names of people."""
    lines = []
    for name, value in scores.items():
        metric, _, k = name.partition("_at_")
        named = f"{OF_METRICS[metric]}@{k}" if k else NAMES[name]
        lines.append((named, str(value) if name == "n_samples" else f"{value:.3f}"))
    width = max(len(named) for named, _ in lines)
    return "\n".join(f"{named:{width}}  {shown:>7}" for named, shown in lines)
