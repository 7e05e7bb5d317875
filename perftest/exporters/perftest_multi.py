"""A run as results of PerfTestMulti, which PerfTest's own pages draw (rabbitmq-perf-html).

A run with one step is a *simple* scenario with a sample for each interval. A sweep is a *varying* scenario, whose
``data`` has a level for each of its ``dimensions``. A sample has the milliseconds since the start,
rates in messages and octets per second, and the least, the average and the greatest latency in microseconds. As
PerfTest does, the averages of a whole load leave the warm-up out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from perftest.exporters.slots import ExportedSlot, merged
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Phase, Series

NAMES: Final = {
    "in_flight": "confirm", "consumers": "consumerCount", "consumer_latency_us": "consumerLatencyInMicroseconds",
    "prefetch": "consumerPrefetch", "size_bytes": "minMsgSize", "ack_interval": "multiAckEvery",
    "publishers": "producerCount", "rate": "producerRateLimit",
}  # fmt: skip
"""PerfTest's name of a setting, where it has one."""


def results(plan: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], slots: Sequence[ExportedSlot]) -> str:
    """The content of the file, with a scenario for each group of load.

    :param plan: the plan as in a manifest
    :param rows: the steps of ``result.json``; a rate that another tool did not tell is 0
    """
    names = {row["group"]: ": ".join(filter(None, (plan.get("name") or "run", row["group"]))) for row in rows}
    swept = [str(each) for each in plan.get("swept") or ()]
    found = {
        name: _scenario([row for row in rows if row["group"] == group], swept, slots) for group, name in names.items()
    }
    return json.dumps(found, ensure_ascii=False, indent=1) + "\n"


def _scenario(rows: Sequence[Mapping[str, Any]], swept: Sequence[str], slots: Sequence[ExportedSlot]) -> dict[str, Any]:
    if len(rows) == 1:
        return _load(rows[0], slots)
    values = [[str(row["settings"].get(name)) for name in swept] for row in rows]
    names = [NAMES.get(name, name) for name in swept]
    if len({tuple(each) for each in values}) < len(rows):  # settings alone do not tell these steps apart
        names, values = [*names, "step"], [[*each, str(row["step"])] for each, row in zip(values, rows, strict=True)]
    data: dict[str, Any] = {}
    for path, row in zip(values, rows, strict=True):
        node = data
        for value in path[:-1]:
            node = node.setdefault(value, {})
        node[path[-1]] = _load(row, slots)
    by_name = {name: list(dict.fromkeys(each[at] for each in values)) for at, name in enumerate(names)}
    return {"dimensions": names, "dimension-values": by_name, "data": data}


def _load(row: Mapping[str, Any], slots: Iterable[ExportedSlot]) -> dict[str, Any]:
    """The results of one step."""
    own = [slot for slot in slots if (slot.step, slot.group) == (row["step"], row["group"])]
    seen = [slot for slot in own if slot.phase is not Phase.DRAIN]
    start_ns = min((slot.start_ns for slot in seen), default=0)
    size = row.get("published_bytes", 0) / row["published"] if row.get("published") else 0
    whole = merged((slot for slot in seen if slot.phase is Phase.STEADY), Series.E2E)
    return {
        **_rates(row.get("published_per_s", 0.0), row.get("delivered_per_s", 0.0), size),
        **({"avg-latency": round(whole.mean_ns / 1000)} if whole.total else {}),
        "samples": [_sample(slot, start_ns, size) for slot in seen],
    }


def _sample(slot: ExportedSlot, start_ns: int, size: float) -> dict[str, Any]:
    latency = _latency(slot.latencies.get(Series.E2E, Histogram()))
    rates = _rates(slot.per_s("published"), slot.per_s("handled"), size)
    return {"elapsed": (slot.end_ns - start_ns) // 10**6, **rates, **latency}


def _rates(sent: float, received: float, size: float) -> dict[str, float]:
    rates = {"send-msg-rate": sent, "send-bytes-rate": sent * size}
    rates |= {"recv-msg-rate": received, "recv-bytes-rate": received * size}
    return {name: round(rate, 3) for name, rate in rates.items()}


def _latency(found: Histogram) -> dict[str, int]:
    """The latencies of a sample; a sample without deliveries has none."""
    if not found.total:
        return {}
    least, mean, most = (round(value / 1000) for value in (found.min_ns, found.mean_ns, found.max_ns))
    return {"min-latency": least, "avg-latency": mean, "max-latency": most}
