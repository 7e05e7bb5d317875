"""A classic queue while links are cut or nodes sleep: confirms go on, and no message comes twice as if new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import permutations

import pytest

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.policies import Policy
from reference_broker.machines.commands import Enqueue, Get, Purge
from reference_broker.message_run import MessageRun
from reference_broker.types import GET_TAG, METADATA_GROUP, ConsumerId, GroupId, NodeId, Priority
from tests.reference_broker.node.quiet_cluster import NODES, QuietCluster, quiet_cluster
from tests.reference_broker.node.test_suspension import ALL, Reader, content

QUEUE = GroupId(1)
SUSPECT_S = 0.2


class Client(Reader):
    """A connection that publishes, and may consume."""

    def __init__(self, cluster: QuietCluster, node: NodeId, log: list[tuple[NodeId, int, int]]) -> None:
        super().__init__(cluster, cluster.shards[node], QUEUE, log)
        self.confirmed = 0
        self._published = 0

    def publish(self, number: int) -> None:
        self._published += 1
        run = MessageRun.of(b"\x00\x01q", [content(number)])
        self.propose(Enqueue(self.channel, self._published, run), Priority.LOW)

    def committed(self, _group: GroupId, last: int) -> bool:
        self.confirmed = max(self.confirmed, last)
        return True


class Scene:
    """Three nodes with a classic queue, of which each has a copy if it ``is_mirrored``."""

    def __init__(
        self, cluster: QuietCluster, master: NodeId, leader: NodeId, *, is_mirrored: bool, is_filled: bool
    ) -> None:
        """``leader`` is to lead the metadata. ``is_filled``: new copies get what there is."""
        self.cluster, self.master = cluster, master
        self.lead(leader)
        done: list[object] = []
        definition = (("ha-mode", "all"), ("ha-sync-mode", "automatic" if is_filled else "manual"))
        policy = Policy(name="m", pattern="^q" if is_mirrored else "^other", definition=definition)
        shard = cluster.shards[master]
        cluster.loops[master].run(shard.metadata.set_policy, policy, done.append)
        cluster.wait(lambda: bool(done))
        record = QueueRecord(name="q", group=QUEUE, members=(master,), kind="classic", leader=master)
        cluster.loops[master].run(lambda: shard.declare(shard.place(record), done.append))
        cluster.wait(lambda: len(done) == 2 and self.copies() == (set(NODES) - {master} if is_mirrored else set()))
        cluster.wait(lambda: all(shard.proposer(QUEUE) is not None for shard in cluster.shards.values()))
        self.log: list[tuple[NodeId, int, int]] = []
        self.published = 0

    def lead(self, node: NodeId) -> None:
        """Have a node lead the metadata."""
        cluster = self.cluster
        while cluster.leader().node != node:
            former = cluster.leader()
            cluster.loops[former.node].run(former.runners[METADATA_GROUP].core.transfer, node)
            cluster.loops[former.node].run(former.wake, former.runners[METADATA_GROUP])
            cluster.pass_time(1)

    def record(self, node: NodeId | None = None) -> QueueRecord:
        """The queue as a node knows it: its master by default."""
        return self.cluster.shards[node or self.master].metadata.machine.queues["q"]

    def copies(self, node: NodeId | None = None) -> set[NodeId]:
        """The synchronised mirrors."""
        return {mirror.node for mirror in self.record(node).mirrors if mirror.is_synchronised}

    def client(self, node: NodeId) -> Client:
        return Client(self.cluster, node, self.log)

    def publish(self, client: Client, count: int = 1) -> None:
        for _ in range(count):
            self.published += 1
            client.publish(self.published)

    def cut(self, *pairs: tuple[NodeId, NodeId]) -> None:
        """Hold up everything from each node to another."""
        for source, target in pairs:
            self.cluster.network.block(f"n{source}", f"n{target}")

    def got(self, count: int) -> Callable[[], bool]:
        """Whether so many messages were delivered to anybody."""
        return lambda: len({number for _, number, _ in self.log}) >= count

    def late_as_new(self) -> list[int]:
        """The messages that came as if for the first time after somebody had got them."""
        seen: set[int] = set()
        return [number for _, number, count in self.log if (number in seen and not count) or seen.add(number)]

    def twice_as_new(self) -> list[int]:
        """The messages that came more than once as if for the first time."""
        first = Counter(number for _, number, delivery_count in self.log if not delivery_count)
        return [number for number, count in first.items() if count > 1]

    def ask(self, client: Client) -> list[object]:
        """Get, purge and ask for the counts. Returns what will be answered, but for errors."""
        heard: list[object] = []
        client.replied = lambda correlation, value: heard.append((correlation, value))  # type: ignore[method-assign]

        def ask() -> None:
            client.propose(Get(ConsumerId(client.channel, GET_TAG), False, 7))
            client.propose(Purge(client.channel, 8))
            client.shard.counts(QUEUE, lambda answer: "error" in answer or heard.append(answer))

        self.cluster.loops[client.shard.node].call_soon(ask)
        return heard

    def heal(self) -> None:
        for source, target in list(self.cluster.network.blocked):
            self.cluster.network.unblock(source, target)


@contextmanager
def scene(
    master: NodeId = NODES[0], leader: NodeId = NODES[0], *, is_mirrored: bool = True, is_filled: bool = True
) -> Iterator[Scene]:
    with quiet_cluster(suspect_after_ms=int(1000 * SUSPECT_S), heartbeat_ms=50, tick_ms=10) as cluster:
        yield Scene(cluster, master, leader, is_mirrored=is_mirrored, is_filled=is_filled)


@pytest.mark.parametrize("leads", ["one", "other", "master"])
@pytest.mark.parametrize(("master", "one", "other"), list(permutations(NODES)))
def test_confirms_go_on_while_two_mirrors_do_not_reach_each_other(
    master: NodeId, one: NodeId, other: NodeId, leads: str
) -> None:
    """One of the two mirrors is given up for as long as the cut lasts: the one that does not hear the leader of the
    metadata, if that is one of them. Then all have everything again. The cut is in one direction, if a mirror leads."""
    with scene(master, {"one": one, "other": other, "master": master}[leads]) as run:
        client = run.client(master)
        run.publish(client, 10)
        run.cluster.wait(lambda: client.confirmed == 10)
        run.cut(*[(one, other), (other, one)][: 1 + (leads == "master")])
        run.publish(client, 10)
        run.cluster.pass_time(4 * SUSPECT_S)
        for _ in range(5):
            run.publish(client)
            run.cluster.pass_time(SUSPECT_S)
            assert client.confirmed == run.published
            assert len(run.record().mirrors) == 1
        run.heal()
        run.cluster.wait(lambda: len(run.copies()) == 2)
        run.publish(client)
        run.cluster.wait(lambda: client.confirmed == run.published)


@pytest.mark.parametrize("leads", ["master", "other", "dies"])
@pytest.mark.parametrize(("master", "other", "dies"), list(permutations(NODES)))
@pytest.mark.parametrize("is_late", [False, True])
def test_a_node_that_dies_costs_no_mirror_but_its_own(
    master: NodeId, other: NodeId, dies: NodeId, leads: str, is_late: bool
) -> None:
    """Two nodes notice a death at different times. Of a cluster that was killed, one node after the other, all messages
    were lost once: the mirror that was left was dropped, and the new one there was blank when its master died, too."""
    with scene(master, {"master": master, "other": other, "dies": dies}[leads], is_filled=False) as run:
        client = run.client(master)
        run.publish(client, 10)
        run.cluster.wait(lambda: client.confirmed == 10)
        first, second = (master, other) if is_late else (other, master)
        run.cut((dies, first), (first, dies))
        run.cluster.pass_time(SUSPECT_S)
        run.cut((dies, second), (second, dies))
        run.cluster.wait(lambda: dies not in {mirror.node for mirror in run.record().mirrors})
        run.cluster.pass_time(4 * SUSPECT_S)
        assert [mirror[2:] for mirror in run.record().mirrors] == [(0, True)]
        run.publish(client)
        run.cluster.wait(lambda: client.confirmed == run.published)


def _with_a_blank_mirror(run: Scene) -> None:
    """The master has messages that the mirror on the second node does not have. There is no other mirror."""
    near = run.client(NODES[0])
    run.publish(near, 20)
    run.cluster.wait(lambda: near.confirmed == 20)
    run.cluster.stop(*NODES[1:])
    run.cluster.wait(lambda: len(run.record().mirrors) == 2)
    run.cluster.start(NODES[1])
    run.cluster.wait(lambda: [mirror[::3] for mirror in run.record().mirrors] == [(NODES[1], False)])


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_mirror_without_the_messages_is_promoted_late_and_aloud(comes_back: bool) -> None:
    """If the master's node comes back in time, nothing is lost."""
    with scene(is_filled=False) as run:
        _with_a_blank_mirror(run)
        run.cluster.start(NODES[2])
        run.cluster.pass_time(1)
        run.cluster.stop(NODES[0])
        run.cluster.pass_time(0.8 if comes_back else 2)
        assert run.record(NODES[1]).leader == (NODES[0] if comes_back else NODES[1])
        if comes_back:
            run.cluster.start(NODES[0])
            run.cluster.pass_time(1)
            assert run.record(NODES[1]).leader == NODES[0]
        said = [finding.row() for shard in run.cluster.shards.values() for finding in shard.findings.all()]
        assert [(row["queue"], "its master on n1 was lost" in str(row["what"])) for row in said] == [("q", True)] * (
            not comes_back
        )


