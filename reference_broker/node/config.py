"""The configuration of one node: its settings for a start, and all its limits.

``node.json`` (written by the cluster starter, or by hand) is read into a :class:`NodeConfig`. ``problems()`` finds all
its faults at once, so that nobody has to fix a file one error at a time.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from reference_broker.amqp.product import PRODUCT_NAMES, PRODUCTS, REFERENCE, Product
from reference_broker.log.config import LogConfig
from reference_broker.node.drive_config import DriveConfig, drive_problems, drives_of
from reference_broker.storage.executor import policy_named
from reference_broker.types import NodeId

_SMALL_MESSAGE_BYTES: Final = 64 * 1024
CLASSIC: Final = "classic"
"""The directory of classic queues below ``data_dir``, unless another is configured."""
FRAME_BYTES_MIN: Final = 4096
"""The largest frame that a node takes before it knows its peer: the hello is one frame."""


class ConfigError(Exception):
    """The configuration cannot be used. ``str()`` is three lines: what, where, what to do."""

    def __init__(self, what: str, where: str, fix: str) -> None:
        super().__init__(f"error: {what}\n  at   {where}\n  fix  {fix}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One node of the cluster, as the others see it. ``metrics_port`` 0: no metrics over HTTP.

    ``host`` is the address that the node *advertises*: where others reach its ports. ``amqp_host``, ``peer_host`` and
    ``control_host`` are advertised for one port instead. ``bind`` is the address that the node listens on, and
    ``amqp_bind``, ``peer_bind``, ``control_bind`` and ``metrics_bind`` are for one port. Without any, a node listens
    on the address that it advertises.
    """

    node: NodeId
    name: str
    host: str
    amqp_port: int
    peer_port: int
    control_port: int
    metrics_port: int = 0
    amqp_host: str = ""
    peer_host: str = ""
    control_host: str = ""
    bind: str = ""
    amqp_bind: str = ""
    peer_bind: str = ""
    control_bind: str = ""
    metrics_bind: str = ""

    def advertised(self, port: str) -> tuple[str, str]:
        """The key and the value of the address at which others reach ``port``, such as ``peer_port``."""
        return first_given(self, port.replace("port", "host"), "host")

    def bound(self, port: str) -> tuple[str, str]:
        """The key and the value of the address that the node listens on for ``port``."""
        key, value = first_given(self, port.replace("port", "bind"), "bind")
        return (key, value) if value else self.advertised(port)


