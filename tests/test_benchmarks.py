"""The commands that README and the docs name: each script and each option is there."""

import ast
import re
import shlex
import sys
from pathlib import Path

import pytest

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multilabel

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
PAGES = [ROOT / "README.md", BENCHMARKS / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(text):
    """Words of each command of a page that starts a script of the benchmarks."""
    text = text.replace("\\\n", " ")
    for command in re.findall(r"(python benchmarks/[^`\n#|]+)", text):
        yield shlex.split(command)[1:]


def options(script, seen=()):
    """Names of the options that a script, or a module of the benchmarks it imports, reads."""
    tree = ast.parse(script.read_text())
    found = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and str(node.value).startswith("--")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module not in seen:
            seen = {*seen, node.module}
            for folder in (script.parent, BENCHMARKS):
                if (module := folder / f"{node.module}.py").is_file():
                    found |= options(module, seen)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_are_there(page):
    for script, *words in commands(page.read_text()):
        path = ROOT / script
        path = path / "__main__.py" if path.is_dir() else path
        assert path.is_file(), script
        missing = {word for word in words if word.startswith("--")} - options(path)
        assert not missing, f"{script} has no {', '.join(sorted(missing))}"


def test_a_wrong_command_is_found():
    (words,) = commands("text `python benchmarks/soak.py --second 3` text")
    assert words == ["benchmarks/soak.py", "--second", "3"]
    assert "--second" not in options(BENCHMARKS / "soak.py")
    assert {"--seconds", "--connections"} <= options(BENCHMARKS / "soak.py")


def test_each_stage_takes_time(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from _stages import FIT, PREDICT, Stages

    X, Y = make_extreme_multilabel(400, 100, 30, random_state=0)
    clf = MultiHeadClassifier(max_epochs=2, random_state=0)
    for stages, work in ((FIT, clf.fit), (PREDICT, lambda X, Y: clf.predict_topk(X))):
        with Stages(stages) as took:
            work(X, Y)
        assert min(took.cpu[name] for name in stages) > 0, took.cpu
    for name in ("_stages", "_measure"):
        sys.modules.pop(name)
