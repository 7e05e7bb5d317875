"""``perftest doctor``: how well this machine can measure."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perftest.cli.sections import DURATION, SectionedCommand, json_option, option, options
from perftest.exits import CliError, Exit, explained
from perftest.options.targets import split_uris

if TYPE_CHECKING:
    from perftest.doctor.check import DoctorCheck

MARKS = {"pass": "ok  ", "warn": "WARN", "fail": "FAIL"}


# fmt: off
_doctor_options = options(
    option("-h", "--uri", "uri", section="Target", metavar="URI",
           help="AMQP URI of a broker: measure its login and its round trip."),
    option("-H", "--uris", "uris", section="Target", metavar="URIS",
           help="AMQP URIs of several brokers, separated by commas."),
    option("--dir", "directories", section="Target", multiple=True,
           type=click.Path(path_type=Path, file_okay=False, exists=True),
           help="Measure the drive of this directory. Repeatable.  [default: the current directory]"),
    option("--time", "seconds", section="Timing", type=DURATION, default="2s",
           help="Length of each check that takes time (processors, ceiling)."),
    option("--ceiling/--no-ceiling", section="Measurement", default=True,
           help="Run the load generator against a local node, to measure its CPU time per message."),
)
# fmt: on


@click.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.UNTRUSTED),
    examples=(
        "perftest doctor                                     check this machine and the load generator on it",
        "perftest doctor --dir /var/lib --dir /tmp           also measure the drives of these directories",
        "perftest doctor -h amqp://rabbit1 --no-ceiling      measure the round trip to a broker",
    ),
)
@_doctor_options
@json_option
@click.pass_context
def doctor(
    ctx: click.Context,
    /,
    uri: str | None,
    uris: str | None,
    directories: tuple[Path, ...],
    seconds: float,
    ceiling: bool,
    as_json: bool,
) -> None:
    """Check how well this machine can measure: clock, processors, drives, network, and the load generator's own limit.

    The exit code is 5 if no result from this machine can be trusted. Warnings alone end with 0.
    """
    from perftest.doctor.check import worst

    found = []
    for check in _checks(split_uris(uri, uris), directories or (Path(),), seconds, ceiling=ceiling):
        found.append(check)
        if not as_json:
            click.echo(f"{MARKS[check.status]}  {check.name}: {check.text}")
    if as_json:
        click.echo(json.dumps([check.to_json() for check in found], ensure_ascii=False, indent=1))
    ctx.exit(int(Exit.UNTRUSTED if worst(found) == "fail" else Exit.OK))


def _checks(
    uris: tuple[str, ...], directories: tuple[Path, ...], seconds: float, *, ceiling: bool
) -> Iterator[DoctorCheck]:
    """Make the checks, and yield each as soon as its result is known."""
    from perftest.doctor import drive, host, network

    yield host.clock()
    yield host.timers()
    yield host.processors(seconds)
    yield host.descriptors()
    for directory in directories:
        with explained("the drive cannot be measured", directory, "make room, or give a directory that can be written"):
            found = drive.drive(directory)
        yield found
    yield network.loopback()
    for each in uris:
        yield _way_to(each)
    if ceiling:
        yield from _ceilings(seconds)


def _way_to(text: str) -> DoctorCheck:
    from perftest.amqp.errors import AmqpError
    from perftest.amqp.uri import UriError, parse_uri
    from perftest.doctor.network import broker
    from perftest.engine.workers.failures import explain

    try:
        uri = parse_uri(text)
        return asyncio.run(broker(uri))
    except UriError as error:
        raise CliError(str(error), "-h/--uri", "write amqp://user:password@host:port/vhost", Exit.USAGE) from error
    except AmqpError as error:
        why = explain(error, uri.redacted)
        raise CliError(why.what, why.where, why.fix) from error


def _ceilings(seconds: float) -> Iterator[DoctorCheck]:
    """Measure the load generator against one node of the bundled broker on this machine."""
    from infra import local_cluster
    from perftest.doctor.ceiling import ceilings
    from perftest.spec.plan import QueueType

    with (
        tempfile.TemporaryDirectory(prefix="perftest-doctor-") as place,
        local_cluster.temporary(Path(place), nodes=1) as cluster,
    ):
        yield from ceilings(cluster.uris[0], seconds, QueueType.QUORUM)
