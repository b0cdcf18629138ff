"""Parents of labels, and all their ancestors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
import numpy.typing as npt

from sklearn_xlc._labels import missing_value


def ancestors_of(parents: Any) -> dict[Any, frozenset[Any]]:
    """Return all ancestors of every label of a taxonomy, without the label itself.

    `parents` is a dict of each label, a string or an integer, to its parent, or a list, tuple or
    set of parents; None, NaN or an empty list for none. Labels that are parents only need no entry.
    A series has the labels in its index; one that it holds several times has several parents.

    Examples
    --------
    >>> from sklearn_xlc.metrics import ancestors_of
    >>> sorted(ancestors_of({"cat": ["feline", "pet"], "feline": "animal"})["cat"])
    ['animal', 'feline', 'pet']
    """
    given_of = plain_parents(parents).items()
    return dict(_closure(tuple((label, _as_tuple(label, given)) for label, given in given_of)))


@lru_cache(maxsize=1)  # a stream asks again with each batch, and a search with each score
def _closure(pairs: tuple[tuple[Any, tuple[Any, ...]], ...]) -> dict[Any, frozenset[Any]]:
    """Return the ancestors of labels, given with their parents."""
    direct = dict(pairs)
    try:
        parents_first = list(TopologicalSorter(direct).static_order())
    except CycleError as error:
        # The error lists each label before its child.
        around = " -> ".join(map(repr, reversed(error.args[1])))
        raise ValueError(f"parents has a cycle: {around}") from None
    found: dict[Any, frozenset[Any]] = {}
    for label in parents_first:
        above = direct.get(label, ())
        found[label] = frozenset(above).union(*(found[parent] for parent in above))
    return found


def plain_parents(parents: Any) -> dict[Any, Any]:
    """Return parents, given as a dict or a series, as a dict that files can hold.

    Raises
    ------
    TypeError
        If they are neither.
    """
    if isinstance(parents, Mapping):
        return {label: None if missing_value(each) else each for label, each in parents.items()}
    if not (hasattr(parents, "iloc") and parents.ndim == 1):
        raise TypeError(
            "parents must be a dict of a label to its parent or parents, such as {'cat': 'animal'},"
            f" or a series with the labels in its index, got a {type(parents).__name__}"
        )
    found: dict[Any, list[Any]] = {}
    for label, each in zip(parents.index.tolist(), parents.tolist()):
        found.setdefault(label, []).extend(_listed(each))
    return found


def _listed(given: Any) -> list[Any]:
    """Return one parent or several as a list, without missing ones."""
    above = given if isinstance(given, list | tuple | set | frozenset) else [given]
    # Beside missing values, a column of pandas has floats for integers.
    whole = (int(each) if isinstance(each, float) and each.is_integer() else each for each in above)
    return [each for each in whole if not missing_value(each)]


def _as_tuple(label: Any, given: Any) -> tuple[Any, ...]:
    above = tuple(_listed(given))
    for each in (label, *above):
        if not isinstance(each, str | int | np.integer) or isinstance(each, bool):
            raise TypeError(
                f"parents[{label!r}] must be a label, or a list of labels, which are strings or "
                f"integers, got {given!r}"
            )
    return above


def pairs_with_ancestors(
    ancestors: Mapping[Any, Iterable[Any]], labels: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """Return the positions of labels and of their ancestors among them, as pairs (n_pairs, 2).

    Raises
    ------
    ValueError
        If none of the labels is in the taxonomy.
    """
    at = {label: position for position, label in enumerate(labels.tolist())}
    if len(at) and not at.keys() & ancestors.keys():
        what = f"names {next(iter(ancestors))!r}" if ancestors else "is empty"
        raise ValueError(
            f"parents names none of the {len(at)} labels, such as {next(iter(at))!r}; it {what}"
        )
    pairs = [
        (position, at[above])
        for label, position in at.items()
        for above in ancestors.get(label, ())
        if above in at
    ]
    return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
