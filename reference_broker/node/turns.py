"""The turns of a node: which runners have work, and the order and time of the work.

All inputs of one turn of the event loop (sockets, notices of the log, timers) are taken first. Then every runner that
has something to do gets one :meth:`Runner.turn`, and every connection that has something to say is flushed. So one turn
makes at most one entry per queue and one write per socket. At last the log writes the runners' entries: the frames to
the peers are under way by then. If the loop's thread itself writes the log, the runners that get its notices have their
turns at once, before the sockets are read again: a follower answers in the same turn in which it read.

A process may be suspended: it is stopped, or its host is busy. Then other nodes may have given its node up. So the
clock is read in each turn and each tick, and once more by each part that is about to rely on an up-to-date node
(:meth:`Turns.check_suspension`), such as a connection right before it writes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Set
from typing import Final, Protocol

from reference_broker.anatomy.anatomy import Anatomy
from reference_broker.node.ports import Runner
from reference_broker.storage.errors import StorageError
from reference_broker.types import NodeId

log = logging.getLogger(__name__)

_SLOT_S: Final = 0.01
_FORGET_EVERY: Final = 64
_PASSES_MAX: Final = 4
"""The most turns of runners between two reads of the sockets."""
_PASSES_NS: Final = 4_000_000
"""Time after which the sockets are read before runners have another turn."""


def wall_ms() -> int:
    """The wall clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Links(Protocol):
    """The links to the peers, whose frames of one turn go together."""

    @property
    def congested(self) -> Set[NodeId]:
        """The peers that should not be sent much now."""

    holds: bool
    """Whether frames gather until :meth:`flush`."""

    @property
    def gathered(self) -> Collection[object]:
        """The peers with frames for :meth:`flush`."""

    def flush(self) -> None:
        """Write the gathered octets."""


class FlushedConnection(Protocol):
    """A client's connection."""

    def flush(self) -> None:
        """Write the gathered octets."""


