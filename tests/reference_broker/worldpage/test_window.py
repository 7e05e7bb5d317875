"""The part of a run that a page shows: whole in itself, and around what broke."""

from __future__ import annotations

import pytest

from reference_broker.worldpage.events import WorldEvent
from reference_broker.worldpage.members import Members, take
from reference_broker.worldpage.window import WindowError, window

HEAD = WorldEvent(0.0, "", "world", {"title": "", "text": "", "command": "", "total": 0})
BEGIN = WorldEvent(
    0.0, "n1", "member",
    {"group": "q", "begins": True, "role": "follower", "leader": "", "term": 1, "members": "", "snapshot": 0, "log": [],
     "last": 0, "disk": 0, "commit": 0, "applied": 0},
)  # fmt: skip


def append(t: float, index: int, term: int = 1) -> WorldEvent:
    return WorldEvent(t, "n1", "append", {"group": "q", "index": index, "term": term, "words": "", "messages": []})


RUN = [HEAD, BEGIN, *(append(float(index), index) for index in range(1, 11))]


def ends(events: list[WorldEvent]) -> Members:
    members: Members = {}
    for event in events:
        take(members, event)
    return members


def test_without_bounds_all_is_shown() -> None:
    assert window(RUN) == RUN


def test_bounds_are_seconds_or_numbers_of_events() -> None:
    assert [each.t for each in window(RUN, "3.5", "6") if each.what == "append"] == [4, 5, 6]
    assert [each.t for each in window(RUN, "4ev", "5ev") if each.what == "append"] == [3, 4]
    with pytest.raises(WindowError, match="neither seconds"):
        window(RUN, "soon")


def test_a_window_of_the_middle_ends_where_the_whole_ends() -> None:
    """The logs at its end are those of the whole run, and its first event is the head."""
    part = window(RUN, "3.5")
    assert part[0] == HEAD
    assert ends(part) == ends(RUN)


def test_too_many_events_end_with_what_broke() -> None:
    broken = WorldEvent(11.0, "", "broken", {"number": "I5", "statement": "", "seen": ""})
    assert [each.t for each in window(RUN, most=3)] == [0, 0, 1]
    assert [each.what for each in window([*RUN, broken], most=3)][-3:] == ["append", "append", "broken"]


def test_a_window_knows_who_is_down_and_what_is_cut() -> None:
    """Otherwise a dead node would look alive until its next start."""
    cut = WorldEvent(3.2, "n1", "cut", {"to": "n2"})
    other = WorldEvent(3.2, "n1", "cut", {"to": "n3"})
    free = WorldEvent(3.3, "n1", "free", {"to": "n3"})
    kill = WorldEvent(3.3, "n1", "kill", {})
    pause = WorldEvent(3.1, "n2", "pause", {"until": 3.25})
    after = WorldEvent(4.0, "n2", "start", {"boot": 2})
    part = window([HEAD, BEGIN, append(1, 1), pause, cut, other, free, kill, after], "3.5")
    assert [(each.what, each.at) for each in part] == [
        ("world", ""), ("member", "n1"), ("kill", "n1"), ("cut", "n1"), ("start", "n2"),
    ]  # fmt: skip
    assert [each.fields["to"] for each in part if each.what == "cut"] == ["n2"]


def test_a_log_is_appended_overwritten_synced_and_compacted() -> None:
    """The same cases as in a member of Raft: an old notice of an overwritten entry does not count."""
    synced = [WorldEvent(9.0, "n1", "disk", {"group": "q", "index": 3, "term": term}) for term in (1, 2)]
    events = [BEGIN, append(1, 1), append(2, 2), append(3, 3), append(4, 3, term=2), synced[0]]
    member = ends(events)["n1", "q"]
    assert (member.runs, member.last, member.disk) == ([[1, 1], [3, 2]], 3, 0)
    member = ends([*events, synced[1]])["n1", "q"]
    assert member.disk == 3
    snapshot = WorldEvent(9.0, "n1", "snapshot", {"group": "q", "index": 2, "term": 1})
    member = ends([*events, synced[1], snapshot])["n1", "q"]
    assert (member.runs, member.snapshot, member.last) == ([[3, 2]], 2, 3)
    reset = WorldEvent(9.0, "n1", "reset", {"group": "q", "index": 8, "term": 2})
    member = ends([*events, synced[1], snapshot, reset])["n1", "q"]
    assert (member.runs, member.snapshot, member.disk, member.last) == ([], 8, 8, 8)
    assert ends([*events, WorldEvent(9.0, "n1", "leave", {"group": "q"}), synced[0]]) == {}
