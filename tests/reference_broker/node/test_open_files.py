"""A client too many is turned away, and nobody else notices."""

from __future__ import annotations

import logging
import resource

import pytest

from reference_broker.node import open_files
from reference_broker.node.strangers import Complaints


def test_a_quarter_of_the_files_is_kept_back(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (100, 400))
    connected = 74
    door = open_files.Door(lambda: connected, Complaints(lambda: 0.0))
    assert door.turns_away() is None
    connected = 75
    with caplog.at_level(logging.WARNING):
        assert door.turns_away() is not None and door.turns_away() is not None
    (line,) = caplog.messages
    assert "75 are connected" in line and "ulimit -n" in line


def test_the_limit_is_raised_to_what_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (100, 400))
    monkeypatch.setattr(resource, "setrlimit", lambda _what, limits: set_to.append(limits))
    open_files.raise_limit()
    assert set_to == [(400, 400)]
