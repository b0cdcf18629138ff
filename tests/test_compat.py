"""What scikit-learn reads of estimators under names of its own: links to their documentation."""

import re
from pathlib import Path

import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import sklearn_xlc
from sklearn_xlc import AggregatedLabelClassifier, EAGLETransformer, MultiHeadClassifier
from sklearn_xlc.decisions import Threshold

API = Path(__file__).parents[1] / "docs" / "api.md"
ESTIMATORS = [
    getattr(sklearn_xlc, name)
    for name in sklearn_xlc.__all__
    if name.endswith(("Classifier", "Transformer"))
]


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setenv("SKLEARN_XLC_DOCS", "https://docs.example/xlc/")


def links_of(estimator):
    return set(re.findall(r'href="(https://docs\.example[^"#]*)', estimator._repr_html_()))


@pytest.mark.parametrize("kind", [*ESTIMATORS, Threshold], ids=lambda kind: kind.__name__)
def test_every_estimator_links_to_its_page(site, kind):
    room = "sklearn_xlc.decisions" if kind is Threshold else "sklearn_xlc"
    page = f"https://docs.example/xlc/generated/{room}.{kind.__name__}.html"
    nested = AggregatedLabelClassifier(MultiHeadClassifier())
    estimator = nested if kind is AggregatedLabelClassifier else kind()
    assert page in links_of(estimator)
    # The site has a page of this name.
    _, _, after = API.read_text(encoding="utf-8").partition(f".. currentmodule:: {room}\n")
    assert f"   {kind.__name__}\n" in after.partition("currentmodule")[0]


def test_parts_of_a_pipeline_have_links_of_their_own(site):
    model = make_pipeline(MaxAbsScaler(), EAGLETransformer())
    assert links_of(model) == {
        "https://docs.example/xlc/generated/sklearn_xlc.EAGLETransformer.html"
    }
    assert "scikit-learn.org" in model._repr_html_()


def test_classes_of_the_user_have_no_page(site):
    class Own(MultiHeadClassifier):
        pass

    assert not links_of(Own())
    assert "Documentation for" not in Own()._repr_html_()


def test_without_a_site_there_is_no_link(monkeypatch):
    monkeypatch.delenv("SKLEARN_XLC_DOCS", raising=False)
    monkeypatch.setattr(Path, "is_dir", lambda path: False)
    assert MultiHeadClassifier()._get_doc_link() == ""
    monkeypatch.setattr(Path, "is_dir", lambda path: path.parts[-3:] == ("docs", "_build", "html"))
    link = MultiHeadClassifier()._get_doc_link()
    assert link.startswith("file:///")
    assert link.endswith("docs/_build/html/generated/sklearn_xlc.MultiHeadClassifier.html")
