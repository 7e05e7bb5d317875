"""``perftest compare``: did the figures change, and can it be told from chance?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perftest.cli.exits import CliError, Exit
from perftest.cli.extras import require
from perftest.cli.report import build_comparison, utc_stamp
from perftest.cli.sections import PART, SectionedCommand, json_option, option, options

if TYPE_CHECKING:
    from reports.comparison.compare import Comparison

FACETS = ("plan", "host", "durability", "validity", "safety")


# fmt: off
_compare_options = options(
    option("--metric", "metrics", section="Judgement", multiple=True, metavar="TEXT",
           help="Compare only metrics whose names contain TEXT, such as p99. Repeatable."),
    option("--confidence", section="Judgement", type=PART, default="95%",
           help="Confidence of the intervals: all of them hold together with this probability."),
    option("--noise-rate", section="Judgement", type=PART, default="2%",
           help="Largest change of a rate that counts as noise."),
    option("--noise-latency", section="Judgement", type=PART, default="5%",
           help="Largest change of a latency that counts as noise."),
    option("--allow", section="Judgement", type=click.Choice(FACETS), multiple=True,
           help="Compare although the sides differ in this aspect, or although a side fails in it. Repeatable."),
    option("--report", "as_page", section="Output", is_flag=True,
           help="Write an HTML page of the comparison, too."),
    option("--out", section="Output", type=click.Path(path_type=Path, file_okay=False), default=None,
           help="Directory to write the page and its tables to; implies --report.  [default: runs/compare-TIME]"),
    option("--markdown", "as_markdown", section="Output", is_flag=True, help="Print Markdown, for a code review."),
)
# fmt: on


@click.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.SAFETY, Exit.MISSED, Exit.NOT_COMPARABLE),
    examples=(
        "perftest compare baseline/ candidate/                     six repetitions in each directory",
        "perftest compare baseline/ candidate/ --metric p99 --markdown > summary.md",
        "perftest compare baseline/ candidate/ --report            an HTML page, too",
        "perftest compare runs/20261121-101502-run-3fa1 runs/20261121-111502-run-77ab   one run each: no verdict",
    ),
)
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("candidate", type=click.Path(path_type=Path))
@_compare_options
@json_option
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    base: Path,
    candidate: Path,
    metrics: tuple[str, ...],
    confidence: float,
    noise_rate: float,
    noise_latency: float,
    allow: tuple[str, ...],
    as_page: bool,
    out: Path | None,
    as_markdown: bool,
    as_json: bool,
) -> None:
    """Compare two sets of runs: each metric with its change, the interval of the change, and a verdict.

    BASE and CANDIDATE are directories that hold repetitions of a run, or single run directories. A verdict needs three
    repetitions on each side. With fewer, every metric is inconclusive and the exit code is 0. The exit code is 4 if a
    metric got worse, 6 if the runs are not alike, and 3 if the candidate lost, duplicated, reordered or damaged
    messages. To fail a build because of a single run, use `perftest run --slo`.
    """
    from reports.comparison.compare import compare as judge
    from reports.comparison.compare import runs_of
    from reports.comparison.facets import Facet

    if as_page or out:
        require("report", "a page")
    result = judge(
        runs_of(base),
        runs_of(candidate),
        allow=frozenset(Facet(each) for each in allow),
        metrics=metrics,
        confidence=confidence,
        noise_rate=noise_rate,
        noise_latency=noise_latency,
    )
    if as_json:
        from reports.comparison.text import to_json

        click.echo(json.dumps(to_json(result), ensure_ascii=False, indent=1))
    elif not result.refused:
        _show(result, as_markdown=as_markdown)
    if as_page or out:
        page = build_comparison(result, out or Path("runs") / f"compare-{utc_stamp()}", (base, candidate))
        click.echo(page, err=as_json or as_markdown)
    code = exit_code(result)
    if result.refused and not as_json:
        raise _unlike(result, base, candidate, code)
    ctx.exit(int(code))


def exit_code(result: Comparison) -> Exit:
    """The exit code of a comparison: first unsafe messages, then unlike runs, then regressions."""
    from reports.stats.confidence import Verdict

    if any((run.ledger or {}).get("verdict") == "violated" for run in result.candidate):
        return Exit.SAFETY
    if result.refused or not result.lines:
        return Exit.NOT_COMPARABLE
    return Exit.MISSED if result.count(Verdict.REGRESSED) else Exit.OK


def _unlike(result: Comparison, base: Path, candidate: Path, code: Exit) -> CliError:
    facets = list(dict.fromkeys(str(each.facet) for each in result.refused))
    what = "; ".join(f"{each.where} is {each.base} against {each.candidate}" for each in result.refused[:10])
    more = f"; and {len(result.refused) - 10} more" if len(result.refused) > 10 else ""
    flags = " ".join(f"--allow {facet}" for facet in facets)
    return CliError(
        f"these runs cannot be compared: {what}{more}",
        f"{base}, {candidate}",
        f"measure again with the same {' and '.join(facets)}, or compare nonetheless: {flags}",
        code,
    )


def _show(result: Comparison, *, as_markdown: bool) -> None:
    from reports.comparison import text

    if as_markdown:
        click.echo(text.markdown(result))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in text.HEAD:
        table.add_column(name, justify="right" if name in ("baseline", "candidate", "change", "interval") else "left")
    for row in text.rows(result):
        table.add_row(*row)
    if result.lines:
        console.print(table)
        console.print()
    for sentence in text.sentences(result):
        console.print(sentence)
    for sentence in text.shown_differences(result):
        console.print(f"differs: {sentence}")
