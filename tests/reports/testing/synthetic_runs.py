"""Run directories made from a model, for tests of the pipeline, the charts and the pages.

The model is a closed loop with ``in_flight`` messages in the system against a server with a fixed latency and a
capacity: rate = N / (L0 + N / C). Latencies are log-normal around L0 + N / C with rare stalls, so that curves have the
shape of real ones: latency is flat until the knee, then grows with N while the rate saturates.

Files follow docs/internals/run-directory.md; histograms are real HdrHistogram V2 payloads.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from hdrh.histogram import HdrHistogram

from perftest.results import schema
from perftest.results.folder import LocalFolder
from perftest.results.integrity import FILES, sealed, sum_of, sums_to_json

LOWEST, HIGHEST, FIGURES = 1, 3_600_000_000_000, 3
STARTED_NS = 1_795_256_102_000_000_000
SECOND = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a synthetic run looks like; the defaults give the six steps of an in-flight sweep in under a second."""

    steps: Sequence[int] = (1, 4, 16, 64, 256, 1024)
    seed: int = 1
    run_id: str = "20261121-101502-in_flight-3fa1"
    workers: int = 2
    hosts: int = 1
    warmup: int = 1
    steady: int = 4
    interval_ns: int = SECOND
    open_loop: bool = False
    without_rate: tuple[int, ...] = ()
    """Steps of an open loop, by their in-flight limit, that have no rate."""
    base_latency_ns: int = 1_600_000
    capacity_per_s: float = 12_000.0
    nodes: int = 3
    stages: tuple[str, ...] = ()
    """Series of stages within the broker, of which every node writes a line per step."""
    killed: bool = False
    clock_offset_ns: int = 0
    """Of every host but the first: its clock minus the coordinator's."""
    ledger: dict[str, Any] = field(default_factory=dict)
    """Overrides of the ledger's figures."""
    groups: tuple[str, ...] = ("",)
    """Groups of load, each with all of the rate."""
    broker_hosts: int = 0
    """Hosts of broker nodes, one node on each in turn; 0: nobody tells where the nodes are."""
    lost_after: int = 0
    """The number of intervals after which the last load host was lost; 0: none was."""


@dataclass(frozen=True)
class Slot:
    """One interval of the plan: where it lies and what it belongs to."""

    step: int
    in_flight: int
    phase: str
    number: int
    start_ns: int


def make_run(path: Path, shape: Shape | None = None, **changes: Any) -> Path:
    """Write a run directory at ``path`` and return it. Keyword arguments are fields of :class:`Shape`."""
    shape = shape or Shape(**changes)
    path.mkdir(parents=True)
    slots = list(_slots(shape))
    _write_measurements(path, shape, slots)
    _write_events(path, shape, slots)
    _write_hosts(path, shape, slots)
    if shape.hosts > 1:
        _write_clocks(path, shape, slots)
    _write_brokers(path, shape, slots)
    _write_manifest(path, shape, slots)
    if not shape.killed:
        _write_json(path / schema.LEDGER, _ledger(path, shape))
    return path


def seal(path: Path) -> None:
    """Give the manifest of a run directory the checksums that the end of a run writes."""
    folder = LocalFolder(path)
    there = [name for name in schema.BESIDE_MANIFEST if (path / name).is_file()]
    manifest = json.loads((path / schema.MANIFEST).read_text(encoding="utf-8"))
    manifest[FILES] = sums_to_json({name: sum_of(folder, name) for name in there})
    _write_json(path / schema.MANIFEST, sealed(manifest))


def bucket_indexes(values: np.ndarray) -> np.ndarray:
    """The index of each value in the counts array of a (1 ns, 3 figures) histogram."""
    exponents = np.maximum(np.frexp(values.astype(np.float64))[1] - 11, 0)
    return exponents * 1024 + (values >> exponents)


def histogram(values: np.ndarray) -> HdrHistogram:
    """A histogram of the values, as the generator would record them."""
    result = HdrHistogram(LOWEST, HIGHEST, FIGURES)
    counts = np.bincount(bucket_indexes(values), minlength=result.counts_len)
    np.ctypeslib.as_array(result.counts)[:] = counts
    used = np.flatnonzero(counts)
    if used.size:
        result.set_internal_tacking_values(int(used[0]), int(used[-1]), int(values.size))
    return result


