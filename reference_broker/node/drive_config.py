"""The section ``drives`` of a node's configuration: modelled drives, and which directories of the node lie on each.
Pure."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reference_broker.storage.drives.profiles import PROFILES, DriveProfile, profile_problems

ROLES: Final = ("wal", "segment", "data", "classic")
"""The directories of a node that can lie on a modelled drive."""
_KEYS: Final = ("name", "profile", "roles")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveConfig:
    """One modelled drive."""

    name: str
    profile: DriveProfile
    roles: tuple[str, ...]


def drives_of(raw: list[Mapping[str, Any]]) -> tuple[DriveConfig, ...]:
    """The drives of a section without :func:`drive_problems`."""
    return tuple(
        DriveConfig(name=each["name"], profile=profile_of(each["profile"]), roles=tuple(each["roles"])) for each in raw
    )


def profile_of(value: str | Mapping[str, Any]) -> DriveProfile:
    """A profile by its name, or by figures of its own."""
    return PROFILES[value] if isinstance(value, str) else DriveProfile(**{"name": "own", **value})


def drive_problems(raw: list[Any]) -> list[str]:
    """The faults of the section, each as "key: value: rule"."""
    found = []
    for number, drive in enumerate(raw):
        where = f"drives[{number}]"
        if isinstance(drive, dict):
            found += _of_drive(where, drive)
        else:
            found.append(f"{where}: {drive!r}: must be an object with name, profile and roles")
    if not found:
        found += _twice([drive["name"] for drive in raw], "names a drive: choose another name")
        roles = [role for drive in raw for role in drive["roles"]]
        found += _twice(roles, "lies on a drive: a directory can lie on one only")
    return found


def profile_value_problems(where: str, value: object) -> list[str]:
    """The faults of a profile, named or given by its figures."""
    if isinstance(value, dict):
        return [f"{where}.{problem}" for problem in profile_problems(value)]
    if not isinstance(value, str) or value not in PROFILES:
        near = difflib.get_close_matches(str(value), PROFILES, n=1)
        known = f"{near[0]}?" if near else f"known: {', '.join(PROFILES)}, or an object of figures"
        return [f"{where}: {value!r}: unknown profile; {known}"]
    return []


def _of_drive(where: str, drive: Mapping[str, Any]) -> list[str]:
    found = [f"{where}.{key}: unknown key; known: {', '.join(_KEYS)}" for key in drive if key not in _KEYS]
    name, roles = drive.get("name"), drive.get("roles")
    if not isinstance(name, str) or not name:
        found.append(f"{where}.name: {name!r}: must be a string")
    found += profile_value_problems(f"{where}.profile", drive.get("profile"))
    if not isinstance(roles, list) or not roles:
        return [*found, f"{where}.roles: {roles!r}: must be a list of {', '.join(ROLES)}"]
    unknown = [role for role in roles if role not in ROLES]
    return [*found, *(f"{where}.roles: {role!r}: must be one of {', '.join(ROLES)}" for role in unknown)]


def _twice(values: list[str], what: str) -> list[str]:
    return [f"drives: {value!r}: already {what}" for value, count in Counter(values).items() if count > 1]
