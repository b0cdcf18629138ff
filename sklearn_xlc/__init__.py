"""Extreme label classification for scikit-learn."""

from sklearn_xlc._version import __version__

__all__ = ["__version__"]
