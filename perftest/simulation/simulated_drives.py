"""The drives of simulated nodes: from a layout file, or from ``--drive`` and ``--io-threads``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perftest.exits import CliError, Exit
from perftest.measuring.placement import modelled_layout_of
from perftest.simulation.simulated_world import Placement
from perftest.spec.problem import SpecError
from reference_broker.node.drive_config import profile_of
from reference_broker.storage.drives.profiles import PROFILES, DriveProfile
from reference_broker.virtual.cluster import ROLES

if TYPE_CHECKING:
    from pathlib import Path

    from infra.layout import PlacedLayout
    from perftest.measuring.placement import Inline


def of_layouts(paths: Sequence[Path | Inline]) -> list[Placement]:
    """The placement of each layout. Raises SpecError with the problems of all files."""
    found, problems = [], []
    for path in paths:
        try:
            found.append(_of_layout(modelled_layout_of(path)))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return found


def _of_layout(layout: PlacedLayout) -> Placement:
    """As on a local cluster, every node has drives of its own, and none is modelled for the log file of a node."""
    roles = {role: layout.roles[role] for role in ROLES}
    _policy, _colon, threads = layout.io.partition(":")
    return Placement(
        drives={drive.name: profile_of(drive.profile) for drive in layout.drives if drive.name in roles.values()},
        roles=roles,
        pool=int(threads or 0),
        own_drives=True,
        octets_per_second=layout.octets_per_second,
        layout=layout.text,
        title=layout.name,
    )


def of_options(texts: Sequence[str], pool: int, measured: DriveProfile) -> Placement:
    """The placement of ``--drive`` and ``--io-threads``. Raises CliError with all faults.

    Classic queues lie with the data, unless their role is named.
    """
    profiles = {"measured": measured, **PROFILES}
    asked = {role: profile for role, _, profile in (text.rpartition("=") for text in texts)}
    _check(asked, profiles)
    roles = {role: role if role in asked else "main" for role in ROLES}
    if "classic" not in asked:
        roles["classic"] = roles["data"]
    named = {role or "main": profiles[profile] for role, profile in asked.items()}
    if "main" in roles.values():
        named.setdefault("main", measured)
    return Placement(drives=named, roles=roles, pool=pool)


def _check(asked: Mapping[str, str], profiles: Mapping[str, DriveProfile]) -> None:
    unknown = [f"{name}: no such profile" for name in asked.values() if name not in profiles]
    unknown += [f"{role}: no such role" for role in asked if role not in (*ROLES, "")]
    if unknown:
        fix = f"profiles are {', '.join(profiles)}; roles are {', '.join(ROLES)}"
        raise CliError(f"--drive cannot be used: {'; '.join(unknown)}", "--drive", fix, Exit.USAGE)
