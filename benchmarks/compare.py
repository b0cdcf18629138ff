"""Measure this package and its peers on one data set folder, each in a fresh process.

    python benchmarks/compare.py DATA_FOLDER --models multihead-auto omikuji

Writes ``NAME.json`` with every single run and ``NAME.md`` with one table of medians.
"""

import argparse
import json
import os
import statistics
from pathlib import Path

from _measure import add_device, describe_machine, load_classes, load_part, set_seed
from peers import ADAPTERS, measure

from sklearn_xlc.metrics import precision_at_k, propensities, psp_at_k

CUTOFFS = (1, 3, 5)
MIB = 2**20


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=_data_folder, help="holds X_trn.npz, Y_trn.npz, *_tst.npz")
    parser.add_argument("--models", nargs="+", choices=ADAPTERS, default=list(ADAPTERS))
    parser.add_argument(
        "--runs",
        type=int,
        default=1,
        help="runs of each model, interleaved; each with a seed of its own",
    )
    parser.add_argument(
        "--classes", action="store_true", help="the rarest label of a sample is its class"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds a run may take")
    parser.add_argument("--out", type=Path, default=Path("results"))
    add_device(parser)
    parser.add_argument(
        "--propensity", nargs=2, type=float, default=(0.55, 1.5), metavar=("A", "B")
    )
    parser.add_argument(
        "--python",
        nargs="+",
        action="extend",
        type=_interpreter,
        default=[],
        metavar="MODEL=PATH",
        help="interpreter of another environment to run a model in",
    )
    return parser.parse_args()


def _data_folder(text):
    for name in ("X_trn.npz", "Y_trn.npz", "X_tst.npz", "Y_tst.npz"):
        if not Path(text, name).is_file():
            raise argparse.ArgumentTypeError(f"{text!r} has no file {name}")
    return Path(text)


def _interpreter(text):
    model, _, path = text.partition("=")
    if model not in ADAPTERS or not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"{text!r} is not MODEL=PATH with an interpreter at PATH")
    return model, path


def quality(topk, Y_test, propensity):
    """P@k and PSP@k in per cent at every cut-off."""
    scores = {f"P@{k}": precision_at_k(Y_test, topk, k=k) for k in CUTOFFS}
    for k in CUTOFFS:
        scores[f"PSP@{k}"] = psp_at_k(Y_test, topk, k=k, propensities=propensity)
    return {name: 100.0 * value for name, value in scores.items()}


def markdown(name, results, runs):
    """The table of medians over the runs of each model."""
    lines = [
        f"**{name}**, median of {runs} run(s)" if runs > 1 else f"**{name}**",
        "",
        "| model | P@1/3/5 | PSP@1/3/5 | fit s (CPU) | predict s (CPU) | peak MiB | model MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join(lines + [_row(model, kept) for model, kept in results.items()]) + "\n"


def _row(model, kept):
    """One line of the table; a model of which a run went wrong shows the reason instead."""
    wrong = [run["status"] for run in kept if run["status"] != "ok"]
    if wrong:
        return f"| {model} | {wrong[0]} | | | | | |"

    def middle(key):
        return statistics.median(run[key] for run in kept)

    def at_cutoffs(metric):
        return "/".join(f"{middle(f'{metric}@{k}'):.1f}" for k in CUTOFFS)

    peak = statistics.median(max(run["fit_peak_bytes"], run["predict_peak_bytes"]) for run in kept)
    return (
        f"| {model} | {at_cutoffs('P')} | {at_cutoffs('PSP')} "
        f"| {middle('fit_wall_s'):.1f} ({middle('fit_cpu_s'):.1f}) "
        f"| {middle('predict_wall_s'):.2f} ({middle('predict_cpu_s'):.2f}) "
        f"| {peak / MIB:.0f} | {middle('model_bytes') / MIB:.1f} |"
    )


def main():
    options = parse_arguments()
    name = options.folder.resolve().name + ("_classes" if options.classes else "")
    pythons = dict(options.python)
    load = load_classes if options.classes else load_part
    _, Y_train = load(options.folder, "trn")
    _, Y_test = load(options.folder, "tst")
    a, b = options.propensity
    propensity = propensities(Y_train, a=a, b=b)
    results = {model: [] for model in options.models}
    report = {
        "data": name,
        "environment": describe_machine(options.threads),
        "limit_s": options.limit,
        "propensity": {"a": a, "b": b},
        "results": results,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    for run in range(options.runs):
        set_seed(run)
        for model in options.models:
            other = {"python": pythons[model]} if model in pythons else {}
            result = measure(
                model,
                options.folder,
                threads=options.threads,
                limit=options.limit,
                classes=options.classes,
                **other,
            )
            if result["status"] == "ok":
                result |= quality(result.pop("topk"), Y_test, propensity)
            results[model].append(result)
            # Written after every run: whoever stops a long comparison keeps what was measured.
            (options.out / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
            print(f"run {run + 1}/{options.runs} {_row(model, [result])}", flush=True)
            if "reason" in result:
                print("   ", result["reason"].strip().splitlines()[-1], flush=True)
    table = markdown(name, results, options.runs)
    (options.out / f"{name}.md").write_text(table)
    print("\n" + table)


if __name__ == "__main__":
    main()
