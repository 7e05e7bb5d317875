"""Trouble at a bad moment: while something is half done on a node.

What chance alone seldom hits is a node that goes between two steps of one thing: a letter that is sent and not yet
confirmed, a change of members that one of them has, a leader that was elected and has not told anybody. In some worlds
the nodes' steps themselves call for trouble, soon after them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from reference_broker.sim.node import SimNode
    from reference_broker.sim.world import World

MOMENTS: Final = ("start", "link", "election", "change", "join", "install", "snapshot", "letters")
"""A life begins; a link breaks; a leader is there; a change of members is in a log; a replica begins; another
member's snapshot, or an own one, is on disk; dead letters are to be routed."""
_BLOWS: Final = ("kill", "power", "power_at_operation", "pause", "slow_disk", "part_one_way", "part_both_ways",
                 "isolate", "snapshot", "campaign", "transfer")  # fmt: skip
_FROM_S: Final = 0.3


class Moments:
    """Which moments of a world call for trouble, how often, and how soon after."""

    def __init__(self, world: World) -> None:
        self._world = world
        chance = world.chance
        letters = any(plan.keeps_letters for plan in world.queues)  # seldom, so the moment must not be seldom too
        drawn = [name for name in MOMENTS if chance.random() < (0.8 if name == "letters" and letters else 0.35)]
        self._likely = {name: chance.choice((0.2, 1.0)) for name in drawn} if chance.random() < 0.7 else {}
        self._blows = chance.sample(_BLOWS, chance.choice((1, 1, 2, 4)))
        self._soon_s = chance.choice((0.0, 0.0005, 0.003, 0.03))
        self._apart_s = chance.choice((0.02, 0.2))
        self._next_s = _FROM_S

    def come(self, name: str, node: SimNode) -> None:
        """One of ``MOMENTS`` is there, on a node."""
        likely = self._likely.get(name)
        if likely is None:
            return
        world = self._world
        chance, now = world.chance, world.scheduler.now
        if world.draining or now < self._next_s or chance.random() > likely:
            return
        self._next_s = now + self._apart_s
        world.trace.note(now, node.host, "moment", name)
        soon_s = 0.0
        for _ in range(chance.choice((1, 1, 2))):
            others = [other for other in world.nodes.values() if other is not node]
            struck = chance.choice(others) if others and chance.random() < 0.5 else node
            soon_s += chance.random() * self._soon_s
            world.scheduler.after(soon_s, self._strike, chance.choice(self._blows), struck)

    def _strike(self, blow: str, node: SimNode) -> None:
        if not self._world.draining:
            self._world.nemesis.strike(getattr(self._world.nemesis, blow), node)
