"""One trust list: terminal, exit code, ``search``, ``compare``, the page and the list of runs say the same of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perftest.cli.ui.summary import doubts
from perftest.exits import Exit
from perftest.measuring.exit_code import exit_code
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Interval, Phase, Series
from perftest.results import schema as files
from perftest.results.reader import judged_run, read_run, trust_of
from perftest.results.trust import Check, Status, title
from perftest.results.writer import RunWriter
from perftest.series.probes import probed
from perftest.spec import Isolation, Plan, QueueSpec, Settings, Step
from reports.catalogue.listing import RunVerdict, entries
from reports.comparison.compare import compare, runs_of
from reports.comparison.facets import Facet
from reports.compute.run import run_tables
from reports.compute.run_files import READ, RunFiles
from reports.pages.page import page
from reports.stats.validity import sentence
from reports.store.schema import TABLES
from reports.store.tables import Tables
from tests.perftest.results.records import SECOND, STARTED_NS, ledger
from tests.perftest.testing.earlier_run import forget_checksums

Records = list[Interval]
SECONDS = 9


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing wrong with a run: ``spoil`` changes its intervals, the rest what is written beside them."""

    check: str
    status: Status
    spoil: Callable[[Interval], Interval] = lambda record: record
    cpu_percent: float = 40.0
    events: tuple[dict[str, Any], ...] = ()
    verdict: str = "ok"
    durability: str = "fsync"
    code: Exit = Exit.OK


def late(record: Interval) -> bool:
    """Whether an interval is one of the second half."""
    return record.start_ns >= STARTED_NS + 5 * SECOND


