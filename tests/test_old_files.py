"""Files of every format are read forever, and predict what they did when they were written.

`tests/data/make_models.py` wrote them, once. A failure here is mended in the package, by reading
what old files hold; the files stay as they are.
"""

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from sklearn.exceptions import InconsistentVersionWarning

from sklearn_xlc import _files, load, predict_topk, save

FILES = sorted((Path(__file__).parent / "data" / "models").glob("*.xlc"))
#: What a test run with other versions than those of the file warns of, and nothing else.
OF_VERSIONS = r"{} was written with (sklearn_xlc|scikit-learn|torch) \S+, this is "


def loaded(path, **params):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", OF_VERSIONS.format(re.escape(str(path))), UserWarning)
        warnings.simplefilter("ignore", InconsistentVersionWarning)  # scikit-learn's, of its own
        return load(path, **params)


def assert_answers(estimator, path):
    """Fail unless an estimator says what is written beside its file."""
    record = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    expected, X = record["answers"], record["X"]
    found = {name: getattr(estimator, name)(X) for name in expected if hasattr(estimator, name)}
    if "labels" in expected:
        found["labels"], found["scores"] = predict_topk(estimator, X, k=3)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if name in ("predict", "labels"):
            assert getattr(found[name], "tolist", lambda: found[name])() == values
        else:  # sums have other orders on other machines
            np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_predicts_what_it_did(path):
    estimator = loaded(path)
    assert_answers(estimator, path)
    estimator.get_params()  # those that came later have their defaults


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.InconsistentVersionWarning")
def test_later_versions_read_it_with_a_warning(monkeypatch):
    later = dict.fromkeys(_files.versions(), "99.0")
    monkeypatch.setattr(_files, "versions", lambda: later)
    path = FILES[0].with_name("pipeline.xlc")
    assert_answers(loaded(path), path)
    with pytest.warns(UserWarning, match=OF_VERSIONS.format(re.escape(str(path)))) as warned:
        load(path)
    ours = [w for w in warned if not issubclass(w.category, InconsistentVersionWarning)]
    assert len(ours) == 3


@pytest.mark.parametrize("name", ["flat", "format-2-int8", "format-2-int6"])
def test_a_mapped_file_predicts_what_it_did(name):
    path = FILES[0].with_name(f"{name}.xlc")
    assert_answers(loaded(path, mmap=True), path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_old_model_is_saved_again_and_trained_on(path, tmp_path):
    estimator = loaded(path)
    save(estimator, tmp_path / "again", storage="float32")
    assert_answers(load(tmp_path / "again"), path)
    if hasattr(estimator, "partial_fit"):
        X = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["X"]
        before = estimator.predict(X)
        estimator.partial_fit(X, before)
        assert len(estimator.predict(X)) == len(before)


def test_files_are_those_of_their_formats():
    """Without them nothing would be tested; formats 1 and 2 are both there."""
    formats = {}
    for path in FILES:
        with safe_open(path, framework="numpy") as file:
            formats.setdefault(file.metadata()["format"], []).append(path.stem)
    assert {kind: len(names) for kind, names in formats.items()} == {"1": 19, "2": 6}
    assert all(path.with_suffix(".json").exists() for path in FILES)
    assert sum(path.stat().st_size for path in FILES) < 300_000
