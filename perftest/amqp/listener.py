"""The ports through which a connection hands its users the broker's messages."""

from __future__ import annotations

from typing import Protocol

from perftest.amqp.errors import ChannelClosedError
from perftest.amqp.events import Confirms, Delivery, DeliveryRun, Returned


class Listener(Protocol):
    """The user of a channel. ``now_ns`` is the time at which the event was read from the socket."""

    def on_confirms(self, event: Confirms, now_ns: int) -> None:
        """Publisher confirms of one kind."""

    def on_delivery(self, event: Delivery | DeliveryRun, now_ns: int) -> None:
        """One delivery, or a run. Its views are valid until this method returns."""

    def on_get_empty(self, now_ns: int) -> None:
        """A basic.get found nothing."""

    def on_returned(self, event: Returned, now_ns: int) -> None:
        """A mandatory message came back."""

    def on_cancelled(self) -> None:
        """The broker has cancelled the consumer on the channel."""

    def on_channel_closed(self, error: ChannelClosedError) -> None:
        """The broker has closed the channel, and no call was waiting for an answer on it."""

    def on_read_end(self) -> None:
        """All events of one read have been handed over: this is the moment to write."""

    def on_writable(self) -> None:
        """The socket takes octets again."""


class ConnectionListener(Protocol):
    """The user of the connection as a whole."""

    def on_blocked(self, reason: str) -> None:
        """The broker has sent connection.blocked."""

    def on_unblocked(self) -> None:
        """The broker has sent connection.unblocked."""
