"""Every block of Python code on a page of the documentation runs, page by page, as a reader would.

The blocks of a page share their names, in the order of the page. A block that cannot run
everywhere is preceded by a comment that says why: ``<!-- not run: needs a GPU -->``; one that
needs another package, by its name: ``<!-- run if installed: distributed -->``. Fits of
networks end after an epoch here, rankers have ten trees, and WordNet has every 32nd of its
definitions, so that pages can show parameters that are worth having.
"""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts and "_generated" not in page.parts]
FENCE = re.compile(r"^ *(?P<marks>`{3,}|~{3,})(?P<info>.*)$")
#: What fences hold that is not Python: commands, output, files and MyST's directives.
OTHER = re.compile("|bash|console|text|json|bibtex|toml|yaml|[{](?!code)[a-z-]+[}].*")
CAUSE = re.compile(r"^ *<!-- not run: (?P<cause>.+) -->$")
NEEDED = re.compile(r"^ *<!-- run if installed: (?P<package>[a-z_]+) -->$")
CAUSES = ("needs a GPU", "needs a network", "needs a folder of data", "needs an extra")


def blocks_of(text):
    """Blocks of Python of a page: line of the first line of code, code, and why not to run it."""
    lines, found, number = text.splitlines(), [], 0
    while number < len(lines):
        opened = FENCE.match(lines[number])
        number += 1
        if opened is None:
            continue
        info, start = opened["info"].strip(), number
        number = next(n for n in range(start, len(lines)) if lines[n].strip() == opened["marks"])
        if info == "python":
            indent = len(opened[0]) - len(opened[0].lstrip())
            code = "\n".join(line[indent:] for line in lines[start:number])
            before = lines[start - 2] if start > 1 else ""
            cause, needed = CAUSE.match(before), NEEDED.match(before)
            if needed is None or find_spec(needed["package"]):
                found.append((start + 1, code, cause and cause["cause"]))
        else:
            assert OTHER.fullmatch(info), f"line {start}: is {info!r} Python, or not?"
        number += 1
    return found


BLOCKS = {page: blocks_of(page.read_text(encoding="utf-8")) for page in PAGES}


@pytest.mark.parametrize(
    "page",
    [page for page, blocks in BLOCKS.items() if blocks],
    ids=lambda page: str(page.relative_to(ROOT)),
)
@pytest.mark.parametrize("few_glosses", [32], indirect=True, ids=["few"])
def test_the_code_of_a_page_runs(page, one_epoch, few_glosses, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for line, code, cause in BLOCKS[page]:
        if cause is None:  # a failure names the line of the page
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def test_blocks_are_left_out_for_a_cause_and_seldom():
    left_out = [cause for blocks in BLOCKS.values() for _, _, cause in blocks if cause]
    assert all(cause.startswith(CAUSES) for cause in left_out)
    assert len(left_out) <= 3 < len([block for blocks in BLOCKS.values() for block in blocks])


def test_blocks_are_found_as_a_reader_sees_them():
    page = """
text

```python
one = 1
```

- in a list:

  ```python
  if one:
      two = 2
  ```

<!-- not run: needs a GPU -->
```python
three = 3
```

<!-- run if installed: numpy -->
```python
four = 4
```
<!-- run if installed: no_such_package -->
```python
five = 5
```

```
not Python
```

:::{note}
```{image} picture.png
:width: 100%
```
:::
"""
    assert blocks_of(page) == [
        (5, "one = 1", None),
        (11, "if one:\n    two = 2", None),
        (17, "three = 3", "needs a GPU"),
        (22, "four = 4", None),
    ]
