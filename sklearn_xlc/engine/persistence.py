"""Save a module as NumPy arrays and an empty skeleton; each parameter is stored once."""

from __future__ import annotations

import copy
import functools
import zlib
from typing import Any

import numpy as np
import torch
from torch import nn

from sklearn_xlc._files import Streamed, digest, versions, warn_of_versions
from sklearn_xlc.batches.randomness import usual_modes
from sklearn_xlc.distributed.gathering import gathered, whole_skeleton
from sklearn_xlc.engine.described import joined_state, split_state
from sklearn_xlc.engine.object_tree import describe
from sklearn_xlc.engine.packing import PackedWeight, RowForm, prepared, shape_of, unpacked
from sklearn_xlc.training.devices import shared_tensor


def full_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes to save of a classifier: on the CPU, without optimiser state."""
    state = dict(sorted(state.items()))
    if "net_" in state:
        state["_saved_module"] = save_module(state.pop("net_").module_)
    return state


def sealed_state(state: dict[str, Any]) -> dict[str, Any]:
    """Add checksums to a full state, for pickling."""
    seal = functools.partial(_seal_of, state) if "_saved_module" in state else None
    return split_state(state, seal)


def loaded_state(estimator: Any, state: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the attributes of a saved classifier, and its module; None if not fitted.

    Raises
    ------
    ValueError
        If the state is damaged.
    """
    state = joined_state(estimator, state)
    seal = state.pop("_seal", None)
    if seal is not None:
        _check_seal(seal, state)
    saved = state.pop("_saved_module", None)
    if saved is None and "n_parameters_" in state:
        raise ValueError(
            "the saved classifier is damaged: it is fitted, and its network is missing; load "
            "another copy of the file"
        )
    if saved is None:
        return state, None
    state["_weights_borrowed"] = is_borrowed(saved)
    state["_code"].classes = state["classes_"]
    with usual_modes(training=True):
        return state, load_module(saved)


def _seal_of(state: dict[str, Any]) -> dict[str, Any]:
    """Compute versions, a checksum of each weight, and a digest of the other attributes.

    Weights have CRC-32, in a third of the time of SHA-256: a pickle runs code when it is loaded, so
    the check is against accidents only. CRC-32 finds every error within 32 bits, and misses one in
    four thousand million of the others.
    """
    weights = state["_saved_module"]["weights"]
    return {
        "versions": versions(),
        "weights": {name: _checksum(value) for name, value in weights.items()},
        "rest": _digest_of_rest(state),
    }


def _check_seal(seal: dict[str, Any], state: dict[str, Any]) -> None:
    """Raise ValueError if a state does not match its seal."""
    saved = state.get("_saved_module", {})
    weights = saved.get("weights", {})
    damaged = [
        name
        for name in {**weights, **seal["weights"]}
        # Reading all of a mapped file would defeat the map.
        if not isinstance(weights.get(name), np.memmap)
        and (name not in weights or _checksum(weights[name]) != seal["weights"].get(name))
    ]
    # Versions may describe equal states differently.
    if not damaged and seal["versions"] == versions() and seal["rest"] != _digest_of_rest(state):
        damaged = ["the parameters or labels"]
    if damaged:
        raise ValueError(
            f"the saved classifier is damaged: {', '.join(damaged)} do not match their checksums; "
            "load another copy of the file"
        )
    warn_of_versions("the saved classifier", seal["versions"])


def _checksum(weight: Any) -> int:
    """Return the CRC-32 of an array's type, shape and bytes, or of all parts of a packed array."""
    if isinstance(weight, np.ndarray | Streamed):
        sum_ = zlib.crc32(repr((weight.dtype.str, weight.shape)).encode())
        for block in weight.blocks() if isinstance(weight, Streamed) else [weight]:
            content = np.asarray(block, order="C").reshape(-1)
            sum_ = zlib.crc32(content.view(np.uint8).data, sum_)
        return sum_
    parts = weight.parts() if isinstance(weight, PackedWeight) else weight
    values = {
        name: _checksum(part) if isinstance(part, np.ndarray | Streamed) else part
        for name, part in parts.items()
    }
    return zlib.crc32(repr(sorted(values.items())).encode())


