"""Results of other tools: what is taken over, what is not made up, and what is refused."""

from __future__ import annotations

import base64
import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogWriter
from hypothesis import given
from hypothesis import strategies as st

from hdr_buckets import PayloadError
from perftest.cli.main import call
from perftest.foreign import read_results
from perftest.foreign.hdr_payload import read_payload
from perftest.foreign.measured import ForeignFileError, ForeignRun
from perftest.metrics.histogram import Histogram
from perftest.metrics.interval import Phase, Series
from perftest.results import hlog, schema
from perftest.results.reader import read_run

HEADER = ",".join(schema.PERFTEST_COLUMNS)
ROWS = [f"test,{n}.0,1000.5,0.0,1000.0,0.0,999.5,100,{200 + n},300,400,{500 + n},,,,," for n in range(1, 13)]
CSV = "\n".join([HEADER, *ROWS]) + "\n"
OMB: dict[str, Any] = {
    "workload": "1 topic",
    "driver": "RabbitMQ",
    "messageSize": 1024,
    "topics": 2,
    "producersPerTopic": 3,
    "consumersPerTopic": 1,
    "publishRate": [1000.25, 2000.0],
    "consumeRate": [1000.0, 1990.0],
    "aggregatedPublishLatency99pct": 12.5,
    "aggregatedPublishDelayLatency99pct": 88,
    "aggregatedEndToEndLatencyMax": 31.0,
    "aggregatedEndToEndLatencyQuantiles": {"50.0": 3.0, "99.0": 15.25, "100.0": 31.0},
}
SAMPLES: list[dict[str, Any]] = [
    {"elapsed": 1500, "send-msg-rate": 100.0, "send-bytes-rate": 20000.0, "recv-msg-rate": 0.0, "recv-bytes-rate": 0.0},
    {"elapsed": 2501, "send-msg-rate": 1000.0, "send-bytes-rate": 2e5, "recv-msg-rate": 990.0, "recv-bytes-rate": 2e5,
     "min-latency": 150, "avg-latency": 2500, "max-latency": 9000},
]  # fmt: skip
LOAD: dict[str, Any] = {"send-msg-rate": 0.5, "send-bytes-rate": 100.0, "recv-msg-rate": 0.5, "avg-latency": 2400,
                        "samples": SAMPLES}  # fmt: skip
VARYING: dict[str, Any] = {
    "dimensions": ["producerRateLimit", "queueName"],
    "dimension-values": {"producerRateLimit": ["100", "20.0"], "queueName": ["a"]},
    "data": {"100": {"a": LOAD}, "20.0": {"a": LOAD}},
}
MULTI = {"one load": LOAD, "rates": VARYING}
STARTED_S = 1_795_256_102


def read(octets: bytes, unit_ns: int | None = 1000, **tags: Series) -> ForeignRun:
    (found,) = read_results(octets, "file", unit_ns=unit_ns, tags=tags)
    return found


def log_of(values: list[list[int]], *, figures: int = 2, tag: str = "", lowest: int = 1) -> bytes:
    """An interval log as the library of HdrHistogram writes one: an interval of a second for each list."""
    text = io.StringIO()
    writer = HistogramLogWriter(text)
    writer.output_log_format_version()
    writer.output_base_time(STARTED_S * 1000)
    writer.output_legend()
    for second, of in enumerate(values):
        histogram = HdrHistogram(lowest, 3_600_000_000, figures)
        for value in of:
            histogram.record_value(value)
        writer.output_interval_histogram(histogram, start_time_stamp_sec=second, end_time_stamp_sec=second + 1)
    lines = text.getvalue().splitlines(keepends=True)
    return "".join(f"Tag={tag},{line}" if tag and line[0].isdigit() else line for line in lines).encode()


