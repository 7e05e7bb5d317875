"""What the page says about a result, before it is HTML."""

from __future__ import annotations

import json
from dataclasses import replace
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from perftest.spec.units import IN_FLIGHT_UNLIMITED
from reports.pages import answer, figures, settings
from reports.pages.kinds import Data, Minute, articles
from reports.pages.model import Overview, Page, Run, Status, Table
from reports.pages.page import page


def _run(sample_tables: ModuleType, sample: Any, **more: Any) -> Run:
    return page(sample_tables.tables(sample), generated="", **more).runs[0]


def _texts(run: Run) -> list[str]:
    return [sentence.text for sentence in run.sentences]


def test_result_of_a_sweep_in_five_sentences(sample_tables: ModuleType) -> None:
    """This is what most readers take away; each word of it follows from the table."""
    assert _texts(_run(sample_tables, sample_tables.SWEEP)) == [
        "In-flight limit 1000 gives 205,300 msg/s, 98.3 % of the highest rate measured, at p99 11.6 ms end to end.",
        "The highest delivered rate is 208,900 msg/s, with in-flight limit 10000, at p99 126 ms. In-flight limit 1000 "
        "comes within 5 % of the highest rate, which one run does not tell apart. In-flight limit 200 is the knee, the "
        "highest delivered rate per unit of p99: 46.1 % of the peak at p99 4.63 ms.",
        "The biggest gain between neighbours, in messages per second, is from in-flight limit 200 to in-flight limit "
        "1000: from 96,400 msg/s to 205,300 msg/s, 2.1 times the rate.",
        "Beyond the knee, in-flight limit 10000 delivers 2.2 times as much and multiplies p99 by 27.3, to 126 ms.",
        "Nothing was lost or duplicated: 6,397,440 confirmed messages of the whole run, every one delivered.",
    ]


def test_the_headline_table_has_a_row_per_reason(sample_tables: ModuleType) -> None:
    """A setting that is best at two things stands there once, with both."""
    table = _run(sample_tables, sample_tables.SWEEP).headline
    assert table is not None
    assert [row[:3] for row in table.rows] == [
        ("1", "lowest p99", 1_180.0),
        ("200", "knee", 96_400.0),
        ("1000", "98.3 % of peak", 205_300.0),
        ("10000", "peak rate", 208_900.0),
    ]


def test_rows_left_out_of_the_headline_table_are_counted(sample_tables: ModuleType) -> None:
    """A reader of four rows must not believe that four settings were measured."""
    (article,) = articles(page(sample_tables.tables(sample_tables.SWEEP), generated=""))
    (minute,) = article.sections[0].blocks
    assert isinstance(minute, Minute) and minute.left_out is not None
    assert minute.left_out.text == "2 of 6 steps are left out of this table."
    assert minute.left_out.anchor == "steps"


def test_the_figure_also_names_the_setting_that_is_enough(sample_tables: ModuleType) -> None:
    """Who wants rate first takes the smallest setting near the peak, not the knee."""
    finding = _run(sample_tables, sample_tables.SWEEP).charts[0].finding
    assert finding.endswith("4.63 ms. The smallest setting with at least 95 % of the peak is in-flight limit 1000.")
    both = replace(sample_tables.SWEEP, steps=sample_tables.IN_FLIGHT[:4])
    assert "smallest setting" not in _run(sample_tables, both).charts[0].finding


def test_a_descending_sweep_reads_as_a_rising_one(sample_tables: ModuleType) -> None:
    """The order in which steps ran is chance; the order of their settings is not."""
    rising, falling = (_run(sample_tables, sample) for sample in (sample_tables.SWEEP, sample_tables.DESCENDING))
    assert _texts(falling) == _texts(rising)
    assert falling.charts[0].finding == rising.charts[0].finding
    assert falling.charts[0].table.rows == rising.charts[0].table.rows
    assert falling.headline is not None and rising.headline is not None
    assert falling.headline.rows == rising.headline.rows
    assert [row[0] for row in falling.steps.rows] == ["1", "5", "20", "200", "1000", "10000"]
    colours = [
        {trace["name"]: trace["line"]["color"] for trace in run.charts[1].figure["data"]} for run in (rising, falling)
    ]
    assert colours[0] == colours[1]


