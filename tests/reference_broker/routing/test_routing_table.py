"""Which queues a message goes to, against an oracle that looks at every binding: a message too few is lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.routing.records import (
    ALTERNATE,
    PREDECLARED,
    Arguments,
    Binding,
    Destination,
    Exchange,
    ExchangeType,
    in_order,
)
from reference_broker.routing.table import QUEUES_MAX, ROUTES_MAX, RoutingTable
from reference_broker.routing.topics import TopicMatcher

from .oracle import Oracle, split, topic_matches

WORDS = st.sampled_from(["a", "b", "", "*", "#"])
KEYS = st.lists(WORDS, max_size=5).map(".".join)
EXCHANGES = st.sampled_from(["d", "f", "t", "h", "auto", "amq.topic", "amq.headers"])
QUEUES = st.sampled_from(["p", "q", "r"])
FIELD_NAMES = st.sampled_from([b"k", b"l", b"x-m"])
VALUES = st.sampled_from([b"I\0\0\0\1", b"b\1", b"t\1"])
HEADERS = st.dictionaries(FIELD_NAMES, VALUES).map(lambda each: in_order(each.items()))
MODES = st.sampled_from(["all", "any", "all-with-x", "any-with-x", None])


def text(value: str) -> bytes:
    return b"S" + len(value).to_bytes(4, "big") + value.encode()


@st.composite
def wanted(draw: Any) -> Arguments:
    fields = draw(st.dictionaries(FIELD_NAMES, VALUES | st.just(b"V")))
    if (mode := draw(MODES)) is not None:
        fields[b"x-match"] = text(mode)
    return in_order(fields.items())


@st.composite
def bindings(draw: Any) -> Binding:
    to = draw(st.builds(Destination, EXCHANGES, st.just(True)) | st.builds(Destination, QUEUES))
    return Binding(source=draw(EXCHANGES), destination=to, key=draw(KEYS), arguments=draw(wanted()))


TYPES = {
    "d": ExchangeType.DIRECT,
    "f": ExchangeType.FANOUT,
    "t": ExchangeType.TOPIC,
    "h": ExchangeType.HEADERS,
    "auto": ExchangeType.DIRECT,
}


@st.composite
def exchanges(draw: Any) -> Exchange:
    name = draw(st.sampled_from(sorted(TYPES)))
    alternate = draw(st.none() | EXCHANGES | st.just("nowhere"))
    arguments = () if alternate is None else ((ALTERNATE, text(alternate)),)
    return Exchange(name=name, type=TYPES[name], auto_delete=name == "auto", arguments=arguments)


CHANGES = st.lists(
    st.tuples(st.just("declare"), exchanges())
    | st.tuples(st.just("delete"), EXCHANGES)
    | st.tuples(st.sampled_from(["bind", "bind", "bind", "unbind"]), bindings())
    | st.tuples(st.just("remove"), QUEUES),
    max_size=30,
)


def apply(table: RoutingTable, oracle: Oracle, change: tuple[str, Any]) -> None:
    match change:
        case ("declare", exchange):
            table.declare(exchange)
            oracle.declare(exchange)
        case ("delete", name):
            table.delete(name)
            oracle.delete(name)
        case ("remove", name):
            table.remove_queue(name)
            oracle.remove(Destination(name))
        case ("bind", binding):
            there = [binding.source, *([binding.destination.name] if binding.destination.is_exchange else [])]
            if all(name in oracle.exchanges for name in there):
                table.bind(binding)
                oracle.bind(binding)
        case ("unbind", binding):
            table.unbind(binding)
            oracle.unbind(binding)


@given(CHANGES, st.lists(st.tuples(EXCHANGES, st.lists(KEYS, min_size=1, max_size=2).map(tuple), HEADERS), max_size=5))
def test_a_message_goes_where_the_oracle_says(
    changes: list[tuple[str, Any]], messages: list[tuple[str, tuple[str, ...], Arguments]]
) -> None:
    """After any changes, for any message; asked again, the answer that was kept is the same."""
    table, oracle = RoutingTable(), Oracle()
    for change in changes:
        apply(table, oracle, change)
        for exchange, keys, headers in messages:
            if exchange in oracle.exchanges:
                expected = oracle.route(exchange, keys, headers)
                assert table.route(exchange, keys, headers) == expected
                assert table.route(exchange, keys, headers) == expected
                if not table.heeds_headers(exchange):
                    assert table.route(exchange, keys) == expected
    assert {each.name: each for each in table.declared()} == {
        name: each for name, each in oracle.exchanges.items() if name not in PREDECLARED
    }
    assert list(table.bindings()) == sorted(oracle.bindings)


@given(st.lists(KEYS, unique=True, max_size=8), KEYS)
def test_topics_match_as_defined(patterns: list[str], key: str) -> None:
    """Stars and hashes in any number and order, in the keys, too."""
    matcher = TopicMatcher()
    for pattern in patterns:
        matcher.add(Binding(source="t", destination=Destination(pattern), key=pattern))
    expected = {pattern for pattern in patterns if topic_matches(split(pattern), split(key))}
    assert {each.name for each in matcher.match(key)} == expected
    for pattern in patterns:
        matcher.remove(Binding(source="t", destination=Destination(pattern), key=pattern))
    assert not matcher.match(key) and not matcher._root.children


def test_a_long_key_through_many_hashes_takes_few_steps() -> None:
    """Trying each reading would take longer than the world exists; the steps are counted, because time is not."""
    matcher = TopicMatcher()
    for number in range(20):
        pattern = ".".join(["#", "a"] * 20 + ["#", f"b{number}"])
        matcher.add(Binding(source="t", destination=Destination(str(number)), key=pattern))
    key = ".".join(["a"] * 4999 + ["b7"])
    assert len(key) >= 10_000
    assert [each.name for each in matcher.match(key)] == ["7"]


@pytest.mark.parametrize("length", [2, 3000])
def test_a_circle_of_exchanges_ends(length: int) -> None:
    """A message goes round once; auto-delete exchanges in a circle go one after the other, without a stack of calls."""
    table = RoutingTable()
    for number in range(length):
        table.declare(Exchange(name=f"x{number}", type=ExchangeType.FANOUT, auto_delete=True))
    for number in range(length):
        following = Destination(f"x{(number + 1) % length}", is_exchange=True)
        table.bind(Binding(source=f"x{number}", destination=following, key=""))
    table.bind(Binding(source=f"x{length - 1}", destination=Destination("q"), key=""))
    assert table.route("x0", ("k",)) == ("q",)
    table.delete("x0")
    table.remove_queue("q")
    assert table.declared() == [] and list(table.bindings()) == []


def test_what_is_kept_is_bounded() -> None:
    """A publisher with a new key for each message, or with very many queues, must not fill the memory."""
    table = RoutingTable()
    for number in range(QUEUES_MAX // 64):
        table.bind(Binding(source="amq.fanout", destination=Destination(f"q{number}"), key=""))
    for number in range(200):
        table.route("amq.fanout", (str(number),))
        assert table._queues_kept <= QUEUES_MAX
        assert table._queues_kept == sum(map(len, table._kept.values()))
    for number in range(2 * ROUTES_MAX):
        table.route("amq.direct", (str(number),))
    table.route("amq.direct", ("long" * 100,))
    assert len(table._kept) <= ROUTES_MAX and all(len(keys[0]) < 400 for _, keys, _ in table._kept)
