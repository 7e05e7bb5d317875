"""Parts that the broker commands share: their declaration, their arguments, and requests to the cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perftest.cli.sections import SectionedCommand, json_option, option
from perftest.exits import Exit

if TYPE_CHECKING:
    from infra.local_cluster import Cluster


def command(
    name: str, *examples: str, arguments: Sequence[str] = ("",), exits: Sequence[Exit] = (Exit.RUN_ERROR,)
) -> Callable[[Any], click.Command]:
    """Declare a command with ``--dir`` and ``--json``, which ends with 1 if the cluster refuses or does not answer.

    Without ``examples`` of its own, a command shows these two options with the ``arguments``, in one or two spellings.
    """
    first, other = (f"perftest broker {name} {each}".rstrip() for each in (arguments[0], arguments[-1]))
    examples = examples or (first, f"{other} --json", f"{first} --dir /mnt/fast/broker")

    def decorate(function: Any) -> click.Command:
        declare = click.command(name, cls=SectionedCommand, exits=exits, examples=examples)
        made: click.Command = declare(_directory(json_option(function)))
        return made

    return decorate


def node_argument(*, required: bool = True) -> Callable[[Any], Any]:
    """Declare the argument ``NODE``: the name of a node as ``status`` shows it, or its number."""
    return click.argument("node", metavar="NODE" if required else "[NODE]", required=required)


def queue_argument(function: Any) -> Any:
    """Declare the argument ``QUEUE``: the name of a queue."""
    return click.argument("queue", metavar="QUEUE")(function)


def vhost_option(function: Any) -> Any:
    """Declare the option ``--vhost``."""
    return option("--vhost", section="Target", default="/", help="Virtual host to look in.")(function)


def load(directory: Path) -> Cluster:
    """The cluster of a directory. Raises ClusterError."""
    from infra import local_cluster

    return local_cluster.load(directory)


def change(directory: Path, **request: object) -> dict[str, Any]:
    """The cluster's answer to a request of its control port. Raises ClusterError."""
    from infra import local_cluster

    return local_cluster.change(local_cluster.load(directory), request)


def say(sentence: str, answer: Mapping[str, Any], as_json: bool) -> None:
    """Print the outcome of a change: a sentence, or a JSON object for programs. If the cluster found nothing to change,
    the sentence is the cluster's (``told``)."""
    shown = {name: value for name, value in answer.items() if name != "ok"}
    click.echo(json.dumps(shown) if as_json else answer.get("told", sentence))


def side_by_side(columns: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each field and a column for each node, so that a table with many fields fits 80 characters."""
    fields = dict.fromkeys(field for values in columns.values() for field in values)
    return [{"": field} | {node: values.get(field) for node, values in columns.items()} for field in fields]


def _directory(function: Any) -> Any:
    return option(
        "--dir",
        "directory",
        section="Target",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("runs/broker"),
        help="Directory of the cluster.",
    )(function)