def test_a_grid_is_told_line_by_line(sample_tables: ModuleType) -> None:
    """Nine steps in an order drawn by a seed: each sentence says what changed and what was held."""
    run = _run(sample_tables, sample_tables.GRID)
    assert _texts(run)[:4] == [
        "In-flight limit 1000 and prefetch 1000 gives the highest rate measured, 205,000 msg/s, at p99 9.65 ms end to "
        "end.",
        "In-flight limit 1000 and prefetch 1000 is the knee, the highest delivered rate per unit of p99: also the "
        "highest rate, at p99 9.65 ms. In-flight limit 1000 and prefetch 100 comes within 5 % of that, which one run "
        "does not tell apart.",
        "The biggest gain between neighbours, in messages per second, is from prefetch 10 to prefetch 100 at in-flight "
        "limit 1000: from 32,000 msg/s to 204,000 msg/s, 6.4 times the rate.",
        "The knee has the highest in-flight limit measured at prefetch 1000, so a higher one may deliver more. The "
        "knee has the highest prefetch measured at in-flight limit 1000, and the last step to it gained less than 5 %.",
    ]
    assert run.charts[0].finding.endswith(
        "The smallest in-flight limit with at least 95 % of the peak at prefetch 1000 is 1000. "
        "The smallest prefetch with at least 95 % of the peak at in-flight limit 1000 is 100."
    )
    assert run.headline is not None
    assert [row[:2] for row in run.headline.rows] == [
        ("10 / 1000", "lowest p99"),
        ("1000 / 100", "99.5 % of peak, lowest prefetch within 5 % of peak"),
        ("1000 / 1000", "knee, lowest in-flight limit within 5 % of peak, peak rate"),
    ]


def test_a_grid_is_drawn_as_a_line_for_each_value_that_is_held(sample_tables: ModuleType) -> None:
    """A line from one prefetch to the next would show a curve that nobody measured."""
    chart = _run(sample_tables, sample_tables.GRID).charts[0]
    lines = [trace for trace in chart.figure["data"] if trace["mode"].startswith("lines")]
    assert [(trace["name"], trace["customdata"]) for trace in lines] == [
        ("prefetch 10", ["10", "100", "1000"]),
        ("prefetch 100", ["10", "100", "1000"]),
        ("prefetch 1000", ["10", "100", "1000"]),
    ]
    labelled = [trace["name"] for trace in lines if "text" in trace["mode"]]
    assert labelled == ["prefetch 1000"], "the line through the knee"
    assert len({(trace["line"]["color"], trace["marker"]["symbol"]) for trace in lines}) == 3
    assert "labelled by its in-flight limit, and each line holds prefetch fixed" in chart.how_to_read
    assert len(chart.table.rows) == 9


def test_a_grid_of_three_settings_holds_two(sample_tables: ModuleType) -> None:
    """Eighteen steps: six lines of three in-flight limits."""
    run = _run(sample_tables, sample_tables.CUBE)
    assert "from prefetch 10 to prefetch 100 at in-flight limit 1000 and message size 100" in _texts(run)[2]
    lines = [trace for trace in run.charts[0].figure["data"] if "lines" in trace["mode"]]
    assert len(lines) == 6
    assert lines[0]["name"] == "prefetch 10 and message size 100"
    assert len(run.charts[0].table.rows) == len(run.steps.rows) == 18


def test_no_limit_is_the_last_setting_and_has_a_word(sample_tables: ModuleType) -> None:
    """1073741824 in flight is nothing that anybody asked for."""
    run = _run(sample_tables, sample_tables.UNLIMITED)
    assert [row[0] for row in run.steps.rows] == ["10", "1000", "unlimited"]
    assert any(text.startswith("Beyond the knee, in-flight limit unlimited delivers") for text in _texts(run))


def test_settings_that_change_together_are_points_without_a_line(sample_tables: ModuleType) -> None:
    """Which of the two made the difference is not known."""
    run = _run(sample_tables, sample_tables.TOGETHER)
    assert "No two steps differ in one setting alone, so what each setting gains by itself is not known." in _texts(run)
    assert not any("Beyond the knee" in text or "smallest" in text for text in _texts(run))
    points = [trace for trace in run.charts[0].figure["data"] if trace["name"] != "knee"]
    assert [trace["mode"] for trace in points] == ["markers+text"]


