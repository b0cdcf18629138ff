"""Values of "auto" that were searched for: multi-label, one output per label, sparse X."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from sklearn_xlc.batches import Rows, n_batches
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.net import SMALL_DATA, TrainingMixin
from sklearn_xlc.training.devices import multiplies_bfloat16, resolve_device

#: Up to this many labels "auto" gives each an output of its own: multi-class and multi-label.
FLAT_LIMIT = (1000, 25_000)
#: Labels that a step draws as negatives, where there are more than eight times as many.
N_NEGATIVES = 1000
#: Samples from which batches are twice as large.
LARGE_DATA = 50_000
#: Non-zeros of X from which a network of twice the width ranks better.
MANY_ENTRIES = 4_000_000


class SearchedDefaults(TrainingMixin):
    """Width, dropout, steps and rates by the numbers of samples, non-zeros and labels.

    Fitted on five data sets for precision at 1, 3 and 5 and for CPU time; docs/performance.md has
    the runs. Other kinds of data keep the values of all classifiers.
    """

    n_negatives: Any
    _code: LabelCode
    _algorithm: Any

    @property
    def _is_searched(self) -> bool:
        is_flat = self._code.multilabel and self._algorithm(self._code) == "flat"
        return is_flat and self.encoder is None and self._sparse_inputs

    def _hidden_sizes(self, rows: Rows) -> Any:
        if not isinstance(self.hidden_layer_sizes, str):
            return self.hidden_layer_sizes
        return (512,) if self._is_searched and rows.n_stored() < MANY_ENTRIES else (1024,)

    def _dropout(self, rows: Rows) -> float:
        if self.dropout != "auto" or len(rows) <= SMALL_DATA or not self._is_searched:
            return super()._dropout(rows)
        # The more words there are to learn from, the less a network overfits single ones.
        return float(np.clip(0.5 - 0.3 * np.log10(rows.n_stored() / 1e6), 0.2, 0.5))

    def _batch_size(self, n_samples: int) -> int:
        if self.batch_size == "auto" and n_samples >= LARGE_DATA and self._is_searched:
            return 512
        return super()._batch_size(n_samples)

    def _max_epochs(self, n_samples: int) -> int:
        if self.max_epochs != "auto" or n_samples <= SMALL_DATA or not self._is_searched:
            return super()._max_epochs(n_samples)
        return max(3, round(4 * (50_000 / n_samples) ** (1 / 3)))

    def _rates(self, n_samples: int) -> tuple[float, float]:
        if not isinstance(self.learning_rate, str):
            return super()._rates(n_samples)
        if n_samples <= SMALL_DATA or not self._is_searched:
            return 2e-3, 2e-3
        batch_size = self._batch_size(n_samples)
        n_steps = self._max_epochs(n_samples) * n_batches(n_samples, batch_size)
        # The encoder travels about as far in few steps as in many.
        return float(np.clip(0.7 / n_steps, 1e-3, 4e-3)), 4e-3 * (batch_size / 256) ** 0.5

    def _row_momentum(self, n_samples: int) -> bool:
        return n_samples <= SMALL_DATA or not self._is_searched

    def _uses_bfloat16(self, n_samples: int) -> bool:
        if self.precision != "auto" or n_samples <= SMALL_DATA or not self._is_searched:
            return super()._uses_bfloat16(n_samples)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # given when the net is made
            return multiplies_bfloat16(resolve_device(self.device))

    def _n_negatives(self) -> int | None:
        if self.n_negatives != "auto":
            return self.n_negatives
        return N_NEGATIVES if self._code.n_labels > 8 * N_NEGATIVES else None
