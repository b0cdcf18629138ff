"""Counted costs of the output layers among which algorithm="auto" chooses.

All numbers are multiply-adds for one sample. They are counted, not timed: the choice is the same on
every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: Multiply-adds of prediction in the time of one of training and its two in the backward pass:
#: about one where products of training have half precision (on other processors three).
TRAINING = 1
#: Multiply-adds in the time of one number's update by Adam, which waits for memory.
UPDATE = 100
#: Multiply-adds of a dense product in the time of one of the many small products of a cascade.
SMALL_PRODUCTS = 3
#: More multiply-adds that flat may take than a cascade, because it ranks better: half a millisecond
#: in a batch, or 5 to 10 ms for a single sample, which waits for all weights.
WORTH = 20_000_000
#: Samples of a step.
BATCH = 256


class Task(NamedTuple):
    """Size of an output layer: labels, mean number of a sample's labels, and features."""

    n_labels: int
    labels_per_sample: float
    width: int


class Cost(NamedTuple):
    """Multiply-adds for one sample in training, forwards and backwards, and in prediction."""

    training: float
    prediction: float

    def total(self) -> float:
        """Cost of training on a sample once and of predicting one."""
        return self.training + self.prediction


def flat_cost(task: Task, n_negatives: int | None, rank: int | None = None) -> Cost:
    """Cost of one output per label, where a step trains all labels or some negatives.

    With a `rank` a layer of that width lies between features and labels.
    """
    trained = float(task.n_labels)
    if n_negatives is not None:
        trained = min(trained, BATCH * task.labels_per_sample + n_negatives)
    width, layer = (task.width, 0) if rank is None else (rank, task.width * rank)
    weights = trained * width + layer
    return Cost(TRAINING * weights + UPDATE * weights / BATCH, task.n_labels * width + layer)


def cascade_cost(
    task: Task, lengths: Sequence[int], embedding_dim: int, beam_width: int, multilabel: bool
) -> Cost:
    """Cost of a cascade: all nodes of the first level, then the children of kept parents."""
    n_nodes = lengths[0]
    dense = n_nodes * task.width + (len(lengths) - 1) * task.width * embedding_dim
    updated, trained, predicted = 0.0, 0.0, 0.0
    for length in lengths[1:]:
        children = length * embedding_dim
        kept = min(n_nodes, beam_width)
        # A multi-class step follows the true labels alone.
        met = min(n_nodes, kept + task.labels_per_sample) if multilabel else 1
        trained += SMALL_PRODUCTS * met * children
        predicted += SMALL_PRODUCTS * kept * children
        touched = n_nodes * (1 - (1 - met / n_nodes) ** BATCH)
        updated += touched * children
        n_nodes *= length
    return Cost(TRAINING * (dense + trained) + UPDATE * updated / BATCH, dense + predicted)
