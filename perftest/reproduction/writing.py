"""The results of a reproduction in files: the page, the verdicts as JSON for ``--assert``, and Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from perftest.exits import CliError, Exit, explained
from perftest.results.writer import write_atomically
from reports.stats.published import NOT_RUN, PublishedFinding, PublishedSource, brokers_of, counted, reasons, sources_of
from reports.stats.published import PublishedWorkload as Workload
from reports.stats.reproduction import ReproductionOutcome

VERDICTS: Final = "verdicts.json"
PAGE: Final = "published-findings.html"
MARKDOWN: Final = "published-findings.md"
_VERSION: Final = 1
_HELD: Final = str(ReproductionOutcome.REPRODUCED)


def verdicts_of(workloads: Sequence[Workload]) -> dict[str, Any]:
    """The verdicts for programs: by finding, the verdict and the figures on each broker."""
    findings = [finding for source in sources_of(workloads) for finding in source.findings]
    return {
        "schema": _VERSION,
        "score": {broker: counted(findings, broker) for broker in brokers_of(workloads)},
        "findings": [
            {"workload": each.workload.name, "says": each.says, "brokers": dict(_on_brokers(each))} for each in findings
        ],
    }


def _on_brokers(finding: PublishedFinding) -> Iterator[tuple[str, dict[str, str]]]:
    for broker, judged in finding.brokers.items():
        if judged is not None:
            yield broker, {"verdict": str(judged.outcome), "figures": judged.figures}


def held_in(file: Path) -> set[tuple[str, str, str]]:
    """The findings that hold by a file of verdicts: workload, sentence, broker. Raises CliError."""
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
        return {
            (str(each["workload"]), str(each["says"]), str(broker))
            for each in plain["findings"]
            for broker, found in each["brokers"].items()
            if found["verdict"] == _HELD
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        what, fix = f"the verdicts cannot be read: {error}", f"name a {VERDICTS} of a reproduction"
        raise CliError(what, str(file), fix, Exit.USAGE) from error


def no_longer_held(wanted: set[tuple[str, str, str]], workloads: Sequence[Workload]) -> list[str]:
    """The findings that have to hold and do not, in sentences."""
    found = {
        (finding.workload.name, finding.says, broker): str(finding.outcome(broker) or NOT_RUN)
        for source in sources_of(workloads)
        for finding in source.findings
        for broker in finding.brokers
    }
    return [
        f"{workload} on {broker}: {found.get((workload, says, broker), NOT_RUN)}: {says}"
        for workload, says, broker in sorted(wanted)
        if found.get((workload, says, broker)) != _HELD
    ]


def put_verdicts(workloads: Sequence[Workload], place: Path) -> None:
    """Write the verdicts. Raises CliError."""
    _put(place / VERDICTS, json.dumps(verdicts_of(workloads), indent=1, ensure_ascii=False) + "\n")


def put_markdown(workloads: Sequence[Workload], notes: Sequence[str], file: Path) -> None:
    """Write the results as Markdown. Raises CliError."""
    _put(file, "\n".join(_markdown(workloads, notes)) + "\n")


def _put(file: Path, text: str) -> None:
    with explained("the results cannot be written", file, "make room, or name another place"):
        write_atomically(file, text)


def _markdown(workloads: Sequence[Workload], notes: Sequence[str]) -> Iterator[str]:
    sources, brokers = sources_of(workloads), brokers_of(workloads)
    yield "# Published findings, tried again"
    yield from (
        "",
        "`perftest reproduce` made this page. Each finding is judged by [its interval](cli.md#findings).",
        "",
    )
    yield from (f"- {note}" for note in notes)
    yield from ("", "## Score", "", _row("source", "broker", *_verdicts()), _row(*["---"] * (2 + len(_verdicts()))))
    for source in sources:
        for broker in brokers:
            counts = counted(source.findings, broker)
            yield _row(source.title, broker, *(str(counts[verdict]) for verdict in _verdicts()))
    for source in sources:
        yield from ("", f"## {source.title}", "")
        if source.address:
            yield from (f"Published at <{source.address}>.", "")
        for broker in brokers:
            yield from (f"- On {broker}: {text}" for text in reasons(source, broker))
        yield from ("", *_table(source, brokers))


def _verdicts() -> list[str]:
    return list(counted((), ""))


def _table(source: PublishedSource, brokers: Sequence[str]) -> Iterator[str]:
    yield _row("finding", "workload", *brokers)
    yield _row(*["---"] * (2 + len(brokers)))
    for each in source.findings:
        yield _row(each.says, f"`{each.workload.name}`", *(_cell(each, broker) for broker in brokers))


def _cell(finding: PublishedFinding, broker: str) -> str:
    judged = finding.brokers.get(broker)
    if judged is None:
        return NOT_RUN
    first = judged.claims[0].text if judged.claims else ""
    return f"**{judged.outcome}**" + (f": {first}" if first else "")


def _row(*trials: str) -> str:
    return f"| {' | '.join(trial.replace('|', '/') for trial in trials)} |"


def notes_of(record: Mapping[str, Any]) -> list[str]:
    """How and where a reproduction ran, in sentences, from the manifest of one of its runs."""
    hosts = record.get("hosts") or [{}]
    host, tool = hosts[0], record.get("tool") or {}
    machine = f"{host.get('cpu') or 'an unknown CPU'}, {host.get('cores') or '?'} cores, {host.get('kernel') or ''}"
    return [f"Measured on one machine: {machine.rstrip(', ')}; perftest {tool.get('version', '?')}."]
