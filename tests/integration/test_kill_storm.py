"""kill -9 of nodes in turn under load: nothing confirmed is lost, nothing comes out of order, nothing is invented.

The short form takes every kind of blow once; ``STORM_KILLS=50`` (``make storm``) goes on until so many nodes were
killed. ``STORM_SEED`` repeats a schedule.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infra import local_cluster
from infra.local_cluster import Cluster

pytestmark = pytest.mark.processes

KILLS = int(os.environ.get("STORM_KILLS", "4"))
SEED = int(os.environ.get("STORM_SEED", "20"))
TIMEOUT_S = 60.0
SUSPECT_S = 2.0
"""``Limits.suspect_after_ms``: a leader that is silent for longer is replaced."""


class Storm:
    """A cluster, its clients, and what was done to it."""

    def __init__(self, directory: Path, cluster: Cluster, clients: Any) -> None:
        self.directory = directory
        self.cluster = cluster
        self.account = clients.account
        self.clients = clients
        self.schedule: list[str] = []
        self.gaps: list[float] = []
        self.kills = 0
        self.idle = threading.Event()  # never set: waiting for it is waiting

    def leader(self) -> str:
        """The node that leads the queue; waits for one."""
        self.until(lambda: bool(self._leaders()), "a leader of the queue")
        return self._leaders()[0]

    def _leaders(self) -> list[str]:
        rows = local_cluster.status(self.cluster)
        held = [(q["term"], row["name"]) for row in rows for q in row.get("queues", ()) if q["role"] == "leader"]
        return [name for _, name in sorted(held, reverse=True)]

    def followers(self) -> list[str]:
        leader = self.leader()
        return [node.name for node in self.cluster.nodes if node.name != leader]

    def until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not done():
            assert time.monotonic() < deadline, f"{what} did not come within {TIMEOUT_S:g} s"
            self.idle.wait(0.02)

    def progress(self, what: str) -> None:
        """Wait until more is confirmed and delivered."""
        confirmed, delivered = len(self.account.confirmed), len(self.account.delivered)
        self.until(lambda: len(self.account.confirmed) > confirmed + 50, f"a confirm after {what}")
        self.until(lambda: len(self.account.delivered) > delivered + 50, f"a delivery after {what}")

    def blow(self, kind: str, chance: random.Random) -> None:
        """Hit, see that what should go on goes on, and repair."""
        began = time.monotonic()
        victims = self._victims(kind, chance)
        self.schedule.append(f"{kind} {'+'.join(victims)}")
        if kind == "pause":
            self._pause(victims[0])
        else:
            self._kill(victims)
        self.progress(self.schedule[-1])
        if kind != "two":  # without a majority nothing may be confirmed, for as long as it takes to start one
            self.gaps.append(self.account.longest_gap_s(began, time.monotonic()))

    def _victims(self, kind: str, chance: random.Random) -> list[str]:
        if kind in ("leader", "pause"):
            return [self.leader()]
        if kind == "follower":
            return [chance.choice(self.followers())]
        return [self.leader(), chance.choice(self.followers())]

    def _kill(self, victims: list[str]) -> None:
        for name in victims:
            local_cluster.kill(self.cluster, name)
            self.kills += 1
        if len(victims) > 1:
            self._nothing_is_committed()
        else:
            self.progress(f"the death of {victims[0]}")
        for name in victims:
            self.cluster = local_cluster.start_node(self.cluster, name)
        self.until(self._all_ready, f"the return of {victims}")

    def all_use_files_again(self) -> bool:
        """Whether each node went through more files than it keeps, so that old messages stand in the one it writes."""
        rows = local_cluster.status(self.cluster)
        return all(row["state"] == "running" and row["metrics"]["wal_files_recycled"] >= 3 for row in rows)

    def kill_all(self) -> None:
        """Every node, one right after the other, as when the power of a house goes; then start the cluster again."""
        for node in self.cluster.nodes:
            local_cluster.kill(self.cluster, node.name)
        self.kills += len(self.cluster.nodes)
        self.schedule.append("all")
        self.cluster = local_cluster.start(self.directory, base_port=self.cluster.nodes[0].amqp_port)
        self.until(self._all_ready, "the return of all nodes")
        self.progress("the death of all nodes")

    def _nothing_is_committed(self) -> None:
        """Once the node that is left has read all that the others said, and knows that nobody leads. Its clients may
        read confirms of before for as long as they need."""
        self.until(lambda: self._survivor()["leader"] == 0, "the end of the lead")
        before = self._survivor()["commit_index"]
        self.idle.wait(1.0)
        assert self._survivor()["commit_index"] == before, "a single node committed"

    def _survivor(self) -> dict[str, Any]:
        """Where the only node that runs stands with the queue."""
        (row,) = (row for row in local_cluster.status(self.cluster) if row["state"] == "running")
        (queue,) = row["queues"]
        return dict(queue)

    def _pause(self, name: str) -> None:
        """Longer than the others' patience: they elect another leader. The old one must confirm nothing by itself."""
        local_cluster.pause(self.cluster, name)
        began = time.monotonic()
        self.until(lambda: time.monotonic() - began > 1.5 * SUSPECT_S, "the end of the pause")
        self.progress(f"the pause of {name}")
        local_cluster.resume(self.cluster, name)
        self.until(self._all_ready, f"the return of {name}")

    def pause_until_replaced(self, name: str) -> None:
        """Until the others have another leader, which confirms, and give to their consumers what was with the paused
        one's."""
        redelivered = self.account.redelivered
        local_cluster.pause(self.cluster, name)
        self.until(lambda: name not in (self._leaders() or [name])[:1], f"a successor of {name}")
        self.progress(f"the pause of {name}")
        self.until(lambda: self.account.redelivered > redelivered, f"what consumers on {name} held")
        local_cluster.resume(self.cluster, name)
        self.until(self._all_ready, f"the return of {name}")
        self.progress(f"the return of {name}")

    def _all_ready(self) -> bool:
        return all(row["state"] == "running" and row.get("ready") for row in local_cluster.summary(self.cluster))

    def settle(self) -> None:
        """Let everything that was confirmed come out, and look at the account."""
        self.clients.stop_publishing()
        deadline = time.monotonic() + TIMEOUT_S
        while self.account.lost() and time.monotonic() < deadline:
            self.idle.wait(0.1)
        lost = self.account.lost()
        assert not lost, f"{len(lost)} confirmed messages are lost, the first {lost[:5]}"
        assert not self.account.wrong, f"{len(self.account.wrong)} wrong deliveries, the first {self.account.wrong[:5]}"

    def figures(self) -> str:
        gaps = f"{statistics.median(self.gaps):.2f} s median, {max(self.gaps):.2f} s max" if self.gaps else "none"
        account = self.account
        return (
            f"seed {SEED}: {self.kills} kills, {len(account.confirmed)} confirmed, {len(account.delivered)} delivered, "
            f"{account.redelivered} redelivered; longest gap without a confirm: {gaps}; {', '.join(self.schedule)}"
        )


