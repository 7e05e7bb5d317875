"""Who handles what comes on a connection."""

from __future__ import annotations

from typing import Protocol

from perftest.amqp.errors import ChannelClosedError
from perftest.amqp.events import Confirms, Delivery, DeliveryRun, Returned


class Listener(Protocol):
    """Who handles what comes on a channel. ``now_ns`` is when it was read from the socket."""

    def on_confirms(self, event: Confirms, now_ns: int) -> None:
        """Publisher confirms of one kind."""

    def on_delivery(self, event: Delivery | DeliveryRun, now_ns: int) -> None:
        """One delivery, or a run; its views die when this returns."""

    def on_get_empty(self, now_ns: int) -> None:
        """A basic.get found nothing."""

    def on_returned(self, event: Returned, now_ns: int) -> None:
        """A mandatory message came back."""

    def on_cancelled(self) -> None:
        """The broker ended our consumer."""

    def on_channel_closed(self, error: ChannelClosedError) -> None:
        """The broker closed the channel and nobody was waiting for an answer on it."""

    def on_read_end(self) -> None:
        """Everything that came for the channel with one read has been handed over: the moment to write, once."""

    def on_writable(self) -> None:
        """The socket takes octets again."""


class ConnectionListener(Protocol):
    """Who hears of the connection itself."""

    def on_blocked(self, reason: str) -> None:
        """connection.blocked."""

    def on_unblocked(self) -> None:
        """connection.unblocked."""
