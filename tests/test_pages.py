"""Pages of the documentation: links lead somewhere, figures have a command, guides are short."""

import json
import re
import runpy
import sys
from pathlib import Path
from urllib.parse import urljoin

import pytest

from sklearn_xlc import __version__

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("guide/*.md"))]
CODE = re.compile(r"^ *(`{3,}).*?^ *\1 *$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,3} +(.+)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
COMMAND = re.compile(r"benchmarks/[\w/]+\.py|\bmake \w|python -m \w|python \.ci/")
#: Sections whose tables hold no measurements, but sizes of the data sets and numbers of rules.
NOT_MEASURED = {"The data sets", "What is held out"}


def anchors_of(text):
    """Names of the headings of a page in links, as GitHub and MyST make them."""
    titles = (re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(text))
    return {title.strip().replace(" ", "-") for title in titles}


def is_there(page, target):
    """Tell whether a link of a page leads to a file and, if it names one, to a heading."""
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if "auto_examples" in file.parts:  # made of the examples
        example = ROOT / "examples" / file.relative_to(DOCS / "auto_examples")
        return example.with_suffix(".py").is_file()
    if not anchor or not file.is_file():
        return file.exists()
    without_code = re.sub(r"^```.*?^```", "", file.read_text(encoding="utf-8"), flags=re.M | re.S)
    return anchor in anchors_of(without_code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    targets = LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))
    own = [target for target in targets if not re.match("[a-z]+:", target)]
    assert [target for target in own if not is_there(page, target)] == []


def test_a_link_to_nothing_is_found():
    page = DOCS / "user_guide.md"
    assert is_there(page, "guide/fit.md#weights")
    assert is_there(page, "auto_examples/start/plot_explain.rst")
    for target in ("guide/fit.md#no-such-heading", "guide/none.md", "auto_examples/none.rst"):
        assert not is_there(page, target)


@pytest.mark.parametrize(
    "page", [*sorted(DOCS.glob("guide/*.md")), DOCS / "guarantees.md"], ids=lambda page: page.stem
)
def test_a_page_of_the_guide_is_short_and_listed(page):
    assert len(page.read_text(encoding="utf-8").split()) < 900
    guide = (DOCS / "user_guide.md").read_text(encoding="utf-8")
    path = page.relative_to(DOCS)
    assert f"({path.as_posix()})" in guide
    assert f"\n{path.with_suffix('').as_posix()}\n" in guide


def sections_of(text):
    """Yield the title of each section, its text, and the text of the section that it is in."""
    text = FENCE.sub(lambda fence: re.sub("^#", " ", fence[0], flags=re.M), text)
    _, *parts = re.split(r"^(#{1,4}) +(.+)$", text, flags=re.M)
    own = {}
    for marks, title, body in zip(parts[::3], parts[1::3], parts[2::3]):
        own[len(marks)] = body
        yield title, body, own.get(len(marks) - 1, "")


def has_figures(text):
    """Tell whether half of the rows of a table, or more, have two numbers outside of code."""
    for table in TABLE.findall(text):
        rows = CODE.sub("", table).splitlines()[2:]
        if 2 * sum(len(re.findall(r"\d[\d.,]*", row)) > 1 for row in rows) >= len(rows):
            return True
    return False


def without_command(text):
    """Return the titles of sections with figures that no command in or above them prints."""
    return [
        title
        for title, body, above in sections_of(text)
        if has_figures(FENCE.sub("", body))
        and not any(COMMAND.search(code[0]) for code in CODE.finditer(above + body))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_have_a_command(page):
    text = page.read_text(encoding="utf-8")
    assert set(without_command(text)) <= NOT_MEASURED
    assert not re.search("throwaway|unrecorded", text, re.IGNORECASE)


def test_figures_without_a_command_are_found():
    table = "| | P@1 | s |\n|---|---|---|\n| lists | 84.2 | 3 |\n"
    fence = "```\n# python benchmarks/compare.py\n```\n"
    assert without_command(f"# Page\n\n## Lists\n\n{table}") == ["Lists"]
    assert without_command(f"# Page\n\n{fence}\n## Lists\n\n{table}") == []
    assert without_command(f"# Page\n\n## Lists\n\n{table}\n`make demo` prints it.\n") == []
    assert without_command(f"## Other\n\n{fence}\n## Lists\n\n{table}") == ["Lists"]


def test_the_table_of_rules_follows_the_rules():
    table = runpy.run_path(str(DOCS / "_ext" / "rules_table.py"))["table"]()
    rows = {row.split(" | ")[0].strip("| "): row for row in table.splitlines()}
    assert rows["held out"].count("a second network") == 5
    assert rows["held out"].count("3000 samples") == 4
    assert rows["precision"].startswith("| precision | float64 if X is | bfloat16 if faster |")
    assert rows["dropout"].startswith("| dropout | 0.5 | 0.5 | 0.1 | 0 | 0 | 0 | 0.2 |")
    assert rows["slope below zero"].endswith("| 0.25 | 0.25 |")


def test_the_list_of_versions_has_this_one_and_one_preferred(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("SKLEARN_XLC_DOCS", "")  # both are changed by the configuration
    options = runpy.run_path(str(DOCS / "conf.py"))["html_theme_options"]
    versions = json.loads((DOCS / "switcher.json").read_text(encoding="utf-8"))
    assert options["switcher"]["version_match"] == __version__
    assert __version__ in [entry["version"] for entry in versions]
    assert [entry.get("preferred", False) for entry in versions].count(True) == 1
    assert options["show_version_warning_banner"]
    for entry in versions:  # the theme looks for the list from the folder of a version
        assert entry["url"].endswith(f"/{entry['version']}/")
        home = urljoin("https://host/", entry["url"])
        found = urljoin(home, options["switcher"]["json_url"])
        assert found == urljoin(home, "..") + "switcher.json"
