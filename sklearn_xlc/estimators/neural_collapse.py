"""ETFNeuralCollapseClassifier: label sets from one softmax and a fixed last layer."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc._bounds import check_dense_size
from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc._ids import warn_of_order
from sklearn_xlc._part import Names
from sklearn_xlc.encoders import MLP
from sklearn_xlc.engine import BaseXLCClassifier
from sklearn_xlc.heads import ETF, ETFHead, Head, HeadTask, Learned, Loss, PickAllLabels
from sklearn_xlc.metrics import neural_collapse

#: Last layers by the names that the parameter `output` takes.
OUTPUTS = {"etf": ETF, "learned": Learned}


class ETFNeuralCollapseClassifier(BaseXLCClassifier):
    """Classifier of label sets by one softmax over all labels (multi-label neural collapse).

    One softmax over all labels is trained on every label of a sample (pick-all-labels loss). As
    training proceeds, the features of samples with one label collapse to the corners of a simplex,
    and the features of samples with several labels to sums of these corners [1]_. The last layer
    can therefore be fixed in advance, and the scores of a sample give its whole label set without a
    threshold to tune: ``decision="divergence"``. By default held-out samples tune one.

    Parameters
    ----------
    output : {"etf", "learned"}, ETF or Learned, default="etf"
        Last layer: a fixed simplex equiangular tight frame, :class:`~sklearn_xlc.heads.ETF`, or a
        trained matrix, :class:`~sklearn_xlc.heads.Learned`.
    feature_dim : int, default=None
        Number of inputs of the last layer; a linear layer computes them from the encoder's outputs.
        With less than the number of labels less one a frame of low coherence replaces the simplex.
        None: the number of labels with the default encoder; with your own, its outputs.
    {parameters}

    Attributes
    ----------
    {attributes}
    label_set_scales_ : ndarray of shape (max_labels,)
        Those of the decision "nearest".

    See Also
    --------
    sklearn_xlc.metrics.neural_collapse : Measures of how far features have collapsed.
    DFTSigmoidClassifier : A probability for each label on its own, and every label set in reach.

    Notes
    -----
    :meth:`predict_proba` is the softmax over all labels; :class:`~sklearn_xlc.heads.PickAllLabels`
    says what it means for label sets.

    Samples without labels add nothing to the loss except through `feature_decay`. "divergence",
    "nearest" and "topk" predict at least one label. :meth:`partial_fit` keeps the temperature or
    threshold chosen by :meth:`fit`.

    **Differences from the paper**

    - `weight_decay` is decoupled from the gradient and spares biases; [1]_ has terms with lambda_W
      and lambda_b in the loss. :class:`~sklearn_xlc.heads.ETF` tells of `feature_decay`.
    - "seen" is the one-nearest-neighbour decoder of [1]_; "nearest" and "divergence" are additions.
      The tuned threshold has a higher micro-F1.
    - With the default encoder, features are outputs of a linear layer, not of a ReLU.

    References
    ----------
    .. [1] P. Li, X. Li, Y. Wang, Q. Qu. Neural Collapse in Multi-label Learning with
       Pick-all-label Loss. ICML 2024.

    Examples
    --------
    >>> from sklearn_xlc import ETFNeuralCollapseClassifier
    >>> from sklearn_xlc.datasets import make_extreme_multilabel
    >>> X, Y = make_extreme_multilabel(2000, 300, 50, random_state=0)
    >>> clf = ETFNeuralCollapseClassifier(max_epochs=5, random_state=0)
    >>> clf.fit(X[:1500], Y[:1500]).predict(X[1500:]).shape
    (500, 50)
    """

    _loss_doc = """"auto": ``PickAllLabels(competition=0.5, reduction="mean")``; the loss of
        [1]_, "pick_all_labels", costs a point of precision at 1 on text."""
    _sizes = ("encoder__hidden_layer_sizes", "feature_dim")

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseXLCClassifier._parameter_constraints,
        "output": [StrOptions(set(OUTPUTS)), ETF],
        "feature_dim": [None, Interval(Integral, 1, None, closed="left")],
    }
    _parts: ClassVar[Mapping[str, Names]] = {"output": OUTPUTS, **BaseXLCClassifier._parts}
    _head_parameter = "output"

    def __init__(
        self, output: Any = "etf", *, feature_dim: int | None = None, **parameters: Any
    ) -> None:
        super().__init__(**parameters)
        self.output = output
        self.feature_dim = feature_dim

    def _loss_for(self, multilabel: bool) -> str | Loss:
        if self.loss == "auto":
            return PickAllLabels(competition=0.5, reduction="mean")
        return self.loss

    def _build_head(self, task: HeadTask) -> Head:
        part = self.head_
        # A linear layer computes as many features as there are labels.
        projects = self.feature_dim is None and isinstance(self.encoder_, MLP)
        return task.build(
            ETFHead,
            feature_dim=task.n_labels if projects else self.feature_dim,
            learned=part.learned,
            with_bias=part.fit_intercept,
            feature_decay=part.feature_decay,
            seed=int(torch.randint(2**31 - 1, (), device="cpu")),
        )

    @property
    def label_set_scales_(self) -> np.ndarray:
        """Scales of the prototypes of 1, 2, ... labels, if the decision is "nearest"."""
        check_is_fitted(self, "net_")
        if not hasattr(self.decision_, "label_set_scales_"):
            raise AttributeError(
                "label_set_scales_ belong to decision='nearest', and the decision is "
                f"{self.decision_!r}; call recalibrate, or fit, with decision='nearest'"
            )
        return self.decision_.label_set_scales_  # type: ignore[no-any-return]

    @property
    def output_weights_(self) -> np.ndarray:
        """Rows of the last layer, fixed or learnt, of shape (n_labels, n_features)."""
        check_is_fitted(self, "net_")
        like = torch.empty(0, dtype=next(self.net_.module_.parameters()).dtype, device="cpu")
        rows = self.net_.module_.head.classifier(like).detach().cpu().numpy()
        return self._code.by_label(rows.T).T

    # --- collapse -----------------------------------------------------------------------------

    def collapse_report(self, X: Any, y: Any, *, random_state: Any = 0) -> dict[str, Any]:
        """Measure how far the features of samples have collapsed.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples, such as the training samples.
        y : array-like of shape (n_samples,), or {array-like, sparse matrix} of shape \
                (n_samples, n_labels)
            Their labels.
        random_state : int, RandomState instance or None, default=0
            Seed of the drawn label sets to compare.

        Returns
        -------
        dict
            Measures of :func:`sklearn_xlc.metrics.neural_collapse` on the inputs of the last layer.

        Raises
        ------
        MemoryError
            If the features, or the rows of the last layer, would exceed
            ``get_config()["dense_limit"]``; give fewer rows, or fit with a smaller `feature_dim`.
        """
        warn_of_order(X, y)
        X = self._validate_predict(X)
        Y = self._code.read(y)
        check_consistent_length(X, Y)
        head = self.net_.module_.head
        check_dense_size((len(X), head.feature_dim), np.dtype(np.float64), "fewer rows")
        return neural_collapse(
            self._predictor.head_inputs(X),
            Y if self._code.multilabel else Y.indices,
            self.output_weights_,
            random_state=random_state,
        )
