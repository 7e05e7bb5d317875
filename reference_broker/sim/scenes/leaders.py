"""Scenes about leaders: one is killed, and one hands over."""

from __future__ import annotations

from reference_broker.sim.scenes.scene import SOON_S, Scene


def killed_leader(scene: Scene) -> None:
    """The leader is killed in the middle of the work, and comes back."""
    here = scene.client(2)
    scene.client(3, consumes=True)
    leader = scene.led()
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
    scene.rest(SOON_S)
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


def handed_over(scene: Scene) -> None:
    """A leader hands over to another member, without waiting for a timer."""
    scene.client(1)
    leader = scene.led()
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
    scene.rest(SOON_S)
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
