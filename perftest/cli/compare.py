"""``perftest compare``: did the figures change, and can it be told from chance?"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perftest.ci.job_outputs import Annotations, JobOutputs
from perftest.cli.extras import require
from perftest.cli.report import build_comparison, utc_stamp
from perftest.cli.sections import COUNT, PART, SectionedCommand, json_option, option, options
from perftest.cli.target import job_options
from perftest.cli.ui.completion import compared_names, run_places
from perftest.exits import CliError, Exit, name_damage
from perftest.metrics.names import COMPARED, MetricNameError, metrics_like

if TYPE_CHECKING:
    from perftest.ci.cases import Case
    from perftest.results.reader import Run
    from reports.comparison.compare import CompareResult

FACETS = ("plan", "host", "durability", "validity", "safety")
COLLECT_ONLY: Final = ("base", "candidate", "base_program", "candidate_program")
"""The options that say nothing without ``--collect``."""


# fmt: off
_compare_options = options(
    option("--collect", "repeats", section="Measurement", type=COUNT, default=None, metavar="N",
           help="Measure N repetitions of each side first, in turn: base, candidate, candidate, base, and so on. "
                "COMMAND is what both sides have in common."),
    option("--base", section="Measurement", metavar="'WORDS'", default=None,
           help="Words to add to COMMAND for the base, such as '-h amqp://old'. No shell reads the words."),
    option("--candidate", section="Measurement", metavar="'WORDS'", default=None,
           help="Words to add to COMMAND for the candidate, such as '-h amqp://new'. No shell reads the words."),
    option("--base-program", section="Measurement", metavar="PROGRAM", default=None,
           help="Program that replaces the first word of COMMAND for the base: the perftest of another version."),
    option("--candidate-program", section="Measurement", metavar="PROGRAM", default=None,
           help="Program that replaces the first word of COMMAND for the candidate."),
    option("--out", section="Output", type=click.Path(path_type=Path, file_okay=False), default=None,
           help="Directory of the page; implies --report.  [default: runs/compare-TIME] With --collect: directory of "
                "the repetitions, with base/ and candidate/, and of the page. The same command line goes on with "
                "repetitions that are missing there.  [default: comparison]"),
    option("--metric", "metrics", section="Judgement", multiple=True, metavar="NAME",
           shell_complete=compared_names,
           help="Compare only this metric, such as e2e.p99; p99: of each latency; e2e: all percentiles of this "
                "latency; rate: all rates. Repeatable."),
    option("--confidence", section="Judgement", type=PART, default="95%",
           help="Confidence of each interval, and of all verdicts together: equal sides look changed at most this "
                "seldom."),
    option("--noise-rate", section="Judgement", type=PART, default="2%",
           help="Largest change of a rate that counts as noise."),
    option("--noise-latency", section="Judgement", type=PART, default="5%",
           help="Largest change of a latency that counts as noise."),
    option("--across", section="Judgement", type=click.Choice(("broker",)), default=None,
           help="Compare two brokers: their clusters and drives, and how clients connect to them, may differ. All "
                "differences are shown."),
    option("--allow", section="Judgement", type=click.Choice(FACETS), multiple=True,
           help="Compare although the sides differ in this aspect, or although a side fails in it. Repeatable."),
    option("--report", "as_page", section="Output", is_flag=True,
           help="Write an HTML page of the comparison, too."),
    option("--markdown", "as_markdown", section="Output", is_flag=True, help="Print Markdown, for a code review."),
)
# fmt: on


@click.command(
    cls=SectionedCommand,
    exits=(
        *(Exit.RUN_ERROR, Exit.SAFETY, Exit.UNTRUSTED, Exit.NOT_COMPARABLE),
        *(Exit.NOT_INSTALLED, Exit.REGRESSED, Exit.DAMAGED, Exit.INTERRUPTED),
    ),
    examples=(
        "perftest compare baseline/ candidate/ --report --metric p99   two directories of runs, with a page",
        "perftest compare --collect 10 --base '-h amqp://old' --candidate '-h amqp://new' -- perftest run -u q -z 30",
        "perftest compare --collect 10 --base-program old/bin/perftest -- perftest run -z 30   two versions",
    ),
)
@click.argument("places", nargs=-1, metavar="BASE CANDIDATE | --collect N ... -- COMMAND", shell_complete=run_places)
@_compare_options
@job_options
@json_option
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    places: tuple[str, ...],
    repeats: int | None,
    metrics: tuple[str, ...],
    confidence: float,
    noise_rate: float,
    noise_latency: float,
    across: str | None,
    allow: tuple[str, ...],
    as_page: bool,
    out: Path | None,
    as_markdown: bool,
    as_json: bool,
    junit: Path | None,
    annotations: Annotations | None,
    **asked: Any,
) -> None:
    """Compare two sets of runs: each metric with its change, the interval of the change, and a verdict.

    BASE and CANDIDATE are directories that hold repetitions of a run, or single run directories. With --collect,
    compare measures the repetitions itself. A verdict needs five repetitions on each side. With fewer, every metric is
    inconclusive and the exit code is 0. The exit code is 8 if a metric got worse, 9 if files of a run are damaged, 6
    if the runs are not alike, 5 if a run cannot be trusted, and 3 if the candidate lost, duplicated, reordered or
    damaged messages. To fail a build because of a single run, use `perftest run --slo`.
    """
    from reports.comparison.compare import compare as judge
    from reports.comparison.facets import Facet

    _known_metrics(metrics)
    as_page = as_page or (out is not None and repeats is None)
    if as_page:
        require("report", "a page")
    if repeats is not None:
        out = out or Path("comparison")
        base, candidate = _collected(places, repeats, asked, out)
        allow = (*allow, "plan", "durability")  # the sides differ in what --base and --candidate say
    else:
        base, candidate = _two_places(places, asked)
    sides = _two_sides(base, candidate)
    name_damage({str(run.path): run.damages.lines() for side in sides for run in side})
    result = judge(
        *sides,
        allow=frozenset(Facet(each) for each in allow),
        across=across is not None,
        metrics=metrics,
        confidence=confidence,
        noise_rate=noise_rate,
        noise_latency=noise_latency,
    )
    if result.unmatched:
        raise _unmeasured(result, base, candidate)
    if as_json:
        from reports.comparison.text import to_json

        click.echo(json.dumps(to_json(result), ensure_ascii=False, indent=1))
    elif not result.refused:
        _show(result, as_markdown=as_markdown)
    if as_page:
        page = build_comparison(result, out or Path("runs") / f"compare-{utc_stamp()}", (base, candidate))
        click.echo(page, err=as_json or as_markdown)
    if repeats is not None and not result.repeated:
        kept = f"the same command line with --collect 10 goes on with the repetitions in {out}"
        click.echo(f"more repetitions: {kept}", err=True)
    code = exit_code(result)
    _publish(JobOutputs(junit=junit, annotations=annotations), result, candidate, code)
    if result.refused and not as_json:
        raise _unlike(result, base, candidate, code)
    ctx.exit(int(code))


def _known_metrics(metrics: Sequence[str]) -> None:
    """Refuse a filter that means no metric, before anything is measured. Raises CliError."""
    for text in metrics:
        try:
            metrics_like(text, COMPARED)
        except MetricNameError as error:
            raise CliError(error.rule, "--metric", error.fix, Exit.USAGE) from error


def _unmeasured(result: CompareResult, base: Path, candidate: Path) -> CliError:
    """The error about filters that match nothing: a gate that compares less than it was told to would pass."""
    what = f"--metric {' and '.join(result.unmatched)}: not every run measured this"
    fix = f"these runs have {', '.join(result.measured) or 'no figures'}: choose among these, or leave out --metric"
    return CliError(what, f"{base}, {candidate}", fix, Exit.USAGE)


def _two_places(places: Sequence[str], asked: Mapping[str, Any]) -> tuple[Path, Path]:
    """The directories of BASE and CANDIDATE. Raises CliError."""
    if given := [f"--{name.replace('_', '-')}" for name in COLLECT_ONLY if asked[name] is not None]:
        fix = "add --collect N, and the command to measure after --"
        raise CliError(f"{', '.join(given)} is of use only with --collect", "perftest compare", fix, Exit.USAGE)
    if len(places) != 2:
        what = f"two directories are compared, these are {len(places)}"
        fix = "give BASE and CANDIDATE, or --collect N and the command to measure after --"
        raise CliError(what, " ".join(places) or "perftest compare", fix, Exit.USAGE)
    return Path(places[0]), Path(places[1])


def _two_sides(base: Path, candidate: Path) -> tuple[list[Run], list[Run]]:
    """The runs of both sides. Raises CliError if a run is on both, and what reading runs raises."""
    from reports.comparison.compare import runs_of

    sides = runs_of(base), runs_of(candidate)
    first, second = ({run.path.resolve() for run in side} for side in sides)
    if shared := sorted(first & second):
        what = f"{shared[0].name} is a run of both sides: nothing can differ from itself"
        raise CliError(what, f"{base}, {candidate}", "give two places with runs of their own", Exit.USAGE)
    return sides


def _collected(words: Sequence[str], repeats: int, asked: Mapping[str, Any], out: Path) -> tuple[Path, Path]:
    """Measure what is missing of the repetitions, and return the directories of both sides. Raises CliError."""
    from perftest.series.collection import BASE, CANDIDATE, collect, collection_of

    found = collection_of(
        words,
        repeats,
        {BASE: asked["base"], CANDIDATE: asked["candidate"]},
        {BASE: asked["base_program"], CANDIDATE: asked["candidate_program"]},
        out,
    )
    collect(found)
    return found.place(BASE), found.place(CANDIDATE)


def exit_code(result: CompareResult) -> Exit:
    """The exit code of a comparison: first unsafe messages, then unlike runs, untrustworthy runs, damaged runs, and
    regressions."""
    from reports.comparison.facets import Facet
    from reports.stats.confidence import ChangeVerdict

    if any((run.ledger or {}).get("verdict") == "violated" for run in result.candidate):
        return Exit.SAFETY
    if result.refused and all(each.facet is Facet.VALIDITY for each in result.refused):
        return Exit.UNTRUSTED
    if result.refused or not result.lines:
        return Exit.NOT_COMPARABLE
    if any(run.damages for run in (*result.base, *result.candidate)):
        return Exit.DAMAGED
    return Exit.REGRESSED if result.count(ChangeVerdict.REGRESSED) else Exit.OK


def _publish(job: JobOutputs, result: CompareResult, candidate: Path, code: Exit) -> None:
    """Write the verdicts for the job of a build pipeline: a case for each metric, or for each reason why the runs are
    not compared."""
    if job.is_empty:
        return
    from perftest.ci.cases import Suite, with_exit
    from perftest.ci.publish import place_of, publish

    started_ns = min((run.manifest["started_ns"] for run in (*result.base, *result.candidate)), default=0)
    cases = with_exit(_cases(result), code)
    publish(job, Suite(name="compare", place=place_of(candidate), cases=cases, started_ns=started_ns))


def _cases(result: CompareResult) -> list[Case]:
    from perftest.ci.cases import Case, CaseOutcome
    from reports.comparison import text
    from reports.stats.confidence import ChangeVerdict

    outcomes = {
        ChangeVerdict.REGRESSED: CaseOutcome.FAILED,
        ChangeVerdict.INCONCLUSIVE: CaseOutcome.SKIPPED,
    }
    refused = [Case(str(each.where), CaseOutcome.ERROR, text.difference(each)) for each in result.refused]
    return refused + [
        Case(
            f"{line.step}: {line.metric}" if line.step else line.metric,
            outcomes.get(line.verdict, CaseOutcome.PASSED),
            text.sentence(line),
        )
        for line in result.sorted_lines()
    ]


def _unlike(result: CompareResult, base: Path, candidate: Path, code: Exit) -> CliError:
    facets = list(dict.fromkeys(str(each.facet) for each in result.refused))
    what = "; ".join(f"{each.where} is {each.base} against {each.candidate}" for each in result.refused[:10])
    more = f"; and {len(result.refused) - 10} more" if len(result.refused) > 10 else ""
    flags = _way_out(result, facets)
    again = "measure the runs again that are INVALID" if code is Exit.UNTRUSTED else "measure again with the same"
    named = "" if code is Exit.UNTRUSTED else f" {' and '.join(facets)}"
    return CliError(
        f"these runs cannot be compared: {what}{more}",
        f"{base}, {candidate}",
        f"{again}{named}, or compare nonetheless: {flags}",
        code,
    )


def _way_out(result: CompareResult, facets: Sequence[str]) -> str:
    """The options that compare unlike runs nonetheless."""
    from reports.comparison.facets import of_broker

    rest = {str(each.facet) for each in result.refused if not of_broker(each)}
    across = ["--across broker"] if len(rest) < len(facets) else []
    return " ".join([*across, *(f"--allow {facet}" for facet in facets if facet in rest)])


def _show(result: CompareResult, *, as_markdown: bool) -> None:
    from reports.comparison import text

    if as_markdown:
        click.echo(text.markdown(result))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    left = ("step", "metric", "verdict")
    for name in text.HEAD:
        table.add_column(name, justify="left" if name in left else "right")
    for row in text.rows(result):
        table.add_row(*row)
    if result.lines:
        console.print(table)
        console.print()
    for sentence in text.sentences(result):
        console.print(sentence)
    for sentence in text.shown_differences(result):
        console.print(f"differs: {sentence}")
