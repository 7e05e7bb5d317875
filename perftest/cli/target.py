"""Options that several commands share: which broker is measured, and where results go."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import click

from perftest.cli.exits import CliError, Exit
from perftest.cli.sections import option, options
from perftest.cli.ui import UI_NAMES
from perftest.spec.cluster import Product

# fmt: off
target_options = options(
    option("-h", "--uri", section="Target", default=None, metavar="URI",
           help="AMQP URI of the broker. Without a URI, a local three-node cluster is started for this command."),
    option("-H", "--uris", section="Target", default=None, metavar="URIS",
           help="AMQP URIs of several brokers, separated by commas."),
    option("--cluster", section="Target", type=click.Path(path_type=Path, file_okay=False), default=None,
           help="Measure the local cluster that `perftest broker start` keeps in DIRECTORY."),
)
"""``-h``, ``-H`` and ``--cluster``."""
out_options = options(
    option("--out", section="Output", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"),
           help="Directory in which the run directory is created."),
    option("--ui", section="Output", type=click.Choice(UI_NAMES), default="auto",
           help="How progress is shown: live screen, line per interval, plain lines of PerfTest, JSON lines, or none."),
)
"""``--out`` and ``--ui``."""
# fmt: on


def only_one_target(uris: tuple[str, ...], cluster: Path | None) -> None:
    """Refuse ``--cluster`` together with a URI: only one of them would be measured, perhaps not the expected one."""
    if uris and cluster is not None:
        what = "both a cluster and a URI are named"
        raise CliError(what, "--cluster, -h/--uri, -H/--uris", "name one of them", Exit.USAGE)


def typed_again(uris: tuple[str, ...], cluster: Path | None) -> list[str]:
    """The words that name this target in a command to copy. A cluster that was started for the run has no such words.

    Passwords are not shown. User and password are left out where they are ``guest``, the default of a URI.
    """
    from perftest.results.provenance import redact

    if cluster is not None:
        return ["--cluster", str(cluster)]
    shown = ",".join(redact(uri.replace("://guest:guest@", "://", 1)) for uri in uris)
    return ["-h", shown] if shown else []


def metrics_in_vain(product: Product) -> str:
    """Why addresses of the broker's metrics have no effect beside a broker that is started for the command."""
    if product is Product.RABBITMQ:
        return "--broker-metrics has no effect: the RabbitMQ that is started for this command listens for clients only"
    return "--broker-metrics has no effect without -h or -H: the local cluster's figures are there anyway"


def split_uris(uri: str | None, uris: str | None) -> tuple[str, ...]:
    """The URIs of ``-h`` and ``-H`` together, in order. Raises CliError for the first URI that cannot be used."""
    parts, unusable = checked_uris(uri, uris)
    for error in unusable:
        raise error
    return parts


def unused_parameters(uris: Iterable[str]) -> list[str]:
    """The query parameters of URIs that have no effect. A URI that cannot be used has none."""
    from perftest.amqp.uri import UriError, parse_uri

    found: set[str] = set()
    for each in uris:
        with suppress(UriError):
            found.update(parse_uri(each).unused)
    return sorted(found)


def checked_uris(uri: str | None, uris: str | None) -> tuple[tuple[str, ...], list[CliError]]:
    """The URIs of ``-h`` and ``-H`` together, and an error for each URI that cannot be used."""
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
