"""The figures of one node for the others' management API: its connections, channels, consumers, queues, and itself.

An answer between nodes has a limit of octets, and an answer holds up messages while it is made. So rows come in parts:
``from`` is the first *source* that is wanted (a connection, a channel, a queue), ``next`` is the one to ask for next. A
source gives one row, or none. Rows are made at each request. Nothing is counted for them on the way of a message.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from reference_broker.node.alarms import Alarm, Alarms
from reference_broker.node.clients.client_connection import ClientConnection
from reference_broker.node.config import NodeConfig
from reference_broker.node.hosting.hosted_queues import Hosting
from reference_broker.node.hosting.local_clients import LocalClients
from reference_broker.node.links.peer_requests import Answer, Answered, RequestError
from reference_broker.node.operations.listeners import listeners_of
from reference_broker.node.start_problems import StartFindings
from reference_broker.queues.port import Queue
from reference_broker.queues.session import ConsumeSession
from reference_broker.storage.findings import rows
from reference_broker.types import METADATA_GROUP

FIGURES: Final = "figures"
"""The request for rows."""
CLOSE: Final = "close-connection"
"""The request to close a client's connection."""
_PART_OCTETS: Final = 20_000
"""The most octets of a part, which is made within one turn of the event loop: about two milliseconds."""
_PART_SOURCES: Final = 2_000
"""The most sources of a part: a node makes no rows of the queues that others lead."""
_MS: Final = 1000


class NodeFigures:
    """The rows of one node."""

    def __init__(
        self,
        config: NodeConfig,
        clients: LocalClients,
        hosting: Hosting,
        alarms: Alarms,
        findings: StartFindings,
    ) -> None:
        self._name = config.name
        self._listeners = listeners_of(config)
        self._clients = clients
        self._hosting = hosting
        self._alarms = alarms
        self._findings = findings
        self._started_ms = int(time.time() * _MS)
        self._kinds: dict[str, tuple[Callable[[], Sequence[Any]], Callable[[Any], Answer | None]]] = {
            "node": (lambda: [self], NodeFigures._node),
            "connections": (self._connections, self._connection),
            "channels": (self._channels, self._channel),
            "consumers": (self._consumers, self._consumer),
            "queues": (lambda: list(hosting.by_group.values()), self._queue),
        }
        """The sources of each kind of rows, and what makes a row of a source."""

    def answer(self, request: Answer, answered: Answered) -> None:
        """Answer with a part of the rows of a kind."""
        kind, first = request.get("of"), request.get("from", 0)
        if kind not in self._kinds or type(first) is not int or first < 0:
            raise RequestError(f"there are no figures of {kind!r}", f"ask for {', '.join(self._kinds)}")
        list_sources, row_of = self._kinds[kind]
        sources = list_sources()
        rows: list[Answer] = []
        octets, at, end = 0, first, min(first + _PART_SOURCES, len(sources))
        while at < end and octets < _PART_OCTETS:
            row = row_of(sources[at])
            at += 1
            if row is not None:
                octets += len(json.dumps(row))
                rows.append(row)
        answered({"rows": rows, "next": at if at < len(sources) else None})

    def close_connection(self, request: Answer, answered: Answered) -> None:
        """Close the connection of a name, for a reason; ``closed`` says whether it is here."""
        name, reason = request.get("name"), str(request.get("reason") or "closed via the management API")
        found = next((each for each in self._connections() if _name(each) == name), None)
        if found is not None:
            found.close(reason)
        answered({"closed": found is not None})

    def _node(self) -> Answer:
        return {
            "name": self._name,
            "running": True,
            "os_pid": str(os.getpid()),
            "type": "disc",
            "uptime": int(time.time() * _MS) - self._started_ms,
            "mem_used": self._alarms.memory_held(),
            "mem_alarm": Alarm.MEMORY in self._alarms.own,
            "disk_free_alarm": Alarm.DISK in self._alarms.own,
            "sockets_used": len(self._clients.connections),
            "message_stats": {"deliver": self._clients.delivered, "redeliver": self._clients.redelivered},
            "findings": rows(self._findings.all()),
            "listeners": self._listeners,
            "queues_led": sum(group != METADATA_GROUP for group in self._hosting.census.leading),
        }

    def _connections(self) -> list[ClientConnection]:
        """Those of clients with a socket: the management API has connections without one."""
        return [each for each in self._clients.connections if each.user and each.peer[1]]  # type: ignore[attr-defined,misc]

    def _connection(self, each: ClientConnection) -> Answer:
        state, (received, sent) = each.core.state, each.octets()
        return {
            "name": _name(each),
            "node": self._name,
            "user": each.user,
            "vhost": each.vhost,
            "peer_host": each.peer[0],
            "peer_port": each.peer[1],
            "host": each.own[0],
            "port": each.own[1],
            "ssl": each.is_encrypted,
            "protocol": "AMQP 0-9-1",
            "state": each.state,
            "channels": len(each.channels),
            "channel_max": state.channel_max,
            "frame_max": state.frame_max,
            "timeout": state.heartbeat_s,
            "connected_at": each.connected_at_ms,
            "type": "network",
            "recv_oct": received,
            "send_oct": sent,
            "client_properties": _plain(state.client_properties),
        }

    def _channels(self) -> list[tuple[ClientConnection, int]]:
        return [(each, number) for each in self._connections() for number in each.core.open_channels]

    def _channel(self, source: tuple[ClientConnection, int]) -> Answer:
        each, number = source
        channel = each.channels.get(number)
        return {
            **_identity(each, number),
            "node": self._name,
            "user": each.user,
            "vhost": each.vhost,
            "state": "flow" if each.state == "flow" else "running",
            "consumer_count": len(channel.consumers) if channel else 0,
            "messages_unacknowledged": each.core.unacked(number),
            "messages_unconfirmed": each.core.unconfirmed(number),
            "confirm": each.core.confirms(number),
            "transactional": bool(channel and channel.transaction),
            "prefetch_count": each.core.prefetch(number),
            "global_prefetch_count": 0,
            "connection_details": _details(each),
        }

    def _consumers(self) -> list[tuple[ClientConnection, int, str, ConsumeSession]]:
        return [
            (each, number, tag, consumer)
            for each in self._connections()
            for number, channel in each.channels.items()
            for tag, consumer in channel.consumers.items()
        ]

    def _consumer(self, source: tuple[ClientConnection, int, str, ConsumeSession]) -> Answer | None:
        each, number, tag, consumer = source
        queue = self._hosting.by_group.get(consumer.group)
        if not tag or consumer.is_cancelled or queue is None:
            return None
        return _consumer(each, number, tag, consumer, queue.record.short_name)

    def _queue(self, queue: Queue) -> Answer | None:
        """The row of a queue that this node leads or owns."""
        runner = self._hosting.hosted.get(queue.record.group)
        return _counts(queue) if runner is not None and runner.leads and queue.member is not None else None


