"""The links between the nodes: one TCP connection per pair, framed messages, a failure detector.

Of each pair of nodes, the node with the higher id dials. A dialler that gets no connection within ``dial_ms`` dials
anew. Both sides prove that they have the cluster's secret (:mod:`reference_broker.node.links.handshake`). Then they
exchange frames: a four-octet length and a body whose first octet is its kind. A link carries all Raft groups, so
heartbeats cost O(node pairs), not O(queues). A message that is larger than a frame goes in parts
(:mod:`~reference_broker.node.links.frame_parts`).

A link is *congested* while more octets wait on it than its connection takes at once. Small frames are sent all the
same. A sender of many octets asks ``Peers.congested`` first, and goes on when ``PeerEvents.peer_writable`` says so: the
octets for a slow peer stay in the log and do not pile up in memory.

A *stranger* is a connection without proof so far. A stranger may send short messages for ``handshake_ms``, a dialled
peer for ``suspect_after_ms`` at most. With more than ``strangers_max`` strangers the oldest has to go. Nothing that a
stranger says is written down.

A peer is *up* from its handshake until its link closes, or until it was silent for ``suspect_after_ms``. The socket of
a killed process closes at once, so silence finds only paused and partitioned nodes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Final, Protocol, cast

from reference_broker.node.config import FRAME_BYTES_MIN, Limits, Member, Tls
from reference_broker.node.links.boot_ids import BootIds, StaleDirectoryError
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.links.frame_parts import LENGTH, MESSAGE_MAX, Assembly, LinkBacklog
from reference_broker.node.links.handshake import NONCE_OCTETS, Handshake, HandshakeError, LinkSide
from reference_broker.node.links.link_octets import LinkOctets
from reference_broker.node.links.open_files import strangers_max
from reference_broker.node.links.strangers import Complaints, Strangers
from reference_broker.node.links.tls import TlsDoor, client_context, names, reason, server_context
from reference_broker.node.start_problems import listening
from reference_broker.types import NodeId

log = logging.getLogger(__name__)

_HIGH_WATER_FRAMES: Final = 2
"""Largest frames that wait on a link when it counts as congested."""
_DIAL_AGAIN_S: Final = 0.05
_DIAL_AGAIN_MAX_S: Final = 0.25
"""The longest pause before a peer is dialled again. It is short because nothing is confirmed while nodes that start
together wait for its end; a refusal costs 0.1 ms."""
_ANYBODY: Final = NodeId(0)
_NODE: Final = Struct(">I")
"""A node in a heartbeat, after the octet of the alarms."""


_PARTS: Final = frozenset({FrameKind.PART, FrameKind.LAST_PART})
_FOR_THE_NODE: Final = frozenset(FrameKind) - {FrameKind.HELLO, FrameKind.HEARTBEAT} - _PARTS


class PeerEvents(Protocol):
    """The receiver of what happens on the links."""

    def peer_up(self, node: NodeId, boot_id: int) -> None:
        """The peer proved who it is: messages sent from now on may reach it, earlier ones may be lost."""

    def peer_down(self, node: NodeId) -> None:
        """The link is gone or the peer is silent."""

    def stop(self, error: StaleDirectoryError | OSError) -> None:
        """This node must stop: its directory is an older copy, or it cannot write its files."""

    def peer_alarms(self, node: NodeId, alarms: int) -> None:
        """The peer's alarms have changed."""

    def peer_reaches(self, node: NodeId, reached: frozenset[NodeId]) -> None:
        """The peer says to which nodes it has a link, now that these have changed. This node is among them."""

    def peer_frame(self, node: NodeId, kind: int, body: memoryview) -> None:
        """A message of any kind but HELLO and HEARTBEAT, in one frame or several. ``body`` is valid only during the
        call. Raises ValueError for one that is damaged."""

    def peer_writable(self, node: NodeId) -> None:
        """The link to the peer is congested no more."""


