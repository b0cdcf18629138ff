"""Save an estimator to a file and load it, without pickle."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from sklearn.base import BaseEstimator

from sklearn_xlc import _files
from sklearn_xlc.batches.randomness import usual_modes
from sklearn_xlc.engine.object_tree import describe, rebuild

_KIND = "model"


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Save an estimator to a file, without pickle.

    The file is a safetensors container, whose arrays other tools can read, with a description of
    the estimator in JSON. It holds the parameters once, versions of the packages, and a digest.
    It is written under a temporary name and renamed, so that there is the old file or the new one,
    never a part: a process that has loaded or is loading the old one keeps it.

    Parameters
    ----------
    estimator : estimator
        Fitted or unfitted estimator of this package or of scikit-learn: a classifier, a
        :class:`~sklearn.pipeline.Pipeline`, a search. Classes and functions of your own (an
        encoder, a head, a loss, a decision, a tokenizer) must be defined at the top level of a
        module, and are stored by name: `load` asks whether you trust them.
    path : str or path-like
        File to write. An existing one is replaced.

    Raises
    ------
    TypeError
        If the estimator holds something that cannot be described, such as a lambda or a tree of
        scikit-learn; the message says where. Save such an estimator by joblib.
    OSError
        If the file cannot be written; an existing one is left as it was.

    See Also
    --------
    load : Loads the file.

    Examples
    --------
    >>> import os, tempfile
    >>> import sklearn_xlc
    >>> from sklearn_xlc.datasets import make_extreme_multiclass
    >>> X, y = make_extreme_multiclass(300, 50, 10, random_state=0)
    >>> clf = sklearn_xlc.MultiHeadClassifier(max_epochs=2, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.xlc")
    ...     sklearn_xlc.save(clf, path)
    ...     loaded = sklearn_xlc.load(path)
    >>> bool((loaded.predict(X) == clf.predict(X)).all())
    True
    """
    if not isinstance(estimator, BaseEstimator) or isinstance(estimator, type):
        raise TypeError(f"save takes an estimator, got {estimator!r}")
    document, arrays = describe(estimator)
    _files.write(path, document, arrays, _KIND)


def load(path: str | os.PathLike[str], trusted: Iterable[Any] = ()) -> Any:
    """Load an estimator saved by :func:`save`, on any machine, with or without a GPU.

    The digest is checked, and nothing of the file is executed: it names classes, which are imported
    if they belong to this package, are estimators of scikit-learn or plain layers of torch.

    Parameters
    ----------
    path : str or path-like
        File written by :func:`save`.
    trusted : iterable of class, function or str, default=()
        Classes and functions of your own that the estimator may use, or their full names, such as
        ``["package.module.MyEncoder"]``.

    Returns
    -------
    estimator : estimator
        Estimator that predicts as the saved one, to the last bit on the same machine.

    Raises
    ------
    ValueError
        If the file is damaged, no file of :func:`save`, of the format of a later version, or names
        classes or functions that are not trusted.
    OSError
        If the file cannot be opened.

    Warns
    -----
    UserWarning
        If another version of this package or of scikit-learn wrote the file.

    See Also
    --------
    save : Saves an estimator.

    Examples
    --------
    >>> import os, tempfile
    >>> import sklearn_xlc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.xlc")
    ...     sklearn_xlc.save(sklearn_xlc.MultiHeadClassifier("cascade"), path)
    ...     sklearn_xlc.load(path)
    MultiHeadClassifier(algorithm='cascade')
    """
    document, arrays = _files.read(path, _KIND)
    try:
        with usual_modes(training=True):
            estimator = rebuild(document, arrays, trusted)
        if not isinstance(estimator, BaseEstimator):
            raise ValueError(f"it holds a {type(estimator).__name__}, which is no estimator")
    except ValueError as error:
        raise ValueError(f"cannot read {os.fsdecode(path)}: {error}") from error
    return estimator
