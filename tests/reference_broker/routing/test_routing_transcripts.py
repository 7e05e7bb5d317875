"""What RabbitMQ's users know of exchanges, a page for each. The files are in data/:

    declare NAME TYPE [auto-delete] [alternate=NAME]
    delete NAME, remove-queue NAME
    bind / unbind SOURCE QUEUE|x:EXCHANGE [KEY] [NAME=VALUE ...]     a value "?" asks for the name alone
    route EXCHANGE KEY[,KEY ...] [NAME=VALUE ...]                    draws the queues; "-" is the empty key
    show                                                            draws exchanges and bindings

``REWRITE=1 pytest ...`` writes the files anew; review the difference.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from reference_broker.routing.records import (
    ALTERNATE,
    Arguments,
    Binding,
    Destination,
    Exchange,
    ExchangeType,
    in_order,
)
from reference_broker.routing.table import RoutingTable
from tests.reference_broker.machines.transcript import transcript

FILES = sorted((Path(__file__).parent / "data").glob("*.txt"))


def text(value: str) -> bytes:
    return b"S" + len(value).to_bytes(4, "big") + value.encode()


def fields(words: Sequence[str]) -> Arguments:
    pairs = (word.split("=") for word in words)
    return in_order((name.encode(), b"V" if value == "?" else text(value)) for name, value in pairs)


class Steps:
    """Runs the steps of one file."""

    def __init__(self) -> None:
        self.table = RoutingTable()

    def step(self, line: str) -> list[str]:
        word, *rest = line.split()
        return list(getattr(self, "do_" + word.replace("-", "_"))(*rest) or ())

    def do_declare(self, name: str, kind: str, *flags: str) -> None:
        alternates = [flag.split("=")[1] for flag in flags if "=" in flag]
        arguments = tuple((ALTERNATE, text(each)) for each in alternates)
        automatic = "auto-delete" in flags
        self.table.declare(Exchange(name=name, type=ExchangeType(kind), auto_delete=automatic, arguments=arguments))

    def do_delete(self, name: str) -> None:
        self.table.delete(name)

    def do_remove_queue(self, name: str) -> None:
        self.table.remove_queue(name)

    def do_bind(self, *words: str) -> None:
        self.table.bind(self.binding(*words))

    def do_unbind(self, *words: str) -> None:
        self.table.unbind(self.binding(*words))

    def binding(self, source: str, to: str, *words: str) -> Binding:
        keys = [word for word in words if "=" not in word]
        destination = Destination(to.removeprefix("x:"), is_exchange=to.startswith("x:"))
        arguments = fields([word for word in words if "=" in word])
        return Binding(source=source, destination=destination, key="".join(keys).strip("-"), arguments=arguments)

    def do_route(self, exchange: str, keys: str, *words: str) -> Iterator[str]:
        names = tuple(key.strip("-") for key in keys.split(","))
        yield " ".join(self.table.route(exchange, names, fields(words))) or "no queue"

    def do_show(self) -> Iterator[str]:
        yield "exchanges " + (" ".join(each.name for each in self.table.declared()) or "-")
        for each in self.table.bindings():
            arguments = " ".join(f"{name.decode()}={value[5:].decode() or '?'}" for name, value in each.arguments)
            to = ("x:" if each.destination.is_exchange else "") + each.destination.name
            yield f"{each.source} -> {to} {each.key or '-'} {arguments}".rstrip()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_transcript(path: Path) -> None:
    """Which queue gets what is written down: a change must be seen and wanted."""
    drawn = transcript(path, Steps().step)
    if os.environ.get("REWRITE"):
        path.write_text(drawn)
    assert drawn == path.read_text()
