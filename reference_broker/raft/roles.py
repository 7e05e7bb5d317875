"""The roles of a member and the events that change them, as the table that the core executes (Figure 4).

:data:`NEXT_ROLE` says for each role which events may happen in it and which role follows. ``RaftCore._enter`` is the
only place where the role changes, and it looks the next role up here. An event that the table does not list for a role
is a defect of the core. The page ``docs/internals/raft.md`` shows this table, and a test compares the two.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """The role of a member (Figure 4, with the pre-candidate of thesis 9.6)."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre_vote"
    CANDIDATE = "candidate"
    LEADER = "leader"


class RoleEvent(StrEnum):
    """The events that change the role of a member. The value is the sentence that the documentation shows."""

    TIMEOUT = "its election timer ran out, or `campaign()` was called"
    TIMEOUT_OF_THE_ONLY_VOTER = "its election timer ran out, or `campaign()` was called, and it is the only voter"
    TIMEOUT_NOW = "its leader sent TimeoutNow"
    ELECTED_BY_THE_FOUNDING = "the decision that created the group elected it (`founded`)"
    PRE_VOTES_GRANTED = "a majority would vote for it; only now the term rises"
    VOTES_GRANTED = "a majority voted for it"
    VOTES_REFUSED = "a majority can no longer be reached, because too many voters refused"
    HIGHER_TERM = "a message named a higher term"
    LEADER_SPOKE = "the leader of its term or of a later term spoke"
    LEADER_ASKED_FOR_VOTES = "its leader asked for a pre-vote, so that node leads no more"
    VOTE_GIVEN = "it voted for another candidate"
    LOG_REPLACED = "a snapshot replaced its log, so its requests for votes no longer hold"
    UNFIT = "it was about to stand, but may have forgotten entries, or its machine is older than that of the log"
    REMOVED = "its own removal is committed"
    MAJORITY_LOST = "it reached no majority for an election time"


NEXT_ROLE: Final[dict[Role, dict[RoleEvent, Role]]] = {
    Role.FOLLOWER: {
        RoleEvent.TIMEOUT: Role.PRE_CANDIDATE,
        RoleEvent.TIMEOUT_OF_THE_ONLY_VOTER: Role.CANDIDATE,
        RoleEvent.TIMEOUT_NOW: Role.CANDIDATE,
        RoleEvent.ELECTED_BY_THE_FOUNDING: Role.LEADER,
        RoleEvent.HIGHER_TERM: Role.FOLLOWER,
        RoleEvent.LEADER_SPOKE: Role.FOLLOWER,
        RoleEvent.LEADER_ASKED_FOR_VOTES: Role.FOLLOWER,
        RoleEvent.UNFIT: Role.FOLLOWER,
    },
    Role.PRE_CANDIDATE: {
        RoleEvent.TIMEOUT: Role.PRE_CANDIDATE,
        RoleEvent.PRE_VOTES_GRANTED: Role.CANDIDATE,
        RoleEvent.VOTES_REFUSED: Role.FOLLOWER,
        RoleEvent.HIGHER_TERM: Role.FOLLOWER,
        RoleEvent.LEADER_SPOKE: Role.FOLLOWER,
        RoleEvent.VOTE_GIVEN: Role.FOLLOWER,
        RoleEvent.LOG_REPLACED: Role.FOLLOWER,
        RoleEvent.UNFIT: Role.FOLLOWER,
    },
    Role.CANDIDATE: {
        RoleEvent.TIMEOUT: Role.PRE_CANDIDATE,
        RoleEvent.VOTES_GRANTED: Role.LEADER,
        RoleEvent.VOTES_REFUSED: Role.FOLLOWER,
        RoleEvent.HIGHER_TERM: Role.FOLLOWER,
        RoleEvent.LEADER_SPOKE: Role.FOLLOWER,
        RoleEvent.LOG_REPLACED: Role.FOLLOWER,
    },
    Role.LEADER: {
        RoleEvent.HIGHER_TERM: Role.FOLLOWER,
        RoleEvent.LEADER_SPOKE: Role.FOLLOWER,
        RoleEvent.REMOVED: Role.FOLLOWER,
        RoleEvent.MAJORITY_LOST: Role.FOLLOWER,
    },
}
"""Next role, by the present role and the event. After each change to follower, candidate or pre-candidate the leader is
unknown, unless the event is that the leader spoke."""
