"""The target in a command line: the URIs of the broker to measure, or a broker to start."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perftest.exits import CliError, Exit
from perftest.spec.cluster import Product

LAYOUT_RULE: Final = "a layout is for a cluster that this command starts"
LAYOUT_FIX: Final = "leave out --layout, or leave out the broker: then a cluster with this layout is started"
FUSE: Final = "fuse"
"""Value of ``--drives`` by which modelled drives become FUSE drives."""
DRIVES_RULE: Final = "--drives is for a cluster that this command starts on a layout"
HOME_HELP: Final = (
    "RabbitMQ to start instead of the installed one: the directory of an unpacked RabbitMQ (sbin/rabbitmq-server), of "
    "any version that runs on the Erlang of the PATH."
)
HOME_RULE: Final = "--rabbitmq-home is for a RabbitMQ that this command starts"
HOME_FIX: Final = "add --broker rabbitmq, or leave out --rabbitmq-home"
BROKER_RULE: Final = "--broker is for a cluster that this command starts"
BROKER_FIX: Final = "leave out --broker, or leave out the broker that runs already"
BROKER_HELP: Final = (
    "Broker of the cluster that is started for this command: reference, or rabbitmq, which must be installed."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The broker to measure: one that runs already (``uris`` or ``cluster``), or one that is started for the command:
    ``brokers`` name the products, ``layout`` a file of drives, ``drives`` is :data:`FUSE` or None, and
    ``rabbitmq_home`` has a RabbitMQ that is not installed."""

    uris: tuple[str, ...]
    cluster: Path | None
    layout: Path | None
    brokers: tuple[str, ...] = ()
    drives: str | None = None
    rabbitmq_home: Path | None = None

    @classmethod
    def of(cls, flags: Mapping[str, Any]) -> Target:
        """The target in the values of options by their names. Raises CliError for what does not go together."""
        uris, cluster = split_uris(flags["uri"], flags["uris"]), flags["cluster"]
        only_one_target(uris, cluster)
        no_layout_beside(flags["layout"], uris, cluster)
        brokers = tuple(flags["brokers"])
        no_broker_beside(brokers[0] if brokers else None, uris, cluster, flags.get("resume"))
        if len(set(brokers)) < len(brokers):
            raise CliError("a broker is named twice", "--broker", "name each broker once", Exit.USAGE)
        named = {name: flags[name] for name in ("layout", "drives", "rabbitmq_home")}
        found = cls(uris=uris, cluster=cluster, brokers=brokers, **named)
        if found.drives and found.running:
            raise CliError(DRIVES_RULE, "--drives", "leave out --drives, or the broker that runs already", Exit.USAGE)
        return found

    @property
    def running(self) -> tuple[str, ...]:
        """The URIs and the directory of what runs already."""
        return (*self.uris, *([str(self.cluster)] if self.cluster is not None else []))


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
        return "--broker-metrics has no effect: the RabbitMQ that is started here is asked when a finding needs it"
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
            unusable.append(CliError(f"not a usable AMQP URI: {error}", where, _proposed(parts), Exit.USAGE))
    return parts, unusable


def _proposed(parts: Sequence[str]) -> str:
    """The URIs that were probably meant, with a scheme before each; or the form of a URI. Passwords are not shown."""
    from perftest.amqp.uri import UriError, parse_uri
    from perftest.results.provenance import redact

    form = "write amqp://user:password@host:5672/vhost, with %40 for an @ and %2f for a / in its parts"
    if not all(parts):
        return form
    scheme = next((each for each in ("amqps://", "amqp://") if parts[0].startswith(each)), "amqp://")
    meant = [_with_scheme(part, scheme) for part in parts]
    try:
        for each in meant:
            parse_uri(each)
    except UriError:
        return form
    return f"write {'-h' if len(meant) == 1 else '-H'} {','.join(map(redact, meant))}"


def _with_scheme(part: str, scheme: str) -> str:
    """A URI without a scheme, or with a misspelt scheme, as an AMQP URI. Another scheme has another port."""
    typed, found, rest = part.rpartition("://")
    if not found:
        return scheme + part.removeprefix("amqp:").lstrip("/")
    if typed in ("http", "https"):
        return (scheme if typed == "http" else "amqps://") + re.sub(r":\d+(?=/|$)", "", rest, count=1).rstrip("/")
    near = difflib.get_close_matches(typed.lower(), ("amqp", "amqps"), n=1)
    return f"{near[0]}://{rest}" if near else part


def no_layout_beside(layout: Path | None, uris: Sequence[str], cluster: Path | None) -> None:
    """Refuse ``--layout`` for a broker that this command does not start. Raises CliError."""
    if layout is not None and (uris or cluster is not None):
        raise CliError(LAYOUT_RULE, "--layout", LAYOUT_FIX, Exit.USAGE)


def no_home_without(products: Iterable[str], home: Path | None, *running: object) -> None:
    """Refuse ``--rabbitmq-home`` where no RabbitMQ is started. Raises CliError."""
    if home is not None and (Product.RABBITMQ not in products or any(running)):
        raise CliError(HOME_RULE, "--rabbitmq-home", HOME_FIX, Exit.USAGE)


def no_broker_beside(broker: str | None, *running: object) -> None:
    """Refuse ``--broker`` for a broker that this command does not start. Raises CliError."""
    if broker is not None and any(running):
        raise CliError(BROKER_RULE, "--broker", BROKER_FIX, Exit.USAGE)
