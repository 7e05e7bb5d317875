"""The invariants: number, checker and statement, in one table for the code and for the documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Invariant:
    """``checker`` is the module that checks the invariant."""

    number: str
    statement: str
    checker: str


_TABLE: Final = (
    ("I1", "raft_checks", "a term has one leader, and a replica votes once in it"),
    ("I2", "raft_checks", "two logs that share an entry of one index and term are equal up to that entry"),
    ("I3", "raft_checks", "a new leader has every entry that was committed in an earlier term"),
    ("I4", "raft_checks", "at one index every member applies the same entry, once and in order"),
    ("I5", "raft_checks", "an entry that is committed, or claimed to a leader, is on the disks counted for it"),
    ("I6", "raft_checks", "term and vote are on disk before a message tells them, and never go back"),
    ("I7", "raft_checks", "commit index and applied index never go back while a process runs"),
    ("I8", "raft_checks", "at most one change of members is under way and not committed"),
    ("I9", "raft_checks", "an appended entry follows the last entry of the log, without a gap"),
    ("I10", "raft_checks", "a recovered log holds every entry that it had reported as written"),
    ("I11", "raft_checks", "a snapshot covers committed entries only"),
    ("I12", "raft_checks", "every entry from the snapshot to the end of the log can be read"),
    ("I13", "fifo_checks", "members have the same state at the same index"),
    ("I14", "fifo_checks", "messages that came = ready + unacked + messages that left, in each way"),
    ("I15", "raft_checks", "every entry with a ready, held or dead message can be read"),
    ("I16", "fifo_checks", "a message is in one place, and comes out of the queue it went into"),
    ("I17", "fifo_checks", "credit = prefetch - unacked, and never below 0"),
    (
        "I18",
        "fifo_checks",
        "a consumer with credit is in the service queue once; no message waits while there is credit",
    ),
    ("I19", "fifo_checks", "at most one single active consumer is active, and one is if any consumer is in service"),
    ("I20", "clients", "delivery tags of a channel and message ids of a consumer have no gaps"),
    ("I21", "ledger", "a consumer gets first deliveries in the order in which a channel published them"),
    ("I22", "ledger", "a publish is confirmed only once it is committed, and no confirmed message is lost"),
    ("I23", "ledger", "a message is enqueued once, and is delivered once without the redelivered flag"),
    ("I24", "ledger", "no message is delivered more often than its delivery limit allows"),
    ("I25", "fifo_checks", "a delivery is executed by its consumer's node, under the boot id of the subscription"),
    ("I26", "fifo_checks", "a member executes a delivery once"),
    ("I28", "fifo_checks", "a queue is within its limits, and refuses publishes only above four fifths of them"),
    ("I29", "ledger", "in a keyed queue, one message of a key is out at most, and the next follows when it has left"),
    ("I31", "traffic", "a publish is confirmed or refused once"),
    ("I32", "world", "in the end a mirror has what its master has"),
    ("L1", "world", "after the healing: leaders, answers, confirms, empty queues, equal members, policies in effect"),
    ("L2", "world", "after that the disks hold only the backlog and a constant"),
    ("X1", "node", "no node stops because of a defect of its own"),
    ("X2", "operator", "each request of an operator is answered once"),
    ("X3", "damage", "a damaged file is refused by its name, its members are forgetful, or its torn end is dropped"),
    ("X4", "raft_checks", "a queue loses a member only in the membership epoch in which it is to leave"),
    ("X5", "clients", "a channel hears the answers to its requests in their order"),
    ("X6", "watch", "only the leader of a queue sends its dead letters and holds their bodies in memory"),
    ("X7", "fifo_checks", "a dead letter of the strategy at-most-once is sent at most once"),
    (
        "X8",
        "fifo_checks",
        "a node that was away applies all that any node has applied, then makes first deliveries",
    ),
    (
        "X9",
        "classic_checks",
        "a persistent message of a classic queue is told to be stored once octets, record and name are on disk",
    ),
    ("X10", "ledger", "a start finds the confirmed messages of classic queues in order, and no transient message"),
    ("X11", "classic_checks", "in the end the classic store has files of living queues only, and counts them right"),
    ("X12", "fifo_checks", "returned messages of a queue are ready in their old order, before all others"),
)

INVARIANTS: Final = {number: Invariant(number, statement, checker) for number, checker, statement in _TABLE}


class ViolationError(BaseException):
    """An invariant does not hold. This is not an Exception, because no code of a node may handle it and go on."""

    def __init__(self, number: str, what: str) -> None:
        super().__init__(f"{number} violated: {INVARIANTS[number].statement}\n  {what}")
        self.number = number


def check(holds: bool, number: str, what: str) -> None:
    """Raise :class:`ViolationError` unless the invariant holds."""
    if not holds:
        raise ViolationError(number, what)
