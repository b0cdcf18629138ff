"""MultiHeadClassifier: output cost that grows as the H-th root of the number of labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc.codes._head_lengths import MAX_HEADS
from sklearn_xlc.engine.algorithms import MULTI_CLASS_ONLY, NamedAlgorithms
from sklearn_xlc.engine.fitting import BaseXLCClassifier
from sklearn_xlc.engine.searched import with_auto
from sklearn_xlc.heads import Head, Loss
from sklearn_xlc.heads.losses import LOSSES


class MultiHeadClassifier(NamedAlgorithms, BaseXLCClassifier):
    """Classifier for thousands to millions of classes or labels (Multi-Head Encoding).

    A neural network that needs no output per label. Each label is written as a tuple of a few
    digits (a mixed-radix number), and each *head*, a short output layer, scores one digit [1]_. The
    cost of the output is the sum of the head lengths; with one output per label it is their
    product.

    Parameters
    ----------
    algorithm : {"auto", "flat", "product", "cascade", "sampling"}, default="auto"
        Output layer.

        - "flat": one output per label, the plain classifier. Multi-class and multi-label.
        - "product": independent heads, whose log probabilities add up. Multi-class: the fastest
          and the coarsest; labels that share a digit share parameters. Multi-label: the label set
          of a sample is one class among ``2**n_labels``, and each head scores all sets of a few
          labels; label sets have probabilities (:meth:`predict_topk_sets`), and the most probable
          one is predicted. It costs as much as "flat" with an output for each set of each head.
        - "cascade": from coarse to fine; each head scores only the children of the `beam_width`
          best nodes of the previous head. Multi-label and multi-class.
        - "sampling": one output per label; a step trains only the groups of outputs that hold a
          label of the batch. Multi-class; for pretraining an encoder, used through
          :meth:`transform`.
        - "auto": "flat", unless it takes many more multiply-adds than "cascade": by default from
          50 000 labels or 43 000 classes on, half as many for a network twice as wide.
    n_heads : int, default=2
        Number of heads. Every additional head adds an approximation error (Eq. 14 of [1]_). Unused
        by "product" in multi-label.
    head_lengths : sequence of int, default=None
        Number of outputs of each head, the most significant digit first; their product must be at
        least the number of labels. For "sampling", the pair (number of sub-heads, labels in each).
        For "product" in multi-label, powers of two: a head of ``2**b`` outputs scores the sets of b
        labels, and together the heads hold all labels. None: lengths by
        :func:`~sklearn_xlc.codes.head_lengths`, equal for "product" and descending otherwise; 16
        outputs for every 4 labels for "product" in multi-label.
    label_order : {"given", "random", "clustered"} or array-like of shape (n_labels,), \
            default="given"
        Order of the labels in the code, in which neighbours share digits ("product" in multi-label:
        share a head, which learns how they depend on each other): the order of ``classes_``
        ("given"), a random order, an order by balanced clustering of the label centroids
        ("clustered"), or an array with the position of each label.
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
        - "joint_ce" ("product" only): one softmax over the digits of all heads.
        - "arcface" ("sampling" only): "ce" with an angular margin.
        - "auto": "ce" for multi-class y and for "product", otherwise "bce".

        "flat" takes all losses but "joint_ce" and "arcface". "cascade" takes "ce" and, in
        multi-label, "bce", "asymmetric" and "focal". "product" takes "ce", "joint_ce" and, over the
        digits of a label or label set, "bce" (Algorithm 2 of [1]_), "asymmetric" and "focal".
        "sampling" takes "ce" and "arcface".
    head : callable, default=None
        An output layer of your own: a subclass of :class:`~sklearn_xlc.heads.Head`, or a function
        that returns a head, called with ``(n_features, n_labels, multilabel)``. It replaces
        `algorithm`, `loss` and their parameters. None: the head that `algorithm` names.
    n_groups : int, default=1
        Number of groups of heads ("product" with "ce"): the probability of a label, or label set,
        is a mixture of `n_groups` products (Eq. 16 of [1]_). More groups depend less on which
        labels share a head, at a higher cost.
    embedding_dim : int, default=256
        Width of the node embeddings of "cascade".
    beam_width : int, default=10
        Nodes that "cascade" keeps per sample and level.
    path_exponent : float, default=0.5
        Weight of a node's ancestors in its score ("cascade", multi-label); 1 multiplies the
        probabilities along the path.
    level_weighting : {"sum", "mean"}, default="sum"
        What the loss takes of the losses of a level's nodes ("cascade", multi-label): their sum, so
        that levels of many nodes weigh more, or their mean, as in [1]_.
    n_sampled_heads : int, default=0
        Random negative sub-heads per step ("sampling"), in addition to the sub-heads of the batch;
        with ``shared_heads=False`` per sample, in addition to its own.
    shared_heads : bool, default=True
        Whether all sub-heads of a step score all of its samples ("sampling"). False: the sub-head
        of its label and others drawn for it alone score a sample (MHS-S of [1]_).
    n_negatives : int, None or "auto", default="auto"
        Labels that a step of "flat" draws at random as negatives, in addition to the labels of the
        batch; of a softmax they estimate the normaliser. None: all labels. "auto": 1000 beyond 8000
        labels, which takes a fraction of the time and ranks as well; all otherwise.
    rank : int, default=None
        Rank of the weights of "flat", which are then a product of two matrices (Eq. 17 of [1]_): a
        linear layer of so many units lies between features and labels. Each label still has a bias.
        None: full rank.
    margin, scale : float, default=0.5 and 64.0
        Angular margin in radians, and factor of the cosines ("arcface").
    correction : bool, default=False
        Correct the softmax over sampled labels for the probability with which each label is drawn
        ("sampling").
    n_members : int, default=1
        Networks trained side by side, whose scores are averaged ("flat", with ``encoder=None``).
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
          labels; the most probable label set where sets have probabilities
          (:class:`~sklearn_xlc.decisions.JointMode`); otherwise "threshold", tuned on held-out
          samples, with a label for every sample if all training samples have one; up to 1000
          samples (2000, see Notes) every label with a probability above one half.
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
        head (0.002 for classes, "cascade", "product"), more with batches of 512; otherwise 0.002.
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
        "bfloat16" runs the matrix products of the encoder and of "flat" at half precision while
        training; weights and sums keep float32. "auto": "bfloat16" where defaults were searched for
        and the processor multiplies such matrices several times faster (AVX-512, AMX, recent GPUs).
        The model is float32 whatever the type of X; but with "auto", and at most 1000 samples in
        the first call, it has the type of X: weighted samples then equal repeated ones to rounding.
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
    algorithm_ : str
        Algorithm in use; "custom" where `head` is given.
    head_lengths_ : tuple of int
        Length of each head; ``(n_labels,)`` with a single head.
    label_order_ : ndarray of shape (n_labels,)
        Position of each label in the code.
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
    sklearn.neural_network.MLPClassifier : One output per label, for small label spaces.
    sklearn_xlc.metrics.topk_scorer : Scorers for model selection.
    sklearn_xlc.plotting.HeadAccuracyDisplay : Accuracy of each head.

    Notes
    -----
    :meth:`predict_proba` is defined for every named loss but "arcface", and with "product" for "ce"
    only. Those of "asymmetric" and "focal" are far off without `calibration`; "pick_all_labels"
    divides the probability of a label by the mean number of labels. "product" gives products of
    softmaxes, renormalised over the labels that exist, and in multi-label the marginal
    probabilities of labels, exact sums over label sets; "sampling" gives the softmax over all
    labels, biased unless `correction` is set. In multi-label, "cascade" weights ancestors by
    `path_exponent`; :meth:`predict` and :meth:`predict_topk` rank only the labels below its beam,
    :meth:`decision_function` scores all.

    Decision and calibration "auto" are fitted on 5% of the samples, at most 1000, that are not
    trained on; from 2000 samples on. Where defaults were searched for (below) and there are fewer
    than 30 000 samples, the network is trained on all of them instead, and a second one on two
    fifths of them (three, if that is no more than 5000), whose scores of other samples decide. A
    fit then takes 1.4 to 1.9 times as long, unless `decision` is given and `calibration` is None.
    Fits with callbacks, or with `warm_start`, have no second network.

    Defaults were searched for on mostly-zero X with the default encoder, for all algorithms but
    "sampling" (docs/performance.md has the runs), and hold for
    :class:`~sklearn_xlc.encoders.TextEncoder`, too. "auto" stands for other values elsewhere.
    There, networks of samples with over 70 non-zeros on average have leaky ReLUs instead of ReLUs.

    **Differences from the paper**

    - "product" on an indicator also gives marginal probabilities, the k best label sets and, with
      `n_groups`, mixtures; [1]_ names the best set of one product.
    - "product" with `n_groups` mixes products of softmaxes; Eq. 16 adds products of raw outputs.
    - "cascade" is that of [1]_ with ``level_weighting="mean"`` and ``path_exponent=1``.
    - "sampling" shares the sub-heads of a batch, which [1]_ does for speed; MHS-S of [1]_ is
      ``shared_heads=False`` with ``n_sampled_heads=S - 1``. `correction` is an addition.

    References
    ----------
    .. [1] D. Liang, H. Zhang, D. Yuan and M. Zhang, "Multi-Head Encoding for Extreme Label
       Classification".

    Examples
    --------
    >>> from sklearn_xlc import MultiHeadClassifier
    >>> from sklearn_xlc.datasets import make_extreme_multiclass
    >>> X, y = make_extreme_multiclass(2000, 300, 50, random_state=0)
    >>> clf = MultiHeadClassifier("product", hidden_layer_sizes=(64,), random_state=0)
    >>> clf.fit(X[:1500], y[:1500]).head_lengths_
    (8, 7)
    >>> labels, scores = clf.predict_topk(X[1500:], k=3)
    >>> labels.shape
    (500, 3)
    >>> bool(clf.score(X[1500:], y[1500:]) > 0.8)
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {
        **with_auto(BaseXLCClassifier._parameter_constraints),
        "algorithm": [StrOptions({"auto", "product", "cascade", "sampling", "flat"})],
        "n_heads": [Interval(Integral, 1, MAX_HEADS, closed="both")],
        "head_lengths": [None, "array-like"],
        "label_order": [StrOptions({"given", "random", "clustered"}), "array-like"],
        "loss": [StrOptions({"auto", "joint_ce", "arcface", *LOSSES}), Loss],
        "head": [None, callable],
        "n_groups": [Interval(Integral, 1, None, closed="left")],
        "embedding_dim": [Interval(Integral, 1, None, closed="left")],
        "beam_width": [Interval(Integral, 1, None, closed="left")],
        "path_exponent": [Interval(Real, 0, None, closed="left")],
        "level_weighting": [StrOptions({"sum", "mean"})],
        "n_sampled_heads": [Interval(Integral, 0, None, closed="left")],
        "shared_heads": ["boolean"],
        "n_negatives": [StrOptions({"auto"}), None, Interval(Integral, 1, None, closed="left")],
        "rank": [None, Interval(Integral, 1, None, closed="left")],
        "margin": [Interval(Real, 0, np.pi, closed="left")],
        "scale": [Interval(Real, 0, None, closed="neither")],
        "correction": ["boolean"],
        "n_members": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        algorithm: str = "auto",
        *,
        n_heads: int = 2,
        head_lengths: Sequence[int] | None = None,
        label_order: Any = "given",
        loss: str | Loss = "auto",
        head: Callable[[int, int, bool], Head] | None = None,
        n_groups: int = 1,
        embedding_dim: int = 256,
        beam_width: int = 10,
        path_exponent: float = 0.5,
        level_weighting: str = "sum",
        n_sampled_heads: int = 0,
        shared_heads: bool = True,
        n_negatives: Any = "auto",
        rank: int | None = None,
        margin: float = 0.5,
        scale: float = 64.0,
        correction: bool = False,
        n_members: int = 1,
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
        self.algorithm = algorithm
        self.n_heads = n_heads
        self.head_lengths = head_lengths
        self.label_order = label_order
        self.loss = loss
        self.head = head
        self.n_groups = n_groups
        self.embedding_dim = embedding_dim
        self.beam_width = beam_width
        self.path_exponent = path_exponent
        self.level_weighting = level_weighting
        self.n_sampled_heads = n_sampled_heads
        self.shared_heads = shared_heads
        self.n_negatives = n_negatives
        self.rank = rank
        self.margin = margin
        self.scale = scale
        self.correction = correction
        self.n_members = n_members
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self.algorithm not in MULTI_CLASS_ONLY
        return tags
