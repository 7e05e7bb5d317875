"""Walks through local delivery as events; pure.

docs/local-delivery.md has the walks: prose, and transcripts that the tests run
(``tests/reference_broker/machines/data``). Each step of a transcript becomes a moment, one virtual millisecond after
the step before. What a member "has" is on its disk, for the walks have no syncs of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from reference_broker.worldpage.events import WorldEvent
from reference_broker.worldpage.members import MemberView, standing

_QUEUE: Final = "queue"
_STEP_S: Final = 0.001
_NAMES: Final = {"E": "enqueue", "S": "subscribe", "A": "acknowledge", "D": "down"}
_ENTRY: Final = re.compile(r"([ESAD]) (\d+):(\d+) (\w+)")
_ACT: Final = re.compile(r"(\w) (appends|has|applies) (.+)")
_DEAL: Final = re.compile(r"  deals (\w+)( again)? to (\w+), (.+)")
_FENCE: Final = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_MARKUP: Final = re.compile(r"[*`]")
_LEADS: Final = re.compile(r"(\w) leads in term (\d+)")


class LogWalk(NamedTuple):
    """The heading of a walk, and its events."""

    title: str
    events: list[WorldEvent]


class _Steps:
    """A walk under way: the time of the present step, and who leads."""

    def __init__(self, members: tuple[str, ...], leader: str) -> None:
        self.events: list[WorldEvent] = []
        self.t = 0.0
        self._members, self._living, self._leader, self._on = ",".join(members), [*members], leader, ""
        for at in members:
            role = "leader" if at == leader else "follower"
            view = MemberView(role=role, leader=leader, term=1, members=self._members)
            self.events.append(standing(0.0, at, _QUEUE, view))

    def add(self, at: str, what: str, **fields: Any) -> None:
        """Take an event of the present step down."""
        self.events.append(WorldEvent(self.t, at, what, fields))

    def step(self, line: str) -> None:
        """A step of a client or of the outside."""
        match line.split():
            case ["channel", name, "on", node]:
                self.add(name, "client", words=f"connects to {node}")
            case ["append", "enqueue", message, "by", name]:
                self.add(name, "publish", queue=_QUEUE, messages=[_number(message)])
            case ["append", "acknowledge", message, "by", name]:
                self.add(name, "settle", queue=_QUEUE, messages=[_number(message)], words="acknowledges")
            case ["append", "subscribe", name]:
                self.add(name, "client", words="subscribes")
            case ["leave", name]:
                self.add(name, "client", words="is gone: its connection breaks")
            case ["stop", at]:
                self._living.remove(at)
                self.add(at, "kill")

    def result(self, line: str) -> None:
        """A line of a step's result."""
        if (act := _ACT.fullmatch(line)) is not None:
            self._act(act[1], act[2], act[3])
        elif (deal := _DEAL.fullmatch(line)) is not None:
            self._deals(_number(deal[1]), deal[3], deal[4], again=bool(deal[2]))
        elif line.startswith("  confirms to "):
            self.add(line.split()[-1], "confirm", queue=_QUEUE, messages=self._messages)
        elif (leads := _LEADS.fullmatch(line)) is not None:
            self._elected(leads[1], int(leads[2]))

    def _act(self, at: str, verb: str, text: str) -> None:
        letter, term_text, index_text, name = _ENTRY.fullmatch(text).groups()  # type: ignore[union-attr]
        index, term = int(index_text), int(term_text)
        self._on, self._messages = at, [_number(name)] if letter == "E" else []
        place = {"group": _QUEUE, "index": index, "term": term}
        if verb == "applies":
            self.add(at, "commit", group=_QUEUE, index=index)
            self.add(at, "apply", **place)
            return
        if verb == "has":
            rest = {"ok": True, "got": self.t + _STEP_S / 2, "lost": False}
            self.add(self._leader, "message", to=at, kind="AppendEntries", group=_QUEUE, term=term, first=index,
                     last=index, **rest)  # fmt: skip
            self.t += _STEP_S / 2
        self.add(at, "append", **place, words=f"{_NAMES[letter]} {name}", messages=self._messages)
        self.add(at, "disk", **place)

    def _deals(self, message: int, to: str, how: str, *, again: bool) -> None:
        if how.endswith("sends it"):
            self.add(self._on, "deliver", group=_QUEUE, to=to, messages=[message], again=again)
            self.add(to, "get", queue=_QUEUE, messages=[message], again=again)
        else:
            self.add(self._on, "deal", group=_QUEUE, to=to, messages=[message])

    def _elected(self, leader: str, term: int) -> None:
        self._leader = leader
        for at in self._living:
            role = "leader" if at == leader else "follower"
            self.add(at, "role", group=_QUEUE, role=role, leader=leader, term=term, members=self._members)


def walks_of(page: str) -> dict[str, LogWalk]:
    """The walks of a page in Markdown, by the names of their files. A section with transcripts is a walk, and each of
    its parts ends with a note: the heading of the part, and its prose."""
    found = {}
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        if _FENCE.search(body):
            found["-".join(re.findall(r"[a-z]+", title.lower()))] = LogWalk(title, events_of(_parts(body)))
    return found


def _parts(body: str) -> Iterator[tuple[str, str, str]]:
    """Heading, prose and transcript of each part of a section."""
    for part in re.split(r"^### ", body, flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        prose = " ".join(_MARKUP.sub("", _LINK.sub(r"\1", _FENCE.sub("", text))).split())
        yield title, prose, "\n\n".join(_FENCE.findall(text))


def events_of(
    parts: Iterable[tuple[str, str, str]], members: tuple[str, ...] = ("A", "B", "C"), leader: str = "B"
) -> list[WorldEvent]:
    """The events of a walk in parts: title and text of a note, and the transcript of the steps before the note.
    ``leader`` leads in term 1."""
    walk = _Steps(members, leader)
    for title, text, transcript in parts:
        for step, results in _steps(transcript):
            walk.t += _STEP_S
            walk.step(step)
            for line in results:
                walk.result(line)
        if title:
            walk.t += _STEP_S
            walk.add("", "note", title=title, text=text, shows=_QUEUE)
    return walk.events


def _steps(transcript: str) -> Iterator[tuple[str, list[str]]]:
    """Each step of a transcript with its results. Comments are no steps."""
    for part in re.split(r"\n\s*\n", transcript.strip()):
        lines = [line for line in part.splitlines() if not line.startswith("#")]
        if "----" in lines:
            at = lines.index("----")
            yield lines[0], lines[at + 1 :]
        else:
            yield from ((line, []) for line in lines)


def _number(message: str) -> int:
    """The number of a message that is called m and a number."""
    return int(message.removeprefix("m"))
