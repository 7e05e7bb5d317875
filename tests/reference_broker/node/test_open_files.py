"""A client too many is turned away, and nobody else notices."""

from __future__ import annotations

import logging
import resource

import pytest

from reference_broker.node import open_files
from reference_broker.node.config import Limits
from reference_broker.node.strangers import Complaints


def door(crowd: open_files.Crowd, **limits: int) -> open_files.Door:
    return open_files.Door(lambda: crowd, Limits(**limits), Complaints(lambda: 0.0))


@pytest.mark.parametrize(
    ("crowd", "words"),
    [
        (open_files.Crowd(74, 0, lacks_memory=False), ""),
        (open_files.Crowd(75, 0, lacks_memory=False), "ulimit -n"),
        (open_files.Crowd(10, 4, lacks_memory=False), ""),
        (open_files.Crowd(10, 5, lacks_memory=False), "5 others are not logged in yet"),
        (open_files.Crowd(49, 0, lacks_memory=False), ""),
        (open_files.Crowd(1, 0, lacks_memory=True), "memory_bytes_max"),
        (open_files.Crowd(50, 0, lacks_memory=False), "50 are connected; the limit is connections_max"),
    ],
)
def test_a_client_too_many_is_turned_away(
    crowd: open_files.Crowd, words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A quarter of the open files is kept back."""
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (100, 400))
    limits = {"connections_max": 1000 if crowd.connected > 70 else 50, "logins_waiting_max": 5}
    asked = door(crowd, **limits)
    with caplog.at_level(logging.WARNING):
        assert [asked.turns_away() is not None for _ in range(2)] == [bool(words)] * 2
    assert [words in line for line in caplog.messages] == [True] * bool(words)


def test_the_limit_is_raised_to_what_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (100, 400))
    monkeypatch.setattr(resource, "setrlimit", lambda _what, limits: set_to.append(limits))
    open_files.raise_limit()
    assert set_to == [(400, 400)]
