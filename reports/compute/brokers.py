"""CPU and WAL figures of the nodes of the broker, their writes by purpose, and their traffic with each other.

A node serves every group of load: each group of a step has the figures of the whole node.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from reports.compute.intervals import messages_of
from reports.compute.run_plan import NS, RunPlan
from reports.compute.samples import Number, grown, in_pairs, length_s, overlap_s, per_s, total, weighted_mean
from reports.store.columns import Row

_Key = TypeVar("_Key", bound=Hashable)
COVERED_MIN: Final = 0.8
"""The part of a step's steady time that samples of a node must cover for a figure of that node's use."""

PURPOSES: Final = {
    "wal": (("wal_bytes",), ("wal_syncs",), "sync_ns_total"),
    "meta": ((), ("meta_syncs",), "meta_sync_ns_total"),
    "snapshot": (("snapshot_bytes",), ("snapshot_syncs",), "snapshot_sync_ns_total"),
    "segment": (("segment_bytes", "segment_compacted_bytes"), ("segment_syncs",), "segment_sync_ns_total"),
    "classic": (
        ("classic_queue_bytes", "classic_shared_bytes", "classic_index_bytes"),
        ("classic_queue_syncs", "classic_shared_syncs", "classic_index_syncs"),
        "classic_sync_ns_total",
    ),
}
"""Purposes for which a node writes, each with its counters of octets, of syncs, and of the time in these syncs."""


def broker_rows(samples: Sequence[Row], plan: RunPlan) -> list[Row]:
    """The rows of ``brokers``: samples with rates since the previous sample of the process, in the order of time."""
    rows = []
    for row, before in in_pairs(samples, _process):
        length = length_s(row, before)
        cpu_per_s, syncs_per_s, bytes_per_s = (
            per_s(grown(row, before, name), length) for name in ("cpu_ns", "wal_syncs", "wal_bytes")
        )
        rows.append(
            row
            | {"t_s": plan.since_start(row["t_ns"]), "length_s": length}
            | {"cpu_share": None if cpu_per_s is None else cpu_per_s / NS}
            | {"wal_syncs_per_s": syncs_per_s, "wal_bytes_per_s": bytes_per_s}
        )
    return rows


def _process(row: Row) -> Any:
    return row["node"], row["pid"]


# --- what nodes wrote ------------------------------------------------------------------------------------------------


def write_rows(brokers: Sequence[Row]) -> list[Row]:
    """The rows of ``writes``: a node's writes for each purpose since its previous sample.

    A purpose that a broker does not count has no rows.
    """
    told = [row for sample in brokers for row in _of_purposes(sample)]
    rows = []
    for row, before in in_pairs(told, lambda row: (*_process(row), row["purpose"])):
        octets, syncs, sync_ns = (grown(row, before, name) for name in ("bytes", "syncs", "sync_ns"))
        syncs_per_s = per_s(syncs, row["length_s"])
        if syncs is not None and syncs_per_s is not None:
            mean_ns = sync_ns / syncs if sync_ns is not None and syncs > 0 else None
            bytes_per_s = None if octets is None else octets / row["length_s"]
            rows.append(row | {"bytes_per_s": bytes_per_s, "syncs_per_s": syncs_per_s, "sync_mean_ns": mean_ns})
    return rows


def _of_purposes(sample: Row) -> Iterator[Row]:
    metrics = json.loads(sample["metrics"])
    place = {name: sample[name] for name in ("node", "pid", "t_ns", "t_s", "length_s")}
    for purpose, (octets, syncs, time) in PURPOSES.items():
        synced = _counted(metrics, syncs)
        if synced is not None:
            counters = {"bytes": _counted(metrics, octets), "syncs": synced, "sync_ns": _counted(metrics, (time,))}
            yield {**place, "purpose": purpose, **counters}


def _counted(metrics: Row, names: Sequence[str]) -> float | None:
    """The sum of these counters; None if the node does not keep all of them."""
    total = 0.0
    for name in names:
        value = _number(metrics.get(name))
        if value is None:
            return None
        total += value
    return total if names else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 2.0**1000 else None


# --- use over steps --------------------------------------------------------------------------------------------------

_USE: Final = {
    "broker_cpu_share": "cpu_share",
    "wal_syncs_per_s": "wal_syncs_per_s",
    "wal_bytes_per_s": "wal_bytes_per_s",
}


def use_of_brokers(brokers: Sequence[Row], step_totals: Sequence[Row]) -> dict[tuple[int, str], Row]:
    """Cores, syncs and octets per second of all nodes over the steady time of each step and group of load.

    The rate of a node holds between two samples, and counts for the part of that time that is steady. There are no
    figures if the samples of a node cover less than COVERED_MIN of the steady time.
    """
    sampled = [row for row in brokers if row["cpu_share"] is not None]
    found = {}
    for step in step_totals:
        start_ns, end_ns = step["start_ns"], step["end_ns"]
        by_node: dict[str, list[tuple[Row, float]]] = defaultdict(list)
        for row in sampled:
            overlap = overlap_s(row, start_ns, end_ns)
            if overlap > 0:
                by_node[row["node"]].append((row, overlap))
        if by_node and all(_covers(part, start_ns, end_ns) for part in by_node.values()):
            found[step["step"], step["group"]] = {
                name: total(weighted_mean((row[of], weight) for row, weight in part) for part in by_node.values())
                for name, of in _USE.items()
            }
    return found


def _covers(weighted: Sequence[tuple[Row, float]], start_ns: int, end_ns: int) -> bool:
    return math.fsum(weight for _, weight in weighted) * NS / (end_ns - start_ns) >= COVERED_MIN


# --- links -----------------------------------------------------------------------------------------------------------


def link_rows(brokers: Sequence[Row], step_totals: Sequence[Row]) -> list[Row]:
    """The rows of ``links``: octets that each node sent to each peer for each purpose, over each step's steady time.

    As in :func:`use_of_brokers`, a rate holds between two samples of a process, and there is no figure for a step if
    the samples cover less than COVERED_MIN of it.
    """
    told = _link_rates(brokers)
    places: dict[str, str] = {}
    for sample in brokers:
        if sample["host"] is not None:
            places[sample["node"]] = max(places.get(sample["node"], ""), sample["host"])
    rows = []
    for number, step in sorted(_whole_steps(step_totals).items()):
        of_links = _over_step(told, step, lambda row: (row["node"], row["peer"], row["purpose"]))
        for (node, peer, purpose), bytes_per_s in sorted(of_links.items()):
            messages = messages_of(step)
            steady_s = (step["end_ns"] - step["start_ns"]) / NS
            row: Row = {"step": number, "node": node, "peer": peer, "purpose": purpose, "bytes_per_s": bytes_per_s}
            row |= {"host": places.get(node, ""), "peer_host": places.get(peer, "")}
            rows.append(row | {"bytes_per_message": bytes_per_s * steady_s / messages if messages > 0 else None})
    return rows


def sent_of_nodes(brokers: Sequence[Row], step_totals: Sequence[Row]) -> dict[tuple[int, str], Row]:
    """Octets per second that all nodes sent to each other over the steady time of each step and group of load. There is
    no figure if that is not known of every node: a sum without the octets of a node that was down would look like less
    traffic."""
    told = _rates(
        {name: sample[name] for name in ("node", "pid", "t_ns", "length_s")}
        | {"sent_bytes": sum(octets for _peer, _purpose, octets in _sent(sample["links"]))}
        for sample in brokers
        if sample["links"]
    )
    nodes = {row["node"] for row in brokers if row["cpu_ns"] is not None}
    found = {}
    for step in step_totals:
        sent = _over_step(told, step, lambda row: row["node"])
        if nodes and sent.keys() == nodes:
            found[step["step"], step["group"]] = {"link_bytes_per_s": math.fsum(sent.values())}
    return found


def _whole_steps(step_totals: Sequence[Row]) -> dict[int, Row]:
    """The steady time and the messages of each step, all groups of load together."""
    steps: dict[int, Row] = {}
    for row in step_totals:
        known = steps.setdefault(row["step"], {**row, "delivered": 0, "published": 0})
        known["start_ns"] = min(known["start_ns"], row["start_ns"])
        known["end_ns"] = max(known["end_ns"], row["end_ns"])
        for name in ("delivered", "published"):
            known[name] += row[name]
    return steps


def _over_step(told: Sequence[Row], step: Row, key_of_row: Callable[[Row], _Key]) -> dict[_Key, float]:
    """Octets per second of each key whose samples cover the step."""
    start_ns, end_ns = step["start_ns"], step["end_ns"]
    weighted: dict[_Key, list[tuple[Row, float]]] = defaultdict(list)
    for row in told:
        overlap = overlap_s(row, start_ns, end_ns)
        if overlap > 0:
            weighted[key_of_row(row)].append((row, overlap))
    found = {}
    for key, part in weighted.items():
        bytes_per_s = weighted_mean((row["bytes_per_s"], weight) for row, weight in part)
        if bytes_per_s is not None and _covers(part, start_ns, end_ns):
            found[key] = bytes_per_s
    return found


def _link_rates(brokers: Sequence[Row]) -> list[Row]:
    """A row per sample, peer and purpose with ``bytes_per_s`` since the previous sample of the process."""
    return _rates(
        {name: sample[name] for name in ("node", "pid", "t_ns", "length_s")}
        | {"peer": peer, "purpose": purpose, "sent_bytes": sent_bytes}
        for sample in brokers
        for peer, purpose, sent_bytes in _sent(sample["links"])
    )


def _rates(told: Iterable[Row]) -> list[Row]:
    pairs = in_pairs([*told], lambda row: (*_process(row), row.get("peer"), row.get("purpose")))
    rates = [(row, per_s(grown(row, before, "sent_bytes"), row["length_s"])) for row, before in pairs]
    return [row | {"bytes_per_s": rate} for row, rate in rates if rate is not None]


def _sent(links: str | None) -> Iterator[tuple[str, str, Number]]:
    """Peer, purpose and octets since the start of the process, from a node's record of its links."""
    for peer, of_peer in json.loads(links or "{}").items():
        for purpose, sent_bytes in of_peer.items() if isinstance(of_peer, dict) else ():
            if isinstance(sent_bytes, int) and not isinstance(sent_bytes, bool) and abs(sent_bytes) < 2**63:
                yield peer, purpose, sent_bytes
