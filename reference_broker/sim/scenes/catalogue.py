"""The scenes by name: the introduction, the cluster and the script of each, and the events of a scene when it is
played."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from reference_broker.sim.queues import GRAVEYARD, QueuePlan
from reference_broker.sim.scenes.cut_off import cut_off
from reference_broker.sim.scenes.leaders import handed_over, killed_leader
from reference_broker.sim.scenes.membership import membership
from reference_broker.sim.scenes.scene import Scene, plan_of
from reference_broker.sim.scenes.troubled_messages import poison, refusal
from reference_broker.sim.scenes.writes import shared_writes
from reference_broker.worldpage.events import WorldEvent
from reference_broker.worldpage.page import head_of
from reference_broker.worldpage.window import window


class SceneScript(NamedTuple):
    """``text`` is the introduction of the page, ``play`` leads the scene. All clients declare ``queues``; the page is
    about the first one. ``seed`` chooses the random times of elections, networks and drives."""

    title: str
    text: str
    nodes: int
    queues: tuple[QueuePlan, ...]
    play: Callable[[Scene], None]
    seed: int = 7


_HOW: Final = (
    "The page shows a run of the real broker code at virtual time. Go through it with Next, or with the keys ← and →;"
    " the logs at that moment stand beside the picture (on a small screen: below it)."
)
_ORDERS: Final = plan_of("orders", 3)
SCENES: Final = {
    "cut-off-leader": SceneScript(
        "A leader is cut off with a minority",
        f"Why can a confirmed message not be lost, even if the leader itself is cut off? {_HOW}",
        5,
        (plan_of("orders", 5),),
        cut_off,
    ),
    "killed-leader": SceneScript(
        "The leader is killed",
        f"The second chapter of the tutorial kills a real process. Here you see the same moment by moment. {_HOW}",
        3,
        (_ORDERS,),
        killed_leader,
    ),
    "shared-writes": SceneScript(
        "Messages share a write",
        "Why does a publisher with twenty messages in flight get far more than a publisher with a single message?"
        f" {_HOW} The drives sync in a third of a millisecond.",
        3,
        (_ORDERS,),
        shared_writes,
    ),
    "handed-over-leader": SceneScript(
        "A leader hands over",
        f"What does the command perftest broker transfer-leader do? {_HOW}",
        3,
        (_ORDERS,),
        handed_over,
    ),
    "poison-message": SceneScript(
        "A poison message",
        f"What becomes of a message that no consumer can handle? {_HOW}",
        3,
        (
            plan_of("work", 3, buries=True, x_delivery_limit=2, x_dead_letter_exchange="",
                    x_dead_letter_routing_key=GRAVEYARD),
            plan_of(GRAVEYARD, 3),
        ),
        poison,
        seed=8,
    ),
    "full-queue": SceneScript(
        "A queue that refuses",
        f"What does a publisher see when a queue is full? {_HOW}",
        3,
        (plan_of("orders", 3, x_max_length=5, x_overflow="reject-publish"),),
        refusal,
    ),
    "change-of-members": SceneScript(
        "A change of members",
        f"How does a queue move to another node while it works? {_HOW}",
        4,
        (_ORDERS,),
        membership,
    ),
}  # fmt: skip
"""The scenes by name."""
_BEFORE_S: Final = 0.01
"""Time that a page shows before its first note."""


def events_of(name: str, seed: int | None = None) -> list[WorldEvent]:
    """What happens in a scene, from shortly before its first note on, with the head of its page."""
    script = SCENES[name]
    former = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    scene = Scene(script.nodes, script.seed if seed is None else seed, script.queues)
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
