"""Publishers and consumers that live through anything, and the account they keep. They know AMQP and nothing else.

A message's body names its publisher, the publisher's channel and its number there. A publisher that loses its
connection goes on on another node with a new channel; what was not confirmed by then may have been kept or not, and is
never sent again. So at the end:

- *lost*: confirmed and never delivered;
- *invented*: delivered and never published;
- *out of order*: on one consumer's channel, a message that is not marked redelivered behind a later one of its channel;
- *unmarked*: delivered twice without being marked redelivered;
- *late*: delivered unmarked behind another delivery. A node that is killed may leave such a copy in the socket of a
  client that reads it later; a node that was paused must not deliver one when it goes on.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pamqp import commands, frame, header
from pamqp.base import Frame as Method
from pamqp.body import ContentBody

from perftest.amqp.connection import ClientConnection
from perftest.amqp.events import (
    ChannelEnded,
    Confirms,
    ConnectionEnded,
    ConsumerCancelled,
    Delivery,
    DeliveryRun,
    Event,
    Reply,
)
from perftest.amqp.methods import encode
from perftest.amqp.uri import parse_uri

QUEUE = "storm"
QUORUM = {"x-queue-type": "quorum"}
_SIZE = 200
_BODY = struct.Struct(">III")  # publisher, channel, number
_REQUEUE_SHARE = 0.02
_POLL_S = 0.02
_CALL_TIMEOUT_S = 10.0

_ENDS = (ConnectionEnded, ChannelEnded, ConsumerCancelled)
"""Events behind which a client begins anew."""

Message = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Load:
    """Of each publisher: bursts of so many messages, unless so many are unconfirmed. Of each consumer: its prefetch."""

    burst: int = 10
    every_s: float = 0.03
    window: int = 200
    prefetch: int = 50


HEAVY = Load(burst=50, every_s=0.005, window=2000, prefetch=500)
"""More than the nodes can do: at any moment something is under way."""


_LIGHT = Load()
_CLIENTS = 3
"""So many publishers, and so many consumers."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node listens. ``enter`` takes the calling thread to where the clients of the node live."""

    port: int
    host: str = "127.0.0.1"
    enter: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class LoadedQueue:
    """The queue that clients declare and use."""

    name: str = QUEUE
    arguments: Mapping[str, str] = field(default_factory=lambda: QUORUM)


STORM = LoadedQueue()


class LostError(Exception):
    """The connection or its channel is gone."""


class Connection:
    """One connection with channel 1 open, over a socket of its own."""

    def __init__(self, port: int, name: str, host: str = "127.0.0.1") -> None:
        self._core = ClientConnection(parse_uri(f"amqp://guest:guest@{host}:{port}/%2f"), name=name)
        self.events: list[Event] = []
        try:
            self._socket = socket.create_connection((host, port), timeout=_CALL_TIMEOUT_S)
        except OSError as error:
            raise LostError from error
        self._until(lambda: self._core.stage.name == "RUNNING")
        self.call(commands.Channel.Open())

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, method: Method) -> None:
        """A method and its answer; other events are kept for :meth:`take`."""
        self.send(encode(1, method))
        before = len(self.events)
        self._until(lambda: any(isinstance(event, Reply) for event in self.events[before:]))
        self.events = [event for event in self.events if not isinstance(event, Reply)]

    def send(self, octets: bytes) -> None:
        """Write all of it."""
        try:
            self._socket.sendall(octets)
        except OSError as error:
            raise LostError from error

    def take(self, timeout_s: float) -> list[Event]:
        """What came until now, or within the time."""
        if not self.events:
            self._read(timeout_s)
        events, self.events = self.events, []
        return events

    def _until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _CALL_TIMEOUT_S
        try:
            while not done():
                self._read(_POLL_S)
                if time.monotonic() > deadline:
                    raise LostError
        except LostError:
            self._socket.close()
            raise

    def _read(self, timeout_s: float) -> None:
        self.send(self._core.take_output())
        self._socket.settimeout(max(timeout_s, 0.001))
        try:
            octets = self._socket.recv(65_536)
        except TimeoutError:
            octets = None
        except OSError as error:
            raise LostError from error
        self._socket.settimeout(_CALL_TIMEOUT_S)
        if octets is None:
            return
        events = self._core.receive(octets)
        for event in events:  # bodies of runs are views into the buffer
            self.events += _single(event) if isinstance(event, DeliveryRun) else [event]
        self.send(self._core.take_output())
        if not octets or any(isinstance(event, _ENDS) for event in events):
            raise LostError


