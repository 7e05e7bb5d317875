"""The published experiments as versioned files, and where they lie."""

from __future__ import annotations

from pathlib import Path

DIRECTORY = Path(__file__).parent


def names() -> list[str]:
    """The names of all bundled workloads, such as ``flow_control/in_flight``."""
    files = DIRECTORY.glob("*/*.yaml")
    return sorted(path.relative_to(DIRECTORY).with_suffix("").as_posix() for path in files)


def path_of(name: str) -> Path:
    """The file of a bundled workload; it does not exist when there is no workload of this name."""
    return DIRECTORY.joinpath(*name.split("/")).with_suffix(".yaml")
