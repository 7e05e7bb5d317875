"""The ring of a mirrored queue, under any order of news: members hear of views late, links break, masters are lost."""

from __future__ import annotations

from collections import defaultdict, deque
from random import Random

import pytest

from reference_broker.mirroring.ring import Ack, Content, Output, RingMember, Subscribe, View
from reference_broker.types import NodeId


class World:
    """Members, links that keep their order, and views that members hear of one after another, each at its own time."""

    def __init__(self, seed: int, count: int) -> None:
        self.chance = Random(seed)
        self.members: dict[NodeId, RingMember] = {}
        self.taken: dict[NodeId, list[int]] = {}
        self.links: defaultdict[tuple[NodeId, NodeId], deque[Output]] = defaultdict(deque)
        self.views: list[View] = []
        self.heard: dict[NodeId, int] = {}
        self.crossed = 0
        self.order = [NodeId(number) for number in range(count)]
        for node in self.order:
            self.members[node], self.taken[node], self.heard[node] = RingMember(node), [], -1
        self.new_view()

    def new_view(self) -> None:
        self.views.append(View(len(self.views), tuple(self.order)))

    def hear(self, node: NodeId) -> None:
        """A member hears of the next view, if it is in it."""
        if self.heard[node] + 1 < len(self.views):
            self.heard[node] += 1
            view = self.views[self.heard[node]]
            if node in view.members:
                self.send(node, self.members[node].enter(view))

    def send(self, node: NodeId, outputs: list[Output]) -> None:
        for output in outputs:
            if output.to in self.members:
                self.links[node, output.to].append(output)
                self.crossed += isinstance(output, Content)

    def broadcast(self) -> None:
        """The master of the last view has a batch, if it knows that it is the master."""
        master = self.members[self.order[0]]
        if self.heard[master.here] == len(self.views) - 1 and len(self.order) > 1:
            number = master.last + 1
            self.taken[master.here].append(number)
            self.send(master.here, master.broadcast(b"%d" % number))

    def arrive(self) -> None:
        """One frame arrives, on any link."""
        busy = [link for link, frames in self.links.items() if frames]
        if not busy:
            return
        link = self.chance.choice(busy)
        frame, (left, here) = self.links[link].popleft(), link
        member = self.members[here]
        if isinstance(frame, Content):
            is_new, outputs = member.take(frame.view, frame.number, frame.payload)
            if is_new:
                assert frame.payload == b"%d" % frame.number
                self.taken[here].append(frame.number)
        elif isinstance(frame, Ack):
            outputs = member.ack(frame.view, frame.number)
        else:
            assert isinstance(frame, Subscribe)
            outputs = member.subscribed(left, frame.view, frame.last)
        self.send(here, outputs)

    def lose(self, node: NodeId) -> None:
        """A member is lost, and the others are told in time."""
        self.order.remove(node)
        del self.members[node]
        for link in [link for link in self.links if node in link]:
            del self.links[link]
        self.new_view()

    def break_link(self) -> None:
        """A link breaks and is there again before anybody is dropped: what was under way is lost."""
        one, other = self.chance.sample(self.order, 2)
        for here, there in ((one, other), (other, one)):
            self.links[here, there].clear()
            self.members[here].link_down(there)
        for here, there in ((one, other), (other, one)):
            if self.members[here].view.members:
                self.send(here, self.members[here].link_up(there))

    def settle(self) -> None:
        """Everybody hears of everything."""
        while any(self.heard[node] + 1 < len(self.views) for node in self.members) or any(self.links.values()):
            for node in self.members:
                self.hear(node)
            self.arrive()

    def check_order(self) -> None:
        """Every member has taken batches without a gap, and no member more than its elders."""
        for elder, younger in zip(self.order, self.order[1:], strict=False):
            for node in (elder, younger):
                assert self.taken[node] == list(range(1, len(self.taken[node]) + 1)), node
            assert len(self.taken[elder]) >= len(self.taken[younger]), (elder, younger)


@pytest.mark.seeds(300)
def test_survivors_have_the_same_batches_in_order(seed: int) -> None:
    """Whoever is lost, and whenever the others hear of it."""
    world = World(seed, count=2 + seed % 4)
    for _ in range(200):
        step = world.chance.random()
        if step < 0.25:
            world.broadcast()
        elif step < 0.4:
            world.hear(world.chance.choice(world.order))
        elif step < 0.41 and len(world.order) > 1:
            world.lose(world.chance.choice(world.order))
        elif step < 0.43 and len(world.order) > 1:
            world.break_link()
        else:
            world.arrive()
        world.check_order()
    world.settle()
    lengths = {len(world.taken[node]) for node in world.order}
    assert len(lengths) == 1, f"seed {seed}: {lengths}"
    if len(world.order) > 1:
        assert all(world.members[node].kept == 0 for node in world.order), f"seed {seed}: something is kept"


@pytest.mark.parametrize("count", range(2, 7))
def test_content_crosses_as_many_links_as_there_are_members(count: int) -> None:
    """RabbitMQ's gm sends a message round the whole ring, back to where it began."""
    world = World(1, count)
    world.settle()
    for _ in range(10):
        world.broadcast()
    world.settle()
    assert world.crossed == 10 * count


def test_a_new_mirror_takes_nothing_before_it_has_heard_where_it_begins() -> None:
    """Its left neighbour sends nothing before, and what it keeps reaches the new mirror then."""
    world = World(1, 2)
    world.settle()
    world.broadcast()
    world.settle()
    new = NodeId(2)
    world.members[new], world.taken[new], world.heard[new] = RingMember(new), [1], len(world.views) - 1
    world.members[new].is_ready = False
    world.order.append(new)
    world.new_view()
    for node in world.order:
        world.hear(node)
    world.broadcast()
    world.broadcast()
    for _ in range(30):
        world.arrive()
    assert world.taken[new] == [1]
    world.send(new, world.members[new].begin(1))
    world.settle()
    assert world.taken[new] == [1, 2, 3]
    assert world.members[NodeId(0)].kept == 0


def test_what_an_outdated_master_sends_is_dropped() -> None:
    """A master that does not know yet that it was replaced must not be followed."""
    world = World(1, 3)
    world.settle()
    former = world.members[NodeId(0)]
    world.order.remove(NodeId(0))
    world.new_view()
    world.hear(NodeId(1))
    world.send(NodeId(0), former.broadcast(b"1"))
    for _ in range(10):
        world.arrive()
    assert world.taken[NodeId(1)] == []
