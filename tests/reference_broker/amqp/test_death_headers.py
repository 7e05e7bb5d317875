"""What a dead letter says of its history, compared with what RabbitMQ 3.10 wrote for the same lives."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pamqp import body, commands, header

from reference_broker.amqp.death import Death, dead_letter, is_cycle
from tests.reference_broker.amqp.testing import content, parse

Properties = commands.Basic.Properties
AT_S = 1_700_000_000
AT = datetime.fromtimestamp(AT_S, UTC)


def death(queue: str = "q", reason: str = "rejected", key: str = "q", time_s: int = AT_S) -> Death:
    return Death(queue, reason, "", key, time_s)


def read(octets: bytes) -> tuple[dict[str, Any], Properties, bytes]:
    """Headers, properties and body, read by pamqp; on one channel, the body in one frame at most."""
    frames = parse(octets)
    assert {channel for channel, _ in frames} == {1}
    head = frames[0][1]
    assert isinstance(head, header.ContentHeader)
    bodies = [each.value for _, each in frames[1:] if isinstance(each, body.ContentBody)]
    assert len(bodies) == len(frames) - 1 <= 1
    assert sum(map(len, bodies)) == head.body_size
    return dict(head.properties.headers or {}), head.properties, b"".join(bodies)


def test_the_first_death_has_headers_of_its_own() -> None:
    """Applications route on x-first-death-reason; it must not change with later deaths."""
    headers, _, payload = read(dead_letter(content(7, b"hello", Properties(headers={"k": "v"})), death()))
    assert headers == {
        "k": "v",
        "x-first-death-reason": "rejected",
        "x-first-death-queue": "q",
        "x-first-death-exchange": "",
        "x-death": [
            {"count": 1, "reason": "rejected", "queue": "q", "time": AT, "exchange": "", "routing-keys": ["q"]}
        ],
    }
    assert payload == b"hello"


def test_the_keys_of_copies_are_told_too() -> None:
    """A message that was published under several keys."""
    headers, *_ = read(dead_letter(content(7, b"", Properties(headers={"CC": ["a", "b"]})), death()))
    assert headers["x-death"][0]["routing-keys"] == ["q", "a", "b"]
    headers, *_ = read(dead_letter(content(7, b"", Properties(headers={"CC": "a"})), death()))
    assert headers["x-death"][0]["routing-keys"] == ["q"]


def test_expiration_goes_and_is_remembered() -> None:
    """Or a letter would expire in the dead letter queue, too."""
    octets = dead_letter(content(1, b"", Properties(expiration="50", message_id="m")), death(reason="expired"))
    headers, properties, _ = read(octets)
    assert headers["x-death"][0]["original-expiration"] == "50"
    assert (properties.expiration, properties.message_id) == (None, "m")
    again = dead_letter(octets, death("other", "maxlen"))
    assert "original-expiration" not in read(again)[0]["x-death"][0]


def test_deaths_are_counted_by_queue_and_reason_the_latest_first() -> None:
    """A retry loop reads its own count."""
    octets = content(1, b"x")
    for number in range(3):
        octets = dead_letter(octets, death("work", "rejected", time_s=AT_S + number))
        octets = dead_letter(octets, death("wait", "expired", key="wait"))
    headers = read(octets)[0]
    found = [(each["queue"], each["reason"], each["count"]) for each in headers["x-death"]]
    assert found == [("wait", "expired", 3), ("work", "rejected", 3)]
    assert headers["x-death"][1]["time"] == AT, "the time of the first of them, as in RabbitMQ"
    assert (headers["x-first-death-queue"], headers["x-first-death-reason"]) == ("work", "rejected")


def test_everything_else_stays_to_the_octet() -> None:
    """Decoding and encoding again would make a short integer a long one, and lose what Python cannot hold."""
    odd = b"\x01as\x00\x05" + b"\x01bf\x40\x49\x0f\xdb" + b"\x01cT" + b"\x7f" * 8
    payload = b"\x00\x3c\x00\x00" + (3).to_bytes(8, "big") + b"\x20\x80" + len(odd).to_bytes(4, "big") + odd + b"\x01m"
    stored = (
        b"\x02\x00\x05" + len(payload).to_bytes(4, "big") + payload + b"\xce" + b"\x03\x00\x05\x00\x00\x00\x03abc\xce"
    )
    octets = dead_letter(stored, death())
    assert odd in octets
    assert octets.endswith(b"\x01m\xce\x03\x00\x01\x00\x00\x00\x03abc\xce")


def test_a_body_of_many_frames_becomes_one() -> None:
    payload = bytes(range(256)) * 40
    assert read(dead_letter(content(9, payload, step=100), death()))[2] == payload


@pytest.mark.parametrize(
    ("lives", "target", "cycle"),
    [
        ([("a", "expired")], "b", False),
        ([("a", "expired")], "a", True),
        ([("a", "maxlen"), ("b", "expired")], "a", True),
        ([("a", "rejected")], "a", False),
        ([("a", "expired"), ("b", "rejected")], "a", False),
        ([("a", "rejected"), ("b", "expired")], "a", False),
        ([("x", "rejected"), ("a", "expired"), ("b", "expired")], "a", True),
        ([("a", "delivery_limit")], "a", True),
        ([], "a", False),
    ],
)
def test_only_a_rejection_makes_a_circle_worth_going_round(
    lives: list[tuple[str, str]], target: str, cycle: bool
) -> None:
    """Two queues that expire into each other would keep a message, and two processors, busy for ever."""
    octets = content(1, b"x")
    for queue, reason in lives:
        octets = dead_letter(octets, death(queue, reason))
    assert is_cycle(octets, target) is cycle


def table(queue: str, reason: str, **more: Any) -> dict[str, Any]:
    return {"queue": queue, "reason": reason, **more}


@pytest.mark.parametrize(
    ("history", "counts"),
    [
        ([table("q", "rejected")], [("q", "rejected", 1)]),
        ([table("q", "rejected")] * 3, [("q", "rejected", 4)]),
        ([table("q", "rejected", count=5), table("q", "rejected", count=2)], [("q", "rejected", 6)]),
        ([table("a", "rejected")] * 20 + [table("b", "expired")] * 3,
         [("q", "rejected", 1), ("a", "rejected", 20), ("b", "expired", 3)]),
        ([table("a", "expired"), table("a", "maxlen"), table("a", "expired", count=9)],
         [("q", "rejected", 1), ("a", "expired", 2), ("a", "maxlen", 1)]),
        ([table("a", "expired")], [("q", "rejected", 1), ("a", "expired", None)]),
    ],
)  # fmt: skip
def test_a_history_of_old_brokers_is_merged(
    history: list[dict[str, Any]], counts: list[tuple[str, str, int | None]]
) -> None:
    """These wrote a table for each death, without a count. RabbitMQ's counts."""
    headers: Any = {"x-death": history}
    found = read(dead_letter(content(1, b"x", Properties(headers=headers)), death()))[0]["x-death"]
    assert [(each["queue"], each["reason"], each.get("count")) for each in found] == counts


def test_a_forged_history_is_replaced() -> None:
    """Publishers may send any x-death they like; the broker must not stumble over it."""
    for forged in ("text", 5, [1, "two"], {"count": 1}):
        headers: Any = {"x-death": forged}
        octets = dead_letter(content(1, b"x", Properties(headers=headers)), death())
        assert read(octets)[0]["x-death"][0]["queue"] == "q"
        assert not is_cycle(content(1, b"x", Properties(headers=headers)), "q")


def test_a_letter_that_may_have_been_sent_before_says_so_for_good() -> None:
    """Its copy may have gone the same way to the next queue. The history is that of any other letter."""
    once = dead_letter(content(1, b"hello", Properties(headers={"k": "v"})), death())
    again = dead_letter(content(1, b"hello", Properties(headers={"k": "v"})), replace(death(), is_repeat=True))
    assert read(again)[0] == {**read(once)[0], "x-dead-letter-repeat": True}
    headers, *_ = read(dead_letter(again, death("next")))
    assert headers["x-dead-letter-repeat"] is True
