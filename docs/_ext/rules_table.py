"""Table of what "auto" stands for, computed by the rules of the package for data of several kinds.

Before a build, `docs/_generated/rules.md` is written, which pages include.
"""

from dataclasses import replace
from pathlib import Path

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.engine.resolve import (
    WIDTH,
    Facts,
    Task,
    choose_decision,
    choose_head,
    choose_n_candidates,
    choose_ranker,
    choose_retrievers,
    hold_out,
    keeps_type,
    resolve,
)
from sklearn_xlc.engine.settings import Settings
from sklearn_xlc.heads import HEADS

DOCS = Path(__file__).parents[1]
#: Data: samples, labels, non-zeros of a sample (0: dense), and whether samples hold label sets.
DATA = [
    ("500 short texts", 500, 50, 8, True),
    ("5 000 texts", 5_000, 160, 70, True),
    ("25 000 texts", 25_000, 600, 60, True),
    ("45 000 long texts", 45_000, 4_300, 150, True),
    ("65 000 short texts, 17 000 labels", 65_000, 17_000, 8, True),
    ("500 000 texts, 200 000 labels", 500_000, 200_000, 70, True),
    ("25 000 dense samples", 25_000, 600, 0, True),
    ("5 000 texts, 160 classes", 5_000, 160, 70, False),
    ("500 000 texts, 20 000 classes", 500_000, 20_000, 70, False),
]
ROWS = {
    "head": "head",
    "loss": "loss",
    "head__n_negatives": "negatives",
    "max_active": "`max_active` of `DFTSigmoidClassifier`",
    "precision": "precision",
    "encoder__hidden_layer_sizes": "hidden layer",
    "encoder__dropout": "dropout",
    "encoder__negative_slope": "slope below zero",
    "batch_size": "batch",
    "max_epochs": "epochs",
    "optimizer": "optimiser",
    "optimizer__learning_rate": "rate, encoder",
    "optimizer__head_learning_rate": "rate, head",
    "validation_fraction": "held out",
    "ranker": "ranker",
    "ranker__retrievers": "lists by",
    "ranker__n_candidates": "labels of the network in a list",
    "decision": "decision",
}


def settings(n_samples, n_labels, length, multilabel):
    """Settings of `MultiHeadClassifier()`; label sets have about five labels, at most twelve."""
    facts = Facts(
        n_samples=n_samples,
        n_labels=n_labels,
        multilabel=multilabel,
        sparse=length > 0,
        standardised=length == 0,
        n_instances=n_samples,
        n_nonzeros=n_samples * (length or 300),
        labels_per_sample=5.0 if multilabel else 1.0,
        most_labels=12 if multilabel else 1,
        pointwise=multilabel,
        one_softmax=not multilabel,
        retrieves=True,
        lists=True,
        n_train=n_samples,
        train_length=max(1.0, length),
    )
    head = choose_head(Task(n_labels, facts.labels_per_sample, WIDTH), multilabel)
    params = MultiHeadClassifier(head, encoder="mlp").get_params(deep=False)
    auto = Settings({**params, "max_active": "auto"}, MultiHeadClassifier._parts)
    held = hold_out(auto.flat(), facts)
    is_tuned = held.refit or held.n_held > 0
    name, _ = choose_decision("sigmoid", ranks_sets=False, is_enough=is_tuned)
    decision = f"{name}, tuned" if is_tuned else "probability above 1/2, or the best"
    facts = replace(facts, head=head)
    found = resolve(auto, facts).plain()
    found["loss"] = HEADS[head]().head_for(multilabel).auto_losses[multilabel]
    fast = resolve(auto, replace(facts, fast_bfloat16=True))["precision"]
    numbers = found["precision"] if fast == found["precision"] else f"{fast} if faster"
    found["precision"] = "float64 if X is" if keeps_type("auto", n_samples) else numbers
    found["head__n_negatives"] = found["head__n_negatives"] if head == "flat" else "-"
    found["validation_fraction"] = _held_out(held)
    if is_tuned:
        found["ranker"] = choose_ranker(facts, "auto")
        found["ranker__retrievers"] = choose_retrievers(facts, has_word_vectors=False)
        found["ranker__n_candidates"] = choose_n_candidates(facts)
    return found | {"decision": decision if multilabel else "the best"}


def _held_out(held):
    if held.refit:
        return "a second network"
    return f"{held.n_held} samples" if held.n_held else "none"


def table():
    """Markdown table: a column for each kind of data."""
    columns = {title: settings(*data) for title, *data in DATA}
    lines = [
        "| | " + " | ".join(columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for key, name in ROWS.items():
        cells = [_cell(found.get(key, "-")) for found in columns.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(value):
    if value is None:
        return "all labels"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def write(app):
    """Write the table."""
    folder = DOCS / "_generated"
    folder.mkdir(exist_ok=True)
    (folder / "rules.md").write_text(table(), encoding="utf-8")


def setup(app):
    """Register with Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
