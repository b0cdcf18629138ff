"""Versions of what the package runs on, for reports of problems."""

import importlib.metadata
import platform
import sys

_DEPENDENCIES = ("sklearn-xlc", "scikit-learn", "numpy", "scipy", "torch", "skorch", "joblib")


def show_versions() -> None:
    """Print the versions of Python, of this package and of its dependencies.

    Examples
    --------
    >>> import sklearn_xlc
    >>> sklearn_xlc.show_versions()  # doctest: +ELLIPSIS
    python: ...
    """
    print(f"python: {sys.version.split()[0]} on {platform.platform()}")
    for name in _DEPENDENCIES:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            version = "not installed"
        print(f"{name}: {version}")
