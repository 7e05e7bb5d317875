"""Folders through Spark's own file systems: a local disk always, an object storage where its classes can be had.

hadoop-aws and the modules of the AWS SDK that it needs are not in PySpark. Set SPARK_S3A_JARS to a folder that holds
their jars (docs/internals/report-store.md names them) to test ``s3a:`` as well.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pandas.testing import assert_frame_equal

from perftest.results.folder import Folder
from reports.errors import PlaceError, SparkError
from reports.store import store
from reports.store.run_tables import RunTables
from tests.reports.store.testing.small_runs import lost, publish, small_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Folder:
    from reports.pipeline.hadoop_folder import HadoopFolder

    return HadoopFolder(spark, f"file://{tmp_path}/a%20b")


def test_a_folder_of_spark_keeps_the_promises_of_a_folder(folder: Folder, tmp_path: Path) -> None:
    """As tests/perftest/results/test_results_folder.py has them for other folders."""
    from reports.pipeline.hadoop_folder import HadoopFolder

    assert folder.names() == folder.names("nothing") == folder.files("nothing") == []
    content = tmp_path / "content"
    content.write_bytes(b"first")
    assert folder.put_if_absent("a/b/c", content) and not folder.put_if_absent("a/b/c", b"second")
    assert folder.put_if_absent("a/d", b"")
    assert (folder.names("a"), folder.names("a/b")) == (["b", "d"], ["c"])
    assert [(entry.name, entry.octets) for entry in folder.files()] == [("a/b/c", 5), ("a/d", 0)]
    assert isinstance(folder, HadoopFolder)
    assert folder.files_named(["c", "x"]) == folder.files("a/b") and folder.files_named(["x"]) == []
    with folder.open("a/b/c") as file:
        assert file.read() == b"first"
    folder.delete("a/b/c")
    folder.delete("a/b/c")
    with pytest.raises(FileNotFoundError):
        folder.open("a/b/c")


def test_a_rename_takes_a_name_once(folder: Folder, tmp_path: Path) -> None:
    """As on HDFS; the file beside does not stay."""
    from reports.pipeline.hadoop_folder import HadoopFolder

    assert isinstance(folder, HadoopFolder)
    content = tmp_path / "content"
    content.write_bytes(b"first")
    assert folder._rename("x/y", content) and folder.names("x") == ["y"]


def test_a_store_written_through_spark_is_read_without(folder: Folder, tmp_path: Path) -> None:
    """The pipeline writes, and pages start no JVM."""
    publish(folder, small_run("a", 1), small_run("b", 1))
    publish(folder, small_run("b", 2))
    assert lost(folder) == lost(tmp_path / "a b") == {"a": 1, "b": 2}
    assert store.read_manifest(folder) == store.read_manifest(tmp_path / "a b")


def test_a_place_without_a_file_system_is_told(spark: SparkSession) -> None:
    """An object storage whose classes are not there is the usual case."""
    from reports.pipeline.hadoop_folder import HadoopFolder

    with pytest.raises(OSError, match="no file system for this place"):
        HadoopFolder(spark, "nosuch://place/x")


def test_nothing_is_written_where_two_writers_could_both_win(spark: SparkSession) -> None:
    """The promise of one winner is what keeps a store whole; a file system that is not known gives none."""
    from reports.pipeline.hadoop_folder import HadoopFolder

    with pytest.raises(OSError, match="no kind of place where of two writers one is sure to win"):
        HadoopFolder(spark, "http://127.0.0.1:1/x").put_if_absent("a", b"first")


@pytest.fixture
def mounted(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A URI of a file system that is not the local one: to Spark it is any other, and its files lie in tmp_path."""
    name = f"m{abs(hash(request.node.nodeid)):x}"
    settings = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    settings.set(f"fs.viewfs.mounttable.{name}.link./data", tmp_path.as_uri())
    return f"viewfs://{name}/data"


def test_a_mount_point_keeps_the_promises_of_what_it_leads_to(
    spark: SparkSession, mounted: str, tmp_path: Path
) -> None:
    """A local disk, here."""
    from reports.pipeline.hadoop_folder import HadoopFolder

    folder = HadoopFolder(spark, f"{mounted}/x/")
    assert folder.where == f"{mounted}/x" and folder.names() == folder.files() == []
    assert folder.put_if_absent("a/b", b"first") and not folder.put_if_absent("a/b", b"second")
    assert [(entry.name, entry.octets) for entry in folder.files()] == [("a/b", 5)]
    assert (tmp_path / "x" / "a" / "b").read_bytes() == b"first"


