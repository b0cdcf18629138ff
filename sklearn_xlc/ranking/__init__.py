"""Rankers: they turn the scores of listed labels into calibrated probabilities.

A classifier takes a ranker as its parameter `ranker`, by name or as an object. Rankers read arrays,
and do not need torch.
"""

from sklearn_xlc.ranking.calibration import N_RANKS, Calibration, Ranker

#: Rankers by the names that the parameter `ranker` takes, in addition to "auto" and None.
RANKERS: dict[str, type[Ranker]] = {"calibration": Calibration}

__all__ = [
    "Calibration",
    "N_RANKS",
    "RANKERS",
    "Ranker",
]
