"""Table of what "auto" stands for, computed by the rules of the package for data of several kinds.

Before a build, `docs/_generated/rules.md` is written, which pages include.
"""

from dataclasses import replace
from pathlib import Path

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
    resolve_model,
    resolve_training,
)

DOCS = Path(__file__).parents[1]
#: Data: samples, labels, non-zeros of a sample; 0: dense.
DATA = [
    ("500 short texts", 500, 50, 8),
    ("5 000 texts", 5_000, 160, 70),
    ("25 000 texts", 25_000, 600, 60),
    ("45 000 long texts", 45_000, 4_300, 150),
    ("65 000 short texts, 17 000 labels", 65_000, 17_000, 8),
    ("500 000 texts, 200 000 labels", 500_000, 200_000, 70),
    ("25 000 dense samples", 25_000, 600, 0),
]
ROWS = {
    "head": "head",
    "head__n_negatives": "negatives",
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
AUTO = {
    "encoder__hidden_layer_sizes": "auto",
    "encoder__dropout": "auto",
    "encoder__negative_slope": "auto",
    "head__n_negatives": "auto",
    "precision": "auto",
    "batch_size": "auto",
    "max_epochs": "auto",
    "optimizer": "auto",
    "learning_rate": "auto",
    "decision": "auto",
    "ranker": "auto",
    "early_stopping": False,
    "validation_fraction": 0.1,
    "callbacks": None,
    "warm_start": False,
}


def settings(n_samples, n_labels, length):
    """Settings of `MultiHeadClassifier()` for label sets, about five labels a sample."""
    facts = Facts(
        n_samples=n_samples,
        n_labels=n_labels,
        multilabel=True,
        sparse=length > 0,
        standardised=length == 0,
        n_instances=n_samples,
        n_nonzeros=n_samples * (length or 300),
        labels_per_sample=5.0,
        retrieves=True,
        n_train=n_samples,
        train_length=max(1.0, length),
    )
    held = hold_out(AUTO, facts, "auto")
    is_tuned = held.refit or held.n_held > 0
    name, _ = choose_decision("sigmoid", ranks_sets=False, is_enough=is_tuned)
    decision = f"{name}, tuned" if is_tuned else "probability above 1/2, or the best"
    head = choose_head(Task(n_labels, facts.labels_per_sample, WIDTH), facts.multilabel)
    facts = replace(facts, head=head)
    found = {"head": head, **resolve_model(AUTO, facts), **resolve_training(AUTO, facts)}
    found["head__n_negatives"] = found["head__n_negatives"] if head == "flat" else "-"
    found["validation_fraction"] = _held_out(held)
    if is_tuned:
        found["ranker"] = choose_ranker(facts, "auto")
        found["ranker__retrievers"] = choose_retrievers(facts, has_word_vectors=False)
        found["ranker__n_candidates"] = choose_n_candidates(facts)
    return found | {"decision": decision}


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
