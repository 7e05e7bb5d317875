"""A few damaged files of a fixed list: ``make damage`` plays more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.processes]

ROOT = Path(__file__).resolve().parents[2]
SEED = 1
CASES = (3, 7, 93, 121, 141, 191)
"""In each of them one of three nodes lags: the end of a WAL file is lost, one in the middle is deleted, and files of
classic queues are cut, empty or deleted. One has no damage, after ``kill -9``."""


def test_no_damage_costs_a_confirmed_message_silently() -> None:
    numbers = [word for number in CASES for word in ("--case", str(number))]
    command = [sys.executable, "-m", "tests.damage", "--seed", str(SEED), *numbers]
    played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
    assert f"{len(CASES)} cases, 0 failures" in played.stdout
