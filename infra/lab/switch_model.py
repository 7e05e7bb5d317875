"""When a packet leaves a switch whose links are slow, narrow, lossy or cut. Pure: the caller brings the time.

A *link* is one direction between two hosts. Packets of a link keep their order. A packet passes three stations: it is
lost or not, it waits until the link has sent what is ahead of it, and it travels for the delay and the jitter.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from infra.links.settings import LinkError, LinkSettings, Pair

QUEUE_OCTETS: Final = 1 << 20
"""The most octets that wait on a link with a bandwidth; further packets are lost, as in the queue of a router."""


@dataclass(slots=True)
class ModelledLink:
    """A link with its traffic. ``packets`` and ``octets`` count the traffic that was taken in and not lost; ``lost``
    counts packets that were lost, cut off or found the queue full."""

    settings: LinkSettings = field(default_factory=LinkSettings)
    packets: int = 0
    octets: int = 0
    lost: int = 0
    _busy_until_ns: int = 0
    _last_leaves_ns: int = 0

    def take(self, octets: int, now_ns: int, chance: random.Random) -> int | None:
        """When a packet leaves that comes in now, in ns of the caller's clock; None: the packet is lost."""
        wanted = self.settings
        if wanted.cut or (wanted.loss and chance.random() < wanted.loss):
            self.lost += 1
            return None
        leaves_ns = now_ns
        if wanted.mbit:
            ns_per_octet = 8_000 / wanted.mbit
            begin_ns = max(now_ns, self._busy_until_ns)
            if begin_ns - now_ns > QUEUE_OCTETS * ns_per_octet:
                self.lost += 1
                return None
            leaves_ns = self._busy_until_ns = begin_ns + -int(-octets * ns_per_octet // 1)  # rounded up
        leaves_ns += round(wanted.delay_ms * 1e6)
        if wanted.jitter_ms:
            leaves_ns += round(chance.random() * wanted.jitter_ms * 1e6)
        self._last_leaves_ns = leaves_ns = max(leaves_ns, self._last_leaves_ns)  # no packet overtakes
        self.packets += 1
        self.octets += octets
        return leaves_ns


class SwitchModel:
    """All links between some hosts. Chance comes from ``seed``: the same packets at the same times fare the same."""

    def __init__(self, hosts: tuple[str, ...], seed: int = 0) -> None:
        self._chance = random.Random(seed)
        self.links: dict[Pair, ModelledLink] = {(a, b): ModelledLink() for a in hosts for b in hosts if a != b}

    def set(self, source: str, target: str, changes: Mapping[str, Any]) -> None:
        """Change settings of a link for packets that come in from now on. Raises :class:`LinkError`."""
        link = self.links.get((source, target))
        if link is None:
            names = ", ".join(sorted({each for each, _target in self.links}))
            raise LinkError(f"there is no link from {source!r} to {target!r}", "the lab", f"use two of {names}")
        link.settings = link.settings.changed(changes)

    def take(self, source: str, target: str, octets: int, now_ns: int) -> int | None:
        """When a packet leaves that comes in now; None: the packet is lost. The link must exist."""
        return self.links[source, target].take(octets, now_ns, self._chance)
