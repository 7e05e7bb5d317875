"""The clocks of the load hosts, against the coordinator's clock: exchanges before, during and after the run.

Theory of operation. Every worker tells the time of its own host: the monotonic clock of the host and one constant,
which is the same in the whole run. So all stamps of a host compare exactly, and the clocks of two hosts differ as their
monotonic clocks do. The clock of reference is the coordinator's. One worker of each host answers for the host. A burst
of exchanges comes before the first message, some exchanges a second while the run lasts, and a burst after it
(:mod:`perftest.metrics.host_clock`). An exchange that waited behind other work took longer, so it has no influence.

Times are translated in two places. Moments and records of workers pass through :class:`Clocks`. Latencies between two
hosts are corrected by the worker that records them (:mod:`perftest.engine.accounting.crossing`), with the models that
come with each cut.

Where the network lets datagrams through, a timekeeper on the host answers in place of the worker
(:mod:`perftest.engine.coordination.time_questions`): this takes only the time of the network. A host whose timekeeper
does not answer is asked through its worker.

The host of the coordinator needs none of this, and a run on this host alone costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from perftest.engine.coordination.time_questions import TimeQuestions
from perftest.engine.host import THIS_HOST, Host
from perftest.engine.workers.remote_worker import WorkerError, WorkerHandle
from perftest.metrics.clock_model import ClockModel
from perftest.metrics.host_clock import BreakKind, ClockBreak, ClockExchange, HostClock
from perftest.metrics.interval import LOCAL_HOST

BURST: Final = 20
"""Number of exchanges with each host before and after the run."""
PERIOD_S: Final = 0.25
"""Time between exchanges with a host while the run lasts."""
MANY: Final = 2
"""Number of hosts above which each is asked less often, so that the coordinator's work stays the same. An exchange that
is a second older counts for 5 µs less (:data:`perftest.metrics.host_clock.WANDER`)."""
TRIES: Final = 4
"""Largest number of exchanges in a period. The next one comes at once if the last one had to wait somewhere."""
QUICK: Final = 1.5
"""Factor over the shortest round trip of the last minute up to which an exchange had to wait nowhere."""
ALIKE_NS: Final = 50_000
"""Difference from the shortest round trip that is not worth another exchange."""
EXCHANGE_S: Final = 5.0
"""Longest time of an exchange that is worth waiting for."""
START_S: Final = 60.0
"""Time that a timekeeper may take to start: its host starts other processes at the same moment."""
UNANSWERED_MAX: Final = 3
"""Number of questions in a row without an answer after which a timekeeper is not asked again."""
SECRET: Final = 32
"""Octets of the secret that the coordinator shares with a timekeeper."""
LAST_BURST_S: Final = 2.0
SPAN_NS: Final = 1_000_000_000
"""Time before a cut for which models are made."""

OnClock = Callable[[dict[str, Any]], None]
"""Receiver of each line of ``clocks.jsonl``."""


def ignore_clocks(_record: dict[str, Any]) -> None:
    """Nobody records the exchanges."""


class Tell(Protocol):
    """Writes an event of the run."""

    def __call__(self, kind: str, **more: object) -> None:
        """``kind`` as in ``events.jsonl``."""


class Clocks:
    """See the module. All times are of run clocks, in nanoseconds: the coordinator's (reference) and the hosts'.

    ``offset_ns`` is the constant of the run. ``on_record`` gets the exchanges and the models; ``tell`` writes an event
    when the clock of a host changed its rate or stepped. ``addresses`` are the addresses of hosts that may be asked
    over UDP.
    """

    def __init__(
        self,
        offset_ns: int,
        host: Host,
        on_record: OnClock,
        tell: Tell,
        addresses: Mapping[str, str] | None = None,
    ) -> None:
        self._addresses = addresses or {}
        self._questions: dict[str, TimeQuestions] = {}
        self._unanswered: Counter[str] = Counter()
        self._offset_ns = offset_ns
        self._host = host
        self._on_record = on_record
        self._tell = tell
        self._workers: dict[str, list[WorkerHandle]] = {}
        self._clocks: dict[str, HostClock] = {}
        self._models: dict[str, ClockModel] = {}
        self._modelled_ns = 0
        self._tasks: list[asyncio.Task[None]] = []

    # Exchanges

    def add(self, host: str, worker: WorkerHandle) -> None:
        """A worker that may answer for its host."""
        if host != LOCAL_HOST:
            self._workers.setdefault(host, []).append(worker)

    async def know(self) -> None:
        """Get to know the clocks of the hosts that are new, and keep up with them from now on. Raises
        :class:`~perftest.engine.workers.remote_worker.WorkerError`."""
        fresh = [host for host in self._workers if host not in self._clocks]
        if not fresh:
            return
        self._clocks |= {host: HostClock() for host in fresh}
        # A worker may take long to start; its own silence ends this wait.
        await asyncio.gather(*(self._answering(host).call("ping", deadline_s=None) for host in fresh))
        await asyncio.gather(*(self._find_timekeeper(host) for host in fresh))
        await asyncio.gather(*(self._burst(host, "before") for host in fresh))
        self._tasks += [asyncio.create_task(self._keep_up(host)) for host in fresh]

    async def finish(self) -> None:
        """A last burst with each host that still answers."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_BURST_S):
                bursts = (self._burst(host, "after") for host in self._clocks)
                for failure in await asyncio.gather(*bursts, return_exceptions=True):
                    if isinstance(failure, BaseException) and not isinstance(failure, WorkerError):
                        raise failure
        self.models()  # the last models, and the contradictions in the last exchanges
        for questions in self._questions.values():
            questions.close()
        self._questions.clear()

    async def _burst(self, host: str, phase: str) -> None:
        for _ in range(BURST):
            await self._exchange(host, phase)

    async def _keep_up(self, host: str) -> None:
        """Exchange until no worker of the host is left."""
        while any(worker.alive for worker in self._workers[host]):
            await asyncio.sleep(PERIOD_S * max(1.0, len(self._workers) / MANY))
            with contextlib.suppress(WorkerError):  # the caller that waits for the worker's real work reports it
                for _ in range(max(1, round(TRIES * min(1.0, MANY / len(self._workers))))):
                    exchange = await self._exchange(host, "during")
                    if exchange.round_trip_ns <= QUICK * self._clocks[host].round_trip_ns + ALIKE_NS:
                        break

    async def _exchange(self, host: str, phase: str) -> ClockExchange:
        exchange = await self._ask_timekeeper(host) or await self._ask_worker(host)
        times = (time_ns + self._offset_ns for time_ns in exchange)
        exchange = ClockExchange(*times)
        self._clocks[host].add(exchange)
        self._on_record({"t_ns": exchange.sent_ns, "host": host, "phase": phase, **exchange._asdict()})
        return exchange

    async def _ask_worker(self, host: str) -> ClockExchange:
        sent_ns = self._host.monotonic_ns()
        received_ns, left_ns = await self._answering(host).call("clock", deadline_s=EXCHANGE_S)
        return ClockExchange(sent_ns, received_ns, left_ns, self._host.monotonic_ns())

    async def _ask_timekeeper(self, host: str) -> ClockExchange | None:
        """None if there is none; one that stays silent is not asked again."""
        questions = self._questions.get(host)
        if questions is None:
            return None
        exchange = await questions.ask()
        self._unanswered[host] = 0 if exchange is not None else self._unanswered[host] + 1
        if self._unanswered[host] == UNANSWERED_MAX:
            self._questions.pop(host).close()
        return exchange

    async def _find_timekeeper(self, host: str) -> None:
        if host not in self._addresses or self._host is not THIS_HOST:
            return
        secret = secrets.token_bytes(SECRET)
        port = await self._answering(host).call("timekeeper", deadline_s=START_S, secret=secret.hex())
        with contextlib.suppress(OSError):  # an address that only the hosts know
            if port:
                self._questions[host] = TimeQuestions(self._addresses[host], port, secret)

    def _answering(self, host: str) -> WorkerHandle:
        workers = self._workers[host]
        return next((each for each in workers if each.alive), workers[0])

    def now_ns(self) -> int:
        """The time of the coordinator's run clock."""
        return self._host.monotonic_ns() + self._offset_ns

    # Times

    def models(self, until_ns: int = 0) -> dict[str, Any]:
        """The models of the clocks for the second before ``until_ns`` (0: now); plain values by host."""
        until_ns = until_ns or self.now_ns()
        if until_ns != self._modelled_ns:  # several loads are cut at one moment
            self._modelled_ns = until_ns
            for host, clock in self._clocks.items():
                if len(clock):
                    self._on_record({"t_ns": until_ns, "host": host, "model": self._model(host, until_ns).to_json()})
        return {host: model.to_json() for host, model in self._models.items()}

    def to_host(self, host: str, reference_ns: int) -> int:
        """A moment, as the workers of a host tell it. 0 means now, everywhere."""
        model = self._known(host) if reference_ns else None
        return reference_ns if model is None else model.to_host(reference_ns)

    def to_reference(self, host: str, host_ns: int) -> int:
        """A moment that a worker of a host told."""
        model = self._known(host)
        return host_ns if model is None else model.to_reference(host_ns)

    def _known(self, host: str) -> ClockModel | None:
        """The newest model; None for the coordinator's host, and for a host that never answered."""
        if host not in self._models and len(self._clocks.get(host, ())):
            return self._model(host, self.now_ns())
        return self._models.get(host)

    def _model(self, host: str, until_ns: int) -> ClockModel:
        clock = self._clocks[host]
        told = len(clock.breaks)
        rough = self._models.get(host) or clock.model(clock.last_ns, clock.last_ns)
        end_ns = rough.to_host(until_ns)
        model = self._models[host] = clock.model(end_ns - SPAN_NS, end_ns)
        for each in clock.breaks[told:]:
            self._tell("clock_changed", text=_in_words(host, each), host=host)
        return model


def _in_words(host: str, change: ClockBreak) -> str:
    if change.kind is BreakKind.STEP:
        return f"the clock of {host} stepped by {-change.change_ns / 1e6:+.3f} ms against the coordinator's"
    return f"the clock of {host} changed its rate: latencies to and from it have a greater bound for a while"
