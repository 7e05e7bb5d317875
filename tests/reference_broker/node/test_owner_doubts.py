"""The owner of a mirrored queue keeps its effects back while another node may be the owner, or a mirror is filled."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from reference_broker.machines.metadata import QueueRecord
from reference_broker.machines.mirrors import Mirror
from reference_broker.node.owner import OwnerRunner
from reference_broker.types import GroupId, NodeId

OWNER, MIRROR = NodeId(1), NodeId(2)
RECORD = QueueRecord(name="q", group=GroupId(7), members=(OWNER,), leader=OWNER, mirrors=(Mirror(MIRROR, 1, 5, True),))


class Host:
    """A queue with nothing in it."""

    def __init__(self) -> None:
        self.is_held_back = False

    def started(self) -> None: ...

    def ends_of(self, _node: NodeId) -> list[object]:
        return []

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
