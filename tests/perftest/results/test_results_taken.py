"""What a run tells of a drained backlog."""

from __future__ import annotations

from perftest.results.taken import TakenFromQueues


def test_workers_add_up_and_the_time_is_that_of_all() -> None:
    taken = TakenFromQueues()
    assert (taken.to_json(), taken.sentence()) == ({}, "")
    taken.event({"kind": "delivered_before", "count": 7})
    taken.event({"kind": "taken", "count": 300, "start_ns": 10**9, "end_ns": 3 * 10**9})
    taken.event({"kind": "taken", "count": 200, "start_ns": 2 * 10**9, "end_ns": 6 * 10**9})
    assert taken.to_json() == {"count": 500, "length_ns": 5 * 10**9, "per_s": 100.0}
    assert taken.sentence() == "taken   500 messages in 5 s, 100/s, from the subscription on"
