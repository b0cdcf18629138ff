"""The public names, their parameters and defaults, as listed in `public_api.txt`.

A change of that file is a change for users: it belongs into the CHANGELOG, and from 1.0 on a name
or parameter goes only after two minor versions with a FutureWarning. Write the file anew by

    python tests/test_api.py
"""

import functools
import importlib
import inspect
import re
from pathlib import Path

FILE = Path(__file__).with_name("public_api.txt")
ROOMS = """
    aggregation codes datasets decisions distributed encoders engine geometry groups heads
    inspection metrics optimizers plotting ranking serving training
""".split()
ROOMS.insert(0, "")


def signature(value):
    """Parameters and defaults; addresses and order of sets do not count."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    bare = [
        each.replace(annotation=each.empty)
        for name, each in found.parameters.items()
        if name not in ("self", "cls")
    ]
    text = str(found.replace(parameters=bare, return_annotation=found.empty))
    return re.sub(r" at 0x[0-9a-f]+|<class '([^']*)'>", r"\1", text)


def members(cls, public):
    """Public methods and properties of a class, unless another public class defines them."""
    for name in sorted(dir(cls)):
        owner = next(each for each in cls.__mro__ if name in vars(each))
        if owner is not cls and owner in public:
            continue
        value = inspect.getattr_static(cls, name)
        value = getattr(value, "__func__", value)
        if name.startswith("_"):
            continue
        if isinstance(value, (property, functools.cached_property)):
            own, shown = (getattr(value, "fget", None) or value.func), ""
        elif callable(value):
            own, shown = inspect.unwrap(value), signature(value)
        elif type(value).__name__ == "_AvailableIfDescriptor":
            own, shown = inspect.unwrap(value.fn), signature(value.fn)
        else:
            continue
        if (getattr(own, "__module__", None) or "").startswith("sklearn_xlc"):
            yield f"{name}{shown}"


def public_api():
    modules = [importlib.import_module(f"sklearn_xlc.{room}".rstrip(".")) for room in ROOMS]
    public = [getattr(module, name) for module in modules for name in module.__all__]
    public = {value for value in public if inspect.isclass(value)}
    lines = []
    for module in modules:
        for name in module.__all__:
            value, path = getattr(module, name), f"{module.__name__}.{name}"
            if inspect.isclass(value):
                lines.append(path + signature(value))
                lines += [f"{path}.{member}" for member in members(value, public)]
            elif inspect.isroutine(value):  # not an alias of a type
                lines.append(path + signature(value))
            else:
                lines.append(path)
    return lines


def test_the_list_is_complete():
    found, listed = public_api(), FILE.read_text().splitlines()
    gone, new = sorted({*listed} - {*found}), sorted({*found} - {*listed})
    assert not gone, f"no longer public, or with other parameters: {gone}; see test_api.py"
    assert not new, f"public, and not listed: {new}; see test_api.py"
    assert found == listed


def test_every_public_module_is_among_them():
    root = Path(importlib.import_module("sklearn_xlc").__file__).parent
    public = {
        path.parent.name if path.name == "__init__.py" else path.stem
        for path in (*root.glob("*/__init__.py"), *root.glob("*.py"))
    }
    hidden = {"sklearn_xlc", "__main__", "batches", "command_line", "estimators"}
    assert {name for name in public if not name.startswith("_")} - hidden == {*ROOMS} - {""}


if __name__ == "__main__":
    FILE.write_text("\n".join(public_api()) + "\n")
