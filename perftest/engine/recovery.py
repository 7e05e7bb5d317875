"""When to try again, and how long to wait before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

FIRST_DELAY_S: Final = 0.1
LONGEST_DELAY_S: Final = 2.0


def backoff() -> Iterator[float]:
    """Seconds to wait before each further try: short at first, because an election takes less than a second, and never
    long, because the generator should be back when the broker is."""
    delay = FIRST_DELAY_S
    while True:
        yield delay
        delay = min(delay * 2, LONGEST_DELAY_S)


def uri_order(count: int, first: int) -> Iterator[int]:
    """Indexes of the URIs to try, for ever, from ``first`` on."""
    index = first % count
    while True:
        yield index
        index = (index + 1) % count
