"""DFTSigmoidClassifier: every set of up to k labels can be predicted, with a proof."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc._part import Names, named_part, refuse_unusable
from sklearn_xlc._tags import plain_sets
from sklearn_xlc._warn import warn
from sklearn_xlc.decisions import Decision, RiskControl, Threshold, TopK
from sklearn_xlc.encoders import is_perceptron
from sklearn_xlc.engine import (
    BaseXLCClassifier,
    Facts,
    LabelCode,
    choose_max_active,
)
from sklearn_xlc.geometry import (
    ArgmaxabilityReport,
    between_best,
    verify_argmaxable,
    verify_at_cut,
    verify_by_size,
)
from sklearn_xlc.heads import Bottleneck, FlatHead, Fourier, Head, HeadTask

#: Output layers by the names that the parameter `output` takes.
OUTPUTS = {"dft": Fourier, "bottleneck": Bottleneck}


#: Logits among which those of a cut are searched first, and last.
_FAR, _FARTHEST = 1e6, 1e60


class DFTSigmoidClassifier(BaseXLCClassifier):
    """Classifier able to predict every combination of up to k labels.

    A plain output layer with n labels and few features can predict only a small part of the
    :math:`2^n` label sets (the sigmoid bottleneck): no input gives the others, even if they occur
    in the training data. Here the output layer has fixed columns, the lowest Fourier frequencies
    over the labels, and a few learnt *slack* columns. Every set of up to k labels is then predicted
    for some features [1]_, with fewer parameters than in a bottleneck of equal quality.

    Parameters
    ----------
    max_active : int or "auto", default="auto"
        Largest size k of a guaranteed label set. "auto": the largest number of labels of a training
        sample (in :meth:`partial_fit`, of the first call), at most ``(n_labels - 1) // 2``.
    n_slack : int, default=50
        Number of learnt columns of the output layer, beside the ``2 * max_active_ + 1`` fixed ones.
        With ``output="bottleneck"`` there are no fixed columns, and `n_slack` is at least 1.
    output : {"dft", "bottleneck"}, Fourier or Bottleneck, default="dft"
        Output layer. "dft": :class:`~sklearn_xlc.heads.Fourier`. "bottleneck":
        :class:`~sklearn_xlc.heads.Bottleneck`, the baseline of [1]_, without a guarantee.
    {parameters}

    Attributes
    ----------
    {attributes}
    max_active_ : int or None
        Number k in use; None for a bottleneck.

    See Also
    --------
    sklearn_xlc.geometry.verify_argmaxable : The same check for any linear classifier.

    Notes
    -----
    For class labels (1-D y) the same layer is trained with a softmax, and ``k = 1``.

    The guarantee covers the output layer: each set of up to k labels is predicted in an open region
    of the layer's inputs, a linear map of the encoder's features. To reach each region, features
    need about as many dimensions as the layer has columns; `fit` warns of an encoder with fewer
    outputs, and ``verify(Y, X, whole_network=True)`` checks the whole network. A decision with
    `min_labels`, as "auto" may be, excludes the empty set.

    **Differences from the paper**

    - Training starts otherwise, see :class:`~sklearn_xlc.heads.FourierHead`.
    - The guarantee is kept at any threshold. A decision may predict no fewer or no more than so
      many labels ("auto": at least one, if every training sample has one): then no other set is
      predicted. `verify` checks the decision in use. Its answers are proven or "unknown"; in [1]_ a
      solver decides at a precision of 1e-8.

    References
    ----------
    .. [1] A. Grivas, A. Vergari, A. Lopez. Taming the Sigmoid Bottleneck: Provably Argmaxable
       Sparse Multi-Label Classification. AAAI 2024.

    Examples
    --------
    >>> from sklearn_xlc import DFTSigmoidClassifier
    >>> from sklearn_xlc.datasets import make_extreme_multilabel
    >>> X, Y = make_extreme_multilabel(2000, 300, 50, random_state=0)
    >>> clf = DFTSigmoidClassifier(n_slack=5, max_epochs=5, random_state=0)
    >>> clf = clf.fit(X[:1500], Y[:1500])
    >>> clf.verify(Y[1500:1510])
    ArgmaxabilityReport(n_sets=10, argmaxable=10 (narrow: 0), not argmaxable=0, unknown=0)
    """

    _sizes = ("encoder__hidden_layer_sizes", "n_slack")

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseXLCClassifier._parameter_constraints,
        "max_active": [StrOptions({"auto"}), Interval(Integral, 0, None, closed="left")],
        "n_slack": [Interval(Integral, 0, None, closed="left")],
        "output": [StrOptions(set(OUTPUTS)), Fourier, Bottleneck],
    }
    _parts: ClassVar[Mapping[str, Names]] = {"output": OUTPUTS, **BaseXLCClassifier._parts}
    _head_parameter = "output"

    def __init__(
        self,
        max_active: Any = "auto",
        *,
        n_slack: int = 50,
        output: Any = "dft",
        **parameters: Any,
    ) -> None:
        super().__init__(**parameters)
        self.max_active = max_active
        self.n_slack = n_slack
        self.output = output

    @property
    def _is_bottleneck(self) -> bool:
        return isinstance(named_part(self.output, OUTPUTS), Bottleneck)

    def _check_task(self, code: LabelCode, Y: sp.csr_matrix) -> None:
        if self._is_bottleneck:
            refuse_unusable(self, {"max_active": "with output='bottleneck'"})
            if self.n_slack < 1:
                raise ValueError(
                    "output='bottleneck' has n_slack columns and no others: n_slack must be at "
                    f"least 1, got {self.n_slack}"
                )
            return
        highest = (code.n_labels - 1) // 2
        if code is self._code:  # training continues with the existing layer
            _warn_beyond(self.max_active_, Y)
            return
        if self.max_active == "auto":
            if highest + self.n_slack < 1 < code.n_labels:
                raise ValueError("n_slack must be at least 1 with two labels, got 0")
            return
        if self.max_active > highest:
            raise ValueError(
                f"max_active={self.max_active} needs 2 * max_active + 1 = "
                f"{2 * self.max_active + 1} columns, more than the {code.n_labels} labels of y; "
                f"use max_active='auto' or at most {highest}, or a plain full-rank layer, which "
                "represents every label set"
            )
        _warn_beyond(self.max_active, Y)

    # --- output layer -------------------------------------------------------------------------

    def _further_facts(self, facts: Facts, code: LabelCode) -> Facts:
        if self._is_bottleneck:
            return facts
        width = 2 * self._n_active(code, facts.most_labels) + 1 + self.n_slack
        return replace(facts, needed_width=min(width, code.n_labels))

    def _n_active(self, code: LabelCode, most_labels: int) -> int:
        """Return the largest size of a guaranteed label set; that of "auto" is in the settings."""
        k = most_labels if self.max_active == "auto" else self.max_active
        return choose_max_active(k, code.n_labels)

    def _build_head(self, task: HeadTask) -> Head:
        code, n_features = self._code, task.n_features
        if self._is_bottleneck:
            self.max_active_ = None
            return task.build(FlatHead, width=self.n_slack, with_bias=False, n_members=1)
        self.max_active_ = self._n_active(code, max(1, len(self._set_sizes) - 1))
        width = 2 * self.max_active_ + 1 + self.n_slack
        if n_features < min(width, code.n_labels):  # fewer features reach fewer label sets
            warn(
                f"the encoder has {n_features} outputs, fewer than the 2 * max_active_ + 1 + "
                f"n_slack = {width} columns of the output layer: its features may not reach every "
                f"set of up to {self.max_active_} labels, see verify(..., whole_network=True); use "
                "a wider last layer, or a smaller n_slack"
            )
        columns = {"max_active": self.max_active_, "n_slack": self.n_slack}
        return task.build(self.head_.head, **columns, init=self.head_.init)

    # --- guarantee ----------------------------------------------------------------------------

    def verify(
        self,
        Y: Any,
        X: Any = None,
        *,
        whole_network: bool = False,
        time_limit: float = 10.0,
        search_radius: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> ArgmaxabilityReport:
        """Check label sets for reachability by the output layer or the network.

        The check uses the threshold in use, and undoes a calibration of scores. Where the decision
        predicts at least so many labels (`min_labels`), or at most (`k`), sets of other sizes are
        not argmaxable (reason "number of labels"). Of that many labels the order decides: sets are
        argmaxable if they can be the best labels, on their side of the threshold. Radius and
        witness then count the distance to a threshold between them and all others.

        Parameters
        ----------
        Y : {array-like, sparse matrix, dataframe} of shape (n_sets, n_labels), or sequence
            Label sets: an indicator, or tags.
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features), default=None
            Samples to try first: a label set predicted for one of them is argmaxable.
        whole_network : bool, default=False
            Whether to check the features of the encoder, in place of any inputs of the output
            layer. Features of the default encoder are never negative (ReLU); those of your own
            `encoder`, or with a `negative_slope`, count as non-negative if they are for all samples
            of X. "Not argmaxable" then holds for the network: no input gives the set. "Argmaxable"
            comes with features. If its reason is "point", a sample of X gives the set; otherwise
            the encoder may be unable to compute the features. Weights are multiplied out in double
            precision.
        time_limit : float, default=10.0
            Seconds for each label set; an undecided set is reported as unknown.
        search_radius : bool, default=False
            Whether to search for the largest radius of every set, which takes longer. False: report
            the radius of the first witness found.
        n_jobs : int, default=None
            Number of label sets checked in parallel.
        verbose : int, default=0
            If above 0, print progress to standard error.

        Returns
        -------
        ArgmaxabilityReport
            Status, radius, witness and reason for every row of `Y`.

        Raises
        ------
        ValueError
            If `predict` takes neither the best labels nor those above a threshold: the ranker has
            an order of its own, the decision another rule (or `min_labels` with a threshold for
            each label), or the labels share a softmax, of which a threshold is not one of logits.
            The layer then says nothing of predictions.
            ``verify_argmaxable(classifier, Y)`` checks the layer alone.

        See Also
        --------
        sklearn_xlc.geometry.verify_argmaxable : Meaning and derivation of the answers.
        """
        check_is_fitted(self, "net_")
        if not self._code.multilabel:
            raise ValueError(
                "verify checks label sets, but the classifier was fitted on class labels (1-D y); "
                "fit it on an indicator of labels"
            )
        link = self.net_.module_.head.link
        sizes = _sizes_of_sets(self.decision_, link)
        if sizes is None:
            raise ValueError(
                "verify speaks of the best labels, or those above a threshold, and "
                f"{self.decision_!r} of scores by {link!r} predicts other sets; check the layer "
                "alone by geometry.verify_argmaxable(classifier, Y)"
            )
        cut, (least, most) = getattr(self.decision_, "cut_", 0.0), sizes
        cut = _cut_of_logits(self.ranker_, cut)
        if np.ndim(cut) == 0 and np.isinf(cut):  # all labels are above it, or none
            least = most = most if cut < 0 else least
            cut = 0.0
        X = None if X is None else self._validate_predict(X)
        Y = plain_sets(self._code.sets(Y, name="Y") or Y)
        verify = partial(
            self._verify_network if whole_network else self._verify_layer,
            X=X,
            cut=cut,
            time_limit=time_limit,
            search_radius=search_radius,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        return verify_by_size(Y, len(self.classes_), least, most, verify)

    @property
    def output_weights_(self) -> np.ndarray:
        """Weights of the output layer, ``(n_labels, 2 * max_active_ + 1 + n_slack)``."""
        check_is_fitted(self, "net_")
        head, code = self.net_.module_.head, self._code
        if self.max_active_ is None:
            return code.by_label(head.weight.detach().cpu().numpy().T).T
        return code.by_label(head.output_weights().T).T

    def _verify_layer(
        self, Y: Any, side: int | None, *, X: Any, cut: Any, **options: Any
    ) -> ArgmaxabilityReport:
        """Verify label sets over all inputs of the output layer; `side`: of `verify_at_cut`."""
        points = None if X is None else self._predictor.head_inputs(X)
        if np.ndim(cut) or self.max_active_ is None:
            coef = self.output_weights_
            return verify_at_cut(coef, Y, 0.0, cut, side, points=points, **options)
        if points is not None:
            # The first Fourier column is constant: it moves any threshold, and no set is lost.
            size = int(Y.indptr[1]) if Y.shape[0] else 0
            at = cut
            if side is not None:
                at = between_best(points @ self.output_weights_.T, size, cut, side)
            points[:, 0] -= np.sqrt(self._code.n_first or self._code.n_labels) * at
        return verify_argmaxable(self, Y, points=points, **options)

    def _verify_network(
        self, Y: Any, side: int | None, *, X: Any, cut: Any, **options: Any
    ) -> ArgmaxabilityReport:
        """Check label sets against the possible features of the encoder."""
        coef, intercept = self._feature_weights()
        features = None
        if X is not None:
            features = self._predictor.dense_features(X, self._n_features_out).astype(np.float64)
        encoder = self.net_.module_.encoder
        # Neither a leak nor the forward pass of a subclass keeps features above zero.
        is_rectified = is_perceptron(encoder) and type(encoder.layers[1]) is torch.nn.ReLU
        nonnegative = np.full(coef.shape[1], is_rectified)
        if features is not None:
            nonnegative |= features.min(axis=0) >= 0
        report = verify_at_cut(
            coef, Y, intercept, cut, side, points=features, nonnegative=nonnegative, **options
        )
        open_rows = np.flatnonzero(report.status == -1)
        if not len(open_rows):
            return report
        # What is out of reach of the layer is out of reach of the network. The product of a low
        # rank is hard to prove anything of.
        layer = self._verify_layer(Y[open_rows], side, X=None, cut=cut, **options)
        for row, status, reason, conflict in zip(
            open_rows, layer.status, layer.reason, layer.conflicts
        ):
            if status == 0:
                report.status[row], report.reason[row], report.radius[row] = 0, reason, 0.0
                report.conflicts[row] = conflict
        return report

    def _feature_weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Return weights and biases of the labels on the encoder's features."""
        head = copy.deepcopy(self.net_.module_.head).cpu().double()
        with torch.no_grad():
            bias = head.inputs(torch.zeros(1, head.n_features, dtype=torch.float64))
            weight = head.inputs(torch.eye(head.n_features, dtype=torch.float64)) - bias
        coef = self.output_weights_.astype(np.float64)
        return coef @ weight.numpy().T, (coef @ bias.numpy().T).ravel()


