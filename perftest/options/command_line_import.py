"""A command line of PerfTest as a workload file: read its options as ``perftest run`` does, and write down the plan."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from perftest.importers.command_line import CommandLine, lines_of
from perftest.importers.notes import Converted, Imported, Notes
from perftest.importers.perftest_multi import command_lines
from perftest.importers.write import name_of
from perftest.options import tokens
from perftest.options.choices import Choices
from perftest.options.option import Effect
from perftest.options.plan_of_options import plan_of
from perftest.options.table import BY_KEY
from perftest.spec.behaviour import ExitWhen, RoutingKeys
from perftest.spec.condense import workload_of
from perftest.spec.plan import Plan
from perftest.spec.problem import Problem, SpecError

UNTIL_STOPPED_S: Final = 60.0
COUNTED_S: Final = 3600.0
CONFIRM_TIMEOUT_S: Final = 3600.0

_OF_THE_COMMAND: Final = {
    "uri": "a workload names no broker; use `perftest sweep FILE -h URI`",
    "uris": "a workload names no broker; use `perftest sweep FILE -H URIS`",
    "cluster": "a workload names no broker; use `perftest sweep FILE --cluster DIRECTORY`",
    "broker": "write `cluster: {broker: NAME}` into the workload, or use `perftest sweep FILE --broker NAME`",
    "rabbitmq_home": "use `perftest sweep FILE --broker rabbitmq --rabbitmq-home DIR`",
    "layout": "a workload places no files; use `perftest sweep FILE --layout LAYOUT`",
    "at": "actions of a workload stand in its file: write them below timeline",
    "id": "a run is named after its workload; change the key name",
    "output_file": "results are in intervals.csv of the run directory",
    "metrics_format": "only `perftest run` prints PerfTest's lines",
    "use_millis": "a workload always uses the clock of the host, in microseconds",
    "out": "a workload does not say where results go; use `perftest sweep FILE --out DIRECTORY`",
    "ui": "a workload does not say how progress is shown; use `perftest sweep FILE --ui NAME`",
    "as_json": "a workload does not say what is printed; use `perftest sweep FILE --json`",
    "report": "a workload does not ask for a report; use `perftest sweep FILE --report`",
    "no_report": "a workload does not ask for a report; use `perftest sweep FILE --no-report`",
}
"""Options about the command and not about the load, and the command that has the same option."""
_OF_RUN_ONLY: Final = ("hlog", "slo", "percentiles", "legacy_latency", "broker_metrics", "junit", "annotations")
_SHOWN: Final = ("show_version", "show_environment", "show_metrics")


def import_scenarios(data: list[Any], file: str) -> Imported:
    """A workload for each load of a specification of PerfTestMulti. Raises SpecError with all problems."""
    notes = Notes(file)
    named = command_lines(data, notes)
    stem = name_of(file.rpartition("/")[2].rpartition(".")[0], 30)
    found: list[Converted] = []
    for number, (name, text) in enumerate(named, 1):
        (line,) = lines_of(text, notes)
        own = Notes(file)
        workload = _workload(line, f"{stem}/{number:03}_{name_of(name, 40)}", own, place=name)
        notes.problems += own.problems
        if workload is not None:
            found.append(Converted(workload, own.found))
    notes.stop_at_problems()
    return Imported(found, notes.found)


def import_command_lines(text: str, file: str) -> Imported:
    """A workload for each command line in a text. Raises SpecError with the problems of all lines."""
    notes = Notes(file)
    lines = lines_of(text, notes)
    if not lines and not notes.problems:
        notes.problem(
            "", "the source has no command line of PerfTest", "give a command line, such as `perf-test -x 1 -y 2`"
        )
    stem = name_of("perftest" if file == INLINE else file.rpartition("/")[2].rpartition(".")[0] or file, 70)
    found = []
    for number, line in enumerate(lines, start=1):
        name = stem if len(lines) == 1 else f"{stem}/{number:0{len(str(len(lines)))}}"
        own = Notes(file)
        workload = _workload(line, name, own)
        notes.problems += own.problems
        if workload is not None:
            found.append(Converted(workload, own.found))
    notes.stop_at_problems()
    return Imported(found, notes.found)


_OF_QUEUES: Final = "have no consumer and fill up"
INLINE: Final = "command line"
"""The name of a source that was typed as an argument."""


def _workload(line: CommandLine, name: str, notes: Notes, place: str | None = None) -> dict[str, Any] | None:
    read = tokens.read(line.words)
    if place is None:
        place = f"line {line.number}" if line.number > 1 or notes.file != INLINE else ""
    for complaint in read.complaints:
        notes.problem(place, complaint.what, complaint.fix)
    if read.complaints:
        return None
    for text in read.repeated():
        notes.different(place, text)
    given = {**tokens.from_environment(line.environment), **read.values}
    note_options(given, place, notes)
    beside_a_broker = {**given, "uri": ["amqp://localhost"]}
    for key in given:
        if key != "uri" and (key in (*_OF_THE_COMMAND, *_OF_RUN_ONLY, *_SHOWN) or BY_KEY[key].section == "Metrics"):
            del beside_a_broker[key]
    choices = Choices.of_words(beside_a_broker)
    try:
        plan = plan_of(choices)
    except SpecError as error:
        notes.problems += [replace(each, file=f"{notes.file}: {each.file}", path=place) for each in error.problems]
        return None
    for note in choices.notes:
        if not note.endswith(_OF_QUEUES):  # a workload is refused for it: see _finite
            notes.different(place, note)
    return workload_of(_finite(_named(plan, given, name), choices, place, notes))


def note_options(given: Mapping[str, list[str]], place: str, notes: Notes) -> None:
    """Add a note for each option that has no effect in a workload."""
    for key in given:
        option = BY_KEY[key]
        where = f"{place} {option.place}".strip()
        if option.effect is Effect.WITHOUT:
            notes.without(where, option.reason)
        elif key in _OF_THE_COMMAND:
            what, _, fix = _OF_THE_COMMAND[key].partition("; ")
            notes.different(where, what, fix)
        elif option.section == "Metrics":
            notes.without(where, "a workload serves no metrics", "use `perftest run` with the same option")
        elif key in _OF_RUN_ONLY:
            notes.without(where, "a workload does not say how results are shown or judged", "see `perftest run`")
        elif key in _SHOWN:
            notes.without(where, "the option only prints something")


def _named(plan: Plan, given: Mapping[str, list[str]], name: str) -> Plan:
    """The plan with a name, a title and a stable routing key.

    The title has the options without addresses, because addresses hold passwords. The routing key is the same each time
    the line is imported.
    """
    kept = {key: values for key, values in given.items() if key not in _OF_THE_COMMAND}
    words = [" ".join([BY_KEY[key].flag, *filter(None, values)]) for key, values in kept.items()]
    title = " ".join(["perf-test", *words])
    plan = replace(plan, name=name, title=title)
    is_drawn = plan.publishing.routing_keys is RoutingKeys.FIXED and "routing_key" not in given
    if is_drawn:
        key = str(uuid.uuid5(uuid.NAMESPACE_URL, title))
        plan = plan.changed(publishing=replace(plan.publishing, routing_key=key))
    return plan


def _finite(plan: Plan, choices: Choices, place: str, notes: Notes) -> Plan:
    """The plan with finite times, as a workload file needs them. Each change gets a note."""
    (step,) = plan.steps
    if not math.isfinite(step.duration_s):
        consuming = plan.consuming
        counted = plan.publishing.messages or consuming.messages or consuming.exit_when is not ExitWhen.NEVER
        seconds = COUNTED_S if counted else UNTIL_STOPPED_S
        words = "at most an hour, because a step needs a longest time" if counted else "a minute, and not until Ctrl-C"
        notes.different(f"{place} -z/--time".strip(), f"the run lasts {words}", "change step.duration")
        warmup_s = step.warmup_s if choices.is_given("warmup") else 0.0 if counted else 5.0
        plan = plan.changed(steps=(replace(step, duration_s=seconds, warmup_s=warmup_s),))
    if not math.isfinite(plan.confirm_timeout_s):
        notes.different(
            f"{place} -ct/--confirm-timeout".strip(), "the longest wait for a confirm is an hour, not unlimited"
        )
        plan = replace(plan, confirm_timeout_s=CONFIRM_TIMEOUT_S)
    if not plan.delete_queues:
        what = "queues are emptied before the run and deleted after it, unless they are predeclared"
        notes.different(
            place, what, "to keep the messages in the queues, declare them yourself and set predeclared: true"
        )
    if plan.declare_missing:
        notes.different(
            f"{place} -p/--predeclared".strip(), "predeclared queues and exchanges must exist: they are never declared"
        )
    if plan.connecting.shutdown_timeout_s < 0:  # means the same as 0
        plan = replace(plan, connecting=replace(plan.connecting, shutdown_timeout_s=0.0))
    queues, consumers = len(plan.queues), step.settings.consumers
    wanted = -(-queues // plan.consuming.channels)
    if 0 < consumers < wanted:
        notes.different(
            f"{place} -y/--consumers".strip(), f"there are {wanted} consumers, one for each queue, not {consumers}"
        )
        (step,) = plan.steps
        plan = plan.changed(steps=(replace(step, settings=replace(step.settings, consumers=wanted)),))
    return replace(plan, delete_queues=True, declare_missing=False, uris=())


def refused(problems: list[Problem]) -> SpecError:
    """The problems of a converted workload, as an error about its source. Their lines belong to a text that the user
    has not seen."""
    told = [replace(each, rule=f"the converted workload is refused: {each.rule}", line=None) for each in problems]
    return SpecError(told)
