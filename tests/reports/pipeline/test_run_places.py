"""Runs by their URIs, and where their tables go; all that is known before Spark is asked for."""

from __future__ import annotations

import errno
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from perftest.results import schema as files
from perftest.results.errors import NotARunError
from perftest.results.folder import FolderEntry
from reports.compute.run import run_tables
from reports.compute.run_files import READ, RunFiles
from reports.errors import PlaceError, RunChoiceError, SettingError, SparkError, StoreError
from reports.pipeline import job, source
from reports.pipeline.__main__ import main
from reports.pipeline.job import Job
from reports.pipeline.masters import LOCAL
from reports.pipeline.source import RunDirectory, find_runs, store_beside
from reports.store.places import opened
from reports.store.run_tables import LeftOut, RunTables
from reports.store.store import Store
from tests.perftest.testing.memory_folder import MemoryFolder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, make_run: Callable[..., Path]) -> Path:
    """A folder with two runs."""
    folder = tmp_path_factory.mktemp("places") / "of runs"
    folder.mkdir()
    for name in ("a", "b"):
        make_run(folder / name, run_id=name, steps=(1,), workers=1, steady=2)
    return folder


def put_runs(folder: Path, place: str) -> None:
    """Copy runs to a place."""
    system, root = opened(place)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with system.open_output_stream(f"{root}/{path.relative_to(folder)}") as file:
                file.write(path.read_bytes())


def reported(run: RunDirectory) -> RunTables:
    """A run of this machine as the store gets it."""
    path = Path(run.source)
    contents = {name: (path / name).read_bytes() for name in READ if (path / name).is_file()}
    tables = run_tables(RunFiles(source=run.source, contents=contents))
    (row,) = tables["runs"].to_pylist()
    return RunTables(
        run_id=row["run_id"],
        source=run.source,
        signature=run.signature,
        started_ns=row["started_ns"],
        tables=tables,
    )


def fill(place: Path, runs: list[RunDirectory]) -> None:
    with Store.open(place).publication() as writer:
        for each in runs:
            writer.add(reported(each))
        writer.land()


def test_a_uri_of_this_machine_is_its_path(folder: Path) -> None:
    """One source in the store, however a person names the run."""
    listed = find_runs([str(folder)])
    assert [each.source for each in listed] == [str(folder / "a"), str(folder / "b")]
    for place in (folder.as_uri(), f"file:{folder.as_posix().replace(' ', '%20')}", f"{folder}/../{folder.name}"):
        assert find_runs([place, str(folder)]) == listed
    assert find_runs([f"{folder.as_uri()}/b"]) == source.list_runs([folder / "b"]) == listed[1:]


def test_runs_in_an_object_storage_are_listed_without_java(bucket: str, folder: Path, tmp_path: Path) -> None:
    """All files with one listing; a store beside the runs is no run."""
    place = f"s3a://{bucket}/deep/runs"
    put_runs(folder, place)
    fill(tmp_path / "store", find_runs([str(folder)]))
    put_runs(tmp_path / "store", f"{place}/.store")
    listed = find_runs([place])
    assert [each.source for each in listed] == [f"{place}/a", f"{place}/b"]
    assert [each.sizes for each in listed] == [each.sizes for each in find_runs([str(folder)])]
    assert find_runs([f"{place}/b/"]) == listed[1:] == find_runs([f"s3://{bucket}/deep/runs/b"])
    system, root = opened(f"{place}/b")
    system.delete_file(f"{root}/{files.EVENTS}")
    assert find_runs([f"{place}/b"])[0].signature != listed[1].signature


def test_what_is_no_run_in_an_object_storage_is_told(bucket: str) -> None:
    """A missing bucket is another mistake than a wrong name in it."""
    system, root = opened(f"s3a://{bucket}/x")
    system.open_output_stream(f"{root}/deep/below/manifest.json").close()
    with pytest.raises(NotARunError, match="there is no run in it"):
        find_runs([f"s3a://{bucket}/x"])
    with pytest.raises(NotARunError, match="there is no run in it"):
        find_runs([f"s3a://{bucket}/y"])
    with pytest.raises(PlaceError, match="no such bucket") as caught:
        find_runs([f"s3a://no-{bucket}/x"])
    assert caught.value.code == 1 and "AWS_ENDPOINT_URL" in caught.value.fix


