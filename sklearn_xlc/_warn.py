"""Warnings, at the line of the user's call."""

from __future__ import annotations

import sys
import warnings

#: Packages whose frames stand between the user's call and the warning.
_BETWEEN = {"sklearn_xlc", "sklearn", "skorch", "torch", "joblib", "contextlib", "functools"}


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called into this package, or scikit-learn, whatever lies between.

    A thread of this package knows no such line: the warning is then at the line that gives it.

    Parameters
    ----------
    message : str
        What to tell.
    category : type of Warning, default=UserWarning
        Class of the warning.

    Examples
    --------
    >>> import warnings
    >>> from sklearn_xlc._warn import warn
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn("look here")
    >>> caught[0].message
    UserWarning('look here')
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        if frame.f_back is None:
            level = 2
            break
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
