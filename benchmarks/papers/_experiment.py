"""What the experiments of the papers share: their options, and where tables and figures go."""

import argparse
import io
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for _measure and _synthetic

import matplotlib

matplotlib.use("agg")
from _measure import describe_machine
from PIL import Image

#: A page of the docs shows figures of this width in inches.
WIDTH = 7.0


def parser(description, *, data=False):
    """Parser with the options of every experiment; `data` adds the folder of the data sets."""
    result = argparse.ArgumentParser(description=description.splitlines()[0])
    if data:
        result.add_argument(
            "data", type=Path, help="folder that holds the folders of the data sets"
        )
    result.add_argument(
        "--full", action="store_true", help="the longer run; default: the short one"
    )
    result.add_argument("--out", type=Path, default=Path("results/papers"))
    result.add_argument(
        "--figures", type=Path, default=None, help="folder of the figures; default: that of --out"
    )
    return result


def save(arguments, name, rows, figure=None):
    """Write ``NAME.json`` (rows, options, machine), and the figure as ``NAME.png``."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    options = {
        key: value for key, value in vars(arguments).items() if key not in ("out", "figures")
    }
    threads = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count()))
    report = {"options": options, "machine": describe_machine(threads), "rows": rows}
    (arguments.out / f"{name}.json").write_text(json.dumps(report, indent=1, default=str) + "\n")
    if figure is not None:
        folder = arguments.figures or arguments.out
        folder.mkdir(parents=True, exist_ok=True)
        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=110, bbox_inches="tight")
        # 256 colours: a quarter of the bytes, and no difference to the eye.
        Image.open(drawn).convert("RGB").quantize(256).save(folder / f"{name}.png", optimize=True)


def print_table(rows, columns=None):
    """Print rows, a list of mappings, as a Markdown table."""
    columns = columns or list(rows[0])
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(_text(row.get(column, "")) for column in columns) + " |")
    print(flush=True)


def _text(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)
