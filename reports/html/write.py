"""The files of a report, each written beside its place and renamed into it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

import pandas as pd

from reports.comparison.compare import CompareResult
from reports.errors import PageError
from reports.html.render import render, shared_files
from reports.pages.model import Link, Page
from reports.pages.page import page
from reports.pages.several.comparison import comparison_page
from reports.pages.several.judged import judged
from reports.store import store as report_store
from reports.store.schema import TABLES, damages_of
from reports.store.tables import Tables

SUMMARY_VERSION: Final = 2
"""Raised when a reader of the previous version would misread summary.json."""

_SHOWN: Final = {
    table.name: tuple(name for name in table.names if name != "payload") for table in TABLES if table.name != "latency"
}
"""Tables that pages read: no histogram, and not the table that is made of histograms; ``steps`` has their
percentiles."""

SHARED: Final = "shared"
"""The folder with the script and the style of pages that share them, beside these pages."""


def write_report(
    store: Path | str,
    out: Path,
    *,
    target: Path,
    command: Sequence[str],
    separate: bool = False,
    runs: Sequence[str] | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Path:
    """See :func:`reports.build`."""
    tables = report_store.read_tables(store, runs, columns=_SHOWN)
    if runs is None:
        left_out = {each.source: each.reason for each in report_store.Store.open(store).left_out.values()}
    raw = _files(tables, leave_out=target)
    pages = _names(tables) if separate else {}
    made = page(
        tables,
        generated=_generated(tables, alone=not separate),
        rebuild=command,
        files=raw,
        left_out=left_out or {},
        pages=pages,
    )
    with _writing(out):
        (out / "data").mkdir(parents=True, exist_ok=True)
        put(out / "data" / "steps.csv", _csv(tables.steps))
        put(out / "data" / "spectrum.csv", _csv(tables.spectrum))
        put(
            out / "summary.json",
            json.dumps(summary(made, tables, left_out or {}), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        )
        for run_id, name in pages.items():
            own = _page_of(tables, run_id, command, raw, home=(target.name, made.title))
            put(target.parent / name, render(own, shared=SHARED))
        if separate:
            _put_shared(target.parent / SHARED)
        put(target, render(made, shared=SHARED if separate else ""))
    return target


def write_comparison(
    store: Path | str,
    result: CompareResult,
    *,
    target: Path,
    names: tuple[str, str],
    runs: Sequence[str] | None = None,
) -> Path:
    """See :func:`reports.build_comparison`."""
    tables = report_store.read_tables(store, runs, columns=_SHOWN)
    made = comparison_page(judged(result), tables, generated=_generated(tables), names=names)
    with _writing(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        put(target, render(made))
    return target


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Translates what goes wrong with the files of a report."""
    try:
        yield
    except OSError as error:
        raise PageError(
            what=f"the report cannot be written: {error.strerror or error}",
            where=str(error.filename or out),
            fix="make room, or name a directory that can be written to",
        ) from error


def _names(tables: Tables) -> dict[str, str]:
    """The file of each run's own page. Ids come from files, so everything unusual in them is replaced."""
    found: dict[str, str] = {}
    for number, run_id in enumerate(map(str, tables.runs["run_id"]), 1):
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", run_id) or "run"
        name = f"run-{plain}.html"
        found[run_id] = f"run-{plain}-{number}.html" if name in found.values() else name
    return found


def _page_of(
    tables: Tables, run_id: str, command: Sequence[str], raw: dict[str, list[tuple[str, int]]], *, home: Link
) -> Page:
    own = tables.of(run_id)
    generated = _generated(own, alone=False)
    return page(own, generated=generated, rebuild=command, files=raw, home=home)


def _put_shared(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in shared_files().items():
        put(folder / name, text)


def summary(made: Page, tables: Tables, left_out: Mapping[str, str]) -> dict[str, Any]:
    """The content of the page for programs: the sentences, trust list and steps of each run (units as in the store).
    ``left_out`` are reasons by run directory."""
    steps, ledgers = _by_load(tables.steps), _by_load(tables.ledger)
    damaged: defaultdict[str, list[Mapping[Any, Any]]] = defaultdict(list)
    for row in tables.quarantine.to_dict("records"):
        damaged[row["run_id"]].append(row)
    return {
        "schema": SUMMARY_VERSION,
        "banners": [banner.text for banner in made.banners],
        "findings": [{"workload": each.name, "lines": each.lines, **each.record} for each in made.verdicts],
        "runs": [
            {
                "run_id": run.run_id,
                "title": run.title,
                "chips": {chip.name: {"value": chip.value, "status": chip.status} for chip in run.chips},
                "sentences": [sentence.text for sentence in run.sentences],
                "trust": [{"check": check.check, "status": check.status, "text": check.text} for check in run.checks],
                "damaged": damages_of(damaged[run.run_id]).lines(),
                "steps": steps[load],
                "ledger": next(iter(ledgers[load]), None),
            }
            for run, load in zip(made.known_runs, tables.loads, strict=True)
        ],
        "left_out": dict(left_out),
    }


def _by_load(frame: pd.DataFrame) -> defaultdict[tuple[str, str], list[dict[str, Any]]]:
    """The rows of each run and group of load as JSON data: missing values are null, whole numbers stay whole."""
    found: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in json.loads(frame.to_json(orient="records", double_precision=12)):
        found[row["run_id"], row["group"]].append(row)
    return found


def _generated(tables: Tables, *, alone: bool = True) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    versions = ", ".join(sorted({str(version) for version in tables.runs["tool_version"] if version}))
    by = f" of perftest {versions}" if versions else ""
    whole = "This file is complete in itself" if alone else f"This file needs the folder {SHARED} beside it"
    return f"Made {now} from the recorded histograms{by}. {whole} and makes no request to a network."


def _files(tables: Tables, *, leave_out: Path) -> dict[str, list[tuple[str, int]]]:
    """The files of each run directory that is still where it was, without the page itself."""
    found = {}
    for run_id, path in zip(tables.runs["run_id"], tables.runs["path"], strict=True):
        directory = Path(str(path))
        if path and directory.is_dir():
            found[str(run_id)] = sorted(
                (file.name, file.stat().st_size)
                for file in directory.iterdir()
                if file.is_file() and file.name != leave_out.name
            )
    return found


def _csv(frame: pd.DataFrame) -> str:
    return frame.to_csv(index=False, float_format="%.10g")


def put(path: Path, text: str) -> None:
    """Write ``text`` so that a reader sees the old file or the whole new one."""
    with NamedTemporaryFile(
        "w", encoding="utf-8", newline="", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        try:
            file.write(text)
            file.close()
            Path(file.name).chmod(0o644)
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
