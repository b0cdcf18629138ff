"""The picture of a training shows what the history has."""

import pickle

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from _factories import make_learnable, quick
from sklearn_xlc.plotting import TrainingCurveDisplay

pytest.importorskip("matplotlib").use("agg")
HISTORY = [
    {"epoch": 1, "train_loss": 8.0, "valid_loss": 6.0, "valid_precision_at_1": 0.2, "mine": 1.0},
    {"epoch": 2, "train_loss": 4.0, "valid_loss": 5.0, "valid_precision_at_1": 0.4, "mine": 2.0},
    {"epoch": 3, "train_loss": 3.0},  # interrupted
]


@pytest.fixture(autouse=True)
def _close():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def curves(ax):
    return {line.get_label(): line.get_ydata() for line in ax.lines}


def test_losses_and_precision():
    display = TrainingCurveDisplay(HISTORY).plot()
    losses, scores = curves(display.ax_), curves(display.scores_ax_)
    np.testing.assert_array_equal(losses["training loss"], [8, 4, 3])
    np.testing.assert_array_equal(losses["held-out loss"], [6, 5, np.nan])
    np.testing.assert_array_equal(scores["P@1"], [0.2, 0.4, np.nan])
    assert (set(losses), set(scores)) == ({"training loss", "held-out loss"}, {"P@1"})
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts == ["training loss", "held-out loss", "P@1"]
    assert display.figure_ is display.ax_.figure


def test_scores_may_be_chosen():
    display = TrainingCurveDisplay(HISTORY).plot(scores=["mine"])
    assert list(curves(display.scores_ax_)) == ["mine"]
    assert TrainingCurveDisplay(HISTORY).plot(scores=[]).scores_ax_ is None
    with pytest.raises(ValueError, match="there is no 'other' in the history, which has"):
        TrainingCurveDisplay(HISTORY).plot(scores=["other"])


def test_from_a_classifier_that_was_saved_within_a_pipeline():
    import matplotlib.pyplot as plt

    X, y = make_learnable(False)
    model = make_pipeline(MaxAbsScaler(), quick("flat", max_epochs=2)).fit(X, y)
    ax = plt.subplots()[1]
    display = TrainingCurveDisplay.from_estimator(pickle.loads(pickle.dumps(model)), ax=ax)
    assert display.ax_ is ax
    np.testing.assert_array_equal(curves(ax)["training loss"], model[-1].loss_curve_)


def test_what_cannot_be_drawn():
    with pytest.raises(ValueError, match="MultiHeadClassifier has no history_"):
        TrainingCurveDisplay.from_estimator(quick("flat"))
    with pytest.raises(ValueError, match="history is empty"):
        TrainingCurveDisplay([]).plot()
