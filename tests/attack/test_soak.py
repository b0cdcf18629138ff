"""The soak test of the service, `benchmarks/soak.py`, for seconds and for ten minutes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from attack._trials import record

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "soak.py"


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seconds", [20, 600])
def test_service_whose_model_is_replaced(seconds):
    period = min(3.0, seconds / 10)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--seconds", str(seconds), "--period", str(period)],
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])},
        capture_output=True,
        text=True,
        timeout=seconds + 300,
    )
    assert done.returncode in (0, 1), done.stderr
    result = json.loads(done.stdout)
    record("answers in the soak test", sum(result["answers"]), result["faults"])
