"""Save a module as NumPy arrays and an empty skeleton, so that parameters are stored once."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn

from sklearn_xlc.batches.randomness import usual_modes
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.training import XLCNet


class PersistenceMixin:
    """Pickle a classifier at the size of its parameters: on the CPU, without optimiser state."""

    net_: XLCNet
    classes_: np.ndarray
    _code: LabelCode
    _make_net: Any

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())  # type: ignore[call-overload]
        if "net_" in state:
            net = state.pop("net_")
            state["_saved_module"] = save_module(net.module_)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        saved = state.pop("_saved_module", None)
        super().__setstate__(state)  # type: ignore[misc]
        if saved is not None:
            self._code.classes = self.classes_
            self._weights_borrowed = is_borrowed(saved)
            rng = np.random.RandomState(0)
            with usual_modes(training=True):
                net = self._make_net(load_module(saved), 0, None, rng, one_pass=True)
                self.net_ = net.initialize()


def save_module(module: nn.Module) -> dict[str, Any]:
    """Return the state of a module, which pickles at the size of its parameters.

    joblib stores the arrays outside the pickle stream, so they can be memory mapped; they are on
    the CPU whatever device the module was trained on.
    """
    tensors = _tensors(module)
    # deepcopy takes the memo entry of a tensor for its copy: no weight is ever duplicated.
    memo: dict[int, Any] = {}
    for tensor in tensors.values():
        empty = torch.empty_like(tensor, device="meta")
        is_parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty
    weights = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    return {"version": 1, "skeleton": copy.deepcopy(module, memo), "weights": weights}


def load_module(saved: dict[str, Any]) -> Any:
    """Restore a module saved by :func:`save_module`, in evaluation mode, on the CPU."""
    if saved["version"] != 1:
        raise ValueError(
            f"the saved model has format {saved['version']}; this version of sklearn_xlc reads 1"
        )
    skeleton = saved["skeleton"]
    with warnings.catch_warnings():
        # Memory-mapped weights are read-only, which torch warns of; training copies them first.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        tensors = {name: torch.from_numpy(value) for name, value in saved["weights"].items()}
    # The reverse of `save_module`; shared tensors, and those outside a state_dict, are found too.
    memo: dict[int, Any] = {}
    for name, empty in _tensors(skeleton).items():
        is_parameter = isinstance(empty, nn.Parameter)
        memo[id(empty)] = (
            nn.Parameter(tensors[name], empty.requires_grad) if is_parameter else tensors[name]
        )
    return copy.deepcopy(skeleton, memo).eval()


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name, each once."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def is_borrowed(saved: dict[str, Any]) -> bool:
    """Whether weights are memory-mapped or read-only, so that training needs a copy."""
    return any(
        isinstance(value, np.memmap) or not value.flags.writeable
        for value in saved["weights"].values()
    )
