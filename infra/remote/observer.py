"""The observer of a host, ``python -m infra.remote.observer NAME DIRECTORY [INTERVAL]``: what it is and how busy it is.

The observer writes JSON lines: first ``{"facts": {...}}``, the host as the manifest of a run names it, then a sample
every ``INTERVAL`` seconds (default 1), as in ``host.jsonl``. It ends when its stdin ends, so it never outlives the
connection that started it.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path
from typing import IO, Any, Final

from perftest.results.provenance import HostSampler, host_facts, tool_facts

INTERVAL_S: Final = 1.0


def observe(name: str, directory: Path, interval_s: float, asked: IO[str], told: IO[str]) -> None:
    """Write facts and samples to ``told`` until ``asked`` ends."""
    sampler = HostSampler(name)
    _write(told, {"facts": {**host_facts(directory), "name": name, "tool": tool_facts()}})
    due = time.monotonic() + interval_s
    while not _has_ended(asked, due - time.monotonic()):
        if time.monotonic() >= due:
            _write(told, sampler.sample(time.time_ns()))
            due += interval_s


def _has_ended(asked: IO[str], patience_s: float) -> bool:
    """Wait for some time; whether ``asked`` has ended meanwhile. What it says is passed over."""
    ready, _, _ = select.select([asked], [], [], max(patience_s, 0))
    return bool(ready) and not asked.readline()


def _write(told: IO[str], record: dict[str, Any]) -> None:
    told.write(json.dumps(record, separators=(",", ":")) + "\n")
    told.flush()


def main() -> None:
    """Observe this host for whoever started the process."""
    name, directory, *interval = sys.argv[1:]
    try:
        observe(name, Path(directory), float(interval[0]) if interval else INTERVAL_S, sys.stdin, sys.stdout)
    except (BrokenPipeError, KeyboardInterrupt):
        sys.stderr.close()  # the listener is gone, and so is the reason to write


if __name__ == "__main__":
    main()
