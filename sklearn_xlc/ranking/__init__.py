"""Rankers: lists of labels with calibrated log odds.

The parameter `ranker` of a classifier is the name of a ranker or an object. Rankers work on arrays,
without torch. :class:`Calibration` keeps the lists of the network. :class:`BoostedRanker` adds
labels that training samples suggest, by its retrievers, and ranks all of them.
"""

from sklearn_xlc.ranking._order import (
    among_all,
    class_probabilities,
    listed_probabilities,
    log_shares,
    with_unlisted,
)
from sklearn_xlc.ranking.base import Ranker, Retriever
from sklearn_xlc.ranking.boosted import BoostedRanker
from sklearn_xlc.ranking.calibration import Calibration, choose_n_ranks
from sklearn_xlc.ranking.label_texts import LabelTexts
from sklearn_xlc.ranking.retrievers import (
    CooccurringLabels,
    FeatureVotes,
    LabelCentroids,
    NearestSamples,
)
from sklearn_xlc.ranking.vectors import WORDLLAMA, has_word_vectors, texts_to_vectors

#: Rankers by name, for the parameter `ranker`.
RANKERS: dict[str, type[Ranker]] = {"boosted": BoostedRanker, "calibration": Calibration}

__all__ = [
    "BoostedRanker",
    "Calibration",
    "CooccurringLabels",
    "FeatureVotes",
    "LabelCentroids",
    "LabelTexts",
    "NearestSamples",
    "RANKERS",
    "Ranker",
    "Retriever",
    "WORDLLAMA",
    "among_all",
    "choose_n_ranks",
    "class_probabilities",
    "has_word_vectors",
    "listed_probabilities",
    "log_shares",
    "texts_to_vectors",
    "with_unlisted",
]