def test_perftest_rates_become_counts_and_percentiles_stay_stated() -> None:
    run = read(CSV.encode())
    assert run.tool == "PerfTest" and run.length_ns == 12 * 10**9
    assert run.slices[0].counts == {
        "published": 1000, "returned": 0, "confirmed": 1000, "nacked": 0, "delivered": 1000,
    }  # fmt: skip
    assert not any(each.latencies for each in run.slices)
    assert run.stated[0].figures == {
        "min_ns": 100_000, "p50_ns": 201_000, "p75_ns": 300_000, "p95_ns": 400_000, "p99_ns": 501_000,
    }  # fmt: skip
    assert {each.series for each in run.stated} == {Series.E2E}, "empty cells state nothing"


def test_perftest_csv_in_milliseconds() -> None:
    run = read(CSV.replace("µs", "ms").encode())
    assert run.stated[0].figures["p99_ns"] == 501_000_000


def test_openmessaging_units_and_quantiles() -> None:
    run = read(json.dumps(OMB).encode())
    assert run.settings == {"size_bytes": 1024, "publishers": 6, "consumers": 2}
    by_series = {each.series: each for each in run.stated}
    assert by_series[Series.CONFIRM].figures == {"p99_ns": 12_500_000}
    assert by_series[Series.LAG].figures == {"p99_ns": 88_000}, "the publish delay is in microseconds"
    assert by_series[Series.E2E].quantiles["99.0"] == 15_250_000
    assert [each.counts["published"] for each in run.slices] == [10_002, 20_000]
    assert "confirmed_per_s" in run.missing


def test_a_scenario_of_perftestmulti_is_a_run_with_the_rates_of_its_samples() -> None:
    """Its rates of the whole load are a million times too low in later versions, and are not read."""
    run = read(json.dumps({"one load": LOAD}).encode())
    assert (run.tool, run.name, run.settings) == ("PerfTestMulti", "one load", {"size_bytes": 200})
    assert [(each.offset_ns, each.length_ns) for each in run.slices] == [
        (0, 1_500_000_000),
        (1_500_000_000, 1_001_000_000),
    ]
    assert [each.counts for each in run.slices] == [
        {"published": 150, "delivered": 0}, {"published": 1001, "delivered": 991},
    ]  # fmt: skip
    interval, whole = run.stated
    assert interval.figures == {"min_ns": 150_000, "mean_ns": 2_500_000, "max_ns": 9_000_000}
    assert (whole.whole, whole.length_ns, whole.figures) == (True, 2_501_000_000, {"mean_ns": 2_400_000})
    assert not any(each.latencies for each in run.slices) and {"confirmed", "published_bytes"} <= {*run.missing}


def test_a_file_of_perftestmulti_has_a_run_for_each_load() -> None:
    """In the order of the values, which are settings if they are some here, too."""
    runs = read_results(json.dumps(MULTI).encode(), "file", unit_ns=None, tags={})
    assert {run.name: run.settings.get("rate") for run in runs} == {
        "one load": None, "rates_producerRateLimit_20_queueName_a": 20, "rates_producerRateLimit_100_queueName_a": 100,
    }  # fmt: skip
    assert [run.name[-14:] for run in runs][1:] == ["20_queueName_a", "00_queueName_a"]


