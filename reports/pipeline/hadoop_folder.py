"""A folder on any file system that Spark knows, through the Hadoop classes of the driver's JVM.

``spark.hadoop.*`` settings say how a file system is reached (endpoint, credentials), as for any Spark program. How a
name is taken at most once depends on the kind of place:

- ``file:``: a hard link, as :class:`perftest.results.folder.LocalFolder` does;
- object storages (``s3a:``): a conditional create, which the service decides (Hadoop 3.4.2 and later);
- ``hdfs:``, also over HTTP: a file beside, and a rename, which the name node refuses if the target exists;
- others: not at all. Whether two writers could both get a name there is not known, so nothing is written.

``viewfs:`` is what its mount point leads to.
"""

from __future__ import annotations

import errno
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it

from perftest.results.folder import Content, FolderEntry, LocalFolder
from reports.pipeline.frames import escaped

CONDITIONAL: Final = "fs.option.create.conditional.overwrite"
OBJECT_STORAGES: Final = ("s3a", "s3", "s3n")
NAME_NODES: Final = ("hdfs", "webhdfs", "swebhdfs")
COPY_BYTES: Final = 1024 * 1024
_TAKEN: Final = ("FileAlreadyExistsException", "RemoteFileChangedException")
_DENIED: Final = ("AccessDeniedException", "AccessControlException")
_SILENT: Final = (
    "ConnectException",
    "ConnectTimeoutException",
    "NoRouteToHostException",
    "SocketTimeoutException",
    "UnknownHostException",
)


