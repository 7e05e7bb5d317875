"""What brokers do wrong, stage by stage: each is an event and a recovery, or the end of the run with its reason.

The cases of a running load are those that were seen on the wire of RabbitMQ, and those no broker should ever cause.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

import pytest
from pamqp import body, commands, frame, header

from perftest.amqp.errors import (
    AmqpError,
    BrokerProtocolError,
    ChannelClosedError,
    ConnectionClosedError,
    ConnectionLostError,
    LoginRefusedError,
    VhostRefusedError,
)
from perftest.engine.api import StopRequest
from perftest.engine.coordination.coordinator import execute
from perftest.engine.workers.failures import explain
from perftest.spec.behaviour import Connecting, Publishing
from perftest.spec.plan import Isolation, Plan, QueueSpec, Settings, Step
from tests.perftest.testing.session_run import PATIENCE_S, Run

SETTINGS = Settings(in_flight=20, prefetch=50, size_bytes=100)
Act = Callable[[Any, int], None]


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def sends(method: object, channel: int | None = None) -> Act:
    return lambda connection, at: connection.send(at if channel is None else channel, method)


def octets(data: bytes) -> Act:
    return lambda connection, _at: connection.send_octets(data)


def hangs_up(connection: Any, _channel: int) -> None:
    connection.transport.abort()


def closes(code: int, text: str = "for a reason") -> Act:
    return sends(commands.Connection.Close(code, text, 0, 0), 0)


def closes_channel(code: int, text: str = "for a reason") -> Act:
    return lambda connection, channel: connection.close_channel(channel, code, text)


BAD_END = frame.marshal(commands.Channel.OpenOk(), 1)[:-1] + b"\x00"
TOO_LARGE = struct.pack(">BHI", 1, 1, 1 << 24) + bytes(64)
CUT_OFF = frame.marshal(commands.Queue.DeclareOk("q0", 0, 0), 1)[:-5]
UNKNOWN_METHOD = struct.pack(">BHIHH", 1, 1, 4, 60, 999) + b"\xce"
SHORT_METHOD = struct.pack(">BHIHH", 1, 1, 4, 50, 11) + b"\xce"

AT_THE_START: dict[str, tuple[str, Act, type[AmqpError], str]] = {
    "login refused": ("Connection.StartOk", closes(403, "ACCESS_REFUSED"), LoginRefusedError, "user and password"),
    "stops at the login": ("Connection.StartOk", closes(320, "CONNECTION_FORCED"), ConnectionClosedError, "log"),
    "fails at the login": ("Connection.StartOk", closes(541, "INTERNAL_ERROR"), ConnectionClosedError, "log"),
    "takes no more logins": ("Connection.StartOk", closes(506, "RESOURCE_ERROR"), ConnectionClosedError, "log"),
    "does not allow the login": ("Connection.StartOk", closes(530, "NOT_ALLOWED"), ConnectionClosedError, "log"),
    "login ends in silence": ("Connection.StartOk", hangs_up, ConnectionLostError, "broker's log"),
    "more than a login": ("Connection.StartOk", sends(commands.Connection.Secure("x")), BrokerProtocolError, "AMQP"),
    "answers out of turn": ("Connection.StartOk", sends(commands.Connection.OpenOk()), BrokerProtocolError, "AMQP"),
    "virtual host unknown": ("Connection.Open", closes(530, "vhost x not found"), VhostRefusedError, "virtual host"),
    "virtual host down": ("Connection.Open", closes(541, "vhost is down"), VhostRefusedError, "virtual host is down"),
    "stops at the virtual host": ("Connection.Open", closes(320, "shutdown"), ConnectionClosedError, "log"),
    "too many connections": (
        "Connection.Open",
        closes(530, "connection limit (5) is reached"),
        VhostRefusedError,
        "fewer connections",
    ),
    "channel refused": ("Channel.Open", closes(504, "CHANNEL_ERROR"), ConnectionClosedError, "log"),
    "another answer": ("Channel.Open", sends(commands.Queue.BindOk()), BrokerProtocolError, "AMQP"),
    "not implemented": ("Queue.Declare", closes(540, "NOT_IMPLEMENTED"), ConnectionClosedError, "log"),
    "a table it cannot read": ("Queue.Declare", closes(501, "FRAME_ERROR"), ConnectionClosedError, "log"),
    "exchange type unknown": (
        "Queue.Declare",
        closes(503, "unknown exchange type 'x'"),
        ConnectionClosedError,
        "direct",
    ),
    "frame without end": ("Queue.Declare", octets(BAD_END), BrokerProtocolError, "AMQP"),
    "frame too large": ("Queue.Declare", octets(TOO_LARGE), BrokerProtocolError, "AMQP"),
    "unknown method": ("Queue.Declare", octets(UNKNOWN_METHOD), BrokerProtocolError, "AMQP"),
    "method cut short": ("Queue.Declare", octets(SHORT_METHOD), BrokerProtocolError, "AMQP"),
    "confirms refused": ("Confirm.Select", closes(540, "NOT_IMPLEMENTED"), ConnectionClosedError, "log"),
    "no permission to read": ("Basic.Consume", closes_channel(403), ChannelClosedError, "permission"),
    "consumer of a queue that is gone": ("Basic.Consume", closes_channel(404), ChannelClosedError, "declare"),
    "global prefetch": ("Basic.Qos", closes(540, "does not support global qos"), ConnectionClosedError, "-q in place"),
    "dies at the last step": ("Confirm.Select", hangs_up, ConnectionLostError, "broker's log"),
}


@pytest.mark.parametrize("method", ["Connection.StartOk", "Connection.Open"])
@pytest.mark.parametrize("code", [320, 506, 541])
def test_a_node_that_stops_during_the_handshake_is_tried_again(stub: ModuleType, method: str, code: int) -> None:
    """A start or a stop of a node passes by itself, whatever the client was saying."""

    async def scenario() -> None:
        script = stub.Script()

        def closes_once(connection: Any, channel: int) -> None:
            del script.instead[method]
            closes(code)(connection, channel)

        script.instead[method] = closes_once
        async with stub.StubBroker(script) as broker, asyncio.timeout(PATIENCE_S):
            run = Run(broker, SETTINGS)
            await run.open()
            await run.published(10)
            assert not script.instead
            await run.finish()

    play(scenario())


@pytest.mark.parametrize("case", AT_THE_START)
def test_what_goes_wrong_at_the_start_is_told_and_nothing_hangs(stub: ModuleType, case: str) -> None:
    method, act, error, fix = AT_THE_START[case]

    async def scenario() -> None:
        async with stub.StubBroker(stub.Script(instead={method: act})) as broker:
            run = Run(broker, SETTINGS, confirm_timeout_s=0.2)  # for those that are tried again
            with pytest.raises(error) as caught:
                async with asyncio.timeout(PATIENCE_S):
                    await run.open()
            told = explain(caught.value)
            assert fix in told.fix, told
            assert "127.0.0.1" in told.where, told
            assert "guest:guest" not in f"{told}"
            await run.abandon(delete=False)

    play(scenario())


async def flowing(broker: Any, **fields: Any) -> Run:
    run = Run(broker, SETTINGS, **fields)
    await run.open()
    await run.published(50)
    return run


def everywhere(broker: Any, act: Act) -> None:
    for connection in tuple(broker.connections):
        act(connection, 1)


def content(channel: int) -> bytes:
    return frame.marshal(header.ContentHeader(body_size=3), channel) + frame.marshal(body.ContentBody(b"abc"), channel)


PASSING: dict[str, tuple[Act, str]] = {
    "killed": (hangs_up, "connection_lost"),
    "stopped by an operator": (closes(320, "CONNECTION_FORCED"), "connection_lost"),
    "out of resources": (closes(506), "connection_lost"),
    "internal error": (closes(541), "connection_lost"),
    "killed in the middle of a frame": (
        lambda connection, at: (octets(CUT_OFF)(connection, at), connection.transport.close()),  # type: ignore[func-returns-value,return-value]
        "connection_lost",
    ),
    "channel: internal error": (closes_channel(541), "channel_closed"),
    "channel: too large": (closes_channel(311), "channel_closed"),
    "channel: out of resources": (closes_channel(506), "channel_closed"),
    "channel: the node of the queue is down": (
        closes_channel(404, "NOT_FOUND - home node 'b' of durable queue 'q0' in vhost '/' is down or inaccessible"),
        "channel_closed",
    ),
    "blocked, then killed": (
        lambda connection, at: (  # type: ignore[return-value]
            sends(commands.Connection.Blocked("low on memory"), 0)(connection, at),
            connection.transport.close(),
        ),
        "unblocked",
    ),
}


@pytest.mark.parametrize("case", PASSING)
@pytest.mark.parametrize("channels", [1, 3])
def test_what_passes_is_an_event_and_costs_no_message(stub: ModuleType, case: str, channels: int) -> None:
    act, event = PASSING[case]

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = await flowing(broker, publishing=Publishing(channels=channels))
            everywhere(broker, act)
            await run.until(lambda: run.events.count("reconnected") == 2)
            await run.published(100)
            record = await run.finish()
            assert event in run.events
            assert record["verdict"] == "ok", str(record)
            assert record["confirmed"] == record["published"] == record["unique"]

    play(scenario())


FINAL: dict[str, tuple[Act, type[AmqpError], str]] = {
    "frame error": (closes(501), ConnectionClosedError, "501"),
    "channel error": (closes(504), ConnectionClosedError, "504"),
    "unexpected frame": (closes(505), ConnectionClosedError, "505"),
    "not allowed": (closes(530), ConnectionClosedError, "530"),
    "not implemented": (closes(540), ConnectionClosedError, "540"),
    "channel: no permission": (closes_channel(403), ChannelClosedError, "403"),
    "channel: no exchange": (closes_channel(404), ChannelClosedError, "404"),
    "channel: locked": (closes_channel(405), ChannelClosedError, "405"),
    "channel: precondition": (closes_channel(406), ChannelClosedError, "406"),
    "noise": (octets(bytes(range(64))), BrokerProtocolError, "protocol"),
    "frame without end": (octets(BAD_END), BrokerProtocolError, "end octet"),
    "frame too large": (octets(TOO_LARGE), BrokerProtocolError, "agreed was"),
    "unknown method": (octets(UNKNOWN_METHOD), BrokerProtocolError, "decoded"),
    "method cut short": (octets(SHORT_METHOD), BrokerProtocolError, "decoded"),
    "an answer nobody asked for": (sends(commands.Queue.PurgeOk(3)), BrokerProtocolError, "nobody asked for"),
    "a second handshake": (sends(commands.Connection.Tune(1, 4096, 1), 0), BrokerProtocolError, "Tune"),
    "content from nowhere": (octets(content(1)), BrokerProtocolError, "content"),
    "closing what nobody closes": (sends(commands.Channel.CloseOk()), BrokerProtocolError, "nobody closes"),
    "confirm of the unpublished": (sends(commands.Basic.Ack(1 << 40)), BrokerProtocolError, str(1 << 40)),
}


@pytest.mark.parametrize("case", FINAL)
def test_what_does_not_pass_ends_the_run_with_its_reason(stub: ModuleType, case: str) -> None:
    act, error, says = FINAL[case]

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            run = await flowing(broker)
            publishing = next(one for one in broker.connections if not one.consumers)
            act(publishing, 1)
            async with asyncio.timeout(PATIENCE_S):
                while not run.failures:
                    await asyncio.sleep(0)
            told = explain(run.failures[0])
            assert isinstance(run.failures[0], error), run.failures
            assert says in told.what and "publisher 0" in told.where and "'q0'" in told.where, told
            assert {"connection_lost", "channel_closed"} & set(run.events)
            await run.abandon(delete=False)
            assert run.session.ledger(complete=False)["published"]

    play(scenario())


class Records:
    """A sink that acts after its first steady interval with something in it."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.intervals: list[Any] = []
        self.events: list[dict[str, Any]] = []
        self.ledgers: list[dict[str, Any]] = []
        self._act: Callable[[], None] | None = act

    def interval(self, record: Any) -> None:
        self.intervals.append(record)
        if self._act is not None and record.confirmed:
            act, self._act = self._act, None
            act()

    def event(self, record: dict[str, Any]) -> None:
        self.events.append(record)

    def ledger(self, record: dict[str, Any]) -> None:
        self.ledgers.append(record)


