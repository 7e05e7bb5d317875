"""Dead letters on their way: where they go now, what is tried again, and what is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pamqp import commands

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.policies import Policy
from reference_broker.machines.commands import ChannelDown, DeadLetterSettled, Enqueue
from reference_broker.machines.effects import DeadLetter, DeadLetterReason
from reference_broker.node.alarms import Alarms, Room
from reference_broker.node.config import Limits
from reference_broker.node.endpoints import metrics
from reference_broker.node.hosting.dead_letters import DeadLetterRouter
from reference_broker.node.hosting.endings import Ending
from reference_broker.node.hosting.virtual_hosts import VirtualHost
from reference_broker.queues.port import DeadMessage
from reference_broker.queues.quorum import QUORUM
from reference_broker.routing.records import Binding, Destination
from reference_broker.routing.table import RoutingTable
from reference_broker.types import ChannelId, GroupId, NodeId, Priority
from tests.reference_broker.amqp.testing import content

ROUTE = b"\x00\x06source"
SOURCE = QueueRecord(
    name="source",
    group=GroupId(1),
    members=(NodeId(1),),
    arguments=(("x-dead-letter-exchange", ""), ("x-dead-letter-strategy", "at-least-once")),
)


class Runner:
    """Takes proposals."""

    def __init__(self) -> None:
        self.proposed: list[Any] = []
        self.priorities: list[Priority] = []

    def propose(self, command: object, size: int, priority: Priority = Priority.LOW, *, lazy: bool = False) -> int:
        self.proposed.append(command)
        self.priorities.append(priority)
        return len(self.proposed)


class Node:
    """What the worker needs of a shard: queues by name, policies, and timers that come when told."""

    def __init__(self, *names: str) -> None:
        self.node, self.boot_id, self.limits = NodeId(1), 1, Limits()
        self.opened = 0
        self.anatomy, self.now_ns = Anatomy(1), lambda: 1
        self.nobody = ChannelId(self.node, self.boot_id, 0, 0)
        self.clients = self
        self.in_force: list[Policy] = []
        self.table = RoutingTable()
        self.queues: dict[str, Any] = {}
        self.timers: list[Callable[[], None]] = []
        self.channels: dict[int, object] = {}
        self.source = Runner()
        self.source_queue = self.queue(SOURCE, self.source)
        for name in names:
            self.declare(name)
        self.letters = DeadLetterRouter(self)  # type: ignore[arg-type]
        self.dead_letters = self.letters

    def declare(self, name: str) -> None:
        record = QueueRecord(name=name, group=GroupId(10 + len(self.queues)), members=(NodeId(1),))
        self.queues[name] = self.queue(record, Runner())

    def queue(self, record: QueueRecord, runner: Runner) -> Any:
        queue: Any = QUORUM.queue(QUORUM, record, self)  # type: ignore[arg-type]
        queue.proposer = runner
        return queue

    def virtual_host(self, name: str) -> Any:
        assert name == "/"
        return VirtualHost(name, self.queues, self)  # type: ignore[arg-type]

    def policies(self) -> list[Policy]:
        return self.in_force

    def policy(self, **definition: str) -> None:
        pairs = tuple((key.replace("_", "-"), value) for key, value in definition.items())
        self.in_force = [Policy(name="p", pattern="source", definition=pairs, priority=0)]

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def new_channel(self, connection: object, number: int) -> ChannelId:
        self.opened += 1
        self.channels[self.opened] = connection
        return ChannelId(self.node, self.boot_id, self.opened, number)

    def forget_channel(self, channel: ChannelId) -> None:
        del self.channels[channel.connection]

    def later(self, _delay_s: float, call: Callable[[], None]) -> None:
        self.timers.append(call)

    def die(
        self,
        first_id: int,
        count: int = 1,
        reason: DeadLetterReason = DeadLetterReason.REJECTED,
        *,
        is_repeat: bool = False,
    ) -> None:
        letters: list[DeadMessage] = [
            (ROUTE, content(1, b"%d" % number, commands.Basic.Properties())) for number in range(count)
        ]
        self.letters.route(self.source_queue, DeadLetter(first_id, (), reason, 1, is_repeat), letters)

    def wait(self) -> None:
        due, self.timers = self.timers, []
        for call in due:
            call()

    def arrived(self, name: str) -> int:
        return sum(command.run.count for command in self.queues[name].proposer.proposed if isinstance(command, Enqueue))


@pytest.mark.parametrize("first_id", [0, 1], ids=["at most once", "at least once"])
def test_a_policy_that_changes_reaches_the_letters_after_it(first_id: int) -> None:
    """A mailer that works already must not keep the address that it began with."""
    node = Node("old", "new")
    node.policy(dead_letter_routing_key="old")
    node.die(first_id)
    node.policy(dead_letter_routing_key="new")
    node.die(first_id and 2, 3)
    assert (node.arrived("old"), node.arrived("new")) == (1, 3)
    assert node.letters.counts == {"routed": 4}


@pytest.mark.parametrize("first_id", [0, 1], ids=["at most once", "at least once"])
def test_letters_of_a_policy_that_is_gone_go_nowhere(first_id: int) -> None:
    """The queue buried them under a policy that was cleared before they were sent: the default exchange would put them
    into the very queue that they died in, once more and as if new."""
    node = Node("source")
    record = replace(SOURCE, arguments=())
    node.letters.route(
        node.queue(record, Runner()),
        DeadLetter(first_id, (), DeadLetterReason.REJECTED, 1),
        [(ROUTE, content(1, b"0", commands.Basic.Properties()))],
    )
    assert node.arrived("source") == 0
    assert node.letters.counts["no_route"] == 1


def test_a_policy_that_changes_reaches_the_letters_that_wait() -> None:
    """They wait because the address was wrong: mending it must free them."""
    node = Node("right")
    node.policy(dead_letter_routing_key="wrong")
    node.die(1, 2)
    node.policy(dead_letter_routing_key="right")
    assert node.arrived("right") == 0
    node.wait()
    assert node.arrived("right") == 2
    assert (node.letters.counts["no_route"], node.letters.counts["routed"]) == (2, 2)


def test_letters_without_a_route_wait_or_are_dropped_and_are_counted() -> None:
    """At least once they wait for the queue to be declared; at most once they are gone."""
    node = Node()
    node.policy(dead_letter_routing_key="later")
    node.die(0)
    node.die(1)
    node.declare("later")
    node.wait()
    assert node.arrived("later") == 1
    assert (node.letters.counts["no_route"], node.letters.counts["routed"]) == (2, 1)


def test_a_letter_that_would_go_round_for_ever_is_settled_and_counted() -> None:
    """Expired in its queue and sent to that very queue: it would expire again."""
    node = Node("source")
    node.queues["source"].record = SOURCE
    node.die(0, reason=DeadLetterReason.EXPIRED)
    node.die(1, reason=DeadLetterReason.EXPIRED)
    assert node.letters.counts["cycle"] == 2
    assert node.arrived("source") == 0
    assert node.source.proposed == [DeadLetterSettled(((1, 1),))]


def test_a_target_that_confirms_settles_and_one_that_refuses_is_tried_again() -> None:
    """A letter leaves its queue only once it is safe elsewhere."""
    node = Node("target")
    node.policy(dead_letter_routing_key="target")
    node.die(1, 3)
    mailer = node.letters._mailers[SOURCE.group]
    target = node.queues["target"].record.group
    mailer.rejected(target, 3, 3)
    assert node.source.proposed == [DeadLetterSettled(((1, 2),))]
    node.wait()
    assert node.arrived("target") == 4
    mailer.committed(target, 4)
    assert node.source.proposed[1:] == [DeadLetterSettled(((3, 3),))]


def bound_to_fanout(*names: str) -> Node:
    """A node whose dead letters go to all of these queues."""
    node = Node(*names)
    for name in names:
        node.table.bind(Binding(source="amq.fanout", destination=Destination(name), key=""))
    node.policy(dead_letter_exchange="amq.fanout")
    node.source_queue.record = replace(SOURCE, arguments=())
    return node


def test_letters_for_several_queues_go_to_each() -> None:
    node = bound_to_fanout("one", "two")
    node.die(0, 3)
    assert (node.arrived("one"), node.arrived("two")) == (3, 3)
    assert node.letters.counts == {"routed": 3}


def test_a_letter_for_several_queues_leaves_its_own_once_all_have_it() -> None:
    """The queue that refused a letter gets it again, and no other queue does."""
    node = bound_to_fanout("one", "two")
    node.die(1, 3)
    mailer = node.letters._mailers[SOURCE.group]
    one, two = (node.queues[name].record.group for name in ("one", "two"))
    mailer.committed(one, 3)
    assert node.source.proposed == []
    mailer.rejected(two, 2, 2)
    assert node.source.proposed == [DeadLetterSettled(((1, 1),))]
    mailer.committed(two, 3)
    assert node.source.proposed[1:] == [DeadLetterSettled(((3, 3),))]
    node.wait()
    assert (node.arrived("one"), node.arrived("two")) == (3, 4)
    mailer.committed(two, 4)
    assert node.source.proposed[2:] == [DeadLetterSettled(((2, 2),))]
    assert not mailer._open and not mailer._owed and not mailer._arrived


def test_a_target_that_is_gone_is_waited_for_no_more() -> None:
    node = bound_to_fanout("one", "two")
    node.die(1, 2)
    mailer = node.letters._mailers[SOURCE.group]
    mailer.committed(node.queues["one"].record.group, 2)
    gone = node.queues.pop("two").record
    node.table.remove_queue("two")
    node.letters.queue_removed(gone)
    assert node.source.proposed == []
    node.wait()
    assert node.source.proposed == [DeadLetterSettled(((1, 1),)), DeadLetterSettled(((2, 2),))]


def test_an_exchange_that_does_not_exist_is_no_route() -> None:
    node = bound_to_fanout("one")
    node.policy(dead_letter_exchange="missing")
    node.die(0)
    node.die(1)
    assert node.letters.counts == {"no_route": 2}


def test_who_lost_the_lead_sends_nothing_more_and_keeps_nothing() -> None:
    """The new leader is told of every letter that is not settled: from two nodes each would arrive twice, and a node
    that is never told what became of them would keep the bodies for as long as it runs."""
    node = Node("target", "full")
    node.policy(dead_letter_routing_key="target")
    node.die(1, 3)
    node.policy(dead_letter_routing_key="full")
    node.die(4)
    mailer = node.letters._mailers[SOURCE.group]
    mailer.rejected(node.queues["full"].record.group, 1, 1)
    node.policy(dead_letter_routing_key="nowhere")
    node.die(5)
    node.letters.lead_lost(SOURCE.group)
    assert (node.arrived("target"), node.arrived("full")) == (3, 1)
    assert not mailer._open and not node.channels and not node.letters.mailing
    node.declare("nowhere")
    node.wait()
    assert [node.arrived(name) for name in node.queues] == [3, 1, 0]
    assert node.source.proposed == []


def test_a_mailers_channel_ends_behind_what_it_published() -> None:
    """In the other priority the end would overtake the letters, and the target keep a place for the channel for
    ever."""
    node = Node("target")
    node.policy(dead_letter_routing_key="target")
    node.die(1, 3)
    node.letters.lead_lost(SOURCE.group)
    target = node.queues["target"].proposer
    assert [type(command) for command in target.proposed] == [Enqueue, ChannelDown]
    assert target.proposed[1].channel == target.proposed[0].channel
    assert target.priorities == [Priority.LOW] * 2


def test_who_leads_again_sends_all_that_is_not_settled() -> None:
    """Its machine tells it as it would tell any new leader; the identity is a new one, so that no answer to the old one
    can settle a letter."""
    node = Node("target")
    node.policy(dead_letter_routing_key="target")
    node.die(1, 3)
    node.letters.lead_lost(SOURCE.group)
    node.die(1, 3)
    first, _, second = node.queues["target"].proposer.proposed
    assert first.channel != second.channel and second.run.count == 3
    node.letters._mailers[SOURCE.group].committed(node.queues["target"].record.group, 3)
    assert node.source.proposed == [DeadLetterSettled(((1, 3),))]


def test_what_became_of_dead_letters_is_on_the_metrics_endpoint() -> None:
    """All outcomes from the start: a rate needs a zero to rise from."""
    node = Node("target")
    node.policy(dead_letter_routing_key="target")
    node.die(0, 2)
    node.die(1, 3, is_repeat=True)
    running = SimpleNamespace(
        config=SimpleNamespace(name="node1", cluster="c"),
        clients=SimpleNamespace(connections={}, delivered=0, redelivered=0), queues={}, dead_letters=node.letters,
        endings=SimpleNamespace(count=Counter({Ending.EXPIRED: 2})),
        alarms=Alarms(Limits(), [], Room(lambda: 4711)),
    )  # fmt: skip
    collector = metrics.NodeCollector(running)  # type: ignore[arg-type]
    families = {family.name: family for family in collector._process()}
    samples = families["reference_broker_dead_letters"].samples
    assert {s.labels["outcome"]: s.value for s in samples} == {"routed": 5, "no_route": 0, "cycle": 0}
    assert {s.name for s in samples} == {"reference_broker_dead_letters_total"}
    assert [s.value for s in families["reference_broker_dead_letters_repeated"].samples] == [3]
    ended = {s.labels["reason"]: s.value for s in families["reference_broker_queues_ended"].samples}
    assert ended == {"expired": 2, "auto-delete": 0, "exclusive": 0, "transient": 0}
    assert [s.value for s in families["rabbitmq_process_resident_memory_bytes"].samples] == [4711]


@pytest.mark.parametrize("first_id", [0, 1], ids=["at most once", "at least once"])
def test_letters_go_in_commands_of_no_more_octets_than_a_batch(first_id: int) -> None:
    """A thousand letters of 256 KiB in one command were an entry that no follower took."""
    node = Node("graveyard")
    node.limits = Limits(batch_bytes_max=10_000)
    node.policy(dead_letter_routing_key="graveyard")
    sizes = [3000, 3000, 3000, 3000, 40_000, 10, 10]
    letters: list[DeadMessage] = [(ROUTE, content(1, bytes(size), commands.Basic.Properties())) for size in sizes]
    node.letters.route(node.source_queue, DeadLetter(first_id, (), DeadLetterReason.REJECTED, 1), letters)
    proposed = node.queues["graveyard"].proposer.proposed
    assert [command.run.count for command in proposed] == [3, 1, 1, 2]
    assert sum(command.run.count for command in proposed) == len(sizes)
    assert all(command.run.count == 1 or len(command.run.data) <= 10_000 for command in proposed)
    if first_id:
        assert [command.first_seq for command in proposed] == [1, 4, 5, 6]
    assert node.letters.counts == {"routed": len(sizes)}
