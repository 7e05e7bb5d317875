"""What a trace tells a person: in the words of Raft and queues, in order, and without a part in the hash."""

from __future__ import annotations

import re

from reference_broker.sim.trace import Trace
from reference_broker.sim.world import World


def test_meanings_stand_behind_their_events_and_are_worded_when_read() -> None:
    trace = Trace(kept=2)
    worded: list[int] = []

    def words(number: int) -> str:
        worded.append(number)
        return f"meaning {number}"

    for number in range(4):
        trace.note(float(number), "n1", "step", number)
        trace.tell(float(number), "n1", "raft", words, number)
    alone = Trace()
    for number in range(4):
        alone.note(float(number), "n1", "step", number)
    assert trace.hash == alone.hash
    assert worded == []
    assert [line.split()[-1] for line in trace.lines()] == ["2", "2", "3", "3"]
    assert worded == [2, 3]


def test_the_way_of_a_message_can_be_read() -> None:
    """From the client through the logs to the client: whoever looks for its number finds every step."""
    world = World(22, kept=None)
    world.run(3000)
    text = "\n".join(world.trace.lines())
    world.close()
    steps = (
        r"raft +\w+: LEADS term 1, members ",
        r"raft +\w+: grants n\d its vote in term 1",
        r"raft +\w+: appends 1 of term 1 \(no-op\)",
        r"disk +\w+: has its log up to 1 of term 1 on disk",
        r"raft +\w+: commit index 0 -> 1",
        r"c\d   client +publishes ",
        r"queue +\w+: applies \d+: .*enqueue [\d ]+ as n\d",
        r"queue +delivers [\d ]+ as ids 0.* to c\d\.\d+ on n\d",
        r"c\d   client +gets b'<\d+ ",
        r"c\d   client +hears: \w+ confirms message \d",
        r"c\d   client +acks message \d",
        r"queue +\w+: applies \d+: .*settle ids ",
    )
    missing = [step for step in steps if not re.search(step, text)]
    assert not missing, text[:4000]
