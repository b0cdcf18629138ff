"""Optimisers: update rules of weights, with their rates.

The parameter `optimizer` of a classifier is the name of an optimiser or an object. Give
`learning_rate` and `weight_decay` either to the classifier or to the optimiser.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc._part import Part

__all__ = ["SGD", "Adagrad", "Adam", "Mixed", "Optimizer"]

_RATE = [None, Interval(Real, 0, None, closed="neither")]


class Optimizer(Part):
    """Base class of optimisers.

    Parameters
    ----------
    learning_rate : float, default=None
        Peak learning rate of the encoder. None: the classifier's.
    head_learning_rate : float, default=None
        Peak learning rate of the head. None: the encoder's, or the one of the rules for "auto".
    weight_decay : float, default=None
        Decoupled weight decay of matrices. None: the classifier's.

    Attributes
    ----------
    rule : str
        Update rule, a key of ``sklearn_xlc.training.optimizer.RULES``.
    """

    rule: ClassVar[str] = "adam"
    #: Parameters of some optimisers only.
    row_momentum: Any = True
    momentum: float = 0.0
    nesterov: bool = False

    _parameter_constraints = {
        "learning_rate": _RATE,
        "head_learning_rate": _RATE,
        "weight_decay": [None, Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        learning_rate: float | None = None,
        *,
        head_learning_rate: float | None = None,
        weight_decay: float | None = None,
    ) -> None:
        self.learning_rate = learning_rate
        self.head_learning_rate = head_learning_rate
        self.weight_decay = weight_decay


class Adam(Optimizer):
    """Adam, with updates of only the rows of a table in use by a batch.

    Parameters
    ----------
    learning_rate, head_learning_rate, weight_decay : float, default=None
        As of :class:`Optimizer`.
    row_momentum : bool or "auto", default="auto"
        Whether rows have a first moment. Without it, updates of rarely used rows are not averaged
        over a long time, and take a third less time. Layers updated as a whole do not read it.
    """

    _parameter_constraints = {
        **Optimizer._parameter_constraints,
        "row_momentum": [StrOptions({"auto"}), "boolean"],
    }

    def __init__(
        self,
        learning_rate: float | None = None,
        *,
        head_learning_rate: float | None = None,
        weight_decay: float | None = None,
        row_momentum: Any = "auto",
    ) -> None:
        super().__init__(
            learning_rate, head_learning_rate=head_learning_rate, weight_decay=weight_decay
        )
        self.row_momentum = row_momentum


class Mixed(Adam):
    """Adam, and SGD on gradients of unit mean square in the input layer.

    The input layer then overfits rare columns less, and takes a third of the memory. Columns of
    dense X should be on one scale, as the default encoder brings them.

    Parameters
    ----------
    learning_rate, head_learning_rate, weight_decay : float, default=None
        As of :class:`Optimizer`.
    row_momentum : bool or "auto", default="auto"
        Whether rows updated by Adam have a first moment.
    """

    rule = "mixed"


class Adagrad(Optimizer):
    """Row-wise Adagrad: one accumulator for each row of weights.

    Parameters
    ----------
    learning_rate, head_learning_rate, weight_decay : float, default=None
        As of :class:`Optimizer`.
    """

    rule = "adagrad"


class SGD(Optimizer):
    """Stochastic gradient descent, with the least memory of all optimisers.

    Parameters
    ----------
    learning_rate, head_learning_rate : float, default=None
        As of :class:`Optimizer`.
    weight_decay : float, default=None
        Weight decay of matrices: decoupled, or with `momentum` a part of the gradient. None: the
        classifier's.
    momentum : float, default=0.0
        Momentum, as in :class:`torch.optim.SGD`. It takes as much memory as the weights. Rows not
        in use by a batch keep their momentum.
    nesterov : bool, default=False
        Whether to use Nesterov momentum; needs `momentum` above zero.
    """

    rule = "sgd"

    _parameter_constraints = {
        **Optimizer._parameter_constraints,
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "nesterov": ["boolean"],
    }

    def __init__(
        self,
        learning_rate: float | None = None,
        *,
        head_learning_rate: float | None = None,
        weight_decay: float | None = None,
        momentum: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(
            learning_rate, head_learning_rate=head_learning_rate, weight_decay=weight_decay
        )
        self.momentum = momentum
        self.nesterov = nesterov

    def check(self) -> None:
        """Raise ValueError if a parameter is not valid, or `nesterov` is set without momentum."""
        super().check()
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov=True needs momentum above zero, got momentum=0.0")


#: Optimisers by name, for the parameter `optimizer`.
OPTIMIZERS: dict[str, type[Optimizer]] = {
    "adam": Adam,
    "mixed": Mixed,
    "adagrad": Adagrad,
    "sgd": SGD,
}
