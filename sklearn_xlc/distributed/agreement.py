"""Compare the estimator and the data of all processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn_xlc.distributed.processes import ALONE, Alone


def check_agreement(
    processes: Alone,
    about: Callable[[], dict[str, Any]],
    rule: str,
    remedy: str,
    beside: Any = None,
) -> list[Any]:
    """Raise ValueError in all processes unless all say the same about their work.

    `about` returns what must be alike, by its name in messages; one process does not call it.
    `rule` and `remedy` begin and end the message. Return what the processes say `beside`, in their
    order.
    """
    if processes.size == 1:
        return [beside]
    everywhere = processes.objects((about(), beside))
    for name, first in everywhere[0][0].items():
        for rank, (other, _) in enumerate(everywhere):
            if other[name] != first:
                raise ValueError(
                    f"{rule}, but the {name} in process {rank} is {other[name]}, and in process 0 "
                    f"{first}; {remedy}"
                )
    return [each for _, each in everywhere]


def check_labels(processes: Alone, what: str, digest: Callable[[], str]) -> None:
    """Raise ValueError in all processes unless all name the same labels in the same order."""
    check_agreement(
        processes,
        lambda: {f"digest of {what}": digest()},
        f"all processes must give the same {what}, in the same order",
        "a set of Python has another order in each process",
    )


def processes_of(head: Any) -> Alone:
    """Return the processes of a head."""
    shard = next(iter(head.sharded_parameters().values()), None)
    return ALONE if shard is None else shard.processes


def check_holders(head: Any, processes: Alone) -> None:
    """Raise ValueError if other processes hold the head."""
    for shard in head.sharded_parameters().values():
        if shard.processes != processes:
            shard.refuse_part()


def agreed_batch(head: Any, n_rows: int, about: Callable[[], dict[str, Any]]) -> int:
    """Return the smallest `n_rows` of the head's processes, for a prediction.

    ValueError in all of them if the values of `about`, by their names in messages, differ.
    """
    return min(
        check_agreement(
            processes_of(head),
            about,
            "processes that hold a model in parts must all predict the same of the same samples",
            "predict the same rows everywhere, or give each process the whole model by "
            "sklearn_xlc.distributed.gather(estimator), for rows of its own",
            n_rows,
        )
    )
