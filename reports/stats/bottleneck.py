"""What set the rate of each step of a run on several hosts: the load generator, a network, the broker, or the plan.

The order of the questions matters. A load host without processor time left is the limit whatever the broker does. Then
a network at its speed. If neither, an open loop that kept its schedule was not limited at all. What is left is the
broker, or the in-flight limit with which publishers wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pandas as pd

from perftest.results.hosts import BROKER, LOAD
from perftest.results.trust import ACHIEVED_MIN, CPU_SHARE_INVALID, Check, Status
from reports.stats.table_checks import HOST_CPU_WARN
from reports.store.tables import Tables

NETWORK_FULL: Final = 0.9
"""Octets of a host in one direction over the speed of its network: frames and acknowledgements take the rest."""
NODE_FULL: Final = 0.9
"""Cores of a node, whose protocol and log work is mostly one thread."""


class Limit(StrEnum):
    """What set the rate of a step."""

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


def bottlenecks(tables: Tables) -> list[Bottleneck]:
    """The limit of each measured step of exactly one run on several hosts; none for a run on one host."""
    beside = {group for _, group in tables.background_loads}
    return [
        _of_step(step, rows, tables)
        for _, step in tables.steps.iterrows()
        if step["group"] not in beside and step["length_s"] > 0 and len(rows := _rows(tables.host_steps, step))
    ]


def bottleneck_checks(tables: Tables) -> Iterator[Check]:
    """What limited a run on several hosts, for the trust list."""
    found = bottlenecks(tables)
    for limit in Limit:
        mine = [one for one in found if one.limit is limit]
        if mine:
            at = tuple(sorted({one.step for one in mine}))
            which = "every step was" if len(mine) == len(found) else f"{', '.join(one.label for one in mine)}:"
            status = Status.WARN if limit is Limit.NETWORK else Status.NOTE
            text = f"{which} {limit}: {mine[-1].why}" if limit is not Limit.NONE else f"{mine[-1].why}"
            yield Check("bottleneck", status, text, steps=at if status is Status.WARN else ())


def _rows(host_steps: pd.DataFrame, step: pd.Series[Any]) -> pd.DataFrame:
    rows: pd.DataFrame = host_steps[(host_steps["step"] == step["step"]) & (host_steps["group"] == step["group"])]
    return rows


def _of_step(step: pd.Series[Any], rows: pd.DataFrame, tables: Tables) -> Bottleneck:
    limit, hosts, why = _limit(step, rows, tables)
    return Bottleneck(
        step=int(step["step"]), group=str(step["group"]), label=str(step["label"]), limit=limit, hosts=hosts, why=why
    )


def _limit(step: pd.Series[Any], rows: pd.DataFrame, tables: Tables) -> tuple[Limit, tuple[str, ...], str]:
    roles = dict(zip(tables.hosts["host"], tables.hosts["roles"].fillna(LOAD), strict=True))
    loaded = rows[[LOAD in roles.get(host, LOAD) and workers > 0 for host, workers in _pairs(rows, "workers")]]
    # A host that has a node, too, may be busy with the node.
    alone = loaded[[BROKER not in roles.get(host, LOAD) for host in loaded["host"]]]
    full = loaded[loaded["worker_cpu_share"] >= CPU_SHARE_INVALID]
    if len(full):
        hosts, worst = _names(full), full["worker_cpu_share"].max()
        return (
            Limit.GENERATOR,
            hosts,
            f"on {_and(hosts)} a load worker had no processor time left ({worst:.0%} of a core)",
        )
    busy = alone[alone["host_cpu_percent"] >= HOST_CPU_WARN]
    if len(busy):
        hosts, worst = _names(busy), busy["host_cpu_percent"].max()
        return Limit.GENERATOR, hosts, f"{_and(hosts)} had no processor time left (CPU {worst:.0f} %)"
    if (found := _full_networks(rows, tables.hosts)) is not None:
        return found
    if step["e2e_series"] == "e2e_sched" and step["intended"] and step["published"] >= ACHIEVED_MIN * step["intended"]:
        return Limit.NONE, (), "the rate was that of the plan, and no host was at a limit"
    return _broker(step, tables)


def _full_networks(rows: pd.DataFrame, hosts: pd.DataFrame) -> tuple[Limit, tuple[str, ...], str] | None:
    speeds = hosts.set_index("host")["link_bits_per_s"]
    directions = rows.set_index("host")[["rx_bytes_per_s", "tx_bytes_per_s"]]
    traffic = directions.max(axis=1) * 8
    parts = (traffic / speeds.reindex(traffic.index)).dropna()
    full = parts[parts >= NETWORK_FULL]
    if full.empty:
        return None
    names = tuple(map(str, full.index))
    worst = str(full.idxmax())
    verb = "sent" if float(directions["tx_bytes_per_s"][worst]) * 8 == float(traffic[worst]) else "received"
    told = f"{worst} {verb} {traffic[worst] / 1e6:,.1f} of {speeds[worst] / 1e6:,.1f} Mbit/s"
    return Limit.NETWORK, names, f"the network of {_and(names)} was at {full.max():.0%} of its speed ({told})"


def _broker(step: pd.Series[Any], tables: Tables) -> tuple[Limit, tuple[str, ...], str]:
    begin_s, end_s = step["t_s"], step["t_s"] + step["length_s"]
    within = tables.brokers[(tables.brokers["t_s"] > begin_s) & (tables.brokers["t_s"] <= end_s)]
    used = within.groupby("node")["cpu_share"].mean().dropna()
    places = tables.brokers.groupby("node")["host"].first().fillna("")
    full = used[used >= NODE_FULL]
    if len(full):
        names = tuple(map(str, full.index))
        hosts = tuple(dict.fromkeys(place for name in names if (place := str(places[name]))))
        return Limit.BROKER, hosts, f"{_and(names)} used {full.max():.0%} of a core"
    why = "no load host was at a limit, so the broker (its drives, its replication) or the in-flight limit set the rate"
    return Limit.BROKER, (), why + _unknown_speeds(tables.hosts)


def _unknown_speeds(hosts: pd.DataFrame) -> str:
    unknown = int(hosts["link_bits_per_s"].isna().sum())
    return f"; the network's speed is not known of {unknown} of {len(hosts)} hosts" if unknown else ""


def _pairs(rows: pd.DataFrame, column: str) -> Iterator[tuple[str, Any]]:
    return zip(rows["host"], rows[column], strict=True)


def _names(rows: pd.DataFrame) -> tuple[str, ...]:
    return tuple(map(str, rows["host"]))


def _and(names: tuple[str, ...]) -> str:
    """Names in a sentence; of many, the first three."""
    shown = list(names[:3]) + ([f"{len(names) - 3} more"] if len(names) > 3 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
