"""The settings of the FIFO machine, from the arguments of a declaration or of a policy. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from reference_broker.machines.cluster.metadata import ArgumentValue, QueueRecord
from reference_broker.machines.config import NO_LIMIT, DeadLetterStrategy, FifoConfig, KeyedConfig, Overflow

KEYED: Final = "keyed"
"""The kind of queue that has keys without being asked."""
_DEFAULT_SOURCE: Final = "header:x-group-key"
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
    has_keys = bool(key_source_of(record))

    def number(key: str) -> int:
        value = arguments.get(key, NO_LIMIT)
        return max(value, NO_LIMIT) if isinstance(value, int) else NO_LIMIT

    return FifoConfig(
        name=record.name,
        delivery_limit=_delivery_limit(number("x-delivery-limit"), number("x-max-tries")),
        max_length=number("x-max-length"),
        max_length_bytes=number("x-max-length-bytes"),
        overflow=Overflow.REJECT_PUBLISH if has_keys else _OVERFLOWS[str(arguments.get("x-overflow", "drop-head"))],
        message_ttl_ms=number("x-message-ttl"),
        expires_ms=number("x-expires"),
        single_active=bool(arguments.get("x-single-active-consumer", False)),
        dead_letter=_dead_letter_strategy(arguments),
        keyed=_keyed(max(number("x-retry-delay"), 0), number("x-reserve-timeout")) if has_keys else None,
    )


def _delivery_limit(delivery_limit: int, max_tries: int) -> int:
    """The lower of a delivery limit, maybe a policy's, and the limit that the most tries give."""
    given = [limit for limit in (delivery_limit, max_tries - 1 if max_tries > 0 else NO_LIMIT) if limit >= 0]
    return min(given, default=NO_LIMIT)


def _keyed(retry_delay_ms: int, reserve_ms: int) -> KeyedConfig:
    return KeyedConfig(retry_delay_ms=retry_delay_ms, reserve_ms=reserve_ms)


def key_source_of(record: QueueRecord) -> str:
    """The source of the keys of the queue's messages: the value of ``x-key``. Empty for a queue without keys."""
    return str(dict(record.arguments).get("x-key", _DEFAULT_SOURCE if record.kind == KEYED else ""))


def _dead_letter_strategy(arguments: Mapping[str, ArgumentValue]) -> DeadLetterStrategy | None:
    if "x-dead-letter-exchange" not in arguments:
        return None
    return _STRATEGIES[str(arguments.get("x-dead-letter-strategy", "at-most-once"))]


def classic_config_of(record: QueueRecord) -> FifoConfig:
    """The settings of a classic queue, which sends dead letters at most once, and counts deliveries only if it has
    keys."""
    config = config_of(record)
    dead_letter = DeadLetterStrategy.AT_MOST_ONCE if config.dead_letter is not None else None
    limit = config.delivery_limit if config.keyed is not None else NO_LIMIT
    return replace(config, delivery_limit=limit, dead_letter=dead_letter)


def max_priority_of(record: QueueRecord) -> int:
    """The highest priority of the queue's messages; 0: the queue has no priorities."""
    value = dict(record.arguments).get("x-max-priority", 0)
    return value if isinstance(value, int) else 0