class FrameReader:
    """Cuts a stream into frames without ever growing a buffer by concatenation (that would be quadratic)."""

    def __init__(self, frame_max: int) -> None:
        self.frame_max = frame_max
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = LENGTH.size

    def feed(self, data: bytes, handle: Callable[[memoryview], None]) -> None:
        """Call ``handle`` with the body of each frame that is complete now. Raises ValueError on an absurd length."""
        self._chunks.append(data)
        self._have += len(data)
        if self._have < self._need:
            return
        buffer = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        view, at, end = memoryview(buffer), 0, self._have
        self._need = LENGTH.size
        while end - at >= LENGTH.size:
            (length,) = LENGTH.unpack_from(buffer, at)
            if not 0 < length <= self.frame_max:
                raise ValueError(f"frame of {length} octets announced, the limit is {self.frame_max}")
            if end - at < LENGTH.size + length:
                self._need = LENGTH.size + length
                break
            at += LENGTH.size
            handle(view[at : at + length])
            at += length
        self._chunks = [buffer[at:]] if at < end else []
        self._have = end - at


class PeerLink(asyncio.Protocol):
    """One side of one connection, from the first octet to the last."""

    def __init__(self, peers: Peers, dialled: NodeId | None) -> None:
        self._peers = peers
        self._dialled = dialled
        self._handshake = peers.handshake(dialled)
        self._deadline: asyncio.TimerHandle | None = None
        self._reader = FrameReader(FRAME_BYTES_MIN)
        self._transport: asyncio.Transport | None = None
        self.node: NodeId | None = None
        """The peer, once it has proved who it is."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_ours_to_close = False
        self._frame_max = FRAME_BYTES_MIN
        """The largest frame that both sides take, known from the handshake."""
        self._small = peers.limits.small_message_bytes
        """Larger frames are counted, so that one turn does not put more on the link than the link can take."""
        self._assembly = Assembly()
        self._backlog = LinkBacklog(FrameKind.PART, FrameKind.LAST_PART)
        self._paused = False
        """The connection takes no more for now."""
        self._gathered: list[bytes | memoryview] = []
        self._gathered_large = 0
        """Octets of large frames among them."""
        self.last_heard = 0.0
        self._alarms = 0
        self._reached = b""
        """The nodes that the peer reaches, as its heartbeat says."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The dialler opens the handshake. Before this, there may never be a connection."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not its subclasses
        self._transport.set_write_buffer_limits(self._high_water)
        self.last_heard = self._peers.now()
        self._deadline = self._peers.link_made(self, self._too_slow)
        if self._dialled is not None:
            self.send(FrameKind.HELLO, [self._handshake.open()])

    @property
    def is_dialled(self) -> bool:
        """Whether this node made the connection."""
        return self._dialled is not None

    def data_received(self, data: bytes) -> None:
        """Frames in; anything that is not a frame of ours closes the link."""
        self.last_heard = self._peers.now()
        try:
            self._reader.feed(data, self._frame)
        except ValueError as error:
            if self.node is None:
                self._refuse(str(error))
            else:
                log.warning("peer link: %s; closing it", error)
                self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended: tell the owner, once."""
        self._in_time()
        if self.node is None and not self._is_ours_to_close:
            by_tls = reason(exc) if isinstance(exc, ssl.SSLError) else ""
            self._complain(by_tls or "closed by the other side in the handshake: its log may say why")
        self._peers.link_lost(self)
        if not self.closed.done():
            self.closed.set_result(None)

    def close(self) -> None:
        """Drop the connection without waiting for unsent octets."""
        self._is_ours_to_close = True
        if self._transport is not None:
            self._transport.abort()

    @property
    def _high_water(self) -> int:
        return _HIGH_WATER_FRAMES * self._peers.limits.peer_frame_bytes_max

    def send(self, kind: FrameKind, buffers: list[bytes | memoryview]) -> int:
        """Queue one message; returns its octets. Buffers must stay as they are until they are sent."""
        assert self._transport is not None
        size = 1 + sum(map(len, buffers))
        if self._transport.is_closing() or (
            (size > self._small or self._backlog.waiting) and self._waits(kind, size, buffers)
        ):
            return size
        frame = [LENGTH.pack(size) + bytes((kind,)), *buffers]
        if not self._peers.holds:
            self._transport.writelines(frame)
        elif self._gathered:
            self._gathered += frame
        else:
            self._peers.gathered[self] = None
            self._gathered = frame
        return size

    def _waits(self, kind: FrameKind, size: int, buffers: list[bytes | memoryview]) -> bool:
        """Put a message into the backlog if it does not fit into a frame, or one of its stream waits there already."""
        stream = _stream_of(kind, buffers)
        if size <= self._frame_max and not self._backlog.holds(stream):
            if self._peers.holds:
                self._count(size)
            return False
        if size > MESSAGE_MAX:
            text = "peer link: %d octets of kind %d for node %s are not sent: the largest message has %d"
            log.error(text, size, kind, self.node, MESSAGE_MAX)
            return True
        self._backlog.add(stream, size, [bytes((kind,)), *buffers])
        self._peers.link_congested(self)
        if self._peers.holds:
            self._peers.gathered[self] = None
        else:
            self._drain()
        return True

    def _count(self, size: int) -> None:
        """Count one more frame that gathers."""
        if size > self._small:
            self._gathered_large += size
            if self._gathered_large > self._high_water:
                self._peers.link_congested(self)

    def flush(self) -> None:
        """Write the gathered octets."""
        gathered, self._gathered, self._gathered_large = self._gathered, [], 0
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(gathered)
            if self in self._peers.congestions:
                self._drain()

    def pause_writing(self) -> None:
        """More waits than the connection takes."""
        self._paused = True
        self._peers.link_congested(self)

    def resume_writing(self) -> None:
        """The connection takes octets again."""
        self._paused = False
        self._drain()

    def _drain(self) -> None:
        """Write as much of the backlog as the connection takes. Tell the owner when nothing waits any more."""
        assert self._transport is not None
        while self._backlog.waiting and not self._paused and not self._transport.is_closing():
            self._transport.writelines(self._backlog.cut(self._frame_max))
        if not self._backlog.waiting and not self._paused:
            self._peers.link_writable(self)

    def _frame(self, body: memoryview) -> None:
        kind = body[0]
        if self.node is None:
            self._shake_hands(kind, body)
        elif kind in _FOR_THE_NODE:
            self._peers.events.peer_frame(self.node, kind, body[1:])
        elif kind in _PARTS:
            self._take_part(self.node, body[1:], last=kind == FrameKind.LAST_PART)
        elif kind != FrameKind.HEARTBEAT:
            raise ValueError(f"frame of unknown kind {kind}")
        else:
            self._heard(self.node, body)

    def _heard(self, node: NodeId, heartbeat: memoryview) -> None:
        """Tell the news of a heartbeat: its differences from the last one. Raises ValueError if it is cut off."""
        if (alarms := heartbeat[1] if len(heartbeat) > 1 else 0) != self._alarms:
            self._alarms = alarms
            self._peers.events.peer_alarms(node, alarms)
        if (reached := heartbeat[2:]) and reached != self._reached:
            if len(reached) % _NODE.size:
                raise ValueError(f"heartbeat with {len(reached)} octets of nodes")
            self._reached = bytes(reached)
            nodes = frozenset(NodeId(each) for (each,) in _NODE.iter_unpack(reached))
            self._peers.events.peer_reaches(node, nodes)

    def _take_part(self, node: NodeId, part: memoryview, *, last: bool) -> None:
        whole = self._assembly.add(part, last=last)
        if whole is not None:
            if not whole or whole[0] not in _FOR_THE_NODE:
                raise ValueError("parts of what is sent whole")
            self._peers.events.peer_frame(node, whole[0], whole[1:])

    def _shake_hands(self, kind: int, body: memoryview) -> None:
        if kind != FrameKind.HELLO:
            raise HandshakeError(f"a frame of kind {kind} came before the handshake was done")
        answer, peer = self._handshake.take(bytes(body[1:]))
        self._check_certificate()
        if answer:
            self.send(FrameKind.HELLO, [answer])
        if peer is None:
            return
        if not isinstance(peer.frame_max, int) or peer.frame_max < FRAME_BYTES_MIN:
            raise HandshakeError(
                f"node {peer.node} takes frames of {peer.frame_max!r} octets, not of {FRAME_BYTES_MIN}"
            )
        try:
            boot_id, _ = self._peers.boots.meet(peer.node, peer.boot, peer.known)
        except (StaleDirectoryError, OSError) as error:
            self._peers.events.stop(error)
            raise HandshakeError(str(error)) from error
        self._in_time()
        self._reader.frame_max = self._peers.limits.peer_frame_bytes_max
        self._frame_max = min(peer.frame_max, self._reader.frame_max)
        self._small = min(self._small, self._frame_max)
        self.node = peer.node
        self._peers.link_up(self, boot_id)

    def _check_certificate(self) -> None:
        """With TLS, the name of a node must be in its certificate. TLS has checked a dialled node."""
        assert self._transport is not None
        node, shown = self._handshake.node, names(self._transport) if self._dialled is None else None
        if shown is None or node is None:
            return
        if (name := self._peers.others[node].name) not in shown:
            raise HandshakeError(f"node {node} is {name}, and its certificate is for {', '.join(shown) or 'no name'}")

    def _refuse(self, reason: str) -> None:
        """Close once the other side has read the last message: it may learn from it that it has to stop."""
        self._complain(reason)
        self._is_ours_to_close = True
        if self._transport is not None:
            self._transport.close()

    def _in_time(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _too_slow(self) -> None:
        if not self._is_ours_to_close:
            self._complain(f"no handshake within {self._peers.handshake_ms(self)} ms")
        self.close()

    def _complain(self, reason: str) -> None:
        address = self._transport.get_extra_info("peername") if self._transport is not None else None
        where = f"{address[0]}:{address[1]}" if address else "an unknown address"
        side = "link from" if self._dialled is None else f"link to node {self._dialled} at"
        self._peers.complain(self._dialled or _ANYBODY, f"{side} {where} refused: {reason}")


def _stream_of(kind: FrameKind, buffers: list[bytes | memoryview]) -> int:
    """The stream whose order a frame keeps: its group, which the frame names first, or else its kind."""
    if kind in (FrameKind.HEARTBEAT, FrameKind.REQUEST, FrameKind.ANSWER):
        return -1 - kind
    at = 1 if kind is FrameKind.RAFT else 0
    return int.from_bytes(buffers[0][at : at + 8], "big")


class Peers:
    """All links of this node."""

    def __init__(
        self,
        me: Member,
        members: tuple[Member, ...],
        cluster: str,
        boots: BootIds,
        limits: Limits,
        events: PeerEvents,
        secret: bytes,
        random_bits: Callable[[int], int] = secrets.randbits,
        tls: Tls | None = None,
        octets: LinkOctets | None = None,
    ) -> None:
        """``octets`` counts sent frames."""
        self.me = me
        self.others = {member.node: member for member in members if member.node != me.node}
        assert secret or not self.others
        self._side = LinkSide(
            cluster=cluster,
            node=me.node,
            peers=self.others,
            secret=secret,
            boot=boots.mine,
            frame_max=limits.peer_frame_bytes_max,
            known=boots.known,
        )
        self._random_bits = random_bits
        self.boots = boots
        self.limits = limits
        self.events = events
        self.links: dict[NodeId, PeerLink] = {}
        self.congested: set[NodeId] = set()
        """The peers that should not be sent much now."""
        self.congestions: set[PeerLink] = set()
        """Their links."""
        self._alarms = 0
        self._heartbeat = b"\0"
        self._open: set[PeerLink] = set()
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        """Seconds of the event loop's clock."""
        self._complaints = Complaints(self.now)
        self._strangers = Strangers(strangers_max(limits), lambda text: self.complain(_ANYBODY, text))
        self.holds = False
        """Whether frames gather until :meth:`flush`: then the frames of all groups for one peer are one write."""
        self.gathered: dict[PeerLink, None] = {}
        """The links that have something to flush."""
        self._octets = octets if octets is not None else LinkOctets({})
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None
        self._tls = (server_context(tls), client_context(tls)) if tls is not None else None

    async def start(self) -> None:
        """Listen, dial every lower id, and watch over all of them."""
        with listening(self.me, "peer_port") as (host, port):
            self._server = await self._loop.create_server(self._accepted, host, port)
        for member in self.others.values():
            if member.node < self.me.node:
                self._tasks.append(self._loop.create_task(self._keep_dialling(member)))
        self._tasks.append(self._loop.create_task(self._watch()))

    def _accepted(self) -> PeerLink | TlsDoor:
        """The handler of the next connection."""
        if self._tls is None:
            return PeerLink(self, None)
        complain = partial(self.complain, _ANYBODY)
        return TlsDoor(
            self._tls[0], self.limits.handshake_ms / 1000, lambda: PeerLink(self, None), self._strangers, complain
        )

    def _encrypted(self, member: Member) -> dict[str, Any]:
        """How a connection to a member is made."""
        if self._tls is None:
            return {}
        return {"ssl": self._tls[1], "server_hostname": member.name}

    def close(self) -> None:
        """Stop listening and dialling, drop every link."""
        for task in self._tasks:
            task.cancel()
        if self._server is not None:
            self._server.close()
        for link in list(self._open):
            link.close()

    def flush(self) -> None:
        """Write the gathered octets."""
        gathered, self.gathered = self.gathered, {}
        for link in gathered:
            link.flush()

    def send(self, node: NodeId, kind: FrameKind, buffers: list[bytes | memoryview]) -> int:
        """Queue one message for ``node``; returns its octets, 0 (and nothing is sent) while ``node`` is not up."""
        if (link := self.links.get(node)) is None:
            return 0
        size = link.send(kind, buffers)
        key = (node, buffers[0][0], len(buffers) > 1) if kind is FrameKind.RAFT else None
        if key is not None and (sent := self._octets.raft.get(key)) is not None:
            sent.frames += 1
            sent.octets += size
        else:
            self._octets.count(node, kind, buffers, size)
        return size

    def link_congested(self, link: PeerLink) -> None:
        """More waits on a link than its connection takes at once."""
        if link.node is not None and self.links.get(link.node) is link:
            self.congestions.add(link)
            self.congested.add(link.node)

    def link_writable(self, link: PeerLink) -> None:
        """Nothing waits on a link any more."""
        if link in self.congestions:
            assert link.node is not None
            self._not_congested(link)
            self.events.peer_writable(link.node)

    def _not_congested(self, link: PeerLink) -> None:
        if link in self.congestions:
            assert link.node is not None
            self.congestions.discard(link)
            self.congested.discard(link.node)

    def tell_leaving(self) -> None:
        """Tell every peer that this node stops in order, and is not lost."""
        for link in list(self.links.values()):
            link.send(FrameKind.LEAVING, [])

    def tell_alarms(self, alarms: int) -> None:
        """Have every peer know this node's alarms, now and with each heartbeat."""
        self._alarms = alarms
        self._tell()

    def _tell(self) -> None:
        """Tell every peer this node's alarms and links, because one of them has changed."""
        self._heartbeat = bytes((self._alarms,)) + b"".join(map(_NODE.pack, sorted(self.links)))
        for link in list(self.links.values()):
            link.send(FrameKind.HEARTBEAT, [self._heartbeat])

    def handshake(self, dialled: NodeId | None) -> Handshake:
        """A new one, with a nonce that was never used before."""
        return Handshake(self._side, self._random_bits(8 * NONCE_OCTETS).to_bytes(NONCE_OCTETS, "big"), dialled)

    def complain(self, of: NodeId, text: str) -> None:
        """Log why a link was refused: at most once in a while for each node that was dialled, and for all others
        together. A node that is refused comes again."""
        self._complaints.say(of, text)

    def link_made(self, link: PeerLink, too_slow: Callable[[], None]) -> asyncio.TimerHandle:
        """A connection is there, to a peer or from a stranger."""
        self._open.add(link)
        if not link.is_dialled:
            self._strangers.add(link)
        return self._loop.call_later(self.handshake_ms(link) / 1000, too_slow)

    def handshake_ms(self, link: PeerLink) -> int:
        """Longest time for the handshake of a link. A dialled peer that sends nothing counts as silent, and is dialled
        again."""
        limits = self.limits
        return min(limits.handshake_ms, limits.suspect_after_ms) if link.is_dialled else limits.handshake_ms

    def link_up(self, link: PeerLink, boot_id: int) -> None:
        """A link's peer proved who it is. A second link to the same node replaces the first."""
        assert link.node is not None
        self._strangers.remove(link)
        if (old := self.links.pop(link.node, None)) is not None:
            self._not_congested(old)
            self.events.peer_down(link.node)
            old.close()
        self.links[link.node] = link
        log.info("node %d is up, boot id %d", link.node, boot_id)
        self.events.peer_up(link.node, boot_id)
        self._tell()

    def link_lost(self, link: PeerLink) -> None:
        """A link's connection ended."""
        self._open.discard(link)
        self._strangers.remove(link)
        if link.node is not None and self.links.get(link.node) is link:
            del self.links[link.node]
            self._not_congested(link)
            log.info("node %d is down", link.node)
            self.events.peer_down(link.node)
            self._tell()

    async def _keep_dialling(self, member: Member) -> None:
        pause = _DIAL_AGAIN_S
        while True:
            link = await self._dial(member)
            if link is not None:
                await link.closed
                pause = _DIAL_AGAIN_S if link.node is not None else pause
            await asyncio.sleep(pause)
            pause = min(pause * 2, _DIAL_AGAIN_MAX_S)

    async def _dial(self, member: Member) -> PeerLink | None:
        """A connection to a member, or None. The limit is ours, because a kernel whose first SYN was lost in a cut
        sends the next ones after pauses that double: 1 s, 2 s, 4 s and so on."""
        _, host = member.advertised("peer_port")
        try:
            async with asyncio.timeout(self.limits.dial_ms / 1000):
                _, link = await self._loop.create_connection(
                    lambda: PeerLink(self, member.node), host, member.peer_port, **self._encrypted(member)
                )
            return link
        except OSError as error:
            if self._tls is not None and isinstance(error, ssl.SSLError | ConnectionResetError):
                where = f"link to node {member.node}, {member.name}, at {host}:{member.peer_port}"
                self.complain(member.node, f"{where} refused: {reason(error)}")
            return None

    async def _watch(self) -> None:
        """Heartbeats out; silence noticed."""
        interval, limit = self.limits.heartbeat_ms / 1000, self.limits.suspect_after_ms / 1000
        while True:
            asleep = self.now()
            await asyncio.sleep(interval)
            if self.now() - asleep > limit / 2:
                continue  # this process itself was suspended, and frames of its peers are still unread
            for node, link in list(self.links.items()):
                if self.now() - link.last_heard > limit:
                    log.warning("node %d was silent for %.1f s", node, self.now() - link.last_heard)
                    link.close()
                else:
                    link.send(FrameKind.HEARTBEAT, [self._heartbeat])
