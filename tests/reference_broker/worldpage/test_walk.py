"""Walks through local delivery as events: after each step the logs are those that the transcript draws."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reference_broker.worldpage.__main__ import main
from reference_broker.worldpage.events import problem
from reference_broker.worldpage.members import Members, take
from reference_broker.worldpage.walk import LogWalk, events_of, walks_of

PAGE = Path(__file__).parents[3] / "docs" / "local-delivery.md"
DATA = Path(__file__).parents[1] / "machines" / "data"
FILES = [DATA / f"{name}.txt" for name in ("local_delivery", "consumer_failure", "proxied")]
_DRAWN = re.compile(r"(\w) (leader|follower) +applied (\d+) .* log (.+)")
_ENTRY = re.compile(r"\w (\d+):(\d+) ")


def drawn_at_the_end(text: str) -> dict[str, tuple[str, int, list[tuple[int, int]]]]:
    """Role, applied index and (index, term) of each entry, of every living member in the last drawing."""
    last = text.rpartition("members\n----\n")[2]
    return {
        found[1]: (found[2], int(found[3]), [(int(index), int(term)) for term, index in _ENTRY.findall(found[4])])
        for found in _DRAWN.finditer(last)
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_drawing_of_the_transcript_is_where_the_events_lead(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    places = [match.end() for match in re.finditer(r"members\n----\n(?:.+\n)+", text)]
    assert places
    for end in places:
        members: Members = {}
        for event in events_of([("", "", text[:end])]):
            assert problem(event) is None
            take(members, event)
        drawn = drawn_at_the_end(text[:end])
        assert drawn == {
            at: (member.role, member.applied, [(index, member.term_at(index)) for index in range(1, member.last + 1)])
            for (at, _group), member in members.items()
            if member.is_up
        }


@pytest.fixture(scope="module")
def walks() -> dict[str, LogWalk]:
    return walks_of(PAGE.read_text(encoding="utf-8"))


def test_each_section_with_transcripts_is_a_walk_and_each_part_a_note(walks: dict[str, LogWalk]) -> None:
    """A reader of the page finds its words again in the picture."""
    assert [walk.title for walk in walks.values()] == [
        "Two consumers, and a change of leader", "A consumer fails", "A node without a member",
    ]  # fmt: skip
    notes = [each.fields for each in walks["two-consumers-and-a-change-of-leader"].events if each.what == "note"]
    assert len(notes) == 15
    assert notes[2]["title"] == "Group 2: the entry reaches the followers"
    assert notes[2]["text"].startswith("A and C have the entry on disk. Two of three members are enough")
    assert not [each for each in notes if re.search(r"[`*\[]", each["text"]) or not each["text"]]


def test_each_message_is_published_confirmed_delivered_and_acknowledged(walks: dict[str, LogWalk]) -> None:
    """A reader follows m1 from the publisher to the acknowledgement."""
    events = walks["two-consumers-and-a-change-of-leader"].events
    kinds = [each.what for each in events if 1 in (each.fields.get("messages") or ())]
    for what in ("publish", "append", "confirm", "deal", "deliver", "get", "settle"):
        assert what in kinds
    assert kinds.count("deliver") == kinds.count("get") == 1


def test_the_command_draws_a_page_of_each_walk(
    walks: dict[str, LogWalk], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(PAGE), str(tmp_path / "worlds")]) == 0
    assert {each.stem for each in tmp_path.joinpath("worlds").iterdir()} == walks.keys()
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"t": 1}\n', encoding="utf-8")
    assert main([str(bad), str(tmp_path)]) == 2
    assert "bad.jsonl: line 1: no event" in capsys.readouterr().err
