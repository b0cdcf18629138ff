"""Values of "auto" that were searched for: output layer, and training on sparse X."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np

from sklearn_xlc._compat import StrOptions
from sklearn_xlc.batches import Rows, n_batches
from sklearn_xlc.codes import head_lengths
from sklearn_xlc.encoders import MLPEncoder, vectorizes
from sklearn_xlc.engine.building import reads_sparse
from sklearn_xlc.engine.costs import WORTH, Cost, Task, cascade_cost, flat_cost
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.net import SMALL_DATA, TrainingMixin
from sklearn_xlc.training.devices import multiplies_bfloat16, resolve_device

#: Width of the default network, and of the widest.
WIDTH, WIDEST = 512, 1024
#: Labels that a step draws as negatives, where there are more than eight times as many.
N_NEGATIVES = 1000
#: Samples from which batches are twice as large.
LARGE_DATA = 50_000
#: Non-zeros of a long sample.
LONG = 70
#: Approximate number of samples in a step of bags, and the least number of bags.
STEP_SAMPLES, STEP_BAGS = 256, 4
#: Non-zeros of X from which wider networks rank better, twice as wide ones with four times as many.
MANY_ENTRIES = 2_500_000


def with_auto(constraints: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Constraints of parameters, with "auto" for those that have no such value elsewhere."""
    own = ("hidden_layer_sizes", "learning_rate")
    return {**constraints, **{name: [*constraints[name], StrOptions({"auto"})] for name in own}}


class SearchedDefaults(TrainingMixin):
    """Width, dropout, steps and rates by numbers of samples, non-zeros and labels.

    Fitted on five data sets for precision at 1, 3 and 5 and for CPU time; docs/performance.md has
    the runs. Dense X, encoders of the user and other heads keep the values of all classifiers.
    """

    _code: LabelCode

    def _has_searched_head(self, code: LabelCode) -> bool:
        """Whether the values were searched for with this output layer."""
        return True

    def _head_rate(self, code: LabelCode) -> float:
        """Peak learning rate of the head, for batches of 256."""
        return 4e-3 if code.multilabel else 2e-3

    @property
    def _is_searched(self) -> bool:
        is_sparse = self._sparse_inputs if self.encoder is None else vectorizes(self.encoder)
        return is_sparse and self._has_searched_head(self._code)

    def _is_quick(self, rows: Rows, code: LabelCode) -> bool:
        is_plain = not (self.callbacks or self.warm_start)
        if not is_plain or len(rows) <= SMALL_DATA or not self._has_searched_head(code):
            return False
        return reads_sparse(MLPEncoder, rows) if self.encoder is None else vectorizes(self.encoder)

    def _has_searched(self, n_samples: int) -> bool:
        """Whether the values that depend on so many samples were searched for."""
        return n_samples > SMALL_DATA and self._is_searched

    def _hidden_sizes(self, rows: Rows) -> Any:
        if not isinstance(self.hidden_layer_sizes, str):
            return self.hidden_layer_sizes
        if not self._is_searched:
            return (WIDEST,)
        factor = np.clip((rows.n_stored() / MANY_ENTRIES) ** 0.5, 1, WIDEST / WIDTH)
        return (64 * int(WIDTH / 64 * factor),)

    def _dropout(self, rows: Rows) -> float:
        if self.dropout != "auto" or not self._has_searched(len(rows)):
            return super()._dropout(rows)
        # The more samples there are to learn from, the less a network overfits single ones.
        return float(np.clip(0.5 - 0.3 * np.log10(rows.n_instances / 1e4), 0.2, 0.5))

    def _batch_size(self, n_samples: int) -> int:
        if self.batch_size == "auto" and n_samples >= LARGE_DATA and self._is_searched:
            return 512
        return super()._batch_size(n_samples)

    def _max_epochs(self, n_samples: int) -> int:
        if self.max_epochs != "auto" or not self._has_searched(n_samples):
            return super()._max_epochs(n_samples)
        return max(3, round(4 * (50_000 / n_samples) ** 0.4))

    def _rule(self, n_samples: int) -> str:
        if self.optimizer != "auto" or not self._has_searched(n_samples):
            return super()._rule(n_samples)
        return "mixed"

    def _negative_slope(self, rows: Rows) -> float:
        if not self._has_searched(len(rows)):
            return super()._negative_slope(rows)
        # The sum of many words tells much by itself; of few, which ones come together.
        return float(np.clip(0.8 * np.log10(_length(rows) / LONG), 0, 0.5))

    def _rates(self, rows: Rows) -> tuple[float, float]:
        if not isinstance(self.learning_rate, str):
            return super()._rates(rows)
        n_samples = len(rows)
        if not self._has_searched(n_samples):
            return 2e-3, 2e-3
        batch_size = self._batch_size(n_samples)
        n_steps = self._max_epochs(n_samples) * n_batches(n_samples, batch_size)
        head_rate = self._head_rate(self._code) * (batch_size / 256) ** 0.5
        # The encoder travels about as far in few steps as in many. The sum of n words moves n times
        # as far as one, and is sqrt(n) times as large.
        rate = np.clip(0.7 / n_steps, 1e-3, 4e-3) * (LONG / _length(rows)) ** 0.5
        return float(rate), head_rate

    def _row_momentum(self, n_samples: int) -> bool:
        return not self._has_searched(n_samples)

    def _uses_bfloat16(self, n_samples: int) -> bool:
        if self.precision != "auto" or not self._has_searched(n_samples):
            return super()._uses_bfloat16(n_samples)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # given when the net is made
            return multiplies_bfloat16(resolve_device(self.device))


