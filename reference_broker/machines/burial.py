"""How messages become dead letters: they leave the queue, and its leader is told where they lie.

The letters themselves, those that were told and those that wait, are kept by
:class:`~reference_broker.machines.dead_letters.DeadLetters`. A queue without a dead letter exchange drops its dead.
"""

from __future__ import annotations

import numpy as np

from reference_broker.machines.backlog import counts_of
from reference_broker.machines.dead_letters import DEAD_LETTER_COLUMNS
from reference_broker.machines.effects import DeadLetterReason
from reference_broker.machines.fifo_state import State
from reference_broker.machines.origins import Origin
from reference_broker.machines.outbox import Outbox
from reference_broker.machines.records import Columns


def bury(state: State, outbox: Outbox, stretch: tuple[int, int, int, Origin], reason: DeadLetterReason) -> None:
    """These messages have left the queue: dead-letter them, if the queue does so."""
    config = state.config
    if config.dead_letter is None:
        return
    count, start, step, origin = stretch
    state.totals.dead_lettered += count
    if not config.keeps_dead_letters:  # what a full queue drops is never kept, for it does not refuse publishers then
        state.dead_letters.at_most_once.append((reason, 0, count, start, step, *origin))
        send_at_most_once(state, outbox)
    else:
        state.dead_letters.keep(count, start, step, origin, reason)
        announce(state, outbox)


def bury_records(state: State, outbox: Outbox, number: int, records: Columns, reason: DeadLetterReason) -> None:
    """The same for records of the backlog, of which the first message has this number."""
    if state.config.dead_letter is None or not len(records):
        return
    counts = counts_of(records)
    state.totals.dead_lettered += int(counts.sum())
    letters = np.zeros(len(records), DEAD_LETTER_COLUMNS)
    for name in ("entry", "offset", "start", "count", "expires", "size"):
        letters[name] = records[name]
    letters["reason"], letters["step"] = reason, 1
    letters["base"] = number + np.cumsum(counts) - counts - records["start"]
    if not state.config.keeps_dead_letters:
        state.dead_letters.at_most_once.extend(letters)
        send_at_most_once(state, outbox)
    else:
        state.dead_letters.keep_many(letters)
        announce(state, outbox)


def announce(state: State, outbox: Outbox) -> None:
    """Tell the leader of the letters that have come into the window."""
    for letters in state.dead_letters.announce():
        outbox.dead_letter(letters.first_id, letters.count, letters.start, letters.step, letters.origin, letters.reason)


def send_at_most_once(state: State, outbox: Outbox) -> None:
    """Tell the leader of letters that nobody keeps, as many as an entry may."""
    letters_left, take = state.dead_letters.at_most_once, state.dead_letters.take_at_most_once
    while letters_left and (letters := take(outbox.at_most_once_count, outbox.at_most_once_octets)) is not None:
        outbox.dead_letter(0, letters.count, letters.start, letters.step, letters.origin, letters.reason)
        outbox.at_most_once_count += letters.count
        outbox.at_most_once_octets += letters.count * letters.origin.size
    if letters_left:
        state.expect_ticks()