@pytest.fixture
def run_job(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The pipeline with the session of the tests, which goes on afterwards."""
    from reports.pipeline.job import Job, run

    @contextmanager
    def session(*_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("reports.pipeline.session.spark_session", session)

    def call(*places: str, store: str | None, beside: Path) -> dict[str, Any]:
        return run(Job(places=places, store=store, beside=str(beside), master="tests"), lambda _: None)

    return call


def test_runs_and_store_lie_on_any_file_system_of_spark(
    spark: SparkSession, mounted: str, tmp_path: Path, make_run: Callable[..., Path], run_job: Callable[..., Any]
) -> None:
    """Listed, read and written through Spark; the page gets what it shows beside it, and a known run is not read."""
    for name in ("a", "b"):
        make_run(tmp_path / "runs" / name, run_id=name, steps=(1, 4), workers=1)
    told = run_job(f"{mounted}/runs", store=f"{mounted}/store", beside=tmp_path / "page")
    assert told["store"] == f"{mounted}/store" and told["pages"] == str(tmp_path / "page")
    assert (sorted(told["runs"]), told["read"], told["left_out"]) == (["a", "b"], 2, {})
    again = run_job(f"{mounted}/runs/b", store=f"{mounted}/store", beside=tmp_path / "other")
    assert (again["runs"], again["read"]) == (["b"], 0)
    plain = run_job(str(tmp_path / "runs"), store=None, beside=tmp_path / "none")
    assert plain["pages"] == f"{tmp_path}/runs/.store"
    for place in (tmp_path / "store", tmp_path / "page"):
        assert sorted(store.read_manifest(place).runs) == ["a", "b"]
        found, expected = store.read_tables(place, ["b"]), store.read_tables(plain["pages"], ["b"])
        assert list(found.runs["path"]) == [f"{mounted}/runs/b"]
        assert_frame_equal(found.steps, expected.steps)
        assert_frame_equal(found.timeline, expected.timeline)
    assert list(store.read_manifest(tmp_path / "other").runs) == ["b"]


def test_a_large_run_is_cut_by_its_uri(
    spark: SparkSession, mounted: str, tmp_path: Path, make_run: Callable[..., Path]
) -> None:
    """The same tables as of a run that one task takes."""
    from reports.pipeline.places import PipelineFolders
    from reports.pipeline.run import computed
    from reports.pipeline.source import find_runs

    make_run(tmp_path / "runs" / "a", run_id="a", steps=(1, 4), workers=1)
    places = PipelineFolders(lambda: spark)
    listed = find_runs([f"{mounted}/runs"], places.folder, places.run_files)
    assert listed == find_runs([f"{mounted}/runs/a"], places.folder)  # by calls of the JVM for each file
    assert find_runs([f"{mounted}/runs/a/"], places.folder, places.run_files) == listed
    (whole,), (parts,) = (list(computed(spark, listed, size)) for size in (10**9, 1))
    assert isinstance(whole, RunTables) and isinstance(parts, RunTables)
    assert all(parts.tables[name].equals(table) for name, table in whole.tables.items())
    assert whole.source == parts.source == f"{mounted}/runs/a"


def test_classes_that_spark_lacks_are_named_with_their_setting(spark: SparkSession) -> None:
    """Nobody should have to search for the jars of an object storage."""
    from reports.pipeline.places import check_readable
    from reports.pipeline.source import RunDirectory

    run = RunDirectory(source="s3a://bucket/runs/a", sizes={}, signature="")
    with pytest.raises(SparkError, match="Spark lacks the classes of this place") as caught:
        check_readable(spark, [run])
    assert caught.value.where == run.source
    assert "--spark-conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3." in caught.value.fix


def test_a_folder_that_spark_cannot_have_is_told(spark: SparkSession) -> None:
    from reports.pipeline.places import PipelineFolders

    with pytest.raises(PlaceError, match="no file system for this place"):
        PipelineFolders(lambda: spark).folder("nosuch://place/x")


def test_a_name_node_that_says_nothing_is_told(spark: SparkSession) -> None:
    """It takes the connection and never answers, as one that hangs or is of another protocol."""
    from reports.pipeline.hadoop_folder import HadoopFolder

    settings = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    settings.set("ipc.client.rpc-timeout.ms", "200")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        folder = HadoopFolder(spark, f"hdfs://127.0.0.1:{silent.getsockname()[1]}/x")
        with pytest.raises(OSError, match="nobody answers there"):
            folder.names()


THROUGH_S3A = """
import sys
from pathlib import Path
from reports.pipeline.hadoop_folder import HadoopFolder
from reports.pipeline.session import spark_session
from tests.reports.store.testing.small_runs import lost, publish, small_run
jars, endpoint, bucket = sys.argv[1:]
conf = {
    "spark.jars": ",".join(map(str, Path(jars).glob("*.jar"))),
    "spark.hadoop.fs.s3a.endpoint": endpoint,
    "spark.hadoop.fs.s3a.path.style.access": "true",
}
with spark_session("local[1]", conf) as spark:
    folder = HadoopFolder(spark, f"s3a://{bucket}/x")
    assert folder.names() == folder.files("nothing") == []
    assert folder.put_if_absent("a/b", b"first") and not folder.put_if_absent("a/b", b"second")
    assert [(each.name, each.octets) for each in folder.files()] == [("a/b", 5)] and folder.names("a") == ["b"]
    assert folder.open("a/b").read() == b"first"
    folder.delete("a/b")
    publish(folder, small_run("a", 1))
    publish(f"s3a://{bucket}/x", small_run("b", 2))
    publish(folder, small_run("c", 3))
    assert lost(folder) == lost(f"s3a://{bucket}/x") == {"a": 1, "b": 2, "c": 3}
    try:
        HadoopFolder(spark, "s3a://no-such-bucket/x").names()
    except OSError as error:
        print("told:", error.strerror)
"""

REPORT_FROM_S3A = """
import sys
from pathlib import Path
from reports.pipeline.job import Job, run
from reports.store.places import place_of
from reports.store.store import read_tables
from tests.reports.testing.synthetic_runs import make_run
jars, bucket, local = sys.argv[1], sys.argv[2], Path(sys.argv[3])
for name in ("a", "b"):
    make_run(local / name, run_id=name, steps=(1, 4), workers=1)
runs = place_of(f"s3a://{bucket}/runs")
for path in local.rglob("*"):
    if path.is_file():
        runs.put_if_absent(str(path.relative_to(local)), path)
conf = ["spark.jars=" + ",".join(map(str, Path(jars).glob("*.jar")))]
job = Job(places=[f"s3a://{bucket}/runs"], beside=str(local / "page"), master="local[1]", conf=conf)
told = run(job, print)
assert told["pages"] == f"s3a://{bucket}/runs/.store" and sorted(told["runs"]) == ["a", "b"], told
assert sorted(read_tables(told["pages"], ["b"]).steps["in_flight"]) == [1, 4]
again = run(Job(places=[f"s3://{bucket}/runs/b"], master="nowhere"), print)
assert again["read"] == 0 and again["runs"] == ["b"], again
"""


@pytest.mark.skipif("SPARK_S3A_JARS" not in os.environ, reason="SPARK_S3A_JARS names no folder with jars of hadoop-aws")
def test_spark_and_readers_share_a_store_in_an_object_storage(bucket: str) -> None:
    """Whoever of the two puts a name first has it."""
    command = [sys.executable, "-c", THROUGH_S3A, os.environ["SPARK_S3A_JARS"], os.environ["AWS_ENDPOINT_URL"], bucket]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == 0, done.stderr
    assert "told: there is no such bucket" in done.stdout


@pytest.mark.skipif("SPARK_S3A_JARS" not in os.environ, reason="SPARK_S3A_JARS names no folder with jars of hadoop-aws")
def test_runs_and_store_lie_in_an_object_storage(bucket: str, tmp_path: Path) -> None:
    """Spark finds service and credentials where all others do, and a known run starts no Spark."""
    command = [sys.executable, "-c", REPORT_FROM_S3A, os.environ["SPARK_S3A_JARS"], bucket, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == 0, done.stderr
