"""The books of a cluster's queues: which messages were confirmed, and which of them come out. Knows AMQP alone.

A body names its queue and its number there: ``quorum1/17:`` and filling. Each tenth message is a large one.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import pika
import pika.exceptions

PERSISTENT: Final = pika.BasicProperties(delivery_mode=2)
PROBE: Final = b"probe"
_SMALL, _LARGE, _LARGE_EACH = 300, 5_000, 10
_ANSWER_S = 10.0
"""Longest wait of a client for one answer."""
_FINAL_S = 3.0
"""Time for which an answer such as "no queue" may still change after a start."""
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class BookedQueue:
    """A queue: its kind, and the number of the node where it was declared."""

    name: str
    kind: str
    node: int

    @property
    def arguments(self) -> dict[str, str]:
        """What it is declared with. A policy makes the mirrored queue one."""
        return {"x-queue-type": "quorum" if self.kind == "quorum" else "classic"}


QUEUES: Final = (
    BookedQueue("quorum1", "quorum", 1),
    BookedQueue("quorum2", "quorum", 2),
    BookedQueue("classic1", "classic", 1),
    BookedQueue("classic2", "classic", 2),
    BookedQueue("classic3", "classic", 3),
    BookedQueue("mirrored", "mirrored", 2),
)


@dataclass(slots=True)
class Book:
    """What became of the messages of one queue. Messages are numbered from 0."""

    queue: BookedQueue
    sent: int = 0
    confirmed: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)

    @property
    def due(self) -> set[int]:
        """What must come out."""
        return self.confirmed - self.taken

    def body(self, number: int) -> bytes:
        """The body of a message."""
        return f"{self.queue.name}/{number}:".encode().ljust(_LARGE if number % _LARGE_EACH == 9 else _SMALL, b".")

    def publish(self, uri: str, count: int) -> None:
        """Publish so many messages, each confirmed before the next. Raises pika's errors."""
        with _channel(uri) as channel:
            channel.queue_declare(self.queue.name, durable=True, arguments=self.queue.arguments)
            channel.confirm_delivery()
            for _ in range(count):
                number = self.sent
                self.sent += 1
                channel.basic_publish("", self.queue.name, self.body(number), PERSISTENT, mandatory=True)
                self.confirmed.add(number)

    def take(self, uri: str, count: int) -> None:
        """Consume and acknowledge so many messages. Raises pika's errors."""
        with _channel(uri) as channel:
            for _ in range(count):
                method, _, body = channel.basic_get(self.queue.name)
                assert method is not None, f"{self.queue.name} has no message where one was confirmed"
                channel.basic_ack(method.delivery_tag)
                self.taken.add(_number(body))
            channel.queue_declare(self.queue.name, passive=True)  # answered behind the acknowledgements


@dataclass(slots=True)
class Found:
    """What came out of a queue: numbers in their order, and the broker's words if it refuses. ``is_served``: a message
    that was published now was confirmed and delivered."""

    queue: str
    numbers: list[int] = field(default_factory=list)
    flagged: list[bool] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    words: str = ""
    is_served: bool = False


def read_all(uris: Sequence[str], into: Path, limit_s: float) -> None:
    """Read every queue empty, through one of the nodes that answer, and write a line of JSON for each queue that came
    to an end: :class:`Found`. A queue without a line did not answer."""
    lock = threading.Lock()

    def read(queue: BookedQueue, first: int) -> None:
        found = Found(queue.name)
        _read(found, [*uris[first:], *uris[:first]], time.monotonic() + limit_s)
        with lock, into.open("a") as file:
            file.write(json.dumps(asdict(found)) + "\n")

    threads = [
        threading.Thread(target=read, args=(queue, number % len(uris)), daemon=True)
        for number, queue in enumerate(QUEUES)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def found_in(path: Path) -> dict[str, Found]:
    """What :func:`read_all` wrote, by queue."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {found.queue: found for found in (Found(**json.loads(line)) for line in lines)}


def _read(found: Found, uris: Sequence[str], until: float) -> None:
    final = time.monotonic() + _FINAL_S
    life = 0
    while time.monotonic() < until:
        try:
            with _channel(uris[life % len(uris)]) as channel:
                channel.queue_declare(found.queue, passive=True)
                channel.confirm_delivery()
                channel.basic_publish("", found.queue, PROBE, PERSISTENT, mandatory=True)
                found.is_served = _drain(found, channel)
                return
        except (pika.exceptions.ChannelClosedByBroker, pika.exceptions.ConnectionClosedByBroker) as error:
            found.words = f"{error.reply_code} {error.reply_text}"
            if time.monotonic() > final:
                return
        except (pika.exceptions.AMQPError, OSError) as error:
            found.words = f"{type(error).__name__}: {error}"
        life += 1
        threading.Event().wait(_PAUSE_S)


def _drain(found: Found, channel: Any) -> bool:
    """Take everything in front of the probe; whether the probe came. With acknowledgements: what is under way when a
    queue gets another leader would be lost without them."""
    for method, _, body in channel.consume(found.queue, inactivity_timeout=_ANSWER_S):
        if method is None:
            return False
        channel.basic_ack(method.delivery_tag)
        if body == PROBE:
            return True
        try:
            name, number = body.partition(b":")[0].decode().split("/")
            if name != found.queue:
                found.wrong.append(f"a message of {name} came out of {found.queue}")
            found.numbers.append(int(number))
            found.flagged.append(bool(method.redelivered))
        except ValueError:
            found.wrong.append(f"{found.queue} delivered octets that nobody sent: {body[:40]!r}")
    return False


def problems(book: Book, found: Found) -> list[str]:
    """What no queue may do, whatever befell it: invent, change the order, or deliver twice without the flag."""
    wrong, last, seen = list(found.wrong), -1, set[int]()
    for number, flagged in zip(found.numbers, found.flagged, strict=True):
        if number >= book.sent:
            wrong.append(f"{found.queue} delivered message {number}, which nobody sent")
        if not flagged and number in seen:
            wrong.append(f"{found.queue} delivered message {number} twice without the flag")
        if not flagged and number < last:
            wrong.append(f"{found.queue} delivered message {number} behind {last}")
        seen.add(number)
        last = max(last, number)
    return wrong


def _number(body: bytes) -> int:
    return int(body.partition(b":")[0].rpartition(b"/")[2])


@contextmanager
def _channel(uri: str) -> Iterator[Any]:
    parameters = pika.URLParameters(uri)
    parameters.socket_timeout = parameters.stack_timeout = parameters.blocked_connection_timeout = _ANSWER_S
    connection = pika.BlockingConnection(parameters)
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()
