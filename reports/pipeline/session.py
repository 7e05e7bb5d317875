"""Start Spark for a report: quiet, on the loopback only, with the Java that is there.

Many jobs are small: a few seconds of work after a start-up that costs as much. So a job with a small input gets the C1
compiler, the serial collector, two shuffle partitions and a fixed plan, which together take half the CPU time of
Spark's defaults on two cores. A job with a large input gets Spark's defaults: all compiler tiers, adaptive plans.
``conf`` overrides everything here.

Any Spark master may be given. Executors on other machines need a Python of our version and nothing else: they get our
code and its libraries as an archive (:mod:`reports.pipeline.executor_archive`). The run directories have to be on a
file system that they share.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from reports.errors import SettingError, SparkError
from reports.pipeline import executors
from reports.pipeline import java as java_runtime
from reports.pipeline.executor_archive import FOLDER, archive_for_executors
from reports.pipeline.masters import LOCAL, check_master, in_process

LOG4J2: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
# The gateway is treated as a shell, whose own level Spark announces when it differs from the root's.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark %p %c{1}: %m%n
"""

EXECUTOR_PYTHON: Final = "python3"
"""The Python of executors on other machines, found on their PATH."""

LOOPBACK: Final = "127.0.0.1"

SMALL_JOB_BYTES: Final = 256 * 1024 * 1024
"""The largest input of a small job, in octets. With more input, Spark's defaults win back their cost at the start."""

SMALL_JOB: Final = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "2"}

QUICK_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
SHORT_JOB: Final = (*QUICK_START, "-XX:MetaspaceSize=192m", "-Xms384m")

BASE_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    # Nothing reads an attempt before it is published, so the slower, safer committer would buy nothing.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.scheduler.mode": "FAIR",
    # Recording the call site of every column expression costs several calls into the JVM each.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}


def parse_conf(settings: Sequence[str]) -> dict[str, str]:
    """``key=value`` settings of the command line.

    :raises SettingError: no '=' or a key that is not Spark's
    """
    conf = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.startswith("spark."):
            raise SettingError(
                f"{setting!r} is no Spark setting", "--conf", "write --conf spark.NAME=VALUE, as for spark-submit"
            )
        conf[key] = value
    return conf


@contextmanager
def spark_session(
    master: str = LOCAL,
    conf: Mapping[str, str] | None = None,
    input_bytes: int = 0,
) -> Iterator[SparkSession]:
    """A Spark session, stopped at the end.

    The environment of this process is as it was afterwards; the JVM ends with the process.

    :param conf: Spark settings that go before ours
    :param input_bytes: size of the run directories, which decides the tuning of the session
    :raises JavaNotFoundError: no Java that Spark can use
    :raises SparkError: Spark did not start
    """
    check_master(master)
    java = java_runtime.find_java(os.environ)
    cache = java_runtime.cache_directory(os.environ)
    home = java_runtime.launcher_home(java, cache)
    given = (shipped(cache, conf or {}) if not in_process(master) else {}) | dict(conf or {})
    with tempfile.TemporaryDirectory(prefix="perftest-spark-", ignore_cleanup_errors=True) as scratch:
        settings = _settings(master, Path(scratch), input_bytes <= SMALL_JOB_BYTES) | given
        with _environment(_variables(master, home, given)):
            spark = _start(master, settings)
            try:
                if not in_process(master):
                    executors.check(spark, master)
                yield spark
            finally:
                spark.stop()


def shipped(cache: Path, conf: Mapping[str, str]) -> dict[str, str]:
    """The settings with which executors get our code and libraries; none of ours if ``conf`` names archives itself."""
    path = {"spark.executorEnv.PYTHONPATH": FOLDER}
    if "spark.archives" in conf:
        return path
    return path | {"spark.archives": f"{archive_for_executors(cache).as_uri()}#{FOLDER}"}


def _settings(master: str, scratch: Path, small: bool) -> dict[str, str]:
    log4j2 = scratch / "log4j2.properties"
    log4j2.write_text(LOG4J2, encoding="utf-8")
    options = [f"-Dlog4j2.configurationFile={log4j2}", f"-Dderby.system.home={scratch}"]
    settings = BASE_CONF | {"spark.local.dir": str(scratch), "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    if in_process(master):
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    if small:
        settings |= SMALL_JOB
    if in_process(master) and small:
        options += SHORT_JOB
    return settings | {"spark.driver.extraJavaOptions": " ".join(options)}


def _variables(master: str, home: Path, conf: Mapping[str, str]) -> dict[str, str]:
    # Executors on other machines have a Python of their own, whose name their owner may know better.
    named = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or EXECUTOR_PYTHON
    python = sys.executable if in_process(master) else named
    variables = {"JAVA_HOME": str(home), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable}
    # Python workers do a little numpy each; a thread pool per worker would only contend for the cores.
    variables |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    variables["SPARK_LAUNCHER_OPTS"] = " ".join(QUICK_START)
    if in_process(master):
        variables["SPARK_LOCAL_IP"] = LOOPBACK
    return variables


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _start(master: str, settings: Mapping[str, str]) -> SparkSession:
    builder: Any = SparkSession.builder
    builder = builder.master(master).appName("perftest reports")
    for key, value in settings.items():
        builder = builder.config(key, value)
    threading.Thread(target=_import_meanwhile, daemon=True).start()
    try:
        session: SparkSession = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise SparkError(
            f"Spark did not start: {error}".splitlines()[0],
            f"master {master}, Java of JAVA_HOME {os.environ.get('JAVA_HOME')}",
            "see what Spark said above; is the master reachable, is there 1 GiB of free memory?",
        ) from error
    return session


def _import_meanwhile() -> None:
    """Import what PySpark asks for at its first call into the JVM, pandas among it, while the JVM is starting."""
    with suppress(ImportError):
        importlib.import_module("pyspark.testing")