class HadoopFolder:
    """A directory below a URI; a path without a scheme belongs to Spark's default file system."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._spark = spark
        self.where = uri.rstrip("/") or uri
        # Hadoop takes a path as it stands; of `file:`, everybody else expects a URI with its escapes.
        text = unquote(self.where) if self.where.startswith("file:") else self.where
        self._root = self._jvm.org.apache.hadoop.fs.Path(text)
        with _as_os_errors(self.where):
            self._system = self._root.getFileSystem(context._jsc.hadoopConfiguration())
            self._root = self._system.makeQualified(self._root)
        self._base = str(self._root.toUri().getPath()).rstrip("/")
        self._scheme = str(self._root.toUri().getScheme())
        # As Spark's readers name it: with the address of the file system, which a URI may leave out.
        self._uri = str(self._root.toString()).rstrip("/")
        if self._scheme != "file":
            self.where = self._uri

    def names(self, below: str = "") -> list[str]:
        """As :meth:`Folder.names`."""
        with _as_os_errors(self.where):
            try:
                found = self._system.listStatus(self._path(below))
            except Py4JJavaError as error:
                if _class_of(error) == "FileNotFoundException" and self._has_bucket():
                    return []
                raise
            return sorted(str(status.getPath().getName()) for status in found)

    def files(self, below: str = "") -> list[FolderEntry]:
        """As :meth:`Folder.files`. Times have the precision of the place, milliseconds at best."""
        if not self.names(below):
            return []
        with _as_os_errors(self.where):
            return sorted(self._walk(below), key=lambda entry: entry.name)

    def files_named(self, names: Iterable[str]) -> list[FolderEntry]:
        """The files of these names at any depth, but none in a hidden directory, sorted by name. One job of Spark lists
        them all: :meth:`files` calls the JVM several times for each file, a minute for thousands of runs."""
        if not self.names():
            return []
        reader = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            found = reader.option("pathGlobFilter", f"{{{','.join(names)}}}").load(escaped(self._uri))
            rows = found.select("path", "length", F.unix_micros("modificationTime").alias("modified_us")).toArrow()
        except PySparkException as error:
            raise OSError(errno.EIO, f"Spark cannot list it: {str(error).splitlines()[0]}", self.where) from error
        entries = (
            FolderEntry(
                name=row["path"].removeprefix(self._uri).lstrip("/"),
                octets=row["length"],
                modified_ns=row["modified_us"] * 1000,
            )
            for row in rows.to_pylist()
        )
        return sorted(entries, key=lambda entry: entry.name)

    def open(self, name: str) -> BinaryIO:
        """As :meth:`Folder.open`: the file is copied to the local disk first."""
        with tempfile.TemporaryDirectory(prefix="perftest-") as scratch, _as_os_errors(name):
            local = Path(scratch) / "file"
            target = self._jvm.org.apache.hadoop.fs.Path(local.as_uri())
            self._system.copyToLocalFile(False, self._path(name), target, True)
            return local.open("rb")

    def put_if_absent(self, name: str, content: Content) -> bool:
        """As :meth:`Folder.put_if_absent`."""
        target = self._target()
        scheme = str(target.getScheme())
        if scheme == "file":
            return LocalFolder(Path(str(target.getPath()))).put_if_absent(name, content)
        if scheme not in (*OBJECT_STORAGES, *NAME_NODES):
            raise OSError(errno.ENOTSUP, f"{scheme}: is no kind of place where of two writers one is sure to win", name)
        put = self._create if scheme in OBJECT_STORAGES else self._rename
        with _local(content) as path, _as_os_errors(name):
            return put(name, path)

    def _target(self) -> Any:
        """The URI of this folder behind mount points."""
        if self._scheme != "viewfs":
            return self._root.toUri()
        with _as_os_errors(self.where):
            self._system.mkdirs(self._root)
            return self._system.resolvePath(self._root).toUri()

    def delete(self, name: str) -> None:
        """As :meth:`Folder.delete`."""
        with _as_os_errors(name):
            self._system.delete(self._path(name), False)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name) if name else self._root

    def _has_bucket(self) -> bool:
        """Whether the top of the file system is there: a missing bucket is an error, an empty folder is none."""
        top = self._jvm.org.apache.hadoop.fs.Path("/")
        return self._scheme not in OBJECT_STORAGES or bool(self._system.exists(top))

    def _walk(self, below: str) -> Iterator[FolderEntry]:
        found = self._system.listFiles(self._path(below), True)
        while found.hasNext():
            status = found.next()
            name = str(status.getPath().toUri().getPath())[len(self._base) :].lstrip("/")
            modified_ns = int(status.getModificationTime()) * 1_000_000
            yield FolderEntry(name=name, octets=int(status.getLen()), modified_ns=modified_ns)

    def _create(self, name: str, local: Path) -> bool:
        """The service refuses the last request of the upload if the name is taken."""
        try:
            builder = self._system.createFile(self._path(name)).overwrite(True).recursive()
            self._copy(local, builder.must(CONDITIONAL, True).build())
        except Py4JJavaError as error:
            if _class_of(error) in _TAKEN:
                return False
            raise
        return True

    def _rename(self, name: str, local: Path) -> bool:
        beside = self._path(f"{name}.{secrets.token_hex(4)}.tmp")
        self._copy(local, self._system.create(beside, False))
        try:
            if self._system.rename(beside, self._path(name)):
                return True
            if self._system.exists(self._path(name)):
                return False
            raise OSError(errno.EIO, "the file system refused to rename a file", name)
        finally:
            self._system.delete(beside, False)

    def _copy(self, local: Path, out: Any) -> None:
        source = self._jvm.java.io.FileInputStream(str(local))
        self._jvm.org.apache.hadoop.io.IOUtils.copyBytes(source, out, COPY_BYTES, True)


@contextmanager
def _local(content: Content) -> Iterator[Path]:
    """The content as a local file, which the JVM can read."""
    if isinstance(content, Path):
        yield content
        return
    with tempfile.NamedTemporaryFile(prefix="perftest-") as file:
        file.write(content)
        file.flush()
        yield Path(file.name)


@contextmanager
def _as_os_errors(where: str) -> Iterator[None]:
    """Translates the exceptions of Java."""
    try:
        yield
    except Py4JJavaError as error:
        raise _os_error(_class_of(error), _words(error), where) from error
    except Py4JError as error:
        raise OSError(errno.EIO, f"Spark's JVM does not answer: {error}", where) from error


def _os_error(java_class: str, words: str, where: str) -> OSError:
    if java_class == "UnknownStoreException":
        return OSError(errno.ENXIO, "there is no such bucket", where)
    if java_class == "FileNotFoundException":
        return FileNotFoundError(errno.ENOENT, "No such file or directory", where)
    if java_class in _DENIED:
        return PermissionError(errno.EACCES, f"access denied: {words}", where)
    if java_class == "UnsupportedFileSystemException":
        return OSError(errno.ENOTSUP, f"Spark has no file system for this place: {words}", where)
    if "ClassNotFoundException" in words:
        return OSError(errno.ENOTSUP, f"Spark lacks the classes of this place: {words.rpartition(': ')[2]}", where)
    if java_class in _SILENT:
        return OSError(errno.EHOSTUNREACH, f"nobody answers there: {words}", where)
    return OSError(errno.EIO, f"{java_class}: {words}", where)


def _java(error: Py4JJavaError, ask: Callable[[Any], object]) -> str:
    return str(ask(error.java_exception) or "")


def _class_of(error: Py4JJavaError) -> str:
    return _java(error, lambda exception: exception.getClass().getSimpleName())


def _words(error: Py4JJavaError) -> str:
    return next(iter(_java(error, lambda exception: exception.getMessage()).splitlines()), "no reason was given")
