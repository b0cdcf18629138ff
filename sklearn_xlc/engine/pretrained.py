"""Transformers as a document and arrays: they are made again from their configuration.

A module of the library transformers holds functions and objects that have no plain form, but
its class makes it from a configuration, which is JSON.
"""

from __future__ import annotations

import json
from typing import Any

from torch import nn

from sklearn_xlc.engine.memory import without_weights
from sklearn_xlc.engine.tree_walk import Reader, Writer


def is_transformer(kind: type) -> bool:
    """Whether modules of a class are made from a configuration, as those of transformers are."""
    return hasattr(getattr(kind, "config_class", None), "from_dict")


def describe(writer: Writer, value: Any, where: str) -> dict[str, Any]:
    """Class, configuration and tensors of a transformer."""
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

    Its class must be trusted: what a configuration makes it do is not known here.

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
