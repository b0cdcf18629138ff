"""Build the encoder and the head of a classifier."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from sklearn_xlc._config import memory_limit, setting
from sklearn_xlc._part import named_part
from sklearn_xlc.batches import (
    Generators,
    Rows,
    as_global,
    bytes_to_lengthen,
    is_ours,
    make_batch,
)
from sklearn_xlc.distributed import sharding, share_out
from sklearn_xlc.encoders import (
    DRAWS_LATER,
    MLP,
    MLPEncoder,
    Text,
    accepted_forms,
    encoder_part,
    own_collate,
    vectorizes,
)
from sklearn_xlc.engine.class_weights import frequency, label_counts, weigh_labels
from sklearn_xlc.engine.columns import rescale, standardise
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.memory import (
    SMALL,
    check_room,
    refuse_beyond,
    training_bytes,
    without_weights,
)
from sklearn_xlc.engine.validation import model_dtype
from sklearn_xlc.heads import Head, HeadTask, ShardOf, losses_of, whole
from sklearn_xlc.optimizers import OPTIMIZERS, Adam
from sklearn_xlc.training import (
    TORCH_DTYPES,
    EncoderHead,
    RowOptimizer,
    WeightAveraging,
    of_kind,
)


def build_module(
    plan: Any, train: Rows, rng: np.random.RandomState, generators: Generators
) -> EncoderHead:
    """Build encoder and head by a plan, if they fit into memory, with frequencies as first scores.

    In a stream (later samples may differ from the first ones) each label starts halfway between its
    frequency and the mean of all. `rng` draws the label order, `generators` the weights.
    """
    classifier, rows, code = plan.classifier, plan.data.rows, plan.data.code
    part = plan.settings["encoder"]
    # Of texts no column is known before the encoder reads them.
    used, draws_later = None, type(part) is Text
    if type(part) is MLP:
        used = _used_columns(train)
        draws_later = used is not None and 4 * int(used.sum()) < len(used)
        if plan.one_pass and not (draws_later and reads_sparse(part, rows)):
            used = None  # later samples have other columns
    with as_global(generators):  # one thread at a time, so keep it short
        with setting(DRAWS_LATER, draws_later):
            encoder: Any = _build_encoder(plan, used)
        inputs = inputs_for(encoder, rows, classifier._sparse_inputs)
        width = output_width(encoder, inputs)
    if not plan.one_pass and used is None and isinstance(encoder, MLPEncoder):
        used = _used_columns(train)
        if used is not None:
            encoder.input._keep(used)
    encoder.to(TORCH_DTYPES[model_dtype(rows.X)])  # float32 would round means far from zero
    if plan.facts.standardised:
        standardise(encoder.input, train)
    elif plan.facts.sparse and plan.judges_columns():
        rescale(encoder.input, train)
    order = classifier._order_labels(classifier.head_, plan.data, rng)
    classifier._code = code = code.reordered(order)
    with as_global(generators):
        head = _build_head(plan, encoder, width)
        module = EncoderHead(encoder, head).to(TORCH_DTYPES[model_dtype(rows.X)])
        share_out(module, plan.processes)  # the head of a user's function is whole
        weigh_labels(classifier.class_weight, head, train, code)
        counts, n_samples = label_counts(train.Y, train.sample_weight)
        counts = code.by_position(counts)
        for loss in losses_of(head):
            loss.fit(counts, n_samples)
        share = frequency(train.Y, train.sample_weight)
        if plan.one_pass:  # from logits of zero the first gradients exceed all later ones
            share = (share + share.mean()) / 2
        head.set_prior(code.by_position(share))
    classifier._n_features_out = width
    if not n_weights(module):
        raise ValueError(
            "there is no parameter to train: neither the encoder nor the head has one that "
            "requires a gradient; pass another encoder, or a head with weights or biases"
        )
    return module


def draw_rows(plan: Any, module: EncoderHead) -> None:
    """Draw weights for the words of texts, which are known now, if they fit into memory."""
    encoder: Any = module.encoder
    if isinstance(encoder, MLPEncoder) and encoder.input.weight.is_meta:
        _check_memory(plan, encoder, module.head)
        encoder.input._draw()


def take_columns(
    plan: Any, module: EncoderHead, rows: Rows, optimizer: RowOptimizer | None = None
) -> None:
    """Let the input layer hold weights for the columns of samples to train on, if they fit."""
    encoder: Any = module.encoder
    if not isinstance(encoder, MLPEncoder) or encoder.input.row_of is None:
        return
    layer, before = encoder.input, encoder.input.weight
    columns = torch.from_numpy(np.flatnonzero(rows.occurring_columns()))
    columns = layer._without_row(columns)
    n_rows = len(before) + len(columns)
    states = () if optimizer is None else optimizer.state.get(before, {}).values()
    n_bytes = sum(bytes_to_lengthen(table, n_rows) for table in (before, *states) if table.ndim)
    check_room(plan.classifier, n_bytes, f"a layer for {n_rows:,} columns")
    layer._hold_also(columns)
    if optimizer is not None:
        optimizer.lengthen(before, layer.weight)


def _used_columns(train: Rows) -> torch.Tensor | None:
    """Return a mask of the columns with an entry; None if samples are no rows of numbers."""
    if train.X.dtype == object or len(train.X.shape) != 2:
        return None
    return torch.from_numpy(train.occurring_columns())


def _build_encoder(plan: Any, used: torch.Tensor | None) -> nn.Module:
    """Build the encoder; whether it reads CSR rows, only the zeros of X decide.

    `used` is a mask of the columns to hold weights for, if they are known before.
    """
    part, rows = plan.settings["encoder"], plan.data.rows
    has_columns, sparse = len(rows.X.shape) > 1, reads_sparse(part, rows)

    def build() -> nn.Module:
        encoder: Any = part.build(rows.X.shape[1] if has_columns else None, sparse)
        if used is not None:
            encoder.input._keep(used)
        return encoder

    if part.is_planned:
        _check_memory(plan, without_weights(build), None)
    encoder: Any = build()
    if used is not None:
        encoder.input._draw()
    plan.classifier._sparse_inputs = reads_sparse(encoder, rows)
    return encoder


def _build_head(plan: Any, encoder: nn.Module, width: int) -> Head:
    """Build the head, if it fits into memory."""
    classifier = plan.classifier
    half = plan.settings["precision"] == "bfloat16"
    classifier._precision = "bfloat16" if half else "float32"
    task = head_task(classifier, width, classifier._code, sharding(plan.processes))
    build = functools.partial(classifier._build_head, task)
    # Code of the user is called once, and not to make tensors without values.
    part = classifier.head_
    is_known = part is None or (part.is_planned and is_ours(type(part)))
    is_planned = is_known and is_ours(type(classifier)._build_head)
    planned = without_weights(build) if is_planned else None
    _check_memory(plan, encoder, planned)
    head = build()
    if planned is None:
        _check_memory(plan, encoder, head)
    return head


def _check_memory(plan: Any, encoder: nn.Module | None, head: Any) -> None:
    """Raise MemoryError if the model would not fit into memory.

    `encoder` and `head` are made by :func:`without_weights`, or have their weights already; None:
    unknown.
    """
    if encoder is None:
        return
    settings = plan.settings
    averages = of_kind(settings["callbacks"], WeightAveraging)
    copies = settings["early_stopping"] + bool(averages)
    itemsize, optimizer = model_dtype(plan.data.rows.X).itemsize, settings["optimizer"]
    weights, beside = training_bytes(encoder, head, itemsize, optimizer, copies)
    if weights + beside < SMALL:
        return
    n_labels = plan.data.code.n_labels
    what, remedy = f"training with {n_labels:,} labels", plan.classifier._smaller_model()
    on_host = weights + (beside if plan.device == "cpu" else 0)
    refuse_beyond(on_host, what, remedy)
    if plan.device != "cpu":
        refuse_beyond(weights + beside, f"{what} on {plan.device}", remedy, plan.device)


def head_task(
    classifier: Any, n_features: int, code: LabelCode, shard_of: ShardOf = whole
) -> HeadTask:
    """Return the task of a classifier's head: sizes, loss and precision."""
    return HeadTask(
        n_features,
        code.n_labels,
        code.multilabel,
        loss=classifier._loss_for(code.multilabel),
        precision=classifier._precision,
        memory_limit=memory_limit(),
        n_members=encoder_part(classifier.encoder_).n_members,
        shard_of=shard_of,
    )


