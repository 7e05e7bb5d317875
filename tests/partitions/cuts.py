"""The list of cuts: chance, seeded by the cut's own number, says which links are cut, how, and for how long. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.partitions.network import SIDES, Link

SHAPES: Final = ("isolated", "link", "one way", "mute", "deaf")
"""A node from both others; two nodes from each other; the same in one direction; a node whose packets arrive nowhere;
a node at which no packet arrives."""
ROLES: Final = ("leader", "master", "home", "node1", "node2", "node3")
"""Which node is cut off: the leader of the quorum queue, the master of the mirrored queue, the home of the classic
queue, or a node by its name."""
_LENGTHS_S: Final = ((0.7, 1.0, 5.0), (0.2, 5.0, 15.0), (0.1, 15.0, 40.0))
"""Share of the cuts, and their shortest and longest time."""
_FLAPPING_SHARE: Final = 0.2
_BACKLOG_SHARE: Final = 0.5
_FLAPS: Final = (3, 10)
_FLAP_S: Final = (0.1, 1.5)


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut. ``beats`` are the seconds for which links are cut, not cut, cut again, and so on.
    ``has_backlog``: consumers were stopped before, and go on when the links are cut."""

    number: int
    shape: str
    role: str
    how: str
    beats: tuple[float, ...]
    other: int
    has_backlog: bool

    @property
    def seconds(self) -> float:
        """The time from the first cut to the heal."""
        return sum(self.beats)

    @property
    def is_flapping(self) -> bool:
        """Whether the links come back in between."""
        return len(self.beats) > 1

    def links(self, victim: str) -> list[Link]:
        """The links to cut when the role is played by this node."""
        others = [side for side in SIDES if side != victim]
        other = others[self.other]
        return {
            "isolated": [link for each in others for link in ((victim, each), (each, victim))],
            "link": [(victim, other), (other, victim)],
            "one way": [(victim, other)],
            "mute": [(victim, each) for each in others],
            "deaf": [(each, victim) for each in others],
        }[self.shape]

    def __str__(self) -> str:
        beats = f"flapping, {self.seconds:.1f} s" if self.is_flapping else f"{self.seconds:.1f} s"
        backlog = ", a backlog" if self.has_backlog else ""
        return f"cut {self.number}: {self.shape}, {self.role}, {self.how}, {beats}{backlog}"


def cut(seed: int, number: int, longest_s: float) -> Cut:
    """A cut of the list."""
    chance = random.Random(f"{seed}/{number}")
    shape, role = chance.choices(SHAPES, (3, 2, 2, 1, 1))[0], chance.choice(ROLES)
    if chance.random() < _FLAPPING_SHARE:
        beats = tuple(chance.uniform(*_FLAP_S) for _ in range(2 * chance.randint(*_FLAPS) - 1))
    else:
        _, low, high = chance.choices(_LENGTHS_S, [share for share, _, _ in _LENGTHS_S])[0]
        beats = (min(longest_s, chance.uniform(low, high)),)
    how = chance.choice(("silent", "silent", "refusing"))
    return Cut(number, shape, role, how, beats, chance.randrange(2), chance.random() < _BACKLOG_SHARE)


def joined(links: Sequence[Link]) -> frozenset[str]:
    """The sides that a majority reaches in both directions, perhaps through a third side. All, if nothing is cut."""
    broken = {frozenset(link) for link in links}
    for side in SIDES:
        reached = {side}
        for _ in SIDES:
            reached |= {b for a in reached for b in SIDES if a != b and frozenset((a, b)) not in broken}
        if len(reached) > len(SIDES) // 2:
            return frozenset(reached)
    return frozenset()