FAULTS = {
    "sound": Fault(check="ledger", status=Status.PASS),
    "slower": Fault(
        check="steady_state", status=Status.WARN,
        spoil=lambda each: replace(each, **dict.fromkeys(("published", "confirmed", "delivered"), 0), latencies={})
        if late(each) and each.start_ns // SECOND % 2 else each,
    ),
    "longer": Fault(
        check="steady_state", status=Status.WARN,
        spoil=lambda each: replace(each, latencies=_latencies(7, 9e6)) if late(each) else each,
    ),
    "busy host": Fault(check="host_cpu", status=Status.WARN, cpu_percent=99.0),
    "busy worker": Fault(
        check="generator_cpu", status=Status.FAIL, code=Exit.UNTRUSTED,
        spoil=lambda each: replace(each, worker_cpu_ns=each.length_ns * 97 // 100),
    ),
    "samples missing": Fault(
        check="histograms", status=Status.FAIL, code=Exit.UNTRUSTED,
        spoil=lambda each: replace(each, latencies={}) if each.start_ns == STARTED_NS + 4 * SECOND else each,
    ),
    "clock back": Fault(
        check="clock", status=Status.FAIL, code=Exit.UNTRUSTED,
        spoil=lambda each: replace(each, negative_latencies=1, delivered=each.delivered + 1, published=401),
    ),
    "redelivered": Fault(
        check="redeliveries", status=Status.WARN, spoil=lambda each: replace(each, redelivered=2)
    ),
    "connection lost": Fault(
        check="disturbances", status=Status.WARN, events=({"kind": "connection_lost", "step": 1, "text": "x"},)
    ),
    "worker lost": Fault(
        check="disturbances", status=Status.FAIL, code=Exit.UNTRUSTED,
        events=({"kind": "worker_lost", "step": 1, "text": "x"},),
    ),
    "messages lost": Fault(check="ledger", status=Status.FAIL, verdict="violated", code=Exit.SAFETY),
    "durability unknown": Fault(check="durability", status=Status.WARN, durability=""),
}  # fmt: skip
VERDICTS = {Exit.OK: RunVerdict.PASSED, Exit.UNTRUSTED: RunVerdict.UNTRUSTED, Exit.SAFETY: RunVerdict.UNSAFE}


@pytest.mark.parametrize("name", FAULTS)
def test_all_readers_of_a_run_show_one_list(name: str, tmp_path: Path) -> None:
    """Who reads two of them must not wonder which is right."""
    fault, writer = FAULTS[name], written(tmp_path, FAULTS[name])
    expected = writer.trust
    (named,) = (check for check in expected if check.check == fault.check)
    assert named.status is fault.status, named.text
    assert others_against(expected, fault.check) <= others_against(written(tmp_path, FAULTS["sound"]).trust, "")
    assert shown_on_page(writer.path) == [replace(check, text=sentence(check.text)) for check in expected]
    assert trust_of(judged_run(read_run(writer.path))) == expected
    assert doubts(expected) == [
        f"{check.status}  {title(check.check)}: {check.text}" for check in expected if check.status is not Status.PASS
    ]
    failed = tuple(check.text for check in expected if check.status is Status.FAIL)
    assert probed(writer).faults == failed
    assert writer.manifest["ended"]["exit_code"] == fault.code
    assert listed(writer.path) is VERDICTS[fault.code]
    assert refused(writer.path) == ("; ".join(failed) if fault.code is Exit.UNTRUSTED else "")


@pytest.mark.parametrize("name", FAULTS)
def test_a_run_without_a_recorded_list_is_judged_by_the_same_functions(name: str, tmp_path: Path) -> None:
    """A run of an earlier version, which recorded fewer checks, and only in its result: every reader judges anew."""
    writer = written(tmp_path, FAULTS[name])
    forget_list(writer.path)
    assert trust_of(judged_run(read_run(writer.path))) == writer.trust
    assert shown_on_page(writer.path) == [replace(check, text=sentence(check.text)) for check in writer.trust]


def test_a_killed_run_is_judged_alike_by_its_readers(tmp_path: Path) -> None:
    """The terminal is gone; nobody else may believe the run."""
    writer = written(tmp_path, FAULTS["sound"], end=False)
    found = trust_of(judged_run(read_run(writer.path)))
    assert {check.check for check in found if check.status is Status.FAIL} == {"finished", "ledger"}
    assert shown_on_page(writer.path) == [replace(check, text=sentence(check.text)) for check in found]
    assert listed(writer.path) is RunVerdict.KILLED
    assert refused(writer.path).startswith("the run was killed")


def test_damage_after_the_end_is_added_to_the_list(tmp_path: Path) -> None:
    """A file that was cut or spoiled on its way to the reader: the run could not know."""
    writer = written(tmp_path, FAULTS["sound"])
    with writer.path.joinpath(files.EVENTS).open("a") as file:
        file.write("not a record\n")
    found = trust_of(judged_run(read_run(writer.path)))
    (check,) = (each for each in found if each.check == "damaged_records")
    assert check.status is Status.WARN and "1 damaged record was set aside (1 in events.jsonl)" in check.text
    assert "events.jsonl has grown: it has" in check.text
    assert shown_on_page(writer.path) == [replace(each, text=sentence(each.text)) for each in found]


# Readers


def shown_on_page(path: Path) -> list[Check]:
    return list(page(tables_of(path), generated="").runs[0].checks)


def tables_of(path: Path) -> Tables:
    contents = {name: (path / name).read_bytes() for name in READ if (path / name).is_file()}
    made = run_tables(RunFiles(source=str(path), contents=contents))
    return Tables(**{table.name: made[table.name].to_pandas() for table in TABLES})


def listed(path: Path) -> RunVerdict:
    rows = {name: getattr(tables_of(path), name).to_dict("records") for name in ("runs", "steps", "hosts")}
    (entry,) = entries(rows["runs"], rows["steps"], rows["hosts"], {})
    return entry.verdict


def refused(path: Path) -> str:
    """What ``compare`` has against a run, when it is compared with itself."""
    result = compare(runs_of(path), runs_of(path))
    return "; ".join(each.candidate for each in result.refused if each.facet is Facet.VALIDITY)


def others_against(found: Iterable[Check], but: str) -> set[str]:
    return {check.check for check in found if check.status is not Status.PASS} - {but}


# Runs


def written(root: Path, fault: Fault, *, end: bool = True) -> RunWriter:
    writer = RunWriter(root, plan(), ["perftest", "run"], now_ns=STARTED_NS)
    writer.describe_broker(product="RabbitMQ", version="3.10.8", durability=fault.durability)
    for record in map(fault.spoil, intervals()):
        writer.interval(record)
        end_ns = record.start_ns + record.length_ns
        writer.host({"t_ns": end_ns, "host": "local", "cpu_percent": fault.cpu_percent})
    for event in fault.events:
        writer.event({"t_ns": STARTED_NS + 2 * SECOND, **event})
    if not end:
        writer.close()
        return writer
    writer.ledger(ledger(fault.verdict, **({"lost": 3} if fault.verdict == "violated" else {})))
    writer.finish("finished", "finished")
    writer.end("finished", "finished", int(exit_code("finished", writer.ledger_record, writer.trust)))
    return writer


def forget_list(path: Path) -> None:
    """Make a run directory one of an earlier version."""
    manifest, result = (json.loads((path / name).read_text()) for name in (files.MANIFEST, files.RESULT))
    del manifest["trust"]
    result["trust"] = [check for check in result["trust"] if check["check"] in ("finished", "ledger", "complete")]
    (path / files.MANIFEST).write_text(json.dumps(manifest))
    (path / files.RESULT).write_text(json.dumps(result))
    forget_checksums(path)


def plan() -> Plan:
    step = Step(number=1, label="", settings=Settings(), duration_s=float(SECONDS), warmup_s=1.0)
    queues = (QueueSpec(name="q"),)
    return Plan.of(name="run", title="t", uris=("amqp://h",), queues=queues, steps=(step,), isolation=Isolation.LIVE)


def intervals() -> Records:
    counted: dict[str, Any] = dict.fromkeys(("intended", "published", "confirmed", "delivered", "acked"), 400)
    return [
        Interval(
            worker="0",
            step=1,
            phase=Phase.STEADY if second else Phase.WARMUP,
            start_ns=STARTED_NS + second * SECOND,
            length_ns=SECOND,
            worker_cpu_ns=SECOND // 10,
            latencies=_latencies(second, 2e6),
            **counted,
        )
        for second in range(SECONDS)
    ]


def _latencies(seed: int, mean_ns: float) -> dict[Series, Any]:
    histogram = Histogram()
    histogram.record(np.random.default_rng(seed).gamma(8, mean_ns / 8, 400).astype(np.int64) + 1)
    return {Series.E2E: histogram.sparse(), Series.CONFIRM: histogram.sparse()}
