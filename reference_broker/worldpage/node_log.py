"""The ``node.log`` files of a running cluster as events; pure.

The logs tell which links stand, who leads which group in which term, and when a node was suspended. They do not tell
what is in the log of a member, so the page shows roles without logs. The clocks of the hosts must agree: the events of
all files are put into one order by their times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from reference_broker.worldpage.events import KINDS, WorldEvent

_LINE: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (\w+) [\w.]+ (.+)")
_UP: Final = re.compile(r"node (\d+) is up, boot id (\d+)")
_DOWN: Final = re.compile(r"node (\d+) is down")
_ROLE: Final = re.compile(r"group ([0-9a-f]+): (\w+), leader (\d+), term (\d+)")
_SUSPENDED: Final = re.compile(r"this node was suspended for ([\d.]+) s")
_METADATA: Final = "0"


def events_of(logs: Mapping[str, str]) -> list[WorldEvent]:
    """The events in the logs of nodes, in the order of their times. ``logs`` has the text of each log by host, as
    ``n1``. Lines that are no events of the cluster are left out, but for warnings and errors."""
    lines = sorted(line for at, text in logs.items() for line in _lines(at, text))
    news = _News(lines[0][0]) if lines else None
    for when, _place, at, level, text in lines:
        assert news is not None
        news.hear((when - news.begin).total_seconds(), at, level, text)
    return sorted(news.events, key=lambda each: each.t) if news is not None else []


def _lines(at: str, text: str) -> Iterator[tuple[datetime, int, str, str, str]]:
    for place, line in enumerate(text.splitlines()):
        if (found := _LINE.fullmatch(line)) is not None:
            yield datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f"), place, at, found[2], found[3]


class _News:
    """What the lines have told so far."""

    def __init__(self, begin: datetime) -> None:
        self.begin = begin
        self.events: list[WorldEvent] = []
        self._boots: dict[str, int] = {}
        self._missed: dict[str, float] = {}
        """Since when some node has missed a node, by its host."""
        self._members: set[tuple[str, str]] = set()
        self._readers: tuple[tuple[re.Pattern[str], Callable[[float, str, re.Match[str]], None]], ...] = (
            (_UP, self._up), (_DOWN, self._down), (_ROLE, self._role), (_SUSPENDED, self._suspended),
        )  # fmt: skip

    def hear(self, t: float, at: str, level: str, text: str) -> None:
        """Take one line of the log of a node."""
        for pattern, read in self._readers:
            if (found := pattern.fullmatch(text)) is not None:
                read(t, at, found)
                return
        if level in ("WARNING", "ERROR", "CRITICAL"):
            self._add(t, at, "says", words=text)

    def _add(self, t: float, at: str, what: str, **fields: Any) -> None:
        self.events.append(WorldEvent(t, at, what, {**dict.fromkeys(KINDS[what].fields), **fields}))

    def _up(self, t: float, at: str, found: re.Match[str]) -> None:
        """A boot id that nobody has told before is a start. Then the former process ended when it was first missed."""
        peer, boot = f"n{found[1]}", int(found[2])
        if self._boots.get(peer) != boot:
            if peer in self._boots and peer in self._missed:
                self._add(self._missed[peer], peer, "kill")
            self._boots[peer] = boot
            self._members = {each for each in self._members if each[0] != peer}
            self._add(t, peer, "start", boot=boot)
        self._missed.pop(peer, None)
        self._add(t, at, "link", to=peer, up=True)

    def _down(self, t: float, at: str, found: re.Match[str]) -> None:
        self._missed.setdefault(f"n{found[1]}", t)
        self._add(t, at, "link", to=f"n{found[1]}", up=False)

    def _role(self, t: float, at: str, found: re.Match[str]) -> None:
        group = "metadata" if found[1] == _METADATA else found[1]
        standing = {"group": group, "role": found[2], "term": int(found[4])}
        standing["leader"] = f"n{found[3]}" if found[3] != "0" else ""
        what = "role" if (at, group) in self._members else "member"
        self._members.add((at, group))
        self._add(t, at, what, **standing)

    def _suspended(self, t: float, at: str, found: re.Match[str]) -> None:
        self._add(max(0.0, t - float(found[1])), at, "pause", until=t)
