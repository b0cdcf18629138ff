"""Labels that come later, and labels that are removed."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc._checks import unchanged_on_error
from sklearn_xlc.batches import Rows
from sklearn_xlc.batches.processes import training_processes
from sklearn_xlc.batches.randomness import Generators, as_global, usual_modes, with_device
from sklearn_xlc.decisions import Decision
from sklearn_xlc.engine.agreement import check_labels
from sklearn_xlc.engine.building import RARE, frequency, label_counts
from sklearn_xlc.engine.deciding import ranks_sets
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.memory import SMALL, available_memory, refuse_beyond
from sklearn_xlc.engine.net import TrainingMixin
from sklearn_xlc.heads import Head, Loss
from sklearn_xlc.training import EncoderHead, XLCNet
from sklearn_xlc.training.optimizer import RowOptimizer
from sklearn_xlc.training.parts import copied, joined, share_out
from sklearn_xlc.training.resizing import with_room, without_labels


class ChangingLabelsMixin(TrainingMixin):
    """Let a fitted classifier take in labels, and forget some.

    A head has positions, each of which holds a label or none. A label keeps its position; one that
    is removed leaves its position empty, for the next label that comes.
    """

    net_: XLCNet
    classes_: np.ndarray
    decision_: Decision
    n_parameters_: int
    _code: LabelCode

    def _take_in(self, classes: Any) -> np.ndarray:
        """Give labels that `classes` adds an id and a position; return these positions."""
        names = [] if classes is None else self._code.unknown_of(classes)
        if not names:
            return np.empty(0, dtype=np.int64)
        n_known = self._code.n_labels
        code, positions = self._code.with_labels(names)
        origin = np.concatenate([np.arange(n_known), np.full(len(names), -1)])
        self._relabel(code, origin)
        return positions

    def _relabel(self, code: LabelCode, origin: np.ndarray) -> None:
        """Take over a code; of each of its labels `origin` is the id before, or -1."""
        self._code, self.classes_ = code, code.classes
        if code.multilabel:  # with class labels, the best one is the answer
            self.decision_ = self.decision_.for_labels(origin)

    def _going_on(
        self, rows: Rows, added: np.ndarray, generators: Generators
    ) -> tuple[EncoderHead, RowOptimizer | None]:
        """Module and optimiser that are trained further, with labels added at positions.

        Where processes train together, each holds its part from now on. Without new labels the
        module is trained in place, unless its weights belong to a file.
        """
        module, optimizer = self.net_.module_, self.net_.optimizer_
        if not len(added) and getattr(self, "_weights_borrowed", False):
            return copied(module), None
        if len(added):
            module, optimizer = self._grown(rows, added, generators)
        share_out(module, optimizer)
        return module, optimizer

    def _grown(
        self, rows: Rows, positions: np.ndarray, generators: Generators
    ) -> tuple[EncoderHead, RowOptimizer]:
        """Copies of module and optimiser with new labels, which start at their frequency in `rows`.

        Copies, so that a call that fails leaves the labels and all weights as they were. They are
        whole, also where processes hold the module in parts.
        """
        net, code, processes = self.net_, self._code, training_processes()
        if processes is not None:
            check_labels(processes, "classes", [code.classes, positions])
        n_positions = code.n_positions or code.n_labels
        module, optimizer = joined(net.module_, net.optimizer_)
        self._check_room(module.head, n_positions)
        module, optimizer = with_room(module, n_positions, optimizer)
        head, device = module.head, torch.device(net.device)
        at = torch.from_numpy(positions).to(device)
        if head.free is not None:
            free = head.free.clone()
            free[at] = False
            head.set_free(free)
        self._start_losses(head, rows, at)
        share = code.by_position(frequency(rows.Y, rows.sample_weight), RARE).to(device)
        with as_global(with_device(generators, device)):
            head.start_labels(at, share)
            self._start_beside(head, rows, at)
        self._head_grown(head)
        return module, optimizer

    def _check_room(self, head: Head, n_positions: int) -> None:
        """Raise MemoryError before a larger layer, with two moments, is made that does not fit."""
        device = self.net_.device
        tensors = head.room_for(n_positions) if n_positions > head.n_labels else []
        row_bytes = (
            len(rows) * tensor[:1].numel() * tensor.element_size() for tensor, rows in tensors
        )
        n_bytes, what = 3 * sum(row_bytes), f"a layer for {n_positions:,} labels"
        if n_bytes > SMALL:
            refuse_beyond(n_bytes, available_memory(device), what, self._smaller_model())

    def _start_beside(self, head: Head, rows: Rows, positions: torch.Tensor) -> None:
        """Set what a head holds of new labels beside its weights."""

    def _start_losses(self, head: Head, rows: Rows, positions: torch.Tensor) -> None:
        """Fit what losses hold of new labels to their counts in `rows`."""
        losses = [part for part in head.modules() if isinstance(part, Loss) and part.per_label]
        if not losses:
            return
        counts, n_samples = label_counts(rows.Y, rows.sample_weight)
        on_host = positions.cpu()
        for loss in losses:
            fitted = copy.deepcopy(loss)
            fitted.fit(self._code.by_position(counts), n_samples)
            for name, buffer in loss.named_buffers(recurse=False):
                buffer[positions] = fitted.get_buffer(name)[on_host].to(buffer)

    def _head_grown(self, head: Head) -> None:
        """Update attributes that describe the head."""
        parameters = self.net_.module_.encoder.parameters(), head.parameters()
        self.n_parameters_ = sum(p.numel() for of in parameters for p in of if p.requires_grad)

    def remove_labels(self, labels: Any) -> Any:
        """Forget labels: they are never predicted again, and their weights are gone.

        Scores of the other labels stay as they are, to the last bit; where labels share one
        probability (a softmax), they are normalised over the labels that stay. The next labels that
        come (:meth:`partial_fit`) take the places of those removed. Processes that hold a model
        together all call this method.

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
        ids = self._code.ids_of(labels)
        if not len(ids):
            return self
        self._check_removal(ids)
        with unchanged_on_error(self), usual_modes(training=True):
            before = self.net_
            positions = torch.from_numpy(self._code.label_order[ids]).to(before.device)
            module, optimizer = without_labels(before.module_, positions, before.optimizer_)
            net: XLCNet = object.__new__(type(before))  # copies of skorch 1.1 pass through a file
            net.__dict__.update(vars(before))
            net.module = net.module_ = module
            net.optimizer_ = optimizer
            kept = np.delete(np.arange(self._code.n_labels), ids)
            self._relabel(self._code.without_labels(ids), kept)
            self.net_ = net
        return self

    def _check_removal(self, ids: np.ndarray) -> None:
        code, head = self._code, self.net_.module_.head
        for shard in list(head.sharded_parameters().values())[:1]:
            check_labels(shard.processes, "labels", ids)
        n_removed = len(ids)
        least = 1 if code.multilabel else 2
        if code.n_labels - n_removed < least:
            raise ValueError(
                f"{n_removed} of {code.n_labels} labels cannot be removed: at least {least} must "
                "stay"
            )
        if not head.leaves_out:
            why = (
                "its outputs are sets of labels"
                if ranks_sets(head)
                else "its `leaves_out` is not set"
            )
            raise ValueError(
                f"{type(head).__name__} cannot leave a label out: {why}; drop the label from "
                "predictions, or fit anew, or with algorithm='flat'"
            )
