"""Table 3 of EAGLE on MNIST: bags of digits whose labels are known, tested on single digits.

    python benchmarks/miml_bags.py MNIST_NPZ --seeds 0 1 2

The training digits are dealt into bags at random. Deep-MIML (no attention), EAGLE-0 and EAGLE (the
paper's label embeddings, without contrast, of samples of norm one), co-attention by inner products
with samples as given, and ours (the embeddings of `EAGLETransformer`'s defaults) share network,
initial weights, learning rate and epochs; measured is the share of single test digits whose best
label is right. Pixels are less the training mean. Two protocols, with bags of 50 both after few and
after many epochs:

- sets: as in the paper, the network learns which labels occur, and the mask multiplies. A bag of
  50 has nearly every label. (The paper gives lists with repetitions there, and does not say what
  the network makes of a repetition; here only our embeddings count them.)
- counts: the network learns how often a label occurs (``multiplicity="top"``), and the mask
  selects: the defaults of `MIMLClassifier`. This is more information than the paper's network has,
  so its figures do not compare with the published ones.

The paper's network has two layers, like this one. Its units, epochs and optimiser are not given, so
that even "sets" has the published figures beside it for orientation only.

Writes ``miml_bags.json`` and ``.md`` after every fit; a run that was stopped goes on from there.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from _measure import add_device, describe_machine, device

from sklearn_xlc import EAGLETransformer, MIMLClassifier
from sklearn_xlc.encoders import MLP

#: Accuracy in the paper, for bags of 4 and of 50.
PUBLISHED = {"Deep-MIML": (94.70, 33.33), "EAGLE-0": (94.82, 36.10), "EAGLE": (94.82, 38.46)}
CASE = ("size", "labels", "epochs", "method", "seed", "width")
METHODS = (*PUBLISHED, "EAGLE, products", "ours")
#: Training, whatever the defaults are.
TRAINING = {"optimizer": "adam", "learning_rate": 2e-3, "precision": "float32"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="npz with X_train, y_train, X_test, y_test")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--small", type=int, default=4, help="digits of a bag with a label set")
    parser.add_argument("--large", type=int, default=50, help="digits of a bag with a list")
    parser.add_argument("--small-epochs", nargs="*", type=int, default=[5])
    parser.add_argument("--set-epochs", nargs="*", type=int, default=[5, 10])
    parser.add_argument("--count-epochs", nargs="*", type=int, default=[5, 20])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--width", type=int, default=256, help="units of the hidden layer")
    parser.add_argument("--out", type=Path, default=Path("results"))
    add_device(parser)
    return parser.parse_args()


def load(file):
    """Training and test pixels less the training mean, and their digits."""
    with np.load(file) as data:
        X, X_test = (data[f"X_{part}"].reshape(-1, 784) / 255 for part in ("train", "test"))
        y, y_test = data["y_train"].astype(int), data["y_test"].astype(int)
    mean = X.mean(axis=0)
    return (X - mean).astype(np.float32), y, (X_test - mean).astype(np.float32), y_test


def deal(y, size, seed):
    """Bag of each digit, and how often each label occurs in each bag; a rest is left out."""
    n_bags = len(y) // size
    rows = np.random.default_rng(seed).permutation(len(y))[: n_bags * size]
    bags = np.arange(len(rows)) // size
    counts = np.zeros((n_bags, 10), dtype=int)
    np.add.at(counts, (bags, y[rows]), 1)
    return rows, bags, counts


def attention_of(method, seed):
    """What ranks the digits of a bag."""
    if method == "Deep-MIML":
        return None
    if method == "EAGLE-0":
        return EAGLETransformer(contrast=None, n_iter=0, random_state=seed)
    if method == "EAGLE":
        return EAGLETransformer(contrast=None, random_state=seed)
    if method == "EAGLE, products":
        return "product"
    return EAGLETransformer(multiplicity="top", random_state=seed)


def protocols(options):
    """Name, size of bags, epochs, and what differs from the defaults of the classifier."""
    published = {"mask": "multiply", "multiplicity": "ignore"}
    for epochs in options.set_epochs:
        yield "sets", options.large, epochs, published
    for epochs in options.count_epochs:
        yield "counts", options.large, epochs, {}
    for epochs in options.small_epochs:
        yield "sets", options.small, epochs, published


def measure(data, labels, size, epochs, params, method, seed, width):
    """Accuracy on test digits and seconds of one fit."""
    X, y, X_test, y_test = data
    rows, bags, counts = deal(y, size, seed)
    if labels == "sets" and size < 10:
        counts = np.minimum(counts, 1)
    classifier = MIMLClassifier(
        attention_of(method, seed),
        encoder=MLP((width,), dropout=0.2),
        max_epochs=epochs,
        device=device(),
        random_state=seed,
        **TRAINING,
        **params,
    )
    start = time.process_time()
    classifier.fit(X[rows], counts, bags)
    seconds = time.process_time() - start
    best = classifier.predict_topk(X_test, k=1)[0][:, 0]
    record = {"accuracy": float(np.mean(best == y_test)), "fit_cpu_s": seconds}
    embeddings = classifier.label_embeddings_
    if embeddings is not None:
        nearest = (X_test @ embeddings.T).argmax(axis=1)
        record["embeddings_alone"] = float(np.mean(nearest == y_test))
    return record


def table(records):
    """Means and standard deviations over seeds as a Markdown table."""
    lines = [
        "| bags of | labels | epochs | " + " | ".join(METHODS) + " |",
        "|---" * (3 + len(METHODS)) + "|",
    ]
    for column, size in enumerate((4, 50)):
        published = [f"{values[column]:.2f}" for values in PUBLISHED.values()]
        lines.append(f"| {size} | in the paper | | " + " | ".join([*published, "", ""]) + " |")
    for key in dict.fromkeys((r["size"], r["labels"], r["epochs"]) for r in records):
        cells = [str(value) for value in key]
        for method in METHODS:
            own = [
                record
                for record in records
                if (record["size"], record["labels"], record["epochs"]) == key
                and record["method"] == method
            ]
            accuracy = 100 * np.array([record["accuracy"] for record in own])
            cells.append(f"{accuracy.mean():.2f} ± {accuracy.std():.2f}" if own else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    options = parse_arguments()
    data, stem = load(options.file), options.out / "miml_bags"
    options.out.mkdir(parents=True, exist_ok=True)
    report = {"machine": describe_machine(torch.get_num_threads()), "records": []}
    if stem.with_suffix(".json").exists():
        report = json.loads(stem.with_suffix(".json").read_text())
    records = report["records"]
    done = [{name: record[name] for name in CASE} for record in records]
    print(f"{len(done)} fits are there already", flush=True)
    for seed in options.seeds:
        for labels, size, epochs, params in protocols(options):
            for method in options.methods:
                case = dict(zip(CASE, (size, labels, epochs, method, seed, options.width)))
                if case in done:
                    continue
                found = measure(data, labels, size, epochs, params, method, seed, options.width)
                records.append({**case, **found})
                stem.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
                stem.with_suffix(".md").write_text(table(records))
                print(json.dumps(records[-1]), flush=True)
    print(table(records))


if __name__ == "__main__":
    main()
