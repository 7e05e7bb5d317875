"""``perftest remote up``, ``down``, ``logs`` and ``collect``: what lies and runs on the hosts between runs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from infra.remote.host import RemoteError
from perftest.cli.remote.host_options import dry_run_option, hosts_argument, only_option, show_steps
from perftest.cli.sections import SectionedCommand, json_option, option
from perftest.cli.target import layout_option
from perftest.exits import CliError, Exit
from perftest.remote.inventory import HostsError, chosen, close_all, connect_all, on_reachable, printable
from perftest.spec.hosts import HostSpec

if TYPE_CHECKING:
    from infra.remote.shipping import InstalledProject

_LINE_OCTETS = 400
"""Number of octets of a log that are asked for a line."""


@click.command(
    "up",
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=(
        "perftest remote up hosts.yaml",
        "perftest remote up hosts.yaml --brokers --layout disks/three_hdd   start nodes that stay",
        "perftest remote up hosts.yaml --dry-run   show what is run on each host",
    ),
)
@hosts_argument
@only_option
@option("--brokers", section="Target", is_flag=True, help="Start the broker nodes, too, which stay until `down`.")
@layout_option
@dry_run_option
@json_option
def up(
    inventory: Path, only: tuple[str, ...], brokers: bool, layout: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Put the project on every host, as far as it is not there.

    A run does the same first. What a host has already is not sent again. With --brokers, the hosts with the role broker
    start a node each, as one cluster, and every run measures these nodes until they are ended by `perftest remote
    down`. Nodes that have ended are started again, with their data.
    """
    from infra.remote.bundle import Bundles
    from infra.remote.shipping import ship
    from perftest.remote import steps

    specs = _specs(inventory, only)
    nodes = _nodes(specs, only, inventory, brokers=brokers, layout=layout)
    if dry_run:
        show_steps((spec, step) for spec in specs for step in steps.of_up(spec))
        show_steps((spec, step) for spec in nodes for step in steps.of_node(spec))
        return
    bundles, began = Bundles(), time.monotonic()
    done, errors = on_reachable(specs, lambda connection: ship(connection, bundles.of))
    rows: dict[str, dict[str, Any]] = {}
    for name, each in done.items():
        version = ".".join(map(str, each.facts["python"]))
        rows[name] = {"python": version, "directory": str(each.installed.directory), "sent_octets": each.octets}
    lines = {
        name: f"ready, Python {row['python']}, {row['directory']}, {_sent(row['sent_octets'])}"
        for name, row in rows.items()
    }
    _tell(rows, lines, as_json)
    if not as_json:
        click.echo(f"{len(done)} of {len(specs)} hosts ready after {time.monotonic() - began:.1f} s", err=True)
    _refuse(errors)
    if nodes:
        said = _start_nodes(inventory, nodes, {name: each.installed for name, each in done.items()}, layout)
        click.echo(said, err=True)


def _nodes(
    specs: Sequence[HostSpec], only: Sequence[str], inventory: Path, *, brokers: bool, layout: Path | None
) -> list[HostSpec]:
    """The hosts that are to start a node. Raises CliError."""
    nodes = [spec for spec in specs if spec.is_broker and brokers]
    if brokers and not nodes:
        raise CliError("no host has the role broker", f"{inventory}: roles", "give hosts the role broker", Exit.USAGE)
    if brokers and only:
        raise CliError("the nodes of a cluster are started together", "--host", "leave out --host", Exit.USAGE)
    if layout is not None and not brokers:
        raise CliError("a layout is for nodes that are started", "--layout", "add --brokers", Exit.USAGE)
    return nodes


def _start_nodes(
    inventory: Path, nodes: Sequence[HostSpec], installed: Mapping[str, InstalledProject], layout: Path | None
) -> str:
    """Start the nodes that stay; what was done, in words. Raises HostsError, ClusterError, CliError."""
    from perftest.cli.remote.run import named_layout, refuse_fuse
    from perftest.measuring.placement import layout_of
    from perftest.remote.brokers import stay
    from perftest.remote.crew import CrewHost

    path = layout or named_layout(list(nodes), inventory)
    read = layout_of(path, len(nodes), elsewhere=True) if path is not None else None
    refuse_fuse(read)
    connections = connect_all(nodes)
    try:
        members = {spec.name: CrewHost(spec, connections[spec.name], installed[spec.name]) for spec in nodes}
        return stay(inventory, members, read)
    finally:
        close_all(connections)


