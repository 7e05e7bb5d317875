"""What the commands of a cluster share: how they are declared, the cluster's directory, and asking it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perftest.cli.exits import Exit
from perftest.cli.sections import SectionedCommand, json_option, option

if TYPE_CHECKING:
    from infra.local_cluster import Cluster


def command(name: str, *examples: str) -> Callable[[Any], click.Command]:
    """A command with ``--dir`` and ``--json`` that ends with 1 when the cluster refuses or does not answer."""

    def decorate(function: Any) -> click.Command:
        declare = click.command(name, cls=SectionedCommand, exits=(Exit.RUN_ERROR,), examples=examples)
        made: click.Command = declare(_directory(json_option(function)))
        return made

    return decorate


def node_argument(*, required: bool = True) -> Callable[[Any], Any]:
    """``NODE``: a name as ``status`` shows it, or its number."""
    return click.argument("node", metavar="NODE" if required else "[NODE]", required=required)


def queue_argument(function: Any) -> Any:
    """``QUEUE``: its name."""
    return click.argument("queue", metavar="QUEUE")(function)


def load(directory: Path) -> Cluster:
    """The cluster of a directory. Raises ClusterError."""
    from infra import local_cluster

    return local_cluster.load(directory)


def change(directory: Path, **request: object) -> dict[str, Any]:
    """What the cluster answers to a request of its control port. Raises ClusterError."""
    from infra import local_cluster

    return local_cluster.change(local_cluster.load(directory), request)


def say(sentence: str, answer: Mapping[str, Any], as_json: bool) -> None:
    """The outcome of a change: a sentence, or an object for programs."""
    click.echo(json.dumps({name: value for name, value in answer.items() if name != "ok"}) if as_json else sentence)


def side_by_side(columns: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each field and a column for each node: what has many fields still fits 80 characters."""
    fields = dict.fromkeys(field for values in columns.values() for field in values)
    return [{"": field} | {node: values.get(field) for node, values in columns.items()} for field in fields]


def _directory(function: Any) -> Any:
    return option(
        "--dir",
        "directory",
        section="Target",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("runs/broker"),
        help="The cluster's directory.",
    )(function)
