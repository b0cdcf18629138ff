"""Atomically written files of a document and named arrays, with a digest checked on reading.

A file is a safetensors container; other tools can read its arrays. The document is an array of JSON
bytes, because the header of safetensors is limited to 100 MB.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import secrets
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

#: Format of files. Formats 1 and 2 were those of development versions.
FORMAT = 3
READ = (FORMAT,)
_DOCUMENT = "document.json"
#: Types of arrays in a file, and their names in safetensors.
DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "complex64": "C64",
}
#: Packages with stored versions, if loaded, by the names of their modules.
_PACKAGES = {name: name for name in ("sklearn_xlc", "numpy", "torch")} | {"scikit-learn": "sklearn"}
#: Packages for the warning about other versions; of NumPy, files hold only arrays.
_WARNED = ("sklearn_xlc", "scikit-learn", "torch")


# --- writing ----------------------------------------------------------------------------------


class Streamed(NamedTuple):
    """An array generated in blocks while it is written, never whole in memory."""

    shape: tuple[int, ...]
    dtype: np.dtype
    #: Returns the blocks; concatenated they are the array.
    blocks: Callable[[], Iterable[np.ndarray]]

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)

    def array(self) -> np.ndarray:
        """Build the whole array."""
        whole, done = np.empty(self.shape, self.dtype).reshape(-1), 0
        for block in self.blocks():
            whole[done : done + block.size] = block.reshape(-1)
            done += block.size
        return whole.reshape(self.shape)


def write(
    path: str | os.PathLike[str],
    document: Any,
    arrays: Mapping[str, np.ndarray | Streamed],
    kind: str,
) -> None:
    """Write a document and arrays to a file, atomically.

    The file is written under a temporary name (``.sklearn_xlc-*.tmp``) in the same folder, synced
    and renamed. Processes reading the old file are not disturbed.

    Parameters
    ----------
    path : str or path-like
        File to write. Links are followed; the mode of an existing file is kept.
    document : object
        None, bool, int, float, str, and lists and dicts of these with str keys. Floats come back
        exactly, NaN and infinity too; tuples come back as lists.
    arrays : mapping of str to ndarray or Streamed
        Bool, integers, floats up to float64 and complex64, of any shape and order. They come back
        in C order and native byte order.
    kind : str
        Kind of the file, such as "model"; :func:`read` checks it.

    Raises
    ------
    OSError
        If the file cannot be written; an existing one is left as it was.
    TypeError
        If the type of the document or of an array is not supported.
    ValueError
        If the document contains itself, is too deep, or an array has a reserved name.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from sklearn_xlc._files import read, write
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "three.xlc")
    ...     write(path, {"n": 3}, {"numbers": np.arange(3)}, kind="model")
    ...     document, arrays = read(path, kind="model")
    >>> document, arrays["numbers"]
    ({'n': 3}, array([0, 1, 2]))
    """
    if taken := {_DOCUMENT, "__metadata__"} & set(arrays):
        raise ValueError(f"an array must not have the name {taken.pop()!r}")
    head = {"format": str(FORMAT), "kind": kind, "versions": json.dumps(versions())}
    content: dict[str, np.ndarray | Streamed]
    content = {_DOCUMENT: np.frombuffer(_encode(document), np.uint8)}
    content |= {name: _storable(name, array) for name, array in arrays.items()}
    with replacing(os.fsdecode(path)) as file:
        _write_container(file, head, content)


def _encode(document: Any) -> bytes:
    """Encode a document as JSON; raise for keys other than strings."""
    try:
        _check_document(document, "document")
        return json.dumps(document, separators=(",", ":"), check_circular=False).encode()
    except RecursionError:
        raise ValueError("the document holds itself, or is nested too deeply to store") from None


def _check_document(value: Any, where: str) -> None:
    """Raise TypeError for values changed by a round trip through JSON."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}; keys must be str")
            _check_document(item, f"{where}[{key!r}]")
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            _check_document(item, f"{where}[{position}]")
    elif not (value is None or isinstance(value, bool | int | float | str)):
        raise TypeError(f"{where} is a {type(value).__name__}, which JSON cannot hold")


def _storable(name: str, array: np.ndarray | Streamed) -> np.ndarray | Streamed:
    """Convert an array to C order and little-endian, the format of safetensors."""
    is_array = isinstance(array, np.ndarray | Streamed)
    if not is_array or array.dtype.name not in DTYPES:
        kind = array.dtype if is_array else type(array).__name__
        raise TypeError(f"array {name!r} is of type {kind}; a file holds {', '.join(DTYPES)}")
    name.encode()  # raises UnicodeEncodeError for names invalid in a header
    little = array.dtype.newbyteorder("<")
    if isinstance(array, Streamed):
        return array._replace(dtype=little)
    return np.asarray(array, dtype=little, order="C")


