"""Which members decide, as the simulator knows it: by it commits are held against disks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest

from reference_broker.log.errors import EntryGoneError
from reference_broker.log.notices import HardStateSynced
from reference_broker.raft.config import RaftConfig
from reference_broker.raft.configuration import Configuration
from reference_broker.raft.core import RaftCore
from reference_broker.raft.log_view import LogView
from reference_broker.raft.ready import HardState
from reference_broker.sim.checks.invariants import ViolationError
from reference_broker.sim.checks.raft_checks import GroupTruth, RaftChecks
from reference_broker.sim.watch import is_current
from reference_broker.types import NOBODY, Entry, EntryKind, GroupId, LogIndex, NodeId, Term

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def truth_of_three() -> GroupTruth:
    truth = GroupTruth()
    truth.founders = ONE, TWO, THREE
    return truth


def test_a_change_decides_from_when_it_is_in_the_log() -> None:
    truth = truth_of_three()
    truth.configurations[7, 2] = TWO, THREE
    truth.member(ONE).terms[7] = 2
    assert truth.voters(ONE) == (TWO, THREE)
    assert truth.voters(TWO) == (ONE, TWO, THREE)


def test_a_change_that_was_overwritten_before_a_snapshot_never_counts() -> None:
    """The snapshot covers its index, but with the entry of another term."""
    truth = truth_of_three()
    truth.configurations[7, 2] = TWO, THREE
    truth.member(ONE).snapshot = 9
    assert truth.voters(ONE) == (ONE, TWO, THREE)


def test_of_the_committed_changes_the_newest_below_the_snapshot_counts() -> None:
    truth = truth_of_three()
    for index, voters in ((3, (ONE, TWO)), (7, (TWO, THREE)), (12, (THREE,))):
        truth.configurations[index, 1] = truth.decided[index] = voters
    truth.member(ONE).snapshot = 9
    assert truth.voters(ONE) == (TWO, THREE)


def test_a_change_that_was_lost_with_the_power_is_not_under_way() -> None:
    """The log that came back ends before it, behind what was known as committed: the leader sends it again."""
    checks, group = RaftChecks(), GroupId(7)
    commands = [Entry(LogIndex(at), Term(1), EntryKind.COMMAND, 0, b"") for at in (1, 2, 3)]
    octets = Configuration((TWO, THREE)).encode()
    change = Entry(LogIndex(4), Term(1), EntryKind.CONFIG, crc32(octets), octets)
    checks.appended(ONE, group, [*commands, change])
    core = RaftCore(ONE, (ONE, TWO, THREE), LogView(), HardState(term=Term(0), voted_for=NOBODY), RaftConfig(), min)
    for _ in commands:
        core.log.append(Term(1))
    state: Any = SimpleNamespace(term=0, voted_for=NOBODY, last_index=3, forgetful=False)
    runner: Any = SimpleNamespace(group=group, core=core)
    checks.recovered(ONE, runner, state)
    checks.appended(ONE, group, [change])


def test_a_second_change_behind_one_that_is_not_committed_is_seen() -> None:
    """I8."""
    checks, group = RaftChecks(), GroupId(7)
    octets = Configuration((TWO, THREE)).encode()
    changes = [Entry(LogIndex(at), Term(1), EntryKind.CONFIG, crc32(octets), octets) for at in (1, 2)]
    with pytest.raises(ViolationError, match="appends a change at 2 with one at 1"):
        checks.appended(ONE, group, changes)


@pytest.mark.parametrize("term_on_disk", [1, 2])
def test_a_sole_voter_may_lead_a_term_again_that_nobody_heard_of(term_on_disk: int) -> None:
    """The power went before term and entries were on disk. Once the term is, an entry of it is the only one (I2)."""
    checks, group = RaftChecks(), GroupId(7)
    first, other = (Entry(LogIndex(1), Term(2), EntryKind.COMMAND, crc, b"") for crc in (3, 4))
    checks.appended(ONE, group, [first])
    hard_state = HardState(term=Term(term_on_disk), voted_for=ONE)
    core = RaftCore(ONE, (ONE, TWO), LogView(), hard_state, RaftConfig(), min)
    state: Any = SimpleNamespace(term=term_on_disk, voted_for=ONE, last_index=0, forgetful=False)
    runner: Any = SimpleNamespace(group=group, core=core)
    checks.recovered(ONE, runner, state)
    if term_on_disk < first.term:
        checks.appended(ONE, group, [other])
    else:
        with pytest.raises(ViolationError, match="another entry 1 of term 2"):
            checks.appended(ONE, group, [other])


@pytest.mark.parametrize("deleted", [False, True])
def test_of_a_deleted_group_nothing_has_to_be_read(deleted: bool) -> None:
    """A node that restarts may have it once more, and begins where nobody looks any more. Otherwise I12."""
    checks, group = RaftChecks(), GroupId(7)

    def payload(index: LogIndex) -> bytes:
        raise EntryGoneError(group, index)

    runner: Any = SimpleNamespace(group=group, payload=payload)
    if deleted:
        checks.deleted(group)
        checks.reads(ONE, runner, 3)
    else:
        with pytest.raises(ViolationError, match="cannot read entry 3"):
            checks.reads(ONE, runner, 3)


@pytest.mark.parametrize("log_uid, known, expected", [(2, {7: 2}, True), (1, {7: 2}, False), (1, {}, True)])
def test_news_of_a_member_that_left_is_not_that_of_the_one_which_joined(
    log_uid: int, known: dict[GroupId, int], expected: bool
) -> None:
    """It comes late from a slow drive, and would make term and vote of the new one go back."""
    notice = HardStateSynced(GroupId(7), Term(10), ONE, log_uid=log_uid)
    assert is_current(notice, known) is expected
