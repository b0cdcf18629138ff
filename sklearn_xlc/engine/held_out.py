"""Which samples are held out from training, for decisions, calibration and early stopping."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone

from sklearn_xlc.batches import Rows
from sklearn_xlc.engine.label_code import LabelCode

#: Samples that "auto" holds out: a share, and at most so many. More would cost what ranks best, and
#: change the calibration error little (docs/measurements.md).
HELD_SHARE, MOST_HELD = 0.05, 1000
#: Held-out samples from which on a decision and a calibration are fitted for "auto".
LEAST_HELD = 100
#: Samples below which that share says too little, and costs too much, where a fit takes seconds:
#: another network is trained on a part, for decision and calibration alone.
FEW_SAMPLES = 30_000
#: That part: this share of the samples, or up to so many samples if they are no more than the other
#: share. Networks of fewer samples err otherwise than those of all.
SHARE_OF_PART, LEAST_OF_PART, MOST_OF_PART = 0.4, 5000, 0.6
#: Samples of that share that are scored: more say little more.
MOST_SCORED = 2500


class HeldOutMixin:
    """Number of held-out samples, and the classifier that is fitted on a part of the samples."""

    decision: Any
    calibration: Any
    early_stopping: bool
    validation_fraction: float
    verbose: Any
    n_iter_: int
    fit: Any
    _code: LabelCode
    _new_decision: Any
    #: Whether this classifier is fitted for the decision of another one.
    _is_part = False

    def _scores_apart(self, code: LabelCode) -> bool:
        """Whether each label has a score of its own: no softmax, no scores of label sets."""
        return False

    def _is_quick(self, rows: Rows, code: LabelCode) -> bool:
        """Whether a fit takes seconds where samples are few, and another one is as good."""
        return False

    def _holds_out(self, code: LabelCode) -> bool:
        """Whether the decision asks for samples that are held out from training."""
        return code.multilabel and self._new_decision().fitted_on == "held"

    def _is_auto(self, code: LabelCode) -> bool:
        """Whether "auto" is fitted on held-out samples, if there are enough."""
        is_auto = "auto" in (self.decision, self.calibration)
        return is_auto and code.multilabel and self._scores_apart(code)

    def _needs_part(self, rows: Rows, code: LabelCode) -> bool:
        """Whether "auto" is fitted on scores of a network that has not seen many of the samples."""
        if self._is_part or self.early_stopping or self._holds_out(code):
            return False
        # Soft labels, or counts, say less of what is right.
        is_few = len(rows) < FEW_SAMPLES and rows.Y.dtype.kind != "f"
        return is_few and self._is_auto(code) and self._is_quick(rows, code)

    def _n_held(self, rows: Rows, code: LabelCode) -> int:
        """Number of samples to hold out from training."""
        n_samples = len(rows)
        if self._is_part:
            least = min(LEAST_OF_PART, MOST_OF_PART * n_samples)
            return n_samples - int(max(SHARE_OF_PART * n_samples, least))
        if self.early_stopping or self._holds_out(code):
            return int(np.ceil(self.validation_fraction * n_samples))
        if not self._is_auto(code) or rows.Y.dtype.kind == "f" or self._needs_part(rows, code):
            return 0
        share = min(HELD_SHARE, self.validation_fraction)
        n_held = min(MOST_HELD, int(share * n_samples))
        return n_held if n_held >= LEAST_HELD else 0

    def _n_scored(self, n_held: int) -> int:
        """Number of the held-out samples that are scored."""
        return min(n_held, MOST_SCORED) if self._is_part else n_held

    def _is_enough(self, held: Rows | None) -> bool:
        """Whether "auto" is fitted on held-out samples."""
        has_enough = held is not None and len(held) >= LEAST_HELD and held.Y.nnz > 0
        return has_enough and self._scores_apart(self._code)

    def _fitted_on_part(self, X: Any, y: Any, sample_weight: Any, seed: int) -> Any:
        """Classifier like this one that has not seen a part of the samples."""
        part: Any = clone(self)  # type: ignore[type-var]
        part._is_part = True
        given = part.get_params(deep=False)
        changed: dict[str, Any] = {"max_epochs": self.n_iter_, "random_state": seed}
        changed |= {"verbose": 0, "checkpoint": None}
        part.set_params(**{name: value for name, value in changed.items() if name in given})
        if self.verbose:
            print(
                "another network, of a part of the samples: for decision and calibration",
                flush=True,
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # given in the first fit
            return part.fit(X, y, sample_weight)
