"""The configuration of one node: what it needs to know to start, and all its limits.

``node.json`` (written by the cluster starter, or by hand) is read into a :class:`NodeConfig`. ``problems()`` finds
everything that is wrong with it at once, so that nobody has to fix a file one error at a time.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from reference_broker.types import NodeId

_SMALL_MESSAGE_BYTES: Final = 64 * 1024
FRAME_BYTES_MIN: Final = 4096
"""What any node takes before it knows who speaks: the hello is one frame."""


class ConfigError(Exception):
    """The configuration cannot be used. ``str()`` is three lines: what, where, what to do."""

    def __init__(self, what: str, where: str, fix: str) -> None:
        super().__init__(f"error: {what}\n  at   {where}\n  fix  {fix}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One node of the cluster, as the others see it. ``metrics_port`` 0: no metrics over HTTP."""

    node: NodeId
    name: str
    host: str
    amqp_port: int
    peer_port: int
    control_port: int
    metrics_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Named limits: those that a machine, a network or a test may want otherwise. Windows that nobody wants otherwise
    are constants where they are used.

    ``tick_ms`` is Raft's unit of time. ``heartbeat_ms`` and ``suspect_after_ms`` belong to the failure detector of a
    node pair: a killed process is noticed at once (its socket closes), only a paused or partitioned one needs
    the time-out, and on a machine that also runs the load generator a busy process may well be silent for half a
    second.
    ``batch_bytes_max`` bounds one log entry: big enough to make the cost of a round small per message, small
    enough that two are under way at once in a window of 1000 messages of 1 KB.
    ``rounds_in_flight_max`` entries of one queue may await their fsync before new commands are held back to form a
    bigger batch.
    ``entries_uncommitted_max`` bounds the entries of a queue on their way to a majority, and with them the time that a
    settle queues behind publishes.
    ``settle_delay_ms`` is how long a settle that nobody waits for may wait for an enqueue to ride with.
    ``commit_notice_delay_ms`` is how long a follower without clients of the queue may wait to hear of a commit, if
    no entry takes the news along.
    ``spare_copy_delay_ms`` is how long the copy of a small entry may wait that no majority needs.
    ``publish_bytes_max`` unconfirmed octets of one connection stop the reading of its socket (TCP back-pressure).
    ``peer_frame_bytes_max`` bounds a frame between nodes: small frames of other queues never wait for more octets than
    that. What is larger goes in parts. A chunk of a snapshot fits into one frame, and so do several full entries.
    ``follower_bytes_max`` octets of large messages of one queue may be on their way to a follower and not on its disk
    yet: enough to keep a fast link busy, and little enough to be forgotten with a slow one.
    ``publish_commands_max`` commands (runs of publishes) of one connection that await their commit stop it likewise.
    ``dead_letter_retry_ms`` is when a dead letter that nobody took is offered again (at least once only).
    ``disk_free_bytes_min`` free octets on the drives of the node, and ``memory_bytes_max`` octets of resident memory of
    its process, looked at every ``alarm_check_ms``: beyond either an alarm stops the publishing connections of
    all nodes.
    ``request_timeout_ms`` is how long a node waits for another's answer to a question of an operator, of at most
    ``request_bytes_max`` octets; ``requests_max`` of them may wait at a time.
    ``read_timeout_ms`` is how long a client that declares, or deletes on a condition, waits for the queue's leader to
    count; an election fits in several times over.
    ``change_timeout_ms`` is how long the control port waits for a change of membership to be done: a new member may
    need a whole snapshot first.
    ``wal_files_waiting`` closed WAL files wait before the oldest is copied into segments: a backlog of a gigabyte is
    not written twice, and a start reads no more than that.
    ``handshake_ms`` is how long who connects to the peer port, or answers there, may take to prove that it is a node of
    the cluster; of more than ``strangers_max`` connections that have not proved it the oldest is dropped.
    ``credit_default`` is what a consumer without a prefetch limit gets (RabbitMQ: 2000).
    """

    tick_ms: int = 50
    election_ticks_min: int = 2
    election_ticks_max: int = 8
    heartbeat_ms: int = 250
    suspect_after_ms: int = 2000
    batch_bytes_max: int = 512 * 1024
    batch_commands_max: int = 4096
    rounds_in_flight_max: int = 1
    entries_uncommitted_max: int = 8
    settle_delay_ms: int = 200
    commit_notice_delay_ms: int = 200
    spare_copy_delay_ms: int = 10
    publish_bytes_max: int = 32 * 1024 * 1024
    peer_frame_bytes_max: int = 2 * 1024 * 1024
    follower_bytes_max: int = 32 * 1024 * 1024
    publish_commands_max: int = 4096
    credit_default: int = 2000
    dead_letter_retry_ms: int = 1000
    disk_free_bytes_min: int = 50 * 1024 * 1024
    memory_bytes_max: int = 4 * 1024 * 1024 * 1024
    alarm_check_ms: int = 1000
    wal_file_bytes: int = 64 * 1024 * 1024
    wal_files_waiting: int = 16
    memtable_bytes: int = 128 * 1024 * 1024
    request_timeout_ms: int = 2000
    request_bytes_max: int = 1024 * 1024
    requests_max: int = 1024
    read_timeout_ms: int = 5000
    change_timeout_ms: int = 30_000
    handshake_ms: int = 5000
    strangers_max: int = 64

    @property
    def small_message_bytes(self) -> int:
        """A message between nodes of so many octets waits for nothing: counting it would cost more than it takes."""
        return min(_SMALL_MESSAGE_BYTES, self.peer_frame_bytes_max // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """One node. Every role of a directory has a path of its own, so that each may lie on a drive of its own;
    ``segment_dir`` is ``segments`` in ``data_dir`` unless named, ``logs_dir`` is ``data_dir`` itself.
    ``exit_with_stdin`` ends the node with the process that started it. ``first_life`` is the first boot id of a node
    whose directories were lost and that was replaced (:mod:`reference_broker.node.replacement`), and 0 otherwise.
    ``secret`` is what the nodes of a cluster know each other by, the content of ``secret_file``; a node without peers
    needs none."""

    name: str
    node: NodeId
    cluster: str
    members: tuple[Member, ...]
    data_dir: Path
    wal_dir: Path
    segment_dir: Path
    logs_dir: Path
    users: dict[str, str]
    limits: Limits = field(default_factory=Limits)
    exit_with_stdin: bool = False
    sync: bool = True
    first_life: int = 0
    secret: bytes = field(default=b"", repr=False)

    @property
    def me(self) -> Member:
        """This node's own entry among the members."""
        return next(member for member in self.members if member.node == self.node)

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
        found.extend(_limit_problems(self.limits))
        return found


