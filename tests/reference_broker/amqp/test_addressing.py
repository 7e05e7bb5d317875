"""What a message says about its way: a header that is misread sends it to the wrong queues, or nowhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic

from reference_broker.amqp.addressing import stretches, without_blind_copies
from reference_broker.amqp.death import Death, dead_letter
from reference_broker.amqp.errors import SoftError
from reference_broker.amqp.events import Publish
from reference_broker.message_run import MessageRun
from reference_broker.types import COPIES, NO_TTL
from tests.reference_broker.amqp.testing import ScriptedClient, content, parse, publish

HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "k": st.integers(0, 2),
        "CC": st.lists(st.sampled_from(["a", "b"]), max_size=2),
        "BCC": st.lists(st.just("c"), max_size=1),
    },
)


def message(headers: dict[str, Any] | None, body: bytes = b"m", **properties: Any) -> bytes:
    return content(1, body, Basic.Properties(headers=headers or None, **properties))


@given(st.lists(HEADERS, min_size=1, max_size=12))
def test_stretches_have_every_message_once_with_its_own_address(each_headers: list[dict[str, Any]]) -> None:
    """Bodies of any size between headers; the octets are those of the run."""
    contents = [message(headers, b"x" * (at % 3)) for at, headers in enumerate(each_headers)]
    run, seen = MessageRun.of(b"\0\1q", contents), 0
    for start, part, address in stretches(run):
        assert start == seen
        for position in range(part.count):
            headers = each_headers[start + position]
            assert part.content(position) == contents[start + position]
            assert address.copies == (*headers.get("CC", ()), *headers.get("BCC", ()))
            assert [name.decode() for name, _value in address.headers] == sorted(headers)
            assert address.has_blind_copies == ("BCC" in headers)
        if address.has_blind_copies:
            for position, (_, header) in enumerate(
                parse(without_blind_copies(part).content(position))[0] for position in range(part.count)
            ):
                left = {name: value for name, value in each_headers[start + position].items() if name != "BCC"}
                assert (header.properties.headers or {}) == left  # type: ignore[union-attr]
        seen += part.count
    assert seen == run.count


def test_a_uniform_run_is_one_stretch_and_shares_its_octets() -> None:
    one = message({"k": 1}, expiration="5")
    run = MessageRun(3, b"\0\1q", one * 3, len(one))
    [(start, part, address)] = stretches(run)
    assert (start, address.ttl_ms, address.copies) == (0, 5, ())
    assert part is run
    ragged = MessageRun(3, b"\0\1q", one * 3, 0, np.array([len(one), 2 * len(one), 3 * len(one)], np.uint32))
    assert [part is ragged for _start, part, _address in stretches(ragged)] == [True]


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_copies_of_another_type_are_refused(name: str) -> None:
    """In RabbitMQ's words."""
    [(_, _, address)] = stretches(MessageRun.of(b"\0\1q", [message({name: "q"})]))
    with pytest.raises(SoftError, match=f'unacceptable_type_in_header,"{name}",longstr'):
        address.check()


def test_only_messages_with_copies_say_so() -> None:
    """A header that only looks like it, in a name, in a value or deeper down, costs nobody a closer look."""
    client = ScriptedClient()
    client.open()
    for headers in ({"CC": ["a"]}, {"BCC": []}, {"k": "CC"}, {"t": {"CC": 1}}, {"CCC": 1}, {}):
        client.raw(publish(1, "q", b"m", Basic.Properties(headers=headers or None)))  # type: ignore[arg-type]
    client.raw(publish(1, "q", b"m", Basic.Properties(headers={"CC": ["a"]}, expiration="5")))
    found = [event.ttl_ms for event in client.events if isinstance(event, Publish) for _ in range(event.run.count)]
    assert found == [COPIES, COPIES, NO_TTL, NO_TTL, NO_TTL, NO_TTL, COPIES]


def test_properties_that_are_not_utf8_are_the_clients_own_affair() -> None:
    """RabbitMQ serves them; they break neither routing nor a dead letter."""
    odd = message({"CC": ["a"]}, content_type="xx").replace(b"\x02xx", b"\x02\xff\xfe")
    ((_start, _part, address),) = stretches(MessageRun.of(b"\0\1q", [odd]))
    assert address.copies == ("a",)
    letter = dead_letter(odd, Death("q", "expired", "", "q", 1_700_000_000))
    assert b"\x02\xff\xfe" in letter and b"x-death" in letter
