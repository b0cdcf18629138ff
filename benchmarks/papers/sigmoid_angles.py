"""Footnote 7 of the sigmoid bottleneck paper: the angles of the Fourier layer, fixed or learnt.

    python benchmarks/papers/sigmoid_angles.py DATA

Label i of n has the row [1, sqrt(2) cos(f t_i), sqrt(2) sin(f t_i), ...] / sqrt(n), f = 1 to k, at
the angle t_i = 2 pi i / n (Eq. 8). Here the angles are parameters, too: a part of one's own, with
the gradient by hand, and a factor of their steps. Test samples of three data sets; how far the
angles go, in steps of the grid, and the least gap between two: the theorem holds for any distinct
angles, as a trigonometric polynomial of degree k can change its sign at any 2 k of them.
"""

import time

import numpy as np
import torch
from _experiment import parser, print_table, save
from _measure import load_part
from torch import nn

from sklearn_xlc import DFTSigmoidClassifier
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import Fourier, FourierHead
from sklearn_xlc.metrics import precision_at_k

DATA = True
MINUTES = 6
FULL_MINUTES = 18
SETS = ("bibtex", "debtags", "delicious")
#: What is the default of the fixed layer, whose rules do not speak of a part of one's own.
COMMON = {
    "n_slack": 16,
    "encoder": MLP(hidden_layer_sizes=(512,), dropout=0.5),
    "optimizer": "mixed",
    "max_epochs": 15,
    "batch_size": 256,
    "ranker": None,
}
#: Factors of the steps of angles; 0: they stay.
STEPS = (0.0, 0.1, 1.0, 10.0)


class LearntAnglesHead(FourierHead):
    """Fourier columns at angles of the grid plus `step` times a parameter."""

    leaves_out = True
    is_linear = True

    step = 1.0

    def __init__(self, *args, **params):
        super().__init__(*args, method="matrix", **params)
        self.register_buffer("grid", torch.arange(self.n_labels) * (2 * np.pi / self.n_labels))
        self.moves = nn.Parameter(torch.zeros(self.n_labels))

    def angles(self, chunk=slice(None)):
        return (self.grid + self.step * self.moves.detach())[chunk]

    def fused_parameters(self):
        moves = [self.moves] if hasattr(self, "moves") else []  # not yet, where the base is built
        return [*super().fused_parameters(), *moves]

    def waves(self, chunk):
        """Frequencies, and cosines and sines of the rows, without their factor."""
        frequencies = torch.arange(1.0, self.max_active + 1)
        turns = self.angles(chunk)[:, None] * frequencies
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
        update(self.moves, chunk, slope.sum(dim=1) * self.step * (2 / self.n_labels) ** 0.5)

    def output_weights(self, chunk=slice(None)):
        return torch.cat([self.rows(chunk), self.slack.detach()[chunk]], dim=1).numpy()


def learnt(step):
    """Part of learnt angles, and learnt slack columns."""
    head = type("Head", (LearntAnglesHead,), {"step": step})
    return type("LearntAngles", (Fourier,), {"head": head})()


def check_gradient():
    """Compare the gradient of the angles with differences of the loss."""
    head = learnt(0.7).head(4, 12, True, max_active=2, n_slack=1).double()
    inputs, up = (torch.randn(3, n, dtype=torch.float64) for n in (6, 12))
    found = {}
    head.backward(
        inputs, slice(None), up, torch.zeros_like(inputs), lambda p, _, g: found.update({id(p): g})
    )

    def loss(moves):
        head.moves.data = moves
        return float((head.logits(inputs, slice(None)) * up).sum().detach())

    start, step = head.moves.data.clone(), 1e-6 * torch.eye(12, dtype=torch.float64)
    expected = [(loss(start + e) - loss(start - e)) / 2e-6 for e in step]
    np.testing.assert_allclose(found[id(head.moves)], expected, atol=1e-7)


def measure(name, folder, seed, output):
    (X, Y), (new, truth) = load_part(folder, "trn"), load_part(folder, "tst")
    clf = DFTSigmoidClassifier(output=output, random_state=seed, **COMMON)
    start = time.process_time()
    clf.fit(X, Y)
    seconds = time.process_time() - start
    sets = clf.predict(new)
    row = {"data": name, "step": output.head.step, "seed": seed, "CPU s": seconds}
    scores = clf.decision_function(new)
    for k in (1, 5):
        row[f"P@{k}"] = 100 * precision_at_k(truth, scores, k=k)
    hits, of = sets.multiply(truth).sum(), sets.sum() + truth.sum()
    row["micro-F1"] = float(200 * hits / of)
    row["loss"] = clf.loss_curve_[-1]
    layer = clf.net_.module_.head
    n = layer.n_labels
    angles = layer.angles().numpy() * n / (2 * np.pi)
    row["moved"] = float(np.abs(angles - np.arange(n)).mean())
    row["least gap"] = float(np.diff(np.sort(angles % n)).min())
    return row


def main():
    arguments = parser(__doc__, data=True).parse_args()
    check_gradient()
    rows = []
    for name in SETS:
        for seed in range(3 if arguments.full else 1):
            for output in map(learnt, STEPS):
                rows.append(measure(name, arguments.data / name, seed, output))
                print(rows[-1], flush=True)
    print_table(rows, list(rows[1]))
    save(arguments, "sigmoid_angles", rows)


if __name__ == "__main__":
    main()
