"""Steps of a training over local processes: seconds, bytes and memory, beside a model on paper.

    python benchmarks/over_processes.py --processes 2
    python benchmarks/over_processes.py --paper

Every fit runs in processes of its own, one thread each, on synthetic samples. The model on paper
takes what one process measures, and the speed of the link between processes:

    seconds(P) = seconds(1; C / P labels) + bytes / speed

A step with C / P labels is that of the shard, as each process computes the features of all samples.
``--paper`` prints the table for GPUs.
"""

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _measure import THREAD_VARIABLES

HEADS = {
    "flat": {"head": "flat", "head__n_negatives": None},
    "flat, 1000 drawn": {"head": "flat", "head__n_negatives": 1000},
    "cascade": {"head": "cascade"},
    "sampling": {"head": "sampling"},
    "etf, learned": {"output": "learned", "feature_dim": 256},
    "dft": {"n_slack": 64},
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--labels", type=int, default=40_000)
    parser.add_argument("--features", type=int, default=512, help="width of the hidden layer")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--words", type=int, default=40, help="non-zeros of a sample")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--paper", action="store_true", help="the table for GPUs only")
    parser.add_argument("--json", type=Path, help="file for all numbers")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


# --- a process of a fit -------------------------------------------------------------------------


def samples(n_samples, n_labels, multilabel, n_columns=5000, n_entries=40):
    """Random CSR samples; labels by Zipf's law, one or three a sample."""
    rng = np.random.default_rng(0)
    shape = n_samples, n_columns
    indptr = np.arange(n_samples + 1) * n_entries
    columns = rng.integers(n_columns, size=n_samples * n_entries)
    X = sp.csr_matrix((rng.random(len(columns), np.float32), columns, indptr), shape=shape)
    X.sum_duplicates()
    share = 1 / np.arange(1, n_labels + 1)
    labels = rng.choice(n_labels, size=(n_samples, 3), p=share / share.sum())
    if not multilabel:
        return X, labels[:, 0]
    rows = np.repeat(np.arange(n_samples), 3)
    Y = sp.csr_matrix((np.ones(3 * n_samples), (rows, labels.ravel())), shape=(n_samples, n_labels))
    Y.data = np.minimum(Y.data, 1)
    return X, Y


def child(args, head, n_labels):
    """Fit for some steps, and print seconds a step, messages and bytes sent, and memory."""
    import torch
    from skorch.callbacks import Callback

    import sklearn_xlc
    from sklearn_xlc.encoders import MLP

    sent = {"bytes": 0, "messages": 0, "on": False}
    rank, n_processes = sklearn_xlc.distributed.init()
    speed = None
    if n_processes > 1:
        speed = link_speed(torch)
        count_bytes(sent, n_processes)

    def now():
        return np.array([time.perf_counter(), time.process_time()])

    class Clock(Callback):
        """Seconds of the steps, but for the first ones."""

        def on_batch_begin(self, net, **kwargs):
            if len(net.history[-1]["batches"]) == 6:
                sent["on"], self.start = True, now()

        def on_epoch_end(self, net, **kwargs):
            sent["on"], self.stop = False, now()

    clock = Clock()
    common = {
        "encoder": MLP((args.features,)),
        "batch_size": args.batch_size,
        "max_epochs": 1,
        "precision": "float32",
        "ranker": None,
        "decision": "topk" if head != "sampling" else "auto",
        "callbacks": [("clock", clock)],
        "device": "cpu",
        "random_state": 0,
    }
    if head == "dft":
        kind = sklearn_xlc.DFTSigmoidClassifier
    elif head.startswith("etf"):
        kind = sklearn_xlc.ETFNeuralCollapseClassifier
    else:
        kind = sklearn_xlc.MultiHeadClassifier
    clf = kind(**common).set_params(**HEADS[head])
    n_samples = args.batch_size * (args.steps + 5)
    X, y = samples(n_samples, n_labels, head != "sampling", n_entries=args.words)
    if head == "sampling":  # every class occurs: the number of labels is that of the others
        y = np.r_[y, np.arange(n_labels)][-len(y) - n_labels :]
        X = sp.vstack([X, X[np.zeros(n_labels, int)]], format="csr")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clf.fit(X, y)
    clock = next(callback for name, callback in clf.net_.callbacks_ if name == "clock")
    n_steps = len(clf.net_.history[-1]["batches"]) - 5
    seconds, cpu_seconds = (clock.stop - clock.start) / n_steps
    weights = sum(p.numel() for p in clf.net_.module_.head.parameters())
    print(
        json.dumps(
            {
                "seconds": seconds,
                "cpu_seconds": cpu_seconds,
                "messages": sent["messages"] / n_steps,
                "bytes": sent["bytes"] / n_steps,
                "weights_mib": weights * 4 / 2**20,
                "peak_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10,
                "speed": speed,
            }
        )
    )


