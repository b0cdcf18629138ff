"""Raise before a step makes a weight, a moment or a running statistic infinite or NaN."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sklearn_xlc._compat import is_number
from sklearn_xlc.batches import features_of

#: Largest size of a running statistic, a buffer that forward passes update. Larger buffers count as
#: constants, such as pretrained tables, and no step copies them.
STATISTICS_SIZE = 2**16


@functools.cache
def largest(dtype: torch.dtype) -> float:
    """Return the upper bound of the norms of features, gradients and weight updates.

    Squares of smaller numbers are finite, and fewer than 1e19 updates cannot add up to infinity.
    """
    return torch.finfo(dtype).max ** 0.5


class Statistic(NamedTuple):
    """Reference to a buffer by module and name; the module may replace the tensor."""

    buffers: dict[str, Tensor | None]
    name: str

    @property
    def buffer(self) -> Tensor:
        """The current buffer, detached."""
        buffer = self.buffers[self.name]
        assert buffer is not None
        return buffer.detach()

    def kept(self) -> Callable[[], None]:
        """Copy the current buffer; return a function to restore it."""
        buffer, values = self.buffers[self.name], self.buffer.clone()

        def put_back() -> None:
            self.buffers[self.name] = buffer
            self.buffer.copy_(values)

        return put_back


def running_statistics(module: nn.Module) -> list[Statistic]:
    """Return the buffers a forward pass may update, such as batch normalisation's.

    Buffers with huge values from the start are constants, such as an attention mask of infinities,
    and so are those of modules that say so.
    """
    return [
        Statistic(part._buffers, name)
        for part in module.modules()
        if not getattr(part, "has_constant_buffers", False)
        for name, buffer in part._buffers.items()
        if buffer is not None and 0 < buffer.numel() <= STATISTICS_SIZE and _is_moderate(buffer)
    ]


def _is_moderate(buffer: Tensor) -> bool:
    if not buffer.is_floating_point():
        return True
    return float(torch.linalg.vector_norm(buffer)) < largest(buffer.dtype)


def check_forward(features: Any, statistics: Sequence[Statistic]) -> None:
    """Raise FloatingPointError if features or running statistics are too large."""
    moved = [statistic.buffer for statistic in statistics]
    checked = [
        features_of(features).detach(),
        *(buffer for buffer in moved if buffer.is_floating_point()),
    ]
    norms: Any = torch._foreach_norm(checked)
    norms = torch.stack(norms).tolist() if norms[1:] else [norms[0].item()]  # a GPU is waited for
    for number, (values, norm) in enumerate(zip(checked, norms)):
        if not norm < largest(values.dtype):
            what = "running statistics of the encoder" if number else "features"
            raise FloatingPointError(f"the norm of the {what} became {norm:.2g}")


def check_like(found: Any, own: Any, name: str) -> None:
    """Raise ValueError unless a value read from a file may take the place of another.

    Containers must have the same keys or length. Tensors must have the same shape and type, and
    finite values if the other has. Other numbers must be finite, and all else equal.
    """
    parts: Sequence[Any] = ()
    match found, own:
        case Tensor(), Tensor():
            is_like = _form(found) == _form(own) and (is_finite(found) or not is_finite(own))
        case dict(), dict():
            is_like, parts = found.keys() == own.keys(), list(own)
        case _, list() | tuple():
            is_like, parts = type(found) is type(own) and len(found) == len(own), range(len(own))
        case _ if is_number(own):
            is_like = type(found) in (int, float) and math.isfinite(found)
        case _:
            is_like = type(found) is type(own) and found == own
    if not is_like:
        raise ValueError(f"its {name} is {_form(found)!s:.200}, where {_form(own)!s:.200} may be")
    for part in parts:
        check_like(found[part], own[part], f"{name}.{part}")


def _form(value: Any) -> Any:
    return (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else value


def is_finite(values: Tensor) -> bool:
    """Return whether no value is infinite or NaN, without a copy."""
    if not values.is_floating_point() or not values.numel():
        return True
    low, high = torch.aminmax(values.detach())  # NaN if any value is
    return bool(low.isfinite() and high.isfinite())


def check_saved(name: str, values: Tensor, may_be_infinite: bool) -> None:
    """Raise ValueError if a weight of a saved model is NaN, or infinite where it may not be."""
    if not (is_finite(values) or may_be_infinite and not values.isnan().any()):
        raise ValueError(f"the saved model has {name} with numbers that are not finite")


def check_unread(module: Any) -> None:
    """Check the weights of a mapped file when they are read first: processes share the map."""
    if unread := module.unread:  # that of the module may be emptied by another thread
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        for name in unread.keys() & tensors.keys():
            check_saved(name, tensors[name], unread[name])
        module.unread = {}


def check_weights(module: nn.Module) -> None:
    """Raise ValueError if a trained weight is infinite or NaN, or a buffer has NaN.

    Buffers may have infinities by design, such as an attention mask.
    """
    trained = {id(parameter) for parameter in module.parameters() if parameter.requires_grad}
    for name, values in [*module.named_parameters(), *module.named_buffers()]:
        if not is_finite(values) and (id(values) in trained or values.isnan().any()):
            raise ValueError(
                f"training has left a value that is not finite in {name}: lower learning_rate or "
                "scale X"
            )
