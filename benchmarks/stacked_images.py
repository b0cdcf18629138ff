"""Tables 1 and 2 of the multi-label neural collapse paper, on stacked MNIST, at CPU scale.

    python benchmarks/stacked_images.py MNIST_NPZ --seeds 0 1 2

Two digits are put on a doubled canvas; some pairs are held out of training. On the same small
convolutional encoder: a learnt and a fixed last layer, and one output per label with binary
cross-entropy ("one-vs-all"), whose thresholds are tuned on validation rows. Measured on test
images of digits never seen: soft IoU (the probability that a row's labels get), set IoU, micro-F1
and subset accuracy for every decoder, by number of labels and on the pairs held out; trainable
parameters; the collapse measures after the first and the last epoch; seconds of prediction. The
loss is the paper's, ``loss="pick_all_labels"``, unless --reduction says otherwise. Of the feature
decays 5e-4 is the paper's.
"""

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from _measure import add_device, describe_machine, device
from sklearn.metrics import accuracy_score, f1_score, jaccard_score
from torch import nn

from sklearn_xlc import ETFNeuralCollapseClassifier, MultiHeadClassifier
from sklearn_xlc.datasets import make_label_set_images
from sklearn_xlc.engine.plan import Plan
from sklearn_xlc.heads import ETF, Learned, PickAllLabels
from sklearn_xlc.metrics import soft_label_mass
from sklearn_xlc.training import CollapseMonitor

HELD_OUT = [(0, 1), (2, 7), (3, 8), (4, 9), (5, 6)]
SIDE, HIDDEN, BATCH = 56, 512, 128
#: Features of each kind of network: those of a fixed simplex need no more than there are labels.
WIDTHS = {"learned": 64, "etf": 10, "one-vs-all": 64}
N_WATCHED = 2000
MEASURES = ("nc1", "nc1_2", "nc2_means", "nc2_weights", "nc3", "ncm_2")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="npz with X_train, y_train, X_test, y_test")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--per-class", type=int, default=800)
    parser.add_argument("--per-pair", type=int, default=178)
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--weight-decay", type=float, default=0.5)
    parser.add_argument(
        "--feature-decays",
        nargs="+",
        type=float,
        default=[5e-4, 2e-6],
        help="lambda_H of the paper, where the squared norms of a batch are summed, not averaged",
    )
    parser.add_argument(
        "--reduction", choices=("sum", "mean"), default="sum", help="of the loss; the paper: sum"
    )
    parser.add_argument("--kinds", nargs="+", choices=WIDTHS, default=list(WIDTHS))
    parser.add_argument("--out", type=Path, default=Path("results"))
    add_device(parser)
    return parser.parse_args()


class Encoder(nn.Module):
    """Four convolutions, the maximum over places, and a hidden layer, on rows of pixels.

    Two digits on one canvas are two patterns in two places: with the maximum over places the
    features of a pair come from those of its digits, also where the pair was never seen.
    """

    def __init__(self, n_outputs):
        super().__init__()
        self.n_outputs = n_outputs
        layers, width = [], 1
        for wider, kernel in ((16, 5), (32, 3), (64, 3), (128, 3)):
            convolution = nn.Conv2d(width, wider, kernel, stride=2, padding=kernel // 2)
            layers += [convolution, nn.BatchNorm2d(wider), nn.ReLU()]
            width = wider
        layers += [nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(width, HIDDEN)]
        layers += [nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, n_outputs)]
        self.layers = nn.Sequential(*layers)

    def forward(self, rows):
        return self.layers(rows.view(-1, 1, SIDE, SIDE))


