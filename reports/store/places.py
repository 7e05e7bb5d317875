"""Folders by their URIs, for readers and writers without a JVM: local paths, ``s3a:`` (or ``s3:``), ``gs:``, ``abfs:``
and ``hdfs:``, each by the file system that Arrow has for it.

Endpoint and region of an object storage come from ``AWS_ENDPOINT_URL`` (or ``AWS_ENDPOINT_URL_S3``) and ``AWS_REGION``
(or ``AWS_DEFAULT_REGION``); credentials come from the places of the cloud's own clients, and are in no URI.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Final, cast
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as arrow_fs

from perftest.results.folder import Folder, FolderEntry, LocalFolder
from reports.errors import PlaceError, StoreError
from reports.store.place_errors import one_line, plain_error

_URI: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")
S3: Final = ("s3a", "s3")
CLOUDS: Final = ("gs", "abfs", "abfss")
HDFS: Final = "hdfs"
SCHEMES: Final = "a path, file:, s3a:, s3:, gs:, abfs: or hdfs:"
CONNECT_S: Final = 5.0
"""Time within which a service must take a connection, or it counts as absent."""
ATTEMPTS: Final = 3


def is_uri(text: str) -> bool:
    """Whether a text names a place by a URI rather than by a path."""
    return bool(_URI.match(text))


def scheme_of(place: str) -> str:
    """The scheme of a URI; of a path, ``file``."""
    return urlsplit(place).scheme.lower() if is_uri(place) else "file"


def local_path(place: Path | str) -> Path | None:
    """The path of a place on this machine; None of any other place."""
    if isinstance(place, str) and is_uri(place):
        return Path(unquote(urlsplit(place).path)) if scheme_of(place) == "file" else None
    return Path(place)


def place_of(place: Path | str | Folder) -> Folder:
    """The folder at a path or URI; a folder is itself.

    :raises StoreError: no such kind of place is known here
    :raises PlaceError: it cannot be reached
    """
    if not isinstance(place, Path | str):
        return place
    if (path := local_path(place)) is not None:
        return LocalFolder(path)
    system, root = opened(str(place))
    return ArrowFolder(system=system, root=root.rstrip("/"), where=str(place).rstrip("/"))


def opened(place: str) -> tuple[Any, str]:
    """The file system of Arrow for a place, and the path there.

    :raises StoreError: as :func:`place_of`
    :raises PlaceError: as :func:`place_of`
    """
    if (path := local_path(place)) is not None:
        return arrow_fs.LocalFileSystem(), str(path.absolute())
    check_scheme(place)
    parts = urlsplit(place)
    if parts.scheme in S3:
        settings = ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        system = _s3(endpoint(), region(), tuple(os.environ.get(name) for name in settings))
        return system, f"{parts.netloc}/{parts.path.strip('/')}"
    try:
        if parts.scheme == HDFS:
            _check_name_node(place)
            return arrow_fs.HadoopFileSystem.from_uri(f"hdfs://{parts.netloc or 'default'}/"), parts.path
        return cast(tuple[Any, str], arrow_fs.FileSystem.from_uri(place))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise PlaceError(f"the place cannot be reached: {one_line(error)}", place, _CLIENTS[parts.scheme]) from error


def _check_name_node(place: str) -> None:
    """Connect to a name node, which Hadoop's client would try for minutes. A name without a port means several name
    nodes, or the default file system, which the settings of Hadoop know. Raises OSError, and ValueError."""
    parts = urlsplit(place)
    if parts.hostname is not None and parts.port is not None:
        socket.create_connection((parts.hostname, parts.port), CONNECT_S).close()


_CLIENTS: Final = {
    HDFS: "install a Hadoop client and set HADOOP_HOME and CLASSPATH, or give a place of another kind",
    **dict.fromkeys(CLOUDS, "log in with the client of the cloud, or give a place of another kind"),
}


def check_scheme(place: str) -> None:
    """Whether a URI is of a kind that is known here, without credentials.

    :raises StoreError: it is not
    """
    parts = urlsplit(place)
    if parts.scheme not in (*S3, *CLOUDS, HDFS) or not (parts.netloc or parts.scheme == HDFS):
        raise StoreError(f"no place of this kind is known: {parts.scheme}:", place, f"give {SCHEMES}")
    if "@" in parts.netloc and parts.scheme not in CLOUDS:
        where = place.replace(parts.netloc, "…@" + parts.netloc.rpartition("@")[2])
        fix = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and give the URI without them"
        raise StoreError("the URI has credentials in it", where, fix)


@lru_cache
def _s3(endpoint: str | None, region: str | None, _credentials: tuple[str | None, ...]) -> arrow_fs.S3FileSystem:
    """The file system of a service, one for each setting: a worker opens thousands of runs in one bucket."""
    options = {"region": region, "endpoint_override": endpoint}
    return arrow_fs.S3FileSystem(
        connect_timeout=CONNECT_S,
        # A small file is one put, and no upload of parts.
        allow_delayed_open=True,
        retry_strategy=arrow_fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        **{name: value for name, value in options.items() if value},
    )


def cause_of(error: OSError) -> str:
    """The cause of an error, in words."""
    return error.strerror or str(error) or type(error).__name__


def advice(where: str, error: OSError) -> str:
    """Advice for a person about an error at a place."""
    scheme = scheme_of(where)
    if scheme == "file":
        return "make room, check that the place exists and that you may read and write there"
    if scheme not in S3:
        return "check the address and that you may read and write there"
    if isinstance(error, PermissionError):
        return "name credentials that may do so: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    if error.errno == errno.EHOSTUNREACH:
        return "is it reachable from here? AWS_ENDPOINT_URL names a service that is not Amazon's"
    return "check the name of the bucket; AWS_ENDPOINT_URL names a service that is not Amazon's, AWS_REGION its region"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowFolder:
    """A folder on a file system of Arrow."""

    system: Any
    root: str
    where: str

    def names(self, below: str = "") -> list[str]:
        """As :meth:`Folder.names`."""
        return sorted(info.base_name for info in self._infos(below, recursive=False))

    def files(self, below: str = "") -> list[FolderEntry]:
        """As :meth:`Folder.files`."""
        found = [info for info in self._infos(below, recursive=True) if info.type == arrow_fs.FileType.File]
        entries = (
            FolderEntry(
                name=info.path.removeprefix(self.root).lstrip("/"),
                octets=info.size,
                modified_ns=info.mtime_ns or 0,
            )
            for info in found
        )
        return sorted(entries, key=lambda entry: entry.name)

    def open(self, name: str) -> BinaryIO:
        """As :meth:`Folder.open`."""
        try:
            return cast(BinaryIO, self.system.open_input_file(f"{self.root}/{name}"))
        except OSError as error:
            raise plain_error(error) from error

    def _infos(self, below: str, *, recursive: bool) -> list[Any]:
        path = f"{self.root}/{below}".rstrip("/")
        place = arrow_fs.FileSelector(path, recursive=recursive, allow_not_found=True)
        try:
            return list(self.system.get_file_info(place)) or self._nothing()
        except OSError as error:
            raise plain_error(error) from error

    def _nothing(self) -> list[Any]:
        """An empty list. Raises OSError if there is not even a bucket, which Arrow takes for an empty one."""
        if scheme_of(self.where) not in S3:
            return []
        try:
            there = self.system.get_file_info(self.root.partition("/")[0])
        except OSError:
            return []  # A user who may list below a prefix need not see the bucket.
        if there.type == arrow_fs.FileType.NotFound:
            raise OSError(errno.ENXIO, "there is no such bucket")
        return []


def endpoint() -> str | None:
    """The service of an object storage that is not Amazon's own."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def region() -> str | None:
    """The region of an object storage."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
