"""DFTSigmoidClassifier: every set of up to k labels can be predicted, and it can prove it."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc.engine.fitting import BaseXLCClassifier
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.geometry import ArgmaxabilityReport, verify_argmaxable
from sklearn_xlc.heads import FlatHead, FourierHead, Head, Loss
from sklearn_xlc.heads.losses import LOSSES


class DFTSigmoidClassifier(BaseXLCClassifier):
    """Classifier in which every combination of up to k labels can be predicted.

    A classifier of n labels on d features can output few of the :math:`2^n` label sets if d is
    small: the sigmoid bottleneck. Some sets of the training data may be among those that no input
    whatever makes it predict. Here the output layer holds the first Fourier frequencies of the
    labels, fixed, beside a few learnt *slack* columns; then every set of up to k labels belongs to
    some features [1]_, with fewer parameters than a bottleneck of equal quality has.

    Parameters
    ----------
    max_active : int or "auto", default="auto"
        Number k of labels that the guarantee covers. "auto": the most labels that any training row
        has (of the first call, in :meth:`partial_fit`), but no more than `n_labels` allow
        (``2 k + 1 <= n_labels``; a layer with as many columns as labels represents everything, and
        with one column less everything but the two sets that alternate).
    n_slack : int, default=50
        Number of learnt columns of the output layer; for ``output="bottleneck"`` its only ones.
    output : {"dft", "bottleneck"}, default="dft"
        Output layer. "bottleneck" is the plain low-rank layer that [1]_ compares to, without biases
        and without a guarantee.
    loss : str or Loss, default="auto"
        What is trained: a name, or an object of :mod:`sklearn_xlc.heads.losses`.

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
    decision : str or Decision, default="auto"
        How scores become label sets: a name, or an object of :mod:`sklearn_xlc.decisions` with
        options of its own. Of class labels (1-D y) the best one is predicted, whatever the
        decision.

        - "threshold": labels above a threshold, which is tuned for micro-averaged F1 on held-out
          samples (`validation_fraction`); :class:`~sklearn_xlc.decisions.Threshold`.
        - "topk": the best labels, as many as a training sample has on average;
          :class:`~sklearn_xlc.decisions.TopK`.
        - "divergence": the set, of all sets, whose uniform distribution is nearest to the predicted
          one; :class:`~sklearn_xlc.decisions.Divergence`.
        - "nearest": the set, of all sets, whose prototype is nearest to the features: for a linear
          last layer, and features that collapse; :class:`~sklearn_xlc.decisions.Nearest`.
        - "seen": the label set of training samples whose mean features are nearest;
          :class:`~sklearn_xlc.decisions.Seen`. Bags have no features for this one and "nearest".
        - "auto": "divergence" where labels share one probability (softmax); elsewhere labels of a
          probability above one half.
    hidden_layer_sizes : sequence of int, default=(1024,)
        Widths of the default encoder's hidden layers; unused when `encoder` is given.
    dropout : float or "auto", default="auto"
        Share of hidden units dropped while training; unused when `encoder` is given. "auto": none
        up to 1000 rows; above, 0.7 for rows that are mostly zeros and 0.2 for others.
    encoder : torch.nn.Module or callable, default=None
        Network that turns a batch of samples into features of shape (n_samples, n_outputs); or a
        class or function of `n_features_in_` that makes one. It is copied, never changed. Samples
        are tensors of rows, unless the network asks for others: CSR rows, strings or mappings of
        arrays (see :class:`~sklearn_xlc.encoders.Encoder`). None: a multilayer perceptron.
    optimizer : {"adam", "mixed", "adagrad", "sgd"}, default="adam"
        Adam touches only the moments of the rows that a batch holds (of the input layer on sparse
        rows, of node embeddings). "mixed" has row-wise Adagrad, at 50 times the rate, for the
        input layer on sparse rows: less time and a third of the memory where X has many columns,
        for about half a point of precision. "sgd" needs the least memory.
    learning_rate : float, default=0.002
        Peak rate; it warms up over the first 5% of the steps and falls to zero as a half cosine.
    weight_decay : float, default=0.0
        Decoupled weight decay of matrices.
    batch_size : int or "auto", default="auto"
        Rows a step. "auto": all rows up to 1000, 256 above.
    max_epochs : int or "auto", default="auto"
        Passes over the data. "auto": 200 up to 1000 rows, where each is one step; above, 10 or
        as many as 300 steps need.
    early_stopping : bool, default=False
        Hold out rows, stop when their loss has not fallen for `n_iter_no_change` epochs, and go
        back to the best epoch.
    validation_fraction : float, default=0.1
        Share of the rows held out by `early_stopping`, and by a `decision` that is tuned.
    n_iter_no_change : int, default=3
        Patience of `early_stopping` in epochs.
    average_weights : {None, "swa", "ema"}, default=None
        Use an average of the weights: over the last quarter of the epochs ("swa") or a moving one
        over steps ("ema"). Holds a second copy of the model while training.
    precision : {"float32", "bfloat16"}, default="float32"
        "bfloat16" runs the matrix products of the encoder at half precision while training; weights
        and sums stay as they are. An encoder of float64 X is not touched.
    callbacks : list of skorch callbacks, default=None
        Called during training; copied first.
    device : str or torch.device, default="auto"
        Where to train and predict; "auto" is the GPU if there is one. Resolved again when a saved
        model is loaded.
    memory_limit : int, default=2**30
        Bytes that temporary logits may take in training.
    random_state : int, RandomState instance or None, default=None
        Seed of weights, order of rows, dropout and sampling. The same seed on the same machine
        with the same number of threads gives the same model, bit for bit.
    warm_start : bool, default=False
        Go on from the fitted network in the next :meth:`fit`.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        Class labels, or the column numbers of the indicator.
    decision_ : Decision
        Fitted decision.
    max_active_ : int or None
        The k in use; None for a bottleneck.
    threshold_ : float
        Probability above which a label is predicted, where the decision is a threshold.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, where X had names.
    n_iter_ : int
        Epochs trained.
    loss_curve_ : list of float
        Training loss of each epoch.
    n_parameters_ : int
        Trainable parameters.
    net_ : skorch.NeuralNet
        Net that was trained; ``net_.module_`` holds encoder and head.

    See Also
    --------
    sklearn_xlc.geometry.verify_argmaxable : The same question, asked of any linear classifier.
    MultiHeadClassifier : Output layers that stay cheap at millions of labels.

    Notes
    -----
    Class labels (1-D y) train a softmax over the same layer, and ``k = 1``.

    The guarantee holds at any threshold, as one of the Fourier columns is constant. It is about the
    output layer: each such label set belongs to an open region of the layer's inputs. Those are a
    linear map of the encoder's features, so the encoder should have at least as many outputs as the
    layer has columns; there is a warning if it has fewer than ``2 k + 1``.

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

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseXLCClassifier._parameter_constraints,
        "max_active": [StrOptions({"auto"}), Interval(Integral, 0, None, closed="left")],
        "n_slack": [Interval(Integral, 0, None, closed="left")],
        "output": [StrOptions({"dft", "bottleneck"})],
        "loss": [StrOptions({"auto", *LOSSES}), Loss],
    }

    def __init__(
        self,
        max_active: Any = "auto",
        *,
        n_slack: int = 50,
        output: str = "dft",
        loss: str | Loss = "auto",
        decision: Any = "auto",
        hidden_layer_sizes: Any = (1024,),
        dropout: Any = "auto",
        encoder: Any = None,
        optimizer: str = "adam",
        learning_rate: float = 2e-3,
        weight_decay: float = 0.0,
        batch_size: Any = "auto",
        max_epochs: Any = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        average_weights: str | None = None,
        precision: str = "float32",
        callbacks: Any = None,
        device: Any = "auto",
        memory_limit: int = 2**30,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: Any = 0,
    ) -> None:
        self.max_active = max_active
        self.n_slack = n_slack
        self.output = output
        self.loss = loss
        self.decision = decision
        self.hidden_layer_sizes = hidden_layer_sizes
        self.dropout = dropout
        self.encoder = encoder
        self.optimizer = optimizer
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
        if code is getattr(self, "_code", None):  # training goes on: with the layer that there is
            self._warn_beyond(self.max_active_, Y)
            return
        if self.max_active == "auto":
            if highest + self.n_slack < 1 < code.n_labels:
                raise ValueError("with two labels n_slack must be at least 1, got 0")
            return
        if self.max_active > highest:
            raise ValueError(
                f"max_active={self.max_active} needs 2 * max_active + 1 = "
                f"{2 * self.max_active + 1} columns, more than the {code.n_labels} labels of y: a "
                "plain full-rank layer already represents every label set. Use max_active='auto', "
                f"or at most {highest}"
            )
        self._warn_beyond(self.max_active, Y)

    def _warn_beyond(self, max_active: int | None, Y: sp.csr_matrix) -> None:
        """Count the rows that the guarantee does not cover; a full-rank layer covers all."""
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

    def _build_head(self, n_features: int, code: LabelCode) -> Head:
        size = (n_features, code.n_labels, code.multilabel)
        if self.output == "bottleneck":
            self.max_active_ = None
            layer: dict[str, Any] = {"width": self.n_slack, "with_bias": False, "loss": self.loss}
            return FlatHead(*size, self.memory_limit, self.precision, **layer)
        k = self._typical_size if self.max_active == "auto" else self.max_active
        self.max_active_ = min(int(k), (code.n_labels - 1) // 2)
        if n_features < 2 * self.max_active_ + 1:
            warnings.warn(
                f"the encoder has {n_features} outputs, fewer than the 2 * max_active_ + 1 = "
                f"{2 * self.max_active_ + 1} columns of the output layer: not every set of up to "
                f"{self.max_active_} labels can be reached; use a wider last layer",
                UserWarning,
                stacklevel=4,
            )
        return FourierHead(*size, self.max_active_, self.n_slack, self.memory_limit, loss=self.loss)

    # --- guarantee ----------------------------------------------------------------------------

    @property
    def output_weights_(self) -> np.ndarray:
        """Weights of the output layer, ``(n_labels, 2 * max_active_ + 1 + n_slack)``."""
        check_is_fitted(self, "net_")
        head = self.net_.module_.head
        if self.max_active_ is None:
            return head.weight.detach().cpu().numpy()
        return head.output_weights()

    def verify(
        self,
        Y: Any,
        X: Any = None,
        *,
        time_limit: float = 10.0,
        search_radius: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> ArgmaxabilityReport:
        """Find out which label sets the output layer can predict at all, at the threshold in use.

        Where the decision is no threshold, or labels share one probability, the answer is that for
        labels of positive score.

        Parameters
        ----------
        Y : {array-like, sparse matrix} of shape (n_sets, n_labels)
            Label sets.
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features), default=None
            Rows to try first: what the classifier predicts for one of them is argmaxable.
        time_limit : float, default=10.0
            Seconds for each label set, after which it is unknown.
        search_radius : bool, default=False
            Search for the largest radius of every set, in place of that of the first witness at
            hand. Takes longer.
        n_jobs : int, default=None
            Number of label sets that are decided in parallel.
        verbose : int, default=0
            Above 0: print progress to standard error.

        Returns
        -------
        ArgmaxabilityReport
            Status, radius, witness and reason of every row of `Y`.

        See Also
        --------
        sklearn_xlc.geometry.verify_argmaxable : What the answers mean, and how they are found.
        """
        check_is_fitted(self, "net_")
        if not self._code.multilabel:
            raise ValueError(
                "verify asks about label sets, but the classifier was fitted on class labels (1-D "
                "y), of which the highest score is predicted"
            )
        points = None if X is None else self._output_inputs(self._validate_predict(X))
        is_odds = self.net_.module_.head.link == "sigmoid"
        cut, intercept = getattr(self.decision_, "cut_", 0.0) if is_odds else 0.0, None
        if np.ndim(cut) or (cut and self.max_active_ is None):
            intercept = np.broadcast_to(-np.asarray(cut), len(self.classes_))
        elif points is not None:
            # The first Fourier column is constant: it moves the threshold, and no set is lost.
            points[:, 0] -= np.sqrt(len(self.classes_)) * cut
        return verify_argmaxable(
            self if intercept is None else self.output_weights_,
            Y,
            intercept,
            points=points,
            time_limit=time_limit,
            search_radius=search_radius,
            n_jobs=n_jobs,
            verbose=verbose,
        )

    def _output_inputs(self, X: Any) -> np.ndarray:
        """What the output layer reads for each row: the factors of its weights."""
        head = self.net_.module_.head
        with torch.inference_mode():
            parts = [head.inputs(features).cpu().numpy() for _, features in self._features(X)]
        return np.concatenate(parts)
