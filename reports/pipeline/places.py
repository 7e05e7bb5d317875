"""Folders by their URIs, in the pipeline: only folders on Spark's file systems need a session.

The pipeline lists and writes places that need no JVM (paths, ``file:``, ``s3a:``) with the same clients as readers of
stores: a report that finds nothing new starts no JVM, and a store has one kind of writer. Anything else (``hdfs:`` and
what else Spark knows) goes through Spark's file systems. The files of runs are read by Spark's workers in any case.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from perftest.results.folder import Folder, FolderEntry, LocalFolder
from reports.compute.run_files import READ
from reports.errors import PlaceError, SparkError
from reports.pipeline.source import RunDirectory
from reports.store.places import S3Folder, advice, cause_of, needs_jvm, place_of, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_S: Final = 5.0
"""Time within which a name node must take a connection, or it counts as absent."""

# Hadoop would try to connect for up to a quarter of an hour.
_HDFS: Final = {
    "spark.hadoop.ipc.client.connect.timeout": "5000",
    "spark.hadoop.ipc.client.rpc-timeout.ms": "30000",
    "spark.hadoop.ipc.client.connect.max.retries": "2",
    "spark.hadoop.ipc.client.connect.max.retries.on.timeouts": "2",
    "spark.hadoop.dfs.client.failover.max.attempts": "4",
    "spark.hadoop.dfs.client.failover.connection.retries.on.timeouts": "1",
}

_SDK: Final = "software.amazon.awssdk"
_MODULES: Final = ("s3", "s3-transfer-manager", "sts", "apache-client")
_SDK_VERSION: Final = "2.35.4"
"""That which hadoop-aws 3.5 asks for."""


class PipelineFolders:
    """The folders of one run of the pipeline.

    :param session: gives the Spark session, and starts Spark if it does not run yet
    """

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session

    def folder(self, place: str) -> Folder:
        """The folder at a path or URI.

        :raises StoreError: no such kind of place is known here
        :raises PlaceError: Spark has no file system there, or there is no answer
        """
        if not needs_jvm(place):
            return place_of(place)
        _check_name_node(place)
        from reports.pipeline.hadoop_folder import HadoopFolder

        try:
            return HadoopFolder(self._session(), place)
        except OSError as error:
            raise PlaceError(cause_of(error), place, advice(place, error)) from error

    def run_files(self, folder: Folder) -> list[FolderEntry]:
        """The files of runs in a folder, at any depth."""
        if isinstance(folder, LocalFolder | S3Folder):
            return folder.files()
        from reports.pipeline.hadoop_folder import HadoopFolder

        assert isinstance(folder, HadoopFolder)
        return folder.files_named(READ)


def hadoop_settings(places: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of Spark for the file systems of these places, taken from the environment, so that nobody has to
    repeat them. Spark itself takes credentials and endpoint of an object storage from the environment."""
    schemes = {scheme_of(place) for place in places}
    settings = dict(_HDFS) if "hdfs" in schemes else {}
    if schemes & {"s3", "s3a"}:
        region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
        endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
        if endpoint:
            # Few services but Amazon's have a host name for each bucket.
            settings |= {"spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true"}
        if region:
            settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    return settings


def check_readable(session: SparkSession, runs: Iterable[RunDirectory]) -> None:
    """Whether Spark has the file systems of these runs, before a job fails for it.

    :raises SparkError: it has not, with the setting that helps
    """
    from reports.pipeline.hadoop_folder import HadoopFolder

    tops = {"{0.scheme}://{0.netloc}/".format(urlsplit(run.path)): run for run in runs if "://" in run.path}
    for top, run in tops.items():
        try:
            HadoopFolder(session, top)
        except OSError as error:
            fix = _jars(session) if scheme_of(top) == "s3a" else advice(top, error)
            if error.errno != errno.ENOTSUP:
                fix = advice(top, error)
            raise SparkError(cause_of(error), run.source, fix) from error


def _jars(session: SparkSession) -> str:
    """The settings that bring the classes of ``s3a:``, for the Hadoop of this Spark."""
    version = session.sparkContext._jvm.org.apache.hadoop.util.VersionInfo.getVersion()  # type: ignore[union-attr]
    names = [f"org.apache.hadoop:hadoop-aws:{version}", *(f"{_SDK}:{name}:{_SDK_VERSION}" for name in _MODULES)]
    return f"add --spark-conf spark.jars.packages={','.join(names)} --spark-conf spark.jars.excludes={_SDK}:bundle"


def _check_name_node(place: str) -> None:
    """Connect to a name node before Java is started. A name without a port means several name nodes, or the default
    file system, which the settings of Hadoop know."""
    parts = urlsplit(place)
    try:
        address = (parts.hostname, parts.port)
    except ValueError as error:
        raise PlaceError(f"the address is none: {error}", place, "write hdfs://HOST:PORT/PATH") from error
    if parts.scheme != "hdfs" or None in address:
        return
    try:
        socket.create_connection(address, CONNECT_S).close()
    except OSError as error:
        what = f"the name node does not answer: {cause_of(error)}"
        raise PlaceError(what, place, "is it running, and reachable from here? its port is that of its RPC") from error
