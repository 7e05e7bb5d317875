"""The limit of each step's rate in a run on several hosts (:mod:`perftest.results.bottleneck`), from tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from perftest.results.bottleneck import Bottleneck, HostUse, NodeUse, bottleneck, unknown_speeds
from perftest.results.hosts import LOAD
from perftest.results.summary import CLOSED, OPEN
from reports.store.tables import Tables


def bottlenecks(tables: Tables) -> list[Bottleneck]:
    """The limit of each measured step of exactly one run on several hosts; none for a run on one host."""
    beside = {group for _, group in tables.background_loads}
    unknown = unknown_speeds([_known(speed) for speed in tables.hosts["link_bits_per_s"]])
    return [
        bottleneck(_row(step), list(_hosts(rows, tables.hosts)), list(_nodes(step, tables)), unknown)
        for _, step in tables.steps.iterrows()
        if step["group"] not in beside and step["length_s"] > 0 and len(rows := _rows(tables.host_steps, step))
    ]


def _row(step: pd.Series[Any]) -> dict[str, Any]:
    row = {str(name): value for name, value in step.items()}
    return row | {"loop": OPEN if step["e2e_series"] == "e2e_sched" else CLOSED}


def _rows(host_steps: pd.DataFrame, step: pd.Series[Any]) -> pd.DataFrame:
    rows: pd.DataFrame = host_steps[(host_steps["step"] == step["step"]) & (host_steps["group"] == step["group"])]
    return rows


def _hosts(rows: pd.DataFrame, hosts: pd.DataFrame) -> Iterator[HostUse]:
    roles = dict(zip(hosts["host"], hosts["roles"].fillna(LOAD), strict=True))
    speeds = dict(zip(hosts["host"], hosts["link_bits_per_s"], strict=True))
    for _, row in rows.iterrows():
        yield HostUse(
            host=str(row["host"]),
            roles=str(roles.get(row["host"], LOAD)).split(", "),
            workers=int(row["workers"]),
            worker_cpu_share=_known(row["worker_cpu_share"]),
            cpu_percent=_known(row["host_cpu_percent"]),
            rx_bytes_per_s=_known(row["rx_bytes_per_s"]),
            tx_bytes_per_s=_known(row["tx_bytes_per_s"]),
            link_bits_per_s=_known(speeds.get(row["host"])),
        )


def _nodes(step: pd.Series[Any], tables: Tables) -> Iterator[NodeUse]:
    begin_s, end_s = step["t_s"], step["t_s"] + step["length_s"]
    within = tables.brokers[(tables.brokers["t_s"] > begin_s) & (tables.brokers["t_s"] <= end_s)]
    places = tables.brokers.groupby("node")["host"].first().fillna("")
    for node, share in within.groupby("node")["cpu_share"].mean().dropna().items():
        yield NodeUse(node=str(node), host=str(places[node]), cpu_share=float(share))


def _known(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)
