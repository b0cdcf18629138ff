"""Large weights: written from the model, and read where they belong."""

import io
import tracemalloc
import zipfile

import numpy as np
import pytest
import skops.io

from _factories import quick
from sklearn_xlc import load, save
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.encoders import MLP


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.skops"


@pytest.mark.parametrize("exact", [True, False])
def test_large_weights_are_written_and_read_in_place(exact, path):
    X, Y = make_extreme_multilabel(150, 6000, 30, random_state=0)
    clf = quick("flat", encoder=MLP((2000,)), max_epochs=1).fit(X, Y)
    save(clf, path, exact=exact)  # what is imported is not counted
    n_bytes = 4 * clf.n_parameters_

    def peak(function):
        tracemalloc.start()
        try:
            return function(), tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    _, beside = peak(lambda: save(clf, path, exact=exact))
    assert beside < 0.8 * n_bytes  # NumPy writes 16 MiB at a time
    loaded, taken = peak(lambda: load(path))
    assert taken < 1.5 * n_bytes
    plain = skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path))
    expected = loaded.decision_function(X)
    np.testing.assert_array_equal(plain.decision_function(X), expected)
    if exact:
        np.testing.assert_array_equal(clf.decision_function(X), expected)


@pytest.mark.parametrize("place", [b"weights-99.npy", b"schema.json", b"other", b"\xff", 7])
def test_a_name_in_place_of_weights_is_refused_unless_it_is_theirs(place, path):
    X, Y = make_extreme_multilabel(150, 2000, 400, random_state=0)
    save(quick("flat", encoder=MLP((64,)), max_epochs=1).fit(X, Y), path, exact=True)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    one, other = sorted(name for name in members if name.startswith("weights-"))
    del members[one]
    content = io.BytesIO()
    np.save(content, np.array(other.encode() if place == b"other" else place))
    members["1000.npy"] = content.getvalue()
    members["schema.json"] = members["schema.json"].replace(one.encode(), b"1000.npy")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(ValueError, match="cannot read"):
        load(path)
