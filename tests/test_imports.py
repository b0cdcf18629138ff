"""The layout: what loads torch, how long a module may be, and where its tests are."""

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
#: Nothing but names: what scikit-learn keeps to itself, and a number.
WITHOUT_TESTS = {Path("_compat.py"), Path("_version.py")}


def run(script):
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()


@pytest.mark.parametrize("name", ["codes", "datasets", "geometry", "metrics"])
def test_rooms_without_a_network_leave_torch_alone(name):
    script = f"import sys, sklearn_xlc.{name}; print(*{{'torch', 'skorch'}} & set(sys.modules))"
    assert run(script) == []


def test_estimators_load_when_they_are_asked_for():
    script = (
        "import sys, sklearn_xlc; print('torch' in sys.modules); "
        "sklearn_xlc.MultiHeadClassifier; print('torch' in sys.modules)"
    )
    assert run(script) == ["False", "True"]


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_no_module_is_long(module):
    assert len((PACKAGE / module).read_text().splitlines()) <= 600


@pytest.mark.parametrize("module", sorted(set(MODULES) - WITHOUT_TESTS), ids=str)
def test_every_module_has_tests_of_its_name(module):
    name = f"test_{module.stem.removeprefix('_')}.py"
    assert (TESTS / module.parent / name).is_file()


@pytest.mark.parametrize("package", sorted(PACKAGE.rglob("__init__.py")), ids=str)
def test_what_a_package_offers_exists(package):
    parts = package.parent.relative_to(PACKAGE.parent).parts
    module = __import__(".".join(parts), fromlist=["__all__"])
    if hasattr(module, "__all__"):
        assert list(module.__all__) == sorted(set(module.__all__))
        assert all(hasattr(module, name) for name in module.__all__)
