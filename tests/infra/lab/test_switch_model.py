"""What every packet of a switch may rely on, for any traffic and any settings: order, delay, bandwidth, chance."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.lab.switch_model import QUEUE_OCTETS, SwitchModel
from infra.links.settings import LinkError, LinkSettings

SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "delay_ms": st.floats(0, 50),
        "jitter_ms": st.floats(0, 20),
        "loss": st.floats(0, 1),
        "mbit": st.floats(0.1, 1000) | st.just(0.0),
        "cut": st.booleans(),
    },
)
STEPS = st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(20, 9000), st.none() | SETTINGS), max_size=80)
"""Packets: ns since the one before, octets, and what is changed at the link before it comes."""


def passed(steps: list[tuple[int, int, dict[str, Any] | None]], seed: int) -> list[tuple[int, int, int | None]]:
    """When each packet came, its octets, and when it left."""
    model, now, found = SwitchModel(("a", "b"), seed), 0, []
    for gap, octets, changes in steps:
        now += gap
        if changes is not None:
            model.set("a", "b", changes)
        found.append((now, octets, model.take("a", "b", octets, now)))
    link = model.links["a", "b"]
    kept = [octets for _, octets, leaves in found if leaves is not None]
    assert (link.packets, link.octets, link.lost) == (len(kept), sum(kept), len(found) - len(kept))
    return found


@given(STEPS, st.integers(0, 100))
def test_packets_keep_their_order_whatever_is_changed(
    steps: list[tuple[int, int, dict[str, Any] | None]], seed: int
) -> None:
    leaves = [each for _, _, each in passed(steps, seed) if each is not None]
    assert leaves == sorted(leaves)
    assert passed(steps, seed) == passed(steps, seed), "the same seed gives the same fate"


@given(STEPS, SETTINGS)
def test_delay_is_at_least_what_is_asked_for(
    steps: list[tuple[int, int, dict[str, Any] | None]], changes: dict[str, Any]
) -> None:
    first = [(gap, octets, changes if number == 0 else None) for number, (gap, octets, _) in enumerate(steps)]
    for came, _, left in passed(first, 1):
        assert left is None or left - came >= round(changes.get("delay_ms", 0) * 1e6)
        assert left is None or not changes.get("cut", False)


@given(STEPS, st.floats(0.1, 1000))
def test_bandwidth_is_never_exceeded(steps: list[tuple[int, int, dict[str, Any] | None]], mbit: float) -> None:
    first = [(gap, octets, {"mbit": mbit} if number == 0 else None) for number, (gap, octets, _) in enumerate(steps)]
    kept = [(left, octets) for _, octets, left in passed(first, 1) if left is not None]
    for begin in range(len(kept)):
        for end in range(begin + 1, len(kept)):
            sent = sum(octets for _, octets in kept[begin + 1 : end + 1])
            assert kept[end][0] - kept[begin][0] >= sent * 8_000 / mbit - 1e-3


def test_a_full_queue_loses_what_comes_then() -> None:
    model = SwitchModel(("a", "b"))
    model.set("a", "b", {"mbit": 8})
    for _ in range(2 * QUEUE_OCTETS // 1000):
        model.take("a", "b", 1000, 0)
    link = model.links["a", "b"]
    assert link.lost > 0 and QUEUE_OCTETS <= link.octets <= QUEUE_OCTETS + 2000


def test_loss_is_the_share_that_was_asked_for_and_one_way() -> None:
    model = SwitchModel(("a", "b"), seed=7)
    model.set("a", "b", {"loss": 0.1})
    for number in range(10_000):
        model.take("a", "b", 100, number)
        model.take("b", "a", 100, number)
    assert 900 <= model.links["a", "b"].lost <= 1100 and model.links["b", "a"].lost == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"delay_ms": -1},
        {"loss": 2},
        {"loss": "1%"},
        {"mbit": float("nan")},
        {"cut": 1},
        {"delay_ms": True},
        {"rate": 1},
    ],
)
def test_settings_that_no_link_can_have_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(LinkError):
        LinkSettings().changed(changes)


def test_a_link_that_there_is_not_is_named() -> None:
    with pytest.raises(LinkError, match="from 'a' to 'c'"):
        SwitchModel(("a", "b")).set("a", "c", {"cut": True})