def _counts(queue: Queue) -> Answer:
    assert queue.member is not None
    counts = queue.member.counts()
    return {
        "name": queue.record.short_name, "vhost": queue.record.vhost,
        "ready": counts.ready, "unacked": counts.unacked, "consumers": counts.consumers,
        "ready_bytes": counts.ready_bytes, "enqueued": counts.enqueued, "settled": counts.settled,
        "keys": counts.keys, "reserved_keys": counts.reserved_keys,
    }  # fmt: skip


def _consumer(each: ClientConnection, number: int, tag: str, consumer: ConsumeSession, queue: str) -> Answer:
    return {
        "consumer_tag": tag,
        "queue": {"name": queue, "vhost": each.vhost},
        "ack_required": not consumer.no_ack,
        "exclusive": consumer.is_exclusive,
        "prefetch_count": each.core.prefetch(number),
        "active": True,
        "activity_status": "up",
        "arguments": {},
        "channel_details": {**_identity(each, number), "connection_name": _name(each)},
    }


def _plain(value: Any) -> Any:
    """A field value as JSON."""
    match value:
        case dict():
            return {str(key): _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case bool() | int() | str() | None:
            return value
        case _:
            return str(value)


def _name(each: ClientConnection) -> str:
    return "{}:{} -> {}:{}".format(*each.peer, *each.own)


def _identity(each: ClientConnection, number: int) -> Answer:
    return {"name": f"{_name(each)} ({number})", "number": number}


def _details(each: ClientConnection) -> Answer:
    return {"name": _name(each), "peer_host": each.peer[0], "peer_port": each.peer[1]}
