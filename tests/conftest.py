"""Fixtures shared by the suite: seeds, routing and the folder of real data."""

import functools
import gc
import importlib
import os
import signal
import sys
import threading

# Set before torch and NumPy load. The suite's arrays are small: threads cost more than they save,
# and on a busy machine spinning ones cost ten times their work.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["MPLBACKEND"] = "Agg"  # pictures are drawn to memory
# A GPU stays unseen unless asked for, so that the suite is the same on every machine.
os.environ.setdefault("SKLEARN_XLC_TEST_DEVICE", "cpu")
if os.environ["SKLEARN_XLC_TEST_DEVICE"] != "cuda":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

from pathlib import Path

import _accelerator
import hypothesis
import numpy as np
import pytest
import sklearn
import torch
from sklearn.utils import Bunch

import sklearn_xlc
from sklearn_xlc.ranking import boosted

#: Seeds of `global_random_seed`: a number, a range such as 3-9 (both ends included), or "all".
#: Where none are given: 0, as scikit-learn takes one by default, and 1 and 2 in slow tests.
SEEDS = os.environ.get("SKLEARN_XLC_TESTS_GLOBAL_RANDOM_SEED")


#: Device of the suite, which estimators with device="auto" take: "cpu", the default, "cuda", or
#: "pretended", which refuses what a GPU refuses, and computes on the CPU.
DEVICE = os.environ["SKLEARN_XLC_TEST_DEVICE"]
#: Modules that meet networks through estimators only: they replay on a GPU.
REPLAYED = ("test_common", "test_every_classifier", "test_every_loss", "test_model_selection")


# Properties that say nothing else have a hundred examples with --hypothesis-profile=default.
hypothesis.settings.register_profile("suite", max_examples=30)
hypothesis.settings.load_profile("suite")

#: Trees of a ranker outside of the tests.
N_TREES = boosted.N_TREES

#: A script, run by `make wheel` and by tests/test_half_hour.py: doctests need not import it.
collect_ignore = ["half_hour.py"]


class ImportedOnce:
    """Doctests of the modules that the package imports: pytest would import them a second time."""

    def pytest_collectstart(self, collector):
        root = Path(sklearn_xlc.__file__).parents[1]
        if isinstance(collector, pytest.Module) and collector.path.is_relative_to(
            root / "sklearn_xlc"
        ):
            parts = collector.path.relative_to(root).with_suffix("").parts
            importlib.import_module(".".join(parts).removesuffix(".__init__"))


class GarbageOfTests:
    """Garbage is looked for in what tests make: libraries and tests, once collected, stay."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self):
        gc.disable()
        try:
            return (yield)
        finally:
            gc.freeze()
            gc.set_threshold(20_000, 20, 20)  # every few tests, rather than many times in each
            gc.enable()


class PicturesClosed:
    """Every picture is closed after its test, those of doctests and of pages, too."""

    def pytest_runtest_teardown(self):
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None:  # also of tests that take it away
            pyplot.close("all")


class Pretended:
    """Every test runs on the pretended device, in all of its threads."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self):
        run = threading.Thread.run

        def pretending(thread):
            with _accelerator.Pretending():
                run(thread)

        with pytest.MonkeyPatch.context() as patch, _accelerator.pretended():
            patch.setattr(threading.Thread, "run", pretending)
            patch.setattr(torch.cuda, "is_available", lambda: True)
            alone = sklearn_xlc.distributed.Alone
            patch.setattr(alone, "gpu", lambda self: _accelerator.DEVICE.type)
            return (yield)


def pytest_configure(config):
    """Refuse a device that there is not, rather than replay the suite on the CPU."""
    # As plugins: hooks of this file see its own folder only.
    plugins = (ImportedOnce(), GarbageOfTests(), PicturesClosed())
    for plugin in (*plugins, Pretended()) if DEVICE == "pretended" else plugins:
        config.pluginmanager.register(plugin)
    # What a shell starts in the background ignores Ctrl-C, and with it the tests of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if DEVICE not in ("cpu", "cuda", "pretended"):
        raise pytest.UsageError(
            f"SKLEARN_XLC_TEST_DEVICE must be 'cpu', 'cuda' or 'pretended', got {DEVICE!r}"
        )
    if DEVICE == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise pytest.UsageError("SKLEARN_XLC_TEST_DEVICE=cuda, but no CUDA device was found")
        # Equal fits are equal on a GPU, too, where sums have one order.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


