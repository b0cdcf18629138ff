"""What processes that work on one model must have alike: compared before they meet."""

from __future__ import annotations

from typing import Any

import numpy as np

from sklearn_xlc.batches import Rows
from sklearn_xlc.batches.processes import Processes
from sklearn_xlc.training.encoding import identity


def digest_of_some(rows: Rows) -> str:
    """Digest of a few evenly spaced samples, with their labels and weights.

    It tells other data and another order, and does not read a large mapped X.
    """
    some = rows.take(np.unique(np.linspace(0, len(rows) - 1, 64).astype(np.int64)))
    return identity([some.X, some.Y, some.bags, some.sample_weight])[:16]


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


def check_labels(processes: Processes, what: str, labels: Any) -> None:
    """Raise ValueError in all processes unless all name the same labels in the same order."""
    check_agreement(
        processes,
        {f"digest of {what}": identity(labels)[:16]},
        f"all processes must give the same {what}, in the same order",
        "a set of Python has another order in each process",
    )


def agreed_batch(head: Any, X: Any, n_rows: int, asked: str) -> int:
    """Number of samples in a batch of a prediction: the same in all processes that hold the head.

    Parameters
    ----------
    head : Head
        Head that predicts. Where one process holds all of it, nothing is compared.
    X : Rows, CSR matrix, ndarray or Columns
        Samples.
    n_rows : int
        Number of samples that this process has memory for.
    asked : str
        What the head finds: messages between the processes depend on it. Empty: nothing, and
        nothing is compared.

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
    if shard is None or not asked:
        return n_rows
    rows = X if isinstance(X, Rows) else Rows(X)
    about = {
        "prediction": asked,
        "shape of X": tuple(rows.X.shape),
        "number of samples": len(rows),
        "digest of samples": digest_of_some(rows),
    }
    return min(
        check_agreement(
            shard.processes,
            about,
            "processes that hold a model in parts must all predict the same of the same samples",
            "predict the same rows everywhere, or give each process the whole model by "
            "sklearn_xlc.distributed.gather(estimator), for rows of its own",
            n_rows,
        )
    )
