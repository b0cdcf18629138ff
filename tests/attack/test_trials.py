"""The frame itself: it tells a result from a refusal, and both from a failure."""

import re

import numpy as np
import pytest
import torch

from attack import _trials
from attack._trials import Record, Trial, fault_of, record, report, run_trials, table
from sklearn_xlc.codes import head_lengths


def fail():
    assert not [1]


def interrupt():
    raise KeyboardInterrupt


def hang():
    while True:
        pass


FAULTS = {
    # what runs, which outcome is right, what is wrong
    "result": (lambda: head_lengths(9, 2), "either", None),
    "refusal": (lambda: head_lengths(-1, 2), "either", None),
    "wrong result": (fail, "either", "failed: AssertionError"),
    "refused": (lambda: head_lengths(-1, 2), "result", "refused, though valid: ValueError"),
    "accepted": (lambda: head_lengths(9, 2), "refusal", "accepted, though not valid"),
    "error of torch": (lambda: torch.empty(-1), "either", "failed: RuntimeError"),
    "error of C code": (lambda: np.empty(-1), "either", "not a message for users: ValueError"),
    "hang": (hang, "either", r"failed: TooLong .* more than 0\.1 s of processor time"),
    "interrupt": (interrupt, "either", "failed: KeyboardInterrupt"),
}


@pytest.mark.parametrize("run, outcome, fault", FAULTS.values(), ids=FAULTS)
def test_faults_are_told_apart(run, outcome, fault):
    found, _ = fault_of(Trial("a", run, outcome, seconds=0.1))
    assert (found is None) if fault is None else re.match(fault, found)


def test_a_failure_says_how_to_run_it_alone(monkeypatch):
    def make(rng, index):
        return Trial(f"trial {index}", fail if index == 3 else head_lengths.__name__.upper)

    row = run_trials(make, range(5))
    assert (row.cases, row.refused, len(row.failures)) == (5, 0, 1)
    text = report("test_name", row)
    assert "1 of 5 trials of test_name failed" in text
    assert "case 3, trial 3: failed: AssertionError" in text
    assert "SKLEARN_XLC_ATTACK_CASE=NUMBER python -m pytest" in text
    assert not run_trials(make, [2]).failures


def test_a_trial_draws_the_same_alone():
    drawn = []

    def make(rng, index):
        drawn.append((index, rng.random()))
        return Trial("draw", dict)

    run_trials(make, range(4))
    run_trials(make, [2])
    assert drawn[4] == drawn[2]


def test_the_table(monkeypatch):
    monkeypatch.setattr(_trials, "RECORDS", {"a": Record(1200, 7)})
    record("b", 10)
    record("b", 20)
    with pytest.raises(AssertionError, match="1 of 5 trials of c failed"):
        record("c", 5, ["too bad"])
    assert table().splitlines()[2:] == [
        "| a | 1,200 | 7 | 0 |",
        "| b | 30 | 0 | 0 |",
        "| c | 5 | 0 | 1 |",
    ]
