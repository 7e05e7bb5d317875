"""Bindings of a headers exchange: an index by header fields, so that a message meets the bindings that it may match.

Theory of operation
-------------------
A binding asks for fields; a field without a value (AMQP's *void*) asks for the name alone. ``x-match`` says whether
``all`` fields must be there, or ``any`` of them. Other fields whose names begin with ``x-`` do not count, unless
``x-match`` is ``all-with-x`` or ``any-with-x``. These are the rules of RabbitMQ 3.10.

Each field is a *clue*. A binding of *any* is filed under each of its clues, and each of them proves the match. A
binding of *all* is filed under one clue: the clue with the fewest bindings at that time. A message looks up the
clues that its own headers give. So its cost follows from its headers and from the bindings that share a clue with it,
not from how many bindings there are. A binding of *all* without fields matches every message, one of *any* none.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from reference_broker.routing.records import Arguments, Binding, Destination

_MATCH: Final = b"x-match"
_LONG_STRING: Final = b"S"
_TEXT_AT: Final = 5
_VOID: Final = b"V"
_MODES: Final = (b"all", b"any", b"all-with-x", b"any-with-x")

_Clue = tuple[bytes, bytes]
"""Name and raw value of a field. The value is that of *void* if only the name counts."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The headers that a binding asks for."""

    destination: Destination
    clues: tuple[_Clue, ...]
    needs_all: bool

    def matches(self, headers: dict[bytes, bytes]) -> bool:
        """Whether these headers satisfy the binding; the message is known to have one of the clues."""
        if not self.needs_all:
            return True
        return all(headers.get(name) == value or (value == _VOID and name in headers) for name, value in self.clues)


class HeadersMatcher:
    """The bindings of a headers exchange."""

    def __init__(self) -> None:
        self._by_clue: dict[_Clue, dict[Binding, _Wanted]] = {}
        self._filed: dict[Binding, tuple[_Clue, ...]] = {}
        """The clues that each binding is filed under."""
        self._always: dict[Binding, Destination] = {}
        """The bindings that match every message."""

    def add(self, binding: Binding) -> None:
        """Add a binding that is not there."""
        wanted = _wanted(binding)
        filed = wanted.clues
        if wanted.needs_all and not filed:
            self._always[binding] = binding.destination
        elif wanted.needs_all:
            filed = (min(filed, key=lambda clue: len(self._by_clue.get(clue, ()))),)
        self._filed[binding] = filed
        for clue in filed:
            self._by_clue.setdefault(clue, {})[binding] = wanted

    def remove(self, binding: Binding) -> None:
        """Remove a binding that is there."""
        self._always.pop(binding, None)
        for clue in self._filed.pop(binding):
            under = self._by_clue[clue]
            del under[binding]
            if not under:
                del self._by_clue[clue]

    def match(self, _key: str, headers: Arguments) -> Collection[Destination]:
        """The destinations of the bindings that match the headers."""
        found = set(self._always.values())
        values = dict(reversed(headers))  # of two fields of one name the first counts
        for name, value in values.items():
            for clue in {(name, value), (name, _VOID)}:
                for wanted in self._by_clue.get(clue, {}).values():
                    if wanted.destination not in found and wanted.matches(values):
                        found.add(wanted.destination)
        return found


def _wanted(binding: Binding) -> _Wanted:
    mode = _mode(binding.arguments)
    heeds_x = mode.endswith(b"-with-x")
    clues = {
        (name, _VOID if value[:1] == _VOID else value): None
        for name, value in binding.arguments
        if name != _MATCH and (heeds_x or not name.startswith(b"x-"))
    }
    return _Wanted(binding.destination, tuple(clues), needs_all=mode.startswith(b"all"))


def _mode(arguments: Arguments) -> bytes:
    value = dict(reversed(arguments)).get(_MATCH, b"")
    return value[_TEXT_AT:] if value[:1] == _LONG_STRING and value[_TEXT_AT:] in _MODES else b"all"


def wrong_match(arguments: Arguments) -> bytes | None:
    """The raw value of an ``x-match`` that is none of the four; None if all is well."""
    value = dict(reversed(arguments)).get(_MATCH)
    if value is None or (value[:1] == _LONG_STRING and value[_TEXT_AT:] in _MODES):
        return None
    return value
