"""Marks attacks as integration tests; prints and writes the table of those that are recorded."""

import os
from pathlib import Path

import pytest

from attack._trials import RECORDS, table


def pytest_collection_modifyitems(items):
    """Mark the tests of this folder."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.integration)


def pytest_terminal_summary(terminalreporter):
    """Print the table, and write it to the file named by SKLEARN_XLC_ATTACK_TABLE."""
    if not RECORDS:
        return
    terminalreporter.section("attacks")
    terminalreporter.write_line(table())
    path = os.environ.get("SKLEARN_XLC_ATTACK_TABLE")
    if path:
        Path(path).write_text(table() + "\n", encoding="utf-8")
