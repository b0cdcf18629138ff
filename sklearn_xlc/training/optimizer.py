"""Optimiser for dense, row-sparse and fused parameters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from sklearn_xlc.batches import lengthened
from sklearn_xlc.heads import check_finite
from sklearn_xlc.training.finite import check_like, largest

#: Update rules by `optimizer`: for all parameters but those of the input layer, and for these.
RULES = {
    "adam": ("adam", "adam"),
    "mixed": ("adam", "scaled"),
    "adagrad": ("adagrad", "adagrad"),
    "sgd": ("sgd", "sgd"),
}


#: Rate of scaled SGD on the input layer, relative to Adam's on the rest. From 1 to 4 it
#: changes little (docs/performance.md).
INPUT_RATE = 3.0
#: Arguments of the optimiser besides parameters.
_ARGUMENTS = ("lr", "betas", "eps", "weight_decay", "momentum", "nesterov")

#: Settings of a group, and moments of a parameter.
Group = dict[str, Any]
State = dict[str, Tensor]
#: Rows of a parameter, and their gradient.
Gradient = tuple[slice | Tensor, Tensor]

#: Numbers in a block of rows; the data of an update then fit into the second-level cache.
_BLOCK = 2**17

#: Decay of the running mean of squared gradients for "scaled".
_MEMORY = 0.99

#: Held while the state of a parameter is made: chunks of it are updated side by side.
_NEW_STATE = threading.Lock()


class RowOptimizer(torch.optim.Optimizer):
    """Adam, row-wise Adagrad, scaled SGD or SGD, on whole parameters or on some of their rows.

    Row-wise Adagrad keeps one accumulator per row (the running sum of its mean squared gradient),
    so the state of a table of embeddings is small. Adam on rows is lazy: rows without a gradient
    keep their moments. "scaled" is SGD by the gradient over its root mean square, a running mean
    over all updated entries. It moves the row of a rare word less than the row of a frequent one.
    Adam moves both by the rate at every step, and so overfits rare words.

    Parameters
    ----------
    params : iterable of dict
        Parameter groups: ``params``, ``rule`` ("adam", "adagrad", "scaled" or "sgd"), and
        optionally ``lr``, ``weight_decay``, ``fused`` (the group's parameters are updated through
        :meth:`update` while the loss is computed, not in :meth:`step`; not for "scaled") and
        ``row_momentum`` (whether Adam on rows has a first moment, default True).
    lr : float, default=1e-3
        Learning rate.
    betas, eps : float, default=(0.9, 0.999) and 1e-8
        Decay of Adam's moments, and constant added to the root of the second moment.
    weight_decay : float, default=0.0
        Decoupled weight decay of the updated rows; with momentum it is part of the gradient.
    momentum, nesterov : float or bool, default=0.0 and False
        Momentum of "sgd", as in :class:`torch.optim.SGD`. It is lazy, too: rows without a gradient
        keep their momentum and do not move.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "rule": "adam",
            "fused": False,
            "row_momentum": True,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; its settings override the defaults."""
        # Not torch's own, nor its `zero_grad` and `state_dict`: they load its compiler, which takes
        # a second and 70 MB.
        parameters = list(param_group["params"])
        self.param_groups.append({**self.defaults, **param_group, "params": parameters})
        self._index_groups()

    def regroup(self, groups: Iterable[dict[str, Any]]) -> None:
        """Replace the groups by others of the same parameters, which keep their states."""
        self.param_groups[:] = groups
        self._index_groups()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a loaded state, with its new group dictionaries."""
        super().__setstate__(state)
        self._index_groups()

    def _index_groups(self) -> None:
        self._safe: list[Tensor] = []  # whether updates on a GPU were safe: read in `step`
        self._loss: Tensor | None = None
        self._group_of = {p: group for group in self.param_groups for p in group["params"]}

    def parameters(self) -> list[Tensor]:
        """Return all parameters, in the order of the numbers in :meth:`state_dict`."""
        return list(self._group_of)

    def state_dict(self) -> dict[str, Any]:
        """Return state and settings, with numbers in place of parameters, without copies."""
        numbers = {p: number for number, p in enumerate(self._group_of)}
        return {
            "state": {numbers[p]: state for p, state in self.state.items()},
            "param_groups": [
                {**group, "params": [numbers[p] for p in group["params"]]}
                for group in self.param_groups
            ],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a copy of a :meth:`state_dict` of an optimiser with equal groups.

        ValueError if it is not one: the kernels of torch would write beyond moments of another
        shape. Nothing is then loaded.
        """
        own, states = self.state_dict()["param_groups"], {}
        groups = [
            {name: saved[name] for name in group}  # schedules and callbacks may add others
            for group, saved in zip(own, state_dict["param_groups"], strict=True)
        ]
        check_like(groups, own, "param_groups")
        if any(group["params"] != of_own["params"] for group, of_own in zip(groups, own)):
            raise ValueError("its groups hold other parameters")
        if not all(0 <= beta < 1 for group in groups for beta in group["betas"]):
            raise ValueError("its betas are no decays")
        parameters = self.parameters()
        for number, saved in state_dict["state"].items():
            new = self._moments(parameters[number], "exp_avg" in saved) if saved else {}
            check_like(saved, new, f"optimizer.{number}")
            for name, moment in new.items():
                moment.copy_(saved[name])
                is_signed = name in ("exp_avg", "velocity")  # not squares, sums and steps
                if not is_signed and moment.numel() and moment.min() < 0:
                    raise ValueError(f"its {name} is below zero")
            states[parameters[number]] = new
        for group, saved in zip(self.param_groups, state_dict["param_groups"]):
            group.update({**saved, "params": group["params"]})
        self.state.clear()
        self.state.update(states)

    def moved(
        self, module: nn.Module, made: nn.Module, change: Callable[[Tensor, Tensor], Tensor]
    ) -> RowOptimizer:
        """Return an optimiser of the new parameter for each old one, with these settings.

        `change` computes an entry of the new state from the old parameter and the old entry.
        """
        parameters: dict[Any, Any] = dict(zip(module.parameters(), made.parameters(), strict=True))
        groups = [
            {**group, "params": [parameters[p] for p in group["params"]]}
            for group in self.param_groups
        ]
        optimizer = RowOptimizer(groups, **{name: self.defaults[name] for name in _ARGUMENTS})
        for old, state in self.state.items():
            optimizer.state[parameters[old]] = {key: change(old, v) for key, v in state.items()}
        return optimizer

    def lengthen(self, before: Tensor, longer: Tensor) -> None:
        """Take a parameter with further rows in, in place of the one before."""
        if longer is before:
            return
        if before in self.state:
            state = self.state.pop(before).items()
            size = len(longer)
            self.state[longer] = {n: lengthened(v, size) if v.ndim else v for n, v in state}
        for group in self.param_groups:
            group["params"] = [longer if p is before else p for p in group["params"]]
        self._index_groups()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, and the checks of an unfinished step."""
        self._safe.clear()
        self._loss = None
        for group in self.param_groups:
            for p in group["params"]:
                drop = set_to_none or p.grad is None
                p.grad = None if drop else torch.zeros_like(p.grad)

    def require_finite(self, loss: Tensor) -> None:
        """Raise FloatingPointError unless a loss is finite; on a GPU :meth:`step` does."""
        check_finite(loss)
        if loss.device.type != "cpu":
            self._loss = loss
            self._safe.append(loss.isfinite())

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter with a gradient; count the step of fused ones.

        FloatingPointError if a weight or moment would not stay finite, or the loss of
        :meth:`require_finite` is not. Nothing is then updated here.
        """
        self.apply(self.gradients())

    def gradients(self) -> dict[Tensor, Gradient]:
        """Return the gradients of the parameters, in the form of :meth:`apply`."""
        gradients: dict[Tensor, Gradient] = {}
        for parameter in self._group_of:
            found = parameter.grad
            if found is not None:
                whole = slice(None), found
                gradients[parameter] = distinct_rows(found) if found.is_sparse else whole
        return gradients

    @torch.no_grad()
    def apply(self, gradients: dict[Tensor, Gradient]) -> None:
        """Take the step of :meth:`step` with gradients: parameter to (distinct rows, gradient)."""
        norms = self._checked_norms(gradients)
        for group in self.param_groups:
            is_adam, whole = group["rule"] == "adam", []
            for p in group["params"]:
                found = gradients.get(p)
                by_rows = found is not None and isinstance(found[0], Tensor)
                if found is not None and is_adam and not by_rows:
                    whole.append(p)  # of a fused one, too, where its head has not updated it
                    continue
                if found is not None:
                    self._update_rows(group, p, *found, norms[p])
                if is_adam and (group["fused"] or by_rows):
                    self._state(p, by_rows=True)["step"] += 1
            if whole:
                states = [self._state(p) for p in whole]
                for state in states:
                    state["step"] += 1
                _fused_adam(group, whole, [gradients[p][1] for p in whole], states)

    @torch.no_grad()
    def update(self, parameter: nn.Parameter, rows: slice | Tensor, gradient: Tensor) -> None:
        """Update ``parameter[rows]`` immediately; fused heads call this during the loss.

        FloatingPointError if a weight or moment would not stay finite. On a GPU this method skips
        the update, and :meth:`step` raises, so no chunk of labels waits for the previous one. A
        frozen parameter stays as it is.
        """
        if not parameter.requires_grad:
            return
        group, norm = self._group_of[parameter], torch.linalg.vector_norm(gradient)
        self._check_norm(group, norm)
        if gradient.device.type == "cpu":
            self._update_rows(group, parameter, rows, gradient, norm)
            return
        safe = self._safe[-1]
        gradient = gradient.where(safe, 0.0)
        if group["rule"] == "adam":  # zeros would still move weights along their first moments
            refusing = {**group, "refused": (~safe).float()}
            self._update_rows(refusing, parameter, rows, gradient, norm)
            return
        tables = [_as_table(each) for each in (parameter.data, *self._state(parameter).values())]
        kept = [table[rows].clone() for table in tables]
        self._update_rows(group, parameter, rows, gradient, norm)
        for table, before in zip(tables, kept):
            table[rows] = table[rows].where(safe, before)

    def _checked_norms(self, gradients: dict[Tensor, Gradient]) -> dict[Tensor, Tensor]:
        """Return the norm of each gradient; raise unless all are safe."""
        norms = {p: torch.linalg.vector_norm(gradient) for p, (_, gradient) in gradients.items()}
        for parameter, norm in norms.items():
            self._check_norm(self._group_of[parameter], norm)
        safe, self._safe = self._safe, []
        if safe and not torch.stack(safe).all():  # one number is read, which waits for all
            if self._loss is not None:
                check_finite(self._loss.cpu())
            _raise_unless(False)
        return norms

    def _check_norm(self, group: dict[str, Any], norm: Tensor) -> None:
        """Raise unless a step with this gradient norm is safe; on a GPU, `step` raises."""
        limit = largest(norm.dtype)
        if norm.device.type == "cpu":
            _raise_unless(_is_safe(group, float(norm), limit))
        else:
            _raise_unless(_is_safe(group, 0.0, limit))  # whatever the norm: of rate and decay
            self._safe.append(_is_safe(group, norm, limit))

    def _state(self, parameter: nn.Parameter, by_rows: bool = False) -> dict[str, Tensor]:
        with _NEW_STATE:
            state = self.state[parameter]
            if "exp_avg" in state or "mean_square" in state:  # complete, in most steps
                return state
            group = self._group_of[parameter]
            has_momentum = group["row_momentum"] or not by_rows
            if not state:
                state.update(self._moments(parameter, has_momentum))  # at once, if interrupted
            elif group["rule"] == "adam" and has_momentum:
                state["exp_avg"] = torch.zeros_like(parameter)
            return state

    def _moments(self, parameter: Tensor, has_momentum: bool) -> dict[str, Tensor]:
        """Return the moments of a parameter before its first step."""
        group = self._group_of[parameter]
        if group["rule"] == "scaled":
            step, mean_square = torch.zeros(2, dtype=torch.float64).unbind()
            return {"step": step, "mean_square": mean_square}
        if group["rule"] == "adagrad":
            return {"sum": parameter.new_zeros(len(torch.atleast_1d(parameter)))}
        if group["rule"] == "sgd":
            return {"velocity": torch.zeros_like(parameter)} if group["momentum"] else {}
        step = torch.zeros((), dtype=torch.float32, device=parameter.device)
        squares = {"step": step, "exp_avg_sq": torch.zeros_like(parameter)}
        return squares | ({"exp_avg": torch.zeros_like(parameter)} if has_momentum else {})

    def _update_rows(
        self, group: Group, parameter: nn.Parameter, rows: Any, gradient: Tensor, norm: Tensor
    ) -> None:
        """Update some rows; Adam does nothing where "refused", a number on the device, is one."""
        by_rows = isinstance(rows, Tensor)
        state = self._state(parameter, by_rows)
        # A view of the parameter, also where it is a single number.
        table, gradient = _as_table(parameter.data), _as_table(gradient).contiguous()
        if group["rule"] == "adam":
            # The count rises once per step, not once per chunk.
            if by_rows:
                _lazy_adam(group, table, state, rows, gradient)
                return
            moments = {key: _as_table(state[key]) for key in ("exp_avg", "exp_avg_sq")}
            if rows != slice(None) and rows.indices(len(table)) != (0, len(table), 1):
                table, moments = table[rows], {key: of[rows] for key, of in moments.items()}
            moments["step"] = state["step"] + 1
            _fused_adam(group, [table], [gradient], [moments])
            return
        if group["rule"] == "adagrad":
            width = gradient.numel() // len(gradient)
            # The mean square through the norm: one pass, no temporary of the gradient's size.
            norms = torch.linalg.vector_norm(gradient.view(-1, width), dim=1)
            total = state["sum"][rows] + norms.square() / width
            total.clamp_(max=torch.finfo(total.dtype).max)
            state["sum"][rows] = total
            scale = (total.sqrt() + group["eps"]).reciprocal()
            gradient.view(-1, width).mul_(scale[:, None])  # the gradient is not needed again
        rate = group["lr"]
        if group["rule"] == "scaled":
            rate /= _root_mean_square(state, gradient.numel(), norm) + group["eps"]
        if group["rule"] == "sgd" and group["momentum"]:
            gradient = _with_momentum(group, table, _as_table(state["velocity"]), rows, gradient)
        elif group["weight_decay"]:
            shrink = 1 - group["lr"] * group["weight_decay"]
            table[rows] = table[rows] * shrink
        if by_rows:
            table.index_add_(0, rows, gradient, alpha=-rate)
        else:
            table[rows].add_(gradient, alpha=-rate)


def _with_momentum(
    group: dict[str, Any], table: Tensor, velocity: Tensor, rows: slice | Tensor, gradient: Tensor
) -> Tensor:
    """Update the velocity of some rows; return the direction of :class:`torch.optim.SGD`."""
    if group["weight_decay"]:
        gradient = gradient.add(table[rows], alpha=group["weight_decay"])
    along = velocity[rows].mul_(group["momentum"]).add_(gradient)
    if isinstance(rows, Tensor):  # then `along` is a copy
        velocity.index_copy_(0, rows, along)
    return gradient.add(along, alpha=group["momentum"]) if group["nesterov"] else along


def _lazy_adam(group: Group, table: Tensor, state: State, rows: Tensor, gradient: Tensor) -> None:
    """Update rows of a table and their moments by Adam."""
    size = len(rows)
    if size and table.device.type == "cpu":  # a GPU has no use for small blocks
        size = max(1, _BLOCK // max(1, gradient.numel() // size))
    count = {"step": state["step"] + 1}
    tables = {"values": table, "exp_avg_sq": state["exp_avg_sq"]}
    if group["row_momentum"]:
        tables["exp_avg"] = state["exp_avg"]
    else:
        group = {**group, "betas": (0.0, group["betas"][1])}
    for some, of_some in zip(rows.split(size), gradient.split(size)):
        read = {key: each.index_select(0, some) for key, each in tables.items()}
        # Without a first moment the gradient takes its place, and stays as it is.
        states = [{"exp_avg": of_some, **read, **count}]
        _fused_adam(group, [read["values"]], [of_some], states)
        for key, each in tables.items():
            each.index_copy_(0, some, read[key])


def _fused_adam(
    group: Group, parameters: list[Tensor], gradients: list[Tensor], states: list[State]
) -> None:
    """Take a step of Adam with decoupled decay, in one pass over each parameter.

    None is taken where `refused`, a number on the device, is one.
    """
    # The kernel that `torch.optim.AdamW(fused=True)` calls, whose checks take longer than a block.
    torch._fused_adamw_(
        parameters,
        gradients,
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [],
        [state["step"] for state in states],
        amsgrad=False,
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        lr=group["lr"],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        maximize=False,
        found_inf=group.get("refused"),
    )


def _root_mean_square(state: dict[str, Tensor], size: int, norm: Tensor) -> float:
    """Update the running mean of squared gradients by one of this norm; return its root."""
    if size:
        now = float(norm) ** 2 / size
        state["mean_square"].mul_(_MEMORY).add_((1 - _MEMORY) * now)
        state["step"] += 1
    # As in Adam: the mean starts at zero, and would be too small in the first steps.
    mean_square = state["mean_square"].item() / max(1 - _MEMORY ** state["step"].item(), 1e-9)
    return mean_square**0.5


def _as_table(values: Tensor) -> Tensor:
    return values if values.ndim else values.view(1)


def _is_safe(group: dict[str, Any], norm: Any, limit: float) -> Any:
    """Return whether weights and moments stay finite in a step with this gradient norm."""
    # Adam and Adagrad divide by the norm; decay by more than 2 makes weights grow without end.
    if group["rule"] == "sgd":
        norm = norm / (1 - group["momentum"])  # of the longest velocity by such gradients
    move = norm * group["lr"] if group["rule"] == "sgd" else group["lr"]
    return (norm < limit) & (move < limit) & (group["lr"] * group["weight_decay"] <= 2)


def _raise_unless(safe: bool | Tensor) -> None:
    if not safe:
        raise FloatingPointError("a step of the optimizer became too large, or not a number,")


def distinct_rows(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and values of a row-sparse gradient; sum the values of repeated rows."""
    rows = gradient._indices()[0]
    # Layers here give each row once, most of them in order, which autograd forgets; sorting ids is
    # cheaper than values.
    is_distinct = gradient.is_coalesced() or (rows[1:] > rows[:-1]).all()
    if not is_distinct and len(torch.unique(rows)) < len(rows):
        gradient = gradient.coalesce()
        rows = gradient.indices()[0]
    return rows, gradient._values()


# --- groups -----------------------------------------------------------------------------------


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


def rule_of(optimizer: RowOptimizer) -> str:
    """Return the key of `RULES` by which the groups of an optimiser were built."""
    rules = {group["rule"] for group in optimizer.param_groups}
    return "mixed" if "scaled" in rules else rules.pop()


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
