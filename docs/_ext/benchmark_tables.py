"""Tables and a figure of the comparison with tree learners, from the JSON that it wrote.

Before a build, `docs/data/compare_*.json` (see `benchmarks/compare.py`) become
`docs/_generated/compare.md`, which pages include, `docs/_generated/compare_ranges.md`, sentences of
the ranges of all sets, and `docs/_generated/compare.svg`.
"""

import json
import statistics
from pathlib import Path

DOCS = Path(__file__).parents[1]
NAMES = {
    "bibtex": "bibtex (159)",
    "delicious": "delicious (983)",
    "debtags": "debtags (580)",
    "icd10cm": "icd10cm (13 245)",
    "debdeps": "debdeps (22 402)",
    "wordnet_noun_closure": "WordNet closure (17 152)",
    "eurlex57k": "EURLEX57K (4271)",
}
MODELS = {"multihead-auto": "`MultiHeadClassifier`", "omikuji": "omikuji", "pecos": "PECOS"}
COLUMNS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")


def medians(data):
    """Median of every figure, by model."""
    results = json.loads((DOCS / "data" / f"compare_{data}.json").read_text())["results"]
    keys = (*COLUMNS, "fit_cpu_s", "predict_cpu_s", "model_bytes")
    return {
        model: {key: statistics.median(run[key] for run in results[model]) for key in keys}
        for model in MODELS
    }


def table():
    """Markdown table of all data sets."""
    lines = [
        "| data (labels) | | P@1/3/5 | PSP@1/3/5 | fit / predict, s | MiB |",
        "|---|---|---|---|---|---|",
    ]
    for data, title in NAMES.items():
        found = medians(data)
        best = {key: max(round(m[key], 1) for m in found.values()) for key in COLUMNS}
        for key in ("fit_cpu_s", "predict_cpu_s", "model_bytes"):
            best[key] = min(m[key] for m in found.values())
        for model, name in MODELS.items():
            values = found[model]
            cells = [
                "/".join(_bold(values[c], best[c], ".1f") for c in COLUMNS[i : i + 3])
                for i in (0, 3)
            ]
            fit = _seconds(values["fit_cpu_s"], best["fit_cpu_s"])
            fit += " / " + _seconds(values["predict_cpu_s"], best["predict_cpu_s"])
            size = f"{values['model_bytes'] / 2**20:.1f}"
            size = f"**{size}**" if values["model_bytes"] == best["model_bytes"] else size
            label = title if model == "multihead-auto" else ""
            lines.append(f"| {label} | {name} | {cells[0]} | {cells[1]} | {fit} | {size} |")
    return "\n".join(lines).replace("**/**", "/") + "\n"


def ranges():
    """Markdown list: our time and files beside each peer's, smallest to largest of all sets."""
    found = [medians(data) for data in NAMES]
    costs = {"Fits": "fit_cpu_s", "Predictions": "predict_cpu_s", "Files": "model_bytes"}
    lines = []
    for title, key in costs.items():
        parts = []
        for peer in ("omikuji", "pecos"):
            ratios = [m["multihead-auto"][key] / m[peer][key] for m in found]
            n_less = sum(ratio < 1 for ratio in ratios)
            parts.append(
                f"{min(ratios):.2g} to {max(ratios):.2g} times {MODELS[peer]}'s, "
                f"less on {n_less} of {len(ratios)}"
            )
        lines.append(f"- *{title}:* {'; '.join(parts)}.")
    return "\n".join(lines) + "\n"


def _bold(value, best, form):
    text = format(value, form)
    return f"**{text}**" if round(value, 1) == best else text


def _seconds(value, best):
    text = f"{value:.2f}" if value < 1 else f"{value:.1f}"
    return f"**{text}**" if value == best else text


def figure(path):
    """Precision at 1 less omikuji's, in points, and CPU seconds of fit and of predictions."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    colours = {"multihead-auto": "#d95f02", "omikuji": "#1b9e77", "pecos": "#7570b3"}
    found = [medians(data) for data in NAMES]
    rows = range(len(found))
    fig, axes = plt.subplots(1, 3, figsize=(9, 4.0), layout="constrained")
    for (model, name), offset in zip(MODELS.items(), (-0.2, 0.0, 0.2)):
        differences = [m[model]["P@1"] - m["omikuji"]["P@1"] for m in found]
        label, colour = name.strip("`"), colours[model]
        if model == "omikuji":
            axes[0].axvline(0, color=colour, label=label)
        else:
            axes[0].barh([r + offset for r in rows], differences, 0.36, color=colour, label=label)
        for ax, key in zip(axes[1:], ("fit_cpu_s", "predict_cpu_s")):
            ax.plot([m[model][key] for m in found], rows, "o", color=colour, alpha=0.8)
            ax.set_xscale("log")
    titles = ("P@1: points above omikuji (its P@1)", "fit, CPU seconds", "predict, CPU seconds")
    names = [
        f"{name.partition(' (')[0]} ({m['omikuji']['P@1']:.1f})"
        for name, m in zip(NAMES.values(), found)
    ]
    for ax, title, labels in zip(axes, titles, (names, [""] * len(names), [""] * len(names))):
        ax.set_yticks(list(rows), labels)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.set_title(title, fontsize=10)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[1:]:
        ax.grid(axis="both", color="0.9")
    fig.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False
    )
    fig.savefig(path, facecolor="white")
    plt.close(fig)


def write(app):
    """Write the table, the ranges and the figure."""
    folder = DOCS / "_generated"
    folder.mkdir(exist_ok=True)
    (folder / "compare.md").write_text(table(), encoding="utf-8")
    (folder / "compare_ranges.md").write_text(ranges(), encoding="utf-8")
    figure(folder / "compare.svg")


def setup(app):
    """Register with Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
