"""``perftest remote exec``: one command on all hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perftest.cli.remote.host_options import hosts_argument, only_option
from perftest.cli.sections import DURATION, SectionedCommand, json_option, option
from perftest.exits import Exit
from perftest.remote.inventory import HostsError, chosen, on_reachable, printable

if TYPE_CHECKING:
    from infra.remote.ssh import SshConnection


@click.command(
    "exec",
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=(
        "perftest remote exec hosts.yaml -- uname -r",
        "perftest remote exec hosts.yaml --host load1 --host load2 -- df -h /",
        "perftest remote exec hosts.yaml --dry-run -- rm -r .perftest",
    ),
)
@hosts_argument
@click.argument("command", metavar="-- COMMAND...", nargs=-1, required=True)
@only_option
@option("--timeout", section="Timing", type=DURATION, default="10m", help="Give up a command that takes longer.")
@option("--dry-run", section="Measurement", is_flag=True, help="Show the command line of each host, and run nothing.")
@json_option
@click.pass_context
def exec_(
    ctx: click.Context,
    inventory: Path,
    command: tuple[str, ...],
    only: tuple[str, ...],
    timeout: float,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run a command on every host, and show what each of them says, line by line as it comes.

    Every word reaches the program as it is: no shell reads it. A host that cannot be reached is told at the end. Exit
    code 1 tells that the command failed somewhere, or did not run there.
    """
    from infra.remote.host import command_line
    from perftest.spec.hosts import load_hosts

    specs = chosen(load_hosts(inventory), only)
    if dry_run:
        for spec in specs:
            click.echo(f"{spec.name}  {command_line(command)}")
        return
    told: dict[str, list[str]] = {spec.name: [] for spec in specs}

    def run(connection: SshConnection) -> int:
        name = connection.host.name

        def tell(line: bytes) -> None:
            told[name].append(line.decode(errors="replace"))
            if not as_json:
                click.echo(f"{name}  {printable(told[name][-1])}")

        return connection.stream(command, tell, timeout_s=timeout)

    done, errors = on_reachable(specs, run)
    if as_json:
        rows = [{"host": name, "status": status, "output": told[name]} for name, status in done.items()]
        click.echo(json.dumps(rows, indent=1, ensure_ascii=False))
    for name, status in done.items() if not as_json else ():
        if status:
            click.echo(f"{name}  ended with status {status}")
    if errors:
        raise HostsError(errors)
    ctx.exit(Exit.RUN_ERROR if any(done.values()) else Exit.OK)


COMMANDS = (exec_,)
