"""Several writers of one store: processes at once, and processes that are killed."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.reports.store.testing.small_runs import lost, publish, small_run

ROOT = Path(__file__).parents[3]
KILLS = 50

WRITE = """
import sys
from tests.reports.store.testing.small_runs import publish, small_run
place, name = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
for at in range(8):
    publish(place, small_run(f"{name}{at}", at), small_run("shared", at))
"""

FORK = """
import os, signal, sys
from tests.reports.store.testing.small_runs import publish, small_run
place = sys.argv[1]
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    name, shared = line.split()
    child = os.fork()
    if child:
        os.write(1, f"child {child}\\n".encode())
        continue
    at = 0
    while True:
        publish(place, small_run(f"{name}-{at}", at), small_run(shared, at))
        os.write(1, f"landed {name}-{at} {at}\\n".encode())
        at += 1
"""
"""Forks a writer for each line, so that only the first one takes the time of its imports. A writer publishes on and on,
and tells each run that landed."""


def test_two_processes_at_once_both_land(tmp_path: Path) -> None:
    """On a real file system, also when both bring the store into being."""
    place = tmp_path / "store"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITE, str(place), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        for name in "ab"
    ]
    for each in writers:
        assert each.stdout is not None and each.stdout.readline() == b"ready\n"
    assert [each.communicate(b"go\n")[1] for each in writers] == [None, None]
    assert [each.returncode for each in writers] == [0, 0]
    found = lost(place)
    assert found == {"shared": 7, **{f"{name}{at}": at for name in "ab" for at in range(8)}}


class Killed:
    """A writer that is killed and started again; ``landed`` are the runs that it told, with their values."""

    def __init__(self, place: Path, name: str) -> None:
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, "-c", FORK, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )
        self._rest = b""
        self._child = 0
        self.landed: dict[str, int] = {}
        self._told = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        self._process.kill()
        self._process.communicate()

    def start(self, life: int) -> None:
        """Start a writer whose runs have names of this life."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{self._name}{life} shared-{self._name}\n".encode())
        self._process.stdin.flush()
        while not self._child:
            self._read(60.0)

    def wait(self, runs: int, more_s: float) -> None:
        """Wait until it told this many runs more, and then for a moment."""
        goal = self._told + runs
        while self._told < goal:
            self._read(60.0)
        self._read(more_s)

    def kill(self) -> None:
        if self._child:
            os.kill(self._child, signal.SIGKILL)
            self._child = 0

    def _read(self, limit_s: float) -> None:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], limit_s)
        assert ready or limit_s < 60.0, "the writer is silent"
        if ready:
            *lines, self._rest = (self._rest + os.read(self._process.stdout.fileno(), 65536)).split(b"\n")
            for line in lines:
                self._take(line.decode().split())

    def _take(self, words: list[str]) -> None:
        if words[0] == "child":
            self._child = int(words[1])
        else:
            self._told += 1
            self.landed[words[1]] = int(words[2])


@pytest.mark.slow
def test_writers_that_are_killed_lose_no_run_that_landed(tmp_path: Path) -> None:
    """At random moments, 50 times, while another writer goes on: every run that was told is there once."""
    chance = random.Random(43)
    place = tmp_path / "store"
    with ExitStack() as stack:
        writers = [stack.enter_context(Killed(place, name)) for name in "ab"]
        for life in range(KILLS):
            writer = writers[life % 2]
            writer.kill()
            writer.start(life)
            writer.wait(chance.randrange(3), chance.uniform(0.0, 0.2))
        for writer in writers:
            writer.kill()
            writer._read(0.1)
    found = lost(place)
    told = {run: value for writer in writers for run, value in writer.landed.items()}
    assert told.items() <= found.items() and len(told) > KILLS / 2
    publish(place, small_run("later", 1))
    assert lost(place) == found | {"later": 1}
