"""The simulator finds planted bugs: without that, a year without a violation would say nothing.

The quick ones are hunted here, all of them by ``python -m tests.mutants.hunt``. Of bugs that it found once, and that
need too much to come together, it is tried whether the test that was written then still fails.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os

import pytest

from reference_broker.worldpage.page import packed
from tests.mutants.hunt import events_of, hunt
from tests.mutants.planted import (
    CLASSIC_MUTANTS,
    KEYED_MUTANTS,
    MIRROR_MUTANTS,
    MUTANTS,
    STORE_MUTANTS,
    Mutant,
    planted,
)

QUICK = {
    "messages do not wait for term and vote to be on disk": "I6",
    "a majority is one member too small": "I5",
    "a follower claims what it has not synced": "I5",
    "the WAL is not synced": "I10",
    "a message is told to be stored before its sync": "X9",
    "new files of a queue have no name after a loss of power": "X9 X10",
    "a requeue goes to the end": "X12 I21 I23",
    "a confirm does not wait for the store": "I22",
    "a message to several queues is confirmed once the first of them has it": "I22",
    "a message that comes back goes behind the others of its key": "I29",
    "a message to several queues goes to the first of them": "I22",
    "a follower answers at once what it has not written": "I5",
}
"""Bugs that are found in a second, and the invariants that may show them."""

IN_SOME_SECONDS = {
    "the leader counts what it has not synced": "I5",
    "a shared file goes with the first of its messages": "X10 X1",
    "a key stays blocked by a message that was rejected": "I29",
    "the short way does not ask where entries belong": "I9",
    "the end of a round brings no turn": "X1",
    "who waits for a round is forgotten": "X1",
    "who has missed a delivery is not remembered": "L1",
    "what comes behind a missed delivery is delivered": "I20 L1",
    "what was missed begins behind its first message": "I20 L1",
}
EVERY = (*MUTANTS, *KEYED_MUTANTS, *STORE_MUTANTS, *CLASSIC_MUTANTS, *MIRROR_MUTANTS)


HUNTED = [
    pytest.param(mutant, id=mutant.name, marks=[] if mutant.name in QUICK else pytest.mark.slow)
    for mutant in EVERY
    if mutant.name in QUICK or mutant.name in IN_SOME_SECONDS
]


@pytest.mark.parametrize("mutant", HUNTED)
def test_the_simulator_finds(mutant: Mutant) -> None:
    found = hunt(mutant, worlds_max=12)
    assert found.outcome is not None, f"{mutant.name}: not found in {found.worlds} worlds"
    assert found.outcome.invariant in {**QUICK, **IN_SOME_SECONDS}[mutant.name].split(), found.outcome.error


def test_a_bug_has_a_page_that_ends_with_what_it_broke() -> None:
    """A learner sees the line that was changed, and the moment in which the change did harm."""
    (mutant,) = [each for each in EVERY if each.name == "a majority is one member too small"]
    events = events_of(hunt(mutant, worlds_max=3))
    head, last = events[0], events[-1]
    assert mutant.name in head.fields["title"] and mutant.text in head.fields["text"]
    assert last.what == "broken" and last.fields["number"] == "I5"
    assert packed(events)["events"]


@pytest.mark.parametrize("mutant", EVERY, ids=lambda each: each.name)
def test_each_bug_can_still_be_planted(mutant: Mutant) -> None:
    """Code moves; a bug that is planted nowhere is never missed."""
    with planted(mutant):
        pass


@pytest.mark.slow
@pytest.mark.skipif("REWRITE" in os.environ, reason="the transcripts would be those of the bug")
@pytest.mark.parametrize(
    "mutant",
    [mutant for mutant in EVERY if mutant.shown_by],
    ids=lambda each: each.name,
)
def test_the_test_of_a_rare_bug_fails_with_it(mutant: Mutant) -> None:
    module_name, _, call = mutant.shown_by.partition(":")
    name, _, argument = call.removesuffix(")").partition("(")
    module = importlib.import_module(f"tests.reference_broker.{module_name}")
    arguments = _arguments(module, argument) if argument else ()
    test = getattr(module, name)
    all_cases = {"stride": 1} if "stride" in inspect.signature(test).parameters else {}
    with planted(mutant), pytest.raises(AssertionError):
        test(*arguments, **all_cases)


def _arguments(module: object, text: str) -> tuple[object, ...]:
    """Literals of Python, or one function of the test's module, or the text itself."""
    try:
        return tuple(ast.literal_eval(f"({text},)"))
    except (ValueError, SyntaxError):
        return (getattr(module, text, text),)
