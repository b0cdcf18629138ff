"""Footnote 7 of the sigmoid bottleneck paper: the angles of the Fourier layer, fixed or learnt.

    python benchmarks/papers/sigmoid_angles.py DATA

Label i of n has the row [1, sqrt(2) cos(f t_i), sqrt(2) sin(f t_i), ...] / sqrt(n), f = 1 to k, at
the angle t_i = 2 pi i / n (Eq. 8). Here the angles are parameters, too: a part of one's own, with
the gradient by hand. Test samples of three data sets; how far the angles go, in steps of the grid;
how many test sets of up to k labels the layer can predict, whose rows are at any distinct angles.
"""

import time

import numpy as np
import scipy.sparse as sp
import torch
from _experiment import parser, print_table, save
from _measure import load_part
from torch import nn

from sklearn_xlc import DFTSigmoidClassifier
from sklearn_xlc.geometry import verify_argmaxable
from sklearn_xlc.heads import Fourier, FourierHead
from sklearn_xlc.metrics import precision_at_k

DATA = True
MINUTES = 6
FULL_MINUTES = 18
SETS = ("bibtex", "debtags", "delicious")
#: Test sets that are checked.
CHECKED = 30


class LearntAnglesHead(FourierHead):
    """Fourier columns at learnt angles."""

    def __init__(self, *args, **params):
        super().__init__(*args, method="matrix", **params)
        self.angles = nn.Parameter(torch.arange(self.n_labels) * (2 * np.pi / self.n_labels))

    def fused_parameters(self):
        return [*super().fused_parameters(), self.angles]

    def waves(self, chunk):
        """Frequencies, and cosines and sines of the rows, without their factor."""
        frequencies = torch.arange(1.0, self.max_active + 1)
        turns = self.angles.detach()[chunk, None] * frequencies
        return frequencies, turns.cos(), turns.sin()

    def rows(self, chunk):
        _, cosines, sines = self.waves(chunk)
        waves = torch.stack([cosines, sines], dim=2).flatten(1) * 2**0.5
        return torch.cat([torch.ones(len(waves), 1), waves], dim=1) / self.n_labels**0.5

    def logits(self, inputs, chunk):
        logits = inputs[:, : self.width] @ self.rows(chunk).T
        if self.n_slack:
            logits += inputs[:, self.width :] @ self.slack[chunk].T
        return logits

    def backward(self, inputs, chunk, gradient, into, update):
        into[:, : self.width] += gradient @ self.rows(chunk)
        of_rows = gradient.T @ inputs[:, : self.width]  # of the loss by the entries of the rows
        if self.n_slack:
            into[:, self.width :] += gradient @ self.slack[chunk]
            update(self.slack, chunk, gradient.T @ inputs[:, self.width :])
        frequencies, cosines, sines = self.waves(chunk)
        slope = frequencies * (of_rows[:, 2::2] * cosines - of_rows[:, 1::2] * sines)
        update(self.angles, chunk, slope.sum(dim=1) * (2 / self.n_labels) ** 0.5)

    def _output_weights(self, chunk):
        return torch.cat([self.rows(chunk), self.slack.detach()[chunk]], dim=1).numpy()


class LearntAngles(Fourier):
    """Fourier columns at learnt angles, and learnt slack columns."""

    head = LearntAnglesHead


def check_gradient():
    """Compare the gradient of the angles with differences of the loss."""
    head = LearntAnglesHead(4, 12, True, max_active=2, n_slack=1).double()
    inputs, up = (torch.randn(3, n, dtype=torch.float64) for n in (6, 12))
    found = {}
    head.backward(
        inputs, slice(None), up, torch.zeros_like(inputs), lambda p, _, g: found.update({id(p): g})
    )

    def loss(angles):
        head.angles.data = angles
        return float((head.logits(inputs, slice(None)) * up).sum().detach())

    start, step = head.angles.data.clone(), 1e-6 * torch.eye(12, dtype=torch.float64)
    expected = [(loss(start + e) - loss(start - e)) / 2e-6 for e in step]
    np.testing.assert_allclose(found[id(head.angles)], expected, atol=1e-7)


def measure(name, folder, seed, output):
    (X, Y), (new, truth) = load_part(folder, "trn"), load_part(folder, "tst")
    clf = DFTSigmoidClassifier(output=output, n_slack=16, ranker=None, random_state=seed)
    start = time.process_time()
    clf.fit(X, Y)
    seconds = time.process_time() - start
    sets = clf.predict(new)
    row = {"data": name, "angles": type(output).__name__, "seed": seed, "CPU s": seconds}
    scores = clf.decision_function(new)
    for k in (1, 5):
        row[f"P@{k}"] = 100 * precision_at_k(truth, scores, k=k)
    hits, of = sets.multiply(truth).sum(), sets.sum() + truth.sum()
    row["micro-F1"] = 200 * hits / of
    row["loss"] = clf.loss_curve_[-1]
    layer = clf.net_.module_.head
    if isinstance(layer, LearntAnglesHead):
        n = layer.n_labels
        angles = np.sort(layer.angles.detach().numpy())
        moved = layer.angles.detach().numpy() - np.arange(n) * (2 * np.pi / n)
        row["moved"] = float(np.abs(moved).mean() * n / (2 * np.pi))
        row["least gap"] = float(np.diff(angles).min() * n / (2 * np.pi))
    small = np.flatnonzero(np.diff(sp.csr_matrix(truth).indptr) <= clf.max_active_)[:CHECKED]
    report = verify_argmaxable(clf.output_weights_[:, : 2 * clf.max_active_ + 1], truth[small])
    row["reachable"] = report.n_argmaxable / len(small)
    return row


def main():
    arguments = parser(__doc__, data=True).parse_args()
    check_gradient()
    rows = []
    for name in SETS:
        for seed in range(3 if arguments.full else 1):
            for output in (Fourier(), LearntAngles()):
                rows.append(measure(name, arguments.data / name, seed, output))
                print(rows[-1], flush=True)
    print_table(rows, list(rows[1]))
    save(arguments, "sigmoid_angles", rows)


if __name__ == "__main__":
    main()
