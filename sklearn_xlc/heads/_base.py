"""Base class of heads, and weights of samples."""

from __future__ import annotations

import copy
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sklearn_xlc._bounds import check_integer
from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc._part import Part, called, cloned, named_by, named_part, refuse_unusable
from sklearn_xlc.batches import Bags, Targets, features_of
from sklearn_xlc.codes import MAX_HEADS, MixedRadix, head_lengths
from sklearn_xlc.heads._whole import WHOLE, ShardOf, Whole, whole
from sklearn_xlc.heads.losses import LOSSES, Labels, Loss, PointwiseLoss, RowwiseLoss

#: ``update(parameter, rows, gradient)`` applies one optimiser step to ``parameter[rows]``.
Update = Callable[[nn.Parameter, slice | Tensor, Tensor], None]

#: Chunks of labels are so many times larger on a GPU, which launches a kernel in the time of
#: millions of products.
ON_GPU = 16

_LINKS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda scores: scores.softmax(1),
    # Clipped: float32 rounds a sigmoid to one from 17 on.
    "sigmoid": lambda scores: scores.sigmoid().clamp(1e-7, 1 - 1e-7),
    "exp": torch.exp,
}


class Head(nn.Module, ABC):
    """Base class of heads. A head owns the output space and knows nothing of scikit-learn.

    To write one, define three methods:

    - :meth:`loss_of` features, targets and weights of samples, a differentiable scalar;
    - :meth:`topk`, the best labels and their scores, where equal scores rank by position
      (:func:`topk_by_position` and :func:`topk_of_chunks` see to it);
    - :meth:`scores` of every label;

    and set `link`, the function from scores to probabilities. The other methods have defaults. If
    the logits of a label depend on its own weights only, subclass :class:`ChunkedHead` instead: it
    needs two methods, and works with every loss.

    Parameters
    ----------
    n_features : int
        Width of the encoder's output.
    n_labels : int
        Number of labels; positions run from 0 to ``n_labels - 1``.
    multilabel : bool
        Whether a sample may hold any number of labels, or exactly one.

    Attributes
    ----------
    link : {"softmax", "sigmoid", "exp", None}
        Function from `scores` to probabilities; None: there is none. With "sigmoid", a label with a
        positive score is predicted.
    offers : tuple of str
        Inputs of losses beyond logits (`needs` of a loss): "digits", "cosines", "rows" (all logits
        and targets of a row, as label smoothing needs).
    searches_all : bool, default=True
        Whether :meth:`topk` compares all labels. False: it searches some of them, and
        :meth:`scores` may find better ones.
    leaves_out : bool, default=False
        Whether positions may hold no label (`free`). Losses and rankings ignore such positions.
    free : tensor of bool of shape (n_labels,), or None
        Positions without a label, such as those of removed labels. None: all hold one.

    Examples
    --------
    A head that scores labels by the distance to their prototypes:

    >>> import torch
    >>> from sklearn_xlc.batches import Targets
    >>> from sklearn_xlc.heads import Head, row_weights, topk_by_position
    >>> class PrototypeHead(Head):
    ...     link = "softmax"
    ...     def __init__(self, n_features, n_labels, multilabel):
    ...         super().__init__(n_features, n_labels, multilabel)
    ...         self.prototypes = torch.nn.Parameter(torch.randn(n_labels, n_features))
    ...     def loss(self, features, targets, sample_weight=None, update=None):
    ...         surprise = -self.scores(features).log_softmax(1)[targets.rows, targets.ids]
    ...         return row_weights(sample_weight, features)[targets.rows] @ surprise
    ...     def topk(self, features, k):
    ...         return topk_by_position(self.scores(features), k)
    ...     def scores(self, features):
    ...         return -torch.cdist(features, self.prototypes)
    >>> head = PrototypeHead(n_features=4, n_labels=10, multilabel=False)
    >>> targets = Targets(torch.tensor([0, 1, 2]), torch.tensor([7, 3]))
    >>> head.loss(torch.zeros(2, 4), targets).shape
    torch.Size([])
    """

    link: str | None = None
    offers: ClassVar[tuple[str, ...]] = ()
    #: Classes of losses that can train the head, and whether these may have parameters per label.
    kinds_of_loss: ClassVar[tuple[type[Loss], ...]] = (PointwiseLoss, RowwiseLoss)
    per_label_losses: ClassVar[bool] = True
    searches_all: bool = True
    leaves_out: ClassVar[bool] = False
    #: Whether `topk_sets(features, k)` ranks whole label sets.
    ranks_sets: ClassVar[bool] = False
    #: Whether scores are products of :meth:`layer_inputs` and rows of weights, plus biases;
    #: `classifier(like, labels)` then returns the rows, in the type and on the device of a tensor.
    is_linear: ClassVar[bool] = False
    #: Whether all pairs of rows of a linear last layer have exactly the same angle.
    is_simplex: Any = False
    classifier: Any
    #: Losses for "auto", by whether targets are multi-label.
    auto_losses: ClassVar[Mapping[bool, str]] = {True: "bce", False: "ce"}
    #: Loss that :meth:`resolve_loss` returned, if the head has one: of a class that it accepts.
    criterion: Any
    #: Why ONNX cannot express the head; empty: it can.
    _no_graph: ClassVar[str] = ""
    #: Rows in this process of tables with a row for each label.
    shard: Whole = WHOLE

    #: Arguments of the constructor, by position and by name: a saved head is built again by them.
    made_with: tuple[list[Any], dict[str, Any]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _remembering(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, n_features: int, n_labels: int, multilabel: bool) -> None:
        super().__init__()
        vars(self).setdefault("made_with", ([n_features, n_labels, multilabel], {}))
        self.n_features = check_integer(n_features, "n_features")
        self.n_labels = check_integer(n_labels, "n_labels")
        self.multilabel = multilabel

    @classmethod
    def accepts(cls, kind: type[Loss], multilabel: bool) -> bool:
        """Return whether the head can train with a class of loss on such targets."""
        known = issubclass(kind, cls.kinds_of_loss) and kind.needs in ("", *cls.offers)
        known = known and (cls.per_label_losses or not kind.per_label)
        return known and _task(multilabel) in kind.tasks

    @classmethod
    def resolve_loss(cls, loss: str | Loss, multilabel: bool, where: str = "") -> Loss:
        """Return the loss to train with: a copy of `loss`, or a new loss of that name.

        "auto" is that of `auto_losses`. ValueError, which lists the losses of the head, if it
        cannot train with `loss`; `where` names the head there, "" its class.
        """
        where = where or cls.__name__
        found = named_part(cls.auto_losses[multilabel] if loss == "auto" else loss, LOSSES)
        if not (isinstance(found, Loss) and cls.accepts(type(found), multilabel)):
            known = {name for name, kind in LOSSES.items() if cls.accepts(kind, multilabel)}
            raise ValueError(
                f"loss={loss!r} is not defined for {where} with {_task(multilabel)} y; use one of "
                f"{sorted({'auto', *known})}, or an object of their kind"
            )
        if found.smoothing and "rows" not in cls.offers:
            raise ValueError(
                f"{where} cannot smooth labels, got loss={loss!r} with smoothing="
                f"{found.smoothing}; use a head with one output per label, such as 'flat'"
            )
        return copy.deepcopy(found)

    def fused_parameters(self) -> list[nn.Parameter]:
        """Return the parameters updated by :meth:`loss` if `update` is given."""
        return []

    def row_parameters(self) -> list[nn.Parameter]:
        """Return the parameters with row-sparse gradients in :meth:`loss`."""
        return []

    def sharded_parameters(self) -> dict[nn.Parameter, Any]:
        """Return the parameters split over processes, each with its shard."""
        return self.shard.of(self.fused_parameters() or self.row_parameters())

    def take_shards(self, shard_of: ShardOf) -> None:
        """Set the rows in this process of each table; the caller cuts whole parameters.

        ``shard_of(n_labels, unit)`` returns the rows in this process of a table with a row for each
        `unit` neighbouring labels.
        """

    def forget_shards(self) -> None:
        """Become a head of one process, after all rows are in the parameters."""
        vars(self).pop("shard", None)

    def bias_columns(self) -> list[tuple[nn.Parameter, int, int]]:
        """Return each parameter with biases beside weights, length of a row and column of the bias.

        Biases lose more by rounding than weights: `save` and `compress` keep them exact.
        """
        return []

    def bytes_per_row(self, k: int | None = None) -> int:
        """Estimate the bytes per sample of :meth:`topk`, or of :meth:`scores` without k.

        The estimate includes the result. Prediction chooses its batch size by it.
        """
        return self._itemsize * (4 * self.n_labels + 6 * (k or 0))

    @property
    def _itemsize(self) -> int:
        """Return the size of the head's numbers, in bytes."""
        return next(self.parameters(), torch.zeros(())).element_size()

    def _on_device(self, size: int) -> int:
        """Return the size of a chunk of labels on the head's device, from that on a CPU."""
        parameter = next(self.parameters(), None)
        return size if parameter is None or parameter.is_cpu else ON_GPU * size

    def set_prior(self, frequency: Tensor) -> None:
        """Initialise from label frequencies: share of the samples with each label, (n_labels,)."""

    # --- labels that come later, or go ------------------------------------------------------

    def _others(self, positions: Tensor) -> Tensor:
        """Return the mask of the labels at other positions."""
        others = torch.ones(self.n_labels, dtype=torch.bool, device=positions.device)
        others[positions] = False
        return others if self.free is None else others & ~self.free

    @property
    def free(self) -> Tensor | None:
        """Mask of the positions without a label; None: all hold one."""
        # Registered by `set_free` alone: heads whose labels never change have no such state.
        return self._buffers.get("_free")

    def set_free(self, free: Tensor) -> None:
        """Set the mask of the positions without a label."""
        self.register_buffer("_free", free if free.any() else None)

    def _labelled(self, logits: Tensor, labels: Labels, empty: float = -torch.inf) -> Tensor:
        """Fill logits, or their losses, with `empty` at the positions without a label."""
        free = self.free
        return logits if free is None else logits.masked_fill(free[labels], empty)

    def label_rows(self) -> list[tuple[Tensor, int]]:
        """Return the parameters with one row a label, and the row's length.

        Row p of ``parameter.view(-1, length)`` belongs to position p. Removed labels have zeros.
        """
        return []

    def room_for(self, n_labels: int) -> list[tuple[Tensor, Tensor]]:
        """Return the parameters and buffers to enlarge for more labels, with each row's origin.

        Along the first axis, row i of the enlarged tensor is row ``origin[i]`` of the present one;
        -1: a new row. Scores of present labels must not change. The base class appends rows to the
        parameters of :meth:`label_rows`.
        """
        parameters = [parameter for parameter, _ in self.label_rows()]
        if not parameters or any(len(p) != self.n_labels for p in parameters):
            raise ValueError(self._no_room(n_labels, "does not name rows in `label_rows`"))
        n_more = n_labels - self.n_labels
        return [(p, origins(self.n_labels, n_more, p.device)) for p in parameters]

    def _no_room(self, n_labels: int, why: str) -> str:
        return (
            f"{type(self).__name__} has room for {self.n_labels} labels and none for "
            f"{n_labels - self.n_labels} more: it {why}; name all labels in the first call of "
            "partial_fit (`classes=`), or fit anew"
        )

    def set_n_labels(self, n_labels: int) -> None:
        """Set the number of labels, after the tensors of :meth:`room_for` are enlarged."""
        self.n_labels = n_labels

    def check_filled(self, n_columns: int | None) -> None:
        """Raise ValueError if tensors of a file do not fit.

        Those that :meth:`__init__` makes have their shapes by then; here a head checks others.
        `n_columns`: columns of X, if it has any.
        """

    def start_labels(self, positions: Tensor, frequency: Tensor) -> None:
        """Initialise labels at `positions`; their rows are zeros.

        `frequency`, of shape (n_labels,), has the share of samples with each label.
        """

    def imprint_labels(self, positions: Tensor, means: Tensor, mean: Tensor) -> None:
        """Turn new labels at `positions` towards their first samples; by default not at all.

        `means`, of shape (len(positions), n_features), are the mean features of the samples with
        each label (NaN: there are none), and `mean` those of all samples. Called after
        :meth:`start_labels`.
        """

    def loss(
        self,
        features: Tensor,
        targets: Targets,
        sample_weight: Tensor | None = None,
        update: Update | None = None,
    ) -> Tensor:
        """Compute the mean loss of a batch: ``sum(weight * loss of the sample) / n_rows``.

        Weights have mean one over all training samples, not over the batch. The influence of a
        sample does not depend on the other samples of its batch (:func:`row_weights`).

        With `update`, the loss takes the optimiser step of the :meth:`fused_parameters` before it
        returns, and has a gradient for everything else. Without it, the loss is a differentiable
        function of features and all parameters. Before a head updates parameters, it calls
        :func:`check_finite` on its loss: a step with a loss of NaN changes nothing.

        A head without parameters that it updates itself defines :meth:`loss_of` instead.
        """
        return self.loss_of(features, targets, row_weights(sample_weight, features))

    def loss_of(self, features: Tensor, targets: Targets, weights: Tensor) -> Tensor:
        """Compute the loss of a batch with the `weights` of its samples, as a sum over them.

        It is a differentiable function of features and all parameters.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither loss nor loss_of")

    @abstractmethod
    def topk(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return scores and positions of the k best labels, both (n_rows, k), best first.

        Among labels with equal scores, the lower position comes first.
        """

    @abstractmethod
    def scores(self, features: Tensor) -> Tensor:
        """Compute the scores of every label, of shape (n_rows, n_labels)."""

    def _candidates(self, features: Tensor, k: int) -> tuple[Tensor, Tensor | None]:
        """Return scores with the k best among them, and their positions; None: all labels."""
        return self.scores(features), None

    def _for_graph(self, k: int) -> Head:
        """Return a copy with the same weights that computes :meth:`_candidates` in ONNX operators.

        Raise TypeError, with the reason, if there is none.
        """
        why = self._no_graph
        if not (why or self.searches_all):
            why = "its best labels are not those of its scores"
        if why:
            raise TypeError(f"to_onnx cannot express the head {type(self).__name__}: {why}")
        return copy.copy(self)

    def scores_at(self, features: Tensor, positions: Tensor) -> Tensor:
        """Compute scores at `positions`, both (n_rows, k), differentiable by the features.

        Explanations use the gradient. The base class computes the scores of all labels.
        """
        return self.scores(features).gather(1, positions)

    def label_vectors(self) -> Tensor:
        """Return a vector of each label, (n_labels, d); similar vectors give similar scores.

        The base class returns the weights of a linear last layer.
        """
        if not self.is_linear:
            raise TypeError(f"{type(self).__name__} has no vector for each label")
        vectors: Tensor = self.classifier(next(self.parameters()))
        return vectors

    def layer_inputs(self, features: Tensor) -> Tensor:
        """Return the inputs of the last layer: the features, or a transform of them."""
        return features

    def layer_products(self, inputs: Tensor) -> Tensor:
        """Multiply inputs with the weights of a linear last layer, without biases."""
        labels = self.shard.labels(self.n_labels)
        return self.shard.joined_columns(inputs @ self.classifier(inputs, labels).T)

    def probabilities(self, scores: Tensor) -> Tensor:
        """Compute the probabilities of all labels from their scores, if `link` is not None."""
        if self.link is None:
            raise ValueError(f"{type(self).__name__} defines no probabilities: its link is None")
        return _LINKS[self.link](scores)


def _task(multilabel: bool) -> str:
    return "multi-label" if multilabel else "multi-class"


def _remembering(init: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor of heads; it stores the arguments of the outermost call."""

    @functools.wraps(init)
    def remembering(self: Head, *args: Any, **params: Any) -> None:
        kept = {name: value for name, value in params.items() if name != "shard_of"}  # saved whole
        vars(self).setdefault("made_with", (list(args), kept))
        init(self, *args, **params)

    return remembering


@dataclass(frozen=True)
class HeadTask:
    """Sizes and settings for building a head.

    Parameters
    ----------
    n_features, n_labels, multilabel : int, int and bool
        As of :class:`Head`.
    loss : str or Loss, default="auto"
        Loss to train with.
    precision : {"float32", "bfloat16"}, default="float32"
        Precision of matrix products in training.
    memory_limit : int, default=2**30
        Limit in bytes of temporary logits.
    n_members : int, default=1
        Number of networks in the encoder, trained side by side.
    shard_of : callable, default=whole
        Returns the rows of a table in this process, as :meth:`Head.take_shards` reads it.
    """

    n_features: int
    n_labels: int
    multilabel: bool
    loss: str | Loss = "auto"
    precision: str = "float32"
    memory_limit: int = 2**30
    n_members: int = 1
    shard_of: ShardOf = whole

    @property
    def size(self) -> tuple[int, int, bool]:
        """Arguments common to all heads: n_features, n_labels, multilabel."""
        return self.n_features, self.n_labels, self.multilabel

    def build(self, kind: Any, **params: Any) -> Any:
        """Build a head from what its constructor names of the task, and from `params`."""
        return kind(**{**named_by(kind, vars(self)), **params})


class HeadPart(Part):
    """Base class of heads as parameters: a part checks its values and builds a :class:`Head`.

    A subclass names its parameters in ``__init__``, and sets `head`. It defines :meth:`build` where
    parameters of the head have other names, or come from elsewhere.

    Attributes
    ----------
    head : type of Head
        Class of the built head.
    tasks : tuple of str, default=("multi-class", "multi-label")
        Tasks that the head can train for.
    takes_members : bool, default=False
        Whether :meth:`build` reads `n_members` of the task.
    takes_soft_labels : bool, default=False
        Whether the head can learn from probabilities of labels.
    """

    head: ClassVar[type[Head]]
    tasks: ClassVar[tuple[str, ...]] = ("multi-class", "multi-label")
    takes_members: ClassVar[bool] = False
    takes_soft_labels: ClassVar[bool] = False
    label_order: Any = "given"
    #: Whether the head can be built without weights, to say how much memory it takes.
    is_planned: ClassVar[bool] = True

    def head_for(self, multilabel: bool) -> type[Head] | None:
        """Return the class of the head for class labels, or for label sets; None: not known."""
        return self.head

    def check_task(self, n_labels: int, multilabel: bool, loss: str | Loss) -> None:
        """Raise ValueError, before training, if parameters or loss do not suit the labels."""
        if _task(multilabel) not in self.tasks:
            needed, given = "exactly one label per sample (1-D y)", "label sets"
            if not multilabel:
                needed, given = (
                    "label sets (an indicator or lists of labels)",
                    "one class per sample",
                )
            raise ValueError(
                f"head={type(self).__name__}() needs {needed}, but y holds {given}; use "
                "head='flat' or 'cascade'"
            )
        self.check()
        self.check_loss(multilabel, loss)
        self.for_labels(n_labels, multilabel)

    def check_loss(self, multilabel: bool, loss: str | Loss) -> None:
        """Raise ValueError if the head cannot train with a loss."""
        kind = self.head_for(multilabel)
        if kind is not None:
            kind.resolve_loss(loss, multilabel, f"head={type(self).__name__}()")

    def for_labels(self, n_labels: int, multilabel: bool) -> HeadPart:
        """Return a part with values resolved for the labels, such as lengths."""
        return self

    def order_lengths(self, multilabel: bool) -> tuple[int, ...]:
        """Return the lengths for the order of labels; empty: there is no order to choose."""
        return ()

    def grown(self, head: Any) -> HeadPart:
        """Return the part of a head after labels were added."""
        return self

    def build(self, task: HeadTask) -> Head:
        """Build the head: its constructor names parameters of the part and of the task."""
        kind: Any = self.head_for(task.multilabel)
        if not named_by(kind, {"loss": task.loss}):
            own, asked = (kind.resolve_loss(each, task.multilabel) for each in ("auto", task.loss))
            if type(own) is not type(asked):
                raise ValueError(
                    f"head={type(self).__name__}() takes no loss; leave loss at 'auto', got "
                    f"loss={task.loss!r}"
                )
        return task.build(kind, **named_by(kind, self.get_params(deep=False)))


class GivenHead(HeadPart):
    """Head given as a class or function, with a loss of its own.

    Parameters
    ----------
    make : callable
        Returns a :class:`Head` for ``(n_features, n_labels, multilabel)``.
    """

    is_planned = False

    def __init__(self, make: Callable[[int, int, bool], Head]) -> None:
        self.make = make

    def head_for(self, multilabel: bool) -> type[Head] | None:
        return None

    def check_loss(self, multilabel: bool, loss: str | Loss) -> None:
        if loss != "auto":
            raise ValueError(
                f"head={self.make!r} has a loss of its own; leave loss at 'auto', got loss={loss!r}"
            )

    def build(self, task: HeadTask) -> Head:
        names = ("n_features", "n_labels", "multilabel")
        made = called("head", self.make, dict(zip(names, task.size)))
        if not isinstance(made, Head):
            raise TypeError(
                "head must be a function of (n_features, n_labels, multilabel) that returns a "
                f"sklearn_xlc.heads.Head, but it returned {type(made).__name__}"
            )
        return made


@dataclass(init=False, eq=False, repr=False)
class DigitPart(HeadPart):
    """Base class of heads as parameters, for heads over the digits of labels.

    Subclasses are data classes: `__init__` stores their fields, of which these are common to all.

    Attributes
    ----------
    n_heads : int, default=2
        Number of heads.
    lengths : sequence of int, default=None
        Number of outputs of each head; None: by `rule`.
    label_order : str or array-like of shape (n_labels,), default="given"
        Order of the labels in the code.
    """

    n_heads: int = 2
    _: KW_ONLY
    lengths: Any = None
    label_order: Any = "given"
    #: Rule of the default lengths, see :func:`sklearn_xlc.codes.head_lengths`.
    rule: ClassVar[str] = "descending"

    _parameter_constraints = {
        "n_heads": [Interval(Integral, 1, MAX_HEADS, closed="both")],
        "lengths": [None, "array-like"],
        "label_order": [StrOptions({"given", "random", "clustered"}), "array-like"],
    }

    def for_labels(self, n_labels: int, multilabel: bool) -> HeadPart:
        return self._with_lengths(self._lengths_for(n_labels, multilabel))

    def _lengths_for(self, n_labels: int, multilabel: bool) -> tuple[int, ...]:
        if self.lengths is None:
            return head_lengths(n_labels, self.n_heads, self.rule)
        return self._checked(MixedRadix, n_labels)

    def _checked(self, code: Callable[..., Any], n_labels: int) -> tuple[int, ...]:
        """Return the lengths of a code; raise if they do not cover the labels."""
        given = None
        if self.lengths is not None:
            given = tuple(np.atleast_1d(np.asarray(self.lengths, dtype=object)).tolist())
            if self.n_heads != len(given):
                why = "where lengths has another number of heads"
                refuse_unusable(self, {"n_heads": why})
        try:
            return code(n_labels, given).lengths
        except (TypeError, ValueError) as error:
            raise type(error)(f"lengths={given} is not valid: {error}") from error

    def _with_lengths(self, lengths: Sequence[int]) -> HeadPart:
        lengths = tuple(int(length) for length in lengths)
        return cloned(self).set_params(lengths=lengths, n_heads=len(lengths))

    def order_lengths(self, multilabel: bool) -> tuple[int, ...]:
        return self.lengths

    def grown(self, head: Any) -> HeadPart:
        return self._with_lengths(head.code.lengths)


def origins(n_rows: int, n_more: int, device: torch.device) -> Tensor:
    """Return the origins of kept rows and of appended ones (-1), for :meth:`Head.room_for`."""
    # Made on the CPU: a model is loaded on the meta device, where torch.where takes a second.
    rows = torch.arange(n_rows + n_more)
    return torch.where(rows < n_rows, rows, -1).to(device)


@torch.no_grad()
def draw_rows(table: Tensor, rows: Tensor, std: float) -> None:
    """Draw normal weights for some rows of a table."""
    new = table.new_empty(len(rows), *table.shape[1:])
    table[rows] = nn.init.normal_(new, std=std)


def row_weights(sample_weight: Tensor | None, features: Tensor | Bags) -> Tensor:
    """Compute the factor of each sample's loss in the mean loss of a batch.

    Parameters
    ----------
    sample_weight : tensor of shape (n_rows,) or None
        Weights whose mean over all training samples is one. None: all are one.
    features : tensor of shape (n_rows, ...), or Bags
        Batch with the dtype, device and number of rows of the result.

    Returns
    -------
    tensor of shape (n_rows,)
        Weights divided by the number of rows. They sum to one on average over batches, not in each:
        a batch with a heavy sample counts for more.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.heads import row_weights
    >>> row_weights(torch.tensor([0.5, 2.0]), torch.zeros(2, 5))
    tensor([0.2500, 1.0000])
    """
    if sample_weight is None:
        return features_of(features).new_full((len(features),), 1.0 / len(features))
    return (sample_weight / len(features)).to(features_of(features))


class HalfLinear(nn.Linear):
    """Linear layer by products of bfloat16 matrices in training; biases keep their precision."""

    def __init__(self, n_features: int, n_outputs: int, low_precision: bool) -> None:
        super().__init__(n_features, n_outputs)
        self.low_precision = low_precision

    def forward(self, features: Tensor) -> Tensor:
        if not (self.low_precision and self.training):
            return super().forward(features)
        products = F.linear(features.bfloat16(), self.weight.bfloat16())
        return products.to(features.dtype) + self.bias


def check_finite(loss: Tensor) -> None:
    """Raise if a loss is not finite; heads call it before they update their own weights.

    On a GPU nothing happens, because reading a number would wait for all queued work. There the
    optimiser skips updates by infinities or NaN, and training stops after the step.

    Parameters
    ----------
    loss : tensor of shape ()
        Loss of the labels so far.

    Raises
    ------
    FloatingPointError
        If it is infinite or NaN.
    """
    if loss.device.type == "cpu" and not math.isfinite(loss):
        raise FloatingPointError(f"the training loss became {float(loss)}")
