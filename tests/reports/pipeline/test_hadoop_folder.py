"""Folders through Spark's own file systems: a local disk always, an object storage where its classes can be had.

hadoop-aws and the modules of the AWS SDK that it needs are not in PySpark. Set SPARK_S3A_JARS to a folder that holds
their jars (docs/internals/report-store.md names them) to test ``s3a:`` as well.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from perftest.results.folder import Folder
from reports.store import store
from tests.reports.store.testing.small_runs import lost, publish, small_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Folder:
    from reports.pipeline.hadoop_folder import HadoopFolder

    return HadoopFolder(spark, f"file://{tmp_path}/a%20b")


def test_a_folder_of_spark_keeps_the_promises_of_a_folder(folder: Folder, tmp_path: Path) -> None:
    """As tests/perftest/results/test_results_folder.py has them for other folders."""
    assert folder.names() == folder.names("nothing") == folder.files("nothing") == []
    content = tmp_path / "content"
    content.write_bytes(b"first")
    assert folder.put_if_absent("a/b/c", content) and not folder.put_if_absent("a/b/c", b"second")
    assert folder.put_if_absent("a/d", b"")
    assert (folder.names("a"), folder.names("a/b")) == (["b", "d"], ["c"])
    assert [(entry.name, entry.octets) for entry in folder.files()] == [("a/b/c", 5), ("a/d", 0)]
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


@pytest.mark.skipif("SPARK_S3A_JARS" not in os.environ, reason="SPARK_S3A_JARS names no folder with jars of hadoop-aws")
def test_spark_and_readers_share_a_store_in_an_object_storage(bucket: str) -> None:
    """Whoever of the two puts a name first has it."""
    command = [sys.executable, "-c", THROUGH_S3A, os.environ["SPARK_S3A_JARS"], os.environ["AWS_ENDPOINT_URL"], bucket]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == 0, done.stderr
    assert "told: there is no such bucket" in done.stdout
