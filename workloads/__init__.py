"""The bundled workloads: published experiments as versioned files."""

from __future__ import annotations

import glob
from pathlib import Path

DIRECTORY = Path(__file__).parent


def names() -> list[str]:
    """The names of all bundled workloads, such as ``flow_control/in_flight``."""
    files = DIRECTORY.glob("*/*.yaml")
    return sorted(path.relative_to(DIRECTORY).with_suffix("").as_posix() for path in files)


def layout_names() -> list[str]:
    """The names of all bundled layouts of drives, such as ``disks/three_hdd``."""
    return sorted(f"{path.parent.parent.name}/{path.stem}" for path in DIRECTORY.glob("*/layouts/*.yaml"))


def layout_path_of(name: str) -> Path:
    """The path of the file of a bundled layout: ``disks/three_hdd``, or ``three_hdd`` if one folder only has this
    layout. Without a layout of this name, the path does not exist."""
    folder, slash, stem = name.partition("/")
    if not slash and len(found := list(DIRECTORY.glob(f"*/layouts/{glob.escape(name)}.yaml"))) == 1:
        return found[0]
    return DIRECTORY / folder / "layouts" / f"{stem}.yaml"


def path_of(name: str) -> Path:
    """The path of the file of a bundled workload. Without a workload of this name, the path does not exist."""
    return DIRECTORY.joinpath(*name.split("/")).with_suffix(".yaml")
