"""Texts with their words shaded by contributions, for notebooks."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import numpy as np

from sklearn_xlc._labels import are_texts

#: A stretch of so many characters without any contribution is cut to its ends, of `KEPT` each.
LONG, KEPT = 120, 40


def texts_of(X: Any) -> list[str] | None:
    """Return string samples as a list; None for other samples."""
    if getattr(X, "ndim", 1) != 1 or isinstance(X, Mapping) or not np.iterable(X):
        return None
    values = list(X)
    return values if are_texts(values) else None


def shaded(text: str, parts: Iterable[tuple[str, float]], scale: float) -> tuple[str, list[Any]]:
    """Return HTML of a text with coloured words, and the parts missing in the text.

    `parts` are words or n-grams with their contributions; those of words that overlap add up. A
    name with a prefix, such as "title__react" of a FeatureUnion, is looked for without it; "a | b"
    stands for "a" and "b". A contribution of `scale` has the darkest colour.

    Examples
    --------
    >>> from sklearn_xlc.inspection.shading import shaded
    >>> page, rest = shaded("New York & me", [("new york", 0.5), ("x3", 0.1)], 1.0)
    >>> page.endswith('">New York</span> &amp; me'), rest
    (True, [('x3', 0.1)])
    """
    values, rest = np.zeros(len(text)), []
    for name, value in parts:
        places = {place for phrase in name.split(" | ") for place in _places(text, phrase)}
        for start, stop in places:
            values[start:stop] += value
        if not places:
            rest.append((name, value))
    page, start = [], 0
    for value, run in groupby(values.tolist()):
        stop = start + len(list(run))
        part = text[start:stop]
        if value:
            look = f'style="{style(value, scale)}" title="{value:+.2f}"'
            part = f"<span {look}>{_escaped(part)}</span>"
        elif len(part) > LONG:
            ends = part[:KEPT] * (start > 0), part[-KEPT:] * (stop < len(text))
            part = " … ".join(map(_escaped, ends))
        else:
            part = _escaped(part)
        page.append(part)
        start = stop
    return "".join(page), rest


def style(value: float, scale: float) -> str:
    """Return the style of a word, blue if it raises the score, orange if it lowers it."""
    colour = "0,114,178" if value > 0 else "230,120,0"
    strength = 0.08 + 0.47 * min(1.0, abs(value) / scale)
    return f"background:rgba({colour},{strength:.2f});border-radius:3px;padding:1px 2px"


def _places(text: str, name: str) -> list[tuple[int, int]]:
    """Return where a word or n-gram stands in a text: as a whole word, otherwise within words."""
    names = [name] + ([name.split("__", 1)[1]] if "__" in name else [])
    for each in names:
        words = [re.escape(word) for word in each.split()]
        if not words:
            continue
        phrase = r"\W+".join(words)
        for pattern in (rf"(?<!\w){phrase}(?!\w)", phrase):
            found = [match.span() for match in re.finditer(pattern, text, re.IGNORECASE)]
            if found:
                return found
    return []


def _escaped(part: str) -> str:
    return html.escape(part, quote=False)
