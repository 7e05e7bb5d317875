"""A real cluster: a standalone master and two workers on the loopback, whose Python has none of our packages.

`make spark-cluster-test` runs this module alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil
import pyarrow as pa
import pytest

from reports.pipeline import java
from reports.pipeline.executor_archive import HERE
from reports.store.schema import TABLES
from reports.store.store import arrow_table

pytestmark = [pytest.mark.spark, pytest.mark.spark_cluster, pytest.mark.xdist_group("spark_cluster")]

RUNS = 6
START_S = 240.0
SPARK = "org.apache.spark.deploy"


@dataclass(frozen=True)
class Cluster:
    """A master and its workers, which this test started."""

    url: str
    workers: tuple[subprocess.Popen[str], ...]

    def executors(self) -> list[psutil.Process]:
        """The executors that are alive."""
        found = [each for worker in self.workers for each in psutil.Process(worker.pid).children(recursive=True)]
        return [each for each in found if is_executor(each)]


def is_executor(process: psutil.Process) -> bool:
    """Whether this is an executor that is alive."""
    try:
        return any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
    except psutil.Error:
        return False


def end(process: subprocess.Popen[str]) -> None:
    """End a master or a worker, in order if possible."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def bare_python(place: Path) -> Path:
    """The directory with a ``python3`` that has no packages at all."""
    venv.create(place, symlinks=True, with_pip=False)
    return place / "bin"


def drop(lines: IO[str]) -> None:
    """Read to the end."""
    with lines:
        lines.read()


def wait_for(lines: IO[str], words: str) -> str:
    """Read up to the line with these words; the rest is read and dropped, so that nobody waits for a full pipe."""
    seen = []
    for line in lines:
        seen.append(line)
        if words in line:
            threading.Thread(target=drop, args=[lines], daemon=True).start()
            return line
    raise AssertionError(f"no line with {words!r}: {''.join(seen)}")


def daemon(kind: str, arguments: Sequence[str], place: Path, path: Path) -> subprocess.Popen[str]:
    """Start a master or a worker in a directory of its own, without this process's environment."""
    import pyspark

    place.mkdir()
    spark = Path(pyspark.__file__).parent
    home = java.launcher_home(java.find_java(os.environ), place)
    environ = {"PATH": f"{path}:/usr/bin:/bin", "JAVA_HOME": str(home), "SPARK_HOME": str(spark), "HOME": str(place)}
    environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(place), "SPARK_DAEMON_MEMORY": "256m"}
    words = [str(spark / "bin" / "spark-class"), kind, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    return subprocess.Popen(
        [*words, *arguments], cwd=place, env=environ, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers of one core each."""
    place = tmp_path_factory.mktemp("cluster")
    path = bare_python(place / "python")
    started = [daemon(f"{SPARK}.master.Master", [], place / "master", path)]
    guard = threading.Timer(START_S, lambda: [each.kill() for each in started])
    guard.start()
    try:
        assert started[0].stderr is not None
        url = wait_for(started[0].stderr, "Starting Spark master at").split()[-1]
        for number in (1, 2):
            words = ["--cores", "1", "--memory", "1g", "--work-dir", str(place / f"work{number}"), url]
            started.append(daemon(f"{SPARK}.worker.Worker", words, place / f"worker{number}", path))
        for each in started[1:]:
            assert each.stderr is not None
            wait_for(each.stderr, "Successfully registered with master")
        guard.cancel()
        yield Cluster(url, tuple(started[1:]))
    finally:
        guard.cancel()
        for each in reversed(started):
            end(each)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, make_run: Callable[..., Path]) -> list[Path]:
    """Runs of one plan that differ in their figures."""
    place = tmp_path_factory.mktemp("runs")
    return [make_run(place / f"r{seed}", run_id=f"r{seed}", seed=seed, steps=(1, 4)) for seed in range(RUNS)]


@contextmanager
def pipeline(runs: Sequence[Path], store: Path, master: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """The command that fills a store, in a process of its own, which does not outlive the test."""
    events = store.with_name(f"{store.name}-events")
    events.mkdir()
    conf = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m"}
    conf |= {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
    }
    conf |= {"spark.eventLog.compress": "false", "spark.scheduler.minRegisteredResourcesRatio": "1.0"}
    command = [sys.executable, "-m", "reports.pipeline", *map(str, runs), "--store", str(store), "--master", master]
    command += [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=inherited | environ, text=True, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


def finished(process: subprocess.Popen[str]) -> str:
    """Its stdout; its end must be a good one."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


def tables(store: Path) -> dict[str, pa.Table]:
    """All tables of a store, in an order of rows that does not depend on who computed them."""
    found = {table.name: in_order(arrow_table(store, table.name)) for table in TABLES}
    assert len(found["runs"]) == RUNS
    return found


def in_order(table: pa.Table) -> pa.Table:
    """The rows by their content."""
    rows = sorted(table.to_pylist(), key=repr)
    return pa.Table.from_pylist(rows, schema=table.schema)


def events(store: Path) -> list[dict[str, object]]:
    """What Spark's event log says of the job."""
    (log,) = (each for each in store.with_name(f"{store.name}-events").iterdir() if each.is_file())
    return [json.loads(line) for line in log.read_text().splitlines()]


def workers_of_tasks(store: Path) -> set[str]:
    """The executors that ended a task of the job well."""
    ends = [each for each in events(store) if each["Event"] == "SparkListenerTaskEnd"]
    return {str(each["Task Info"]["Executor ID"]) for each in ends if not each["Task Info"]["Failed"]}  # type: ignore[index]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, runs: list[Path]) -> dict[str, pa.Table]:
    """What Spark on this machine makes of the runs."""
    store = tmp_path_factory.mktemp("local") / "store"
    with pipeline(runs, store, "local[2]") as process:
        finished(process)
    return tables(store)


def test_executors_without_any_package_make_the_same_tables(
    cluster: Cluster, runs: list[Path], expected: dict[str, pa.Table], tmp_path: Path
) -> None:
    """Whoever has a cluster gets the figures of everyone else, and installs nothing on the workers."""
    store = tmp_path / "store"
    with pipeline(runs, store, cluster.url) as process:
        told = json.loads(finished(process))
    assert sorted(told["runs"]) == sorted(run.name for run in runs)
    assert workers_of_tasks(store) == {"0", "1"}
    assert tables(store) == expected


def test_an_executor_that_is_killed_costs_no_run(
    cluster: Cluster, runs: list[Path], expected: dict[str, pa.Table], tmp_path: Path
) -> None:
    """Machines of a cluster are lost at any time; the figures must not tell."""
    store = tmp_path / "store"
    with pipeline(runs, store, cluster.url) as process:
        assert process.stderr is not None
        assert any(line.startswith("reading") for line in process.stderr)
        cluster.executors()[0].kill()
        finished(process)
    removed = [each for each in events(store) if each["Event"] == "SparkListenerExecutorRemoved"]
    assert removed and tables(store) == expected


def test_an_absent_python_is_told_in_a_sentence(cluster: Cluster, runs: list[Path], tmp_path: Path) -> None:
    """PySpark's own words are a stack trace of both machines."""
    store = tmp_path / "store"
    with pipeline(runs[:1], store, cluster.url, PYSPARK_PYTHON="python-that-is-not-there") as process:
        _, err = process.communicate(timeout=300)
    what, where, fix = err.splitlines()[-3:]
    assert process.returncode == 1 and what == "error: an executor has no Python named python-that-is-not-there"
    assert cluster.url in where and HERE in fix