def first_given(member: Member, *keys: str) -> tuple[str, str]:
    """The first of the keys whose value is not empty, with the value; the last key if all are empty."""
    key = next((key for key in keys if getattr(member, key, "")), keys[-1])
    return key, str(getattr(member, key))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits that a machine, a network or a test may have to change. Other limits are constants where they are
    used."""

    # Raft and the failure detector

    tick_ms: int = 50
    """Raft's unit of time."""
    election_ticks_min: int = 2
    election_ticks_max: int = 8
    """A follower that suspects its leader stands for election after a random number of ticks between these."""
    heartbeat_ms: int = 250
    """Period of the heartbeats to each peer."""
    suspect_after_ms: int = 2000
    """Silence after which a node gives a peer up. The socket of a killed process closes at once, so only paused and
    partitioned nodes need the time-out. On a machine that also runs the load generator a busy process may well be
    silent for half a second."""

    # Entries of the log

    batch_bytes_max: int = 512 * 1024
    """Octets of an entry. A large entry makes a round cheap per message; two entries must still fit into a window of
    1000 messages of 1 KB."""
    batch_commands_max: int = 256
    """Commands of an entry."""
    rounds_in_flight_max: int = 1
    """Entries of a queue that may await their fsync. With more, new commands gather into a larger entry."""
    entries_uncommitted_max: int = 8
    """Entries of a queue that may be on their way to a majority: a settle may have to wait behind this number of
    entries."""
    round_wait_ms: int = 20
    """Longest wait of few commands for the round of replication that is under way."""
    settle_delay_ms: int = 200
    """Longest wait of a settle that nobody waits for, until an enqueue takes it along."""
    commit_notice_delay_ms: int = 200
    """Longest wait of a follower without clients of the queue for news of a commit if no entry brings the news, and the
    longest time for which it may leave known entries unapplied."""
    spare_copy_delay_ms: int = 50
    """Longest wait of a small entry's copy that no majority needs."""

    # Clients

    publish_bytes_max: int = 32 * 1024 * 1024
    publish_commands_max: int = 4096
    """Unconfirmed octets, and unconfirmed commands (runs of publishes), with which the node stops reading from a
    connection's socket."""
    unread_bytes_max: int = 8 * 1024 * 1024
    """Unread octets of a client with which its consumers get no more deliveries until it has read: much more than a
    fast client needs, and little memory for each slow one."""
    connections_max: int = 65_536
    logins_waiting_max: int = 8192
    """Clients that may be connected, and clients that may be connected without a login yet. A client too many is turned
    away."""
    http_connections_max: int = 256
    """Connections to the port for metrics and management: enough for many browsers and scripts. They need no login, so
    they must not take the files of others. One too many is turned away."""
    http_idle_ms: int = 75_000
    """Longest time for a client of that port to send a request, to send its body, and to read some of the answer. A
    scraper that comes every minute keeps its connection."""
    transaction_bytes_max: int = 64 * 1024 * 1024
    transaction_commands_max: int = 65_536
    """Octets of messages, and runs of messages and of acknowledgements, that a channel in tx mode may keep back until
    tx.commit. With more, the channel is closed with 406."""
    credit_default: int = 2000
    """Messages that a consumer without a prefetch limit may hold, as in RabbitMQ."""
    dead_letter_retry_ms: int = 1000
    """Time after which a dead letter that no queue took is offered again (strategy at-least-once only)."""
    read_timeout_ms: int = 5000
    """Longest wait of a client that declares a queue, or deletes it on a condition, for the leader's counts. Several
    elections fit in."""
    answer_timeout_ms: int = 30_000
    """Longest wait of a client for an answer that needs other nodes. Then its connection closes with 541, as with
    RabbitMQ; the request may still be done later. Also the longest wait of a client with consumers or open publishes
    for a leader of its queue; then its connection closes with 320."""

    # Links between nodes

    peer_frame_bytes_max: int = 2 * 1024 * 1024
    """Octets of a frame. Small frames of other queues never wait longer than one such frame takes; larger messages go
    in parts. A chunk of a snapshot fits into one frame, and so do several full entries."""
    follower_bytes_max: int = 32 * 1024 * 1024
    """Octets of large messages of a queue that may be on their way to a follower and not on the follower's disk: enough
    to keep a fast link busy, and few enough to be forgotten with a slow link."""
    dial_ms: int = 1000
    """Longest wait for a connection to another node before this node dials anew: name, TCP and TLS. So a node is back a
    second after a silent cut, on a network whose round trip takes less than a third of this."""
    handshake_ms: int = 5000
    """Time in which a connection to the peer port must prove that it is a node of the cluster."""
    strangers_max: int = 64
    """Connections to the peer port without such a proof; one more, and the oldest is dropped."""

    # Drives and memory

    incomplete_ms: int = 30_000
    """Longest time for a connection to keep half a message, or a transaction, while its node is low on memory."""
    disk_free_bytes_min: int = 50 * 1024 * 1024
    memory_bytes_max: int = 4 * 1024 * 1024 * 1024
    """The fewest free octets on a drive, and the most octets of resident memory. Beyond these an alarm stops the
    publishing connections of all nodes."""
    alarm_check_ms: int = 250
    """Period of the checks for alarms. The node also checks whenever its clients have sent 1/32 of the memory."""
    wal_file_bytes: int = 64 * 1024 * 1024
    wal_files_waiting: int = 16
    """Octets of a WAL file, and the closed WAL files that wait before the oldest is copied into segments. A backlog of
    a gigabyte is not written twice, and a start reads no more than that."""
    memtable_bytes: int = 128 * 1024 * 1024
    """Octets of entries that are kept in memory."""

    # Operators

    request_timeout_ms: int = 2000
    request_bytes_max: int = 1024 * 1024
    requests_max: int = 1024
    """Longest wait for another node's answer to an operator's question, the most octets of a question, and the most
    questions that wait at a time."""
    change_timeout_ms: int = 30_000
    """Longest wait of the control port until a change of members is done: a new member may need a snapshot first."""

    @property
    def small_message_bytes(self) -> int:
        """Largest message between nodes that waits for nothing: to count it would cost more than to send it."""
        return min(_SMALL_MESSAGE_BYTES, self.peer_frame_bytes_max // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The files of a node for TLS with the other nodes and with operators: PEM. ``ca`` is the authority of all
    certificates of the cluster."""

    certificate: str
    key: str
    ca: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """The port of a node for AMQP over TLS, and its files: PEM. ``ca`` is the authority of the clients' certificates.
    ``client_certificates`` is *none*, *optional* or *required*."""

    port: int
    certificate: str
    key: str
    ca: str = ""
    client_certificates: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """One node.

    Every role has a directory of its own, which may lie on a drive of its own. The defaults are ``segments`` in
    ``data_dir`` for ``segment_dir``, ``classic`` there for ``classic_dir``, and ``data_dir`` itself for ``logs_dir``.
    With ``exit_with_stdin`` the node ends with the process that started it. ``first_life`` is the first boot id of a
    node that replaces a lost node (:mod:`reference_broker.node.hosting.replacement`), else 0. ``secret``, the content
    of ``secret_file``, proves that a peer is a node of the cluster; a node without peers needs none. With ``tls`` the
    links and the control port are encrypted. ``io`` names the I/O policy of all stores of the node: ``dedicated``, or
    ``pool:N``. ``drives`` are modelled drives, on which directories of the node lie; ``instance_octets_per_second`` is
    the bandwidth that all of them share, 0 for no such bound.

    ``client_tls`` is the port for clients with TLS; without it there is none. ``product`` is what clients are told the
    broker is (:mod:`reference_broker.amqp.product`).
    ``users`` are names and passwords of users of this node alone, who may do everything. The users of the cluster are
    in its metadata. The ``loopback_users`` log in from this machine only.
    """

    name: str
    node: NodeId
    cluster: str
    members: tuple[Member, ...]
    data_dir: Path
    wal_dir: Path
    segment_dir: Path
    logs_dir: Path
    classic_dir: Path
    users: dict[str, str] = field(default_factory=dict)
    loopback_users: tuple[str, ...] = ("guest",)
    limits: Limits = field(default_factory=Limits)
    exit_with_stdin: bool = False
    sync: bool = True
    product: Product = REFERENCE
    first_life: int = 0
    secret: bytes = field(default=b"", repr=False)
    tls: Tls | None = None
    client_tls: ClientTls | None = None
    io: str = "dedicated"
    drives: tuple[DriveConfig, ...] = ()
    instance_octets_per_second: int = 0

    @property
    def me(self) -> Member:
        """This node's own entry among the members."""
        return next(member for member in self.members if member.node == self.node)

    def role_directories(self) -> dict[str, Path]:
        """The directory of each role that a modelled drive can take."""
        return {
            "wal": self.wal_dir, "segment": self.segment_dir, "data": self.data_dir, "classic": self.classic_dir,
        }  # fmt: skip

    @property
    def is_classic_apart(self) -> bool:
        """Whether classic queues lie elsewhere than below ``data_dir``, so that their drive may be missing alone."""
        return self.classic_dir != self.data_dir / CLASSIC

    @property
    def is_classic_placed(self) -> bool:
        """Whether classic queues have a directory or a modelled drive that was chosen for them."""
        return self.is_classic_apart or any("classic" in drive.roles for drive in self.drives)

    def log_config(self) -> LogConfig:
        """The settings of the log."""
        return LogConfig(
            wal_dir=self.wal_dir,
            data_dir=self.data_dir,
            segment_dir=self.segment_dir,
            cluster=self.cluster,
            node=self.node,
            wal_file_bytes=self.limits.wal_file_bytes,
            wal_files_waiting=self.limits.wal_files_waiting,
            memtable_bytes=self.limits.memtable_bytes,
            sync=self.sync,
        )

    def watched_directories(self) -> tuple[Path, ...]:
        """The directories whose drives must not become full. All of them are there once the node has started."""
        placed = [self.classic_dir] if self.is_classic_placed else []
        return (self.data_dir, self.wal_dir, self.segment_dir, *placed)

    def problems(self) -> list[str]:
        """Everything that is wrong, each as "key: value: rule"."""
        found = []
        ids = [member.node for member in self.members]
        if len(set(ids)) != len(ids):
            found.append(f"nodes: {ids}: each node id must occur once")
        if self.node not in ids:
            found.append(f"node: {self.node}: must be one of the ids in nodes {ids}")
        if any(not 1 <= node <= 0xFFFF for node in ids):
            found.append(f"nodes: {ids}: ids run from 1 to 65535")
        if len(ids) % 2 == 0:
            found.append(f"nodes: {len(ids)}: an even number tolerates no more failures than one fewer; use 1, 3 or 5")
        if not 0 <= self.first_life < 1 << 31:
            found.append(f"first_life: {self.first_life}: must be the number that replace-node answered, or 0")
        try:
            policy_named(self.io)
        except ValueError as error:
            found.append(f"io: {self.io}: {error}")
        if self.instance_octets_per_second < 0:
            found.append(f"instance_octets_per_second: {self.instance_octets_per_second}: must be positive, or 0")
        if self.classic_dir in (self.data_dir, self.wal_dir, self.segment_dir):
            found.append(f"classic_dir: {self.classic_dir}: must differ from data_dir, wal_dir and segment_dir")
        if self.tls is not None and not self.secret:
            found.append("secret_file: is missing: TLS keeps out nobody who has a certificate of the same authority")
        if self.client_tls is not None and self.client_tls.client_certificates != "none" and not self.client_tls.ca:
            found.append("client_tls.ca: is missing: must name the authority of the clients' certificates")
        found.extend(address_problems(self))
        found.extend(limit_problems(self.limits))
        return found


def address_problems(config: NodeConfig) -> list[str]:
    """Everything that is wrong with the addresses of the nodes, each as "nodes[number].key: value: rule"."""
    found = []
    for number, member in enumerate(config.members):
        for key, value in dict(member.advertised(port) for port in ("amqp_port", "peer_port", "control_port")).items():
            if is_wildcard(value):
                found.append(
                    f"nodes[{number}].{key}: {value}: stands for every address of a machine, and nobody can connect to "
                    "that: name the address that others connect to here, and the wildcard in bind"
                )
        if member.node == config.node and not config.secret:
            key, value = member.bound("control_port")
            if not is_loopback(value):
                found.append(
                    f"secret_file: is missing: the control port would obey anybody who reaches {value} "
                    f"(nodes[{number}].{key}): name the file with the cluster's secret, or listen on 127.0.0.1"
                )
    return found


def is_wildcard(host: str) -> bool:
    """Whether an address stands for all addresses of a machine."""
    try:
        return socket.inet_aton(host) == bytes(4)
    except OSError:
        return host in ("*", "") or _is(host, "is_unspecified")


def is_loopback(host: str) -> bool:
    """Whether only programs on the same machine can reach an address."""
    return host == "localhost" or _is(host, "is_loopback")


def _is(host: str, quality: str) -> bool:
    try:
        return bool(getattr(ipaddress.ip_address(host), quality))
    except ValueError:
        return False  # a name


def limit_problems(limits: Limits) -> list[str]:
    """Everything that is wrong with limits, each as "limits.key: value: rule"."""
    found = [f"limits.{f.name}: {getattr(limits, f.name)}: must be positive" for f in fields(limits)
             if getattr(limits, f.name) <= 0]  # fmt: skip
    if limits.election_ticks_min >= limits.election_ticks_max:
        found.append(
            f"limits.election_ticks_min: {limits.election_ticks_min}: must be below election_ticks_max, "
            "or candidates split the vote for ever"
        )
    if limits.peer_frame_bytes_max < FRAME_BYTES_MIN:
        found.append(
            f"limits.peer_frame_bytes_max: {limits.peer_frame_bytes_max}: must be at least {FRAME_BYTES_MIN}: "
            "the hello of a node is one frame"
        )
    if limits.heartbeat_ms * 2 > limits.suspect_after_ms:
        found.append(f"limits.suspect_after_ms: {limits.suspect_after_ms}: must allow two heartbeats to be missed")
    return found


def load(path: Path) -> NodeConfig:
    """Read ``node.json``. Raises :class:`ConfigError` with all problems."""
    try:
        raw = json.loads(path.read_text())
        if wrong := _wrong_kinds(raw):
            raise ConfigError("not a node configuration", str(path), "; ".join(wrong))
        config = _from_json(raw)
    except OSError as error:
        what = f"cannot read the node configuration: {error.strerror}"
        raise ConfigError(what, str(path), "name a readable file") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"not a node configuration: {error}", str(path), "see docs/internals/node.md") from error
    if problems := config.problems():
        raise ConfigError("the node configuration contradicts itself", str(path), "; ".join(problems))
    return config


