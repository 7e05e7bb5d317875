"""Majorities: which index is committed, and who won a vote. Pure functions that can draw themselves.

A majority of n members is n // 2 + 1, so any two majorities share a member. That member carries the decision of the
first majority into the second (section 5.2, 5.4). Only indexes known to be on a member's *disk* may be passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from reference_broker.types import LogIndex, NodeId

PAIR: Final = 2
"""Majority of two members, and of three: a leader and one follower."""


class VoteResult(StrEnum):
    """The state of a vote. LOST means that the missing answers could no longer change it."""

    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def majority(members: int) -> int:
    """Number of members that decide."""
    return members // 2 + 1


def committed_index(synced: Iterable[LogIndex]) -> LogIndex:
    """The highest index that a majority has on disk; ``synced`` has one entry a member, 0 for "nothing known"."""
    ascending = sorted(synced)
    return ascending[(len(ascending) - 1) // 2]


def vote_result(members: Sequence[NodeId], votes: Mapping[NodeId, bool]) -> VoteResult:
    """Count ``votes`` (True: granted) of ``members``; a member missing from ``votes`` has not answered."""
    needed = majority(len(members))
    granted = sum(votes.get(member) is True for member in members)
    refused = sum(votes.get(member) is False for member in members)
    if granted >= needed:
        return VoteResult.WON
    return VoteResult.LOST if len(members) - refused < needed else VoteResult.PENDING


def describe(synced: Mapping[NodeId, LogIndex]) -> str:
    """Draw the end of each member's disk, one line a member, and the committed index.

    The bar grows with the member's place in the ascending order of indexes; ``>`` marks the committed index.
    """
    place = {node: at for at, node in enumerate(sorted(synced, key=lambda node: (synced[node], node)))}
    committed = committed_index(synced.values())
    lines = []
    for node in sorted(synced):
        mark = ">" if synced[node] >= committed else " "
        lines.append(f"{'=' * place[node] + mark:<{len(synced)}} {synced[node]:>6}  node {node}")
    return "\n".join([*lines, f"commits {committed}"])