def test_a_place_that_breaks_while_it_is_listed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(MemoryFolder):
        def files(self, below: str = "") -> list[FolderEntry]:
            raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(source, "place_of", lambda _: Broken())
    with pytest.raises(PlaceError, match="cannot be listed: the disk is gone"):
        find_runs(["anywhere"])


def test_a_name_node_that_does_not_answer_is_told_at_once() -> None:
    """Hadoop would try for a quarter of an hour."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        place = f"hdfs://127.0.0.1:{taken.getsockname()[1]}/runs"
        with pytest.raises(PlaceError, match=r"the place cannot be reached: .*refused") as caught:
            find_runs([place])
    assert caught.value.where == place
    with pytest.raises(PlaceError, match="the place cannot be reached"):
        find_runs(["hdfs://host:port/runs"])


def directory(path: object) -> RunDirectory:
    return RunDirectory(source=str(path), sizes={}, signature="")


def test_the_store_of_runs_lies_in_the_folder_that_holds_them(tmp_path: Path) -> None:
    """Rounds of a sweep, and its layouts, belong to the catalogue that the sweep belongs to."""
    assert store_beside([directory(tmp_path / "runs/a"), directory(tmp_path / "runs/b")]) == f"{tmp_path}/runs/.store"
    assert store_beside([directory(tmp_path / "runs/a"), directory(tmp_path / "other/b")]) is None
    assert store_beside([directory("s3a://b/runs/a")]) == "s3a://b/runs/.store"
    for place, name in (("runs/rounds", files.ROUNDS), ("runs/series", files.LAYOUTS), ("runs/series/1-x", "none")):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / name).write_text("{}")
    for run in ("runs/rounds/a", "runs/series/1-x/a"):
        assert store_beside([directory(tmp_path / run), directory(tmp_path / "runs/b")]) == f"{tmp_path}/runs/.store"


def run_job(
    *places: object, store: object = None, beside: object = None, master: str = "nowhere://"
) -> dict[str, object]:
    """Run the pipeline without a Spark that could start."""
    asked = Job(
        places=[str(each) for each in places],
        store=str(store) if store else None,
        beside=str(beside) if beside else None,
        master=master,
    )
    return job.run(asked, lambda _: None)


def test_runs_that_the_catalogue_has_need_no_spark(tmp_path: Path, folder: Path) -> None:
    """The second report of a run costs a page, and the page asks for its runs only."""
    runs = find_runs([str(folder)])
    fill(tmp_path / "store", runs)
    told = run_job(folder / "b", store=tmp_path / "store", beside=tmp_path / "page")
    assert (told["pages"], told["runs"]) == (str(tmp_path / "store"), ["b"])
    assert (told["listed"], told["read"], told["note"], told["left_out"]) == (1, 0, "", {})


def test_a_run_that_cannot_be_used_is_not_read_again_as_it_is(tmp_path: Path, folder: Path) -> None:
    """The store knows why. Somebody who asks for nothing else gets the full answer, which takes a Spark."""
    runs = shutil.copytree(folder, tmp_path / "runs")
    good, bad = find_runs([str(runs)])
    fill(tmp_path / "store", [good])
    with Store.open(tmp_path / "store").publication() as writer:
        writer.add(LeftOut(source=bad.source, signature=bad.signature, reason="a reason"))
        writer.land()
    told = run_job(runs, store=tmp_path / "store")
    assert (told["runs"], told["read"], told["left_out"]) == (["a"], 0, {bad.source: "a reason"})
    with pytest.raises(SettingError):
        run_job(runs / "b", store=tmp_path / "store")
    (runs / "b" / files.MANIFEST).touch()
    with pytest.raises(SettingError):
        run_job(runs, store=tmp_path / "store")


def test_a_report_looks_for_the_catalogue_in_the_folder_of_the_runs(
    tmp_path: Path, folder: Path, make_run: Callable[..., Path]
) -> None:
    make_run(tmp_path / "runs" / "c", run_id="c", steps=(1,), workers=1)
    fill(tmp_path / "runs" / ".store", find_runs([str(tmp_path / "runs")]))
    assert run_job(tmp_path / "runs", beside=tmp_path / "page")["pages"] == f"{tmp_path}/runs/.store"
    fill(tmp_path / "page", find_runs([str(folder), str(tmp_path / "runs")]))
    told = run_job(tmp_path / "runs" / "c", folder, beside=tmp_path / "page")
    assert (told["pages"], told["read"], told["note"]) == (str(tmp_path / "page"), 0, "")


def test_a_catalogue_that_cannot_be_used_spoils_no_report(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    """A read-only folder is the usual case; a person who chose the store is told instead."""
    run = make_run(tmp_path / "runs" / "c", run_id="c", steps=(1,), workers=1)
    (tmp_path / "runs" / ".store").write_text("in the way")
    fill(tmp_path / "page", find_runs([str(run)]))
    told = run_job(run, beside=tmp_path / "page")
    assert told["pages"] == told["store"] == str(tmp_path / "page")
    assert str(told["note"]).startswith(f"the tables lie beside the page, and not in {tmp_path}/runs/.store: ")
    with pytest.raises(StoreError, match="the store cannot be"):
        run_job(run, store=tmp_path / "runs" / ".store", beside=tmp_path / "page")
    with pytest.raises(StoreError, match="the store cannot be"):
        run_job(run)


def test_small_runs_need_no_spark(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has read them before a JVM has started; whoever names a Spark gets it."""
    monkeypatch.setattr(job, "_spark", no_spark)
    told = run_job(folder, store=tmp_path / "store", master=LOCAL)
    assert (told["runs"], told["read"]) == (["a", "b"], 2)
    assert list(Store.open(tmp_path / "store").runs) == ["a", "b"]
    monkeypatch.setattr(job, "HERE_BYTES", 10)
    with pytest.raises(SparkError, match="was asked for"):
        run_job(folder, store=tmp_path / "other", master=LOCAL)
    monkeypatch.undo()
    with pytest.raises(SettingError, match="no Spark master"):
        run_job(folder, store=tmp_path / "other")