_SECRET_OCTETS_MIN: Final = 32
_MAKE: Final = "(umask 077; openssl rand -hex 32 > FILE)"
_TEXT: Final = "a string"
_WHOLE: Final = "a whole number"
_PORT: Final = "a port from 1 to 65535"
_ANY_PORT: Final = "a port, or 0 for none"
_FLAG: Final = "true or false"
_KINDS: Final[dict[str, Callable[[Any], bool]]] = {
    _TEXT: lambda value: isinstance(value, str) and value != "",
    _WHOLE: lambda value: type(value) is int,
    _PORT: lambda value: type(value) is int and 1 <= value <= 65_535,
    _ANY_PORT: lambda value: type(value) is int and 0 <= value <= 65_535,
    _FLAG: lambda value: isinstance(value, bool),
    "a list": lambda value: isinstance(value, list),
    "an object": lambda value: isinstance(value, dict),
    PRODUCT_NAMES: lambda value: value in PRODUCTS,
    "none, optional or required": lambda value: value in ("none", "optional", "required"),
    "a list of names": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    "an object of names and passwords": lambda value: (
        isinstance(value, dict) and all(isinstance(password, str) for password in value.values())
    ),
}
_TOP: Final = {"name": _TEXT, "node": _WHOLE, "cluster": _TEXT, "nodes": "a list", "data_dir": _TEXT}
_TOP_OPTIONAL: Final = {
    "wal_dir": _TEXT, "segment_dir": _TEXT, "classic_dir": _TEXT, "logs_dir": _TEXT, "log_file": _TEXT, "io": _TEXT,
    "exit_with_stdin": _FLAG, "sync": _FLAG, "first_life": _WHOLE, "secret_file": _TEXT, "limits": "an object",
    "users": "an object of names and passwords", "drives": "a list", "instance_octets_per_second": _WHOLE,
    "tls": "an object", "client_tls": "an object", "loopback_users": "a list of names", "product": PRODUCT_NAMES,
}  # fmt: skip
_CLIENT_TLS: Final = {"port": _PORT, "certificate": _TEXT, "key": _TEXT}
_CLIENT_TLS_OPTIONAL: Final = {"ca": _TEXT, "client_certificates": "none, optional or required"}
_MEMBER: Final = {"node": _WHOLE, "name": _TEXT, "host": _TEXT, "amqp_port": _PORT, "peer_port": _PORT,
                  "control_port": _PORT}  # fmt: skip
