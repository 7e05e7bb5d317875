"""The tables of a run on several hosts, against slow readings of the same files."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hdrh.histogram import HdrHistogram
from pyspark.sql import SparkSession

from hdr_buckets import HIGHEST_NS, LOWEST_NS, SIGNIFICANT_FIGURES
from perftest.results import schema as files
from reports.pipeline.spark_jobs import run
from reports.store import schema, store
from reports.store.tables import Tables

pytestmark = pytest.mark.spark

SPREAD, ALONE = "run-spread", "run-alone"
OFFSET_NS = 5_000_000_000
LOST_AFTER = 7
"""Of ten intervals and a drain: in the second step, after a second of steady time."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, make_run: Callable[..., Path]) -> Path:
    """A run on three load hosts, the last of which was lost, and three hosts of broker nodes."""
    base = tmp_path_factory.mktemp("spread")
    made = make_run(
        base / SPREAD, run_id=SPREAD, steps=(16, 64), workers=4, hosts=3, broker_hosts=3, lost_after=LOST_AFTER,
        clock_offset_ns=OFFSET_NS, open_loop=True,
    )  # fmt: skip
    with (made / files.CLOCKS).open("a") as clocks:
        clocks.write('{"t_ns": 1, "host": "host1", "model": {"knots_ns": []}}\n')
    return made


@pytest.fixture(scope="module")
def tables(
    spark: SparkSession, directory: Path, make_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Tables:
    base = tmp_path_factory.mktemp("published")
    alone = make_run(base / ALONE, run_id=ALONE, steps=(4,))
    run(spark, [directory, alone], base / "store")
    return store.read_tables(base / "store")


def steady_rows(path: Path) -> list[dict[str, str]]:
    with (path / files.INTERVALS_CSV).open(encoding="utf-8", newline="") as lines:
        return [row for row in csv.DictReader(lines) if row["phase"] == "steady"]


def merged(directory: Path) -> dict[tuple[int, str, str], HdrHistogram]:
    """The histogram of each step, host and series, added up by hdrhistogram."""
    found: dict[tuple[int, str, str], HdrHistogram] = {}
    for line in (directory / files.LATENCY_HLOG).read_text().splitlines():
        cells = line.split(",")
        if "phase=steady" in cells[0]:
            series, *pairs = cells[0].removeprefix("Tag=").split(";")
            tag = dict(pair.split("=") for pair in pairs)
            key = int(tag["step"]), tag["host"], series
            whole = found.setdefault(key, HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES))
            whole.decode_and_add(cells[4])
    return found


def test_percentiles_of_a_host_are_those_of_its_merged_histograms(tables: Tables, directory: Path) -> None:
    oracle = merged(directory)
    rows = tables.of(SPREAD).host_steps.set_index(["step", "host"])
    checked = 0
    for (step, host, series), whole in oracle.items():
        if series in schema.HOST_SERIES:
            row = rows.loc[(step, host)]
            assert row[f"{series}_count"] == whole.get_total_count()
            for name, percentile in schema.PERCENTILES.items():
                assert row[f"{series}_{name}_ns"] == min(
                    whole.get_value_at_percentile(percentile), row[f"{series}_max_ns"]
                )
            checked += 1
    assert checked == 2 * 3 * 4


def test_hosts_merged_are_the_whole(tables: Tables, directory: Path) -> None:
    """Bit by bit: the histograms of the hosts, added up, are the histogram of the step."""
    oracle = merged(directory)
    for _, row in tables.of(SPREAD).latency.query("step > 0").iterrows():
        whole = HdrHistogram(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES)
        for (step, _, series), part in oracle.items():
            if (step, series) == (row["step"], row["series"]):
                whole.add(part)
        assert row["payload"] == whole.encode().decode()


def test_counts_and_rates_of_hosts_add_up(tables: Tables, directory: Path) -> None:
    mine = tables.of(SPREAD)
    counts: dict[tuple[int, str], int] = defaultdict(int)
    seconds: dict[tuple[int, str], set[str]] = defaultdict(set)
    for row in steady_rows(directory):
        counts[int(row["step"]), row["host"]] += int(row["delivered"])
        seconds[int(row["step"]), row["host"]].add(row["start_ns"][:-7])
    for row in mine.host_steps[mine.host_steps["workers"] > 0].itertuples():
        key = int(row.step), str(row.host)
        assert row.delivered == counts[key] and row.length_s == len(seconds[key])
        assert row.delivered_per_s == pytest.approx(counts[key] / len(seconds[key]))
    by_step = mine.host_steps.groupby("step")
    assert by_step["delivered"].sum().tolist() == mine.steps["delivered"].tolist()
    assert by_step["delivered_part"].sum().tolist() == pytest.approx([1.0, 1.0])
    assert seconds[2, "host2"] != seconds[2, "host1"], "host2 was lost in the middle of the second step"