def _write_container(
    file: BinaryIO, head: dict[str, str], content: dict[str, np.ndarray | Streamed]
) -> None:
    # By item size, largest first: each array starts at a multiple of its item size.
    content = dict(sorted(content.items(), key=lambda item: -item[1].dtype.itemsize))
    # The digest is known at the end and replaces this placeholder of equal length.
    header: dict[str, Any] = {"__metadata__": {**head, "digest": "0" * 64}}
    end = 0
    for name, array in content.items():
        offsets = [end, end := end + array.nbytes]
        dtype = DTYPES[array.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
    start = file.write(_header(header))
    hashed = hashlib.sha256(_encode(sorted(head.items())))
    for name in sorted(content):
        file.seek(start + header[name]["data_offsets"][0])
        hashed.update(_title(name, content[name]))
        for block in _blocks(content[name]):
            hashed.update(block)
            file.write(block)
        left = header[name]["data_offsets"][1] + start - file.tell()
        assert not left, f"the blocks of {name} are {left} bytes short"
    header["__metadata__"]["digest"] = hashed.hexdigest()
    file.seek(0)
    file.write(_header(header))


def _header(header: dict[str, Any]) -> bytes:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Open a temporary file; rename it to `path` at the end."""
    try:
        target = os.path.realpath(path)
        mode = _mode_of(target)
        folder = os.path.dirname(target)
        temporary = os.path.join(folder, f".sklearn_xlc-{secrets.token_hex(8)}.tmp")
        try:
            with open(temporary, "x+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if mode is not None:
                os.chmod(temporary, mode)
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(folder)
    except OSError as error:
        reason = f"{error.strerror or error}; nothing was written, an existing file is as it was"
        raise type(error)(error.errno, reason, path) from error


def _mode_of(path: str) -> int | None:
    """Return the permissions of a file, None if it does not exist; raise OSError like `open`."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not an ordinary file")
    if not os.access(path, os.W_OK):
        raise OSError(errno.EACCES, "the file is read-only")
    return stat.S_IMODE(mode)


def _sync_folder(folder: str) -> None:
    """Sync a rename to the disk; errors are ignored, because the file is complete anyway."""
    with contextlib.suppress(OSError):  # folders cannot be opened on Windows and some networks
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# --- reading ----------------------------------------------------------------------------------


def read(path: str | os.PathLike[str], kind: str) -> tuple[Any, dict[str, np.ndarray]]:
    """Read and check a file of :func:`write`.

    Parameters
    ----------
    path : str or path-like
        File to read.
    kind : str
        Expected kind, such as "model".

    Returns
    -------
    document : object
        Document.
    arrays : dict of str to ndarray
        Arrays, in memory and writable.

    Raises
    ------
    OSError
        If there is no such file, or it cannot be opened.
    ValueError
        If the file was not written by :func:`write`, is damaged or truncated, or has another kind
        or the format of a later version.

    Warns
    -----
    UserWarning
        If another version of this package, of scikit-learn or of torch wrote the file.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn_xlc._files import read, write
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "empty.xlc")
    ...     write(path, None, {}, kind="checkpoint")
    ...     read(path, kind="model")
    Traceback (most recent call last):
    ...
    ValueError: cannot read ...empty.xlc: it is a checkpoint of sklearn_xlc, not a model
    """
    name = os.fsdecode(path)
    with open(name, "rb"):
        pass  # errors of `open` are clearer than errors of the library
    try:
        head, content = _read_container(name, kind)
        document = _loads(content.pop(_DOCUMENT).tobytes())
        stored = dict(_loads(head["versions"].encode()))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"cannot read {name}: {error}") from error
    warn_of_versions(name, stored)
    return document, content


