"""Settings of the package and of scikit-learn per thread, and versions of dependencies."""

import contextlib
import importlib.metadata
import math
import platform
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from numbers import Integral, Real
from typing import Any

import sklearn

_DEFAULTS = {"dense_limit": 2 * 2**30, "distributed": "auto"}
_LOCAL = threading.local()  # settings that are not the defaults
_DEPENDENCIES = (
    "scikit-learn",
    "numpy",
    "scipy",
    "torch",
    "skorch",
    "joblib",
    "skops",
)


def get_config() -> dict[str, Any]:
    """Return a copy of the current settings, with scikit-learn's.

    Returns
    -------
    dict
        ``dense_limit``: bytes of the largest dense output and of what is held to compute it;
        ``distributed``: whether processes train together; and the settings of
        :func:`sklearn.get_config`, of which ``working_memory`` bounds temporary arrays.

    Examples
    --------
    >>> import sklearn_xlc
    >>> sklearn_xlc.get_config()["dense_limit"]
    2147483648
    """
    return {**sklearn.get_config(), **_DEFAULTS, **vars(_LOCAL)}


def set_config(
    *, dense_limit: int | None = None, distributed: Any = None, **of_sklearn: Any
) -> None:
    """Change the settings of this thread.

    Settings of scikit-learn are passed on to it, so these functions can replace scikit-learn's.

    Parameters
    ----------
    dense_limit : int, default=None
        Bytes that a dense output of `decision_function`, `predict_proba`, `predict_log_proba`,
        `predict`, `transform`, `predict_topk` or `predict_topk_sparse` may take, together with what
        is held while it is computed (batches shrink to what is left, down to an eighth of the
        output); a larger one raises ``MemoryError`` before it is allocated. None leaves the limit
        unchanged. The initial limit is 2 GiB.
    distributed : {"auto", True, False}, default=None
        Whether processes of a group train together, each on its part of every batch and with output
        weights of its part of the labels, see :mod:`sklearn_xlc.distributed`. "auto", the initial
        setting: in a process group. True: an error where there is none. None leaves it unchanged.
    **of_sklearn : dict
        Settings of :func:`sklearn.set_config`. `working_memory`, in MiB, bounds temporary logits in
        training, the batches of predictions and the blocks of labels of
        :mod:`sklearn_xlc.aggregation`.

    Raises
    ------
    ValueError
        If `dense_limit` is not a positive integer, or `distributed` is none of its values.
    TypeError
        If there is no such setting.

    Examples
    --------
    >>> import sklearn_xlc
    >>> sklearn_xlc.set_config(dense_limit=2 * 2**30)
    """
    if dense_limit is not None:
        if isinstance(dense_limit, bool) or not isinstance(dense_limit, Integral):
            raise ValueError(f"dense_limit must be a whole number of bytes, got {dense_limit!r}")
        if dense_limit < 1:
            raise ValueError(f"dense_limit must be at least 1 byte, got {dense_limit}")
    if distributed is not None and distributed not in ("auto", True, False):
        raise ValueError(f"distributed must be 'auto', True or False, got {distributed!r}")
    sklearn.set_config(**of_sklearn)
    if dense_limit is not None:
        _LOCAL.dense_limit = int(dense_limit)
    if distributed is not None:
        _LOCAL.distributed = distributed


@contextlib.contextmanager
def config_context(
    *, dense_limit: int | None = None, distributed: Any = None, **of_sklearn: Any
) -> Iterator[None]:
    """Change settings within a ``with`` block.

    Parameters
    ----------
    dense_limit : int, default=None
        See :func:`set_config`.
    distributed : {"auto", True, False}, default=None
        See :func:`set_config`.
    **of_sklearn : dict
        Settings of :func:`sklearn.config_context`.

    Yields
    ------
    None

    Examples
    --------
    >>> import sklearn_xlc
    >>> with sklearn_xlc.config_context(dense_limit=1000, transform_output="pandas"):
    ...     sklearn_xlc.get_config()["dense_limit"]
    1000
    """
    before = get_config()
    set_config(dense_limit=dense_limit, distributed=distributed, **of_sklearn)
    try:
        yield
    finally:
        set_config(**before)


@contextlib.contextmanager
def setting(variable: ContextVar[Any], value: Any) -> Iterator[Any]:
    """Set a variable of this context within the block, and yield the value."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def memory_limit() -> int:
    """Return the bytes that temporary arrays may take: scikit-learn's `working_memory`."""
    given = sklearn.get_config()["working_memory"]
    if not isinstance(given, Real) or not math.isfinite(given):
        raise ValueError(f"working_memory must be a finite number of MiB, got {given!r}")
    return max(1, int(float(given) * 2**20))


def show_versions() -> None:
    """Print the versions of Python, of this package and of its dependencies.

    Examples
    --------
    >>> import sklearn_xlc
    >>> sklearn_xlc.show_versions()  # doctest: +ELLIPSIS
    python: ...
    """
    print(f"python: {sys.version.split()[0]} on {platform.platform()}")
    package = sys.modules["sklearn_xlc"]  # has a version also if not installed
    print(f"sklearn-xlc: {package.__version__}")
    for name in _DEPENDENCIES:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            version = "not installed"
        print(f"{name}: {version}")
