"""The picture of sizes: what the files take, and what the loaded models predict."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from _factories import make_learnable, quick
from sklearn_xlc import compress, save
from sklearn_xlc.metrics import topk_scorer
from sklearn_xlc.plotting import StorageDisplay


@pytest.fixture(scope="module")
def fitted():
    X, y = make_learnable(True)
    clf = quick("flat", encoder__hidden_layer_sizes=(256,), max_epochs=5)
    return make_pipeline(MaxAbsScaler(), clf).fit(X, y), X, y


def test_sizes_and_quality_are_those_of_the_files(fitted, tmp_path):
    model, X, y = fitted
    storages = ["float32", "int6", "int4"]
    display = StorageDisplay.from_estimator(model, X, y, storages=storages, ks=(1, 2))
    assert list(display.values) == ["precision@1", "precision@2"]
    for storage, size, value in zip(storages, display.sizes, display.values["precision@2"]):
        save(model, tmp_path / "model", storage=storage)
        assert size == (tmp_path / "model").stat().st_size
        assert value == topk_scorer("precision", k=2)(compress(model, storage), X, y)
    assert display.sizes[0] > 2 * display.sizes[1]
    np.testing.assert_array_equal(display.lines_[1].get_ydata(), display.values["precision@2"])
    heights = [bar.get_height() for bar in display.bars_]
    np.testing.assert_allclose(heights, np.array(display.sizes) / 1e6)
    ticks = [tick.get_text() for tick in display.ax_.get_xticklabels()]
    assert [tick.split("\n")[0] for tick in ticks] == storages
    # Lines lie before the bars, and the bars can be seen.
    assert display.ax_.get_zorder() > display.bars_[0].axes.get_zorder()
    assert not display.ax_.patch.get_visible()


def test_own_axes_and_style():
    first = StorageDisplay(["float32", "int4"], [3e8, 4e4], {"P@1": [0, 0]}).plot()
    ticks = [tick.get_text() for tick in first.ax_.get_xticklabels()]
    assert ticks == ["float32\n300.0 MB", "int4\n0.04 MB"]
    second = StorageDisplay(["int8"], [1e6], {"P@1": [0.5]}).plot(first.ax_, color="k")
    assert second.ax_ is first.ax_
    assert second.lines_[0].get_color() == "k"


def test_bad_parameters(fitted):
    model, X, y = fitted
    with pytest.raises(ValueError, match="storage"):
        StorageDisplay.from_estimator(model, X, y, storages=["int5"])
    with pytest.raises(ValueError, match="metric must be one of"):
        StorageDisplay.from_estimator(model, X, y, metric="nonsense")