ENDS: dict[str, tuple[Callable[[Any], None], dict[str, Any], str]] = {
    "speaks nonsense": (lambda broker: everywhere(broker, octets(bytes(range(64)))), {}, "protocol"),
    "dies and recovery is off": (
        lambda broker: broker.drop_connections(),
        {"connecting": Connecting(recover=False)},
        "recovery is switched off",
    ),
    "dies for good": (lambda broker: broker.shut_now(), {"confirm_timeout_s": 0.3}, "cannot connect"),
    "deletes the exchange": (
        lambda broker: everywhere(broker, closes_channel(404, "no exchange 'x'")),
        {},
        "no exchange 'x'",
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_run_that_a_broker_ends_still_has_its_data_written(stub: ModuleType, case: str) -> None:
    act, fields, says = ENDS[case]

    async def scenario() -> None:
        async with stub.StubBroker() as broker:
            step = Step(number=1, label="", settings=SETTINGS, duration_s=600, warmup_s=0)
            plan = Plan.of(
                name="t",
                title="t",
                uris=(broker.uri,),
                queues=(QueueSpec(name="q"),),
                steps=(step,),
                isolation=Isolation.LIVE,
                interval_s=0.1,
                **fields,
            )
            sink = Records(lambda: act(broker))
            outcome = await execute(plan, sink, StopRequest())
            assert outcome.state == "failed" and outcome.error is not None
            assert says in outcome.error.what, outcome.error
            assert outcome.broker.product == "Stub"
            (ledger,) = sink.ledgers
            assert ledger["published"] >= ledger["confirmed"] > 0 and not ledger["complete"]
            assert sum(record.published for record in sink.intervals) == ledger["published"]
            assert [event["kind"] for event in sink.events[-2:]] == ["error", "run_ended"]

    play(scenario())