def test_a_run_of_options_is_titled_by_what_was_measured(sample_tables: ModuleType) -> None:
    """ "run" and "sweep" are words of a command, and say nothing about a result."""
    assert _run(sample_tables, sample_tables.SINGLE).title == "One load without a sweep: quorum queue, closed loop"
    unnamed = replace(sample_tables.GRID, title="")
    assert _run(sample_tables, unnamed).title == "Sweep over in-flight limit and prefetch: quorum queue, closed loop"


def test_loads_that_differ_in_one_fact_are_called_by_it(sample_tables: ModuleType) -> None:
    """A reader knows what a queue type is, and not what this page calls a load."""
    classic = replace(sample_tables.SWEEP, run_id="20261121-101503-in_flight-0002", queue_types="classic")
    made = page(sample_tables.tables(sample_tables.SWEEP, classic), generated="")
    ((_, overview), *_) = made.parts
    assert isinstance(overview, Overview)
    assert overview.subtitle == "2 runs of 2 queue types · flow_control/in_flight"
    assert overview.headline.columns[0].title == "queue type"


def test_rounds_begin_with_the_setting_to_take(sample_tables: ModuleType) -> None:
    """The setting, the part of the highest rate, and whether the rounds tell the two apart."""
    rounds = [
        replace(
            sample_tables.SWEEP,
            run_id=f"20261121-10150{turn}-in_flight-000{turn}",
            steps=tuple(replace(step, rate=step.rate * factor) for step in sample_tables.IN_FLIGHT),
        )
        for turn, factor in enumerate((0.97, 1.0, 1.03))
    ]
    ((_, overview), *_) = page(sample_tables.tables(*rounds), generated="").parts
    assert isinstance(overview, Overview)
    first, second, *_ = (sentence.text for sentence in overview.sentences)
    assert first.startswith("Over 3 rounds, in-flight limit 1000 gives 205,") and "98.3 % of the highest rate" in first
    assert second.endswith(
        "The rounds cannot tell the rates of in-flight limit 10000 and in-flight limit 1000 apart: their intervals "
        "overlap."
    )
    assert {row[0]: row[-1] for row in overview.headline.rows}["1000"] == "10000"


def test_one_setting_has_no_knee_and_says_so(sample_tables: ModuleType) -> None:
    """A missing figure without a word looks like a broken page."""
    run = _run(sample_tables, sample_tables.SINGLE)
    assert [chart.anchor for chart in run.charts] == ["e2e-spectrum", "confirm-spectrum", "timeline"]
    assert [note.text for note in run.notes] == ["There is no knee curve: no setting was swept."]
    assert _texts(run)[0].startswith(
        "150,000 msg/s delivered over 27 s after the warm-up; end to end p50 5.00 ms, p99 "
    )
    assert "no knee to find" in _texts(run)[1]


def test_lost_messages_come_before_everything(sample_tables: ModuleType) -> None:
    """A fast broker that loses messages is not fast."""
    run = _run(sample_tables, sample_tables.VIOLATED)
    assert run.banners[0].status is Status.FAIL
    assert "3 lost" in run.banners[0].text
    assert run.sentences[0].text == run.ledger_text == "Safety was violated: of 6,397,440 confirmed messages, 3 lost."
    assert run.chips[0].status is Status.FAIL
    assert run.ledger is not None
    assert run.ledger.rows[-1] == ("example: lost", None, "publisher 0, messages 17 to 19")


@pytest.mark.parametrize(
    ("state", "title"),
    [
        ("interrupted", "This run was interrupted"),
        ("running", "This run was killed, or is still going"),
        ("failed", "This run failed: failed"),
    ],
)
def test_a_run_that_did_not_finish_says_so_first(sample_tables: ModuleType, state: str, title: str) -> None:
    """Half a sweep must not be read as a whole one."""
    run = _run(sample_tables, replace(sample_tables.SWEEP, state=state))
    assert [banner.title for banner in run.banners] == [title]
    assert "6 of 6 steps began" in run.banners[0].text


def test_without_a_ledger_loss_is_unknown_not_absent(sample_tables: ModuleType) -> None:
    """No account is not a clean account."""
    run = _run(sample_tables, replace(sample_tables.SWEEP, with_ledger=False, state="running"))
    assert run.ledger is None
    assert "loss is unknown" in run.ledger_text
    assert run.chips[0].status is Status.FAIL


