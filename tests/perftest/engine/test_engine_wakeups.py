"""Timers finer than a millisecond: without them every paced run would show the generator's own lag."""

from __future__ import annotations

import asyncio
import time

import pytest

from perftest.engine.wakeups import Wakeups

OFFSET = 5_000_000_000


@pytest.mark.parametrize("timerfd", [True, False])
def test_wakeups_come_in_order_and_never_early(timerfd: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not timerfd:
        monkeypatch.setattr("sys.platform", "elsewhere")

    async def scenario() -> list[tuple[int, int]]:
        wakeups = Wakeups(OFFSET)
        start = time.monotonic_ns() + OFFSET
        woken: list[tuple[int, int]] = []
        done = asyncio.Event()
        for after_us in (900, 300, 2500, 300, -100):
            due = start + after_us * 1000
            wakeups.at(due, lambda due=due: woken.append((due, time.monotonic_ns() + OFFSET)))  # type: ignore[misc]
        wakeups.at(start + 3_000_000, done.set)
        async with asyncio.timeout(10):
            await done.wait()
        wakeups.close()
        return woken

    woken = asyncio.run(scenario())
    assert [due for due, _ in woken] == sorted(due for due, _ in woken)
    assert len(woken) == 5
    assert all(at >= due for due, at in woken)


def test_a_wakeup_may_set_the_next_one() -> None:
    async def scenario() -> int:
        wakeups = Wakeups(0)
        done = asyncio.Event()
        count = 0

        def again() -> None:
            nonlocal count
            count += 1
            if count == 50:
                done.set()
            else:
                wakeups.at(time.monotonic_ns() + 50_000, again)

        again()
        async with asyncio.timeout(10):
            await done.wait()
        wakeups.close()
        return count

    assert asyncio.run(scenario()) == 50


def test_nothing_comes_after_close() -> None:
    async def scenario() -> list[int]:
        wakeups = Wakeups(0)
        woken: list[int] = []
        wakeups.at(time.monotonic_ns(), lambda: woken.append(1))
        wakeups.close()
        for _ in range(5):
            await asyncio.sleep(0)
        return woken

    assert asyncio.run(scenario()) == []
