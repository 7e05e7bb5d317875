"""``perftest remote check``: what every host is, and what is missing there."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from infra.remote.host import RemoteError
from perftest.cli.remote.host_options import dry_run_option, hosts_argument, only_option, show_steps
from perftest.cli.sections import SectionedCommand, json_option, option
from perftest.exits import Exit
from perftest.options.targets import split_uris
from perftest.remote.inventory import chosen, close_all, on_all, reached

if TYPE_CHECKING:
    from infra.remote.findings import HostFinding
    from infra.remote.probe import ProbeRequest
    from perftest.spec.hosts import HostSpec

COLUMNS: Final = 5
"""Number of hosts that stand side by side; more hosts make further tables."""
REACH_S: Final = 3.0


@click.command(
    "check",
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=(
        "perftest remote check hosts.yaml",
        "perftest remote check hosts.yaml -H amqp://rabbit1,amqp://rabbit2   which host reaches which broker",
        "perftest remote check hosts.yaml --host load1 --json",
    ),
)
@hosts_argument
@only_option
@option("-h", "--uri", section="Target", default=None, metavar="URI", help="Broker that the load hosts must reach.")
@option("-H", "--uris", section="Target", default=None, metavar="URIS", help="Several of them, separated by commas.")
@dry_run_option
@json_option
@click.pass_context
def check(
    ctx: click.Context,
    inventory: Path,
    only: tuple[str, ...],
    uri: str | None,
    uris: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Tell what every host is, and what is missing there, without changing anything.

    Exit code 1 tells that a host cannot take part.
    """
    from infra.remote.bundle import project_version
    from infra.remote.findings import Severity, findings
    from perftest.spec.hosts import load_hosts

    specs = chosen(load_hosts(inventory), only)
    if dry_run:
        from perftest.remote import steps

        show_steps((spec, step) for spec in specs for step in steps.of_check(spec))
        return
    version = project_version()
    facts, errors = _facts(specs, _brokers(split_uris(uri, uris)))
    found = findings(facts, version) if facts else []
    if as_json:
        click.echo(_as_json(facts, found, errors))
    else:
        _show(specs, facts, found, errors, version)
    bad = errors or any(each.severity is Severity.ERROR for each in found)
    ctx.exit(Exit.RUN_ERROR if bad else Exit.OK)


def _brokers(uris: Sequence[str]) -> list[tuple[str, int]]:
    from perftest.amqp.uri import parse_uri

    return [(parsed.host, parsed.port) for parsed in map(parse_uri, uris)]


def _facts(
    specs: Sequence[HostSpec], brokers: list[tuple[str, int]]
) -> tuple[dict[str, dict[str, Any]], list[RemoteError]]:
    """The findings of the probes of reachable hosts, and the errors of the others."""
    from infra.remote import processes
    from infra.remote.probe import probe
    from infra.remote.ssh import SshConnection, connect

    connections, unreachable = on_all({spec.name: spec for spec in specs}, lambda spec: connect(reached(spec)))
    asked = {spec.name: _asked(spec, specs, brokers) for spec in specs}

    def look(connection: SshConnection) -> dict[str, Any]:
        told = asked[connection.host.name]
        found = probe(connection, told)
        running = [each.name or _module(each.command) for each in processes.running(connection)]
        here = _cut_off(told.address, told.ports["control"]) if told.ports and not brokers else ""
        return found | {"address": told.address, "running": running, "cut_off_here": here}

    try:
        facts, failed = on_all(connections, look)
    finally:
        close_all(connections)
    return facts, [*unreachable, *failed]


def _cut_off(address: str, port: int) -> str:
    """Why this machine does not reach a port; empty if it does, or if nothing listens there yet."""
    try:
        socket.create_connection((address, port), timeout=REACH_S).close()
    except ConnectionRefusedError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _module(command: Sequence[str]) -> str:
    """The program of a process, for people."""
    return command[command.index("-m") + 1] if "-m" in command[:-1] else " ".join(command)[:60]


