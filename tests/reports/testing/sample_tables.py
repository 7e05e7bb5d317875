"""Hand-made tables of a store: what the page is built from, without a broker, a run directory or a JVM.

Every frame is made through the schema, so that a column the pipeline does not publish cannot be used by mistake.
Latencies follow a lognormal distribution around what Little's law asks of the setting and its rate; no randomness is
involved.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log10
from statistics import NormalDist
from typing import Any

import pandas as pd

from reports.store import schema
from reports.store.columns import TableSpec, Type
from reports.store.tables import Tables

START_NS = 1_795_256_102_000_000_000
NODES = ("node1", "node2", "node3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a sample: the value of the first swept setting and ``others``, those of the others, what the step
    delivered per second, and the shape of its latency."""

    setting: int | None
    rate: float
    p50_ns: float
    sigma: float = 0.30
    others: tuple[int | None, ...] = ()


IN_FLIGHT = (
    Step(setting=1, rate=1_180, p50_ns=0.82e6),
    Step(setting=5, rate=5_240, p50_ns=0.95e6),
    Step(setting=20, rate=16_100, p50_ns=1.22e6),
    Step(setting=200, rate=96_400, p50_ns=2.05e6, sigma=0.35),
    Step(setting=1_000, rate=205_300, p50_ns=4.8e6, sigma=0.38),
    Step(setting=10_000, rate=208_900, p50_ns=47.5e6, sigma=0.42),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run. ``step_s`` seconds a step, of which ``warmup_s`` are warm-up."""

    run_id: str = "20261121-101502-in_flight-3fa1"
    name: str = "flow_control/in_flight"
    title: str = "In-flight limit, one quorum queue"
    swept: tuple[str, ...] = ("in_flight",)
    steps: tuple[Step, ...] = IN_FLIGHT
    step_s: int = 12
    warmup_s: int = 3
    loop: str = "closed"
    """Of a mixed run the last step has no rate."""
    state: str = "finished"
    verdict: str = "ok"
    lost: int = 0
    queue_types: str = "quorum"
    product: str = "reference_broker"
    with_brokers: bool = True
    with_ledger: bool = True
    with_stages: bool = False
    layout: Mapping[str, Any] | None = None
    """The layout of drives in the manifest. With one, the nodes tell what they wrote for which purpose."""
    beside: str = ""
    """The name of a background load, which is in the plan only."""
    beside_rate: float = 0.0
    """Messages per second of its only publisher; 0: as fast as it goes."""
    followed: float = 1.0
    """The part of the messages whose stages are known."""
    events: tuple[tuple[float, str, str], ...] = (
        (38.0, "connection_lost", "publisher 0: the node closed the connection"),
        (38.6, "reconnected", "publisher 0: to node2"),
    )
    with_links: bool = False
    """The nodes tell what they sent to each other. Those of a run on several hosts do so anyway."""
    proxied: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Links that carry each message once more, and for which purpose."""
    load_hosts: int = 0
    """Hosts that share the load evenly, beside a host for each node; 0: all ran on one host."""
    slow_host: str = ""
    """A load host with twice the latency of the others."""
    gone_host: str = ""
    """A load host that was lost in the middle."""
    worker_cpu_share: float = 0.4
    """Of each worker of a run on several hosts."""
    network_bits_per_s: int | None = None
    """Speed of the network of each host. Each sends 1 MB/s."""
    recoveries: tuple[dict[str, Any], ...] = ()
    """What followed actions: events as the run directory has them."""

    def swept_in(self, step: Step) -> dict[str, int | None]:
        """The swept settings of a step."""
        return dict(zip(self.swept, (step.setting, *step.others), strict=False))

    def label(self, step: Step) -> str:
        return " ".join(f"{name}={value}" for name, value in self.swept_in(step).items())


def tables(*samples: Sample) -> Tables:
    """A store with these runs."""
    made = {
        table.name: _frame(table, (row for sample in samples for row in _ROWS[table.name](sample)))
        for table in schema.TABLES
    }
    return Tables(**made)


def quantile_ns(step: Step, percentile: float) -> float:
    """The latency below which ``percentile`` per cent of a step's messages stay."""
    body = step.p50_ns * exp(step.sigma * NormalDist().inv_cdf(min(max(percentile, 0.01), 99.9999) / 100))
    return body * (1 + 1.5 * max(0.0, log10(100 / max(100 - percentile, 1e-6)) - 2.2))


def _frame(table: TableSpec, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    records = list(rows)
    for record in records[:1]:
        unknown = set(record) - set(table.names)
        assert not unknown, f"{table.name} has no column {sorted(unknown)}"
    frame = (
        pd.DataFrame.from_records(records, columns=list(table.names))
        if records
        else table.arrow.empty_table().to_pandas()
    )
    for column in table.columns:
        if column.nullable and column.type in (Type.INT, Type.FLOAT):
            frame[column.name] = frame[column.name].astype("float64")
        elif not column.nullable and column.type is Type.INT and frame[column.name].isna().any():
            frame[column.name] = pd.to_numeric(frame[column.name]).fillna(0).astype("int64")
        elif not column.nullable and column.type is Type.FLOAT:
            frame[column.name] = frame[column.name].astype("float64").fillna(0.0)
        elif not column.nullable and column.type is Type.TEXT:
            frame[column.name] = frame[column.name].fillna("")
    return frame.sort_values(list(table.order), kind="stable").reset_index(drop=True)


def _settings(sample: Sample, step: Step) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "in_flight": 1000,
        "prefetch": 1000,
        "ack_interval": 1,
        "rate": None,
        "size_bytes": 1000,
        "publishers": 1,
        "consumers": 1,
        "persistent": True,
        "mandatory": False,
    }
    settings |= {"rate": step.rate if is_open(sample, step) else None}
    return settings | sample.swept_in(step)


def is_open(sample: Sample, step: Step) -> bool:
    return sample.loop == "open" or (sample.loop == "mixed" and step is not sample.steps[-1])


def _series(sample: Sample, step: Step) -> tuple[tuple[str, float], ...]:
    """The series a step has and how much slower each is than end to end."""
    closed = (("e2e", 1.0), ("confirm", 0.86))
    return (*closed, ("e2e_sched", 1.25), ("confirm_sched", 1.1), ("lag", 0.04)) if is_open(sample, step) else closed


def _background(sample: Sample) -> dict[str, Any]:
    return {"name": sample.beside, "settings": {"publishers": 1, "rate": sample.beside_rate or None}}


def _manifest(sample: Sample) -> dict[str, Any]:
    return {
        "schema": 1,
        "id": sample.run_id,
        "state": sample.state,
        "command": ["perftest", "sweep", sample.name, "--quick"],
        "tool": {"name": "perftest", "version": "0.1.0", "commit": "9f1c2ab", "dirty": False, "python": "3.11.7"},
        "plan": {
            "name": sample.name,
            "title": sample.title,
            "isolation": "live",
            "swept": list(sample.swept),
            "interval_s": 1.0,
            "seed": 1,
            "source": "https://blog.rabbitmq.com/posts/2020/05/quorum-queues-and-flow-control-single-queue-benchmarks/",
            "queues": [
                {"name": "perftest.q1", "type": kind, "durable": True, "arguments": {"x-queue-type": kind}}
                for kind in sample.queue_types.split(",")
            ],
            "steps": [
                {
                    "number": n,
                    "label": sample.label(step),
                    "duration_s": sample.step_s,
                    "warmup_s": sample.warmup_s,
                    "settings": _settings(sample, step),
                }
                for n, step in enumerate(sample.steps, 1)
            ],
            "background": [_background(sample)] if sample.beside else [],
            "digest": "5bd1e0c7" * 8,
        },
        "broker": {
            "product": sample.product,
            "version": "0.1.0",
            "platform": "CPython 3.11.7",
            "uris": ["amqp://guest:***@127.0.0.1:5691/%2f"],
            "cluster": "local",
            "nodes": [
                {
                    "name": node,
                    "pid": 4711 + n,
                    "role": "leader" if n == 0 else "follower",
                    "amqp_uri": f"amqp://127.0.0.1:{5691 + n}",
                    "data_dir": f"cluster/{node}",
                }
                for n, node in enumerate(NODES)
            ],
            "durability": "fdatasync on a majority of 3 before each confirm",
        },
        "cluster": {"layout": sample.layout} if sample.layout else {},
        "hosts": [_manifest_host(sample, name) for name in names_of_hosts(sample) or ["local"]],
        "loop": sample.loop,
        "ended": {"reason": sample.state, "exit_code": 0},
    }


def _manifest_host(sample: Sample, name: str) -> dict[str, Any]:
    host: dict[str, Any] = {"name": name, "hostname": "bench-1"}
    if sample.load_hosts:
        host |= {"start_skew_ns": 40_000, "roles": ["broker"] if name.startswith("b") else ["load"]}
    if name.startswith("load") and sample.with_brokers:
        host["round_trips"] = _round_trips(sample, name)
    return host | ({"lost": {"reason": "the connection was lost"}} if name == sample.gone_host else {})


def _round_trips(sample: Sample, name: str) -> list[dict[str, Any]]:
    """Every load host is 200 µs away from each node, the slow one 900 µs; the host that is lost missed the last."""
    trip_ns = 900_000 if name == sample.slow_host else 200_000
    rows: list[dict[str, Any]] = [
        {"node": node, "address": f"10.0.0.2:{5672 + n}", "round_trip_ns": trip_ns, "tries": 5}
        for n, node in enumerate(NODES)
    ]
    if name == sample.gone_host:
        rows[-1] |= {"round_trip_ns": None, "tries": 0, "reason": "Connection refused"}
    return rows


def _runs(sample: Sample) -> Iterable[dict[str, Any]]:
    manifest = _manifest(sample)
    plan, broker = manifest["plan"], manifest["broker"]
    yield {
        "run_id": sample.run_id,
        "name": sample.name,
        "title": sample.title,
        "source": plan["source"],
        "state": sample.state,
        "ended_reason": sample.state,
        "exit_code": 0,
        "started_ns": START_NS,
        "ended_ns": START_NS + int(sample.step_s * len(sample.steps) * 1e9),
        "length_s": float(sample.step_s * len(sample.steps)),
        "loop": sample.loop,
        "isolation": "live",
        "swept": json.dumps(sample.swept),
        "interval_s": 1.0,
        "steps_planned": len(sample.steps),
        "seed": 1,
        "queue_types": sample.queue_types,
        "product": sample.product,
        "broker_version": broker["version"],
        "platform": broker["platform"],
        "cluster": "local",
        "broker_nodes": 3,
        "durability": broker["durability"],
        "one_machine": not sample.load_hosts,
        "host_count": max(sample.load_hosts, 1),
        "clock_bound_ns": 80_000 if sample.load_hosts else 0,
        "command": json.dumps(manifest["command"]),
        "tool_version": "0.1.0",
        "tool_commit": "9f1c2ab",
        "tool_dirty": False,
        "plan_digest": plan["digest"],
        "path": f"runs/{sample.run_id}",
        "manifest": json.dumps(manifest),
    }


def _summary(prefix: str, step: Step, factor: float, count: int) -> dict[str, float]:
    values = {f"{prefix}{name}_ns": int(quantile_ns(step, at) * factor) for name, at in schema.PERCENTILES.items()}
    return {
        f"{prefix}count": count,
        f"{prefix}mean_ns": step.p50_ns * factor * 1.05,
        **values,
        f"{prefix}max_ns": int(quantile_ns(step, 99.9995) * factor),
    }


def _steps(sample: Sample) -> Iterable[dict[str, Any]]:
    steady_s = sample.step_s - sample.warmup_s
    for number, step in enumerate(sample.steps, 1):
        start_s = (number - 1) * sample.step_s + sample.warmup_s
        count = round(step.rate * steady_s)
        settings = _settings(sample, step)
        row: dict[str, Any] = {
            "run_id": sample.run_id,
            "step": number,
            "label": sample.label(step),
            "settings": json.dumps(settings),
            **settings,
            "duration_s": sample.step_s,
            "warmup_s": sample.warmup_s,
            "start_ns": START_NS + int(start_s * 1e9),
            "t_s": float(start_s),
            "length_s": float(steady_s),
            "workers": 1,
            "intervals": steady_s,
            "nacked": 0,
            "returned": 0,
            "redelivered": 0,
            "published_bytes": count * 1000,
            "negative_latencies": 0,
            "unconfirmed_max": settings["in_flight"],
            "e2e_series": "e2e_sched" if is_open(sample, step) else "e2e",
            "confirm_series": "confirm_sched" if is_open(sample, step) else "confirm",
            "worker_cpu_share": min(0.31 + 0.08 * number, 0.8),
            "worker_cpu_us_per_message": 2.4,
            "worker_wait_share": 0.02,
            "steal_share": 0.004,
            "loop_lag_ns": 3_100_000,
            "gc_collections": 3,
            "gc_pause_ns": 900_000,
            "broker_cpu_us_per_message": 9.2 + 30.0 / number,
            "broker_cpu_share": 1.1,
            "wal_syncs_per_s": 900.0,
            "wal_bytes_per_message": 3120.0,
            "host_cpu_percent": 81.0,
        }
        row |= dict.fromkeys(("intended", "published", "confirmed", "delivered", "acked"), count)
        row |= {f"{name}_per_s": step.rate for name in ("intended", "published", "confirmed", "delivered")}
        for series, factor in _series(sample, step):
            row |= _summary(f"{series}_", step, factor, count)
        yield row


def _latency(sample: Sample) -> Iterable[dict[str, Any]]:
    for number, step in enumerate(sample.steps, 1):
        for series, factor in _series(sample, step):
            count = round(step.rate * (sample.step_s - sample.warmup_s))
            yield {
                "run_id": sample.run_id,
                "step": number,
                "series": series,
                **_summary("", step, factor, count),
                "payload": "",
            }


def _spectrum(sample: Sample) -> Iterable[dict[str, Any]]:
    for number, step in enumerate(sample.steps, 1):
        count = step.rate * (sample.step_s - sample.warmup_s)
        for series, factor in _series(sample, step):
            for tick in range(26):
                nines = tick / 5
                percentile = 100 * (1 - 10**-nines)
                above = count * (100 - percentile) / 100
                if above >= 1:
                    yield {
                        "run_id": sample.run_id,
                        "step": number,
                        "label": sample.label(step),
                        "series": series,
                        "percentile": percentile,
                        "nines": nines,
                        "value_ns": int(quantile_ns(step, percentile) * factor),
                        "count_above": int(above),
                        "supported": above >= schema.SAMPLES_ABOVE,
                    }


def _timeline(sample: Sample) -> Iterable[dict[str, Any]]:
    for number, step in enumerate(sample.steps, 1):
        for second in range(sample.step_s):
            t_s = (number - 1) * sample.step_s + second
            phase = "warmup" if second < sample.warmup_s else "steady"
            swing = 1 + 0.04 * ((t_s * 7) % 5 - 2) / 2 - (0.5 if second == 0 else 0)
            row: dict[str, Any] = {
                "run_id": sample.run_id,
                "step": number,
                "label": sample.label(step),
                "phase": phase,
                "slot": second if phase == "warmup" else second - sample.warmup_s,
                "start_ns": START_NS + t_s * 10**9,
                "t_s": float(t_s),
                "length_s": 1.0,
                "workers": 1,
                "acked_per_s": step.rate * swing,
                "unconfirmed": step.setting,
                "redelivered": 0,
                "nacked": 0,
                "worker_cpu_share": 0.4,
                "loop_lag_ns": 2_000_000,
            }
            row |= {f"{name}_per_s": step.rate * swing for name in ("published", "confirmed", "delivered")} | {
                "intended_per_s": step.rate
            }
            for series, factor in _series(sample, step):
                bump = factor * (1 + 0.1 * ((t_s * 3) % 7) / 7)
                row |= {f"{series}_count": int(step.rate)} | {
                    f"{series}_{p}_ns": int(quantile_ns(step, at) * bump)
                    for p, at in (("p50", 50), ("p95", 95), ("p99", 99), ("max", 99.99))
                }
            yield row


def _events(sample: Sample) -> Iterable[dict[str, Any]]:
    listed = [(0.0, "run_started", "", None)]
    for number in range(1, len(sample.steps) + 1):
        start = float((number - 1) * sample.step_s)
        listed += [(start, "step_started", "", number), (start + sample.warmup_s, "steady", "", number)]
    listed += [(at, kind, text, None) for at, kind, text in sample.events]
    for at, kind, text, step in sorted(listed, key=lambda event: event[0]):
        yield {
            "run_id": sample.run_id,
            "t_ns": START_NS + int(at * 1e9),
            "t_s": at,
            "kind": kind,
            "step": step,
            "worker": "0",
            "text": text,
            "event": json.dumps({"kind": kind, "step": step}),
        }
    for record in sample.recoveries:
        place = {"run_id": sample.run_id, "t_ns": START_NS, "t_s": 0.0, "kind": "recovery", "step": None}
        yield place | {"worker": None, "text": record["text"], "event": json.dumps({"kind": "recovery", **record})}


def _hosts(sample: Sample) -> Iterable[dict[str, Any]]:
    for name in names_of_hosts(sample) or ["local"]:
        yield _host(sample, name)


def names_of_hosts(sample: Sample) -> list[str]:
    """The hosts of a run on several: those of nodes, then those of the load."""
    if not sample.load_hosts:
        return []
    return [f"b{n}" for n in range(1, len(NODES) + 1)] + [f"load{n}" for n in range(1, sample.load_hosts + 1)]


def _host(sample: Sample, name: str) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "run_id": sample.run_id,
        "host": name,
        "hostname": "bench-1",
        "cores": 2,
        "cpu": "Intel Xeon Platinum 8375C",
        "memory_bytes": 8 * 2**30,
        "kernel": "Linux 6.8.0",
        "filesystem": "ext4",
        "clock": "CLOCK_MONOTONIC",
        "clock_offset_ns": 0,
        "clock_bound_ns": 0,
    }
    if name == "local":
        return facts
    facts |= {"roles": "broker" if name.startswith("b") else "load", "address": f"10.0.0.{len(name)}"}
    facts |= {"round_trip_ns": 300_000, "clock_bound_ns": 80_000, "clock_offset_ns": 12_000_000}
    facts |= {"start_skew_ns": 40_000, "stop_skew_ns": 20_000, "link_bits_per_s": sample.network_bits_per_s}
    lost = {"lost_s": 20.5, "lost_reason": "the connection was lost"} if name == sample.gone_host else {}
    return facts | lost


