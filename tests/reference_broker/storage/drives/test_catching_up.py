"""How much sooner a late thread's next operation begins, by hand."""

from __future__ import annotations

import pytest

from reference_broker.storage.drives.catching_up import CatchingUp


@pytest.mark.parametrize(
    ("woke_ns", "now_ns", "expected_ns"),
    [
        (1100, 1100, 1100),  # punctual
        (1130, 1130, 1100),  # late, and asks at once: from the end of the former operation
        (1130, 1150, 1120),  # its own work between counts
        (1130, 1230, 1200),  # for as long as the former operation took
        (1130, 1231, 1231),  # it waited for something else: nothing to catch up
        (1900, 1900, 1800),  # one operation's length at most
        (1090, 1090, 1090),  # a clock that told too little
    ],
)
def test_a_thread_begins_sooner_by_what_it_is_behind(woke_ns: int, now_ns: int, expected_ns: int) -> None:
    """An operation from 1000 to 1100. Too little, and the machine passes for the drive; too much, and a drive is faster
    than it can be."""
    thread = CatchingUp()
    assert thread.time_ns(1000) == 1000
    thread.ended(1000, 1100, woke_ns)
    assert thread.time_ns(now_ns) == expected_ns
