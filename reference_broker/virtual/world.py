"""Virtual time, and machines with cores on which processes compete.

Theory of operation
-------------------
A :class:`VirtualWorld` holds everything that will happen, by virtual time in nanoseconds. What happens is done by an
*actor*: the event loop of a process, or one of its threads. An actor has a local time, which runs ahead of the world's
while the actor works: each thing that it does costs CPU time (:meth:`Process.run`), and what it sends or schedules
happens at the local time. Nothing reaches an actor in between, as nothing reaches an event loop in the middle of a
callback.

A process works on one core at a time, because one lock lets one Python thread run. Its machine has a number of cores;
whoever finds none free begins when the next one is. So queues form before a busy process and a busy machine, and the
throughput has an end.

No clock of the real world is read, so one seed gives one run, octet by octet.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop
from random import Random
from sys import maxsize
from typing import Any, Protocol

from reference_broker.virtual.costs import HICCUP_EVERY_NS, Costs
from reference_broker.worlds.agenda import Agenda


class Actor(Protocol):
    """Who is at work. ``at_ns`` is the actor's local time."""

    at_ns: int

    def spend(self, cost_ns: int) -> None:
        """Work for so long."""

    def wait_until(self, when_ns: int) -> None:
        """Be blocked, without a core, until a time."""


class VirtualWorld(Agenda[int]):
    """Virtual time in nanoseconds, and whoever is at work."""

    def __init__(self, seed: int) -> None:
        super().__init__(Random(seed), 0)
        self.actor: Actor | None = None
        self._held: dict[object, list[tuple[Callable[..., object], tuple[Any, ...]]] | None] = {}

    def clock(self) -> int:
        """The local time of whoever is at work."""
        return self.actor.at_ns if self.actor is not None else self.now

    def step(self) -> None:
        """Let the next thing happen, if its actor may act. Raises IndexError if nothing ever will."""
        self.now, _, call, arguments = heappop(self._heap)
        if not (self._held and self._keeps(call, arguments)):
            call(*arguments)

    # Actors that are paused, and actors that have ended

    def hold(self, actor: object) -> None:
        """Have an actor do nothing: its calls that come due wait until :meth:`release`."""
        self._held.setdefault(actor, [])

    def release(self, actor: object) -> None:
        """Have an actor go on, with all calls that came due meanwhile, in their order."""
        for call, arguments in self._held.pop(actor, None) or ():
            self.at(self.clock(), call, *arguments)

    def end(self, actor: object) -> None:
        """Have an actor do nothing any more, whether it was paused or not."""
        self._held[actor] = None

    def _keeps(self, call: Callable[..., object], arguments: tuple[Any, ...]) -> bool:
        """Whether a call is that of a paused actor, and waits, or that of an actor that has ended, and is dropped."""
        actor = getattr(call, "__self__", None)
        if actor not in self._held:
            return False
        if (waiting := self._held[actor]) is not None:
            waiting.append((call, arguments))
        return True


class Machine:
    """A computer: its name in the network, and when each of its cores is free."""

    def __init__(self, name: str, cores: int) -> None:
        self.name = name
        self.free_ns = [0] * cores

    def core(self) -> int:
        """The core that is free first."""
        return self.free_ns.index(min(self.free_ns))


class Process:
    """A process of a machine, which works on one core at a time."""

    def __init__(self, machine: Machine, costs: Costs) -> None:
        self.machine = machine
        self.costs = costs
        self.busy_until_ns = 0
        self.cpu_ns = 0
        self.waited_ns = 0
        """The time for which the process could have worked, and no core was free."""
        self.hiccup_ns = 0 if costs.hiccup_ns else maxsize
        """When the next hiccup begins."""
        self._hiccup_length_ns = 0

    def delay_ns(self, *, asleep: bool) -> int:
        """What passes before a turn that is due, besides the wait for a core."""
        return self.costs.wake_ns if asleep else 0

    def stretched(self, begin_ns: int, cost_ns: int, chance: Random) -> int:
        """When work that begins at a time is over, with the hiccups that fall into it."""
        end_ns = begin_ns + cost_ns
        while self.hiccup_ns <= end_ns:
            hiccup_end_ns = self.hiccup_ns + self._hiccup_length_ns
            end_ns += max(0, hiccup_end_ns - max(begin_ns, self.hiccup_ns))
            self.hiccup_ns = hiccup_end_ns + round(chance.expovariate(1 / HICCUP_EVERY_NS))
            self._hiccup_length_ns = round(chance.expovariate(1 / self.costs.hiccup_ns))
        return end_ns

    def start_ns(self, wanted_ns: int) -> int:
        """When the process can work at the earliest."""
        machine = self.machine
        ready_ns = max(wanted_ns, self.busy_until_ns)
        return max(ready_ns, machine.free_ns[machine.core()])

    def run(self, wanted_ns: int, cost_ns: int, chance: Random) -> int:
        """Work for so long, at ``wanted_ns`` or as soon as process and machine are free. Returns the end."""
        machine = self.machine
        core = machine.core()
        ready_ns = max(wanted_ns, self.busy_until_ns)
        begin_ns = max(ready_ns, machine.free_ns[core])
        self.waited_ns += begin_ns - ready_ns
        end_ns = self.stretched(begin_ns, cost_ns, chance)
        machine.free_ns[core] = self.busy_until_ns = end_ns
        self.cpu_ns += cost_ns
        return end_ns
