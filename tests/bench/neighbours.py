"""One client beside many that ask much: what a quiet publisher and a log-in feel of each attack."""

from __future__ import annotations

import base64
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from perftest.amqp.events import Confirms
from tests.bench.attackers import ATTACKS, BY_HTTP
from tests.bench.client import Client
from tests.bench.context import Broker, Context
from tests.bench.figures import BenchError

BENCHES: Final = tuple(f"neighbours: {attack}" for attack in ATTACKS)
RATE: Final = 50
_QUEUE: Final = "bench-quiet"
_LOGIN_EVERY_S: Final = 0.5
_TO_BEGIN_S: Final = 60.0
_LATE_S: Final = 60.0
"""Time for an answer of the management API."""
_AS_GUEST: Final = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


def measure(context: Context, names: list[str]) -> None:
    """All rounds of the attacks, each broker alone and attacked, in alternation."""
    with context.brokers() as brokers:
        for name in names:
            attack = name.removeprefix("neighbours: ")
            for _ in range(context.lengths.rounds):
                for broker in brokers:
                    if attack not in BY_HTTP or broker.cluster is not None:
                        context.note(name, broker.name, one(broker, attack, context.lengths.seconds))


def one(broker: Broker, attack: str, seconds: float) -> dict[str, float]:
    """The neighbour's figures, alone and attacked."""
    alone = Neighbour(broker, seconds).live()
    with attacked(broker, attack, seconds + 2):
        beside = Neighbour(broker, seconds).live()
    return {f"alone_{name}": value for name, value in alone.items()} | beside


@contextmanager
def attacked(broker: Broker, attack: str, seconds: float) -> Iterator[None]:
    """The attack goes on."""
    address = _api(broker) if attack in BY_HTTP else broker.uris[0]
    command = [sys.executable, "-m", "tests.bench.attackers", attack, address, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attacker:
        assert attacker.stdout is not None
        if not attacker.stdout.readline():
            raise BenchError(f"the attack {attack!r} did not begin")
        yield
        attacker.wait(seconds + _TO_BEGIN_S)


def _api(broker: Broker) -> str:
    """The address of the management API; empty for RabbitMQ, whose API is a plugin that is not on."""
    node = broker.cluster.nodes[0] if broker.cluster else None
    return f"http://{node.host}:{node.metrics_port}" if node else ""


@dataclass(slots=True)
class Neighbour:
    """A publisher with confirms at a low rate, and somebody who logs in now and then and, at the bundled broker, looks
    at the overview of the management API."""

    broker: Broker
    seconds: float
    latencies_s: list[float] = field(default_factory=list)
    confirmed_s: list[float] = field(default_factory=list)
    logins_s: list[float] = field(default_factory=list)
    overviews_s: list[float] = field(default_factory=list)

    def live(self) -> dict[str, float]:
        """Publish and log in for so long."""
        over = threading.Event()
        others = [threading.Thread(target=probe, args=(over,)) for probe in (self._log_in, self._look)]
        with Client(self.broker.uris[0]) as client:
            client.declare(_QUEUE)
            for each in others:
                each.start()
            try:
                self._publish(client)
            finally:
                over.set()
                for each in others:
                    each.join()
            client.delete(_QUEUE)
        gaps = np.diff([0.0, *self.confirmed_s])
        return {
            "p50_ms": 1000 * float(np.percentile(self.latencies_s, 50)),
            "p99_ms": 1000 * float(np.percentile(self.latencies_s, 99)),
            "gap_ms": 1000 * float(max(gaps)),
            "login_ms": 1000 * float(np.median(self.logins_s)),
            "slowest_login_ms": 1000 * max(self.logins_s),
            **({"overview_ms": 1000 * float(np.median(self.overviews_s))} if self.overviews_s else {}),
        }

    def _publish(self, client: Client) -> None:
        """By a fixed schedule. Latency counts from the intended time."""
        publisher = threading.Thread(target=self._send, args=(client, began := time.monotonic()))
        client.begin_confirms()
        publisher.start()
        count, reached = round(self.seconds * RATE), 0
        while reached < count:
            for event in client.read():
                if not isinstance(event, Confirms):
                    continue
                now = time.monotonic() - began
                last = int(event.tags[-1])
                self.latencies_s += [now - number / RATE for number in range(reached, last)]
                self.confirmed_s += [now] * (last > reached)
                reached = max(reached, last)
        publisher.join()

    def _send(self, client: Client, began: float) -> None:
        for number in range(round(self.seconds * RATE)):
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
            client.publish_one(_QUEUE)

    def _log_in(self, over: threading.Event) -> None:
        while not over.wait(_LOGIN_EVERY_S):
            began = time.monotonic()
            with Client(self.broker.uris[0]):
                self.logins_s.append(time.monotonic() - began)

    def _look(self, over: threading.Event) -> None:
        if not (api := _api(self.broker)):
            return
        request = urllib.request.Request(f"{api}/api/overview", headers=_AS_GUEST)
        while not over.wait(_LOGIN_EVERY_S):
            began = time.monotonic()
            with urllib.request.urlopen(request, timeout=_LATE_S) as answer:
                answer.read()
            self.overviews_s.append(time.monotonic() - began)
