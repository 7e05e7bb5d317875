"""The few queues that a summary names are those that committed most, though nobody looks at all of them."""

from __future__ import annotations

from random import Random

from reference_broker.node.busiest import Busiest
from reference_broker.types import GroupId, LogIndex


def test_the_few_are_those_of_a_look_at_all() -> None:
    """Whoever watches a run would see the wrong queue, or none."""
    chance, commits = Random(1), dict[GroupId, LogIndex]()
    looks = 0

    def everything() -> list[tuple[GroupId, LogIndex]]:
        nonlocal looks
        looks += 1
        return list(commits.items())

    few = Busiest(4, everything)
    for number in range(1, 3000):
        group = GroupId(number if chance.random() < 0.1 else chance.choice(list(commits) or [GroupId(number)]))
        if chance.random() < 0.05 and group in commits:
            del commits[group]
            few.gone(group)
        else:
            commits[group] = LogIndex(commits.get(group, 0) + chance.randint(1, 9))
            few.note(group, commits[group])
        if chance.random() < 0.2:
            found = few.groups()
            assert len(found) == min(4, len(commits))
            assert sorted(commits[each] for each in found) == sorted(commits.values())[-4:]
            assert found == sorted(found, key=lambda each: (-commits[each], each))
    assert 0 < looks < 30, "only after one of the few was deleted"
