"""One round of replication for all groups that this node leads: when few commands wait, and for what. Pure.

A round takes a frame to each peer, a batch of the log on each node, and a frame back, however many groups it carries.
So few commands do not begin a round of their own while a round of few commands is under way: what all groups gather
meanwhile leaves together when the round is committed. The rounds clock themselves, without a timer: they carry more as
the load grows or the drives slow down, and a lone command on a quiet node waits for nothing.

A group with many commands neither waits nor is waited for. Nor does anybody wait for longer than ``wait_ms``: a group
that has lost its majority must not hold up the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from reference_broker.node.ports import Runner


class Turns(Protocol):
    """The turns of a node."""

    @property
    def count(self) -> int:
        """Which turn this is."""


class Rounds:
    """The round under way, if there is one, and who waits for its end."""

    def __init__(
        self,
        wake: Callable[[Runner], None],
        after: Callable[[float, Callable[[], None]], None],
        turns: Turns,
        wait_ms: int,
    ) -> None:
        """``wake`` gives a runner its turn, ``after`` calls after so many seconds, ``turns`` says which turn this
        is."""
        self._wake = wake
        self._after = after
        self._turns = turns
        self._wait_s = wait_ms / 1000
        self._under_way: dict[Runner, None] = {}
        """The groups whose entries of this round are not committed."""
        self._waiting: dict[Runner, None] = {}
        self._began = -1
        """The turn in which the round began: all that gathered until then goes together."""
        self._next = -1
        """The turn in which the next round may begin."""
        self._number = 0
        self.octets_under_way = 0
        """Of the entries of all groups that this node has made as their leader and no majority has yet. A small entry
        waits on every drive and link for what was under way before."""

    def join(self, runner: Runner) -> bool:
        """Whether a group may make an entry of few commands now, which is then part of the round. If it may not, it
        gets a turn when it may."""
        turn = self._turns.count
        if self._under_way and self._began != turn:
            self._wait(runner)
            return False
        if turn < self._next:  # those who waited have their turns in the next turn: go with them
            self._wake(runner)
            return False
        if not self._under_way:
            self._began = turn
            self._number += 1
        self._under_way[runner] = None
        return True

    def _wait(self, runner: Runner) -> None:
        if not self._waiting:
            number = self._number
            self._after(self._wait_s, lambda: self._give_up(number))
        self._waiting[runner] = None

    def done(self, runner: Runner) -> None:
        """The group's entries are committed, or it leads no more."""
        if runner in self._under_way:
            del self._under_way[runner]
            if self._waiting and not self._under_way:
                self._release()

    def _give_up(self, number: int) -> None:
        """A round lasts too long: wait for it no longer."""
        if number == self._number and self._waiting:
            self._under_way.clear()
            self._release()

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, {}
        if waiting:
            self._next = self._turns.count + 1
        for runner in waiting:
            self._wake(runner)
