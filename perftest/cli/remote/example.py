"""``perftest remote example``: an inventory to begin with."""

from __future__ import annotations

import json
from importlib import resources
from typing import Final

import click

from perftest.cli.sections import SectionedCommand, option

FILE: Final = "hosts.example.yaml"


@click.command(
    "example",
    cls=SectionedCommand,
    examples=(
        "perftest remote example > hosts.yaml",
        "perftest remote example --schema > hosts.schema.json",
        "perftest remote check hosts.yaml   is what comes next",
    ),
)
@option("--schema", section="Output", is_flag=True, help="Print the JSON schema of inventories instead, for editors.")
def example(schema: bool) -> None:
    """Print an inventory to begin with, or the schema of inventories."""
    if schema:
        from perftest.spec.hosts import json_schema

        click.echo(json.dumps(json_schema(), indent=2))
        return
    click.echo(resources.files("perftest.spec").joinpath(FILE).read_text(encoding="utf-8"), nl=False)


COMMANDS = (example,)