def _digest_of_rest(state: dict[str, Any]) -> str:
    module = {key: part for key, part in state["_saved_module"].items() if key != "weights"}
    rest = sorted((state | {"_saved_module": module}).items())
    return digest(*describe(dict(rest), strict=False))


def save_module(module: nn.Module) -> dict[str, Any]:
    """Return the state of a module, with each parameter once.

    joblib stores the arrays outside the pickle stream, so they can be memory mapped. All arrays are
    on the CPU. Rounded weights are packed.
    """
    arrays = gathered(module, _tensors(module))
    # deepcopy takes the memo entry of a tensor for its copy: no weight is ever duplicated.
    memo: dict[int, Any] = {}
    for name, held in _tensors(module).items():
        empty = torch.empty_like(held, device="meta")
        if empty.shape != arrays[name].shape:  # processes hold parts of it
            empty = empty.new_empty(arrays[name].shape)
        is_parameter = isinstance(held, nn.Parameter)
        memo[id(held)] = nn.Parameter(empty, held.requires_grad) if is_parameter else empty
    forms: dict[int, RowForm] = {
        id(parameter): RowForm(length, bias)
        for part in module.modules()
        for parameter, length, bias in getattr(part, "bias_columns", list)()
    }
    weights: dict[str, Any] = {}
    for name, held in _tensors(module).items():
        weight: Any = arrays[name]
        if isinstance(held, nn.Parameter):
            weight = prepared(name, weight, forms.get(id(held)))
        weights[name] = weight
    packed = (weight for weight in weights.values() if isinstance(weight, PackedWeight))
    version = max((weight.version for weight in packed), default=1)
    skeleton = whole_skeleton(copy.deepcopy(module, memo)).eval()  # whatever it did last
    return {"version": version, "skeleton": skeleton, "weights": weights}


def load_module(saved: dict[str, Any]) -> Any:
    """Restore a module from :func:`save_module`, in evaluation mode, on the CPU."""
    if saved["version"] not in (1, 2, 3):  # 2: some weights are packed, 3: some as "int6"
        raise ValueError(
            f"the saved model has format {saved['version']}; this version of sklearn_xlc reads 1 "
            "to 3; install the version that wrote it, or a later one"
        )
    skeleton = whole_skeleton(saved["skeleton"])
    _check_shapes(skeleton, saved["weights"])
    tensors = {name: shared_tensor(unpacked(value)) for name, value in saved["weights"].items()}
    # Finds shared tensors, and tensors outside a state_dict, too.
    memo: dict[int, Any] = {}
    for name, empty in _tensors(skeleton).items():
        is_parameter = isinstance(empty, nn.Parameter)
        memo[id(empty)] = (
            nn.Parameter(tensors[name], empty.requires_grad) if is_parameter else tensors[name]
        )
    return copy.deepcopy(skeleton, memo).eval()


def _check_shapes(skeleton: nn.Module, weights: dict[str, Any]) -> None:
    """Raise ValueError unless each tensor has an array of its shape."""
    expected = {name: tuple(tensor.shape) for name, tensor in _tensors(skeleton).items()}
    given = {name: shape_of(value) for name, value in weights.items()}
    if given != expected:
        name = next(name for name in {**expected, **given} if given.get(name) != expected.get(name))
        raise ValueError(
            f"the saved model has {name} of shape {given.get(name)}, but its module has "
            f"{expected.get(name)}"
        )


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by name, each once."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def is_borrowed(saved: dict[str, Any]) -> bool:
    """Return whether weights are memory-mapped or read-only: training then needs a copy."""
    arrays = [value for value in saved["weights"].values() if isinstance(value, np.ndarray)]
    return any(isinstance(value, np.memmap) or not value.flags.writeable for value in arrays)
