"""The keyed queue: messages of one key go one at a time, in order. The arguments of its declaration, and the kind's
parts.

A keyed queue is a quorum queue whose publishes carry labels (:mod:`~reference_broker.queues.keyed_labels`). A classic
queue with ``x-key`` has the same machine, beside a store.
"""

from __future__ import annotations

from typing import Final

from reference_broker.machines.batch import encode_batch
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.commands import Enqueue
from reference_broker.message_run import MessageRun
from reference_broker.queues import arguments
from reference_broker.queues.arguments import ArgumentRule
from reference_broker.queues.fifo_commands import question
from reference_broker.queues.fifo_queue import FifoQueue
from reference_broker.queues.keyed_labels import labels_of
from reference_broker.queues.port import QueueKind, QueuePorts
from reference_broker.queues.quorum_member import QuorumMember
from reference_broker.queues.settings import KEYED as NAME
from reference_broker.queues.settings import key_source_of
from reference_broker.types import NO_TTL, ChannelId


class KeyedQueue(FifoQueue):
    """A keyed queue as one node has it."""

    __slots__ = ("_source",)

    settles_wait = False

    def __init__(self, kind: QueueKind, record: QueueRecord, ports: QueuePorts) -> None:
        super().__init__(kind, record, ports)
        self._source = key_source_of(record)

    def enqueue(self, channel: ChannelId, first_seq: int, run: MessageRun, ttl_ms: int = NO_TTL) -> Enqueue:
        """A run with its labels. They are read here, once: the machines of the members know no AMQP."""
        return Enqueue(channel, first_seq, run, ttl_ms, labels_of(run, self._source))


_ARGUMENTS: Final[dict[str, ArgumentRule]] = {
    "x-key": arguments.key_source,
    "x-retry-delay": arguments.milliseconds,
    "x-reserve-timeout": arguments.lifetime,
    "x-max-tries": arguments.max_tries,
    "x-expires": arguments.lifetime,
    "x-message-ttl": arguments.milliseconds,
    "x-dead-letter-exchange": arguments.string,
    "x-dead-letter-routing-key": arguments.routing_key,
    "x-dead-letter-strategy": arguments.one_of("invalid_dlx_strategy", "at-most-once", "at-least-once"),
    "x-max-length": arguments.not_negative,
    "x-max-length-bytes": arguments.not_negative,
    "x-overflow": arguments.one_of("invalid_overflow", "reject-publish"),
    "x-delivery-limit": arguments.any_integer,
    "x-single-active-consumer": arguments.boolean,
    "x-queue-leader-locator": arguments.one_of(
        "invalid_queue_locator_arg", "client-local", "balanced", "random", "least-leaders"
    ),
    "x-quorum-initial-group-size": arguments.positive,
}
"""A full keyed queue refuses publishes: to drop a head would break the order."""

KEYED: Final = QueueKind(
    name=NAME,
    queue=KeyedQueue,
    member=QuorumMember,
    encode=encode_batch,
    question=question,
    arguments=_ARGUMENTS,
    foreign_arguments=frozenset({"x-max-priority", "x-queue-mode", "x-queue-version", "x-queue-master-locator"}),
    refused_properties=frozenset({"auto-delete", "exclusive-owner", "non-durable"}),
    takes_server_names=False,
    counts_first_get=True,
)