_MEMBER_OPTIONAL: Final = {
    "metrics_port": _ANY_PORT, "amqp_host": _TEXT, "peer_host": _TEXT, "control_host": _TEXT, "bind": _TEXT,
    "amqp_bind": _TEXT, "peer_bind": _TEXT, "control_bind": _TEXT, "metrics_bind": _TEXT,
}  # fmt: skip


def _wrong_kinds(raw: Any) -> list[str]:
    """What is missing, unknown, or of another kind than it must be, each as "key: value: rule"."""
    if not isinstance(raw, dict):
        return ["the file must hold one JSON object: see docs/internals/node.md"]
    found = _wrong_in("", raw, _TOP, _TOP_OPTIONAL)
    members, limits = raw.get("nodes"), raw.get("limits")
    if isinstance(members, list) and len(members) > 1 and not raw.get("secret_file"):
        found.append("secret_file: is missing: must name the file with the secret that all nodes of the cluster have")
    for number, member in enumerate(members if isinstance(members, list) else ()):
        if isinstance(member, dict):
            found += _wrong_in(f"nodes[{number}].", member, _MEMBER, _MEMBER_OPTIONAL)
        else:
            found.append(f"nodes[{number}]: {member!r}: must be an object")
    if isinstance(raw.get("drives"), list):
        found += drive_problems(raw["drives"])
    if isinstance(raw.get("tls"), dict):
        found += _wrong_in("tls.", raw["tls"], dict.fromkeys(("certificate", "key", "ca"), _TEXT), {})
    if isinstance(raw.get("client_tls"), dict):
        found += _wrong_in("client_tls.", raw["client_tls"], _CLIENT_TLS, _CLIENT_TLS_OPTIONAL)
    if isinstance(limits, dict):
        found += _wrong_in("limits.", limits, {}, dict.fromkeys((each.name for each in fields(Limits)), _WHOLE))
    return found


