"""Scenes about messages that do not go their usual way: a poison message, and a queue that refuses."""

from __future__ import annotations

from typing import Final

from reference_broker.sim.queues import GRAVEYARD
from reference_broker.sim.scenes.scene import Scene, Worker

DELIVERY_LIMIT: Final = 2
"""Returns of a message that the queue of the poison message allows."""
MAX_LENGTH: Final = 5
"""Messages that the queue that refuses may hold."""
_A_WHILE_S: Final = 0.06
"""Virtual time in which what has begun comes to its end."""


def poison(scene: Scene) -> None:
    """A consumer returns a message again and again, until the delivery limit takes the message out of the queue."""
    here, worker = scene.client(1), scene.worker(2)
    scene.rest(0.05)
    scene.note(
        "A queue with a delivery limit",
        f"A message may come back to the queue work {DELIVERY_LIMIT} times (x-delivery-limit). A message that comes"
        f" back once more goes to the queue {GRAVEYARD}, as a dead letter. c1 is about to publish two messages. c2"
        " consumes one message at a time (prefetch 1), and its program fails whenever it sees message 1.",
    )
    scene.publish(here, 2)
    scene.until(worker.holds(1))
    scene.rest(_A_WHILE_S)
    scene.note(
        "Message 1 is delivered for the first time",
        "Every member of the queue has both messages in its log, and knows that c2 has got message 1. The member on"
        " c2's own node sends the delivery. Message 2 waits behind message 1.",
    )
    _returned(scene, worker)
    scene.note(
        "c2 returns message 1, and gets it again",
        "The return (basic.nack with requeue) is an entry of the log. So all members put message 1 back in its old"
        " place, before message 2, and all count that it came back once. Then c2 gets it again, with the flag"
        " redelivered. Message 2 still waits: a message that nobody can handle holds up the whole queue.",
    )
    _returned(scene, worker)
    scene.note(
        "c2 returns message 1 again, and gets it for the last time",
        f"Message 1 came back {DELIVERY_LIMIT} times. The limit allows this, so c2 gets the message once more.",
    )
    buried, arrived = scene.has_seen("bury", 1), scene.has_seen("append", 1)
    worker.consumer.give_back_one()
    scene.until(lambda: buried() and arrived() and worker.holds(2)())
    scene.rest(_A_WHILE_S)
    scene.note(
        f"The third return sends message 1 to {GRAVEYARD}",
        f"Now the count is above the limit. So message 1 leaves the queue work as a dead letter, and c2 gets message 2."
        f" The node that leads the queue work publishes message 1 to {GRAVEYARD}, with its history in the header"
        " x-death.",
    )
    worker.consumer.settle(1)
    scene.rest(2 * _A_WHILE_S)
    scene.note(
        "The work goes on without message 1",
        f"These are the logs of {GRAVEYARD}. c2 has acknowledged message 2, and the queue work is empty. Nobody had to"
        f" find message 1 and take it out by hand. {POISON_ENDS}",
        GRAVEYARD,
    )


POISON_ENDS: Final = (
    f"Message 1 was delivered {DELIVERY_LIMIT + 1} times and now lies in {GRAVEYARD} on all three nodes, and message 2"
    " was delivered once."
)
"""Last sentence of the scene of the poison message."""


def _returned(scene: Scene, worker: Worker) -> None:
    """The consumer returns its message, and gets it again."""
    worker.consumer.give_back_one()
    scene.until(worker.holds(1))
    scene.rest(_A_WHILE_S)


def refusal(scene: Scene) -> None:
    """A queue is full, refuses messages, and takes messages again when a consumer has made room."""
    here = scene.client(1)
    scene.rest(0.05)
    scene.note(
        f"A queue for {MAX_LENGTH} messages",
        f"The queue orders may hold {MAX_LENGTH} messages (x-max-length) and refuses all others (x-overflow is"
        " reject-publish). The publisher c1 asked for confirms, and nobody consumes yet.",
    )
    scene.publish(here, MAX_LENGTH)
    scene.until(scene.confirmed(MAX_LENGTH))
    scene.rest(_A_WHILE_S)
    scene.note(
        f"Messages 1 to {MAX_LENGTH} are confirmed, and the queue is full",
        "They went as one entry, so they share one place in the log. Every member has applied the entry, so each"
        " of them knows that the queue is full.",
    )
    refused = scene.has_seen("refuse", MAX_LENGTH + 2)
    scene.publish(here, 2)
    scene.until(refused)
    scene.rest(_A_WHILE_S)
    scene.note(
        f"Messages {MAX_LENGTH + 1} and {MAX_LENGTH + 2} are refused",
        "The publisher hears basic.nack (a red cross) instead of a confirm. So it knows that the queue does not have"
        " these two messages, and decides itself what to do: wait, and publish them again, or give up. Their entry is"
        " committed like any other. But each member asks whether there is room when it applies an entry. So all members"
        " refuse the same messages, and so would the next leader.",
    )
    worker = scene.worker(2)
    scene.until(worker.holds(1))
    scene.note(
        "A consumer makes room",
        "c2 has subscribed and got message 1. The limit counts only messages that wait, and four messages wait now. A"
        " full queue takes messages again as soon as it is down to four fifths of its limit, which is four messages"
        " here. (A larger queue refuses for longer, so that it does not take and refuse messages by turns.)",
    )
    confirmed = scene.has_seen("confirm", MAX_LENGTH + 3)
    scene.publish(here)
    scene.until(confirmed)
    worker.consumer.settle(1)
    scene.rest(2 * _A_WHILE_S)
    scene.note(
        f"Message {MAX_LENGTH + 3} is confirmed",
        f"c2 acknowledges message 1 and gets message 2. A publisher that asks for confirms always knows what became of"
        f" its messages. {REFUSAL_ENDS}",
    )


REFUSAL_ENDS: Final = (
    f"Of {MAX_LENGTH + 3} messages, {MAX_LENGTH + 1} were confirmed, and the two others were refused and never"
    " delivered."
)
"""Last sentence of the scene of the queue that refuses."""
