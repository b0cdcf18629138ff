"""Precision against bytes: files of `save` at every storage, for every head, on data set folders.

    python benchmarks/storage.py DATA_FOLDER [DATA_FOLDER ...] --threads 1
    python benchmarks/storage.py DATA_FOLDER [DATA_FOLDER ...] --threads 1 --heads defaults
    python benchmarks/storage.py --words 200000

Writes ``storage.json`` with every measurement, and ``storage.md`` with two tables a data set, of
precision and of what saving and loading cost, and one of changes against float32. The networks are
small and cheap, whatever the defaults of the package are, but for "defaults". Fitted models are
kept in a folder, so that a second run does not fit them again.
"""

import argparse
import ctypes
import itertools
import json
import statistics
import tempfile
from functools import partial
from pathlib import Path

import joblib
import numpy as np
import skops.io
import torch
from _measure import (
    Clock,
    add_device,
    describe_machine,
    device,
    load_part,
    memory,
    rarest_labels,
)
from compare import CUTOFFS, _data_folder
from sklearn.feature_extraction.text import TfidfVectorizer

import sklearn_xlc
from sklearn_xlc import DFTSigmoidClassifier, ETFNeuralCollapseClassifier, MultiHeadClassifier
from sklearn_xlc.encoders import MLP
from sklearn_xlc.metrics import precision_at_k, propensities, psp_at_k

#: Epochs, dropout and batch size; for other data the last.
FITS = {
    "bibtex": (10, 0.5, 128),
    "delicious": (6, 0.5, 128),
    "debtags": (5, 0.5, 256),
    "wordnet_noun_closure": (4, 0.5, 256),
    "eurlex57k": (4, 0.2, 256),
    None: (4, 0.5, 256),
}
#: Training of two heads as it was when the others were searched for.
BEFORE = {"optimizer": "adam", "learning_rate": 2e-3}
HEADS = {
    "flat": (MultiHeadClassifier, {"head": "flat"}),
    "cascade": (MultiHeadClassifier, {"head": "cascade"}),
    "Fourier": (DFTSigmoidClassifier, {}),
    "ETF": (ETFNeuralCollapseClassifier, BEFORE),
    "product": (MultiHeadClassifier, {"head": "product", **BEFORE}),
}
#: Fits by the defaults of the package, in place of a head.
DEFAULTS = "defaults"
#: Forms of weights in files.
STORAGES = ("float32", "six bits")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=_data_folder, nargs="*", metavar="DATA_FOLDER")
    parser.add_argument("--words", type=int, help="vocabulary of a vectorizer to store, too")
    parser.add_argument("--heads", nargs="+", choices=[*HEADS, DEFAULTS], default=list(HEADS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results"))
    add_device(parser)
    parser.add_argument("--models", type=Path, help="folder of fitted models (OUT/models)")
    return parser.parse_args()


def fitted(folder, head, seed, models):
    """Fitted model of a head, from the folder of models if it is there."""
    path = models / f"{folder.resolve().name}-{head}-{seed}.joblib"
    if path.exists():
        return joblib.load(path)
    X, Y = load_part(folder, "trn")
    if head == "product":
        # One class a sample: the precision of its ranking is counted over all labels nevertheless.
        rows, Y = rarest_labels(Y, np.bincount(Y.indices, minlength=Y.shape[1]))
        X = X[rows]
    model = estimator(folder, head).set_params(device=device(), random_state=seed).fit(X, Y)
    joblib.dump(model, path)
    return model


def estimator(folder, head):
    """Classifier of a head, not fitted."""
    if head == DEFAULTS:
        return MultiHeadClassifier()
    epochs, dropout, batch_size = FITS.get(folder.resolve().name, FITS[None])
    kind, parameters = HEADS[head]
    return kind(
        **parameters,
        encoder=MLP((512,), dropout=dropout),
        precision="bfloat16",
        max_epochs=epochs,
        batch_size=batch_size,
    )


def measure(model, folder):
    """Bytes of the file, P@k and PSP@k of what is loaded from it, and its costs, by storage."""
    X, Y = load_part(folder, "tst")
    weights = propensities(load_part(folder, "trn")[1])
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "model.skops")
        sklearn_xlc.save(MultiHeadClassifier(), path)  # the first file imports all of scikit-learn
        sklearn_xlc.load(path)
        for storage in STORAGES:
            save = partial(sklearn_xlc.save, model, exact=storage == "float32")
            loaded, cost = stored(save, sklearn_xlc.load, path)
            # The ranking of "product" holds classes, which are columns of Y.
            topk = loaded.predict_topk(X, k=max(CUTOFFS))[0]
            found[storage] = {
                **cost,
                **{f"P@{k}": 100 * precision_at_k(Y, topk, k=k) for k in CUTOFFS},
                **{f"PSP@{k}": 100 * psp_at_k(Y, topk, k=k, propensities=weights) for k in CUTOFFS},
            }
    return found


def stored(write, read, path):
    """What is read from a file, and its bytes, CPU seconds and peaks beyond what was held."""
    levels = [_held()]
    with Clock() as saving:
        write(path)
    levels.append(_held())
    with Clock() as loading:
        loaded = read(path)
    return loaded, {
        "bytes": Path(path).stat().st_size,
        "save_s": saving.cpu,
        "load_s": loading.cpu,
        "save_bytes": saving.peak - levels[0],
        "load_bytes": loading.peak - levels[1],
    }


def vocabulary(n_words):
    """Table of what a vectorizer with so many words costs, by each way to carry it."""
    letters = np.random.default_rng(0).integers(97, 123, size=(n_words, 8), dtype=np.uint8)
    words = np.unique(letters.view("S8")).astype(str)
    vectorizer = TfidfVectorizer().fit(words)
    trusted = ["scipy.sparse._dia.dia_matrix", "scipy.sparse._dia.dia_array"]
    ways = {
        "joblib": (partial(joblib.dump, vectorizer), joblib.load),
        "skops": (partial(skops.io.dump, vectorizer), partial(skops.io.load, trusted=trusted)),
        "save": (partial(sklearn_xlc.save, vectorizer), sklearn_xlc.load),
    }
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "model.skops")
        sklearn_xlc.save(MultiHeadClassifier(), path)  # the first file imports all of scikit-learn
        found = {way: stored(*each, path)[1] for way, each in ways.items()}
    sizes = {way: {f"{cost['bytes'] / 2**20:.1f} MiB": cost} for way, cost in found.items()}
    return costs(f"vocabulary of {len(words):,} words", sizes)