class SearchedLayers(SearchedDefaults):
    """Output layer, too: "flat" or "cascade", and the number of negatives that "flat" draws."""

    n_heads: int
    embedding_dim: int
    beam_width: int
    n_negatives: Any
    rank: int | None
    _algorithm: Any

    def _has_searched_head(self, code: LabelCode) -> bool:
        return self._algorithm(code) in ("flat", "cascade", "product")

    def _head_rate(self, code: LabelCode) -> float:
        return super()._head_rate(code) if self._algorithm(code) == "flat" else 2e-3

    def _by_cost(self, code: LabelCode) -> str:
        """Flat, unless it would take many more multiply-adds than a cascade."""
        costs = self._costs(code)
        more = costs["flat"].total() - costs["cascade"].total()
        return "flat" if more <= WORTH else "cascade"

    def _costs(self, code: LabelCode) -> dict[str, Cost]:
        """Cost for a sample of each output layer that "auto" may take."""
        last = np.ravel(np.asarray(self.hidden_layer_sizes, dtype=object))[-1:].tolist()
        is_given = self.encoder is None and last and isinstance(last[0], Integral)
        n_labels = code.n_first or code.n_labels  # of which the layer was made
        task = Task(n_labels, code.labels_per_sample, int(last[0]) if is_given else WIDTH)
        lengths = head_lengths(n_labels, max(2, self.n_heads), "descending")
        size = (self.embedding_dim, self.beam_width)
        return {
            "flat": flat_cost(task, self._n_negatives(code), self.rank),
            "cascade": cascade_cost(task, lengths, *size, code.multilabel),
        }

    def _n_negatives(self, code: LabelCode) -> int | None:
        if self.n_negatives != "auto":
            return self.n_negatives
        return N_NEGATIVES if code.n_labels > 8 * N_NEGATIVES else None


class SearchedBags(SearchedDefaults):
    """Steps and rates where a row of Y is a bag, of so many samples on average."""

    _bag_size: float

    def _has_searched(self, n_samples: int) -> bool:
        return n_samples * self._bag_size > SMALL_DATA and self._is_searched

    def _is_quick(self, rows: Rows, code: LabelCode) -> bool:
        return False  # what is fitted a second time has no bags

    def _head_rate(self, code: LabelCode) -> float:
        # Labels are of bags, but so many samples as elsewhere make a step.
        return super()._head_rate(code) * self._bag_size**0.5

    def _batch_size(self, n_samples: int) -> int:
        if self.batch_size != "auto":
            return int(self.batch_size)
        if n_samples * self._bag_size <= SMALL_DATA:
            return max(1, n_samples)
        return max(STEP_BAGS, int(STEP_SAMPLES / self._bag_size))

    def _max_epochs(self, n_samples: int) -> int:
        if self.max_epochs != "auto":
            return int(self.max_epochs)
        if n_samples * self._bag_size <= SMALL_DATA:
            return 200
        if self._has_searched(n_samples):
            # One bag of ten samples tells more than one sample, and less than ten.
            return super()._max_epochs(round(n_samples * self._bag_size**0.5))
        return max(10, -(-300 // n_batches(n_samples, self._batch_size(n_samples))))


def _length(rows: Rows) -> float:
    """Mean number of non-zeros of a sample, at least one."""
    return max(1.0, rows.n_stored() / rows.n_instances)
