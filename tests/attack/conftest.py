"""Prints and writes the table of attacks after a run that recorded some."""

import os
from pathlib import Path

from attack._trials import RECORDS, table


def pytest_terminal_summary(terminalreporter):
    """Print the table, and write it to the file named by SKLEARN_XLC_ATTACK_TABLE."""
    if not RECORDS:
        return
    terminalreporter.section("attacks")
    terminalreporter.write_line(table())
    path = os.environ.get("SKLEARN_XLC_ATTACK_TABLE")
    if path:
        Path(path).write_text(table() + "\n", encoding="utf-8")
