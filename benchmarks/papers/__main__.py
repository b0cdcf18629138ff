"""Run the experiments of the papers, one after another: ``python benchmarks/papers DATA``.

Every script of this folder is one experiment. Its first line says what it rebuilds, ``MINUTES``
how many CPU minutes its short run takes (``FULL_MINUTES``: with ``--full``), and ``DATA`` whether
it reads the folder of data sets. What does not fit into ``--minutes`` is listed with its command.
"""

import argparse
import ast
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent


def main():
    arguments = parse_arguments()
    left, failed = arguments.minutes, []
    for script in sorted(FOLDER.glob("[a-z]*.py")):
        if arguments.only and script.stem not in arguments.only:
            continue
        about = describe(script)
        command = [sys.executable, str(script)]
        command += [str(arguments.data)] if about["DATA"] and arguments.data else []
        command += ["--figures", str(arguments.figures)] if arguments.figures else []
        reason = obstacle(about, arguments.data, left)
        if reason or arguments.list:
            print(f"{script.stem}: {about['title']} {reason or ''}\n    {' '.join(command)}")
            continue
        left -= about["MINUTES"]
        print(f"\n## {script.stem}: {about['title']}\n", flush=True)
        start = time.perf_counter()
        failed += [script.stem] if subprocess.run(command).returncode else []
        print(f"({time.perf_counter() - start:.0f} s)", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="?", help="folder of the data sets")
    parser.add_argument("--only", nargs="+", help="names of experiments; default: all")
    parser.add_argument("--minutes", type=float, default=60, help="in all; default: 60")
    parser.add_argument("--list", action="store_true", help="list the experiments, run none")
    parser.add_argument(
        "--figures", type=Path, help="folder of the figures; default: results/papers"
    )
    return parser.parse_args()


def describe(script):
    """Title and constants of a script, without running it."""
    tree = ast.parse(script.read_text())
    about = {"title": ast.get_docstring(tree).splitlines()[0], "DATA": False, "FULL_MINUTES": None}
    for node in tree.body:
        name = getattr(node.targets[0], "id", None) if isinstance(node, ast.Assign) else None
        if name in {"MINUTES", *about}:
            about[name] = ast.literal_eval(node.value)
    return about


def obstacle(about, data, left):
    """Why an experiment does not run now, or None."""
    if about["DATA"] and data is None:
        return "[needs the folder of the data sets]"
    if about["MINUTES"] > left:
        return f"[takes {about['MINUTES']} minutes, {left:g} are left]"
    return None


if __name__ == "__main__":
    main()
