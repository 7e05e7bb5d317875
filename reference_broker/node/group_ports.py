"""The machine that a member of a Raft group hosts, as :mod:`reference_broker.node.group` calls it.

:mod:`reference_broker.queues.quorum` and :mod:`reference_broker.node.metadata` are hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from reference_broker.node.non_members import NonMember
from reference_broker.types import Entry, NodeId, Term


class Host(Protocol):
    """What a group replicates: a machine, and the execution of its effects on this node."""

    version: int
    """Of the machine: entries that a newer one made are not for this one to apply."""

    def encode(self, commands: Sequence[Any]) -> list[bytes | memoryview]:
        """The commands as one batch, stamped with the leader's time."""

    def decode(self, sealed: bytes, end: int, sent_ns: int) -> list[tuple[Any, int]]:
        """The commands of a batch forwarded at ``sent_ns``, which ends at octet ``end``, each with its size in
        octets."""

    def apply(self, entry: Entry, end: int, skip: frozenset[int]) -> None:
        """Apply one entry, whose batch ends at octet ``end``, but for the commands at the positions ``skip``; effects
        gather until :meth:`run_effects`."""

    def run_effects(self, non_members: Collection[NonMember] = ()) -> None:
        """Carry out the effects of all entries applied since the last call, also for the clients of ``non_members``."""

    def catch_up(self, channels: NonMember, asked: Sequence[Any]) -> None:
        """Tell a non-member's clients what they may have missed: what is committed, the answers to their applied
        commands ``asked``, and what their consumers hold."""

    def pace(self) -> int | None:
        """How many messages an entry should hold at most, lest the settles of a consumer with a backlog wait
        behind publishes; None if there is no such consumer."""

    def has_clients_on(self, node: NodeId) -> bool:
        """Whether somebody on that node waits for what is committed."""

    def became_leader(self, term: Term) -> None:
        """This member leads now, in that term. What was committed in earlier ones may still be to apply."""

    def again(self, command: Any) -> Any:
        """What is to be proposed under another leader in the place of a command that this node has proposed."""

    def doubt(self) -> None:
        """This node may have been given up by the others for a while: what was dealt to its clients may be somebody
        else's, and the entries that say so may be still to come."""

    def when_sure(self, call: Callable[[], None]) -> None:
        """Call once what was dealt to clients can be told again."""

    def stop(self) -> None:
        """The member is gone from this node."""

    def lost_leadership(self) -> None:
        """This member no longer leads."""

    def snapshot(self) -> bytes:
        """The machine's state."""

    def restore(self, state: bytes) -> None:
        """At the start: take over this member's own snapshot, which may be older than what else is on its disk."""

    def install(self, state: bytes, skipped: Sequence[Any]) -> None:
        """Replace the state by a newer one of another member's, jumping over entries that were never applied here.

        What their effects would have told this node's clients must be told now; ``skipped`` are this node's own
        commands among them.
        """

    def live_entries(self) -> Sequence[tuple[int, int]]:
        """Ranges of entries whose payload the state still refers to."""

    def lowest_live_entry(self) -> int | None:
        """The lowest of them, cheaply; None if there are none."""
