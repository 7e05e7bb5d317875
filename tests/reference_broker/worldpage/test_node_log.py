"""Logs of a running cluster as events: starts, links, elections, suspensions, in the order of their times."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference_broker.worldpage.__main__ import main
from reference_broker.worldpage.events import problem
from reference_broker.worldpage.members import Members, take
from reference_broker.worldpage.node_log import events_of

_INFO = "INFO reference_broker.node"
LOGS = {
    "n1": f"""\
2026-11-30 03:58:42,455 {_INFO}.links.peers node 2 is up, boot id 1
2026-11-30 03:58:42,499 {_INFO}.replication.ticks group 0: leader, leader 1, term 1
2026-11-30 03:58:42,499 {_INFO}.server node1 serves AMQP on 127.0.0.1:17640
2026-11-30 03:58:56,685 {_INFO}.links.peers node 2 is up, boot id 1
2026-11-30 03:58:56,747 {_INFO}.replication.ticks group 0: follower, leader 2, term 2
""",
    "n2": f"""\
2026-11-30 03:58:42,505 {_INFO}.links.peers node 1 is up, boot id 1
2026-11-30 03:58:42,594 {_INFO}.replication.ticks group 0: follower, leader 1, term 1
2026-11-30 03:58:47,310 {_INFO}.links.peers node 1 is down
2026-11-30 03:58:47,544 {_INFO}.replication.ticks group 0: leader, leader 2, term 2
2026-11-30 03:58:50,000 WARNING reference_broker.node.turns this node was suspended for 1.5 s
2026-11-30 03:58:51,000 WARNING reference_broker.node.alarms publishing connections are stopped
Traceback of something else
2026-11-30 03:58:56,695 {_INFO}.links.peers node 1 is up, boot id 2
""",
}


def test_the_course_of_an_election_is_read_from_two_logs() -> None:
    events = events_of(LOGS)
    assert [problem(each) for each in events if problem(each)] == []
    assert [each.t for each in events] == sorted(each.t for each in events)
    told = [(each.at, each.what, each.fields.get("term")) for each in events if each.what in ("member", "role")]
    assert told == [("n1", "member", 1), ("n2", "member", 1), ("n2", "role", 2), ("n1", "member", 2)]
    assert [(each.at, each.fields["boot"]) for each in events if each.what == "start"] == [
        ("n2", 1), ("n1", 1), ("n1", 2),
    ]  # fmt: skip
    members: Members = {}
    for event in events:
        take(members, event)
    assert {(at, member.role, member.leader, member.term) for (at, _group), member in members.items()} == {
        ("n1", "follower", "n2", 2), ("n2", "leader", "n2", 2),
    }  # fmt: skip


def test_a_node_that_starts_anew_had_ended_when_it_was_missed() -> None:
    (kill,) = [each for each in events_of(LOGS) if each.what == "kill"]
    assert kill.at == "n1" and kill.t == pytest.approx(4.855)


def test_a_suspension_is_drawn_where_it_was() -> None:
    (pause,) = [each for each in events_of(LOGS) if each.what == "pause"]
    assert (pause.at, pause.t, pause.fields["until"]) == ("n2", pytest.approx(6.045), pytest.approx(7.545))


def test_warnings_are_told_in_their_words_and_other_lines_left_out() -> None:
    assert [each.fields["words"] for each in events_of(LOGS) if each.what == "says"] == [
        "publishing connections are stopped"
    ]
    assert events_of({"n1": "nothing\n"}) == []


def test_the_command_draws_one_page_of_all_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for at, text in LOGS.items():
        files.append(tmp_path / f"node{at[1:]}" / "node.log")
        files[-1].parent.mkdir()
        files[-1].write_text(text, encoding="utf-8")
    assert main([*map(str, files), str(tmp_path / "worlds")]) == 0
    assert [each.name for each in tmp_path.joinpath("worlds").iterdir()] == ["cluster.html"]
    stray = tmp_path / "node.log"
    stray.write_text(LOGS["n1"], encoding="utf-8")
    (tmp_path / "here").mkdir()
    stray = stray.rename(tmp_path / "here" / "node.log")
    assert main([str(stray), str(tmp_path)]) == 2
    assert "does not end with the number of a node" in capsys.readouterr().err
