"""Save an estimator to a file and load it, without pickle; store its weights in fewer bits."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import mmap
import os
import pkgutil
import sys
import zipfile
import zlib
from collections.abc import Callable, Container, Iterable, Iterator
from typing import IO, Any, BinaryIO

import numpy as np
import sklearn.metrics
from sklearn import model_selection
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc import decisions, encoders, heads, metrics, optimizers, ranking
from sklearn_xlc._carrying import BESIDE, carried_names, carrying, states_now, without_large
from sklearn_xlc._csr import row_blocks
from sklearn_xlc._files import check_ordinary, replacing
from sklearn_xlc.batches import usual_modes
from sklearn_xlc.distributed import ALONE, reading_together
from sklearn_xlc.engine.memory import refuse_beyond
from sklearn_xlc.engine.rebuilding import check_rebuilt, nodes
from sklearn_xlc.engine.state import check_loaded

#: Start of the comment of a file, followed by the CRC-32 of all bytes before the eight digits. Each
#: member has one of its own besides; SHA-256 would take a third of the time of saving and loading.
_CHECKSUM = b"crc32:"
#: Members of a file that are smaller stay as they are.
_SMALL = 2**12
#: Entries of a dict that is described as a whole, at least, and the types of its values.
_MANY, _PLAIN = 1000, {int, str}
#: Methods of members. Others inflate without a limit, whatever size is declared.
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
#: Bytes at the end of an archive that must hold its directory: SciPy's has at most six names.
_END = 2**16
#: What a file may use of other packages, beyond what skops trusts itself.
_OF_OTHERS = (
    "numpy.dtype",
    "scipy.sparse._csr.csr_array",
    "scipy.sparse._csr.csr_matrix",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.feature_selection._univariate_selection.chi2",
    "sklearn.feature_selection._univariate_selection.f_classif",
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.metrics._scorer._Scorer",
    "sklearn.utils._bunch.Bunch",
)
#: Address in this process, by which vectorizers of scikit-learn know words that they have checked.
_STOP_WORDS = "_stop_words_id"
#: Functions of :mod:`sklearn.metrics` that compute a number from labels and predictions.
_ENDS_OF_METRICS = ("_error", "_loss", "_score")


def save(estimator: Any, path: str | os.PathLike[str], exact: bool = False) -> None:
    """Save an estimator to a file, without pickle.

    By default the weights of networks are rounded to six bits, a fifth of the exact bytes; with
    lists the file has a fifth to a third. Precision stays the same within noise, but scores change
    by about 0.4%. The loaded model predicts as ``compress(estimator)``, bit for bit; with
    ``exact=True`` it predicts as `estimator`.

    The file is in the format of :func:`skops.io.dump`, which opens it, too. It is written under a
    temporary name and renamed: a failed save leaves the old file. If several processes hold parts
    of a model (:mod:`sklearn_xlc.distributed`), all call this function, and the first one writes.

    Parameters
    ----------
    estimator : estimator
        Fitted or unfitted estimator of this package or of scikit-learn: a classifier, a
        :class:`~sklearn.pipeline.Pipeline`, a search. Classes and functions of your own (an
        encoder, a head, a loss, a decision, a tokenizer) must be defined at the top level of a
        module. They are stored by name: pass them to `load` as `trusted`.
    path : str or path-like
        File to write. An existing one is replaced.
    exact : bool, default=False
        Whether weights are stored as they are. False: matrices of at least 4096 numbers become
        integers of six bits, with a scale for each 128 numbers of a row. Biases, norms, labels and
        everything outside of networks stay exact. Rows of zeros take no space (columns of X without
        an entry in training have such rows).

    Raises
    ------
    ValueError
        If a weight is not finite, or too large to be rounded.
    TypeError
        If the estimator holds something that has no plain form, such as a lambda or a torch module,
        or that would not come back, such as ``pandas.NA``; use joblib for it.
    OSError
        If the file cannot be written. A ConnectionError in the other processes.

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
    ...     path = os.path.join(folder, "model.skops")
    ...     sklearn_xlc.save(clf, path, exact=True)
    ...     loaded = sklearn_xlc.load(path)
    >>> bool((loaded.decision_function(X) == clf.decision_function(X)).all())
    True
    """
    _check_estimator("save", estimator)
    with carrying(not exact, beside=True) as states, reading_together() as shared:
        members = _members(_dumped(estimator), states.beside)
    processes, is_written = shared[0] if shared else ALONE, False
    try:
        if processes.is_first:
            with replacing(os.fsdecode(path)) as file:
                _write(members, file)
        is_written = True
    finally:
        is_written = processes.of_first(is_written)  # the others wait for the file
    if not is_written:
        raise ConnectionError(f"the first process could not write {path}: its message says why")


def _dumped(estimator: Any) -> zipfile.ZipFile:
    """Return a file of skops, in memory."""
    import skops.io  # it imports all of scikit-learn

    _describe_vocabularies()
    content = io.BytesIO()
    try:
        skops.io.dump(estimator, content)
    except (MemoryError, ValueError):
        raise
    except Exception as error:
        raise TypeError(
            f"{type(estimator).__name__} cannot be saved: it holds something without a plain form "
            f"({error}), such as a torch module or an open file; give an encoder as a class, a "
            "function or a part, or use joblib"
        ) from error
    return zipfile.ZipFile(content)


@functools.cache
def _describe_vocabularies() -> None:
    """Let skops describe a vocabulary by one node, while `save` is at work.

    It has a node for each word, of several hundred bytes, and reads one node as well. Where another
    version of skops has no such places, files are larger.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from skops.io import _general, _utils

        _utils._get_state.register(dict)(functools.partial(_described, _general.dict_get_state))


