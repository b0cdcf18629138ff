"""The skorch net that trains an encoder and a head."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from skorch import NeuralNet
from skorch.callbacks import EarlyStopping
from torch import Tensor, nn

from sklearn_xlc.batches import Bags, Batch, BatchIterator, Rows, SparseRows
from sklearn_xlc.heads import Head
from sklearn_xlc.training.optimizer import RULES, RowOptimizer

#: Rate of row-wise Adagrad on the input layer, relative to Adam's on the rest: 0.1 where Adam has
#: 0.002. Its first step moves an entry by its rate, but later ones shrink with the row's history.
INPUT_RATE = 50.0


class EncoderHead(nn.Module):
    """An encoder and the head on top of it.

    Parameters
    ----------
    encoder : Module
        Maps a batch of inputs to features of shape (n_rows, n_features).
    head : Head
        Owns the output space.
    """

    def __init__(self, encoder: nn.Module, head: Head) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, inputs: Tensor | SparseRows | Bags) -> Any:
        """Features of the inputs; of bags, those of their instances, beside them."""
        if isinstance(inputs, Bags):
            return replace(inputs, features=self.encoder(inputs.instances))
        return self.encoder(inputs)


class XLCNet(NeuralNet):
    """skorch net over ragged batches; loops, callbacks, history and checkpoints stay skorch's.

    Parameters
    ----------
    module : EncoderHead
        Built already, so that skorch never makes a second copy.
    rng : numpy Generator
        Order of the training rows.
    validation : Rows or None
        Rows held out for `valid_loss`.
    precision : {"float32", "bfloat16"}
        "bfloat16" runs the encoder under autocast; the head knows its own precision.
    optimizer_rule : str
        Key of :data:`~sklearn_xlc.training.optimizer.RULES`.
    **kwargs
        See :class:`skorch.NeuralNet`.
    """

    def __init__(
        self,
        module: EncoderHead,
        *,
        rng: np.random.Generator,
        validation: Rows | None = None,
        precision: str = "float32",
        optimizer_rule: str = "adam",
        **kwargs: Any,
    ) -> None:
        self.rng, self.validation = rng, validation
        self.precision, self.optimizer_rule = precision, optimizer_rule
        super().__init__(
            module, criterion=nn.Identity, train_split=None, iterator_train=None, **kwargs
        )

    # --- what skorch asks for -------------------------------------------------------------

    def initialize_module(self) -> XLCNet:  # noqa: D102
        self.module_ = self.module
        return self

    def initialize_optimizer(self, triggered_directly: bool | None = None) -> XLCNet:  # noqa: D102
        encoder, head = self.module_.encoder, self.module_.head
        fused = head.fused_parameters()
        rows = head.row_parameters()
        inputs: list[nn.Parameter] = getattr(encoder, "row_parameters", list)()
        special = {*fused, *rows, *inputs}
        dense_rule, input_rule = RULES[self.optimizer_rule]
        lr, decay = self.lr, self._kwargs_decay()
        input_lr = lr * INPUT_RATE if input_rule != dense_rule else lr
        plain = [p for p in self.module_.parameters() if p not in special]
        groups: list[dict[str, Any]] = [
            {"params": [p for p in plain if p.ndim > 1], "rule": dense_rule, "weight_decay": decay},
            {"params": [p for p in plain if p.ndim <= 1], "rule": dense_rule},
            {"params": rows, "rule": dense_rule, "weight_decay": decay},
            {"params": inputs, "rule": input_rule, "lr": input_lr, "weight_decay": decay},
            {
                "params": [p for p in fused if p.ndim > 1],
                "rule": dense_rule,
                "fused": True,
                "weight_decay": decay,
            },
            {"params": [p for p in fused if p.ndim <= 1], "rule": dense_rule, "fused": True},
        ]
        self.optimizer_ = RowOptimizer([g for g in groups if g["params"]], lr=lr)
        for group in self.optimizer_.param_groups:
            group["peak_lr"] = group["lr"]
        return self

    def partial_fit(self, X: Rows, y: Any = None, classes: Any = None, **fit_params: Any) -> XLCNet:
        """Train; other than in skorch, only early stopping ends it quietly, not an interrupt."""
        if not self.initialized_:
            self.initialize()
        self.notify("on_train_begin", X=X, y=y)
        try:
            self.fit_loop(X, y, **fit_params)
        except KeyboardInterrupt:
            if not self._stopped_early():
                raise
        self.notify("on_train_end", X=X, y=y)
        return self

    def _stopped_early(self) -> bool:
        """Whether the last interrupt was skorch's way of stopping early."""
        rules = [callback for _, callback in self.callbacks_ if isinstance(callback, EarlyStopping)]
        return any(rule.misses_ == rule.patience for rule in rules)

    def fit_loop(self, X: Rows, y: Any = None, epochs: int | None = None, **kwargs: Any) -> Any:
        """Run the epochs that are left: a checkpoint that was loaded has some behind it."""
        done = len(self.history)
        if done:
            # The epochs to come must not draw the orders and dropout masks of those behind.
            self.rng = np.random.default_rng(self.rng.integers(2**31, size=done + 1)[-1])
            torch.manual_seed(int(self.rng.integers(2**31)))
        left = max(0, self.max_epochs - done)
        return super().fit_loop(X, y, epochs=left, **kwargs)

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        """Begin an epoch, unless the last one went wrong."""
        self.check_loss()
        super().on_epoch_begin(net, **kwargs)

    def get_split_datasets(self, X: Rows, y: Any = None, **fit_params: Any) -> Any:  # noqa: D102
        return X, self.validation

    def get_iterator(self, dataset: Rows, training: bool = False) -> BatchIterator:  # noqa: D102
        rng = self.rng if training else None
        return BatchIterator(dataset, self.batch_size, rng, torch.device(self.device))

    def train_step(self, batch: Batch, **fit_params: Any) -> dict[str, Any]:  # noqa: D102
        self._set_training(True)
        self.optimizer_.zero_grad(set_to_none=True)
        loss = self._loss(batch, self.optimizer_.update)
        loss.backward()
        self.notify(
            "on_grad_computed",
            named_parameters=self.module_.named_parameters(),
            batch=batch,
            training=True,
        )
        self.optimizer_.step()
        return {"loss": loss, "y_pred": None}

    def validation_step(self, batch: Batch, **fit_params: Any) -> dict[str, Any]:  # noqa: D102
        self._set_training(False)
        with torch.no_grad():
            return {"loss": self._loss(batch), "y_pred": None}

    def infer(self, x: Batch, **fit_params: Any) -> Tensor:  # noqa: D102
        with self._autocast():
            return self.module_(x.inputs)

    # --- what estimators ask for ----------------------------------------------------------

    def features(self, batch: Batch) -> Tensor:
        """Features of a batch, in evaluation mode and without gradient."""
        self._set_training(False)
        with torch.inference_mode():
            return self.module_(batch.inputs).to(_dtype(self.module_))

    def check_loss(self) -> None:
        """Refuse a last loss that is infinite or not a number."""
        loss = float(self.history[-1, "train_loss"]) if self.history else 0.0
        if not np.isfinite(loss):
            raise ValueError(
                f"the training loss became {loss} in epoch {len(self.history)}: lower "
                f"learning_rate={self.lr} or scale X"
            )

    def _loss(self, batch: Batch, update: Any = None) -> Tensor:
        features = self.infer(batch).to(_dtype(self.module_))
        return self.module_.head.loss(features, batch.targets, batch.sample_weight, update)

    def _kwargs_decay(self) -> float:
        return self.get_params_for("optimizer").get("weight_decay", 0.0)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)


def _dtype(module: nn.Module) -> torch.dtype:
    return next(module.parameters()).dtype
