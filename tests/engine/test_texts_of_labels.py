"""Labels found by their own texts, also where no sample has them: forms of y, later labels."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import sklearn_xlc
from _factories import quick
from sklearn_xlc.decisions import Threshold
from sklearn_xlc.encoders import Text
from sklearn_xlc.engine import deciding
from sklearn_xlc.ranking import BoostedRanker, Calibration, LabelTexts, NearestSamples

N_LABELS, N_UNSEEN, N_SAMPLES = 40, 4, 900
WORDS = [f"{a}{b}{c}o" for a in "bdfgk" for b in "aeiu" for c in "lm"]
CODES = [f"{number:03d}" for number in range(N_LABELS)]
TEXTS = {code: f"the {word} of a thing" for code, word in zip(CODES, WORDS)}


@pytest.fixture(scope="module")
def data():
    """Texts with the words of their labels among others; the last labels have test samples only."""
    rng = np.random.RandomState(0)
    own = [rng.choice(N_LABELS, rng.randint(1, 4), replace=False) for _ in range(N_SAMPLES)]
    others = rng.randint(0, 40, (N_SAMPLES, 3))
    texts = [
        " ".join([*(WORDS[i] for i in labels), *(f"x{word}" for word in words)])
        for labels, words in zip(own, others)
    ]
    is_late = np.array([max(labels) >= N_LABELS - N_UNSEEN for labels in own])
    order = np.argsort(is_late, kind="stable")
    n_train = np.count_nonzero(~is_late)
    X = np.array(texts, dtype=object)[order]
    tags = [sorted(CODES[i] for i in own[row]) for row in order]
    return (X[:n_train], tags[:n_train]), (X[n_train:], tags[n_train:])


def classifier(texts=TEXTS, **params):
    ranker = BoostedRanker([("near", NearestSamples()), ("names", LabelTexts(texts))])
    encoder = Text(2**10, hidden_layer_sizes=(16,), dropout=0.0)
    params = {"encoder": encoder, "max_epochs": 4, "ranker": ranker, **params}
    return quick("flat", validation_fraction=0.3, **params)


@pytest.fixture(scope="module")
def clf(data):
    return classifier().fit(*data[0])


def found(clf, X, tags, k=4):
    """Share of the unseen labels that are among the best k."""
    labels = clf.predict_topk(X, k)[0].tolist()
    hits = [
        tag in best for best, row in zip(labels, tags) for tag in row if tag in CODES[-N_UNSEEN:]
    ]
    return np.mean(hits)


def test_labels_of_the_texts_are_found_without_samples(clf, data):
    assert clf.classes_.tolist() == CODES
    assert found(clf, *data[1]) > 0.9
    network = copy.deepcopy(clf).recalibrate(ranker=None)
    assert found(network, *data[1]) < 0.3


def test_sorted_scores_are_the_best_labels(clf, data):
    X = data[1][0][:40]
    scores = clf.decision_function(X)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(clf.predict_topk(X, 5)[0], clf.classes_[best])


def test_words_are_their_own_texts(data):
    (X, tags), (X_test, tags_test) = data
    word_of = dict(zip(CODES, WORDS))
    clf = classifier(None).fit(X, [[word_of[tag] for tag in row] for row in tags])
    assert len(clf.classes_) == N_LABELS - N_UNSEEN
    late = [word for word in WORDS if word not in clf.classes_]
    more = [[word_of[tag] for tag in row] for row in tags_test]
    clf.partial_fit(X_test[:1], more[:1], classes=[*clf.classes_, *late])
    labels = clf.predict_topk(X_test[1:], 4)[0].tolist()
    hits = [tag in best for best, row in zip(labels, more[1:]) for tag in row if tag in late]
    assert np.mean(hits) > 0.8


@pytest.mark.parametrize("carry", ["pickle", "file", pytest.param("clone", marks=pytest.mark.slow)])
def test_a_copy_is_equal(carry, clf, data, tmp_path):
    X = data[1][0][:50]
    if carry == "file":
        sklearn_xlc.save(clf, tmp_path / "model", exact=True)
        copied = sklearn_xlc.load(tmp_path / "model")
    elif carry == "clone":
        copied = clone(clf).fit(*data[0])
    else:
        copied = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(copied.decision_function(X), clf.decision_function(X))


def test_labels_come_and_go(clf, data):
    (X, tags), (X_test, tags_test) = data
    clf = copy.deepcopy(clf)
    best = clf.predict_topk(X_test, 1)[0][:, 0]
    gone = CODES[3:9]
    clf.remove_labels(gone)
    labels = clf.predict_topk(X_test, 6)[0]
    assert not np.isin(labels, gone).any()
    assert found(clf, X_test, tags_test) > 0.9
    clf.partial_fit(X[:20], [[] for _ in range(20)], classes=[*clf.classes_, *gone])
    of_gone = [X[i] for i, row in enumerate(tags) if set(row) & set(gone)]
    labels = clf.predict_topk(np.array(of_gone, dtype=object), 6)[0]
    assert np.isin(labels, gone).any(axis=1).mean() > 0.9  # by their texts, and no sample's label
    assert np.mean(clf.predict_topk(X_test, 1)[0][:, 0] == best) > 0.6
    clf.forget(np.arange(100))
    assert found(clf, X_test, tags_test) > 0.9
    clf.recalibrate(X_test, tags_test)
    assert found(clf, X_test, tags_test) > 0.9
    assert type(clf.forget().ranker_) is Calibration


def test_class_labels(data):
    (X, tags), (X_test, tags_test) = data
    y, y_test = ([row[-1] for row in part] for part in (tags, tags_test))
    clf = classifier().fit(X, y)
    assert clf.classes_.tolist() == CODES
    rows = clf.predict_topk(X_test, 4)[0]
    assert np.mean([label in row for row, label in zip(rows, y_test)]) > 0.8
    np.testing.assert_allclose(clf.predict_proba(X_test[:20]).sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("form", ["frame", "csr"])
def test_empty_columns_of_an_indicator(form, data):
    (X, tags), (X_test, tags_test) = data
    Y = np.array([[code in row for code in CODES] for row in tags], dtype=int)
    if form == "frame":
        clf = classifier().fit(X, pd.DataFrame(Y, columns=CODES))
        assert found(clf, X_test, tags_test) > 0.9
        return
    clf = classifier(dict(enumerate(TEXTS.values()))).fit(X, sp.csr_matrix(Y))
    labels = clf.predict_topk(X_test, 4)[0]
    late = range(N_LABELS - N_UNSEEN, N_LABELS)
    hits = [
        int(tag) in best for best, row in zip(labels, tags_test) for tag in row if int(tag) in late
    ]
    assert np.mean(hits) > 0.9


def test_what_has_no_text_is_refused_before_work_starts(data, monkeypatch):
    (X, tags), _ = data
    monkeypatch.setattr(deciding, "fit_ranker", None)
    numbers = [[int(tag) for tag in row] for row in tags]
    with pytest.raises(ValueError, match="labels such as 0 are no texts"):
        classifier(None).fit(X, numbers)
    with pytest.raises(ValueError, match="of another type"):
        classifier().fit(X, numbers)
    with pytest.raises(ValueError, match="of another type"):
        classifier().fit(X, [row[0] for row in numbers])
    with pytest.raises(TypeError, match="compares texts of labels with samples"):
        quick("flat", ranker=classifier().ranker).fit(np.eye(len(X), 9), tags)
    Y = np.array([[code in row for code in CODES] for row in tags], dtype=int)
    with pytest.raises(ValueError, match="a text of none of the labels"):
        classifier().fit(X, Y)
    empty = dict.fromkeys(CODES, "")
    with pytest.raises(ValueError, match="of none of the labels: its texts are empty"):
        classifier().set_params(ranker__names__texts=empty).fit(X, tags)


def test_a_threshold_is_tuned_with_labels_that_are_known_by_their_texts(data, monkeypatch):
    told, fit = [], Threshold.fit

    def recorded(self, scores, Y, *args, **context):
        told.append(context.get("known"))
        return fit(self, scores, Y, *args, **context)

    monkeypatch.setattr(Threshold, "fit", recorded)
    clf = classifier().set_params(validation_fraction="refit").fit(*data[0])
    assert clf.settings_["validation_fraction"] == "refit"
    assert told == [None]
