"""Docstrings that share the parameters and attributes of a base class."""

from __future__ import annotations

import re
from typing import Any


def with_shared(kind: Any, base: Any) -> str:
    """Return the docstring of a class, with the parameters and attributes of its base filled in."""
    shared = base.__doc__.replace(base._loss_doc, kind._loss_doc)
    shared = shared.replace(f"{base._samples_doc} per step", f"{kind._samples_doc} per step")
    _, parameters, attributes, *_ = re.split(r"\n\n *[\w ]+\n *-+\n *", shared)
    return kind.__doc__.replace("{parameters}", parameters).replace("{attributes}", attributes)
