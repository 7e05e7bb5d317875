"""The table of roles, held against the core and against the page that shows it. REWRITE=1 records both anew.

Every state of a member meets every message, with a term below, equal to and above its own, and every other input.
``data/roles.table`` records what each comes to, and no row of the table may be left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

from reference_broker.raft.config import RaftConfig
from reference_broker.raft.configuration import Configuration, noop_payload
from reference_broker.raft.core import RaftCore
from reference_broker.raft.errors import SafetyViolationError
from reference_broker.raft.log_view import LogView
from reference_broker.raft.messages import (
    AppendEntries,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallReply,
    InstallSnapshot,
    Message,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from reference_broker.raft.ready import HardState
from reference_broker.raft.roles import NEXT_ROLE, Role, RoleEvent
from reference_broker.types import NOBODY, Entry, EntryKind, LogIndex, NodeId, Term

ME, PEER, OTHER = NodeId(1), NodeId(2), NodeId(3)
THREE = (ME, PEER, OTHER)
ZERO, ONE, NINE = LogIndex(0), LogIndex(1), LogIndex(9)
RECORDED = Path(__file__).parent / "data" / "roles.table"
PAGE = Path(__file__).parents[3] / "docs" / "internals" / "raft.md"
HEAD = "| role | what happens | becomes |\n|---|---|---|\n"


class Recorded(RaftCore):
    """A member that remembers why its role changed."""

    __slots__ = ("changes",)

    def _enter(self, event: RoleEvent, leader: NodeId = NOBODY) -> None:
        before = self.role
        super()._enter(event, leader)
        self.changes.append((before, event, self.role))


# States


def follower(leader: NodeId = NOBODY, members: tuple[NodeId, ...] = THREE, version: int = 1) -> Recorded:
    """A member in term 5 whose log ends with a no-op of term 1 that says machine ``version``; its own machine is 1."""
    log = LogView(runs=[(ONE, Term(1))], last_index=ONE)
    hard_state = HardState(term=Term(5), voted_for=NOBODY)
    core = Recorded(ME, members, log, hard_state, RaftConfig(), lambda low, _high: low)
    core.changes = []
    payload = noop_payload(version)
    core.recovered(Entry(ONE, Term(1), EntryKind.NOOP, crc32(payload), payload))
    if leader != NOBODY:
        core.step(leader, heartbeat(core, 5))
    return core


def pre_candidate(version: int = 1) -> Recorded:
    core = follower(version=version)
    core.campaign()
    return core


def candidate() -> Recorded:
    core = pre_candidate()
    core.step(PEER, pre_vote_reply(core, core.term, granted=True))
    return core


def leader() -> Recorded:
    core = candidate()
    core.step(PEER, VoteReply(term=core.term, granted=True))
    return core


def founder() -> Recorded:
    core = Recorded(ME, THREE, LogView(), HardState(term=Term(0), voted_for=NOBODY), RaftConfig(), lambda low, _: low)
    core.changes = []
    return core


STATES: dict[str, Callable[[], Recorded]] = {
    "follower of node 2": lambda: follower(PEER),
    "follower of nobody": follower,
    "follower, only voter": lambda: follower(members=(ME,)),
    "follower, old machine": lambda: follower(PEER, version=2),
    "founder": founder,
    "pre-candidate": pre_candidate,
    "pre-candidate, old machine": lambda: pre_candidate(version=2),
    "candidate": candidate,
    "leader": leader,
}

# Inputs


def heartbeat(_core: RaftCore, term: int) -> Heartbeat:
    return Heartbeat(term=Term(term), leader=PEER, round=1)


def append(_core: RaftCore, term: int) -> AppendEntries:
    return AppendEntries(term=Term(term), leader=PEER, prev_index=ONE, prev_term=Term(1), commit=ONE)


def install(_core: RaftCore, term: int) -> InstallSnapshot:
    return InstallSnapshot(
        term=Term(term), leader=PEER, index=NINE, index_term=Term(1), number=1, last=True, data=b"state"
    )


def pre_vote_request(_core: RaftCore, term: int) -> PreVoteRequest:
    return PreVoteRequest(
        term=Term(term), token=7, candidate=PEER, last_index=NINE, last_term=Term(9), machine_version=2
    )


def pre_vote_reply(core: RaftCore, term: int, *, granted: bool) -> PreVoteReply:
    return PreVoteReply(term=Term(term), token=core._elections._token, granted=granted)


def vote_request(_core: RaftCore, term: int, *, transfer: bool = False) -> VoteRequest:
    return VoteRequest(term=Term(term), candidate=PEER, last_index=NINE, last_term=Term(9), transfer=transfer)


def append_reply(_core: RaftCore, term: int) -> AppendReply:
    return AppendReply(term=Term(term), success=True, next_index=LogIndex(2), synced_index=ONE, synced_term=Term(1))


Messages = Callable[[RaftCore, int], list[Message]]
MESSAGES: dict[str, tuple[NodeId, Messages]] = {
    "AppendEntries": (PEER, lambda core, term: [append(core, term)]),
    "Heartbeat": (PEER, lambda core, term: [heartbeat(core, term)]),
    "InstallSnapshot": (PEER, lambda core, term: [install(core, term)]),
    "PreVoteRequest of node 2": (PEER, lambda core, term: [pre_vote_request(core, term)]),
    "PreVoteRequest of node 3": (OTHER, lambda core, term: [pre_vote_request(core, term)]),
    "PreVoteReply, granted": (PEER, lambda core, term: [pre_vote_reply(core, term, granted=True)]),
    "PreVoteReply, refused by both": (PEER, lambda core, term: [pre_vote_reply(core, term, granted=False)] * 2),
    "VoteRequest": (PEER, lambda core, term: [vote_request(core, term)]),
    "VoteRequest after a transfer": (PEER, lambda core, term: [vote_request(core, term, transfer=True)]),
    "VoteReply, granted": (PEER, lambda _, term: [VoteReply(term=Term(term), granted=True)]),
    "VoteReply, refused by both": (PEER, lambda _, term: [VoteReply(term=Term(term), granted=False)] * 2),
    "TimeoutNow": (PEER, lambda _, term: [TimeoutNow(term=Term(term), leader=PEER)]),
    "AppendReply": (PEER, lambda core, term: [append_reply(core, term)]),
    "InstallReply": (PEER, lambda _, term: [InstallReply(term=Term(term), index=ONE, number=1, done=False)]),
    "HeartbeatReply": (PEER, lambda _, term: [HeartbeatReply(term=Term(term), round=1)]),
}
RELATIONS = {"below": -1, "equal": 0, "above": 1}


def remove_itself(core: RaftCore) -> None:
    """The leader commits its first entry, removes itself, and hears that the removal is committed."""
    if core.role is not Role.LEADER:
        return
    for last in (core.log.last_index, LogIndex(core.log.last_index + 1)):
        if last > core.log.last_index:
            core.remove(ME)
        core.synced(last, core.term)
        for node in (PEER, OTHER):
            core.step(
                node,
                AppendReply(
                    term=core.term,
                    success=True,
                    next_index=LogIndex(last + 1),
                    synced_index=last,
                    synced_term=core.term,
                ),
            )


def time_passes_alone(core: RaftCore) -> None:
    for node in (PEER, OTHER):
        core.node_down(node)
    for _ in range(RaftConfig().election_ticks_max):
        if core.changes == []:  # type: ignore[attr-defined]
            core.tick()


INPUTS: dict[str, Callable[[RaftCore], None]] = {
    "campaign": RaftCore.campaign,
    "the other nodes are down": time_passes_alone,
    "a snapshot replaces the log": lambda core: core.installed(NINE, Term(1), Configuration(THREE)),
    "the founding elects it": lambda core: core.founded(ME, blank=True),
    "it removes itself": remove_itself,
}


def outcomes() -> Iterator[tuple[str, list[tuple[Role, RoleEvent, Role]]]]:
    """What every input comes to in every state: a line to record, and the changes of the role."""
    for state, build in STATES.items():
        for name, (sender, messages) in MESSAGES.items():
            for relation, distance in RELATIONS.items():
                core = build()
                yield _outcome(core, f"{state} | {name} | term {relation}", _step(core, sender, messages, distance))
        for name, act in INPUTS.items():
            core = build()
            yield _outcome(core, f"{state} | {name}", lambda core=core, act=act: act(core))  # type: ignore[misc]


def _step(core: RaftCore, sender: NodeId, messages: Messages, distance: int) -> Callable[[], None]:
    def step() -> None:
        for at, message in enumerate(messages(core, core.term + distance)):
            core.step(sender if at == 0 else OTHER, message)

    return step


def _outcome(core: Recorded, what: str, act: Callable[[], None]) -> tuple[str, list[tuple[Role, RoleEvent, Role]]]:
    core.changes.clear()
    before, term = core.role, core.term
    try:
        act()
    except SafetyViolationError:
        return f"{what} | SafetyViolationError", []
    assert core.term >= term, f"{what}: the term went back"
    path = [change[0] for change in core.changes] + [core.role]
    assert path[0] is before, f"{what}: the role changed without an event"
    events = ", ".join(event.name for _, event, _ in core.changes) or "-"
    risen = f", term +{core.term - term}" if core.term > term else ""
    return f"{what} | {events} | {' -> '.join(role.name for role in path)}{risen}", core.changes


def test_every_state_meets_every_input_as_recorded() -> None:
    """A change of role that nobody meant would show here, whatever message brings it about."""
    text = "".join(f"{line}\n" for line, _ in outcomes())
    if os.environ.get("REWRITE"):
        RECORDED.write_text(text)
    assert text == RECORDED.read_text()


def test_the_table_says_just_what_happens() -> None:
    """A row that cannot happen would mislead the reader of the table; a change without a row does not happen."""
    happened = {change for _, changes in outcomes() for change in changes}
    table = {(role, event, after) for role, events in NEXT_ROLE.items() for event, after in events.items()}
    assert happened == table


def test_the_page_shows_the_table() -> None:
    """Who reads about the roles reads the table that the core executes."""
    rows = "".join(
        f"| {_name(role)} | {event} | {_name(after)} |\n"
        for role, events in NEXT_ROLE.items()
        for event, after in events.items()
    )
    before, head, rest = PAGE.read_text().partition(HEAD)
    assert head, f"{PAGE.name} has no table that begins with {HEAD!r}"
    _shown, end, after_table = rest.partition("\n\n")
    if os.environ.get("REWRITE"):
        PAGE.write_text(before + head + rows.rstrip("\n") + end + after_table)
    assert head + rows + "\n" in PAGE.read_text()


def _name(role: Role) -> str:
    return role.name.lower().replace("_", "-")