def test_a_run_with_a_schedule_says_whether_its_rates_were_kept(sample_tables: ModuleType) -> None:
    """A knee among rates that the plan fixed says nothing about the broker."""
    run = _run(sample_tables, sample_tables.OPEN)
    assert _texts(run)[:2] == [
        "The broker kept up with every rate asked, up to 40,000 msg/s; p99 end to end is 10.0 ms there.",
        "The p99 end to end goes from 3.18 ms at 5,000 msg/s to 10.0 ms at 40,000 msg/s.",
    ]
    assert not any("knee" in text or "gain" in text for text in [*_texts(run), run.charts[0].how_to_read])
    assert run.headline is not None
    assert [row[:4] for row in run.headline.rows][-1] == ("40000", 40_000.0, 40_000.0, "yes")


def test_rounds_with_a_schedule_have_no_knee(sample_tables: ModuleType) -> None:
    """What holds for one run holds for its repetition."""
    again = replace(sample_tables.OPEN, run_id="20261121-131602-rates-0003")
    ((_, overview), *_) = page(sample_tables.tables(sample_tables.OPEN, again), generated="").parts
    assert isinstance(overview, Overview)
    told = [*(sentence.text for sentence in overview.sentences), overview.charts[0].how_to_read]
    assert not any("knee" in text.lower() for text in told)
    assert not any(trace["name"] == "knee" for trace in overview.charts[0].figure["data"])


def test_a_run_that_falls_behind_its_schedule_says_where(sample_tables: ModuleType) -> None:
    """The highest rate that was kept is the answer, even if a higher one was asked for."""
    tables = sample_tables.tables(sample_tables.OPEN)
    late = tables.steps["step"] == 4
    tables.steps.loc[late, ["delivered", "delivered_per_s"]] *= 0.75
    run = page(tables, generated="").runs[0]
    assert _texts(run)[0] == (
        "The broker kept up to 20,000 msg/s, at p99 5.65 ms, and fell behind then: at 40,000 msg/s only 30,000 msg/s "
        "were delivered."
    )
    assert run.headline is not None
    assert [row[3] for row in run.headline.rows] == ["yes", "yes", "yes", "no"]


def test_an_open_loop_leads_with_the_intended_time(sample_tables: ModuleType) -> None:
    """Latency from the send hides the time a message waited for its turn."""
    run = _run(sample_tables, sample_tables.OPEN)
    names = [column.name for column in run.steps.columns]
    assert "e2e_sched_p99_ns" in names
    assert names.index("e2e_sched_p99_ns") < names.index("e2e_p99_ns") < names.index("lag_p99_ns")
    assert "intended_per_s" in names
    spectrum = next(chart for chart in run.charts if chart.anchor == "e2e-spectrum")
    dashes = {trace["name"]: trace["line"]["dash"] for trace in spectrum.figure["data"] if trace["showlegend"]}
    assert dashes["5000, from the intended time"] == "solid"
    assert dashes["5000, from the send"] == "dash"
    assert any(trace["name"] == "intended" for trace in run.charts[-1].figure["data"])


def test_of_open_and_closed_steps_each_leads_with_its_own_latency(sample_tables: ModuleType) -> None:
    """A sweep over rates that ends without one: the last step has no intended time, and is not without a latency."""
    tables = sample_tables.tables(sample_tables.MIXED)
    run = page(tables, generated="").runs[0]
    names = [column.name for column in run.steps.columns]
    loops = [row[names.index("loop")] for row in run.steps.rows]
    assert loops == ["open", "open", "open", "closed"]
    shown = [row[names.index("e2e_lead_p99_ns")] for row in run.steps.rows]
    assert shown == [*tables.steps["e2e_sched_p99_ns"][:3], tables.steps["e2e_p99_ns"][3]]
    assert [row[names.index("intended_per_s")] is None for row in run.steps.rows] == [False, False, False, True]
    assert run.headline is not None and all(row[-2] is not None for row in run.headline.rows)
    assert next(chip.value for chip in run.chips if chip.name == "Loop") == "mixed"
    points = {float(x) for trace in run.charts[0].figure["data"] for x in trace["x"]}
    assert points >= set(tables.steps["delivered_per_s"]), "the step without a rate is on the curve"
    assert all(row[-1] is not None for row in run.charts[-1].table.rows), "and in the timeline"


