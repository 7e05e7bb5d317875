"""The scene about the cut: a leader and one follower no longer hear the other three nodes.

The cut comes when the confirmed message lies on exactly three of five disks, and only one of the three is on the larger
side. So the larger side can elect nobody without the vote of that node.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from reference_broker.sim.clients import SimClient
from reference_broker.sim.scenes.scene import SOON_S, Scene, names_of
from reference_broker.types import NodeId

_HERE: Final = NodeId(1)
"""The node of the first client, which declares the queue and so makes this node its leader."""
_KEEPER: Final = NodeId(4)
"""The only node of the larger side that has message 1. The leader of such a cluster sends it there first."""

_REFUSAL: Final = {"kind": "PreVoteReply", "group": "orders", "ok": False}
"""The message of a node that would not vote for the node that asks."""


class _Sides(NamedTuple):
    """Both sides of the cut."""

    leader: NodeId
    small: list[NodeId]
    large: list[NodeId]


def cut_off(scene: Scene) -> None:
    """A leader and one follower are cut off from the other three nodes, and the cut is mended."""
    here, there = scene.client(_HERE), scene.client(_KEEPER)
    scene.rest(0.05)
    holders = _before_the_cut(scene, here)
    sides = _sides(scene, holders)
    _small_side(scene, here, sides)
    _large_side(scene, there, sides)
    _after_the_cut(scene, sides)


def _before_the_cut(scene: Scene, here: SimClient) -> list[NodeId]:
    """Message 1 is confirmed. Returns the nodes that have it on disk."""
    scene.note(
        "Five nodes keep one queue",
        f"Each column is a node, and time runs downwards. n{scene.led()} leads: its bar is thick. The leader writes"
        " every message into its log and sends copies to the other nodes. A message is committed once a majority of the"
        " nodes, here three of five, has it on disk. Only then does the publisher get its confirm.",
    )
    index = scene.last_index() + 1
    scene.publish(here)
    scene.until(scene.confirmed(1))
    holders = scene.holders(index)
    scene.note(
        "Message 1 is confirmed: three disks of five have it",
        "Follow m1, which is message 1. The publisher c1 sends it. The leader writes it (dashed square) and sends it to"
        " as many nodes as a majority needs (blue lines). Each of them has it on disk (full square) and answers. The"
        " third disk makes a majority, so the leader knows that the message is committed (diamond), and the publisher"
        f" hears the confirm (tick). {names_of(holders)} have message 1 now, and the other two nodes do not have it"
        f" yet. (The next entry, n{_HERE} up, is the queue's note that the node of c1 is there.)",
    )
    return holders


def _sides(scene: Scene, holders: list[NodeId]) -> _Sides:
    """The smaller side: the leader and one more node that has message 1."""
    small = [node for node in holders if node != _KEEPER]
    return _Sides(scene.led(), small, [node for node in scene.nodes if node not in small])


def _small_side(scene: Scene, here: SimClient, sides: _Sides) -> None:
    scene.cut(sides.small)
    lacking = names_of(node for node in sides.large if node != _KEEPER)
    scene.note(
        f"A cable is cut: on the larger side, only n{_KEEPER} has message 1",
        f"From now on {names_of(sides.small)} hear only each other, and {names_of(sides.large)} hear only each other"
        f" (red). {lacking} do not have message 1, which its publisher believes to be safe. n{sides.leader} still leads"
        " as far as it knows: nobody can tell a cut cable from a slow one.",
    )
    index = scene.last_index()
    scene.publish(here)
    scene.until(scene.synced(index + 1, sides.small))
    scene.rest(0.01)
    scene.note(
        "Message 2 is on two disks, and is not confirmed",
        f"The publisher c1 is connected to n{_HERE}, on the smaller side. The leader writes message 2 and sends it to"
        f" everybody, but only the disks of {names_of(sides.small)} get it: two of five, no majority. So the leader may"
        " not commit it, and the publisher waits. To wait is the right answer: the smaller side cannot know what the"
        " others decide meanwhile.",
    )


def _large_side(scene: Scene, there: SimClient, sides: _Sides) -> None:
    first = _refused(scene)
    other = next(node for node in sides.large if node not in (first, _KEEPER))
    scene.note(
        f"n{first} asks for votes, and n{_KEEPER} refuses",
        f"The larger side has not heard its leader for a while, so n{first} asks whether it would get votes (yellow"
        " lines). A leader needs three votes of five, so on this side it needs all three nodes."
        f" n{other} would vote for n{first}, but n{_KEEPER} would not: a node votes only for a candidate whose log is"
        " at least as new as its own log. The log whose last entry has the later term is newer; of two logs with the"
        f" same last term, the longer one is newer. The log of n{first} ends before message 1.",
    )
    scene.until(lambda: scene.leader(sides.large) is not None)
    scene.rest(SOON_S)
    scene.note(
        f"n{scene.leader(sides.large)} is elected: only a node with message 1 could win",
        f"n{_KEEPER} asks, too, and gets the votes of n{first} and n{other}. This is why a confirmed message cannot be"
        " lost. Three nodes have it. Any three nodes that vote include at least one of these three. And nodes vote only"
        " for a candidate whose log is at least as new as their own. So whoever wins has the message.",
    )
    scene.publish(there)
    scene.until(scene.confirmed(2))
    scene.note(
        "Message 3 is confirmed by the larger side",
        f"First the new leader sends message 1 to the two nodes that lack it. The publisher c2 is connected to"
        f" n{_KEEPER}. Its message 3 is on three disks of five, a majority, and is confirmed. Where the logs of"
        f" {names_of(sides.small)} have message 2, the logs of the larger side have an entry of a later term, in"
        " another colour. Only one of two entries at the same place can ever be committed: the one that a majority"
        " has.",
    )


def _refused(scene: Scene) -> NodeId:
    """The first node that the keeper of message 1 refuses a vote, once the other answers are there as well."""

    def refused() -> list[str]:
        answers = [each for each in scene.recorder.events if each.what == "message" and each.at == f"n{_KEEPER}"]
        return [each.fields["to"] for each in answers if _REFUSAL.items() <= each.fields.items()]

    scene.until(lambda: bool(refused()))
    scene.rest(0.002)
    return NodeId(int(refused()[0].removeprefix("n")))


def _after_the_cut(scene: Scene, sides: _Sides) -> None:
    scene.rest(0.1)
    scene.note(
        "The cable is mended",
        f"n{sides.leader} stopped leading a while ago, because it heard no majority. Now it hears of the later term and"
        f" follows n{scene.leader(sides.large)}. Its log has message 2 where the new leader's log has another entry."
        " Message 2 was never confirmed, so it may be dropped from that place: look for the struck square. Then the"
        " leader sends the entries that are missing.",
    )
    scene.mend(sides.small)
    scene.until(lambda: scene.level() and scene.confirmed(3)())
    scene.rest(0.05)
    scene.note(
        "All five logs are equal, and no confirmed message was lost",
        f"Messages 1 and 3 were confirmed, and all five nodes have them. And message 2? n{_HERE}, to which c1 is"
        " connected, keeps each message until the message is applied. So it handed message 2 to the new leader, which"
        f" wrote the message at a new place, and c1 hears the confirm only now. If n{_HERE} had lost its power instead,"
        " message 2 would be gone. Its publisher, without a confirm, would send the message again.",
    )
