"""DFTSigmoidClassifier: it can predict every set of up to k labels, and proves it."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc._tags import named_sets, plain_sets
from sklearn_xlc.batches import Rows
from sklearn_xlc.engine.fitting import BaseXLCClassifier
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.searched import WIDEST, SearchedDefaults, with_auto
from sklearn_xlc.engine.verifying import VerifyingMixin
from sklearn_xlc.geometry import ArgmaxabilityReport
from sklearn_xlc.heads import FlatHead, FourierHead, Head, Loss
from sklearn_xlc.heads.losses import LOSSES


class DFTSigmoidClassifier(VerifyingMixin, SearchedDefaults, BaseXLCClassifier):
    """Classifier that can predict every combination of up to k labels.

    A plain output layer with n labels and few features can predict only a small part of the
    :math:`2^n` label sets (the sigmoid bottleneck). Even label sets of the training data may be out
    of reach: no input gives them. Here the output layer has fixed columns, the lowest Fourier
    frequencies over the labels, and a few learnt *slack* columns. For every set of up to k labels
    there are then features that give it [1]_, with fewer parameters than in a bottleneck of equal
    quality.

    Parameters
    ----------
    max_active : int or "auto", default="auto"
        Number k of labels that the guarantee covers. "auto": the largest number of labels of a
        training sample (in :meth:`partial_fit`, of the first call), but no more than
        ``2 k + 1 <= n_labels`` allows: a layer with as many columns as labels represents every
        label set, and with one column less every set but the two that alternate.
    n_slack : int, default=50
        Number of learnt columns of the output layer. With ``output="dft"`` they are added to the
        ``2 * max_active_ + 1`` fixed columns. With ``output="bottleneck"`` there are no other
        columns: `n_slack` is then the width of the bottleneck, and must be at least 1.
    output : {"dft", "bottleneck"}, default="dft"
        Output layer. "bottleneck" is the plain low-rank layer that [1]_ compares with, of width
        `n_slack`, without biases and without a guarantee.
    init : {"frequencies", "random"}, default="frequencies"
        Start of the Fourier layer. "frequencies": the first logits are those of the label
        frequencies, and the slack columns start in pairs that cancel. "random" is the start of
        [1]_: random slack columns, and the probability ``max_active_ / n_labels`` for all labels,
        by the constant Fourier column. Its validation loss falls more slowly.
    loss : str or Loss, default="auto"
        Loss to minimise: a name, or an object of :mod:`sklearn_xlc.heads.losses`.

        - "bce": binary cross-entropy of each label (multi-label).
        - "asymmetric": easy negatives count for less than easy positives (multi-label);
          :class:`~sklearn_xlc.heads.AsymmetricLoss`.
        - "focal": easy labels count for less (multi-label);
          :class:`~sklearn_xlc.heads.FocalLoss`.
        - "propensity_bce": binary cross-entropy, unbiased where true labels are missing
          (multi-label); :class:`~sklearn_xlc.heads.PropensityBinaryCrossEntropy`.
        - "pick_all_labels": one softmax over all labels for every label of a sample;
          :class:`~sklearn_xlc.heads.PickAllLabels`.
        - "ce": softmax cross-entropy (multi-class).
        - "auto": "bce" for multi-label y, "ce" otherwise.
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
        where defaults were searched for (see Notes), 512 (up to 2.5e6 non-zeros) to 1024 (1e7), but
        no fewer than the layer has columns, up to 1024.
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
        (0.001 to 0.004) for the encoder, times sqrt(70 / non-zeros a sample), and 0.004 for the
        head (0.002 for classes and cascades), more with batches of 512; otherwise 0.002.
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
        "bfloat16" runs matrix products at half precision while training: of the encoder and of a
        bottleneck, and of the gradients of the Fourier layer; weights and sums keep float32.
        "auto": "bfloat16" where defaults were searched for and the processor multiplies such
        matrices several times faster (AVX-512, AMX, recent GPUs). The model is float32 whatever the
        type of X; but with "auto", and at most 1000 samples in the first call, it has the type of
        X: weighted samples then equal repeated ones to rounding. `transform` gives the type of X.
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
    max_active_ : int or None
        Number k in use; None for a bottleneck.
    threshold_ : float
        Probability above which a label is predicted, if the decision is a threshold.
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
    sklearn_xlc.geometry.verify_argmaxable : The same check for any linear classifier.
    MultiHeadClassifier : Output layers that stay cheap at millions of labels.

    Notes
    -----
    For class labels (1-D y) the same layer is trained with a softmax, and ``k = 1``.

    The guarantee holds at any threshold, since one of the Fourier columns is constant; a decision
    with `min_labels`, as "auto" may be, leaves the empty set out. It covers
    the output layer: each set of up to k labels is predicted in an open region of the layer's
    inputs. These inputs are a linear map of the encoder's features. Whether features can reach each
    region is another question: they need about as many dimensions as the layer has columns, ``2 k +
    1 + n_slack``, and `fit` warns of an encoder with fewer outputs. ``verify(Y, X,
    whole_network=True)`` answers it for label sets of your choice.

    Defaults were searched for on mostly-zero X with the default encoder, for
    :class:`MultiHeadClassifier`; docs/performance.md has runs of both classifiers. "auto" stands
    for other values elsewhere. Its notes say on which samples decision and calibration are fitted.

    **Differences from the paper**

    - The first logits are those of the label frequencies; ``init="random"`` is the start of [1]_.
      The Fourier coefficients have a constant factor, so that steps are as large as those of other
      weights: the layer computes the same functions.
    - The guarantee is kept at any threshold, and `verify` checks the threshold in use.
    - In [1]_ a label set is not argmaxable if a solver says so at a precision of 1e-8. Here each
      answer is proven, or "unknown".

    References
    ----------
    .. [1] A. Grivas, A. Vergari, A. Lopez. Taming the Sigmoid Bottleneck: Provably Argmaxable
       Sparse Multi-Label Classification. AAAI 2024.

    Examples
    --------
    >>> from sklearn_xlc import DFTSigmoidClassifier
    >>> from sklearn_xlc.datasets import make_extreme_multilabel
    >>> X, Y = make_extreme_multilabel(2000, 300, 50, random_state=0)
    >>> clf = DFTSigmoidClassifier(n_slack=5, hidden_layer_sizes=(64,), random_state=0)
    >>> bool(clf.fit(X[:1500], Y[:1500]).max_active_ == Y[:1500].sum(axis=1).max())
    True
    >>> clf.verify(Y[1500:1510])
    ArgmaxabilityReport(n_sets=10, argmaxable=10 (narrow: 0), not argmaxable=0, unknown=0)
    """

    _sizes = ("hidden_layer_sizes", "n_slack")

    _parameter_constraints: dict[str, list[Any]] = {
        **with_auto(BaseXLCClassifier._parameter_constraints),
        "max_active": [StrOptions({"auto"}), Interval(Integral, 0, None, closed="left")],
        "n_slack": [Interval(Integral, 0, None, closed="left")],
        "output": [StrOptions({"dft", "bottleneck"})],
        "init": [StrOptions({"frequencies", "random"})],
        "loss": [StrOptions({"auto", *LOSSES}), Loss],
    }

    def __init__(
        self,
        max_active: Any = "auto",
        *,
        n_slack: int = 50,
        output: str = "dft",
        init: str = "frequencies",
        loss: str | Loss = "auto",
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
        self.max_active = max_active
        self.n_slack = n_slack
        self.output = output
        self.init = init
        self.loss = loss
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

    def _scores_apart(self, code: LabelCode) -> bool:
        return not FlatHead.resolve_loss(self.loss, code.multilabel).needs_normaliser

    def _check_task(self, code: LabelCode, Y: sp.csr_matrix) -> None:
        FlatHead.resolve_loss(self.loss, code.multilabel, type(self).__name__)
        if self.output == "bottleneck":
            if self.n_slack < 1:
                raise ValueError(
                    "output='bottleneck' has n_slack columns and no others: n_slack must be at "
                    f"least 1, got {self.n_slack}"
                )
            return
        highest = (code.n_labels - 1) // 2
        if code is getattr(self, "_code", None):  # training continues with the existing layer
            self._warn_beyond(self.max_active_, Y)
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
        self._warn_beyond(self.max_active, Y)

    def _unread(self, code: LabelCode) -> dict[str, str]:
        why = "with output='bottleneck'"
        return dict.fromkeys(("max_active", "init"), why) if self.output == "bottleneck" else {}

    def _warn_beyond(self, max_active: int | None, Y: sp.csr_matrix) -> None:
        """Warn of samples that the guarantee does not cover; a full-rank layer covers all."""
        if max_active is None or 2 * max_active + 1 >= Y.shape[1]:
            return
        beyond = int(np.sum(np.diff(Y.indptr) > max_active))
        if beyond:
            warnings.warn(
                f"{beyond} of {Y.shape[0]} rows of y have more than max_active={max_active} "
                "labels: the guarantee does not cover their label sets",
                UserWarning,
                stacklevel=5,
            )

    # --- values of "auto" ---------------------------------------------------------------------

    def _hidden_sizes(self, rows: Rows) -> Any:
        sizes = super()._hidden_sizes(rows)
        if not isinstance(self.hidden_layer_sizes, str) or self.output == "bottleneck":
            return sizes
        # Narrower features may not reach every set; wider ones than elsewhere are not made unasked.
        return (max(*sizes, min(self._needed_width(self._code), WIDEST)),)

    def _negative_slope(self, rows: Rows) -> float:
        return 0.0  # `verify(whole_network=True)` takes features of this encoder as non-negative

    def _row_momentum(self, n_samples: int) -> bool:
        return True  # Adam that is asked for is the usual one, as in the comparison of [1]_

    # --- output layer -------------------------------------------------------------------------

    def _n_active(self, code: LabelCode) -> int:
        """Number of labels that the guarantee covers."""
        k = self._typical_size if self.max_active == "auto" else self.max_active
        return min(int(k), (code.n_labels - 1) // 2)

    def _needed_width(self, code: LabelCode) -> int:
        """Number of features from which the layer gives every set that it can give."""
        return min(2 * self._n_active(code) + 1 + self.n_slack, code.n_labels)

    def _build_head(self, n_features: int, code: LabelCode) -> Head:
        size = (n_features, code.n_labels, code.multilabel)
        precision = "bfloat16" if self._bfloat16 else "float32"
        if self.output == "bottleneck":
            self.max_active_ = None
            layer: dict[str, Any] = {"width": self.n_slack, "with_bias": False, "loss": self.loss}
            return FlatHead(*size, self.memory_limit, precision, **layer)
        self.max_active_ = self._n_active(code)
        if n_features < self._needed_width(code):
            width = 2 * self.max_active_ + 1 + self.n_slack
            warnings.warn(
                f"the encoder has {n_features} outputs, fewer than the 2 * max_active_ + 1 + "
                f"n_slack = {width} columns of the output layer: its features may not reach every "
                f"set of up to {self.max_active_} labels, see verify(..., whole_network=True); use "
                "a wider last layer, or a smaller n_slack",
                UserWarning,
                stacklevel=4,
            )
        columns = (self.max_active_, self.n_slack, self.memory_limit)
        return FourierHead(*size, *columns, "auto", self.loss, self.init, precision)

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
        """Check which label sets the output layer, or the network, can predict.

        The check is made at the threshold in use.

        If the decision is not a threshold, or if labels share one probability (softmax), the check
        takes labels with a positive score as predicted.

        Parameters
        ----------
        Y : {array-like, sparse matrix, dataframe} of shape (n_sets, n_labels), or sequence
            Label sets: an indicator, or tags.
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features), default=None
            Samples to try first: a label set that the classifier predicts for one of them is
            argmaxable.
        whole_network : bool, default=False
            Whether to ask which label sets the encoder's features can reach, instead of any inputs
            of the output layer. Features of the default encoder are never negative (ReLU); of an
            `encoder` of your own, those count as such that are not negative for any sample of X.
            "Not argmaxable" then holds for the network: no input gives the set. "Argmaxable" comes
            with features, and unless the reason is "point", for which a sample of X gives the set,
            the encoder may be unable to compute them: its range is part of the cone of non-negative
            features. Weights are multiplied out in double precision.
        time_limit : float, default=10.0
            Seconds for each label set; a set not decided by then is reported as unknown.
        search_radius : bool, default=False
            Search for the largest radius of every set, which takes longer. False: report the radius
            of the first witness found.
        n_jobs : int, default=None
            Number of label sets checked in parallel.
        verbose : int, default=0
            If above 0, print progress to standard error.

        Returns
        -------
        ArgmaxabilityReport
            Status, radius, witness and reason for every row of `Y`.

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
        is_odds = self.net_.module_.head.link == "sigmoid"
        cut = getattr(self.decision_, "cut_", 0.0) if is_odds else 0.0
        X = None if X is None else self._validate_predict(X)
        Y = plain_sets(named_sets(Y, self.classes_, "Y") or Y)
        verify = self._verify_network if whole_network else self._verify_layer
        return verify(
            Y,
            X,
            cut,
            time_limit=time_limit,
            search_radius=search_radius,
            n_jobs=n_jobs,
            verbose=verbose,
        )
