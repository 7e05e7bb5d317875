"""Undoes the remains of a crashed command on this machine: clean."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from perftest.cli.sections import SectionedCommand, json_option, option
from perftest.exits import Exit


@click.command(
    "clean",
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=("perftest broker clean", "perftest broker clean /mnt/fast/runs", "perftest broker clean --kept --json"),
)
@click.argument("root", metavar="[DIR]", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"))
@option(
    "--kept",
    section="Target",
    is_flag=True,
    help="Undo also what stays on purpose after its command, for example the drives of a cluster that keeps running.",
)
@json_option
@click.pass_context
def clean(ctx: click.Context, root: Path, kept: bool, as_json: bool) -> None:
    """Undo what crashed commands left: processes, filled drives, mounts, loop devices, temporary directories.

    A command writes down what it is about to start, mount, fill or make, in DIR/.undo (default: runs) or in a directory
    below. Only what is written there is undone, and only after a check that it is that very thing. What a running
    command uses is left alone. The exit code is 1 if something could not be undone.
    """
    from infra import cleaning

    done = cleaning.clean(root, kept=kept)
    if as_json:
        click.echo(json.dumps([asdict(each) for each in done]))
    else:
        for each in done:
            click.echo(f"{each.outcome}: {each.kind} {each.name}: {each.text}")
            if each.fix:
                click.echo(f"  fix  {each.fix}")
        if not done:
            click.echo(f"nothing to undo below {root}")
    if any(each.outcome is cleaning.CleanupOutcome.FAILED for each in done):
        ctx.exit(Exit.RUN_ERROR)


COMMANDS = (clean,)
