"""``python -m reference_broker.sim.scenes FOLDER``: the scenes of the documentation, each as a page.

A scene is a script over :class:`~reference_broker.sim.scene.Scene`. The production code decides what happens; the
script decides when a cable is cut, and tells the reader what to look at.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from reference_broker.sim.clients import SimClient
from reference_broker.sim.scene import Scene
from reference_broker.types import NodeId
from reference_broker.worldpage.events import WorldEvent
from reference_broker.worldpage.page import head_of, page
from reference_broker.worldpage.window import window

_SOON_S: Final = 0.0004
"""Time in which a node tells what it has just become."""


class SceneScript(NamedTuple):
    """``text`` is the introduction of the page, ``play`` leads the scene."""

    title: str
    text: str
    nodes: int
    play: Callable[[Scene], None]


def _cut_off(scene: Scene) -> None:
    """A leader and one follower are cut off from the other three nodes, and the cut is mended."""
    here = scene.client(1)
    leader = scene.leader()
    assert leader is not None
    small = [NodeId(1), NodeId(2) if leader == 1 else leader]
    large = [node for node in scene.nodes if node not in small]
    there = scene.client(large[0])
    scene.rest(0.05)
    _before_the_cut(scene, here, leader)
    _small_side(scene, here, leader, small, large)
    _large_side(scene, there, small, large)
    _after_the_cut(scene, leader, small)


def _before_the_cut(scene: Scene, here: SimClient, leader: NodeId) -> None:
    scene.note(
        "Five nodes keep one queue",
        f"Each column is a node, and time runs downwards. n{leader} leads: its bar is thick. The leader writes every"
        " message into its log and sends a copy to each other node. The rule is: a message counts as committed once it"
        " is on the disks of a majority, here three of five. Only then does the publisher get its confirm. Why a"
        " majority? Because any three of five nodes and any other three of five have at least one node in common.",
    )
    scene.publish(here)
    scene.until(scene.confirmed(1))
    scene.note(
        "Message 1 is confirmed",
        "Follow it in the picture. The publisher c1 sends the message. The leader writes it (dashed square) and"
        " sends it on (blue lines), first to as many nodes as a majority needs. Each of them syncs it (full square)"
        " and answers. The third disk makes a majority, so the leader knows that the message is committed (diamond),"
        " and the publisher hears the confirm (tick). The others get their copies a little later.",
    )
    scene.rest(0.12)
    scene.until(scene.level)


def _small_side(scene: Scene, here: SimClient, leader: NodeId, small: list[NodeId], large: list[NodeId]) -> None:
    scene.cut(small)
    scene.note(
        "A cable is cut",
        f"From now on {_names(small)} hear only each other, and {_names(large)} hear only each other (red). n{leader}"
        " still leads as far as it knows: nobody can tell a cut cable from a slow one. The publisher c1 is connected to"
        " n1, on the small side.",
    )
    index = scene.members()[leader].core.log.last_index
    scene.publish(here)
    scene.until(scene.synced(index + 1, small))
    scene.rest(0.01)
    scene.note(
        "Message 2 is on two disks, and is not confirmed",
        f"The leader writes message 2 and sends it to everybody. It reaches the disks of {_names(small)}: two of"
        " five, no majority. So the leader may not commit it, and the publisher waits. To wait is the right answer:"
        " the small side cannot know what the others decide meanwhile.",
    )


def _large_side(scene: Scene, there: SimClient, small: list[NodeId], large: list[NodeId]) -> None:
    scene.until(lambda: scene.leader(large) is not None)
    scene.rest(_SOON_S)
    new = scene.leader(large)
    scene.note(
        f"The three others elect n{new}",
        f"{_names(large)} have heard nothing of their leader for a while, so they vote (yellow lines). A node votes"
        " once in a term, and only for a candidate whose log holds everything that its own log holds. The new leader"
        " has three votes. Message 1 is on at least three disks, so at least one of the three voters has it."
        " Therefore the winner has it, too. This is the whole secret: a majority that confirms and a majority that"
        " elects always share a node.",
    )
    scene.publish(there)
    scene.until(scene.confirmed(2))
    scene.note(
        "Message 3 is confirmed by the large side",
        f"The publisher c2 is connected to n{large[0]}, on the large side. Message 3 is on three of five disks, a"
        f" majority, and is confirmed. Where {_names(small)} have message 2 in their logs, the three have another"
        " entry, of a later term: another colour. Only one of two entries at one place can ever be committed, and it"
        " is the entry that a majority has.",
    )


def _after_the_cut(scene: Scene, leader: NodeId, small: list[NodeId]) -> None:
    scene.rest(0.1)
    scene.note(
        "The cable is mended",
        f"A leader that hears no majority gives up by itself, as n{leader} did. Now it also hears of the later term,"
        " and follows. Its entry with message 2 was never committed, and nobody was told that it was. So it may go,"
        " and it does: look for the struck square. Then the missing entries come.",
    )
    scene.mend(small)
    scene.until(lambda: scene.level() and scene.confirmed(3)())
    scene.rest(0.05)
    scene.note(
        "All logs are equal, and nothing confirmed was lost",
        "Message 1 and message 3 were confirmed, and all five nodes have them. Message 2 had no confirm. n1 had kept"
        " the publisher's request, so it handed message 2 to the new leader after the cut, and only now the publisher"
        " hears its confirm. Had n1 lost its power instead, message 2 would be gone, and the publisher, without a"
        " confirm, would know that it must send the message again.",
    )


def _killed_leader(scene: Scene) -> None:
    """The leader is killed in the middle of the work, and comes back."""
    here = scene.client(2)
    scene.client(3, consumes=True)
    leader = scene.leader()
    assert leader is not None
    others = [node for node in scene.nodes if node != leader]
    there = here if leader != 2 else scene.client(others[0])
    scene.rest(0.05)
    scene.note(
        "Three nodes, one leader",
        f"n{leader} leads the queue. A publisher sends messages, and a consumer on n3 gets them. The queue promises: a"
        " confirmed message is not lost as long as two of three disks live.",
    )
    scene.publish(there)
    scene.until(scene.confirmed(1))
    scene.rest(0.15)
    scene.publish(there)
    index = scene.members()[leader].core.log.last_index
    scene.until(lambda: scene.members()[leader].core.log.last_index > index)
    scene.note(
        f"n{leader} is killed in the middle of message 2",
        "The leader has just written message 2 and sends it on. Now its process is killed. Look at the logs: message 1"
        " is on every disk; message 2 may be anywhere between memory and disk.",
    )
    scene.kill(leader)
    scene.until(lambda: scene.leader(others) is not None)
    scene.rest(_SOON_S)
    scene.note(
        "The others elect a leader",
        f"The links to n{leader} break, so both others start a timer of random length. The first one whose timer ends"
        " asks first whether it would get votes, and then for votes in a new term. The new leader begins with an entry"
        " of its own term: when that is on two disks, everything before it is committed.",
    )
    scene.until(scene.confirmed(2))
    scene.note(
        "The work goes on",
        "The publisher's node keeps a message until the message is applied, so it hands message 2 to the new leader"
        " once more. If the old leader had passed the message on, it now stands in two entries, and the number that"
        " its node gave it tells the queue to take it once. The publisher hears its confirm, and need not know who"
        " leads.",
    )
    scene.publish(there)
    scene.until(scene.confirmed(3))
    scene.rest(0.05)
    scene.note(
        f"n{leader} comes back",
        "It begins with what is on its own disk, hears of the later term, and follows. The leader sends the entries"
        " that are missing.",
    )
    scene.start(leader)
    scene.until(scene.level)
    scene.rest(0.05)
    scene.note("All three are equal again", "Three messages were confirmed, and all three nodes have them.")


def _shared_writes(scene: Scene) -> None:
    """First one message in flight, then twenty."""
    leader = _led_by(scene)
    here = scene.client(leader)
    scene.rest(0.05)
    begin = scene.now
    scene.publish(here)
    scene.until(scene.confirmed(1))
    round_ms = 1000 * (scene.now - begin)
    scene.note(
        "One message in flight: a round for each message",
        f"The publisher waits for the confirm of each message. One round took {round_ms:.1f} ms: the leader writes and"
        " syncs the entry, and sends it to a follower, who syncs it and answers. As soon as two of three disks have the"
        " entry, the confirm goes back. (The other follower gets its copy a little later, for no majority needs it.)"
        " Hardly anything of the round is work; nearly all of it is waiting.",
    )
    scene.rest(0.05)
    begin = scene.now
    scene.publish(here)
    scene.rest(_SOON_S)
    scene.publish(here, 19)
    scene.until(scene.confirmed(21))
    all_ms = 1000 * (scene.now - begin)
    scene.note(
        "Twenty messages in flight: messages share a round",
        "Message 2 is on its way when 19 more arrive. They do not need 19 rounds: they wait until the round under way"
        " allows it, and go together, as one entry with one write and one sync on each disk. All twenty were confirmed"
        f" after {all_ms:.1f} ms; one by one they would have taken {20 * round_ms:.0f} ms. This is why the rate grows"
        " with the number of messages in flight, and latency at first hardly does.",
    )


def _handed_over(scene: Scene) -> None:
    """A leader hands over to another member, without waiting for a timer."""
    leader = _led_by(scene)
    here = scene.client(leader)
    to = next(node for node in scene.nodes if node != leader)
    scene.rest(0.05)
    scene.publish(here)
    scene.until(scene.confirmed(1))
    scene.rest(0.1)
    scene.note(
        f"n{leader} is asked to hand over to n{to}",
        f"An operator wants n{to} to lead. n{leader} takes no new messages for now, makes sure that n{to} has the whole"
        " log on its disk, and then tells it to stand for election at once.",
    )
    begin = scene.now
    scene.hand_over(leader, to)
    scene.until(lambda: scene.leader() == to and scene.members()[leader].core.leader == to)
    scene.rest(_SOON_S)
    took_ms = 1000 * (scene.now - begin)
    scene.note(
        f"n{to} leads, {took_ms:.1f} ms later",
        "Nobody was suspected, and no timer had to run out: the others vote although they have just heard their leader,"
        " because the request says that the leader itself wished for it. After a crash, an election timer comes first.",
    )
    scene.publish(here)
    scene.until(scene.confirmed(2))
    scene.note(
        "The publisher goes on",
        f"The publisher is still connected to n{leader}, which now passes its messages on to n{to}.",
    )


def _led_by(scene: Scene) -> NodeId:
    """Have a client declare the queue; returns the leader."""
    scene.client(1)
    leader = scene.leader()
    assert leader is not None
    return leader


SCENES: Final = {
    "cut-off-leader": SceneScript(
        "A leader is cut off with a minority",
        "Why can a confirmed message not be lost, even if the leader itself is cut off? This page shows a run of the"
        " real broker code at virtual time. Go through it with Next, or with the keys ← and →. On the right (on a small"
        " screen: below) you see what each node has at that moment.",
        5,
        _cut_off,
    ),
    "killed-leader": SceneScript(
        "The leader is killed",
        "What the second chapter of the tutorial does with real processes, here moment by moment: a run of the real"
        " broker code at virtual time. Go through it with Next, or with the keys ← and →.",
        3,
        _killed_leader,
    ),
    "shared-writes": SceneScript(
        "Messages share a write",
        "Why does a publisher with twenty messages in flight get far more than one with a single message? A run of the"
        " real broker code at virtual time, with drives that sync in a third of a millisecond. Go through it with Next,"
        " or with the keys ← and →.",
        3,
        _shared_writes,
    ),
    "handed-over-leader": SceneScript(
        "A leader hands over",
        "What `perftest broker transfer-leader` does, moment by moment: a run of the real broker code at virtual time."
        " Go through it with Next, or with the keys ← and →.",
        3,
        _handed_over,
    ),
}
"""The scenes by name."""
_SEED: Final = 7
_BEFORE_S: Final = 0.01


def events_of(name: str, seed: int = _SEED) -> list[WorldEvent]:
    """What happens in a scene, from shortly before its first note on, with the head of its page."""
    script = SCENES[name]
    former = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    scene = Scene(script.nodes, seed)
    try:
        script.play(scene)
    finally:
        logging.disable(former)
        scene.close()
    scene.recorder.close()
    events = scene.recorder.events
    command = "python -m reference_broker.sim.scenes worlds"
    head = head_of(events, title=script.title, text=script.text, command=command)
    first = next(each.t for each in events if each.what == "note")
    found = window([head, *events], first=f"{first - _BEFORE_S}")
    return [each._replace(fields={**each.fields, "total": len(found)}) if each.what == "world" else each
            for each in found]  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Write a page for each scene into a folder."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 1 or given[0].startswith("-"):
        sys.stderr.write("usage: python -m reference_broker.sim.scenes FOLDER\n")
        return 2
    folder = Path(given[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name in SCENES:
        folder.joinpath(f"{name}.html").write_text(page(events_of(name)), encoding="utf-8")
    return 0


def _names(nodes: list[NodeId]) -> str:
    """Some nodes as words: ``n1, n2 and n3``."""
    return ", ".join(f"n{node}" for node in nodes[:-1]) + f" and n{nodes[-1]}"


if __name__ == "__main__":
    sys.exit(main())
