"""Check that all processes fit, or ask, the same estimator with the same data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn_xlc.batches.processes import Processes


def check_agreement(
    processes: Processes, about: dict[str, Any], rule: str, remedy: str, beside: Any = None
) -> list[Any]:
    """Raise ValueError in all processes unless all say the same about their work.

    Parameters
    ----------
    processes : Processes
        Those that are about to work together; all call this function.
    about : dict of str to object
        What must be alike, by its name in messages.
    rule, remedy : str
        Beginning and end of the message.
    beside : object, default=None
        Something that may differ.

    Returns
    -------
    list of object
        What the processes say beside, in their order.
    """
    everywhere = processes.objects((about, beside))
    for name, first in everywhere[0][0].items():
        for rank, (other, _) in enumerate(everywhere):
            if other[name] != first:
                raise ValueError(
                    f"{rule}, but the {name} in process {rank} is {other[name]}, and in process 0 "
                    f"{first}; {remedy}"
                )
    return [each for _, each in everywhere]


def check_labels(processes: Processes, what: str, digest: str) -> None:
    """Raise ValueError in all processes unless all name the same labels in the same order."""
    check_agreement(
        processes,
        {f"digest of {what}": digest},
        f"all processes must give the same {what}, in the same order",
        "a set of Python has another order in each process",
    )


def agreed_batch(head: Any, n_rows: int, about: Callable[[], dict[str, Any]]) -> int:
    """Number of samples in a batch of a prediction: the same in all processes that hold the head.

    Parameters
    ----------
    head : Head
        Head that predicts. Where one process holds all of it, nothing is compared.
    n_rows : int
        Number of samples that this process has memory for.
    about : callable
        Returns what must be alike, by its name in messages: the samples, and what the head finds.
        Without any entry nothing is compared.

    Returns
    -------
    int
        The smallest `n_rows` of all processes.

    Raises
    ------
    ValueError
        If processes have other samples, or ask for something else.
    """
    shard = next(iter(head.sharded_parameters().values()), None)
    if shard is None:
        return n_rows
    compared = about()
    if not compared:
        return n_rows
    return min(
        check_agreement(
            shard.processes,
            compared,
            "processes that hold a model in parts must all predict the same of the same samples",
            "predict the same rows everywhere, or give each process the whole model by "
            "sklearn_xlc.distributed.gather(estimator), for rows of its own",
            n_rows,
        )
    )
