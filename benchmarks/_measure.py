"""What benchmarks share: fresh processes with a time limit, clocks, memory, device and seed."""

import argparse
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

#: Variable that hands the device to the processes of a benchmark.
_DEVICE = "SKLEARN_XLC_BENCH_DEVICE"
_SEED = "SKLEARN_XLC_BENCH_SEED"
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


def fresh_process(arguments, scratch, *, threads, limit, python=sys.executable):
    """Run a script that leaves ``report.json`` in the folder `scratch`, and return that report.

    Returns
    -------
    report : dict
        The report, or a mapping whose ``status`` is "did not finish", "out of memory" or "failed"
        and whose ``reason`` says more.
    """
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
    # Threads that spin while they wait burn CPU seconds, and stall where a core is busy already.
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    log_file, report_file = Path(scratch, "log.txt"), Path(scratch, "report.json")
    with open(log_file, "w") as log:
        command = [python, *map(str, arguments)]
        try:
            process = subprocess.run(
                command, env=environment, stdout=log, stderr=log, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return {"status": "did not finish", "reason": f"stopped after {limit:g} seconds"}
    if process.returncode == 0:
        return json.loads(report_file.read_text())
    reason = log_file.read_text(errors="replace").strip()[-2000:]
    if process.returncode == -signal.SIGKILL or "MemoryError" in reason:
        return {"status": "out of memory", "reason": reason or "killed by the system"}
    return {"status": "failed", "reason": reason or f"exit status {process.returncode}"}


def load_part(folder, part):
    """``X`` and ``Y`` of one part of a data set folder, as canonical float32 CSR."""
    pair = []
    for name in ("X", "Y"):
        matrix = sp.csr_matrix(sp.load_npz(Path(folder, f"{name}_{part}.npz")), dtype=np.float32)
        matrix.sum_duplicates()
        pair.append(matrix)
    return pair


def load_classes(folder, part):
    """``X`` and ``Y`` of one part, where the rarest label of a sample is its class."""
    _, Y_train = load_part(folder, "trn")
    X, Y = load_part(folder, part)
    rows, classes = rarest_labels(Y, np.bincount(Y_train.indices, minlength=Y.shape[1]))
    ends = np.arange(len(rows) + 1)
    one = np.ones(len(rows), dtype=np.float32)
    return X[rows], sp.csr_matrix((one, classes, ends), shape=(len(rows), Y.shape[1]))


def rarest_labels(Y, counts):
    """Rows of an indicator that have labels, and the label of each with the least count.

    Labels with a count of zero come last: nothing was trained on them.
    """
    counts = np.where(counts == 0, np.inf, counts)
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    order = np.lexsort((Y.indices, counts[Y.indices], rows))
    rows, first = np.unique(rows, return_index=True)
    return rows, Y.indices[order[first]]


class Clock:
    """Wall and CPU seconds, all threads and finished children included, and peak memory."""

    def __enter__(self):
        reset_peak()
        self.start = time.perf_counter(), _cpu_seconds()
        return self

    def __exit__(self, *error):
        wait()
        self.wall = time.perf_counter() - self.start[0]
        self.cpu = _cpu_seconds() - self.start[1]
        self.peak = memory("VmHWM")


def _cpu_seconds():
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def memory(field):
    """A field of this process's status in bytes: VmRSS is held now, VmHWM is the peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}: memory is measured on Linux only")


class MemoryWatch:
    """Peak, by samples, of what a block allocates: memory without the pages of mapped files."""

    def __enter__(self):
        self.level = self.highest = memory("RssAnon")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def _look(self):
        while not self._stop.wait(0.02):
            self.highest = max(self.highest, memory("RssAnon"))

    def __exit__(self, *error):
        self._stop.set()
        self._thread.join()
        self.anonymous = max(self.highest, memory("RssAnon")) - self.level


def add_device(parser):
    """Give a script the option ``--device``, which :func:`device` then returns."""
    parser.add_argument(
        "--device",
        type=_use_device,
        default="cpu",
        help="torch device that networks train and predict on, such as cuda; default: cpu",
    )


def _use_device(name):
    """Use a device that there is."""
    if name != "cpu":
        import torch

        try:
            torch.ones((), device=name).item()
        except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
            found = "no CUDA device was found; " if not torch.cuda.is_available() else ""
            raise argparse.ArgumentTypeError(f"{name!r}: {found}{error}") from error
    use(name)
    return name


def use(name):
    """Set the device of this process and of those that it starts."""
    os.environ[_DEVICE] = name


def set_seed(number):
    """Seed the models of this process and of those that it starts, where they take a seed."""
    os.environ[_SEED] = str(number)


def seed():
    """Seed of the run, 0 if nobody has set one."""
    return int(os.environ.get(_SEED, "0"))


def device():
    """Device that the user chose."""
    return os.environ.get(_DEVICE, "cpu")


def on_cuda():
    return device().startswith("cuda")


def wait():
    """Wait until the device has finished what it was given."""
    if on_cuda():
        import torch

        torch.cuda.synchronize()


def reset_peak():
    """Make the peaks start anew from what is held now."""
    Path("/proc/self/clear_refs").write_text("5")
    if on_cuda():
        import torch

        torch.cuda.reset_peak_memory_stats()


def peak_above(level):
    """Peak of the device's own memory, or of this process's beyond the bytes `level`."""
    if on_cuda():
        import torch

        return torch.cuda.max_memory_allocated()
    return memory("VmHWM") - level


def yield_memory():
    """Should memory run out, let the system end this process and no other."""
    Path("/proc/self/oom_score_adj").write_text("1000")


def describe_machine(threads):
    """What another reader needs in order to place the seconds."""
    return {
        "cpu": _cpu_name(),
        "cpu_count": os.cpu_count(),
        "threads": threads,
        "device": _device_name(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def _device_name():
    if not on_cuda():
        return device()
    import torch

    return torch.cuda.get_device_name()


def _cpu_name():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def tree_bytes(path):
    """Bytes of all files below a folder."""
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
