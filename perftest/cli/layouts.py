"""``--layout``: a layout file, checked against this machine, as the placement of a local cluster's files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perftest.cli.exits import CliError, Exit
from perftest.cli.sections import option

if TYPE_CHECKING:
    from infra.layout import Layout
    from perftest.spec.layout import Layout as LayoutFile
    from perftest.spec.load import Document
    from perftest.spec.problem import Problem

LAYOUT_RULE: Final = "a layout is for a cluster that this command starts"
LAYOUT_FIX: Final = "leave out --layout, or leave out the broker: then a cluster with this layout is started"
LAYOUT_PATH: Final = click.Path(path_type=Path, dir_okay=False)

layout_option = option(
    "--layout", section="Target", type=LAYOUT_PATH, default=None,
    help="Layout file: which drives hold which files of the nodes of the cluster that is started for this command.",
)  # fmt: skip
"""``--layout`` of commands that start a cluster."""


def layout_of(path: Path, nodes: int | None = None) -> Layout:
    """The placement that a layout file describes, for so many nodes (default: those of a run's cluster).

    Raises SpecError with all problems of the file and of the drives that it names, before anything is started.
    """
    from infra import layout as drives
    from infra.local_cluster import NODES
    from perftest.spec.layout import load_layout
    from perftest.spec.problem import SpecError

    file, document = load_layout(path)
    problems = list(_not_here(file, document))
    placed = drives.Layout(
        name=file.title or path.stem,
        drives=tuple(_drives(file)),
        roles={role: file.drive_of(role) for role in drives.ROLES},
        io=file.io,
    )
    names = [f"node{number}" for number in range(1, (nodes or NODES) + 1)]
    for drive, value, rule, fix in drives.faults(placed, names):
        kind = "mount" if file.drives[drive].mount is not None else "directory"
        problems.append(document.problem(("drives", drive, kind), rule, fix, value))
    if problems:
        raise SpecError(problems)
    return placed


def no_layout_beside(layout: Path | None, uris: Sequence[str], cluster: Path | None) -> None:
    """Refuse ``--layout`` for a broker that this command does not start. Raises CliError."""
    if layout is not None and (uris or cluster is not None):
        raise CliError(LAYOUT_RULE, "--layout", LAYOUT_FIX, Exit.USAGE)


def _drives(file: LayoutFile) -> Iterator[Any]:
    from infra.layout import Drive

    for name, drive in file.drives.items():
        if (path := drive.mount or drive.directory) is not None:
            yield Drive(name=name, path=path, is_mount=drive.mount is not None)


def _not_here(file: LayoutFile, document: Document) -> Iterator[Problem]:
    """What the nodes of a local cluster cannot do."""
    for name, drive in file.drives.items():
        kind = next(kind for kind in ("mount", "directory", "profile", "figures", "fuse") if getattr(drive, kind))
        if kind not in ("mount", "directory"):
            words = "a FUSE drive" if kind == "fuse" else "a modelled drive"
            rule = f"drive {name} is {words}, and a cluster is started on mount points and directories only"
            yield document.problem(("drives", name, kind), rule, "write mount: or directory: with a path")
    if file.drive_of("classic") != file.drive_of("data"):
        rule = "a node keeps classic queues where its data is"
        yield document.problem(("roles", "classic"), rule, f"write classic: {file.drive_of('data')}, or leave it out")
