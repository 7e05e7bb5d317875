"""Executors on other machines: their environment, and whether they can do our work, asked before any, with a sentence
that says why not."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from reports.errors import SparkError
from reports.store.places import S3, scheme_of

EXECUTOR_S: Final = 120.0
"""The time in which a cluster has to find an executor for the first task. Spark itself would wait for ever."""

_OTHER_PYTHON: Final = re.compile(r"different(?: minor)? version[^0-9]*(\d+\.\d+)")
_NO_PYTHON: Final = re.compile(r'Cannot run program "([^"]*)"')
_NO_MODULE: Final = re.compile(r"No module named '([^']+)'")


_AWS: Final = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"),
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
)
"""Variables by which executors find an object storage, and may use it. Spark shows no secret among its settings."""


def environment(places: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of Spark that hand these variables to executors, so that nobody has to repeat them, if one of the
    places is in an object storage."""
    if not any(scheme_of(place) in S3 for place in places):
        return {}
    return {f"spark.executorEnv.{name}": environ[name] for name in _AWS if environ.get(name)}


def check(spark: SparkSession, master: str, limit_s: float = EXECUTOR_S) -> None:
    """Run one task that imports what our tasks import.

    :param limit_s: how long to wait for an executor, in seconds
    :raises SparkError: no executor took the task in time, or its Python cannot run our code
    """
    failed: list[Exception] = []

    def probe() -> None:
        try:
            spark.range(1, numPartitions=1).mapInArrow(_imports, "id long").collect()
        except (PySparkException, Py4JError) as error:
            failed.append(error)

    asking = threading.Thread(target=probe, daemon=True)
    asking.start()
    asking.join(limit_s)
    if asking.is_alive():
        what = f"no executor took a task within {limit_s:.0f} s"
        fix = "start workers, or ask for less: --spark-conf spark.executor.memory=1g --spark-conf spark.cores.max=2"
        raise SparkError(what, master, fix)
    if failed:
        raise _reason(str(failed[0]), master) from failed[0]


def _imports(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import reports.pipeline.tasks  # noqa: F401 - that it can be imported is the answer

    yield from batches


def _reason(said: str, master: str) -> SparkError:
    """The error for people behind what Spark says of a failed task."""
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if other := _OTHER_PYTHON.search(said):
        what = f"an executor has Python {other[1]}, and this command has Python {ours}; Spark needs the same"
        fix = f"name their Python {ours}: PYSPARK_PYTHON=python{ours}, or run perftest with Python {other[1]}"
        return SparkError(what, f"executors of {master}", fix)
    if absent := _NO_PYTHON.search(said):
        what = f"an executor has no Python named {absent[1]}"
        fix = f"install Python {ours} on the workers, or name the Python that they have: PYSPARK_PYTHON=/path/to/python"
        return SparkError(what, f"executors of {master}", fix)
    if module := _NO_MODULE.search(said):
        what = f"an executor cannot import {module[1]}"
        fix = "make the archive again with `perftest report spark-archive`, and give it as spark.archives"
        return SparkError(what, f"executors of {master}", fix)
    line = next((each.strip() for each in said.splitlines() if each.strip()), "it said nothing")
    return SparkError(f"the first task failed: {line}", f"executors of {master}", "see the logs of the executors")