def _single(run: DeliveryRun) -> Iterator[Event]:
    for offset in range(len(run)):
        yield Delivery(run.channel, run.first_tag + offset, bool(run.redelivered[offset]), run.bodies[offset].tobytes())


@dataclass(slots=True)
class Account:
    """What was published, confirmed and delivered, and when (monotonic clock): ``delivered`` has the time of the first
    delivery, ``confirms_at`` is of all publishers, and by the numbers of clients there are the times of confirms, of
    deliveries, and of the ends of connections. ``late`` has how many seconds late each of those was."""

    published: dict[tuple[int, int], int] = field(default_factory=dict)
    confirmed: set[Message] = field(default_factory=set)
    delivered: dict[Message, float] = field(default_factory=dict)
    unmarked: set[Message] = field(default_factory=set)
    confirms_at: list[float] = field(default_factory=list)
    confirms_of: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    deliveries_of: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    ends_of: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)
    late: list[tuple[float, str]] = field(default_factory=list)
    redelivered: int = 0

    def note(self, message: Message, *, redelivered: bool, last: dict[tuple[int, int], int], consumer: str) -> None:
        """A delivery; ``last`` is the highest number by channel that this consumer's channel got unmarked."""
        publisher, channel, number = message
        if number >= self.published.get((publisher, channel), 0):
            self.wrong.append(f"{consumer} got {message}, which was never published")
        if redelivered:
            self.redelivered += 1
        else:
            if message in self.delivered:
                late_s = time.monotonic() - self.delivered[message]
                self.late.append((late_s, f"{consumer} got {message} {late_s:.3f} s behind another delivery of it"))
            if message in self.unmarked:
                self.wrong.append(f"{consumer} got {message} again, not marked redelivered")
            if number <= last.get((publisher, channel), -1):
                self.wrong.append(f"{consumer} got {message} behind {last[publisher, channel]}")
            last[publisher, channel] = number
            self.unmarked.add(message)
        self.delivered.setdefault(message, time.monotonic())

    def lost(self) -> list[Message]:
        """Confirmed and never delivered."""
        return sorted(self.confirmed - self.delivered.keys())

    def longest_gap_s(self, start: float, stop: float) -> float:
        """The longest time without a confirm that touches the span from ``start`` to ``stop`` (monotonic clock)."""
        times = [t for t in self.confirms_at if start <= t <= stop]
        before = [t for t in self.confirms_at if t < start][-1:] or [start]
        edges = [*before, *times]
        return max((b - a for a, b in pairwise(edges)), default=stop - start)


