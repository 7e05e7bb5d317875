"""A calibration: the cost of the work of this project's processes on one machine, as a file.

The file says from which machine and versions its figures come, so a simulated run can say so, too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from perftest.exits import CliError, Exit
from reference_broker.storage.drives.profiles import DriveProfile, profile_problems
from reference_broker.virtual.costs import Costs

SHIPPED: Final = Path(__file__).with_name("calibration.json")
"""The calibration that is used unless another one is named."""
DRIVE: Final = "measured"
"""The name of the drive profile of a calibration."""


class CalibrationFile:
    """A calibration as a file; each kind of calibration is a dataclass."""

    __slots__ = ()
    measured_on: dict[str, Any]

    @property
    def id(self) -> str:
        """Eight hexadecimal digits that change with any figure."""
        return sha256(self.to_text().encode()).hexdigest()[:8]

    def to_text(self) -> str:
        """The content of a file."""
        return json.dumps(asdict(self), indent=1) + "\n"  # type: ignore[call-overload]

    def facts(self) -> dict[str, Any]:
        """A run directory's record of its calibration."""
        return {"id": self.id, **self.measured_on}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(CalibrationFile):
    """CPU costs of a broker node and of a worker of the generator; one machine's link to itself; its drive.

    ``measured_on`` says which machine, when, and with which versions; ``fit`` how well the figures describe it.
    """

    node: Costs
    generator: Costs
    cores: int
    loopback_ns: int
    loopback_octets_per_second: int
    drive: DriveProfile
    measured_on: dict[str, Any] = field(default_factory=dict)
    fit: dict[str, Any] = field(default_factory=dict)


def parsed(path: Path, fix: str) -> Any:
    """The JSON in the file of a calibration. Raises CliError."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CliError(f"the calibration cannot be read: {reason}", str(path), fix, Exit.USAGE) from error


def read(path: Path) -> Calibration:
    """The calibration in a file. Raises CliError that names all faults."""
    fix = "name a file that `perftest simulate --calibrate FILE` wrote"
    plain = parsed(path, fix)
    if problems := _problems(plain):
        raise CliError(f"not a calibration: {'; '.join(problems)}", str(path), fix, Exit.USAGE)
    parts = {"node": Costs(**plain["node"]), "generator": Costs(**plain["generator"])}
    return Calibration(**{**plain, **parts, "drive": DriveProfile(**{"name": DRIVE, **plain["drive"]})})


def _problems(plain: Any) -> list[str]:
    if not isinstance(plain, dict):
        return ["the file holds no JSON object"]
    costs: dict[str, type] = {each.name: int for each in fields(Costs)}
    numbers: dict[str, type] = {"cores": int, "loopback_ns": int, "loopback_octets_per_second": int}
    found = _wrong(plain, numbers | {"node": dict, "generator": dict, "drive": dict}, "")
    unknown = sorted(set(plain) - {each.name for each in fields(Calibration)})
    found += [f"{name}: unknown key" for name in unknown]
    for name in ("node", "generator"):
        if isinstance(part := plain.get(name), dict):
            found += _wrong(part, costs, f"{name}.")
            found += [f"{name}.{key}: unknown key" for key in sorted(set(part) - set(costs))]
    if isinstance(part := plain.get("drive"), dict):
        found += [f"drive.{problem}" for problem in profile_problems(part)]
    return found


def _wrong(part: dict[str, Any], shape: dict[str, type], prefix: str) -> list[str]:
    words = {int: "a whole number, 0 or more", dict: "an object"}
    return [
        f"{prefix}{key}: must be {words[kind]}"
        for key, kind in shape.items()
        if type(part.get(key)) is not kind or (kind is int and part[key] < 0)
    ]
