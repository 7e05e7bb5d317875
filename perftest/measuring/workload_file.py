"""The file of a workload, found by a path or by the name of a bundled workload."""

from __future__ import annotations

import difflib
from pathlib import Path

import workloads
from perftest.exits import CliError, Exit


def find(name: str) -> Path:
    """The file of a workload, given as a path or as the name of a bundled workload. Raises CliError."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return path
    known = workloads.names()
    if name in known:
        return workloads.path_of(name)
    short = {known_name.rsplit("/", 1)[-1]: known_name for known_name in known}
    near = difflib.get_close_matches(name.rsplit("/", 1)[-1].replace("-", "_"), short, n=1)
    fix = f"did you mean {short[near[0]]!r}?" if near else f"use a path, or one of {', '.join(known)}"
    raise CliError(f"there is no workload {name!r}", "WORKLOAD", fix, Exit.USAGE)