class Clients:
    """Threads of publishers and consumers over all nodes. A context: they end with it.

    A client that loses its connection goes on at the next node. A client that is ``pinned`` stays with its node.
    """

    def __init__(
        self,
        places: Sequence[int | Place],
        seed: int,
        load: Load = _LIGHT,
        *,
        consuming: bool = True,
        queue: LoadedQueue = STORM,
        pinned: bool = False,
    ) -> None:
        self.account = Account()
        self._load = load
        self._places = [Place(place) if isinstance(place, int) else place for place in places]
        self._queue = queue
        self._pinned = pinned
        self._seed = seed
        self._publishing = threading.Event()
        self._over = threading.Event()
        self._publishing.set()
        self._consuming = threading.Event()
        if consuming:
            self._consuming.set()
        self._threads = [
            threading.Thread(target=self._living, args=(run, number))
            for run in (self._publish, self._consume)
            for number in range(_CLIENTS)
        ]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._publishing.clear()
        self._over.set()
        for thread in self._threads:
            thread.join()

    def stop_publishing(self) -> None:
        """No more publishes; confirms that are on their way still count."""
        self._publishing.clear()

    def start_consuming(self) -> None:
        """Let consumers begin that were made not to, or that were stopped: until then all that is confirmed waits."""
        self._consuming.set()

    def stop_consuming(self) -> None:
        """Let consumers acknowledge nothing more until :meth:`start_consuming`, so that they soon get nothing more.
        They go on reading: what they read late would count as delivered late."""
        self._consuming.clear()

    def _living(self, run: Callable[[Connection, int, int], None], number: int) -> None:
        """Connect, each time with a new channel, until all is over."""
        life = 0
        while not self._over.is_set():
            place = self._places[(number + (0 if self._pinned else life)) % len(self._places)]
            life += 1
            try:
                place.enter()
                with Connection(place.port, f"{run.__name__} {number}", place.host) as connection:
                    queue = self._queue
                    connection.call(
                        commands.Queue.Declare(queue=queue.name, durable=True, arguments=dict(queue.arguments))
                    )
                    run(connection, number, life)
            except LostError:
                self.account.ends_of[number].append(time.monotonic())
                self._over.wait(_POLL_S)
            except Exception as error:
                self.account.wrong.append(f"{run.__name__} {number}: {type(error).__name__}: {error}")
                raise

    def _publish(self, connection: Connection, publisher: int, life: int) -> None:
        connection.call(commands.Confirm.Select())
        account, key = self.account, (publisher, life)
        head = encode(1, commands.Basic.Publish(exchange="", routing_key=self._queue.name))
        persistent = commands.Basic.Properties(delivery_mode=2)
        head += frame.marshal(header.ContentHeader(body_size=_SIZE, properties=persistent), 1)
        sent, unconfirmed, load = 0, set[int](), self._load
        due = time.monotonic()
        while not self._over.is_set():
            if self._publishing.is_set() and len(unconfirmed) < load.window and time.monotonic() >= due:
                due = time.monotonic() + load.every_s
                numbers = range(sent, sent + load.burst)
                sent += load.burst
                account.published[key] = sent  # before it can be delivered
                unconfirmed |= set(numbers)
                bodies = (_BODY.pack(publisher, life, number).ljust(_SIZE, b".") for number in numbers)
                connection.send(b"".join(head + frame.marshal(ContentBody(body), 1) for body in bodies))
            for event in connection.take(_POLL_S):
                if isinstance(event, Confirms):
                    tags = [int(tag) - 1 for tag in event.tags]
                    told = {number for number in unconfirmed if number <= tags[-1]} if event.multiple else set(tags)
                    unconfirmed -= told
                    if not event.nack:
                        account.confirmed |= {(publisher, life, number) for number in told}
                        account.confirms_at.append(time.monotonic())
                        account.confirms_of[publisher].append(account.confirms_at[-1])

    def _consume(self, connection: Connection, consumer: int, life: int) -> None:
        while not self._consuming.wait(_POLL_S):
            if self._over.is_set():
                return
        chance = random.Random(f"{self._seed}/{consumer}/{life}")
        name, last = f"consumer {consumer}, life {life}", dict[tuple[int, int], int]()
        connection.call(commands.Basic.Qos(prefetch_count=self._load.prefetch))
        connection.call(commands.Basic.Consume(queue=self._queue.name))
        owed: list[bytes] = []
        while not self._over.is_set():
            if owed and self._consuming.is_set():
                connection.send(b"".join(owed))
                owed.clear()
            for event in connection.take(_POLL_S):
                if isinstance(event, Delivery):
                    message = _BODY.unpack_from(event.body)
                    self.account.note(message, redelivered=event.redelivered, last=last, consumer=name)
                    self.account.deliveries_of[consumer].append(time.monotonic())
                    requeue = not event.redelivered and chance.random() < _REQUEUE_SHARE
                    answer = commands.Basic.Nack(event.tag, requeue=True) if requeue else commands.Basic.Ack(event.tag)
                    owed.append(encode(1, answer))