def multi(*place: Any, value: Any) -> str:
    """Results of PerfTestMulti with another value at a place; without the key if the value is None."""
    data = json.loads(json.dumps(MULTI))
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    if value is None:
        del inner[place[-1]]
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (json.dumps(MULTI)[:-9], "file:1", "this is not JSON"),
        (json.dumps(MULTI).replace("150,", "9" * 5000 + ","), "file", "a number too long"),
        (multi("rates", value=[]), "file: rates", "the results of a scenario are no object"),
        (multi("one load", "samples", value=None), "file: one load.samples", "samples is not a list"),
        (multi("one load", "samples", value=[]), "file: one load.samples", "the load has no sample"),
        (multi("one load", "samples", 1, value=7), "file: one load.samples[1]", "a sample is no object"),
        (multi("one load", "samples", 1, "elapsed", value=None), "file: one load.samples[1]", "has no elapsed"),
        (multi("one load", "samples", 1, "elapsed", value=1500), "file: one load.samples[1].elapsed", "must grow"),
        (multi("one load", "samples", 0, "elapsed", value=1e13), "file: one load.samples[0].elapsed", "100 days"),
        (multi("one load", "samples", 0, "send-msg-rate", value="1"), "file: one load.samples[0].send-msg-rate",
         '"1" is not a number from 0'),
        (multi("one load", "samples", 0, "recv-msg-rate", value=1e13), "file: one load.samples[0].recv-msg-rate",
         "more than any broker can do"),
        (multi("one load", "samples", 1, "max-latency", value=-1), "file: one load.samples[1].max-latency",
         "-1 is not a latency in microseconds"),
        (multi("one load", "samples", 0, "elapsed", value=1e299), "file: one load.samples[0].elapsed", "100 days"),
        (multi("one load", "samples", 0, "send-msg-rate", value=1e299), "file: one load.samples[0].send-msg-rate",
         "more than any broker can do"),
        (multi("one load", "avg-latency", value=1e12), "file: one load.avg-latency", "is not a latency"),
        (multi("rates", "dimensions", value="x"), "file: rates.dimensions", "dimensions is no list of names"),
        (multi("rates", "dimensions", value=[]), "file: rates.dimensions", "0 dimensions, not 1 to 20"),
        (multi("rates", "dimensions", value=["x"] * 21), "file: rates.dimensions", "21 dimensions, not 1 to 20"),
        (multi("rates", "data", value=None), "file: rates.data", "there are no values of producerRateLimit"),
        (multi("rates", "data", "100", value={}), "file: rates.data.100", "there are no values of queueName"),
        (multi("rates", "data", "100", "a", value={}), "file: rates.data.100.a", "these are no results"),
        (json.dumps({str(number): LOAD for number in range(1001)}), "file", "more than 1000 loads"),
    ],
)  # fmt: skip
def test_damaged_results_of_perftestmulti_are_told_with_the_scenario_and_the_key(
    text: str, where: str, what: str
) -> None:
    with pytest.raises(ForeignFileError, match=what) as caught:
        read_results(text.encode(), "file", unit_ns=None, tags={})
    assert caught.value.where == where and caught.value.fix


@pytest.mark.parametrize("text", ["{}", "[]", '{"a": 1}', '{"a": {"b": {}}}', '[{"name": "a", "type": "simple"}]', ""])
def test_other_json_is_of_no_known_format(text: str) -> None:
    assert read_results(text.encode(), "file", unit_ns=None, tags={}) == []


@pytest.mark.parametrize("figures", [1, 2, 3, 4])
@pytest.mark.parametrize("lowest", [1, 10])
def test_a_log_has_the_percentiles_that_hdrhistogram_states(figures: int, lowest: int) -> None:
    """Our bucket may be wider than the source's by 0.1 % at most, and never hides a part of a latency."""
    values = [int(each) for each in np.random.default_rng(5).lognormal(8, 2, 2000)]
    oracle = HdrHistogram(lowest, 3_600_000_000, figures)
    for value in values:
        oracle.record_value(value)
    run = read(log_of([values], figures=figures, lowest=lowest))
    ours = Histogram.of(run.slices[0].latencies[Series.E2E])
    assert ours.total == len(values) and run.started_ns == STARTED_S * 10**9
    for percent in (1.0, 50.0, 99.0, 99.9, 100.0):
        stated_ns = oracle.get_value_at_percentile(percent) * 1000
        assert stated_ns <= ours.percentiles_ns([percent])[0] <= stated_ns * 1.001 + 1
    ours.check_maximum()


def test_tags_say_what_they_measured_or_the_import_is_refused() -> None:
    lines = log_of([[10]], tag="in").decode() + log_of([[20]], tag="out").decode().splitlines()[-1] + "\n"
    with pytest.raises(ForeignFileError, match="what the tags measured is not told"):
        read(lines.encode())
    with pytest.raises(ForeignFileError, match="'out' measured is not told"):
        read(lines.encode(), **{"in": Series.E2E})
    run = read(lines.encode(), **{"in": Series.CONFIRM, "out": Series.E2E})
    assert run.slices[0].counts == {"delivered": 1, "confirmed": 1}
    with pytest.raises(ForeignFileError, match="unit"):
        read(lines.encode(), None)


