"""The production generator at virtual time: its host, and workers that are processes of a simulated world."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from perftest.engine.coordination.coordinator import execute
from perftest.engine.workers import wire
from perftest.engine.workers.remote_worker import RemoteWorker
from perftest.engine.workers.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from perftest.actions.cluster_actions import ClusterActions
    from perftest.engine.api import RunOutcome, Sink, StopRequest
    from perftest.engine.coordination.warm_up import WarmUpRule
    from perftest.spec.plan import Plan
    from reference_broker.virtual.costs import Costs
    from reference_broker.virtual.loop import VirtualLoop
    from reference_broker.virtual.world import Process, VirtualWorld

EPOCH_NS: Final = 1_735_689_600_000_000_000
"""The Unix time at which every simulation begins: midnight of 1 January 2025 UTC."""


class SimulatedHost:
    """The host of a simulated process (:class:`perftest.engine.host.Host`)."""

    exact_timers = True
    collects_garbage = False

    def __init__(self, world: VirtualWorld, process: Process) -> None:
        self._world = world
        self._process = process

    def monotonic_ns(self) -> int:
        """The time of the world where the process is."""
        return self._world.clock()

    def epoch_offset_ns(self) -> int:
        """:data:`EPOCH_NS`."""
        return EPOCH_NS

    def cpu_ns(self) -> int:
        """The cost model's charges so far, in ns of CPU time."""
        return self._process.cpu_ns

    def waited_ns(self) -> int:
        """The time for which the machine had no core for the process."""
        return self._process.waited_ns

    def stolen_ns(self) -> int:
        """No hypervisor takes anything."""
        return 0

    def cores(self) -> int:
        """The cores of the machine."""
        return len(self._process.machine.free_ns)

    def run_number(self) -> int:
        """From the seed."""
        return self._world.chance.getrandbits(16)


class VirtualWorker:
    """A worker process of the world (:class:`perftest.engine.workers.transport.Transport`)."""

    def __init__(self, command: VirtualLoop, loop: VirtualLoop, number: int) -> None:
        self.out_of_reach = False
        self.place = f"simulated worker {number}"
        self._command = command
        self._loop = loop
        self._worker: Worker | None = None
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._lines.put_nowait(wire.to_line(wire.hello()))

    def send(self, line: bytes) -> None:
        """Have the worker's loop take the line."""
        self._loop.call_soon(self._take, line)

    def _take(self, line: bytes) -> None:
        message = json.loads(line)
        if self._worker is None:
            host = SimulatedHost(self._loop.world, self._loop.process)
            self._worker = Worker(message, self._say, host=host)
        else:
            self._worker.request(message)

    def _say(self, line: bytes) -> None:
        self._command.call_soon(self._lines.put_nowait, line)

    async def lines(self) -> AsyncIterator[bytes]:
        """The worker's lines; an empty line is its end."""
        while line := await self._lines.get():
            yield line

    async def exit_reason(self) -> str:
        """Only the coordinator ends workers."""
        return "the simulated worker has ended"

    def mend(self) -> None:
        """Nothing breaks."""

    def end(self) -> None:
        """Let the reader end."""
        self._lines.put_nowait(b"")

    def kill(self) -> None:
        """As :meth:`end`."""
        self.end()

    def forget(self) -> None:
        """There is nothing to let go of."""


class VirtualGenerator:
    """The command and its workers, all in one world. ``new_loop`` makes the loop of one more process."""

    def __init__(self, world: VirtualWorld, command: VirtualLoop, new_loop: Callable[[], VirtualLoop]) -> None:
        self.loops: list[VirtualLoop] = []
        self._world = world
        self._command = command
        self._new_loop = new_loop

    async def execute(
        self, plan: Plan, sink: Sink, stop: StopRequest, cores: Process, actions: ClusterActions,
        warm_up: WarmUpRule | None,
    ) -> RunOutcome:  # fmt: skip
        """Run a plan with the actions of its timeline, and undo them. ``cores`` is a process of the machine of the
        workers, and ``warm_up`` may lengthen the warm-up of each step."""
        host = SimulatedHost(self._world, cores)
        try:
            return await execute(
                plan, sink, stop, more=actions.moments(), handlers=actions.handlers, on_progress=actions.progress,
                start_worker=self._start_worker, host=host, warm_up=warm_up,
            )  # fmt: skip
        finally:
            await actions.restore()

    async def _start_worker(
        self, first: wire.Message, on_message: Callable[[wire.Message], None], who: str
    ) -> RemoteWorker:
        async def start() -> VirtualWorker:
            self.loops.append(self._new_loop())
            return VirtualWorker(self._command, self.loops[-1], len(self.loops))

        return await RemoteWorker.start(first, on_message, who, start)


def free_of_charge(costs: Costs) -> Costs:
    """Costs of a process that works for nothing: the command, which touches no message."""
    return costs.scaled(calls=0, contents=0)
