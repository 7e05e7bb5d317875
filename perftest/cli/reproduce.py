"""``perftest reproduce``: try published findings again, on several brokers, within the time that there is."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from perftest.cli.sections import DURATION, SectionedCommand, json_option, option, options
from perftest.cli.target import home_option
from perftest.cli.ui.completion import workload_names
from perftest.exits import CliError, Exit

if TYPE_CHECKING:
    from perftest.reproduction.campaign import Campaign
    from perftest.reproduction.outcome import CampaignOutcome
    from perftest.reproduction.schedule import EndedTrial, FindingTrial, TrialUnit

_BROKERS = ("reference", "rabbitmq", "simulated", "simulated-rabbitmq-3.10")
_HOUR_S = 3600.0
_FIXED = {"brokers": "--broker", "rabbitmq_home": "--rabbitmq-home", "layouts": "--layout", "step_s": "--step"}
"""Options that --resume excludes, by their parameters."""

# fmt: off
_own_options = options(
    option("--broker", "brokers", section="Target", type=click.Choice(_BROKERS), multiple=True,
           default=("reference",),
           help="Broker to measure: reference, rabbitmq (which must be installed), or, at virtual time on 16 cores, "
                "the bundled broker (simulated) or a model of RabbitMQ. Repeatable; brokers take turns."),
    home_option,
    option("--layout", "layouts", section="Target", metavar="NAME|all", multiple=True, default=("all",),
           help="Layouts of drives for findings that compare layouts. Repeatable."),
    option("--hours", section="Timing", type=click.FloatRange(min=0, min_open=True), default=3.0,
           help="Time to measure in, at most."),
    option("--step", "step_s", section="Timing", type=DURATION, default="12s",
           help="Length of each step, 2 s of warm-up included; workloads with actions run in their short form."),
    option("--rounds", section="Measurement", type=click.IntRange(1), default=3,
           help="Rounds of each workload. After these, undecided findings get more rounds while there is time."),
    option("--rounds-max", section="Measurement", type=click.IntRange(1), default=9,
           help="Most rounds of a workload."),
    option("--dry-run", section="Measurement", is_flag=True, help="Show what would run and what not, and exit."),
    option("--resume", section="Measurement", metavar="DIRECTORY", default=None,
           type=click.Path(path_type=Path, file_okay=False),
           help="Go on with the reproduction in DIRECTORY, for --hours more; --rounds and --rounds-max may change."),
    option("--assert", "expected", section="Judgement", metavar="FILE", default=None,
           type=click.Path(path_type=Path, dir_okay=False),
           help="End with exit code 4 unless every finding holds that holds by FILE, the verdicts.json of a former "
                "reproduction."),
    option("--out", section="Output", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"),
           help="Directory in which the directory of the reproduction is created."),
    option("--markdown", section="Output", metavar="FILE", default=None,
           type=click.Path(path_type=Path, dir_okay=False), help="Write the results to FILE as Markdown, too."),
    option("--pages/--no-pages", section="Output", default=True,
           help="Make a page of each run, to which the table of findings leads, or none."),
)
# fmt: on


@click.command(
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.MISSED, Exit.INTERRUPTED),
    examples=(
        "perftest reproduce flow_control --hours 1",
        "perftest reproduce disks --broker reference --broker rabbitmq --layout all --hours 3",
        "perftest reproduce --resume runs/20261130-101500-reproduction-7f3a --hours 2",
    ),
)
@click.argument("names", metavar="[SOURCE|WORKLOAD]...", nargs=-1, shell_complete=workload_names)
@_own_options
@json_option
@click.pass_context
def reproduce(
    ctx: click.Context,
    /,
    names: tuple[str, ...],
    brokers: tuple[str, ...],
    rabbitmq_home: Path | None,
    layouts: tuple[str, ...],
    hours: float,
    step_s: float,
    rounds: int,
    rounds_max: int,
    dry_run: bool,
    resume: Path | None,
    expected: Path | None,
    out: Path,
    markdown: Path | None,
    pages: bool,
    as_json: bool,
) -> None:
    """Try published findings again, and show which of them hold.

    SOURCE is a folder of bundled workloads (flow_control, stress, disks, ...), WORKLOAD a bundled workload or a file.
    Without either, all bundled workloads with findings or objectives run. Shortest workloads run first, round by round,
    and brokers take turns. The time decides what is left out. Ctrl-C keeps everything measured; --resume goes on, with
    the workloads named or with all.
    """
    from perftest.options.targets import no_home_without
    from perftest.reproduction.campaign import Campaign, ReproductionRequest, continued
    from perftest.reproduction.experiments import chosen
    from perftest.reproduction.outcome import CampaignOutcome
    from perftest.reproduction.schedule import TrialLimits
    from perftest.reproduction.writing import held_in

    wanted = held_in(expected) if expected is not None else None
    if resume is None:
        limits = TrialLimits(rounds=rounds, rounds_max=max(rounds, rounds_max), step_s=step_s)
        no_home_without(brokers, rabbitmq_home)
        asked = ReproductionRequest(
            names=names,
            brokers=tuple(dict.fromkeys(brokers)),
            layouts=layouts,
            limits=limits,
            rabbitmq_home=str(rabbitmq_home.absolute()) if rabbitmq_home is not None else "",
        )
        campaign = Campaign(_directory(out), asked, chosen(names, layouts), [])
    else:
        typed = _typed(ctx)
        if fixed := typed & _FIXED.keys():
            words = ", ".join(sorted(_FIXED[each] for each in fixed))
            what = "brokers, layouts and steps of a reproduction stay as they are"
            raise CliError(what, "--resume", f"leave out {words}", Exit.USAGE)
        given = {"rounds": rounds, "rounds_max": rounds_max}
        campaign = continued(resume, names, {each: given[each] for each in given.keys() & typed})
    outcome = CampaignOutcome(campaign)
    _show_plan(campaign, outcome, hours)
    if dry_run:
        return
    campaign.place.mkdir(parents=True, exist_ok=True)
    campaign.save()
    code = _measure(campaign, outcome, hours)
    missed = _write(campaign, outcome, markdown, wanted, pages=pages, as_json=as_json)
    ctx.exit(int(code if code is not Exit.OK else Exit.MISSED if missed else Exit.OK))


def _typed(ctx: click.Context) -> set[str]:
    """The options on the command line."""
    return {each for each in ctx.params if ctx.get_parameter_source(each) is ParameterSource.COMMANDLINE}


def _directory(out: Path) -> Path:
    from perftest.results.writer import run_id

    return out / run_id("reproduction", time.time_ns())


def _show_plan(campaign: Campaign, outcome: CampaignOutcome, hours: float) -> None:
    from perftest.reproduction.schedule import fitting
    from perftest.spec.units import format_duration
    from perftest.tell import tell

    now, later = fitting(campaign.left(outcome.is_decided), hours * _HOUR_S)
    trials, length_s = sum(len(each.trials) for each in now), sum(each.length_s for each in now)
    tell(f"{trials} runs fit into {format_duration(round(hours * _HOUR_S))}, about {format_duration(round(length_s))}:")
    for line in _grouped(now):
        tell(f"  {line}")
    left_out = [each for each in later if each.trials[0].round == 1]
    if left_out:
        tell("left out, because the time is over before them:")
        for line in _grouped(left_out):
            tell(f"  {line}")


def _grouped(units: list[TrialUnit]) -> list[str]:
    """A line for each workload: on which brokers it runs, how often, and how long all that takes."""
    from perftest.spec.units import format_duration

    by_workload: dict[str, list[TrialUnit]] = {}
    for unit in units:
        by_workload.setdefault(unit.pair[0], []).append(unit)
    lines = []
    for workload, several in by_workload.items():
        brokers = ", ".join(dict.fromkeys(unit.pair[1] for unit in several))
        rounds = len({unit.trials[0].round for unit in several})
        layouts = len({trial.layout for unit in several for trial in unit.trials})
        parts = [f"on {brokers}", f"{rounds} round{'s' if rounds > 1 else ''}"]
        parts += [f"{layouts} layouts"] if layouts > 1 else []
        lines.append(
            f"{workload}: {', '.join(parts)}, {format_duration(round(sum(unit.length_s for unit in several)))}"
        )
    return lines


def _measure(campaign: Campaign, outcome: CampaignOutcome, hours: float) -> Exit:
    """Measure until the time is over. A signal ends the trial that runs, and the results are written."""
    from perftest.measuring.interrupts import Interrupts
    from perftest.reproduction.commands import in_process_of_its_own, measured

    by_name = {each.name: each for each in campaign.experiments}
    step_s, home = campaign.asked.limits.step_s, campaign.asked.rabbitmq_home

    def measure(trial: FindingTrial, place: Path) -> EndedTrial:
        return measured(trial, place, by_name[trial.workload], step_s, in_process_of_its_own, home)

    with Interrupts().installed():
        try:
            campaign.go_on(time.monotonic() + hours * _HOUR_S, measure, outcome.is_decided)
        except KeyboardInterrupt:
            click.echo(f"interrupted: go on with perftest reproduce --resume {campaign.place}", err=True)
            return Exit.INTERRUPTED
    return Exit.OK


def _write(
    campaign: Campaign,
    outcome: CampaignOutcome,
    markdown: Path | None,
    wanted: set[tuple[str, str, str]] | None,
    *,
    pages: bool,
    as_json: bool,
) -> bool:
    """Write the results. Returns whether a finding that has to hold does not."""
    from perftest.reproduction import writing
    from perftest.reproduction.run_pages import make_pages, page_of
    from reports.html.published import write_published

    has_pages = pages and make_pages(campaign)
    workloads = outcome.workloads(page_of if has_pages else lambda _run: "")
    notes = campaign_notes(campaign, outcome)
    writing.put_verdicts(workloads, campaign.place)
    generated = f"Made {datetime.now(UTC):%Y-%m-%d %H:%M UTC} from recorded runs. It makes no request to a network."
    page = write_published(workloads, campaign.place / writing.PAGE, generated=generated, notes=notes)
    for file in filter(None, (campaign.place / writing.MARKDOWN, markdown)):
        writing.put_markdown(workloads, notes, file)
    lost = writing.no_longer_held(wanted, workloads) if wanted is not None else []
    if as_json:
        click.echo(json.dumps(writing.verdicts_of(workloads) | {"missed": lost}, indent=1, ensure_ascii=False))
        return bool(lost)
    for broker, counts in writing.verdicts_of(workloads)["score"].items():
        click.echo(f"{broker}: {', '.join(f'{count} {verdict}' for verdict, count in counts.items() if count)}")
    for line in lost:
        click.echo(f"missed  {line}")
    click.echo(f"page    {page}")
    return bool(lost)


def campaign_notes(campaign: Campaign, outcome: CampaignOutcome) -> list[str]:
    """How and where the findings were tried, in sentences."""
    from perftest.reproduction.writing import notes_of

    notes = notes_of(list(outcome.manifests()))
    limits = campaign.asked.limits
    notes.append(
        f"Steps last {limits.step_s:g} s, 2 s of warm-up included; workloads with actions run in their short form."
    )
    return notes
