"""The properties of a message by PerfTest's names, and the values that each property accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final

from perftest.spec.behaviour import Argument


def _is_text(value: Argument) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool) and len(str(value).encode()) <= 255


def _is_octet(value: Argument) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 255


def _is_mode(value: Argument) -> bool:
    return not isinstance(value, bool) and value in (1, 2)


def _is_expiration(value: Argument) -> bool:
    return not isinstance(value, bool) and str(value).isdecimal()


def _is_time(value: Argument) -> bool:
    """Seconds since 1970, or ISO 8601 with a zone."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value >= 0
    try:
        return datetime.fromisoformat(str(value)).tzinfo is not None
    except ValueError:
        return False


_TEXT: Final = (_is_text, "at most 255 octets of text")

PROPERTIES: Final[Mapping[str, tuple[Callable[[Argument], bool], str]]] = {
    "contentType": _TEXT,
    "contentEncoding": _TEXT,
    "deliveryMode": (_is_mode, "1 or 2"),
    "priority": (_is_octet, "a number from 0 to 255"),
    "correlationId": _TEXT,
    "replyTo": _TEXT,
    "expiration": (_is_expiration, "a whole number of milliseconds"),
    "messageId": _TEXT,
    "timestamp": (_is_time, "a time with its zone, such as 2007-12-03T10:15:30+01:00"),
    "type": _TEXT,
    "userId": _TEXT,
    "appId": _TEXT,
    "clusterId": _TEXT,
}
"""Each property: a check of its value, and the accepted values in words. Any other name is a header."""

STAMP_HEADER: Final = "perftest"
"""The header that carries the stamp if the body is a file or a document."""


def broken_properties(properties: Mapping[str, Argument]) -> Iterator[tuple[str, str, Argument]]:
    """Rule, fix and value of each property that no broker would accept."""
    for name, value in properties.items():
        accepts, words = PROPERTIES.get(name, (None, ""))
        if accepts is not None and not accepts(value):
            yield f"the property {name} is {words}, not {value!r}", f"write {name}=… with {words}", value
        if name == STAMP_HEADER:
            yield f"the header {name!r} carries the time stamps", "use another name", value
