"""Add labels to a fitted classifier, and remove labels."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from sklearn_xlc._checks import unchanged_on_error
from sklearn_xlc._csr import places_of
from sklearn_xlc.batches import Generators, Rows, as_global, usual_modes, with_device
from sklearn_xlc.distributed import ALONE, check_labels, copied, joined, processes_of, share_out
from sklearn_xlc.engine.class_weights import RARE, frequency, label_counts
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.memory import check_room
from sklearn_xlc.heads import Head, Loss, losses_of
from sklearn_xlc.training import (
    EncoderHead,
    RowOptimizer,
    XLCNet,
    short_digest,
    with_room,
    without_labels,
)


def take_in(classifier: Any, classes: Any) -> np.ndarray:
    """Add the new labels in `classes`; return their positions in the head.

    Each position of a head holds one label or none. A label keeps its position. A removed label
    leaves an empty position for the next new label.
    """
    code = classifier._code
    names = [] if classes is None else code.unknown_of(classes)
    if not names:
        return np.empty(0, dtype=np.int64)
    changed, positions = code.with_labels(names)
    _relabel(classifier, changed)
    return positions


def _relabel(classifier: Any, code: LabelCode) -> None:
    """Set a new code, in which known labels have the positions that they had."""
    n_positions = code.n_positions or code.n_labels
    origin = places_of(classifier._code.label_order, n_positions)[code.label_order]
    classifier._code, classifier.classes_ = code, code.classes
    for name in ("ranker_", "_waiting"):
        ranker = getattr(classifier, name)
        if ranker is not None:
            setattr(classifier, name, ranker.for_labels(origin))
    classifier.decision_ = classifier.decision_.for_labels(origin)


def going_on(
    plan: Any, added: np.ndarray, generators: Generators
) -> tuple[EncoderHead, RowOptimizer | None, np.ndarray]:
    """Return the module and optimiser to train further, with labels added at positions.

    If several processes train together, each holds its part from now on. Without new labels the
    module is trained in place, unless its weights belong to a file. Labels that were known, and
    have their first samples now, start as new ones; positions of those that :func:`started` shall
    start in place come last.
    """
    classifier, processes = plan.classifier, plan.processes
    module, optimizer = classifier.net_.module_, classifier.net_.optimizer_
    met = np.empty(0, dtype=np.int64)
    if not plan.one_pass:  # a copy: an interrupt then leaves the original as it was
        return copied(module, processes), None, met
    if type(module.head).imprint_labels is not Head.imprint_labels:  # a label has a row of its own
        met = met_positions(classifier._code, plan.data.rows.Y)
        met = np.setdiff1d(np.intersect1d(classifier._unmet, met), added)
    if len(added) or (len(met) and processes is not ALONE):
        module, optimizer = _grown(plan, np.concatenate([added, met]), generators)
        met = met[:0]
    elif classifier._weights_borrowed:
        return copied(module, processes), None, met
    share_out(module, processes, optimizer)
    return module, optimizer, met


@contextlib.contextmanager
def started(plan: Any, head: Head, positions: np.ndarray, generators: Generators) -> Iterator[None]:
    """Start known labels at positions, and put them back on an error."""
    if not len(positions):
        yield
        return
    rows = [parameter.detach().view(-1, length) for parameter, length in head.label_rows()]
    rows += [buffer for loss in _losses_of(head) for buffer in loss.buffers(recurse=False)]
    before = [each[positions] for each in rows]
    try:
        _start(plan, head, positions, generators)
        yield
    except BaseException:
        for each, kept in zip(rows, before):
            each[positions] = kept
        raise


def met_positions(code: LabelCode, Y: Any) -> np.ndarray:
    """Return the positions of the labels of samples, sorted."""
    return np.unique(code.to_positions(Y).indices)


def _grown(
    plan: Any, positions: np.ndarray, generators: Generators
) -> tuple[EncoderHead, RowOptimizer]:
    """Copy module and optimiser with new labels, whose scores start at a frequency.

    If the call fails, the copies leave labels and weights as they were. The copies are whole, even
    if several processes hold parts of the module.
    """
    classifier = plan.classifier
    net, code = classifier.net_, classifier._code
    check_labels(plan.processes, "classes", lambda: short_digest([code.classes, positions]))
    n_positions = code.n_positions or code.n_labels
    module, optimizer = joined(net.module_, net.optimizer_)
    _check_room(classifier, module.head, n_positions)
    module, optimizer = with_room(module, n_positions, optimizer)
    head = module.head
    if head.free is not None:
        free = head.free.clone()
        free[torch.from_numpy(positions).to(net.device)] = False
        head.set_free(free)
    _start(plan, head, positions, generators)
    if classifier.head_ is not None:
        classifier.head_ = classifier.head_.grown(head)
    return module, optimizer


def _start(plan: Any, head: Head, positions: np.ndarray, generators: Generators) -> None:
    """Start labels at positions by their samples."""
    classifier, rows = plan.classifier, plan.data.rows
    code, device = classifier._code, torch.device(classifier.net_.device)
    at = torch.from_numpy(positions).to(device)
    _start_losses(code, head, rows, at)
    share = code.by_position(_first_shares(plan.data), RARE).to(device)
    with as_global(with_device(generators, device)):
        head.start_labels(at, share)
        if rows.bags is None:
            _imprint(classifier, head, rows, positions)
        classifier._start_beside(head, rows, at)


def _first_shares(data: Any) -> torch.Tensor:
    """Compute the frequencies at which new labels start, of shape (n_labels,).

    They are the geometric means of the frequency in the samples of this call and that in all
    samples so far. Users bring samples of a new label alone: by their frequency in the call, one,
    new labels would be named everywhere. By that in all samples they would hardly be found.
    """
    rows = data.rows
    share = frequency(rows.Y, rows.sample_weight) * (data.n_given / data.n_seen) ** 0.5
    return share.clamp_(min=RARE)


def _imprint(classifier: Any, head: Head, rows: Rows, positions: np.ndarray) -> None:
    """Start labels at positions from the features of their samples in `rows`, if there are any."""
    of_new = classifier._code.to_positions(rows.Y).tocsc()[:, positions].tocsr()
    counts = np.asarray(of_new.sum(axis=0), dtype=np.float64).ravel()
    if type(head).imprint_labels is Head.imprint_labels or not counts.any():
        return
    counts[counts == 0] = np.nan
    predictor = replace(classifier._predictor, ranker=None)
    mean: Any = 0.0
    sums: Any = 0.0
    for part, features in predictor.features(rows.without_labels()):
        of_batch = features.cpu().double().numpy()  # not all devices have float64
        mean, sums = mean + of_batch.sum(axis=0) / len(rows), sums + of_new[part].T @ of_batch
    like = next(head.parameters())
    at, means = torch.from_numpy(positions), torch.from_numpy(sums / counts[:, None])
    head.imprint_labels(at.to(like.device), means.to(like), torch.from_numpy(mean).to(like))


def _check_room(classifier: Any, head: Head, n_positions: int) -> None:
    """Raise MemoryError if a larger layer, with two moments, would not fit into memory."""
    tensors = head.room_for(n_positions) if n_positions > head.n_labels else []
    row_bytes = (len(rows) * tensor[:1].numel() * tensor.element_size() for tensor, rows in tensors)
    check_room(classifier, 3 * sum(row_bytes), f"a layer for {n_positions:,} labels")


def _losses_of(head: Head) -> list[Loss]:
    """Return the losses whose buffers have a row for each label."""
    return [loss for loss in losses_of(head) if loss.per_label]


def _start_losses(code: LabelCode, head: Head, rows: Rows, positions: torch.Tensor) -> None:
    """Fit the buffers of losses for new labels to their counts in `rows`."""
    losses = _losses_of(head)
    if not losses:
        return
    counts, n_samples = label_counts(rows.Y, rows.sample_weight)
    on_host = positions.cpu()
    for loss in losses:
        fitted = copy.deepcopy(loss)
        fitted.fit(code.by_position(counts), n_samples)
        for name, buffer in loss.named_buffers(recurse=False):
            buffer[positions] = fitted.get_buffer(name)[on_host].to(buffer)


def remove(classifier: Any, labels: Any) -> None:
    """Remove labels from a fitted classifier; on an error it stays as it was."""
    ids = classifier._code.ids_of(labels)
    if not len(ids):
        return
    _check_removal(classifier, ids)
    with unchanged_on_error(classifier), usual_modes(training=True):
        code, before = classifier._code, classifier.net_
        positions = torch.from_numpy(code.label_order[ids]).to(before.device)
        module, optimizer = without_labels(before.module_, positions, before.optimizer_)
        net: XLCNet = object.__new__(type(before))  # copies of skorch 1.1 pass through a file
        net.__dict__.update(vars(before))
        net.module = net.module_ = module
        net.optimizer_ = optimizer
        _relabel(classifier, code.without_labels(ids))
        classifier.net_ = net
        classifier.decision_.scores_changed("remove_labels")


def _check_removal(classifier: Any, ids: np.ndarray) -> None:
    code, head = classifier._code, classifier.net_.module_.head
    check_labels(processes_of(head), "labels", lambda: short_digest(ids))
    n_removed = len(ids)
    least = 1 if code.multilabel else 2
    if code.n_labels - n_removed < least:
        raise ValueError(
            f"{n_removed} of {code.n_labels} labels cannot be removed: at least {least} must stay"
        )
    if not head.leaves_out:
        why = "its outputs are sets of labels" if head.ranks_sets else "its `leaves_out` is not set"
        raise ValueError(
            f"{type(head).__name__} cannot leave a label out: {why}; drop the label from "
            "predictions, or fit anew, or with head='flat'"
        )
