"""The part of the page about the hosts of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from types import ModuleType

import pytest

from perftest.results.trust import Status
from reports.html.render import render
from reports.pages import replication
from reports.pages.model import DrawnHost, Hosts, Page
from reports.pages.page import page
from reports.stats.validity import checks


@pytest.fixture(scope="module")
def whole(sample_tables: ModuleType) -> Page:
    return page(sample_tables.tables(sample_tables.SPREAD), generated="")


@pytest.fixture(scope="module")
def hosts(whole: Page) -> Hosts:
    (found,) = (model for kind, model in whole.parts if kind == "hosts")
    assert isinstance(found, Hosts)
    return found


def test_a_run_on_one_host_has_no_such_part(sample_tables: ModuleType) -> None:
    assert all(kind != "hosts" for kind, _ in page(sample_tables.tables(sample_tables.SWEEP), generated="").parts)


def test_the_run_says_where_its_hosts_are(whole: Page, hosts: Hosts) -> None:
    said = [note for note in whole.runs[0].notes if note.anchor == f"{hosts.prefix}hosts"]
    assert [note.text for note in said] == ["This load ran on several hosts (4 load hosts, 3 broker hosts)."]


def test_sentences_come_first_and_name_what_is_unlike_the_rest(hosts: Hosts) -> None:
    text = " ".join(sentence.text for sentence in hosts.sentences)
    assert "All hosts together delivered at most 208,900 msg/s (in_flight=10000)" in text
    assert "load2 differs from the other hosts: its end-to-end p99 was" in text and "load1 differs" not in text
    assert "± 80.0 µs" in text and "load4 was lost after 20 s: the connection was lost." in text


def test_hosts_are_drawn_with_what_ran_on_them(hosts: Hosts) -> None:
    drawn = {host.name: host for host in hosts.drawn}
    assert drawn["b1"] == DrawnHost(name="b1", what="10.0.0.2, 300 µs away", parts=("node1 (leader)",))
    assert drawn["load1"].parts == ("load workers",)
    assert [name for name, host in drawn.items() if host.is_lost] == ["load4"]


def test_round_trips_of_load_hosts_to_nodes_are_a_matrix(hosts: Hosts, whole: Page) -> None:
    table = hosts.round_trips
    assert table is not None and [column.title for column in table.columns] == [
        "from host", "node1 (10.0.0.2:5672)", "node2 (10.0.0.2:5673)", "node3 (10.0.0.2:5674)"
    ]  # fmt: skip
    assert table.rows == (
        ("load1", 200_000, 200_000, 200_000),
        ("load2", 900_000, 900_000, 900_000),
        ("load3", 200_000, 200_000, 200_000),
        ("load4", 200_000, 200_000, None),
    )
    assert [said.text for said in hosts.round_trips_text] == [
        "The round trips lie between 200 µs (load1 to node1) and 900 µs (load2 to node1).",
        "load4 did not reach node3 before the load began: Connection refused.",
    ]
    assert "Round trips to the nodes" in render(whole)


def test_a_run_that_measured_no_round_trips_has_no_matrix(sample_tables: ModuleType) -> None:
    """Runs of earlier versions have none in their manifests."""
    tables = sample_tables.tables(replace(sample_tables.SPREAD, with_brokers=False))
    whole = page(tables, generated="")
    (part,) = (model for _, model in whole.parts if isinstance(model, Hosts))
    assert part.round_trips is None and part.round_trips_text == ()
    assert "Round trips to the nodes" not in render(whole)


def test_percentiles_of_all_hosts_are_those_of_the_run(hosts: Hosts, whole: Page, sample_tables: ModuleType) -> None:
    """A mean of the hosts' percentiles would be another number, because one host is slow."""
    chart = next(chart for chart in hosts.each if chart.anchor.endswith("p99"))
    merged = [row for row in chart.table.rows if row[1] == "all hosts"]
    steps = sample_tables.tables(sample_tables.SPREAD).steps
    shown = steps[steps["label"].isin([row[0] for row in merged])]
    assert [row[2] for row in merged] == shown["e2e_p99_ns"].tolist() and len(merged) == 2


