"""Loss, gradient and ranking over chunks of labels, for heads with logits by chunk."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from sklearn_xlc._bounds import check_integer
from sklearn_xlc.batches import ONE_THREAD, Targets, Threads, stable_sort
from sklearn_xlc.heads._base import Head, Update, check_finite, draw_rows, row_weights
from sklearn_xlc.heads._whole import WHOLE, ShardOf, Whole, whole
from sklearn_xlc.heads.losses import Labels, Loss, RowwiseLoss
from sklearn_xlc.heads.ranking import WIDTH, topk_of_chunks

#: Labels per chunk on a CPU: a batch of 256 logits in float32 then stays within the second-level
#: cache.
CHUNK = 4096


class ChunkedHead(Head):
    """Base class of heads with loss, gradient and ranking in chunks of labels.

    The logits and gradients of all labels are never held at once: the loss takes the optimiser step
    of a chunk as soon as its gradient is known. A loss over the normaliser of the row keeps the
    logits if they fit into `memory_limit`, and otherwise computes them twice.

    Subclasses name parameters with a row for each label in :meth:`fused_parameters`, and compute
    the logits of some labels from their rows in :meth:`logits_of`; autograd does the rest. For more
    speed, or for other forms of parameters, they define :meth:`logits` and :meth:`backward`.

    Parameters
    ----------
    n_features, n_labels, multilabel : int, int and bool
        As of :class:`Head`.
    memory_limit : int, default=2**30
        Limit in bytes of the temporary logits.
    loss : str or Loss, default="auto"
        Pointwise or row-wise loss. "auto" is "bce" for multi-label targets and "ce" otherwise.
    shard_of : callable, default=whole
        Returns the rows of a table in this process, as :meth:`Head.take_shards` reads it.

    Attributes
    ----------
    criterion : Loss
        Loss in use.
    shard : Whole or Shard
        Labels with weights in this process: all, or some if several processes train and the class
        sets `shards`. :meth:`chunks`, :meth:`logits` and :meth:`backward` get only these labels, as
        positions among all; ``weight[self.held(chunk)]`` are their weights.

    Examples
    --------
    A head with cosines for logits:

    >>> import torch
    >>> from torch.nn.functional import normalize
    >>> from sklearn_xlc.heads import ChunkedHead
    >>> class CosineHead(ChunkedHead):
    ...     def __init__(self, n_features, n_labels, multilabel, **params):
    ...         super().__init__(n_features, n_labels, multilabel, **params)
    ...         self.vectors = torch.nn.Parameter(torch.eye(n_labels, n_features))
    ...     def fused_parameters(self):
    ...         return [self.vectors]
    ...     def logits_of(self, inputs, vectors):
    ...         return normalize(inputs) @ normalize(vectors).T
    >>> head = CosineHead(10, 10, multilabel=True, loss="asymmetric")
    >>> head.topk(torch.arange(10.0)[None], k=2)[1]
    tensor([[9, 8]])
    """

    offers = ("rows",)
    #: Whether each of several processes may hold the weights of some labels. Each class says so
    #: for itself: its code must ask `held` where weights lie.
    shards: bool = False

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        multilabel: bool,
        memory_limit: int = 2**30,
        loss: str | Loss = "auto",
        shard_of: ShardOf = whole,
    ) -> None:
        super().__init__(n_features, n_labels, multilabel)
        self.take_shards(shard_of)
        self.memory_limit = check_integer(memory_limit, "memory_limit")
        self.criterion = self.resolve_loss(loss, multilabel)
        # The labels of a sample share one probability: logarithms of it compare between samples.
        shared = multilabel and self.criterion.link == "softmax"
        self.link = "exp" if shared else self.criterion.link

    def inputs(self, features: Tensor) -> Tensor:
        """Return the inputs of the chunks: features, or a differentiable function of them."""
        return features

    def layer_inputs(self, features: Tensor) -> Tensor:
        return self.inputs(features)

    def label_rows(self) -> list[tuple[Tensor, int]]:
        # Other parameters, which a subclass with a `backward` of its own may have, are shared.
        n_rows, parameters = self.shard.n_held(self.n_labels), self.fused_parameters()
        return [(p, math.prod(p.shape[1:])) for p in parameters if p.shape[:1] == (n_rows,)]

    def logits_of(self, inputs: Tensor, *rows: Tensor) -> Tensor:
        """Compute the logits of labels, (n_rows, n_labels), in a new tensor.

        `rows` are the labels' rows of each of the fused parameters.
        """
        raise NotImplementedError(
            f"{type(self).__name__} defines neither logits_of nor logits and backward"
        )

    def logits(self, inputs: Tensor, chunk: Any) -> Tensor:
        """Compute the logits of one chunk of labels, (n_rows, chunk), in a new tensor."""
        return self.logits_of(inputs, *(p[self.held(chunk)] for p in self.fused_parameters()))

    def backward(
        self, inputs: Tensor, chunk: Any, gradient: Tensor, into: Tensor, update: Update
    ) -> None:
        """Add the gradient of the inputs to `into`, and `update` the weights of the chunk."""
        held, parameters = self.held(chunk), self.fused_parameters()
        variables = [
            each.detach().requires_grad_() for each in (inputs, *(p[held] for p in parameters))
        ]
        with torch.enable_grad():
            logits = self.logits_of(*variables)
        to_inputs, *to_rows = torch.autograd.grad(logits, variables, gradient)
        into += to_inputs
        for parameter, to_row in zip(parameters, to_rows):
            update(parameter, held, to_row)

    def bytes_per_row(self, k: int | None = None) -> int:
        if k is None:
            return 3 * self.n_labels * self._itemsize
        width = min(self.n_labels, max(WIDTH * k, self.chunk_size()))
        return 3 * width * (self._itemsize + 8)

    def chunk_size(self) -> int:
        """Return the number of labels in a chunk."""
        return self._on_device(CHUNK)

    def chunks(self, n: int = 1) -> list[slice]:
        """Return slices of labels, in order: `n`, or more where they would be too large."""
        held = self.all_held()
        return slices(held.start, held.stop, self.chunk_size(), n)

    def _for_graph(self, k: int) -> Head:
        head = super()._for_graph(k)
        vars(head)["chunk_size"] = lambda: self.n_labels
        return head

    def held(self, chunk: Labels) -> Labels:
        """Return the positions of a chunk's weights in the tables of this process."""
        return self.shard.own(chunk)

    def all_held(self) -> slice:
        """Return the labels with weights in this process."""
        return self.shard.labels(self.n_labels)

    def take_shards(self, shard_of: ShardOf) -> None:
        self.shard = shard_of(self.n_labels) if vars(type(self)).get("shards") else WHOLE
        self._tables: dict[Any, Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tables": {}}

    def _table(self, name: Any, like: Tensor, make: Callable[[], np.ndarray]) -> Tensor:
        """Return a constant of the rows held, cached by type and device; it is no state."""
        key = (name, like.dtype, like.device)
        if key not in self._tables:
            # Created in prediction mode, it must also work in training.
            with torch.inference_mode(False):
                self._tables[key] = torch.tensor(make(), dtype=like.dtype, device=like.device)
        return self._tables[key]

    def draw(self, targets: Targets) -> Drawn | None:
        """Draw the labels of a step; None: all.

        With drawn labels, :meth:`logits` and :meth:`backward` receive positions in place of slices.
        """
        return None

    def drawn_here(self, targets: Targets) -> Drawn | None:
        """Return the sampled labels owned by this process."""
        drawn = self.draw(targets)
        return None if drawn is None else Drawn(*self.shard.chosen(*drawn))

    def loss(
        self,
        features: Tensor,
        targets: Targets,
        sample_weight: Tensor | None = None,
        update: Update | None = None,
    ) -> Tensor:
        own = self.inputs(features)
        inputs = own.detach()
        weights = row_weights(sample_weight, inputs)
        penalty = self.penalty(own, weights)
        step = Step(*self.arranged(inputs, targets, weights))
        if update is not None:
            step = step._replace(drawn=self.drawn_here(step.targets))
        if not torch.is_grad_enabled():
            return self.loss_and_gradient(step)[0] + penalty
        gradients: dict[nn.Parameter, Tensor] = {}

        def collect(parameter: nn.Parameter, rows: slice | Tensor, gradient: Tensor) -> None:
            if parameter not in gradients:
                gradients[parameter] = torch.zeros_like(parameter)
            gradients[parameter][rows] += gradient

        loss, into = self.loss_and_gradient(step._replace(update=update or collect))
        by_variable = [self.put_back(into), *gradients.values()]
        return _Precomputed.apply(loss, by_variable, own, *gradients) + penalty

    def arranged(
        self, inputs: Tensor, targets: Targets, weights: Tensor
    ) -> tuple[Tensor, Targets, Tensor]:
        """Arrange the batch for :meth:`loss_and_gradient`; by default it stays unchanged."""
        return inputs, targets, weights

    def put_back(self, gradient: Tensor) -> Tensor:
        """Convert the gradient of the rows of :meth:`arranged` to the gradient of the inputs."""
        return gradient

    def loss_and_gradient(self, step: Step) -> tuple[Tensor, Tensor]:
        """Compute loss (without penalty) and, with an update, its input gradient, without autograd.

        Chunks of a pointwise loss are computed side by side in the threads of the step.
        """
        return (_rowwise if self.criterion.needs_normaliser else _pointwise)(self, step)

    def penalty(self, inputs: Tensor, weights: Tensor) -> Tensor | float:
        """Compute the regularisation of the inputs."""
        return 0.0

    def topk(self, features: Tensor, k: int) -> tuple[Tensor, Tensor]:
        n_held = self.shard.n_held(self.n_labels)
        return self.shard.merged(*self.topk_held(self.inputs(features), min(k, n_held)), k)

    def topk_held(self, inputs: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return the k best of the labels with weights in this process."""
        normalisers = []

        def chunks() -> Iterator[tuple[int, Tensor]]:
            for chunk in self.chunks():
                logits = self._labelled(self.logits(inputs, chunk), chunk)
                if self.link == "exp":
                    normalisers.append(logits.logsumexp(1))
                yield chunk.start, logits

        best, positions = topk_of_chunks(chunks(), k)
        if normalisers:
            normaliser = torch.stack(normalisers).logsumexp(0)
            best = best - self.shard.logsumexp(normaliser)[:, None]
        return best, positions

    def scores(self, features: Tensor) -> Tensor:
        inputs = self.inputs(features)
        parts = [self._labelled(self.logits(inputs, chunk), chunk) for chunk in self.chunks()]
        logits = self.shard.joined_columns(torch.cat(parts, dim=1))
        return logits.log_softmax(1) if self.link == "exp" else logits


class LinearHead(ChunkedHead):
    """Base class of heads with a row of weights for each label, and a bias if any."""

    leaves_out = True
    is_linear = True
    weight: Any
    bias: nn.Parameter | None
    projection: nn.Module
    #: Deviation of the first weights.
    _std: float

    def inputs(self, features: Tensor) -> Tensor:
        return self.projection(features)

    def fused_parameters(self) -> list[nn.Parameter]:
        return [p for p in (self.weight, self.bias) if p is not None]

    def _first_biases(self, frequency: Tensor) -> Tensor:
        return self.criterion.prior(frequency)

    def set_prior(self, frequency: Tensor) -> None:
        if self.bias is not None:
            with torch.no_grad():
                self.bias.copy_(self._first_biases(frequency)[self.all_held()])

    @torch.no_grad()
    def start_labels(self, positions: Tensor, frequency: Tensor) -> None:
        if self.weight is not None:
            draw_rows(self.weight, positions, self._std)
        if self.bias is not None:
            self.bias[positions] = self._first_biases(frequency)[positions].to(self.bias)


class _Precomputed(torch.autograd.Function):
    """Loss with precomputed gradients."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: list[Tensor], *variables: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, *(gradient * grad_outputs[0] for gradient in ctx.saved_tensors))


class Drawn(NamedTuple):
    """Labels of a step, and the factors of their losses as negatives."""

    positions: Tensor
    factors: Tensor


class Step(NamedTuple):
    """What :meth:`ChunkedHead.loss_and_gradient` reads of a batch.

    `weights` come from :func:`row_weights`, and `drawn` are the labels of :meth:`ChunkedHead.draw`.
    """

    inputs: Tensor
    targets: Targets
    weights: Tensor
    update: Update | None = None
    drawn: Drawn | None = None
    threads: Threads = ONE_THREAD


class Positives(NamedTuple):
    """Positives of a batch within a chunk of labels."""

    rows: Tensor
    columns: Tensor
    ids: Tensor
    targets: Tensor
    weights: Tensor

    @property
    def at(self) -> tuple[Tensor, Tensor]:
        """Index of the logits of the positives."""
        return self.rows, self.columns


#: Chunk of all or drawn labels: its slice, its labels for the head, its positives.
Place = tuple[slice, Labels, Positives]


def positives_by_chunk(
    chunks: list[slice], found: tuple[Tensor, ...], positions: Tensor | None = None
) -> list[tuple[slice, Positives]]:
    """Return every chunk with its positives; `found` has label, row, target and weight of all.

    The chunks cut `positions`, which include all positives; None: the range of all labels.
    """
    ids, rows, values, weights = found
    if len(chunks) > 1:
        ids, order = stable_sort(ids)
        rows, values, weights = rows[order], values[order], weights[order]
    columns = ids if positions is None else torch.searchsorted(positions, ids)
    if len(chunks) == 1:
        return [(chunks[0], Positives(rows, columns - chunks[0].start, ids, values, weights))]
    bounds = [chunks[0].start, *(chunk.stop for chunk in chunks)]
    starts = torch.searchsorted(columns, torch.tensor(bounds, device=ids.device)).tolist()
    parts = [(chunk, slice(a, b)) for chunk, a, b in zip(chunks, starts[:-1], starts[1:])]
    return [
        (chunk, Positives(rows[i], columns[i] - chunk.start, ids[i], values[i], weights[i]))
        for chunk, i in parts
    ]


def slices(start: int, stop: int, size: int, n: int = 1) -> list[slice]:
    """Cut a range into slices of at most `size`, of equal size; the last may be shorter."""
    size = max(1, min(size, -(-(stop - start) // n)))
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]


def _parts(
    head: ChunkedHead, step: Step, values: Tensor, weights: Tensor, n_threads: int = 1
) -> list[Place]:
    """Return chunks of all or drawn labels: slice, labels for the head, positives."""
    positions = None if step.drawn is None else step.drawn.positions
    found = head.shard.chosen(step.targets.ids, step.targets.rows, values, weights)
    if positions is None:
        chunks = head.chunks(n_threads)
    else:
        chunks = slices(0, len(positions), head.chunk_size(), n_threads)
    if not chunks:  # of the labels drawn none is held here
        return []
    parts = positives_by_chunk(chunks, found, positions)
    return [(part, part if positions is None else positions[part], of) for part, of in parts]


def _pointwise(head: ChunkedHead, step: Step) -> tuple[Tensor, Tensor]:
    inputs, targets, weights, update, drawn, threads = step
    criterion = head.criterion
    loss, into = inputs.new_zeros(()), torch.zeros_like(inputs)
    weights, values = criterion.shared(weights, targets.rows, targets.values_like(inputs))
    factors = None if drawn is None else drawn.factors.to(inputs)

    @torch.no_grad()
    def compute(place: Place) -> tuple[Tensor, Tensor]:
        part, chunk, found = place
        logits = head.logits(inputs, chunk)
        # All labels as negatives first, then the difference that the positives make.
        negative = head._labelled(criterion.negative(logits), chunk, 0.0)
        loss = weights @ (negative.sum(1) if factors is None else negative @ factors[part])
        del negative  # what a step touches should stay in caches
        excess, slope = criterion.correction(logits[found.at], found.targets, found.ids)
        loss += found.weights @ excess
        to_inputs = into if threads.n == 1 else torch.zeros_like(into)
        if update is not None:
            check_finite(loss)
            gradient = criterion.negative_derivative(logits).mul_(weights[:, None])
            gradient = head._labelled(gradient, chunk, 0.0)
            if factors is not None:
                gradient.mul_(factors[part])
            gradient.index_put_(found.at, found.weights * slope, accumulate=True)
            head.backward(inputs, chunk, gradient, to_inputs, update)
        return loss, to_inputs

    parts = _parts(head, step, values, weights[targets.rows], threads.n)
    for of_chunk, to_inputs in threads.map(compute, parts):
        loss += of_chunk
        if to_inputs is not into:
            into += to_inputs
    loss, into = head.shard.sum(loss, into)
    return loss, into


@torch.no_grad()
def _rowwise(head: ChunkedHead, step: Step) -> tuple[Tensor, Tensor]:
    inputs, targets, weights, update, drawn, _ = step
    criterion = head.criterion
    values = targets.values_like(inputs)
    share = criterion.share(weights, targets.rows, values, targets.ids)
    # A label that stands for several counts so often in the normaliser.
    stands_for = None if drawn is None else drawn.factors.to(inputs).log()
    parts = _parts(head, step, values, share * (1 - criterion.smoothing))
    n_labels = sum(part.stop - part.start for part, *_ in parts)
    size = inputs.element_size() * len(inputs) * n_labels
    keep = update is not None and size <= head.memory_limit
    smoothed = _Smoothing(head, step, parts, share) if criterion.smoothing else None

    def read(place: Place, mean: _Smoothing | None = None) -> tuple[Tensor, Tensor]:
        part, chunk, found = place
        logits = head._labelled(head.logits(inputs, chunk), chunk)
        if mean is not None:
            mean.read(part, logits)
        of_positives = _take(logits, found)
        return of_positives, logits if stands_for is None else logits.add_(stands_for[part])

    kept, positive = [], []
    # Finite, so that rows with all labels have no infinite differences.
    negative = inputs.new_full((len(inputs),), torch.finfo(inputs.dtype).min / 4)
    for place in parts:
        of_positives, logits = read(place, smoothed)
        positive.append(of_positives)
        negative = torch.logaddexp(negative, logits.logsumexp(1))
        if keep:
            kept.append(logits)
    all_found = [found for *_, found in parts]
    rows = _loss_of_rows(criterion, all_found, positive, negative, head.shard, smoothed)
    loss, negative, on_negative, on_positive = rows
    into = torch.zeros_like(inputs)
    if update is None:
        return loss, into
    check_finite(loss)
    for number, (part, chunk, found) in enumerate(parts):
        logits = kept[number] if keep else read(parts[number])[1]
        gradient = logits.sub_(negative[:, None]).exp_().mul_(on_negative[:, None])
        gradient[found.at] = on_positive[number]
        if smoothed is not None:
            smoothed.add_gradient(part, gradient)
        head.backward(inputs, chunk, gradient, into, update)
    return loss, head.shard.sum(into)[0]


class _Smoothing:
    """Part of a loss with its targets spread evenly over all labels.

    A row of weight w adds w times the log-sum-exp less the mean of its logits. `share` weighs the
    positives.
    """

    def __init__(self, head: ChunkedHead, step: Step, parts: list[Place], share: Tensor) -> None:
        weights, drawn = step.weights, step.drawn
        of_rows = torch.zeros_like(weights).index_add(0, step.targets.rows, share)
        self.weights, self.shard = head.criterion.smoothing * of_rows, head.shard
        self.total, self.count = torch.zeros_like(weights), weights.new_zeros(1)
        self.counts = {}
        for part, chunk, _ in parts:
            counts = weights.new_ones(part.stop - part.start)
            if drawn is not None:  # as in the normaliser
                counts = drawn.factors[part].to(weights)
            self.counts[part.start] = counts = head._labelled(counts, chunk, 0.0)
            self.count += counts.sum()

    def read(self, part: slice, logits: Tensor) -> None:
        """Add up the logits of a chunk, which are minus infinity at positions without a label."""
        counts = self.counts[part.start]
        self.total += torch.where(counts > 0, logits, 0.0) @ counts

    def surprise(self, everything: Tensor) -> Tensor:
        """Return the mean surprise of each row over the labels of all processes."""
        self.total, self.count = self.shard.sum(self.total, self.count)
        return everything - self.total / self.count

    def add_gradient(self, part: slice, gradient: Tensor) -> None:
        """Add the derivative by the logits of a chunk, all but that of the log-sum-exp."""
        gradient.addr_(self.weights, self.counts[part.start] / self.count, alpha=-1)


def _take(logits: Tensor, found: Positives) -> Tensor:
    """Return the logits of the positives, and set them to minus infinity."""
    values = logits[found.at]
    logits[found.at] = float("-inf")
    return values


def _loss_of_rows(
    criterion: RowwiseLoss,
    parts: list[Positives],
    positive: list[Tensor],
    negative: Tensor,
    shard: Whole,
    smoothed: _Smoothing | None,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Compute loss, log-sum-exp of each row's negatives, derivatives by it and by positives.

    Processes with shards of one head exchange two numbers a row before, and two after.
    """
    rows = torch.cat([*(found.rows for found in parts), negative.new_empty(0, dtype=torch.int64)])
    weights = torch.cat([*(found.weights for found in parts), negative[:0]])
    logits = torch.cat([*positive, negative[:0]])
    highest = negative.scatter_reduce(0, rows, logits, "amax")
    negative, everything = shard.normalisers(negative, highest, rows, logits)
    surprise, margin = everything[rows] - logits, negative[rows] - logits
    loss = weights @ criterion.value(surprise, margin)
    by_surprise, by_margin = (weights * slope for slope in criterion.derivative(surprise, margin))
    factor = (negative - everything).exp()  # derivative of the one log-sum-exp by the other
    mass = torch.zeros_like(factor).index_add(0, rows, by_surprise)
    on_negative = (mass * factor).index_add(0, rows, by_margin)
    mass, on_negative, loss = shard.sum(mass, on_negative, loss)
    if smoothed is not None:
        loss = loss + smoothed.weights @ smoothed.surprise(everything)
        mass, on_negative = mass + smoothed.weights, on_negative + smoothed.weights * factor
    on_positive = mass[rows] * (logits - everything[rows]).exp() - by_surprise - by_margin
    on_each = on_positive.split([len(part) for part in positive])
    return loss, negative, on_negative, list(on_each)