def _described(usual: Callable[[Any, Any], Any], value: Any, context: Any) -> Any:
    """Describe a dict of words and whole numbers or words as JSON, and others as usual."""
    is_large = states_now().is_beside and type(value) is dict and len(value) >= _MANY
    if not is_large or {*map(type, value)} != {str} or not {*map(type, value.values())} <= _PLAIN:
        return usual(value, context)
    node = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode"}
    return {**node, "content": json.dumps(value), "is_json": True}


def _members(dumped: zipfile.ZipFile, beside: dict[int, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the members of a skops file by name; equal models have equal files.

    `beside`: arrays by the address of what stands for them; these members are the arrays.
    """
    schema, numbers = json.loads(dumped.read("schema.json")), dict[Any, int]()
    for name in sorted(_numbered(schema, numbers, beside)):
        _check_name(name)
    check_rebuilt(schema)
    for name in dumped.namelist():
        address, ending = _parts_of(name)
        if address in beside:
            yield f"{BESIDE}{numbers[address]}.{ending}", beside[address]
        elif ending != "json":
            yield f"{numbers[address]}.{ending}", dumped.read(name)
    yield "schema.json", json.dumps(schema).encode()


def _parts_of(name: str) -> tuple[Any, str]:
    """Return the address and the ending of a member of skops; that of bytes is a word."""
    address, _, ending = name.partition(".")
    return int(address) if address.isdigit() else address, ending


def _numbered(schema: Any, numbers: dict[Any, int], beside: Container[Any]) -> set[str]:
    """Replace the addresses of objects in a description by numbers, in their order.

    Returns the names of classes and functions.
    """
    names = set[str]()
    for path, node in nodes(schema):
        if path.rpartition(".")[2] == _STOP_WORDS:
            node["content"] = "0"
        if node.get("__class__") == "memmap":  # its file is not that of its numbers here
            node["__class__"] = "ndarray"
        if isinstance(node.get("__id__"), int):
            # Whether two equal numbers are one object says nothing.
            is_number = node["__loader__"] == "JsonNode" and node["content"][0] != "{"
            address = -len(numbers) if is_number else node["__id__"]
            node["__id__"] = numbers.setdefault(address, len(numbers))
        if isinstance(node.get("file"), str):
            address, ending = _parts_of(node["file"])
            start = BESIDE if address in beside else ""
            node["file"] = f"{start}{numbers.setdefault(address, len(numbers))}.{ending}"
        if node.get("__loader__") in ("FunctionNode", "ObjectNode", "TypeNode"):
            names.add(f"{node['__module__']}.{node['__class__']}")
    return names


def _check_name(name: str) -> None:
    """Raise TypeError unless a class or function can be found by its name."""
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError, ValueError):
        raise TypeError(
            f"{name} cannot be found again by its name; use `def` or `class` at the top level "
            "of a module, or use joblib"
        ) from None


def _write(members: Iterable[tuple[str, Any]], file: BinaryIO) -> None:
    """Write members of a skops file, bytes or arrays, deflated if smaller, and a checksum."""
    # Level 6 takes three times as long, for a fiftieth of the bytes.
    with zipfile.ZipFile(file, "w", compresslevel=1) as target:
        for name, data in members:
            is_array = isinstance(data, np.ndarray)
            some = _some_of(data) if is_array else data[: 2**16]
            # Deflating exact weights takes twenty times as long, for the rows of zeros alone.
            least = 0.5 if is_array and data.dtype.kind == "f" else 0.9
            is_small = len(some) < _SMALL
            deflates = not is_small and len(zlib.compress(some, 1)) < least * len(some)
            target.compression = zipfile.ZIP_DEFLATED if deflates else zipfile.ZIP_STORED
            with target.open(name, "w", force_zip64=True) as content:  # of any size
                if is_array:
                    _write_array(data, content)
                else:
                    content.write(data)
        target.comment = _CHECKSUM + b"0" * 8
    digits = _checksum_of(file)
    file.seek(-8, os.SEEK_END)
    file.write(digits)


def _some_of(array: np.ndarray) -> bytes:
    """Return bytes of eight places of an array, whose beginning may be rows of zeros."""
    numbers = array.ravel("K")
    starts = np.linspace(0, max(0, len(numbers) - 2**11), 8).astype(np.int64)
    return b"".join(numbers[start : start + 2**11].tobytes() for start in np.unique(starts))


def _write_array(array: np.ndarray, content: IO[bytes]) -> None:
    """Write the numbers of an array as NumPy does, which copies 16 MiB of them at a time."""
    array = np.ascontiguousarray(array)
    header = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(content, header)
    numbers = array.reshape(-1).view(np.uint8)
    for part in row_blocks(len(numbers), 1, 2**20):
        content.write(numbers[part].data)


def _checksum_of(file: BinaryIO) -> bytes:
    """Return the digits of the CRC-32 of all bytes of a file but the last eight."""
    found, left = 0, file.seek(0, os.SEEK_END) - 8
    file.seek(0)
    while left > 0 and (block := file.read(min(left, 2**20))):
        found, left = zlib.crc32(block, found), left - len(block)
    return b"%08x" % found


def compress(estimator: Any) -> Any:
    """Copy a fitted estimator, with its weights rounded to fewer bits.

    The copy predicts with rounded weights. joblib, pickle and :func:`save` store them as integers
    and scales: ``joblib.dump(..., compress=3)`` of the copy is as small as a file of :func:`save`,
    and the loaded estimator predicts as the copy, bit for bit. In memory the copy is as large as
    `estimator`. After further training by `partial_fit` or `warm_start` its weights are stored
    exactly again.
    :func:`~sklearn.base.clone` makes an ordinary unfitted estimator of it.

    Parameters
    ----------
    estimator : estimator
        Fitted classifier of this package, or a :class:`~sklearn.pipeline.Pipeline` or search with
        one. It is not changed.

    Returns
    -------
    compressed : estimator
        Fitted copy.

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
    >>> clf = sklearn_xlc.MultiHeadClassifier(ranker=None, max_epochs=2, random_state=0).fit(X, y)
    >>> small = sklearn_xlc.compress(clf)
    >>> len(pickle.dumps(small)) < len(pickle.dumps(clf)) / 4
    True
    """
    _check_estimator("compress", estimator)
    check_is_fitted(estimator)
    with carrying(rounds=True):
        return copy.deepcopy(estimator)


def _check_estimator(function: str, estimator: Any) -> None:
    if not isinstance(estimator, BaseEstimator):
        raise TypeError(f"{function} takes an estimator, got {estimator!r}")


def load(path: str | os.PathLike[str], trusted: Iterable[Any] = ()) -> Any:
    """Load an estimator saved by :func:`save`, on any machine, with or without a GPU.

    The checksum is checked, and no code of the file is executed. The file names classes; `load`
    imports classes of this package, estimators of scikit-learn, and the classes in `trusted`.

    Parameters
    ----------
    path : str or path-like
        File written by :func:`save` or by :func:`skops.io.dump`.
    trusted : iterable of class, function or str, default=()
        Classes and functions of your own that the estimator may use, or their full names, such as
        ``["package.module.MyEncoder"]``.

    Returns
    -------
    estimator : estimator
        Estimator with the predictions of the saved one, bit for bit on the same machine, up to the
        rounding of `save`.

    Raises
    ------
    ValueError
        If the file is damaged, is no file of :func:`save`, or names untrusted classes or functions.
    OSError
        If the file cannot be opened.
    MemoryError
        If the content would not fit into memory.

    Warns
    -----
    UserWarning
        If another version of this package, of scikit-learn or of torch wrote the file, or the
        machine lacks the `device` that the estimator names: it then predicts on the CPU.

    Notes
    -----
    Processes share the weights of one file of joblib: ``joblib.load(path, mmap_mode="r")``.

    Examples
    --------
    >>> import os, tempfile
    >>> import sklearn_xlc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.skops")
    ...     sklearn_xlc.save(sklearn_xlc.MultiHeadClassifier("cascade"), path)
    ...     sklearn_xlc.load(path)
    MultiHeadClassifier(head='cascade')
    """
    import skops.io  # it imports all of scikit-learn
    from skops.io.exceptions import UntrustedTypesFoundException

    names, where = _names_of(trusted), os.fsdecode(path)
    check_ordinary(where)
    try:
        with open(where, "rb") as file, usual_modes(training=True):
            used = _check_container(file)
            known = [name for name in _trusted_names() if name in used]  # each node has a copy
            with without_large(file) as light:
                estimator = skops.io.load(light, trusted=[*known, *names])
        if not isinstance(estimator, BaseEstimator):
            raise ValueError(f"it holds a {type(estimator).__name__}, which is no estimator")
        check_loaded(estimator)
    except (OSError, MemoryError, Warning):
        raise
    except UntrustedTypesFoundException:
        found = skops.io.get_untrusted_types(file=where)
        raise ValueError(f"cannot read {where}: {_untrusted(found, names)}") from None
    except Exception as error:  # a wrong file fails anywhere
        raise ValueError(f"cannot read {where}: {error or type(error).__name__}") from error
    return estimator


def _check_container(file: BinaryIO) -> set[str]:
    """Raise if a file is damaged, or would not fit into memory; return the names it uses."""
    try:
        with zipfile.ZipFile(file) as archive:
            comment, members = archive.comment, archive.infolist()
            if comment and comment != _CHECKSUM + _checksum_of(file):  # skops alone writes none
                raise ValueError("it is damaged: its content does not match its checksum")
            _check_sizes(members)
            sparse = [member for member in members if member.filename.endswith(".npz")]
            # SciPy inflates what such a member holds.
            _check_sizes([*members, *(each for m in sparse for each in _held_by(archive, m))])
            used = _check_uses(archive.read("schema.json"))
    except zipfile.BadZipFile as error:
        raise ValueError(
            f"it is damaged, or no file of sklearn_xlc.save ({error}); files of joblib.dump, whose "
            "code runs, are read by joblib.load"
        ) from None
    file.seek(0)
    return used


def _check_sizes(members: list[zipfile.ZipInfo]) -> None:
    """Raise if members would not fit into memory, by the sizes that they declare."""
    if not {member.compress_type for member in members} <= _METHODS:
        raise ValueError("it has a member that is neither stored nor deflated")
    size = sum(member.file_size for member in members)
    refuse_beyond(size, "the saved model", "a machine with more memory")


def _held_by(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> list[zipfile.ZipInfo]:
    """Return what a member holds that is an archive itself; only its end takes memory."""
    with archive.open(member) as content, mmap.mmap(-1, member.file_size) as place:
        end = b""
        while block := content.read(_END):
            end = (end + block)[-_END:]
        place[-len(end) :] = end  # pages that nobody writes to take no memory
        with zipfile.ZipFile(place) as inner:  # type: ignore[call-overload]
            return inner.infolist()


def _check_uses(schema: bytes) -> set[str]:
    """Raise ValueError if several objects of a file are one member: each would read it again.

    Returns the names of classes and functions.
    """
    addresses: dict[str, Any] = {}
    names = set[str]()

    def check(node: dict[str, Any]) -> None:
        if "__class__" in node:
            names.add(f"{node.get('__module__')}.{node['__class__']}")
        file, address = node.get("file"), node.get("__id__")
        if not isinstance(file, str):
            return
        if not address or addresses.setdefault(file, address) != address:
            raise ValueError("several objects of it are one member")

    json.loads(schema, object_hook=check)  # no description is kept
    return names


def _trusted_names() -> list[str]:
    """Return the names trusted in every file."""
    rooms = (sys.modules["sklearn_xlc"], decisions, encoders, heads, optimizers, ranking)
    public = [getattr(room, name) for room in rooms for name in room.__all__]
    named = {value for value in public if isinstance(value, type)}
    # No other functions: what a file names may be called in predictions.
    named |= {getattr(metrics, name) for name in metrics.__all__ if name.endswith("_at_k")}
    scores = [name for name in sklearn.metrics.__all__ if name.endswith(_ENDS_OF_METRICS)]
    named |= {getattr(sklearn.metrics, name) for name in scores}
    classes = [value for value in vars(model_selection).values() if isinstance(value, type)]
    named |= {value for value in classes if hasattr(value, "split")}
    known = sorted(f"{value.__module__}.{value.__qualname__}" for value in named)
    packages = ("sklearn_xlc.", "sklearn.metrics.", "sklearn.model_selection.")
    ours = [name for name in known if name.startswith(packages)]
    return [*ours, *carried_names(), *_OF_OTHERS]


def _names_of(trusted: Iterable[Any]) -> list[str]:
    if isinstance(trusted, str | type):
        raise TypeError(f"trusted must be a list of classes and names, got {trusted!r}")
    names = []
    for item in trusted:
        if hasattr(item, "__qualname__"):
            item = f"{item.__module__}.{item.__qualname__}"
        elif not isinstance(item, str):
            raise TypeError(f"trusted must hold classes, functions and names, got {item!r}")
        names.append(item)
    return names


def _untrusted(found: list[str], trusted: list[str]) -> str:
    """Return the message about untrusted names in a file."""
    unknown = sorted({*found} - {*_trusted_names(), *trusted})
    return (
        f"it uses {', '.join(unknown)}, which is not part of sklearn_xlc or of scikit-learn's "
        f"estimators; if you trust it, pass load(path, trusted={[*trusted, *unknown]})"
    )
