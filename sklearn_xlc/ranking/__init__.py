"""Rankers: calibrate the scores of listed labels.

The parameter `ranker` of a classifier is the name of a ranker or an object. Rankers work on arrays,
without torch.
"""

from sklearn_xlc.ranking._order import among_all, class_probabilities, with_unlisted
from sklearn_xlc.ranking.calibration import N_RANKS, Calibration, Ranker

#: Rankers by name, for the parameter `ranker`.
RANKERS: dict[str, type[Ranker]] = {"calibration": Calibration}

__all__ = [
    "Calibration",
    "N_RANKS",
    "RANKERS",
    "Ranker",
    "among_all",
    "class_probabilities",
    "with_unlisted",
]
