"""A worker process whose host has a clock of its own, and the way to start it: arguments are nanoseconds and ppm."""

from __future__ import annotations

import asyncio
import functools
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping

from perftest.engine.host import ThisHost
from perftest.engine.workers import wire, worker
from perftest.engine.workers.remote_worker import RemoteWorker, StartWorker
from perftest.engine.workers.transport import LINE_MAX, LocalProcess


class ShiftedHost(ThisHost):
    """This machine, with another clock. The timers of the kernel go by the true clock, so they are not used."""

    exact_timers = True

    def __init__(self, ahead_ns: int, ppm: int) -> None:
        super().__init__()
        self.ahead_ns = ahead_ns
        self.ppm = ppm

    def monotonic_ns(self) -> int:
        true_ns = super().monotonic_ns()
        return true_ns + self.ahead_ns + true_ns * self.ppm // 1_000_000


def starting(clocks: Mapping[str, tuple[int, int]]) -> StartWorker:
    """Starts the workers of each host with the clock that this host is given."""

    async def start_worker(first: wire.Message, on_message: Callable[[wire.Message], None], who: str) -> RemoteWorker:
        async def start() -> LocalProcess:
            shift = [str(number) for number in clocks[first["host"]]]
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.perftest.testing.shifted_worker", *shift),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                limit=LINE_MAX,
                start_new_session=True,
            )
            return LocalProcess(process)

        return await RemoteWorker.start(first, on_message, who, start)

    return start_worker


if __name__ == "__main__":
    host = ShiftedHost(*(int(argument) for argument in sys.argv[1:]))
    worker.Worker = functools.partial(worker.Worker, host=host)  # type: ignore[assignment,misc]
    del sys.argv[1:]  # a worker takes the directory of its door
    worker.main()
