"""Sweep the number of labels and compare the three ways through a Fourier output layer.

    python benchmarks/sweep_fourier.py --labels 1000 9000 100000 1000000

For every number of labels n, number of active ones k and way ("matrix", "fft", "chunk"), in a fresh
process: the median time of one step (forward, binary cross-entropy, backward) from coefficients to
the gradient of the coefficients, and the peak memory that it takes beside its inputs and outputs.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from _measure import (
    add_device,
    describe_machine,
    device,
    fresh_process,
    memory,
    peak_above,
    reset_peak,
    wait,
    yield_memory,
)

WAYS = ("matrix", "fft", "chunk")
N_FEATURES = 256
POSITIVES = 5


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--labels", nargs="+", type=int, default=[1000, 4000, 9000, 30_000, 100_000, 100_003, 10**6]
    )
    parser.add_argument("--active", nargs="+", type=int, default=[10, 50, 80])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=7, help="timed steps; the median is kept")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds a process may take")
    parser.add_argument("--out", type=Path, default=Path("results"))
    add_device(parser)
    return parser.parse_args()


def measure_cell(way, n_labels, max_active, batch, steps):
    """Median seconds of a step, and its peak bytes; runs in the child."""
    import torch

    from sklearn_xlc.batches import Targets
    from sklearn_xlc.heads import FourierHead

    yield_memory()
    torch.manual_seed(0)
    targets = Targets(
        torch.arange(0, (batch + 1) * POSITIVES, POSITIVES),
        torch.stack([torch.randperm(n_labels)[:POSITIVES].sort()[0] for _ in range(batch)]).ravel(),
    ).to(device())

    def step(head):
        features.grad = None
        start = time.perf_counter()
        head.loss(features, targets).backward()
        wait()
        return time.perf_counter() - start

    features = torch.randn(batch, N_FEATURES).to(device()).requires_grad_()
    if n_labels > 1000:
        step(FourierHead(N_FEATURES, 1000, True, 1, method=way).to(device()))
    level = memory("VmRSS")
    reset_peak()
    head = FourierHead(N_FEATURES, n_labels, True, max_active, method=way).to(device())
    step(head)
    peak = peak_above(level)
    return {
        "status": "ok",
        "step_s": statistics.median(step(head) for _ in range(steps)),
        "peak_bytes": peak,
    }


def markdown(results, ways):
    """Milliseconds and, in brackets, MiB; a row for each n and k, a column for each way."""
    lines = ["| labels | k | " + " | ".join(ways) + " |", "|---" * (2 + len(ways)) + "|"]
    for n_labels, k in sorted({(row["n_labels"], row["k"]) for row in results}):
        cells = {row["way"]: row for row in results if (row["n_labels"], row["k"]) == (n_labels, k)}
        shown = [
            f"{row['step_s'] * 1e3:,.1f} ({row['peak_bytes'] / 2**20:,.0f})"
            if row["status"] == "ok"
            else row["status"]
            for row in (cells[way] for way in ways)
        ]
        lines.append(f"| {n_labels:,} | {k} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def main():
    options = parse_arguments()
    results = []
    for n_labels in options.labels:
        for k in options.active:
            for way in options.ways:
                with tempfile.TemporaryDirectory(prefix="xlc-bench-") as scratch:
                    cell = ["--cell", scratch, way, n_labels, k, options.batch, options.steps]
                    result = fresh_process(
                        [__file__, *cell], scratch, threads=options.threads, limit=options.limit
                    )
                results.append({"n_labels": n_labels, "k": k, "way": way, **result})
                print(results[-1], flush=True)
    report = {
        "environment": describe_machine(options.threads),
        "batch": options.batch,
        "results": results,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    Path(options.out, "sweep_fourier.json").write_text(json.dumps(report, indent=1) + "\n")
    table = markdown(results, options.ways)
    Path(options.out, "sweep_fourier.md").write_text(table)
    print("\n" + table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cell"]:
        folder, name, *numbers = sys.argv[2:]
        outcome = measure_cell(name, *map(int, numbers))
        Path(folder, "report.json").write_text(json.dumps(outcome))
    else:
        main()
