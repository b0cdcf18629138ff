"""Label sets without thresholds, against one threshold tuned on validation rows.

    python benchmarks/label_sets.py DATA_FOLDER --seeds 0 1 2

On the same 90% of the training rows and with the same encoder: a flat classifier trained by binary
cross-entropy, whose one threshold is tuned on the other 10% for micro-F1, for example-F1 and for
subset accuracy; and `ETFNeuralCollapseClassifier` with every decision, "divergence" with nothing
tuned and with a temperature fitted on these 10%. Measured on the test rows.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from _measure import add_device, describe_machine, device, load_part
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import train_test_split

from sklearn_xlc import ETFNeuralCollapseClassifier, MultiHeadClassifier
from sklearn_xlc.geometry import divergence_label_sets, fit_temperature, label_sets_to_csr
from sklearn_xlc.metrics import precision_at_k

CRITERIA = {
    "micro_f1": lambda truth, sets: f1_score(truth, sets, average="micro", zero_division=0),
    "example_f1": lambda truth, sets: f1_score(truth, sets, average="samples", zero_division=0),
    "subset_accuracy": accuracy_score,
}
CUTS = np.linspace(-5, 4, 61)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds X_trn.npz, Y_trn.npz, *_tst.npz")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("results"))
    add_device(parser)
    return parser.parse_args()


def rows_of(name, scores, test_scores, Y_valid, Y_test, most):
    """Predicted sets of the test rows under every rule that reads scores."""
    if name == "bce":
        for criterion, measure in CRITERIA.items():
            cut = max(CUTS, key=lambda c: measure(Y_valid, (scores > c).astype(int)))
            yield f"BCE, threshold tuned for {criterion}", (test_scores > cut).astype(int)
        return
    sizes, _ = divergence_label_sets(test_scores, max_labels=most)
    yield "ETF, divergence, nothing tuned", label_sets_to_csr(test_scores, sizes)
    for criterion in CRITERIA:
        temperature = fit_temperature(scores, Y_valid, criterion, most)
        sizes, _ = divergence_label_sets(test_scores, temperature, most)
        sets = label_sets_to_csr(test_scores, sizes)
        yield f"ETF, divergence, temperature tuned for {criterion}", sets
    cut = max(CUTS - 3, key=lambda c: CRITERIA["micro_f1"](Y_valid, (scores > c).astype(int)))
    yield "ETF, threshold tuned for micro_f1", (test_scores > cut).astype(int)


def measure_seed(data, seed):
    """Rows of the table for one seed."""
    X, Y, X_test, Y_test = data
    X, X_valid, Y, Y_valid = train_test_split(X, Y, test_size=0.1, random_state=seed)
    truth = Y_test.toarray().astype(int)
    results = []
    for name, kind in (("bce", MultiHeadClassifier), ("etf", ETFNeuralCollapseClassifier)):
        first = "flat" if name == "bce" else "etf"
        start = time.process_time()
        alone = {"ranker": None, "decision": "divergence"}  # nothing else is held out
        classifier = kind(first, device=device(), random_state=seed, **alone).fit(X, Y)
        seconds = time.process_time() - start
        scores, test_scores = (classifier.decision_function(part) for part in (X_valid, X_test))
        ranking = {f"P@{k}": precision_at_k(Y_test, test_scores, k=k) for k in (1, 3, 5)}
        most = getattr(classifier.decision_, "max_labels_", None)
        rules = rows_of(name, scores, test_scores, Y_valid.toarray().astype(int), truth, most)
        for rule, sets in rules:
            results.append({"rule": rule, "seed": seed, "fit_cpu_s": seconds, **ranking})
            results[-1] |= {key: float(measure(truth, sets)) for key, measure in CRITERIA.items()}
        if name == "etf":
            for decision in ("nearest", "seen"):
                classifier = kind(decision=decision, device=device(), random_state=seed).fit(X, Y)
                sets = classifier.predict(X_test)
                results.append({"rule": f"ETF, {decision}", "seed": seed, **ranking})
                results[-1] |= {key: float(m(truth, sets)) for key, m in CRITERIA.items()}
    return results


def table(results):
    """Means over seeds, and spreads, as Markdown."""
    names = ("P@1", "P@3", "P@5", *CRITERIA)
    lines = ["| rule | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
    for rule in dict.fromkeys(row["rule"] for row in results):
        own = [row for row in results if row["rule"] == rule]
        cells = []
        for name in names:
            values = 100 * np.array([row[name] for row in own])
            cells.append(f"{values.mean():.1f} ± {values.std():.1f}")
        lines.append(f"| {rule} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    arguments = parse_arguments()
    data = [*load_part(arguments.folder, "trn"), *load_part(arguments.folder, "tst")]
    arguments.out.mkdir(parents=True, exist_ok=True)
    stem = arguments.out / f"label_sets_{arguments.folder.resolve().name}"
    results = []
    for seed in arguments.seeds:
        results += measure_seed(data, seed)
        report = {"machine": describe_machine(1), "results": results}
        stem.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
        stem.with_suffix(".md").write_text(table(results))
        print(table(results), flush=True)


if __name__ == "__main__":
    main()
