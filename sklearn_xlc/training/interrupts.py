"""Ctrl-C in training: the first one ends the loop after the current step."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

#: Modules that run many fits: if one is on the stack, the interrupt is raised. Of scikit-learn, all
#: but `_PASS_ON`, which run a single fit.
_CALLERS = ("joblib.", "sklearn.", "sklearn_xlc.estimators.aggregated_label.")
_PASS_ON = ("sklearn.base.", "sklearn.pipeline.", "sklearn.utils.")


class Interrupts:
    """Context manager to end training after the current step on Ctrl-C.

    The caller's handler runs first. If it raises ``KeyboardInterrupt``, as Python's own does, the
    first one sets `asked`, and the loop ends at its next check. A second one is raised. The first
    one is raised, too, while `can_stop` is false, below joblib and scikit-learn's searches and
    ensembles (which run more than this fit), and in child processes. `raised` tells of it. Signals
    reach the main thread only.
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
    """Return whether the fit is one of many (as in a search) or in a child process."""
    if multiprocessing.parent_process() is not None:
        return True
    frame: Any = sys._getframe()
    while frame is not None:
        module = f"{frame.f_globals.get('__name__', '')}."
        if module.startswith(_CALLERS) and not module.startswith(_PASS_ON):
            return True
        frame = frame.f_back
    return False
