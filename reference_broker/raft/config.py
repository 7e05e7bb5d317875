"""The settings of a Raft group, each with the reason for its default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Jitter = Callable[[int, int], int]
"""Function that draws a number: ``jitter(low, high)``, both ends included. Chance comes from outside, so that a seed
replays a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Settings of one group. All times are in ticks; only the shell knows the length of a tick.

    election_ticks_min, election_ticks_max
        A member without a leader waits this long before it asks for votes: 200..600 ms with ticks of 50 ms, which is
        Ra's short timer. That is long enough for a round of votes with two syncs, and wide enough that three members
        rarely collide.
    resend_ticks
        How long the leader waits for an answer before it probes: one second with ticks of 50 ms. Links are TCP, so
        silence means a slow disk far more often than a lost message, and the shell reports broken links itself.
    max_pipeline_entries
        Entries sent to a follower and not yet on its disk. An entry is a batch of commands, so 64 of them cover a sync
        of 10 ms at any rate that the disks can bear.
    max_entries_per_append
        Entries in one message. The bound makes a follower that catches up answer, and yield to other groups, now and
        then.
    """

    election_ticks_min: int = 4
    election_ticks_max: int = 12
    resend_ticks: int = 20
    max_pipeline_entries: int = 64
    max_entries_per_append: int = 16

    def validate(self) -> list[str]:
        """All problems at once, each naming key, value, rule and remedy; empty when the settings are sound."""
        problems = [
            f"raft.{key}: {value} is not allowed, it must be 1 or more; raise it"
            for key, value in (
                ("election_ticks_min", self.election_ticks_min),
                ("resend_ticks", self.resend_ticks),
                ("max_pipeline_entries", self.max_pipeline_entries),
                ("max_entries_per_append", self.max_entries_per_append),
            )
            if value < 1
        ]
        if self.election_ticks_max <= self.election_ticks_min:
            problems.append(
                f"raft.election_ticks_max: {self.election_ticks_max} must be above raft.election_ticks_min"
                f" ({self.election_ticks_min}), or members that start together collide in every election; raise it"
            )
        return problems
