"""Run functions in processes that may hang, crash or be killed.

`in_process` starts a new Python, where threads, signals and memory are nobody else's. `forked`
copies the running one within milliseconds, so that one new Python is enough for many trials.
"""

import contextlib
import faulthandler
import importlib
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import sklearn_xlc
from attack._trials import record

#: Where a new Python finds the package and `attack`.
_PATHS = [str(Path(sklearn_xlc.__file__).parents[1]), str(Path(__file__).parents[1])]
_CHILD = "from attack._processes import _main; _main()"


def counted(name, function, small, whole, **process):
    """Turn a function into a test of some of its trials, and a slow one of all of them.

    Parameters
    ----------
    name : str
        Name in the table of attacks.
    function : function of a module in this folder
        Returns the number of its trials, a list of the failures among them, and perhaps how many
        were refused.
    small, whole : tuple
        Its arguments by default, where there are any, and with ``-m slow``.
    **process
        Further parameters of `in_process`, for all trials. Some run in the process of the tests,
        unless they need threads: a new process takes seconds.
    """

    few = [] if small is None else [pytest.param(small, id="small")]
    slow = [pytest.mark.slow, pytest.mark.timeout(7200)]

    @pytest.mark.parametrize("args", [*few, pytest.param(whole, id="whole", marks=slow)])
    @pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
    def test(args):
        apart = process and (args is whole or "threads" in process)
        counts = in_process(function, *args, **process) if apart else function(*args)
        if args is whole:
            record(name, *counts)
        count, failures = counts[:2]
        assert not failures, f"{len(failures)} of {count} trials failed:\n" + "\n".join(failures)

    test.__doc__ = function.__doc__
    return test


def in_process(function, *args, limit=300, threads=1, env=None):
    """Value of ``function(*args)`` in a new Python process.

    Parameters
    ----------
    function : function of a module in this folder
        Its arguments and its value travel as pickles.
    limit : float
        Seconds, after which the process prints the stacks of its threads and ends.
    threads : int
        Value of OMP_NUM_THREADS.
    env : dict, default=None
        Further variables of the environment.

    Raises
    ------
    AssertionError
        If the function raises, hangs or ends its process.
    """
    module = f"attack.{function.__module__.rpartition('.')[2]}"
    settings = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE", **(env or {})}
    paths = [*_PATHS, os.environ.get("PYTHONPATH", "")]
    settings["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "args").write_bytes(pickle.dumps(args))
        with open(folder / "stderr", "wb") as stderr:
            call = [sys.executable, "-X", "faulthandler", "-c", _CHILD]
            process = subprocess.Popen(
                [*call, module, function.__name__, name],
                env={**os.environ, **settings},
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # faulthandler prints the stacks
            status = f"a hang of {limit} s, signal {-process.wait(10)}"
        finally:
            _end_group(process.pid)
        value = folder / "value"
        said = (folder / "stderr").read_text(errors="replace")[-6000:]
        assert status == 0, f"{function.__name__} ended with {status}:\n{said}"
        return pickle.loads(value.read_bytes())


def _end_group(pid):
    """Kill what a process has left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _main():
    module, name, folder = sys.argv[1:]
    function = getattr(importlib.import_module(module), name)
    value = function(*pickle.loads((Path(folder) / "args").read_bytes()))
    (Path(folder) / "value").write_bytes(pickle.dumps(value))


@dataclass
class Outcome:
    """What became of a forked process: a value, or a reason why there is none."""

    value: Any = None
    error: str = ""
    killed: bool = False


def forked(function, *args, limit=60.0, kill_after=None):
    """Outcome of ``function(*args)`` in a forked copy of this process.

    Parameters
    ----------
    function : callable
        Its value travels as a pickle.
    limit : float
        Seconds, after which the stacks of its threads become the error of the outcome.
    kill_after : float, default=None
        Seconds after which the process is killed, if it has not ended.
    """
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as stacks:
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _run_forked(function, args, writer, stacks)
        os.close(writer)
        with os.fdopen(reader, "rb", buffering=0) as pipe:
            pipe.read(1)  # it has begun
            if kill_after is not None:
                time.sleep(kill_after)
                os.kill(pid, signal.SIGKILL)
            content = _read(pipe, time.monotonic() + limit)
            if content is None:
                os.kill(pid, signal.SIGABRT)  # faulthandler prints the stacks
        status = os.waitpid(pid, 0)[1]
        _end_group(pid)
        stacks.seek(0)
        said = stacks.read().decode(errors="replace")
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return Outcome(killed=True, error="is killed")
    if content is None:
        return Outcome(error=f"hangs for {limit} s\n{said}")
    if status != 0 or not content:
        return Outcome(error=f"ends with status {os.waitstatus_to_exitcode(status)}\n{said}")
    return pickle.loads(content)


def _read(pipe, until):
    """All that a pipe holds, or None if it is not closed in time."""
    parts = []
    while select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
        parts.append(pipe.read(2**16))
        if not parts[-1]:
            return b"".join(parts)
    return None


def _run_forked(function, args, writer, stacks):
    status = 1
    try:
        os.setpgid(0, 0)
        faulthandler.enable(file=stacks)
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(b"\0")
            pipe.flush()
            try:
                outcome = Outcome(value=function(*args))
            except BaseException:
                outcome = Outcome(error=traceback.format_exc())
            pipe.write(pickle.dumps(outcome))
        status = 0
    finally:
        os._exit(status)
