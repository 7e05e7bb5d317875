"""A short list of cut links with a fixed seed: ``make partitions`` makes more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.partitions.network import impossible

NO_NETWORK = impossible()
pytestmark = [
    pytest.mark.lab,
    pytest.mark.processes,
    pytest.mark.skipif(bool(NO_NETWORK), reason=f"no partitions here: {NO_NETWORK}"),
]

ROOT = Path(__file__).resolve().parents[2]
CUTS, SEED = 3, 5149
"""Two mirrors from each other, then a leader that is not heard by one, then a master that hears nobody."""
LONGEST_S = 8
DEADLINE_S = 60
"""Of a machine that is busy nothing may be concluded about the time until a node serves."""


def test_no_cut_costs_a_confirmed_message_or_delivers_one_twice_without_the_flag() -> None:
    options = {"cuts": CUTS, "seed": SEED, "longest": LONGEST_S, "serve-within": DEADLINE_S}
    command = [sys.executable, "-m", "tests.partitions", *(f"--{name}={value}" for name, value in options.items())]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    assert f"{CUTS} cuts, 0 failed" in made.stdout
