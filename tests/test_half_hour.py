"""From a table to a service, in the checkout; `make wheel` does it with an installed package."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests" / "half_hour.py"


@pytest.mark.slow
def test_half_hour(tmp_path):
    for name in ("fastapi", "prometheus_client", "uvicorn"):
        pytest.importorskip(name)
    command = [sys.executable, str(SCRIPT), "--any-place"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=500)


def test_the_tutorial_shows_the_parts_of_the_script_in_their_order():
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    shown = re.findall(r'^:start-after: "# \[(\w+)\]"\n:end-before: "# \[end\]"', page, re.M)
    parts = re.findall(r"^ *# \[(\w+)\]\n", SCRIPT.read_text(encoding="utf-8"), re.M)
    assert [part for part in parts if part != "end"] == shown
    assert parts[1::2] == ["end"] * len(shown)
