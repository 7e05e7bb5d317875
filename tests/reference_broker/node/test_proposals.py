"""Commands survive leaders and links, and yet are applied once: otherwise an election would purge a queue twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.node.replication.proposals import DedupTable, Proposal, Segment, UnappliedCommands, seal, unseal
from reference_broker.types import GroupId, NodeId, Priority, Term


def test_an_entry_gives_back_its_batch_and_its_segments() -> None:
    """Whoever applies an entry must know whose commands it holds."""
    segments: list[Segment] = [(NodeId(1), Priority.NORMAL, 7, 100, 3), (NodeId(3), Priority.LOW, 1, 1, 1)]
    payload = seal([b"abc", memoryview(b"def")], segments)
    end, read = unseal(payload)
    assert payload[:end] == b"abcdef"
    assert read == segments


def test_pending_commands_are_kept_until_they_are_applied() -> None:
    """What is proposed again after an election is exactly what may have been lost."""
    unapplied = UnappliedCommands()
    assert [unapplied.add(name, 1) for name in "abc"] == [1, 2, 3]
    unapplied.applied(2)
    assert [(number, command) for number, command, _size in unapplied.all()] == [(3, "c")]


def test_priorities_are_numbered_apart() -> None:
    """A settle that overtakes a thousand publishes must not make them look like old ones."""
    dedup = DedupTable()
    assert dedup.take([(NodeId(1), Priority.NORMAL, 1, 9, 1), (NodeId(1), Priority.LOW, 1, 1, 1)]) == frozenset()
    assert dedup.take([(NodeId(1), Priority.NORMAL, 1, 9, 1), (NodeId(1), Priority.LOW, 1, 2, 1)]) == frozenset({0})


def test_commands_of_a_former_life_are_skipped() -> None:
    """A node that restarted numbers from 1 again; what it left before that in some outbox must not count for it."""
    dedup = DedupTable()
    assert dedup.take([(NodeId(1), Priority.LOW, 1, 1, 5)]) == frozenset()
    assert dedup.take([(NodeId(1), Priority.LOW, 2, 1, 2)]) == frozenset()
    assert dedup.take([(NodeId(1), Priority.LOW, 1, 6, 2), (NodeId(1), Priority.LOW, 2, 3, 1)]) == frozenset({0, 1})


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=40), st.integers(0, 40))
def test_each_command_is_applied_once_and_in_order(resends: list[tuple[int, int]], snapshot_at: int) -> None:
    """However often a sender starts over, from wherever, and whoever takes over from a snapshot in between."""
    dedup, applied, sent = DedupTable(), [], 0
    for step, (back, count) in enumerate(resends):
        if step == snapshot_at:
            dedup, rest = DedupTable.unpack(dedup.pack() + b"rest")
            assert rest == b"rest"
        first = max(1, sent + 1 - back)  # never a gap: a sender starts over at or before its first unapplied command
        skip = dedup.take([(NodeId(2), Priority.NORMAL, 1, first, count)])
        applied += [first + position for position in range(count) if position not in skip]
        sent = max(sent, first + count - 1)
    assert applied == list(range(1, sent + 1))


@pytest.mark.parametrize("lazy", [False, True])
def test_a_forwarded_proposal_round_trips(lazy: bool) -> None:
    """The leader must refuse what was meant for another term, so the term has to arrive."""
    proposal = Proposal(group=GroupId(2**63 + 5), term=Term(9), lazy=lazy)
    read, batch = Proposal.unpack(memoryview(proposal.pack() + b"batch"))
    assert read == proposal
    assert bytes(batch) == b"batch"
