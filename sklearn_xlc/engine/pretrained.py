"""Save transformers as a configuration and arrays.

A module of the library transformers holds functions and objects without a plain form, but its
class builds it from a configuration in JSON.
"""

from __future__ import annotations

import json
from typing import Any

from torch import nn

from sklearn_xlc.engine.memory import without_weights
from sklearn_xlc.engine.tree_walk import Reader, Writer


def is_transformer(kind: type) -> bool:
    """Return whether a class builds modules from a configuration, as transformers do."""
    return hasattr(getattr(kind, "config_class", None), "from_dict")


def describe(writer: Writer, value: Any, where: str) -> dict[str, Any]:
    """Describe a transformer by class, configuration and tensors."""
    tensors = {
        key: writer.node(tensor, f"{where}.{key}")
        for named in (value.named_parameters, value.named_buffers)
        for key, tensor in named(remove_duplicate=False)  # shared weights are shared again
    }
    return {
        "class": writer.name(type(value), where),
        "training": value.training,
        "config": json.loads(value.config.to_json_string(use_diff=False)),
        "tensors": tensors,
    }


def rebuild(reader: Reader, node: dict[str, Any]) -> nn.Module:
    """Make a transformer from its description.

    Its class must be trusted, since a configuration may make it do anything.

    Raises
    ------
    ValueError
        If its class is not made from this configuration, or has other tensors.
    """
    kind = reader.find(node["class"])
    if not is_transformer(kind):
        raise ValueError(f"{kind.__name__} is not made from a configuration")
    config = kind.config_class.from_dict(node["config"])
    made = without_weights(lambda: kind(config))
    if made is None:
        raise ValueError(f"{kind.__name__} cannot be made from its configuration")
    reader.made(node, made)
    expected = [*made.named_parameters(), *made.named_buffers()]
    missing = {name for name, _ in expected} - set(node["tensors"])
    if missing:
        raise ValueError(f"{sorted(missing)[0]} of {kind.__name__} is missing")
    for key, part in node["tensors"].items():
        path, _, name = key.rpartition(".")
        inside = vars(made.get_submodule(path))
        held = inside["_parameters" if name in inside["_parameters"] else "_buffers"]
        tensor = reader.value(part)
        if name not in held or held[name].shape != tensor.shape:
            raise ValueError(f"{key} is no tensor of {kind.__name__} with this configuration")
        held[name] = tensor
    return made.train(bool(node["training"]))
