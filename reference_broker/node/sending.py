"""What a group's core wants sent: read from the log, encoded, and put on the links.

A mere notice of a commit waits a little for an entry to ride with, unless a client on the node waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from reference_broker.log.errors import EntryGoneError, SnapshotGoneError
from reference_broker.log.system import LogSystem
from reference_broker.node.node_ports import NodePorts
from reference_broker.node.peers import Kind
from reference_broker.raft import wire
from reference_broker.raft.messages import InstallSnapshot
from reference_broker.raft.ready import Ready, Send, SendEntries, SendSnapshot
from reference_broker.types import GroupId, NodeId

READ_MAX: Final = 1 << 40
"""A range that the core asked to send is sent whole: the core bounds it in entries, the batch limit in octets."""


class Sender:
    """The messages of one member of one group."""

    __slots__ = ("_group", "_has_clients_on", "_log", "_node", "_put_off", "_stopped", "sending_snapshot")

    def __init__(
        self, group: GroupId, log: LogSystem, node: NodePorts, has_clients_on: Callable[[NodeId], bool]
    ) -> None:
        self._group = group
        self._log = log
        self._node = node
        self._has_clients_on = has_clients_on
        self._put_off: dict[NodeId, SendEntries] = {}  # notices of a commit that nobody on the node waits for
        self.sending_snapshot = False
        self._stopped = False

    def send_all(self, ready: Ready) -> None:
        """Every message of a Ready."""
        for outgoing in ready.messages:
            match outgoing:
                case SendEntries():
                    self._send_entries(outgoing)
                case Send():
                    self._node.send(outgoing.to, Kind.RAFT, wire.encode(self._group, outgoing.message))
                case SendSnapshot():
                    self._send_snapshot(outgoing)

    def forget(self) -> None:
        """What was put off speaks of a role that is over."""
        self._put_off.clear()

    def stop(self) -> None:
        """The group is gone from this node."""
        self._stopped = True

    def release_snapshot(self) -> None:
        """Nobody needs it any more: the log may drop it."""
        self.sending_snapshot = False
        self._log.release_snapshot(self._group)

    def _send_entries(self, send: SendEntries) -> None:
        """Send entries; a mere notice of a commit goes with the next ones, or soon, if no client of the node waits."""
        if send.last < send.first and send.commit and not self._has_clients_on(send.to):
            if not self._put_off:
                self._node.later(self._node.limits.commit_notice_delay_ms / 1000, self._send_put_off)
            self._put_off[send.to] = send
            return
        self._put_off.pop(send.to, None)
        self._send_now(send)

    def _send_put_off(self) -> None:
        put_off, self._put_off = self._put_off, {}
        for send in put_off.values() if not self._stopped else ():
            self._send_now(send)

    def _send_now(self, send: SendEntries) -> None:
        try:
            entries = self._log.entries(self._group, send.first, send.last, READ_MAX) if send.last >= send.first else []
        except EntryGoneError:
            return  # compacted while the message waited for a vote to be synced; the core asks again, and sees
        self._node.send(send.to, Kind.RAFT, wire.encode_append(self._group, send, self._node.node, entries))

    def _send_snapshot(self, send: SendSnapshot) -> None:
        try:
            index, term, data, last = self._log.snapshot_chunk(self._group, send.number)
            if send.number == 1 and index < send.index:
                # One that is pinned for an earlier transfer: a follower that gets it would need the next one at once.
                self._log.release_snapshot(self._group)
                index, term, data, last = self._log.snapshot_chunk(self._group, 1)
        except SnapshotGoneError:
            return  # the core asks again, from the first chunk of the one that is there then
        self.sending_snapshot = True
        message = InstallSnapshot(
            term=send.term,
            leader=self._node.node,
            index=index,
            index_term=term,
            number=send.number,
            last=last,
            data=data,
        )
        self._node.send(send.to, Kind.RAFT, wire.encode(self._group, message))
