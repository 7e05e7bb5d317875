"""What everything in a world shares: chance, virtual time, the network, the queues, and the checkers that look on.

Nodes, clients, nemesis and operator take these two objects and nothing else of the world, so each can be read alone.
"""

from __future__ import annotations

from random import Random

from reference_broker.sim.checks.classic_checks import ClassicChecks
from reference_broker.sim.checks.fifo_checks import AbsenceChecks, DeadLetterChecks, DeliveryChecks
from reference_broker.sim.checks.ledger import MessageLedger
from reference_broker.sim.checks.mirror_checks import MirrorChecks
from reference_broker.sim.checks.raft_checks import MemberChecks, RaftChecks
from reference_broker.sim.classic_queues import plan_classic_queues
from reference_broker.sim.loop import Scheduler
from reference_broker.sim.network import Network
from reference_broker.sim.queues import plan_queues
from reference_broker.sim.recorder import RecordedStory, WorldRecorder
from reference_broker.sim.story import Story
from reference_broker.sim.trace import Detail, Trace


class Environment:
    """Chance and what depends on it. One seed makes one environment."""

    def __init__(self, seed: int, kept: int | None, recorder: WorldRecorder | None = None) -> None:
        """``kept``: how many lines of the trace are kept, None for all of them. ``recorder`` takes down what happens,
        if there is one."""
        self.recorder = recorder
        self.chance = Random(seed)
        self.trace = Trace(kept)
        self.scheduler = Scheduler(self.chance, self.trace)
        self.network = Network(self.scheduler)
        if recorder is not None:
            self.network.told = recorder.direction
        self.queues = plan_queues(self.chance)
        self.queues += plan_classic_queues(self.chance, self.queues)
        """The queues that clients use; clients may add to the list."""
        self.draining = False
        """The time of trouble is over: clients only finish what they began."""

    def note(self, who: str, what: str, detail: Detail = "") -> None:
        """Note an event of the host ``who`` in the trace."""
        self.trace.note(self.scheduler.now, who, what, detail)
        if self.recorder is not None:
            self.recorder.noted(who, what, detail)


class Checkers:
    """Everything that looks on while a world runs: the checkers of invariants, the clients' ledger, the story."""

    def __init__(self, scheduler: Scheduler, recorder: WorldRecorder | None = None) -> None:
        self.raft = RaftChecks()
        self.members = MemberChecks()
        self.deliveries = DeliveryChecks()
        self.dead_letters = DeadLetterChecks()
        self.absences = AbsenceChecks()
        self.masters = AbsenceChecks()
        """What masters of mirrored queues know of the metadata."""
        self.ledger = MessageLedger()
        self.classic = ClassicChecks(self.ledger)
        self.mirrors = MirrorChecks(self.ledger.copies_lost)
        self.story = Story(scheduler) if recorder is None else RecordedStory(scheduler, recorder)