def smaller_model(classifier: Any) -> str:
    """Return parameters of a smaller model, for messages about memory."""
    is_given = not encoder_part(classifier.encoder).is_planned
    names = [name for name in classifier._sizes if not (is_given and name.startswith("encoder"))]
    helps = [f"a smaller {' or '.join(names)}" if names else "a narrower encoder"]
    optimizer = named_part(classifier.optimizer, {"auto": Adam, **OPTIMIZERS})
    if optimizer.rule not in ("adagrad", "sgd"):
        helps.append("optimizer='adagrad', which keeps one number for each row of weights")
    if optimizer.momentum:
        helps.append("momentum=0.0, which keeps no second copy of the weights")
    if classifier.early_stopping or of_kind(classifier.callbacks, WeightAveraging):
        helps.append("early_stopping=False and no WeightAveraging, which keep no copies")
    return ", or ".join(helps)


def n_weights(module: EncoderHead) -> int:
    """Count the trainable parameters of all processes."""
    shards, total = module.head.sharded_parameters(), 0
    for parameter in module.parameters():
        if parameter.requires_grad:
            is_part = parameter in shards
            n_rows = shards[parameter].n_rows if is_part else len(torch.atleast_1d(parameter))
            total += n_rows * math.prod(parameter.shape[1:])
    return total


