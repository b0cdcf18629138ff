"""Settings of the package and of scikit-learn per thread, and versions of dependencies."""

import contextlib
import importlib.metadata
import platform
import sys
import threading
from collections.abc import Iterator
from numbers import Integral
from typing import Any

import sklearn

_DEFAULTS = {"dense_limit": 2 * 2**30}
_LOCAL = threading.local()
_DEPENDENCIES = (
    "scikit-learn",
    "numpy",
    "scipy",
    "torch",
    "skorch",
    "joblib",
    "safetensors",
)


def _settings() -> dict[str, Any]:
    if not hasattr(_LOCAL, "settings"):
        _LOCAL.settings = dict(_DEFAULTS)
    return _LOCAL.settings


def get_config() -> dict[str, Any]:
    """Return a copy of the current settings, with scikit-learn's.

    Returns
    -------
    dict
        ``dense_limit``: bytes of the largest dense output and of the arrays to compute it; and the
        settings of :func:`sklearn.get_config`.

    Examples
    --------
    >>> import sklearn_xlc
    >>> sklearn_xlc.get_config()["dense_limit"]
    2147483648
    """
    return {**sklearn.get_config(), **_settings()}


def set_config(*, dense_limit: int | None = None, **of_sklearn: Any) -> None:
    """Change the settings of this thread.

    Settings of scikit-learn are passed on to it, so these functions can replace scikit-learn's.

    Parameters
    ----------
    dense_limit : int, default=None
        Largest size in bytes of a dense output of `decision_function`, `predict_proba`, `predict`,
        `transform`, `predict_topk` or `predict_topk_sparse`, with the arrays to compute it (batches
        shrink to the remaining memory, down to an eighth of the output). A larger output raises
        ``MemoryError`` before it is allocated. None leaves the limit unchanged. The initial limit
        is 2 GiB.
    **of_sklearn : dict
        Settings of :func:`sklearn.set_config`.

    Raises
    ------
    ValueError
        If `dense_limit` is not a positive integer.
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
    sklearn.set_config(**of_sklearn)
    if dense_limit is not None:
        _settings()["dense_limit"] = int(dense_limit)


@contextlib.contextmanager
def config_context(*, dense_limit: int | None = None, **of_sklearn: Any) -> Iterator[None]:
    """Change settings within a ``with`` block.

    Parameters
    ----------
    dense_limit : int, default=None
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
    set_config(dense_limit=dense_limit, **of_sklearn)
    try:
        yield
    finally:
        set_config(**before)


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