def test_a_closed_loop_has_no_intended_rate(sample_tables: ModuleType) -> None:
    """In a closed loop nothing was intended but what was published; a line would claim otherwise."""
    run = _run(sample_tables, sample_tables.SWEEP)
    assert not any(trace["name"] == "intended" for trace in run.charts[-1].figure["data"])
    assert "intended_per_s" not in [column.name for column in run.steps.columns]


def test_the_timeline_marks_what_went_wrong(sample_tables: ModuleType) -> None:
    """A latency peak is explained by the connection that was lost under it."""
    chart = _run(sample_tables, sample_tables.SWEEP).charts[-1]
    assert "1 × connection lost, 1 × reconnected" in chart.finding
    events = next(trace for trace in chart.figure["data"] if trace["name"] == "event")
    assert events["x"] == [38.0, 38.6]


def test_bands_cover_the_steps_and_grey_their_warm_up(sample_tables: ModuleType) -> None:
    """What is cut from the numbers must be seen to be cut."""
    timeline = sample_tables.tables(sample_tables.SWEEP).timeline
    bands = figures._bands(timeline, {1: "one"})
    assert [(band.start_s, band.steady_s, band.end_s) for band in bands[:2]] == [(0.0, 3.0, 12.0), (12.0, 15.0, 24.0)]
    assert [band.label for band in bands[:2]] == ["one", "in_flight=5"]


def test_a_step_that_the_generator_limited_is_no_finding_about_the_broker(sample_tables: ModuleType) -> None:
    """Its ceiling must not be sold as the broker's peak."""
    tables = sample_tables.tables(sample_tables.SWEEP)
    shares = [0.3] * (len(tables.steps) - 1) + [0.97]
    run = page(replace(tables, steps=tables.steps.assign(worker_cpu_share=shares)), generated="").runs[0]
    assert run.banners[0].title == "INVALID: do not use these figures"
    (line,) = run.banners[0].lines
    assert line.startswith("generator CPU: ") and "--workers" in line
    assert _texts(run)[0].startswith("The delivered rate reaches at least 205,300 msg/s, with in-flight limit 1000;")
    assert "with in_flight=10000 the load generator or its machine was the limit" in _texts(run)[0]
    assert run.headline is not None and "10000" not in [row[0] for row in run.headline.rows]
    assert len(run.steps.rows) == len(tables.steps), "the table has all steps"
    stolen = tables.steps.assign(steal_share=[0.0] * (len(tables.steps) - 1) + [0.3])
    assert "at least" in _texts(page(replace(tables, steps=stolen), generated="").runs[0])[0]


def test_what_a_broker_tells_over_http_has_lanes(sample_tables: ModuleType) -> None:
    """Depth of its queues and memory; the bundled cluster tells other things, and has none of these lanes."""
    tables = sample_tables.tables(sample_tables.SWEEP)
    told = [f'{{"messages": {1000 + number}}}' for number in range(len(tables.brokers))]
    asked = replace(tables, brokers=tables.brokers.assign(metrics=told, rss_bytes=100 * 2**20))
    titles = [json.dumps(page(each, generated="").runs[0].charts[-1].figure["layout"]) for each in (tables, asked)]
    for lane in ("messages in queues", "memory (MiB)"):
        assert lane not in titles[0] and lane in titles[1]


def test_a_run_without_broker_figures_has_no_broker_lanes(sample_tables: ModuleType) -> None:
    """Against somebody else's broker there is nothing to draw, and no empty axis either."""
    chart = _run(sample_tables, replace(sample_tables.SWEEP, with_brokers=False)).charts[-1]
    assert not [name for name in chart.figure["layout"] if name.startswith(("yaxis3", "legend3"))]


def test_every_drawn_number_is_in_the_table(sample_tables: ModuleType) -> None:
    """Who cannot see the figure reads the table."""
    run = _run(sample_tables, sample_tables.SWEEP)
    knee = run.charts[0]
    drawn = knee.figure["data"][-1]
    assert [row[1] for row in knee.table.rows] == drawn["x"]
    assert [pytest.approx(float(row[2]) / 1e6) for row in knee.table.rows if row[2]] == drawn["y"]
    spectrum = run.charts[1]
    assert len(spectrum.table.rows) >= sum(len(trace["x"]) for trace in spectrum.figure["data"]) - 6


