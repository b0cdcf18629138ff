"""Check and load model files."""

from __future__ import annotations

import contextlib
import os
import zipfile
from typing import Any

import sklearn_xlc
from sklearn_xlc._files import check_writable
from sklearn_xlc.serving import Answering


def loaded(path: str) -> Answering:
    """Load a model.

    Parameters
    ----------
    path : str
        File of :func:`sklearn_xlc.save`.

    Returns
    -------
    Answering
        Model.

    Raises
    ------
    ValueError
        If the file holds no classifier.
    OSError
        If there is no such file.
    """
    return Answering(sklearn_xlc.load(path), path)


def columns_of(answering: Answering, given: dict[str, Any]) -> Any:
    """Return the reader of tables of a model, with some parameters replaced.

    Parameters
    ----------
    answering : Answering
        Model.
    given : dict
        Parameters of :class:`~sklearn_xlc.TextColumns`; None leaves what the model knows.

    Returns
    -------
    TextColumns
        Reader of tables.

    Raises
    ------
    ValueError
        If neither the model nor `given` names columns of texts.
    """
    known = {} if answering.columns is None else answering.columns.get_params()
    params = known | {name: value for name, value in given.items() if value is not None}
    if params.get("columns") is None:
        raise ValueError(
            "the model does not know columns, as it was not made by sklearn-xlc fit: name those "
            "of the texts by --text"
        )
    return sklearn_xlc.TextColumns(**params)


def check_target(path: str) -> bool:
    """Raise unless a model may be written to a file; return whether it replaces one.

    ValueError: there is no such folder, or the file is no model. OSError: it cannot be written.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(folder):
        said = f"{path} is a folder" if os.path.isdir(path) else f"there is no folder {folder}"
        raise ValueError(f"{said}: name a file for the model")
    if os.path.exists(path) and not is_model(path):
        raise ValueError(
            f"{path} exists and holds no model, and is not replaced: name another file, or remove "
            "it"
        )
    check_writable(path)
    return os.path.exists(path)


def is_model(path: str) -> bool:
    """Return whether a file has the form of a model."""
    if not os.path.isfile(path):  # a pipe would be waited for
        return False
    with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        return "schema.json" in archive.namelist()
    return False
