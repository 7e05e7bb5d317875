"""``perftest workload``: list, show and check workload files, and import those of other tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perftest.cli.sections import SectionedCommand, SummaryGroup, json_option, option
from perftest.cli.ui.completion import workload_names
from perftest.cli.workloads.workload_import import import_
from perftest.exits import Exit
from perftest.measuring.workload_file import find

if TYPE_CHECKING:
    from perftest.spec.models import Sweep


@click.group(cls=SummaryGroup, context_settings={"help_option_names": ["--help", "-?"]})
def workload() -> None:
    """List, show, check and import workload files."""


workload.add_command(import_)


@workload.command(
    "list",
    cls=SectionedCommand,
    examples=(
        "perftest workload list",
        "perftest workload list --json",
        "perftest sweep flow_control/in_flight --dry-run   show the steps of a workload",
    ),
)
@json_option
def list_(as_json: bool) -> None:
    """List the bundled workloads."""
    import workloads
    from perftest.cli.ui.table import print_table
    from perftest.spec.load import load_workload
    from perftest.spec.sweep import settings_swept

    rows = []
    for name in workloads.names():
        loaded, _ = load_workload(workloads.path_of(name))
        sweep = loaded.sweep
        rows.append(
            {
                "name": name,
                "swept": " x ".join(settings_swept(sweep)),
                "values": values_of(sweep) if sweep else [],
                "mode": str(sweep.mode) if sweep else "",
                "title": loaded.title,
            }
        )
    print_table(rows, as_json=as_json)


@workload.command(
    cls=SectionedCommand,
    examples=(
        "perftest workload show flow_control/in_flight",
        "perftest workload show flow_control/in_flight > mine.yaml   begin a workload of your own",
        "perftest workload show mine.yaml --json                     show all keys with their defaults",
    ),
)
@click.argument("name", metavar="WORKLOAD", shell_complete=workload_names)
@json_option
def show(name: str, as_json: bool) -> None:
    """Show a workload file; with --json, all of its keys and their defaults."""
    from perftest.spec.load import load_workload

    path = find(name)
    loaded, _ = load_workload(path)
    if as_json:
        click.echo(json.dumps(loaded.model_dump(mode="json", by_alias=True), indent=1, ensure_ascii=False))
    else:
        click.echo(path.read_text(encoding="utf-8"), nl=False)


@workload.command(
    cls=SectionedCommand,
    examples=(
        "perftest workload validate mine.yaml",
        "perftest workload validate mine.yaml --set load.prefetch=10",
        "perftest workload validate workloads/*/*.yaml --json",
    ),
)
@click.argument("names", metavar="WORKLOAD...", nargs=-1, required=True, shell_complete=workload_names)
@option(
    "--set",
    "overrides",
    section="Load",
    metavar="PATH=VALUE",
    multiple=True,
    help="Change a key before the check, such as load.prefetch=10. Repeatable.",
)
@json_option
@click.pass_context
def validate(ctx: click.Context, names: tuple[str, ...], overrides: tuple[str, ...], as_json: bool) -> None:
    """Check workload files, and show all problems at once, each with its line and its fix."""
    found = {name: _problems(find(name), overrides) for name in names}
    if as_json:
        plain = [{"workload": name, "problems": [item.to_json() for item in items]} for name, items in found.items()]
        click.echo(json.dumps(plain, indent=1, ensure_ascii=False))
    for name, items in found.items():
        for item in items:
            click.echo(item.lines(), err=True)
        if not items and not as_json:
            click.echo(f"{name}: ok")
    if any(found.values()):
        ctx.exit(Exit.USAGE)


def values_of(sweep: Sweep) -> list[object]:
    """The values of the setting that is swept, or the number of steps if several settings change."""
    from perftest.spec.sweep import points

    return list(sweep.values) or [f"{len(points(sweep))} steps"]


def _problems(path: Path, overrides: tuple[str, ...]) -> list[Any]:
    from perftest.spec.check import check
    from perftest.spec.load import load_workload
    from perftest.spec.problem import SpecError

    try:
        return list(check(*load_workload(path, overrides)))
    except SpecError as error:
        return error.problems
