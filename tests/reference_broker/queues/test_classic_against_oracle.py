"""Any commands, kills, losses of power and restarts: a classic queue tells what one message at a time tells."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference_broker.queues.classic_world import ClassicWorld

RANDOMS = st.builds(Random, st.integers(0, 2**32))


@given(RANDOMS)
def test_a_classic_queue_tells_what_one_message_at_a_time_tells(random: Random) -> None:
    """Over restarts of every sort: what was confirmed is there, in order, and only what may have been delivered is
    flagged as redelivered. Bodies come from memory and from the drive."""
    world = ClassicWorld(random)
    for _ in range(random.randint(1, 4)):
        for _ in range(random.randint(1, 15)):
            world.step()
        if random.random() < 0.5:
            world.finish()
        world.restart(random.choice(("clean", "kill", "power", "power while writing")))
    for _ in range(5):
        world.step()
    world.finish()


@pytest.mark.parametrize("seed", range(4))
def test_a_long_life_tells_what_one_message_at_a_time_tells(seed: int) -> None:
    """Small errors would pile up."""
    world = ClassicWorld(Random(seed))
    for _ in range(250):
        world.step()
    world.finish()
