"""A training that was killed goes on from its checkpoint."""

import numpy as np
import pytest
from skorch.callbacks import Callback, Checkpoint, LoadInitState

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multiclass


class Kill(Callback):
    """Die at the end of an epoch."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == self.epoch:
            raise RuntimeError("killed")


@pytest.mark.parametrize("algorithm", ["flat", "product", "cascade", "sampling"])
def test_resumed_training_ends_like_one_that_was_never_killed(algorithm, tmp_path):
    X, y = make_extreme_multiclass(1500, 200, 40, random_state=0)
    checkpoint = Checkpoint(monitor=None, dirname=tmp_path)

    def fit(*callbacks):
        clf = MultiHeadClassifier(
            algorithm,
            hidden_layer_sizes=(32,),
            max_epochs=8,
            dropout=0.0,
            callbacks=list(callbacks),
            random_state=0,
        )
        return clf.fit(X, y)

    whole = fit()
    with pytest.raises(RuntimeError, match="killed"):
        fit(checkpoint, Kill(3))
    resumed = fit(LoadInitState(checkpoint))
    assert resumed.n_iter_ == whole.n_iter_ == 8
    # The first epochs are the killed run's own; the order of rows differs after them.
    np.testing.assert_array_equal(resumed.loss_curve_[:3], whole.loss_curve_[:3])
    np.testing.assert_allclose(resumed.loss_curve_[-1], whole.loss_curve_[-1], rtol=0.15)
