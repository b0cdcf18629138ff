"""Fixtures shared by the suite: seeds, threads, devices and the folder of real data."""

import os

# Set before torch loads: on a busy machine spinning threads cost ten times their work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(params=[0])
def global_random_seed(request):
    """Seed of a test that must hold for any seed."""
    return request.param


@pytest.fixture
def rng(global_random_seed):
    return np.random.default_rng(global_random_seed)


@pytest.fixture(scope="session")
def data_dir():
    """Folder of the real data sets; skips the test where SKLEARN_XLC_DATA does not name one."""
    path = os.environ.get("SKLEARN_XLC_DATA")
    if not path:
        pytest.skip("set SKLEARN_XLC_DATA to the folder of the real data sets")
    return Path(path)
