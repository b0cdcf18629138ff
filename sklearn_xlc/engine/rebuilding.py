"""Read descriptions of skops: their nodes, and whether what they describe can be rebuilt."""

from __future__ import annotations

import copy
import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

#: Packages whose objects come back: their tests say so.
_KNOWN = ("sklearn.", "sklearn_xlc.")
#: Nodes of values that a description holds as a whole.
_PLAIN = {
    "ConstructorFromReduceNode",
    "DictNode",
    "JsonNode",
    "ListNode",
    "TupleNode",
    "TypeNode",
}


def check_rebuilt(schema: dict[str, Any]) -> None:
    """Raise TypeError, with the name of the attribute, if an object would not come back.

    skops keeps the attributes of an object, and makes it without its constructor. Objects of
    compiled code, such as ``pandas.NA``, hold their value elsewhere. Of each class of others, the
    first object that the description holds as a whole is rebuilt.

    Parameters
    ----------
    schema : dict
        Description of an estimator, as in a file of skops.
    """
    tried = set[str]()
    for path, node in nodes(schema):
        name = f"{node['__module__']}.{node['__class__']}"
        if name in tried or not _is_foreign(node) or not _is_plain(node):
            continue
        tried.add(name)
        if why := _lost(node, {key: schema[key] for key in ("protocol", "_skops_version")}):
            raise TypeError(
                f"the estimator cannot be saved: {path or 'it'} is an object of {name}, which no "
                f"file brings back ({why}); use a string, a number or None in its place, or joblib"
            )


def nodes(description: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the nodes of a description with the paths of their attributes, in their order."""
    waiting = [("", description)]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, list):
            inner = [(f"{path}[{place}]", each) for place, each in enumerate(node)]
        elif "__loader__" in node:
            yield path, node
            inner = [(path, each) for each in node.values()]
        else:
            inner = [(f"{path}.{key}" if path else key, each) for key, each in node.items()]
        waiting += [each for each in reversed(inner) if isinstance(each[1], dict | list)]


def _is_foreign(node: dict[str, Any]) -> bool:
    """Return whether a node is an object of another package, or of the user."""
    return node["__loader__"] == "ObjectNode" and not node["__module__"].startswith(_KNOWN)


def _is_plain(node: dict[str, Any]) -> bool:
    """Return whether a node needs no other object, and no member of the file."""
    inner = nodes(node.get("content", {}))
    return all(each["__loader__"] in _PLAIN or _is_foreign(each) for _, each in inner)


def _lost(node: dict[str, Any], heading: dict[str, Any]) -> str:
    """Rebuild an object alone; return why it is lost, or nothing."""
    import skops.io  # it imports all of scikit-learn

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("schema.json", json.dumps({**node, **heading}))
    data = content.getvalue()
    try:
        again = skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))
        one = copy.copy(again)
        if copy.copy(one) is one is not again:
            return "there is one of it only, and the loaded one would be another"
        _, _, *items = again.__reduce_ex__(4)
    except Exception as error:  # any class may be asked
        return str(error) or type(error).__name__
    is_emptied = any(each is not None for each in items[1:3])
    return "its entries would be lost" if is_emptied else ""
