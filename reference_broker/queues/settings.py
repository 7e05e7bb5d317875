"""The settings of the FIFO machine, from the arguments of a declaration or of a policy. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from reference_broker.machines.config import NO_LIMIT, DeadLetterStrategy, FifoConfig, Overflow
from reference_broker.machines.metadata import ArgumentValue, QueueRecord

_OVERFLOWS: Final = {
    "drop-head": Overflow.DROP_HEAD,
    "reject-publish": Overflow.REJECT_PUBLISH,
    "reject-publish-dlx": Overflow.REJECT_PUBLISH_DLX,
}
_STRATEGIES: Final = {
    "at-most-once": DeadLetterStrategy.AT_MOST_ONCE,
    "at-least-once": DeadLetterStrategy.AT_LEAST_ONCE,
}


def config_of(record: QueueRecord) -> FifoConfig:
    """The machine's settings, from the arguments of the declaration. A negative delivery limit means none."""
    arguments = dict(record.arguments)

    def number(key: str) -> int:
        return max(int(arguments.get(key, NO_LIMIT)), NO_LIMIT)

    return FifoConfig(
        name=record.name,
        delivery_limit=number("x-delivery-limit"),
        max_length=number("x-max-length"),
        max_length_bytes=number("x-max-length-bytes"),
        overflow=_OVERFLOWS[str(arguments.get("x-overflow", "drop-head"))],
        message_ttl_ms=number("x-message-ttl"),
        expires_ms=number("x-expires"),
        single_active=bool(arguments.get("x-single-active-consumer", False)),
        dead_letter=_dead_letter_strategy(arguments),
    )


def _dead_letter_strategy(arguments: Mapping[str, ArgumentValue]) -> DeadLetterStrategy | None:
    if "x-dead-letter-exchange" not in arguments:
        return None
    return _STRATEGIES[str(arguments.get("x-dead-letter-strategy", "at-most-once"))]


def classic_config_of(record: QueueRecord) -> FifoConfig:
    """The settings of a classic queue, which counts no deliveries and sends dead letters at most once."""
    config = config_of(record)
    dead_letter = DeadLetterStrategy.AT_MOST_ONCE if config.dead_letter is not None else None
    return replace(config, delivery_limit=NO_LIMIT, dead_letter=dead_letter)


def max_priority_of(record: QueueRecord) -> int:
    """The highest priority of the queue's messages; 0: the queue has no priorities."""
    return int(dict(record.arguments).get("x-max-priority", 0))
