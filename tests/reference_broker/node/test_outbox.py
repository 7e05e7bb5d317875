"""Which commands share an entry: settles first, and few publishes while a consumer waits for its settles."""

from __future__ import annotations

from reference_broker.machines.commands import Enqueue, Settle
from reference_broker.message_run import MessageRun
from reference_broker.node.outbox import Outbox
from reference_broker.node.proposals import Lane
from reference_broker.types import ChannelId, ConsumerId, NodeId

CHANNEL = ChannelId(NodeId(1), 1, 1, 1)
SETTLE = Settle(ConsumerId(CHANNEL, "c"), ((0, 0),))


def enqueue(first_seq: int, count: int) -> Enqueue:
    return Enqueue(CHANNEL, first_seq, MessageRun(count, b"\x00\x01q", bytes(10 * count), 10))


def filled(*runs: int, settles: int = 0) -> Outbox:
    """An outbox with enqueues of so many messages each, and then settles."""
    outbox, seq = Outbox(), 1
    for number, count in enumerate(runs, 1):
        outbox.add(enqueue(seq, count), 10 * count, (NodeId(1), Lane.BULK, 1), number)
        seq += count
    for number in range(1, settles + 1):
        outbox.add(SETTLE, 64, (NodeId(1), Lane.EXPRESS, 1), number)
    return outbox


def cut(outbox: Outbox, messages_max: int | None = None) -> tuple[int, list[int]]:
    """Settles and sizes of runs in the next batch."""
    most = () if messages_max is None else (messages_max,)
    commands, segments = outbox.cut(1000, 10, *most)
    assert sum(segment[4] for segment in segments) == len(commands)
    runs = [command.run.count for command in commands if isinstance(command, Enqueue)]
    return len(commands) - len(runs), runs


def test_settles_overtake() -> None:
    assert cut(filled(3, 4, settles=2)) == (2, [3, 4])


def test_octets_bound_a_batch_but_not_its_first_run() -> None:
    outbox = filled(200, 60, 40, 1)
    assert [cut(outbox), cut(outbox), cut(outbox)] == [(0, [200]), (0, [60, 40]), (0, [1])]
    assert not outbox.octets


def test_a_pace_bounds_the_messages_but_not_the_first_run() -> None:
    outbox = filled(16, 4, 12, 20, settles=1)
    assert [cut(outbox, 16), cut(outbox, 16), cut(outbox, 16)] == [(1, [16]), (0, [4, 12]), (0, [20])]


def test_settles_go_alone_while_publishes_wait() -> None:
    outbox = filled(5, settles=3)
    assert cut(outbox, 0) == (3, [])
    assert not outbox.holds(Lane.EXPRESS)
    assert outbox.holds(Lane.BULK)
    assert outbox.octets == 50


def test_the_bulk_lane_waits_for_the_rest_of_the_express_lane() -> None:
    """A channel's end goes in the bulk lane. In the log before its last subscription, it would leave a consumer that
    nobody ever ends."""
    outbox = filled(1, settles=3)
    assert [len(outbox.cut(128, 10)[0]) for _ in range(2)] == [2, 2]
    assert not outbox.octets
    outbox = filled(1, settles=3)
    assert [type(each) for each in outbox.cut(128, 10)[0]] == [Settle, Settle]
