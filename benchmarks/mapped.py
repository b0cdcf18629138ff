"""Fits on a CSR matrix that is mapped from a file, beside the same matrix in memory.

    python benchmarks/mapped.py --rows 2000000 --runs 3
    python benchmarks/mapped.py --rows 10000000 --only mapped --folder FOLDER_ON_A_DISK

One pass of a narrow flat network, in a process of its own each. Memory is private memory (RssAnon)
beyond what is held before `fit`, so that the matrix in memory does not count, nor do pages of the
file, which the system gives up when it needs the room. Writing is timed, too.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
import scipy.sparse as sp
from _measure import Clock, MemoryWatch, describe_machine, fresh_process

BLOCK_ROWS = 2**16
N_LABELS = {"classes": 100, "sets": 1000}
SETTINGS = {"max_epochs": 1, "batch_size": 4096}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--per-row", type=int, default=20, help="non-zeros of a row")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--only", choices=["mapped", "memory"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=7200.0, help="seconds a process may take")
    parser.add_argument("--folder", type=Path, help="for the file; default: a temporary one")
    parser.add_argument("--out", type=Path, default=Path("results"))
    return parser.parse_args()


def blocks(n_rows, per_row, n_features=20_000):
    """Features of which one tells the class, and sets of three labels."""
    rng = np.random.default_rng(0)
    for start in range(0, n_rows, BLOCK_ROWS):
        n = min(BLOCK_ROWS, n_rows - start)
        yield (
            _spread(rng, n, per_row, n_features, rng.random(n * per_row, np.float32) + 0.5),
            _spread(rng, n, 3, N_LABELS["sets"], np.ones(3 * n, np.int8)),
        )


def _spread(rng, n_rows, per_row, n_columns, data):
    """Rows with an entry in each of so many ranges of columns."""
    width = n_columns // per_row
    columns = rng.integers(0, width, (n_rows, per_row)) + width * np.arange(per_row)
    indptr = per_row * np.arange(n_rows + 1)
    return sp.csr_matrix((data, columns.ravel().astype(np.int32), indptr), (n_rows, n_columns))


def run(job):
    """Job of a process: write the file, or fit on it."""
    from sklearn_xlc import MultiHeadClassifier
    from sklearn_xlc.datasets import open_csr, save_csr
    from sklearn_xlc.encoders import MLP
    from sklearn_xlc.heads import Flat

    if job["do"] == "write":
        with MemoryWatch() as watch, Clock() as clock:
            save_csr(job["path"], blocks(job["rows"], job["per_row"]))
    else:
        X, Y = open_csr(job["path"], verify=False)
        y = Y if job["task"] == "sets" else X.indices[:: job["per_row"]] % N_LABELS["classes"]
        head = Flat(n_negatives=64 if job["task"] == "sets" else None)
        clf = MultiHeadClassifier(head, encoder=MLP([16]), random_state=0, **SETTINGS)
        clf.fit(X[:5000], y[:5000])  # libraries and kernels are loaded
        if job["do"] == "memory":
            X, y = in_memory(X), in_memory(y) if sp.issparse(y) else np.array(y)
        with MemoryWatch() as watch, Clock() as clock:
            clf.fit(X, y)
    return {"seconds": clock.wall, "cpu": clock.cpu, "bytes": watch.anonymous}


def in_memory(matrix):
    parts = tuple(np.array(getattr(matrix, name)) for name in ("data", "indices", "indptr"))
    return sp.csr_matrix(parts, matrix.shape)


def main():
    arguments = parse_arguments()
    hows = [arguments.only] if arguments.only else ["mapped", "memory"]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = str(Path(folder, "train.csr"))
        base = {"path": path, "rows": arguments.rows, "per_row": arguments.per_row}
        jobs = [{"do": "write", "task": ""}]
        for _ in range(arguments.runs):
            jobs += [{"do": how, "task": task} for task in N_LABELS for how in hows]
        found = {}
        for job in jobs:
            settings = json.dumps({**base, **job})
            result = fresh_process(
                [__file__, "--job", settings, folder],
                folder,
                threads=arguments.threads,
                limit=arguments.limit,
            )
            if "reason" in result:
                sys.exit(f"{job}: {result['status']}: {result['reason']}")
            found.setdefault(f"{job['do']} {job['task']}".strip(), []).append(result)
        size = Path(path).stat().st_size
    arguments.out.mkdir(parents=True, exist_ok=True)
    report = {"rows": arguments.rows, "per_row": arguments.per_row, "file_bytes": size}
    report |= {"machine": describe_machine(arguments.threads), "runs": found}
    (arguments.out / f"mapped_{arguments.rows}.json").write_text(json.dumps(report, indent=1))
    print(f"{arguments.rows} rows, file of {size / 2**20:.0f} MiB")
    print("| what | s (CPU) | rows a second of CPU | private MiB | bytes a row |")
    print("|---|---|---|---|---|")
    for name, runs in found.items():
        wall, cpu, held = (median(run[key] for run in runs) for key in ("seconds", "cpu", "bytes"))
        speed, each = arguments.rows / cpu, held / arguments.rows
        print(
            f"| {name} | {wall:.1f} ({cpu:.1f}) | {speed:.0f} | {held / 2**20:.0f} | {each:.0f} |"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        Path(sys.argv[3], "report.json").write_text(json.dumps(run(json.loads(sys.argv[2]))))
    else:
        main()
