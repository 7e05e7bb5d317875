"""How messages become dead letters: they leave the queue, and the leader learns where their bodies are.

:class:`~reference_broker.machines.dead_letters.DeadLetters` keeps the letters. A queue without a dead letter exchange
drops dead messages.
"""

from __future__ import annotations

import numpy as np

from reference_broker.machines.dead_letters import DEAD_LETTER_COLUMNS
from reference_broker.machines.effects import DeadLetterReason
from reference_broker.machines.fifo_state import State
from reference_broker.machines.messages.backlog import counts_of
from reference_broker.machines.messages.origins import Origin
from reference_broker.machines.messages.records import Columns
from reference_broker.machines.outbox import Outbox


def bury(state: State, outbox: Outbox, stretch: tuple[int, int, int, Origin], reason: DeadLetterReason) -> None:
    """Make dead letters of messages that have left the queue, if the queue has a dead letter exchange."""
    config = state.config
    count, start, step, origin = stretch
    if config.dead_letter is None:
        state.departures.stretch(count, start, step, origin)
        return
    state.totals.dead_lettered += count
    if not config.keeps_dead_letters:  # always so with drop-head
        state.dead_letters.at_most_once.append((reason, 0, count, start, step, *origin))
        send_at_most_once(state, outbox)
    else:
        state.dead_letters.keep(count, start, step, origin, reason)
        announce(state, outbox)


def bury_records(state: State, outbox: Outbox, number: int, records: Columns, reason: DeadLetterReason) -> None:
    """Bury the messages of many records of the backlog; ``number`` is the message number of the first message."""
    if state.config.dead_letter is None or not len(records):
        state.departures.records(records)
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
    """Tell the leader of the at-least-once letters that the window has room for now."""
    for letters in state.dead_letters.announce():
        outbox.dead_letter(letters.first_id, letters.count, letters.start, letters.step, letters.origin, letters.reason)


def send_at_most_once(state: State, outbox: Outbox) -> None:
    """Send at-most-once letters to the leader, as many as one entry may."""
    letters_left, take = state.dead_letters.at_most_once, state.dead_letters.take_at_most_once
    while letters_left and (letters := take(outbox.at_most_once_count, outbox.at_most_once_octets)) is not None:
        outbox.dead_letter(0, letters.count, letters.start, letters.step, letters.origin, letters.reason)
        state.departures.held([letters])
        outbox.at_most_once_count += letters.count
        outbox.at_most_once_octets += letters.count * letters.origin.size
    if letters_left:
        state.expect_ticks()
