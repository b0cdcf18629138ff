"""ETFNeuralCollapseClassifier: label sets without thresholds, from a fixed last layer."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc._bounds import check_dense_size
from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc.decisions import Decision, Divergence
from sklearn_xlc.engine.fitting import BaseXLCClassifier
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.searched import SearchedDefaults, with_auto
from sklearn_xlc.heads import ETFHead, Head, Loss, PickAllLabels
from sklearn_xlc.heads.losses import LOSSES
from sklearn_xlc.metrics import neural_collapse


class ETFNeuralCollapseClassifier(SearchedDefaults, BaseXLCClassifier):
    """Classifier that predicts label sets without thresholds (multi-label neural collapse).

    One softmax over all labels is trained on every label of a sample (pick-all-labels loss). As
    training proceeds, the features of samples with one label collapse to the corners of a simplex,
    and the features of samples with several labels to sums of these corners [1]_. The last layer
    can therefore be fixed in advance, and the scores of a sample give its whole label set without a
    threshold to tune.

    The default `loss` is a variant that ranked better on text: the mean over the labels of a
    sample, which compete with each other in half of the loss. ``loss="pick_all_labels"`` is the sum
    of [1]_.

    Parameters
    ----------
    output : {"etf", "learned"}, default="etf"
        Last layer: a fixed simplex equiangular tight frame
        (:func:`~sklearn_xlc.geometry.simplex_etf`), or a trained matrix.
    feature_dim : int, default=None
        Number of features that the last layer reads; a linear layer computes them from the
        encoder's outputs. With as many features as labels the fixed layer needs no matrix; with
        fewer than the number of labels less one no simplex exists, and a frame of low coherence
        replaces it. None: as many features as labels with the default encoder, whose rectified
        outputs make poor features; with an `encoder` of your own, its outputs, without a linear
        layer in between.
    loss : str or Loss, default="auto"
        Loss to minimise: a name, or an object of :mod:`sklearn_xlc.heads.losses`.

        - "bce": binary cross-entropy of each label (multi-label).
        - "asymmetric": easy negatives count for less than easy positives (multi-label);
          :class:`~sklearn_xlc.heads.AsymmetricLoss`.
        - "focal": easy labels count for less (multi-label);
          :class:`~sklearn_xlc.heads.FocalLoss`.
        - "propensity_bce": binary cross-entropy, unbiased where true labels are missing
          (multi-label); :class:`~sklearn_xlc.heads.PropensityBinaryCrossEntropy`.
        - "pick_all_labels": the loss of [1]_, one softmax cross-entropy over all labels for each
          label of a sample, summed over its labels; :class:`~sklearn_xlc.heads.PickAllLabels`.
        - "ce": softmax cross-entropy (multi-class).
        - "auto": ``PickAllLabels(competition=0.5, reduction="mean")``, the mean over the labels of
          a sample, which compete with each other in half of the loss. On text, the loss of [1]_
          costs a point of precision at 1, and a `competition` below 0.5 predicts set sizes less
          accurately.
    feature_decay : float, default=0.0
        Weight of the mean squared norm of the features in the loss. Equation 4 of [1]_ has the sum
        over the samples of a batch, so that its lambda_H times the batch size is `feature_decay`:
        5e-4 at 128 samples is 0.064.
    fit_intercept : bool, default=True
        Whether to train a bias for each label.
    class_weight : dict, {"balanced", "propensity"} or None, default=None
        Weights of labels in the loss: of all samples of a class (1-D y), or of a label in the
        samples that have it (label sets; needs a head with an output per label). A dict maps labels
        to weights; others weigh one. "balanced": inverse to the label's number of samples, so that
        every label weighs as much, with mean one over them. "propensity": one divided by the
        label's :func:`~sklearn_xlc.metrics.propensities`. None: one.
    decision : str or Decision, default="auto"
        Rule that turns scores into label sets (multi-label): a name, or an object of
        :mod:`sklearn_xlc.decisions`, which has more options. For class labels (1-D y) the best
        class is predicted, whatever the decision.

        - "threshold": labels above a threshold, tuned for micro-averaged F1 on held-out samples
          (`validation_fraction`); :class:`~sklearn_xlc.decisions.Threshold`.
        - "topk": the k best labels, where k is the mean number of labels of a training sample.
        - "divergence": the label set whose uniform distribution is nearest to the predicted one.
        - "nearest": the label set whose prototype is nearest to the features; for a linear last
          layer and features that collapse.
        - "seen": the label set of a training sample whose mean features are nearest.
        - "auto": "divergence" for losses with a softmax, which shares one probability among the
          labels; otherwise "threshold", tuned on held-out samples, with a label for every sample if
          all training samples have one; up to 1000 samples (2000, see Notes) every label with a
          probability above one half.
    calibration : {"auto", None}, default="auto"
        Whether probabilities of labels are corrected by samples held out as for `decision`
        (:class:`~sklearn_xlc.decisions.Calibration`); not with a softmax, nor for class labels.
    hidden_layer_sizes : sequence of int or "auto", default="auto"
        Widths of the default encoder's hidden layers; unused when `encoder` is given. "auto": 1024;
        where defaults were searched for (see Notes), 512 (up to 2.5e6 non-zeros) to 1024 (1e7).
    dropout : float or "auto", default="auto"
        Fraction of hidden units that training drops; unused when `encoder` is given. "auto": 0 up
        to 1000 samples; beyond, 0.2 if X is not mostly zeros, 0.5 to 0.2 (the less the more
        samples there are) where defaults were searched for, and 0.7 otherwise.
    encoder : torch.nn.Module or callable, default=None
        Network that maps a batch of samples to features of shape (n_samples, n_outputs), or a class
        or function that builds one: it is called with `n_features_in_`, or with nothing where X
        holds strings or a mapping. A network is copied, never changed. It reads a dense tensor,
        unless it asks for CSR rows, strings or mappings of arrays (see
        :class:`~sklearn_xlc.encoders.Encoder`). None: a multilayer perceptron.
    optimizer : {"auto", "adam", "mixed", "adagrad", "sgd"}, default="auto"
        Optimisation algorithm. "adam" is lazy: in the input layer on sparse X, and in tables of
        embeddings, it updates only the rows that a batch uses. "mixed" takes SGD on gradients of
        unit mean square in the input layer on sparse X: less overfitting of rare columns, faster, a
        third of the memory. "adagrad" is row-wise Adagrad, "sgd" needs the least memory. "auto":
        "mixed" where defaults were searched for (see Notes), otherwise "adam".
    momentum : float, default=0.0
        Momentum of "sgd", as in :class:`torch.optim.SGD`: weight decay is then part of the
        gradient. Where a batch uses few rows of a table, the others keep theirs. It takes as much
        memory as the weights.
    nesterov : bool, default=False
        Whether `momentum` is Nesterov's.
    learning_rate : float or "auto", default="auto"
        Peak learning rate: it warms up over the first 5% of the steps, then falls to zero along a
        half cosine. "auto": where defaults were searched for, 0.7 divided by the number of steps
        (0.001 to 0.004) for the encoder, times sqrt(70 / non-zeros a sample), and 0.002 for the
        head, more with batches of 512; otherwise 0.002.
    weight_decay : float, default=0.0
        Decoupled weight decay of matrices; vectors, such as biases, do not decay.
    batch_size : int or "auto", default="auto"
        Samples per step. "auto": all samples up to 1000; 256 beyond, and 512 from 50 000 on where
        defaults were searched for.
    max_epochs : int or "auto", default="auto"
        Passes over the data. "auto": 200 up to 1000 samples, where each is one step; beyond, 10 at
        5000 and 4 at 50 000 samples where defaults were searched for, otherwise 10, or more until
        there are 300 steps.
    early_stopping : bool, default=False
        Hold out samples, stop when their loss has not fallen for `n_iter_no_change` epochs, and
        restore the weights of the best epoch.
    validation_fraction : float, default=0.1
        Fraction of the samples held out for `early_stopping`, and for a `decision` that is tuned;
        at most 0.05 for "auto".
    n_iter_no_change : int, default=3
        Epochs without a lower loss after which `early_stopping` stops.
    average_weights : {None, "swa", "ema"}, default=None
        Average the weights over the last quarter of the epochs ("swa"), or over steps as an
        exponential moving average ("ema"). Training then holds a second copy of the model. None: do
        not average.
    precision : {"auto", "float32", "bfloat16"}, default="auto"
        "bfloat16" runs the matrix products of encoder and head at half precision while training;
        weights and sums keep float32. "auto": "bfloat16" where defaults were searched for and the
        processor multiplies such matrices several times faster (AVX-512, AMX, recent GPUs). The
        model is float32 whatever the type of X; but with "auto", and at most 1000 samples in the
        first call, it has the type of X: weighted samples then equal repeated ones to rounding.
        `transform` gives the type of X.
    callbacks : list of skorch callbacks, default=None
        Callbacks of the training loop. They are copied, never changed; an open file is shared.
    device : str or torch.device, default="auto"
        Device for training and prediction; "auto" is the GPU if there is one. Chosen again when a
        saved model is loaded.
    memory_limit : int, default=2**30
        Limit in bytes of the temporary logits in training, and of a batch in prediction.
    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, the order of the samples, dropout and sampling. The same seed
        on the same machine with the same number of threads gives the same model, bit for bit.
    warm_start : bool, default=False
        Continue from the fitted network in the next :meth:`fit`, instead of starting from a new
        network.
    verbose : int, default=0
        1 prints a line for each epoch; in a terminal or notebook a bar shows its steps.
    checkpoint : str or path-like, default=None
        Folder of checkpoints: :meth:`fit` writes the state of the training there after epochs, and
        the same `fit`, started again after a kill, goes on from it and ends in the same bytes.
        "Same" are class, parameters, data and versions of the packages; `device`, `memory_limit`,
        `verbose` and `warm_start` may differ. With ``random_state=None`` the seed is that of the
        killed fit. Fits may share a folder. The last two files of a fit are kept, and the last one
        of a finished fit, which then ends at once: delete the folder when you are done. Writing
        takes at most about 5% of the time of training: where a file takes long, epochs are left
        out. None: no checkpoints.
    distributed : {"auto", True, False}, default="auto"
        Whether processes train together, each on its part of every batch and with output weights of
        its part of the labels, see :mod:`sklearn_xlc.distributed`. "auto": in a process group.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        Class labels, or the column numbers of the indicator.
    decision_ : Decision
        Fitted decision.
    calibration_ : Calibration or None
        Fitted map from scores to the log odds of `predict_proba`.
    threshold_ : float
        Probability above which a label is predicted, if the decision is a threshold.
    label_set_scales_ : ndarray of shape (max_labels,)
        Scales of the prototypes of 1, 2, ... labels, if the decision is "nearest".
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, where X had names.
    n_iter_ : int
        Number of epochs trained.
    loss_curve_ : list of float
        Training loss of each epoch.
    history_ : list of dict
        Numbers of each epoch: losses, learning rate and scores, as far as they were measured.
    n_parameters_ : int
        Number of trainable parameters.
    net_ : skorch.NeuralNet
        Trained net; ``net_.module_`` holds encoder and head.

    See Also
    --------
    sklearn_xlc.metrics.neural_collapse : Measures of how far features have collapsed.
    sklearn_xlc.geometry.optimal_label_set_scales : Features at the optimum, by number of labels.
    DFTSigmoidClassifier : A probability for each label on its own, and every label set in reach.

    Notes
    -----
    The notes of :class:`MultiHeadClassifier` say on which samples `decision` and `calibration` are
    fitted, with a loss such as "bce".

    :meth:`predict_proba` is the softmax over all labels, so its rows sum to one. With class labels
    it estimates the probability of each class. In multi-label it depends on the loss what it
    estimates, for samples that look alike and have label sets S:

    - "pick_all_labels" (a sum): the probability that S holds the label, divided by the mean number
      of labels. Labels rank as they do by their probabilities.
    - ``PickAllLabels(reduction="mean")``: the mean share of the label in S, which is ``1 / |S|`` if
      S holds the label and 0 otherwise.
    - The default, and any `competition` below 1: no simple quantity. The ranking is much the same,
      but frequent labels are overrated: if 5/12 of the samples have the label set {0}, 5/12 {0, 1,
      2} and 1/6 {3}, the mean shares are .56/.14/.14/.17 and the estimates .63/.13/.13/.11.

    "nearest" compares features with scaled sums of the last layer's rows. The thresholds of
    "threshold" are small, since the labels of a sample share one probability.

    Samples without labels add nothing to the loss except through `feature_decay`. "divergence",
    "nearest" and "topk" predict at least one label.

    Defaults were searched for on five data sets, on mostly-zero X with the default encoder
    (docs/performance.md has the runs). "auto" stands for other values elsewhere. There, networks of
    samples with over 70 non-zeros on average have leaky ReLUs instead of ReLUs.

    :meth:`partial_fit` keeps the temperature or threshold that :meth:`fit` has chosen, and the
    label sets seen before; "nearest" fits its scales to the samples of the last call.

    **Differences from the paper**

    - The default `loss` is a mean over labels that compete in half of it; ``"pick_all_labels"`` is
      the sum of [1]_.
    - `feature_decay` weighs a mean over samples, lambda_H a sum. `weight_decay` is decoupled from
      the gradient and spares biases, instead of terms with lambda_W and lambda_b in the loss.
    - "seen" is the one-nearest-neighbour decoder of [1]_. "nearest", among all label sets, and
      "divergence" are additions.
    - With the default encoder, features are outputs of a linear layer, not of a ReLU.
    - With fewer features than the number of labels less one, a frame replaces the simplex.

    References
    ----------
    .. [1] P. Li, X. Li, Y. Wang, Q. Qu. Neural Collapse in Multi-label Learning with
       Pick-all-label Loss. ICML 2024.

    Examples
    --------
    >>> from sklearn_xlc import ETFNeuralCollapseClassifier
    >>> from sklearn_xlc.datasets import make_extreme_multilabel
    >>> X, Y = make_extreme_multilabel(2000, 300, 50, random_state=0)
    >>> clf = ETFNeuralCollapseClassifier(hidden_layer_sizes=(64,), random_state=0)
    >>> clf.fit(X[:1500], Y[:1500]).predict(X[1500:]).shape
    (500, 50)
    """

    _sizes = ("hidden_layer_sizes", "feature_dim")

    _parameter_constraints: dict[str, list[Any]] = {
        **with_auto(BaseXLCClassifier._parameter_constraints),
        "output": [StrOptions({"etf", "learned"})],
        "feature_dim": [None, Interval(Integral, 1, None, closed="left")],
        "loss": [StrOptions({"auto", *LOSSES}), Loss],
        "feature_decay": [Interval(Real, 0, None, closed="left")],
        "fit_intercept": ["boolean"],
    }

    def __init__(
        self,
        output: str = "etf",
        *,
        feature_dim: int | None = None,
        loss: str | Loss = "auto",
        feature_decay: float = 0.0,
        fit_intercept: bool = True,
        class_weight: Any = None,
        decision: Any = "auto",
        calibration: Any = "auto",
        hidden_layer_sizes: Any = "auto",
        dropout: Any = "auto",
        encoder: Any = None,
        optimizer: str = "auto",
        momentum: float = 0.0,
        nesterov: bool = False,
        learning_rate: Any = "auto",
        weight_decay: float = 0.0,
        batch_size: Any = "auto",
        max_epochs: Any = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        average_weights: str | None = None,
        precision: str = "auto",
        callbacks: Any = None,
        device: Any = "auto",
        memory_limit: int = 2**30,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: Any = 0,
        checkpoint: Any = None,
        distributed: Any = "auto",
    ) -> None:
        self.output = output
        self.feature_dim = feature_dim
        self.loss = loss
        self.feature_decay = feature_decay
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.decision = decision
        self.calibration = calibration
        self.hidden_layer_sizes = hidden_layer_sizes
        self.dropout = dropout
        self.encoder = encoder
        self.optimizer = optimizer
        self.momentum = momentum
        self.nesterov = nesterov
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.average_weights = average_weights
        self.precision = precision
        self.callbacks = callbacks
        self.device = device
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.distributed = distributed

    def _check_task(self, code: LabelCode, Y: sp.csr_matrix) -> None:
        ETFHead.resolve_loss(self._criterion(), code.multilabel, type(self).__name__)

    def _scores_apart(self, code: LabelCode) -> bool:
        return not ETFHead.resolve_loss(self._criterion(), code.multilabel).needs_normaliser

    def _build_head(self, n_features: int, code: LabelCode) -> Head:
        return ETFHead(
            n_features,
            code.n_labels,
            code.multilabel,
            feature_dim=code.n_labels if self._projects() else self.feature_dim,
            learned=self.output == "learned",
            with_bias=self.fit_intercept,
            feature_decay=self.feature_decay,
            memory_limit=self.memory_limit,
            seed=int(torch.randint(2**31 - 1, (), device="cpu")),
            loss=self._criterion(),
            precision="bfloat16" if self._bfloat16 else "float32",
        )

    def _criterion(self) -> str | Loss:
        if isinstance(self.loss, str) and self.loss == "auto":
            return PickAllLabels(competition=0.5, reduction="mean")
        return self.loss

    def _head_rate(self, code: LabelCode) -> float:
        return 2e-3  # as of other softmaxes

    def _projects(self) -> bool:
        """Whether a linear layer computes as many features as there are labels."""
        return self.feature_dim is None and self.encoder is None

    def _auto_decision(self, head: Head | None) -> Decision:
        return Divergence() if head is None else super()._auto_decision(head)

    @property
    def label_set_scales_(self) -> np.ndarray:
        """Scales of the prototypes of 1, 2, ... labels, if the decision is "nearest"."""
        return self.decision_.label_set_scales_

    def _inputs(self, X: Any) -> np.ndarray:
        """Inputs of the last layer for validated samples."""
        with self.net_.predicting():
            head = self.net_.module_.head
            return np.concatenate([head.inputs(f).cpu().numpy() for _, f in self._features(X)])

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
            Seed that draws the label sets to compare.

        Returns
        -------
        dict
            Measures of :func:`sklearn_xlc.metrics.neural_collapse`, for the inputs of the last
            layer.

        Raises
        ------
        MemoryError
            If the features would exceed ``get_config()["dense_limit"]``; give fewer rows.
        """
        X = self._validate_predict(X)
        Y = self._code.read(y)
        check_consistent_length(X, Y)
        head = self.net_.module_.head
        check_dense_size((X.shape[0], head.feature_dim), np.dtype(np.float64), "fewer rows")
        return neural_collapse(
            self._inputs(X),
            Y if self._code.multilabel else Y.indices,
            self.output_weights_,
            random_state=random_state,
        )
