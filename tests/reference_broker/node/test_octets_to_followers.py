"""What goes to a follower is bounded in octets: in a message, on the way, and on a link that takes no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reference_broker.raft.ready import SendSnapshot
from reference_broker.types import LogIndex

from .leader import ONE, TERM, THREE, TWO, Leader, has

KB = 1024
FRAME = 256 * KB


def leader(**limits: int) -> Leader:
    """A leader whose followers have clients, so that no copy waits."""
    made = Leader(clients={TWO, THREE}, peer_frame_bytes_max=FRAME, **limits)
    made.octets.clear()
    return made


def to_two(said: list[str]) -> list[str]:
    return [each.removeprefix("2 gets ") for each in said if each.startswith("2")]


def store(made: Leader, index: int) -> list[str]:
    """Node 2 has entries up to ``index`` on disk; what it is sent for that."""
    made.sender.answered(TWO, LogIndex(index))
    made.core.step(TWO, has(index, TERM))
    made.turn()
    return to_two(made.said())


def test_a_message_holds_as_many_entries_as_fit_into_a_frame() -> None:
    """The follower closes the link on a larger frame; it never caught up."""
    made = leader()
    assert to_two(made.propose(*[100 * KB] * 5)) == ["2-3, commit 1", "4-5, commit 1", "6-6, commit 1"]
    assert max(made.octets) <= FRAME


def test_an_entry_larger_than_a_frame_goes_alone() -> None:
    made = leader()
    assert to_two(made.propose(1 * KB, 900 * KB, 1 * KB)) == ["2-2, commit 1", "3-3, commit 1", "4-4, commit 1"]


def test_a_follower_with_a_slow_disk_is_sent_no_more_than_the_window() -> None:
    """It keeps in memory what is not on its disk yet: sixty-four messages of 128 MiB each."""
    made = leader(follower_bytes_max=300 * KB)
    assert to_two(made.propose(*[200 * KB] * 4)) == ["2-2, commit 1", "3-3, commit 1"]
    assert to_two(made.propose(10)) == [], "nothing overtakes what is held"
    assert store(made, 2) == ["4-4, commit 1"]
    assert store(made, 4) == ["5-6, commit 1"]
    store(made, 6)
    assert not made.sender.flows.get(TWO)
    assert to_two(made.propose(10))[0].startswith("7-7"), "then it is as before"


def test_a_notice_goes_with_what_is_held() -> None:
    """It names the commit index of then; before the entries it would say nothing."""
    made = leader(follower_bytes_max=100 * KB)
    made.propose(*[200 * KB] * 2)
    made.core.synced(made.core.log.last_index, TERM)
    made.core.step(THREE, has(3, TERM))
    made.turn()
    assert made.core.commit_index == 3
    assert to_two(made.said()) == []
    assert store(made, 2) == ["3-3, commit 3"]


def test_who_asks_what_the_follower_has_begins_again_from_there() -> None:
    """The core takes for sent what is held: after a second without an answer it asks, and the follower wants what it
    was never sent."""
    made = leader(follower_bytes_max=100 * KB)
    assert to_two(made.propose(*[200 * KB] * 3)) == ["2-2, commit 1"]
    for _ in range(made.core.config.resend_ticks):
        made.core.tick()
    made.turn()
    assert to_two(made.said()) == ["nothing, commit 0"]
    made.core.step(TWO, has(1, TERM, wants=3, fits=False))
    made.turn()
    assert to_two(made.said()) == ["nothing, commit 0"]
    made.core.step(TWO, has(1, TERM, wants=3))
    made.turn()
    assert to_two(made.said()) == [], "entry 2 is still on its way to the disk"
    assert store(made, 2) == ["3-3, commit 1"]
    assert store(made, 3) == ["4-4, commit 1"]


def test_entries_that_were_lost_are_not_under_way() -> None:
    """A follower that had no member yet drops them: the window must not stay shut for ever."""
    made = leader(follower_bytes_max=100 * KB)
    made.propose(*[200 * KB] * 2)
    made.core.step(TWO, has(1, TERM, wants=2, fits=False))
    made.turn()
    made.said()
    assert store(made, 1) == ["2-2, commit 1"]


@pytest.mark.parametrize("end", [lambda made: made.sender.peer_down(TWO), lambda made: made.sender.forget()])
def test_nothing_is_held_for_a_link_or_an_office_that_is_over(end: Callable[[Leader], None]) -> None:
    made = leader(follower_bytes_max=100 * KB)
    made.propose(*[200 * KB] * 2)
    end(made)
    assert store(made, 2) == []
    assert TWO not in made.sender.flows


def test_a_congested_link_gets_small_entries_only() -> None:
    """Gigabytes for a slow node stay in the log; the confirms of queues with small messages do not wait for them."""
    made = leader()
    made.congested.add(TWO)
    assert to_two(made.propose(10)) == ["2-2, commit 1"]
    assert made.propose(*[100 * KB] * 4) == ["3 gets 3-4, commit 1", "3 gets 5-6, commit 1"]
    assert set(made.waits_for_links) == {TWO}
    assert made.propose(10)[-1] == "3 gets 7-7, commit 1", "and nothing overtakes what is held"
    made.congested.clear()
    made.turn()
    assert to_two(made.said()) == ["3-4, commit 1", "5-7, commit 1"]


def test_a_link_that_gets_congested_on_the_way_holds_the_rest() -> None:
    made = leader()
    send = made.send

    def and_congest(node: Any, kind: int, buffers: list[bytes | memoryview]) -> int:
        made.congested.add(node)
        return send(node, kind, buffers)

    made.send = and_congest  # type: ignore[method-assign]
    assert to_two(made.propose(*[200 * KB] * 3)) == ["2-2, commit 1"]
    for index in (3, 4):
        assert TWO in made.waits_for_links
        made.congested.clear()
        made.turn()
        assert to_two(made.said()) == [f"{index}-{index}, commit 1"]
    assert made.sender.flows[TWO].held is None


def test_a_chunk_of_a_snapshot_waits_for_a_congested_link() -> None:
    """A node that comes back blank asks for the snapshots of a thousand queues at once."""
    made = leader()
    made.log.snapshot_chunk = lambda _group, _number: (LogIndex(1), TERM, b"chunk", True)
    chunk = SendSnapshot(to=TWO, term=TERM, index=LogIndex(1), number=1)
    ready = made.core.ready()
    made.congested.add(TWO)
    made.sender.send_all(type(ready)(**{**_fields(ready), "messages": (chunk,)}))
    made.sender.send_all(type(ready)(**{**_fields(ready), "messages": (chunk,)}))
    assert made.said() == []
    assert set(made.waits_for_links) == {TWO}
    made.congested.clear()
    made.turn()
    assert made.said() == ["2 gets InstallSnapshot"]


def _fields(ready: Any) -> dict[str, Any]:
    return {name: getattr(ready, name) for name in ready.__slots__}


def test_a_leader_alone_holds_nothing() -> None:
    made = leader()
    made.propose(900 * KB)
    made.answer(ONE, TWO, THREE)
    assert not made.sender.flows and not made.sender.chunks