@click.command(
    "down",
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=(
        "perftest remote down hosts.yaml",
        "perftest remote down hosts.yaml --host load1",
        "perftest remote down hosts.yaml --dry-run   show what is run on each host",
    ),
)
@hosts_argument
@only_option
@dry_run_option
@json_option
def down(inventory: Path, only: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """End every process that was started on the hosts, whoever started it and however that ended.

    Only processes that belong to the directory of the inventory are ended. Faults of links that are left are undone.
    Files stay, but for those that broker nodes wrote: nodes of `perftest remote up`, and of runs that were killed.
    """
    from infra.links.kernel import REMNANTS
    from infra.remote import processes
    from infra.remote.ssh import SshConnection
    from perftest.remote import brokers, steps

    specs = _specs(inventory, only)
    if dry_run:
        show_steps((spec, step) for spec in specs for step in steps.of_down(spec))
        return

    cluster = brokers.standing(inventory)

    def end(connection: SshConnection) -> list[processes.HostProcess]:
        ended = processes.end(connection)
        connection.run(["sh", "-c", REMNANTS])
        brokers.remove_all_written(connection)
        return ended

    done, errors = on_reachable(specs, end)
    if cluster is not None and {node.name for node in cluster.nodes} <= set(done):
        brokers.forget(inventory)
    rows = {name: {"ended": [_row(each) for each in ended]} for name, ended in done.items()}
    lines = {name: _ended([each.pid for each in ended]) for name, ended in done.items()}
    _tell(rows, lines, as_json)
    _refuse(errors)


@click.command(
    "logs",
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=(
        "perftest remote logs hosts.yaml",
        "perftest remote logs hosts.yaml --host rabbit1 --lines 200",
        "perftest remote logs hosts.yaml --json",
    ),
)
@hosts_argument
@only_option
@option("--lines", section="Output", type=click.IntRange(1, 100_000), default=20, help="Lines of each log.")
@dry_run_option
@json_option
def logs(inventory: Path, only: tuple[str, ...], lines: int, dry_run: bool, as_json: bool) -> None:
    """Show the last lines of every log on the hosts."""
    from infra.remote import processes
    from perftest.remote import steps

    specs = _specs(inventory, only)
    if dry_run:
        show_steps((spec, step) for spec in specs for step in steps.of_logs(spec, lines * _LINE_OCTETS))
        return
    done, errors = on_reachable(specs, lambda each: processes.logs(each, lines * _LINE_OCTETS))
    last = {host: {name: found[-lines:] for name, found in logs.items()} for host, logs in done.items()}
    if as_json:
        click.echo(json.dumps([{"host": host, "logs": found} for host, found in last.items()], ensure_ascii=False))
    for host, found in last.items() if not as_json else ():
        for name, text in found.items():
            for line in text:
                click.echo(f"{host} {name}  {printable(line)}")
    _refuse(errors)


@click.command(
    "collect",
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=(
        "perftest remote collect hosts.yaml",
        "perftest remote collect hosts.yaml --out evidence",
        "perftest remote collect hosts.yaml --host load1 --json",
    ),
)
@hosts_argument
@only_option
@option(
    "--out", section="Output", type=click.Path(path_type=Path, file_okay=False), default=Path("collected"),
    help="Directory that gets a directory for each host.",
)  # fmt: skip
@dry_run_option
@json_option
def collect(inventory: Path, only: tuple[str, ...], out: Path, dry_run: bool, as_json: bool) -> None:
    """Fetch logs and the directories of runs from the hosts.

    Every file is checked by its SHA-256. If a transfer is cut, the next call goes on where it ended.
    """
    from infra.remote import collection
    from perftest.remote import steps

    specs = _specs(inventory, only)
    if dry_run:
        show_steps((spec, step) for spec in specs for step in steps.of_collect(spec))
        return
    done, errors = on_reachable(specs, lambda each: collection.collect(each, out / each.host.name))
    rows = {name: {"files": each.files, "fetched_octets": each.octets} for name, each in done.items()}
    lines = {
        name: f"{each.files} files, {each.octets / 1e6:,.1f} MB fetched into {out / name}"
        for name, each in done.items()
    }
    _tell(rows, lines, as_json)
    _refuse(errors)


def _specs(inventory: Path, only: Sequence[str]) -> tuple[HostSpec, ...]:
    from perftest.spec.hosts import load_hosts

    return chosen(load_hosts(inventory), only)


def _tell(rows: Mapping[str, Mapping[str, Any]], lines: Mapping[str, str], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([{"host": name, **row} for name, row in rows.items()], ensure_ascii=False))
        return
    width = max(map(len, lines), default=0)
    for name, line in lines.items():
        click.echo(f"{name:<{width}}  {line}")


def _refuse(errors: Sequence[RemoteError]) -> None:
    if errors:
        raise HostsError(errors)


def _sent(octets: int) -> str:
    return f"{octets / 1e6:,.1f} MB sent" if octets else "nothing to send"


def _ended(pids: Sequence[int]) -> str:
    return f"ended {', '.join(f'pid {pid}' for pid in pids)}" if pids else "nothing ran"


def _row(process: Any) -> dict[str, Any]:
    return {"pid": process.pid, "name": process.name, "command": list(process.command)}


COMMANDS = (up, down, logs, collect)
