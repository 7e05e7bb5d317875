"""The limit of a step's rate in a run on several hosts: the load generator, a network, the broker, or the plan. Pure.

The order of the questions matters. A load host without processor time left is the limit whatever the broker does. Then
a network at its speed. If neither, an open loop that kept its schedule was not limited at all. Else the limit is the
broker, or the in-flight limit with which publishers wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from perftest.results.hosts import BROKER, LOAD
from perftest.results.summary import OPEN
from perftest.results.trust import ACHIEVED_MIN, CPU_SHARE_INVALID, HOST_CPU_WARN, Check, Facts, Status

NETWORK_FULL: Final = 0.9
"""Share of the speed of a host's network at which one direction is full: frames and acknowledgements take the rest."""
NODE_FULL: Final = 0.9
"""Number of cores at which a node is full: its protocol and log work is mostly one thread."""


class Limit(StrEnum):
    """The limit of a step's rate."""

    GENERATOR = "generator-bound"
    NETWORK = "network-bound"
    BROKER = "broker-bound"
    NONE = "kept its schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """The limit of one step and group of load: the hosts at it (none if it is not a host's), and why, as a clause."""

    step: int
    group: str
    label: str
    limit: Limit
    hosts: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUse:
    """One host over the steady time of a step and group of load; None where a figure is not known.

    ``roles`` are the manifest's, ``workers`` the load workers on the host, and ``worker_cpu_share`` is the share of a
    core that the busiest of them used. ``cpu_percent`` counts all processes and all cores.
    """

    host: str
    roles: Sequence[str]
    workers: int
    worker_cpu_share: float | None
    cpu_percent: float | None
    rx_bytes_per_s: float | None
    tx_bytes_per_s: float | None
    link_bits_per_s: float | None

    @property
    def bits_per_s(self) -> float | None:
        """The traffic in the direction with more of it."""
        known = [octets for octets in (self.rx_bytes_per_s, self.tx_bytes_per_s) if octets is not None]
        return max(known) * 8 if known else None

    @property
    def network_part(self) -> float | None:
        """The traffic as a part of the speed of the network."""
        bits = self.bits_per_s
        return None if bits is None or not self.link_bits_per_s else bits / self.link_bits_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUse:
    """One node of the broker over the steady time of a step: cores that it used, and its host, empty if not known."""

    node: str
    host: str
    cpu_share: float


def bottleneck(row: Facts, hosts: Sequence[HostUse], nodes: Sequence[NodeUse], unknown_speeds: str = "") -> Bottleneck:
    """The limit of a step, by its row of ``result.json``; ``unknown_speeds`` come from :func:`unknown_speeds`."""
    limit, names, why = _limit(row, hosts, nodes, unknown_speeds)
    return Bottleneck(
        step=int(row["step"]), group=str(row.get("group", "")), label=str(row["label"]), limit=limit, hosts=names,
        why=why,
    )  # fmt: skip


def bottleneck_checks(found: Sequence[Bottleneck]) -> Iterator[Check]:
    """The limits of a run on several hosts, for the trust list."""
    for limit in Limit:
        mine = [one for one in found if one.limit is limit]
        if mine:
            at = tuple(sorted({one.step for one in mine}))
            which = "every step was" if len(mine) == len(found) else f"{', '.join(one.label for one in mine)}:"
            status = Status.WARN if limit in (Limit.NETWORK, Limit.GENERATOR) else Status.NOTE
            text = f"{which} {limit}: {mine[-1].why}" if limit is not Limit.NONE else f"{mine[-1].why}"
            yield Check("bottleneck", status, text, steps=at if status is Status.WARN else ())


def unknown_speeds(links: Sequence[float | None]) -> str:
    """A clause about the hosts whose network's speed is not known; empty if all are known."""
    unknown = sum(link is None for link in links)
    return f"; the network's speed is not known of {unknown} of {len(links)} hosts" if unknown else ""


_Found = tuple[Limit, tuple[str, ...], str]


def _limit(row: Facts, hosts: Sequence[HostUse], nodes: Sequence[NodeUse], unknown: str) -> _Found:
    found = _generator(hosts) or _network(hosts)
    if found is not None:
        return found
    if row["loop"] == OPEN and row["intended"] and row["published"] >= ACHIEVED_MIN * row["intended"]:
        return Limit.NONE, (), "the rate was that of the plan, and no host was at a limit"
    return _broker(nodes, unknown)


def _generator(hosts: Sequence[HostUse]) -> _Found | None:
    loaded = [each for each in hosts if LOAD in each.roles and each.workers > 0]
    shares = {each.host: each.worker_cpu_share for each in loaded if each.worker_cpu_share is not None}
    full = {host: share for host, share in shares.items() if share >= CPU_SHARE_INVALID}
    if full:
        why = f"on {_and(tuple(full))} a load worker had no processor time left ({max(full.values()):.0%} of a core)"
        return Limit.GENERATOR, tuple(full), why
    # A host that has a node, too, may be busy with the node.
    alone = {
        each.host: each.cpu_percent for each in loaded if BROKER not in each.roles and each.cpu_percent is not None
    }
    busy = {host: percent for host, percent in alone.items() if percent >= HOST_CPU_WARN}
    if busy:
        why = f"{_and(tuple(busy))} had no processor time left (CPU {max(busy.values()):.0f} %)"
        return Limit.GENERATOR, tuple(busy), why
    return None


def _network(hosts: Sequence[HostUse]) -> _Found | None:
    full = [each for each in hosts if (each.network_part or 0.0) >= NETWORK_FULL]
    if not full:
        return None
    names = tuple(each.host for each in full)
    worst = max(full, key=lambda each: each.network_part or 0.0)
    verb = "sent" if (worst.tx_bytes_per_s or 0.0) >= (worst.rx_bytes_per_s or 0.0) else "received"
    traffic, speed = (worst.bits_per_s or 0.0) / 1e6, (worst.link_bits_per_s or 0.0) / 1e6
    told = f"{worst.host} {verb} {traffic:,.1f} of {speed:,.1f} Mbit/s"
    part = worst.network_part or 0.0
    return Limit.NETWORK, names, f"the network of {_and(names)} was at {part:.0%} of its speed ({told})"


def _broker(nodes: Sequence[NodeUse], unknown: str) -> _Found:
    full = [each for each in nodes if each.cpu_share >= NODE_FULL]
    if full:
        hosts = tuple(dict.fromkeys(each.host for each in full if each.host))
        most = max(each.cpu_share for each in full)
        return Limit.BROKER, hosts, f"{_and(tuple(each.node for each in full))} used {most:.0%} of a core"
    why = "no load host was at a limit, so the broker (its drives, its replication) or the in-flight limit set the rate"
    return Limit.BROKER, (), why + unknown


def _and(names: tuple[str, ...]) -> str:
    """Names in a sentence; of many, the first three."""
    shown = list(names[:3]) + ([f"{len(names) - 3} more"] if len(names) > 3 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