OLD_HEADER = (
    "id,time (s),sent (msg/s),returned (msg/s),confirmed (msg/s),nacked (msg/s),received (msg/s),"
    "min latency (microseconds),median latency (microseconds),75th p. latency (microseconds),"
    "95th p. latency (microseconds),99th p. latency (microseconds)"
)
ROW = "test,1.000,1000,0,0,0,990,100,200,300,400,500"
MICRO = OLD_HEADER.replace("sent", "published").replace(" latency (microseconds)", " consumer latency (µs)")
CONSOLE = """id: test-1, starting consumer #0
id: test-1, time: 1.000s, sent: 1000 msg/s, received: 990 msg/s, min/median/75th/95th/99th consumer latency: \
100/200/300/400/500 µs
id: test-1, time 2.000 s, sent: 1000 msg/s, received: 990 msg/s, min/median/75th/95th/99th/max consumer latency: \
100/200/300/400/500/900 µs
test stopped (Reached time limit)
id: test-1, sending rate avg: 1000 msg/s
""".replace("\\\n", "")


@pytest.mark.parametrize(
    "octets",
    [
        f"{OLD_HEADER}\n{ROW}\n".encode(),
        f"{MICRO}\n{ROW}\n".encode("cp1252"),
        f"{MICRO}\n{ROW}\n".encode().decode("cp1252").encode(),
        f"{MICRO}\n{ROW}\n".replace("µ", "?").encode(),
        f"{MICRO}\n{ROW}\n".replace("µ", "\ufffd").encode(),
        f"{MICRO}\n{ROW}\n".replace("1.000", "1,000").encode(),
        f"{MICRO}\n{ROW}\n".replace(",", ";").replace("1.000", "1,000").encode("cp1252"),
        f"{MICRO}\r\n{ROW}\r\n".encode("utf-8-sig"),
        CONSOLE.encode(),
        CONSOLE.replace("µs", "us").encode(),
        CONSOLE.replace("consumer ", "").replace("time: 1.000s", "time: 1,000s").encode("cp1252"),
    ],
    ids=["of 1.x", "cp1252", "twice encoded", "question mark", "replaced", "decimal comma", "spreadsheet", "windows",
         "console", "console in ASCII", "old console"],
)  # fmt: skip
def test_files_that_people_have_are_read(octets: bytes) -> None:
    run = read(octets)
    first = run.slices[0]
    assert (first.length_ns, first.counts["published"], first.counts["delivered"]) == (10**9, 1000, 990)
    assert run.stated[0].series is Series.E2E
    assert run.stated[0].figures == {
        "min_ns": 100_000, "p50_ns": 200_000, "p75_ns": 300_000, "p95_ns": 400_000, "p99_ns": 500_000,
    }  # fmt: skip


def test_rates_below_one_with_decimal_commas_are_joined() -> None:
    run = read(f"{MICRO}\ntest,1,000,0,25,0,0,0,0,50,100,200,300,400,500\ntest,9,000,2,0,0,0,2,,,,,\n".encode())
    assert [each.length_ns for each in run.slices] == [10**9, 8 * 10**9]
    assert [each.counts["published"] for each in run.slices] == [0, 16]


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (CSV.replace("1000.5", "fast", 1), "file:2", "not a number"),
        (CSV.replace("test,3.0", "test,2.0"), "file:4", "must grow"),
        (CSV.replace("test,3.0", "test,1e305"), "file:4", "to 100 days at most"),
        (CSV.replace("1000.5", "1e308", 1), "file:2", "more than any broker can do"),
        (CSV.replace("test,3.0,", "test,"), "file:4", "cells"),
        (CSV + CSV, "file:14", "second run"),
        (HEADER + "\n", "file", "no interval"),
        (CSV.replace("nacked (msg/s)", "colour"), "file:1", "colour"),
        (HEADER + ",worker,host\n", "file:1", "intervals.csv of a run of this tool"),
        (json.dumps(OMB)[:-20], "file:1", "not JSON"),
        (json.dumps(OMB | {"consumeRate": [1.0]}), "file: consumeRate", "samples"),
        (json.dumps(OMB | {"publishRate": [1.0, -1.0]}), "file: publishRate[1]", "not a rate"),
        (json.dumps(OMB | {"aggregatedPublishLatencyMax": "x"}), "file: aggregatedPublishLatencyMax", "not a latency"),
        (log_of([[5]]).decode().replace("HISTF", "HIXTF"), "file:4", "histogram cannot be used"),
    ],
)
def test_damage_is_told_with_its_place(text: str, where: str, what: str) -> None:
    with pytest.raises(ForeignFileError, match=what) as caught:
        read(text.encode())
    assert caught.value.where == where and caught.value.fix


