"""Hosts without the secret of the cluster that lie to a node about another node.

A stranger knows everything else: the name of the cluster, its nodes, and the handshake. A stranger claims to be another
node with a boot id far ahead, and to have seen this node with such a boot id. If the node believed this, it would stop
for good, or it would never let the real node in again, and the world would not come to a good end.
"""

from __future__ import annotations

import asyncio
import json
from struct import Struct
from typing import Final, cast

from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.links.handshake import NONCE_OCTETS, VERSION
from reference_broker.sim.environment import Environment
from reference_broker.sim.loop import SimLoop
from reference_broker.sim.node import PEER_PORT, SimNode
from reference_broker.types import NodeId

_LENGTH: Final = Struct(">I")
_PROOF_OCTETS: Final = 32
_FAR: Final = 1_000_000


class Liar(asyncio.Protocol):
    """Sends all its messages at once, and leaves the rest to the other side."""

    def __init__(self, messages: list[bytes]) -> None:
        self._messages = messages

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the messages."""
        for message in self._messages:
            frame = _LENGTH.pack(1 + len(message)) + bytes((FrameKind.HELLO,)) + message
            cast(asyncio.Transport, transport).write(frame)


class LyingStrangers:
    """The strangers of a world, on a host of their own."""

    def __init__(self, env: Environment, node_ids: list[NodeId]) -> None:
        self._chance = env.chance
        self._node_ids = node_ids
        self._loop = SimLoop(env.scheduler, env.network, "stranger")  # type: ignore[abstract]

    def lie_to(self, node: SimNode) -> None:
        """Connect to the node and tell it a lie."""
        self._loop.create_task(self._connect(node, self._messages(node)))

    def close(self) -> None:
        """Stop the host."""
        self._loop.kill()

    async def _connect(self, node: SimNode, messages: list[bytes]) -> None:
        try:
            await self._loop.create_connection(lambda: Liar(messages), node.host, PEER_PORT)
        except OSError:
            return

    def _messages(self, node: SimNode) -> list[bytes]:
        """The messages of a node of today, with random octets for a proof, or of a node of the first version."""
        chance = self._chance
        others = [other for other in self._node_ids if other > node.node]
        claimed = chance.choice(others or self._node_ids)
        lives = {"life": [_FAR, 1], "known": [_FAR, 1] if chance.random() < 0.5 else None, "frame_max": _FAR}
        said = {"cluster": node.cluster, "node": claimed}
        if chance.random() < 0.2:
            return [json.dumps({**said, "incarnation": _FAR, **lives}).encode()]
        nonce = chance.randbytes(NONCE_OCTETS).hex()
        opening = json.dumps({"version": VERSION, **said, "to": node.node, "nonce": nonce}).encode()
        return [opening, chance.randbytes(_PROOF_OCTETS) + json.dumps(lives).encode()]
