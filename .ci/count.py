"""Count code, docstrings and parameters in each room of the package: information, not a gate.

A room is a folder of `sklearn_xlc`; the modules beside the folders are the "ground floor".
"""

import argparse
import ast
import io
import json
import re
import statistics
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "sklearn_xlc"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
NO_CODE |= {tokenize.ENDMARKER, tokenize.ENCODING}


def docstrings(tree):
    """Return the node and the text of each docstring of a module."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, DOCUMENTED)]
    return [(node.body[0].value, text) for node in nodes if (text := ast.get_docstring(node))]


def summary(text):
    """Return the first sentence of a docstring."""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s", paragraph)[0]


def count_module(path):
    """Count the lines of a module; `relative`: summaries with "that", "which" or "those"."""
    source = path.read_text(encoding="utf-8")
    found = docstrings(ast.parse(source))
    text = {line for node, _ in found for line in range(node.lineno, node.end_lineno + 1)}
    code, comments = set(), set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        lines = range(token.start[0], token.end[0] + 1)
        if token.type == tokenize.COMMENT:
            comments.update(lines)
        elif token.type not in NO_CODE:
            code.update(line for line in lines if line not in text)
    summaries = [summary(text) for _, text in found]
    return {
        "code": len(code),
        "docstring": len(text),
        "comment": len(comments - code),
        "summaries": len(summaries),
        "relative": sum(bool(re.search(r"\b(that|which|those)\b", each)) for each in summaries),
        "hasattr": source.count("hasattr("),
        "isinstance": source.count("isinstance("),
    }


def count_room(paths):
    """Add up the counts of modules; `median` and `max`: code lines of a module."""
    counts = [count_module(path) for path in paths]
    total = {key: sum(each[key] for each in counts) for key in counts[0]}
    share = 100 * total.pop("relative") / max(1, total.pop("summaries"))
    sizes = [each["code"] for each in counts]
    spread = {"median": statistics.median(sizes), "max": max(sizes)}
    return {"files": len(paths), **total, **spread, "relative %": round(share, 1)}


def count_parameters(paths):
    """Count the constructor parameters of each public estimator."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    nodes = [node for tree in trees.values() for node in tree.body]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}

    def of_class(name):
        node = classes.get(name)
        bases = [base.id for base in node.bases if isinstance(base, ast.Name)] if node else []
        of_bases = max(map(of_class, bases), default=0)
        for item in node.body if node else ():
            if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                own = len(item.args.args + item.args.kwonlyargs) - 1  # self
                return own + (of_bases if item.args.kwarg else 0)  # handed on to the base class
        return of_bases

    for node in trees[PACKAGE / "__init__.py"].body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return {
                name: of_class(name) for name in ast.literal_eval(node.value) if name in classes
            }
    return {}


def main():
    """Print a table, or JSON with `--json`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    as_json = parser.parse_args().json
    paths, rooms = sorted(PACKAGE.rglob("*.py")), {}
    for path in paths:
        parts = path.relative_to(PACKAGE).parts
        rooms.setdefault(parts[0] if len(parts) > 1 else "ground floor", []).append(path)
    counts = {room: count_room(paths) for room, paths in {**rooms, "total": paths}.items()}
    parameters = count_parameters(paths)
    if as_json:
        print(json.dumps({"rooms": counts, "parameters": parameters}, indent=2))
        return
    print(f"{'':13}" + "".join(f"{column:>11}" for column in counts["total"]))
    for room, count in counts.items():
        print(f"{room:13}" + "".join(f"{number:11}" for number in count.values()))
    print("\nconstructor parameters:")
    print("\n".join(f"{number:4}  {name}" for name, number in parameters.items()))


if __name__ == "__main__":
    main()