GOOD = [CSV.encode(), json.dumps(OMB).encode(), log_of([[5, 900], [7]], tag="e2e"), json.dumps(MULTI).encode()]


@given(data=st.data())
def test_no_damage_is_a_traceback(data: st.DataObject) -> None:
    """Whatever the octets: a run, no known format, or an error for people."""
    octets = bytearray(data.draw(st.sampled_from(GOOD)))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(octets) - 1))
        octets[place : place + data.draw(st.integers(0, 9))] = data.draw(
            st.one_of(
                st.binary(max_size=6),
                st.sampled_from([b"1e999", b"1e308", b"-1", b"NaN", b"[", b"\n", b",", b"9" * 30]),
            )
        )
        octets = octets or bytearray(b"x")
    try:
        read_results(bytes(octets), "file", unit_ns=1000, tags={})
    except ForeignFileError as error:
        assert error.what and error.where.startswith("file") and error.fix


@given(st.binary(max_size=200))
def test_counters_of_anybody_are_counted_or_refused(octets: bytes) -> None:
    inner = struct.pack(">IIiIQQd", 0x1C849303 | 0x10, len(octets), 0, 3, 1, 3_600_000_000, 1.0) + octets
    packed = zlib.compress(inner)
    payload = base64.b64encode(struct.pack(">II", 0x1C849304 | 0x10, len(packed)) + packed).decode()
    try:
        counted = read_payload(payload, 1000)
    except PayloadError:
        return
    assert counted.total == Histogram.of(counted).total >= 0


COUNTS = {5: 3, 100: 2, 1_000_000: 1}
"""Values and how often each comes."""


def payload_of(version: int, *, word: int = 8, ratio: bytes = struct.pack(">d", 1.0), within: bytes = b"") -> str:
    """A payload as tools of old wrote it, and others write it."""
    histogram = HdrHistogram(1, 3_600_000_000, 2)
    for value, count in COUNTS.items():
        histogram.record_value(value, count)
    told = zlib.decompress(base64.b64decode(histogram.encode())[8:])
    counters = by_bucket(histogram)
    words = struct.pack(f">{len(counters)}{ {2: 'h', 4: 'i', 8: 'q'}[word] }", *counters)
    if version == 0:
        inner = struct.pack(">IIQQQ", 0x1C849308 | word << 4, 2, 1, 3_600_000_000, sum(COUNTS.values())) + words
        outer = 0x1C849309 | word << 4
    elif version == 1:
        head = struct.pack(">IIiIQQ", 0x1C849301 | word << 4, len(words), 0, 2, 1, 3_600_000_000)
        inner, outer = head + ratio + words, 0x1C849302 | word << 4
    else:
        inner, outer = told[:32] + ratio + told[40:], 0x1C849314
    packed = zlib.compress(inner)
    return base64.b64encode(within + struct.pack(">II", outer, len(packed)) + packed).decode()


def by_bucket(histogram: HdrHistogram) -> list[int]:
    """The counters up to the last one in use, as Java numbers the buckets."""
    counters = [histogram.counts[index] for index in range(histogram.counts_len)]
    return counters[: max(index for index, count in enumerate(counters) if count) + 1]