def test_a_blank_mirror_is_not_promoted_after_all_nodes_were_down() -> None:
    """The queue waits for its master's node, which has everything."""
    with scene(is_filled=False) as run:
        _with_a_blank_mirror(run)
        run.cluster.stop(*NODES[:2])
        run.cluster.start(*NODES[1:])
        run.cluster.pass_time(10)
        assert run.record(NODES[1]).leader == NODES[0]
        run.cluster.start(NODES[0])
        client = run.client(NODES[1])
        run.publish(client)
        run.cluster.wait(lambda: client.confirmed == 1)
        assert run.record(NODES[1]).leader == NODES[0]


CUTS = {
    "isolated": [(1, 2), (2, 1), (1, 3), (3, 1)],
    "not heard": [(1, 2), (1, 3)],
    "hears nobody": [(2, 1), (3, 1)],
}


@pytest.mark.parametrize("is_one_way", [False, True])
def test_a_master_stays_that_only_the_leader_of_the_metadata_does_not_reach(is_one_way: bool) -> None:
    """The third node reaches both. The copies there are not synchronised: the queue is lost with another master."""
    with scene(NODES[0], NODES[1], is_filled=False) as run:
        near = run.client(NODES[0])
        run.publish(near, 20)
        run.cluster.wait(lambda: near.confirmed == 20)
        assert run.copies() == {NODES[1], NODES[2]}, "a copy that was there from the beginning has everything"
        for other in NODES[1:]:
            run.cut((NODES[0], other), (other, NODES[0]))
            run.cluster.wait(lambda other=other: other not in {mirror.node for mirror in run.record().mirrors})
            run.heal()
            run.cluster.wait(lambda other=other: other in {mirror.node for mirror in run.record().mirrors})
        assert run.copies() == set()
        run.lead(NODES[1])
        run.cut(*[(NODES[1], NODES[0]), (NODES[0], NODES[1])][: 1 + (not is_one_way)])
        run.publish(near, 20)
        run.cluster.wait(lambda: near.confirmed == 40)
        run.cluster.pass_time(10 * SUSPECT_S)
        assert {run.record(node).leader for node in NODES} == {NODES[0]}
        run.heal()
        near.subscribe(ALL)
        run.cluster.wait(run.got(40))
        assert [count for _, _, count in run.log] == [0] * 40


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("moment", range(3))
def test_a_deposed_master_delivers_nothing_that_comes_as_new_from_the_next(cut: str, moment: int) -> None:
    """Its clients publish, consume and get on its side, before and while the others make another node the master; the
    next master's clients get everything."""
    with scene(NODES[0], NODES[1]) as run:
        near, far = run.client(NODES[0]), run.client(NODES[2])
        run.publish(near, 5)
        near.subscribe(ALL)
        run.cluster.wait(run.got(5))
        run.publish(near, 20)
        run.cluster.pass_time(moment * 0.0003)
        run.cut(*[(NODES[one - 1], NODES[other - 1]) for one, other in CUTS[cut]])
        run.publish(near, 300)
        run.cluster.pass_time(SUSPECT_S / 2)
        run.publish(near, 300)
        run.cluster.pass_time(3 * SUSPECT_S)
        had = len(run.log)
        assert had < 5 + 20 + 600, "the master goes on delivering without a bound"
        run.cluster.pass_time(SUSPECT_S)
        assert len(run.log) == had
        run.cluster.wait(lambda: run.record(NODES[2]).leader != NODES[0])
        far.subscribe(ALL)
        run.cluster.pass_time(SUSPECT_S)
        run.heal()
        run.cluster.wait(lambda: len(run.copies(NODES[2])) == 2)
        run.publish(far, 20)
        run.cluster.wait(lambda: far.confirmed == 20)
        run.cluster.pass_time(1)
        assert run.twice_as_new() == []
        last = range(run.published - 19, run.published + 1)
        assert [count for _, number, count in run.log if number in last] == [0] * 20


