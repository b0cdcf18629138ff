"""Seconds and memory of learning row labels from group labels, beside omikuji's default fit.

    python benchmarks/aggregation_speed.py DATA_FOLDER --runs 3 --threads 2

The training rows are put into random groups. Each in a fresh process, in turn, and all of it
several times: `EAGLETransformer` with its defaults, ``fit`` and ``assign`` together, on half of
the rows and on all of them, and omikuji's default fit (three trees) on all rows with their own
labels. Peak memory is what `fit` and `assign` hold above the data. Writes ``NAME.json`` with every
run and ``NAME.md`` with the medians, and the two ratios that matter: to omikuji's wall time, and of
all rows to half of them.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from _measure import Clock, describe_machine, fresh_process, load_part, memory, yield_memory

JOBS = ("half", "all", "omikuji")
NAMES = {"half": "EAGLETransformer, half", "all": "EAGLETransformer", "omikuji": "omikuji"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds X_trn.npz and Y_trn.npz")
    parser.add_argument("--size", type=int, default=10, help="rows a group")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds a run may take")
    parser.add_argument("--out", type=Path, default=Path("results"))
    return parser.parse_args()


def run_job(job, folder, scratch, size, threads):
    """Seconds and bytes of one job; runs in the child."""
    yield_memory()
    X, Y = load_part(folder, "trn")
    if job == "omikuji":
        action = omikuji_action(X, Y, scratch, threads)
    else:
        n_rows = X.shape[0] // (2 if job == "half" else 1)
        action = eagle_action(X[:n_rows], Y[:n_rows], size, threads)
    level = memory("VmRSS")
    with Clock() as clock:
        action()
    return {
        "status": "ok",
        "wall_s": clock.wall,
        "cpu_s": clock.cpu,
        "peak_bytes": clock.peak - level,
    }


def eagle_action(X, Y, size, threads):
    """What is timed of this package, once its data is there."""
    from sklearn_xlc import EAGLETransformer
    from sklearn_xlc.datasets import make_aggregated

    grouped, groups = make_aggregated(Y, size, random_state=0)
    eagle = EAGLETransformer(n_jobs=threads, random_state=0)
    # A first tiny fit loads what the libraries load lazily.
    eagle.fit(X[:50], grouped[:50], groups[:50]).assign(X[:50], grouped[:50], groups[:50])
    return lambda: eagle.fit(X, grouped, groups).assign(X, grouped, groups)


def omikuji_action(X, Y, scratch, threads):
    """What is timed of omikuji, once its text file is there."""
    from peers import Omikuji

    adapter = Omikuji(threads, scratch)
    adapter.prepare(X, Y)
    return lambda: adapter.fit(X, Y)


def middle(kept, key):
    """Median over the runs."""
    return statistics.median(run[key] for run in kept)


def markdown(name, results, options):
    """Medians, and the ratios."""
    lines = [
        f"**{name}**, groups of {options.size}, {options.threads} thread(s), median of "
        f"{len(results['all'])} run(s)",
        "",
        "| | wall s | CPU s | peak MiB |",
        "|---|---|---|---|",
    ]
    wrong = [run["status"] for kept in results.values() for run in kept if run["status"] != "ok"]
    if wrong:
        return "\n".join(lines + [f"| {wrong[0]} | | | |"]) + "\n"
    for job, kept in results.items():
        peak = middle(kept, "peak_bytes") / 2**20
        lines.append(
            f"| {NAMES[job]} | {middle(kept, 'wall_s'):.1f} | {middle(kept, 'cpu_s'):.1f} "
            f"| {peak:.0f} |"
        )
    lines.append("")
    for title, above, below in (("to omikuji", "all", "omikuji"), ("to half", "all", "half")):
        ratios = [
            middle(results[above], key) / middle(results[below], key) for key in ("wall_s", "cpu_s")
        ]
        lines.append(f"EAGLETransformer {title}: {ratios[0]:.2f} of wall, {ratios[1]:.2f} of CPU")
    return "\n".join(lines) + "\n"


def main():
    options = parse_arguments()
    name = options.folder.resolve().name
    results = {job: [] for job in JOBS}
    report = {
        "data": name,
        "environment": describe_machine(options.threads),
        "size": options.size,
        "results": results,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    for _ in range(options.runs):
        for job in JOBS:
            with tempfile.TemporaryDirectory(prefix="xlc-bench-") as scratch:
                arguments = ["--job", job, options.folder, scratch, options.size, options.threads]
                result = fresh_process(
                    [__file__, *arguments], scratch, threads=options.threads, limit=options.limit
                )
            results[job].append(result)
            print(job, result, flush=True)
            path = options.out / f"aggregation_speed_{name}.json"
            path.write_text(json.dumps(report, indent=1) + "\n")
    text = markdown(name, results, options)
    (options.out / f"aggregation_speed_{name}.md").write_text(text)
    print("\n" + text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        kind, data, work, rows, count = sys.argv[2:]
        outcome = run_job(kind, Path(data), Path(work), int(rows), int(count))
        Path(work, "report.json").write_text(json.dumps(outcome))
    else:
        main()