OLD = [payload_of(version, word=word) for version in (0, 1) for word in (2, 4, 8)]
INTEGER_RATIO = [payload_of(version, ratio=(1).to_bytes(8, "big")) for version in (1, 2)]


@pytest.mark.parametrize("payload", [*OLD, *INTEGER_RATIO])
def test_payloads_of_all_versions_are_read(payload: str) -> None:
    """What Java's reader reads, and what writers in other languages put for a ratio of one."""
    counted, same = read_payload(payload, 1000), read_payload(payload_of(2), 1000)
    assert (counted.total, counted.max_ns) == (same.total, same.max_ns) == (6, 1_003_519_000)
    assert counted.counts.tolist() == same.counts.tolist()


def test_histograms_of_doubles_are_read() -> None:
    """Their values are whole numbers times a ratio: here milliseconds, kept in steps of a microsecond."""
    doubles = struct.pack(">IIQ", 0x0C72124F, 2, 1 << 20)
    counted = read_payload(payload_of(2, ratio=struct.pack(">d", 0.001), within=doubles), 1_000_000)
    assert (counted.total, counted.max_ns) == (6, 1_003_519_000)


@pytest.mark.parametrize("ratio", [0.0, -1.0, float("inf"), float("nan")])
def test_a_ratio_that_is_none_is_refused(ratio: float) -> None:
    with pytest.raises(PayloadError, match="scaled by"):
        read_payload(payload_of(2, ratio=struct.pack(">d", ratio)), 1000)


def test_a_log_needs_no_header_and_no_lengths() -> None:
    """As loops around a recorder print it."""
    text = "\n".join(f"{begin},0.0,1003.519,{payload_of(2)}" for begin in ("0.5", "1.5", "3.5"))
    run = read(text.encode())
    assert [(each.offset_ns, each.length_ns) for each in run.slices] == [
        (0, 10**9), (10**9, 2 * 10**9), (3 * 10**9, 2 * 10**9),
    ]  # fmt: skip
    assert any("how long each interval was" in each for each in run.unknown)
    (alone,) = read(f"7.0,0.000,1003.519,{payload_of(2)}".encode()).slices
    assert alone.length_ns == 10**9


def test_a_log_of_our_own_needs_no_tags() -> None:
    """It has all series of all phases, and more than an import takes over."""
    payload = Histogram.of(read_payload(payload_of(2), 1000)).encode()
    lines = [
        hlog.HlogLine(
            series=series, step=1, phase=phase, host="load 1", worker="w1", start_ns=(STARTED_S + second) * 10**9,
            length_ns=10**9, max_ns=5000, payload=payload,
        )
        for second, phase in enumerate(Phase)
        for series in (*Series, "stage.confirm.wal")
    ]  # fmt: skip
    text = hlog.header(STARTED_S * 10**9) + "".join(hlog.format_line(line, STARTED_S * 10**9) for line in lines)
    run = read(text.encode(), unit_ns=1)
    (steady,) = run.slices
    assert steady.counts == {"delivered": 6, "confirmed": 6}
    assert set(steady.latencies) == {Series.E2E, Series.CONFIRM, Series.LAG}
    assert run.started_ns == (STARTED_S + 1) * 10**9


def test_a_run_directory_says_what_is_not_known(tmp_path: Path) -> None:
    source = tmp_path / "perf test.csv"
    source.write_text(CSV, encoding="utf-8")
    out = tmp_path / "runs"
    options = ["--product", "RabbitMQ", "--set", "in_flight=100", "--started", "2026-11-21T10:15:02Z", "--warmup", "2s"]
    assert call(["import-results", str(source), "--out", str(out), *options]) == 0
    (path,) = out.iterdir()
    run = read_run(path)
    assert run.manifest["broker"]["product"] == "RabbitMQ" and run.manifest["foreign"]["tool"] == "PerfTest"
    assert run.manifest["plan"]["steps"][0]["settings"] == {"in_flight": 100}, "no default of ours"
    (row,) = (run.result or {})["steps"]
    assert row["published"] == 10_000 and row["latency"] == {} and "worker_cpu_share" not in row
    assert (run.result or {})["valid"] and run.ledger is None and not run.damaged
    lines = (path / schema.STATED).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 12 and json.loads(lines[0])["figures"]["p99_ns"] == 501_000


