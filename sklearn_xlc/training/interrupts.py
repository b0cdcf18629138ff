"""Ctrl-C in training: the first one ends the loop after the current step."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

#: Modules that call fits and have more to do than one: if they are on the stack, they are told.
#: Of scikit-learn, all but those that pass one fit on.
_CALLERS = ("joblib.", "sklearn.", "sklearn_xlc.estimators.aggregated_label.")
_PASS_ON = ("sklearn.base.", "sklearn.pipeline.", "sklearn.utils.")


class Interrupts:
    """Context in which Ctrl-C is taken down for the training loop, where it can be.

    The handler of the caller is asked first. If it raises ``KeyboardInterrupt``, as Python's own
    does, the first one is kept in `asked`, and the loop ends when it next looks; a second one is
    raised. The first one is raised, too, as long as `can_stop` is false, and where a caller has
    more to do than this fit and must be told: below joblib and scikit-learn's searches and
    ensembles, and in child processes. Signals reach the main thread only.

    Parameters
    ----------
    can_stop : callable
        Whether there is a model to keep: true once a step has been taken.

    Attributes
    ----------
    asked : bool
        Whether the loop is to end.
    raised : bool
        Whether a ``KeyboardInterrupt`` of the caller's handler has been raised.
    """

    def __init__(self, can_stop: Callable[[], bool]) -> None:
        self.can_stop = can_stop
        self.asked = self.raised = False
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(before):
            self._must_raise = _is_part_of_more()
            self._before = before
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._before is not None and signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: Any) -> None:
        try:
            self._before(number, frame)
        except KeyboardInterrupt:
            if self.asked or self._must_raise or not self.can_stop():
                self.raised = True
                raise
            self.asked = True


def _is_part_of_more() -> bool:
    """Whether a search or the like calls this fit, or this process is a child of another."""
    if multiprocessing.parent_process() is not None:
        return True
    frame: Any = sys._getframe()
    while frame is not None:
        module = f"{frame.f_globals.get('__name__', '')}."
        if module.startswith(_CALLERS) and not module.startswith(_PASS_ON):
            return True
        frame = frame.f_back
    return False
