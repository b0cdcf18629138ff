"""The frame of the attacks: trials drawn from a seed, run, counted, and reproducible one by one.

An attack is a function that draws one trial: `make(rng, index) -> Trial`. `@attack(small, whole)`
turns it into a test that runs `small` of the `whole` trials by default, and all of them with
``-m slow``. Trial `index` draws from a generator of its own, so it can be run alone:

    SKLEARN_XLC_ATTACK_CASE=17 python -m pytest -m "" tests/attack/test_inputs.py -k whole

A trial passes if it returns, or is refused as users should see it (`is_clear`). The table of
attacks, cases and failures is printed at the end of a run, and written to the file named by
SKLEARN_XLC_ATTACK_TABLE. Attacks on processes, which count otherwise, call `record`.
"""

import ast
import linecache
import os
import re
import signal
import time
import traceback
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import sklearn_xlc

SEED = int(os.environ.get("SKLEARN_XLC_ATTACK_SEED", "0"))
PACKAGE = str(Path(sklearn_xlc.__file__).parent) + os.sep
#: What a user's mistake may raise.
REFUSALS = (ValueError, TypeError, MemoryError)
#: Rows of the table: cases, refusals, failures and seconds by name of the attack.
RECORDS = {}


@dataclass(frozen=True)
class Trial:
    """One trial.

    Parameters
    ----------
    id : str
        What is tried, for the report.
    run : callable
        Tries it, and asserts what must hold of the result.
    outcome : {"either", "result", "refusal"}, default="either"
        What is right: a result that `run` accepts, an exception of `refusals`, or either.
    refusals : tuple of exceptions, default=REFUSALS
        Types by which the package may refuse.
    seconds : float, default=20.0
        Limit of processor time.
    """

    id: str
    run: object
    outcome: str = "either"
    refusals: tuple = REFUSALS
    seconds: float = 20.0


class TooLong(BaseException):
    """The trial has used up its processor time."""


@dataclass
class Record:
    """Cases, refusals and failures of one attack."""

    cases: int = 0
    refused: int = 0
    failures: list = field(default_factory=list)
    seconds: float = 0.0


def record(name, cases, failures=(), refused=0):
    """Enter an attack into the table; raises AssertionError if any case failed."""
    row = RECORDS.setdefault(name, Record())
    row.cases += cases
    row.refused += refused
    row.failures += failures
    assert not failures, report(name, Record(cases, failures=list(failures)))


@cache
def _raises(filename):
    """Lines of the file that belong to a `raise` statement."""
    tree = ast.parse("".join(linecache.getlines(filename)) or "pass")
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Raise))
    return frozenset(line for node in nodes for line in range(node.lineno, node.end_lineno + 1))


def is_clear(error):
    """Whether the message was written for users: by this package, or by scikit-learn's checks.

    An error that C code raised within the package, such as that of an allocator, or of a product of
    arrays that do not fit, is none of the package's `raise` statements. What NumPy and pandas say
    of data that scikit-learn's checks asked them to convert is its own message to users.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if frames[-1].filename.startswith(PACKAGE):
        return frames[-1].lineno in _raises(frames[-1].filename) and bool(str(error))
    while re.search(r"[/\\](numpy|pandas)[/\\]|\.pyx$", frames[-1].filename):
        frames.pop()
    return f"{os.sep}sklearn{os.sep}" in frames[-1].filename


@contextmanager
def processor_time(seconds):
    """Raise TooLong in the block once it has used up that much processor time."""

    def stop(*_):
        raise TooLong(f"more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fault_of(trial):
    """Run a trial: what is wrong, None if nothing is, and whether it was refused."""
    try:
        with warnings.catch_warnings(), processor_time(trial.seconds):
            warnings.simplefilter("ignore")
            trial.run()
    except trial.refusals as error:
        if not is_clear(error):
            return _described("not a message for users", error), True
        if trial.outcome == "result":
            return _described("refused, though valid", error), True
        return None, True
    except (Exception, KeyboardInterrupt, TooLong) as error:
        return _described("failed", error), False
    return ("accepted, though not valid" if trial.outcome == "refusal" else None), False


def _described(what, error):
    frame = traceback.extract_tb(error.__traceback__)[-1]
    message = " ".join(str(error).split())[:300]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    return f"{what}: {type(error).__name__} at {where}: {message}"


def run_trials(make, indices, seed=SEED):
    """Run the trials of those numbers; returns their `Record`."""
    row, start = Record(), time.process_time()
    for index in indices:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = make(np.random.default_rng([seed, index]), int(index))
        fault, refused = fault_of(trial)
        row.cases += 1
        row.refused += refused
        if fault:
            row.failures.append(f"case {index}, {trial.id}: {fault}")
    row.seconds = time.process_time() - start
    return row


def report(name, row, most=25):
    """Failures as text, with what reproduces one of them."""
    lines = [f"{len(row.failures)} of {row.cases} trials of {name} failed", *row.failures[:most]]
    if len(row.failures) > most:
        lines.append(f"... and {len(row.failures) - most} more")
    lines.append(
        f'one alone: SKLEARN_XLC_ATTACK_CASE=NUMBER python -m pytest -m "" tests/attack -k "{name} '
        'and whole"'
    )
    return "\n".join(lines)


def attack(small, whole, name=None):
    """Turn `make(rng, index) -> Trial` into a test of `small` trials, and a slow one of `whole`.

    `name` is that of the row in the table; None: the test's.
    """

    def wrap(make):
        title = name or make.__name__.removeprefix("test_").replace("_", " ")

        @pytest.mark.parametrize(
            "n_cases",
            [
                pytest.param(small, id="small"),
                pytest.param(
                    whole, id="whole", marks=[pytest.mark.slow, pytest.mark.timeout(7200)]
                ),
            ],
        )
        def test(n_cases):
            one = os.environ.get("SKLEARN_XLC_ATTACK_CASE")
            chosen = np.random.default_rng(SEED).permutation(whole)[:n_cases]
            row = run_trials(make, [int(one)] if one else np.sort(chosen))
            if n_cases == whole:
                RECORDS[title] = row
            assert not row.failures, report(make.__name__, row)

        test.__name__, test.__doc__ = make.__name__, make.__doc__
        test.__module__ = make.__module__
        test.make = make
        return test

    return wrap


def table():
    """Attacks, cases and failures as a table in Markdown."""
    head = ["| attack | cases | refused | failures |", "|---|---:|---:|---:|"]
    rows = [
        f"| {name} | {row.cases:,} | {row.refused:,} | {len(row.failures)} |"
        for name, row in sorted(RECORDS.items())
    ]
    return "\n".join(head + rows)