def _read_container(name: str, kind: str) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Read metadata and content of a file; raise ValueError if it is damaged or no such file."""
    try:
        # Not mapped: truncation of the file meanwhile would kill the process.
        with safe_open(name, framework="numpy", backend="pread") as file:
            head = dict(file.metadata() or {})
            content = file.get_tensors()
        with open(name, "rb") as plain:  # the library accepts repeated names
            _loads(plain.read(int.from_bytes(plain.read(8), "little")))
    except (SafetensorError, OSError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"it is damaged, or no file of sklearn_xlc.save ({error})") from error
    _check_format(head)
    _check_digest(head, content)
    _check_kind(head, kind)
    return head, content


def _loads(text: bytes) -> Any:
    """Parse JSON; raise ValueError for repeated keys: readers interpret them differently."""
    return json.loads(text.decode(), object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(made := dict(pairs)) < len(pairs):
        raise ValueError("it is damaged: it has a name twice")
    return made


def _check_digest(head: dict[str, str], content: dict[str, np.ndarray]) -> None:
    stored = head.pop("digest")
    if stored != digest(sorted(head.items()), content):  # the library loses the order
        raise ValueError("it is damaged: its content does not match its digest")


def _check_format(head: dict[str, str]) -> None:
    if "format" not in head or "digest" not in head:
        raise ValueError("it is no file of sklearn_xlc: it has no format and digest")
    if head["format"] not in map(str, READ):
        raise ValueError(
            f"it has format {head['format']}, and this version of sklearn_xlc reads {READ[0]}; "
            "install the version that wrote it, or a later one"
        )


def _check_kind(head: dict[str, str], kind: str) -> None:
    if head.get("kind") != kind:
        raise ValueError(f"it is a {head.get('kind')} of sklearn_xlc, not a {kind}")


def read_mapped(
    path: str | os.PathLike[str], kind: str, verify: bool = False
) -> tuple[Any, dict[str, np.ndarray]]:
    """Map the arrays of a file of :func:`write` into memory.

    They are read when they are used, and may be larger than the memory. Truncation is detected.

    Parameters
    ----------
    path : str or path-like
        File to map. It must not be modified while the arrays are used; :func:`write` may replace
        it.
    kind : str
        Expected kind.
    verify : bool, default=False
        Whether to read all arrays once to check the digest, and to warn about other versions.

    Returns
    -------
    document : object
        Document.
    arrays : dict of str to ndarray
        Arrays, read-only.

    Raises
    ------
    OSError
        If there is no such file, or it cannot be opened.
    ValueError
        As :func:`read`; damage within arrays is detected if `verify` is set.

    Warns
    -----
    UserWarning
        As :func:`read`, if `verify` is set.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from sklearn_xlc._files import read_mapped, write
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "three.xlc")
    ...     write(path, {"n": 3}, {"numbers": np.arange(3)}, kind="model")
    ...     document, arrays = read_mapped(path, kind="model")
    >>> arrays["numbers"].sum(), arrays["numbers"].flags.writeable
    (np.int64(3), False)
    """
    name = os.fsdecode(path)
    with open(name, "rb") as file:
        if os.fstat(file.fileno()).st_size < 8:
            raise ValueError(f"cannot read {name}: it is too short for a file of sklearn_xlc")
        content: np.ndarray = np.memmap(file, np.uint8, mode="r")
    try:
        start = 8 + int.from_bytes(content[:8].tobytes(), "little")
        header = _loads(content[8:start].tobytes())
        head = header.pop("__metadata__", {})
        _check_format(head)
        _check_kind(head, kind)
        arrays = {name: _part(content[start:], entry) for name, entry in header.items()}
        if len(content) - start > max(entry["data_offsets"][1] for entry in header.values()):
            raise ValueError("it is damaged: it is longer than its content")
        if verify:
            _check_digest(head, arrays)
        document = _loads(arrays.pop(_DOCUMENT).tobytes())
        stored = dict(_loads(head["versions"].encode()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"cannot read {name}: {error}") from error
    if verify:
        warn_of_versions(name, stored)
    return document, arrays


def _part(content: np.ndarray, entry: dict[str, Any]) -> np.ndarray:
    """Return an array of a container, from the bytes behind the header."""
    (start, end), shape = entry["data_offsets"], entry["shape"]
    if not 0 <= start <= end <= len(content):
        raise ValueError("it is truncated")
    if shape and min(shape) < 0:
        raise ValueError(f"it is damaged: it has an array of shape {shape}")
    dtype = {of_file: name for name, of_file in DTYPES.items()}[entry["dtype"]]
    return content[start:end].view(np.dtype(dtype).newbyteorder("<")).reshape(shape)


def digest(document: Any, arrays: Mapping[str, np.ndarray | Streamed]) -> str:
    """Compute the SHA-256 of a document and of arrays with names, types and shapes.

    Parameters
    ----------
    document : object
        As in :func:`write`.
    arrays : mapping of str to ndarray or Streamed
        Arrays of any type but object, in any order.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc._files import digest
    >>> digest({"n": 3}, {"a": np.zeros(2)}) == digest({"n": 3}, {"a": np.zeros((1, 2))})
    False
    """
    hashed = hashlib.sha256(_encode(document))
    for name in sorted(arrays):
        hashed.update(_title(name, arrays[name]))
        for block in _blocks(arrays[name]):
            hashed.update(block)
    return hashed.hexdigest()


def _title(name: str, array: np.ndarray | Streamed) -> bytes:
    """Encode name, type and shape of an array, for the hash."""
    return repr((name, array.dtype.str, array.shape)).encode()


def _blocks(array: np.ndarray | Streamed) -> Iterator[memoryview]:
    """Yield the bytes of an array in C order, without a copy."""
    for block in array.blocks() if isinstance(array, Streamed) else [array]:
        yield np.asarray(block, dtype=array.dtype, order="C").reshape(-1).view(np.uint8).data


def versions() -> dict[str, str]:
    """Return the versions of loaded packages, for a file."""
    return {
        name: str(sys.modules[module].__version__)
        for name, module in _PACKAGES.items()
        if module in sys.modules
    }


def warn_of_versions(name: str, stored: dict[str, str]) -> None:
    """Warn if another version of this package, of scikit-learn or of torch wrote `name`."""
    loaded = versions()
    for package in _WARNED:
        wrote, here = stored.get(package), loaded.get(package)
        # Builds of one version for different devices differ after the plus sign.
        if wrote and here and str(wrote).partition("+")[0] != here.partition("+")[0]:
            warnings.warn(
                f"{name} was written with {package} {wrote}, this is {here}: results may differ; "
                "install the other version, or fit and save again",
                stacklevel=3,
            )
