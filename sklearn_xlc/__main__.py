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
from sklearn_xlc.command_line import say

#: Exit codes: of what the user can change, of a reader that has gone, and, of a signal, more than.
WRONG, GONE, BY_SIGNAL = 2, 141, 128
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
        Exit code: 0, 2 after an error, 130 after an interrupt, 143 after SIGTERM.
    """
    args = parser().parse_args(argv)
    try:
        with interrupts(), notes():
            for path in _read_by(args):  # a second or two before torch is loaded
                os.stat(path)
            from sklearn_xlc.command_line import commands

            getattr(commands, args.command)(args, (lambda _: None) if args.quiet else say)
    except (KeyboardInterrupt, Interrupted) as error:
        say("interrupted")
        return int(getattr(error, "code", BY_SIGNAL + signal.SIGINT))
    except BrokenPipeError:  # what is left in the buffer goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GONE
    except Exception as error:
        if args.debug:
            traceback.print_exc()
        known = "" if isinstance(error, EXPECTED) else f"unexpected {type(error).__name__}: "
        hint = "" if args.debug or not known else " (--debug shows where)"
        say(f"sklearn-xlc: error: {known}{said(error)}{hint}")
        return WRONG
    return 0


class Interrupted(SystemExit):
    """Ctrl-C. It ends a fit, which would keep a model of fewer epochs after KeyboardInterrupt."""


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Raise `Interrupted` on Ctrl-C and SIGTERM, unless ignored or handled by somebody else.

    What is half written is then removed.
    """

    def stop(number: int, _: Any) -> None:
        raise Interrupted(BY_SIGNAL + number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    usual = (signal.default_int_handler, signal.SIG_DFL)
    ours = [number for number, handler in before.items() if handler in usual]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


@contextlib.contextmanager
def notes() -> Iterator[None]:
    """Show warnings for users as notes of one line, and no others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_: say(f"note: {said(message)}")
        yield


def said(error: Any) -> str:
    """Return the message of an error or a warning on one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    return text


def _read_by(args: argparse.Namespace) -> list[str]:
    """Return the files that a command reads."""
    names = ("table", "train") if args.command == "fit" else ("model", "table", "train")
    paths = (getattr(args, name, None) for name in names)
    return [path for path in paths if path not in (None, "-")]


# --- arguments ---------------------------------------------------------------------------------


def _count(text: str) -> int:
    """Return a number of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got {text!r}")
    return int(text)


def _character(text: str) -> str:
    """Return a single character; a tab may be written as in most languages."""
    found = "\t" if text == "\\t" else text
    if len(found) != 1:
        raise argparse.ArgumentTypeError(f"must be one character, or \\t, got {text!r}")
    return found


def _separator(text: str) -> str:
    """Return what separates labels."""
    if not text:
        raise argparse.ArgumentTypeError(
            "must have a character; leave it out for lists, or one class a row"
        )
    return text


def _port(text: str) -> int:
    """Return the number of a port."""
    if not text.isdecimal() or int(text) >= 2**16:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to {2**16 - 1}, got {text!r}")
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


#: Arguments by their names; commands may change some of them.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "model": {"metavar": "MODEL", "help": "file of a model"},
    "table": {
        "metavar": "TABLE",
        "help": "CSV, TSV, JSON lines or Parquet, plain or of gzip; - for the standard input",
    },
    "--format": {
        "choices": ["csv", "tsv", "jsonl", "parquet"],
        "help": "what the table is, if its name does not say",
    },
    "--delimiter": {
        "type": _character,
        "metavar": "CHARACTER",
        "help": "between fields of CSV",
    },
    "--encoding": {"default": "utf-8", "metavar": "NAME", "help": "of the table (UTF-8)"},
    "--text": {
        "dest": "columns",
        "nargs": "+",
        "metavar": "COLUMN",
        "help": "texts (those that the model knows)",
    },
    "--id": {"dest": "ids", "metavar": "COLUMN", "help": "names of rows"},
    "--labels": {"metavar": "COLUMN", "help": "labels"},
    "--separator": {
        "type": _separator,
        "metavar": "CHARACTERS",
        "help": "between labels; without it, a list in JSON or one class a row",
    },
    "--model": {"metavar": "FILE", "required": True, "help": "file to write"},
    "--test-size": {
        "type": _size,
        "metavar": "SHARE",
        "help": "rows to score the model on, and not to train it on: a share, or a number",
    },
    "--seed": {"type": int, "default": 0, "help": "of all that is random (0)"},
    "--decision": {"help": "how label sets are chosen: threshold, topk, ... (auto)"},
    "--set": {
        "nargs": "+",
        "action": "extend",
        "default": [],
        "metavar": "NAME=VALUE",
        "help": "parameters of MultiHeadClassifier, such as head=cascade head__beam_width=3",
    },
    "--output": {"metavar": "FILE", "help": "file to write, in place of that of the model"},
    "--exact": {"action": "store_true", "help": "save all bits of the weights, not six"},
    "--topk": {"type": _count, "metavar": "K"},
    "--train": {"metavar": "TABLE"},
    "--report": {
        "metavar": "FILE",
        "help": "errors of each label, to .csv, .tsv, .jsonl (needs pandas)",
    },
    "--row": {"type": int, "default": 0, "help": "row of the table, from 0 on (0)"},
    "--string": {"metavar": "TEXT", "help": "text to explain, without a table"},
    "--words": {"type": _count, "default": 10, "metavar": "N", "help": "words (10)"},
    "--examples": {
        "type": int,
        "metavar": "N",
        "help": "similar training rows (3, if the model remembers them)",
    },
    "--host": {"default": "127.0.0.1", "help": "address (127.0.0.1)"},
    "--port": {"type": _port, "default": 8000, "help": "port (8000)"},
    "--workers": {"type": _count, "default": 1, "help": "processes (1)"},
    "--json": {"action": "store_true", "help": "write JSON"},
    "--quiet": {"action": "store_true", "help": "say nothing but errors"},
    "--debug": {"action": "store_true", "help": "show where an error came from"},
}
#: Arguments about a table, and about its labels.
TABLE = ("table", "--format", "--delimiter", "--encoding", "--text", "--id")
LABELS = ("--labels", "--separator")
SETTING = ("--decision", "--set")
#: Help of each command, its arguments, and what is special about these.
COMMANDS: dict[str, tuple[str, tuple[str, ...], dict[str, dict[str, Any]]]] = {
    "fit": (
        "fit a model to a table and save it",
        (*TABLE, *LABELS, "--model", "--test-size", "--seed", *SETTING, "--exact", "--json"),
        {"--text": {"required": True, "help": "texts"}, "--labels": {"required": True}},
    ),
    "predict": (
        "write the labels of the rows of a table",
        ("model", *TABLE, "--topk", "--output", "--json"),
        {
            "--topk": {"help": "write the best K labels with probabilities, not label sets"},
            "--output": {"default": "-", "help": ".csv, .tsv or .jsonl (standard output)"},
        },
    ),
    "evaluate": (
        "score a model on a table with labels",
        ("model", *TABLE, *LABELS, "--train", "--report", "--json"),
        {"--train": {"help": "table that the model was fitted to, for PSP"}},
    ),
    "explain": (
        "say why a text has its best labels",
        (
            "model",
            *TABLE,
            "--row",
            "--string",
            "--topk",
            "--words",
            "--examples",
            "--train",
            "--json",
        ),
        {
            "table": {"nargs": "?"},
            "--topk": {"default": 3, "help": "labels (3)"},
            "--train": {"help": "table that the model was fitted to, to show its texts"},
        },
    ),
    "recalibrate": (
        "learn the decision and probabilities anew from rows that the model has not seen",
        ("model", *TABLE, *LABELS, *SETTING, "--output", "--exact"),
        {},
    ),
    "update": (
        "train a model with further rows, which may have new labels",
        ("model", *TABLE, *LABELS, "--output", "--exact"),
        {},
    ),
    "serve": ("answer requests over HTTP", ("model", "--host", "--port", "--workers"), {}),
}


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
    for command, (text, names, special) in COMMANDS.items():
        made = commands.add_parser(command, help=text, description=f"{text[0].upper()}{text[1:]}.")
        for name in (*names, "--quiet", "--debug"):
            made.add_argument(name, **{**ARGUMENTS[name], **special.get(name, {})})
    return top


if __name__ == "__main__":
    sys.exit(main())