@pytest.mark.parametrize("moment", range(3))
def test_what_a_master_delivered_that_nobody_hears_comes_as_redelivered_from_the_next(moment: int) -> None:
    """The master hears the publisher's node still, and delivers what the next master has from that node only."""
    with scene(NODES[0], NODES[1]) as run:
        near, publisher, far = run.client(NODES[0]), run.client(NODES[2]), run.client(NODES[1])
        near.subscribe(ALL)
        run.publish(publisher, 5)
        run.cluster.wait(run.got(5))
        run.cut((NODES[0], NODES[1]), (NODES[0], NODES[2]))
        run.cluster.pass_time(moment * 0.0003)
        run.publish(publisher, 20)
        run.cluster.wait(lambda: run.record(NODES[2]).leader != NODES[0])
        assert run.got(25)(), "the deposed master delivered nothing"
        far.subscribe(ALL)
        run.cluster.pass_time(4 * SUSPECT_S)
        assert [number for node, number, _ in run.log if node == NODES[1]] == list(range(1, 26))
        assert run.twice_as_new() == []


@pytest.mark.parametrize("cut", CUTS)
def test_a_master_that_is_cut_off_answers_nobody(cut: str) -> None:
    """No get, no purge, no question for counts, once the master is cut off for as long as a node may be silent; all of
    them when the link is there again, if it still is the master."""
    with scene(NODES[0], NODES[1]) as run:
        near = run.client(NODES[0])
        run.publish(near, 20)
        run.cluster.wait(lambda: near.confirmed == 20)
        run.cut(*[(NODES[one - 1], NODES[other - 1]) for one, other in CUTS[cut]])
        run.cluster.pass_time(3 * SUSPECT_S)
        heard = run.ask(near)
        run.cluster.pass_time(4 * SUSPECT_S)
        assert heard == [] == run.log


