"""Options and output that the commands on hosts share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from perftest.cli.sections import option
from perftest.spec.hosts import HostSpec

hosts_argument = click.argument("inventory", metavar="HOSTS.yaml", type=click.Path(path_type=Path, dir_okay=False))
only_option = option(
    "--host", "only", section="Target", metavar="NAME", multiple=True, help="Only this host. Repeatable."
)

dry_run_option = option(
    "--dry-run", section="Measurement", is_flag=True, help="Show what is run on each host; run nothing."
)


def show_steps(steps: Iterable[tuple[HostSpec, str]]) -> None:
    """Print the steps of hosts, a line each."""
    for spec, step in steps:
        click.echo(f"{spec.name}  {step}")
