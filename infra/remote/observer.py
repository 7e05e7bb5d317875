"""The observer of a host, ``python -m infra.remote.observer NAME DIRECTORY [INTERVAL]``: its facts and its load.

The observer writes JSON lines: first ``{"facts": {...}}``, the host as the manifest of a run names it, then a sample
every ``INTERVAL`` seconds (default 1), as in ``host.jsonl``. It ends when its stdin ends, and when nothing comes from
there for :data:`LEASE_S` seconds: a host that is out of reach does not learn that the connection is gone.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from pathlib import Path
from typing import IO, Any, Final

from perftest.results.provenance import HostSampler, host_facts, tool_facts

INTERVAL_S: Final = 1.0
LEASE_S: Final = 30.0
PING: Final = b"\n"
"""Message that a listener writes from time to time."""


def observe(name: str, directory: Path, interval_s: float, asked: IO[str], told: IO[str]) -> None:
    """Write facts and samples to ``told`` until ``asked`` ends or is silent for too long."""
    sampler = HostSampler(name)
    _write(told, {"facts": {**host_facts(directory), "name": name, "tool": tool_facts()}})
    heard = time.monotonic()
    due = heard + interval_s
    while (now := time.monotonic()) < heard + LEASE_S:
        ready, _, _ = select.select([asked], [], [], max(due - now, 0))
        if ready:
            if not os.read(asked.fileno(), 4096):
                return
            heard = time.monotonic()
        if time.monotonic() >= due:
            _write(told, sampler.sample(time.time_ns()))
            due += interval_s


def _write(told: IO[str], record: dict[str, Any]) -> None:
    told.write(json.dumps(record, separators=(",", ":")) + "\n")
    told.flush()


def main() -> None:
    """Observe this host for the process that started this one."""
    name, directory, *interval = sys.argv[1:]
    try:
        observe(name, Path(directory), float(interval[0]) if interval else INTERVAL_S, sys.stdin, sys.stdout)
    except (BrokenPipeError, KeyboardInterrupt):
        sys.stderr.close()  # the listener is gone, and so is the reason to write


if __name__ == "__main__":
    main()