def test_a_master_that_is_not_cut_off_answers() -> None:
    """A mirror is lost, and a majority of the nodes is there."""
    with scene(NODES[0], NODES[1]) as run:
        near = run.client(NODES[0])
        run.publish(near, 20)
        run.cluster.wait(lambda: near.confirmed == 20)
        run.cut((NODES[0], NODES[2]), (NODES[2], NODES[0]))
        run.cluster.pass_time(3 * SUSPECT_S)
        heard = run.ask(near)
        run.cluster.wait(lambda: len(heard) == 3)
        assert (7, 20) in heard
        assert (8, 19) in heard
        assert run.log == [(NODES[0], 1, 0)]


def test_a_master_that_was_suspended_answers_nobody() -> None:
    """What its clients have asked meanwhile is the next master's affair."""
    with scene() as run:
        near, far = run.client(NODES[0]), run.client(NODES[2])
        run.publish(near, 20)
        run.cluster.wait(lambda: near.confirmed == 20)
        run.cluster.loops[NODES[0]].paused_until = run.cluster.scheduler.now + 5 * SUSPECT_S
        heard = run.ask(near)
        run.cluster.wait(lambda: run.record(NODES[2]).leader != NODES[0])
        far.subscribe(ALL)
        run.cluster.wait(run.got(20))
        run.cluster.pass_time(10 * SUSPECT_S)
        assert [answer for answer in heard if isinstance(answer, tuple)] == []
        assert run.twice_as_new() == []


