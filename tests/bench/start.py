"""From nothing to the first confirm: three processes, an election, a queue, one message."""

from __future__ import annotations

import time

from tests.bench.context import Context, first_confirm


def measure(context: Context, _names: list[str]) -> None:
    """So many starts of the bundled broker. RabbitMQ's only start of the session is measured when it is made."""
    for _ in range(context.lengths.starts):
        began = time.monotonic()
        with context.bundled() as ours:
            confirmed = first_confirm(ours)
        context.note("start", ours.name, {"first_confirm_s": confirmed - began})
    context.rabbitmq()