def test_a_host_has_its_own_processor_network_and_drives(tables: Tables) -> None:
    rows = tables.of(SPREAD).host_steps
    first = rows[rows["step"] == 1].set_index("host")
    assert list(first.index) == ["broker0", "broker1", "broker2", "host0", "host1", "host2"]
    assert first["rx_bytes_per_s"].tolist() == pytest.approx([4e6, 5e6, 6e6, 1e6, 2e6, 3e6])
    assert first["tx_bytes_per_s"].tolist() == pytest.approx([8e6, 10e6, 12e6, 2e6, 4e6, 6e6])
    assert first["disk_write_bytes_per_s"].tolist() == pytest.approx([5e5] * 6)
    assert first["host_cpu_percent"].between(25, 45).all()
    of_brokers, of_load = first.loc["broker0"], first.loc["host0"]
    assert of_brokers["workers"] == 0 and of_brokers["delivered"] == 0 and pd.isna(of_brokers["confirm_p99_ns"])
    assert of_load["workers"] == 2 and of_load["workers_cpu_percent"] == pytest.approx(
        of_load["worker_cpu_share"] * 100, rel=0.1
    ), "two workers on two cores, both as busy"


def test_a_step_has_the_processor_of_load_hosts_only(tables: Tables, directory: Path) -> None:
    samples = [json.loads(line) for line in (directory / files.HOST).read_text().splitlines()]
    mine = tables.of(SPREAD)
    first = mine.steps.iloc[0]
    ends_ns = first["start_ns"] + first["length_s"] * 1e9
    by_host: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        if first["start_ns"] < sample["t_ns"] <= ends_ns + 10_000_000 and sample["host"].startswith("host"):
            by_host[sample["host"]].append(sample["cpu_percent"])
    assert first["host_cpu_percent"] == pytest.approx(max(sum(each) / len(each) for each in by_host.values()))
    assert mine.runs["host_count"].item() == 3 and len(mine.hosts) == 6


def test_the_facts_of_a_host_are_there(tables: Tables) -> None:
    hosts = tables.of(SPREAD).hosts.set_index("host")
    assert hosts["roles"].tolist() == ["broker"] * 3 + ["load"] * 3
    assert hosts.loc["host1", "round_trip_ns"] == 400_000 and hosts.loc["host1", "clock_drift_ppm"] == 3.5
    assert hosts.loc["host1", "start_skew_ns"] == 90_000 and pd.isna(hosts.loc["host1", "lost_s"])
    assert hosts.loc["host2", "lost_reason"] == "the connection was lost"
    assert hosts.loc["host2", "lost_s"] == LOST_AFTER + 0.5
    alone = tables.of(ALONE).hosts.iloc[0]
    assert alone["roles"] == "load" and alone["address"] is None


def test_links_tell_octets_per_message(tables: Tables) -> None:
    """The first node sends 1120 octets of each message to both others, who send it a tenth of that."""
    links = tables.of(SPREAD).links
    assert set(links["purpose"]) == {"replication", "commands"} and len(links) == 2 * 6 * 2
    by_pair = links[links["step"] == 1].set_index(["node", "peer", "purpose"])
    whole = by_pair.loc[("node1", "node2", "replication")]
    assert whole["bytes_per_message"] == pytest.approx(1120, rel=0.03)
    assert (whole["host"], whole["peer_host"]) == ("broker0", "broker1")
    rate = tables.of(SPREAD).steps["delivered_per_s"].iloc[0]
    assert whole["bytes_per_s"] == pytest.approx(1120 * rate, rel=0.03)
    assert by_pair.loc[("node3", "node1", "commands"), "bytes_per_message"] == pytest.approx(112, rel=0.03)
    assert by_pair.loc[("node1", "node3", "commands"), "bytes_per_message"] == 0
    step = tables.of(SPREAD).steps.iloc[0]
    expected = (2 * 1120 + 4 * 11.2 + 4 * 112) * step["delivered"] / step["published_bytes"]
    assert step["link_bodies"] == pytest.approx(expected, rel=0.03), "replication both ways, and what is proxied"
    assert tables.of(ALONE).steps["link_bodies"].isna().all()


def test_clocks_are_told_with_their_bounds(tables: Tables) -> None:
    mine = tables.of(SPREAD)
    assert set(mine.clocks["host"]) == set(mine.hosts["host"]) - {"host0"}
    models = mine.clocks[mine.clocks["kind"] == "model"]
    assert (models["offset_ns"] == OFFSET_NS).all() and (models["bound_ns"] == 200_000).all()
    exchange = mine.clocks[mine.clocks["kind"] == "exchange"].iloc[0]
    # 100 us there, 300 us back: the middle is off by 100 us, and the bound holds it.
    assert exchange["offset_ns"] == OFFSET_NS - 100_000 and exchange["round_trip_ns"] == 400_000
    assert abs(exchange["offset_ns"] - OFFSET_NS) <= exchange["bound_ns"] <= 200_010
    assert exchange["phase"] == "before" and exchange["t_s"] == 0.0
    damaged = mine.quarantine
    assert damaged["file"].tolist() == [files.CLOCKS] and damaged["reason"].iloc[0].startswith("model: ")


def test_a_run_on_one_host_has_none_of_these(tables: Tables) -> None:
    mine = tables.of(ALONE)
    assert mine.host_steps.empty and mine.links.empty and mine.clocks.empty
    assert mine.host_samples["tx_bytes_per_s"].dropna().tolist() == pytest.approx([2e6] * 5)
    assert list(mine.host_steps.columns) == list(schema.HOST_STEPS.names)
