"""``perftest remote exec``: one command on all hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from perftest.cli.exits import Exit
from perftest.cli.remote.inventory import (
    all_done,
    chosen,
    close_all,
    connect_all,
    hosts_argument,
    on_all,
    only_option,
)
from perftest.cli.sections import SectionedCommand, json_option, option


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
@option("--dry-run", section="Measurement", is_flag=True, help="Show the command line of each host, and run nothing.")
@json_option
@click.pass_context
def exec_(
    ctx: click.Context, inventory: Path, command: tuple[str, ...], only: tuple[str, ...], dry_run: bool, as_json: bool
) -> None:
    """Run a command on every host, and show what each of them says.

    Every word reaches the program as it is: no shell reads it. Exit code 1 tells that the command failed somewhere.
    """
    from infra.remote.host import command_line
    from perftest.spec.hosts import load_hosts

    specs = chosen(load_hosts(inventory), only)
    if dry_run:
        for spec in specs:
            click.echo(f"{spec.name}  {command_line(command)}")
        return
    connections = connect_all(specs)
    try:
        done = all_done(on_all(connections, lambda each: each.run(command, timeout_s=600.0, check=False)))
    finally:
        close_all(connections)
    if as_json:
        rows: list[dict[str, Any]] = [
            {"host": name, "status": found.status, "stdout": found.stdout.decode(errors="replace"),
             "stderr": found.stderr.decode(errors="replace")}
            for name, found in done.items()
        ]  # fmt: skip
        click.echo(json.dumps(rows, indent=1, ensure_ascii=False))
    else:
        for name, found in done.items():
            for line in (found.stdout + found.stderr).decode(errors="replace").splitlines():
                click.echo(f"{name}  {line}")
            if found.status:
                click.echo(f"{name}  ended with status {found.status}")
    ctx.exit(Exit.RUN_ERROR if any(found.status for found in done.values()) else Exit.OK)


COMMANDS = (exec_,)
