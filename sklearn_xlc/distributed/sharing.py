"""Share samples and gradients between processes in training."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from skorch.callbacks import Checkpoint, TrainEndCheckpoint
from torch import Tensor

from sklearn_xlc._csr import row_lengths
from sklearn_xlc.batches import (
    WHOLE_BATCHES,
    AllSamples,
    Bags,
    Batch,
    Generators,
    Rows,
    SparseRows,
    WholeBatches,
    as_global,
    drawing_rows,
    instances_of,
    make_batch,
    sparse_gradient,
)
from sklearn_xlc.distributed.processes import Processes
from sklearn_xlc.distributed.shards import Joined, in_parts
from sklearn_xlc.encoders import is_perceptron

if TYPE_CHECKING:
    from sklearn_xlc.training import Gradient

#: Multiply-adds of a core in the time in which local processes send a byte, and bytes that they
#: send while a message waits for the slower process.
_PER_BYTE, _PER_MESSAGE = 24, 2**19


def shares_samples(module: Any, rows: Rows, batch_size: int) -> bool:
    """Return whether a process computes the features of its part of a batch only.

    Where it computes all, as one process alone would, the gradients of the encoder are equal in
    all processes, and nothing of it is sent. That is less work than messages where most of an
    encoder is a sparse input layer. Both are counted by what all processes know alike: multiply-
    adds that sharing saves, and bytes that it sends.
    """
    encoder, head = module.encoder, module.head
    if not (is_perceptron(encoder) and rows.sparse and in_parts(head)):
        return True
    weight = encoder.input.weight
    n_met = sum(p.numel() for p in encoder.parameters() if p is not weight)
    of_input = rows.n_entries() / max(1, len(rows)) * weight.shape[1]
    # Gradients of the input layer's outputs are sent, and those of all other weights added up:
    # messages besides that of the features, of which gradients are added up in either case.
    sent = weight.element_size() * (batch_size * weight.shape[1] + 2 * n_met) + 3 * _PER_MESSAGE
    return batch_size * (of_input + 3 * n_met) > _PER_BYTE * sent


def sum_gradients(
    gradients: dict[Tensor, Gradient],
    processes: Processes,
    held: Iterable[Tensor] = (),
    beside: Sequence[Tensor] = (),
) -> tuple[dict[Tensor, Gradient], list[Tensor]]:
    """Add up the gradients (as :meth:`RowOptimizer.apply` has them) and `beside` of processes.

    Dense ones travel in one message. Of the others, of which a batch touches few rows, the rows of
    all processes are gathered and added where they meet. Gradients of `held` parameters stay.
    """
    held, summed = set(held), dict(gradients)
    dense: dict[Any, Tensor] = {}
    for p, (rows, values) in gradients.items():
        if p in held:
            continue
        if not isinstance(rows, Tensor):
            dense[p] = values
            continue
        sizes = processes.stacked(torch.tensor(len(rows), device=rows.device)).tolist()
        indices, values = processes.joined(rows, sizes), processes.joined(values, sizes)
        whole = sparse_gradient(indices, values, p.shape).coalesce()
        summed[p] = whole.indices()[0], whole.values()
    dense |= dict(enumerate(beside))
    totals: dict[Any, Tensor] = {}
    for dtype in {each.dtype: None for each in dense.values()}:
        some = {key: each for key, each in dense.items() if each.dtype == dtype}
        totals |= zip(some, processes.sum_together(list(some.values())))
    sums = [totals.pop(number) for number in range(len(beside))]
    return summed | {p: (slice(None), total) for p, total in totals.items()}, sums


def of_batch(
    head: Any,
    inputs: Any,
    gradients: dict[Tensor, Gradient],
    loss: Tensor,
    processes: Processes,
) -> tuple[dict[Tensor, Gradient], Tensor]:
    """Return gradients and loss of a batch from its encoded parts."""
    loss = loss.detach()
    if in_parts(head):  # it has read all samples: loss and gradients of the head are complete
        gradients, _ = sum_gradients(gradients, processes, head.parameters())
    else:
        gradients, (loss,) = sum_gradients(gradients, processes, beside=[loss])
    for parameter, found in _of_input_layers(inputs, processes).items():
        if parameter in gradients:  # an encoder has read other rows beside
            found = slice(None), _dense(parameter, found) + _dense(parameter, gradients[parameter])
        gradients[parameter] = found
    return gradients, loss


def _of_input_layers(inputs: Any, processes: Processes) -> dict[Tensor, Gradient]:
    """Return the gradients of input layers with stored outputs.

    Processes exchange the gradients of the outputs; each then adds up those of the weights by the
    rows of the whole batch, in the order of one process.
    """
    rows = instances_of(inputs)
    of_layers: dict[Any, Tensor] = {}
    for layer, outputs in getattr(rows, "outputs", ()):
        if outputs.grad is not None:
            of_layers[layer] = of_layers.get(layer, 0) + outputs.grad
    found: dict[Tensor, Gradient] = {}
    for layer, own in of_layers.items():
        gradient = processes.joined(own[: rows.shares[processes.rank]], rows.shares)
        found |= layer.gradients(rows.whole, gradient)
    return found


def _dense(parameter: Tensor, gradient: Gradient) -> Tensor:
    whole = torch.zeros_like(parameter)
    whole[gradient[0]] = gradient[1]
    return whole


def begin_together(net: Any, processes: Any, reads_gradients: bool) -> None:
    """Refuse callbacks with access to all gradients or weights; start all processes alike.

    What users have built before the fit may be drawn otherwise in each process.
    """
    if processes.size == 1:
        return
    if reads_gradients:
        raise ValueError(
            "callbacks cannot read gradients in training over processes, each of which has "
            "some of them; remove such callbacks, or set distributed=False"
        )
    for name, callback in net.callbacks_:
        if isinstance(callback, Checkpoint | TrainEndCheckpoint):
            raise ValueError(
                f"the callback {name} writes the weights that a process holds, and each process "
                "would write to the same file: use checkpoint=, which joins them, or set "
                "distributed=False"
            )
    stay_alike(net.module_, net.optimizer_, processes)


def stay_alike(module: Any, optimizer: Any, processes: Any) -> None:
    """Copy the first process's weights and buffers to all where they have come apart.

    All compute the same updates of weights; but a sum may round otherwise on another processor, and
    on GPUs from one time to the next. What the optimiser keeps of such weights follows. Running
    means, such as those of batch normalisation, are of the samples that a process has read.
    """
    if processes.size == 1:
        return
    sharded = module.head.sharded_parameters()
    alike = [parameter for parameter in module.parameters() if parameter not in sharded]
    alike += (module.encoder if sharded else module).buffers()  # others may be of held labels
    if not alike:
        return
    own = torch.stack([_digest(tensor) for tensor in alike])
    found = processes.stacked(own).T.tolist()
    for tensor, digests in zip(alike, found):
        if len(set(digests)) > 1:
            state = optimizer.state.get(tensor, {}).values()
            moments = (each for each in state if each.shape)  # not numbers, such as that of steps
            for part in [tensor, *moments]:
                processes.take_first(part)


def _digest(tensor: Tensor) -> Tensor:
    """Sum of the bits of a tensor, as integers, times their places."""
    sizes = {1: torch.int8, 2: torch.int16, 4: torch.int32}
    integer = sizes.get(tensor.element_size(), torch.int64)
    bits, size = tensor.detach().reshape(-1).view(integer), 2**20
    found = torch.zeros((), dtype=torch.int64, device=bits.device)
    for number, block in enumerate(bits.split(size)):  # its products take eight bytes each
        places = torch.arange(1, len(block) + 1, device=bits.device) + number * size
        found += (block * places).sum()
    return found


# --- batches ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OwnSamples(AllSamples):
    """Samples of a batch read by one of several processes: a slice, maybe empty.

    `rows` are those of the encoder's inputs within the `n_rows` of the whole batch; instances if
    samples are bags. They are the first row if there is no sample, because encoders need one.
    """

    processes: Processes
    samples: slice
    rows: slice
    n_rows: int

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return self.samples.stop - self.samples.start

    @contextlib.contextmanager
    def drawing(self, generators: Callable[[], Generators | None]) -> Iterator[None]:
        found = generators()
        if found is None:
            yield
            return
        with as_global(found):  # each process draws numbers of its own, and all go on alike
            seed = self.processes.of_first(int(torch.randint(2**62, ())))
            torch.manual_seed(seed + 1 + self.processes.rank)
            yield
            torch.manual_seed(seed)

    def reading(self) -> contextlib.AbstractContextManager[None]:
        return drawing_rows(self.rows, self.n_rows)

    def for_head(self, head: Any, features: Any, batch: Batch) -> tuple[Any, Any, Any]:
        # A head of which each process holds a part reads all samples. Any other reads its own
        # samples only; their losses, and gradients, add up to those of the batch.
        assert batch.targets is not None
        if in_parts(head):
            features = Joined.apply(features[: self.n_samples], self.processes, len(batch))
            return features, batch.targets, batch.sample_weight
        start, n_read = self.samples.start, max(1, self.n_samples)
        read = slice(start, start + n_read) if self.n_samples else slice(0, 1)
        targets = batch.targets.split([read.start, n_read, len(batch) - read.stop])[1]
        weight = torch.ones(len(batch)) if batch.sample_weight is None else batch.sample_weight
        # Heads take the mean over their samples, which are few of the batch.
        return features, targets, weight[read].double() * (self.n_samples / len(batch))

    def update_of(self, head: Any, update: Any) -> Any:
        return update if in_parts(head) else None

    def step(self, head: Any, optimizer: Any, inputs: Any, loss: Tensor) -> Tensor:
        gradients, loss = of_batch(head, inputs, optimizer.gradients(), loss, self.processes)
        optimizer.require_finite(loss.detach())
        optimizer.apply(gradients)
        return loss

    def total(self, head: Any, loss: Tensor) -> Tensor:
        return loss if in_parts(head) else self.processes.sum(loss)


@dataclass
class SharedRows(SparseRows):
    """Rows of a batch read by this process: `shares` of the rows of `whole`, in order of processes.

    An input layer may append its outputs to `outputs`, as leaves of the graph, instead of computing
    the gradient of its weights. Processes then exchange the gradients of these outputs, which are
    smaller: they have one row per sample, the gradient of the weights one row per column in use.
    """

    whole: SparseRows
    shares: Sequence[int]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.outputs: list[tuple[Any, Tensor]] = []

    @classmethod
    def of_batch(cls, whole: SparseRows, own: slice, shares: Sequence[int]) -> SharedRows:
        """Select the rows `own` of a batch."""
        part = whole.split([own.start, own.stop - own.start, len(whole) - own.stop])[1]
        return cls(part.indptr, part.indices, part.data, part.n_features, whole, shares)

    def through(self, layer: Any) -> Tensor:
        is_plain = torch.is_grad_enabled() and layer.is_plain() and not self.data.requires_grad
        if not is_plain:
            return super().through(layer)
        with torch.no_grad():
            outputs = super().through(layer)
        self.outputs.append((layer, outputs.requires_grad_()))
        return outputs

    def transpose_now(self) -> None:
        """Compute and cache the transpose of the whole batch, also for copies."""
        self.whole.transpose_now()


class SharedBatches(WholeBatches):
    """Cut shared batches: all processes have the targets, each a part of the inputs."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes

    def at_once(self, n: int) -> int:
        return 1

    def cut(self, rows: Rows, index: slice | np.ndarray) -> Batch:
        positions = np.r_[index]  # also of a slice
        samples = self.processes.part(len(positions))
        read = samples if samples.stop > samples.start else slice(0, 1)
        sizes = np.ones(len(positions), np.int64)
        if rows.bags is not None:
            sizes = row_lengths(rows.bags, positions)
        edges = [0, *sizes.cumsum().tolist()]
        own_rows = slice(edges[read.start], edges[read.stop])
        own = OwnSamples(self.processes, samples, own_rows, edges[-1])
        unlabelled = rows.without_labels()
        if not rows.sparse or rows.collate is not None:
            inputs = make_batch(unlabelled.take(positions[read])).inputs
        else:
            starts = [edges[i] for i in self.processes.edges(len(positions))]
            shares = [stop - start for start, stop in zip(starts, starts[1:])]
            whole = make_batch(unlabelled.take(positions)).inputs
            if rows.bags is None:
                inputs = SharedRows.of_batch(whole, own.rows, shares)
            else:
                instances = SharedRows.of_batch(whole.instances, own.rows, shares)
                inputs = Bags(instances, whole.indptr[read.start : read.stop + 1] - own.rows.start)
        return Batch(inputs, *rows.targets(positions), len(positions), own)


def batches_for(processes: Any, module: Any, rows: Rows, batch_size: int) -> WholeBatches:
    """Return the cutter of batches for training, whole or shared by processes."""
    if processes.size > 1 and shares_samples(module, rows, batch_size):
        return SharedBatches(processes)
    return WHOLE_BATCHES
