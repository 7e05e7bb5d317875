"""CPU time that the hypervisor gave to other machines while this one was ready to run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_STAT: Final = Path("/proc/stat")
_STEAL_FIELD: Final = 8


class Steal:
    """Of all cores of this host; always 0 where the kernel does not tell."""

    def __init__(self) -> None:
        self._before_ns = _stolen_ns()

    def cut(self) -> int:
        """Nanoseconds since the last cut."""
        before, self._before_ns = self._before_ns, _stolen_ns()
        return max(self._before_ns - before, 0)


def _stolen_ns() -> int:
    try:
        with _STAT.open("rb") as file:
            fields = file.readline().split()
        return int(fields[_STEAL_FIELD]) * (10**9 // os.sysconf("SC_CLK_TCK"))
    except (OSError, IndexError, ValueError):
        return 0