def test_steps_without_deliveries_do_not_break_the_page(sample_tables: ModuleType) -> None:
    """A setting under which nothing arrives is a result too."""
    tables = sample_tables.tables(sample_tables.SWEEP)
    dead = tables.steps["step"] == 1
    tables.steps.loc[dead, "delivered_per_s"] = 0.0
    tables.steps.loc[
        dead, [name for name in tables.steps if name.startswith(("e2e_", "confirm_")) and name.endswith("_ns")]
    ] = None
    run = page(tables, generated="").runs[0]
    assert run.steps.rows[0][4] is None
    assert run.charts[0].anchor == "knee"
    tables.steps["delivered_per_s"] = 0.0
    assert page(tables, generated="").runs[0].charts[0].anchor == "e2e-spectrum"


def test_a_run_that_died_in_warm_up_still_makes_a_page(sample_tables: ModuleType) -> None:
    """The page of a failed run is how one finds out why."""
    whole = sample_tables.tables(replace(sample_tables.SWEEP, state="failed", with_ledger=False))
    emptied = {
        name: getattr(whole, name).head(0) for name in ("steps", "latency", "spectrum", "timeline", "brokers", "hosts")
    }
    run = page(replace(whole, **emptied), generated="").runs[0]
    assert run.charts == ()
    assert run.headline is None
    assert len(run.events.rows) > 5


def test_several_runs_share_a_figure_and_keep_their_anchors_apart(sample_tables: ModuleType) -> None:
    """Two runs with one anchor would send every link to the first."""
    made: Page = page(sample_tables.tables(sample_tables.SWEEP, sample_tables.VIOLATED), generated="")
    assert [run.prefix for run in made.runs] == ["r1-", "r2-"]
    (comparison,) = (model for kind, model in made.parts if kind == "overview")
    assert len(comparison.table.rows) == 2
    lines = [trace for trace in comparison.charts[0].figure["data"] if "lines" in trace["mode"]]
    assert [trace["name"] for trace in lines] == ["round 1", "round 2", ""], "thin lines, and one over both rounds"
    anchors = [chart.anchor for run in made.runs for chart in run.charts]
    assert len(set(anchors)) == len(anchors)


@pytest.mark.parametrize(
    ("names", "value", "short", "long"),
    [
        (("in_flight",), {"in_flight": 10000}, "10000", "in-flight limit 10000"),
        (("rate",), {"rate": None}, "unlimited", "rate per publisher unlimited"),
        (("rate",), {"rate": 2.5}, "2.5", "rate per publisher 2.5"),
        (("persistent",), {"persistent": False}, "no", "persistent no"),
        (("in_flight", "prefetch"), {"in_flight": 1, "prefetch": 20}, "1 / 20", "in-flight limit 1 and prefetch 20"),
        (("in_flight",), {"in_flight": 1 << 30}, "unlimited", "in-flight limit unlimited"),
        (("ack_interval",), {"ack_interval": 0}, "automatic", "ack interval automatic"),
        (("persistent",), {"persistent": True}, "yes", "persistent yes"),
        (("new_one",), {"new_one": "x"}, "x", "new_one x"),
        (("new_one",), {"new_one": [1]}, "[1]", "new_one [1]"),
        ((), {}, "as asked", "as asked"),
    ],
)
def test_settings_in_words(names: tuple[str, ...], value: dict[str, Any], short: str, long: str) -> None:
    """A point of a figure is known by its setting alone."""
    steps = pd.DataFrame({"label": ["as asked"], "settings": [json.dumps(value)]})
    assert settings.short(steps, names) == [short]
    assert settings.long(steps, names) == [long]


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ([100.0, 101.0, 102.0], "No setting delivers over 5 % more than its neighbour."),
        ([100.0, 100.0, 400.0], "from in-flight limit 5 to in-flight limit 20: from"),
        ([100.0, 300.0, 310.0], "from in-flight limit 1 to in-flight limit 5: from"),
        ([100.0, 200.0, 208.0], "from in-flight limit 1 to in-flight limit 5: from"),
        ([10.0, 20.0, 10_000.0], "from in-flight limit 5 to in-flight limit 20: from"),
    ],
)
def test_the_biggest_gain(sample_tables: ModuleType, rates: list[float], said: str) -> None:
    """The step that pays most is the one to take."""
    sample = replace(
        sample_tables.SWEEP,
        steps=tuple(replace(step, rate=rate) for step, rate in zip(sample_tables.IN_FLIGHT[:3], rates, strict=True)),
    )
    assert any(said in text for text in _texts(_run(sample_tables, sample)))


