"""Every picture is closed after its test."""

import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")
