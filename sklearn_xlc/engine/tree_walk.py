"""The walk over an object and all that it holds, and the walk back.

What a kind of object is made of is not known here, but in `engine.object_tree`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from sklearn_xlc._files import Streamed
from sklearn_xlc.engine.names import name_of

#: Types that JSON gives back as they were.
PLAIN = frozenset({type(None), bool, int, float, str})
#: Items and characters that objects may have in all, where one that is held twice counts twice:
#: these many, and so many for each that is written.
_FREE, _FACTOR = 10**8, 100


class Kind(NamedTuple):
    """A kind of object: its types, how it is described, and how it is made again."""

    types: tuple[type, ...]
    describe: Callable[[Writer, Any, str], dict[str, Any]]
    rebuild: Callable[[Reader, dict[str, Any]], Any]
    #: Whether subclasses are of this kind too.
    subclasses: bool = False
    #: Whether an object can hold itself: it is made first and filled later.
    filled: bool = False


class Writer:
    """Describes objects; remembers them, so that each is described once."""

    def __init__(self, kinds: dict[str, Kind], strict: bool) -> None:
        self.kinds, self.strict = kinds, strict
        self.arrays: dict[str, np.ndarray | Streamed] = {}
        self.names: set[str] = set()
        self._nodes: dict[int, dict[str, Any] | None] = {}
        self._alive: list[Any] = []  # no identity is used again while the walk goes on
        self._n_shared = 0

    def node(self, value: Any, where: str) -> Any:
        """Description of an object; `where` it is, for messages."""
        if type(value) in PLAIN:
            return value
        if id(value) in self._nodes:
            return self._same(value, where)
        self._alive.append(value)
        self._nodes[id(value)] = None
        tag = self._tag_of(type(value))
        node: dict[str, Any] = {"is": tag}
        if self.kinds[tag].filled:
            self._nodes[id(value)] = node  # it may hold itself
        node |= self.kinds[tag].describe(self, value, where)
        self._nodes[id(value)] = node
        if not self.strict:
            del self._nodes[id(value)]
        return node

    def nodes(self, values: Iterable[Any], where: str) -> list[Any]:
        """Descriptions of the items of a list."""
        values = list(values)
        if PLAIN.issuperset(map(type, values)):
            return values
        return [self.node(value, f"{where}[{i}]") for i, value in enumerate(values)]

    def _tag_of(self, kind: type) -> str:
        """Tag of the first kind that objects of a class are of."""
        for tag, known in self.kinds.items():
            if kind in known.types or (known.subclasses and issubclass(kind, known.types)):
                return tag
        raise AssertionError("every class is a subclass of object")

    def _same(self, value: Any, where: str) -> dict[str, Any]:
        node = self._nodes[id(value)]
        if not self.strict:
            return {"is": "same"}
        if node is None:
            raise refusal(where, f"a {type(value).__name__} that holds itself")
        if "id" not in node:
            node["id"] = self._n_shared
            self._n_shared += 1
        return {"is": "same", "id": node["id"]}

    def array(self, value: np.ndarray | Streamed, where: str) -> str:
        """Name under which an array is stored."""
        name = where
        while name in self.arrays:
            name += "'"
        self.arrays[name] = value
        return name

    def name(self, value: Any, where: str) -> str:
        """Name of a class or function, which must be found again by it."""
        try:
            name = name_of(value)
        except ValueError as error:
            raise refusal(where, str(error)) from None
        self.names.add(name)
        return name

    def refuse(self, value: Any, where: str, remedy: str = "") -> dict[str, Any]:
        """Raise TypeError; where nothing need be rebuilt, name the class instead."""
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        if not self.strict:
            return {"is": "unknown", "class": name}
        reason = f"a {name} cannot be described without pickle"
        raise refusal(where, reason + (remedy and f"; {remedy}"))


def refusal(where: str, reason: str) -> TypeError:
    """Error for what cannot be described."""
    # As the user knows it: the state of a classifier holds its module without the net.
    where = re.sub(r"(\._saved_module|\['_saved_module'\])\['skeleton'\]", ".net_.module_", where)
    return TypeError(f"cannot save {where}: {reason}")


class Reader:
    """Rebuilds objects from their descriptions.

    A list may hold another one twice, which holds a third one twice, and so on: 50 of them are
    written in a line, but whoever hashes, prints or converts the first one never comes to an end.
    Hence sizes are counted. An array belongs to one object, so that no copy costs more than a file.
    """

    def __init__(
        self,
        kinds: dict[str, Kind],
        arrays: dict[str, np.ndarray],
        find: Callable[[str], Any],
    ) -> None:
        self.kinds, self.arrays, self.find = kinds, dict(arrays), find
        self._made: dict[int, Any] = {}
        #: Sizes of the objects that occur again, and of all so far with and without these.
        self._sizes: dict[int, int] = {}
        self._n_items = self._n_written = 0

    def value(self, node: Any) -> Any:
        """Object of a description."""
        if type(node) in PLAIN:
            self._count([node])
            return node
        if node["is"] == "same":
            self._n_items += self._sizes.get(node["id"], 1)
            if self._n_items > _FREE + _FACTOR * self._n_written:
                raise ValueError("what it describes is too large for its size")
            return self._made[node["id"]]
        before = self._n_items
        value = self.made(node, self.kinds[node["is"]].rebuild(self, node))
        if "id" in node:
            self._sizes[node["id"]] = self._n_items - before + 1
        return value

    def values(self, nodes: list[Any]) -> list[Any]:
        """Objects of descriptions."""
        if PLAIN.issuperset(map(type, nodes)):
            self._count(nodes)
            return list(nodes)
        return [self.value(node) for node in nodes]

    def _count(self, plain: list[Any]) -> None:
        n_items = len(plain) + sum(len(item) for item in plain if type(item) is str)
        self._n_items += n_items
        self._n_written += n_items

    def array(self, name: str) -> np.ndarray:
        """Array of a name; nothing else can have it."""
        return self.arrays.pop(name)

    def made(self, node: dict[str, Any], value: Any) -> Any:
        """Remember an object that occurs again; if it can hold itself, before it is filled."""
        if "id" in node:
            self._made[node["id"]] = value
        return value
