"""What must always be true: number, statement and checker, in the one table that the code and the documents share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Invariant:
    """``checker`` names the module that watches over it."""

    number: str
    statement: str
    checker: str


INVARIANTS = {
    each.number: each
    for each in (
        Invariant("I1", "a term has one leader, and a replica gives one vote in it", "raft_checks"),
        Invariant("I2", "two logs with an entry of one index and term are equal up to there", "raft_checks"),
        Invariant("I3", "a new leader has every entry that was committed in an earlier term", "raft_checks"),
        Invariant("I4", "at one index every member applies the same entry, once and in order", "raft_checks"),
        Invariant("I5", "what is committed or claimed to a leader is on the disks it is counted for", "raft_checks"),
        Invariant("I6", "term and vote are on disk before a message says so, and never go back", "raft_checks"),
        Invariant("I7", "commit index and applied index never go back in one life", "raft_checks"),
        Invariant("I8", "at most one change of members is under way and not committed", "raft_checks"),
        Invariant("I9", "what is appended follows what is there, without a gap", "raft_checks"),
        Invariant("I10", "a recovered log holds everything that was noticed as written", "raft_checks"),
        Invariant("I11", "a snapshot covers committed entries only, so nothing else goes with it", "raft_checks"),
        Invariant("I12", "every entry from the snapshot to the end of the log can be read", "raft_checks"),
        Invariant("I13", "members at the same index have the same state", "fifo_checks"),
        Invariant("I14", "messages that came = ready + unacked + gone by each way", "fifo_checks"),
        Invariant("I15", "every entry that a ready, held or dead message lies in can be read", "raft_checks"),
        Invariant("I16", "a message is in one place, and comes out of the queue it went into", "fifo_checks"),
        Invariant("I17", "credit = prefetch - unacked, and never below 0", "fifo_checks"),
        Invariant(
            "I18",
            "who is up and has credit stands in the service queue once; no message waits for nobody",
            "fifo_checks",
        ),
        Invariant(
            "I19", "of a single active consumer there is one at most, and one if any is in service", "fifo_checks"
        ),
        Invariant("I20", "delivery tags of a channel and message ids of a consumer have no gaps", "clients"),
        Invariant("I21", "a consumer gets first deliveries in the order in which a channel published them", "ledger"),
        Invariant(
            "I22",
            "nothing is confirmed before it is committed, and nothing confirmed is lost: it was settled",
            "ledger",
        ),
        Invariant("I23", "a message is enqueued once: it is delivered once without the redelivered flag", "ledger"),
        Invariant("I24", "no message is delivered more often than its delivery limit allows", "ledger"),
        Invariant(
            "I25",
            "a delivery is executed by the node of its consumer, in the life in which it subscribed",
            "fifo_checks",
        ),
        Invariant("I26", "a member executes a delivery once", "fifo_checks"),
        Invariant(
            "I28",
            "a queue is within its limits, and refuses publishes only while it is above four fifths of them",
            "fifo_checks",
        ),
        Invariant("I31", "a confirm or refusal is sent once, for what was published and has no answer yet", "clients"),
        Invariant(
            "L1",
            "after the healing: leaders are found, all is answered and confirmed, queues drain, members agree, "
            "policies hold",
            "world",
        ),
        Invariant("L2", "after that the disks hold the backlog and a constant", "world"),
        Invariant("X1", "no node stops by a defect of its own: no contradiction, no exception", "node"),
        Invariant("X2", "a request of an operator is answered once", "operator"),
        Invariant("X3", "a damaged file is refused by its name, or its torn end dropped", "damage"),
        Invariant("X4", "a queue loses a member only in the membership epoch in which it is to leave", "raft_checks"),
        Invariant("X5", "a channel hears the answers to its questions, in their order", "clients"),
        Invariant("X6", "only who leads a queue has its dead letters on their way, and their bodies in memory", "node"),
        Invariant("X7", "a dead letter that is sent at most once is sent once at most", "fifo_checks"),
        Invariant(
            "X8",
            "a node that stood still, or has another leader or a new link to it, delivers nothing as if for the first "
            "time before it has applied what anybody had applied by then",
            "fifo_checks",
        ),
    )
}


class ViolationError(BaseException):
    """An invariant does not hold. Not an Exception: no code of a node may take it for a defect and go on."""

    def __init__(self, number: str, what: str) -> None:
        super().__init__(f"{number} violated: {INVARIANTS[number].statement}\n  {what}")
        self.number = number


def check(holds: bool, number: str, what: str) -> None:
    """Raise :class:`ViolationError` unless the invariant holds."""
    if not holds:
        raise ViolationError(number, what)
