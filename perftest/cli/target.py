"""The options ``run`` and ``sweep`` share: which broker, where results go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perftest.cli.exits import CliError, Exit
from perftest.cli.sections import option
from perftest.cli.ui.names import UI_NAMES


def target_options(function: Any) -> Any:
    """``-h``, ``-H`` and ``--cluster``."""
    for decorate in (
        option(
            "--cluster",
            section="Target",
            type=click.Path(path_type=Path, file_okay=False),
            default=None,
            help="The local cluster that `perftest broker start` keeps in this directory.",
        ),
        option("-H", "--uris", section="Target", default=None, metavar="URIS", help="Several URIs, with commas."),
        option(
            "-h",
            "--uri",
            section="Target",
            default=None,
            help="AMQP URI of the broker. Without any: a local cluster for this run.",
        ),
    ):
        function = decorate(function)
    return function


def out_options(function: Any) -> Any:
    """``--out`` and ``--ui``."""
    for decorate in (
        option(
            "--ui",
            section="Output",
            type=click.Choice(UI_NAMES),
            default="auto",
            help="Progress: a live screen, a line per interval, JSON lines on stdout, or none.",
        ),
        option(
            "--out",
            section="Output",
            type=click.Path(path_type=Path, file_okay=False),
            default=Path("runs"),
            help="Where run directories are made.",
        ),
    ):
        function = decorate(function)
    return function


def only_one_target(uris: tuple[str, ...], cluster: Path | None) -> None:
    """Refuse ``--cluster`` beside a URI: one of the two would be measured, and not the one somebody expects."""
    if uris and cluster is not None:
        what = "both a cluster and a URI are named"
        raise CliError(what, "--cluster, -h/--uri, -H/--uris", "name one of them", Exit.USAGE)


def typed_again(uris: tuple[str, ...], cluster: Path | None) -> list[str]:
    """The words that name this target in a command to copy; none for a cluster of the run's own. Passwords are not
    shown, and user and password not at all where they are those that a URI has without any."""
    from perftest.results.provenance import redact

    if cluster is not None:
        return ["--cluster", str(cluster)]
    shown = ",".join(redact(uri.replace("://guest:guest@", "://", 1)) for uri in uris)
    return ["-h", shown] if shown else []


def split_uris(uri: str | None, uris: str | None) -> tuple[str, ...]:
    """The URIs of ``-h`` and ``-H`` together, in order. Raises CliError for the first that cannot be used, before
    anything is started for it."""
    parts, unusable = checked_uris(uri, uris)
    for error in unusable:
        raise error
    return parts


def checked_uris(uri: str | None, uris: str | None) -> tuple[tuple[str, ...], list[CliError]]:
    """The same, and what is wrong with those that cannot be used."""
    from perftest.amqp.uri import UriError, parse_uri

    parts = tuple(part.strip() for text in (uri, uris) if text for part in text.split(","))
    unusable: list[CliError] = []
    for number, part in enumerate(parts, start=1):
        try:
            parse_uri(part)
        except UriError as error:
            where = "-h/--uri, -H/--uris" + (f", URI {number}" if len(parts) > 1 else "")
            fix = "write amqp://user:password@host:5672/vhost, with %40 for an @ and %2f for a / in its parts"
            unusable.append(CliError(f"not a usable AMQP URI: {error}", where, fix, Exit.USAGE))
    return parts, unusable
