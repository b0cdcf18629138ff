"""The list of mutations is up to date; `python tests/mutations.py` runs them."""

import ast
from pathlib import Path

import pytest

import sklearn_xlc
from mutations import MUTATIONS

PACKAGE = Path(sklearn_xlc.__file__).parent
TESTS = Path(__file__).parent


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.paper}: {m.kernel}")
def test_every_mutation_changes_one_place_and_names_a_test(mutation):
    text = (PACKAGE / mutation.file).read_text(encoding="utf-8")
    assert text.count(mutation.old) == 1
    ast.parse(text.replace(mutation.old, mutation.new))
    assert mutation.old != mutation.new
    file, _, name = mutation.tests.partition("[")[0].partition("::")
    source = (TESTS / file).read_text(encoding="utf-8")
    assert f"\ndef {name}(" in source or not name


def test_names_are_told_apart():
    names = [(mutation.paper, mutation.kernel) for mutation in MUTATIONS]
    assert len(set(names)) == len(names)
