"""Save an estimator to a file and load it, without pickle; store its weights in fewer bits."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc import _files
from sklearn_xlc.batches.randomness import usual_modes
from sklearn_xlc.distributed.fetching import Fetching
from sklearn_xlc.distributed.gathering import joining
from sklearn_xlc.engine.object_tree import describe, rebuild
from sklearn_xlc.engine.packing import storing

_KIND = "model"


def save(estimator: Any, path: str | os.PathLike[str], storage: str = "int6") -> None:
    """Save an estimator to a file, without pickle.

    By default the weights of networks are rounded to 6 bits: the file has a fifth of the exact
    size. Precision stays the same within noise, but scores change by about 0.4%. The loaded model
    predicts as ``compress(estimator, storage)``, bit for bit; with ``storage="float32"`` it
    predicts as `estimator`.

    The file is a safetensors container with a description of the estimator in JSON, the versions of
    the packages and a digest; other tools can read its arrays. It is written under a temporary name
    and renamed, so a failed save leaves the old file, and processes keep an old file they have
    loaded. If several processes hold parts of a model (:mod:`sklearn_xlc.distributed`), all call
    this function, and the first one writes the file.

    Parameters
    ----------
    estimator : estimator
        Fitted or unfitted estimator of this package or of scikit-learn: a classifier, a
        :class:`~sklearn.pipeline.Pipeline`, a search. Classes and functions of your own (an
        encoder, a head, a loss, a decision, a tokenizer) must be defined at the top level of a
        module. They are stored by name: pass them to `load` as `trusted`.
    path : str or path-like
        File to write. An existing one is replaced.
    storage : {"int6", "float32", "float16", "int8", "int4"}, default="int6"
        How the weights of networks are stored.

        - "int6": integers of 6 bits, with a scale for each 128 numbers of a row.
        - "float32": exact, whatever the precision of the model: a float64 model stays float64.
        - "float16": half precision.
        - "int8": integers of 8 bits, with a scale for each 256 numbers of a row; a quarter of the
          exact size, and scores change by about a thousandth.
        - "int4": integers of 4 bits, with a scale for each 64 numbers of a row; an eighth of the
          exact size, for about a tenth of a point of precision.

        Only weight matrices of at least 4096 numbers are rounded; biases, norms, labels and
        everything outside of networks stay exact. Rows of zeros take no space in rounded matrices
        (columns of X without an entry in training have such rows). Weights already rounded to fewer
        bits stay as they are.

    Raises
    ------
    ValueError
        If there is no such storage, or a weight is not finite or too large for it.
    TypeError
        If the estimator holds something without a description, such as a lambda or a tree of
        scikit-learn; the message says where. Use joblib for such an estimator.
    OSError
        If the file cannot be written; an existing one is left as it was.

    See Also
    --------
    load : Loads the file.
    compress : Rounds the weights in memory, for joblib or pickle.

    Examples
    --------
    >>> import os, tempfile
    >>> import sklearn_xlc
    >>> from sklearn_xlc.datasets import make_extreme_multiclass
    >>> X, y = make_extreme_multiclass(300, 50, 10, random_state=0)
    >>> clf = sklearn_xlc.MultiHeadClassifier(max_epochs=2, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.xlc")
    ...     sklearn_xlc.save(clf, path, storage="float32")
    ...     exact, n_bytes = sklearn_xlc.load(path), os.path.getsize(path)
    ...     sklearn_xlc.save(clf, path)
    ...     loaded, n_fewer = sklearn_xlc.load(path), os.path.getsize(path)
    >>> bool((exact.decision_function(X) == clf.decision_function(X)).all())
    True
    >>> n_fewer < n_bytes / 3, bool((loaded.predict(X) == clf.predict(X)).mean() > 0.9)
    (True, True)
    """
    _check_estimator("save", estimator)
    with storing(storage), Fetching() as fetching, joining(fetching.table):
        document, arrays = describe(estimator)
        if fetching.reads:  # the others stay until the file is there
            _files.write(path, document, arrays, _KIND)


def compress(estimator: Any, storage: str = "int6") -> Any:
    """Copy a fitted estimator, with its weights rounded to fewer bits.

    The copy predicts with rounded weights. joblib, pickle and :func:`save` store them as integers
    and scales: a ``joblib.dump`` of the copy is as small as a file of :func:`save`, and the loaded
    estimator predicts as the copy, bit for bit. In memory the copy is as large as `estimator`.
    After further training by `partial_fit` or `warm_start` its weights are stored exactly again.
    :func:`~sklearn.base.clone` makes an ordinary unfitted estimator of it.

    Parameters
    ----------
    estimator : estimator
        Fitted classifier of this package, or a :class:`~sklearn.pipeline.Pipeline` or search with
        one. It is not changed.
    storage : {"int6", "float32", "float16", "int8", "int4"}, default="int6"
        Storage of the weights, as in :func:`save`; "float32" does not round.

    Returns
    -------
    compressed : estimator
        Fitted copy.

    Raises
    ------
    ValueError
        If there is no such storage, or a weight is not finite or too large for it.
    NotFittedError
        If the estimator is not fitted.

    See Also
    --------
    save : Rounds weights as they are written.

    Notes
    -----
    Memory maps (``joblib.load(path, mmap_mode="r")``) share exact weights only: rounded ones are
    expanded in each process.

    Examples
    --------
    >>> import pickle
    >>> import sklearn_xlc
    >>> from sklearn_xlc.datasets import make_extreme_multiclass
    >>> X, y = make_extreme_multiclass(300, 50, 10, random_state=0)
    >>> clf = sklearn_xlc.MultiHeadClassifier(max_epochs=2, random_state=0).fit(X, y)
    >>> small = sklearn_xlc.compress(clf)
    >>> len(pickle.dumps(small)) < len(pickle.dumps(clf)) / 4
    True
    """
    _check_estimator("compress", estimator)
    check_is_fitted(estimator)
    with storing(storage):
        return copy.deepcopy(estimator)


def _check_estimator(function: str, estimator: Any) -> None:
    if not isinstance(estimator, BaseEstimator) or isinstance(estimator, type):
        raise TypeError(f"{function} takes an estimator, got {estimator!r}")


def load(path: str | os.PathLike[str], trusted: Iterable[Any] = (), mmap: bool = False) -> Any:
    """Load an estimator saved by :func:`save`, on any machine, with or without a GPU.

    The digest is checked, and no code of the file is executed. The file names classes; `load`
    imports classes of this package, estimators of scikit-learn, plain layers of torch, and the
    classes in `trusted`.

    Parameters
    ----------
    path : str or path-like
        File written by :func:`save`.
    trusted : iterable of class, function or str, default=()
        Classes and functions of your own that the estimator may use, or their full names, such as
        ``["package.module.MyEncoder"]``.
    mmap : bool, default=False
        Whether to map the file into memory, read-only: processes then share one copy of its arrays.
        Only weights saved with ``storage="float32"`` are shared; rounded weights are expanded in
        each process. `partial_fit` copies the weights first. Scores may differ in the last digit,
        since sums of products depend on memory alignment. The file may be replaced, as :func:`save`
        does, but must not be overwritten in place: truncating it kills the processes mapping it.

    Returns
    -------
    estimator : estimator
        Estimator with the predictions of the saved one, bit for bit on the same machine, up to the
        rounding of `storage`.

    Raises
    ------
    ValueError
        If the file is damaged, was not written by :func:`save`, has the format of a later version,
        or names untrusted classes or functions.
    OSError
        If the file cannot be opened.
    TypeError
        If `mmap` is not a bool.

    Warns
    -----
    UserWarning
        If another version of this package, of scikit-learn or of torch wrote the file.

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
    MultiHeadClassifier(head='cascade')
    """
    if not isinstance(mmap, bool):
        raise TypeError(f"mmap must be a bool, got {mmap!r}")
    if mmap:
        document, arrays = _files.read_mapped(path, _KIND, verify=True)
    else:
        document, arrays = _files.read(path, _KIND)
    try:
        with usual_modes(training=True):
            estimator = rebuild(document, arrays, trusted)
        if not isinstance(estimator, BaseEstimator):
            raise ValueError(f"it holds a {type(estimator).__name__}, which is no estimator")
    except ValueError as error:
        raise ValueError(f"cannot read {os.fsdecode(path)}: {error}") from error
    return estimator
