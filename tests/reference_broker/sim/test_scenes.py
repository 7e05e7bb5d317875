"""The scenes of the documentation: what their texts promise happens in the world."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reference_broker.sim.queues import GRAVEYARD
from reference_broker.sim.scenes.__main__ import main
from reference_broker.sim.scenes.catalogue import SCENES, events_of
from reference_broker.sim.scenes.membership import MEMBERS_END
from reference_broker.sim.scenes.troubled_messages import DELIVERY_LIMIT, MAX_LENGTH, POISON_ENDS, REFUSAL_ENDS
from reference_broker.worldpage.events import WorldEvent, problem
from reference_broker.worldpage.members import Members, take


@pytest.fixture(scope="module")
def cut_off() -> list[WorldEvent]:
    return events_of("cut-off-leader")


def logs_at(events: list[WorldEvent], end: int, queue: str = "orders") -> Members:
    members: Members = {}
    for event in events[:end]:
        take(members, event)
    return {key: member for key, member in members.items() if key[1] == queue}


def holders(events: list[WorldEvent], end: int, message: int, queue: str = "orders") -> set[str]:
    """The nodes that have a message on disk after so many events."""
    entries = {
        (each.fields["index"], each.fields["term"])
        for each in events[:end]
        if each.what == "append" and each.fields["group"] == queue and message in each.fields["messages"]
    }
    return {
        at
        for (at, _group), member in logs_at(events, end, queue).items()
        if any(index <= member.disk and member.term_at(index) == term for index, term in entries)
    }


_ABOUT_MESSAGES = {
    "publish": "{at} publishes {names}",
    "confirm": "{at} hears: {names} confirmed",
    "refuse": "{at} hears: {names} refused",
    "get": "{at} gets {names}{again}",
    "settle": "{at} {words} {names}",
    "bury": "{at} buries {names} ({words})",
}


def told(event: WorldEvent) -> str | None:
    """An event as a line of a transcript: what clients do and hear, what becomes of messages, who the members are, who
    leads. None: the event is about none of this."""
    fields = event.fields
    if event.what in _ABOUT_MESSAGES:
        names = " ".join(f"m{number}" for number in fields["messages"])
        again = " again" if fields.get("again") else ""
        words = str(fields.get("words", "")).replace("_", " ")
        return _ABOUT_MESSAGES[event.what].format(at=event.at, names=names, again=again, words=words)
    if event.what == "append" and fields["group"] == "orders" and fields["words"].startswith("members "):
        return f"place {fields['index']} of the log: {fields['words']}"
    if event.what == "role" and fields["group"] == "orders" and fields["role"] == "leader":
        return f"{event.at} leads in term {fields['term']}"
    return None


def transcript(events: list[WorldEvent]) -> str:
    """A scene as text: its notes as comments, and the lines of its events. An entry and a leader stand there once."""
    lines: list[str] = []
    for event in events:
        line = f"# {event.fields['title']}" if event.what == "note" else told(event)
        if line is not None and not (event.what in ("append", "role") and line in lines):
            lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def place(events: list[WorldEvent], what: str, message: int) -> int:
    return next(at for at, each in enumerate(events) if each.what == what and message in each.fields["messages"])


def messages_of(events: list[WorldEvent], what: str, queue: str = "orders") -> list[int]:
    """The messages of all events of a kind about a queue, in order."""
    return [
        message
        for each in events
        if each.what == what and queue in (each.fields.get("queue"), each.fields.get("group"))
        for message in each.fields["messages"]
    ]


def last_text(events: list[WorldEvent]) -> str:
    return str([each for each in events if each.what == "note"][-1].fields["text"])


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


def test_at_the_cut_three_disks_have_the_message_and_one_is_on_the_larger_side(cut_off: list[WorldEvent]) -> None:
    """And no other log has it, not even in memory: the larger side needs the vote of that one node."""
    cut = next(at for at, each in enumerate(cut_off) if each.what == "cut")
    assert holders(cut_off, cut, 1) == {"n1", "n4", "n5"}
    small = {each.at for each in cut_off if each.what == "cut" and each.fields["to"] == "n2"}
    assert small == {"n1", "n5"}
    assert {each.at for each in cut_off[:cut] if each.what == "append" and 1 in each.fields["messages"]} == {
        *("n1", "n4", "n5")
    }


def test_who_has_the_message_refuses_a_candidate_without_it_and_wins(cut_off: list[WorldEvent]) -> None:
    """It refuses because of the logs: it no longer trusts the leader, to which its link has ended."""
    cut = next(at for at, each in enumerate(cut_off) if each.what == "cut")
    of_queue = [each for each in cut_off[cut:] if each.fields.get("group") == "orders"]
    led = next(each for each in of_queue if each.what == "role" and each.fields["role"] == "leader")
    assert led.at == "n4"
    asked = [each for each in of_queue if each.what == "message" and each.t < led.t and each.at in ("n2", "n3", "n4")]
    answers = [
        (each.at, each.fields["to"], each.fields["ok"]) for each in asked if each.fields["kind"] == "PreVoteReply"
    ]
    assert {(to, ok) for at, to, ok in answers if at == "n4"} == {("n2", False), ("n3", False)}
    assert ("n3", "n2", True) in answers
    first = next(each.t for each in asked if each.at == "n4" and each.fields["kind"] == "PreVoteReply")
    ended = [each.t for each in cut_off[cut:] if (each.at, each.what, each.fields.get("to")) == ("n4", "link", "n1")]
    assert ended and ended[0] < first
    votes = {(each.at, each.fields["ok"]) for each in asked if each.fields["kind"] == "VoteReply"}
    assert votes == {("n2", True), ("n3", True)}


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


def test_a_poison_message_is_buried_once_and_the_next_one_is_delivered() -> None:
    events = events_of("poison-message")
    assert last_text(events).endswith(POISON_ENDS)
    assert messages_of(events, "get", "work") == [1] * (DELIVERY_LIMIT + 1) + [2]
    assert messages_of(events, "bury", "work") == [1]
    assert [each.fields["words"] for each in events if each.what == "bury"] == ["delivery_limit"]
    assert [each.fields["again"] for each in events if each.what == "get"] == [False, True, True, False]
    assert holders(events, len(events), 1, GRAVEYARD) == {"n1", "n2", "n3"}
    assert holders(events, len(events), 2, GRAVEYARD) == set()
    settled = [(each.fields["words"], each.fields["messages"]) for each in events if each.what == "settle"]
    assert settled == [("returns", [1])] * (DELIVERY_LIMIT + 1) + [("acks", [2])]


def test_a_full_queue_refuses_what_it_has_no_room_for() -> None:
    events = events_of("full-queue")
    assert last_text(events).endswith(REFUSAL_ENDS)
    fit, late = [*range(1, MAX_LENGTH + 1)], [MAX_LENGTH + 3]
    assert messages_of(events, "confirm") == fit + late
    assert messages_of(events, "refuse") == [MAX_LENGTH + 1, MAX_LENGTH + 2]
    assert messages_of(events, "get") == [1, 2]
    for refused in (MAX_LENGTH + 1, MAX_LENGTH + 2):
        assert holders(events, len(events), refused) == {"n1", "n2", "n3"}, "the entry is in the log like any other"


@pytest.mark.parametrize("name", ["poison-message", "full-queue", "change-of-members"])
def test_a_scene_is_told_as_in_its_transcript(name: str) -> None:
    """The tutorial prints the transcripts (``REWRITE=1`` writes them)."""
    file = Path(__file__).parent / "data" / f"{name}.txt"
    found = transcript(events_of(name))
    if os.environ.get("REWRITE"):
        file.write_text(found, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == found


def test_members_change_one_at_a_time() -> None:
    """Each list of members is committed before the next one is written, and differs from the former in one voter."""
    events = events_of("change-of-members")
    assert last_text(events).endswith(MEMBERS_END)
    lists: dict[int, str] = {}
    for each in events:
        if each.what == "append" and each.fields["words"].startswith("members ") and each.fields["group"] == "orders":
            lists.setdefault(each.fields["index"], each.fields["words"].removeprefix("members "))
    assert [*lists.values()] == ["n1,n2,n3 learning n4", "n1,n2,n3,n4", "n2,n3,n4"]
    first, second, third = lists
    leads = [(at, each) for at, each in enumerate(events) if each.at == "n1" and each.fields.get("group") == "orders"]
    for former, later in ((first, second), (second, third)):
        written = next(at for at, each in leads if each.what == "append" and each.fields["index"] == later)
        assert any(each.what == "commit" and each.fields["index"] >= former for at, each in leads if at < written)
    for message in (1, 2):
        assert holders(events, len(events), message) == {"n2", "n3", "n4"}
    assert {each.at for each in events if each.what == "leave"} == {"n1"}


def test_the_page_goes_by_the_newest_list_of_members() -> None:
    """The page counts majorities: 3 of 4 after the addition, and 2 of 3 without the leader after the removal."""
    events = events_of("change-of-members")
    counted = [each.fields["members"] for each in events if each.what == "role" and each.at == "n1"]
    assert counted == ["n1,n2,n3 learning n4", "n1,n2,n3,n4", "n2,n3,n4", "n2,n3,n4"]


def test_the_command_writes_a_page_for_each_scene(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "worlds")]) == 0
    assert sorted(each.stem for each in tmp_path.joinpath("worlds").iterdir()) == sorted(SCENES)
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err
