"""The modelled drives of a node: the files on them, operators' changes to the drives, and their status.

A node without modelled drives has no object of this module in its way: its files are the machine's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reference_broker.node.drive_config import profile_of, profile_value_problems
from reference_broker.node.links.peer_requests import failure
from reference_broker.storage.drives.model import InstanceCap
from reference_broker.storage.files import Files, RealFiles
from reference_broker.storage.modelled_drive import ModelledDrive
from reference_broker.storage.modelled_files import ModelledFiles, PlacedFiles

if TYPE_CHECKING:
    from reference_broker.node.config import NodeConfig

DOINGS: Final = ("slow", "profile", "fill", "free", "fail", "heal", "restore")
_FACTORS: Final = (0.01, 1e6)


class NodeDrives:
    """The modelled drives of one node."""

    def __init__(self, config: NodeConfig) -> None:
        directories = config.role_directories()
        cap = InstanceCap(config.instance_octets_per_second) if config.instance_octets_per_second else None
        real = RealFiles()
        self.drives: dict[str, ModelledDrive] = {}
        self._places: dict[str, Files] = {}
        self._drive_of: dict[Path, ModelledDrive] = {}
        for each in config.drives:
            drive = self.drives[each.name] = ModelledDrive(each.name, each.profile, cap)
            for role in each.roles:
                self._places[str(directories[role])] = ModelledFiles(real, drive, role)
                self._drive_of[directories[role]] = drive
        self.files: Files = PlacedFiles(real, self._places) if self.drives else real

    def status(self) -> list[dict[str, Any]]:
        """The status of each drive."""
        return [drive.status() for drive in self.drives.values()]

    def free_bytes(self, directory: Path, otherwise: Callable[[Path], int]) -> int:
        """Octets that are free for a directory: none on a full modelled drive. Raises OSError."""
        place = directory
        while place not in self._drive_of and place != place.parent:
            place = place.parent
        drive = self._drive_of.get(place)
        return 0 if drive is not None and drive.full else otherwise(directory)

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an operator's request to a drive: ``{"op": "drive", "drive": NAME, "do": ONE_OF_DOINGS}``, with
        ``factor`` for slow, and ``profile`` (a name or figures) for profile."""
        name, do = request.get("drive"), request.get("do")
        drive = self.drives.get(name) if isinstance(name, str) else None
        if drive is None:
            known = ", ".join(self.drives)
            fix = f"use one of {known}" if known else "give the node modelled drives: `drives` in its node.json"
            return failure(f"this node has no modelled drive {name!r}", fix)
        match do:
            case "slow":
                factor = request.get("factor")
                if not isinstance(factor, int | float) or not _FACTORS[0] <= factor <= _FACTORS[1]:
                    fix = f"use a factor from {_FACTORS[0]:g} to {_FACTORS[1]:,.0f}, such as 4; 1 ends it"
                    return failure(f"factor: {factor!r} cannot slow a drive", fix)
                drive.slow(factor)
            case "profile":
                if problems := profile_value_problems("profile", request.get("profile")):
                    return failure("; ".join(problems), "see docs/internals/modelled-drives.md")
                drive.use(profile_of(request["profile"]))
            case "fill" | "free" | "fail" | "heal" | "restore":
                getattr(drive, do)()
            case _:
                return failure(f"a drive cannot {do!r}", f"use one of {', '.join(DOINGS)}")
        return {"ok": True, "drive": drive.status()}
