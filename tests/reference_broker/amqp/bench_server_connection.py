"""CPU per message of the server side's hot paths: ``python tests/reference_broker/amqp/bench_server_connection.py``.

Thread CPU time, best of several rounds, 1 KB bodies with delivery mode 2. Memory is reused from round to round, which a
broker under load only does with a tuned allocator: fresh pages cost about 0.6 us per KB on top.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import click
from pamqp import commands

from reference_broker.amqp.events import Publish
from reference_broker.message_run import MessageRun
from tests.reference_broker.amqp.testing import ScriptedClient, method, publish

Properties = commands.Basic.Properties
BODY = b"x" * 1024


def cpu_us(action: Callable[[], object], rounds: int = 200) -> float:
    """Microseconds of one call of ``action``."""
    best = float("inf")
    for _ in range(7):
        start = time.thread_time_ns()
        for _ in range(rounds):
            action()
        best = min(best, (time.thread_time_ns() - start) / rounds)
    return best / 1000


def report(what: str, action: Callable[[], object], messages: int, rounds: int = 200) -> None:
    """One line of the table."""
    each = cpu_us(action, rounds)
    click.echo(f"{what:<42}{each:>10.2f} us a call {each / messages:>10.3f} us a message")


def run_of(octets: bytes) -> MessageRun:
    """The run that a publisher's octets become."""
    client = ScriptedClient()
    client.open()
    (event,) = client.raw(octets)
    assert isinstance(event, Publish)
    return event.run


def main() -> None:
    """Measure and print."""
    client = ScriptedClient()
    client.open()
    client.send(1, commands.Confirm.Select())
    client.consume()
    server = client.server
    one = publish(1, "queue", BODY, Properties(delivery_mode=2))
    for count in (1, 2, 5, 20, 60, 230):
        octets = one * count
        report(f"receive {count} publishes", lambda octets=octets: server.receive(octets, 0.0), count)  # type: ignore[misc]
    varied = [publish(1, "queue", BODY, Properties(delivery_mode=2, message_id=str(each))) for each in range(230)]
    report("receive 230 with a message id each", lambda: server.receive(b"".join(varied), 0.0), 230, 30)
    turns = itertools.cycle(varied)
    report("receive 1 with a message id each", lambda: server.receive(next(turns), 0.0), 1)

    def deliver(run: MessageRun, count: int) -> None:
        server.deliver(1, "c", server._channels[1].next_delivery_tag, [(run, 0, count, 1)], 0)
        server.take_output()

    uniform, ragged = run_of(one * 200), run_of(b"".join(varied[:200]))
    for count in (1, 20, 200):
        report(f"deliver {count}", lambda count=count: deliver(uniform, count), count)  # type: ignore[misc]
    report("deliver 200 of a ragged run", lambda: deliver(ragged, 200), 200)
    next_tag, given_out = itertools.count(1), 0
    for count in (1, 20, 200):
        batches = [
            b"".join(method(1, commands.Basic.Ack(next(next_tag))) for _ in range(count))
            for _ in range(20_000 // count)
        ]
        given_out += 20_000
        while server._channels[1].next_delivery_tag <= given_out:
            deliver(uniform, 200)
        acks = iter(batches)
        report(f"receive {count} acks", lambda acks=acks: server.receive(next(acks), 0.0), count, len(batches) // 7)  # type: ignore[misc]
    seq = itertools.count(1)

    def confirm() -> None:
        at = next(seq)
        server.confirm(1, at, at)
        server.flush_confirms()
        server.take_output()

    report("confirm 1 and flush", confirm, 1)


if __name__ == "__main__":
    main()
