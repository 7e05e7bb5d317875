"""Rows of the tables that come from manifests and ledgers.

The tool writes the manifest, but the run may have been killed, or another version may have written the manifest. A part
that is absent leaves its columns empty; it does not stop the report.
"""

from __future__ import annotations

import json
from typing import Any, Final

from perftest.results import schema as files
from perftest.results.hosts import has_load, roles_of
from perftest.results.run_checks import one_machine
from perftest.results.summary import OPEN, background_loads_of, loads_of, run_loop, step_loop
from reports.compute.run_files import RunHead
from reports.store import schema
from reports.store.columns import Type

Row = dict[str, Any]

_MAYBE: Final = ("cores", "memory_bytes", "round_trip_ns", "link_bits_per_s", "start_skew_ns", "stop_skew_ns")
"""Whole numbers of a host that need not be known."""
DEFAULT_INTERVAL_S: Final = 1.0
INTERVAL_MAX_S: Final = 86_400.0


def run_row(run: RunHead, last_ns: int) -> Row:
    """The row of ``runs``.

    :param last_ns: Unix time at which the last interval ended, which is the end of a run that did not end itself
    """
    manifest = run.manifest
    plan, broker, tool = (_part(manifest, key) for key in ("plan", "broker", "tool"))
    ended, hosts = _part(manifest, "ended"), _parts(manifest, "hosts")
    queues = {str(queue.get("type", "")) for queue in _parts(plan, "queues")}
    ended_ns = _whole(manifest, "finished_ns", last_ns)
    texts = {
        **{name: _text(plan, name) for name in ("name", "title", "source", "isolation")},
        **{name: _text(broker, name) for name in ("product", "platform", "cluster", "durability")},
        "broker_version": _text(broker, "version"),
        "tool_version": _text(tool, "version"),
        "tool_commit": _text(tool, "commit"),
        "plan_digest": _text(plan, "digest"),
    }
    return texts | {
        "run_id": run.run_id,
        "state": _text(manifest, "state"),
        "ended_reason": ended.get("reason"),
        "exit_code": ended.get("exit_code"),
        "started_ns": run.started_ns,
        "ended_ns": ended_ns,
        "length_s": (ended_ns - run.started_ns) / 1e9,
        "loop": run_loop({**plan, "steps": _parts(plan, "steps"), "groups": _parts(plan, "groups")}),
        "swept": json.dumps(plan.get("swept", [])),
        "interval_s": interval_s(run),
        "steps_planned": len(_parts(plan, "steps")),
        "seed": _whole(plan, "seed", 0),
        "queue_types": ", ".join(sorted(queues - {""})),
        "broker_nodes": len(_parts(broker, "nodes")),
        "one_machine": one_machine(_uris(broker), len(hosts)),
        "host_count": sum(has_load(host) for host in hosts),
        "clock_bound_ns": max((_whole(host, "clock_bound_ns", 0) for host in hosts), default=0),
        "command": json.dumps(manifest.get("command", [])),
        "tool_dirty": bool(tool.get("dirty", False)),
        "path": run.source,
        "manifest": json.dumps(manifest, ensure_ascii=False),
    }


def interval_ns(run: RunHead) -> int:
    """The nominal length of an interval; at least 1 ns."""
    return max(int(interval_s(run) * 1e9), 1)


def has_background(run: RunHead) -> bool:
    """Whether a background load ran beside the measured load."""
    return bool(_part(run.manifest, "plan").get("background"))


def interval_s(run: RunHead) -> float:
    """The nominal length of an interval."""
    value = _part(run.manifest, "plan").get("interval_s")
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < INTERVAL_MAX_S
    return float(value) if usable and value is not None else DEFAULT_INTERVAL_S


def _uris(broker: Row) -> list[str]:
    """The addresses that the run was given, and the addresses of the nodes that it knew."""
    given = broker.get("uris")
    nodes = [str(node.get("amqp_uri", "")) for node in _parts(broker, "nodes")]
    return nodes + ([str(uri) for uri in given] if isinstance(given, list) else [])


