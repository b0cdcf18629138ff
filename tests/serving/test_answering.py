"""What models answer, in plain lists."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline

from _factories import make_learnable, quick
from _serving import TAGS, TEXTS
from sklearn_xlc import TextColumns
from sklearn_xlc.decisions import TopK
from sklearn_xlc.encoders import Text
from sklearn_xlc.serving import Answering


def test_columns_are_found_in_pipelines_and_searches(text_model):
    assert Answering(text_model).columns is None
    assert Answering(text_model).column_names() == []
    assert Answering(text_model).classifier is text_model[-1]
    pipeline = make_pipeline(
        TextColumns("text"), quick("flat", encoder=Text(n_buckets=64), max_epochs=1)
    )
    search = GridSearchCV(pipeline, {"multiheadclassifier__max_epochs": [1]}, cv=KFold(2))
    with np.errstate(all="ignore"):
        search.fit(TEXTS, TAGS)
    answering = Answering(search)
    assert answering.columns.columns == "text"
    assert answering.column_names() == ["text"]


def test_an_estimator_without_labels_is_refused(text_model):
    with pytest.raises(ValueError, match="a TfidfVectorizer, which predicts no labels"):
        Answering(text_model[0])


@pytest.mark.parametrize("form", ["lists", "series", "indicator", "sparse", "frame"])
def test_label_sets_of_every_form(form):
    X, Y = make_learnable(True)
    X = X.toarray() if hasattr(X, "toarray") else X
    Y = Y.toarray() if hasattr(Y, "toarray") else np.asarray(Y)
    names = [f"label {column:03}" for column in range(Y.shape[1])]
    lists = [[names[column] for column in np.flatnonzero(row)] for row in Y]
    forms = {
        "lists": lists,
        "series": pd.Series(lists),
        "indicator": Y,
        "sparse": sp.csr_matrix(Y),
        "frame": pd.DataFrame(Y, columns=names),
    }
    clf = quick("flat", max_epochs=2).fit(X, forms[form])
    predicted = clf.predict(X)
    if form in ("lists", "series"):
        expected = predicted.tolist()
    else:
        table = predicted.toarray() if sp.issparse(predicted) else np.asarray(predicted)
        expected = [clf.classes_[row > 0].tolist() for row in table]
    found = Answering(clf).label_sets(X)
    assert found == expected
    assert any(found)
    json.dumps(found)


def test_labels_of_a_set_are_sorted():
    """The order of a set of strings is another in each process."""
    names = [f"label {number:02}" for number in range(20)]
    clf = quick("flat", max_epochs=2, decision=TopK(20)).fit(np.eye(4), [set(names)] * 4)
    assert Answering(clf).label_sets(np.eye(4)) == [names] * 4


def test_classes_are_lists_of_one():
    X, y = make_learnable(False)
    clf = quick("flat", max_epochs=2).fit(X, y)
    found = Answering(clf).label_sets(X)
    assert found == [[label] for label in clf.predict(X).tolist()]


def test_fewer_labels_than_asked_for(text_model):
    labels, probabilities = Answering(text_model).topk(TEXTS[:1], 100)
    assert sorted(labels[0]) == ["animal", "dog", "river", "water"]
    assert probabilities[0] == sorted(probabilities[0], reverse=True)
    assert len(Answering(text_model).explain(TEXTS[:1], 100, 3)[0]) == 4
