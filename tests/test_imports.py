"""The layout: what loads torch, how long a module may be, and where its tests are."""

import ast
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import sklearn_xlc

PACKAGE = Path(sklearn_xlc.__file__).parent
TESTS = Path(__file__).parent
#: The script that counts lines of code.
SPEC = importlib.util.spec_from_file_location("count", TESTS.parent / ".ci" / "count.py")
COUNT = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(COUNT)
MODULES = sorted(
    path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"
)
#: Nothing but names, and nothing but texts.
WITHOUT_TESTS = {Path("_compat.py"), Path("engine/_docs.py")}
#: What every room may use.
GROUND_FLOOR = [
    *("_bounds", "_carrying", "_checks", "_compat", "_config", "_csr", "_files", "_ids"),
    *("_labels", "_part", "_ranking", "_tags", "_warn"),
]
ESTIMATORS = [
    "AggregatedLabelClassifier",
    "DFTSigmoidClassifier",
    "EAGLETransformer",
    "ETFNeuralCollapseClassifier",
    "MIMLClassifier",
    "MultiHeadClassifier",
    "SentenceVectorizer",
    "TextColumns",
]

#: Packages that load neither torch nor skorch.
WITHOUT_TORCH = [
    *("aggregation", "codes", "datasets", "decisions", "geometry", "groups", "metrics"),
    *("optimizers", "ranking"),
]
#: Torch's compiler and what it loads in turn: a second of work, for nothing that we need.
COMPILER = ("sympy", "torch._dynamo", "torch._inductor", "torch.distributed", "torch.export")
#: One process for all, as each takes seconds to load scikit-learn and torch: the packages, then
#: fits on every way through the package. A line for each step: what it was, and what it loaded.
LOADING = """
import importlib, pickle, sys, tempfile
def report(step):
    print(step, *sorted(set(sys.modules) - loaded))
    loaded.update(sys.modules)
loaded = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(f"sklearn_xlc.{name}")
    report(name)
import numpy as np
import sklearn_xlc as xlc
xlc.MultiHeadClassifier
report("estimators")
X = np.random.default_rng(0).random((110, 6))
y = np.arange(110) % 11
Y = ((y[:, None] + np.arange(11)) % 5 == 0).astype(int)
from sklearn_xlc.encoders import MLP
from sklearn_xlc.training import WeightAveraging
quick = {"max_epochs": 1, "batch_size": 60, "encoder": MLP((4,))}
kept = {"early_stopping": True, "callbacks": [WeightAveraging("ema")], "precision": "bfloat16"}
for clf, target in [
    (xlc.MultiHeadClassifier("flat", **quick, **kept), Y),
    (xlc.MultiHeadClassifier("cascade", optimizer="mixed", **quick), Y),
    (xlc.MultiHeadClassifier("product", optimizer="sgd", **quick), y),
    (xlc.MultiHeadClassifier("sampling", **quick), y),
    (xlc.DFTSigmoidClassifier(**quick), Y),
    (xlc.ETFNeuralCollapseClassifier(**quick), Y),
]:
    clf.fit(X, target).predict(X)
    clf.partial_fit(X, target).predict_topk(X[:1])
    pickle.loads(pickle.dumps(clf)).predict(X)
for head in ("flat", "product", "cascade", "sampling"):
    clf = xlc.MultiHeadClassifier(head, **quick).partial_fit(X, y, classes=range(11))
    clf.partial_fit(X, y, classes=range(14))
    pickle.loads(pickle.dumps(clf)).predict(X)
with tempfile.TemporaryDirectory() as folder:
    xlc.MultiHeadClassifier(checkpoint=folder, **quick).fit(X, Y)
bags = np.arange(110) // 10
xlc.MIMLClassifier(**quick).fit(X, Y[::10], bags).predict(X, bags)
base = xlc.MultiHeadClassifier(**quick)
xlc.AggregatedLabelClassifier(base).fit(X, Y[::10], groups=bags).predict(X)
xlc.EAGLETransformer().fit(X, Y[::10], bags)
report("fits")
"""


@pytest.fixture(scope="module")
def loaded():
    """Modules that each step of `LOADING` loads in a fresh process."""
    command = [sys.executable, "-W", "ignore", "-c", LOADING, *WITHOUT_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {step: names for step, *names in map(str.split, done.stdout.splitlines())}


@pytest.mark.integration
def test_rooms_without_a_network_leave_torch_alone(loaded):
    assert list(loaded) == [*WITHOUT_TORCH, "estimators", "fits"]
    for room in WITHOUT_TORCH:
        assert not {"torch", "skorch"} & set(loaded[room])
    assert {"torch", "skorch"} <= set(loaded["estimators"])  # when asked for
    assert not {"transformers", "tokenizers", "wordllama"} & set(loaded["estimators"])


@pytest.mark.integration
def test_a_first_fit_leaves_the_compiler_of_torch_alone(loaded):
    assert "sklearn_xlc.training.optimizer" in loaded["estimators"]
    # Nor does a plan without weights, which every fit makes first.
    assert [name for name in loaded["fits"] if name.startswith(COMPILER)] == []
    assert len(loaded["fits"]) < 300


@pytest.mark.integration
def test_what_runs_on_several_machines_is_left_alone(loaded):
    found = [name for names in loaded.values() for name in names]
    assert [name for name in found if name.startswith(("dask", "distributed"))] == []


def test_the_ground_floor():
    assert sorted(path.stem for path in PACKAGE.glob("_[a-z]*.py")) == GROUND_FLOOR


def test_public_estimators():
    assert [name for name in sklearn_xlc.__all__ if name[0].isupper()] == ESTIMATORS
    for name in ESTIMATORS:
        assert getattr(sklearn_xlc, name).__name__ == name
        assert name in dir(sklearn_xlc)


def statements(node):
    """All statements within a node; functions are in no expression."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


@pytest.mark.integration
def test_modules_and_functions_are_short():
    for module in MODULES:
        text = (PACKAGE / module).read_text(encoding="utf-8")
        n_lines = len(text.splitlines())
        assert n_lines <= 400 or COUNT.count_module(PACKAGE / module)["code"] <= 400, module
        for node in statements(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                n_lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
                assert n_lines <= 45, f"{node.name} in {module} has {n_lines} lines"


def test_every_module_has_tests_of_its_name():
    for module in set(MODULES) - WITHOUT_TESTS:
        name = f"test_{module.stem.removeprefix('_')}.py"
        assert (TESTS / module.parent / name).is_file(), module


#: Imports of a module of another room: the commands load torch, and are loaded once they run.
BEYOND_FACADES = {("__main__.py", "sklearn_xlc.command_line.commands")}


def imported(tree):
    """Full names of the modules, or of what may be modules, that code imports anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_rooms_import_each_other_by_their_facades():
    known = {".".join(("sklearn_xlc", *module.with_suffix("").parts)) for module in MODULES}
    found = {
        (module.as_posix(), name)
        for module in MODULES
        for name in imported(ast.parse((PACKAGE / module).read_text(encoding="utf-8")))
        if name in known and name.count(".") > 1 and name.split(".")[1] != module.parts[0]
    }
    assert found == BEYOND_FACADES


def test_what_a_package_offers_exists():
    for package in PACKAGE.rglob("__init__.py"):
        parts = package.parent.relative_to(PACKAGE.parent).parts
        module = importlib.import_module(".".join(parts))
        names = list(getattr(module, "__all__", ()))
        assert names == sorted(set(names)), module
        assert all(hasattr(module, name) for name in names), module
