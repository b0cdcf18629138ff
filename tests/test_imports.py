"""The layout: what loads torch, how long a module may be, and where its tests are."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import sklearn_xlc

PACKAGE = Path(sklearn_xlc.__file__).parent
TESTS = Path(__file__).parent
MODULES = sorted(
    path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"
)
#: Nothing but names: what scikit-learn keeps to itself.
WITHOUT_TESTS = {Path("_compat.py")}
#: What every room may use.
GROUND_FLOOR = ["_bounds", "_checks", "_compat", "_config", "_csr", "_files", "_ranking"]
ESTIMATORS = [
    "AggregatedLabelClassifier",
    "DFTSigmoidClassifier",
    "EAGLETransformer",
    "ETFNeuralCollapseClassifier",
    "MIMLClassifier",
    "MultiHeadClassifier",
]

#: One process for all: each takes seconds to load scikit-learn.
LOADING = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(f"sklearn_xlc.{name}")
    print(name, *{"torch", "skorch"} & set(sys.modules))
import sklearn_xlc
sklearn_xlc.MultiHeadClassifier
print("torch" in sys.modules)
"""


def test_rooms_without_a_network_leave_torch_alone():
    rooms = ["aggregation", "codes", "datasets", "decisions", "geometry", "groups", "metrics"]
    done = subprocess.run(
        [sys.executable, "-c", LOADING, *rooms], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [*rooms, "True"]  # the estimators load it when asked for


def test_the_ground_floor():
    assert sorted(path.stem for path in PACKAGE.glob("_[a-z]*.py")) == GROUND_FLOOR


def test_public_estimators():
    assert [name for name in sklearn_xlc.__all__ if name[0].isupper()] == ESTIMATORS
    for name in ESTIMATORS:
        assert getattr(sklearn_xlc, name).__name__ == name
        assert name in dir(sklearn_xlc)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_modules_and_functions_are_short(module):
    text = (PACKAGE / module).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 500
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            n_lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            assert n_lines <= 45, f"{node.name} has {n_lines} lines"


@pytest.mark.parametrize("module", sorted(set(MODULES) - WITHOUT_TESTS), ids=str)
def test_every_module_has_tests_of_its_name(module):
    name = f"test_{module.stem.removeprefix('_')}.py"
    assert (TESTS / module.parent / name).is_file()


@pytest.mark.parametrize("package", sorted(PACKAGE.rglob("__init__.py")), ids=str)
def test_what_a_package_offers_exists(package):
    parts = package.parent.relative_to(PACKAGE.parent).parts
    module = importlib.import_module(".".join(parts))
    if hasattr(module, "__all__"):
        assert list(module.__all__) == sorted(set(module.__all__))
        assert all(hasattr(module, name) for name in module.__all__)
