"""Completion: what a shell is offered for the next word, as the shell asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.perftest.results import records


def offered(line: str, place: Path, word: str = "") -> list[tuple[str, str]]:
    """Kind and text of each item, from a process of its own."""
    words = f"perftest {line}".split()
    asked = {
        "COMP_WORDS": f"perftest {line} {word}",
        "COMP_CWORD": str(len(words)),
        "_PERFTEST_COMPLETE": "bash_complete",
    }
    command = [sys.executable, "-m", "perftest"]
    root = Path(__file__).parents[3]
    done = subprocess.run(
        command,
        cwd=place,
        env=os.environ | asked | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    return [(kind, text) for kind, _, text in (each.partition(",") for each in done.stdout.splitlines())]


@pytest.mark.parametrize(
    ("line", "word", "expected"),
    [
        ("", "swe", ("plain", "sweep")),
        ("sweep", "flow", ("plain", "flow_control/in_flight")),
        ("sweep mine.yaml --layout", "disks/", ("plain", "disks/three_hdd")),
        ("sweep --vary", "pre", ("plain", "prefetch=")),
        ("sweep --until", "e2e.p99", ("plain", "e2e.p99")),
        ("run -h amqp://x --slo", "confirm.", ("plain", "confirm.p99")),
        ("run -x 1 -qa", "x-q", ("plain", "x-queue-type=quorum")),
        ("run", "--jun", ("plain", "--junit")),
        ("run --junit", "", ("file", "")),
        ("run --out", "", ("dir", "")),
        ("run --ui", "p", ("plain", "plain")),
        ("run --broker", "", ("plain", "rabbitmq")),
        ("run --annotations", "g", ("plain", "gitlab")),
        ("search --workload", "scale/", ("plain", "scale/thousand_queues")),
        ("workload show", "local", ("plain", "locality/quorum_leader")),
        ("compare", "", ("dir", "")),
    ],
)
def test_a_shell_is_offered_what_fits(line: str, word: str, expected: tuple[str, str], tmp_path: Path) -> None:
    """Also in the middle of a line that cannot be read as it is."""
    found = offered(line, tmp_path, word)
    assert expected in found


def test_files_stand_before_names_which_replace_them(tmp_path: Path) -> None:
    """bash forgets the names before an item that stands for files."""
    kinds = [kind for kind, _ in offered("sweep", tmp_path, "flow")]
    assert kinds[0] == "file" and set(kinds[1:]) == {"plain"}


def test_runs_are_offered_the_latest_first(tmp_path: Path) -> None:
    for _ in range(2):
        records.write_run(tmp_path / "runs")
    names = sorted((f"runs/{place.name}" for place in (tmp_path / "runs").iterdir()), reverse=True)
    for command in ("report", "compare", "export"):
        assert offered(command, tmp_path, "runs/") == [("dir", "runs/"), *(("plain", name) for name in names)]


def test_a_shell_gets_a_script(tmp_path: Path) -> None:
    """The line that the page of the installation names."""
    for shell in ("bash", "zsh", "fish"):
        asked = os.environ | {"_PERFTEST_COMPLETE": f"{shell}_source", "PYTHONPATH": str(Path(__file__).parents[3])}
        done = subprocess.run(
            [sys.executable, "-m", "perftest"], env=asked, capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0 and "_PERFTEST_COMPLETE" in done.stdout
