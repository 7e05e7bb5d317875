"""The conclusion of a measured run: its table, its doubts, the cause of a failure, its files, and its exit code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import click

from perftest.ci.cases import Suite, cases_of_checks, cases_of_findings, cases_of_objectives, with_exit
from perftest.ci.publish import place_of, publish
from perftest.cli.ui.summary import (
    INVALID,
    clocks_note,
    doubtful_note,
    doubts,
    knee_sentence,
    legacy_lines,
    percentiles_table,
    schedule_note,
    steps_table,
    terminal_width,
    where_and_next,
    wrapped,
    wrapped_lines,
)
from perftest.engine.api import RunOutcome
from perftest.errors import three_lines
from perftest.exits import Exit, explained
from perftest.measuring.session_options import Options
from perftest.results import schema
from perftest.results.provenance import redact
from perftest.results.reader import earlier_run
from perftest.results.writer import RunWriter
from perftest.spec.expected.slo import highest_held


class Conclusion:
    """Prints the results of a run after its directory is finished, or could not be finished."""

    def __init__(self, writer: RunWriter, options: Options) -> None:
        self._writer = writer
        self._options = options

    def print_measured(self) -> None:
        """Print the table and the doubts to stdout. With JSON, :meth:`print_end` prints everything."""
        writer = self._writer
        unsafe = (writer.ledger_record or {}).get("verdict") == "violated"
        if self._json or not (writer.rows or unsafe or writer.verdicts):
            self._print_nothing()
            return
        width = terminal_width()
        if width is not None:
            click.echo()  # a terminal has echoed ^C
        for part in filter(None, self._parts(width)):
            click.echo(f"{part}\n")

    def _print_nothing(self) -> None:
        """Print to stderr why there is no table. :func:`print_failure` prints why a run failed."""
        writer = self._writer
        if writer.rows or writer.manifest["state"] == "failed":
            return
        if writer.discarded:
            click.echo("nothing was measured: the run was interrupted before its load began", err=True)
            return
        warmup_s = writer.plan.steps[0].warmup_s if writer.plan.steps else 0.0
        within = f": the run ended within its warm-up of {warmup_s:g} s" if warmup_s else ""
        click.echo(f"nothing was measured{within}", err=True)

    def _parts(self, width: int | None) -> Iterator[str]:
        """The paragraphs in reading order; some may be empty."""
        writer, rows = self._writer, self._writer.rows
        if rows:
            notes = (schedule_note(rows), doubtful_note(rows), clocks_note(rows))
            said = wrapped([note for note in notes if note], width)
            yield "\n".join(filter(None, [steps_table(rows, width), said]))
        if writer.background_rows:
            title = "background load, in no figure above"
            yield f"{title}\n{steps_table([_without_cpu(row) for row in writer.background_rows], width)}"
        yield wrapped([str(recovery["text"]) for recovery in writer.recoveries], width)
        yield from self._details()
        yield "\n".join(verdict.sentence() for verdict in writer.verdicts)
        yield wrapped([highest_held(writer.verdicts, rows)], width)
        words = [knee_sentence(rows), *([] if writer.valid else [INVALID]), *doubts(writer.trust)]
        yield wrapped(words[:1], width)
        yield wrapped(words[1:], width)
        yield wrapped_lines(writer.findings.lines(), width) if writer.findings is not None else ""

    def print_end(self, code: Exit, report: Path | None) -> None:
        """Print where the results are, or the JSON object of the result."""
        if self._json:
            result = self._result(code, report)
            click.echo(json.dumps(result, ensure_ascii=False, indent=None if self._options.ui == "json" else 1))
            return
        if self._writer.discarded:
            return
        click.echo(where_and_next("data", self._writer.path, report, self._commands(report)))

    def _commands(self, report: Path | None) -> list[str]:
        """The next commands, if anything was measured; first the command that continues an interrupted sweep."""
        writer, options = self._writer, self._options
        if options.is_round:
            return []
        cut_short = bool(writer.plan.swept) and writer.manifest["state"] != "finished"
        found = [f"{options.again} --resume {writer.path}{options.target}"] if cut_short else []
        if writer.rows and options.resumed is not None:
            return [*found, f"perftest report {options.resumed} {writer.path}"]
        found += [f"perftest report {writer.path}"] if writer.rows and report is None else []
        if writer.rows and not cut_short:
            base = earlier_run(writer.path, writer.manifest["plan"]["digest"])
            found.append(f"perftest compare {base or 'BASE'} {writer.path}")
        return found

    def _result(self, code: Exit, report: Path | None) -> dict[str, Any]:
        writer = self._writer
        result: dict[str, Any] = {
            "record": "result",
            "path": None if writer.discarded else str(writer.path),
            "report": str(report) if report else None,
            "exit_code": int(code),
            "valid": writer.valid,
            "steps": writer.rows,
            "trust": [check.to_list_json() for check in writer.trust],
        }
        if writer.background_rows:
            result["background"] = writer.background_rows
        if taken := writer.taken.to_json():
            result["taken"] = taken
        if writer.recoveries:
            result["recoveries"] = list(writer.recoveries)
        if writer.verdicts:
            result["objectives"] = [verdict.to_json() for verdict in writer.verdicts]
        if writer.findings is not None:
            result["findings"] = writer.findings.to_json()
        if writer.legacy is not None:
            result["legacy_latency"] = writer.legacy.to_json()
        return result

    def copy_hlog(self) -> None:
        """Copy the histograms of the run to the file of ``--hlog``. Raises CliError."""
        target = self._options.hlog_file
        if target is None or self._writer.discarded:
            return
        source = self._writer.path / schema.LATENCY_HLOG
        with explained("the histograms cannot be copied", target, f"they are in {source}"):
            shutil.copyfile(source, target)

    def publish(self, code: Exit) -> None:
        """Write the verdicts for the job of a build pipeline. The rounds of a sweep are judged together, at its end.
        Raises CliError."""
        writer, options = self._writer, self._options
        if options.job.is_empty or options.is_round:
            return
        found = writer.findings.to_json()["findings"] if writer.findings is not None else ()
        cases = [
            *cases_of_objectives(writer.verdicts),
            *cases_of_findings(cast("Iterable[Mapping[str, Any]]", found), asserted=options.assert_findings),
            *cases_of_checks(writer.trust, valid=writer.valid),
        ]
        suite = Suite(
            name=writer.plan.name,
            place=place_of(writer.path / schema.MANIFEST),
            cases=with_exit(cases, code),
            started_ns=writer.started_ns,
            length_s=sum(row["length_ns"] for row in writer.rows) / 1e9,
        )
        publish(options.job, suite)

    @property
    def _json(self) -> bool:
        return self._options.as_json or self._options.ui == "json"

    def _details(self) -> Iterator[str]:
        """Paragraphs about polls and further latencies, where options ask for them."""
        if taken := self._writer.taken.sentence():
            yield taken
        if polls := self._writer.disturbances.polls():
            yield polls
        if self._options.percentiles and self._writer.rows:
            yield percentiles_table(self._writer.tally, self._writer.rows, self._options.percentiles)
        if self._writer.legacy is not None:
            yield legacy_lines(self._writer.legacy.to_json(), in_millis=self._options.in_millis)


def _without_cpu(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without the CPU time for a message, which tells nothing of the workers of a load that is not measured."""
    return {**row, "worker_cpu_us_per_message": None, "broker_cpu_us_per_message": None, "link_bodies": None}


def print_failure(outcome: RunOutcome) -> None:
    """Print to stderr why a run failed."""
    if outcome.error is not None:
        error = outcome.error
        click.echo(three_lines(redact(error.what), redact(error.where), error.fix), err=True)
