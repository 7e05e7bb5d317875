"""The recipe of docs/ci.md does what the page says: it is taken from the page, and run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

PAGE = Path(__file__).parents[2] / "docs" / "ci.md"


def block(language: str) -> str:
    """The one block of a language on the page."""
    (found,) = re.findall(rf"^```{language}\n(.+?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert isinstance(found, str)
    return found


def test_the_job_of_the_pipeline_has_the_lines_of_the_shell() -> None:
    """Two recipes that drift apart are one recipe that nobody tests."""
    steps = yaml.safe_load(block("yaml"))["jobs"]["latency"]["steps"]
    (found,) = [step["run"] for step in steps if step.get("name") == "Measure and compare"]
    assert found.replace(" --annotations github", "") == block("sh")


@pytest.mark.slow
@pytest.mark.processes
def test_the_recipe_runs(bundled: str, tmp_path: Path) -> None:
    """Two repetitions a side of one broker: measured in turn, compared, and no verdict."""
    program = tmp_path / "bin" / "perftest"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m perftest.cli "$@"\n')
    program.chmod(0o755)
    given = {"OLD": bundled, "NEW": bundled, "REPEATS": "2", "TIME": "1", "SLO": "loss==0"}
    environment = os.environ | given | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    script = block("sh").replace("--metric", "--allow validity --metric").replace("set -eu", "set -u")
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )  # a busy machine may well make the first run INVALID, which -e would end the job for
    assert done.returncode == 0, done.stderr
    cases = [ET.parse(tmp_path / "gate" / f"{name}.xml").getroot() for name in ("run", "compare")]
    assert all(int(each.get("tests", 0)) for each in cases)
    assert "no verdict: 2 runs against 2" in (tmp_path / "summary.md").read_text()
    for side in ("base", "candidate"):
        assert len(list((tmp_path / "gate" / "pair" / side).glob("*/manifest.json"))) == 2
