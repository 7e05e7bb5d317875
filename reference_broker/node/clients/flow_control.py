"""Flow control: when the node stops reading a client's socket, and when it reads on.

The socket is not read in four cases: more than ``publish_bytes_max`` octets or ``publish_commands_max`` commands of the
client's publishes wait for their commit; the client published during an alarm of any node; too many octets wait behind
busy channels; or octets that were read wait for their turn. A client that is not read cannot send: TCP tells it so.

Octets that a client does not read are bounded elsewhere (:mod:`~reference_broker.node.clients.behind`).
"""

from __future__ import annotations

import asyncio
from typing import Final

from reference_broker.amqp.connection import ServerConnection
from reference_broker.node.alarms import Alarms
from reference_broker.node.config import Limits
from reference_broker.node.hosting.slices import Input

_HELD_OCTETS_MAX: Final = 1 << 20
"""The most octets that wait behind the busy channels of a connection while it is read."""


class FlowControl:
    """The valve of one connection."""

    __slots__ = (
        "_alarms",
        "_core",
        "_input",
        "_limits",
        "has_hung_up",
        "is_blocked",
        "is_reading",
        "unconfirmed_bytes",
        "unconfirmed_commands",
    )

    def __init__(self, core: ServerConnection, waiting: Input, alarms: Alarms, limits: Limits) -> None:
        """``waiting``: the read and unhandled octets."""
        self._core = core
        self._input = waiting
        self._alarms = alarms
        self._limits = limits
        self.unconfirmed_bytes = 0
        self.unconfirmed_commands = 0
        """Publishes that wait for their commit; the publishing code counts them here."""
        self.is_blocked = False
        """The client published during an alarm: the socket is not read until the alarm is over."""
        self.is_reading = True
        self.has_hung_up = False
        """The client has closed a socket that is not read. The node reads the remaining octets in spite of all limits,
        so that the connection ends and returns its messages."""

    @property
    def state(self) -> str:
        """RabbitMQ's word for how the connection fares: whether an alarm or its own publishes keep it from being
        read."""
        if self.is_blocked:
            return "blocked"
        if self._alarms.reason:
            return "blocking"
        return "running" if self.is_reading else "flow"

    def published(self) -> None:
        """Note a publish. While an alarm of any node is on, tell the client and stop reading its socket."""
        if self._alarms.reason and not self.is_blocked:
            self.is_blocked = True
            self._core.blocked(self._alarms.reason)

    def alarms_changed(self) -> None:
        """Tell the client of the end of an alarm; or block it for half a message, which takes memory, too."""
        if self.is_blocked and not self._alarms.reason:
            self.is_blocked = False
            self._core.unblocked()
        elif self._core.receives_content:
            self.published()

    def regulate(self, transport: asyncio.Transport) -> None:
        """Open or shut the valve. The valve opens at half the limits that shut it, so that it does not flutter."""
        limits, share = self._limits, 1 if self.is_reading else 2
        stands = (
            self.unconfirmed_bytes > limits.publish_bytes_max // share
            or self.unconfirmed_commands > limits.publish_commands_max // share
            or self.is_blocked
            or self._core.unread.held_octets > _HELD_OCTETS_MAX
        )
        wanted = (self.has_hung_up or not stands) and not self._input.waits
        if wanted != self.is_reading:
            self.is_reading = wanted
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()
