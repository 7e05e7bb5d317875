"""The part of the events that one page shows; pure.

A window begins with where every member stands, so a page of the middle of a run is complete in itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reference_broker.worldpage.events import WorldEvent
from reference_broker.worldpage.members import Members, standing, take

EVENTS_MAX: Final = 20_000
"""Largest number of events of a page."""

_UNIT: Final = "ev"


class WindowError(ValueError):
    """A bound of a window that is neither a time nor the number of an event."""


def window(events: Sequence[WorldEvent], first: str = "", last: str = "", most: int = EVENTS_MAX) -> list[WorldEvent]:
    """The events from ``first`` to ``last``: seconds, as ``2.5``, or numbers of events from 0 on, as ``5000ev``.

    Without bounds, the window is everything; if that is more than a page takes, it ends with the broken invariant, or
    else begins at the beginning. Raises :class:`WindowError`.
    """
    begin = _place(events, first, is_end=False) if first else 0
    end = _place(events, last, is_end=True) if last else len(events)
    if not first and not last and any(each.what == "broken" for each in events[-most:]):
        begin = max(0, len(events) - most)
    end = min(end, begin + most)
    return [*_before(events[:begin]), *events[begin:end]]


def _place(events: Sequence[WorldEvent], bound: str, *, is_end: bool) -> int:
    try:
        if bound.endswith(_UNIT):
            return min(int(bound.removesuffix(_UNIT)) + is_end, len(events))
        t = float(bound)
    except ValueError as error:
        raise WindowError(f"{bound!r} is neither seconds, as 2.5, nor the number of an event, as 5000ev") from error
    return sum(each.t <= t if is_end else each.t < t for each in events)


def _before(events: Sequence[WorldEvent]) -> list[WorldEvent]:
    """What a reader must know of the events before the window: the head, where members stand, which nodes are down,
    which directions are cut."""
    if not events:
        return []
    t = events[-1].t
    members: Members = {}
    ends: dict[str, WorldEvent] = {}
    cuts: dict[tuple[str, str], WorldEvent] = {}
    for event in events:
        take(members, event)
        if event.what in ("start", "kill", "power"):
            ends[event.at] = event
        elif event.what in ("cut", "pause"):
            cuts[event.at, event.fields.get("to", "")] = event
        elif event.what == "free":
            cuts.pop((event.at, event.fields["to"]), None)
    down = [WorldEvent(t, at, event.what, event.fields) for at, event in ends.items() if event.what != "start"]
    cut = [WorldEvent(t, at, each.what, each.fields) for (at, _to), each in cuts.items() if _lasts(each, t)]
    stand = [standing(t, at, group, member) for (at, group), member in members.items()]
    return [*(each for each in events if each.what == "world"), *stand, *down, *cut]


def _lasts(event: WorldEvent, t: float) -> bool:
    return event.what == "cut" or event.fields["until"] > t
