"""A layout file, checked against this machine, as the placement of a local cluster's files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perftest.spec.cluster import Product

if TYPE_CHECKING:
    from infra.layout import PlacedLayout
    from perftest.spec.layout import Figures
    from perftest.spec.layout import Layout as LayoutFile
    from perftest.spec.load import Document
    from perftest.spec.problem import Problem

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Inline:
    """A layout within a workload: its content, as of a layout file, its name if it has no title, and the document that
    knows its lines."""

    content: dict[str, Any]
    name: str
    document: Document


def layout_of(
    path: Path | Inline,
    nodes: int | None = None,
    broker: Product = Product.REFERENCE,
    *,
    is_fuse: bool = False,
    has_drives: bool = False,
    elsewhere: bool = False,
) -> PlacedLayout:
    """The placement that a layout file, a bundled layout or a workload describes.

    ``nodes`` is the number of nodes; left out: a run's cluster's. ``broker`` is the broker to start. ``is_fuse``: a
    FUSE drive takes the place of each drive that the nodes would model; so it is with RabbitMQ, which models none.
    ``has_drives``: its FUSE drives are there already, of a cluster that was started before. ``elsewhere``: its drives
    are on other hosts, and not looked for here. Raises SpecError with all problems of the file and of the drives that
    it names, before anything is started.
    """
    from infra import layout as drives
    from infra.local_cluster import NODES
    from perftest.spec.problem import SpecError

    file, document = _read(path)
    names = [f"node{number}" for number in range(1, (nodes or NODES) + 1)]
    is_rabbitmq = broker is Product.RABBITMQ
    problems = [*_impossible(file, document), *(_not_for_rabbitmq(file, document) if is_rabbitmq else ())]
    placed = _placed(file, path)
    if is_fuse or is_rabbitmq:
        placed = drives.twin(placed)
    problems += () if has_drives or elsewhere else _not_here(file, document, placed, len(names))
    for drive, value, rule, fix in drives.faults(placed, names) if not elsewhere else ():
        kind = "mount" if file.drives[drive].mount is not None else "directory"
        problems.append(document.problem(("drives", drive, kind), rule, fix, value))
    if problems:
        raise SpecError(problems)
    return placed


def modelled_layout_of(path: Path | Inline) -> PlacedLayout:
    """The placement that a layout file, a bundled layout or a workload describes, for nodes at virtual time, which have
    modelled drives only. Raises SpecError with all problems of the file."""
    from perftest.spec.problem import SpecError

    file, document = _read(path)
    if problems := [*_impossible(file, document), *_real(file, document)]:
        raise SpecError(problems)
    return _placed(file, path)


def _read(path: Path | Inline) -> tuple[LayoutFile, Document]:
    import workloads
    from perftest.spec.layout_file import checked, load_layout

    if isinstance(path, Inline):
        return checked(path.content, path.document), path.document
    bundled = workloads.layout_path_of(str(path))
    return load_layout(bundled if bundled.exists() and not path.exists() else path)


def _placed(file: LayoutFile, path: Path | Inline) -> PlacedLayout:
    from infra.layout import PlacedLayout

    return PlacedLayout(
        name=file.title or (path.name if isinstance(path, Inline) else path.stem),
        drives=tuple(_drives(file)),
        roles={role: file.drive_of(role) for role in _roles(file)},
        io=file.io,
        octets_per_second=file.octets_per_second,
    )


def _drives(file: LayoutFile) -> Iterator[Any]:
    from infra.layout import PlacedDrive

    for name, drive in file.drives.items():
        if (path := drive.mount or drive.directory) is not None:
            yield PlacedDrive(name=name, path=path, is_mount=drive.mount is not None)
        elif drive.figures is not None:
            yield PlacedDrive(name=name, profile=_figures(drive.figures))
        elif drive.profile is not None:
            yield PlacedDrive(name=name, profile=drive.profile)
        elif drive.fuse is not None:
            yield PlacedDrive(name=name, profile=drive.fuse.profile, size_mb=drive.fuse.size // _MIB)


def _figures(figures: Figures) -> dict[str, int]:
    """Figures of a modelled drive as in the configuration of a node."""
    times = ("latency", "flush", "revolution", "seek_track", "seek_full")
    found = {f"{name}_ns": round(getattr(figures, name) * 1e9) for name in times}
    found |= {"octets_per_second": figures.octets_per_second, "channels": figures.channels}
    found |= {"tokens_per_second": figures.operations_per_second, "token_octets": figures.operation_size}
    return {name: value for name, value in found.items() if value or name == "latency_ns"}


def _roles(file: LayoutFile) -> tuple[str, ...]:
    """The roles to place. Classic queues lie in the directory of the data if they are on the same real drive."""
    from infra.layout import ROLES

    classic = file.drive_of("classic")
    is_apart = file.drives[classic].is_modelled or classic != file.drive_of("data")
    return (*ROLES, *(["classic"] if is_apart else []))


def _impossible(file: LayoutFile, document: Document) -> Iterator[Problem]:
    """Modelled drives without a model."""
    from reference_broker.storage.drives.profiles import PROFILES, profile_problems

    for name, drive in file.drives.items():
        profile = drive.fuse.profile if drive.fuse is not None else drive.profile
        if profile is not None and profile not in PROFILES:
            rule, fix = f"there is no profile {profile!r}", f"use one of: {', '.join(PROFILES)}"
            where = ("drives", name, "fuse", "profile") if drive.fuse is not None else ("drives", name, "profile")
            yield document.problem(where, rule, fix, profile)
        for problem in profile_problems(_figures(drive.figures)) if drive.figures is not None else ():
            yield document.problem(("drives", name, "figures"), f"impossible figures: {problem}", "correct the figure")


def _real(file: LayoutFile, document: Document) -> Iterator[Problem]:
    """Drives that exist only in real time."""
    kinds = {"mount": "a mount point", "directory": "a directory", "fuse": "a FUSE drive"}
    for name, drive in file.drives.items():
        for kind, words in kinds.items():
            if getattr(drive, kind) is not None:
                rule = f"drive {name} is {words} of this machine, whose drives keep to real time: a simulation has none"
                fix = "write profile: or figures: for a modelled drive, or measure this layout with `perftest sweep`"
                yield document.problem(("drives", name, kind), rule, fix)


def _not_for_rabbitmq(file: LayoutFile, document: Document) -> Iterator[Problem]:
    """The keys that only nodes of the bundled broker obey."""
    if file.drive_of("classic") != file.drive_of("data"):
        rule = "RabbitMQ keeps classic queues with its other data"
        yield document.problem(("roles", "classic"), rule, f"write classic: {file.drive_of('data')}, or leave it out")


def _not_here(file: LayoutFile, document: Document, placed: PlacedLayout, nodes: int) -> Iterator[Problem]:
    """FUSE drives that this machine cannot have."""
    from infra import drives
    from infra.layout import memory_mb

    if not placed.fuse:
        return
    first = placed.fuse[0].name
    where = ("drives", first, _kind_of(file, first))
    if reason := drives.impossible():
        rule = f"drive {first} is a FUSE drive, which this machine cannot have: {reason}"
        fix = (
            "run as root on Linux with FUSE and loop devices; or write profile: for a drive that reference nodes model"
        )
        yield document.problem(where, rule, fix)
    sizes = {name: drive.fuse.size for name, drive in file.drives.items() if drive.fuse is not None}
    for name, size in sizes.items():
        if not drives.SIZE_MB_MIN * _MIB <= size <= drives.SIZE_MB_MAX * _MIB:
            rule = f"drive {name} of {size // _MIB} MiB is no possible FUSE drive, which is held in memory"
            fix = f"give it {drives.SIZE_MB_MIN} MiB to {drives.SIZE_MB_MAX} MiB"
            yield document.problem(("drives", name, "fuse", "size"), rule, fix, size)
    wanted, room = memory_mb(placed, nodes), drives.memory_octets() // _MIB
    if wanted > room:
        rule = f"the FUSE drives of {nodes} nodes take up to {wanted} MiB of memory, of {room} MiB free"
        fix = "write fuse: {profile: NAME, size: SIZE} with smaller drives, or start fewer nodes"
        yield document.problem((*where, "size") if first in sizes else where, rule, fix)


def _kind_of(file: LayoutFile, name: str) -> str:
    drive = file.drives[name]
    return next(kind for kind in ("fuse", "profile", "figures") if getattr(drive, kind) is not None)
