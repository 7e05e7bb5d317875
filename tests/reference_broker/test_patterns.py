"""Patterns of users: searched for as in RabbitMQ, refused in a sentence, and matched by every node alike."""

from __future__ import annotations

import subprocess
import sys

import pytest

from reference_broker.patterns import OCTETS_MAX, finds, literal, problem_with

UNKNOWN = "the syntax is RE2's, without lookaheads, lookbehinds, backreferences and possessive repetitions"


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("", "any", True), ("b", "abc", True), ("^b", "abc", False), ("c$", "abc", True), ("^$", "", True),
        ("^(orders|bills)[.]", "bills.eu", True), ("^[^.]+[.]eu$", "orders.eu", True), (".", "\n", False),
        ("^.$", "\u00e9", True), ("A", "a", False), ("(?i)A", "a", True),
        (r"^\d{3}$", "123", True), (r"\bq\b", "a q b", True), (r"^\p{Greek}$", "\u03b1", True),
        ("x" * 255, "x" * 255, True),
        ("^(?P<name>q)$", "q", True), ("q", "a\0q", True), (".", "\ud800", True),
    ],
)  # fmt: skip
def test_patterns_are_searched_for(pattern: str, text: str, found: bool) -> None:
    assert finds(pattern, text) is found


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("[", "missing ]: ["), ("(", "missing ): ("), ("*", "no argument for repetition operator: *"),
        ("(?=a)", f"invalid perl operator: (?= ({UNKNOWN})"), ("(?<!a)b", f"invalid perl operator: (?<! ({UNKNOWN})"),
        (r"(a)\1", rf"invalid escape sequence: \1 ({UNKNOWN})"), ("a++", f"bad repetition operator: ++ ({UNKNOWN})"),
        ("a{1001}", "invalid repetition size: {1001} (at most 1000)"),
        ("(a{900}){900}", "invalid repetition size: {900} (at most 1000)"),
        (
            "(a.{1,200}){5}",
            "pattern too large - compile failed (use fewer or smaller repetitions and alternatives)",
        ),
        ("a" * (OCTETS_MAX + 1), "a pattern may have 4096 octets, and this one has 4097"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_told_and_finds_nothing(pattern: str, problem: str) -> None:
    assert problem_with(pattern) == problem
    assert not finds(pattern, "a") and not finds(pattern, pattern)


def test_there_is_room_for_what_people_write() -> None:
    names = [f"queue-{number:06}" for number in range(250)]
    assert problem_with(f"^({'|'.join(names)})$") == "" and finds(f"^({'|'.join(names)})$", names[-1])
    assert problem_with(r"^[\p{L}\p{N}_-]+[.]\p{L}+$", ignores_case=True) == ""


@pytest.mark.parametrize("text", ["{vhost}", "a.b*c", r"back\slash", "nul\0", "\u00e9 \n-#&~", "\ud800", ""])
def test_a_literal_finds_its_text_only(text: str) -> None:
    assert finds(f"^{literal(text)}$", text) and not finds(f"^{literal(text)}$", f"{text}x")


def test_capitals_can_be_ignored() -> None:
    assert finds("ORDERS", "my-orders", ignores_case=True) and not finds("ORDERS", "my-orders")


def test_nothing_is_written_to_standard_error() -> None:
    """RE2 would report wrong patterns, and patterns whose automaton outgrew its memory, past the log of the node."""
    code = """
from reference_broker.patterns import finds, problem_with
assert problem_with("(") and problem_with("(a.{1,200}){5}")
finds("(a|b)*a(a|b){200}c", "ab" * 127)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
