"""``perftest remote``: the same workload on many hosts, over SSH."""

from __future__ import annotations

import click

from perftest.cli.remote import check, example, execute, run, supply
from perftest.cli.sections import SummaryGroup


@click.group(cls=SummaryGroup, context_settings={"help_option_names": ["--help", "-?"]})
def remote() -> None:
    """Run a workload on many hosts over SSH, as one run with one result."""


for _module in (example, check, run, supply, execute):
    for _command in _module.COMMANDS:
        remote.add_command(_command)
