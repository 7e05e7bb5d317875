"""The format of recorded events: what a cluster did, moment by moment, as JSON lines.

An event has a time in seconds (``t``), a host (``at``: ``n1`` for node 1, ``c1`` for client 1, empty for the world), a
kind (``what``), and the fields of that kind. A node may have any name but that of a client: ``c`` or ``p`` and a
number. :data:`KINDS` is the whole format, and docs/internals/simulation.md prints
the same table. Events stand in the order in which they happened. A field that is not known is ``null``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple


class WorldEvent(NamedTuple):
    """One event. ``fields`` are those of the kind ``what``; times are in seconds."""

    t: float
    at: str
    what: str
    fields: dict[str, Any]


class EventKind(NamedTuple):
    """What an event of a kind says, and its fields with their types: ``int``, ``float``, ``bool``, ``str``, ``ints`` (a
    list of numbers) or ``runs`` (pairs of first index and term). ``null`` stands for what is not known."""

    meaning: str
    fields: Mapping[str, str]


class EventFormatError(ValueError):
    """A line that is no event of this format. The message names the line and what is wrong."""


_PLACE: Final = {"group": "str", "index": "int", "term": "int"}
_MEMBER: Final = {
    "group": "str", "begins": "bool", "role": "str", "leader": "str", "term": "int", "members": "str",
    "snapshot": "int", "log": "runs", "last": "int", "disk": "int", "commit": "int", "applied": "int",
}  # fmt: skip
_MESSAGE: Final = {
    "to": "str", "kind": "str", "group": "str", "term": "int", "first": "int", "last": "int", "ok": "bool",
    "got": "float", "lost": "bool",
}  # fmt: skip

KINDS: Final[Mapping[str, EventKind]] = {
    "world": EventKind(
        "the whole: its title, what a reader should know, the command that makes it again",
        {"title": "str", "text": "str", "command": "str", "total": "int"},
    ),
    "note": EventKind(
        "a remark about this moment, for readers, who are to see the logs of the queue `shows`; null: of any queue",
        {"title": "str", "text": "str", "shows": "str"},
    ),
    "broken": EventKind(
        "an invariant does not hold: its number, its sentence, what was seen",
        {"number": "str", "statement": "str", "seen": "str"},
    ),
    "healed": EventKind("all trouble ends, and clients begin nothing new", {}),
    "start": EventKind("the process of a node starts, for the `boot`-th time", {"boot": "int"}),
    "kill": EventKind("the process ends; the drive keeps what was written", {}),
    "power": EventKind("the process ends; the drive may lose what was not synced", {}),
    "pause": EventKind("the process stands still until a time", {"until": "float"}),
    "trouble": EventKind("somebody makes trouble of this name for the node", {"name": "str"}),
    "cut": EventKind("everything from this host to another is held up", {"to": "str"}),
    "free": EventKind("everything from this host to another goes through again", {"to": "str"}),
    "link": EventKind("a node's link with another node stands (`up`), or is gone", {"to": "str", "up": "bool"}),
    "says": EventKind("a line of a node's log, for operators", {"words": "str"}),
    "member": EventKind(
        "where a member stands: as it `begins` on what its disk has, or as the events begin; no `log`: not known",
        _MEMBER,
    ),
    "role": EventKind(
        "a member's role, term, leader or list of members changes; no leader: none is known",
        {"group": "str", "role": "str", "leader": "str", "term": "int", "members": "str"},
    ),
    "append": EventKind(
        "a member hands an entry to its log; it has not reached the disk yet",
        {**_PLACE, "words": "str", "messages": "ints"},
    ),
    "disk": EventKind("a member's log is on disk up to this entry", _PLACE),
    "vote": EventKind(
        "a member's term, and its vote in that term, are on disk; no vote: for nobody",
        {"group": "str", "term": "int", "vote": "str"},
    ),
    "drop": EventKind("a member drops its log from this entry on", {"group": "str", "index": "int"}),
    "reset": EventKind("a snapshot of another member replaces a member's log", _PLACE),
    "snapshot": EventKind("a member's own snapshot is on disk", _PLACE),
    "install": EventKind("another member's snapshot is on a member's disk", _PLACE),
    "commit": EventKind("a member knows that the log is committed up to this entry", {"group": "str", "index": "int"}),
    "apply": EventKind("a member applies this entry to its queue", _PLACE),
    "take": EventKind("a member's queue takes over the state of a snapshot", {"group": "str", "index": "int"}),
    "leave": EventKind("a node deletes its member", {"group": "str"}),
    "message": EventKind(
        "a message to another node: entries or indexes, the answer, when it arrived (`got`), whether it was lost",
        _MESSAGE,
    ),
    "owner": EventKind("a node becomes the owner of a classic queue", {"group": "str"}),
    "command": EventKind(
        "the owner of a classic queue applies commands", {"group": "str", "words": "str", "messages": "ints"}
    ),
    "deliver": EventKind(
        "a node hands messages to a consumer of its own",
        {"group": "str", "to": "str", "messages": "ints", "again": "bool"},
    ),
    "deal": EventKind(
        "a member gives messages to a consumer, and leaves it to another node to send them",
        {"group": "str", "to": "str", "messages": "ints"},
    ),
    "bury": EventKind("messages leave a queue as dead letters", {"group": "str", "words": "str", "messages": "ints"}),
    "publish": EventKind("a client publishes messages", {"queue": "str", "messages": "ints"}),
    "confirm": EventKind("a client hears that a message is confirmed", {"queue": "str", "messages": "ints"}),
    "refuse": EventKind("a client hears that a message is refused", {"queue": "str", "messages": "ints"}),
    "get": EventKind("a client gets a message", {"queue": "str", "messages": "ints", "again": "bool"}),
    "settle": EventKind(
        "a client acknowledges, returns or rejects a message", {"queue": "str", "messages": "ints", "words": "str"}
    ),
    "client": EventKind("a client does something else", {"words": "str"}),
}
"""The kinds of events."""

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "int": (int,), "float": (int, float), "bool": (bool,), "str": (str,), "ints": (list,), "runs": (list,),
}  # fmt: skip


def line(event: WorldEvent) -> str:
    """An event as one line of JSON, without the end of the line."""
    record = {"t": round(event.t, 9), "at": event.at, "what": event.what, **event.fields}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def lines(events: Iterable[WorldEvent]) -> str:
    """Events as the text of a file."""
    return "".join(f"{line(each)}\n" for each in events)


def read(text: str) -> Iterator[WorldEvent]:
    """The events in the text of a file. Raises :class:`EventFormatError`."""
    before = float("-inf")
    for number, each in enumerate(text.splitlines(), 1):
        if each.strip():
            event = _read_line(each, f"line {number}")
            if event.t < before:
                raise EventFormatError(f"line {number}: an event of {event.t} s after one of {before} s")
            before = event.t
            yield event


def _read_line(text: str, where: str) -> WorldEvent:
    try:
        record = json.loads(text)
        t, at, what = float(record.pop("t")), str(record.pop("at")), str(record.pop("what"))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise EventFormatError(f"{where}: no event with t, at and what: {text[:80]}") from error
    event = WorldEvent(t, at, what, {name: record.get(name) for name in KINDS[what].fields} if what in KINDS else {})
    if (wrong := problem(WorldEvent(t, at, what, {**event.fields, **record}))) is not None:
        raise EventFormatError(f"{where}: {wrong}")
    return event


def problem(event: WorldEvent) -> str | None:
    """What is wrong with an event; None if it is one of this format."""
    kind = KINDS.get(event.what)
    if kind is None:
        return f"there is no kind of event {event.what!r}"
    if event.fields.keys() != kind.fields.keys():
        return f"{event.what} has the fields {[*kind.fields]}, not {[*event.fields]}"
    for name, wanted in kind.fields.items():
        value = event.fields[name]
        is_number = isinstance(value, bool) and wanted != "bool"
        if value is not None and (is_number or not isinstance(value, _TYPES[wanted])):
            return f"{event.what}.{name} is to be {wanted}, not {value!r}"
    return None