def _warn_beyond(max_active: int | None, Y: sp.csr_matrix) -> None:
    """Warn of samples with more labels than guaranteed, unless the layer has full rank."""
    if max_active is None or 2 * max_active + 1 >= Y.shape[1]:
        return
    beyond = int(np.sum(np.diff(Y.indptr) > max_active))
    if beyond:
        warn(
            f"{beyond} of {Y.shape[0]} rows of y have more than max_active={max_active} "
            "labels: the guarantee does not cover their label sets"
        )


def _sizes_of_sets(decision: Decision, link: str | None) -> tuple[int, int] | None:
    """Return how many labels a decision predicts at least and at most, by order and a cut.

    None if it predicts other sets.
    """
    rule = type(decision).decode
    if rule is TopK.decode:
        return decision.k_, decision.k_
    if link in ("exp", "softmax"):  # the cut is not one of logits
        return None
    if rule is Threshold.decode:
        if np.ndim(decision.cut_) and decision.min_labels_:  # the best may be below their cuts
            return None
        return decision.min_labels_, decision._max_labels or decision.n_labels_
    return (decision.min_labels_, decision.k_) if rule is RiskControl.decode else None


def _cut_of_logits(ranker: Any, cut: Any) -> Any:
    """Return the largest logits that a ranker maps to at most `cut`, by bisection."""
    if ranker is None:
        return cut
    if not ranker.keeps_order:
        raise ValueError(
            f"verify speaks of labels above a threshold, and {ranker!r} does not keep the order of "
            "the layer; fit with ranker=None or 'calibration', or check the layer alone by "
            "geometry.verify_argmaxable(classifier, Y)"
        )
    cut, far = np.asarray(cut, dtype=np.float64), _FAR
    reached = np.isfinite(cut)  # the others stay infinite
    while (reached & ((ranker(-far) > cut) | (ranker(far) <= cut))).any() and far < _FARTHEST:
        far *= 1024
    low, high = np.full(cut.shape, -far), np.full(cut.shape, far)
    for _ in range(100):
        middle = (low + high) / 2
        is_above = ranker(middle) > cut
        low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
    found = np.where(np.isfinite(cut), low, cut)
    return found if found.ndim else float(found)
