"""Find modules and callbacks of other packages with random draws of their own."""

from __future__ import annotations

from typing import Any

from torch import nn

from sklearn_xlc.batches import is_ours

#: Modules of torch, below `torch.nn.modules`, without random layers, except for `DRAWING`.
DETERMINISTIC = frozenset(
    f"torch.nn.modules.{name}"
    for name in (
        "activation",
        "batchnorm",
        "channelshuffle",
        "container",
        "conv",
        "distance",
        "flatten",
        "fold",
        "instancenorm",
        "linear",
        "normalization",
        "padding",
        "pixelshuffle",
        "pooling",
        "sparse",
        "upsampling",
    )
)
DRAWING = frozenset({"FractionalMaxPool2d", "FractionalMaxPool3d", "MultiheadAttention", "RReLU"})


def may_draw(module: nn.Module) -> bool:
    """Return whether a part of a module may draw from torch's global generator.

    The layers of this package draw from the fit's own generator, and most of torch's layers do not
    draw. Any other class may draw, and so may hooks.
    """
    return any(not _is_known(part) for part in module.modules())


def _is_known(part: nn.Module) -> bool:
    hooks = part._forward_hooks, part._forward_pre_hooks
    if any(hooks) or part._backward_hooks or part._backward_pre_hooks:
        return False
    kind = type(part)
    if "forward" in vars(part):
        return False
    is_deterministic = kind.__module__ in DETERMINISTIC and kind.__name__ not in DRAWING
    return is_deterministic or is_ours(kind)


def callback_may_draw(callback: Any) -> bool:
    """Return whether a callback is neither skorch's nor this package's."""
    kind = type(callback)
    return not (kind.__module__.startswith("skorch.") or is_ours(kind))