def _host_steps(sample: Sample) -> Iterable[dict[str, Any]]:
    steady_s = sample.step_s - sample.warmup_s
    for number, step in enumerate(sample.steps, 1):
        for name in names_of_hosts(sample):
            is_load = name.startswith("load")
            count = round(step.rate * steady_s / sample.load_hosts) if is_load else 0
            row: dict[str, Any] = {"run_id": sample.run_id, "step": number, "label": sample.label(step), "host": name}
            row |= dict.fromkeys((*(f"{each}_bytes_per_s" for each in ("rx", "tx", "disk_read", "disk_write")),), 1e6)
            row |= {"host_cpu_percent": 42.0, "length_s": steady_s if is_load else 0.0, "workers": 2 if is_load else 0}
            if is_load:
                row |= dict.fromkeys(("intended", "published", "confirmed", "delivered", "acked"), count)
                row |= {
                    f"{each}_per_s": count / steady_s for each in ("intended", "published", "confirmed", "delivered")
                }
                row |= {"published_part": 1 / sample.load_hosts, "delivered_part": 1 / sample.load_hosts}
                row |= {"worker_cpu_share": sample.worker_cpu_share}
                for series, factor in _series(sample, step):
                    if series in schema.HOST_SERIES:
                        slower = 2.0 if name == sample.slow_host else 1.0
                        row |= _summary(f"{series}_", step, factor * slower, count)
            yield row


