"""Mutated XMC files: read as a slow reader reads them, or refused with file and line."""

import gzip
import math
import re
import tempfile
import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np

from attack._trials import Trial, attack
from sklearn_xlc.datasets import load_xmc_file

#: Bytes that mutations write: those that mean something in the format, and some that do not.
ALPHABET = [b" ", b",", b":", b"\n", b"\r", b"\t", b"-", b"+", b".", b"e", b"_", b"#", b"\x00"]
ALPHABET += [b"\xff", b"\x0b", b"\xc2\xa0", b"nan", b"e39", b"1e400", b"9" * 30, "٣".encode()]
ALPHABET += [b"inf", *(b"%d" % digit for digit in range(10))]
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
#: What the reader may take at its peak for files of a few hundred bytes.
PEAK = 2**22


def valid_file(rng):
    """Bytes of a small valid file."""
    n_samples, n_features, n_labels = (int(n) for n in rng.integers(1, 9, 3))
    lines = [f"{n_samples} {n_features} {n_labels}"]
    for _ in range(n_samples):
        labels = rng.permutation(n_labels)[: rng.integers(n_labels + 1)]
        features = rng.permutation(n_features)[: rng.integers(n_features + 1)]
        values = [f"{i}:{rng.normal() * 10.0 ** rng.integers(-6, 6):.6g}" for i in features]
        lines.append(",".join(map(str, labels)) + " " + " ".join(values))
    return ("\n".join(lines) + "\n").encode()


def mutate(rng, data):
    """Change, insert, delete, copy or cut up to three pieces of the bytes."""
    for _ in range(rng.integers(1, 4)):
        at, length = int(rng.integers(len(data) + 1)), int(rng.integers(1, 9))
        end, word = at + length, ALPHABET[rng.integers(len(ALPHABET))]
        data = [
            lambda: data[:at] + word + data[at + 1 :],
            lambda: data[:at] + word + data[at:],
            lambda: data[:at] + data[end:],
            lambda: data[:end] + data[at:],
            lambda: data[:at] + bytes([rng.integers(256)]) + data[at + 1 :],
            lambda: data[:at],
            lambda: data[:at] + data[at:end] * int(rng.integers(1, 40)) + data[end:],
            lambda: b"\n".join(np.array(data.split(b"\n"), dtype=object)[::-1]),
        ][rng.integers(8)]()
    return data


def slow_read(data, dtype):
    """Shape, entries of X and labels, read from the definition of the format; None if malformed."""
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    try:
        assert all(re.fullmatch(rb"\d+", word) for word in lines[0].split())
        header = [int(word) for word in lines[0].split()]
        n_samples, n_features, n_labels = header
        if max(header) >= 2**63:
            return None
        entries, labels = {}, set()
        for row, line in enumerate(lines[1:]):
            words = line.split()
            if row >= n_samples:
                assert not words
                continue
            assert b"_" not in line
            if words and line[:1].strip() and b":" not in words[0]:
                for word in words.pop(0).split(b","):
                    label = whole(word)
                    assert label < n_labels
                    assert (row, label) not in labels
                    labels.add((row, label))
            for word in words:
                feature, value = word.split(b":")
                feature = whole(feature)
                assert feature < n_features
                assert (row, feature) not in entries
                assert NUMBER.fullmatch(value.decode("ascii"))
                with np.errstate(over="ignore"):
                    entries[row, feature] = dtype(float(value))
                assert math.isfinite(entries[row, feature])
        assert len(lines) - 1 >= n_samples
    except (AssertionError, ValueError, IndexError):
        return None
    return tuple(header), entries, labels


def whole(word):
    """Whole number from 0 on, written in ASCII digits, with a sign that changes nothing."""
    assert re.fullmatch(rb"\+?\d+|-0+", word)
    return int(word)


def check_named(message, path, n_lines):
    named = re.match(rf"{re.escape(str(path))}, line (\d+): .", message)
    assert named, f"neither file nor line: {message}"
    assert 1 <= int(named[1]) <= n_lines


def read(data, dtype, packed):
    """Read the bytes from a file; a refusal names the file and a line of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.txt"
        path.write_bytes(gzip.compress(data) if packed else data)
        tracemalloc.start()
        try:
            return load_xmc_file(path, dtype=dtype)
        except ValueError as error:
            check_named(str(error), path, data.count(b"\n") + 2)
            raise
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < PEAK, f"{peak} bytes for a file of {len(data)}"


def run(data, dtype, packed):
    expected = slow_read(data, dtype)
    X, Y = read(data, dtype, packed)
    assert expected is not None, f"read, though malformed: {data!r}"
    header, entries, labels = expected
    assert (X.shape, Y.shape) == (header[:2], header[::2])
    X, Y = X.tocoo(), Y.tocoo()
    assert dict(zip(zip(X.row, X.col), X.data)) == entries
    assert X.dtype == dtype
    assert set(zip(Y.row, Y.col)) == labels
    assert (Y.data == 1).all()


@attack(small=120, whole=5000)
def test_reader_mutations(rng, index):
    """Bytes changed at random."""
    data = valid_file(rng)
    if index % 10:
        data = mutate(rng, data)
    dtype = [np.float32, np.float64][rng.integers(2)]
    valid = slow_read(data, dtype) is not None
    trial = partial(run, data, dtype, packed=rng.random() < 0.2)
    outcome = "result" if valid else "refusal"
    return Trial(f"{data!r}", trial, outcome, refusals=(ValueError,), seconds=2.0)
