"""Types, devices and seeds."""

import numpy as np
import pytest
import torch
from torch import nn

from sklearn_xlc.training.devices import numpy_dtype, resolve_device, seeded


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numpy_dtype(dtype):
    assert numpy_dtype(nn.Linear(1, 1).to(dtype)) == np.zeros(0, str(dtype)[6:]).dtype


def test_devices(monkeypatch):
    assert resolve_device("cpu") == resolve_device(torch.device("cpu")) == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == "cpu"
    with pytest.warns(UserWarning, match="device='cuda:1' needs a GPU, but there is none"):
        assert resolve_device("cuda:1") == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == "cuda"
    for wrong in ("gpu", "meta", "cpu:x", ""):
        with pytest.raises(ValueError, match=f"device='{wrong}' is neither 'auto' nor a torch dev"):
            resolve_device(wrong)


def test_seeded():
    before = torch.get_rng_state()
    drawn = []
    for _ in range(2):
        with seeded(np.random.RandomState(3)):
            drawn.append(torch.rand(4))
    assert torch.equal(*drawn)
    assert torch.equal(torch.get_rng_state(), before)
