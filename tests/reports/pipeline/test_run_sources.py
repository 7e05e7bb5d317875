"""Run directories that are none, and what a person is told before a JVM is started."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from perftest.errors import HelpfulError
from perftest.results import hlog
from perftest.results import schema as files
from perftest.results.errors import DamagedRunError, NewerRunError, NotARunError
from reports.compute.run import run_tables
from reports.compute.run_files import READ, RunFiles, open_run
from reports.errors import EmptyRunError, RunChoiceError
from reports.pipeline import source, tasks
from reports.pipeline.__main__ import main
from reports.store.locations import location_of


def change_manifest(run: Path, **changes: object) -> None:
    path = run / files.MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def without_column(run: Path) -> None:
    path = run / files.INTERVALS_CSV
    path.write_text(path.read_text().replace(",loop_lag_ns", ",other", 1))


SPOILED: dict[str, tuple[Callable[[Path], object], type[HelpfulError], str]] = {
    "no directory": (shutil.rmtree, NotARunError, "this is not a run"),
    "no manifest": (lambda run: (run / files.MANIFEST).unlink(), NotARunError, "this is not a run"),
    "manifest cut": (lambda run: (run / files.MANIFEST).write_text('{"schema": 1,'), DamagedRunError, "not JSON"),
    "manifest a list": (lambda run: (run / files.MANIFEST).write_text("[]"), DamagedRunError, "not a JSON object"),
    "later version": (lambda run: change_manifest(run, schema=2), NewerRunError, "schema 2"),
    "no id": (lambda run: change_manifest(run, id=None), DamagedRunError, "no usable id"),
    "an id that climbs": (lambda run: change_manifest(run, id="../x"), DamagedRunError, "no usable id"),
    "manifest nested without end": (
        lambda run: (run / files.MANIFEST).write_text("[" * 100_000),
        DamagedRunError,
        "not JSON",
    ),
    "no start": (lambda run: change_manifest(run, started_ns="now"), DamagedRunError, "started_ns"),
    "no plan": (lambda run: change_manifest(run, plan=None), DamagedRunError, "plan"),
    "no intervals": (lambda run: (run / files.INTERVALS_CSV).unlink(), EmptyRunError, "nothing was measured"),
    "empty intervals": (lambda run: (run / files.INTERVALS_CSV).write_text(""), EmptyRunError, "nothing was measured"),
    "another tool's csv": (without_column, DamagedRunError, "loop_lag_ns"),
    "no csv": (lambda run: (run / files.INTERVALS_CSV).write_text("x" * 200_000 + "\n1\n"), DamagedRunError, "columns"),
}


def opened(run: Path) -> RunFiles:
    contents = {name: (run / name).read_bytes() for name in READ if (run / name).is_file()}
    return RunFiles(source=str(run), contents=contents)


@pytest.mark.parametrize("name", SPOILED)
def test_unusable_directories_are_told_in_three_lines(tmp_path: Path, make_run: Callable[..., Path], name: str) -> None:
    """A person with a wrong path needs the path, the reason and the way out, at once."""
    spoil, kind, words = SPOILED[name]
    run = make_run(tmp_path / "run", steps=(1,))
    spoil(run)
    with pytest.raises(kind) as caught:
        (listed,) = source.list_runs([run])
        open_run(opened(Path(listed.source)))
    what, where, fix = caught.value.lines().splitlines()
    assert words in what + where and where.startswith("  at   ") and fix.startswith("  fix  ")
    assert str(run) in where


@pytest.mark.parametrize("name", SPOILED)
def test_a_worker_tells_the_problem_of_a_run_to_the_driver(
    tmp_path: Path, make_run: Callable[..., Path], name: str
) -> None:
    """Nineteen good rounds must not go without a report for the one that was interrupted in its first second."""
    spoil, kind, words = SPOILED[name]
    run = make_run(tmp_path / "run", steps=(1,))
    spoil(run)
    known = tasks.Listed(str(run), "signature")
    task = tasks.RunsTask(tasks.PartTarget(location_of(tmp_path / "store"), "publication"))
    task.take(known, lambda: run_tables(opened(run)))
    ((left, error),) = tasks.TaskResult.of(task.result().to_pylist()[0]).errors
    assert type(error) is kind and left.source == str(run) and left.signature == "signature"
    assert words in error.what + error.where and error.what == left.reason


def test_a_header_alone_is_an_empty_run(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    """A run that never got a connection has a header and nothing else; a page of zeros would be a lie."""
    run = make_run(tmp_path / "run", steps=(1,))
    path = run / files.INTERVALS_CSV
    path.write_text(path.read_text().splitlines()[0] + "\n")
    with pytest.raises(EmptyRunError):
        open_run(opened(run))


def test_the_same_directory_twice_is_one_run(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    """Counting a run twice doubles every rate of it."""
    run = make_run(tmp_path / "run", steps=(1,))
    assert len(source.list_runs([run, tmp_path / "." / "run"])) == 1
    with pytest.raises(RunChoiceError):
        source.list_runs([])


def test_a_run_that_grew_has_another_signature(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    """A store asks by the signature whether it has a run as it is now."""
    run = make_run(tmp_path / "run", steps=(1,))
    before = source.list_runs([run])
    assert source.list_runs([run]) == before
    with (run / files.EVENTS).open("a") as events:
        events.write("{}\n")
    assert source.list_runs([run])[0].signature != before[0].signature


def test_a_damaged_ledger_does_not_stop_the_report(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    """The figures are in other files; that the ledger is unreadable is itself a finding."""
    run = make_run(tmp_path / "run", steps=(1,))
    (run / files.LEDGER).write_text('{"schema": 1')
    head = open_run(opened(run))
    assert head.ledger is None and head.ledger_problem is not None and "cannot be read" in head.ledger_problem


@pytest.mark.parametrize(
    ("text", "ns"),
    [("1795256102.000", 1795256102000000000), ("0.001", 10**6), ("1795256102.123456789", 1795256102123456789)],
)
def test_seconds_become_nanoseconds_exactly(text: str, ns: int) -> None:
    """Times of logs and of intervals are compared with each other."""
    assert hlog.seconds_to_ns(text) == ns


@pytest.mark.parametrize("text", ["", "soon", "NaN", "Infinity", "1e999999999"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """A worker must not die of a line that another tool wrote."""
    with pytest.raises(ValueError, match="not a time"):
        hlog.seconds_to_ns(text)


def test_the_command_tells_bad_input_without_starting_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong path should cost no JVM start, and scripts need the exit code."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no java here"))
    result = CliRunner().invoke(main, [str(tmp_path / "nowhere"), "--store", str(tmp_path / "store")])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: this is not a run")
    assert not (tmp_path / "store").exists()
