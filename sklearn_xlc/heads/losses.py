r"""Losses: functions of logits, independent of heads and of chunks of labels.

There are two kinds. A *pointwise* loss is a sum of independent losses of the labels. A *row-wise*
loss reads the normaliser of its row, the log-sum-exp over all labels. To write one, subclass
:class:`PointwiseLoss` or :class:`RowwiseLoss` and define its value; autograd provides the
derivatives, unless you do. Every head with a parameter `loss` then takes it.
"""

from __future__ import annotations

import copy
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sklearn_xlc._bounds import check_option, check_real
from sklearn_xlc._part import Parameters

#: Index of labels: a slice of positions, or the position of each logit.
Labels = slice | Tensor


class Loss(Parameters, nn.Module, ABC):
    """Base class of losses; subclass :class:`PointwiseLoss` or :class:`RowwiseLoss`.

    A loss is a module: its buffers (quantities of the labels) move between devices and are saved
    with the model.

    Attributes
    ----------
    link : {"sigmoid", "softmax", None}
        Function from logits to probabilities; None: there is none.
    needs_normaliser : bool
        Whether the loss of a label needs the log-sum-exp over its row, so that chunked heads make
        two passes.
    tasks : tuple of str
        Tasks of the loss: "multi-class" (one label per sample), "multi-label".
    per_label : bool
        Whether the loss has a parameter per label, in buffers set by :meth:`fit`. Heads whose
        outputs are nodes or digits, not labels, refuse such a loss.
    needs : str
        Input beyond the logit or log probability of a label, one of a head's `offers`. Empty: none.
    """

    link: ClassVar[str | None] = None
    needs_normaliser: ClassVar[bool] = False
    tasks: ClassVar[tuple[str, ...]] = ("multi-label",)
    per_label: ClassVar[bool] = False
    needs: ClassVar[str] = ""
    #: Label smoothing; pointwise losses have none.
    smoothing: float = 0.0

    def __init__(self) -> None:
        super().__init__()

    def __sklearn_clone__(self) -> Loss:
        return copy.deepcopy(self)

    def fit(self, label_counts: Tensor, n_samples: float) -> None:
        """Set buffers from weighted numbers of samples, by label (n_labels,) and in all, once."""

    @abstractmethod
    def prior(self, frequency: Tensor) -> Tensor:
        """Compute the initial logits of heads, (n_labels,), from label frequencies."""

    def extra_repr(self) -> str:
        """Format the constructor's parameters, read from attributes of the same names."""
        names = [name for name in inspect.signature(type(self)).parameters if hasattr(self, name)]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)


