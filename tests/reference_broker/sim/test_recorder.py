"""What a recorder takes down: all of it of the format, without any change to the run, and true at every moment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reference_broker.sim.__main__ import main
from reference_broker.sim.recorder import WorldRecorder
from reference_broker.sim.runs import run_world
from reference_broker.sim.world import World
from reference_broker.worldpage.events import problem, read
from reference_broker.worldpage.members import Members, MemberView, take

STEPS = 4000


def runs_of(terms: dict[int, int], snapshot: int) -> list[list[int]]:
    """Runs of equal terms above a snapshot."""
    runs: list[list[int]] = []
    for index, term in sorted(terms.items()):
        if index > snapshot and (not runs or runs[-1][1] != term):
            runs.append([index, term])
    return runs


def truth_of(world: World, recorder: WorldRecorder) -> dict[tuple[str, str], tuple[MemberView, bool]]:
    """Where the members of all running nodes stand: their logs as the checkers know them, all else as they say. And
    whether each has told its role: a member that waits for its turn may know more already than it has told."""
    labels = recorder.labels
    found = {}
    for node in world.nodes.values():
        for group, runner in node.shard.runners.items() if node.shard is not None else ():
            core = runner.core
            known = world.checkers.raft.group(group).member(node.node)
            view = MemberView(
                role=str(core.role), leader=f"n{core.leader}" if core.leader else "", term=core.term,
                snapshot=known.snapshot, runs=runs_of(known.terms, known.snapshot),
                last=max(known.terms, default=known.snapshot), disk=max(known.durable, known.snapshot),
                commit=core.commit_index, applied=runner.applied,
            )  # fmt: skip
            found[node.host, labels[group]] = view, not runner.scheduled
    return found


@pytest.mark.parametrize("seed", [22, 77, 3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 12))])
def test_the_logs_that_follow_from_the_events_are_those_of_the_world(seed: int) -> None:
    """Written, on disk, committed, applied, and so what a crash would lose: a picture that says otherwise is worse
    than none."""
    recorder = WorldRecorder()
    world, members, taken, looks = World(seed, recorder=recorder), Members(), 0, 0
    while world.trace.count < STEPS:
        world.scheduler.step()
        if world.trace.count % 50:
            continue
        for event in recorder.events[taken:]:
            take(members, event)
        taken = len(recorder.events)
        told = {key: member for key, member in members.items() if member.is_up}
        for key, (member, has_told) in truth_of(world, recorder).items():
            shown = told[key]
            assert (shown.last, shown.disk, shown.commit, shown.applied, shown.snapshot, shown.runs) == (
                member.last, member.disk, member.commit, member.applied, member.snapshot, member.runs,
            ), f"{key} at {world.scheduler.now:.6f}: {shown} is {member}"  # fmt: skip
            roles = [(each.role, each.term, each.leader) for each in (shown, member)]
            assert not has_told or roles[0] == roles[1], f"{key} at {world.scheduler.now:.6f}: {roles}"
            looks += 1
    world.close()
    assert looks > 50


def test_a_recorder_changes_nothing_and_every_event_is_of_the_format() -> None:
    recorder = WorldRecorder()
    recorded = run_world(77, STEPS, recorder=recorder)
    assert recorded.trace_hash == run_world(77, STEPS).trace_hash
    assert [wrong for each in recorder.events if (wrong := problem(each)) is not None] == []
    kinds = {each.what for each in recorder.events}
    assert {"start", "member", "role", "append", "disk", "vote", "commit", "apply", "message", "publish", "confirm",
            "deliver", "get", "settle", "healed"} <= kinds  # fmt: skip


def test_messages_arrive_later_than_they_leave_or_are_lost() -> None:
    recorder = WorldRecorder()
    run_world(77, STEPS, recorder=recorder)
    messages = [each for each in recorder.events if each.what == "message"]
    arrived = [each for each in messages if each.fields["got"] is not None]
    assert all(each.fields["got"] >= each.t and not each.fields["lost"] for each in arrived)
    assert len(arrived) > 0.8 * len(messages) > 0
    waiting = [each.t for each in messages if each.fields["got"] is None and each.fields["lost"] is None]
    assert all(t > recorder.events[-1].t - 0.2 for t in waiting)
    assert any(each.fields["lost"] for each in messages)


def test_the_command_writes_a_page_and_the_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, events = tmp_path / "world.html", tmp_path / "world.jsonl"
    told = ["--seed", "22", "--steps", "1500", "--page", str(page), "--events", str(events), "--from", "0.1"]
    assert main(told) == 0
    assert str(page) in capsys.readouterr().out
    found = [*read(events.read_text(encoding="utf-8"))]
    assert found[0].what == "world" and found[0].fields["command"] == "make sim SEED=22 STEPS=1500"
    island = page.read_text(encoding="utf-8").partition('id="world">')[2].partition("</script>")[0]
    assert 100 < len(json.loads(island)["events"]) < len(found)


def test_a_page_needs_one_world_and_bounds_that_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    for told, wrong in ([], "--seed"), (["--seed", "1", "--from", "soon"], "neither seconds"):
        with pytest.raises(SystemExit) as ended:
            main(["--page", "world.html", *told])
        assert ended.value.code == 2
        assert wrong in capsys.readouterr().err
