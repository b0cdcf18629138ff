"""What files carry: classes of ours, rounded weights, and large arrays beside the state.

skops keeps a file in memory, and loads it twice. What is large is therefore written from the model
itself, and read where it belongs; the file is one of skops all the same.
"""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeVar

import numpy as np

from sklearn_xlc._config import setting

#: Start of the names of members with large arrays.
BESIDE = "weights-"
#: Bytes of a large array, at least.
_LARGE = 2**16

Kind = TypeVar("Kind", bound=type)
#: Full names of the classes that :func:`carried` marks.
_CARRIED: set[str] = set()


def carried(kind: Kind) -> Kind:
    """Mark a class of ours, beside the public ones of rooms, as one that every file may use."""
    _CARRIED.add(f"{kind.__module__}.{kind.__qualname__}")
    return kind


def carried_names() -> list[str]:
    """Return the full names of the marked classes, of modules that are loaded."""
    return sorted(_CARRIED)


@dataclass
class Carrying:
    """How states are read within a block: rounded, or with large arrays beside them."""

    rounds: bool
    is_beside: bool = False
    _nets: dict[int, tuple[Any, dict[str, Any]]] = field(default_factory=dict)
    _told: set[int] = field(default_factory=set)
    #: What stands for an array in a state, with the array, by the id of the array.
    _places: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def of_net(self, module: Any, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the state of a network, read once: skops asks twice."""
        if id(module) not in self._nets:
            state = read()
            state["weights"] = self.without_large(state["weights"])
            self._nets[id(module)] = module, state
        return self._nets[id(module)][1]

    def without_large(self, value: Any) -> Any:
        """Return a state with names of large arrays in place of these, if they go beside it."""
        if isinstance(value, dict):
            return {name: self.without_large(each) for name, each in value.items()}
        is_large = isinstance(value, np.ndarray) and value.nbytes >= _LARGE
        if not (self.is_beside and is_large) or value.dtype.hasobject:
            return value
        place, _ = self._places.setdefault(id(value), (np.empty(0, np.uint8), value))
        return place

    @property
    def beside(self) -> dict[int, np.ndarray]:
        """Arrays by the id of what stands for them in a state."""
        return {id(place): array for place, array in self._places.values()}

    def tell(self, decision: Any) -> None:
        """Tell a fitted decision once of rounded weights behind its scores."""
        if self.rounds and id(decision) not in self._told:
            self._told.add(id(decision))
            decision.scores_changed("rounding the weights (exact=False)")


#: How states are read within a block; None: as they are.
_STATES: ContextVar[Carrying | None] = ContextVar("states", default=None)
#: File from which large arrays are read, and those that were; else None.
_FILE: ContextVar[tuple[zipfile.ZipFile, dict[str, np.ndarray]] | None] = ContextVar("file")


def carrying(rounds: bool, beside: bool = False) -> contextlib.AbstractContextManager[Carrying]:
    """Read all states within the block with rounded weights, or with large arrays beside them."""
    return setting(_STATES, Carrying(rounds, beside))


def carrying_whole() -> contextlib.AbstractContextManager[Any]:
    """Read states within the block with their large arrays, which pickle and copy need."""
    states = states_now()
    if not states.is_beside:
        return contextlib.nullcontext()
    return setting(_STATES, Carrying(states.rounds, _told=states._told))


def states_now() -> Carrying:
    """Return how states are read now."""
    return _STATES.get() or Carrying(rounds=False)


@contextlib.contextmanager
def without_large(file: BinaryIO) -> Iterator[BinaryIO]:
    """Yield a file of skops with names in place of large arrays, which :func:`with_large` reads.

    A file that has none is yielded as it is.
    """
    with zipfile.ZipFile(file) as archive:
        names = dict.fromkeys(archive.namelist())
        large = [name for name in names if name.startswith(BESIDE)]
        if not large:
            file.seek(0)
            yield file
            return
        rest = io.BytesIO()
        with zipfile.ZipFile(rest, "w") as target:
            for name in names:
                place = io.BytesIO()
                np.save(place, np.array(name.encode()))
                target.writestr(name, place.getvalue() if name in large else archive.read(name))
        with setting(_FILE, (archive, {})):
            yield rest


def with_large(value: Any) -> Any:
    """Return a state with the arrays of the file in place of their names."""
    if isinstance(value, dict):
        return {name: with_large(each) for name, each in value.items()}
    is_name = isinstance(value, np.ndarray) and value.dtype.kind == "S" and not value.ndim
    file = _FILE.get(None)
    if file is None or not is_name:
        return value
    archive, found = file
    name = value.item().decode()
    if name not in found:
        with archive.open(name) as member:
            found[name] = np.lib.format.read_array(member, allow_pickle=False)
    return found[name]