class PointwiseLoss(Loss):
    r"""Base class of sums over labels of a loss of the logit.

    With soft target y the loss of a logit is :math:`y\,\ell_1(z) + (1 - y)\,\ell_0(z)`. A subclass
    defines :meth:`negative` (:math:`\ell_0`) and :meth:`positive` (:math:`\ell_1`). The other
    methods follow, derivatives by autograd; override them with faster versions.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.heads import FlatHead, PointwiseLoss
    >>> class SquaredHinge(PointwiseLoss):
    ...     link = None
    ...     def negative(self, logits):
    ...         return (1 + logits).relu().square()
    ...     def positive(self, logits, labels):
    ...         return (1 - logits).relu().square()
    >>> FlatHead(4, 10, multilabel=True, loss=SquaredHinge()).criterion
    SquaredHinge()
    """

    link: ClassVar[str | None] = "sigmoid"

    def prior(self, frequency: Tensor) -> Tensor:
        return torch.logit(frequency.clamp(1e-7, 1 - 1e-3))

    @abstractmethod
    def negative(self, logits: Tensor) -> Tensor:
        """Compute the loss of logits with target 0, elementwise."""

    @abstractmethod
    def positive(self, logits: Tensor, labels: Labels) -> Tensor:
        """Compute the loss of logits with target 1, elementwise.

        ``buffer[labels]`` of a buffer of shape (n_labels,) broadcasts against `logits`.
        """

    def shared(self, weights: Tensor, rows: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weight of each row, (n_rows,), and the targets of the positives.

        `targets` and their `rows` are (n_positives,). A loss that changes them has "rows" in
        `needs`; by default both stay.
        """
        return weights, targets

    def negative_derivative(self, logits: Tensor) -> Tensor:
        """Compute the derivative of :meth:`negative`; may overwrite `logits`."""
        return _derivatives(self._negatives, logits)[1][0]

    def _negatives(self, logits: Tensor) -> Tensor:
        return _elementwise(self.negative(logits), logits, f"{type(self).__name__}.negative")

    def excess(self, logits: Tensor, targets: Tensor, labels: Labels) -> Tensor:
        """Compute the loss of logits with these targets, less the loss with target 0."""
        positive = self.positive(logits, labels)
        positive = _elementwise(positive, logits, f"{type(self).__name__}.positive")
        return targets * (positive - self._negatives(logits))

    def correction(self, logits: Tensor, targets: Tensor, labels: Labels) -> tuple[Tensor, Tensor]:
        """Compute value and derivative of :meth:`excess`."""
        value, (slope,) = _derivatives(lambda z: self.excess(z, targets, labels), logits)
        return value, slope

    def forward(self, logits: Tensor, targets: Tensor, labels: Labels = slice(None)) -> Tensor:
        """Compute the loss of logits with dense targets, elementwise and differentiable."""
        return self.negative(logits) + self.excess(logits, targets, labels)


class BinaryCrossEntropy(PointwiseLoss):
    r"""Binary cross-entropy of each label, :math:`\log(1 + e^z) - y z`.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.heads import BinaryCrossEntropy
    >>> BinaryCrossEntropy()(torch.tensor([0.0, 2.0]), torch.tensor([0.5, 1.0]))
    tensor([0.6931, 0.1269])
    """

    def negative(self, logits: Tensor) -> Tensor:
        return F.softplus(logits)

    def positive(self, logits: Tensor, labels: Labels) -> Tensor:
        return F.softplus(-logits)

    def negative_derivative(self, logits: Tensor) -> Tensor:
        return logits.sigmoid_()

    def excess(self, logits: Tensor, targets: Tensor, labels: Labels) -> Tensor:
        return -(targets * logits)

    def correction(self, logits: Tensor, targets: Tensor, labels: Labels) -> tuple[Tensor, Tensor]:
        slope = -targets
        return slope * logits, slope

    def forward(self, logits: Tensor, targets: Tensor, labels: Labels = slice(None)) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="none")


class AsymmetricLoss(PointwiseLoss):
    r"""Asymmetric loss: easy negatives count for less than easy positives [1]_.

    With :math:`p = \sigma(z)` and :math:`p_m = \max(p - m, 0)`, positives cost
    :math:`-(1 - p)^{\gamma_+} \log p` and negatives :math:`-p_m^{\gamma_-} \log(1 - p_m)`.

    Parameters
    ----------
    gamma_neg, gamma_pos : float, default=4.0 and 0.0
        Exponents :math:`\gamma_-` and :math:`\gamma_+`: the larger, the less easy negatives and
        positives count.
    clip : float, default=0.05
        Probability m up to which a negative costs nothing.

    References
    ----------
    .. [1] T. Ridnik et al. Asymmetric Loss for Multi-Label Classification. ICCV 2021.
    """

    def __init__(self, gamma_neg: float = 4.0, gamma_pos: float = 0.0, clip: float = 0.05) -> None:
        super().__init__()
        check_real(gamma_neg, "gamma_neg", 0)
        check_real(gamma_pos, "gamma_pos", 0)
        if check_real(clip, "clip", 0, 1) == 1:
            raise ValueError("clip must be below 1, where no negative would cost anything, got 1")
        self.gamma_neg, self.gamma_pos, self.clip = gamma_neg, gamma_pos, clip

    def negative(self, logits: Tensor) -> Tensor:
        if not self.clip:  # (1 - p) = sigmoid(-z) keeps its digits where p is almost 1
            return F.softplus(logits) * (-self.gamma_neg * F.softplus(-logits)).exp()
        # Above zero, so that a power below one has a finite derivative; below one, where rounding
        # swallows a tiny clip, so that the logarithm is finite.
        highest = 1 - torch.finfo(logits.dtype).eps
        shifted = (logits.sigmoid() - self.clip).clamp(1e-8, highest)
        return -shifted.pow(self.gamma_neg) * (-shifted).log1p()

    def positive(self, logits: Tensor, labels: Labels) -> Tensor:
        return F.softplus(-logits) * (-self.gamma_pos * F.softplus(logits)).exp()


class FocalLoss(AsymmetricLoss):
    r"""Focal loss: easy labels count for less, whether positive or negative [1]_.

    Positives cost :math:`-\alpha (1 - p)^\gamma \log p` and negatives
    :math:`-(1 - \alpha)\, p^\gamma \log(1 - p)`.

    Parameters
    ----------
    gamma : float, default=2.0
        Exponent: the larger, the less easy labels count.
    alpha : float or None, default=0.25
        Weight of positives, between 0 and 1. None: no weights.

    References
    ----------
    .. [1] T.-Y. Lin et al. Focal Loss for Dense Object Detection. ICCV 2017.
    """

    def __init__(self, gamma: float = 2.0, alpha: float | None = 0.25) -> None:
        super().__init__(check_real(gamma, "gamma", 0), gamma, 0.0)
        if alpha is not None:
            check_real(alpha, "alpha", 0, 1)
        self.gamma, self.alpha = gamma, alpha

    def negative(self, logits: Tensor) -> Tensor:
        weight = 1.0 if self.alpha is None else 1 - self.alpha
        return weight * super().negative(logits)

    def positive(self, logits: Tensor, labels: Labels) -> Tensor:
        weight = 1.0 if self.alpha is None else self.alpha
        return weight * super().positive(logits, labels)


class SquaredError(PointwiseLoss):
    r"""Half the squared distance of the logits from the targets (Eq. 18 of [1]_).

    The logits estimate probabilities themselves, so that :class:`~sklearn_xlc.MultiHeadClassifier`
    has none of its own.

    See Also
    --------
    PickAllSquaredError : The distance from the unit vector of each label of a sample.

    References
    ----------
    .. [1] D. Liang, H. Zhang, et al., "Multi-Head Encoding for Extreme Label Classification",
       section 5.1.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.heads import SquaredError
    >>> SquaredError()(torch.tensor([2.0, 0.5]), torch.tensor([0.0, 1.0]))
    tensor([2.0000, 0.1250])
    """

    link = None
    tasks = ("multi-class", "multi-label")

    def prior(self, frequency: Tensor) -> Tensor:
        return frequency

    def negative(self, logits: Tensor) -> Tensor:
        return logits.square() / 2

    def positive(self, logits: Tensor, labels: Labels) -> Tensor:
        return (1 - logits).square() / 2

    def negative_derivative(self, logits: Tensor) -> Tensor:
        return logits

    def excess(self, logits: Tensor, targets: Tensor, labels: Labels) -> Tensor:
        return targets * (0.5 - logits)

    def correction(self, logits: Tensor, targets: Tensor, labels: Labels) -> tuple[Tensor, Tensor]:
        return targets * (0.5 - logits), -targets


class PickAllSquaredError(SquaredError):
    r"""Half the squared distance of the logits from the unit vector of every label of a row [1]_.

    A row with labels S costs :math:`\frac12 \sum_{k \in S} \lVert z - e_k \rVert^2`. The squares of
    all its logits thus weigh as much as the row has labels. A label with soft target y counts y
    times. Rows without labels cost nothing. For heads with one output per label.

    Parameters
    ----------
    reduction : {"sum", "mean"}, default="sum"
        Whether the loss of a row is the sum over its labels, as in [1]_, or the mean.

    See Also
    --------
    PickAllLabels : The same reduction to single labels, with cross-entropy.

    References
    ----------
    .. [1] P. Li, X. Li, Y. Wang, Q. Qu. Neural Collapse in Multi-label Learning with
       Pick-all-label Loss. ICML 2024. Section 2.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.batches import Targets
    >>> from sklearn_xlc.heads import FlatHead, PickAllSquaredError
    >>> head = FlatHead(n_features=2, n_labels=3, multilabel=True, loss=PickAllSquaredError())
    >>> targets = Targets(torch.tensor([0, 2]), torch.tensor([0, 2]))  # a row with two labels
    >>> head.loss(torch.zeros(1, 2), targets).item()  # logits 0: distance 1 from either
    1.0
    """

    needs = "rows"

    def __init__(self, reduction: str = "sum") -> None:
        super().__init__()
        self.reduction = check_option(reduction, "reduction", "sum", "mean")

    def prior(self, frequency: Tensor) -> Tensor:
        return frequency / frequency.sum()

    def shared(self, weights: Tensor, rows: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        # sum_k y_k |z - e_k|^2 = m (|z|^2 + sum_k (y_k / m) (1 - 2 z_k)), where m = sum_k y_k
        mass = torch.zeros_like(weights).index_add(0, rows, targets)
        factor = mass if self.reduction == "sum" else (mass > 0).to(mass)
        return weights * factor, targets / mass[rows].clamp_min(torch.finfo(mass.dtype).tiny)


class PropensityBinaryCrossEntropy(BinaryCrossEntropy):
    r"""Binary cross-entropy, unbiased where true labels are missing at random.

    A true label l is annotated with its propensity
    :math:`p_l = 1 / (1 + C (N_l + b)^{-a})`, with :math:`C = (\log N - 1)(b + 1)^a`, estimated from
    N training samples of which :math:`N_l` hold l [1]_. An annotated label then costs
    :math:`\frac{1}{p_l} \log(1 + e^{-z}) + (1 - \frac{1}{p_l}) \log(1 + e^z)`, and any other
    :math:`\log(1 + e^z)`: in expectation this is the cross-entropy of the true labels.

    Parameters
    ----------
    a, b : float, default=0.55 and 1.5
        Constants of the propensity model, as in :func:`sklearn_xlc.metrics.propensities`.

    Notes
    -----
    The loss of an annotated label, :math:`\log(1 + e^z) - z / p_l`, falls without bound as z grows:
    a network that overfits its training samples gives ever larger logits to rare labels. Weight
    decay or `early_stopping` prevent this. Training also takes longer. On WordNet glosses PSP@1
    rises from 18.0% to 24.5%, and P@1 falls from 68.7% to 65.3%.

    References
    ----------
    .. [1] H. Jain, Y. Prabhu, M. Varma. Extreme Multi-label Loss Functions for Recommendation,
       Tagging, Ranking & Other Missing Label Applications. KDD 2016.
    """

    per_label = True
    inverse: Tensor

    def __init__(self, a: float = 0.55, b: float = 1.5) -> None:
        super().__init__()
        check_real(a, "a", 0, closed=False)
        check_real(b, "b", 0, closed=False)
        self.a, self.b = a, b
        self.register_buffer("inverse", torch.empty(0))  # inverse propensities

    def fit(self, label_counts: Tensor, n_samples: float) -> None:
        """Estimate the propensity of each label."""
        inverse = inverse_propensities(label_counts, n_samples, self.a, self.b)
        self.inverse = inverse.to(self.inverse)

    def prior(self, frequency: Tensor) -> Tensor:
        return super().prior(frequency * self._factors(slice(None)))

    def _factors(self, labels: Labels) -> Tensor:
        if not len(self.inverse):
            raise RuntimeError("propensities are unknown: call fit(label_counts, n_samples) first")
        return self.inverse[labels]

    def positive(self, logits: Tensor, labels: Labels) -> Tensor:
        return F.softplus(logits) - self._factors(labels) * logits

    def excess(self, logits: Tensor, targets: Tensor, labels: Labels) -> Tensor:
        return super().excess(logits, targets * self._factors(labels), labels)

    def correction(self, logits: Tensor, targets: Tensor, labels: Labels) -> tuple[Tensor, Tensor]:
        return super().correction(logits, targets * self._factors(labels), labels)

    def forward(self, logits: Tensor, targets: Tensor, labels: Labels = slice(None)) -> Tensor:
        return super().forward(logits, targets * self._factors(labels), labels)


def inverse_propensities(
    label_counts: Tensor, n_samples: float, a: float = 0.55, b: float = 1.5
) -> Tensor:
    """Compute the inverse propensity of each label from its number of samples, of 3 or more."""
    if n_samples < 3:
        raise ValueError(
            f"propensities have no meaning with fewer than 3 samples, got {n_samples:g}; use "
            "neither loss='propensity_bce' nor class_weight='propensity'"
        )
    scale = (math.log(n_samples) - 1) * (b + 1) ** a
    return 1 + scale * (label_counts + b).pow(-a)


class RowwiseLoss(Loss):
    r"""Base class of sums over the positives of a row.

    The loss of a positive is a function of two numbers. The *surprise* of label k is
    :math:`\log \sum_j e^{z_j} - z_k`, minus its log probability. Its *margin* is
    :math:`\log \sum_{j \notin S} e^{z_j} - z_k`, where S are the row's positives: how far the
    negatives of the row outscore k. A positive with soft target y counts y times. A subclass
    defines :meth:`value`.

    Attributes
    ----------
    reduction : {"sum", "mean"}
        Whether the loss of a row is the sum or the mean over its positives.
    smoothing : float, default=0.0
        Share of every positive's loss that is the mean surprise over all labels in its place: label
        smoothing. For heads with one output per label.

    Examples
    --------
    >>> from sklearn_xlc.heads import FlatHead, RowwiseLoss
    >>> class PolyLoss(RowwiseLoss):
    ...     def value(self, surprise, margin):
    ...         return surprise + (1 - (-surprise).exp())
    >>> FlatHead(4, 10, multilabel=False, loss=PolyLoss()).criterion
    PolyLoss()
    """

    link: ClassVar[str | None] = "softmax"
    needs_normaliser = True
    tasks: ClassVar[tuple[str, ...]] = ("multi-class", "multi-label")
    reduction: str = "sum"

    def prior(self, frequency: Tensor) -> Tensor:
        return frequency.clamp(1e-7, 1 - 1e-3).log()

    @abstractmethod
    def value(self, surprise: Tensor, margin: Tensor) -> Tensor:
        """Compute the loss of each positive, of shape (n_positives,)."""

    def derivative(self, surprise: Tensor, margin: Tensor) -> tuple[Tensor, ...]:
        """Compute the derivatives of :meth:`value` by surprise and by margin."""
        return _derivatives(self.value, surprise, margin)[1]

    def share(
        self, weights: Tensor, rows: Tensor, targets: Tensor, labels: Tensor | None = None
    ) -> Tensor:
        """Compute the weight of each positive in the loss, from the weights of all rows.

        Heads whose outputs are labels also give the positives' `labels`.
        """
        if self.reduction == "sum":
            return weights[rows] * targets
        mass = torch.zeros_like(weights).index_add(0, rows, targets)
        return weights[rows] * targets / mass[rows]


class SoftmaxCrossEntropy(RowwiseLoss):
    r"""Cross-entropy of one label per row, or of soft targets.

    Its value is the surprise. Heads without one output per label compute no margins; of the
    row-wise losses they take only this loss and its subclasses.

    Examples
    --------
    >>> import torch
    >>> from sklearn_xlc.heads import SoftmaxCrossEntropy
    >>> SoftmaxCrossEntropy().value(torch.tensor([0.25]))
    tensor([0.2500])
    """

    tasks: ClassVar[tuple[str, ...]] = ("multi-class",)

    def value(self, surprise: Tensor, margin: Tensor | None = None) -> Tensor:
        return surprise


class PickAllLabels(RowwiseLoss):
    r"""Softmax cross-entropy of every label of a row [1]_.

    Parameters
    ----------
    competition : float, default=1.0
        Share of the loss in which every label competes with all labels, including the other labels
        of its row, as in [1]_ (the surprise). In the rest of the loss it competes only with the
        negatives of the row.
    reduction : {"sum", "mean"}, default="sum"
        Whether the loss of a row is the sum over its labels, as in [1]_, or the mean.
    gamma : float, default=0.0
        Exponent of the focal loss [2]_: the larger, the less labels of high probability count. A
        label of probability p costs :math:`-(1 - p)^\gamma \log p`.
    smoothing : float, default=0.0
        Share of the target of every label that is spread evenly over all labels: label smoothing
        [3]_. The spread part costs the mean of :math:`-\log p_j` over all labels j.

    Notes
    -----
    The best softmax of label sets S is the probability of a label being in S, divided by the mean
    size of S. With ``reduction="mean"`` it is the mean of ``1 / |S|`` for labels in S and 0 for
    others. A `competition` below 1 ranks labels much alike, and overrates frequent labels.

    References
    ----------
    .. [1] P. Li, X. Li, Y. Wang, Q. Qu. Neural Collapse in Multi-label Learning with
       Pick-all-label Loss. ICML 2024. Section 2.
    .. [2] T.-Y. Lin et al. Focal Loss for Dense Object Detection. ICCV 2017.
    .. [3] C. Szegedy et al. Rethinking the Inception Architecture for Computer Vision. CVPR 2016.
       Section 7.
    """

    def __init__(
        self,
        competition: float = 1.0,
        reduction: str = "sum",
        gamma: float = 0.0,
        smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        check_real(competition, "competition", 0, 1)
        self.competition = competition
        self.reduction = check_option(reduction, "reduction", "sum", "mean")
        self.gamma = check_real(gamma, "gamma", 0)
        self.smoothing = check_real(smoothing, "smoothing", 0, 1)

    def value(self, surprise: Tensor, margin: Tensor) -> Tensor:
        own, others = self._focal(surprise)[0], self._focal(F.softplus(margin))[0]
        return self.competition * own + (1 - self.competition) * others

    def derivative(self, surprise: Tensor, margin: Tensor) -> tuple[Tensor, ...]:
        own, others = self._focal(surprise)[1], self._focal(F.softplus(margin))[1]
        return self.competition * own, (1 - self.competition) * margin.sigmoid() * others

    def _focal(self, surprise: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the focal loss of minus log probabilities, and its derivative."""
        if not self.gamma:
            return surprise, torch.ones_like(surprise)
        surprise = surprise.clamp_min(torch.finfo(surprise.dtype).tiny)
        rest = -torch.expm1(-surprise)  # 1 - p
        weight = rest.pow(self.gamma)
        odds = surprise * (-surprise).exp() / rest
        return weight * surprise, weight * (1 + self.gamma * odds)


class JointCrossEntropy(SoftmaxCrossEntropy):
    """One softmax over the digits of all heads, for heads over digits.

    Its scores have no probabilities.

    Examples
    --------
    >>> from sklearn_xlc import MultiHeadClassifier
    >>> from sklearn_xlc.heads import JointCrossEntropy
    >>> MultiHeadClassifier("product", loss=JointCrossEntropy())
    MultiHeadClassifier(head='product', loss=JointCrossEntropy())
    """

    link = None
    tasks = ("multi-class", "multi-label")
    needs = "digits"


class ArcFace(SoftmaxCrossEntropy):
    """Softmax cross-entropy of cosines, with an additive angular margin [1]_.

    The head normalises features and weights. Its scores have no probabilities.

    Parameters
    ----------
    margin : float, default=0.5
        Margin in radians, at least 0 and below pi, added to the angle of the true label.
    scale : float, default=64.0
        Factor of the cosines.

    References
    ----------
    .. [1] J. Deng et al. ArcFace: Additive Angular Margin Loss for Deep Face Recognition.
       CVPR 2019. Equation 3.
    """

    link = None
    needs = "cosines"

    def __init__(self, margin: float = 0.5, scale: float = 64.0) -> None:
        super().__init__()
        if check_real(margin, "margin", 0, math.pi) == math.pi:
            raise ValueError("margin must be below pi")
        check_real(scale, "scale", 0, closed=False)
        self.margin, self.scale = margin, scale


#: Losses by the name under which every estimator knows them.
LOSSES: dict[str, type[Loss]] = {
    "arcface": ArcFace,
    "asymmetric": AsymmetricLoss,
    "bce": BinaryCrossEntropy,
    "ce": SoftmaxCrossEntropy,
    "focal": FocalLoss,
    "joint_ce": JointCrossEntropy,
    "pick_all_labels": PickAllLabels,
    "propensity_bce": PropensityBinaryCrossEntropy,
}


def losses_of(module: nn.Module) -> list[Loss]:
    """Return the losses in a head."""
    return [part for part in module.modules() if isinstance(part, Loss)]


def _elementwise(values: Tensor, logits: Tensor, what: str) -> Tensor:
    """Return the losses of logits; raise ValueError unless there is one for each of them."""
    if values.shape != logits.shape:
        raise ValueError(
            f"{what} must return a loss for each logit, of shape {tuple(logits.shape)}, got "
            f"{tuple(values.shape)}"
        )
    return values


def _derivatives(
    function: Callable[..., Tensor], *arguments: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Compute an elementwise function, and its derivative by each argument."""
    with torch.enable_grad():
        variables = [argument.detach().requires_grad_() for argument in arguments]
        value = function(*variables)
        slopes: Any = torch.autograd.grad(value.sum(), variables, materialize_grads=True)
    return value.detach(), slopes
