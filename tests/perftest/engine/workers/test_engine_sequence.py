"""Numbered messages: whatever the way loses, repeats or mixes up, each is taken once and in order."""

from __future__ import annotations

import json
import random

import pytest

from perftest.engine.workers.sequence import Sequence


def test_messages_are_taken_once_and_in_order() -> None:
    one, other = Sequence(), Sequence()
    first, second, third = (json.loads(one.line({"op": word})) for word in "abc")
    assert other.take(dict(third)) == [] and other.misses
    assert other.take(dict(first)) == [{"op": "a"}]
    assert other.take(dict(first)) == [], "it was taken before"
    assert other.take(dict(second)) == [{"op": "b"}, {"op": "c"}] and not other.misses
    assert other.take({"op": "resend"}) == [{"op": "resend"}], "a message without a number waits for nothing"


def test_what_the_other_end_has_is_not_kept() -> None:
    one, other = Sequence(), Sequence()
    for line in [one.line({"op": "a"}), one.line({"op": "b"})]:
        other.take(json.loads(line))
    last = one.line({"op": "c"})
    one.take(json.loads(other.line({"result": 1})))
    assert one.unseen == [last]
    one.acknowledge(1)  # an old message that came late
    assert one.unseen == [last]


@pytest.mark.parametrize("seed", range(20))
def test_a_way_that_loses_repeats_and_mixes_up_loses_nothing(seed: int) -> None:
    chance = random.Random(seed)
    one, other, taken, way = Sequence(), Sequence(), [], list[bytes]()
    for number in range(200):
        way.append(one.line({"value": number}))
        if chance.random() < 0.1:
            way = [line for line in way if chance.random() < 0.7] + way[-2:]
            chance.shuffle(way)
        if chance.random() < 0.3:
            taken += [message["value"] for line in way for message in other.take(json.loads(line))]
            way.clear()
            one.take(json.loads(other.line({})))
        if chance.random() < 0.1:
            way += one.unseen
    for line in one.unseen:
        taken += [message["value"] for message in other.take(json.loads(line))]
    assert taken == list(range(200))