def no_spark(*_: object) -> None:
    raise SparkError("a Spark was asked for", "here", "")


def test_runs_of_several_folders_without_a_store_are_told(folder: Path, make_run: Callable[..., Path]) -> None:
    make_run(folder / "deep" / "c", run_id="c", steps=(1,), workers=1)
    with pytest.raises(StoreError, match="no store was named"):
        run_job(folder, folder / "deep")


def test_two_directories_of_one_run_are_told(tmp_path: Path, folder: Path) -> None:
    """One of them would be missing from the page."""
    shutil.copytree(folder / "a", tmp_path / "runs" / "a")
    shutil.copytree(folder / "a", tmp_path / "runs" / "copy")
    fill(tmp_path / "runs" / ".store", find_runs([str(tmp_path / "runs" / "a")]))
    with pytest.raises(RunChoiceError, match="two directories hold the run a"):
        run_job(tmp_path / "runs", master=LOCAL)


def test_the_command_has_the_exit_code_of_its_error(folder: Path, tmp_path: Path) -> None:
    """2 for a wrong word, 1 for a place that does not work."""
    done = CliRunner().invoke(main, ["hdfs://127.0.0.1:0/x", "--store", "x"])
    assert done.exit_code == 1 and done.stderr.startswith("error: the place cannot be reached")
    done = CliRunner().invoke(main, [str(folder / "a"), "--store", str(tmp_path), "--conf", "nonsense"])
    assert done.exit_code == 2 and "'nonsense' is no Spark setting" in done.stderr
