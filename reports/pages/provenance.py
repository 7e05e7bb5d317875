"""The origin of a result, and how to get it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import yaml

from reports.pages import words
from reports.pages.figures import manifest_of
from reports.pages.model import Named, Provenance
from reports.pages.tables import files_table


def provenance(
    run: pd.Series[Any], hosts: pd.DataFrame, *, rebuild: Sequence[str], files: Sequence[tuple[str, int]]
) -> Provenance:
    """All that is known of the origin of a run. Facts that the run did not record are left out, never guessed."""
    manifest = manifest_of(run)
    plan = manifest.get("plan", {})
    groups = [
        ("Run", _run_facts(run)),
        ("Broker", _broker_facts(run, manifest.get("broker", {}), plan)),
        *((f"Load host {host['host']}", _host_facts(host)) for _, host in hosts.iterrows()),
    ]
    commands = [("Reproduce this run", json.loads(run["command"] or "[]")), ("Rebuild this report", list(rebuild))]
    return Provenance(
        groups=tuple((title, tuple(facts)) for title, facts in groups),
        commands=tuple((title, shlex.join(map(str, line))) for title, line in commands if line),
        plan=yaml.safe_dump(plan, sort_keys=False, allow_unicode=True, width=110) if plan else "not recorded",
        files=files_table(str(run["run_id"]), files),
    )


def utc(unix_ns: int) -> str:
    """A Unix time (ns) in words: 2026-11-21 10:15:02 UTC."""
    return datetime.fromtimestamp(unix_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _facts(*pairs: tuple[str, Any]) -> list[Named]:
    """Facts that have a value."""
    return [(name, str(value)) for name, value in pairs if value is not None and str(value) not in ("", "nan")]


def _run_facts(run: pd.Series[Any]) -> list[Named]:
    commit = (
        f"{run['tool_commit']}{' with uncommitted changes' if run['tool_dirty'] else ''}" if run["tool_commit"] else ""
    )
    return _facts(
        ("run", run["run_id"]),
        ("started", utc(int(run["started_ns"]))),
        ("length", words.duration(float(run["length_s"]))),
        ("state", run["state"]),
        ("loop", run["loop"]),
        ("steps", f"{run['isolation']}, {words.plural(int(run['steps_planned']), 'step')} planned"),
        ("seed", run["seed"]),
        ("tool", f"perftest {run['tool_version']}"),
        ("commit", commit),
        ("plan digest", run["plan_digest"]),
        ("published at", run["source"]),
    )


def _broker_facts(run: pd.Series[Any], broker: dict[str, Any], plan: dict[str, Any]) -> list[Named]:
    nodes = [f"{node.get('name', '?')} ({node.get('role') or 'role unknown'})" for node in broker.get("nodes", [])]
    queues = [_queue(queue) for queue in plan.get("queues", [])]
    return _facts(
        ("product", f"{run['product']} {run['broker_version']}".strip()),
        ("platform", run["platform"]),
        ("cluster", run["cluster"]),
        ("nodes", ", ".join(nodes)),
        ("layout", broker.get("layout", "")),
        ("addresses", ", ".join(map(str, broker.get("uris", [])))),
        ("a confirm means", run["durability"]),
        *_drives(broker.get("drives", [])),
        *((f"queue {number}" if len(queues) > 1 else "queue", text) for number, text in enumerate(queues[:8], 1)),
        *([("more queues", f"{len(queues) - 8}, see the plan")] if len(queues) > 8 else []),
    )


def _drives(drives: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """A line for each modelled drive: its profile, its lateness, and its use."""
    found = []
    for drive in drives:
        used = ", ".join(
            f"{purpose} {counts.get('syncs', 0):,} syncs {words.octets(counts.get('write_octets', 0))}"
            for purpose, counts in drive["purposes"].items()
        )
        late = f"p99 {words.latency(drive['late_ns_p99'])} late" if "late_ns_p99" in drive else "lateness unknown"
        text = f"modelled: {' then '.join(drive['profiles'])}; {drive['operations']:,} operations, {late}; {used}"
        found.append((f"drive {drive['name']} of {drive['node']}", text))
    return found


def _queue(queue: dict[str, Any]) -> str:
    arguments = ", ".join(f"{name}={value}" for name, value in queue.get("arguments", {}).items())
    return ", ".join(part for part in (str(queue.get("name", "?")), str(queue.get("type", "")), arguments) if part)


def _host_facts(host: pd.Series[Any]) -> list[Named]:
    memory = words.octets(float(host["memory_bytes"])) if pd.notna(host["memory_bytes"]) else None
    clock = str(host["clock"])
    if host["clock_bound_ns"]:
        clock += (
            f", offset {words.latency(abs(host['clock_offset_ns']))} known to ± {words.latency(host['clock_bound_ns'])}"
        )
    return _facts(
        ("host name", host["hostname"]),
        ("processor", host["cpu"]),
        ("cores", int(host["cores"]) if pd.notna(host["cores"]) else None),
        ("memory", memory),
        ("kernel", host["kernel"]),
        ("file system", host["filesystem"]),
        ("clock", clock),
    )
