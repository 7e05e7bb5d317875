"""The classic queue: the arguments of its declaration, and the parts that make the kind."""

from __future__ import annotations

from typing import Final

from reference_broker.machines.batch import encode_batch
from reference_broker.queues import arguments
from reference_broker.queues.arguments import ArgumentRule
from reference_broker.queues.classic_member import ClassicMember
from reference_broker.queues.fifo_commands import decode_forwarded, question
from reference_broker.queues.fifo_queue import FifoQueue
from reference_broker.queues.port import QueueKind

_ARGUMENTS: Final[dict[str, ArgumentRule]] = {
    "x-expires": arguments.lifetime,
    "x-message-ttl": arguments.milliseconds,
    "x-dead-letter-exchange": arguments.string,
    "x-dead-letter-routing-key": arguments.routing_key,
    "x-max-length": arguments.not_negative,
    "x-max-length-bytes": arguments.not_negative,
    "x-max-priority": arguments.priority,
    "x-overflow": arguments.one_of("invalid_overflow", "drop-head", "reject-publish", "reject-publish-dlx"),
    "x-queue-mode": arguments.queue_mode,
    "x-queue-version": arguments.queue_version,
    "x-single-active-consumer": arguments.boolean,
    "x-key": arguments.key_source,
    "x-retry-delay": arguments.with_key(arguments.milliseconds),
    "x-reserve-timeout": arguments.with_key(arguments.lifetime),
    "x-max-tries": arguments.with_key(arguments.positive),
    "x-queue-master-locator": arguments.string,
    "x-queue-leader-locator": arguments.one_of(
        "invalid_queue_locator_arg", "client-local", "balanced", "random", "least-leaders"
    ),
}
"""RabbitMQ 3.10 knows ``x-queue-leader-locator`` for other kinds only; later versions know it here, too. Any
``x-queue-master-locator`` is taken. Both versions of a queue are the same here: the store is like version 2. With
``x-key`` the queue keeps the order of each key, as a keyed queue does; RabbitMQ has no such queue."""

CLASSIC: Final = QueueKind(
    name="classic",
    queue=FifoQueue,
    owner=ClassicMember,
    encode=encode_batch,
    decode=decode_forwarded,
    question=question,
    arguments=_ARGUMENTS,
    foreign_arguments=frozenset(
        {
            "x-delivery-limit",
            "x-dead-letter-strategy",
            "x-initial-cluster-size",
            "x-max-age",
            "x-max-in-memory-bytes",
            "x-max-in-memory-length",
            "x-quorum-initial-group-size",
            "x-stream-max-segment-size-bytes",
        }
    ),
    takes_exclusive_consumers=True,
    takes_channel_limits=True,
    gets_beside_single_active=True,
)