@pytest.mark.parametrize(
    ("last_rate", "said"),
    [
        (208_900.0, "delivers 2.2 times as much"),
        (100_000.0, "delivers about as much (3.7 % more)"),
        (90_000.0, "delivers 6.6 % less"),
        (96_400.0, "delivers as much"),
    ],
)
def test_what_more_costs_beyond_the_knee(sample_tables: ModuleType, last_rate: float, said: str) -> None:
    """The reader asks whether to raise the limit further."""
    steps = (*sample_tables.IN_FLIGHT[:4], replace(sample_tables.IN_FLIGHT[5], rate=last_rate))
    run = _run(sample_tables, replace(sample_tables.SWEEP, steps=steps))
    assert any(said in text for text in _texts(run))


def test_settings_that_one_run_cannot_tell_apart_are_counted(sample_tables: ModuleType) -> None:
    """Four settings within 5 %: the highest of them is the highest of this run."""
    steps = tuple(replace(step, rate=100_000 + 100 * step.setting / 1000) for step in sample_tables.IN_FLIGHT[2:])
    texts = _texts(_run(sample_tables, replace(sample_tables.SWEEP, steps=steps)))
    assert "within 5 %" not in texts[0]
    assert "3 other settings come within 5 % of the highest rate, which one run does not tell apart." in texts[1]


def test_percentiles_of_few_samples_are_marked_and_counted(sample_tables: ModuleType) -> None:
    """The p99 of 270 messages is that of two or three of them."""
    few = tuple(replace(step, rate=30 * number) for number, step in enumerate(sample_tables.IN_FLIGHT, 1))
    run = _run(sample_tables, replace(sample_tables.SWEEP, steps=few))
    assert "at p99 126 ms end to end" in _texts(run)[0] and "of only" not in _texts(run)[0]
    assert "at p99 2.45 ms (of only 810 samples)" in _texts(run)[1]
    names = [column.name for column in run.steps.columns]
    marked = {(names[at], row) for row, at in run.steps.doubtful}
    assert {row for name, row in marked if name == "e2e_p99_ns"} == {0, 1, 2}
    assert {row for name, row in marked if name == "e2e_p999_ns"} == set(range(6))
    assert not any(name in ("e2e_p50_ns", "e2e_max_ns", "e2e_count") for name, _ in marked)
    assert run.headline is not None and (0, 4) in run.headline.doubtful
    assert "in-flight limit 10000" in run.charts[1].finding


def test_one_setting_says_only_what_its_samples_tell(sample_tables: ModuleType) -> None:
    """A plain run of a few seconds at 30 messages a second."""
    slow = tuple(replace(step, rate=20) for step in sample_tables.SINGLE.steps)
    (text, *_) = _texts(_run(sample_tables, replace(sample_tables.SINGLE, steps=slow)))
    assert text.endswith("end to end p50 5.00 ms (too few for more: 540 samples).")


def test_provenance_has_what_it_takes_to_do_it_again(sample_tables: ModuleType) -> None:
    """A number nobody can reproduce is an anecdote."""
    rebuild = ["perftest", "report", "runs/a run"]
    run = _run(
        sample_tables, sample_tables.SWEEP, rebuild=rebuild, files={sample_tables.SWEEP.run_id: [("latency.hlog", 12)]}
    )
    facts = {name: value for _, group in run.provenance.groups for name, value in group}
    assert facts["processor"] == "Intel Xeon Platinum 8375C"
    assert facts["memory"] == "8 GiB"
    assert facts["commit"] == "9f1c2ab"
    assert facts["queue"] == "perftest.q1, quorum, x-queue-type=quorum"
    assert "guest:***@" in facts["addresses"]
    assert [line for _, line in run.provenance.commands] == [
        "perftest sweep flow_control/in_flight --quick",
        "perftest report 'runs/a run'",
    ]
    assert "in_flight: 10000" in run.provenance.plan
    assert run.provenance.files is not None
    assert run.provenance.files.rows == (("latency.hlog", 12, "one HDR histogram of one series of one interval"),)


