"""Ctrl-C: the first ends the training after a step, the second is raised."""

import multiprocessing
import os
import signal
import threading

import joblib
import numpy as np
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.multioutput import ClassifierChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from skorch.callbacks import Callback

import sklearn_xlc
from _factories import make_learnable, quick
from sklearn_xlc import AggregatedLabelClassifier
from sklearn_xlc.training import WeightAveraging
from sklearn_xlc.training.interrupts import Interrupts

MESSAGE = "Training interrupted by user in epoch"


def ctrl_c(n_times=1):
    for _ in range(n_times):
        signal.raise_signal(signal.SIGINT)


class Press(Callback):
    """Press Ctrl-C at a step, and keep the weights that it leaves."""

    def __init__(self, step=4, times=1, when="on_batch_end", seen=None):
        self.step, self.times, self.when, self.seen = step, times, when, seen

    def __deepcopy__(self, memo):
        return Press(self.step, self.times, self.when, self.seen)

    def _count(self, net, when, training):
        n_steps = sum(len(row["batches"]) for row in net.history)
        if training and when == self.when and n_steps == self.step:
            ctrl_c(self.times)
            if self.seen is not None:
                self.seen.update({k: v.clone() for k, v in net.module_.state_dict().items()})

    def on_batch_begin(self, net, training=False, **kwargs):
        self._count(net, "on_batch_begin", training)

    def on_batch_end(self, net, training=False, **kwargs):
        self._count(net, "on_batch_end", training)


def weights(clf):
    return clf.net_.module_.state_dict()


def interrupted(**params):
    """Classifier whose fit of three steps an epoch was interrupted in the second one."""
    X, y = make_learnable(False)
    params = {"batch_size": 50, "max_epochs": 5, "callbacks": [Press()], **params}
    clf = quick("flat", **params)
    with pytest.warns(UserWarning, match=f"{MESSAGE} 2 of 5"):
        clf.fit(X, y)
    return clf


# --- the context ------------------------------------------------------------------------------


def test_the_first_is_noted_and_the_second_raised():
    before, interrupts = signal.getsignal(signal.SIGINT), Interrupts(lambda: True)
    with interrupts:
        ctrl_c()
        assert (interrupts.asked, interrupts.raised) == (True, False)
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()
    assert (interrupts.asked, interrupts.raised) == (True, True)
    assert signal.getsignal(signal.SIGINT) is before


def test_without_a_step_it_is_raised():
    with pytest.raises(KeyboardInterrupt), Interrupts(lambda: False) as interrupts:
        ctrl_c()
    assert (interrupts.asked, interrupts.raised) == (False, True)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda number, frame: None])
def test_handlers_that_do_not_raise_are_left_alone(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        with Interrupts(lambda: True) as interrupts:
            ctrl_c(2)
        assert (interrupts.asked, interrupts.raised) == (False, False)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_was_set_meanwhile_stays():
    before, other = signal.getsignal(signal.SIGINT), lambda number, frame: None
    try:
        with Interrupts(lambda: True):
            signal.signal(signal.SIGINT, other)
        assert signal.getsignal(signal.SIGINT) is other
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_set_no_handler():
    before, found = signal.getsignal(signal.SIGINT), []

    def run():
        with Interrupts(lambda: True):
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [before]


def raises_below():
    try:
        with Interrupts(lambda: True):
            ctrl_c()
    except KeyboardInterrupt:
        return True
    return False


def test_callers_that_have_more_to_do_are_told():
    assert not raises_below()
    assert joblib.Parallel(n_jobs=1)([joblib.delayed(raises_below)()]) == [True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the child must find this function")
def test_child_processes_raise():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(raises_below)


# --- fits -------------------------------------------------------------------------------------


def test_a_fit_ends_after_the_step_with_its_weights(tmp_path):
    X, y = make_learnable(False)
    seen = {}
    clf = interrupted(callbacks=[Press(seen=seen)])
    assert seen
    assert all(value.equal(seen[name]) for name, value in weights(clf).items())
    assert (clf.n_iter_, clf.t_, [row["epoch"] for row in clf.history_]) == (2, 4, [1, 2])
    assert np.isfinite(clf.loss_curve_).all()
    clf.set_params(callbacks=None)
    sklearn_xlc.save(clf, tmp_path / "model", exact=True)
    loaded = sklearn_xlc.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), clf.predict(X))
    assert loaded.history_ == clf.history_
    assert clf.set_params(warm_start=True).fit(X, y).n_iter_ == 2 + 5  # all epochs again
    assert clf.loss_curve_[-1] < clf.loss_curve_[0]


def test_averages_are_applied_and_decisions_fitted():
    seen = {}
    clf = interrupted(callbacks=[WeightAveraging("ema"), Press(seen=seen)])
    assert not all(value.equal(seen[name]) for name, value in weights(clf).items())
    X, Y = make_learnable(True)
    many = quick("flat", batch_size=50, max_epochs=5, callbacks=[Press()], decision="threshold")
    with pytest.warns(UserWarning, match=MESSAGE):
        many.fit(X, Y)
    assert many.predict(X).shape == Y.shape