@contextmanager
def stormy(directory: Path, base_port: int, module: ModuleType, load: Any = None) -> Iterator[Storm]:
    """A cluster under load; prints the seed and the schedule, which is shown when the test fails."""
    cluster = local_cluster.start(directory, base_port=base_port)
    try:
        with module.Clients([node.amqp_port for node in cluster.nodes], SEED, load or module.Load()) as clients:
            storm = Storm(directory, cluster, clients)
            try:
                storm.progress("the start")
                yield storm
            finally:
                print(storm.figures())  # noqa: T201
    finally:
        local_cluster.stop(local_cluster.load(directory))


@pytest.mark.slow
def test_nothing_confirmed_is_lost_in_a_storm_of_kills(tmp_path: Path, base_port: int, storm: ModuleType) -> None:
    """Leader, follower, two at a time (nothing may be confirmed meanwhile), and over again."""
    chance = random.Random(SEED)
    with stormy(tmp_path / "cluster", base_port, storm) as run:
        for kind in ("leader", "follower", "two"):
            run.blow(kind, chance)
        while run.kills < KILLS:
            run.blow(chance.choice(("leader", "leader", "follower", "two")), chance)
        run.settle()


@pytest.mark.slow
def test_nothing_confirmed_is_lost_when_all_nodes_die(tmp_path: Path, base_port: int, storm: ModuleType) -> None:
    """Whatever they were writing, and with WAL files that were used many times over, full of old messages: every node
    starts again, and what was confirmed is there."""
    directory = tmp_path / "cluster"
    with_small_wal_files(directory, base_port)
    with stormy(directory, base_port, storm) as run:
        for _ in range(2):
            run.until(run.all_use_files_again, "the use of old WAL files")
            run.kill_all()
        run.settle()


def with_small_wal_files(directory: Path, base_port: int) -> None:
    """A cluster that was started once, and whose nodes' WAL files are full within a second from now on."""
    cluster = local_cluster.start(directory, base_port=base_port)
    local_cluster.stop(cluster)
    for node in cluster.nodes:
        config = Path(node.data_dir) / "node.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"limits": {"wal_file_bytes": 64 * 1024}}))


@pytest.mark.slow
def test_a_leader_that_was_paused_confirms_nothing_by_itself(tmp_path: Path, base_port: int, storm: ModuleType) -> None:
    """It wakes up believing that it leads, with publishes in its sockets that the new leader knows nothing of."""
    with stormy(tmp_path / "cluster", base_port, storm) as run:
        run.blow("pause", random.Random(SEED))
        run.settle()


@pytest.mark.slow
def test_a_leader_that_was_paused_delivers_nothing_late_as_if_for_the_first_time(
    tmp_path: Path, base_port: int, storm: ModuleType
) -> None:
    """What its consumers had to get has gone to the consumers on other nodes when it goes on with what it finds in its
    sockets, or in the middle of whatever it was doing. Only what was with the socket already cannot be called back
    (docs/internals/node.md), and clients that read have that long before anybody else gets a copy."""
    with stormy(tmp_path / "cluster", base_port, storm, storm.HEAVY) as run:
        for _ in range(4):
            run.pause_until_replaced(run.leader())
        run.settle()
        assert run.account.redelivered, "no pause took anything from anybody"
        late = run.account.late
        assert not late, f"{len(late)} late deliveries are not marked, the first {late[:3]}"


def test_the_account_sees_what_is_wrong(storm: ModuleType) -> None:
    """A checker that finds nothing because it looks at nothing would pass every storm."""
    account = storm.Account()
    account.published[1, 1] = 3
    account.confirmed |= {(1, 1, 0), (1, 1, 2)}
    last: dict[tuple[int, int], int] = {}
    for number in (1, 0, 1, 7):
        account.note((1, 1, number), redelivered=False, last=last, consumer="c")
    account.note((1, 1, 1), redelivered=True, last=last, consumer="c")
    assert account.lost() == [(1, 1, 2)] and account.redelivered == 1
    ((late_s, late),) = account.late
    assert late == f"c got (1, 1, 1) {late_s:.3f} s behind another delivery of it"
    assert account.wrong == [
        "c got (1, 1, 0) behind 1",
        "c got (1, 1, 1) again, not marked redelivered",
        "c got (1, 1, 7), which was never published",
    ]
