"""The quorum queue: the arguments of its declaration, and the parts that make the kind."""

from __future__ import annotations

from typing import Final

from reference_broker.machines.batch import encode_batch
from reference_broker.queues import arguments
from reference_broker.queues.arguments import ArgumentRule
from reference_broker.queues.fifo_commands import question
from reference_broker.queues.fifo_queue import FifoQueue
from reference_broker.queues.port import QueueKind
from reference_broker.queues.quorum_member import QuorumMember

_ARGUMENTS: Final[dict[str, ArgumentRule]] = {
    "x-expires": arguments.lifetime,
    "x-message-ttl": arguments.milliseconds,
    "x-dead-letter-exchange": arguments.string,
    "x-dead-letter-routing-key": arguments.routing_key,
    "x-dead-letter-strategy": arguments.one_of("invalid_dlx_strategy", "at-most-once", "at-least-once"),
    "x-max-length": arguments.not_negative,
    "x-max-length-bytes": arguments.not_negative,
    "x-overflow": arguments.one_of("invalid_overflow", "drop-head", "reject-publish"),
    "x-delivery-limit": arguments.any_integer,
    "x-single-active-consumer": arguments.boolean,
    "x-queue-leader-locator": arguments.one_of(
        "invalid_queue_locator_arg", "client-local", "balanced", "random", "least-leaders"
    ),
    "x-quorum-initial-group-size": arguments.positive,
    "x-max-in-memory-length": arguments.not_negative,
    "x-max-in-memory-bytes": arguments.not_negative,
}
"""As in RabbitMQ since 3.10, the in-memory limits do nothing: bodies are in the log."""

QUORUM: Final = QueueKind(
    name="quorum",
    queue=FifoQueue,
    member=QuorumMember,
    encode=encode_batch,
    question=question,
    arguments=_ARGUMENTS,
    foreign_arguments=frozenset(
        {"x-key", "x-max-priority", "x-queue-mode", "x-queue-version", "x-queue-master-locator"}
    ),
    refused_properties=frozenset({"auto-delete", "exclusive-owner", "non-durable"}),
    takes_server_names=False,
    counts_first_get=True,
)