def planned_rows(run: RunHead) -> list[Row]:
    """The steps of the plan, of each group of load, with their settings."""
    rows = []
    plan = _part(run.manifest, "plan")
    measured = loads_of(plan | {"groups": _parts(plan, "groups")})
    beside = background_loads_of({"background": _parts(plan, "background"), "steps": _parts(plan, "steps")})
    for group, load in (measured | beside).items():
        for step in _parts(dict(load), "steps"):
            number, settings = step.get("number"), _part(step, "settings")
            if isinstance(number, int) and 0 < number < 2**63:
                row: Row = {"run_id": run.run_id, "step": number, "group": group}
                row |= {"label": str(step.get("label") or f"step {number}")}
                row |= {"settings": json.dumps(settings), **_settings(settings)}
                row["open_loop"] = step_loop(step, load) == OPEN
                rows.append(row | {name: _float(step.get(name)) for name in ("duration_s", "warmup_s")})
    return rows


def host_rows(run: RunHead) -> list[Row]:
    """The rows of ``hosts``."""
    rows = []
    for host in _parts(run.manifest, "hosts"):
        row: Row = {"run_id": run.run_id, "host": _text(host, "name")}
        row |= {name: _text(host, name) for name in ("hostname", "cpu", "kernel", "filesystem", "clock")}
        row |= {name: _whole(host, name, None) for name in _MAYBE}
        row |= {name: _whole(host, name, 0) for name in ("clock_offset_ns", "clock_bound_ns")}
        row |= {name: _text(host, name) or None for name in ("address", "python")}
        lost, tool = _part(host, "lost"), _part(host, "tool")
        lost_ns = _whole(lost, "t_ns", None)
        row |= {
            "roles": ", ".join(roles_of(host)),
            "tool_version": _text(tool, "version") or None,
            "clock_drift_ppm": _float(host.get("clock_drift_ppm")),
            "lost_s": None if lost_ns is None else (lost_ns - run.started_ns) / 1e9,
            "lost_reason": (_text(lost, "reason") or "not told") if lost else None,
        }
        rows.append(row)
    return rows


def hosts_with_load(run: RunHead) -> dict[str, bool]:
    """Whether each host made load."""
    return {_text(host, "name"): has_load(host) for host in _parts(run.manifest, "hosts")}


def is_spread(run: RunHead) -> bool:
    """Whether the run took place on several hosts."""
    return len(_parts(run.manifest, "hosts")) > 1


def ledger_rows(run: RunHead) -> list[Row]:
    """The rows of ``ledger``: the account of the measured load, and of each named group. A run without a ledger has no
    row."""
    if run.ledger is None:
        return []
    accounts = [*_parts(run.ledger, "groups"), *_parts(run.ledger, "background")]
    of_groups = [(_text(account, "name"), account) for account in accounts]
    return [_ledger_row(run, group, account) for group, account in [("", run.ledger), *of_groups]]


def _ledger_row(run: RunHead, group: str, account: Row) -> Row:
    row: Row = {"run_id": run.run_id, "group": group}
    for column in schema.LEDGER.columns[2:]:
        if column.type is Type.INT:
            row[column.name] = _whole(account, column.name, 0)
        elif column.type is Type.BOOL:
            row[column.name] = bool(account.get(column.name, False))
    examples = json.dumps(account.get("examples", []), ensure_ascii=False)
    return row | {"examples": examples, "verdict": str(account.get("verdict", "unknown"))}


def quarantine_rows(run: RunHead) -> list[Row]:
    """Files that are not as the run left them, or cannot be used as a whole."""
    found = {each.file: each.reason for each in run.changed}
    if run.ledger_problem is not None:
        found.setdefault(files.LEDGER, run.ledger_problem)
    place = {"run_id": run.run_id, "offset": 0, "raw": schema.WHOLE_FILE}
    return [{**place, "file": file, "reason": reason} for file, reason in found.items()]


def _settings(settings: Row) -> Row:
    """One value per column of SETTINGS; a value of another type is only in the settings' JSON."""
    row: Row = {}
    for column in schema.SETTINGS:
        value = settings.get(column.name)
        if column.type is Type.BOOL:
            row[column.name] = value if isinstance(value, bool) else None
        elif column.type is Type.FLOAT:
            row[column.name] = _float(value)
        else:
            row[column.name] = _whole(settings, column.name, None)
    return row


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _part(record: Row, key: str) -> Row:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def _parts(record: Row, key: str) -> list[Row]:
    value = record.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(record: Row, key: str) -> str:
    value = record.get(key)
    return "" if value is None else str(value)


def _whole(record: Row, key: str, default: int | None) -> Any:
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else default