def _wrong_in(where: str, raw: dict[str, Any], needed: dict[str, str], optional: dict[str, str]) -> list[str]:
    found = [f"{where}{key}: is missing: must be {kind}" for key, kind in needed.items() if key not in raw]
    known = {**needed, **optional}
    for key, value in raw.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            found.append(f"{where}{key}: unknown key" + (f"; {near[0]}?" if near else f"; known: {', '.join(known)}"))
        elif not (_KINDS[known[key]](value) or (value is None and known[key] == _TEXT and key in optional)):
            found.append(f"{where}{key}: {value!r}: must be {known[key]}")
    return found


def _from_json(raw: dict[str, Any]) -> NodeConfig:
    data_dir = Path(raw["data_dir"])
    return NodeConfig(
        name=raw["name"],
        node=NodeId(raw["node"]),
        cluster=raw["cluster"],
        members=tuple(Member(**{**member, "node": NodeId(member["node"])}) for member in raw["nodes"]),
        data_dir=data_dir,
        wal_dir=Path(raw.get("wal_dir") or data_dir / "wal"),
        segment_dir=Path(raw.get("segment_dir") or data_dir / "segments"),
        logs_dir=Path(raw.get("logs_dir") or data_dir),
        classic_dir=Path(raw.get("classic_dir") or data_dir / CLASSIC),
        users=dict(raw.get("users") or {}),
        loopback_users=tuple(raw.get("loopback_users", ("guest",))),
        limits=Limits(**raw.get("limits", {})),
        exit_with_stdin=bool(raw.get("exit_with_stdin", False)),
        sync=bool(raw.get("sync", True)),
        product=PRODUCTS[raw["product"]] if "product" in raw else REFERENCE,
        first_life=raw.get("first_life", 0),
        secret=_secret(Path(raw["secret_file"])) if raw.get("secret_file") else b"",
        tls=Tls(**raw["tls"]) if raw.get("tls") else None,
        client_tls=ClientTls(**raw["client_tls"]) if raw.get("client_tls") else None,
        io=raw.get("io") or "dedicated",
        drives=drives_of(raw.get("drives", [])),
        instance_octets_per_second=raw.get("instance_octets_per_second", 0),
    )


def _secret(path: Path) -> bytes:
    """The content of ``secret_file``, which only the node's user may read. Raises :class:`ConfigError`."""
    try:
        mode, text = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        what = f"the secret of the cluster cannot be read: {error.strerror}"
        raise ConfigError(what, str(path), f"copy it from another node, or make one for all nodes: {_MAKE}") from error
    if mode & 0o077:
        raise ConfigError("the secret of the cluster is open to other users", str(path), f"chmod 600 {path}")
    if len(secret := text.strip()) < _SECRET_OCTETS_MIN:
        what = f"the secret of the cluster has {len(secret)} octets, and less than {_SECRET_OCTETS_MIN} can be guessed"
        raise ConfigError(what, str(path), f"copy it from another node, or make one for all nodes: {_MAKE}")
    return secret
