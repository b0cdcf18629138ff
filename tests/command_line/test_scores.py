"""Scores of a model, against their definitions."""

import numpy as np
import pytest

from sklearn_xlc.command_line.scores import as_lists, as_text, scores_of

LABELS = np.array(["a", "b", "c", "d"], dtype=object)


class Fixed:
    """Answers what it is told."""

    has_probabilities = True

    def __init__(self, ranked, probabilities, sets, classes=LABELS):
        self.ranked, self.probabilities, self.sets = ranked, probabilities, sets
        self.classes = classes

    def topk(self, X, k, proba):
        scores = self.probabilities if proba else [[5.0] * len(row) for row in self.ranked]
        return [row[:k] for row in self.ranked], [row[:k] for row in scores]

    def label_sets(self, X):
        return self.sets


def fixed(**changed):
    ranked = [["a", "b", "c", "d"], ["b", "a", "d", "c"]]
    given = {"ranked": ranked, "probabilities": [[0.9, 0.5, 0.1, 0.1], [0.6, 0.3, 0.1, 0.0]]}
    return Fixed(**{**given, "sets": [["a", "b"], ["b"]], **changed})


def test_scores_of_label_sets():
    found = scores_of(fixed(), None, [["a", "c"], ["d", "unknown"]])
    # F1 of labels with a true sample: a 1, c 0, d 0, unknown 0.
    expected = {
        "n_samples": 2,
        "precision_at_1": 1 / 2,
        "precision_at_3": (2 / 3 + 1 / 3) / 2,
        "precision_micro": 1 / 3,
        "recall_micro": 1 / 4,
        "f1_micro": 2 * 1 / (3 + 4),
        "f1_macro": 1 / 4,
        "calibration_error": (0.1 + 0.6) / 2,
    }
    ideal = 1 + 1 / np.log2(3)
    gains = 1 + 1 / np.log2(4), 1 / np.log2(4)
    expected["ndcg_at_3"] = np.mean(gains) / ideal
    assert found == pytest.approx(expected)


def test_scores_of_classes():
    found = scores_of(fixed(sets=[["a"], ["b"]]), None, ["a", "d"])
    assert found["accuracy_at_1"] == 0.5
    assert found["accuracy_at_3"] == 1
    assert found["f1_micro"] == 0.5
    assert not [name for name in found if name.startswith(("precision", "ndcg"))]


def test_propensities_need_training_labels():
    train = [["a"], ["a", "b"], ["a", "c"], ["d"]]
    found = scores_of(fixed(), None, [["a", "c"], ["d"]], train)
    counts = {"a": 3, "c": 1, "d": 1}
    scale = (np.log(4) - 1) * 2.5**0.55
    inverse = {label: 1 + scale * (n + 1.5) ** -0.55 for label, n in counts.items()}
    assert found["psp_at_1"] == pytest.approx(inverse["a"] / (inverse["c"] + inverse["d"]))
    assert "psp_at_1" not in scores_of(fixed(), None, [["a", "c"], ["d"]])


def test_a_model_without_probabilities_has_no_calibration_error():
    answering = fixed()
    answering.has_probabilities = False
    assert "calibration_error" not in scores_of(answering, None, [["a"], ["d"]])


def test_labels_of_a_model_with_integers():
    assert as_lists(["3", "12"], np.array([3, 12])) == [[3], [12]]
    assert as_lists([["3"], []], np.array([3, 12])) == [[3], []]
    assert as_lists(["3", "12"], LABELS) == [["3"], ["12"]]
    for wrong in ("a", "3.0", 3.5, float("inf")):
        with pytest.raises(ValueError, match="labels of the model are integers, such as 3,"):
            as_lists([wrong], np.array([3]))


def test_labels_of_other_models():
    assert as_lists([3.0, True], np.array([3, 1])) == [[3], [1]]
    assert as_lists(["true", "False", 0], np.array([False, True])) == [[True], [False], [False]]
    assert as_lists(["1", 2.5], np.array([1.0, 2.5])) == [[1.0], [2.5]]
    for wrong, classes in (("yes", np.array([True])), (2, np.array([True])), (1, LABELS)):
        with pytest.raises(ValueError, match="labels of the model are .* the table has "):
            as_lists([wrong], classes)


@pytest.mark.parametrize("classes", [[0, 1], [False, True], [1.0, 2.0]])
def test_classes_of_every_type_are_scored(classes):
    """Lists of 0 and 1 are label sets here, and no indicator."""
    a, b = classes
    answering = fixed(ranked=[[a, b], [a, b]], sets=[[a], [a]], classes=np.array(classes))
    found = scores_of(answering, None, [a, b], [a, b, a, b])
    assert (found["accuracy_at_1"], found["f1_micro"]) == (0.5, 0.5)
    assert found["psp_at_1"] == 0.5
    if classes == [0, 1]:
        assert scores_of(answering, None, [[0], [1]])["precision_at_1"] == 0.5
        assert scores_of(answering, None, [[1, 0], [0, 1]])["recall_micro"] == 0.5


def test_a_table_for_people():
    text = as_text({"n_samples": 120, "precision_at_1": 0.5, "ndcg_at_5": 1 / 3, "f1_micro": 1.0})
    assert text.splitlines() == [
        "rows          120",
        "P@1         0.500",
        "nDCG@5      0.333",
        "micro-F1    1.000",
    ]
