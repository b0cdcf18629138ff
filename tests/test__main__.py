"""The command as a process: arguments, exit codes, interrupts, what goes where."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sklearn_xlc
from sklearn_xlc import __main__ as command

pytestmark = pytest.mark.integration

ROOT = Path(sklearn_xlc.__file__).parents[1]
HELP = ("--model", "m.skops", "--text", "title")


def start(*args, **options):
    """Start the command in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, "-m", "sklearn_xlc", *map(str, args)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(arguments, env=environment, **{**pipes, **options})


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("guess",),
        ("fit", "table.csv"),
        ("predict", "m.skops", "new.csv", "--topk", "0"),
        ("fit", "t.csv", *HELP, "--labels", "tags", "--test-size", "1.5"),
        ("fit", "t.csv", *HELP, "--labels", "tags", "--test-size", "half"),
        ("serve", "m.skops", "--port", "65536"),
        ("serve", "m.skops", "--port", "-1"),
        ("predict", "m.skops", "new.csv", "--delimiter", ";;"),
        ("predict", "m.skops", "new.csv", "--delimiter", ""),
        ("fit", "t.csv", *HELP, "--labels", "tags", "--separator", ""),
    ],
)
def test_wrong_arguments(args, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(args)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "sklearn-xlc" in said
    if args[-1:] == ("",):  # the option is to blame, and not the table
        assert f"argument {args[-2]}: must " in said


def test_every_command_has_help(capsys):
    (commands,) = [
        action.choices for action in command.parser()._actions if action.dest == "command"
    ]
    assert list(commands) == [
        *("fit", "predict", "evaluate", "explain", "recalibrate", "update", "serve"),
    ]
    for name in commands:
        with pytest.raises(SystemExit):
            command.main([name, "--help"])
        assert "--quiet" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["--version"])
    assert capsys.readouterr().out.strip() == sklearn_xlc.__version__


def test_delimiters():
    assert [command._character(text) for text in (";", "\\t", "\t")] == [";", "\t", "\t"]


def test_sizes():
    assert [command._size(text) for text in ("0.25", "100", "0")] == [0.25, 100, None]


class Commands:
    """Stands for the commands, and does what a test asks for."""

    def __init__(self, monkeypatch, act):
        from sklearn_xlc.command_line import commands

        monkeypatch.setattr(commands, "serve", lambda args, say: act(say))

    def main(self, *more):
        return command.main(["serve", __file__, *more])  # any file that is there


def raising(error):
    def act(say):
        raise error

    return act


def test_errors_are_one_line(monkeypatch, capsys):
    assert Commands(monkeypatch, raising(ValueError("one\n  two"))).main() == 2
    assert capsys.readouterr().err == "sklearn-xlc: error: one two\n"
    missing = FileNotFoundError(2, "No such file or directory", "m.skops")
    assert Commands(monkeypatch, raising(missing)).main() == 2
    assert capsys.readouterr().err == "sklearn-xlc: error: m.skops: No such file or directory\n"
    assert Commands(monkeypatch, raising(KeyError("x"))).main() == 2
    said = capsys.readouterr().err
    assert said == "sklearn-xlc: error: unexpected KeyError: 'x' (--debug shows where)\n"


def test_debug_shows_the_traceback(monkeypatch, capsys):
    assert Commands(monkeypatch, raising(ValueError("one"))).main("--debug") == 2
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.endswith("sklearn-xlc: error: one\n")


def test_warnings_are_notes_of_one_line(monkeypatch, capsys):
    import warnings

    def act(say):
        say("progress")
        warnings.warn("look\n here", UserWarning, stacklevel=1)
        warnings.warn("old", DeprecationWarning, stacklevel=1)

    assert Commands(monkeypatch, act).main() == 0
    assert capsys.readouterr().err == "progress\nnote: look here\n"
    assert Commands(monkeypatch, act).main("--quiet") == 0
    assert "progress" not in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_a_fit_and_leaves_no_file(number, monkeypatch, capsys, tmp_path):
    """A fit would end after its step on KeyboardInterrupt, and keep that model."""
    from sklearn_xlc import MultiHeadClassifier
    from sklearn_xlc.training import XLCNet

    step = XLCNet.train_step
    steps = []

    def interrupted(net, *args, **kwargs):
        steps.append(1)
        if len(steps) == 2:
            os.kill(os.getpid(), number)
        return step(net, *args, **kwargs)

    def act(say):
        texts, tags = ["salt water", "a dog"] * 100, [["sea"], ["animal"]] * 100
        MultiHeadClassifier(encoder="text", ranker=None, batch_size=20).fit(texts, tags)
        (tmp_path / "model").write_text("half")

    monkeypatch.setattr(XLCNet, "train_step", interrupted)
    before = signal.getsignal(number)
    assert Commands(monkeypatch, act).main() == 128 + number
    assert signal.getsignal(number) is before
    assert capsys.readouterr().err == "interrupted\n"
    assert not list(tmp_path.iterdir())


def test_a_process(tmp_path):
    """Exit code, and one line."""
    with start("evaluate", tmp_path / "none.skops", tmp_path / "none.csv") as process:
        out, said = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, "")
    assert said == f"sklearn-xlc: error: {tmp_path / 'none.skops'}: No such file or directory\n"


def test_missing_files_are_told_before_torch_is_loaded(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "sklearn_xlc.command_line", None)  # it would load torch
    here, none = str(tmp_path), str(tmp_path / "none")
    commands = [
        ("predict", none, "-"),
        ("predict", here, none),
        ("evaluate", here, "-", "--train", none),
        ("fit", none, "--text", "a", "--labels", "b", "--model", "m.skops"),
    ]
    for args in commands:
        assert command.main(args) == 2
        assert capsys.readouterr().err == f"sklearn-xlc: error: {none}: No such file or directory\n"
    assert command.main(("explain", here, "--string", "a")) == 2
    assert "sklearn_xlc.command_line" in capsys.readouterr().err


@pytest.mark.slow
def test_processes_that_are_ended(tmp_path):
    rows = [json.dumps({"text": f"a text number {i}", "tags": [f"t{i % 9}"]}) for i in range(3000)]
    table, model = tmp_path / "table.jsonl", tmp_path / "m.skops"
    table.write_text("\n".join(rows))
    args = ("fit", table, "--text", "text", "--labels", "tags", "--model", model)
    with start(*args, "--set", "max_epochs=2000") as process:
        assert any(line.startswith("training") for line in process.stderr)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
    assert sorted(tmp_path.iterdir()) == [table]
    with start(*args, "--set", "max_epochs=1", "ranker=calibration") as process:
        process.communicate(timeout=120)
    assert process.returncode == 0
    # A reader that goes early, such as `head`, is no error to tell of.
    with start("predict", model, table, "--quiet") as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=120) == 141
        assert process.stderr.read() == ""
