"""Clients that send much take turns, and a client that sends little does not wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from reference_broker.node.hosting.slices import BUDGET_NS, SLICE_NS, Input, Slices

MUCH = 256 * 1024
NS_PER_OCTET = 200
"""As for messages to many queues: a read of the socket takes fifty milliseconds."""


class World:
    """Inputs whose octets take time, and what was handled: who, how much, and in which turn of the event loop."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.turn = 0
        self.handled: list[tuple[int, str, int]] = []
        self.slices = Slices(lambda: self.now_ns)

    def input(self, name: str, ns_per_octet: int = NS_PER_OCTET) -> Input:
        def handle(octets: bytes) -> None:
            self.now_ns += ns_per_octet * len(octets)
            self.handled.append((self.turn, name, len(octets)))

        return Input(self.slices, handle)

    async def turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)
            self.turn += 1

    def octets(self, name: str) -> int:
        return sum(octets for _, each, octets in self.handled if each == name)


def play(scenario: Callable[[World], Awaitable[None]]) -> World:
    async def whole() -> World:
        world = World()
        await scenario(world)
        return world

    return asyncio.run(whole())


def test_one_turn_of_the_event_loop_takes_little_more_than_the_budget() -> None:
    """Or links between nodes would be given up, and elections begin."""

    async def scenario(world: World) -> None:
        floods = [world.input(str(number)) for number in range(30)]
        for flood in floods:
            flood.came(bytes(MUCH))
        began = world.now_ns
        while any(flood.waits for flood in floods):
            await world.turns(1)
            assert world.now_ns - began <= BUDGET_NS + 3 * SLICE_NS
            began = world.now_ns

    world = play(scenario)
    assert all(world.octets(str(number)) == MUCH for number in range(30))


def test_all_floods_get_the_same() -> None:
    async def scenario(world: World) -> None:
        for number in range(5):
            world.input(str(number)).came(bytes(MUCH))
        await world.turns(15)

    world = play(scenario)
    had = [world.octets(str(number)) for number in range(5)]
    assert 0 < max(had) < MUCH and max(had) - min(had) <= 4 * SLICE_NS // NS_PER_OCTET


def test_who_sends_little_is_served_at_once() -> None:
    async def scenario(world: World) -> None:
        quiet = world.input("quiet")
        for number in range(5):
            world.input(str(number)).came(bytes(MUCH))
        for _ in range(10):
            quiet.came(bytes(100))
            assert not quiet.waits
            await world.turns(1)

    assert play(scenario).octets("quiet") == 1000


def test_who_has_sent_much_does_not_pass_in_small_pieces() -> None:
    """What comes behind waits, in order, and takes no second place in the line."""

    async def scenario(world: World) -> None:
        first, other = world.input("first"), world.input("other")
        other.came(bytes(MUCH))
        first.came(bytes(MUCH))
        for _ in range(10):
            first.came(b"x")
        assert first.waits
        await world.turns(200)
        assert not first.waits and not other.waits

    world = play(scenario)
    assert world.octets("first") == MUCH + 10
    served = [name for _, name, _ in world.handled[6:16]]
    assert abs(served.count("first") - served.count("other")) <= 2


@pytest.mark.parametrize("ns_per_octet", [1, 3])
def test_messages_to_one_queue_are_handled_in_one_go(ns_per_octet: int) -> None:
    """A run is cheap because it is long."""

    async def scenario(world: World) -> None:
        bulk = world.input("bulk", ns_per_octet)
        for _ in range(10):
            bulk.came(bytes(MUCH))
            await world.turns(2)
        assert world.handled[-1][2] == MUCH

    play(scenario)


def test_what_waits_at_the_end_is_handled() -> None:
    """The client has closed its socket, and published before."""

    async def scenario(world: World) -> None:
        flood = world.input("flood")
        flood.came(bytes(MUCH))
        flood.finish()
        assert not flood.waits
        await world.turns(3)

    assert play(scenario).octets("flood") == MUCH


def test_what_was_cheap_so_far_is_counted_when_it_is_much() -> None:
    """Runs to one queue cost next to nothing per octet, until memory is short of pages: floods of them were handled at
    once, and nobody counted."""

    async def scenario(world: World) -> None:
        cost = [1]

        def handle(octets: bytes) -> None:
            world.now_ns += cost[0] * len(octets) // 10
            world.handled.append((world.turn, "", len(octets)))

        floods = [Input(world.slices, handle) for _ in range(30)]
        for _ in range(10):
            for flood in floods:
                flood.came(bytes(MUCH))
            while any(flood.waits for flood in floods):
                await world.turns(1)
        cost[0] = 200
        began = world.now_ns
        for flood in floods:
            flood.came(bytes(MUCH))
        assert world.now_ns - began <= BUDGET_NS + MUCH * cost[0] // 10

    play(scenario)
