"""``perftest broker``: a reference cluster on this machine that outlives the command."""

from __future__ import annotations

import click

from perftest.cli.broker import members, policies, processes, watching


@click.group(context_settings={"help_option_names": ["--help", "-?"]})
def broker() -> None:
    """Start, ask, hurt and stop a reference cluster on this machine."""


for _group in (processes, watching, members, policies):
    for _command in _group.COMMANDS:
        broker.add_command(_command)
