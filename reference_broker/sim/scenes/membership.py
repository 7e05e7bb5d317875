"""The scene about members: a node is added to a queue, and another node is removed."""

from __future__ import annotations

from typing import Final

from reference_broker.sim.scenes.scene import Scene
from reference_broker.types import NodeId

_NEW: Final = NodeId(4)
"""The node that becomes a member."""


def membership(scene: Scene) -> None:
    """A fourth node becomes a member, and the leader leaves."""
    here = scene.client(1)
    leader = scene.led()
    scene.rest(0.05)
    _add(scene, leader)
    scene.publish(here)
    scene.until(scene.confirmed(1))
    scene.rest(0.05)
    _remove(scene, leader)
    scene.publish(here)
    scene.until(scene.confirmed(2))
    scene.until(scene.level)
    scene.rest(0.05)
    scene.note(
        "The queue has moved",
        f"n{leader} has deleted its log. The publisher c1 is still connected to n{leader}, which passes its messages"
        f" on, so c1 need not know who the members are. {MEMBERS_END}",
    )


MEMBERS_END: Final = "Both messages are confirmed, and n2, n3 and n4, which are the members now, have both on disk."
"""Last sentence of the scene of a change of members."""


def _add(scene: Scene, leader: NodeId) -> None:
    scene.note(
        "Three of four nodes keep a queue",
        f"n{leader}, n2 and n3 are the members, and two of three are a majority. An operator is about to add n{_NEW}."
        " The danger of every such change: nodes hear of it at different times. If some still counted the old list of"
        " members and others counted the new one, two majorities might decide without each other.",
    )
    added = scene.ask(leader, op="add-member", node=f"n{_NEW}")
    scene.until(lambda: _NEW in scene.members())
    scene.until(lambda: _NEW in scene.members()[leader].core.configuration.learners)
    scene.rest(0.0012)
    scene.note(
        f"n{_NEW} learns first",
        f"The list of members is an entry of the log (members n1,n2,n3 learning n{_NEW}). n{_NEW} is a learner: it gets"
        " the log, and its disk counts for no majority. So a new member with an empty log never holds up a confirm.",
    )
    scene.until(added)
    scene.rest(0.05)
    scene.note(
        f"n{_NEW} votes, and three of four are a majority",
        f"n{_NEW} has caught up, so the leader writes the next list: n1, n2, n3 and n{_NEW}. A member goes by the"
        " newest list in its log, committed or not. The rule that makes this safe: one member at a time. Any two of n1,"
        f" n2 and n3, and any three of n1 to n{_NEW}, have a member in common, so old and new majorities cannot decide"
        " without each other. The leader begins the next change only when this list is committed.",
    )


def _remove(scene: Scene, leader: NodeId) -> None:
    removed = scene.ask(leader, op="remove-member", node=f"n{leader}")
    scene.until(lambda: leader not in scene.members()[leader].core.configuration.voters)
    scene.note(
        f"n{leader} is removed, although it leads",
        f"The leader writes a list without itself: n2, n3 and n{_NEW}. From now on it does not count its own disk. It"
        " leads on until two of these three have the list on disk, and until then it sends them the list and all"
        " entries before it.",
    )
    scene.until(removed)
    scene.rest(0.05)
    scene.note(
        f"n{scene.led()} leads in the next term",
        f"The list is committed. n{leader} told its followers, and one of them stood for election at once, in a new"
        " term. No timer had to run out.",
    )
