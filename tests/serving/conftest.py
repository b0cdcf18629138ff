"""A model of texts, and its file."""

import gc

import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from _serving import TAGS, TEXTS
from sklearn_xlc import MultiHeadClassifier, save
from sklearn_xlc.encoders import MLP


@pytest.fixture(scope="package", autouse=True)
def unfrozen():
    """What a service keeps from the collector is given back; libraries stay (`GarbageOfTests`)."""
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def text_model():
    network = MultiHeadClassifier(encoder=MLP((8,)), max_epochs=2, random_state=0)
    return make_pipeline(TfidfVectorizer(), network).fit(TEXTS, TAGS)


@pytest.fixture
def path(tmp_path, text_model):
    """File of the model, which a test may replace."""
    save(text_model, tmp_path / "model.skops", exact=True)
    return tmp_path / "model.skops"