def _host_samples(sample: Sample) -> Iterable[dict[str, Any]]:
    for second in range(1, sample.step_s * len(sample.steps) + 1):
        for name in names_of_hosts(sample):
            row: dict[str, Any] = {"run_id": sample.run_id, "host": name, "t_ns": START_NS + second * 10**9}
            row |= {"t_s": float(second), "cpu_percent": 42.0, "steal_percent": 0.0, "length_s": 1.0}
            rates = {f"{each}_bytes_per_s": 1e6 for each in ("rx", "tx", "disk_read", "disk_write")}
            yield row | rates


def _clocks(sample: Sample) -> Iterable[dict[str, Any]]:
    for second in range(sample.step_s * len(sample.steps)):
        for name in names_of_hosts(sample)[1:]:
            row: dict[str, Any] = {"run_id": sample.run_id, "host": name, "kind": "model", "phase": ""}
            row |= {"t_ns": START_NS + second * 10**9, "t_s": float(second)}
            yield row | {"offset_ns": 12_000_000 + 3_000 * second, "bound_ns": 80_000, "round_trip_ns": None}


def _links(sample: Sample) -> Iterable[dict[str, Any]]:
    for number, step in enumerate(sample.steps, 1):
        for node, peer in ((node, peer) for node in NODES for peer in NODES if node != peer):
            if names_of_hosts(sample) or sample.with_links:
                row: dict[str, Any] = {"run_id": sample.run_id, "step": number, "node": node, "peer": peer}
                row |= {"host": f"b{node[-1]}", "peer_host": f"b{peer[-1]}"}
                if not names_of_hosts(sample):
                    row |= {"host": "", "peer_host": ""}
                octets = 1100.0 if node == NODES[0] else 20.0
                purpose = "replication" if node == NODES[0] else "consensus"
                yield row | {"purpose": purpose, "bytes_per_s": octets * step.rate, "bytes_per_message": octets}
                for way, purpose in sample.proxied.items():
                    if way == (node, peer):
                        yield row | {"purpose": purpose, "bytes_per_s": 1020 * step.rate, "bytes_per_message": 1020.0}


