"""The command `sklearn-xlc`, and `python -m sklearn_xlc`: arguments, messages, exit codes."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import sklearn_xlc

#: Exit codes: of what the user can change, of an interrupt, of a reader that has gone.
WRONG, INTERRUPTED, GONE = 2, 130, 141
#: Errors whose message says what to change.
EXPECTED = (ValueError, TypeError, OSError, ImportError, MemoryError)
EXAMPLES = """examples:
  sklearn-xlc fit table.csv --text title body --labels tags --separator ";" --model m.skops
  sklearn-xlc predict m.skops new.csv --topk 5 --output ranked.csv
  sklearn-xlc explain m.skops --string "a small brown bird"
  sklearn-xlc serve m.skops --port 8000
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, default=None
        Arguments. None: those of the process.

    Returns
    -------
    int
        Exit code: 0, 2 after an error, 130 after an interrupt.
    """
    args = parser().parse_args(argv)
    try:
        with interrupts(), notes():
            from sklearn_xlc.command_line import commands

            getattr(commands, args.command)(args, _nothing if args.quiet else _say)
    except (KeyboardInterrupt, Interrupted):
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # what is left in the buffer goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GONE
    except Exception as error:
        if args.debug:
            traceback.print_exc()
        known = "" if isinstance(error, EXPECTED) else f"unexpected {type(error).__name__}: "
        hint = "" if args.debug or not known else " (--debug shows where)"
        _say(f"sklearn-xlc: error: {known}{said(error)}{hint}")
        return WRONG
    return 0


class Interrupted(SystemExit):
    """Ctrl-C. It ends a fit, which would keep a model of fewer epochs after KeyboardInterrupt."""


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Raise `Interrupted` on Ctrl-C, unless it is ignored or handled by somebody else."""

    def stop(*_: Any) -> None:
        raise Interrupted(INTERRUPTED)

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if not is_main or before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def notes() -> Iterator[None]:
    """Show warnings for users as notes of one line, and no others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_: _say(f"note: {said(message)}")
        yield


def said(error: Any) -> str:
    """Return the message of an error or a warning on one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    return text


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _nothing(text: str) -> None:
    pass


# --- arguments ---------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(
        "sklearn-xlc",
        description="Classify texts with many labels: from a table to a model, its predictions, "
        "scores and explanations, and a service.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=sklearn_xlc.__version__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (_fit, _predict, _evaluate, _explain, _recalibrate, _update, _serve):
        command = add(commands)
        command.add_argument("--quiet", action="store_true", help="say nothing but errors")
        command.add_argument("--debug", action="store_true", help="show where an error came from")
    return top


def _command(commands: Any, name: str, text: str, table: str | None = "?") -> Any:
    """Add a command with a model and, unless None, a table."""
    command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    if name != "fit":
        command.add_argument("model", metavar="MODEL", help="file of a model")
    if table is None:
        return command
    nargs = {"nargs": "?"} if table == "?" else {}
    command.add_argument(
        "table",
        metavar="TABLE",
        help="CSV, TSV, JSON lines or Parquet, plain or of gzip; - for the standard input",
        **nargs,
    )
    command.add_argument(
        "--format",
        choices=["csv", "tsv", "jsonl", "parquet"],
        help="what the table is, if its name does not say",
    )
    command.add_argument("--delimiter", metavar="CHARACTER", help="between fields of CSV")
    command.add_argument(
        "--encoding", default="utf-8-sig", metavar="NAME", help="of the table (UTF-8)"
    )
    required = name == "fit"
    of_model = "" if required else " (those that the model knows)"
    command.add_argument(
        "--text", nargs="+", metavar="COLUMN", required=required, help=f"texts{of_model}"
    )
    command.add_argument("--id", dest="ids", metavar="COLUMN", help="names of rows")
    return command


def _labels(command: Any, required: bool = False) -> None:
    command.add_argument("--labels", metavar="COLUMN", required=required, help="labels")
    command.add_argument(
        "--separator",
        metavar="CHARACTERS",
        help="between labels; without it, a list in JSON or one class a row",
    )


