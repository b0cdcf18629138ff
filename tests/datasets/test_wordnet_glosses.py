"""The embedded data set: what its description promises, and that a simple model learns from it."""

import time
from importlib import resources

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize
from sklearn.utils.multiclass import type_of_target

from sklearn_xlc.datasets import load_wordnet_glosses


@pytest.fixture(scope="module")
def glosses():
    return load_wordnet_glosses()


def counts(matrix):
    return np.asarray(matrix.sum(axis=0)).ravel()


def test_shapes_and_types(glosses):
    assert glosses.data.shape == (10_056,)
    assert glosses.data.dtype == object
    assert all(isinstance(text, str) and len(text.split()) >= 4 for text in glosses.data)
    assert glosses.target.shape == (10_056, 2_475)
    assert glosses.target_names.shape == (2_475,)
    assert len(set(glosses.target_names)) == 2_475
    assert len(set(glosses.synset_names)) == 10_056
    assert glosses.target.has_canonical_format
    np.testing.assert_array_equal(glosses.target.data, 1)
    assert type_of_target(glosses.target) == "multilabel-indicator"


def test_parts_cover_everything_once_and_share_no_text(glosses):
    train, test = glosses.train_indices, glosses.test_indices
    assert (len(train), len(test)) == (7_958, 2_098)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(10_056))
    assert set(glosses.data[train]).isdisjoint(glosses.data[test])


def test_labels_are_neither_unseen_nor_trivial(glosses):
    train = counts(glosses.target[glosses.train_indices])
    test = counts(glosses.target[glosses.test_indices])
    assert train.min() == 3
    assert np.median(train) == 7
    assert (test == 0).sum() == 467
    assert (train + test).max() / 10_056 == pytest.approx(0.178, abs=0.0005)
    labels_a_row = np.diff(glosses.target.indptr)
    assert (labels_a_row.min(), labels_a_row.max()) == (1, 25)
    assert labels_a_row.mean() == pytest.approx(5.82, abs=0.005)


def test_labels_are_closed_under_going_up(glosses):
    # Whatever has the label "town" also has the labels of towns.
    names = glosses.target_names.tolist()
    towns = glosses.target[:, names.index("town.n.01")].nonzero()[0]
    for above in ("municipality.n.01", "urban_area.n.01", "location.n.01"):
        assert set(towns) <= set(glosses.target[:, names.index(above)].nonzero()[0])
    # A row that is itself a label carries the labels that its own hyponyms carry.
    rows = {name: row for row, name in enumerate(glosses.synset_names.tolist())}
    both = [name for name in names if name in rows]
    assert len(both) > 100
    for name in both:
        below = glosses.target[:, names.index(name)].nonzero()[0]
        own = set(glosses.target[rows[name]].indices)
        assert all(own <= set(glosses.target[row].indices) for row in below)


def test_return_X_y(glosses):
    data, target = load_wordnet_glosses(return_X_y=True)
    assert data.tolist() == glosses.data.tolist()
    assert (target != glosses.target).nnz == 0


def test_files_are_small_and_carry_the_licence(glosses):
    folder = resources.files("sklearn_xlc.datasets") / "data"
    assert sum(len(file.read_bytes()) for file in folder.iterdir()) <= 1_500_000
    notice = (folder / "LICENSE-WordNet.txt").read_text(encoding="utf-8")
    for phrase in (
        "WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved.",
        "Permission to use, copy, modify and distribute this software and",
        'THIS SOFTWARE AND DATABASE IS PROVIDED "AS IS"',
        "may not be used in\nadvertising or publicity",
    ):
        assert phrase in notice
    assert notice in glosses.DESCR
    assert "2 475" in glosses.DESCR


def test_loading_takes_under_a_second():
    start = time.process_time()
    load_wordnet_glosses()
    assert time.process_time() - start < 1


def test_a_simple_model_beats_the_most_frequent_label(glosses):
    train, test = glosses.train_indices, glosses.test_indices
    vectorizer = TfidfVectorizer(sublinear_tf=True)
    X, X_test = (
        vectorizer.fit_transform(glosses.data[train]),
        vectorizer.transform(glosses.data[test]),
    )
    Y, Y_test = glosses.target[train], glosses.target[test]
    best = np.asarray((X_test @ normalize(Y.T @ X).T).argmax(axis=1)).ravel()
    centroid = Y_test[np.arange(len(test)), best].mean()
    frequent = Y_test[:, int(counts(Y).argmax())].mean()
    assert frequent == pytest.approx(0.179, abs=0.001)
    assert centroid == pytest.approx(0.473, abs=0.01)