def reads_sparse(encoder: Any, rows: Rows) -> bool:
    """Return whether an encoder, or a class of encoders, reads X as CSR, by its share of zeros."""
    accepts = accepted_forms(encoder)
    if "csr" not in accepts or rows.X.dtype == object:
        return False
    return "dense" not in accepts or rows.is_mostly_zeros()


def inputs_for(encoder: nn.Module, rows: Rows, sparse: bool) -> Rows:
    """Return samples without labels, prepared for the batches of an encoder."""
    collate = own_collate(encoder)  # without one, samples need not be cut one by one
    if vectorizes(encoder) and rows.sparse and rows.collate is None:  # by `vectorized`
        collate, sparse = None, True
    return replace(rows, Y=None, sample_weight=None, sparse=sparse, collate=collate)


def vectorized(encoder: nn.Module, rows: Rows, first: bool) -> Rows:
    """Vectorize samples once, if the encoder can, rather than in every epoch.

    In the `first` fit the encoder may learn from the samples.
    """
    if not vectorizes(encoder) or rows.X.dtype != object:
        return rows
    vectorize = getattr(encoder, "fit_vectorize", None) if first else None
    X = (vectorize or encoder.vectorize)(rows.samples())  # type: ignore[operator]
    texts = rows.X if rows.bags is None else None
    return replace(rows, X=X, sparse=True, collate=None, texts=texts)


def output_width(encoder: nn.Module, rows: Rows) -> int:
    """Return the declared number of features, or measure it on two samples."""
    if hasattr(encoder, "n_outputs"):
        return int(encoder.n_outputs)  # type: ignore[arg-type]
    encoder.to(TORCH_DTYPES[model_dtype(rows.X)]).eval()
    X = rows.X[:2]
    batch = make_batch(Rows(X, sparse=rows.sparse, collate=rows.collate))
    shape = f" of {X.shape[1]} columns" if len(X.shape) > 1 else ""
    try:
        with torch.no_grad():
            features = encoder(batch.inputs)
    except RuntimeError as error:
        raise ValueError(f"encoder cannot read {len(batch)} sample(s){shape}: {error}") from error
    is_tensor = isinstance(features, torch.Tensor)
    if not is_tensor or features.ndim != 2 or len(features) != len(batch):
        got = f"shape {tuple(features.shape)}" if is_tensor else type(features).__name__
        raise ValueError(
            "encoder must return a tensor of features of shape (n_samples, n_outputs), but for "
            f"{len(batch)} sample(s) it returned {got}"
        )
    return features.shape[1]