def _limit_problems(limits: Limits) -> list[str]:
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
    "an object of names and passwords": lambda value: (
        isinstance(value, dict) and all(isinstance(password, str) for password in value.values())
    ),
}
_TOP: Final = {"name": _TEXT, "node": _WHOLE, "cluster": _TEXT, "nodes": "a list", "data_dir": _TEXT}
_TOP_OPTIONAL: Final = {
    "wal_dir": _TEXT, "segment_dir": _TEXT, "logs_dir": _TEXT, "log_file": _TEXT, "exit_with_stdin": _FLAG,
    "sync": _FLAG, "first_life": _WHOLE, "secret_file": _TEXT, "limits": "an object",
    "users": "an object of names and passwords",
}  # fmt: skip
_MEMBER: Final = {"node": _WHOLE, "name": _TEXT, "host": _TEXT, "amqp_port": _PORT, "peer_port": _PORT,
                  "control_port": _PORT}  # fmt: skip


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
            found += _wrong_in(f"nodes[{number}].", member, _MEMBER, {"metrics_port": _ANY_PORT})
        else:
            found.append(f"nodes[{number}]: {member!r}: must be an object")
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
        users=dict(raw.get("users") or {"guest": "guest"}),
        limits=Limits(**raw.get("limits", {})),
        exit_with_stdin=bool(raw.get("exit_with_stdin", False)),
        sync=bool(raw.get("sync", True)),
        first_life=raw.get("first_life", 0),
        secret=_secret(Path(raw["secret_file"])) if raw.get("secret_file") else b"",
    )


def _secret(path: Path) -> bytes:
    """The content of ``secret_file``, which is nobody else's to read. Raises :class:`ConfigError`."""
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
