"""Fig. 5 of the sigmoid bottleneck paper: unargmaxable label sets, and quality per parameter.

    python benchmarks/sigmoid_bottleneck.py DATA_FOLDER --widths 25 50 100 200 --seeds 0 1 2

For every number of learnt columns d and every seed it trains four output layers on the same
encoder: "bottleneck" (the paper's baseline: d learnt columns, no biases), "bottleneck+bias" (a
stronger one that the paper does not have: with biases that start at the label frequencies),
"dft, paper" (2k + 1 fixed Fourier columns beside the d learnt ones, with the paper's start:
``heads.Fourier(init="random")``) and "dft" (with ours, at the label frequencies). So the gain is
split between the layer and its start.
Measured: precision and F1 at k on the test rows, trainable parameters of the output layer, the
loss on validation rows after every epoch, and how many of the distinct test label sets are
argmaxable, not argmaxable, or undecided (for bottlenecks of a seeded sample of them). With
``--reach N``: a 95% interval of the share of label sets to come that the layer can predict, from
those of N test rows drawn at random (:func:`sklearn_xlc.geometry.certify_reachability`).
Writes ``NAME.json``, ``NAME.md`` and, where matplotlib is installed, ``NAME.png``. A run that was
interrupted goes on where it stopped: rows measured with the same options are read back.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from _measure import add_device, describe_machine, device, load_part

OUTPUTS = ("bottleneck", "bottleneck+bias", "dft, paper", "dft")
#: Training of every layer: it is the layers that are compared, whatever the defaults are.
TRAINING = {"optimizer": "adam", "learning_rate": 2e-3, "batch_size": 256, "precision": "float32"}
#: Colour (safe for the colour-blind) and marker of each.
STYLES = (("#D55E00", "o"), ("#E69F00", "s"), ("#56B4E9", "v"), ("#0072B2", "^"))


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds X_trn.npz, Y_trn.npz, *_tst.npz")
    parser.add_argument("--widths", nargs="+", type=int, default=[25, 50, 100, 200])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--outputs", nargs="+", choices=OUTPUTS, default=OUTPUTS)
    parser.add_argument("--hidden", type=int, default=512, help="width of the encoder")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--k", type=int, default=10, help="cut-off of F1")
    parser.add_argument("--sets", type=int, default=200, help="label sets asked of a bottleneck")
    parser.add_argument("--time-limit", type=float, default=5.0, help="seconds for each of them")
    parser.add_argument("--reach", type=int, default=0, help="test rows for the interval")
    parser.add_argument("--out", type=Path, default=Path("results"))
    add_device(parser)
    return parser.parse_args(arguments)


def is_dft(output):
    return output.startswith("dft")


def make_classifier(output, width, seed, arguments):
    """A classifier whose rows held out tell the loss of every epoch, without stopping early."""
    from skorch.callbacks import EarlyStopping

    from sklearn_xlc import DFTSigmoidClassifier, MultiHeadClassifier
    from sklearn_xlc.encoders import MLP
    from sklearn_xlc.heads import Bottleneck, Flat, Fourier

    options = {
        "encoder": MLP((arguments.hidden,), dropout=arguments.dropout),
        "max_epochs": arguments.epochs,
        "early_stopping": True,
        "callbacks": [EarlyStopping(patience=arguments.epochs + 1, load_best=True)],
        **TRAINING,
        "device": device(),
        "random_state": seed,
    }
    if output == "bottleneck+bias":
        return MultiHeadClassifier(Flat(rank=width), ranker=None, **options)
    start = "random" if output == "dft, paper" else "frequencies"
    part = Fourier(init=start) if is_dft(output) else Bottleneck()
    return DFTSigmoidClassifier(output=part, n_slack=width, **options)


def measure(output, width, seed, data, arguments):
    """One row of the table: train, predict, verify."""
    from sklearn_xlc.metrics import f1_at_k, precision_at_k

    X, Y, X_test, Y_test, sets = data
    classifier = make_classifier(output, width, seed, arguments)
    start = time.process_time()
    classifier.fit(X, Y)
    fit_cpu = time.process_time() - start
    top, _ = classifier.predict_topk(X_test, k=max(arguments.k, 5))
    head = classifier.net_.module_.head
    row = {
        "output": output,
        "width": width,
        "seed": seed,
        "max_active": getattr(classifier, "max_active_", None),
        "head_parameters": sum(p.numel() for p in head.parameters()),
        "f1": f1_at_k(Y_test, top, k=arguments.k),
        **{f"p{k}": precision_at_k(Y_test, top, k=k) for k in (1, 3, 5)},
        "valid_loss": [float(epoch["valid_loss"]) for epoch in classifier.net_.history],
        "fit_cpu_s": fit_cpu,
    }
    row |= verify(classifier, output, X_test, sets, seed, arguments)
    return row | reach(classifier, Y_test, seed, arguments) if arguments.reach else row


def verify(classifier, output, X_test, sets, seed, arguments):
    """How many label sets the layer can predict: all of them for "dft", else a sample."""
    from sklearn_xlc.geometry import verify_argmaxable

    if is_dft(output):
        within = sets[np.diff(sets.indptr) <= classifier.max_active_]
    else:
        rng = np.random.default_rng(seed)
        within = sets[np.sort(rng.permutation(sets.shape[0])[: arguments.sets])]
    points = (
        None
        if is_dft(output)
        else classifier._predictor.head_inputs(classifier._validate_predict(X_test))
    )
    start = time.perf_counter()
    report = verify_argmaxable(classifier, within, points=points, time_limit=arguments.time_limit)
    return {
        "n_sets": report.n_sets,
        "argmaxable": report.n_argmaxable,
        "narrow": int(report.narrow.sum()),
        "not_argmaxable": report.n_unargmaxable,
        "unknown": report.n_unknown,
        "verify_wall_s": time.perf_counter() - start,
    }


def reach(classifier, Y_test, seed, arguments):
    """Interval of the share of label sets to come that the layer can predict."""
    from sklearn_xlc.geometry import certify_reachability

    rows = np.random.default_rng(seed).permutation(Y_test.shape[0])[: arguments.reach]
    start = time.process_time()
    found = certify_reachability(classifier, Y_test[rows], time_limit=arguments.time_limit)
    return {
        "reach": [found.lower_, found.upper_],
        "reach_counts": [found.n_argmaxable_, found.n_unargmaxable_, found.n_unknown_],
        "reach_cpu_s": time.process_time() - start,
    }


def distinct_rows(Y):
    """The label sets that occur, each once, without the empty one."""
    sets = {Y.indices[a:b].tobytes(): i for i, (a, b) in enumerate(zip(Y.indptr, Y.indptr[1:]))}
    sets.pop(b"", None)
    return Y[sorted(sets.values())]


def measured_before(path, arguments):
    """Rows of an earlier run with the same options, whatever seeds and widths it was asked for."""
    if not path.exists():
        return []
    report = json.loads(path.read_text())
    asked = json.loads(json.dumps(vars(arguments), default=str))
    free = {"folder", "out", "seeds", "widths", "outputs"}
    same = all(report["options"].get(key) == asked[key] for key in asked if key not in free)
    return report["rows"] if same else []


def table(rows, k):
    """Means over seeds, and spreads, as Markdown."""
    lines = [
        f"| d | output layer | parameters | P@1 | P@3 | P@5 | F1@{k} | best validation loss "
        "| epochs to the bottleneck's best | CPU s to it | test label sets: argmaxable / not / "
        "undecided |",
        "|---" * 11 + "|",
    ]
    for width in sorted({row["width"] for row in rows}):
        target = {
            row["seed"]: min(row["valid_loss"])
            for row in rows
            if row["width"] == width and row["output"] == "bottleneck"
        }
        for output in OUTPUTS:
            chosen = [r for r in rows if r["width"] == width and r["output"] == output]
            if chosen:
                lines.append(_line(width, output, chosen, target))
    return "\n".join(lines) + "\n"


def _line(width, output, chosen, target):
    def mean(name, scale=1.0, digits=1):
        values = scale * np.array([row[name] for row in chosen])
        spread = f" ± {values.std():.{digits}f}" if len(values) > 1 else ""
        return f"{values.mean():.{digits}f}{spread}"

    best = np.mean([min(row["valid_loss"]) for row in chosen])
    reached = [_epochs_to(row["valid_loss"], target.get(row["seed"])) for row in chosen]
    seconds = [
        "-" if n == "-" else round(row["fit_cpu_s"] * n / len(row["valid_loss"]), 1)
        for n, row in zip(reached, chosen)
    ]
    counts = [
        sum(row[key] for row in chosen) for key in ("argmaxable", "not_argmaxable", "unknown")
    ]
    cells = (
        width,
        output,
        f"{chosen[0]['head_parameters'] / 1e3:.0f} k",
        *(mean(f"p{k}", 100) for k in (1, 3, 5)),
        mean("f1", 1.0, 4),
        f"{best:.2f}",
        " ".join(map(str, reached)),
        " ".join(map(str, seconds)),
        " / ".join(map(str, counts)),
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def _epochs_to(losses, target):
    """Number of epochs after which the loss is at most `target`; "-" if it never is."""
    return next((i for i, loss in enumerate(losses, 1) if target and loss <= target), "-")


def draw(rows, k):
    """Fig. 5a and 5b, and the validation loss of every epoch at the least and the largest width."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9, 6.6), layout="constrained")
    widths = sorted({row["width"] for row in rows})
    for number, (output, (colour, marker)) in enumerate(zip(OUTPUTS, STYLES)):
        style = {"marker": marker, "ms": 5, "color": colour, "label": output}
        chosen = [row for row in rows if row["output"] == output]
        groups = [[row for row in chosen if row["width"] == width] for width in widths]
        groups = [group for group in groups if group]
        draw_reach(axes[0, 0], groups, 1.04 ** (number - 1.5), style)
        draw_quality(axes[0, 1], groups, style)
        for ax, width in zip(axes[1], (widths[0], widths[-1])):
            losses = [row["valid_loss"] for row in chosen if row["width"] == width]
            if losses:
                ax.plot(np.arange(1, len(losses[0]) + 1), np.mean(losses, axis=0), **style)
            ax.set(xlabel="epoch", ylabel="validation loss", yscale="log", title=f"d = {width}")
            ax.yaxis.set_minor_formatter("{x:g}")
            ax.tick_params(which="minor", labelsize="small")
    left, right = axes[0]
    left.set(xlabel="learnt columns d", ylabel="test label sets not argmaxable (%)", xscale="log")
    left.set_title("bars up: undecided", fontsize="medium")
    left.set_xticks(widths, widths)
    left.minorticks_off()
    right.set(xlabel="trainable parameters of the output layer", ylabel=f"F1@{k}", xscale="log")
    right.legend()
    return figure


