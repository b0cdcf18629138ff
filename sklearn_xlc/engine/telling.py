"""Tell what a fit does, in words, between the lines of the epochs."""

from __future__ import annotations

from typing import Any

from sklearn_xlc.distributed import all_processes


def tell(classifier: Any, message: str, *parts: Any) -> None:
    """Print what begins now, with ``verbose=1``; of several processes the first one speaks.

    A part may hold a text for each label: `parts` fill the message only if it is printed.
    """
    if classifier.verbose and all_processes().is_first:
        network = ", second network" if classifier._is_part else ""
        text = message.format(*parts) if parts else message
        print(f"[{type(classifier).__name__}{network}] {text}", flush=True)


def number(n: int, noun: str) -> str:
    """Return a number of things, such as "1 sample" or "45 000 samples"."""
    return f"{n:,}".replace(",", " ") + f" {noun}{'' if n == 1 else 's'}"
