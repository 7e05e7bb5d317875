"""The files of a report, each written beside its place and renamed into it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

import pandas as pd

from reports.errors import PageError
from reports.html.render import render
from reports.pages.model import Page
from reports.pages.page import page
from reports.store import store as report_store
from reports.store.tables import Tables

SUMMARY_VERSION: Final = 2
"""Raised when a reader of the previous version would misread summary.json."""

_LEFT_OUT: Final = ("payload",)


def write_report(store: Path, out: Path, *, target: Path, command: Sequence[str]) -> Path:
    """See :func:`reports.build`."""
    tables = report_store.read_tables(store)
    left_out = {each.source: each.reason for each in report_store.read_manifest(store).left_out.values()}
    raw = _files(tables, leave_out=target)
    made = page(tables, generated=_generated(tables), rebuild=command, files=raw, left_out=left_out)
    html = render(made)
    try:
        (out / "data").mkdir(parents=True, exist_ok=True)
        put(out / "data" / "steps.csv", _csv(tables.steps))
        put(out / "data" / "spectrum.csv", _csv(tables.spectrum))
        put(
            out / "summary.json",
            json.dumps(summary(made, tables), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        )
        put(target, html)
    except OSError as error:
        raise PageError(
            what=f"the report cannot be written: {error.strerror or error}",
            where=str(error.filename or out),
            fix="make room, or name a directory that can be written to",
        ) from error
    return target


def summary(made: Page, tables: Tables) -> dict[str, Any]:
    """The content of the page for programs: the sentences, trust list and steps of each run (units as in the store)."""
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
                "steps": _records(tables.of(*load).steps),
                "ledger": next(iter(_records(tables.of(*load).ledger)), None),
            }
            for run, load in zip(made.runs, tables.loads, strict=True)
        ],
    }


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON data: missing values are null, whole numbers stay whole."""
    loaded: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=12))
    return loaded


def _generated(tables: Tables) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    versions = ", ".join(sorted({str(version) for version in tables.runs["tool_version"] if version}))
    by = f" of perftest {versions}" if versions else ""
    return f"Made {now} from the recorded histograms{by}. This file is complete in itself and makes no request."


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
    shown = frame.drop(columns=[name for name in _LEFT_OUT if name in frame])
    return shown.to_csv(index=False, float_format="%.10g")


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
