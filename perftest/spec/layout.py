"""The layout of drives: on which drives the nodes of a cluster keep which files.

A layout names drives and places *roles* on them, which are the kinds of files of a node. It stands in a file of its own
(:mod:`perftest.spec.layout_file`) or in the ``cluster:`` section of a workload, and serves local clusters of the
bundled broker and of RabbitMQ. This module knows only what is written: the machine is checked by :mod:`infra.layout`,
which gets the layout as plain values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from perftest.spec.fields import Count, Octets, Seconds
from perftest.spec.keys import Model
from perftest.spec.problem import Location

ROLES: Final = ("data", "logs", "segment", "wal", "classic")
"""The kinds of files of a node: metadata and snapshots, messages for operators, segment files, the write-ahead log, and
classic queues."""
_KINDS: Final = ("mount", "directory", "profile", "figures", "fuse")
POOL_THREADS_MAX: Final = 1024
_PATH = Annotated[str, Field(min_length=1)]
Role = Literal["data", "logs", "segment", "wal", "classic"]


class Figures(Model):
    """The figures of a modelled drive of one's own. A mechanism whose figure is left out is switched off."""

    latency: Seconds
    octets_per_second: Octets
    channels: Annotated[int, Field(ge=1, le=1024)] = 1
    flush: Seconds = 0.0
    operations_per_second: Count = 0
    operation_size: Annotated[Octets, Field(description="octets of a sequential write that count as an operation")] = 0
    revolution: Annotated[Seconds, Field(description="time of a revolution of the platter")] = 0.0
    seek_track: Annotated[Seconds, Field(description="time to move the head to the next track")] = 0.0
    seek_full: Annotated[Seconds, Field(description="time to move the head over the whole drive")] = 0.0


class Fuse(Model):
    """A block device over FUSE with a real file system on it, as slow as a modelled drive."""

    profile: str
    size: Octets


class Drive(Model):
    """A drive of every node: exactly one of these keys says what it is. In a path, ``{node}`` stands for the name of
    the node, so that every node can have drives of its own."""

    mount: Annotated[_PATH | None, Field(description="a mounted drive: the mount point")] = None
    directory: Annotated[_PATH | None, Field(description="a plain directory, on whatever drive it lies")] = None
    profile: Annotated[str | None, Field(description="a modelled drive: the name of its profile")] = None
    figures: Annotated[Figures | None, Field(description="a modelled drive with figures of its own")] = None
    fuse: Fuse | None = None

    @property
    def is_modelled(self) -> bool:
        """Whether each node models this drive."""
        return self.profile is not None or self.figures is not None


def _policy(value: object) -> str:
    """The I/O policy as the configuration of a node names it."""
    if value == "dedicated":
        return "dedicated"
    threads = value.get("pool") if isinstance(value, dict) and len(value) == 1 else None
    if type(threads) is int and 1 <= threads <= POOL_THREADS_MAX:
        return f"pool:{threads}"
    context = {"fix": f"write dedicated, or {{pool: N}} with N from 1 to {POOL_THREADS_MAX}"}
    raise PydanticCustomError("quantity", "{rule}", context | {"rule": f"{value!r} is no I/O policy"})


class Layout(Model):
    """Drives, and which of them holds which files of the nodes: the content of a layout file."""

    title: str = ""
    drives: Annotated[dict[Annotated[str, Field(pattern=r"^[a-z0-9_]+$", max_length=40)], Drive], Field(min_length=1)]
    roles: Annotated[dict[Role, str], Field(description="the drive of each kind of files; classic: that of data")]
    io: Annotated[
        str,
        BeforeValidator(_policy),
        WithJsonSchema(
            {"anyOf": [{"const": "dedicated"}, {"type": "object", "properties": {"pool": {"type": "integer"}}}]}
        ),
        Field(description="threads: dedicated for each store, or a pool of N for all"),
    ] = "dedicated"
    octets_per_second: Annotated[
        Octets, Field(description="what all modelled or FUSE drives of a node reach together; 0: no limit")
    ] = 0

    def drive_of(self, role: str) -> str:
        """The name of the drive that a role lies on."""
        return self.roles.get(role, self.roles["data"])  # type: ignore[call-overload, no-any-return]


def _as_written(content: Any, check: ValidatorFunctionWrapHandler) -> Any:
    check(content)
    return content


FILE_OR_LAYOUT: Final = Annotated[
    Annotated[str, Field(max_length=400), Tag("file")] | Annotated[Layout, WrapValidator(_as_written), Tag("drives")],
    Discriminator(lambda value: "file" if isinstance(value, str) else "drives"),
    PlainSerializer(lambda value: value),
]
"""The name of a layout, or a layout, which stays as it was written (:class:`~perftest.spec.cluster.OfLayout`)."""


def broken_relations(layout: Layout) -> Iterator[tuple[Location, str, str, Any]]:
    """Broken relations between the keys of a layout: place, rule, fix, value."""
    for name, drive in layout.drives.items():
        given = [kind for kind in _KINDS if getattr(drive, kind) is not None]
        if len(given) != 1:
            rule = f"drive {name}: " + (f"{' and '.join(given)} are given" if given else "nothing says what it is")
            yield ("drives", name), rule, f"give exactly one of {', '.join(_KINDS)}", None
        if drive.figures is not None:
            yield from _figures(name, drive.figures)
    yield from _shared_bandwidth(layout)
    for role in ROLES[:-1]:
        if role not in layout.roles:
            yield ("roles",), f"the role {role} has no drive", f"add {role}: {next(iter(layout.drives))}", None
    for place, drive_name in layout.roles.items():
        if drive_name not in layout.drives:
            fix = f"use one of: {', '.join(layout.drives)}"
            yield ("roles", place), f"there is no drive {drive_name!r}", fix, drive_name
    for name in layout.drives.keys() - set(layout.roles.values()):
        yield ("drives", name), f"no role lies on drive {name}", "place a role on it, or remove it", None


def _shared_bandwidth(layout: Layout) -> Iterator[tuple[Location, str, str, Any]]:
    """The common bandwidth of all drives is a part of their model, which is in the node or in the programs of the FUSE
    drives. Both would not know of each other. A real drive beside modelled ones is as fast as it is."""
    modelled = [name for name, drive in layout.drives.items() if drive.is_modelled]
    fuse = [name for name, drive in layout.drives.items() if drive.fuse is not None]
    if not layout.octets_per_second or bool(modelled) != bool(fuse):
        return
    if modelled:
        rule = (
            f"drives {modelled[0]} and {fuse[0]} have no bandwidth together: nodes model one, the other is a FUSE drive"
        )
        fix = "remove octets_per_second, or write fuse: for all modelled drives"
    else:
        first = next(iter(layout.drives))
        rule = f"what all drives reach together does not hold for drive {first}, which is no modelled one"
        fix = "remove it, or give the drive a profile or figures"
    yield ("octets_per_second",), rule, fix, layout.octets_per_second


def _figures(name: str, figures: Figures) -> Iterator[tuple[Location, str, str, Any]]:
    place: Location = ("drives", name, "figures")
    if not figures.octets_per_second:
        yield (*place, "octets_per_second"), "a drive that writes nothing a second", "use 1 MB or more", 0
    if figures.seek_full < figures.seek_track:
        rule = "the longest seek is shorter than the shortest"
        yield (*place, "seek_full"), rule, "use at least the time of seek_track", figures.seek_full
    if figures.operation_size and not figures.operations_per_second:
        rule = "a size of operations without a limit on operations does nothing"
        yield (*place, "operation_size"), rule, "add operations_per_second, or remove it", figures.operation_size
