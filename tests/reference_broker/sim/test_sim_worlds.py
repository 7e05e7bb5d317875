"""A slice of what `make sim` does at length, and what a replay depends on: one seed, one run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reference_broker.log.notices import Notice
from reference_broker.log.opening import RecoveredGroup
from reference_broker.node.hosting.hosted_queues import Hosting
from reference_broker.node.hosting.log_notices import LogNotices
from reference_broker.sim.__main__ import main
from reference_broker.sim.checks.invariants import INVARIANTS
from reference_broker.sim.node import SimShard
from reference_broker.sim.runs import run_world
from reference_broker.sim.world import World
from reference_broker.types import METADATA_GROUP, GroupId, NodeId

SEEDS = range(1, 13)
STEPS = 10_000


@pytest.mark.parametrize("seed", [*SEEDS[:4], *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[4:])])
def test_no_invariant_is_violated(seed: int) -> None:
    """The production code of a cluster under crashes, partitions, broken drives and restless clients."""
    outcome = run_world(seed, STEPS)
    assert not outcome.error, f"{outcome.error}\nreplay with: make sim SEED={seed} STEPS={STEPS}"
    assert outcome.events >= STEPS


def test_worlds_write_in_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a fast drive the event loop writes by itself: a simulator that has threads write always, or never, would not
    see what most nodes do."""
    told = {True: 0, False: 0}
    notify = LogNotices.notify

    def noted(notices: LogNotices, news: list[Notice]) -> None:
        told[notices._writing_here] += 1
        notify(notices, news)

    monkeypatch.setattr(LogNotices, "notify", noted)
    for seed in SEEDS[:4]:
        assert not run_world(seed, 1000).error
    assert min(told.values()) > 100


@pytest.mark.parametrize("hash_seed", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_seed_gives_the_same_run_in_any_process(hash_seed: str) -> None:
    """Otherwise a failure could not be looked at again. Hashes of strings differ between processes; nothing else may
    depend on them."""
    here = run_world(3, STEPS)
    code = f"from reference_broker.sim.runs import run_world; print(run_world(3, {STEPS}).trace_hash)"
    command = [sys.executable, "-c", code]
    there = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": hash_seed,
                           "PYTHONPATH": str(Path(__file__).parents[3])})  # fmt: skip
    assert int(there.stdout) == here.trace_hash


def test_what_a_node_deletes_while_it_starts_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica whose deletion was not on disk yet is recovered, and deleted again as soon as the metadata is read."""
    recover = Hosting.recover

    def recover_and_delete(hosting: Hosting, recovered: dict[GroupId, RecoveredGroup]) -> None:
        recover(hosting, recovered)
        hosting._ports.log.delete_group(METADATA_GROUP)

    monkeypatch.setattr(Hosting, "recover", recover_and_delete)
    world = World(1)
    assert world.checkers.raft.group(METADATA_GROUP).member(NodeId(1)).is_gone
    world.close()


def test_a_queue_whose_master_is_found_lost_after_the_healing_is_given_up() -> None:
    """Until then, the living nodes may not know who the master is."""
    world = World(2)
    while world.trace.count < 2000:
        world.scheduler.step()
    world.heal()
    shard = world.nodes[NodeId(1)].shard
    assert shard is not None
    name, master = masters(shard)[0]
    world.nodes[master].is_lost = True
    world.wait(lambda: f"clients ask for {name}" if any(plan.name == name for plan in world.queues) else None)
    world.close()


def masters(shard: SimShard) -> list[tuple[str, NodeId]]:
    """The classic queues that a node knows, with the masters that have no copies."""
    known = shard.metadata.machine.queues.values()
    return [(each.name, each.leader) for each in known if each.kind == "classic" and not each.mirrors]


def test_different_seeds_give_different_runs() -> None:
    """A seed that is not used everywhere would make a thousand worlds one."""
    assert run_world(1, 500).trace_hash != run_world(2, 500).trace_hash


def test_the_table_of_invariants_names_real_checkers() -> None:
    """The documents print this table: a number without a check would be a promise without one."""
    import reference_broker.sim

    folder = Path(reference_broker.sim.__file__).parent
    for invariant in INVARIANTS.values():
        source = next(folder.rglob(f"{invariant.checker}.py")).read_text()
        assert f'"{invariant.number}"' in source, f"{invariant.checker} does not check {invariant.number}"
    page = (folder.parents[1] / "docs" / "internals" / "simulation.md").read_text()
    rows = [f"| {each.number} | {each.statement} | `{each.checker}` |" for each in INVARIANTS.values()]
    assert "\n".join(rows) in page, "docs/internals/simulation.md shows another table"


def test_the_command_says_how_far_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody who lets it run over night wants to know what it did."""
    assert main(["--seeds", "2", "--steps", "500"]) == 0
    assert "2 worlds" in capsys.readouterr().out
