"""Base class of all classifiers: `fit`, predictions, and hooks for subclasses."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.metrics import accuracy_score
from sklearn.utils import estimator_html_repr
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted
from torch import nn

from sklearn_xlc._carrying import carrying_whole
from sklearn_xlc._checks import is_indicator
from sklearn_xlc._compat import RANDOM_STATE, Interval, LinksToDocs, StrOptions, fit_context
from sklearn_xlc._ids import warn_of_order
from sklearn_xlc._part import Names, check_parts, joined_signature, name_of_part, nested_parts
from sklearn_xlc._tags import index_of, plain_sets
from sklearn_xlc.batches import Rows, usual_modes
from sklearn_xlc.decisions import DECISIONS, Decision
from sklearn_xlc.distributed import Alone
from sklearn_xlc.encoders import ENCODERS, EncoderPart, accepted_forms, encoder_part
from sklearn_xlc.engine import later_labels
from sklearn_xlc.engine._docs import with_shared
from sklearn_xlc.engine.building import smaller_model
from sklearn_xlc.engine.class_weights import check_weights_of_part
from sklearn_xlc.engine.deciding import compares_sets, decider_of, fit_decision, predicted_sets
from sklearn_xlc.engine.label_code import LabelCode, code_of_first
from sklearn_xlc.engine.memory import memory_explained
from sklearn_xlc.engine.plan import Plan
from sklearn_xlc.engine.predictor import Predictor, predictor_of
from sklearn_xlc.engine.recalibrating import (
    described,
    forget,
    noting_unlearnt,
    recalibrate,
    refuse_another_network,
    warn_of_unlearnt,
)
from sklearn_xlc.engine.resolve import Facts
from sklearn_xlc.engine.second import second_network
from sklearn_xlc.engine.settings import Settings, settings_table
from sklearn_xlc.engine.splits import FORMS_OF_SPLITS, split_by
from sklearn_xlc.engine.state import classifier_of, state_of
from sklearn_xlc.engine.trainer import Trainer, fitting, restored_net
from sklearn_xlc.engine.validation import (
    TrainingData,
    named_labels,
    training_data,
    true_labels_of,
    validate_X,
    validated,
)
from sklearn_xlc.heads import LOSSES, Head, HeadTask, Loss
from sklearn_xlc.metrics import check_weight, precision_at_k
from sklearn_xlc.optimizers import OPTIMIZERS, Optimizer
from sklearn_xlc.ranking import RANKERS, Ranker
from sklearn_xlc.training import XLCNet, copies_of, numpy_dtype

_explained = memory_explained(
    "this prediction", lambda self: "fewer rows of X, or a smaller working_memory"
)


class BaseXLCClassifier(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator
):
    """Base class of all classifiers; a subclass builds the head.

    To write a classifier, subclass this base and build the head in ``_build_head``. ``__init__``
    names the parameters of the subclass and passes ``**parameters`` to the base, see the example.
    ``_parameter_constraints`` holds the constraints of the new parameters. The network is built
    from these: if they are set after a fit, predictions warn, and a warm start is refused. Further
    hooks:

    - ``_check_task(code, Y)`` raises ValueError if the parameters do not suit the labels.
    - ``_loss_for(multilabel)`` returns the loss for "auto".
    - ``_head_class(head, multilabel)`` returns the class of the head. Losses and decisions are then
      checked before the head is built.

    Parameters
    ----------
    encoder : str, EncoderPart, torch.nn.Module or callable, default="auto"
        Network from samples to features. "auto" and "mlp": :class:`~sklearn_xlc.encoders.MLP`.
        "text": :class:`~sklearn_xlc.encoders.Text`. A module is copied. A callable gets
        `n_features_in_` (strings, mappings: nothing); see :class:`~sklearn_xlc.encoders.Encoder`.
    loss : str or Loss, default="auto"
        Loss to minimise, such as :class:`~sklearn_xlc.heads.FocalLoss`. For label sets: "bce",
        "asymmetric", "focal", "propensity_bce", "pick_all_labels". For class labels: "ce".
        "auto": "bce" for label sets, "ce" for class labels.
    ranker : {"auto", "boosted", "calibration"}, Ranker or None, default="auto"
        Order and probabilities of labels, fitted on held-out samples. "auto": with enough samples,
        "boosted" in MultiHeadClassifier, for classes and for label sets with a score for each
        label, else "calibration". None: those of the network.
    decision : str or Decision, default="auto"
        Rule from scores to label sets: "threshold", "topk", "divergence", "nearest", "seen",
        "joint_mode", "risk_control", or an object of :mod:`sklearn_xlc.decisions`. "auto":
        "joint_mode" if label sets have probabilities, else "threshold"; with too few samples to
        tune one, "divergence" with a softmax, "topk" with scores of no scale.
    optimizer : {"auto", "adam", "mixed", "adagrad", "sgd"} or Optimizer, default="auto"
        Update rule, see :mod:`sklearn_xlc.optimizers`. "auto": "mixed" on sparse X, else "adam".
    learning_rate : float or "auto", default="auto"
        Peak learning rate. It warms up over 5% of the steps, then falls along a half cosine.
    weight_decay : float, default=0.0
        Decoupled weight decay of matrices.
    batch_size : int or "auto", default="auto"
        Samples per step. "auto": at most 256, or 512, in equal batches.
    max_epochs : int or "auto", default="auto"
        Passes over the data. "auto": 200 up to 64 samples, then 3 or more by their number.
    early_stopping : bool, default=False
        Whether to stop after three epochs without a lower loss of held-out samples, with the best
        weights; a callback :class:`skorch.callbacks.EarlyStopping` replaces it.
    validation_fraction : float, "refit", splitter or list of pairs of positions, default=0.1
        Samples held out: early stopping reads one half (below 200 all of them), ranker and decision
        learn from the other one, a decision with a guarantee from its own. A fraction (at most 3000
        samples without early stopping or a named, tuned decision; below 30 000, "refit"); the last
        pair of a splitter or a list, such as ``list(GroupShuffleSplit().split(X, y, groups))``; or
        "refit": none, ranker and decision learn beside a second network, trained on a part.
    class_weight : dict, {"balanced", "propensity"} or None, default=None
        Weights of labels in the loss: by label (others weigh 1), "balanced" (inverse to counts), or
        "propensity" (inverse to :func:`~sklearn_xlc.metrics.propensities`). `partial_fit` takes a
        dict only, and divides weights of classes by the mean of all classes.
    precision : {"auto", "float32", "float64", "bfloat16"}, default="auto"
        Type of weights; "bfloat16" is float32 with half-precision products in training. "auto":
        "float64" if X has it, up to 1000 samples or if float32 would blur a column far from zero;
        else "float32", or "bfloat16" if much faster.
    callbacks : list of skorch callbacks, default=None
        Callbacks, such as :class:`~sklearn_xlc.training.WeightAveraging`; `fit` copies them.
    checkpoint : str or path-like, default=None
        Folder of checkpoints, from which the same `fit` resumes to the same model, if killed.
    device : str or torch.device, default="auto"
        Device for training and prediction. "auto": a GPU if there is one.
    warm_start : bool, default=False
        Whether the next `fit` continues from the fitted network.
    random_state : int, RandomState instance or None, default=None
        Seed. The same seed, machine and number of threads give the same model, bit for bit.
    verbose : int, default=0
        1 says what begins, and prints epochs with the seconds left, and steps in a terminal.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        Class labels, or the names or numbers of the indicator's columns.
    settings_ : dict
        Values used for "auto"; a fit with ``set_params(**settings_)`` gives the same model.
    encoder_, ranker_, decision_ : object
        Resolved encoder (None for a module), fitted ranker or None, decision with its `threshold_`.
    n_features_in_, feature_names_in_ : int, and ndarray of shape (`n_features_in_`,)
        Number of columns of X, and their names, where X had names.
    n_iter_, n_parameters_ : int
        Number of epochs trained, and of trainable parameters.
    loss_curve_, history_ : list
        Training loss of each epoch; a dict of its losses, learning rate and scores.
    net_ : skorch.NeuralNet
        Trained net; ``net_.module_`` holds the trained copies, `encoder` and `head`.

    See Also
    --------
    sklearn_xlc.heads.Head : Loss, scores and best labels.
    sklearn_xlc.encoders.Encoder : Features of samples.

    Examples
    --------
    A classifier with a narrow linear layer between encoder and output:

    >>> from sklearn_xlc.datasets import make_extreme_multiclass
    >>> from sklearn_xlc.engine import BaseXLCClassifier
    >>> from sklearn_xlc.heads import FlatHead
    >>> class NarrowClassifier(BaseXLCClassifier):
    ...     def __init__(self, width=8, **parameters):
    ...         super().__init__(**parameters)
    ...         self.width = width
    ...
    ...     def _build_head(self, task):
    ...         return FlatHead(*task.size, width=self.width)
    >>> X, y = make_extreme_multiclass(300, 50, 10, random_state=0)
    >>> NarrowClassifier(max_epochs=5).fit(X, y).predict_topk(X, k=2)[0].shape
    (300, 2)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "encoder": [StrOptions({"auto", *ENCODERS}), EncoderPart, callable, nn.Module],
        "loss": [StrOptions({"auto", *LOSSES}), Loss],
        "ranker": [StrOptions({"auto", *RANKERS}), Ranker, None],
        "decision": [StrOptions({"auto", *DECISIONS}), Decision],
        "optimizer": [StrOptions({"auto", *OPTIMIZERS}), Optimizer],
        "learning_rate": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_epochs": [StrOptions({"auto"}), Interval(Integral, 1, 2**31 - 1, closed="both")],
        "early_stopping": ["boolean"],
        "validation_fraction": FORMS_OF_SPLITS,
        "class_weight": [None, dict, StrOptions({"balanced", "propensity"})],
        "precision": [StrOptions({"auto", "float32", "float64", "bfloat16"})],
        "callbacks": [None, list, tuple],
        "checkpoint": [None, str, os.PathLike],
        "device": [str, torch.device],
        "warm_start": ["boolean"],
        "random_state": RANDOM_STATE,
        "verbose": ["verbose"],
    }

    #: Names of the parts that parameters take.
    _parts: ClassVar[Mapping[str, Names]] = {
        "encoder": ENCODERS,
        "loss": LOSSES,
        "ranker": RANKERS,
        "decision": DECISIONS,
        "optimizer": OPTIMIZERS,
    }
    #: Text on losses, and word for samples, in the docstring of the class.
    _loss_doc: ClassVar[str] = '"auto": "bce" for label sets, "ce" for class labels.'
    _samples_doc: ClassVar[str] = "Samples"
    #: Parameter with the head, or its part.
    _head_parameter: ClassVar[str] = ""
    #: Parameters that set the size of the model, for messages.
    _sizes: ClassVar[tuple[str, ...]] = ("encoder__hidden_layer_sizes",)
    #: Whether y may hold counts of labels.
    _takes_counts = False
    #: Whether each predicted sample has one vector of features.
    _has_features = True
    #: Whether this is the second network of a fit, for ranker and decision alone.
    _is_part = False
    #: Whether weights belong to a file.
    _weights_borrowed = False
    #: Whether weights are stored with six bits: those of `compress`, until they are trained.
    _is_rounded = False

    #: Parameters set after the fit, and not learnt since; whether a warning has named them.
    _unlearnt: Mapping[str, bool] = {}
    #: Values that parameters had in the fit, of parts that were set since.
    _of_fit: Mapping[str, Any] = {}
    #: Ranker of a stream that has learnt too little so far.
    _waiting: Ranker | None = None
    #: Number of samples of the last `fit` and of later calls of `partial_fit`.
    _n_seen = 0
    #: Positions of labels that have had no sample.
    _unmet = np.empty(0, dtype=np.int64)
    #: Whether the network has learnt from calls of `partial_fit` alone.
    _is_stream = False

    net_: XLCNet
    classes_: np.ndarray
    ranker_: Ranker | None
    decision_: Decision
    settings_: dict[str, Any]
    #: None before the first fit.
    _code: LabelCode = None  # type: ignore[assignment]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = vars(cls).get("__init__")
        if own is not None:
            own.__signature__ = joined_signature(own, super(cls, cls).__init__)
        if "{parameters}" in (cls.__doc__ or ""):
            cls.__doc__ = with_shared(cls, BaseXLCClassifier)

    def __init__(
        self,
        *,
        encoder: Any = "auto",
        loss: str | Loss = "auto",
        ranker: Any = "auto",
        decision: Any = "auto",
        optimizer: Any = "auto",
        learning_rate: Any = "auto",
        weight_decay: float = 0.0,
        batch_size: Any = "auto",
        max_epochs: Any = "auto",
        early_stopping: bool = False,
        validation_fraction: Any = 0.1,
        class_weight: Any = None,
        precision: str = "auto",
        callbacks: Any = None,
        checkpoint: Any = None,
        device: Any = "auto",
        warm_start: bool = False,
        random_state: Any = None,
        verbose: Any = 0,
    ) -> None:
        self.encoder = encoder
        self.loss = loss
        self.ranker = ranker
        self.decision = decision
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.class_weight = class_weight
        self.precision = precision
        self.callbacks = callbacks
        self.checkpoint = checkpoint
        self.device = device
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    # --- hooks of subclasses ----------------------------------------------------------------

    @abstractmethod
    def _build_head(self, task: HeadTask) -> Head:
        """Build the head for a task: sizes, loss and precision."""
        raise NotImplementedError(f"{type(self).__name__} defines no _build_head")

    def _check_task(self, code: LabelCode, Y: sp.csr_matrix) -> None:
        """Raise ValueError if parameters do not suit the labels with indicator `Y`."""

    def _loss_for(self, multilabel: bool) -> str | Loss:
        """Return the loss, a name or an object."""
        return self.loss

    def _head_part_for(self, settings: Settings, code: LabelCode) -> Any:
        """Return the head as a part, or the user's function; None: `_build_head` makes it."""
        return settings[self._head_parameter] if self._head_parameter else None

    def _head_class(self, head: Any, multilabel: bool) -> type[Head] | None:
        """Class of the head, from what `_head_part_for` returned; None: it is not known."""
        return None if head is None else head.head_for(multilabel)

    def _head_kind(self, head: Any) -> str:
        """Kind of the head, by which rules for "auto" know it."""
        return name_of_part(head, self._parts.get(self._head_parameter, {})) or "custom"

    def _further_facts(self, facts: Facts, code: LabelCode) -> Facts:
        """Add facts of this kind of classifier."""
        return facts

    def _order_labels(
        self, head: Any, data: TrainingData, rng: np.random.RandomState
    ) -> np.ndarray | None:
        """Return the position of each label in the head; None keeps the given order."""
        return None

    def _start_module(self, module: Any, rows: Rows, rng: np.random.RandomState) -> None:
        """Initialise buffers of a new module, such as label embeddings, from training samples."""

    def _start_beside(self, head: Head, rows: Rows, positions: torch.Tensor) -> None:
        """Initialise buffers of the head for labels added later."""

    def _reads_soft_labels(self, Y: sp.csr_matrix) -> bool:
        """Return whether `fit` takes :class:`SoftLabels` in place of the indicator `Y`."""
        return False

    # --- parameters -------------------------------------------------------------------------

    def set_params(self, **params: Any) -> Any:
        """Set parameters of the classifier and of its parts.

        Parameters
        ----------
        **params : dict
            Parameters. ``head__beam_width`` sets a parameter of a part; the name of a part is first
            replaced by an object.

        Returns
        -------
        self : object
            The classifier.

        Raises
        ------
        ValueError
            If there is no such parameter, or the part is "auto" or None.
        """
        made = nested_parts(self, self._parts, params)
        shared = BaseXLCClassifier
        trained = shared._parameter_constraints.keys() - shared._parts.keys() | {"optimizer"}
        with noting_unlearnt(self, trained):
            return super().set_params(**made)

    def _validate_params(self) -> None:
        """Raise if a parameter of the classifier or of a part is not valid."""
        super()._validate_params()
        check_parts(self, self._parts)

    # --- fit --------------------------------------------------------------------------------

    @fit_context(prefer_skip_nested_validation=True)
    @memory_explained("training", lambda self: f"{self._smaller_model()}, or a smaller batch_size")
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BaseXLCClassifier:
        """Fit encoder and head.

        An interrupt by the user (Ctrl-C) ends the training after the current step, with a warning;
        the model has the weights of that step. A second interrupt is raised, and so is one before
        the first step, after the last step, or within a search or an ensemble: `fit` then leaves
        the classifier as it was.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples. X may also hold strings or be a mapping of arrays, if the `encoder` accepts
            them. The type of the model depends on `precision`.
        y : array-like of shape (n_samples,), or {array-like, sparse matrix, dataframe} of shape \
                (n_samples, n_labels), or sequence of label sets
            Class labels of any type; or a 0/1 indicator of labels, where the columns of a frame
            are the labels; or tags: a list, array or column with a list, tuple, set or array of
            strings or integers per sample. Samples without any label and columns without any
            sample are allowed. A list of equally long lists of 0 and 1 is an indicator; other lists
            of lists of integers are tags.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the loss; only their ratios matter. Samples of weight zero
            are dropped first.

        Returns
        -------
        self : object
            Fitted classifier.

        Raises
        ------
        ValueError
            If a parameter, X, y or `sample_weight` is not valid. An earlier fit is then kept.
        OSError
            If a checkpoint cannot be written. Earlier ones are then kept, too.
        MemoryError
            If weights, gradients and optimiser state would not fit into memory.

        Warns
        -----
        UserWarning
            If the user interrupts the training.
        """
        with fitting(self) as processes:
            plan = self._planned(X, y, sample_weight, processes)
            rng = plan.begin()
            trainer = Trainer(plan).begin(rng)
            with second_network(plan, X, y, sample_weight, rng) as second:
                train, held = trainer.train()
            self._decide(plan, train, held, part=second())
            self._unlearnt = self._of_fit = {}
        return self

    def _planned(self, X: Any, y: Any, sample_weight: Any, processes: Alone) -> Plan:
        """Validate the samples, and return the plan of a fit."""
        going_on = self.warm_start and self._is_fitted
        if going_on:
            refuse_another_network(self)
        known, self._n_seen = self._code if going_on else None, 0
        data = self._validate_fit(X, y, sample_weight, known, reset=not going_on)
        data = split_by(self.validation_fraction, X, y, data)
        return Plan(self, data, going_on=going_on, processes=processes)

    @fit_context(prefer_skip_nested_validation=True)
    @memory_explained("training", lambda self: f"{self._smaller_model()}, or a smaller batch_size")
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> BaseXLCClassifier:
        """Train for one pass over a part of the data, at a constant learning rate.

        A pass takes the peak rates of a fit to all samples so far, and after a :meth:`fit` 0.3 of
        them, unless `learning_rate` or the optimiser gives rates. The network is trained in place:
        after an interrupt it keeps the steps taken so far. Before it trains, it lists the labels of
        the samples for the ranker, which learns from these lists when the number of samples has
        doubled, and then remembers the samples (see "Streams" in the documentation of rankers).

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,), or {array-like, sparse matrix, dataframe} of shape \
                (n_samples, n_labels), or sequence of label sets
            Class labels, an indicator of labels or tags, as in :meth:`fit`.
        classes : array-like of shape (n_classes,), default=None
            All classes or tags that will occur; required in the first call with class labels. A
            later call may name more than those in ``classes_``, which are then added; None adds
            none. They name the columns of an indicator, in their order.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the loss; only their ratios within a call matter.

        Returns
        -------
        self : object
            Classifier after the pass.

        Raises
        ------
        ValueError
            If `classes` is missing in the first call, lacks known labels in a later one, or adds
            some for which the output layer has no room; or if y holds labels outside of them.
        """
        with fitting(self) as processes:
            first = not self._is_fitted
            check_weights_of_part(self.class_weight)
            added = np.empty(0, np.int64) if first else later_labels.take_in(self, classes)
            code = None if first else self._code
            y = named_labels(y, code, classes, self._takes_counts)
            if first and not is_indicator(plain_sets(y)):
                code = code_of_first(self, classes)
            data = self._validate_fit(X, y, sample_weight, code, reset=first)
            plan = Plan(self, data, going_on=not first, one_pass=True, processes=processes)
            rng = plan.agreed_random_state()
            rng = np.random.RandomState((rng.randint(2**31 - 1) + getattr(self, "t_", 0)) % 2**32)
            train = Trainer(plan).partial_fit(added, rng)
            self._decide(plan, train, None)
        return self

    @fit_context(prefer_skip_nested_validation=True)
    @memory_explained("this", lambda self: "fewer samples, or a smaller working_memory")
    def recalibrate(
        self, X: Any = None, y: Any = None, *, ranker: Any = "keep", decision: Any = "keep"
    ) -> BaseXLCClassifier:
        """Learn ranker and decision anew, and leave the network as it is.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features), default=None
            Samples that the network has not seen: on training samples it is too sure. None: for a
            decision that is not learnt from samples, such as ``TopK(3)``; the ranker then stays.
        y : array-like, sparse matrix, dataframe or sequence of label sets, default=None
            Their labels, in any form that :meth:`fit` takes.
        ranker, decision : str, object or None, default="keep"
            New values of the parameters, which are set. "keep": as the parameters are. A decision
            that needs samples of its own (:class:`~sklearn_xlc.decisions.RiskControl`) gets all of
            them, and the ranker stays as it is; a new `ranker` gets half of them.

        Returns
        -------
        self : object
            The classifier.

        Raises
        ------
        ValueError
            If a part needs samples and there are none, or needs the training samples. The
            classifier is then as it was.
        """
        check_is_fitted(self, "net_")
        with fitting(self) as processes:
            recalibrate(self, X, y, {"ranker": ranker, "decision": decision}, processes)
        return self

    def _decide(self, plan: Plan, train: Rows, held: Rows | None, part: Any = None) -> None:
        """Fit ranker and decision, and describe the fit."""
        self._n_seen = plan.data.n_seen
        fit_decision(self, plan, train, held, part=part)
        self.settings_ = described(self, self.settings_ if plan.is_later else plan.settings.plain())

    def _validate_fit(
        self, X: Any, y: Any, sample_weight: Any, code: LabelCode | None, reset: bool = True
    ) -> TrainingData:
        warn_of_order(X, y, sample_weight)
        rows, code = validated(self._validate_X(X, reset), y, sample_weight, code, self.ranker)
        self._check_task(code, rows.Y)
        return training_data(self, rows, code, index_of(X), index_of(y))

    def _validate_X(self, X: Any, reset: bool) -> Any:
        X = validate_X(self, X, reset)
        if reset or X.dtype == object:
            return X
        return X.astype(numpy_dtype(self.net_.module_), copy=False)

    def _smaller_model(self) -> str:
        """Name the parameters to change for a smaller model, for messages."""
        return smaller_model(self)

    # --- predict ----------------------------------------------------------------------------

    @property
    def _is_fitted(self) -> bool:
        """Whether there is a trained network."""
        return hasattr(self, "net_")

    @property
    def _predictor(self) -> Predictor:
        """Return the predictor of the fitted network."""
        return predictor_of(self)

    def _validate_predict(self, X: Any) -> Rows:
        if not self._is_fitted:  # the check takes longer than most others of a sample alone
            check_is_fitted(self, "net_")
        self._unlearnt = warn_of_unlearnt(self._unlearnt)
        return X if isinstance(X, Rows) else Rows(validate_X(self, X, reset=False))

    @_explained
    def predict(self, X: Any) -> Any:
        """Predict class labels, or label sets.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        y : ndarray of shape (n_samples,), or {ndarray, CSR matrix, dataframe} of shape \
                (n_samples, n_labels), or sequence of label sets
            Best class of each sample; or the label sets that `decision` chooses: an indicator,
            dense or sparse as in `fit`, or an array of tags. If `fit` saw tags or a frame and X
            is a frame or series of pandas, a series or frame with the index of X.

        Raises
        ------
        MemoryError
            If a dense indicator would exceed ``get_config()["dense_limit"]``.
        """
        samples, code = self._validate_predict(X), self._code
        if not code.multilabel:
            return self.classes_[self._predictor.topk(samples, 1)[0][:, 0]]
        return code.give(decider_of(self).predict(samples), index_of(X))

    @_explained
    def predict_set(self, X: Any) -> Any:
        """Predict sets of class labels, or label sets, with a guarantee.

        With ``decision=RiskControl(alpha)`` the set of a new sample holds its class with
        probability at least ``1 - alpha``.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        sets : ndarray of shape (n_samples,) of lists, or as :meth:`predict`
            Class labels of each sample, in the order of ``classes_``: an array of lists, or a
            series if X is a frame or series of pandas. If `fit` saw label sets, the result of
            :meth:`predict`.

        Raises
        ------
        ValueError
            If the decision guarantees nothing.

        See Also
        --------
        sklearn_xlc.decisions.RiskControl : The decision, and what it guarantees.

        Examples
        --------
        >>> from sklearn_xlc import MultiHeadClassifier
        >>> from sklearn_xlc.datasets import make_extreme_multiclass
        >>> from sklearn_xlc.decisions import RiskControl
        >>> X, y = make_extreme_multiclass(600, 50, 10, random_state=0)
        >>> clf = MultiHeadClassifier(decision=RiskControl(0.2), max_epochs=2, random_state=0)
        >>> len(clf.fit(X[:500], y[:500]).predict_set(X[500:]))
        100
        """
        return predicted_sets(self, self._validate_predict(X), index_of(X))

    @_explained
    def predict_topk(
        self, X: Any, k: int | None = 5, proba: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the best k labels of each sample, without storing the scores of all labels.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        k : int or None, default=5
            Number of labels, at most the number of labels there are. None: 5, or all of fewer.
        proba : bool, default=False
            Whether to return probabilities in place of scores, as :meth:`predict_proba` does.

        Returns
        -------
        labels : ndarray of shape (n_samples, k)
            Labels, best first: entries of ``classes_``.
        scores : ndarray of shape (n_samples, k)
            Their scores, on the scale of :meth:`decision_function`, or their probabilities.

        Raises
        ------
        ValueError
            If `k` is not between 1 and the number of labels, or `proba` is set and the loss defines
            no probabilities.
        MemoryError
            If labels and scores would exceed ``get_config()["dense_limit"]``.

        See Also
        --------
        sklearn_xlc.predict_topk : The same through pipelines and searches.
        """
        X, k = self._validate_predict(X), self._predictor.check_k(k)
        ids, scores = self._predictor.checked_topk(X, k, self.classes_.dtype, proba=proba)
        return self.classes_[ids], scores

    @_explained
    def predict_topk_sparse(self, X: Any, k: int | None = 5) -> sp.csr_matrix:
        """Compute scores of the best k labels of each sample, as a sparse matrix.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        k : int or None, default=5
            Number of labels, as in :meth:`predict_topk`.

        Returns
        -------
        scores : CSR matrix of shape (n_samples, n_labels)
            Exactly k stored entries per row, in the order of the columns.

        Raises
        ------
        MemoryError
            If the entries would exceed ``get_config()["dense_limit"]``.
        """
        return self._predictor.topk_sparse(self._validate_predict(X), self._predictor.check_k(k))

    def _ranks_sets(self) -> bool:
        """Return whether the head ranks whole label sets; before `fit`, whether it may."""
        return self._is_fitted and self.net_.module_.head.ranks_sets

    @available_if(lambda self: self._ranks_sets())
    @_explained
    def predict_topk_sets(self, X: Any, k: Any = 5) -> tuple[list[sp.csr_matrix], np.ndarray]:
        """Find the best k label sets of each sample, exactly.

        Available with ``head="product"`` of ``MultiHeadClassifier``, fitted on an indicator: this
        head models the probability of whole label sets.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        k : int or None, default=5
            Number of label sets, at most ``2**n_labels``. None: 5, or all of fewer.

        Returns
        -------
        sets : list of k CSR matrices of shape (n_samples, n_labels)
            Indicator of the best set of each sample, of the second best set, and so on. Columns
            are the labels in ``classes_``.
        scores : ndarray of shape (n_samples, k)
            Log probabilities of the sets; sums over the heads if the loss has no probabilities.

        Raises
        ------
        ValueError
            If `k` is not between 1 and the number of label sets.
        MemoryError
            If the scores would exceed ``get_config()["dense_limit"]``.
        """
        return self._predictor.topk_sets(self._validate_predict(X), k)

    @available_if(compares_sets)
    def predict_label_set_scores(self, X: Any) -> np.ndarray:
        """Compute the distances of the predicted and of the second best label set.

        Available for the decisions "divergence", "nearest" and "seen", and for your own decisions
        with a method `distances`.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        distances : ndarray of shape (n_samples, 2)
            Distances of the predicted and of the second best label set: Kullback-Leibler
            divergences for "divergence", squared Euclidean distances for "nearest" and "seen". The
            closer the two, the less certain the prediction.

        Raises
        ------
        ValueError
            If the classifier was fitted on class labels.
        """
        return decider_of(self).distances(self._validate_predict(X))

    @_explained
    def decision_function(self, X: Any) -> np.ndarray:
        """Compute scores of every label.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_labels), or (n_samples,) for two classes
            Multi-label: log odds of each label, or log probabilities up to a constant per sample
            with a softmax. Multi-class: log probabilities up to a constant per sample. Two classes:
            the difference of their scores. The order is that of :meth:`predict_topk`.

        Raises
        ------
        MemoryError
            If the result would exceed ``get_config()["dense_limit"]``; use :meth:`predict_topk`.
        """
        X = self._validate_predict(X)
        scores = self._predictor.dense(X, self._predictor.all_scores)
        if not self._code.multilabel and scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    def _has_probabilities(self) -> bool:
        """Return whether scores give probabilities; before `fit`, whether they may."""
        return not self._is_fitted or self.net_.module_.head.link is not None

    @available_if(lambda self: self._has_probabilities())
    @_explained
    def predict_proba(self, X: Any) -> np.ndarray:
        """Compute probabilities of every label.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_labels)
            Multi-class: rows sum to one. Multi-label: each label has a probability of its own,
            corrected by `ranker_` if that is not None; with a softmax rows sum to one.

        Raises
        ------
        MemoryError
            If the result would exceed ``get_config()["dense_limit"]``; use :meth:`predict_topk`.
        """
        X = self._validate_predict(X)
        return self._predictor.dense(X, self._predictor.all_probabilities)

    @available_if(lambda self: self._has_probabilities())
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Compute logarithms of the probabilities of every label.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_labels)
            Logarithms of :meth:`predict_proba`; minus infinity of a probability rounded to zero.

        Raises
        ------
        MemoryError
            If the result would exceed ``get_config()["dense_limit"]``; use :meth:`predict_topk`.
        """
        found = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            return np.log(found, out=found)  # type: ignore[no-any-return]

    @_explained
    def transform(self, X: Any) -> np.ndarray:
        """Compute features of samples with the encoder.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        features : ndarray of shape (n_samples, n_features_out)
            Output of the encoder.
        """
        return self._predictor.dense_features(self._validate_predict(X), self._n_features_out)

    @_explained
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the precision at 1 of label sets, or the accuracy of class labels.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,), or {array-like, sparse matrix, dataframe} of shape \
                (n_samples, n_labels), or sequence of label sets
            True labels, in any form that :meth:`fit` takes; tags not seen in `fit` are never
            predicted.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.

        Returns
        -------
        score : float
            Share of the samples whose best label is one of theirs.

        See Also
        --------
        sklearn_xlc.metrics.topk_scorer : Scorers of label sets, for model selection.
        sklearn.metrics.accuracy_score : Share of the samples whose whole label set is predicted.
        """
        warn_of_order(X, y, sample_weight)
        return self._score_of(self._validate_predict(X), self._truth(y), sample_weight)

    @property
    def _kind_of_tags(self) -> str:
        """Kind of the type of the tags that `fit` saw; "" if it saw none. Scorers read y by it."""
        return self._code.kind_of_tags

    def _truth(self, y: Any) -> Any:
        return true_labels_of(y, self._code)

    def _score_of(self, samples: Any, truth: Any, sample_weight: Any) -> float:
        sample_weight = check_weight(sample_weight, _num_samples(truth))
        best = self._predictor.topk(samples, 1)[0]
        if self._code.multilabel:
            return precision_at_k(truth, best, 1, sample_weight=sample_weight)
        found = self.classes_[best[:, 0]]
        return float(accuracy_score(truth, found, sample_weight=sample_weight))

    # --- labels -----------------------------------------------------------------------------

    def remove_labels(self, labels: Any) -> Any:
        """Remove labels and their weights from the model.

        Scores of the other labels stay the same, bit for bit; a softmax is normalised over the
        remaining labels. Labels added by :meth:`partial_fit` reuse the positions of removed labels.
        If several processes hold parts of a model, all call this method.

        Parameters
        ----------
        labels : array-like of shape (n,)
            Labels in ``classes_``.

        Returns
        -------
        self : object
            Classifier without these labels.

        Raises
        ------
        ValueError
            If a label is not in ``classes_``, if too few would be left, or if the output layer
            cannot leave one out ("product" on label sets, whose outputs are sets of labels). The
            classifier is then as it was.
        """
        check_is_fitted(self, "net_")
        later_labels.remove(self, labels)
        return self

    def forget(self, ids: Any = None) -> Any:
        """Let the ranker forget training samples.

        They are in no list and no explanation any more. The network, and the trees of the ranker,
        keep what they have learnt of them: fit again without the samples to remove that, too.

        Parameters
        ----------
        ids : array-like of shape (n_samples,) or a single id, default=None
            Ids of the samples: entries of the index of X or y in `fit` or `partial_fit`, other than
            the default one of pandas; else positions in X of `fit`, continued in `partial_fit`.
            Entries other than integers and strings, such as dates, are strings here. None: all
            samples. The ranker then becomes the :class:`~sklearn_xlc.ranking.Calibration` of the
            network's scores that was fitted with it, and a file of the classifier holds no training
            sample.

        Returns
        -------
        self : object
            The classifier.

        Raises
        ------
        ValueError
            If the ranker remembers no samples, or not one of these. The classifier is then as it
            was.

        See Also
        --------
        sklearn_xlc.explain_topk : Names the training samples behind a label.

        Notes
        -----
        The decision stays as it is. Without any samples a tuned threshold fits a little less well:
        micro-F1 of `predict` fell by 0.2 and 0.8 points on `bibtex` (two seeds) and by 0.5 and 0.8
        on `debtags`; a classifier with ``ranker="calibration"``, whose threshold is tuned for it,
        was within 0.5 points of that. :meth:`recalibrate` tunes it again on new samples.

        Examples
        --------
        >>> from sklearn_xlc import MultiHeadClassifier
        >>> from sklearn_xlc.datasets import make_extreme_multilabel
        >>> X, Y = make_extreme_multilabel(600, 100, 20, random_state=0)
        >>> clf = MultiHeadClassifier(ranker="boosted", max_epochs=2, random_state=0).fit(X, Y)
        >>> type(clf.forget([3, 17]).ranker_).__name__
        'BoostedRanker'
        >>> type(clf.forget().ranker_).__name__
        'Calibration'
        """
        check_is_fitted(self, "net_")
        forget(self, ids)
        return self

    @property
    def label_order_(self) -> np.ndarray:
        """Position of each label in the head."""
        check_is_fitted(self, "net_")
        return self._code.label_order

    @property
    def threshold_(self) -> Any:
        """Threshold as a probability, if the decision is a threshold."""
        check_is_fitted(self, "net_")
        return self.decision_.threshold_  # type: ignore[attr-defined]

    # --- scikit-learn -----------------------------------------------------------------------

    def _html_repr(self) -> str:
        """Return scikit-learn's HTML representation, with the settings after `fit` below it."""
        return estimator_html_repr(self) + settings_table(getattr(self, "settings_", {}))

    _doc_link_module = LinksToDocs._doc_link_module
    _doc_link_template = LinksToDocs._doc_link_template
    _doc_link_url_param_generator = LinksToDocs._doc_link_url_param_generator

    def __sklearn_clone__(self) -> Any:
        """Clone; copy callbacks as `fit` does, since open files and locks cannot be copied."""
        bare: BaseXLCClassifier = object.__new__(type(self))
        bare.__dict__ = {**vars(self), "callbacks": None}
        cloned = super(BaseXLCClassifier, bare).__sklearn_clone__()
        cloned.callbacks = copies_of(self.callbacks)
        return cloned

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        accepts = accepted_forms(encoder_part(self.encoder))
        tags.input_tags.two_d_array = tags.input_tags.sparse = bool({"dense", "csr"} & set(accepts))
        tags.input_tags.string = "text" in accepts
        tags.input_tags.dict = "mapping" in accepts
        tags.classifier_tags.multi_label = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __reduce_ex__(self, protocol: Any) -> Any:
        with carrying_whole():  # within `save`, the state of an estimator may hold a pickle
            return super().__reduce_ex__(protocol)

    def __getstate__(self) -> dict[str, Any]:
        return state_of(dict(super().__getstate__()))

    def __setstate__(self, state: dict[str, Any]) -> None:
        attributes, module = classifier_of(self, state)
        super().__setstate__(attributes)
        if module is not None:
            with usual_modes(training=True):
                self.net_ = restored_net(module, self.device)