def make_data(arguments, seed):
    """Training, validation and test parts; only the last one shows the pairs held out."""
    with np.load(arguments.file) as data:
        digits = {part: (data[f"X_{part}"], data[f"y_{part}"]) for part in ("train", "test")}
    X, y = digits["train"]
    sizes = {"n_per_class": arguments.per_class, "n_per_pair": arguments.per_pair}
    fewer = {"n_per_class": arguments.per_class // 3, "n_per_pair": arguments.per_pair // 3}
    cut = len(X) * 5 // 6
    parts = {
        "train": make_label_set_images(
            X[:cut], y[:cut], **sizes, held_out=HELD_OUT, random_state=seed
        ),
        "valid": make_label_set_images(
            X[cut:], y[cut:], **fewer, held_out=HELD_OUT, random_state=seed + 1
        ),
        "test": make_label_set_images(*digits["test"], **fewer, random_state=seed + 2),
    }
    return {
        name: (images.reshape(len(images), -1).astype(np.float32) / 255, Y)
        for name, (images, Y) in parts.items()
    }


def fit(kind, decay, data, seed, arguments):
    """A fitted classifier, and its trainable parameters."""
    X, Y = data["train"]
    torch.manual_seed(seed)
    common = {
        "encoder": lambda n_features: Encoder(WIDTHS[kind]),
        "max_epochs": arguments.epochs,
        "batch_size": BATCH,
        "learning_rate": 5e-3,
        "weight_decay": arguments.weight_decay,
        "device": device(),
        "random_state": seed,
    }
    if kind == "one-vs-all":
        return MultiHeadClassifier("flat", ranker=None, **common).fit(X, Y)
    monitor = CollapseMonitor(X[:N_WATCHED], Y[:N_WATCHED])
    output = {"etf": ETF, "learned": Learned}[kind]
    classifier = ETFNeuralCollapseClassifier(
        output(feature_decay=decay * BATCH, fit_intercept=False),
        loss=PickAllLabels(reduction=arguments.reduction),
        callbacks=[monitor],
        **common,
    )
    return classifier.fit(X, Y)


def decoded(kind, decay, data, seed, arguments):
    """Predicted label sets of the test rows by decoder, and what else is measured of a fit."""
    X_test, Y_test = data["test"]
    classifier = fit(kind, decay, data, seed, arguments)
    record = {"kind": kind, "feature_decay": decay, "seed": seed}
    record["n_parameters"] = classifier.n_parameters_
    if kind == "one-vs-all":
        scores, truth = classifier.decision_function(data["valid"][0]), data["valid"][1]
        cuts = np.quantile(scores, np.linspace(0.5, 0.99, 300))
        tuned = {
            "one threshold, F1": max(cuts, key=lambda c: _micro(truth, scores > c)),
            "one threshold, subset": max(cuts, key=lambda c: accuracy_score(truth, scores > c)),
            "a threshold a label, F1": np.array(
                [max(cuts, key=lambda c: f1_score(t, s > c)) for t, s in zip(truth.T, scores.T)]
            ),
        }
        start = time.process_time()
        test_scores = classifier.decision_function(X_test)
        record["predict_cpu_s"] = {"thresholds": time.process_time() - start}
        return record, {name: test_scores > cut for name, cut in tuned.items()}
    record["soft_iou"] = soft_label_mass(Y_test, classifier.predict_proba(X_test))
    history = classifier.net_.history
    record["collapse"] = {name: (history[0, name], history[-1, name]) for name in MEASURES}
    record["predict_cpu_s"], record["flops"], sets = {}, {}, {}
    training = classifier._validate_fit(*data["train"], None, classifier._code, reset=False)
    for decoder in ("nearest", "seen", "divergence"):
        classifier.set_params(decision=decoder)
        plan = Plan(classifier, training, going_on=True)
        classifier._decide(plan, training.rows, None)
        start = time.process_time()
        sets[decoder] = classifier.predict(X_test)
        record["predict_cpu_s"][decoder] = time.process_time() - start
        record["flops"][decoder] = decoding_flops(decoder, data["train"][1], WIDTHS[kind])
    return record, sets


def decoding_flops(decoder, Y, width):
    """Operations a row from features to a label set: products, and comparisons of a sort."""
    n_labels = Y.shape[1]
    if decoder == "seen":
        return 2 * len(np.unique(Y, axis=0)) * width
    # A simplex of as many features as labels needs a mean and a difference, no products.
    logits = 3 * n_labels if width == n_labels else 2 * n_labels * width
    return logits + int(n_labels * np.log2(n_labels))


def asked(arguments):
    """Kinds of network with their feature decays."""
    for kind in arguments.kinds:
        for decay in [None] if kind == "one-vs-all" else arguments.feature_decays:
            yield kind, decay


def _micro(truth, predicted):
    return f1_score(truth, predicted, average="micro")


def score(Y, predicted):
    """Set IoU, micro-F1 and subset accuracy, in all and for parts of the test rows."""
    held = np.zeros(len(Y), dtype=bool)
    for pair in HELD_OUT:
        held |= Y[:, pair].all(axis=1)
    sizes = Y.sum(axis=1)
    parts = {"all seen": ~held, "one": sizes == 1, "two": (sizes == 2) & ~held, "held out": held}
    return {
        name: {
            "set_iou": jaccard_score(Y[rows], predicted[rows], average="samples"),
            "f1": _micro(Y[rows], predicted[rows]),
            "subset": accuracy_score(Y[rows], predicted[rows]),
        }
        for name, rows in parts.items()
    }


def tables(records):
    """Means over seeds as two Markdown tables."""
    lines = [
        "| last layer | feature decay | trainable parameters | soft IoU | NC1 | NC1, pairs | "
        "NC2, means | NC2, weights | NC3 | NCm (first -> last) |",
        "|---" * 10 + "|",
    ]
    models = defaultdict(list)
    for record in records:
        models[record["kind"], record["feature_decay"]].append(record)
    for (kind, decay), own in models.items():
        if kind == "one-vs-all":
            continue
        cells = [kind, str(decay), f"{own[0]['n_parameters']:,}"]
        cells.append(f"{100 * np.mean([record['soft_iou'] for record in own]):.2f}")
        for name in MEASURES:
            first, last = np.mean([record["collapse"][name] for record in own], axis=0)
            cells.append(f"{first:.3f} -> {last:.4f}")
        lines.append("| " + " | ".join(cells) + " |")
    parts = ("all seen", "one", "two", "held out")
    lines += [
        "",
        "| last layer | feature decay | decoder | "
        + " | ".join(f"{part}: F1 / subset" for part in parts)
        + " | operations a row | CPU s |",
        "|---" * (5 + len(parts)) + "|",
    ]
    for (kind, decay), own in models.items():
        for decoder in own[0]["scores"]:
            cells = [kind, "" if decay is None else str(decay), decoder]
            for part in parts:
                values = [
                    [record["scores"][decoder][part][name] for name in ("f1", "subset")]
                    for record in own
                ]
                cells.append(" / ".join(f"{100 * value:.2f}" for value in np.mean(values, axis=0)))
            seconds = own[0]["predict_cpu_s"].get(
                decoder, own[0]["predict_cpu_s"].get("thresholds")
            )
            flops = own[0].get("flops", {}).get(decoder, 2 * 10 * WIDTHS[kind])
            cells += [f"{flops:,}", f"{seconds:.2f}"]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    stem = arguments.out / "stacked_images"
    records = []
    if stem.with_suffix(".json").exists():
        records = json.loads(stem.with_suffix(".json").read_text())["records"]
    done = {(record["kind"], record["feature_decay"], record["seed"]) for record in records}
    for seed in arguments.seeds:
        data = make_data(arguments, seed)
        for kind, decay in asked(arguments):
            if (kind, decay, seed) in done:
                continue
            start = time.process_time()
            record, sets = decoded(kind, decay, data, seed, arguments)
            record["cpu_s"] = time.process_time() - start
            record["scores"] = {name: score(data["test"][1], p) for name, p in sets.items()}
            record["options"] = {name: str(value) for name, value in vars(arguments).items()}
            records.append(record)
            print(json.dumps(record), flush=True)
            report = {"machine": describe_machine(torch.get_num_threads()), "records": records}
            stem.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
            stem.with_suffix(".md").write_text(tables(records))
    print(tables(records))


if __name__ == "__main__":
    main()