def _brokers(sample: Sample) -> Iterable[dict[str, Any]]:
    if not sample.with_brokers:
        return
    for second in range(sample.step_s * len(sample.steps)):
        for number, node in enumerate(NODES):
            load = 0.2 + 0.1 * (second // sample.step_s) - 0.05 * number + 0.01 * (second % 3)
            first = second == 0
            yield {
                "run_id": sample.run_id,
                "node": node,
                "pid": 4711 + number,
                "t_ns": START_NS + second * 10**9,
                "t_s": float(second),
                "role": "leader" if number == 0 else "follower",
                "host": f"b{number + 1}" if sample.load_hosts else None,
                "rss_bytes": 90 * 2**20,
                "cpu_ns": int(second * 4e8),
                "length_s": None if first else 1.0,
                "cpu_share": None if first else load,
                "wal_syncs_per_s": None if first else 700 + 40 * (second % 4) + 20 * number,
                "wal_bytes_per_s": None if first else 2e7,
                "metrics": "{}",
                "queues": json.dumps([_of_queue(second, number)]) if sample.load_hosts else None,
            }


def _of_queue(second: int, number: int) -> dict[str, Any]:
    """The third node falls behind in the fifth second."""
    commit = 1000 * second
    late = 400 if (second, number) == (5, 2) else 0
    role = "leader" if number == 0 else "follower"
    return {"name": "q", "role": role, "term": 3, "commit_index": commit, "synced_index": commit - late}


def _ledger(sample: Sample) -> Iterable[dict[str, Any]]:
    if not sample.with_ledger:
        return
    total = sum(round(step.rate * sample.step_s) for step in sample.steps)
    yield {
        "run_id": sample.run_id,
        "complete": True,
        "drained": True,
        "published": total,
        "confirmed": total,
        "nacked": 0,
        "returned": 0,
        "unconfirmed": 0,
        "delivered": total - sample.lost,
        "redelivered": 0,
        "unique": total - sample.lost,
        "republished": 0,
        "undelivered": 0,
        "lost": sample.lost,
        "duplicated": 0,
        "reordered": 0,
        "unexpected": 0,
        "damaged": 0,
        "examples": json.dumps(
            [{"publisher": 0, "first": 17, "last": 17 + sample.lost - 1, "what": "lost"}] if sample.lost else []
        ),
        "verdict": sample.verdict,
    }


STAGE_SHARES = {"read": 0.02, "propose": 0.2, "fsync": 0.25, "replicate": 0.3, "deliver": 0.1}


def _stages(sample: Sample) -> Iterable[dict[str, Any]]:
    """Stages that take 87 % of the mean end-to-end latency, if the broker tells."""
    for number, step in enumerate(sample.steps if sample.with_stages else (), 1):
        for chain in ("delivery", "confirm"):
            for stage, share in (STAGE_SHARES | {"total": sum(STAGE_SHARES.values())}).items():
                name = "confirm" if (chain, stage) == ("confirm", "deliver") else stage
                count = round(step.rate * (sample.step_s - sample.warmup_s) * sample.followed)
                summary = _summary("", step, share * (1.0 if chain == "delivery" else 0.86), count)
                key = {"run_id": sample.run_id, "step": number, "label": sample.label(step)}
                yield {**key, "chain": chain, "stage": name, **summary, "payload": ""}
        for file, times in {"wal": 1.0, "segment": 4.0, "meta": 2.0}.items() if sample.layout else ():
            key = {"run_id": sample.run_id, "step": number, "label": sample.label(step), "chain": "fsync"}
            yield {**key, "stage": file, **_summary("", step, times, 4_000), "payload": ""}


def _writes(sample: Sample) -> Iterable[dict[str, Any]]:
    """A sample a second of each node, while the steps last."""
    for second in range(1, sample.step_s * len(sample.steps) + 1 if sample.layout else 0):
        step = sample.steps[(second - 1) // sample.step_s]  # a sample tells of the time before it
        for node in NODES:
            for purpose, octets, syncs in (("wal", 1_150.0, 0.1), ("segment", 300.0, 0.01)):
                yield {
                    "run_id": sample.run_id,
                    "node": node,
                    "purpose": purpose,
                    "t_ns": START_NS + second * 1_000_000_000,
                    "t_s": float(second),
                    "length_s": 1.0,
                    "bytes_per_s": step.rate * octets,
                    "syncs_per_s": step.rate * syncs,
                    "sync_mean_ns": step.p50_ns,
                }


def _none(sample: Sample) -> Sequence[dict[str, Any]]:
    return ()


_ROWS = {
    "runs": _runs,
    "steps": _steps,
    "latency": _latency,
    "spectrum": _spectrum,
    "stages": _stages,
    "timeline": _timeline,
    "intervals": _none,
    "events": _events,
    "hosts": _hosts,
    "host_samples": _host_samples,
    "host_steps": _host_steps,
    "clocks": _clocks,
    "brokers": _brokers,
    "writes": _writes,
    "links": _links,
    "ledger": _ledger,
    "quarantine": _none,
}

SWEEP = Sample()
GRID = Sample(
    run_id="20261121-141502-grid-0003",
    name="sweep",
    title="In-flight limit and prefetch",
    swept=("in_flight", "prefetch"),
    steps=tuple(
        Step(setting=in_flight, others=(prefetch,), rate=rate, p50_ns=p50_ns)
        for in_flight, prefetch, rate, p50_ns in (
            (1000, 1000, 205_000, 4.8e6),
            (10, 1000, 9_400, 1.05e6),
            (100, 10, 31_000, 3.1e6),
            (100, 1000, 52_000, 1.9e6),
            (1000, 10, 32_000, 30e6),
            (10, 10, 9_000, 1.1e6),
            (1000, 100, 204_000, 4.9e6),
            (10, 100, 9_300, 1.06e6),
            (100, 100, 51_000, 1.95e6),
        )
    ),
)
"""Every combination of three values each, in an order drawn by a seed."""
CUBE = replace(
    GRID,
    run_id="20261121-151502-cube-0004",
    swept=("in_flight", "prefetch", "size_bytes"),
    steps=tuple(
        replace(step, others=(*step.others, size), rate=step.rate / (1 if size == 100 else 1.5))
        for size in (10_000, 100)
        for step in GRID.steps
    ),
)
DESCENDING = replace(SWEEP, run_id="20261121-161502-in_flight-down", steps=IN_FLIGHT[::-1])
UNLIMITED = Sample(
    run_id="20261121-171502-in_flight-free",
    swept=("in_flight",),
    steps=(
        Step(setting=1 << 30, rate=120_000, p50_ns=90e6),
        Step(setting=1000, rate=110_000, p50_ns=8e6),
        Step(setting=10, rate=12_000, p50_ns=0.9e6),
    ),
)
TOGETHER = replace(
    GRID,
    run_id="20261121-181502-pairs-0005",
    swept=("publishers", "in_flight"),
    steps=tuple(
        Step(setting=publishers, others=(in_flight,), rate=rate, p50_ns=2e6)
        for publishers, in_flight, rate in ((1, 1000, 90_000), (10, 100, 95_000), (100, 10, 60_000))
    ),
)
"""Settings that change together: no step differs from another in one of them alone."""
VIOLATED = replace(SWEEP, run_id="20261121-111502-in_flight-bad1", verdict="violated", lost=3)
SINGLE = Sample(
    run_id="20261121-121502-run-0001",
    name="run",
    title="",
    swept=(),
    steps=(Step(setting=1000, rate=150_000, p50_ns=5e6),),
    step_s=30,
)
OPEN = Sample(
    run_id="20261121-131502-rates-0002",
    name="rates",
    title="Rates below the limit",
    swept=("rate",),
    loop="open",
    steps=tuple(
        Step(setting=rate, rate=rate, p50_ns=1e6 * (1 + rate / 40_000) ** 2) for rate in (5_000, 10_000, 20_000, 40_000)
    ),
)
MIXED = replace(OPEN, run_id="20261121-141502-rates-0003", title="Rates, and no rate", loop="mixed")
SPREAD = replace(
    SWEEP,
    run_id="20261121-191502-in_flight-many",
    load_hosts=4,
    slow_host="load2",
    gone_host="load4",
    title="Many hosts",
)
"""Four load hosts, one of which is slow and one of which was lost, and a host for each of three nodes."""
