"""``perftest import-results``: make run directories of result files of other tools."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perftest.cli.sections import DURATION, SectionedCommand, json_option, option, options
from perftest.exits import CliError, Exit, explained

if TYPE_CHECKING:
    from perftest.foreign.measured import ForeignRun
    from perftest.foreign.run_directory import Told
    from perftest.metrics.interval import Series

FILE_MAX_BYTES: Final = 1 << 30
"""Size of the largest result file that is read: 1 GiB."""
UNITS_NS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000}
NAME_MAX: Final = 60
_PLAIN: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_FORMATS: Final = (
    "give the CSV of PerfTest (--output-file) or what it printed, the results file of PerfTestMulti, the result JSON "
    "of OpenMessaging Benchmark, or a log of HdrHistogram"
)

# fmt: off
_options = options(
    option("--product", section="Target", default="unknown", help="The broker that was measured, such as RabbitMQ."),
    option("--broker-version", section="Target", default="", show_default=False, metavar="VERSION",
           help="The version of the broker."),
    option("--set", "settings", section="Load", multiple=True, metavar="SETTING=VALUE",
           help="A setting of the load that the file does not tell, such as in_flight=100. Repeatable."),
    option("--name", section="Load", default="", show_default=False, metavar="NAME",
           help="Name of the workload; runs of one name stand together. If a file has several runs, it is the first "
                "part of their names.  [default: from the file]"),
    option("--tool", section="Load", default="", show_default=False, metavar="NAME",
           help="The tool that measured.  [default: by the format of the file]"),
    option("--started", section="Timing", default="", show_default=False, metavar="TIME",
           help="When the run began, such as 2026-11-21T10:15:02Z; UTC without a zone.  [default: from the file]"),
    option("--warmup", section="Timing", type=DURATION, default="0s",
           help="How much of the begin of the run to leave out of results."),
    option("--unit", section="Measurement", type=click.Choice(list(UNITS_NS)), default=None, show_default=False,
           help="Unit of the values of an HdrHistogram log. The log does not tell its unit."),
    option("--tag", "tags", section="Measurement", multiple=True, metavar="TAG=SERIES",
           help="What a tag of an HdrHistogram log measured: e2e, confirm or lag. Repeatable."),
    option("--out", section="Output", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"),
           help="Directory to make the run directories in."),
)
# fmt: on


@click.command(
    "import-results",
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=(
        "perftest import-results perf-test.csv --product RabbitMQ --set in_flight=100",
        "perftest import-results 1-topic-RabbitMQ-2026-11-21.json    of OpenMessaging Benchmark",
        "perftest import-results latency.hlog --unit us --tag delivery=e2e",
    ),
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@_options
@json_option
def import_results(
    files: tuple[Path, ...],
    product: str,
    broker_version: str,
    settings: tuple[str, ...],
    name: str,
    tool: str,
    started: str,
    warmup: float,
    unit: str | None,
    tags: tuple[str, ...],
    out: Path,
    as_json: bool,
) -> None:
    """Make run directories of result files of other tools, for reports beside runs of this tool.

    FILE is the CSV of PerfTest, the results file of PerfTestMulti, the result JSON of OpenMessaging Benchmark, or an
    interval log of HdrHistogram. A file of PerfTestMulti has a run for each load of its scenarios. Each run says what
    is not known of it. Percentiles without a histogram are shown as that tool states them; they are never merged. All
    files are read before the first run directory is made.
    """
    from perftest.foreign.run_directory import Told, write_run

    broker = {"product": product} | ({"version": broker_version} if broker_version else {})
    known, began, meaning = _settings(settings), _started(started), _tags(tags)
    ready: list[tuple[ForeignRun, Told, dict[str, Any]]] = []
    for file in files:
        octets = _octets(file)
        runs = _runs(octets, file, unit, meaning)
        facts = {"name": file.name, "bytes": len(octets), "sha256": hashlib.sha256(octets).hexdigest()}
        for run, named in zip(runs, _names(runs, name, file.stem), strict=True):
            _check_warmup(run, warmup, str(file) if len(runs) == 1 else f"{file}: {run.name}")
            told = Told(
                name=named,
                started_ns=began or run.started_ns or max(file.stat().st_mtime_ns - run.length_ns, 0),
                time_known=bool(began),
                warmup_s=warmup,
                settings=known,
                broker=broker,
            )
            ready.append((replace(run, tool=tool or run.tool), told, facts))
    command = ["perftest", *sys.argv[1:]]
    made = [write_run(run, told, files=[facts], out=out, command=command) for run, told, facts in ready]
    rows = [
        {"run": str(path), "tool": run.tool, "unknown": list(run.unknown)}
        for path, (run, _, _) in zip(made, ready, strict=True)
    ]
    _show(rows, as_json=as_json)


def _show(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    told: set[str] = set()
    for row in rows:
        click.echo(row["run"])
        for each in row["unknown"]:
            if each not in told:
                click.echo(f"not known: {each}", err=True)
        told.update(row["unknown"])


def _octets(file: Path) -> bytes:
    with explained("the file cannot be read", file, "give a file that can be read", Exit.USAGE):
        if file.stat().st_size > FILE_MAX_BYTES:
            raise CliError("the file is larger than 1 GiB", str(file), _FORMATS, Exit.USAGE)
        return file.read_bytes()


def _runs(octets: bytes, file: Path, unit: str | None, tags: Mapping[str, Series]) -> list[ForeignRun]:
    """The runs that a file tells of. Raises CliError and ForeignFileError."""
    from perftest.foreign import read_results
    from perftest.foreign.measured import ForeignFileError

    found = read_results(octets, str(file), unit_ns=None if unit is None else UNITS_NS[unit], tags=tags)
    if not found:
        raise ForeignFileError("this is no result file of a tool that is known here", str(file), _FORMATS)
    return found


def _check_warmup(run: ForeignRun, warmup_s: float, where: str) -> None:
    if warmup_s * 1e9 >= run.length_ns:
        fix = f"the run took {run.length_ns / 1e9:g} s: give a shorter time"
        raise CliError("the warm-up leaves nothing of the run", f"--warmup, {where}", fix, Exit.USAGE)


def _names(runs: Sequence[ForeignRun], name: str, stem: str) -> list[str]:
    """The names of the runs of a file, each another one, because runs of one name stand together."""
    if len(runs) == 1:
        return [_named(name or runs[0].name or stem)]
    found = [_named(f"{name}-{run.name}" if name else run.name) for run in runs]
    twice = len(set(found)) < len(found)
    return [f"{each[: NAME_MAX - 5]}-{number}" for number, each in enumerate(found, 1)] if twice else found


def _settings(told: tuple[str, ...]) -> dict[str, int | float | bool]:
    from dataclasses import fields

    from perftest.spec.plan import Settings

    known = {each.name: type(each.default) for each in fields(Settings)}
    found: dict[str, int | float | bool] = {}
    for text in told:
        name, _, value = text.partition("=")
        if name not in known:
            raise CliError(f"there is no setting {name!r}", "--set", f"the settings are {', '.join(known)}", Exit.USAGE)
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = None
        wanted = bool if known[name] is bool else int if name != "rate" else float
        right = isinstance(parsed, wanted) and (wanted is bool or not isinstance(parsed, bool))
        if not (right or (wanted is float and type(parsed) is int)) or not 0 <= parsed < 2**53:
            what = "true or false" if wanted is bool else "a number from 0"
            raise CliError(f"{name} is {value!r}", "--set", f"give {what}", Exit.USAGE)
        found[name] = parsed
    return found


def _tags(told: tuple[str, ...]) -> dict[str, Series]:
    from perftest.foreign.hdr_log import IMPORTABLE
    from perftest.metrics.interval import Series

    found = {}
    for text in told:
        tag, _, series = text.rpartition("=")
        if series not in set(IMPORTABLE):
            fix = f"TAG=SERIES, where SERIES is one of {', '.join(IMPORTABLE)}"
            raise CliError(f"{text!r} does not say what a tag measured", "--tag", fix, Exit.USAGE)
        found[tag] = Series(series)
    return found


def _started(text: str) -> int:
    """Unix time in ns; 0 if it was not told."""
    if not text:
        return 0
    try:
        moment = datetime.fromisoformat(text)
        found = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) * 10**9
    except (ValueError, OverflowError):
        found = 0
    if not 0 < found < 2**62:
        raise CliError(f"{text!r} is no time", "--started", "write it as 2026-11-21T10:15:02Z", Exit.USAGE)
    return found


def _named(text: str) -> str:
    """A name that can be part of the name of a directory."""
    return _PLAIN.sub("-", text).strip("-.")[:NAME_MAX] or "imported"
