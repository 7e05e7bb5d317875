"""The owner of a mirrored queue keeps its effects back while another node may be the owner, or a mirror is filled."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.machines.cluster.mirror_records import Mirror
from reference_broker.node.owned.owner import OwnerRunner
from reference_broker.types import GroupId, NodeId, Priority

OWNER, MIRROR = NodeId(1), NodeId(2)
RECORD = QueueRecord(name="q", group=GroupId(7), members=(OWNER,), leader=OWNER, mirrors=(Mirror(MIRROR, 1, 5, True),))


class Host:
    """A queue without messages, which remembers the commands that it applies and knows the channels that they name."""

    def __init__(self) -> None:
        self.is_held_back = False
        self.applied: list[str] = []
        self.caught_up = 0

    def catch_up(self, _node: object, _asked: object) -> None:
        self.caught_up += 1

    def started(self) -> None: ...

    def apply(self, commands: list[str]) -> None:
        self.applied += commands

    def ends_of(self, _node: NodeId) -> list[str]:
        return [f"end of {channel}" for channel in self.applied if f"end of {channel}" not in self.applied]

    def run_effects(self, _nodes: object, *, only_answers: bool) -> bool:
        self.is_held_back = only_answers
        return False


class Owner:
    """A runner, and what its node is asked."""

    def __init__(self, record: QueueRecord = RECORD) -> None:
        self.host, self.asked = Host(), list[Callable[[], None]]()
        node: Any = SimpleNamespace(node=OWNER, boot_id=1, wake=lambda _runner: None, when_ready=self.asked.append)
        self.runner = OwnerRunner(record, self.host, node)  # type: ignore[arg-type]
        self.ring = SimpleNamespace(
            record=record, filling=None, is_blocked=False, turn=lambda **_: False, peer_down=lambda _node: None
        )
        self.runner.ring = self.ring  # type: ignore[assignment]

    @property
    def holds_back(self) -> bool:
        self.runner.turn()
        return self.host.is_held_back


CAUSES: dict[str, Callable[[OwnerRunner], None]] = {
    "suspension": lambda runner: runner.was_suspended(),
    "broken link": lambda runner: runner.peer_down(MIRROR),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_doubt_lasts_until_the_metadata_have_answered(cause: str) -> None:
    owner = Owner()
    assert not owner.holds_back
    CAUSES[cause](owner.runner)
    assert owner.holds_back
    owner.asked.pop()()
    assert not owner.holds_back


def test_an_answer_to_an_earlier_question_ends_no_doubt() -> None:
    """The metadata have told what was decided before the second cause, and another owner may be named since."""
    owner = Owner()
    CAUSES["broken link"](owner.runner)
    CAUSES["suspension"](owner.runner)
    earlier, later = owner.asked
    earlier()
    assert owner.holds_back
    later()
    assert not owner.holds_back


@pytest.mark.parametrize("cause", CAUSES)
def test_the_owner_of_the_only_copy_doubts_nothing(cause: str) -> None:
    owner = Owner(QueueRecord(name="q", group=GroupId(7), members=(OWNER,), leader=OWNER))
    CAUSES[cause](owner.runner)
    assert not owner.asked
    assert not owner.holds_back


def test_nothing_leaves_the_queue_while_a_mirror_is_filled() -> None:
    """The new mirror gets what is there now, and does not hear what leaves meanwhile."""
    owner = Owner()
    owner.ring.filling = RECORD.mirrors[0]
    assert owner.holds_back
    owner.ring.filling = None
    assert not owner.holds_back


@pytest.mark.parametrize("known", [[], ["first"]])
def test_channels_end_with_their_link_though_nobody_has_applied_their_commands_yet(known: list[str]) -> None:
    """While a mirror is filled, commands wait. A channel that began in them is in use again once the link is back, and
    counts from 1 again: whoever remembered it would take its next messages for known ones, and confirm them."""
    owner = Owner()
    for command in known:
        owner.runner.propose(command, 1, Priority.NORMAL)
    owner.runner.turn()
    owner.ring.is_blocked = True
    owner.runner.propose("second", 1, Priority.NORMAL)
    owner.runner.peer_down(MIRROR)
    owner.runner.propose("third", 1, Priority.NORMAL)
    owner.runner.turn()
    owner.ring.is_blocked = False
    owner.runner.turn()
    ends = [f"end of {channel}" for channel in (*known, "second")]
    assert owner.host.applied == [*known, "second", *ends, "third"]


def test_a_node_is_told_nothing_of_the_channels_that_its_broken_link_has_ended() -> None:
    """They have not ended here yet, but count from 1 again there."""
    owner = Owner()
    owner.ring.is_blocked = True
    owner.runner.peer_down(MIRROR)
    owner.runner.catch_up(MIRROR, owner.runner.term, 1, (0, 0), [])
    assert owner.host.caught_up == 0
    owner.ring.is_blocked = False
    owner.runner.turn()
    owner.runner.catch_up(MIRROR, owner.runner.term, 1, (0, 0), [])
    assert owner.host.caught_up == 1
