"""Label sets that an output layer, or the network before it, can predict."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.geometry import ArgmaxabilityReport, verify_argmaxable
from sklearn_xlc.geometry._validation import check_assignments
from sklearn_xlc.training import XLCNet


class VerifyingMixin:
    """Check label sets against a layer whose logits are products of weights and inputs."""

    encoder: Any
    classes_: np.ndarray
    max_active_: int | None
    net_: XLCNet
    _code: LabelCode
    _features: Any

    @property
    def output_weights_(self) -> np.ndarray:
        """Weights of the output layer, ``(n_labels, 2 * max_active_ + 1 + n_slack)``."""
        check_is_fitted(self, "net_")
        head, code = self.net_.module_.head, self._code
        if self.max_active_ is None:
            return code.by_label(head.weight.detach().cpu().numpy().T).T
        return code.by_label(head.output_weights().T).T

    def _verify_layer(self, Y: Any, X: Any, cut: Any, **options: Any) -> ArgmaxabilityReport:
        """Label sets that some inputs of the output layer give."""
        points = None if X is None else self._output_inputs(X)
        if np.ndim(cut) or (cut and self.max_active_ is None):
            intercept = np.broadcast_to(-np.asarray(cut), len(self.classes_))
            return verify_argmaxable(self.output_weights_, Y, intercept, points=points, **options)
        if points is not None:
            # The first Fourier column is constant: it moves the threshold, and no set is lost.
            points[:, 0] -= np.sqrt(self._code.n_first or self._code.n_labels) * cut
        if self._code.n_first:  # labels came or went: no whole Fourier columns
            return verify_argmaxable(self.output_weights_, Y, points=points, **options)
        return verify_argmaxable(self, Y, points=points, **options)

    def _verify_network(self, Y: Any, X: Any, cut: Any, **options: Any) -> ArgmaxabilityReport:
        """Label sets that some features of the encoder give."""
        coef, intercept = self._feature_weights()
        features = None if X is None else self._encoded(X)
        nonnegative = np.full(coef.shape[1], self.encoder is None)
        if features is not None:
            nonnegative |= features.min(axis=0) >= 0
        report = verify_argmaxable(
            coef, Y, intercept - cut, points=features, nonnegative=nonnegative, **options
        )
        open_rows = np.flatnonzero(report.status == -1)
        if not len(open_rows):
            return report
        # What is out of reach of the layer is out of reach of the network. The product of a low
        # rank is hard to prove anything of.
        layer = self._verify_layer(check_assignments(Y, "Y")[open_rows], None, cut, **options)
        for row, status, reason, conflict in zip(
            open_rows, layer.status, layer.reason, layer.conflicts
        ):
            if status == 0:
                report.status[row], report.reason[row], report.radius[row] = 0, reason, 0.0
                report.conflicts[row] = conflict
        return report

    def _feature_weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights and biases of the labels on the encoder's features."""
        head = copy.deepcopy(self.net_.module_.head).double().cpu()
        with torch.no_grad():
            bias = head.inputs(torch.zeros(1, head.n_features, dtype=torch.float64))
            weight = head.inputs(torch.eye(head.n_features, dtype=torch.float64)) - bias
        coef = self.output_weights_.astype(np.float64)
        return coef @ weight.numpy().T, (coef @ bias.numpy().T).ravel()

    def _encoded(self, X: Any) -> np.ndarray:
        """Features of validated samples."""
        with self.net_.predicting():
            return np.concatenate([f.cpu().double().numpy() for _, f in self._features(X)])

    def _output_inputs(self, X: Any) -> np.ndarray:
        """Inputs of the output layer for each sample: the factors of its weights."""
        head = self.net_.module_.head
        with self.net_.predicting():
            parts = [head.inputs(features).cpu().numpy() for _, features in self._features(X)]
        return np.concatenate(parts)
