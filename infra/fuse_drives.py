"""The FUSE drives of running nodes: what each drive tells of itself, and what a drive can be made to do.

Each node has a drive of every name, in a directory whose path holds ``{node}``. The programs of the drives are asked,
and never the nodes: so the same works below the bundled broker and below RabbitMQ.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from infra import drives
from infra.drives import BlockDrive, DriveError
from infra.layout import NODE

PURPOSE: Final = "device"
"""What a drive was used for is not known below a file system: all requests count as of one purpose."""


class FuseDrives:
    """The drives of these nodes; ``places`` are :func:`infra.layout.fuse_directories`."""

    def __init__(self, nodes: Sequence[str], places: Mapping[str, str]) -> None:
        self.nodes = tuple(nodes)
        self.names = tuple(places)
        self._places = dict(places)

    def told(self, node: str) -> list[dict[str, Any]]:
        """What the drives of a node tell, with the keys of a drive that a node models. A drive that does not answer is
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

    def _drive(self, node: str, name: str) -> BlockDrive:
        return BlockDrive(Path(self._places[name].replace(NODE, node)))


def _told(name: str, drive: BlockDrive) -> dict[str, Any]:
    status = drives.ask(drive, op="status")
    counts, faults = status["counts"], status["faults"]
    used = {"syncs": counts["flushes"], "reads": counts["reads"]}
    used |= {"write_octets": counts["written_bytes"], "read_octets": counts["read_bytes"]}
    return {
        "name": name,
        "kind": "fuse",
        "profile": status["profile"] or "none",
        "failing": bool(faults["write_errors"] or faults["flush_errors"]),
        **status["punctuality"],
        "purposes": {PURPOSE: used},
    }
