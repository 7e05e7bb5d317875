"""Everything that was set up in a cluster, as one file: export-definitions, import-definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from perftest.cli.broker.common import change, command, say

_PARTS = ("users", "vhosts", "permissions", "topic_permissions", "policies", "exchanges", "queues", "bindings")


@command("export-definitions", arguments=("setup.json", "-"))
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
def export_definitions(file: Path, directory: Path, as_json: bool) -> None:
    """Write users, virtual hosts, permissions, policies, exchanges, queues and bindings to a file.

    FILE is JSON in RabbitMQ's format, with hashes of passwords; - is the standard output. Messages are not in it.
    """
    found: dict[str, Any] = change(directory, op="definitions")["definitions"]
    text = json.dumps(found, indent=2) + "\n"
    if str(file) == "-":
        click.echo(text, nl=False)
        return
    file.write_text(text, encoding="utf-8")
    counts = {part: len(found[part]) for part in _PARTS}
    say(f"{file} has {_told(counts)}", {"file": str(file), **counts}, as_json)


@command("import-definitions", arguments=("setup.json", "rabbitmq-definitions.json"))
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
def import_definitions(file: Path, directory: Path, as_json: bool) -> None:
    """Add what a file of definitions has, from this cluster or from a RabbitMQ.

    Everything that is wrong with FILE is told, and then nothing is imported. What the cluster has already stays. What a
    RabbitMQ has and nothing here could do is left out, and told.
    """
    try:
        given = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise click.BadParameter(f"{file} cannot be read: {error.strerror}", param_hint="FILE") from error
    except ValueError as error:
        raise click.BadParameter(f"{file} is not JSON: {error}", param_hint="FILE") from error
    if not isinstance(given, dict):
        raise click.BadParameter(f"{file} holds no JSON object", param_hint="FILE")
    answer = change(directory, op="import-definitions", definitions=given)
    counts = {part: len(given.get(part, [])) for part in _PARTS}
    ignored = [
        f"{row['row']}: {row['key']} has no effect: {row['why']}" if "key" in row else f"{row['row']}: {row['why']}"
        for row in answer.get("ignored", ())
    ]
    say("\n".join([f"imported {_told(counts)}", *ignored]), {"imported": counts, **answer}, as_json)


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {part.replace('_', ' ')}" for part, count in counts.items() if count) or "nothing"


COMMANDS = (export_definitions, import_definitions)
