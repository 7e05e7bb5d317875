"""Routing once more, slow and obvious: every binding is looked at for every message."""

from __future__ import annotations

from reference_broker.routing.records import PREDECLARED, Arguments, Binding, Destination, Exchange, ExchangeType


def topic_matches(pattern: list[str], key: list[str]) -> bool:
    """By the definition: a star is one word, a hash is none or more."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return topic_matches(pattern[1:], key) or (bool(key) and topic_matches(pattern, key[1:]))
    return bool(key) and pattern[0] in ("*", key[0]) and topic_matches(pattern[1:], key[1:])


def headers_match(wanted: Arguments, headers: Arguments) -> bool:
    mode = next((value[5:].decode() for name, value in wanted if name == b"x-match"), "all")
    fields = [field for field in wanted if field[0] != b"x-match"]
    if not mode.endswith("-with-x"):
        fields = [field for field in fields if not field[0].startswith(b"x-")]
    there = [name in dict(headers) and value in (b"V", dict(headers)[name]) for name, value in fields]
    return all(there) if mode.startswith("all") else any(there)


def split(key: str) -> list[str]:
    return key.split(".") if key else []


class Oracle:
    """The exchanges and bindings as two lists."""

    def __init__(self) -> None:
        self.exchanges = dict(PREDECLARED)
        self.bindings: list[Binding] = []

    def declare(self, exchange: Exchange) -> None:
        self.exchanges.setdefault(exchange.name, exchange)

    def bind(self, binding: Binding) -> None:
        if binding not in self.bindings:
            self.bindings.append(binding)

    def unbind(self, binding: Binding) -> None:
        if binding in self.bindings:
            self.bindings.remove(binding)
            source = self.exchanges[binding.source]
            if source.auto_delete and not any(each.source == source.name for each in self.bindings):
                self.delete(source.name)

    def delete(self, name: str) -> None:
        if name in PREDECLARED or name not in self.exchanges:
            return
        del self.exchanges[name]
        self.bindings = [each for each in self.bindings if each.source != name]
        self.remove(Destination(name, is_exchange=True))

    def remove(self, destination: Destination) -> None:
        for binding in [each for each in self.bindings if each.destination == destination]:
            if binding in self.bindings:
                self.unbind(binding)

    def matches(self, binding: Binding, key: str, headers: Arguments) -> bool:
        match self.exchanges[binding.source].type:
            case ExchangeType.DIRECT:
                return binding.key == key
            case ExchangeType.FANOUT:
                return True
            case ExchangeType.TOPIC:
                return topic_matches(split(binding.key), split(key))
            case ExchangeType.HEADERS:
                return headers_match(binding.arguments, headers)

    def route(self, exchange: str, keys: tuple[str, ...], headers: Arguments) -> tuple[str, ...]:
        queues, seen, waiting = set(), {exchange}, [exchange]
        while waiting:
            name = waiting.pop()
            if not name:
                queues |= set(keys)
                continue
            there = {
                binding.destination
                for binding in self.bindings
                if binding.source == name and any(self.matches(binding, key, headers) for key in keys)
            }
            alternate = self.exchanges[name].alternate
            if not there and alternate:
                there = {Destination(alternate, is_exchange=True)}
            queues |= {each.name for each in there if not each.is_exchange}
            new = [each.name for each in there if each.is_exchange and each.name in self.exchanges]
            waiting += [each for each in new if each not in seen]
            seen |= set(new)
        return tuple(sorted(queues))
