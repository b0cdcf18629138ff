"""MIMLClassifier: classify bags of samples, from labels known for bags only."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc._checks import check_y
from sklearn_xlc._compat import Interval, StrOptions, _check_sample_weight
from sklearn_xlc._tags import plain_sets
from sklearn_xlc.batches import Rows
from sklearn_xlc.batches.randomness import Generators
from sklearn_xlc.engine.bag_prediction import BagPredictionMixin, Grouped
from sklearn_xlc.engine.fitting import BaseXLCClassifier
from sklearn_xlc.engine.label_code import LabelCode, code_of
from sklearn_xlc.engine.searched import SearchedBags, with_auto
from sklearn_xlc.engine.validation import TrainingData, model_dtype
from sklearn_xlc.estimators.bag_embeddings import embeddings_of_bags
from sklearn_xlc.estimators.eagle import EAGLETransformer
from sklearn_xlc.groups import check_groups
from sklearn_xlc.groups._counts import cap_counts, check_group_counts, split_counts
from sklearn_xlc.groups._groups import warn_without_groups
from sklearn_xlc.heads import Head, Loss, MIMLHead
from sklearn_xlc.heads.losses import LOSSES
from sklearn_xlc.training import EncoderHead


class MIMLClassifier(SearchedBags, BagPredictionMixin, BaseXLCClassifier):
    r"""Classifier of bags: groups of samples (instances) that have labels together (MIML).

    An image is a bag of patches, a page a bag of paragraphs, an order a bag of items; labels are
    known for bags only. A network scores the labels of each sample, and the sample that ranks first
    for a label decides whether the bag has it (Deep-MIML [1]_). Early in training this is often the
    wrong sample. Label embeddings, learnt from the bags beforehand, show the network where to look
    (the co-attention of [2]_). A classifier trained on bags also classifies single samples, and so
    finds the sample that a label comes from.

    Parameters
    ----------
    attention : {"eagle", "mean"}, None or EAGLETransformer, default="eagle"
        Label embeddings that rank the samples of a bag, in addition to the network.

        - "eagle": embeddings by :class:`EAGLETransformer`, close to at least one sample in each bag
          with the label.
        - "mean": the mean sample of the label's bags less the mean sample of all bags.
        - an :class:`EAGLETransformer`: embeddings with its parameters, `multiplicity` included; it
          is cloned.
        - None: no attention, plain Deep-MIML (tau = 0 in [2]_).
    temperature : float, default=1.0
        Divisor in the attention ``M = g softmax(X L' / temperature)`` over the g samples of a bag,
        where samples and embeddings have unit norm; :math:`1 / \tau` in [2]_. The larger it is, the
        more equally samples count. The scores of the network grow as training proceeds, and then
        outweigh an attention with a large `temperature`.
    mask : {"select", "multiply"}, default="select"
        How the attention acts. "select": samples rank by score plus log M, and the bag has the
        score of the first sample, without the mask. "multiply" is [2]_, ``max(M * relu(score))``
        plus a bias: the mask is part of the score of the bag. The network then relies on the mask
        and learns less itself, which shows on singleton bags, where M = 1.
    n_concepts : int, default=5
        Linear units of each label, of which the largest is its score.
    multiplicity : {"top", "ignore"}, default="top"
        Meaning of a number c above 1 in `y`. "top": the label holds in exactly c samples of the
        bag, and the network learns to score c samples above zero. "ignore": the label occurs,
        however often. A y of zeros and ones says only which labels occur, unless an earlier call of
        `partial_fit` (or of `fit`, with `warm_start`) had counts.
    loss : str or Loss, default="auto"
        Loss to minimise: a name, or an object of :mod:`sklearn_xlc.heads.losses`.

        - "bce": binary cross-entropy of each label (multi-label).
        - "asymmetric": easy negatives count for less than easy positives (multi-label);
          :class:`~sklearn_xlc.heads.AsymmetricLoss`.
        - "focal": easy labels count for less (multi-label);
          :class:`~sklearn_xlc.heads.FocalLoss`.
        - "propensity_bce": binary cross-entropy, unbiased where true labels are missing
          (multi-label); :class:`~sklearn_xlc.heads.PropensityBinaryCrossEntropy`.
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
        - "nearest", "seen": not available for bags, which have no features of their own.
        - "auto": "divergence" for losses with a softmax, which shares one probability among the
          labels; otherwise "threshold", tuned on 5% of the bags, at most 1000, with a label for
          every bag if all training bags have one. Up to 2000 bags, where these are too few: every
          label with a probability above one half.
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
        (0.001 to 0.004) for the encoder, times sqrt(70 / non-zeros a sample), and 0.004 for the
        head (0.002 for classes); otherwise 0.002.
    weight_decay : float, default=0.0
        Decoupled weight decay of matrices; vectors, such as biases, do not decay.
    batch_size : int or "auto", default="auto"
        Bags per step. "auto": as many as hold about 256 samples, but at least 4; all bags where
        they hold up to 1000 samples.
    max_epochs : int or "auto", default="auto"
        Passes over the data. "auto": 200 up to 1000 samples, where each is one step; beyond, where
        defaults were searched for, 10 at 5000 and 4 at 50 000, where a bag of g samples counts as
        sqrt(g); otherwise 10, or more until there are 300 steps. Large bags may need more.
    early_stopping : bool, default=False
        Hold out bags, stop when their loss has not fallen for `n_iter_no_change` epochs, and
        restore the weights of the best epoch.
    validation_fraction : float, default=0.1
        Fraction of the bags held out for `early_stopping`, and for a `decision` that is tuned; at
        most 0.05 for "auto".
    n_iter_no_change : int, default=3
        Epochs without a lower loss after which `early_stopping` stops.
    average_weights : {None, "swa", "ema"}, default=None
        Average the weights over the last quarter of the epochs ("swa"), or over steps as an
        exponential moving average ("ema"). Training then holds a second copy of the model. None: do
        not average.
    precision : {"auto", "float32", "bfloat16"}, default="auto"
        "bfloat16" runs the matrix products of the encoder at half precision while training; weights
        and sums keep float32. "auto": "bfloat16" where defaults were searched for and the processor
        multiplies such matrices several times faster (AVX-512, AMX, recent GPUs). The model is
        float32 whatever the type of X; but with "auto", and at most 1000 samples in the first call,
        it has the type of X: weighted samples then equal repeated ones to rounding. `transform`
        gives the type of X.
    callbacks : list of skorch callbacks, default=None
        Callbacks of the training loop. They are copied, never changed; an open file is shared.
    device : str or torch.device, default="auto"
        Device for training and prediction; "auto" is the GPU if there is one. Chosen again when a
        saved model is loaded.
    memory_limit : int, default=2**30
        Limit in bytes of the temporary logits in training, of a batch in prediction, and of the
        working storage for label embeddings.
    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, the order of the bags, dropout and label embeddings. The same
        seed on the same machine with the same number of threads gives the same model, bit for bit.
    warm_start : bool, default=False
        Continue from the fitted network, with its label embeddings, in the next :meth:`fit`,
        instead of starting from a new network.
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
    label_embeddings_ : ndarray of shape (n_labels, `n_features_in_`) or None
        Unit vectors, with which the attention compares samples; zero for labels without a bag.
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
    AggregatedLabelClassifier : Assigns labels to samples, and trains any classifier on them.
    EAGLETransformer : The label embeddings on their own.

    Notes
    -----
    Predictions have one row for each bag, in the order of the sorted ids (``np.unique(groups)``),
    or of the columns of a membership matrix. Without `groups` every sample is a bag. Bags are never
    padded: a batch holds the samples of its bags one after the other.

    Defaults were searched for on bags of three data sets, on mostly-zero X with the default encoder
    (docs/performance.md has the runs). "auto" stands for other values elsewhere. There, networks of
    samples with over 70 non-zeros on average have leaky ReLUs instead of ReLUs.

    **Differences from the paper**

    - Label embeddings, unless ``attention=EAGLETransformer(contrast=None)``, and cosines with them
      in place of inner products. `temperature` is 1 / tau.
    - "select"; the bias of "multiply", without which no probability falls below one half.
    - Counts of labels are learnt; what [2]_ makes of repeated labels is not said.

    References
    ----------
    .. [1] J. Feng, Z.-H. Zhou. Deep MIML Network. AAAI 2017.
    .. [2] Y. Shen, H. Yu, S. Sanghavi, I. Dhillon. Extreme Multi-label Classification from
       Aggregated Labels. ICML 2020. Section 6.

    Examples
    --------
    Labels are known for bags of 5 samples; training does not know which sample has which label:

    >>> import numpy as np
    >>> from sklearn_xlc import MIMLClassifier
    >>> from sklearn_xlc.datasets import make_extreme_multiclass
    >>> X, y = make_extreme_multiclass(2000, 300, 10, random_state=0)
    >>> groups = np.arange(1500) // 5
    >>> Y = np.zeros((300, 10), dtype=int)
    >>> Y[groups, y[:1500]] = 1
    >>> clf = MIMLClassifier(hidden_layer_sizes=(64,), random_state=0).fit(X[:1500], Y, groups)
    >>> clf.predict(X[:1500], groups).shape
    (300, 10)

    The same classifier predicts labels of single samples:

    >>> labels, scores = clf.predict_topk(X[1500:], k=1)
    >>> bool(np.mean(labels[:, 0] == y[1500:]) > 0.8)
    True
    """

    _sizes = ("hidden_layer_sizes", "n_concepts")

    _parameter_constraints: dict[str, list[Any]] = {
        **with_auto(BaseXLCClassifier._parameter_constraints),
        "attention": [StrOptions({"eagle", "mean"}), None, EAGLETransformer],
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "mask": [StrOptions({"select", "multiply"})],
        "n_concepts": [Interval(Integral, 1, None, closed="left")],
        "multiplicity": [StrOptions({"top", "ignore"})],
        "loss": [StrOptions({"auto", *LOSSES}), Loss],
    }

    def __init__(
        self,
        attention: Any = "eagle",
        *,
        temperature: float = 1.0,
        mask: str = "select",
        n_concepts: int = 5,
        multiplicity: str = "top",
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
        self.attention = attention
        self.temperature = temperature
        self.mask = mask
        self.n_concepts = n_concepts
        self.multiplicity = multiplicity
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

    # --- fit --------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any, groups: Any = None, *, sample_weight: Any = None
    ) -> MIMLClassifier:
        """Fit label embeddings, then encoder and head.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples of all bags, in any order. The type of the model is given by `precision`.
        y : array-like of shape (n_samples,) or (n_bags,), or {array-like, sparse matrix} of shape \
                (n_samples, n_labels) or (n_bags, n_labels)
            Class labels of any type, a 0/1 indicator of labels, tags, or counts of labels (see
            `multiplicity`). Row i holds the labels of sample i's bag, or row j holds the labels of
            bag j, in the order of predictions (see Notes of the class). With ids of as many bags as
            samples, the first form is meant.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_bags), default=None
            Ids of the samples' bags, or a 0/1 membership matrix; with a matrix, y has one row per
            bag. None: every sample is a bag.
        sample_weight : array-like of shape (n_samples,) or (n_bags,), default=None
            Weights of the bags in the loss, one per sample or per bag, as in `y`. Bags of weight
            zero are dropped first; the label embeddings ignore all other weights.

        Returns
        -------
        self : object
            Fitted classifier.

        Raises
        ------
        ValueError
            If an argument is not valid, or samples of one bag have different labels. An earlier fit
            is then kept.
        """
        warn_without_groups(groups)
        return super().fit(Grouped(X, groups), y, sample_weight)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, groups: Any = None, *, sample_weight: Any = None
    ) -> MIMLClassifier:
        """Train for one pass over some bags, at a constant learning rate.

        The embedding of a label is learnt in the call that it comes with, and then stays fixed. The
        network is trained in place: after an interrupt it keeps the steps taken so far.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples of complete bags.
        y : array-like of shape (n_samples,) or (n_bags,), or {array-like, sparse matrix} of shape \
                (n_samples, n_labels) or (n_bags, n_labels)
            Labels of the bags, as in :meth:`fit`.
        classes : array-like of shape (n_classes,), default=None
            All classes or tags that will occur; required in the first call with class labels. A
            later call may name more than those in ``classes_``, which are then added; None adds
            none. With an indicator the columns are the labels: name as many as there are.
        groups : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_bags), default=None
            Bags, as in :meth:`fit`.
        sample_weight : array-like of shape (n_samples,) or (n_bags,), default=None
            Weights of the bags in the loss.

        Returns
        -------
        self : object
            Classifier after the pass.

        Raises
        ------
        ValueError
            If `classes` is missing in the first call, or lacks known labels in a later one; or if y
            holds labels outside of them.
        """
        warn_without_groups(groups)
        return super().partial_fit(Grouped(X, groups), y, classes, sample_weight)

    def _validate_fit(
        self, X: Any, y: Any, sample_weight: Any, code: LabelCode | None, reset: bool = True
    ) -> TrainingData:
        X, groups = X
        X = self._validate_X(X, reset)
        y = self._named(y, code)
        y_of_bags, counts = split_counts(plain_sets(y))
        checked = check_y(y_of_bags)
        bags = check_groups(groups, X.shape[0], allow_empty=False)
        bags.is_per_sample(checked.shape[0], "y")
        if sample_weight is not None:
            like = X if isinstance(sample_weight, Real) else sample_weight
            sample_weight = _check_sample_weight(
                sample_weight, like, dtype=np.float64, ensure_non_negative=True
            )
            sample_weight = bags.per_group(sample_weight, "sample_weight")
        code = code or code_of(y, checked)
        Y = sp.csr_matrix(bags.per_group(code.encode(checked), "y"))
        self._check_task(code, Y)
        if reset:
            self._counts = counts is not None and self.multiplicity == "top"
        if counts is not None:
            check = check_group_counts if self._counts else cap_counts
            Y = check(bags.per_group(counts, "y"), bags).astype(model_dtype(X))
        return self._training_data(Rows(bags.gather(X), Y, sample_weight, bags=bags.indptr), code)

    def _start(
        self,
        data: TrainingData,
        train: Rows | None,
        rng: np.random.RandomState,
        generators: Generators,
    ) -> EncoderHead:
        rows = data.rows if train is None else train
        self._bag_size = rows.X.shape[0] / len(rows)
        module = super()._start(data, train, rng, generators)
        if self.attention is not None:
            assert isinstance(module.head, MIMLHead)
            module.head.attend(self._embeddings(rows, int(rng.randint(2**31 - 1))))
        return module

    def _embeddings(self, rows: Rows, seed: int) -> torch.Tensor:
        how = (self.attention, rows, self.multiplicity, self.memory_limit, seed)
        return torch.from_numpy(embeddings_of_bags(*how))

    def _start_beside(self, head: Head, rows: Rows, positions: torch.Tensor) -> None:
        if self.attention is not None:  # the embeddings of the others stay fixed
            assert isinstance(head, MIMLHead)
            seed = int(torch.randint(2**31 - 1, (), device="cpu"))
            before = cast(torch.Tensor, head.label_embeddings)
            head.attend(self._code.by_position(self._embeddings(rows, seed)).to(before))
            new = cast(torch.Tensor, head.label_embeddings)
            head.label_embeddings = before.index_copy(1, positions, new[:, positions])

    @property
    def label_embeddings_(self) -> np.ndarray | None:
        """Unit vectors, with which the attention compares samples."""
        check_is_fitted(self, "net_")
        vectors = self.net_.module_.head.label_embeddings
        return None if vectors is None else vectors.T.cpu().numpy()

    def _build_head(self, n_features: int, code: LabelCode) -> Head:
        size = (n_features, code.n_labels, code.multilabel)
        attention = (self.n_concepts, self.temperature, self.mask)
        return MIMLHead(*size, *attention, self._counts, self.memory_limit, self.loss)

    def _check_task(self, code: LabelCode, Y: sp.csr_matrix) -> None:
        MIMLHead.resolve_loss(self.loss, code.multilabel, type(self).__name__)

    def _scores_apart(self, code: LabelCode) -> bool:
        return not MIMLHead.resolve_loss(self.loss, code.multilabel).needs_normaliser

    def _unread(self, code: LabelCode) -> dict[str, str]:
        return {"temperature": "with attention=None"} if self.attention is None else {}
