"""The engine's contract with its caller: where records go, how a run is stopped, and the outcome.

Nothing here imports numpy or asyncio loops' machinery at import time, so a command line may import it to build its
sinks before anything heavy is loaded. The entry point itself is
:func:`perftest.engine.coordination.coordinator.execute`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from perftest.metrics.interval import Interval


class Sink(Protocol):
    """Receives all records of a run, in the command's process, in the order of time.

    The engine calls the sink from its event loop, so a method must not block for long. An exception that leaves a
    method ends the run as failed; the sink keeps the records that it has got before.
    """

    def interval(self, record: Interval) -> None:
        """One interval of one worker; never spans two steps or two phases."""

    def event(self, record: dict[str, object]) -> None:
        """A line of ``events.jsonl``: ``t_ns`` (Unix time) and ``kind`` at least."""

    def ledger(self, record: dict[str, object]) -> None:
        """The content of ``ledger.json``. It comes once, before the run ends, also when the run was interrupted or
        failed after the first message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunError:
    """Why a run failed, for people: what happened, where, and what to do."""

    what: str
    where: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProperties:
    """The properties of the broker in ``connection.start``; empty where the broker sent none."""

    product: str = ""
    version: str = ""
    platform: str = ""
    cluster_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How a run ended. ``broker`` is empty if no connection was ever opened. A failed run has an ``error``; ``cause``
    is the exception of the sink, if the sink was the reason."""

    state: Literal["finished", "interrupted", "failed"]
    error: RunError | None = None
    cause: Exception | None = None
    broker: BrokerProperties = field(default_factory=BrokerProperties)


class StopRequest:
    """The user's wish to stop. May be called from a signal handler of the running event loop.

    ``finish_step()`` ends the current step now but in good order: its last interval is cut, consumers drain, and the
    ledger is closed. No further step starts. ``abort()`` ends the run at once, without a drain. Both keep all records,
    and the state of the run becomes ``interrupted``.
    """

    def __init__(self) -> None:
        self.finishing = False
        self.aborting = False
        self._listeners: list[Callable[[], None]] = []

    def finish_step(self) -> None:
        """Ask for an orderly end of the current step. A second call changes nothing."""
        self.finishing = True
        self._notify()

    def abort(self) -> None:
        """Ask for an end at once."""
        self.finishing = True
        self.aborting = True
        self._notify()

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each request; at once if one was made already."""
        self._listeners.append(listener)
        if self.finishing:
            listener()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()
