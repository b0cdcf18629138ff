"""Update rule, learning rate and weight decay for every parameter of encoder and head."""

from __future__ import annotations

from typing import Any

from torch import nn

from sklearn_xlc.training.optimizer import RULES

#: Rate of scaled SGD on the input layer, relative to Adam's on the rest. From 1 to 4 it
#: changes little (docs/performance.md).
INPUT_RATE = 3.0


def parameter_groups(
    module: Any, rule: str, lr: float, weight_decay: float, head_lr: float | None = None
) -> list[dict]:
    """Build the non-empty parameter groups of :class:`~sklearn_xlc.training.RowOptimizer`.

    `rule` is a key of :data:`~sklearn_xlc.training.optimizer.RULES`; `head_lr` is the peak rate of
    the head, None: `lr`. The encoder's own `parameter_groups` take precedence over `lr` and
    `weight_decay`; repeated or foreign parameters raise ValueError. Vectors do not decay.
    """
    fused = set(module.head.fused_parameters())
    inputs = input_parameters(module.encoder)
    own = _own_options(module.encoder)
    dense_rule, input_rule = RULES[rule]
    groups: dict[tuple, dict[str, Any]] = {}
    of_head = set(module.head.parameters())
    for parameter in module.parameters():
        is_input = parameter in inputs
        rate = head_lr if head_lr is not None and parameter in of_head else lr
        options: dict[str, Any] = {
            "rule": input_rule if is_input else dense_rule,
            "lr": lr * INPUT_RATE if is_input and input_rule != dense_rule else rate,
            "weight_decay": weight_decay if parameter.ndim > 1 else 0.0,
            "fused": parameter in fused,
            **own.get(parameter, {}),
        }
        group = groups.setdefault(tuple(options.values()), {"params": [], **options})
        group["params"].append(parameter)
    return list(groups.values())


def row_parameters(part: Any) -> set[nn.Parameter]:
    """Return the parameters of a head, or of any encoder, with row-sparse gradients."""
    return set(getattr(part, "row_parameters", set)())


def input_parameters(part: Any) -> set[nn.Parameter]:
    """Return the parameters of an encoder or head with a separate rule in "mixed"."""
    own = getattr(part, "input_parameters", None)
    return row_parameters(part) if own is None else set(own())


def _own_options(encoder: nn.Module) -> dict[nn.Parameter, dict[str, float]]:
    """Return the encoder's own learning rates and weight decays, by parameter."""
    parameters, own = set(encoder.parameters()), {}
    for group in getattr(encoder, "parameter_groups", list)():
        options = {name: value for name, value in group.items() if name != "params"}
        if "params" not in group or not options or set(options) - {"lr", "weight_decay"}:
            raise ValueError(
                "a group of encoder.parameter_groups() must hold 'params' and 'lr', 'weight_decay' "
                f"or both, got {sorted(group)}"
            )
        for name, value in options.items():
            if not value >= 0:
                raise ValueError(
                    f"encoder.parameter_groups() asks for {name}={value}; it must not be negative"
                )
        for parameter in group["params"]:
            if parameter not in parameters or parameter in own:
                problem = "twice" if parameter in own else "that is not a parameter of the encoder"
                raise ValueError(
                    "encoder.parameter_groups() holds a tensor of shape "
                    f"{tuple(parameter.shape)} {problem}"
                )
            own[parameter] = options
    return own
