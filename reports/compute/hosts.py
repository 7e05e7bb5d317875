"""The figures of hosts: rates of their samples, their means over steps, and the share of each host in a step's load.

A host serves every group of load: each group of a step has the figures of the whole host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from reports.compute.intervals import COUNTS, key_of, rates
from reports.compute.parsing import HOST_OCTETS
from reports.compute.run_plan import NS, RunPlan
from reports.compute.samples import grown, in_pairs, length_s, mean, per_s
from reports.store.columns import Row

HOST_STEP: Final = ("step", "group", "host")
_ZEROS: Final = (*COUNTS, "length_s", "workers", "loop_lag_ns", "gc_pause_ns")


def sample_rows(samples: Sequence[Row], plan: RunPlan) -> list[Row]:
    """The rows of ``host_samples``: samples with octets per second since the host's previous sample.

    The first sample of a host has none, nor has a sample after a counter that went back: the host was started again.
    """
    rows = []
    for row, before in in_pairs(samples, lambda row: row["host"]):
        length = length_s(row, before)
        octets = {f"{name}_per_s": per_s(grown(row, before, name), length) for name in HOST_OCTETS}
        rows.append(row | {"t_s": plan.since_start(row["t_ns"]), "length_s": length} | octets)
    return rows


def use_of_load_hosts(samples: Sequence[Row], step_totals: Sequence[Row], plan: RunPlan) -> dict[Any, float | None]:
    """CPU of the busiest load host, per step and group of load over its steady time."""
    # A host that no manifest names made load: else it would have no samples.
    loaded = [row for row in samples if plan.made_load.get(row["host"], True)]
    busiest: dict[Any, float | None] = {}
    for (step, group, _), part in _within_steps(loaded, step_totals).items():
        known = [
            cpu for cpu in (busiest.get((step, group)), mean(row["cpu_percent"] for row in part)) if cpu is not None
        ]
        busiest[step, group] = max(known, default=None)
    return busiest


def use_of_each_host(samples: Sequence[Row], step_totals: Sequence[Row]) -> dict[Any, Row]:
    """Mean CPU, and mean octets per second of network and drives, of each host over each step's steady time."""
    names = tuple(f"{name}_per_s" for name in HOST_OCTETS)
    return {
        key: {"host_cpu_percent": mean(row["cpu_percent"] for row in part)}
        | {name: mean(row[name] for row in part) for name in names}
        for key, part in _within_steps(samples, step_totals).items()
    }


def _within_steps(samples: Sequence[Row], step_totals: Sequence[Row]) -> dict[tuple[int, str, str], list[Row]]:
    """The samples of each step, group of load and host."""
    found: dict[tuple[int, str, str], list[Row]] = defaultdict(list)
    for step in step_totals:
        for row in samples:
            # A sample tells of the time before it: a sample at the very end of a step belongs to the step, a sample at
            # the start does not.
            if step["start_ns"] < row["t_ns"] <= step["end_ns"]:
                found[step["step"], step["group"], row["host"]].append(row)
    return found


def host_step_rows(
    host_totals: Sequence[Row], latencies: Mapping[Any, Row], use: Mapping[Any, Row], plan: RunPlan
) -> list[Row]:
    """The rows of ``host_steps``.

    :param host_totals: totals per step, group of load and host
    :param latencies: the columns of the latencies, by the same
    :param use: the figures of every host that was sampled, with or without load, by the same
    """
    by_key = {key_of(row, HOST_STEP): row for row in host_totals}
    wholes: dict[Any, dict[str, int]] = defaultdict(lambda: {"published": 0, "delivered": 0})
    for row in host_totals:
        for name, sum_ in wholes[row["step"], row["group"]].items():
            wholes[row["step"], row["group"]][name] = sum_ + row[name]
    rows = []
    for key in sorted(by_key.keys() | use.keys()):
        row = dict(zip(HOST_STEP, key, strict=True)) | dict.fromkeys(_ZEROS, 0) | by_key.get(key, {})
        row |= {"label": plan.label(row["step"], row["group"]), **rates(row), **use.get(key, {})}
        row["workers_cpu_percent"] = _workers_cpu_percent(row, plan)
        for name, whole in wholes[row["step"], row["group"]].items():
            row[f"{name}_part"] = row[name] / whole if whole > 0 else None
        rows.append(row | latencies.get(key, {}))
    return rows


def _workers_cpu_percent(row: Row, plan: RunPlan) -> float | None:
    """CPU of all workers of the host, of all its cores."""
    cores = plan.cores.get(row["host"])
    if not cores or cores < 0 or not row["length_s"] > 0:
        return None
    return float(100 * row["worker_cpu_ns"] / NS / cores / row["length_s"])
