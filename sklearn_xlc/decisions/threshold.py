"""Decision for labels above a threshold, given or tuned on held-out samples."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, logit
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc._checks import check_indicator
from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc._csr import kept_entries
from sklearn_xlc._ids import by_label, in_order
from sklearn_xlc._labels import plain
from sklearn_xlc._part import is_word, refuse_unusable, sets_state
from sklearn_xlc._ranking import find_hits, rank_rows, ranked_candidates
from sklearn_xlc._warn import warn
from sklearn_xlc.decisions._base import Decision, least_size, set_sizes
from sklearn_xlc.decisions._tuning import (
    CRITERIA,
    FLOORS,
    best_cut,
    best_cuts_per_label,
    cut_reaching,
)

#: Largest number of labels of a sample, for "precision" and "recall".
MOST = 256

#: Functions from a score to a probability, and back.
_LINKS = {"sigmoid": (expit, logit), "exp": (np.exp, np.log)}


class Threshold(Decision):
    """Predict the labels with a probability, or score, above a threshold.

    Parameters
    ----------
    threshold : "tuned", float, array-like of shape (n_labels,) or dict, default="tuned"
        Threshold, or one threshold per label, on the scale named by `scale`. A series is read by
        its index, which names the labels. A dict has the thresholds of some labels by name, such as
        ``{"urgent": 0.2}``; that of the others is tuned on them. "tuned": the best for `criterion`
        on samples held out from training (`validation_fraction` of the classifier). If none are
        held out, as in `partial_fit`: a probability of 0.5; with a softmax, where labels share one
        probability, 0.5 divided by the mean number of labels of a sample.
    criterion : str, default="micro_f1"
        Criterion that "tuned" maximises over the best labels of each sample, or holds at a least
        value. Labels of which the network of held-out samples has no sample are left out, but of a
        least value.

        - "micro_f1", "macro_f1", "example_f1": F1 of all (sample, label) decisions together, mean
          F1 of the labels, mean F1 of the samples. F1 is 0 without true and predicted labels.
        - "subset_accuracy": share of samples with the right label set.
        - "f1_at_k": harmonic mean of mean precision and mean recall, if the best labels above the
          threshold are predicted, at most `k`. Precision is divided by the number of predicted
          labels; in :func:`~sklearn_xlc.metrics.f1_at_k` by k, so that fewer labels never pay.
        - "precision", "recall": of all (sample, label) decisions together, at least `at_least`. The
          threshold is the smallest with this precision on held-out samples, or the largest with
          this recall. If none has it, the best is taken, with a warning. At most the best 256
          labels of a sample are predicted.
    at_least : float, default=None
        Precision or recall to reach, in (0, 1], for "precision" and "recall" only. It holds on the
        held-out samples; on others it varies by chance, the more the fewer were held out.
    per_label : bool, default=False
        Whether to tune one threshold per label, for "micro_f1" or "macro_f1". A label of no
        held-out sample gets the best common threshold, raised if needed so as not to predict it.
    k : int, default=5
        Largest number of labels of a sample, for "f1_at_k" only.
    min_labels : int or "auto", default=0
        Smallest number of labels of a sample: the best ones are predicted even below the threshold.
        "auto": 1 if every training sample has a label, otherwise 0.
    scale : {"probability", "score"}, default="probability"
        Scale of a given `threshold`: probabilities as of `predict_proba`, or scores as of
        `decision_function`. Unused if the threshold is tuned.

    Attributes
    ----------
    threshold_, cut_ : float or ndarray of shape (n_labels,)
        Threshold in use, as a probability (as a score if the classifier has none) and as a score.
    precision_, recall_ : float
        Precision and recall on the held-out samples, of all (sample, label) decisions together. Set
        if the threshold is tuned.
    min_labels_, n_labels_ : int
        Smallest number of labels of a sample, in use; number of labels.

    See Also
    --------
    TopK : Predicts a fixed number of labels.
    sklearn.model_selection.TunedThresholdClassifierCV : For binary classifiers only.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_xlc.decisions import Threshold
    >>> scores = np.array([[3.0, -1.0, -2.0], [-3.0, 0.5, -0.5]])  # log odds
    >>> Y = np.array([[1, 0, 0], [0, 1, 1]])
    >>> decision = Threshold().fit(scores, Y)
    >>> decision.cut_
    -0.75
    >>> decision.decode(scores).toarray()
    array([[1, 0, 0],
           [0, 1, 1]], dtype=int8)
    >>> Threshold(criterion="recall", at_least=0.6).fit(scores, Y)
    Threshold(at_least=0.6, criterion='recall'): threshold_=0.5, precision_=1, recall_=0.6667
    """

    min_labels_: int
    precision_: float
    recall_: float
    in_repr = ("threshold_", "precision_", "recall_")
    _at_most_n_labels = "min_labels"
    _parameter_constraints = {
        "threshold": [
            StrOptions({"tuned"}),
            Interval(Real, None, None, closed="neither"),
            "array-like",
            Mapping,
        ],
        "criterion": [StrOptions({*CRITERIA, *FLOORS})],
        "at_least": [None, Interval(Real, 0, 1, closed="right")],
        "per_label": ["boolean"],
        "k": [Interval(Integral, 1, None, closed="left")],
        "min_labels": [StrOptions({"auto"}), Interval(Integral, 0, None, closed="left")],
        "scale": [StrOptions({"probability", "score"})],
    }

    def __init__(
        self,
        threshold: Any = "tuned",
        *,
        criterion: str = "micro_f1",
        at_least: float | None = None,
        per_label: bool = False,
        k: int = 5,
        min_labels: Any = 0,
        scale: str = "probability",
    ) -> None:
        self.threshold = threshold
        self.criterion = criterion
        self.at_least = at_least
        self.per_label = per_label
        self.k = k
        self.min_labels = min_labels
        self.scale = scale

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with a series as lists, and any mapping as a dict, for files."""
        state, given = super().__getstate__(), self.threshold
        if isinstance(given, Mapping):
            return state | {"threshold": dict(given)}
        if hasattr(given, "iloc"):
            series = {"data": given.tolist(), "index": given.index.tolist(), "name": given.name}
            return state | {"threshold": ("series", series)}
        return state | {"threshold": given.to_numpy()} if hasattr(given, "to_numpy") else state

    @sets_state
    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if isinstance(self.threshold, tuple) and is_word(self.threshold[0], "series"):
            import pandas as pd

            self.threshold = pd.Series(**self.threshold[1])

    @property
    def fitted_on(self) -> str | None:  # type: ignore[override]
        """Samples for tuning the threshold: held-out samples, or none."""
        return "held" if self._is_tuned else None

    @property
    def _is_tuned(self) -> bool:
        return is_word(self.threshold, "tuned") or isinstance(self.threshold, Mapping)

    @property
    def _named(self) -> Mapping[Any, Any]:
        """Given thresholds of some labels; the others are tuned."""
        return self.threshold if isinstance(self.threshold, Mapping) else {}

    @property
    def _has_cuts_of_labels(self) -> bool:  # type: ignore[override]
        return self.per_label or bool(self._named) or np.ndim(self.threshold) > 0

    @property
    def _max_labels(self) -> int | None:
        """Largest number of labels of a sample."""
        most = {"f1_at_k": self.k, **dict.fromkeys(FLOORS, MOST)}
        return most.get(self.criterion) if self._is_tuned else None

    @property
    def in_order(self) -> bool:  # type: ignore[override]
        """Whether the number of labels above the threshold is limited to the best."""
        return self._max_labels is not None

    @property
    def _min_labels(self) -> int:
        """Given smallest number of labels of a sample."""
        return 0 if self.min_labels == "auto" else self.min_labels

    def check_labels(self, Y: sp.csr_matrix) -> None:
        super().check_labels(Y)
        if self._is_tuned:
            self._check_criterion()
            for label, value in self._named.items():
                is_number = isinstance(value, Real) and not isinstance(value, bool)
                self._check_range(value if is_number else np.nan, f"threshold[{plain(label)!r}]")
            return
        why = f"with threshold={self.threshold!r}: it says how threshold='tuned' is tuned"
        refuse_unusable(self, dict.fromkeys(("criterion", "at_least", "per_label", "k"), why))
        needed = f"threshold must be one number, or one for each of the {Y.shape[1]} labels of y"
        try:
            values = np.asarray(self.threshold, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{needed}, got {self.threshold!r}") from None
        is_named = by_label(self.threshold, "threshold") is not self.threshold
        if not is_named and values.shape not in ((), (Y.shape[1],)):
            raise ValueError(f"{needed}, got shape {values.shape}")
        self._check_range(values, f"threshold={self.threshold!r}")

    def _check_range(self, values: Any, what: str) -> None:
        """Raise ValueError unless all thresholds are within their scale."""
        low, high = (0.0, 1.0) if self.scale == "probability" else (-np.inf, np.inf)
        if not np.all((values > low) & (values < high)):
            raise ValueError(
                f"{what} must be between {low:g} and {high:g}, both excluded, on the scale "
                f"{self.scale!r}"
            )

    def check_classes(self, classes: np.ndarray) -> None:
        in_order(self.threshold, classes, "threshold")
        known = classes.tolist()
        if unknown := sorted({*self._named}.difference(known), key=str):
            raise ValueError(
                f"threshold names {', '.join(repr(plain(each)) for each in unknown[:5])}, which "
                f"are no labels of y; these are {', '.join(map(repr, known[:5]))}"
                f"{' and others' if len(known) > 5 else ''}"
            )

    def _check_criterion(self) -> None:
        """Raise ValueError if parameters do not suit the criterion of a tuned threshold."""
        has_floor = self.criterion in FLOORS
        if not self._named:
            refuse_unusable(self, {"scale": "with threshold='tuned'"})
        elif has_floor:
            raise ValueError(
                f"criterion={self.criterion!r} is reached by one threshold for all labels; use "
                "threshold='tuned', or another criterion for labels that threshold does not name"
            )
        if self.criterion != "f1_at_k":
            refuse_unusable(self, {"k": f"with criterion={self.criterion!r}"})
        if has_floor != (self.at_least is not None):
            raise ValueError(
                f"criterion={self.criterion!r} needs at_least, such as at_least=0.9"
                if has_floor
                else f"at_least={self.at_least!r} needs criterion='precision' or 'recall', got "
                f"{self.criterion!r}"
            )
        if self.criterion == "precision" and self.min_labels != 0:
            raise ValueError(
                f"min_labels={self.min_labels!r} predicts labels below the threshold, which "
                "criterion='precision' does not; use min_labels=0"
            )
        if self._max_labels is not None and self._min_labels > self._max_labels:
            most = "256" if has_floor else f"k={self.k}"
            raise ValueError(
                f"min_labels={self.min_labels} is more than {most}, the largest number of "
                f"labels with criterion={self.criterion!r}"
            )
        if self.per_label and self.criterion not in ("micro_f1", "macro_f1"):
            raise ValueError(
                f"per_label=True needs criterion='micro_f1' or 'macro_f1', got "
                f"{self.criterion!r}, which cannot be tuned label by label"
            )

    def check_head(
        self, Y: sp.csr_matrix, *, link: str | None, n_features: int, layer: Any = None
    ) -> None:
        is_given = not self._is_tuned or bool(self._named)
        if is_given and self.scale == "probability" and link not in _LINKS:
            raise ValueError(
                f"threshold={self.threshold!r} is a probability, but this classifier's scores "
                "have none; use scale='score'"
            )

    def fit(
        self,
        scores: np.ndarray | None,
        Y: Any,
        *,
        labels: np.ndarray | None = None,
        sizes: np.ndarray | None = None,
        link: str | None = "sigmoid",
        known: np.ndarray | None = None,
        **context: Any,
    ) -> Threshold:
        super().fit(scores, Y)
        self.link_ = link
        sizes = set_sizes(Y, sizes)
        self.min_labels_ = least_size(self.min_labels, sizes)
        self._forget_quality()
        classes = context.get("classes")
        if not self._is_tuned:
            self.cut_ = self._given_cut(classes)
        elif scores is None:
            self.cut_ = float(np.log(0.5 / max(1.0, sizes.mean()))) if self.link_ == "exp" else 0.0
            if self.at_least is not None:
                warn(
                    f"{self.criterion} of at least {self.at_least} is reached on samples held out "
                    f"from training, and there are none: the threshold is {self.threshold_:.3g}; "
                    "give more samples, or call recalibrate with others"
                )
            self.cut_ = self._with_named(self.cut_, classes)
        else:
            self._tune(scores, labels, check_indicator(Y, "Y"), known, classes)
        return self

    def _tune(
        self,
        scores: np.ndarray,
        labels: np.ndarray | None,
        Y: sp.csr_array,
        known: np.ndarray | None,
        classes: Any,
    ) -> None:
        """Find the cut of held-out samples, and its precision and recall.

        The cut is that of the labels `known` to the network of the scores, but where a precision or
        recall is promised; and of those without a given threshold.
        """
        width = self._max_labels or scores.shape[1]
        first, first_labels = ranked_candidates(scores, labels, width)
        if self.at_least is None:
            found, true = (first, first_labels), Y
            if self._named:
                is_named = np.isin(np.arange(Y.shape[1]), [*self._places(classes)])
                known = ~is_named if known is None else known & ~is_named
            if known is not None:
                found = ranked_candidates(*_known_first(scores, labels, known), width)
                true = kept_entries(Y, known[Y.indices])
            tune = best_cuts_per_label if self.per_label else best_cut
            cut = tune(self.criterion, *found, find_hits(found[1], true), true)
            self.cut_ = self._with_named(cut, classes)
        else:
            hits = find_hits(first_labels, Y)
            self.cut_, value = cut_reaching(self.criterion, self.at_least, first, hits, Y.nnz)
            if value < self.at_least:
                warn(
                    f"no threshold has a {self.criterion} of at least {self.at_least} on the "
                    f"held-out samples: the best is {value:.4g}, of the threshold "
                    f"{self.threshold_:.4g}, which is used"
                )
        sets = self.decode(first, first_labels)
        n_hits = int(sets.multiply(Y).sum(dtype=np.int64))
        self.precision_, self.recall_ = n_hits / max(1, sets.nnz), n_hits / max(1, Y.nnz)

    def _forget_quality(self) -> None:
        for name in ("precision_", "recall_"):
            self.__dict__.pop(name, None)

    def partial_fit(
        self, scores: Any, Y: Any, *, sizes: np.ndarray | None = None, **context: Any
    ) -> Threshold:
        if not self._is_tuned:
            self.cut_ = self._given_cut(context.get("classes"))
            self._forget_quality()
        elif context.get("classes") is not None:
            self.cut_ = self._with_named(self.cut_, context["classes"])
        least = least_size(self.min_labels, set_sizes(Y, sizes))
        # One sample without labels, in any call, is enough for "auto".
        self.min_labels_ = min(self.min_labels_, least) if self.min_labels == "auto" else least
        return self

    def for_labels(self, origin: np.ndarray) -> Self:
        # New labels have the median threshold.
        other = super().for_labels(origin)
        if np.ndim(self.cut_):
            other.cut_ = np.where(origin < 0, np.median(self.cut_), self.cut_[origin])
        return other

    def _given_cut(self, classes: Any) -> Any:
        """Convert the given threshold to a score."""
        return self._as_cut(in_order(self.threshold, classes, "threshold"))

    def _as_cut(self, given: Any) -> Any:
        cut = np.asarray(given, dtype=np.float64)
        if self.scale == "probability":
            cut = _LINKS[str(self.link_)][1](cut)
        return float(cut) if np.ndim(cut) == 0 else cut

    def _places(self, classes: Any) -> dict[int, Any]:
        """Return the given thresholds by the columns of their labels."""
        names = range(self.n_labels_) if classes is None else classes.tolist()
        return {at: self._named[name] for at, name in enumerate(names) if name in self._named}

    def _with_named(self, cut: Any, classes: Any) -> Any:
        """Return a cut, with those of the labels that have a given threshold."""
        places = self._places(classes) if self._named else {}
        if not places:
            return cut
        cuts = np.full(self.n_labels_, cut) if np.ndim(cut) == 0 else cut.copy()
        cuts[[*places]] = self._as_cut([*places.values()])
        return cuts

    @property
    def threshold_(self) -> Any:
        """Threshold in use, as a probability; as a score if there are no probabilities."""
        check_is_fitted(self, "cut_")
        if self.link_ not in _LINKS:
            return self.cut_
        values = _LINKS[self.link_][0](self.cut_)
        return float(values) if np.ndim(values) == 0 else values

    def n_candidates(self, n_labels: int) -> int | None:
        if self._is_tuned and self.criterion in FLOORS and not hasattr(self, "cut_"):
            return min(n_labels, MOST)  # to fit; fewer candidates are above most cuts
        if self._is_tuned and self.criterion == "f1_at_k":
            return self.k
        return self._min_labels if self._min_labels > 1 else None

    def needs_more(self, scores: np.ndarray) -> bool:
        is_full = scores.shape[1] >= (self._max_labels or np.inf)
        return not is_full and bool((scores[:, -1] > np.min(self.cut_)).any())

    def decode(self, scores: np.ndarray, labels: np.ndarray | None = None) -> sp.csr_matrix:
        if self._max_labels is not None:
            scores, labels = ranked_candidates(scores, labels, self._max_labels)
        is_common = labels is None or np.ndim(self.cut_) == 0
        taken = scores > (self.cut_ if is_common else self.cut_[labels])
        if self.min_labels_ and labels is None:
            best = rank_rows(scores, self.min_labels_)[1]
            np.put_along_axis(taken, best, True, axis=1)
        elif self.min_labels_:
            taken[:, : self.min_labels_] = True
        return self.label_sets(taken, labels)


def _known_first(
    scores: np.ndarray, labels: np.ndarray | None, known: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return candidates, best first, with those of unknown labels below all others."""
    scores, labels = ranked_candidates(scores, labels, scores.shape[1])
    lowest = scores.min(initial=0, where=np.isfinite(scores))
    return rank_rows(np.where(known[labels], scores, lowest - 1), scores.shape[1], labels)