def rate_of(shape: Shape, in_flight: int) -> float:
    """Messages per second that the model gives for a setting, all workers together."""
    return in_flight / (shape.base_latency_ns / 1e9 + in_flight / shape.capacity_per_s)


def _slots(shape: Shape) -> Iterator[Slot]:
    start_ns = STARTED_NS + SECOND // 2
    for step, in_flight in enumerate(shape.steps, 1):
        for phase, count in (("warmup", shape.warmup), ("steady", shape.steady)):
            for number in range(count):
                yield Slot(step, in_flight, phase, number, start_ns)
                start_ns += shape.interval_ns
    yield Slot(len(shape.steps), shape.steps[-1], "drain", 0, start_ns)


def _latencies(shape: Shape, slot: Slot, count: int, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Nanoseconds of each series; a drain has no sends, so it has only end-to-end and ack latencies."""
    middle = shape.base_latency_ns + slot.in_flight / shape.capacity_per_s * 1e9
    spread = random.lognormal(0.0, 0.25, count)
    stalls = np.where(random.random(count) < 0.002, random.exponential(20e6, count), 0.0)
    confirm = (middle * spread + stalls).astype(np.int64)
    e2e = (confirm * 1.15 + random.lognormal(11.5, 0.4, count)).astype(np.int64)
    series = {"e2e": e2e, "ack": random.integers(20_000, 400_000, count)}
    if slot.phase == "drain":
        return series
    series["confirm"] = confirm
    if shape.open_loop and slot.in_flight not in shape.without_rate:
        lag = random.lognormal(10.0, 0.7, count).astype(np.int64)
        series |= {"lag": lag, "e2e_sched": e2e + lag, "confirm_sched": confirm + lag}
    return series


def _write_measurements(path: Path, shape: Shape, slots: list[Slot]) -> None:
    random = np.random.default_rng(shape.seed)
    with (
        (path / schema.INTERVALS_CSV).open("w", encoding="utf-8", newline="") as table,
        (path / schema.LATENCY_HLOG).open("w", encoding="utf-8") as log,
    ):
        rows = csv.writer(table, lineterminator="\n")
        rows.writerow(schema.PERFTEST_COLUMNS + schema.OWN_COLUMNS)
        _write_hlog_header(log)
        for at, slot in enumerate(slots):
            for worker in range(shape.workers):
                if shape.lost_after and at >= shape.lost_after and worker % shape.hosts == shape.hosts - 1:
                    continue
                for group in shape.groups:
                    _write_interval(rows, log, shape, slot, worker, group, random)
        _write_stages(log, shape, slots, random)


def _write_stages(log: TextIO, shape: Shape, slots: list[Slot], random: np.random.Generator) -> None:
    for step in sorted({slot.step for slot in slots}):
        begin = (min(s.start_ns for s in slots if (s.step, s.phase) == (step, "steady")) - STARTED_NS) / 1e9
        for series in shape.stages:
            for node in range(1, shape.nodes + 1):
                values = random.integers(1_000, 10**7, 50 * node)
                recorded, maximum = histogram(values), int(values.max())
                tag = schema.HLOG_TAG.format(series=series, step=step, phase="steady", host="host0", worker=f"n{node}")
                log.write(f"Tag={tag},{begin:.3f},4.000,{_in_ms(maximum)},{recorded.encode().decode()}\n")


def _write_hlog_header(log: TextIO) -> None:
    base = f"{STARTED_NS / 1e9:.3f}"
    log.write("#[Histogram log format version 1.3]\n")
    log.write(f"#[BaseTime: {base} (seconds since epoch)]\n#[StartTime: {base} (seconds since epoch)]\n")
    log.write('"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n')


def _write_interval(
    rows: Any, log: TextIO, shape: Shape, slot: Slot, worker: int, group: str, random: np.random.Generator
) -> None:
    host = worker % shape.hosts
    start_ns = slot.start_ns + worker * 1_000_000
    length_s = shape.interval_ns / 1e9
    share = rate_of(shape, slot.in_flight) * length_s / shape.workers
    if slot.phase == "drain":
        share = slot.in_flight / shape.workers
    count = max(1, round(share * random.normal(1.0, 0.01)))
    series = _latencies(shape, slot, count, random)
    histograms = {name: histogram(values) for name, values in series.items()}
    rows.writerow([*_perftest_cells(slot, start_ns, length_s, count, histograms), worker, f"host{host}",
                   *_own_cells(shape, slot, start_ns, count, random), group, *_left_open(shape, host)])  # fmt: skip
    for name, recorded in histograms.items():
        tag = schema.HLOG_TAG.format(series=name, step=slot.step, phase=slot.phase, host=f"host{host}", worker=worker)
        tag += schema.HLOG_GROUP.format(group=group) if group else ""
        begin = (start_ns - STARTED_NS) / 1e9
        maximum = int(series[name].max())
        log.write(f"Tag={tag},{begin:.3f},{length_s:.3f},{_in_ms(maximum)},{recorded.encode().decode()}\n")


def _in_ms(value_ns: int) -> str:
    """A maximum as a histogram log has it, exact to the nanosecond."""
    return f"{value_ns // 10**6}.{value_ns % 10**6:06d}"


def _perftest_cells(
    slot: Slot, start_ns: int, length_s: float, count: int, histograms: dict[str, HdrHistogram]
) -> list[object]:
    rate = round(count / length_s, 1)
    sent = 0.0 if slot.phase == "drain" else rate
    cells: list[object] = ["in_flight", round((start_ns - STARTED_NS) / 1e9 + length_s, 3), sent, 0, sent, 0, rate]
    for name in ("e2e", "confirm"):
        recorded = histograms.get(name)
        cells.append("" if recorded is None else recorded.get_min_value() // 1000)
        for percentile in (50, 75, 95, 99):
            cells.append("" if recorded is None else _percentile(recorded, percentile) // 1000)
    return cells


def _percentile(recorded: HdrHistogram, percentile: float) -> int:
    counts = np.ctypeslib.as_array(recorded.counts)
    target = recorded.get_target_count_at_percentile(percentile)
    index = int(np.searchsorted(np.cumsum(counts), target))
    return int(recorded.get_highest_equivalent_value(recorded.get_value_from_index(index)))


def _left_open(shape: Shape, host: int) -> tuple[int, ...]:
    """Clocks that differ leave 200 us open of each latency that ends on another host than the first."""
    return (200_000, 3, 1, 0) if shape.clock_offset_ns and host else (0, 0, 0, 0)


def _own_cells(shape: Shape, slot: Slot, start_ns: int, count: int, random: np.random.Generator) -> list[object]:
    sent = 0 if slot.phase == "drain" else count
    return [
        slot.step,
        slot.phase,
        start_ns,
        shape.interval_ns,
        sent,
        sent,
        sent,
        0,
        0,
        count,
        0,
        count,
        sent * 1000,
        0 if slot.phase == "drain" else slot.in_flight,
        0,
        int(count * random.normal(5_000, 200)) + 20_000_000,
        int(random.lognormal(13.0, 0.5)),
        *(shape.interval_ns // 100, 1, 2_000_000, shape.interval_ns // 200),
        *(0, 0, 0, 0),
    ]


def _write_events(path: Path, shape: Shape, slots: list[Slot]) -> None:
    events: list[dict[str, Any]] = [{"t_ns": STARTED_NS, "kind": "run_started"}]
    for previous, slot in zip([None, *slots], slots, strict=False):
        settings = {"in_flight": slot.in_flight}
        label = f"in_flight={slot.in_flight}"
        if previous is None or previous.step != slot.step:
            events.append(
                {"t_ns": slot.start_ns, "kind": "step_started", "step": slot.step, "label": label, "settings": settings}
            )
        if slot.phase == "steady" and slot.number == 0:
            events.append({"t_ns": slot.start_ns, "kind": "steady", "step": slot.step})
    middle = slots[len(slots) // 2].start_ns
    text = "the broker blocked the connection: low on memory"
    events.append({"t_ns": middle, "kind": "blocked", "worker": "0", "step": slots[len(slots) // 2].step, "text": text})
    if not shape.killed:
        events.append({"t_ns": _end_ns(shape, slots), "kind": "run_ended"})
    _write_lines(path / schema.EVENTS, sorted(events, key=lambda event: int(event["t_ns"])))


def _write_hosts(path: Path, shape: Shape, slots: list[Slot]) -> None:
    random = np.random.default_rng(shape.seed + 1)
    _write_lines(
        path / schema.HOST,
        [
            {
                "t_ns": slot.start_ns + shape.interval_ns,
                "host": host,
                "cpu_percent": round(float(random.normal(35, 3)), 1),
                "load1": 1.2,
                "steal_percent": 0.0,
                "memory_available_bytes": 8_000_000_000,
                "rx_bytes": 7_000_000 + (at + 1) * 1_000_000 * (place + 1),
                "tx_bytes": 5_000_000 + (at + 1) * 2_000_000 * (place + 1),
                "disk_read_bytes": 0,
                "disk_write_bytes": (at + 1) * 500_000,
            }
            for at, slot in enumerate(slots)
            for place, host in enumerate(host_names(shape))
        ],
    )


def host_names(shape: Shape) -> list[str]:
    """The load hosts, then the hosts of broker nodes."""
    return [f"host{n}" for n in range(shape.hosts)] + [f"broker{n}" for n in range(shape.broker_hosts)]


def _write_clocks(path: Path, shape: Shape, slots: list[Slot]) -> None:
    """Three exchanges with each host but the first, with way times of 100 and 300 us, and a model an interval."""
    lines: list[dict[str, Any]] = []
    for host in host_names(shape)[1:]:
        for at in range(3):
            sent_ns = STARTED_NS + at * 10_000_000
            there_ns = sent_ns + 100_000 + shape.clock_offset_ns
            exchange = {"sent_ns": sent_ns, "host_received_ns": there_ns, "host_sent_ns": there_ns + 10_000}
            exchange |= {"received_ns": sent_ns + 410_000}
            lines.append({"t_ns": sent_ns, "host": host, "phase": "before", **exchange})
        for slot in slots:
            model = {"knots_ns": [slot.start_ns + shape.clock_offset_ns], "offsets_ns": [-shape.clock_offset_ns]}
            model |= {"bounds_ns": [200_000], "rate_ppm": 0.0, "rate_bound_ppm": 10.0}
            lines.append({"t_ns": slot.start_ns, "host": host, "model": model})
    _write_lines(path / schema.CLOCKS, sorted(lines, key=lambda line: int(line["t_ns"])))


def _write_brokers(path: Path, shape: Shape, slots: list[Slot]) -> None:
    lines = []
    cpu_ns = syncs = octets = 0
    for slot in slots:
        count = rate_of(shape, slot.in_flight) * shape.interval_ns / 1e9
        cpu_ns += int(count * 4_000)
        syncs += int(min(400, count))
        octets += int(count * 1_120)
        for node in range(1, shape.nodes + 1):
            lines.append(
                {
                    "t_ns": slot.start_ns + shape.interval_ns,
                    "node": f"node{node}",
                    "pid": 4710 + node,
                    "cpu_ns": cpu_ns,
                    "rss_bytes": 90_000_000,
                    "role": "leader" if node == 1 else "follower",
                    **_of_host(shape, node, octets),
                    "metrics": {
                        "wal_syncs": syncs,
                        "wal_bytes": octets,
                        "sync_ns_total": syncs * 3_000_000,
                        "segment_syncs": syncs // 10,
                        "segment_bytes": octets // 4,
                        "segment_compacted_bytes": 0,
                        "segment_sync_ns_total": syncs // 10 * 5_000_000,
                        "meta_syncs": 2,
                    },
                }
            )
    _write_lines(path / schema.BROKER, lines)


def _of_host(shape: Shape, node: int, octets: int) -> dict[str, Any]:
    """Where a node is, and what it sent so far: the first node replicates to all others, all proxy to the first."""
    if not shape.broker_hosts:
        return {}
    sent = {
        f"node{peer}": {
            "replication": octets if node == 1 else octets // 100,
            "commands": 0 if node == 1 else octets // 10,
        }
        for peer in range(1, shape.nodes + 1)
        if peer != node
    }
    return {"host": f"broker{(node - 1) % shape.broker_hosts}", "links": sent}


def _write_manifest(path: Path, shape: Shape, slots: list[Slot]) -> None:
    plan = _plan(shape)
    manifest: dict[str, Any] = {
        "schema": schema.SCHEMA_VERSION,
        "id": shape.run_id,
        "state": "running" if shape.killed else "finished",
        "started_ns": STARTED_NS,
        "command": ["perftest", "sweep", "flow_control/in_flight"],
        "tool": {"name": "perftest", "version": "0.1.0", "commit": "abc123", "dirty": False, "python": "3.11.7"},
        "plan": plan | {"digest": hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()},
        "broker": _broker(shape),
        "hosts": [_host(shape, name, slots) for name in host_names(shape)],
        "loop": "open" if shape.open_loop else "closed",
    }
    if not shape.killed:
        ended = {"reason": "finished", "exit_code": 0}
        manifest |= {"finished_ns": _end_ns(shape, slots), "ended": ended}
    _write_json(path / schema.MANIFEST, manifest)


def _plan(shape: Shape) -> dict[str, Any]:
    interval_s = shape.interval_ns / 1e9
    steps = [
        {
            "number": number,
            "label": f"in_flight={in_flight}",
            "duration_s": (shape.warmup + shape.steady) * interval_s,
            "warmup_s": shape.warmup * interval_s,
            "settings": _settings(shape, in_flight),
        }
        for number, in_flight in enumerate(shape.steps, 1)
    ]
    groups = [{"name": name, "measured": True, "steps": steps} for name in shape.groups if name]
    return ({"groups": groups} if groups else {}) | {
        "name": "flow_control/in_flight",
        "title": "Publisher in-flight limit",
        "isolation": "live",
        "swept": ["in_flight"],
        "interval_s": interval_s,
        "seed": shape.seed,
        "source": "https://example.org/published",
        "queues": [{"name": "perftest.in_flight", "type": "quorum"}],
        "steps": steps,
    }


def _settings(shape: Shape, in_flight: int) -> dict[str, Any]:
    is_open = shape.open_loop and in_flight not in shape.without_rate
    rate = rate_of(shape, in_flight) if is_open else None
    return {"in_flight": in_flight, "prefetch": 1000, "ack_interval": 1, "rate": rate, "size_bytes": 1000,
            "publishers": 1, "consumers": 1, "persistent": True, "mandatory": False}  # fmt: skip


def _broker(shape: Shape) -> dict[str, Any]:
    nodes = [
        {
            "name": f"node{number}",
            "pid": 4710 + number,
            "amqp_uri": f"amqp://guest:***@127.0.0.1:{5690 + number}/%2f",
            "role": "leader" if number == 1 else "follower",
            "data_dir": f"data/node{number}",
        }
        for number in range(1, shape.nodes + 1)
    ]
    return {
        "product": "reference_broker",
        "version": "0.1.0",
        "platform": "CPython 3.11.7",
        "uris": [node["amqp_uri"] for node in nodes],
        "cluster": "local",
        "nodes": nodes,
        "durability": "fdatasync on a majority of 3 before each confirm",
    }


def _host(shape: Shape, name: str, slots: list[Slot]) -> dict[str, Any]:
    is_first = name == "host0"
    host: dict[str, Any] = {
        "name": name,
        "hostname": f"{name.replace('host', 'load')}.example.org",
        "cores": 2,
        "cpu": "Synthetic CPU",
        "memory_bytes": 16_000_000_000,
        "kernel": "6.1",
        "filesystem": "ext4",
        "clock": "CLOCK_MONOTONIC",
        "clock_offset_ns": 0 if is_first else shape.clock_offset_ns,
        "clock_bound_ns": 0 if is_first else 200_000,
    }
    if shape.broker_hosts:
        host["roles"] = ["broker"] if name.startswith("broker") else ["load"]
        if not is_first:
            host |= {"address": f"10.0.0.{len(name)}", "python": "3.11.7", "tool": {"version": "0.1.0"}}
            host |= {"clock_drift_ppm": 3.5, "round_trip_ns": 400_000, "start_skew_ns": 90_000, "stop_skew_ns": 70_000}
    if shape.lost_after and name == f"host{shape.hosts - 1}":
        host["lost"] = {"t_ns": slots[shape.lost_after].start_ns, "reason": "the connection was lost"}
    return host


def _ledger(path: Path, shape: Shape) -> dict[str, Any]:
    with (path / schema.INTERVALS_CSV).open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    published = sum(int(row["published"]) for row in rows)
    ledger: dict[str, Any] = {"schema": schema.SCHEMA_VERSION, "complete": True, "drained": True}
    ledger |= {"published": published, "confirmed": published, "delivered": published, "unique": published}
    names = ("nacked", "returned", "unconfirmed", "redelivered", "lost", "duplicated", "reordered", "unexpected")
    ledger |= dict.fromkeys((*names, "damaged"), 0) | {"examples": [], "verdict": "ok"}
    return ledger | shape.ledger


def _end_ns(shape: Shape, slots: list[Slot]) -> int:
    return slots[-1].start_ns + shape.interval_ns + SECOND // 2


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def _write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