def test_every_figure_repeats_its_numbers_in_a_table(hosts: Hosts) -> None:
    charts = (*hosts.each, *hosts.clocks, *hosts.saturation, *hosts.nodes_time, *hosts.links)
    assert len(charts) == 9 and all(chart.table.rows and chart.figure["data"] for chart in charts)
    assert len({chart.anchor for chart in charts}) == 9


def test_nodes_skew_and_what_is_missing_are_told(hosts: Hosts) -> None:
    assert hosts.nodes is not None and [row[:4] for row in hosts.nodes.rows] == [
        ("node1", "b1", "leader", "leader"),
        ("node2", "b2", "follower", "follower"),
        ("node3", "b3", "follower", "follower"),
    ]
    assert hosts.skew_text == (
        "The hosts began within 40.0 µs of each other, which is within the 10.0 ms that are allowed."
    )
    assert [sentence.text for sentence in hosts.missing] == ["load4 was lost after 20 s: the connection was lost."]


def test_leaders_followers_and_commits_are_told(hosts: Hosts) -> None:
    assert hosts.leaders is not None
    ((queue, first, last, changes, term, _entries, behind, node),) = hosts.leaders.rows
    assert (queue, first, last, changes, term, behind, node) == ("q", "node1", "node1", 0, 3, 400, "node3")
    followers, commits = hosts.nodes_time[:2]
    assert followers.finding == "node3 was 400 entries behind at 5 s."
    assert "highest p99" in commits.finding and commits.figure["data"][0]["type"] == "heatmap"
    assert len(commits.figure["data"][0]["y"]) == 4


def test_a_leader_that_changed_is_told_by_the_later_term(sample_tables: ModuleType) -> None:
    """The old leader says so until it hears of the election."""
    both = [{"name": "q", "role": "leader", "term": term, "commit_index": 10, "synced_index": 10} for term in (1, 2)]
    brokers = sample_tables.tables(sample_tables.SPREAD).brokers.head(4)
    told = [json.dumps([both[0]]), None, json.dumps([both[0]]), json.dumps([both[1]])]
    found = replication.members(brokers.assign(t_s=[0.0, 0.0, 1.0, 1.0], node=["a", "b", "a", "b"], queues=told))
    table = replication.leaders(found)
    assert table is not None and table.rows[0][1:5] == ("a", "b", 1, 2)


def test_octets_between_nodes_are_per_message(hosts: Hosts) -> None:
    (chart,) = hosts.links
    assert (
        chart.finding
        == "In in_flight=1, all links together carried 2.23 KiB per message: 80 B consensus, 2.15 KiB replication."
    )
    assert {row[1] for row in chart.table.rows} >= {"node1 → node2", "node3 → node1"}


def test_changes_of_role_are_told_and_marked(sample_tables: ModuleType, hosts: Hosts) -> None:
    """The moments are those of the samples that show the new role."""
    assert hosts.elections == () and all(not chart.figure["layout"]["shapes"] for chart in hosts.nodes_time)
    tables = sample_tables.tables(sample_tables.SPREAD)
    times = sorted(tables.brokers["t_s"].unique())
    late = tables.brokers["t_s"] >= times[3]
    roles = tables.brokers["role"].mask(late & (tables.brokers["node"] == "node2"), "leader")
    changed = replace(tables, brokers=tables.brokers.assign(role=roles))
    (part,) = (model for _, model in page(changed, generated="").parts if isinstance(model, Hosts))
    assert [said.text for said in part.elections] == [f"At {times[3]:.1f} s node2 was leader (before: follower)."]
    assert all([mark["x0"] for mark in chart.figure["layout"]["shapes"]] == [times[3]] for chart in part.nodes_time)


def test_missing_links_are_explained(sample_tables: ModuleType) -> None:
    tables = sample_tables.tables(sample_tables.SPREAD)
    html = render(page(replace(tables, links=tables.links[:0]), generated=""))
    assert "Octets per link are missing: no sample of a node told" in html