def link_speed(torch):
    """Bytes a second of an all-reduce of 32 MB between the processes."""
    from torch import distributed

    tensor = torch.ones(2**23)
    times = []
    for _ in range(6):
        distributed.barrier()
        start = time.perf_counter()
        distributed.all_reduce(tensor)
        times.append(time.perf_counter() - start)
    size = distributed.get_world_size()
    return 2 * (size - 1) / size * tensor.nbytes / float(np.median(times[1:]))


def count_bytes(sent, size):
    """Count messages, and the bytes that this process sends, as a ring of processes would."""
    from sklearn_xlc.distributed.processes import Processes

    def counted(name, of):
        method = getattr(Processes, name)

        def call(self, tensor, *args, **kwargs):
            if sent["on"]:
                sent["bytes"] += of(tensor.nbytes)
                sent["messages"] += 1
            return method(self, tensor, *args, **kwargs)

        setattr(Processes, name, call)

    counted("sum", lambda n: 2 * n * (size - 1) / size)
    counted("joined", lambda n: n * (size - 1))


# --- all fits -----------------------------------------------------------------------------------


def run(args, head, n_labels, n_processes):
    """Numbers of one fit: the slowest process's seconds, the mean of the rest."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    names = ("features", "batch_size", "words", "steps")
    common = [each for n in names for each in (f"--{n.replace('_', '-')}", getattr(args, n))]
    command = [sys.executable, __file__, "--child", f"{head}/{n_labels}", *map(str, common)]
    processes = []
    for rank in range(n_processes):
        env = os.environ | dict.fromkeys(THREAD_VARIABLES, "1")
        env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n_processes)}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        processes.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE))
    results = []
    for process in processes:
        out, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"{head} with {n_labels} labels failed")
        results.append(json.loads(out.splitlines()[-1]))
    found = {key: np.mean([each[key] or 0 for each in results]) for key in results[0]}
    return found | {"seconds": max(each["seconds"] for each in results)}


def median(results):
    return {key: float(np.median([each[key] for each in results])) for key in results[0]}


def main():
    args = parse_arguments()
    if args.child:
        head, n_labels = args.child.split("/")
        child(args, head, int(n_labels))
        return
    if args.paper:
        paper()
        return
    n = args.processes
    print(f"{args.labels} labels, {args.features} features, {args.batch_size} samples a step\n")
    columns = [
        "head",
        "s/step, 1 process",
        f"s/step, {n}",
        "CPU s/step, 1",
        f"CPU s/step, each of {n}",
        "model",
        "messages a step",
        "MB sent a step",
        "weights, MiB",
    ]
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    everything = {}
    for head in args.heads:
        cases = {
            "one": (args.labels, 1),
            "part": (args.labels // n, 1),
            "all": (args.labels, n),
        }
        runs = {name: [] for name in cases}
        for _ in range(args.runs):  # in turn: other work on the machine meets all alike
            for name, case in cases.items():
                runs[name].append(run(args, head, *case))
        found = {name: median(results) for name, results in runs.items()}
        part, both = found["part"], found["all"]
        model = part["seconds"] + both["bytes"] / both["speed"]
        weights = f"{found['one']['weights_mib']:.0f} -> {both['weights_mib']:.0f}"
        print(
            f"| {head} | {found['one']['seconds']:.3f} | {both['seconds']:.3f} "
            f"| {found['one']['cpu_seconds']:.3f} | {both['cpu_seconds']:.3f} | {model:.3f} "
            f"| {both['messages']:.0f} | {both['bytes'] / 1e6:.1f} | {weights} |",
            flush=True,
        )
        everything[head] = found | {"model": model}
    if args.json:
        everything["arguments"] = {name: str(value) for name, value in vars(args).items()}
        args.json.write_text(json.dumps(everything, indent=1))


# --- on paper -----------------------------------------------------------------------------------


def paper(features=512, batch=1024, flops=100e12, memory=2e12, inside=200e9, between=40e9):
    """Print seconds a step and memory of a flat head by numbers of labels and GPUs.

    Products of float32 (TF32) at `flops` a second, weights and moments of Adam read and written at
    `memory` bytes a second, links at `inside` bytes a second within a machine of 8 GPUs and
    `between` them; the encoder is left out.
    """
    print(f"{features} features, batches of {batch}; flat head, Adam, all negatives\n")
    print("| labels | GPUs | weights and moments, GB a GPU | ms arithmetic | ms link | ms a step |")
    print("|---|---|---|---|---|---|")
    for n_labels in (10**6, 10**7, 10**8):
        for n in (1, 8, 16, 64):
            held = features * n_labels / n
            products = 6 * batch * held / flops
            update = 6 * 4 * held / memory  # two moments and the weights, read and written
            speed = inside if n <= 8 else between
            # Features of all, and their gradients, in a ring.
            link = 2 * batch * features * 4 * (n - 1) / n / speed if n > 1 else 0.0
            total = products + update + link
            print(
                f"| {n_labels:.0e} | {n} | {12 * held / 1e9:.1f} | {1e3 * (products + update):.2f} "
                f"| {1e3 * link:.3f} | {1e3 * total:.2f} |"
            )


if __name__ == "__main__":
    main()
