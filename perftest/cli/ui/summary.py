"""The text that stays on the screen when a run is over: its steps, their meaning, doubts, and the next commands."""

from __future__ import annotations

import math
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from perftest.cli.extras import is_installed
from perftest.cli.ui.table import AT_MOST, DOUBTFUL, render
from perftest.installation import command_for
from perftest.results.summary import PhaseTotals, Tally
from perftest.results.trust import SAMPLES_ABOVE, Check, Status, below_the_clocks, is_limited, supports, title
from perftest.screen.board import milliseconds
from perftest.screen.perftest_lines import HEADER

INVALID: Final = "INVALID: do not use these figures; a check that failed says why"

LEFT_OUT_FIRST: Final = (
    "published/s", "CPU µs/msg|load", "e2e ms|p95", "confirm ms|p50", "confirmed/s", "CPU µs/msg|broker", "e2e ms|max",
    "confirm ms|p99",
)  # fmt: skip
"""Columns that a narrow terminal does without, in this order; a line that wraps is no table."""

_VERDICT: Final = re.compile(r" *(?:\S+(?: \S+)* {2,})?")
"""The indent of a line, and the words before a column."""


def steps_table(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """A line per step: rates in messages per second, latencies in ms, CPU in µs per message.

    For a terminal of ``width`` columns are left out until a line fits, and a note names the columns.
    """
    lines = [_line(row) for row in rows]
    table = render(lines)
    left_out: list[str] = []
    for name in LEFT_OUT_FIRST:
        if width is None or max(map(len, table.splitlines())) <= width:
            break
        lines = [{key: value for key, value in line.items() if key != name} for line in lines]
        left_out.append(name.replace("|", " "))
        table = render(lines)
    if not left_out or width is None:
        return table
    note = f"(no room here for {', '.join(left_out)}: see the report, or --json)"
    return f"{table}\n{textwrap.fill(note, width)}"


def doubtful_note(rows: Sequence[Mapping[str, Any]]) -> str:
    """The meaning of the mark in the table, if the table has the mark."""
    shown = [_series(row, name) for row in rows for name in ("confirm", "e2e")]
    marked = any(latency.get("count") and not supports(latency["count"], 99.0) for latency in shown)
    return f"{DOUBTFUL} fewer than {SAMPLES_ABOVE} samples lie above this percentile" if marked else ""


def clocks_note(rows: Sequence[Mapping[str, Any]]) -> str:
    """The meaning of the other mark in the table, if the table has it."""
    marked = [row["clock_bound_ns"] for row in rows if _below_the_clocks(row, ("p50", "p95", "p99"))]
    bound = f"±{max(marked) / 1000:,.0f} µs" if marked else ""
    return f"{AT_MOST} below what the clocks of the hosts can tell ({bound}): at most so much" if marked else ""


def schedule_note(rows: Sequence[Mapping[str, Any]]) -> str:
    """A note that latencies count from the intended time; of a single step, the latencies from the send, too."""
    if not any(row["latency"].get(f"{name}_sched", {}).get("count") for row in rows for name in ("confirm", "e2e")):
        return ""
    text = "latencies count from the intended time"
    if len(rows) > 1:
        return f"{text}; the report has those from the send beside them"
    parts = []
    for name in ("confirm", "e2e"):
        figures = _latency(name, rows[0]["latency"].get(name, {}), ("p50", "p99", "max"))
        words = [f"{key.partition('|')[2]} {value}" for key, value in figures.items() if value]
        parts += [f"{name} {' '.join(words)}"] if words else []
    return f"{text}; from the send: {', '.join(parts)}" if parts else text


def knee_sentence(rows: Sequence[Mapping[str, Any]]) -> str:
    """The knee in the curve of each group of load, by the rules of the report: :mod:`reports.stats.knee`.

    The curve goes by the latency from the intended time where there was a schedule. The sentence is empty when fewer
    than three settings have a rate and a latency.
    """
    if not is_installed("report"):
        return f"No knee: that needs `{command_for('report')}`." if len(rows) > 2 else ""
    groups = dict.fromkeys(row.get("group", "") for row in rows)
    said = {group: _knee([row for row in rows if row.get("group", "") == group]) for group in groups}
    return " ".join(f"{group}: {sentence}" if group else sentence for group, sentence in said.items() if sentence)


def _smallest(found: Any, each: Any, unlimited: Collection[int]) -> str:
    """The step with the lowest value that is enough, in words; ``unlimited`` are steps without a limit, which have no
    value above."""
    name = found.label(each.row)
    if found.steps["step"].iloc[each.row] in unlimited:
        return f"only {name}"
    return f"{name} is the smallest{'' if len(found.varied) == 1 else f' {each.setting}'}"


def _knee(rows: Sequence[Mapping[str, Any]]) -> str:
    # pandas takes 0.3 s to import: only here, after the measurement.
    import pandas as pd

    from reports.stats.axes import axes
    from reports.stats.knee import ENOUGH, sweep

    columns = [
        {"step": row["step"], "label": row["label"], "delivered_per_s": row["delivered_per_s"], "p99_ns": _p99(row)}
        for row in rows
    ]
    settings = [row["settings"] for row in rows]
    names = list(settings[0]) if settings else []
    limited = [row["step"] for row in rows if is_limited(row.get("trust", ()))]
    values = axes(settings, names)
    found = sweep(pd.DataFrame(columns), values, latency="p99_ns", limited=limited) if columns else None
    if found is None or len(found.steps) < 3:
        return ""
    ends = {row["step"] for row, known in zip(rows, values.isin([math.inf]).any(axis=1), strict=True) if known}
    smallest = [_smallest(found, each, ends) for each in found.enough]
    enough = f"; {', '.join(smallest)} with {ENOUGH:.0%} of it" if smallest else ""
    peak = f"{'at least ' if found.limited else ''}{found.rate_at(found.peak):,.0f} msg/s"
    unknown = f" Not known of {', '.join(found.limited)}: the load generator or its machine was the limit."
    without = unknown if found.limited else ""
    return (
        f"Knee at {found.label(found.knee)} (highest rate / p99): {found.rate_at(found.knee):,.0f} msg/s at p99 "
        f"{milliseconds(int(found.latency_ns_at(found.knee)))} ms. Peak {peak} at "
        f"{found.label(found.peak)}{enough}.{without}"
    )


def doubts(trust: Sequence[Check]) -> list[str]:
    """The checks of the trust list that did not pass, a line each."""
    return [f"{check.status}  {title(check.check)}: {check.text}" for check in trust if check.status is not Status.PASS]


def where_and_next(name: str, path: Path, report: Path | None, commands: Sequence[str]) -> str:
    """The path of the data (under ``name``), the path of the report, and the commands to type next."""
    lines = [f"{name:<8}{path}", *([f"report  {report}"] if report else [])]
    lines += [f"{'' if number else 'next':<8}{command}" for number, command in enumerate(commands)]
    return "\n".join(lines)


def wrapped(sentences: Sequence[str], width: int | None) -> str:
    """Sentences one below the other; for a terminal of ``width``, broken between words."""
    if width is None:
        return "\n".join(sentences)
    wrapper = textwrap.TextWrapper(width, subsequent_indent="      ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrapper.fill(sentence) for sentence in sentences)


def wrapped_lines(blocks: Sequence[str], width: int | None) -> str:
    """Blocks of lines below a heading, such as findings with their figures; for a terminal of ``width``, broken between
    words, with the rest of a line below its text and not below its verdict."""
    heading, *lines = "\n".join(blocks).splitlines()
    if width is None:
        return "\n".join([heading, *lines])
    return "\n".join([wrapped([heading], width), *(_below(line, width) for line in lines)])


def _below(line: str, width: int) -> str:
    """A line broken between words, with its rest below the text that follows indent and verdict."""
    text = _VERDICT.match(line)
    column = text.end() if text else 0
    indent = " " * (column if column < width // 2 else 2)
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def terminal_width() -> int | None:
    """Columns of the terminal that stdout is; None where stdout is a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _p99(row: Mapping[str, Any]) -> int:
    return int(_series(row, "e2e").get("p99_ns", 0))


def _series(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The latency from the intended time, where there was one; else from the send."""
    found: Mapping[str, Any] = row["latency"].get(f"{name}_sched") or row["latency"].get(name, {})
    return found


def _line(row: Mapping[str, Any]) -> dict[str, Any]:
    confirm, e2e = _series(row, "confirm"), _series(row, "e2e")
    values = {
        "step": row["label"] or str(row["step"]),
        "published/s": f"{row['published_per_s']:,.0f}",
        "confirmed/s": f"{row['confirmed_per_s']:,.0f}",
        "delivered/s": f"{row['delivered_per_s']:,.0f}",
        **_latency("confirm", confirm, ("p50", "p99")),
        **_latency("e2e", e2e, ("p50", "p95", "p99", "max")),
        **_below_the_clocks(row, ("p50", "p95", "p99")),
        "CPU µs/msg|load": _figure(row["worker_cpu_us_per_message"]),
        "CPU µs/msg|broker": _figure(row["broker_cpu_us_per_message"]),
    }
    return values


def _latency(name: str, summary: Mapping[str, Any], shown: Sequence[str]) -> dict[str, str | None]:
    return {
        # A percentile is the top of its bucket, the maximum is exact: it must not look smaller.
        f"{name} ms|{part}": _mark(summary["count"], part) + milliseconds(min(summary[f"{part}_ns"], summary["max_ns"]))
        if summary.get("count")
        else None
        for part in shown
    }


def _below_the_clocks(row: Mapping[str, Any], shown: Sequence[str]) -> dict[str, str]:
    """The upper bound in place of a percentile that is below the uncertainty of the clocks."""
    name = "e2e_sched" if row["latency"].get("e2e_sched") else "e2e"
    most = {part: row["latency"][name][f"{part}_ns"] + row["clock_bound_ns"] for part in below_the_clocks(row, name)}
    return {f"e2e ms|{part}": f"{AT_MOST}{milliseconds(most[part])}" for part in shown if part in most}


def _mark(count: int, part: str) -> str:
    return "" if part == "max" or supports(count, float(part[1:])) else DOUBTFUL


def _figure(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


def percentiles_table(tally: Tally, rows: Sequence[Mapping[str, Any]], percentiles: Sequence[float]) -> str:
    """A line per step and latency: the percentiles (ms) that the number of samples supports, and the maximum.

    A percentile needs ten samples above it. A percentile that has fewer is left out, for it would be the maximum in
    disguise.
    """
    lines = []
    for row in rows:
        totals = tally.steady.get((row["step"], row["group"]), PhaseTotals())
        for series, histogram in sorted(totals.latencies.items()):
            supported = [percent for percent in percentiles if supports(histogram.total, percent)]
            known = dict(zip(supported, map(milliseconds, histogram.capped_percentiles_ns(supported)), strict=True))
            values = {f"p{percent:g}": known.get(percent) for percent in percentiles}
            name = {"step": row["label"] or str(row["step"]), "latency ms": series.value}
            lines.append({**name, **values, "max": milliseconds(histogram.max_ns), "samples": f"{histogram.total:,}"})
    return render(lines)


def legacy_lines(legacy: Mapping[str, Mapping[str, int]], *, in_millis: bool) -> str:
    """PerfTest's own figures, :mod:`perftest.results.legacy`: a line for each of its latencies."""
    size, unit = (10**6, "ms") if in_millis else (1000, "µs")
    lines = []
    for name, values in legacy.items():
        shown = (values[f"{part}_ns"] // size for part in ("min", "median", "p75", "p95", "p99", "max"))
        sample = f"{values['kept']:,} of {values['seen']:,} values"
        figures = "/".join(str(value) for value in shown)
        lines.append(f"as PerfTest measures ({sample}, from the send): {name} latency {HEADER} {figures} {unit}")
    return "\n".join(lines)