@pytest.mark.parametrize(
    ("data", "options", "names"),
    [
        ({"one load": LOAD}, [], ["one-load"]),
        ({"one load": LOAD}, ["--name", "mine"], ["mine"]),
        (MULTI, [], ["one-load", "rates_producerRateLimit_20_queueName_a", "rates_producerRateLimit_100_queueName_a"]),
        ({"a b": LOAD, "a/b": LOAD}, ["--name", "mine"], ["mine-a-b-1", "mine-a-b-2"]),
        ({"x" * 70: LOAD, "x" * 71: LOAD}, [], ["x" * 55 + "-1", "x" * 55 + "-2"]),
    ],
)
def test_each_load_of_a_file_has_a_run_directory_of_its_own_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: object, options: list[str], names: list[str]
) -> None:
    source = tmp_path / "results.js"
    source.write_text(json.dumps(data), encoding="utf-8")
    assert call(["import-results", str(source), "--out", str(tmp_path / "runs"), *options]) == 0
    said = capsys.readouterr()
    runs = [read_run(Path(line)) for line in said.out.splitlines()]
    assert [run.manifest["plan"]["name"] for run in runs] == names
    assert len({*said.err.splitlines()}) == len(said.err.splitlines()), "what is not known of all is told once"
    for run in runs:
        (row,) = (run.result or {})["steps"]
        assert row["published"] == 1151 and row["latency"] == {} and not run.damaged
        assert run.manifest["foreign"]["stated"][0]["figures"] == {"mean_ns": 2_400_000}


def test_a_warmup_that_is_too_long_names_the_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "results.js"
    source.write_text(json.dumps(MULTI), encoding="utf-8")
    assert call(["import-results", str(source), "--out", str(tmp_path / "runs"), "--warmup", "3s"]) == 2
    assert "results.js: one load" in capsys.readouterr().err and not (tmp_path / "runs").exists()


def test_histograms_of_a_log_are_read_back(tmp_path: Path) -> None:
    source = tmp_path / "their.hlog"
    source.write_bytes(log_of([[1500] * 300, [2500] * 100]))
    assert call(["import-results", str(source), "--unit", "us", "--out", str(tmp_path / "runs")]) == 0
    (path,) = (tmp_path / "runs").iterdir()
    (row,) = (read_run(path).result or {})["steps"]
    assert row["latency"]["e2e"]["count"] == 400 and row["delivered_per_s"] == 200.0
    assert row["latency"]["e2e"]["p50_ns"] == pytest.approx(1_500_000, rel=0.01)


@pytest.mark.parametrize(
    "arguments",
    [
        ["bad.csv"],
        ["good.csv", "bad.csv"],
        ["good.csv", "--warmup", "1h"],
        ["good.csv", "--set", "colour=1"],
        ["good.csv", "--set", "in_flight=-1"],
        ["good.csv", "--started", "yesterday"],
        ["good.csv", "--tag", "x=y"],
        ["none.csv"],
        ["."],
    ],
)
def test_nothing_is_left_of_an_import_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.csv").write_text(CSV, encoding="utf-8")
    Path("bad.csv").write_text(CSV.replace("1000.5", "x"), encoding="utf-8")
    assert call(["import-results", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and "bug" not in said
    assert not Path("runs").exists()


def test_a_full_drive_leaves_no_half_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from perftest.results.writer import RunWriter

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "good.csv").write_text(CSV, encoding="utf-8")
    monkeypatch.setattr(RunWriter, "_derive", full)
    assert call(["import-results", str(tmp_path / "good.csv"), "--out", str(tmp_path / "runs")]) == 1
    assert list((tmp_path / "runs").iterdir()) == []