def pytest_collection_modifyitems(items):
    """On a GPU, skip tests of single modules, whose tensors and bits are those of the CPU."""
    if DEVICE == "cpu":
        return
    skip = pytest.mark.skip(reason="not replayed on a GPU: its tensors are made on the CPU")
    for item in items:
        reasons = [mark.kwargs.get("reason") for mark in item.iter_markers("skipif")]
        if item.path.stem not in REPLAYED and "needs a GPU" not in reasons:
            item.add_marker(skip)


def _seeds(text):
    if text is None:
        return [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
    first, _, last = ("0-99" if text == "all" else text).partition("-")
    return range(int(first), int(last or first) + 1)


@pytest.fixture(params=_seeds(SEEDS))
def global_random_seed(request):
    """Seed of a test that must hold for any seed: those of `SEEDS`."""
    return request.param


@pytest.fixture
def rng(global_random_seed):
    """Generator for a test that must hold for any seed."""
    return np.random.default_rng(global_random_seed)


@pytest.fixture
def two_threads():
    """Give torch two threads during a test."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def routing():
    """scikit-learn's metadata routing, switched on."""
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture
def ten_trees(monkeypatch):
    """Every fit of a ranker ends after ten trees."""
    from sklearn_xlc.ranking import BoostedRanker

    trees = BoostedRanker._new_estimator

    def few_trees(ranker, stride):
        made = trees(ranker, stride)
        return made if ranker.estimator else made.set_params(max_iter=10)

    monkeypatch.setattr(BoostedRanker, "_new_estimator", few_trees)


def _epochs_of_fits(monkeypatch, most):
    """Every fit of a network ends after that many epochs, if not before."""
    from sklearn_xlc.training import XLCNet

    loop = XLCNet.fit_loop

    def short_loop(net, *args, **kwargs):
        net.set_params(max_epochs=min(net.max_epochs, most))
        return loop(net, *args, **kwargs)

    monkeypatch.setattr(XLCNet, "fit_loop", short_loop)


@pytest.fixture
def one_epoch(monkeypatch, ten_trees):
    """Every fit of a network ends after an epoch, and that of a ranker after ten trees."""
    _epochs_of_fits(monkeypatch, 1)


@pytest.fixture
def two_epochs(monkeypatch, ten_trees):
    """Every fit of a network ends after two epochs, and that of a ranker after ten trees."""
    _epochs_of_fits(monkeypatch, 2)


@functools.cache
def _read_once(load, **params):
    """What a loader of data returns, for those that leave it as it is."""
    return load(**params)


@pytest.fixture
def few_glosses(request, monkeypatch):
    """Every fourth definition of WordNet, or as many as the parameter says."""
    from sklearn_xlc import datasets

    step, load = getattr(request, "param", 4), datasets.load_wordnet_glosses

    def load_few(**params):
        glosses = _read_once(load, **params)
        few = {name: glosses[name][::step] for name in ("train_indices", "test_indices")}
        return Bunch(**{**glosses, **few})

    monkeypatch.setattr(datasets, "load_wordnet_glosses", load_few)


@pytest.fixture(scope="session")
def data_dir():
    """Folder of the real data sets; skips the test where SKLEARN_XLC_DATA does not name one."""
    path = os.environ.get("SKLEARN_XLC_DATA")
    if not path:
        pytest.skip("set SKLEARN_XLC_DATA to the folder of the real data sets")
    return Path(path)


@pytest.fixture(scope="module", autouse=True)
def _few_trees(request):
    """Let rankers learn few trees: a hundred take four fifths of the time of a small fit.

    Slow tests have all, tests with the fixture `all_trees`, and modules with
    `all_trees_of_module`.
    """
    if request.config.getoption("markexpr") != "slow":
        boosted.N_TREES = 12
    yield
    boosted.N_TREES = N_TREES


@pytest.fixture(scope="module")
def all_trees_of_module(_few_trees):
    """Rankers of this module learn all trees from here on."""
    boosted.N_TREES = N_TREES


@pytest.fixture
def all_trees(monkeypatch):
    """Rankers learn all trees: their quality is compared."""
    monkeypatch.setattr(boosted, "N_TREES", N_TREES)
