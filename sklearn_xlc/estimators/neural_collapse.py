"""ETFNeuralCollapseClassifier: label sets without thresholds, from a classifier that is fixed."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils import check_consistent_length
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc._checks import check_y
from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc.batches import Rows
from sklearn_xlc.engine.fitting import BaseXLCClassifier
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.geometry import (
    divergence_label_sets,
    fit_label_set_scales,
    fit_temperature,
    greedy_label_sets,
    nearest_label_sets,
    seen_label_sets,
)
from sklearn_xlc.heads import ETFHead, Head, Loss, PickAllLabels
from sklearn_xlc.heads.losses import LOSSES
from sklearn_xlc.metrics import neural_collapse

#: Decoders that compare label sets, and so can say how far the second best one is.
SET_DECODERS = ("auto", "divergence", "nearest", "seen")


class ETFNeuralCollapseClassifier(BaseXLCClassifier):
    """Classifier that predicts label sets without thresholds (multi-label neural collapse).

    One softmax over all labels is trained on every label of a row (pick-all-labels loss). In such
    networks the features of rows with one label collapse to the corners of a simplex, and those of
    rows with several to sums of these corners [1]_. So the last layer need not be learnt, and a
    whole label set can be read off the scores of a row: there are no thresholds to tune.

    Parameters
    ----------
    output : {"etf", "learned"}, default="etf"
        Last layer: a fixed simplex equiangular tight frame
        (:func:`~sklearn_xlc.geometry.simplex_etf`), or a trained matrix.
    feature_dim : int, default=None
        Entries of the features that the last layer reads, which a linear layer makes of the
        encoder's. As many as labels need no matrix at all; fewer than labels less one have no
        simplex, and a frame of low coherence takes its place. None: as many as labels with the
        default encoder, whose outputs are rectified and so make poor features; the outputs of an
        `encoder` of your own as they are, without a layer in between.
    decoder : {"auto", "divergence", "nearest", "seen", "threshold", "topk"}, default="auto"
        How a label set is read off (multi-label).

        - "divergence": the set, of all sets, whose uniform distribution is nearest to the predicted
          one in Kullback-Leibler divergence: what the loss trains. Needs no collapse.
        - "nearest": the set, of all sets, whose prototype (the sum of its labels' rows of the last
          layer, scaled) is nearest to the features. For features that do collapse.
        - "seen": the label set of the training data whose mean features are nearest.
        - "threshold": labels of a probability above `threshold`.
        - "topk": `max_labels` labels in every row.
        - "auto": "divergence".
    max_labels : int, default=None
        Most labels of a set by "divergence" and "nearest". None: the number that 99% of the
        training rows do not exceed, as rows of which nothing is known would get as many as are
        allowed; for "topk" the mean number, rounded.
    temperature : float or "auto", default=1.0
        What "divergence" divides scores by: less than 1 gives fewer labels. "auto": the one of
        highest mean F1 of a row, on rows that are held out from training (`validation_fraction`).
    threshold : float or "auto", default="auto"
        Probability for "threshold"; as all labels of a row share 1, it is small. "auto": the one of
        highest micro-averaged F1 on rows that are held out.
    loss : str or Loss, default="auto"
        What is trained: a name, or an object of :mod:`sklearn_xlc.heads.losses`.

        - "bce": binary cross-entropy of each label (multi-label).
        - "asymmetric": easy negatives count for less than easy positives (multi-label);
          :class:`~sklearn_xlc.heads.AsymmetricLoss`.
        - "focal": easy labels count for less (multi-label);
          :class:`~sklearn_xlc.heads.FocalLoss`.
        - "propensity_bce": binary cross-entropy, unbiased where true labels are missing
          (multi-label); :class:`~sklearn_xlc.heads.PropensityBinaryCrossEntropy`.
        - "pick_all_labels": one softmax over all labels for every label of a sample, as in
          [1]_; :class:`~sklearn_xlc.heads.PickAllLabels`.
        - "ce": softmax cross-entropy (multi-class).
        - "auto": ``PickAllLabels(competition=0.5, reduction="mean")``, the mean over the labels of
          a sample, which compete with each other in half of the loss. The loss of [1]_ costs a
          point of precision at 1 on text; less than 0.5 predicts set sizes less accurately.
    feature_decay : float, default=0.0
        Factor of the mean squared norm of the features in the loss.
    fit_intercept : bool, default=True
        Whether labels have biases, which are trained.
    hidden_layer_sizes : sequence of int, default=(1024,)
        Widths of the default encoder's hidden layers; unused when `encoder` is given.
    dropout : float or "auto", default="auto"
        Share of hidden units dropped while training; unused when `encoder` is given. "auto": none
        up to 1000 rows; above, 0.8 for rows that are mostly zeros and 0.2 for others.
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
        Share of the rows held out by `early_stopping`, and by a `threshold` or
        `temperature` that is "auto" and in use.
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
    decoder_ : str
        Decoder in use.
    max_labels_ : int
        Most labels of a set, or their number for "topk".
    temperature_ : float
        Temperature in use.
    threshold_ : float
        Threshold in use.
    label_set_scales_ : ndarray of shape (`max_labels_`,)
        Scales of the prototypes of 1, 2, ... labels, where the decoder is "nearest".
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
    sklearn_xlc.metrics.neural_collapse : How far features have collapsed.
    DFTSigmoidClassifier : Labels that are on or off each by itself.

    Notes
    -----
    :meth:`predict_proba` is the softmax over all labels: in multi-label the share of a row's labels
    that each label is expected to make up, so rows sum to one.

    Rows without any label add nothing to the loss (but for `feature_decay`), and "divergence",
    "nearest" and "topk" predict at least one label.

    :meth:`partial_fit` keeps a temperature or threshold that :meth:`fit` has chosen, and label sets
    seen before; "nearest" takes its scales from the rows of the last call.

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

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseXLCClassifier._parameter_constraints,
        "output": [StrOptions({"etf", "learned"})],
        "feature_dim": [None, Interval(Integral, 1, None, closed="left")],
        "decoder": [StrOptions({"auto", "divergence", "nearest", "seen", "threshold", "topk"})],
        "max_labels": [None, Interval(Integral, 1, None, closed="left")],
        "temperature": [StrOptions({"auto"}), Interval(Real, 1e-3, 1e3, closed="both")],
        "threshold": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="neither")],
        "loss": [StrOptions({"auto", *LOSSES}), Loss],
        "feature_decay": [Interval(Real, 0, None, closed="left")],
        "fit_intercept": ["boolean"],
    }
    _sparse_dropout = 0.8

    def __init__(
        self,
        output: str = "etf",
        *,
        feature_dim: int | None = None,
        decoder: str = "auto",
        max_labels: int | None = None,
        temperature: Any = 1.0,
        threshold: Any = "auto",
        loss: str | Loss = "auto",
        feature_decay: float = 0.0,
        fit_intercept: bool = True,
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
        self.output = output
        self.feature_dim = feature_dim
        self.decoder = decoder
        self.max_labels = max_labels
        self.temperature = temperature
        self.threshold = threshold
        self.loss = loss
        self.feature_decay = feature_decay
        self.fit_intercept = fit_intercept
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
        ETFHead.resolve_loss(self._criterion(), code.multilabel, type(self).__name__)
        if self.decoder == "seen" and code.multilabel and self.encoder is None:
            width = self.feature_dim or code.n_labels
            remedy = "another decoder, or a smaller feature_dim"
            self._check_dense(len(distinct_sets(Y)[0]), width, np.dtype(np.float32), remedy)
        if self.max_labels is not None and self.max_labels > code.n_labels:
            raise ValueError(
                f"max_labels={self.max_labels} is more than the {code.n_labels} labels of y"
            )

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
            seed=int(torch.randint(2**31 - 1, ())),
            loss=self._criterion(),
        )

    def _criterion(self) -> str | Loss:
        if isinstance(self.loss, str) and self.loss == "auto":
            return PickAllLabels(competition=0.5, reduction="mean")
        return self.loss

    def _projects(self) -> bool:
        """Whether a linear layer makes as many features as there are labels."""
        return self.feature_dim is None and self.encoder is None

    # --- decoding -----------------------------------------------------------------------------

    def _calibrates(self) -> bool:
        if self.decoder == "threshold":
            return self.threshold == "auto"
        return self.decoder in ("auto", "divergence") and self.temperature == "auto"

    def _calibrate(self, train: Rows, held: Rows | None, first: bool) -> None:
        self.decoder_ = "divergence" if self.decoder == "auto" else self.decoder
        if self.decoder == "nearest" and len(self.classes_) == 1:
            self.decoder_ = "divergence"  # one label has no direction, and is the only set
        sizes = np.diff(train.Y.indptr)
        mean = sizes.mean()
        most = round(mean) if self.decoder_ == "topk" else np.ceil(np.quantile(sizes, 0.99))
        known = 1 if first else self.max_labels_
        self.max_labels_ = int(self.max_labels or max(known, most))
        if first or self.temperature != "auto":
            self.temperature_ = 1.0 if self.temperature == "auto" else float(self.temperature)
        if self.threshold != "auto":
            self._score_cut = float(np.log(self.threshold))
        elif first:
            # Where nothing is held out: half the share of each label in a row of the mean number.
            self._score_cut = float(np.log(0.5 / max(1.0, mean)))
        if not self._code.multilabel:
            return
        if self.decoder_ == "nearest":
            self._fit_scales(train)
        elif self.decoder_ == "seen":
            self._fit_seen(train, first)
        elif held is not None and held.Y.nnz and self._calibrates():
            if self.decoder_ == "threshold":
                self._score_cut = self._best_cut(held)
            else:
                self._fit_temperature(held)

    def _fit_scales(self, train: Rows) -> None:
        """Scales of the prototypes, about the mean of the features."""
        head, n_labels = self.net_.module_.head, len(self.classes_)
        train = self._some(train, max(n_labels, head.feature_dim))
        features = self._inputs(train.X)
        self._mean = features.mean(axis=0, dtype=np.float64).astype(features.dtype)
        sizes = np.diff(train.Y.indptr)
        if not ((sizes > 0) & (sizes < n_labels)).any():
            # All labels together have no direction: any scale will do.
            self.label_set_scales_ = np.ones(self.max_labels_)
            return
        centred = torch.from_numpy(features - self._mean).to(self.net_.device)
        if head.is_simplex:
            with torch.inference_mode():
                centred, weights = head.products(centred), None
        else:
            weights = self.output_weights_
        self.label_set_scales_ = fit_label_set_scales(
            centred.cpu().numpy(), train.Y, weights, self.max_labels_
        )

    def _fit_seen(self, train: Rows, first: bool) -> None:
        """Mean features of every label set that occurs, and that occurred before."""
        rows, index = distinct_sets(train.Y)
        sums = np.zeros((len(rows), self.net_.module_.head.feature_dim))
        for part, features in self._features(train.X):
            with torch.inference_mode():
                inputs = self.net_.module_.head.inputs(features).cpu().numpy()
            np.add.at(sums, index[part], inputs)
        means, sets = (sums / np.bincount(index)[:, None]).astype(inputs.dtype), train.Y[rows]
        if not first:
            before, old = self._seen
            both = sp.vstack([sets, old], format="csr")
            kept = distinct_sets(both)[0]  # sets that occur again have new means
            means, sets = np.vstack([means, before])[kept], both[kept]
        self._seen = (means, sets)

    def _fit_temperature(self, held: Rows) -> None:
        """Temperature of highest mean F1 of a row."""
        held = self._some(held, len(self.classes_))
        parts = []
        for _, features in self._features(held.X):
            with torch.inference_mode():
                parts.append(self.net_.module_.head.scores(features).cpu().numpy())
        most = min(self.max_labels_, len(self.classes_))
        self.temperature_ = fit_temperature(np.concatenate(parts), held.Y, "example_f1", most)

    def _some(self, rows: Rows, width: int) -> Rows:
        """Rows with labels, evenly spaced: as many as fit into `memory_limit`, `width` wide."""
        n_rows = max(1, self.memory_limit // (16 * width))
        if n_rows >= len(rows):
            return rows
        labelled = np.flatnonzero(np.diff(rows.Y.indptr))
        n_rows = min(n_rows, len(labelled))
        return rows.take(labelled[np.linspace(0, len(labelled) - 1, n_rows).astype(np.int64)])

    def _inputs(self, X: Any) -> np.ndarray:
        """What the last layer reads for each of the validated rows."""
        with torch.inference_mode():
            head = self.net_.module_.head
            return np.concatenate([head.inputs(f).cpu().numpy() for _, f in self._features(X)])

    def _label_sets(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.decoder_ == "threshold":
            return super()._label_sets(features)
        sizes, ranked, _ = self._decode(features)
        taken = np.arange(ranked.shape[1]) < sizes[:, None]
        return torch.as_tensor(sizes), torch.as_tensor(ranked[taken])

    def _decode(self, features: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sizes of the sets, places with those of the set first, and the two least distances."""
        most = min(self.max_labels_, len(self.classes_))
        if self.decoder_ == "seen":
            return self._decode_seen(features)
        if self.decoder_ == "nearest":
            return self._decode_nearest(features, most)
        head, n_labels = self.net_.module_.head, len(self.classes_)
        width = min(most + 1, n_labels)
        scores, places = (part.cpu().numpy() for part in head.topk(features, width))
        if self.decoder_ == "topk":
            return np.full(len(scores), most), places, np.empty((len(scores), 0))
        normalizers = None
        if self.temperature_ != 1.0:
            scaled = head.scores(features) / self.temperature_
            normalizers = scaled.logsumexp(1).cpu().numpy()
        sizes, distances = divergence_label_sets(
            scores, self.temperature_, most, n_labels=n_labels, log_normalizers=normalizers
        )
        return sizes, places, distances

    def _decode_nearest(
        self, features: torch.Tensor, most: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        head, n_labels = self.net_.module_.head, len(self.classes_)
        centred = head.inputs(features) - torch.as_tensor(self._mean, device=features.device)
        products, squares = head.products(centred), centred.double().square().sum(1).cpu().numpy()
        best, places = products.topk(min(most + 1, n_labels), dim=1)
        if head.is_simplex:
            sizes, distances = nearest_label_sets(
                best.cpu().numpy(), self.label_set_scales_, most, n_labels=n_labels
            )
        else:
            weights = head.classifier(centred).detach().cpu().numpy()
            sizes, distances = greedy_label_sets(
                products.cpu().numpy(), weights, self.label_set_scales_, most
            )
        return sizes, places.cpu().numpy(), distances + squares[:, None]

    def _decode_seen(self, features: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        means, sets = self._seen
        inputs = self.net_.module_.head.inputs(features).cpu().numpy()
        chosen, distances = seen_label_sets(inputs, means)
        sets = sets[chosen]
        sizes = np.diff(sets.indptr)
        ranked = np.zeros((len(sizes), max(1, sizes.max(initial=0))), dtype=np.int64)
        ranked[np.arange(ranked.shape[1]) < sizes[:, None]] = sets.indices
        return sizes, ranked, distances

    @property
    def threshold_(self) -> float:
        """Probability above which the decoder "threshold" predicts a label."""
        check_is_fitted(self, "net_")
        return float(np.exp(self._score_cut))

    @available_if(lambda self: getattr(self, "decoder_", self.decoder) in SET_DECODERS)
    def predict_label_set_scores(self, X: Any) -> np.ndarray:
        """Distance of the predicted label set, and of the second best one.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        distances : ndarray of shape (n_samples, 2)
            For "divergence" the Kullback-Leibler divergences of the set that :meth:`predict` gives
            and of the next one; for "nearest" and "seen" the squared Euclidean distances. The
            closer the two, the less certain the set.

        Raises
        ------
        ValueError
            If the classifier was fitted on class labels.
        """
        X = self._validate_predict(X)
        if not self._code.multilabel:
            raise ValueError("predict_label_set_scores needs a classifier fitted on an indicator y")
        distances = []
        for _, features in self._features(X):
            with torch.inference_mode():
                distances.append(self._decode(features)[2])
        return np.concatenate(distances)

    @property
    def output_weights_(self) -> np.ndarray:
        """Rows of the last layer, fixed or learnt, of shape (n_labels, n_features)."""
        check_is_fitted(self, "net_")
        like = torch.empty(0, dtype=next(self.net_.module_.parameters()).dtype)
        return self.net_.module_.head.classifier(like).detach().cpu().numpy()

    # --- collapse -----------------------------------------------------------------------------

    def collapse_report(self, X: Any, y: Any, *, random_state: Any = 0) -> dict[str, Any]:
        """How far the features of some rows have collapsed.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples, such as the training rows.
        y : array-like of shape (n_samples,), or {array-like, sparse matrix} of shape \
                (n_samples, n_labels)
            Their labels.
        random_state : int, RandomState instance or None, default=0
            Seed of the label sets that are compared.

        Returns
        -------
        dict
            As of :func:`sklearn_xlc.metrics.neural_collapse`, of what the last layer reads.

        Raises
        ------
        MemoryError
            If the features would exceed ``get_config()["dense_limit"]``; give fewer rows.
        """
        X = self._validate_predict(X)
        checked = check_y(y)
        check_consistent_length(X, checked)
        Y = self._code.encode(checked)
        head = self.net_.module_.head
        self._check_dense(X.shape[0], head.feature_dim, np.dtype(np.float64), "fewer rows")
        return neural_collapse(
            self._inputs(X),
            Y if self._code.multilabel else Y.indices,
            self.output_weights_,
            random_state=random_state,
        )


def distinct_sets(Y: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """First row of every distinct label set, and the place of each row's set among them."""
    places: dict[bytes, int] = {}
    first, index = [], np.empty(Y.shape[0], dtype=np.int64)
    for row, (start, stop) in enumerate(zip(Y.indptr[:-1], Y.indptr[1:])):
        index[row] = places.setdefault(Y.indices[start:stop].tobytes(), len(places))
        if index[row] == len(first):
            first.append(row)
    return np.array(first), index
