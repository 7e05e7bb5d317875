"""What clients say: the conversations that the fuzzer begins with, as lists of frames."""

from __future__ import annotations

from collections.abc import Callable

from pamqp import commands
from pamqp.common import FieldValue

from tests.reference_broker.amqp.testing import PROTOCOL_HEADER, content, method, raw_frame

Basic, Channel, Connection = commands.Basic, commands.Channel, commands.Connection
Exchange, Queue, Tx = commands.Exchange, commands.Queue, commands.Tx

TABLE: dict[str, FieldValue] = {
    "text": "v", "flag": True, "small": 7, "large": 1 << 40, "nothing": None, "list": [1, "two", {"three": 3}],
    "table": {"in": {"in": "deep"}}, "CC": ["a", "b"], "BCC": ["c"], "x-death": [{"queue": "q", "count": 3}],
}  # fmt: skip
ALL_PROPERTIES = Basic.Properties(
    content_type="text/plain", content_encoding="gzip", headers=TABLE, delivery_mode=2, priority=3, correlation_id="c",
    reply_to="r", expiration="60000", message_id="m", message_type="t", user_id="guest", app_id="a",
)  # fmt: skip


def handshake(mechanism: str = "PLAIN", response: str = "\0guest\0guest") -> list[bytes]:
    """From the protocol header to an open connection."""
    capabilities = {"publisher_confirms": True, "basic.nack": True, "consumer_cancel_notify": True,
                    "connection.blocked": True, "authentication_failure_close": True}  # fmt: skip
    return [
        PROTOCOL_HEADER,
        method(0, Connection.StartOk({"capabilities": capabilities}, mechanism, response, "en_US")),
        method(0, Connection.TuneOk(2047, 131_072, 0)),
        method(0, Connection.Open("/")),
    ]


def message(channel: int, body: bytes, properties: Basic.Properties | None = None, **more: object) -> list[bytes]:
    """The frames of a basic.publish."""
    sent = method(channel, Basic.Publish(**({"routing_key": "q"} | more)))  # type: ignore[arg-type]
    return [sent, content(channel, body, properties, 40)]


def on_a_channel(*frames: bytes) -> list[bytes]:
    """A whole connection with one channel."""
    bye = [method(1, Channel.Close(200, "", 0, 0)), method(0, Connection.Close(200, "bye", 0, 0))]
    return [*handshake(), method(1, Channel.Open()), *frames, *bye]


def _declaring() -> list[bytes]:
    return on_a_channel(
        method(1, Queue.Declare(0, "q", durable=True, arguments={"x-queue-type": "quorum", **TABLE})),
        method(1, Queue.Declare(0, "", exclusive=True), Queue.Declare(0, "q", passive=True)),
        method(1, Exchange.Declare(0, "x", "topic", arguments={"alternate-exchange": "y"})),
        method(1, Queue.Bind(0, "q", "x", "a.*", False, TABLE), Exchange.Bind(0, "y", "x", "#")),
        method(1, Queue.Unbind(0, "q", "x", "a.*", TABLE), Exchange.Unbind(0, "y", "x", "#")),
        method(1, Queue.Purge(0, "q"), Queue.Delete(0, "q", True, True), Exchange.Delete(0, "x", True)),
    )


def _publishing() -> list[bytes]:
    confirm = method(1, commands.Confirm.Select())
    few = [*message(1, b"one"), *message(1, b"one"), *message(1, b"", ALL_PROPERTIES, exchange="x", mandatory=True)]
    return on_a_channel(confirm, *few, *message(1, b"x" * 500, ALL_PROPERTIES), method(1, Channel.Flow(True)))


def _consuming() -> list[bytes]:
    return on_a_channel(
        method(1, Basic.Qos(0, 10, False), Basic.Consume(0, "q", "c", arguments=TABLE), Basic.Consume(0, "q", "")),
        method(1, Basic.Ack(1), Basic.Ack(3, True)),
        method(1, Basic.Nack(4, False, True), Basic.Reject(5, False), Basic.Nack(0, True, False)),
        method(1, Basic.Get(0, "q", False), Basic.Ack(7), Basic.Get(0, "q", True), Basic.Recover(True)),
        method(1, Basic.Cancel("c"), Basic.RecoverAsync(True)),
    )


def _transactions() -> list[bytes]:
    return on_a_channel(
        method(1, Tx.Select(), Basic.Consume(0, "q", "c")), *message(1, b"one"), method(1, Basic.Ack(1), Tx.Commit()),
        *message(1, b"two"), method(1, Basic.Ack(3, True), Tx.Rollback(), Basic.Ack(2), Tx.Commit()),
    )  # fmt: skip


def _several_channels() -> list[bytes]:
    opened = method(1, Channel.Open()) + method(2, Channel.Open()) + method(2047, Channel.Open())
    mixed = [part for pair in zip(message(1, b"one"), message(2, b"two"), strict=True) for part in pair]
    ends = method(2, Channel.Close(200, "", 0, 0)) + method(2, Channel.Open()) + method(1, Channel.CloseOk())
    return [*handshake(), opened, *mixed, raw_frame(8, 0, b""), ends, method(0, Connection.UpdateSecret("guest", ""))]


def _amqplain() -> list[bytes]:
    response = b"\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x05guest".decode("latin-1")
    return [*handshake("AMQPLAIN", response), method(0, Connection.CloseOk())]


CONVERSATIONS: tuple[Callable[[], list[bytes]], ...] = (
    _declaring, _publishing, _consuming, _transactions, _several_channels, _amqplain,
)  # fmt: skip
