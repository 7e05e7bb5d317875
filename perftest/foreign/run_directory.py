"""From a :class:`~perftest.foreign.measured.ForeignRun` to a run directory, with the writer of any run.

The directory is made beside its place and renamed into it when it is whole, so that a failure leaves nothing behind.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from perftest.foreign.measured import ForeignRun, StatedFigures
from perftest.metrics.interval import Interval, Phase
from perftest.results.writer import RunWriter, run_id, writable
from perftest.spec.plan import Group, Isolation, Plan, Settings, Step

WORKER: Final = "unknown"
STEP: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The facts about a run that the person who imports it gives. ``started_ns`` is Unix time, ``warmup_s`` is left out
    of results; ``broker`` are facts of the manifest, such as ``product`` and ``version``."""

    name: str
    started_ns: int
    time_known: bool
    warmup_s: float = 0.0
    settings: Mapping[str, int | float | bool]
    broker: Mapping[str, str]


def write_run(
    run: ForeignRun, told: Told, *, files: Sequence[Mapping[str, Any]], out: Path, command: list[str]
) -> Path:
    """Make the run directory below ``out`` and return its path.

    :param files: name, octets and SHA-256 of each file that the run comes from
    :raises RunNotWritableError: the directory cannot be written
    """
    with writable(out):
        out.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=".import-", dir=out))
    try:
        identity = run_id(told.name, told.started_ns)
        made = _written(run, told, files, beside, identity, command)
        with writable(out):
            made.rename(out / identity)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return out / identity


def _written(
    run: ForeignRun, told: Told, files: Sequence[Mapping[str, Any]], root: Path, identity: str, command: list[str]
) -> Path:
    ended_ns = told.started_ns + run.length_ns
    writer = RunWriter(root, _plan(run, told), command, told.started_ns, identity=identity, clock=lambda: ended_ns)
    try:
        settings = {**run.settings, **told.settings}
        writer.describe_foreign(_facts(run, told, files), _plan_of_manifest(run, told, settings))
        writer.describe_broker(**({"product": "unknown"} | dict(told.broker)))
        writer.stated(_records(run, told.started_ns))
        for record in _intervals(run, told):
            writer.interval(record)
        writer.finish("finished", "")
    except BaseException:
        writer.close()
        raise
    return writer.path


def _facts(run: ForeignRun, told: Told, files: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    unknown = list(run.unknown)
    if not told.time_known and run.started_ns is None:
        unknown.append("the date is that of the file's last change, less the length of the run")
    if told.settings or told.broker:
        names = ", ".join([*told.settings, *told.broker])
        unknown.append(f"whether what was told at the import is right: {names}")
    return {
        "tool": run.tool,
        "files": [dict(file) for file in files],
        "unknown": unknown,
        "missing": list(run.missing),
        "stated": [_stated(each) for each in run.stated if each.whole],
        "of_intervals": list(_of_intervals(run, told)),
    }


def _stated(each: StatedFigures) -> dict[str, Any]:
    return {"series": str(each.series), "figures": dict(each.figures), "quantiles": dict(each.quantiles)}


def _of_intervals(run: ForeignRun, told: Told) -> Iterator[dict[str, Any]]:
    """The least, the middle and the greatest of the tool's figures of single intervals after the warm-up."""
    found: dict[tuple[str, str], list[int]] = {}
    for each in run.stated:
        if not each.whole and each.offset_ns >= told.warmup_s * 1e9:
            for name, value in each.figures.items():
                found.setdefault((str(each.series), name), []).append(value)
    for (series, name), values in found.items():
        yield {
            "series": series,
            "figure": name,
            "intervals": len(values),
            "least_ns": min(values),
            "middle_ns": statistics.median_low(values),
            "greatest_ns": max(values),
        }


def _records(run: ForeignRun, started_ns: int) -> Iterator[dict[str, Any]]:
    for each in run.stated:
        place = {"start_ns": started_ns + each.offset_ns, "length_ns": each.length_ns, "step": STEP}
        yield place | {"of": "run" if each.whole else "interval"} | _stated(each)


def _intervals(run: ForeignRun, told: Told) -> Iterator[Interval]:
    for each in run.slices:
        warm = each.offset_ns < told.warmup_s * 1e9
        yield Interval(
            worker=WORKER,
            step=STEP,
            phase=Phase.WARMUP if warm else Phase.STEADY,
            start_ns=told.started_ns + each.offset_ns,
            length_ns=each.length_ns,
            latencies=dict(each.latencies),
            **cast(dict[str, Any], each.counts),
        )


def _plan(run: ForeignRun, told: Told) -> Plan:
    """A plan for the writer, which needs one to begin with; the manifest gets :func:`_plan_of_manifest`."""
    length_s = run.length_ns / 1e9
    step = Step(number=STEP, label=_label(run), settings=Settings(), duration_s=length_s, warmup_s=told.warmup_s)
    group = Group(queues=(), steps=(step,))
    return Plan(name=told.name, title="", uris=(), groups=(group,), isolation=Isolation.LIVE)


def _plan_of_manifest(run: ForeignRun, told: Told, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The known facts about the load alone: no default of ours."""
    step = {"number": STEP, "label": _label(run), "settings": dict(settings)}
    step |= {"duration_s": run.length_ns / 1e9, "warmup_s": told.warmup_s}
    lengths = [each.length_ns for each in run.slices]
    return {
        "name": told.name,
        "title": f"{told.name}, measured by {run.tool}",
        "source": "",
        "isolation": "",
        "swept": [],
        "interval_s": statistics.median_low(lengths) / 1e9,
        "queues": [],
        "steps": [step],
    }


def _label(run: ForeignRun) -> str:
    return f"as {run.tool} measured it"
