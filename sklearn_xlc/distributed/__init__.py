"""Train over processes: join them, and gather models held in parts.

A program that is started several times, by ``torchrun`` or ``accelerate launch``, calls
:func:`init` first. Classifiers then train together: each process holds the weights of its part of
the labels, and reads its part of every batch where encoders are expensive. All processes run the
same code on the same data.
"""

from __future__ import annotations

import atexit
import os

from sklearn_xlc.distributed.agreement import (
    agreed_batch,
    check_agreement,
    check_holders,
    check_labels,
    processes_of,
)
from sklearn_xlc.distributed.gathering import gather, gathered, reading_together
from sklearn_xlc.distributed.parts import (
    as_kind_of,
    copied,
    held_of_whole,
    joined,
    module_on_first,
    module_state,
    share_out,
    whole_on_first,
)
from sklearn_xlc.distributed.processes import ALONE, Alone, all_processes, processes_for
from sklearn_xlc.distributed.shards import sharding
from sklearn_xlc.distributed.sharing import batches_for, begin_together, stay_alike

__all__ = ["gather", "init"]


def init(timeout: float = 600.0) -> tuple[int, int]:
    """Join the processes of a launcher; a program started once goes on alone.

    They are found by the environment variables of ``torchrun``, which ``accelerate launch`` sets,
    too. Tensors of a GPU travel by NCCL, and those of the CPU by Gloo. A group that the program
    has made itself, by :func:`torch.distributed.init_process_group`, is left as it is.

    Parameters
    ----------
    timeout : float, default=600.0
        Seconds that processes wait for each other before they raise ConnectionError.

    Returns
    -------
    rank, n_processes : int
        Number of this process, and how many there are: 0 and 1 if it is alone.

    Examples
    --------
    >>> import sklearn_xlc
    >>> sklearn_xlc.distributed.init()  # python program.py; torchrun: (0, 2) and (1, 2)
    (0, 1)
    """
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        _join(timeout)
    found = all_processes()
    return found.rank, found.size


def _join(timeout: float) -> None:
    from datetime import timedelta

    import torch
    from torch import distributed

    if distributed.is_initialized():
        return
    number, n_gpus = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
    if number < n_gpus:  # a launcher may show each process one GPU, its own
        torch.cuda.set_device(number)
    distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if n_gpus else "gloo", timeout=timedelta(seconds=timeout)
    )
    atexit.register(_leave)


def _leave() -> None:
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()
