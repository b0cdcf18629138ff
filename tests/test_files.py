"""A file is written whole or not at all."""

import os
import resource
import threading

import pytest

from attack._processes import forked
from sklearn_xlc._files import check_writable, replacing


def write(path, content=b"x"):
    with replacing(os.fspath(path)) as file:
        file.write(content)


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "file")
    return tmp_path / "file"


def write_with_little_space(path):
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    write(path, bytes(100_000))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_a_full_disk_leaves_the_old_file(path):
    before = path.read_bytes()
    said = forked(write_with_little_space, path).error
    assert "File too large; nothing was written" in said
    assert str(path) in said
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left"), MemoryError])
@pytest.mark.parametrize("function", ["os.fsync", "os.replace"])
def test_an_interrupted_write_leaves_the_old_file(path, monkeypatch, error, function):
    def fails(*args):
        raise error

    before = path.read_bytes()
    monkeypatch.setattr(function, fails)
    with pytest.raises(error if isinstance(error, type) else OSError):
        write(path, b"new")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_what_open_would_refuse_is_refused(path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="nothing was written"):
        write(path.parent / "no" / "folder")
    with pytest.raises(OSError, match="not an ordinary file"):
        write(path.parent)
    with pytest.raises(OSError, match="not an ordinary file"):
        write(os.devnull)
    with pytest.raises(IsADirectoryError, match="the name of a folder"):
        write(f"{path.parent}/new/")
    monkeypatch.setattr("os.access", lambda *args: False)
    with pytest.raises(PermissionError, match="read-only"):
        write(path)


def test_what_cannot_be_written_is_told_beforehand(path, monkeypatch):
    before = path.read_bytes()
    check_writable(str(path))
    check_writable(str(path.with_name("new")))
    assert list(path.parent.iterdir()) == [path]
    assert path.read_bytes() == before
    with pytest.raises(FileNotFoundError):
        check_writable(str(path.parent / "no" / "folder"))
    with pytest.raises(OSError, match="not an ordinary file"):
        check_writable(os.devnull)
    monkeypatch.setattr("os.access", lambda *args: False)
    with pytest.raises(PermissionError, match="read-only"):
        check_writable(str(path))


@pytest.mark.skipif(os.name == "nt", reason="modes and links of POSIX")
def test_modes_and_links_are_those_of_open(tmp_path):
    (tmp_path / "plain").touch()
    write(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "plain").chmod(0o604)
    (tmp_path / "link").symlink_to("plain")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "plain").stat().st_mode & 0o777 == 0o604
    assert (tmp_path / "plain").read_bytes() == b"x"


def test_readers_see_one_file_or_the_other(path):
    def fill(number):
        write(path, bytes([number]) * 20_000)

    def keep_reading():
        while not done.is_set():
            content = path.read_bytes()
            if len(content) != 20_000 or len(set(content)) > 1:
                wrong.append(content[:9])

    fill(0)
    done, wrong = threading.Event(), []
    readers = [threading.Thread(target=keep_reading) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(40):
        fill(number)
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_a_folder_that_cannot_be_synced_is_no_failure(path, monkeypatch):
    def fails(*args):
        raise OSError

    monkeypatch.setattr("os.open", fails)
    write(path)
    assert path.read_bytes() == b"x"