class Turns:
    """The turns of one node. ``links`` and ``write_log`` are set before the first turn."""

    links: Links
    write_log: Callable[[], None]
    """Has the log write what waits; notices may come during the call."""

    def __init__(
        self,
        anatomy: Anatomy,
        now_ns: Callable[[], int],
        patience_ms: int,
        *,
        failed: Callable[[str], None],
        on_suspension: Callable[[], None],
        forget_bodies: Callable[[list[Runner]], None],
    ) -> None:
        """``patience_ms`` is the silence after which other nodes give a node up. ``failed`` stops the node,
        ``on_suspension`` is called after a suspension, ``forget_bodies`` now and then after a turn with the runners
        that it had."""
        self._loop = asyncio.get_running_loop()
        self._anatomy = anatomy
        self._now_ns = now_ns
        self._suspension_ns = patience_ms * 500_000  # half of the patience: the last word of this node is older
        self._failed = failed
        self._on_suspension = on_suspension
        self._forget_bodies = forget_bodies
        self._awake_ns = now_ns()
        self._ticked_cpu_ns = time.thread_time_ns()
        """CPU time of the event loop's thread at the last tick."""
        self._slots: dict[int, list[Callable[[], None]]] = {}
        self._dirty: list[Runner] = []
        self._late: list[Runner] = []
        """The runners that have time until the log has written."""
        self.stirred: dict[Runner, None] = {}
        """The runners that had a turn since the last tick, in that order: no other one can have begun to wait."""
        self._waiting_to_send: dict[NodeId, dict[Runner, None]] = {}
        """The runners that have more to send to a peer than its link takes now, in the order of arrival."""
        self._touched: dict[FlushedConnection, None] = {}  # a set, in the order of arrival
        self._is_scheduled = False
        self._has_to_write = False
        self._has_failed = False
        self.count = 0
        """Which turn this is."""

    # Who gets a turn

    def wake(self, runner: Runner) -> None:
        """Give the runner its turn at the end of this turn of the event loop."""
        if not runner.scheduled:
            runner.scheduled = True
            self._dirty.append(runner)
            if not self._is_scheduled:
                self._schedule()

    def wake_late(self, runner: Runner) -> None:
        """Give the runner its turn at the end of this turn of the event loop, after the log's write: others wait for
        the write, and nobody waits for the runner."""
        if not runner.scheduled:
            runner.scheduled = True
            self._late.append(runner)
            self._schedule()

    def touch(self, connection: FlushedConnection) -> None:
        """Have the connection flushed at the end of this turn."""
        self._touched[connection] = None
        if not self._is_scheduled:
            self._schedule()

    def write_soon(self) -> None:
        """Something waits to be written: the log writes at the end of this turn."""
        self._has_to_write = True
        if not self._is_scheduled:
            self._schedule()

    def when_writable(self, node: NodeId, runner: Runner) -> None:
        """Give the runner a turn when the link to a peer takes octets again; never, if the link breaks."""
        self._waiting_to_send.setdefault(node, {})[runner] = None

    def link_writable(self, node: NodeId) -> None:
        """The link to a peer takes octets again."""
        if node in self._waiting_to_send:
            self._schedule()

    def link_broken(self, node: NodeId) -> None:
        """Nobody waits for the link to this peer any more."""
        self._waiting_to_send.pop(node, None)

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call after about ``delay_s``, in one turn with all calls that are due at about the same time."""
        self._call_in(int((self._loop.time() + delay_s) / _SLOT_S) + 1, call)

    def in_step(self, period_s: float, call: Callable[[], None]) -> None:
        """Call at the next moment, at least half a period away, of those that are ``period_s`` apart: all work of a
        node with the same period comes together."""
        slots = max(1, round(period_s / _SLOT_S))
        self._call_in((int((self._loop.time() + period_s / 2) / (_SLOT_S * slots)) + 1) * slots, call)

    def _call_in(self, slot: int, call: Callable[[], None]) -> None:
        if (calls := self._slots.get(slot)) is not None:
            calls.append(call)
            return
        self._slots[slot] = [call]
        self._loop.call_at(slot * _SLOT_S, self.guarded, self._run_slot, slot)

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call after exactly ``delay_s``."""
        self._loop.call_later(delay_s, self.guarded, call)

    def guarded(self, call: Callable[..., object], *arguments: object) -> None:
        """Call. A defect, or a safety violation, must not leave a node that looks alive and confirms nothing: it stops
        the node. So does a store that cannot be used. After that nothing more is called: the call that failed may have
        left a change half made."""
        if self._has_failed:
            return
        try:
            call(*arguments)
        except StorageError as error:
            self._has_failed = True
            self._failed(str(error))
        except Exception as error:
            self._has_failed = True
            log.exception("defect")
            self._failed(f"defect: {error!r}")

    def together(self, call: Callable[[], None]) -> None:
        """Call, outside of turns. The frames for a peer that the call gives rise to are one write."""
        links = self.links
        links.holds = True
        self.guarded(call)
        links.holds = False
        if links.gathered:
            links.flush()

    def check_suspension(self) -> int:
        """Look at the clock, and act if the last turn or tick is long enough ago for others to suspect this node.
        Returns the time (ns)."""
        now_ns = self._now_ns()
        if now_ns - self._awake_ns >= self._suspension_ns:
            self._tell_absence((now_ns - self._awake_ns) / 1e9)
            self._awake_ns = now_ns
            self.guarded(self._on_suspension)
        return now_ns

    def _tell_absence(self, seconds: float) -> None:
        """Log how long this node was silent, and whether its process stood still."""
        busy_s = (time.thread_time_ns() - self._ticked_cpu_ns) / 1e9
        if busy_s > seconds / 2:
            log.warning("this node was busy with one thing for %.1f s, and heard nobody", seconds)
        else:
            log.warning("this node was suspended for %.1f s", seconds)

    def tick(self) -> None:
        """Note that the node is awake, also when it has nothing to do."""
        self._awake_ns = self.check_suspension()
        self._ticked_cpu_ns = time.thread_time_ns()

    def is_awake(self) -> None:
        """The time until now does not count: the node was not at work yet."""
        self._awake_ns = self._now_ns()

    def _run_slot(self, slot: int) -> None:
        for call in self._slots.pop(slot):
            call()

    # One turn

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self.guarded, self._turn)

    def _turn(self) -> None:
        """Passes over all runners that have work, until none has work or the sockets should be read."""
        links = self.links
        links.holds = True
        began_ns = self._now_ns()
        try:
            for _ in range(_PASSES_MAX):
                now_ns = self._now_ns()
                if now_ns - self._awake_ns >= self._suspension_ns:
                    now_ns = self.check_suspension()
                self._awake_ns = now_ns
                if now_ns - began_ns > _PASSES_NS:
                    break
                if self._dirty or self._touched or self._waiting_to_send:
                    self._pass()
                if self._has_to_write:
                    self._has_to_write = False
                    self.write_log()
                    if links.gathered:
                        links.flush()
                if self._late:
                    self._dirty += self._late
                    self._late.clear()
                if not (self._dirty or self._touched or self._has_to_write):
                    break
        finally:
            links.holds = False
            self._is_scheduled = False
        if links.gathered:
            links.flush()
        if self._dirty or self._touched or self._has_to_write or self._late:
            self._schedule()

    def _pass(self) -> None:
        dirty, self._dirty = self._dirty, []
        links, anatomy = self.links, self._anatomy
        for runner in dirty:
            runner.turn()
        self.stirred.update(dict.fromkeys(dirty))
        if links.gathered:
            links.flush()
        if self._waiting_to_send:
            self._let_one_send()
        touched, self._touched = self._touched, {}
        for connection in touched:
            connection.flush()
            if anatomy.waiting:
                anatomy.written(connection, self._now_ns())
        if links.gathered:
            links.flush()
        self.count += 1
        if self.count % _FORGET_EVERY == 0:
            self._forget_bodies(dirty)

    def _let_one_send(self) -> None:
        """One of the runners that wait for a link has the next turn, if the link takes octets: all at once would be too
        many. After that turn comes the next runner, until the link is congested again."""
        for node in [node for node in self._waiting_to_send if node not in self.links.congested]:
            waiting = self._waiting_to_send[node]
            runner = next(iter(waiting))
            del waiting[runner]
            if not waiting:
                del self._waiting_to_send[node]
            self.wake(runner)
