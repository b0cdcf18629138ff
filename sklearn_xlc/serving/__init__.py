"""Serve a model over HTTP: batches of requests, reload of its file, health and metrics.

It needs the extra ``serving``: ``pip install sklearn-xlc[serving]``. The command ``sklearn-xlc
serve model.skops`` runs it, and so does any ASGI server that is given `create_app`.
"""

from collections.abc import Callable
from typing import Any

from sklearn_xlc._compat import imported
from sklearn_xlc.serving.answering import Answering
from sklearn_xlc.serving.service import Model, ModelFile, as_input, read_model

__all__ = ["Model", "ModelFile", "as_input", "create_app", "read_model"]


def create_app(path: Any = None, read: Callable[[Any], Model] | None = None) -> Any:
    """Make the application, with the settings of the environment.

    Parameters
    ----------
    path : str or path-like, default=None
        File of the model. None: that of the variable ``XLC_MODEL``.
    read : callable, default=None
        Makes a :class:`Model` of a file. None: :func:`read_model`.

    Returns
    -------
    FastAPI
        Application for an ASGI server.

    Raises
    ------
    ImportError
        If a package of the extra ``serving`` is missing.
    """
    message = "serving needs the extra serving: pip install sklearn-xlc[serving]"
    return imported("sklearn_xlc.serving.app", message).create_app(path, read)