def test_tables_are_rectangular(sample_tables: ModuleType) -> None:
    """A row with a missing cell shifts every number under the wrong heading."""
    made = page(sample_tables.tables(sample_tables.SWEEP, sample_tables.OPEN), generated="")
    (comparison,) = (model for kind, model in made.parts if kind == "overview")
    tables: list[Table | None] = [comparison.table, *(chart.table for chart in comparison.charts)]
    for run in made.runs:
        tables += [run.headline, run.steps, run.events, run.ledger, *(chart.table for chart in run.charts)]
    checked = [table for table in tables if table is not None]
    assert len(checked) > 15
    for table in checked:
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.caption


def test_the_word_unlimited_is_that_of_the_plan() -> None:
    """A step without a limit is no step with a limit of a thousand million."""
    steps = pd.DataFrame({"label": ["1"], "settings": [json.dumps({"in_flight": IN_FLIGHT_UNLIMITED})]})
    assert settings.long(steps, ("in_flight",)) == ["in-flight limit unlimited"]


def test_findings_know_no_curve_without_two_points(sample_tables: ModuleType) -> None:
    """Two settings make a line, one does not."""
    tables = sample_tables.tables(replace(sample_tables.SWEEP, steps=sample_tables.IN_FLIGHT[:1]))
    assert answer.curve(tables.runs.iloc[0], tables.steps) is None


def test_background_load_is_a_part_of_its_own_and_in_no_figure_of_the_run(sample_tables: ModuleType) -> None:
    """It lowers what the measured load delivers; it must not be added to it."""
    alone = sample_tables.tables(sample_tables.Sample())
    manifest = json.loads(alone.runs["manifest"].iloc[0])
    manifest["plan"]["background"] = [{"name": "noise"}]
    parts = {"runs": alone.runs.assign(manifest=json.dumps(manifest))}
    for name in ("steps", "latency", "spectrum", "timeline", "intervals", "ledger"):
        frame = getattr(alone, name)
        noise = frame.assign(group="noise")
        if name == "steps":
            noise["label"], noise["settings"] = "noise: " + noise["label"], '{"rate": 7}'
        parts[name] = pd.concat([frame, noise], ignore_index=True)
    both = replace(alone, **parts)
    run_id = alone.runs["run_id"].iloc[0]
    assert both.loads == [(run_id, "")] and both.background_loads == [(run_id, "noise")]
    made, expected = (page(each, generated="") for each in (both, alone))
    (run,), (other,) = made.runs, expected.runs
    assert (run.sentences, run.headline, run.steps, run.ledger) == (
        other.sentences, other.headline, other.steps, other.ledger
    )  # fmt: skip
    assert [kind for kind, _ in made.parts] == ["run", "background"]
    article = articles(made)[-1]
    assert article.title == "Background load noise" and article.opens and len(article.sections) == 2
    tables = [block.table for block in article.sections[1].blocks if isinstance(block, Data)]
    assert [row[0] for row in tables[0].rows] == [f"in-flight limit {step.setting}" for step in sample_tables.IN_FLIGHT]
    assert [note.anchor for note in run.notes][-1] == article.sections[0].anchor == "b1-background"
    anchors = [link for each in articles(made) for link, _ in each.links]
    assert len(anchors) == len(set(anchors))


def test_the_recovery_from_actions_has_a_section_with_the_figures_of_the_record(sample_tables: ModuleType) -> None:
    """In the order of the actions; what cannot be told is an empty cell. Without an action there is no section."""
    told = {"rate_before": 2000.0, "outage_s": 0.21, "redelivered": 23, "observed_s": 4.0, "text": "after"}
    never = told | {"first_confirm_s": None, "back_s": None, "action": "pause", "node": "node2", "acted_ns": 2}
    soon = told | {"first_confirm_s": 0.22, "back_s": 0.5, "action": "kill", "node": "node1", "acted_ns": 1}
    run = _run(sample_tables, replace(sample_tables.SWEEP, recoveries=(never, soon)))
    assert run.recoveries is not None
    assert run.recoveries.rows == (
        ("kill", "node1", 0.22, 0.21, 2000.0, 0.5, 23, 4.0),
        ("pause", "node2", None, 0.21, 2000.0, None, 23, 4.0),
    )
    made = page(sample_tables.tables(replace(sample_tables.SWEEP, recoveries=(soon,))), generated="")
    (article,) = articles(made)
    assert [section.title for section in article.sections].count("Recovery") == 1
    assert _run(sample_tables, sample_tables.SWEEP).recoveries is None