def test_early_stopping_gives_the_weights_of_the_best_epoch():
    clf = interrupted(early_stopping=True, callbacks=[Press(step=5)])  # 1 of 4 is held out
    assert "valid_loss" in clf.history_[0]
    assert "valid_loss" not in clf.history_[1]
    X, y = make_learnable(False)
    one = quick("flat", batch_size=50, early_stopping=True, max_epochs=5, callbacks=[Keep()])
    one.fit(X, y)
    (kept,) = [c.kept for _, c in one.net_.callbacks_ if isinstance(c, Keep)]
    assert all(value.equal(kept[name]) for name, value in weights(clf).items())


class Keep(Callback):
    """Keep the weights after the first epoch."""

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == 1:
            self.kept = {k: v.clone() for k, v in net.module_.state_dict().items()}


@pytest.mark.parametrize("press", [Press(step=4, times=2), Press(step=1, when="on_batch_begin")])
def test_the_second_and_one_before_the_first_step_change_nothing(press):
    X, y = make_learnable(False)
    clf = quick("flat", batch_size=50, max_epochs=5).fit(X, y)
    before, state = clf.decision_function(X), dict(vars(clf))
    clf.set_params(callbacks=[press])
    with pytest.raises(KeyboardInterrupt):
        clf.fit(X[::2], y[::2])
    assert vars(clf) == {**state, "callbacks": [press]}
    np.testing.assert_array_equal(clf.decision_function(X), before)


def test_a_first_fit_without_a_step_leaves_nothing_fitted():
    clf = quick("flat", callbacks=[Press(step=1, when="on_batch_begin")])
    with pytest.raises(KeyboardInterrupt):
        clf.fit(*make_learnable(False))
    assert vars(clf) == clf.get_params(deep=False)


def test_between_two_epochs_and_at_the_end():
    X, y = make_learnable(False)
    clf = quick("flat", batch_size=50, max_epochs=5, callbacks=[Press(step=6)])
    with pytest.warns(UserWarning, match=f"{MESSAGE} 2 of 5"):
        clf.fit(X, y)
    assert (clf.n_iter_, clf.t_) == (2, 6)
    whole = quick("flat", batch_size=50, max_epochs=2).fit(X, y)
    clf = quick("flat", batch_size=50, max_epochs=2, callbacks=[Press(step=6)])
    with pytest.warns(UserWarning, match=f"{MESSAGE} 2 of 2"):
        clf.fit(X, y)
    assert clf.history_ == whole.history_


def test_in_the_validation_after_an_epoch():
    X, y = make_learnable(False)
    # Two training steps an epoch; batches of validation count, too.
    clf = quick("flat", batch_size=70, max_epochs=5, early_stopping=True, callbacks=[Press(step=2)])
    with pytest.warns(UserWarning, match=f"{MESSAGE} 1 of 5"):
        clf.fit(X, y)
    assert (clf.n_iter_, clf.t_) == (1, 2)


@pytest.mark.parametrize(
    "more",
    [
        lambda clf, X, y: cross_val_score(clf, X, y, cv=2),
        lambda clf, X, y: ClassifierChain(clf).fit(X, np.eye(2)[y]),  # a loop without joblib
        lambda clf, X, y: AggregatedLabelClassifier(clf).fit(X, y, groups=np.arange(150) // 3 * 3),
    ],
)
def test_a_search_is_stopped(more):
    X, _ = make_learnable(False)
    y = np.repeat(np.arange(50) % 2, 3)
    with pytest.raises(KeyboardInterrupt):
        more(quick("flat", batch_size=50, max_epochs=5, callbacks=[Press()]), X, y)


def test_the_last_step_of_a_pipeline_is_kept():
    X, y = make_learnable(False)
    clf = quick("flat", batch_size=50, max_epochs=5, callbacks=[Press()])
    with pytest.warns(UserWarning, match=f"{MESSAGE} 2 of 5"):
        model = make_pipeline(MaxAbsScaler(), clf).fit(X, y)
    assert model.predict(X).shape == y.shape


def test_callbacks_may_stop_a_fit_as_in_skorch():
    class Stop(Callback):
        def on_epoch_end(self, net, **kwargs):
            if len(net.history) == 3:
                raise KeyboardInterrupt

    X, y = make_learnable(False)
    clf = quick("flat", callbacks=[Stop()])
    with pytest.warns(UserWarning, match=f"{MESSAGE} 3 of 80"):
        clf.fit(X, y)
    assert clf.n_iter_ == 3


def test_with_checkpoints_the_same_fit_goes_on(tmp_path):
    X, y = make_learnable(False)
    params = {"batch_size": 50, "max_epochs": 5, "encoder__dropout": 0.3}
    whole = quick("flat", **params).fit(X, y)
    presses = [True]

    class Once(Callback):
        def on_batch_end(self, net, **kwargs):
            if len(net.history) == 3 and presses:
                ctrl_c(presses.pop())

    clf = quick("flat", checkpoint=str(tmp_path), callbacks=[Once()], **params)
    with pytest.warns(UserWarning, match=f"{MESSAGE} 3 of 5"):
        clf.fit(X, y)
    clf.fit(X, y)
    assert clf.history_ == whole.history_
    assert all(value.equal(weights(whole)[name]) for name, value in weights(clf).items())


@pytest.mark.integration
def test_partial_fit_raises():
    X, y = make_learnable(False)
    clf = quick("flat", batch_size=50).fit(X, y)
    before = clf.decision_function(X)
    clf.set_params(callbacks=[Press(step=2)])
    with pytest.raises(KeyboardInterrupt):
        clf.partial_fit(X, y)
    assert (clf.decision_function(X) != before).any()  # it keeps the steps taken so far
