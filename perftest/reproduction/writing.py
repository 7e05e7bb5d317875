"""The results of a reproduction in files: the page, the verdicts as JSON for ``--assert``, and Markdown."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
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
WIDTH: Final = 120
"""Columns of the Markdown's prose."""
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
    """Write the results as Markdown, with the picture of the page in ``images``, if one is there. Raises
    CliError."""
    picture = Path("images") / f"{file.stem}.png"
    shown = ["", f"![The page of these findings]({picture})"] if (file.parent / picture).exists() else []
    _put(file, "\n".join(_markdown(workloads, notes, shown)) + "\n")


def _put(file: Path, text: str) -> None:
    with explained("the results cannot be written", file, "make room, or name another place"):
        write_atomically(file, text)


def _markdown(workloads: Sequence[Workload], notes: Sequence[str], picture: Sequence[str]) -> Iterator[str]:
    sources, brokers = sources_of(workloads), brokers_of(workloads)
    yield "# Published findings, tried again"
    yield from (
        "",
        "`perftest reproduce` made this page. Each finding is judged by [its interval](cli.md#findings).",
        "",
    )
    yield from map(_bullet, notes)
    yield from picture
    yield from ("", "## Score", "", _row("source", "broker", *_verdicts()), _row(*["---"] * (2 + len(_verdicts()))))
    for source in sources:
        for broker in brokers:
            counts = counted(source.findings, broker)
            yield _row(source.title, broker, *(str(counts[verdict]) for verdict in _verdicts()))
    for source in sources:
        # A dash between spaces makes another anchor on a site than in a repository.
        yield from ("", f"## {source.title.replace(' - ', ': ')}", "")
        if source.address:
            yield from (f"Published at <{source.address}>.", "")
        for broker in brokers:
            yield from (_bullet(f"On {broker}: {text}") for text in reasons(source, broker))
        yield from ("", *_table(source, brokers))


def _bullet(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


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


def notes_of(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Where, when and with what the runs of a reproduction were measured, in sentences; of the broker and the manifest
    of each."""
    if not runs:
        return []
    _broker, first = runs[0]
    host = (first.get("hosts") or [{}])[0]
    machine = f"{host.get('cpu') or 'an unknown CPU'}, {host.get('cores') or '?'} cores, {host.get('kernel') or ''}"
    days = sorted({f"{datetime.fromtimestamp(run['started_ns'] // 10**9, UTC):%Y-%m-%d}" for _broker, run in runs})
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    tools = dict.fromkeys(_version(run.get("tool") or {}) for _broker, run in runs)
    versions = {broker: f"{broker} is {_product(run.get('broker') or {})}" for broker, run in runs}
    return [
        f"Measured on one machine ({machine.rstrip(', ')}), {when}, by perftest {' and '.join(tools)}.",
        f"{'; '.join(versions.values())}.",
    ]


def _version(tool: Mapping[str, Any]) -> str:
    commit = str(tool.get("commit") or "")
    return f"{tool.get('version', '?')}" + (
        f" ({commit[:8]}{', changed' if tool.get('dirty') else ''})" if commit else ""
    )


def _product(broker: Mapping[str, Any]) -> str:
    words = (str(broker.get(key) or "") for key in ("product", "version"))
    platform = str(broker.get("platform") or "")
    return (" ".join(filter(None, words)) or "unknown") + (f" on {platform}" if platform else "")
