"""Rules of "auto": from settings and facts of the data to settings without "auto".

:func:`resolve` decides on network and training. Beside it stand the choices that are made before
their facts are known (:func:`keeps_type`, :func:`choose_head`), and those for samples that are held
out (:func:`hold_out` and the other ``choose_`` functions). The functions are pure: equal parameters
and facts give equal settings on every machine. A fit with these settings gives the same model.
docs/performance.md has the runs behind the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sklearn_xlc._part import is_auto
from sklearn_xlc.batches import n_batches
from sklearn_xlc.codes import head_lengths
from sklearn_xlc.engine.settings import Settings

#: Up to this number of samples nothing is drawn at random or depends on how many there are:
#: scikit-learn checks on up to 60 samples that integer weights equal repeated samples.
SMALL_DATA = 64
#: Samples of the first batch of a stream, at most, that tell too little of the scales of columns.
FEW_OF_STREAM = 9
#: Up to this number of samples the network is as precise as X: double precision costs little time.
KEEPS_TYPE = 1000
#: From this number of samples on, three passes are enough, and a step of a cascade has twice as
#: many samples: it updates most weights.
LARGE_DATA = 50_000
#: Width of the default network for sparse X behind lists, which make up for what it does not learn;
#: without them; and of networks that were not searched for.
WIDTH, ALONE, WIDEST = 384, 512, 1024
#: Non-zeros of a long sample.
LONG = 70
#: Dropout behind standardised columns, and rate of the encoder relative to that for long samples.
DENSE_DROPOUT, DENSE_RATE = 0.2, 3.0
#: Samples up to which half of the units are dropped behind words: those of a vectorizer, of texts.
MOST_DROPPED = 1e4, 2e4
#: Negative labels drawn in a step beside the labels of its samples, and number of labels beyond
#: which they are drawn: for label sets, and for class labels, where they estimate the normaliser.
N_NEGATIVES, MANY_TO_DRAW = {True: 250, False: 1000}, {True: 1000, False: 8000}
#: Number of samples in a step, about, and least number of bags.
STEP_SAMPLES, STEP_BAGS = 256, 4

#: Share of the rates of a fit in a pass that goes on from one, whose rates had fallen to zero:
#: few samples at full rates undo more than they teach.
AFTER_FIT = 0.3
#: Peak learning rates of heads, for class labels and for label sets, with batches of 256. Rates,
#: epochs, width and dropout were tuned with these heads on five data sets of sparse X.
HEAD_RATES = {
    "flat": (2e-3, 4e-3),
    "cascade": (2e-3, 2e-3),
    "product": (2e-3, 2e-3),
    "dft": (2e-3, 4e-3),
    "bottleneck": (2e-3, 4e-3),
    "etf": (2e-3, 2e-3),
    "learned": (2e-3, 2e-3),
    "miml": (2e-3, 4e-3),
}

#: Heads whose labels "auto" ranks by retrieval, too; others have guarantees on the output layer.
RETRIEVED = ("flat", "cascade", "product", "sampling", "custom")

#: Labels of the network in a list, at least and at most.
LISTED = 20, 200

#: Samples held out for "auto": a share, and a largest number. More would cost precision, and change
#: the calibration error little (docs/measurements.md).
HELD_SHARE, MOST_HELD = 0.05, 1000
#: The same for a ranker that is learnt from lists.
HELD_TO_RANK, MOST_RANKED = 0.1, 3000
#: Least number of samples to learn lists from, or a decision where labels share one probability;
#: and to calibrate and to tune a threshold elsewhere.
LEAST_HELD, LEAST_APART = 100, 40
#: Below this number of samples the share is too small for decision and ranker, and costs precision;
#: a second network is then trained on a part of the samples, within seconds.
FEW_SAMPLES = 30_000
#: Size of the part: a share of the samples, but at least a number of samples, up to a larger share.
#: Networks of much fewer samples make other errors than the network of all samples.
SHARE_OF_PART, LEAST_OF_PART, MOST_OF_PART = 0.4, 5000, 0.6
#: Largest number of scored samples outside of the part: more add little.
MOST_SCORED = 2500


@dataclass(frozen=True)
class Facts:
    """Facts of the data and of the classifier, read by the rules.

    Parameters
    ----------
    n_samples, n_labels : int
        Number of samples, or bags, and of labels.
    multilabel, soft : bool
        Whether a sample may hold any number of labels; whether labels are probabilities or counts.
    head : str
        Kind of the head, a key of `HEAD_RATES`; other kinds have no rules of their own.
    sparse, standardised : bool
        Whether the encoder reads CSR rows, or dense ones and standardises the columns.
    pointwise, one_softmax : bool
        Whether each label has a score of its own; whether classes share one softmax, of which a
        batch of label sets holds all scores.
    retrieves : bool
        Whether labels of similar training samples can be listed: each label has log odds, or
        classes share a softmax, and X is sparse, standardised, or holds texts.
    lists : bool
        Whether the ranker may list such labels: the one that is given does, or that of "auto" will.
    texts, counts : bool
        Whether X holds texts, of which the encoder makes sparse rows; whether X is sparse, and its
        numbers are counts, or zeros and ones.
    n_instances, n_nonzeros : int
        Samples in all bags (or `n_samples`); non-zeros of X (0 where X holds no numbers).
    labels_per_sample, most_labels : float and int
        Mean and largest number of labels of a sample.
    bag_size : float
        Mean number of samples in a bag; 0: there are no bags.
    n_train, train_length : int and float
        Training samples, and mean number of non-zeros that the encoder reads of one.
    fast_bfloat16, double : bool
        Whether bfloat16 products are several times faster; whether the model is in float64.
    needed_width : int
        Number of features needed to reach all label sets of the head; 0: any number.
    n_split : int
        Number of samples that a splitter holds out; 0: there is no splitter.
    n_streamed : int
        Number of samples so far, with those of this batch, where it is one pass of `partial_fit`
        over more than weights can stand for; 0: it is a fit.
    follows_fit : bool
        Whether the pass goes on from a fit.
    """

    n_samples: int
    n_labels: int
    multilabel: bool
    head: str = "flat"
    sparse: bool = True
    standardised: bool = False
    n_instances: int = 0
    n_nonzeros: int = 0
    labels_per_sample: float = 1.0
    most_labels: int = 1
    pointwise: bool = True
    one_softmax: bool = False
    retrieves: bool = False
    lists: bool = False
    texts: bool = False
    counts: bool = False
    soft: bool = False
    bag_size: float = 0.0
    n_train: int = 0
    train_length: float = 1.0
    fast_bfloat16: bool = False
    double: bool = False
    needed_width: int = 0
    n_split: int = 0
    n_streamed: int = 0
    follows_fit: bool = False

    @property
    def is_searched(self) -> bool:
        """Whether rules were tuned for this kind of X and head."""
        return (self.sparse or self.standardised) and self.head in HEAD_RATES

    @property
    def is_ranked(self) -> bool:
        """Whether a ranker can correct the scores, log odds of labels or a softmax of classes."""
        return self.pointwise if self.multilabel else self.one_softmax

    @property
    def least_apart(self) -> int:
        """Least number of samples apart from training to tune a decision and to calibrate.

        More, where labels of a set share one probability.
        """
        return LEAST_APART if self.is_ranked else LEAST_HELD

    def is_large(self, n_samples: int) -> bool:
        """Return whether `n_samples` samples, or bags, are more than weights can stand for.

        A stream is, however small its first batch.
        """
        return self.n_streamed > 0 or n_samples * (self.bag_size or 1) > SMALL_DATA


def resolve(settings: Settings, facts: Facts) -> Settings:
    """Return settings with a value for each "auto" of network and training.

    Head and loss are chosen before, as facts depend on them.
    """
    params = settings.flat()
    return settings.replaced(resolve_model(params, facts) | resolve_training(params, facts))


# --- model ------------------------------------------------------------------------------------


def resolve_model(params: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """Resolve parameters of encoder and head, and the precision."""
    return {name: rule(facts) for name, rule in OF_MODEL.items() if is_auto(params.get(name))}


def keeps_type(precision: str, n_samples: int, is_blurred: Callable[[], bool] = bool) -> bool:
    """Return whether weights have the type of X: with "auto", for few samples or if it is blurred.

    `is_blurred`: whether rounding to float32 would move values of X far.
    """
    return precision == "auto" and (n_samples <= KEEPS_TYPE or is_blurred())


def choose_head(task: Task, multilabel: bool) -> str:
    """Choose "flat", or "cascade" if it takes far fewer multiply-adds to fit and predict once."""
    flat, cascade = (
        PASSES * training + prediction
        for training, prediction in (
            flat_cost(task, _n_negatives(task.n_labels, multilabel)),
            cascade_cost(task, multilabel),
        )
    )
    return "flat" if flat - cascade <= WORTH else "cascade"


def _n_negatives(n_labels: int, multilabel: bool) -> int | None:
    return N_NEGATIVES[multilabel] if n_labels > MANY_TO_DRAW[multilabel] else None


def _hidden_layer_sizes(facts: Facts) -> tuple[int, ...]:
    width = WIDEST
    if facts.is_searched and facts.sparse:
        width = WIDTH if facts.lists else ALONE
    # Narrower features may not reach every label set; the usual bound on the width holds here, too.
    return (max(width, min(facts.needed_width, WIDEST)),)


def _dropout(facts: Facts) -> float:
    if facts.n_streamed or not facts.is_large(facts.n_samples):
        return 0.0  # a network that sees each sample of a stream once overfits none
    if not facts.sparse:  # networks overfit rare words; these columns occur in every sample
        return DENSE_DROPOUT
    if facts.is_searched:
        # The more samples, the less a network overfits single ones.
        most = MOST_DROPPED[facts.texts]
        return float(np.clip(0.5 - np.log10(facts.n_instances / most), 0.0, 0.5))
    return 0.7


def _negative_slope(facts: Facts) -> float:
    # `verify(whole_network=True)` takes the features of these encoders as non-negative.
    if facts.head in ("dft", "bottleneck"):
        return 0.0
    if not (facts.sparse and facts.is_searched and facts.is_large(facts.n_samples)):
        return 0.0
    # A sum of many words is informative by itself; with few words, combinations are.
    length = max(1.0, facts.n_nonzeros / facts.n_instances)
    # One class is known by such a sum, too: pieces of names tell it.
    return float(np.clip(0.8 * np.log10(length / LONG), 0 if facts.multilabel else 0.25, 0.5))


def _precision(facts: Facts) -> str:
    if facts.double:
        return "float64"
    is_fast = facts.is_searched and facts.is_large(facts.n_samples) and facts.fast_bfloat16
    return "bfloat16" if is_fast else "float32"


def _max_active(facts: Facts) -> Any:
    if facts.head == "bottleneck":  # it guarantees nothing
        return "auto"
    return choose_max_active(facts.most_labels, facts.n_labels)


def choose_max_active(most_labels: int, n_labels: int) -> int:
    """Choose the largest size of a guaranteed label set: the largest one of a training sample."""
    return int(min(most_labels, (n_labels - 1) // 2))


#: Rules of parameters with which a network is built, and which stay while it is trained further.
OF_MODEL: dict[str, Callable[[Facts], Any]] = {
    "head__n_negatives": lambda facts: _n_negatives(facts.n_labels, facts.multilabel),
    "encoder__hidden_layer_sizes": _hidden_layer_sizes,
    "encoder__dropout": _dropout,
    "encoder__negative_slope": _negative_slope,
    "max_active": _max_active,
    "precision": _precision,
}


# --- training ---------------------------------------------------------------------------------


def resolve_training(params: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """Resolve steps, optimiser, and the learning rates of encoder and head."""
    found: dict[str, Any] = {}
    is_searched = facts.is_searched and facts.is_large(facts.n_train)
    batch_size = params["batch_size"]
    if batch_size == "auto":
        found["batch_size"] = batch_size = _batch_size(facts)
    max_epochs = params["max_epochs"]
    if max_epochs == "auto":
        found["max_epochs"] = max_epochs = _max_epochs(facts, batch_size)
    if params["optimizer"] == "auto":
        found["optimizer"] = "mixed" if is_searched else "adam"
    if params.get("optimizer__row_momentum", "auto") == "auto":  # others have no such parameter
        found["optimizer__row_momentum"] = not is_searched or facts.head in ("dft", "bottleneck")
    rate = params.get("optimizer__learning_rate")
    if rate is None and params["learning_rate"] != "auto":
        rate = params["learning_rate"]
    rates = (rate, rate)
    if rate is None:
        rates = _rates(facts, batch_size, max_epochs) if is_searched else (2e-3, 2e-3)
        if facts.follows_fit and facts.n_streamed:
            rates = AFTER_FIT * rates[0], AFTER_FIT * rates[1]
    head_rate = params.get("optimizer__head_learning_rate")
    found["optimizer__learning_rate"] = rates[0]
    found["optimizer__head_learning_rate"] = rates[1] if head_rate is None else head_rate
    return found


def _batch_size(facts: Facts) -> int:
    n_train = max(1, facts.n_train)
    is_updated_whole = facts.head == "cascade" and n_train >= LARGE_DATA
    most = 2 * STEP_SAMPLES if is_updated_whole else STEP_SAMPLES
    if facts.bag_size:
        most = max(STEP_BAGS, int(STEP_SAMPLES / facts.bag_size))
    # Equal batches: a step of the few samples left over is as long as others, and tells less.
    return -(-n_train // n_batches(n_train, most))


def _max_epochs(facts: Facts, batch_size: int) -> int:
    n_train = facts.n_streamed or facts.n_train
    if not facts.is_large(n_train):
        return 200
    if not facts.is_searched:
        return max(10, -(-300 // n_batches(n_train, batch_size)))
    # A bag of ten samples is worth more than one sample, and less than ten.
    n_known = round(n_train * facts.bag_size**0.5) if facts.bag_size else n_train
    least = PASSES if n_known >= LARGE_DATA else PASSES + 1
    return max(least, round(3 * (LARGE_DATA / n_known) ** 0.5))


def _rates(facts: Facts, batch_size: int, max_epochs: int) -> tuple[float, float]:
    n_steps = max_epochs * n_batches(facts.n_streamed or facts.n_train, batch_size)
    head_rate = HEAD_RATES[facts.head][facts.multilabel]
    if facts.bag_size:  # a step has fewer labels than a step of samples
        head_rate *= facts.bag_size**0.5
    # The encoder moves about as far in few steps as in many. A sum of n words moves n times as far
    # as one word, and is sqrt(n) times as large.
    factor = (LONG / facts.train_length) ** 0.5 if facts.sparse else DENSE_RATE
    rate = np.clip(0.7 / n_steps, 1e-3, 4e-3) * factor
    return float(rate), head_rate * (min(batch_size, facts.n_train) / STEP_SAMPLES) ** 0.5


# --- held-out samples, ranker and decision ----------------------------------------------------


class HeldOut(NamedTuple):
    """Number of samples held out from training; `refit`: decided with a second network.

    `n_stopping`: number of those that early stopping reads, and ranker and decision do not; 0: all
    read the same.
    """

    n_held: int
    refit: bool
    validation_fraction: Any
    n_stopping: int = 0

    def apart(self, early_stopping: bool, is_learnt: bool) -> HeldOut:
        """Give half of the samples to early stopping, if enough are left to learn from."""
        is_divided = early_stopping and is_learnt and self.n_held >= 2 * LEAST_HELD
        return self._replace(n_stopping=self.n_held // 2 if is_divided else 0)


def hold_out(params: Mapping[str, Any], facts: Facts, *, is_part: bool = False) -> HeldOut:
    """Resolve the number of held-out samples; `is_part`: of the second network of "refit"."""
    n_samples, fraction = facts.n_samples, params["validation_fraction"]
    if is_part:
        least = min(LEAST_OF_PART, MOST_OF_PART * n_samples)
        n_held = n_samples - int(max(SHARE_OF_PART * n_samples, least))
        return HeldOut(n_held, False, n_held / n_samples)
    is_refit = fraction == "refit"
    if is_refit and params["early_stopping"]:
        raise ValueError(
            "validation_fraction='refit' holds nothing out from training, which early_stopping=True"
            " needs; give a fraction"
        )
    decision, ranker = params["decision"], params["ranker"]
    # Its own samples are not counted here; a ranker for "auto" beside it gets as many.
    has_own = decision != "auto" and decision.needs_own_samples
    is_held = decision != "auto" and decision.fitted_on == "held"
    is_tuned = facts.multilabel and is_held and not has_own
    is_ranked = ranker is not None and ranker != "auto"
    is_decided = decision == "auto" and facts.multilabel and (facts.pointwise or facts.one_softmax)
    is_auto = is_decided or (ranker == "auto" and facts.is_ranked)
    is_asked, is_learnt = params["early_stopping"] or is_tuned, is_tuned or is_ranked or is_auto
    if is_refit:
        return HeldOut(0, is_learnt, fraction)
    if facts.n_split:
        is_enough = is_auto and not facts.soft and facts.n_split >= facts.least_apart
        n_held = facts.n_split if is_asked or is_ranked or is_enough else 0
        return HeldOut(n_held, False, fraction).apart(params["early_stopping"], is_learnt)
    n_given = int(np.ceil(fraction * n_samples))
    is_asked |= has_own and is_auto and n_given >= LEAST_HELD
    as_given = HeldOut(n_given if is_asked or is_ranked else 0, False, fraction)
    # Soft labels, or counts, are poor targets for a decision.
    if is_asked or has_own or not is_learnt or facts.soft:
        return as_given.apart(params["early_stopping"], is_learnt)
    is_plain = not (params["callbacks"] or params["warm_start"] or facts.bag_size)
    n_scored = n_samples - int(MOST_OF_PART * n_samples)
    is_quick = is_plain and facts.is_searched and n_samples < FEW_SAMPLES
    if is_quick and n_scored >= facts.least_apart:
        return HeldOut(0, True, "refit")
    # What a ranker learns from does not depend on who chose it.
    auto_lists = ranker == "auto" and choose_ranker(facts, decision) == "boosted"
    lists = auto_lists or (is_ranked and not ranker.keeps_order)
    share, most = (HELD_TO_RANK, MOST_RANKED) if lists else (HELD_SHARE, MOST_HELD)
    n_held = min(most, int(share * n_samples), n_given)
    if n_held < LEAST_HELD:  # too few for "auto"; a given ranker asks for some
        return as_given
    return HeldOut(n_held, False, _fraction_of(n_held, n_samples))


def _fraction_of(n_held: int, n_samples: int) -> float:
    """Return the fraction of the samples that is `n_held`, rounded up."""
    fraction = n_held / n_samples
    while np.ceil(fraction * n_samples) > n_held:  # rounding
        fraction = float(np.nextafter(fraction, 0))
    return fraction


def choose_ranker(facts: Facts, decision: Any, n_held: int = LEAST_HELD) -> str:
    """Choose the name of the ranker for "auto", where held-out samples suffice for one.

    Where they are few, or the decision compares label sets, labels keep the order of the network.
    """
    compares = decision != "auto" and (decision.reads != "ranked" or decision.distances is not None)
    lists = facts.retrieves and n_held >= LEAST_HELD and not compares
    return "boosted" if lists else "calibration"


def choose_retrievers(facts: Facts, has_word_vectors: bool) -> str:
    """Choose the retrievers for "auto": words, and for texts also the meaning of words.

    Columns of counts are weighted, as an encoder of texts weights words.
    """
    if facts.texts and has_word_vectors:
        return "texts"
    return "counts" if facts.counts else "words"


def choose_n_candidates(facts: Facts) -> int:
    """Choose how many of the network's labels a list holds: most of the true ones.

    Labels below the list are put below its last one, however probable they are.
    """
    return int(np.clip(round(3 * facts.labels_per_sample), *LISTED))


def choose_decision(
    link: str | None, ranks_sets: bool, is_enough: bool
) -> tuple[str, dict[str, Any]]:
    """Choose name and parameters of the decision on label sets for "auto".

    `link` maps the head's scores to probabilities. `is_enough`: held-out samples suffice to tune a
    threshold.
    """
    if ranks_sets:
        return "joint_mode", {}
    if link in ("softmax", "exp") and not is_enough:  # labels share one probability
        return "divergence", {}
    if link is None and not is_enough:  # no score means "more likely than not"
        return "topk", {}
    # Where every sample has a label, no label is a wrong answer for sure.
    untuned = {} if is_enough else {"threshold": 0.0, "scale": "score"}
    return "threshold", {"min_labels": "auto", **untuned}


# --- counted costs ----------------------------------------------------------------------------
# Costs are multiply-adds to train on a sample once and to predict one, counted rather than timed:
# the choice is the same on every machine. Those of training count once, with the two of the
# backward pass, as products have half precision there (on other processors they take three times).

#: Multiply-adds in the time of one number's update by Adam, which waits for memory.
UPDATE = 100
#: Multiply-adds of a dense product in the time of one of the many small products of a cascade.
SMALL_PRODUCTS = 3
#: Passes of a fit over many samples.
PASSES = 3
#: More multiply-adds that flat may take than a cascade, because it finds the best of all labels,
#: not of those below a beam: .6 ms in a batch. A sample alone waits longer, for all weights.
WORTH = 25_000_000
#: Samples of a step; width of the embeddings and beam of a cascade.
BATCH, EMBEDDING, BEAM = 256, 256, 10


class Task(NamedTuple):
    """Size of an output layer: labels, mean labels per sample, and features."""

    n_labels: int
    labels_per_sample: float
    width: int


def flat_cost(task: Task, n_negatives: int | None) -> tuple[float, float]:
    """Count the costs of training and prediction with a flat head, with all or some negatives."""
    trained = float(task.n_labels)
    if n_negatives is not None:
        trained = min(trained, BATCH * task.labels_per_sample + n_negatives)
    weights = trained * task.width
    return weights + UPDATE * weights / BATCH, task.n_labels * task.width


def cascade_cost(task: Task, multilabel: bool) -> tuple[float, float]:
    """Count those of a cascade: all first nodes, then the children of kept parents."""
    n_nodes, length = head_lengths(task.n_labels, 2, "descending")
    children, kept = length * EMBEDDING, min(n_nodes, BEAM)
    # A multi-class step visits the true labels only.
    met = min(n_nodes, kept + task.labels_per_sample) if multilabel else 1
    dense = n_nodes * task.width + task.width * EMBEDDING
    trained, predicted = (dense + SMALL_PRODUCTS * n * children for n in (met, kept))
    updated = n_nodes * (1 - (1 - met / n_nodes) ** BATCH) * children
    return trained + UPDATE * updated / BATCH, predicted
