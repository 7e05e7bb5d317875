"""The scene about writes that messages share."""

from __future__ import annotations

from reference_broker.sim.scenes.scene import SOON_S, Scene


def shared_writes(scene: Scene) -> None:
    """First one message in flight, then twenty."""
    scene.client(1)
    here = scene.client(scene.led())
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
    scene.rest(SOON_S)
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
