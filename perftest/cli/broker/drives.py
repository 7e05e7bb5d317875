"""Changes to modelled drives of running nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from perftest.cli.broker.common import command, load, node_argument, say

_DONE: Final = {
    "slow": "has other speed",
    "profile": "has another profile",
    "fill": "has no room left",
    "free": "has room again",
    "fail": "fails every operation",
    "heal": "works again",
    "restore": "is again what its configuration says",
}


@command("drive", arguments=("node1 d1 slow=4", "node1 d1 profile=hdd7200", "2 d1 fill"))
@node_argument()
@click.argument("drive", metavar="DRIVE")
@click.argument("action", metavar="ACTION")
def drive(node: str, drive: str, action: str, directory: Path, as_json: bool) -> None:
    """Change a modelled drive of a running node: slow=FACTOR, profile=NAME, fill, free, fail, heal, restore.

    slow=1 ends a slowness, and restore ends everything. A full drive stops publishers until it is free again. A node
    whose drive fails stops. All this ends with the process of the node; on a FUSE drive, with the next start.
    """
    from infra import control

    do, details = _parsed(action)
    cluster = load(directory)
    status = control.act_on_drive(cluster, node, drive, do, keeps=True, **details)
    name = cluster.node(node).name
    say(f"drive {drive} of {name} {_DONE[do]} ({status['profile']})", {"node": name, "drive": status}, as_json)


def _parsed(action: str) -> tuple[str, dict[str, Any]]:
    """The verb, and the rest of the request. Raises BadParameter."""
    do, equals, value = action.partition("=")
    if do not in _DONE or bool(equals) != (do in ("slow", "profile")):
        text = f"{action!r} is none of slow=FACTOR, profile=NAME, fill, free, fail, heal, restore"
        raise click.BadParameter(text, param_hint="ACTION")
    if do == "profile":
        return do, {"profile": value}
    if not equals:
        return do, {}
    try:
        return do, {"factor": float(value)}
    except ValueError:
        raise click.BadParameter(f"{value!r} is no number, such as slow=4", param_hint="ACTION") from None


COMMANDS = (drive,)