def test_a_full_network_is_told_with_direction_and_figures(sample_tables: ModuleType) -> None:
    sample = replace(sample_tables.SPREAD, with_brokers=False, network_bits_per_s=8_500_000)
    (part,) = (model for _, model in page(sample_tables.tables(sample), generated="").parts if isinstance(model, Hosts))
    assert all(" of 8.5 Mbit/s)" in row[3] for row in part.limits.rows)


@pytest.mark.parametrize(
    ("changes", "verdict", "named"),
    [
        ({"worker_cpu_share": 0.99}, "generator-bound", "load1, load2, load3, load4"),
        ({"network_bits_per_s": 8_500_000}, "network-bound", "b1, b2, b3, load1, load2, load3, load4"),
        ({"network_bits_per_s": 10_000_000_000}, "broker-bound", "–"),
        ({"loop": "open"}, "kept its schedule", "–"),
    ],
)
def test_the_verdict_names_what_set_the_rate(
    sample_tables: ModuleType, changes: dict[str, object], verdict: str, named: str
) -> None:
    sample = replace(sample_tables.SPREAD, with_brokers=False, **changes)
    tables = sample_tables.tables(sample)
    (part,) = (model for _, model in page(tables, generated="").parts if isinstance(model, Hosts))
    assert {row[1] for row in part.limits.rows} == {verdict} and {row[2] for row in part.limits.rows} == {named}
    (check,) = (check for check in checks(tables) if check.check == "bottleneck")
    assert check.status is (Status.NOTE if verdict in ("broker-bound", "kept its schedule") else Status.WARN)


def test_a_busy_node_is_named(sample_tables: ModuleType) -> None:
    tables = sample_tables.tables(sample_tables.SPREAD)
    busy = replace(tables, brokers=tables.brokers.assign(cpu_share=0.97))
    (part,) = (model for _, model in page(busy, generated="").parts if isinstance(model, Hosts))
    assert part.limits.rows[0][1:3] == ("broker-bound", "b1, b2, b3")
    assert part.limits.rows[0][3] == "node1, node2 and node3 used 97% of a core"


def test_lost_hosts_and_a_late_start_are_in_the_trust_list(sample_tables: ModuleType) -> None:
    found = {check.check: check for check in checks(sample_tables.tables(sample_tables.SPREAD))}
    assert found["lost_hosts"].status is Status.WARN and "load4 (the connection was lost)" in found["lost_hosts"].text
    assert found["start_skew"].status is Status.PASS
    alone = {check.check for check in checks(sample_tables.tables(sample_tables.SWEEP))}
    assert not alone & {"lost_hosts", "start_skew", "bottleneck"}


def test_a_hostile_name_stays_text(sample_tables: ModuleType) -> None:
    tables = sample_tables.tables(sample_tables.SPREAD)
    name = "<script>alert(1)</script>"
    hostile = replace(
        tables,
        hosts=tables.hosts.replace({"host": "load1"}, name),
        host_steps=tables.host_steps.replace({"host": "load1"}, name),
        host_samples=tables.host_samples.replace({"host": "load1"}, name),
        clocks=tables.clocks.replace({"host": "load1"}, name),
    )
    assert name not in render(page(hostile, generated=""))


def test_a_run_without_samples_of_hosts_still_has_a_part(sample_tables: ModuleType) -> None:
    """What was not recorded is left out, and the rest is shown."""
    tables = sample_tables.tables(replace(sample_tables.SPREAD, with_brokers=False))
    bare = replace(
        tables, host_samples=tables.host_samples[:0], clocks=tables.clocks[:0], links=tables.links[:0],
        host_steps=tables.host_steps[:0],
    )  # fmt: skip
    (part,) = (model for _, model in page(bare, generated="").parts if isinstance(model, Hosts))
    assert part.drawn and not (part.each or part.saturation or part.clocks or part.links or part.nodes)
    assert "Topology" in render(page(bare, generated=""))