def _held():
    """Bytes that this process holds, without what it has freed."""
    ctypes.CDLL(None).malloc_trim(0)
    return memory("VmRSS")


def markdown(name, heads):
    """Table of a data set: a row for each head, a column for each storage."""
    lines = [f"| {name} | " + " | ".join(STORAGES) + " |", "|---" * (1 + len(STORAGES)) + "|"]
    for head, found in heads.items():
        cells = [_cell(found[storage]) for storage in STORAGES]
        lines.append(f"| {head} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def costs(name, heads):
    """CPU seconds, and peak MiB beyond what was held: a row for each head and storage."""
    columns = "save, s | load, s | save, MiB | load, MiB, the model included"
    lines = [f"| {name} | form | {columns} |", "|---" * 6 + "|"]
    for head, found in heads.items():
        for form, result in found.items():
            seconds = f"{result['save_s']:.2f} | {result['load_s']:.2f}"
            peaks = " | ".join(f"{result[key] / 2**20:.0f}" for key in ("save_bytes", "load_bytes"))
            lines.append(f"| {head} | {form} | {seconds} | {peaks} |")
    return "\n".join(lines) + "\n"


def changes(models):
    """Table of mean changes against float32, with standard errors, a row for each storage."""
    names = [f"{name}@{k}" for name in ("P", "PSP") for k in CUTOFFS]
    lines = [f"| {len(models)} models | " + " | ".join(names) + " |", "|---" * 7 + "|"]
    for storage in STORAGES[1:]:
        cells = []
        for name in names:
            found = [model[storage][name] - model["float32"][name] for model in models]
            error = statistics.stdev(found) / len(found) ** 0.5 if len(found) > 1 else np.nan
            cells.append(f"{statistics.fmean(found):+.3f} ({error:.3f})")
        lines.append(f"| {storage} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(result):
    precision = "/".join(f"{result[f'P@{k}']:.1f}" for k in CUTOFFS)
    return f"{precision}, {result['bytes'] / 2**20:.1f}"


def main():
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    models = options.models or options.out / "models"
    models.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    results, tables = {}, []
    report = {"environment": describe_machine(options.threads), "results": results}
    for folder in options.folders:
        name = folder.resolve().name
        results[name] = {}
        for head, seed in itertools.product(options.heads, options.seeds):
            title = head if len(options.seeds) == 1 else f"{head}, seed {seed}"
            results[name][title] = measure(fitted(folder, head, seed, models), folder)
            (options.out / "storage.json").write_text(json.dumps(report, indent=1) + "\n")
        tables += [markdown(name, results[name]), costs(name, results[name])]
        print(*tables[-2:], sep="\n", flush=True)
    if options.words:
        print(vocabulary(options.words))
    if not results:
        return
    tables.append(changes([model for found in results.values() for model in found.values()]))
    print(tables[-1])
    (options.out / "storage.md").write_text("\n".join(tables))


if __name__ == "__main__":
    main()