def draw_reach(ax, groups, shift, style):
    """Share of sets out of reach of one layer, with a bar up for those undecided."""
    widths = [shift * group[0]["width"] for group in groups]
    share, undecided = (
        [100 * np.mean([row[key] / row["n_sets"] for row in group]) for group in groups]
        for key in ("not_argmaxable", "unknown")
    )
    ax.errorbar(widths, share, [np.zeros(len(groups)), undecided], capsize=3, **style)


def draw_quality(ax, groups, style):
    """F1 of one layer by its parameters, with the spread over seeds."""
    parameters = [group[0]["head_parameters"] for group in groups]
    f1 = [np.mean([row["f1"] for row in group]) for group in groups]
    spread = [np.std([row["f1"] for row in group]) for group in groups]
    ax.errorbar(parameters, f1, spread, capsize=3, **style)


def run(arguments):
    """All rows, measured now or read back; writes the tables after each."""
    (X, Y), (X_test, Y_test) = (
        load_part(arguments.folder, "trn"),
        load_part(arguments.folder, "tst"),
    )
    data = X, Y, X_test, Y_test, distinct_rows(Y_test)
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows = measured_before(stem(arguments).with_suffix(".json"), arguments)
    done = {(row["seed"], row["width"], row["output"]) for row in rows}
    for seed in arguments.seeds:
        for width in arguments.widths:
            for output in arguments.outputs:
                if (seed, width, output) in done:
                    continue
                rows.append(measure(output, width, seed, data, arguments))
                print({key: rows[-1][key] for key in rows[-1] if key != "valid_loss"}, flush=True)
                write(rows, arguments)
    return rows


def stem(arguments):
    return arguments.out / f"bottleneck_{arguments.folder.resolve().name}"


def write(rows, arguments):
    report = {"machine": describe_machine(1), "options": vars(arguments), "rows": rows}
    text = json.dumps(report, indent=1, default=str)
    stem(arguments).with_suffix(".json").write_text(text)
    stem(arguments).with_suffix(".md").write_text(table(rows, arguments.k))


def main():
    arguments = parse_arguments()
    rows = run(arguments)
    print(table(rows, arguments.k))
    try:
        import matplotlib
    except ModuleNotFoundError:
        print("matplotlib is not installed: no picture")
        return
    matplotlib.use("agg")
    draw(rows, arguments.k).savefig(stem(arguments).with_suffix(".png"), dpi=150)


if __name__ == "__main__":
    main()
