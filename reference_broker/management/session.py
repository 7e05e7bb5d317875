"""What an HTTP request does to queues and exchanges: it does it as an AMQP client of its own node.

The client is in the same process and has no socket. Its octets go through the same protocol core, the same checks and
the same permissions as those of any client, as the user who asked. So the API can do nothing that AMQP forbids, and
refuses in the same words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from struct import error
from types import TracebackType
from typing import Any, Final, Self

from pamqp import base, body, commands, frame, header

from reference_broker.amqp.config import ConnectionConfig
from reference_broker.management.errors import BAD_REQUEST, ApiError
from reference_broker.node.clients.authorization import ClientGate, NodeAccess
from reference_broker.node.clients.client_connection import ClientConnection
from reference_broker.node.shard import Shard

_CHANNEL: Final = 1
_HEADER: Final = b"AMQP\x00\x00\x09\x01"
_TIMEOUT_S: Final = 30.0
_BODY_MAX: Final = 100_000
_PROPERTIES: Final = {"product": "management API", "capabilities": {"basic.nack": True, "publisher_confirms": True}}

Heard = base.Frame | header.ContentHeader | body.ContentBody


_UNCHECKED: Final[dict[type[base.Frame], type[base.Frame]]] = {}


def method(kind: type[base.Frame], **fields: object) -> base.Frame:
    """A method with these fields. pamqp allows fewer names of queues and exchanges than AMQP does, so nothing is
    checked here: that is the broker's affair."""
    unchecked = _UNCHECKED.get(kind)
    if unchecked is None:
        unchecked = type(kind.__name__, (kind,), {"validate": lambda _self: None})
        _UNCHECKED[kind] = unchecked
    made = unchecked()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class RefusedError(Exception):
    """The broker closed the channel or the connection. ``code`` is AMQP's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class _KnownUser(ClientGate):
    """The gate of a user who has logged in already, over HTTP or as an operator."""

    def __init__(self, access: NodeAccess, user: str) -> None:
        super().__init__(access)
        self.certificate_user = user

    def meet(self, peer: object, certificate: object) -> None:
        """Nobody dialled."""

    def why_no_channel(self, user: str) -> str:
        """A node that is short of memory is helped by requests to purge and delete."""
        return self._access.why_no_channel(user)


class _Transport(asyncio.Transport):
    """Hands what the broker writes to the session."""

    def __init__(self, session: ManagementSession) -> None:
        super().__init__()
        self._session = session
        self._is_closing = False

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self._session.heard(b"".join(bytes(each) for each in list_of_data))

    def write(self, data: Any) -> None:
        self._session.heard(bytes(data))

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    def pause_reading(self) -> None:
        """What the session sends is small."""

    def resume_reading(self) -> None:
        """It was never paused."""


class ManagementSession:
    """One channel of one user, for the length of a request.

    Methods raise :class:`RefusedError`, and TimeoutError if the broker has no answer in time: what was asked for may
    still be done.
    """

    def __init__(self, shard: Shard, user: str, vhost: str) -> None:
        gate = _KnownUser(shard.access, user)
        self._connection = ClientConnection(shard, ConnectionConfig(gate=gate, heartbeat_s=0), gate)
        self._transport = _Transport(self)
        self._vhost = vhost
        self._unread = b""
        self._heard: asyncio.Queue[Heard] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        self._connection.connection_made(self._transport)
        self._send_octets(_HEADER)
        start_ok = commands.Connection.StartOk(_PROPERTIES, "EXTERNAL", "", "en_US")  # type: ignore[arg-type]
        self._send(0, start_ok, commands.Connection.TuneOk(2047, 131_072, 0), commands.Connection.Open(self._vhost))
        self._send(_CHANNEL, commands.Channel.Open())
        try:
            await self._until(commands.Channel.OpenOk)
        except BaseException:
            self._connection.connection_lost(None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.connection_lost(None)

    async def call(self, asked: base.Frame, answer: type[base.Frame]) -> Any:
        """Send a method, and wait for its answer. Raises ApiError if a field is no value of AMQP."""
        self._send(_CHANNEL, asked)
        return await self._until(answer)

    async def publish(
        self, exchange: str, routing_key: str, properties: commands.Basic.Properties, payload: bytes
    ) -> bool:
        """Publish a message, and wait for its confirm. Returns whether a queue got it."""
        await self.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        asked = method(commands.Basic.Publish, exchange=exchange, routing_key=routing_key, mandatory=True)
        parts = [payload[at : at + _BODY_MAX] for at in range(0, len(payload), _BODY_MAX)]
        frames: list[Heard] = [asked, header.ContentHeader(0, len(payload), properties), *map(body.ContentBody, parts)]
        self._send(_CHANNEL, *frames)
        is_routed = True
        while True:
            heard = await self._next()
            if isinstance(heard, commands.Basic.Return):
                is_routed = False
            elif isinstance(heard, commands.Basic.Ack):
                return is_routed
            elif isinstance(heard, commands.Basic.Nack):
                return False

    async def get(self, queue: str, *, no_ack: bool) -> tuple[Any, Any, bytes] | None:
        """The next message of a queue: its method, properties and payload; None if the queue is empty."""
        self._send(_CHANNEL, method(commands.Basic.Get, queue=queue, no_ack=no_ack))
        found = await self._next()
        if isinstance(found, commands.Basic.GetEmpty):
            return None
        head = await self._next()
        assert isinstance(head, header.ContentHeader)
        payload = b""
        while len(payload) < head.body_size:
            part = await self._next()
            assert isinstance(part, body.ContentBody)
            payload += part.value or b""
        return found, head.properties, payload

    def send(self, told: base.Frame) -> None:
        """Send a method that has no answer."""
        self._send(_CHANNEL, told)

    def heard(self, octets: bytes) -> None:
        """The broker writes."""
        self._unread += octets
        while len(self._unread) >= 8:
            count, _channel, found = frame.unmarshal(self._unread)
            if not count:
                return
            self._unread = self._unread[count:]
            self._heard.put_nowait(found)  # type: ignore[arg-type]

    async def _until(self, answer: type[base.Frame]) -> Any:
        while not isinstance(heard := await self._next(), answer):
            pass
        return heard

    async def _next(self) -> Heard:
        heard = await asyncio.wait_for(self._heard.get(), _TIMEOUT_S)
        if isinstance(heard, commands.Channel.Close | commands.Connection.Close):
            raise RefusedError(heard.reply_code or 0, heard.reply_text)
        return heard

    def _send(self, channel: int, *frames: Heard) -> None:
        try:
            octets = b"".join(frame.marshal(each, channel) for each in frames)
        except (ValueError, TypeError, OverflowError, RecursionError, error) as wrong:
            raise ApiError(BAD_REQUEST, f"AMQP has no such value: {wrong}") from wrong
        self._send_octets(octets)

    def _send_octets(self, octets: bytes) -> None:
        self._connection.data_received(octets)
