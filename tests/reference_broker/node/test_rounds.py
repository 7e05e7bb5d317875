"""The rounds that all groups of a node share: who waits for whom, and for how long."""

from __future__ import annotations

from collections.abc import Callable

from reference_broker.node.replication.batcher import Rounds

WAIT_MS = 20


class Group:
    """A runner that notes its turns."""

    def __init__(self) -> None:
        self.scheduled = False

    def turn(self) -> None: ...


class Node:
    """Rounds, with turns and timers by hand."""

    def __init__(self) -> None:
        self.count = 1
        self.woken: list[object] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.rounds = Rounds(self.woken.append, lambda *timer: self.timers.append(timer), self, WAIT_MS)
        self.one, self.two, self.three = Group(), Group(), Group()


def test_a_lone_command_waits_for_nothing() -> None:
    node = Node()
    for _ in range(3):
        assert node.rounds.join(node.one)
        node.rounds.done(node.one)
        assert node.rounds.join(node.one)  # in the turn in which its round was committed
        node.rounds.done(node.one)
        node.count += 1
    assert not node.woken and not node.timers


def test_groups_of_one_turn_share_a_round_and_the_next_waits_for_all_of_them() -> None:
    node = Node()
    assert node.rounds.join(node.one) and node.rounds.join(node.two)
    node.count += 1
    assert not node.rounds.join(node.three)
    node.rounds.done(node.two)
    assert not node.rounds.join(node.two) and not node.woken
    node.rounds.done(node.one)
    assert node.woken == [node.three, node.two] and len(node.timers) == 1


def test_who_ends_a_round_goes_with_those_who_waited_for_its_end() -> None:
    """Else the two would take turns, and each round would carry half."""
    node = Node()
    assert node.rounds.join(node.one)
    node.count += 1
    assert not node.rounds.join(node.two)
    node.rounds.done(node.one)
    assert not node.rounds.join(node.one) and node.woken == [node.two, node.one]
    node.count += 1
    assert node.rounds.join(node.two) and node.rounds.join(node.one)


def test_done_means_nothing_for_a_group_that_is_not_in_the_round() -> None:
    """A large entry is committed, or a follower stands otherwise."""
    node = Node()
    assert node.rounds.join(node.one)
    node.count += 1
    assert not node.rounds.join(node.two)
    node.rounds.done(node.three)
    node.rounds.done(node.two)
    assert not node.woken and not node.rounds.join(node.three)


def test_a_group_without_a_majority_holds_nobody_up_for_long() -> None:
    node = Node()
    assert node.rounds.join(node.one)
    node.count += 1
    assert not node.rounds.join(node.two)
    ((delay_s, call),) = node.timers
    call()
    node.count += 1
    assert delay_s == WAIT_MS / 1000 and node.woken == [node.two] and node.rounds.join(node.two)
    node.count += 1
    node.rounds.done(node.one)  # at last
    assert not node.rounds.join(node.three)


def test_a_timer_of_a_round_that_is_over_ends_no_later_round() -> None:
    node = Node()
    assert node.rounds.join(node.one)
    node.count += 1
    assert not node.rounds.join(node.two)
    node.rounds.done(node.one)
    node.count += 1
    assert node.rounds.join(node.two)
    node.count += 1
    assert not node.rounds.join(node.three)
    woken = list(node.woken)
    node.timers[0][1]()
    assert node.woken == woken and not node.rounds.join(node.one)