def _asked(spec: HostSpec, specs: Sequence[HostSpec], brokers: list[tuple[str, int]]) -> ProbeRequest:
    """Without the URI of a broker, the hosts with the role broker are a cluster: load hosts need the AMQP port of each
    of them, and they need each other's."""
    from infra.remote.probe import ProbeRequest

    nodes = [each for each in specs if each.is_broker and each.name != spec.name and not brokers]
    others = [(each.traffic_address, each.ports["amqp"]) for each in nodes if spec.is_load]
    others += [(each.traffic_address, each.ports["peer"]) for each in nodes if spec.is_broker]
    return ProbeRequest(
        directory=spec.directory,
        storage=spec.storage if spec.is_broker else {},
        address=spec.traffic_address,
        ports=spec.ports if spec.is_broker else {},
        reach=brokers if spec.is_load else [],
        others=others,
    )


# Showing


def _show(
    specs: Sequence[HostSpec],
    facts: Mapping[str, Mapping[str, Any]],
    found: Sequence[HostFinding],
    errors: Sequence[Any],
    version: str,
) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    names = list(facts)
    roles = {spec.name: ", ".join(sorted(spec.roles)) for spec in specs}
    for begin in range(0, len(names), COLUMNS):
        some = names[begin : begin + COLUMNS]
        table = Table(box=None, pad_edge=False)
        table.add_column("")
        for name in some:
            table.add_column(name, overflow="fold")
        for label, row in _rows(roles, facts, version):
            table.add_row(label, *(row(name) for name in some))
        console.print(table)
        console.print()
    for error in errors:
        click.echo(error.lines())
    for each in found:
        click.echo(f"{each.severity}: {each.what}\n  at   host {each.host}\n  fix  {each.fix}")
    good = len(names) - len({each.host for each in found if each.severity == "error"})
    click.echo(f"{good} of {len(specs)} hosts can take part")


def _rows(roles: Mapping[str, str], facts: Mapping[str, Mapping[str, Any]], version: str) -> list[tuple[str, Any]]:
    """The rows of the table: a label, and what stands there for a host."""
    return [
        ("roles", lambda name: roles[name]),
        ("python", lambda name: ".".join(map(str, facts[name]["python"]))),
        ("kernel", lambda name: facts[name]["kernel"]),
        ("processor", lambda name: f"{facts[name]['cpu']}, {facts[name]['cores']} cores"),
        ("memory", lambda name: f"{facts[name]['memory'] / 2**30:.1f} GiB"),
        ("load, steal", lambda name: f"{facts[name]['load1']:.2f}, {facts[name]['stolen']:.1%}"),
        ("open files", lambda name: "no limit" if facts[name]["files"] < 0 else f"{facts[name]['files']:,}"),
        ("directory", lambda name: _place(facts[name]["place"])),
        (
            "drives",
            lambda name: "\n".join(f"{role}: {_place(of)}" for role, of in facts[name]["storage"].items()) or "–",
        ),
        ("clock", lambda name: f"{facts[name]['clock_off_s']:+.3f} ± {facts[name]['clock_bound_s']:.3f} s"),
        ("clock source", lambda name: facts[name]["clocksource"] or "unknown"),
        ("network faults", lambda name: _netem(facts[name])),
        ("time service", lambda name: facts[name]["time_service"] or "none seen"),
        ("project", lambda name: _project(facts[name]["projects"], version)),
    ]


def _place(place: Mapping[str, Any]) -> str:
    return f"{place['path']}: {place['free'] / 1e9:,.1f} GB free, {place['filesystem']} on {place['mount']}"


def _project(there: Sequence[str], version: str) -> str:
    if version in there:
        return "this version"
    return f"another version: {', '.join(there)}" if there else "not there"


def _netem(facts: Mapping[str, Any]) -> str:
    return "tc with netem" if facts["tc"] and facts["netem"] else "tc without netem" if facts["tc"] else "no tc"


def _as_json(facts: Mapping[str, Any], found: Sequence[HostFinding], errors: Sequence[RemoteError]) -> str:
    rows = [
        {"host": each.host, "check": each.check, "severity": str(each.severity), "what": each.what, "fix": each.fix}
        for each in found
    ]
    failed = [{"where": error.where, "what": error.what, "fix": error.fix} for error in errors]
    return json.dumps({"hosts": facts, "findings": rows, "errors": failed}, indent=1, ensure_ascii=False)


COMMANDS = (check,)