def _learning(command: Any) -> None:
    command.add_argument(
        "--exact", action="store_true", help="save all bits of the weights, not six"
    )


def _setting(command: Any) -> None:
    command.add_argument(
        "--decision", help="how label sets are chosen: threshold, topk, ... (auto)"
    )
    command.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help="parameters of MultiHeadClassifier, such as head=cascade head__beam_width=3",
    )


def _json(command: Any) -> None:
    command.add_argument("--json", action="store_true", help="write JSON")


def _fit(commands: Any) -> Any:
    command = _command(commands, "fit", "fit a model to a table and save it", "")
    _labels(command, required=True)
    command.add_argument("--model", metavar="FILE", required=True, help="file to write")
    command.add_argument(
        "--test-size",
        type=_size,
        metavar="SHARE",
        help="rows to score the model on, and not to train it on: a share, or a number",
    )
    command.add_argument("--seed", type=int, default=0, help="of all that is random (0)")
    _setting(command)
    _learning(command)
    _json(command)
    return command


def _predict(commands: Any) -> Any:
    command = _command(commands, "predict", "write the labels of the rows of a table", "")
    command.add_argument(
        "--topk",
        type=_count,
        metavar="K",
        help="write the best K labels with probabilities, not label sets",
    )
    command.add_argument(
        "--output", default="-", metavar="FILE", help=".csv, .tsv or .jsonl (standard output)"
    )
    _json(command)
    return command


def _evaluate(commands: Any) -> Any:
    command = _command(commands, "evaluate", "score a model on a table with labels", "")
    _labels(command)
    command.add_argument(
        "--train", metavar="TABLE", help="table that the model was fitted to, for PSP"
    )
    command.add_argument(
        "--report",
        metavar="FILE",
        help="errors of each label, to .csv, .tsv, .jsonl (needs pandas)",
    )
    _json(command)
    return command


def _explain(commands: Any) -> Any:
    command = _command(commands, "explain", "say why a text has its best labels")
    command.add_argument("--row", type=int, default=0, help="row of the table, from 0 on (0)")
    command.add_argument("--string", metavar="TEXT", help="text to explain, without a table")
    command.add_argument("--topk", type=_count, default=3, metavar="K", help="labels (3)")
    command.add_argument("--words", type=_count, default=10, metavar="N", help="words (10)")
    command.add_argument(
        "--examples",
        type=int,
        metavar="N",
        help="similar training rows (3, if the model remembers them)",
    )
    command.add_argument(
        "--train", metavar="TABLE", help="table that the model was fitted to, to show its texts"
    )
    _json(command)
    return command


def _recalibrate(commands: Any) -> Any:
    text = "learn the decision and probabilities anew from rows that the model has not seen"
    command = _command(commands, "recalibrate", text, "")
    _labels(command)
    _setting(command)
    _output_model(command)
    return command


def _update(commands: Any) -> Any:
    text = "train a model with further rows, which may have new labels"
    command = _command(commands, "update", text, "")
    _labels(command)
    _output_model(command)
    return command


def _output_model(command: Any) -> None:
    command.add_argument(
        "--output", metavar="FILE", help="file to write, in place of that of the model"
    )
    _learning(command)


def _serve(commands: Any) -> Any:
    command = _command(commands, "serve", "answer requests over HTTP", None)
    command.add_argument("--host", default="127.0.0.1", help="address (127.0.0.1)")
    command.add_argument("--port", type=int, default=8000, help="port (8000)")
    command.add_argument("--workers", type=_count, default=1, help="processes (1)")
    return command


def _count(text: str) -> int:
    """Return a number of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got {text!r}")
    return int(text)


def _size(text: str) -> float | int | None:
    """Return a share of rows, or a number of rows; None for 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (0 <= value < 1 or value.is_integer() and value >= 1):
        raise argparse.ArgumentTypeError(f"must be a share below 1, or a number, got {text!r}")
    return int(value) if value >= 1 else value or None


if __name__ == "__main__":
    sys.exit(main())
