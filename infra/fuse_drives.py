"""The FUSE drives of running nodes: the status of each drive, and the changes to it.

Each node has a drive of every name, in a directory whose path holds ``{node}``. The programs of the drives are asked,
and never the nodes: so the same works below the bundled broker and below RabbitMQ.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from infra import drives, filling
from infra.cluster import ClusterError
from infra.drives import BlockDrive, DriveError
from infra.filling import FillError
from infra.layout import NODE
from infra.register import Register

PURPOSE: Final = "device"
"""Purpose of all requests: below a file system the use of a drive is unknown."""
_ALL: Final = 1 << 40
"""As many requests as there will ever be."""


class FuseDrives:
    """The drives of these nodes; ``places`` are :func:`infra.layout.fuse_directories`."""

    def __init__(self, nodes: Sequence[str], places: Mapping[str, str]) -> None:
        self.nodes = tuple(nodes)
        self.names = tuple(places)
        self._places = dict(places)

    def told(self, node: str) -> list[dict[str, Any]]:
        """The status of a node's drives, with the keys of a drive that a node models. A drive that does not answer is
        left out."""
        found = []
        for name in self.names:
            with contextlib.suppress(DriveError):
                found.append(_told(name, self._drive(node, name)))
        return found

    def sample(self, t_ns: int) -> list[dict[str, Any]]:
        """A record of ``broker.jsonl`` for each node, with its drives only, at Unix time ``t_ns``."""
        records = [{"t_ns": t_ns, "node": node, "role": "", "drives": self.told(node)} for node in self.nodes]
        return [record for record in records if record["drives"]]

    def act(self, node: str, name: str, do: str, *, keeps: bool = False, **details: object) -> dict[str, Any]:
        """The status of a drive after a change; its node may run. The verbs are those of
        :func:`infra.control.act_on_drive`. A filling ends with the command unless the command ``keeps`` the filling.
        Raises :class:`ClusterError`."""
        with _explained():
            drive = self._known(node, name)
            _change(drive, do, keeps, details)
            return _told(name, drive)

    def reset(self, node: str) -> None:
        """Bring the drives of a node that has ended back to the state in which they were made. Raises
        :class:`ClusterError`."""
        with _explained():
            for name in self.names:
                drive = self._drive(node, name)
                if _told(name, drive)["failing"] or not drives.takes_writes(drive):
                    drives.cut_power(drive, keep=1.0, seed=0)  # a failed file system must be mounted again
                _change(drive, "restore", False, {})

    def _known(self, node: str, name: str) -> BlockDrive:
        if node not in self.nodes or name not in self.names:
            fix = f"name one of {', '.join(self.names)}"
            raise ClusterError(f"{node} has no FUSE drive {name!r}", node, fix, code=2)
        return self._drive(node, name)

    def _drive(self, node: str, name: str) -> BlockDrive:
        return BlockDrive(Path(self._places[name].replace(NODE, node)))


def _change(drive: BlockDrive, do: str, keeps: bool, details: Mapping[str, object]) -> None:
    register = Register(drive.directory.parent)
    match do:
        case "slow" | "profile":
            drives.ask(drive, op=do, **details)
        case "fill":
            filling.fill(drive.files, register)
            if keeps:
                filling.keep(drive.files, register)
        case "free":
            filling.free(drive.files, register)
        case "fail" | "heal":
            for fault in ("write_errors", "flush_errors"):
                drives.ask(drive, op="fault", fault=fault, value=_ALL if do == "fail" else 0)
        case "restore":
            drives.ask(drive, op="restore")
            filling.free(drive.files, register)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Turns the errors of drives and fillings into :class:`ClusterError`."""
    try:
        yield
    except (DriveError, FillError) as error:
        raise ClusterError(error.what, error.where, error.fix, error.code) from error


def segments_written(files: Path) -> int:
    """The segment files that the quorum queues below a directory have written so far. A queue numbers its segment files
    from 1 on (``00000003.segment``)."""
    last: dict[Path, int] = {}
    for each in files.rglob("*.segment"):
        if each.stem.isdecimal():
            last[each.parent] = max(last.get(each.parent, 0), int(each.stem))
    return sum(last.values())


def _told(name: str, drive: BlockDrive) -> dict[str, Any]:
    status = drives.ask(drive, op="status")
    counts, faults = status["counts"], status["faults"]
    used = {"syncs": counts["flushes"], "reads": counts["reads"]}
    used |= {"write_octets": counts["written_bytes"], "read_octets": counts["read_bytes"]}
    return {
        "name": name,
        "kind": "fuse",
        "profile": status["profile"] or "none",
        "full": (drive.files / filling.FILE).exists(),
        "failing": bool(faults["write_errors"] or faults["flush_errors"]),
        **status["punctuality"],
        "busy_ns": status["busy_ns"],
        "segments_written": segments_written(drive.files),
        "purposes": {PURPOSE: used},
    }
