"""The scenes of the documentation: what their texts promise happens in the world."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference_broker.sim.scenes import SCENES, events_of, main
from reference_broker.worldpage.events import WorldEvent, problem
from reference_broker.worldpage.members import Members, take


@pytest.fixture(scope="module")
def cut_off() -> list[WorldEvent]:
    return events_of("cut-off-leader")


def logs_at(events: list[WorldEvent], end: int) -> Members:
    members: Members = {}
    for event in events[:end]:
        take(members, event)
    return {key: member for key, member in members.items() if key[1] == "orders"}


def holders(events: list[WorldEvent], end: int, message: int) -> set[str]:
    """The nodes that have a message on disk after so many events."""
    entries = {
        (each.fields["index"], each.fields["term"])
        for each in events[:end]
        if each.what == "append" and message in each.fields["messages"]
    }
    return {
        at
        for (at, _group), member in logs_at(events, end).items()
        if any(index <= member.disk and member.term_at(index) == term for index, term in entries)
    }


def place(events: list[WorldEvent], what: str, message: int) -> int:
    return next(at for at, each in enumerate(events) if each.what == what and message in each.fields["messages"])


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_plays_the_same_each_time_and_is_small(name: str) -> None:
    events = events_of(name)
    assert [problem(each) for each in events if problem(each)] == []
    assert events == events_of(name)
    assert 50 < len(events) < 5000
    assert events[0].what == "world" and events[0].fields["total"] == len(events)


def test_a_message_is_confirmed_only_once_a_majority_has_it(cut_off: list[WorldEvent]) -> None:
    for message in (1, 2, 3):
        assert len(holders(cut_off, place(cut_off, "confirm", message), message)) >= 3


def test_the_small_side_confirms_nothing(cut_off: list[WorldEvent]) -> None:
    """Message 2 is on two disks while the cut lasts, and its publisher waits."""
    titles = [each.fields["title"] for each in cut_off if each.what == "note"]
    moments = [at for at, each in enumerate(cut_off) if each.what == "note"]
    two = next(at for at, title in zip(moments, titles, strict=True) if title.startswith("Message 2 is on two disks"))
    mended = next(at for at, title in zip(moments, titles, strict=True) if title == "The cable is mended")
    assert len(holders(cut_off, two, 2)) == len(holders(cut_off, mended, 2)) == 2
    assert place(cut_off, "confirm", 2) > mended > place(cut_off, "confirm", 3) > two


def test_in_the_end_all_nodes_have_all_confirmed_messages(cut_off: list[WorldEvent]) -> None:
    for message in (1, 2, 3):
        assert holders(cut_off, len(cut_off), message) == {"n1", "n2", "n3", "n4", "n5"}
    logs = logs_at(cut_off, len(cut_off)).values()
    assert len({(member.last, member.applied, member.commit, str(member.runs)) for member in logs}) == 1


def test_the_cut_off_entry_is_dropped(cut_off: list[WorldEvent]) -> None:
    assert {each.at for each in cut_off if each.what == "drop"} != set()


def test_the_killed_leader_comes_back() -> None:
    events = events_of("killed-leader")
    (killed,) = [each.at for each in events if each.what == "kill"]
    assert killed in [each.at for each in events if each.what == "start"]
    for message in (1, 2, 3):
        assert holders(events, len(events), message) == {"n1", "n2", "n3"}


def test_nineteen_messages_are_one_entry_with_one_sync_on_each_disk() -> None:
    events = events_of("shared-writes")
    many = [each for each in events if each.what == "append" and len(each.fields["messages"]) == 19]
    assert len({each.fields["index"] for each in many}) == 1 and len(many) >= 2
    for each in many:
        place = {name: each.fields[name] for name in ("group", "index", "term")}
        assert [other.at for other in events if other.what == "disk" and other.fields == place].count(each.at) <= 1
    assert place_of_last_confirm(events) > events.index(many[0])


def place_of_last_confirm(events: list[WorldEvent]) -> int:
    return max(at for at, each in enumerate(events) if each.what == "confirm")


def test_a_leader_hands_over_without_a_timer() -> None:
    """The next leader is told to stand, and is elected in the next term within milliseconds."""
    events = events_of("handed-over-leader")
    (told,) = [each for each in events if each.what == "message" and each.fields["kind"] == "TimeoutNow"]
    led = next(each for each in events if each.what == "role" and each.fields["role"] == "leader" and each.t > told.t)
    assert led.at == told.fields["to"] and led.t - told.t < 0.02


def test_the_command_writes_a_page_for_each_scene(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "worlds")]) == 0
    assert sorted(each.stem for each in tmp_path.joinpath("worlds").iterdir()) == sorted(SCENES)
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err
