"""Dead letters that are kept: how many of them are on their way."""

from __future__ import annotations

from reference_broker.machines.dead_letters import WINDOW, DeadLetters
from reference_broker.machines.effects import DeadLetterReason
from reference_broker.machines.origins import Origin


def ids(letters: DeadLetters, fresh: bool) -> list[int]:
    ranges = letters.announce() if fresh else letters.open()
    return [number for one in ranges for number in range(one.first_id, one.first_id + one.count)]


def test_a_leader_hears_of_a_window_of_dead_letters() -> None:
    """A target that is away must not fill the leader's memory with bodies; nor may a letter be left out."""
    letters = DeadLetters()
    letters.keep(3 * WINDOW, 0, 1, Origin(1, 13, 0, 0, size=2), DeadLetterReason.EXPIRED)
    assert ids(letters, fresh=True) == list(range(1, WINDOW + 1))
    letters.settle(((WINDOW + 5, 2 * WINDOW),))  # nobody was told of these
    assert letters.count == 3 * WINDOW
    letters.settle(((1, 10), (20, 20)))
    assert ids(letters, fresh=True) == list(range(WINDOW + 1, WINDOW + 12))
    assert ids(letters, fresh=False) == [*range(11, 20), *range(21, WINDOW + 12)]
    assert (letters.count, letters.octets) == (3 * WINDOW - 11, 6 * WINDOW - 22)
