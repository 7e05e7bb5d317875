"""The part of the page about layouts of drives. Without these a bar could stand at the wrong layout, or a drive be
drawn with files that lie elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from reports.html.render import render
from reports.pages.kinds import articles
from reports.pages.model import DrawnDrive, Layouts
from reports.pages.page import page
from reports.pages.several.layouts import layout_of
from reports.store.tables import Tables

ONE: dict[str, Any] = {
    "name": "one drive",
    "drives": [{"name": "d1", "kind": "modelled", "profile": "st1-1t"}],
    "roles": dict.fromkeys(("data", "segment", "wal", "classic"), "d1"),
    "io": "dedicated",
}
THREE: dict[str, Any] = {
    "name": "three drives <fast>",
    "drives": {"quick": {"fuse": {"profile": "nvme"}}, "middle": {"mount": "/mnt/a"}, "slow": {"directory": "/b"}},
    "roles": {"wal": "quick", "segment": "middle", "data": "slow"},
    "io": {"pool": 10},
}


@pytest.fixture(scope="module")
def store(sample_tables: ModuleType) -> Tables:
    """Two layouts, alone and beside a background load, which makes p99 twice and three times as long."""
    steps = sample_tables.IN_FLIGHT[2:4]
    samples = [
        sample_tables.Sample(
            run_id=f"run-{number}-{beside or 'alone'}",
            layout=layout,
            beside=beside,
            steps=tuple(replace(step, rate=step.rate / slower, p50_ns=step.p50_ns * slower) for step in steps),
            with_stages=True,
        )
        for number, layout, times in ((1, ONE, 3), (2, THREE, 2))
        for beside, slower in (("", 1.0), ("lazy", float(times)))
    ]
    made: Tables = sample_tables.tables(*samples)
    return made


@pytest.fixture(scope="module")
def layouts(store: Tables) -> Layouts:
    (found,) = (model for kind, model in page(store, generated="").parts if kind == "layouts")
    assert isinstance(found, Layouts)
    return found


def test_each_layout_is_drawn_once_with_its_files_on_its_drives(layouts: Layouts) -> None:
    one, three = layouts.drawn
    assert one.drives == (DrawnDrive(name="d1", what="modelled: st1-1t", roles=("data", "segment", "wal", "classic")),)
    assert one.io == "a thread for each store" and three.io == "one line of 10 threads"
    assert three.drives == (
        DrawnDrive(name="quick", what="FUSE, modelled: nvme", roles=("wal",)),
        DrawnDrive(name="middle", what="mount /mnt/a", roles=("segment",)),
        DrawnDrive(name="slow", what="directory /b", roles=("data", "classic")),
    )


def test_layouts_are_compared_below_one_broker_only(sample_tables: ModuleType) -> None:
    """A mean over two brokers would be a figure of neither."""
    samples = [
        sample_tables.Sample(run_id=f"run-{product}-{number}", product=product, layout=layout)
        for product in ("RabbitMQ", "reference_broker")
        for number, layout in enumerate((ONE, THREE))
    ]
    (found,) = (part for kind, part in page(sample_tables.tables(*samples), generated="").parts if kind == "layouts")
    assert isinstance(found, Layouts)
    assert "RabbitMQ" in found.subtitle and "reference_broker" in found.subtitle and len(found.drawn) == 2
    panel = [column.name for column in found.headline.columns].index("panel")
    loads = {str(row[panel]).split(" ")[0] for row in found.headline.rows}
    assert loads == {"RabbitMQ", "reference_broker"}


@pytest.mark.parametrize(
    "layout",
    [
        "two: fast (/mnt/fast) wal; disk (/mnt/disk (b)) data, segment, logs; io pool:4",
        {
            "name": "two",
            "drives": [{"name": "fast", "kind": "", "path": "/mnt/fast"}, {"name": "disk", "path": "/mnt/disk (b)"}],
            "roles": {"wal": "fast", "data": "disk", "segment": "disk", "logs": "disk"},
            "io": "pool:4",
        },
    ],
    ids=["line", "object"],
)
def test_a_layout_of_the_manifest_is_read_in_both_forms(sample_tables: ModuleType, layout: Any) -> None:
    run = sample_tables.tables(sample_tables.SWEEP).runs.iloc[0].copy()
    run["manifest"] = json.dumps({"broker": {"layout": layout}})
    found = layout_of(run)
    assert found is not None
    assert (found.name, found.io) == ("two", "one line of 4 threads")
    assert [(drive.name, drive.roles) for drive in found.drives] == [
        ("fast", ("wal",)),
        ("disk", ("data", "segment", "logs", "classic")),
    ]
    assert found.drives[1].what.endswith("/mnt/disk (b)")


def test_a_modelled_drive_says_that_its_log_files_cost_nothing(sample_tables: ModuleType) -> None:
    """Who moves the log files to another modelled drive must not look for a difference."""
    run = sample_tables.tables(sample_tables.SWEEP).runs.iloc[0].copy()
    line = "two: fast (modelled nvme) wal, logs; disk (/mnt/disk) data, segment; io dedicated"
    run["manifest"] = json.dumps({"broker": {"layout": line}})
    found = layout_of(run)
    assert found is not None
    assert [drive.roles for drive in found.drives] == [("wal", "logs (no cost)"), ("data", "segment", "classic")]


@pytest.mark.parametrize("layout", ["", "nothing", 7, {}, {"drives": {}}, "x; io dedicated"])
def test_what_is_no_layout_is_left_out(sample_tables: ModuleType, layout: Any) -> None:
    run = sample_tables.tables(sample_tables.SWEEP).runs.iloc[0].copy()
    run["manifest"] = json.dumps({"broker": {"layout": layout}})
    assert layout_of(run) is None


def test_every_cell_has_its_bar(layouts: Layouts, store: Tables) -> None:
    rate, p99 = layouts.cells
    rows = {(row[0], row[1]): row[2] for row in rate.table.rows}
    assert set(rows) == {
        (f"1 queue, in-flight limit {limit}, {beside}", each["name"])
        for limit in (20, 200)
        for beside in ("alone", "lazy")
        for each in (ONE, THREE)
    }
    delivered = store.steps.set_index(["run_id", "step"])["delivered_per_s"]
    lazy = rows["1 queue, in-flight limit 20, lazy", "one drive"]
    assert lazy == pytest.approx(delivered["run-1-lazy", 1])
    alone = rows["1 queue, in-flight limit 200, alone", "three drives <fast>"]
    assert alone == pytest.approx(delivered["run-2-alone", 2])
    assert p99.latency and len(p99.table.rows) == 8
    drawn = [value for trace in rate.figure["data"] for value in trace["x"]]
    assert sorted(drawn) == pytest.approx(sorted(float(str(value)) for value in rows.values()))


def test_interference_is_the_same_load_with_and_without(layouts: Layouts) -> None:
    rate, chart = layouts.interference
    losses = {(row[0], row[1]): row[-1] for row in rate.table.rows}
    assert losses == {
        (f"1 queue, in-flight limit {limit}, beside lazy", name): pytest.approx(lost)
        for limit in (20, 200)
        for name, lost in (("one drive", 200 / 3), ("three drives <fast>", 50.0))
    }
    assert "one drive loses most: 66.7 % of the rate of 1 queue, in-flight limit" in rate.finding
    factors = {(row[0], row[1]): row[-1] for row in chart.table.rows}
    assert factors == {
        (f"1 queue, in-flight limit {limit}, beside lazy", name): pytest.approx(times)
        for limit in (20, 200)
        for name, times in (("one drive", 3.0), ("three drives <fast>", 2.0))
    }
    assert "one drive" in chart.finding


@pytest.fixture
def mixed(sample_tables: ModuleType) -> Layouts:
    """One layout: a load alone, beside a light load, and beside a heavy one of the same name."""
    steps = sample_tables.IN_FLIGHT[2:3]
    samples = [
        sample_tables.Sample(
            run_id=f"run-{number}",
            layout=ONE,
            beside="lazy" if beside else "",
            beside_rate=beside,
            steps=tuple(replace(step, rate=step.rate * part) for step in steps),
            with_stages=True,
        )
        for number, (beside, part) in enumerate(((0, 1.0), (400, 0.5), (2000, 0.1), (0, 1.0)))
    ]
    (found,) = (model for kind, model in page(sample_tables.tables(*samples), generated="").parts if kind == "layouts")
    assert isinstance(found, Layouts)
    return found


def test_background_loads_of_one_name_are_told_apart_by_their_rates(mixed: Layouts) -> None:
    """A light and a heavy load used to be one cell, with the mean of both."""
    losses = {row[0]: row[-1] for row in mixed.interference[0].table.rows}
    assert losses == {
        "1 queue, beside lazy at 400 msg/s": pytest.approx(50),
        "1 queue, beside lazy at 2,000 msg/s": pytest.approx(90),
    }
    panels = [row[0] for row in mixed.cells[0].table.rows]
    assert panels == ["1 queue, alone", "1 queue, lazy at 400 msg/s", "1 queue, lazy at 2,000 msg/s"]


def test_a_spectrum_says_which_step_it_shows(layouts: Layouts) -> None:
    """Of two steps and two loads a line shows the one with the most syncs."""
    (one, _) = layouts.spectra
    shown = {(row[0], row[1]) for row in one.table.rows}
    assert len(shown) == 3 and all(panel.startswith("1 queue, in-flight limit ") for _, panel in shown)
    assert all(panel in one.how_to_read for _, panel in shown)


def test_syncs_stand_at_the_drive_of_their_files(layouts: Layouts) -> None:
    one, three = layouts.spectra
    assert {row[0] for row in one.table.rows} == {"wal (d1)", "segment (d1)", "meta (d1)"}
    assert {row[0] for row in three.table.rows} == {"wal (quick)", "segment (middle)", "meta (slow)"}
    assert "segment" in three.finding


def test_octets_and_syncs_are_those_of_all_nodes_per_message(layouts: Layouts) -> None:
    """Three nodes write 1,150 octets each for the WAL and 300 for segments, and sync once in ten messages."""
    octets, syncs = layouts.per_message
    for rows, wal, segment in ((octets.table.rows, 3450.0, 900.0), (syncs.table.rows, 300.0, 30.0)):
        assert len(rows) == 16
        assert all(row[3] == pytest.approx(wal if row[2] == "wal" else segment) for row in rows)


def test_the_page_shows_the_part_and_escapes_names(store: Tables) -> None:
    made = page(store, generated="")
    (article,) = (each for each in articles(made) if each.kind == "layouts")
    assert [section.title for section in article.sections] == [
        "",
        "Latency by layout",
        "Layouts",
        "What a background load costs",
        "Length of syncs by drive",
        "Octets and syncs per message",
        "Writes over time",
    ]
    text = render(made)
    assert "<svg" in text and "three drives &lt;fast&gt;" in text and "three drives <fast>" not in text
    assert 'aria-label="drive slow, directory /b: data, classic"' in text


def test_a_run_without_a_layout_has_no_such_part(sample_tables: ModuleType) -> None:
    plain = sample_tables.tables(sample_tables.SWEEP)
    assert layout_of(plain.runs.iloc[0]) is None
    assert "layouts" not in [kind for kind, _ in page(plain, generated="").parts]


def test_layouts_stand_in_one_order_whatever_the_names_of_the_runs(sample_tables: ModuleType) -> None:
    """Drives of a kind together, few before many; a load alone before the same beside others. A page of many runs
    begins with what they mean."""
    layouts = [
        {"name": f"{word}_{kind}", "roles": {"wal": "d1"}, "io": "dedicated",
         "drives": [{"name": f"d{drive}", "kind": "modelled", "profile": kind} for drive in range(1, count + 1)]}
        for word, count in (("one", 1), ("three", 3), ("two", 2)) for kind in ("st1", "io1")
    ]  # fmt: skip
    samples = [
        sample_tables.Sample(run_id=f"run-{number}", layout=layout, beside=beside, steps=sample_tables.IN_FLIGHT[2:4])
        for number, (layout, beside) in enumerate((layout, beside) for beside in ("lazy", "", "") for layout in layouts)
    ]
    made = page(sample_tables.tables(*samples), generated="")
    (model,) = (model for kind, model in made.parts if kind == "layouts")
    assert isinstance(model, Layouts)
    ordered = [f"{word}_{kind}" for kind in ("io1", "st1") for word in ("one", "two", "three")]
    assert [layout.name for layout in model.drawn] == ordered
    assert "alone" in model.sentences[0].text and "lazy" in model.sentences[-1].text
    (first, second, *_rest) = articles(made)
    assert first.kind == "layouts" and first.opens and second.kind == "overview"


def test_layouts_whose_intervals_overlap_are_not_told_apart(sample_tables: ModuleType) -> None:
    """Two rounds of each: the order of the two slow layouts may be chance, and the sentence and the table say so."""
    rates = {"fast": (200_000, 204_000), "slow": (100_000, 103_000), "slower": (97_000, 101_000)}
    samples = [
        replace(
            sample_tables.SINGLE,
            run_id=f"20261121-12150{turn}-run-{name}",
            layout=ONE | {"name": name},
            steps=(replace(sample_tables.SINGLE.steps[0], rate=rate),),
        )
        for name, of in rates.items()
        for turn, rate in enumerate(of)
    ]
    (found,) = (model for kind, model in page(sample_tables.tables(*samples), generated="").parts if kind == "layouts")
    texts = [sentence.text for sentence in found.sentences]
    assert texts[0].endswith("which is more than chance.")
    assert texts[1] == "The rounds cannot tell slow and slower apart: their 95 % intervals overlap."
    assert {row[0]: row[-1] for row in found.headline.rows} == {"fast": "", "slow": "slower", "slower": "slow"}
    assert [column.title for column in found.headline.columns][2:4] == ["95 % interval from", "95 % interval to"]
