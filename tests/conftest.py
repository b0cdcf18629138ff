"""Fixtures shared by the suite: seeds, routing and the folder of real data."""

import os

# Set before torch and NumPy load. The suite's arrays are small: threads cost more than they save,
# and on a busy machine spinning ones cost ten times their work.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["MPLBACKEND"] = "Agg"  # pictures are drawn to memory

from pathlib import Path

import numpy as np
import pytest
import sklearn

#: Seeds of `global_random_seed`: a number, a range such as 3-9 (both ends included), or "all".
SEEDS = os.environ.get("SKLEARN_XLC_TESTS_GLOBAL_RANDOM_SEED", "0-2")


def _seeds(text):
    first, _, last = ("0-99" if text == "all" else text).partition("-")
    return range(int(first), int(last or first) + 1)


@pytest.fixture(params=_seeds(SEEDS))
def global_random_seed(request):
    """Seed of a test that must hold for any seed: three of them, or those of `SEEDS`."""
    return request.param


@pytest.fixture
def rng(global_random_seed):
    """Generator for a test that must hold for any seed."""
    return np.random.default_rng(global_random_seed)


@pytest.fixture
def routing():
    """scikit-learn's metadata routing, switched on."""
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture(scope="session")
def data_dir():
    """Folder of the real data sets; skips the test where SKLEARN_XLC_DATA does not name one."""
    path = os.environ.get("SKLEARN_XLC_DATA")
    if not path:
        pytest.skip("set SKLEARN_XLC_DATA to the folder of the real data sets")
    return Path(path)
