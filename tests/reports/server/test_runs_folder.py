"""The run directories of a folder as rows: read once, read again when they change, and whatever is in them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perftest.results.folder import LocalFolder
from perftest.results.integrity import sealed, sum_of, sums_to_json
from perftest.results.schema import LEDGER, MANIFEST, RESULT
from reports.catalogue.annotations import Annotation
from reports.server.listed_run import ListedRun
from reports.server.runs_folder import RunsFolder

RUN = "20261121-101502-in_flight-3fa1"


def write_run(path: Path, *, rate: float = 10.0, state: str = "finished", ledger: str = "ok") -> Path:
    """The records that the list reads, with their checksums."""
    path.mkdir(parents=True, exist_ok=True)
    rows = [{"delivered_per_s": rate, "loop": "closed", "latency": {}}]
    (path / RESULT).write_text(json.dumps({"steps": rows}), encoding="utf-8")
    (path / LEDGER).write_text(json.dumps({"verdict": ledger}), encoding="utf-8")
    trust = [{"check": "ledger", "status": "pass" if ledger == "ok" else "fail", "text": "what the ledger says"}]
    manifest = {"schema": 1, "id": path.name, "state": state, "started_ns": 1, "plan": {"name": "w"}, "trust": trust}
    manifest["files"] = sums_to_json({name: sum_of(LocalFolder(path), name) for name in (RESULT, LEDGER)})
    (path / MANIFEST).write_text(json.dumps(sealed(manifest)), encoding="utf-8")
    return path


def looked(folder: RunsFolder) -> dict[str, ListedRun]:
    folder.look()
    return {run.name: run for run in folder.runs({})}


def test_a_run_is_read_again_only_if_its_records_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunsFolder(tmp_path)
    run = write_run(tmp_path / RUN)
    assert looked(folder)[RUN].delivered_per_s == 10.0
    monkeypatch.setattr("reports.server.runs_folder.read_manifest", lambda path: pytest.fail(f"{path} is read again"))
    assert looked(folder)[RUN].delivered_per_s == 10.0
    monkeypatch.undo()
    write_run(run, rate=20.0)
    os.utime(run / RESULT, ns=(1, 1))
    assert looked(folder)[RUN].delivered_per_s == 20.0


def test_a_run_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    folder = RunsFolder(tmp_path)
    run = write_run(tmp_path / RUN)
    assert list(looked(folder)) == [RUN]
    (run / MANIFEST).unlink()
    assert looked(folder) == {} and folder.unread == 0
    with pytest.raises(FileNotFoundError):
        folder.run(RUN)


@pytest.mark.parametrize(
    ("change", "verdict", "reason"),
    [
        (lambda run: None, "valid", ""),
        (lambda run: (run / RESULT).unlink(), "damaged", "result.json is missing"),
        (lambda run: (run / RESULT).write_bytes(b""), "damaged", "result.json is empty"),
        (
            lambda run: (run / RESULT).write_bytes((run / RESULT).read_bytes()[:-1]),
            "damaged",
            "result.json is cut short",
        ),
        (
            lambda run: (run / RESULT).write_bytes(b"x" * (run / RESULT).stat().st_size),
            "damaged",
            "result.json has changed",
        ),
        (
            lambda run: (run / MANIFEST).write_bytes(b"\xff\x00"),
            "damaged",
            "this is not a run: its manifest.json cannot",
        ),
        (lambda run: (run / MANIFEST).write_text("[]"), "damaged", "this is not a run: its manifest.json cannot"),
        (lambda run: (run / MANIFEST).write_text('{"schema": 99}'), "damaged", "this run has schema 99"),
        (lambda run: write_run(run, ledger="violated"), "unsafe", "ledger: what the ledger says"),
        (lambda run: write_run(run, state="running"), "running", ""),
    ],
)
def test_any_damage_is_a_row_with_a_reason(
    tmp_path: Path, change: Callable[[Path], object], verdict: str, reason: str
) -> None:
    run = write_run(tmp_path / RUN)
    change(run)
    found = looked(RunsFolder(tmp_path))[RUN]
    assert found.verdict == verdict and found.reason.startswith(reason)
    assert found.readable is not reason.startswith("this")


def test_a_run_that_is_silent_was_killed(tmp_path: Path) -> None:
    run = write_run(tmp_path / RUN, state="running")
    folder = RunsFolder(tmp_path)
    assert looked(folder)[RUN].running
    os.utime(run / MANIFEST, (1, 1))
    assert looked(folder)[RUN].verdict == "killed"


def test_annotations_come_by_the_id_of_the_run(tmp_path: Path) -> None:
    """A directory may have been renamed, and what is no run is no row."""
    write_run(tmp_path / RUN).rename(tmp_path / "renamed")
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / ".store").mkdir()
    folder = RunsFolder(tmp_path)
    folder.look()
    (found,) = folder.runs({RUN: Annotation(tags=("a",), note="b")})
    assert (found.name, found.run_id, found.tags, found.note) == ("renamed", RUN, ("a",), "b")


def test_a_folder_that_is_gone_has_a_sentence(tmp_path: Path) -> None:
    folder = RunsFolder(tmp_path / "none")
    folder.look()
    assert folder.runs({}) == [] and "No such file" in folder.problem
