"""``perftest broker``: a reference cluster on this machine that keeps running after the command."""

from __future__ import annotations

import click

from perftest.cli.broker import (
    access,
    cleaning,
    definitions,
    drives,
    hosts,
    members,
    policies,
    processes,
    recover,
    state,
)
from perftest.cli.sections import SummaryGroup


@click.group(cls=SummaryGroup, context_settings={"help_option_names": ["--help", "-?"]})
def broker() -> None:
    """Start, inspect, break and stop a local cluster of the bundled broker."""


for _group in (processes, hosts, state, members, policies, access, definitions, drives, recover, cleaning):
    for _command in _group.COMMANDS:
        broker.add_command(_command)
