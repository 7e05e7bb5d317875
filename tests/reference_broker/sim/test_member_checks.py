"""X4: which removals the simulator takes for asked for."""

from __future__ import annotations

import pytest

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.raft.configuration import Configuration
from reference_broker.sim.checks.invariants import ViolationError
from reference_broker.sim.checks.raft_checks import MemberChecks
from reference_broker.types import GroupId, NodeId

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
GROUP = GroupId(7)
BOTH = Configuration((ONE, TWO))


def checks() -> MemberChecks:
    """They heard that node 3 is to leave, and later that it is a member again, in membership epoch 1."""
    made = MemberChecks()
    for leaving, epochs in (((THREE,), ()), ((), ((THREE, 1),))):
        members = (ONE, TWO) if leaving else (ONE, TWO, THREE)
        made.heard([QueueRecord(name="q", group=GROUP, members=members, leaving=leaving, membership_epochs=epochs)])
    return made


def test_a_membership_that_was_to_end_may_end_at_any_time() -> None:
    checks().changed(GROUP, Configuration((ONE, TWO, THREE)), BOTH)


def test_members_may_come_and_become_voters_unasked() -> None:
    """What is wanted of those is looked at in the end."""
    learning = BOTH.with_learner(THREE, 1)
    checks().changed(GROUP, BOTH, learning)
    checks().changed(GROUP, learning, learning.promoted(THREE))


@pytest.mark.parametrize(
    ("former", "node"),
    [(BOTH.with_learner(THREE, 1).promoted(THREE), THREE), (Configuration((ONE, TWO, THREE)), TWO)],
    ids=["another epoch", "another node"],
)
def test_what_nobody_asked_for_is_seen(former: Configuration, node: NodeId) -> None:
    with pytest.raises(ViolationError, match=f"X4.*\n.*node {node} is removed"):
        checks().changed(GROUP, former, former.without(node))
