"""What a command took with all of its children: wall time, CPU time, memory.

Children that Python does not wait for, such as the JVM of Spark, count, too: so the tree is looked at while it lives.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import psutil

LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """``peak_bytes``: the most resident memory of all processes together, shared pages counted once (PSS)."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    output: str


class CommandError(Exception):
    """A command failed; the text is the end of what it said."""


def take(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Taken:
    """Run a command to its end. Raises CommandError."""
    began = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(environment or {}) or None
    ) as process:
        tree = _Tree(process.pid)
        watcher = threading.Thread(target=tree.watch)
        watcher.start()
        out, err = process.communicate()
        wall_s = time.monotonic() - began
        tree.over.set()
        watcher.join()
    if process.returncode:
        raise CommandError(f"{' '.join(command[:4])} … ended with {process.returncode}: {err[-2000:]}")
    return Taken(wall_s=wall_s, cpu_s=tree.cpu_s, peak_bytes=tree.peak_bytes, output=out)


class _Tree:
    """A process and its children, looked at from time to time."""

    def __init__(self, pid: int) -> None:
        self.over = threading.Event()
        self.peak_bytes = 0
        self._root = psutil.Process(pid)
        self._cpu_s: dict[tuple[int, float], float] = {}
        self._looks = 0

    @property
    def cpu_s(self) -> float:
        """Of all processes that were seen, as of the last time that they were seen."""
        return sum(self._cpu_s.values())

    def watch(self) -> None:
        """Look until it is over."""
        while not self.over.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        self._looks += 1
        resident = 0
        try:
            family = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for each in family:
            try:
                times = each.cpu_times()
                self._cpu_s[each.pid, each.create_time()] = times.user + times.system
                # PSS is slow to ask for: every tenth look is enough for a peak of seconds.
                resident += each.memory_full_info().pss if self._looks % 10 == 1 else 0
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        self.peak_bytes = max(self.peak_bytes, resident)
