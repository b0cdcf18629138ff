"""Replace files as a whole: write under a temporary name, then rename."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Open a temporary file; rename it to `path` at the end."""
    try:
        target = _target(path)
        mode = _mode_of(target)
        temporary = _beside(target)
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
        sync_folder(os.path.dirname(target))
    except OSError as error:
        reason = f"{error.strerror or error}; nothing was written, an existing file is as it was"
        raise type(error)(error.errno, reason, path) from error


def check_writable(path: str) -> None:
    """Raise OSError if a file cannot be written: before work for it, rather than after."""
    try:
        target = _target(path)
        _mode_of(target)
        temporary = _beside(target)
        with open(temporary, "xb"):
            os.unlink(temporary)
    except OSError as error:
        raise type(error)(error.errno, error.strerror or str(error), path) from error


def _target(path: str) -> str:
    """Return where links lead; raise OSError for the name of a folder, like `open`."""
    if os.path.basename(path):
        return os.path.realpath(path)
    raise IsADirectoryError(errno.EISDIR, "the name of a folder")


def _beside(path: str) -> str:
    """Return the name of a temporary file in the folder of a file."""
    return os.path.join(os.path.dirname(path), f".sklearn_xlc-{secrets.token_hex(8)}.tmp")


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


def check_ordinary(path: str | os.PathLike[str]) -> None:
    """Raise ValueError unless a file is an ordinary one: opening a pipe would wait for ever."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"cannot read {os.fspath(path)}: it is no ordinary file")


def sync_folder(folder: str) -> None:
    """Sync the names of files to the disk; errors are ignored: the files are complete anyway."""
    with contextlib.suppress(OSError):  # folders cannot be opened on Windows and some networks
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
