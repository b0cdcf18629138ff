"""Time of a fit over that of the bare arithmetic of its steps, on a data set folder.

    python benchmarks/step_overhead.py DATA_FOLDER [DATA_FOLDER ...]

The arithmetic is that of the default multi-label network with one output per label (lookup of
input rows, layer normalisation, ReLU, dropout, logits, sigmoids, gradients, Adam, and scaled SGD of
input rows), written with a dozen calls of torch on batches that SciPy cuts: no scikit-learn, no
skorch, no checks, no autograd. Both run in turn, CPU seconds of one thread. Other work on the
machine makes passes slower and never faster: the fastest pass of each run counts, and of the runs,
which the machine may treat differently, the median of what either takes and of their ratio.
"""

import argparse
import time
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from _measure import load_part
from torch.nn import functional as F

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import Flat
from sklearn_xlc.training import XLCNet
from sklearn_xlc.training.heap import keep_memory

WIDTH = 512


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--samples", type=int, default=20_000, help="of each set, at most")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--passes", type=int, default=4, help="that are timed in each run")
    return parser.parse_args()


def batches_of(X, Y, batch_size, rng):
    """Index arrays of every step, as tensors."""
    order = rng.permutation(X.shape[0])
    for start in range(0, len(order), batch_size):
        rows, labels = X[order[start : start + batch_size]], Y[order[start : start + batch_size]]
        columns = rows.tocsc()
        used = np.flatnonzero(np.diff(columns.indptr) > 0)
        edges = np.append(columns.indptr[used], columns.indptr[-1])
        counts = np.repeat(np.arange(labels.shape[0]), np.diff(labels.indptr))
        arrays = (
            rows.indices, rows.indptr, columns.indices, edges, used, counts, labels.indices
        )  # fmt: skip
        tensors = [torch.from_numpy(array.astype(np.int64)) for array in arrays]
        yield *tensors, torch.from_numpy(rows.data), torch.from_numpy(columns.data)


class Bare:
    """The default network as tensors, and its step."""

    def __init__(self, n_columns, n_labels, half):
        self.table = torch.randn(n_columns, WIDTH) * 0.01
        self.weight = torch.randn(n_labels, WIDTH) * 0.01
        self.small = [torch.zeros(WIDTH), torch.ones(WIDTH), torch.zeros(WIDTH)]
        self.small.append(torch.zeros(n_labels))
        dense = [self.weight, *self.small]
        self.moments = [[torch.zeros_like(each) for each in dense] for _ in range(2)]
        self.count = torch.zeros(())
        self.low = (lambda x: x.bfloat16()) if half else (lambda x: x)

    def adam(self, parameters, gradients, averages, squares):
        counts = [self.count] * len(parameters)
        torch._fused_adamw_(
            parameters, gradients, averages, squares, [], counts, amsgrad=False, lr=1e-3,
            beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, maximize=False,
        )  # fmt: skip

    def step(self, batch):
        indices, indptr, back, edges, used, rows, labels, values, back_values = batch
        n_rows, low = len(indptr) - 1, self.low
        shift, gain, offset, bias = self.small
        bag = {"mode": "sum", "include_last_offset": True}
        summed = F.embedding_bag(indices, self.table, indptr, per_sample_weights=values, **bag)
        summed += shift
        normal, mean, scale = torch.native_layer_norm(summed, [WIDTH], gain, offset, 1e-5)
        kept = torch.empty(normal.numel() // 4, dtype=torch.int64).random_(-(2**63), None)
        kept = kept.view(torch.int16).view_as(normal).float()
        masked = torch.ops.aten.threshold_backward  # zero where the second is not above the third
        features = masked(normal.relu(), kept, -1).mul_(2)
        inputs, weight = low(features), low(self.weight)
        logits = (inputs @ weight.T).float().add_(bias)
        F.softplus(logits).sum()
        slopes = logits.sigmoid_()
        slopes[rows, labels] -= 1
        slopes /= n_rows
        half = low(slopes)
        to_weight, to_features = (half.T @ inputs).float(), (half @ weight).float()
        to_features = masked(to_features, features, 0).mul_(2)
        to_sum, to_gain, to_offset = torch.ops.aten.native_layer_norm_backward(
            to_features, summed, [WIDTH], mean, scale, gain, offset, [True] * 3
        )
        to_rows = F.embedding_bag(back, to_sum, edges, per_sample_weights=back_values, **bag)
        self.count += 1
        gradients = [to_weight, to_sum.sum(0), to_gain, to_offset, slopes.sum(0)]
        self.adam([self.weight, *self.small], gradients, *self.moments)
        size = float(torch.linalg.vector_norm(to_rows)) / to_rows.numel() ** 0.5
        self.table.index_add_(0, used, to_rows, alpha=-1e-3 / size)


def seconds_bare(X, Y, batch_size, half, n_passes):
    """CPU seconds of each pass but the first, which fills the caches."""
    bare, ends = Bare(X.shape[1], Y.shape[1], half), []
    keep_memory()
    for number in range(n_passes + 1):
        for batch in batches_of(X, Y, batch_size, np.random.default_rng(number)):
            bare.step(batch)
        ends.append(time.process_time())
    return np.diff(ends)


def seconds_of_fit(X, Y, batch_size, n_passes):
    """CPU seconds from the beginning of each pass but the first to that of the next.

    Nothing is tuned: for that a second network would take shorter passes.
    """
    begins, take_pass = [], XLCNet.run_single_epoch

    def timed(net, iterator, *args, **kwargs):
        if iterator is not None:
            begins.append(time.process_time())
        take_pass(net, iterator, *args, **kwargs)

    clf = MultiHeadClassifier(
        Flat(n_negatives=None),
        encoder=MLP((WIDTH,), dropout=0.5),
        ranker=None,
        decision="topk",
        batch_size=batch_size,
        max_epochs=n_passes + 2,
        random_state=0,
    )
    with mock.patch.object(XLCNet, "run_single_epoch", timed):
        clf.fit(X, Y)
    return np.diff(begins[1:]), clf._precision == "bfloat16"


def main():
    options = parse_arguments()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| data | labels | pass of `fit`, s | arithmetic, s | overhead |\n|---|---|---|---|---|")
    for folder in options.folders:
        X, Y = (part[: options.samples] for part in load_part(folder, "trn"))
        best = []
        for _ in range(options.runs):
            whole, half = seconds_of_fit(X, Y, options.batch_size, options.passes)
            bare = seconds_bare(X, Y, options.batch_size, half, options.passes)
            best.append((min(whole), min(bare), min(whole) / min(bare) - 1))
        (whole, bare, more), name = np.median(best, axis=0), folder.resolve().name
        print(f"| {name} | {Y.shape[1]} | {whole:.3f} | {bare:.3f} | {more:.0%} |", flush=True)


if __name__ == "__main__":
    main()