@pytest.mark.parametrize("moment", range(4))
def test_a_master_that_was_suspended_delivers_nothing_that_comes_as_new_from_the_next(moment: int) -> None:
    """The other nodes have another master by the time that it goes on."""
    with scene() as run:
        near, far = run.client(NODES[0]), run.client(NODES[2])
        near.subscribe(ALL)
        run.publish(near, 20)
        run.cluster.pass_time(moment * 0.0003)
        run.cluster.loops[NODES[0]].paused_until = run.cluster.scheduler.now + 5 * SUSPECT_S
        far.subscribe(ALL)
        run.publish(near, 20)
        run.cluster.pass_time(10 * SUSPECT_S)
        run.publish(far, 20)
        run.cluster.wait(lambda: far.confirmed == 20)
        assert run.twice_as_new() == []


@pytest.mark.parametrize("is_mirrored", [False, True])
@pytest.mark.parametrize("moment", range(6))
def test_what_a_suspended_node_finds_unread_comes_as_redelivered(moment: int, is_mirrored: bool) -> None:
    """The owner has given the node up, and others have had the messages: the node reads the owner's last frames before
    it reads that the link has ended."""
    with scene(is_mirrored=is_mirrored) as run:
        asleep, other = run.client(NODES[2]), run.client(NODES[0])
        asleep.subscribe(ALL)
        run.publish(other, 20)
        run.cluster.pass_time(moment * 0.0002)
        run.cluster.loops[NODES[2]].paused_until = run.cluster.scheduler.now + 5 * SUSPECT_S
        run.publish(other, 20)
        other.subscribe(ALL)
        run.cluster.wait(run.got(40))
        run.cluster.pass_time(10 * SUSPECT_S)
        assert run.late_as_new() == []
        assert any(node == NODES[0] and count for node, _, count in run.log), "nothing was taken back"


def test_after_a_short_pause_nothing_comes_as_redelivered_once_the_owner_has_answered() -> None:
    """The link has held: what comes from now on is as new as ever."""
    with scene(is_mirrored=False) as run:
        asleep, other = run.client(NODES[2]), run.client(NODES[0])
        asleep.subscribe(ALL)
        run.publish(other, 5)
        run.cluster.wait(run.got(5))
        run.cluster.loops[NODES[2]].run(run.cluster.shards[NODES[2]].hosting.was_suspended)
        run.cluster.pass_time(SUSPECT_S)
        run.publish(other, 20)
        run.cluster.wait(run.got(25))
        assert [count for _, _, count in run.log] == [0] * 25
