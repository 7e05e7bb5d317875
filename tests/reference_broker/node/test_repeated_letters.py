"""Dead letters at least once, while the leaders of their queue change: what arrives twice, how much, and how one can
tell."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from reference_broker.amqp.properties import HEADERS, read_properties, read_table
from reference_broker.machines import dead_letters
from reference_broker.message_run import MessageRun, decode
from reference_broker.node.shard import Shard
from reference_broker.queues.quorum_member import QuorumMember
from reference_broker.types import GroupId
from tests.reference_broker.amqp.testing import content
from tests.reference_broker.machines.logs import drained

from .quiet_cluster import NODES, QuietCluster, quiet_cluster

WINDOW = 40
MESSAGES = 600
CHANGES = 8
GRAVE, SOURCE = GroupId(1), GroupId(2)
ROUTE = b"\x00\x06source"


def member(shard: Shard, group: GroupId) -> QuorumMember:
    host = shard.runners[group].host
    assert isinstance(host, QuorumMember)
    return host


def publish(cluster: QuietCluster) -> None:
    """Messages that expire at once."""
    leader = cluster.leader(SOURCE)
    run = MessageRun.of(ROUTE, [content(1, b"%d" % number) for number in range(MESSAGES)])
    cluster.loops[leader.node].run(lambda: leader.queues["source"].forward(run))


def next_leader(cluster: QuietCluster, random: Random) -> int:
    """Another node leads the source, after a little while. Returns how many letters it sent again."""
    for _ in range(random.randrange(60)):
        cluster.scheduler.step()
    former = cluster.leader(SOURCE)
    heir = random.choice([node for node in NODES if node != former.node])
    before = sum(shard.dead_letters.repeated for shard in cluster.shards.values())

    def hand_over() -> None:
        former.runners[SOURCE].core.transfer(heir)
        former.wake(former.runners[SOURCE])

    cluster.loops[former.node].run(hand_over)
    cluster.wait(lambda: member(cluster.shards[heir], SOURCE).leading)
    return sum(shard.dead_letters.repeated for shard in cluster.shards.values()) - before


def arrived(cluster: QuietCluster) -> tuple[Counter[bytes], Counter[bytes]]:
    """How often each message is in the grave: all copies, and those that do not say that they are repeats."""
    leader = cluster.leader(GRAVE)
    copies, first_copies = Counter[bytes](), Counter[bytes]()
    for (entry, offset, position), _count in drained(member(leader, GRAVE).machine):
        octets = decode(leader.runners[GRAVE].payload(entry), offset).content(position)
        size = int.from_bytes(octets[3:7])
        headers = dict(read_table(read_properties(octets[7 : 7 + size])[HEADERS]))
        body = octets[7 + size + 1 + 7 : -1]
        copies[body] += 1
        first_copies[body] += b"x-dead-letter-repeat" not in headers
    return copies, first_copies


@pytest.mark.parametrize("seed", range(3))
def test_a_change_of_leader_repeats_a_window_at_most_and_says_so(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer must be able to tell a copy that may be the second one, and an operator how many there may be."""
    monkeypatch.setattr(dead_letters, "WINDOW", WINDOW)
    random = Random(seed)
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
    careful = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-message-ttl": 1}
    with quiet_cluster() as cluster:
        cluster.declare(["grave"])
        cluster.declare(["source"], **letters, **careful)
        cluster.wait_for_leaders()
        publish(cluster)
        again = [next_leader(cluster, random) for _ in range(CHANGES)]
        cluster.wait(lambda: not any(runs_late(shard) for shard in cluster.shards.values()))
        cluster.pass_time(1)
        copies, first_copies = arrived(cluster)
        counted = sum(shard.dead_letters.repeated for shard in cluster.shards.values())
    assert max(again) <= WINDOW and any(again), f"{again}, seed {seed}"
    assert set(copies) == {b"%d" % number for number in range(MESSAGES)}
    repeats = sum(copies.values()) - MESSAGES
    assert 0 < repeats <= counted == sum(again), f"{repeats} of {counted}, seed {seed}"
    assert set(first_copies.values()) <= {0, 1}, f"seed {seed}"


def runs_late(shard: Shard) -> bool:
    """Whether letters of the source are still on their way."""
    counts = member(shard, SOURCE).counts()
    return counts.enqueued < MESSAGES or counts.ready + counts.dead_letters > 0
