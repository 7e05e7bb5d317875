"""Which members decide, as the simulator knows it: by it commits are held against disks."""

from __future__ import annotations

from reference_broker.sim.raft_checks import GroupTruth
from reference_broker.types import NodeId

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def truth_of_three() -> GroupTruth:
    truth = GroupTruth()
    truth.founders = ONE, TWO, THREE
    return truth


def test_a_change_decides_from_when_it_is_in_the_log() -> None:
    truth = truth_of_three()
    truth.configurations[7, 2] = TWO, THREE
    truth.member(ONE).terms[7] = 2
    assert truth.voters(ONE) == (TWO, THREE)
    assert truth.voters(TWO) == (ONE, TWO, THREE)


def test_a_change_that_was_overwritten_before_a_snapshot_never_counts() -> None:
    """The snapshot covers its index, but with the entry of another term."""
    truth = truth_of_three()
    truth.configurations[7, 2] = TWO, THREE
    truth.member(ONE).snapshot = 9
    assert truth.voters(ONE) == (ONE, TWO, THREE)


def test_of_the_committed_changes_the_newest_below_the_snapshot_counts() -> None:
    truth = truth_of_three()
    for index, voters in ((3, (ONE, TWO)), (7, (TWO, THREE)), (12, (THREE,))):
        truth.configurations[index, 1] = truth.decided[index] = voters
    truth.member(ONE).snapshot = 9
    assert truth.voters(ONE) == (TWO, THREE)
