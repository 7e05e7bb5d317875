"""``perftest`` commands with a time limit, as processes of their own that begin with everything imported."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perftest.cli.main import call

_POLL_S: Final = 0.01


@dataclass(slots=True)
class Running:
    """A process. ``code`` is its exit code once it has ended; None: it runs, or was killed because it hung."""

    words: tuple[str, ...]
    output: Path
    pid: int
    code: int | None = None
    has_ended: bool = False

    def wait(self, until: float) -> bool:
        """Whether the process has ended by then (monotonic clock)."""
        while not self.has_ended:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.has_ended, self.code = True, os.waitstatus_to_exitcode(status)
            elif time.monotonic() > until:
                return False
            else:
                time.sleep(_POLL_S)
        return True

    def kill(self) -> None:
        """End a process that hangs."""
        if not self.has_ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.has_ended = True

    @property
    def text(self) -> str:
        """What it has printed so far."""
        return self.output.read_text(errors="replace")


def perftest(output: Path, *words: str) -> Running:
    """Begin a ``perftest`` command."""
    return begin(output, lambda: call(words), words)


def begin(output: Path, task: Callable[[], int], words: tuple[str, ...] = ()) -> Running:
    """Begin a task, whose result is the exit code, in a copy of this process."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Running(words, output, pid)
    code = 70
    try:
        into = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(into, 1)
        os.dup2(into, 2)
        code = task()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
