"""A short list of damaged files with a fixed seed: ``make damage`` plays more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
CASES, SEED = 10, 20_261_128


def test_no_damage_costs_a_confirmed_message_silently() -> None:
    command = [sys.executable, "-m", "tests.damage", "--cases", str(CASES), "--seed", str(SEED)]
    played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
    assert f"{CASES} cases, 0 failures, seed {SEED}" in played.stdout
