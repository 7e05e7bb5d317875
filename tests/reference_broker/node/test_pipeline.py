"""Which commands share an entry: settles first, and few publishes while a consumer waits for its settles."""

from __future__ import annotations

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.commands import Enqueue, Settle
from reference_broker.message_run import MessageRun
from reference_broker.node.config import Limits
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.replication.pipeline import CommandQueue
from reference_broker.node.replication.proxy import Proxy
from reference_broker.queues.quorum import QUORUM
from reference_broker.types import ChannelId, ConsumerId, GroupId, NodeId, Priority, Term

LIMITS = Limits()
CHANNEL = ChannelId(NodeId(1), 1, 1, 1)
SETTLE = Settle(ConsumerId(CHANNEL, "c"), ((0, 0),))


def enqueue(first_seq: int, count: int) -> Enqueue:
    return Enqueue(CHANNEL, first_seq, MessageRun(count, b"\x00\x01q", bytes(10 * count), 10))


def filled(*runs: int, settles: int = 0) -> CommandQueue:
    """A queue with enqueues of so many messages each, and then settles."""
    queue, seq = CommandQueue(), 1
    for number, count in enumerate(runs, 1):
        queue.add(enqueue(seq, count), 10 * count, (NodeId(1), Priority.LOW, 1), number)
        seq += count
    for number in range(1, settles + 1):
        queue.add(SETTLE, 64, (NodeId(1), Priority.NORMAL, 1), number)
    return queue


def cut(queue: CommandQueue, messages_max: int | None = None) -> tuple[int, list[int]]:
    """Settles and sizes of runs in the next batch."""
    most = () if messages_max is None else (messages_max,)
    commands, segments = queue.cut(1000, 10, *most)
    assert sum(segment[4] for segment in segments) == len(commands)
    runs = [command.run.count for command in commands if isinstance(command, Enqueue)]
    return len(commands) - len(runs), runs


def test_settles_overtake() -> None:
    assert cut(filled(3, 4, settles=2)) == (2, [3, 4])


def test_octets_bound_a_batch_but_not_its_first_run() -> None:
    queue = filled(200, 60, 40, 1)
    assert [cut(queue), cut(queue), cut(queue)] == [(0, [200]), (0, [60, 40]), (0, [1])]
    assert not queue.octets


def test_a_pace_bounds_the_messages_but_not_the_first_run() -> None:
    queue = filled(16, 4, 12, 20, settles=1)
    assert [cut(queue, 16), cut(queue, 16), cut(queue, 16)] == [(1, [16]), (0, [4, 12]), (0, [20])]


def test_settles_go_alone_while_publishes_wait() -> None:
    queue = filled(5, settles=3)
    assert cut(queue, 0) == (3, [])
    assert not queue.holds(Priority.NORMAL)
    assert queue.holds(Priority.LOW)
    assert queue.octets == 50


def test_low_priority_waits_for_the_rest_of_the_normal_priority() -> None:
    """A channel's end goes in the low priority. In the log before its last subscription, it would leave a consumer that
    nobody ever ends."""
    queue = filled(1, settles=3)
    assert [len(queue.cut(128, 10)[0]) for _ in range(2)] == [2, 2]
    assert not queue.octets
    queue = filled(1, settles=3)
    assert [type(each) for each in queue.cut(128, 10)[0]] == [Settle, Settle]


def test_a_batch_is_whole_by_octets_or_by_commands() -> None:
    """Thousands of channels that each publish one message fill a batch with few octets."""
    assert not filled(99).holds_whole_batch(1000, 3)
    assert filled(100).holds_whole_batch(1000, 3)
    assert not filled(1, settles=1).holds_whole_batch(1000, 3)
    assert filled(1, settles=2).holds_whole_batch(1000, 3)


def test_few_octets_go_on_a_congested_link() -> None:
    queue = filled(5, settles=1)
    batch = queue.cut_for_link(LIMITS, congested=True)
    assert batch is not None and len(batch[0]) == 2


def test_many_publishes_wait_for_a_congested_link_and_settles_do_not() -> None:
    """They would pile up on the connection, beside the commands that the node keeps anyway."""
    queue = filled(LIMITS.small_message_bytes // 10, 1, settles=2)
    batch = queue.cut_for_link(LIMITS, congested=True)
    assert batch is not None and batch[0] == [SETTLE, SETTLE]
    assert queue.cut_for_link(LIMITS, congested=True) is None
    assert queue.octets == LIMITS.small_message_bytes // 10 * 10 + 10
    batch = queue.cut_for_link(LIMITS, congested=False)
    assert batch is not None and len(batch[0]) == 2
    assert not queue.octets


class Node:
    """What a proxy needs of its node."""

    node, boot_id, limits = NodeId(4), 1, LIMITS

    def __init__(self) -> None:
        self.congested = {NodeId(1)}
        self.sent: list[FrameKind] = []
        self.waiting: list[tuple[int, object]] = []
        self.anatomy = Anatomy(clock=1)

    def send(self, _node: NodeId, kind: FrameKind, buffers: list[bytes | memoryview]) -> int:
        self.sent.append(kind)
        return sum(map(len, buffers))

    def now_ns(self) -> int:
        return 1

    def wake(self, runner: object) -> None: ...

    def when_writable(self, node: NodeId, runner: object) -> None:
        self.waiting.append((node, runner))


def test_a_proxy_goes_on_when_the_link_to_the_leader_takes_octets_again() -> None:
    node = Node()
    record = QueueRecord(name="q", group=GroupId(7), members=(NodeId(1),))
    proxy = Proxy(record, QUORUM, node, lambda: 0)  # type: ignore[arg-type]
    proxy.leading(NodeId(1), Term(1), 0, 0)
    count = LIMITS.small_message_bytes // 10
    proxy.propose(enqueue(1, count), 10 * count)
    proxy.propose(enqueue(1 + count, 1), 10)
    proxy.turn()
    assert node.waiting == [(NodeId(1), proxy)]
    assert FrameKind.PROPOSE not in node.sent
    node.congested.clear()
    proxy.turn()
    assert node.sent.count(FrameKind.PROPOSE) == 1
    assert len(node.waiting) == 1
