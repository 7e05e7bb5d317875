"""Folders by their URIs, for readers and writers without a JVM: local paths, ``s3a:`` (or ``s3:``), and ``hdfs:``.

Endpoint and region of an object storage come from ``AWS_ENDPOINT_URL`` (or ``AWS_ENDPOINT_URL_S3``) and ``AWS_REGION``
(or ``AWS_DEFAULT_REGION``); credentials come from the places of the AWS SDKs, and are in no URI.

Arrow reads and lists. Arrow cannot put a file only if its name is free, so boto3 does that (``If-None-Match: *``). On
HDFS only the pipeline writes, through Spark.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast
from urllib.parse import unquote, urlsplit

import pyarrow.fs as arrow_fs

from perftest.installation import command_for
from perftest.results.folder import Content, Folder, FolderEntry, LocalFolder
from reports.errors import StoreError

_URI: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")
_AWS_ERROR: Final = re.compile(r"AWS Error (\w+)(?:.*HTTP status (\d+))?")
OBJECT_STORAGE: Final = ("s3a", "s3")
SCHEMES: Final = "a path, file:, s3a:, s3: or hdfs:"
CONNECT_S: Final = 5.0
"""Time within which a service must take a connection, or it counts as absent."""
ATTEMPTS: Final = 3


def is_uri(text: str) -> bool:
    """Whether a text names a place by a URI rather than by a path."""
    return bool(_URI.match(text))


def scheme_of(place: str) -> str:
    """The scheme of a URI; of a path, ``file``."""
    return urlsplit(place).scheme.lower() if is_uri(place) else "file"


def needs_jvm(place: str) -> bool:
    """Whether only Spark's file systems can do everything at this place; its readers may have a client of Hadoop."""
    return scheme_of(place) not in ("file", *OBJECT_STORAGE)


def place_of(place: Path | str | Folder) -> Folder:
    """The folder at a path or URI; a folder is itself.

    :raises StoreError: no such kind of place is known here
    """
    if isinstance(place, Path):
        return LocalFolder(place)
    if not isinstance(place, str):
        return place
    if not is_uri(place):
        return LocalFolder(Path(place))
    parts = urlsplit(place)
    if parts.scheme == "file":
        return LocalFolder(Path(unquote(parts.path)))
    if parts.scheme in OBJECT_STORAGE and parts.netloc:
        _refuse_credentials(parts.netloc, place)
        return S3Folder(bucket=parts.netloc, prefix=parts.path.strip("/"), where=place.rstrip("/"))
    if parts.scheme == "hdfs":
        return _hdfs(place, parts.netloc, parts.path)
    raise StoreError(f"no place of this kind is known: {parts.scheme}:", place, f"give {SCHEMES}")


def _refuse_credentials(authority: str, place: str) -> None:
    if "@" in authority:
        where = place.replace(authority, "…@" + authority.rpartition("@")[2])
        fix = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and give the URI without them"
        raise StoreError("the URI has credentials in it", where, fix)


def _hdfs(place: str, authority: str, path: str) -> ArrowFolder:
    try:
        system = arrow_fs.HadoopFileSystem.from_uri(f"hdfs://{authority}/" if authority else "hdfs://default/")
    except (OSError, ValueError) as error:
        fix = "install a Hadoop client and set HADOOP_HOME and CLASSPATH, or give a place of another kind"
        raise StoreError(f"HDFS cannot be reached: {_one_line(error)}", place, fix) from error
    return ArrowFolder(system=system, root=path.rstrip("/"), where=place.rstrip("/"))


def cause_of(error: OSError) -> str:
    """The cause of an error, in words."""
    return error.strerror or str(error) or type(error).__name__


def advice(where: str, error: OSError) -> str:
    """Advice for a person about an error at a place."""
    scheme = scheme_of(where)
    if scheme == "file":
        return "make room, check that the place exists and that you may read and write there"
    if scheme not in OBJECT_STORAGE:
        return (
            "check the address and that you may read and write there; settings of its file system are given as "
            "--spark-conf spark.hadoop.NAME=VALUE"
        )
    if isinstance(error, PermissionError):
        return "name credentials that may do so: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    if error.errno == errno.EHOSTUNREACH:
        return "is it reachable from here? AWS_ENDPOINT_URL names a service that is not Amazon's"
    return "check the name of the bucket; AWS_ENDPOINT_URL names a service that is not Amazon's, AWS_REGION its region"


def _one_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowFolder:
    """A folder on a file system of Arrow, for reading."""

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
            return cast(BinaryIO, self.system.open_input_file(self._path(name)))
        except OSError as error:
            raise _plain(error) from error

    def put_if_absent(self, name: str, content: Content) -> bool:
        """Always raises OSError: only the pipeline writes here."""
        raise OSError(errno.EROFS, "only the pipeline writes to a place of this kind", name)

    def delete(self, name: str) -> None:
        """Always raises OSError: only the pipeline writes here."""
        raise OSError(errno.EROFS, "only the pipeline writes to a place of this kind", name)

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}".rstrip("/")

    def _infos(self, below: str, *, recursive: bool) -> list[Any]:
        place = arrow_fs.FileSelector(self._path(below), recursive=recursive, allow_not_found=True)
        try:
            return list(self.system.get_file_info(place))
        except OSError as error:
            raise _plain(error) from error


class S3Folder:
    """A folder in a bucket: read with Arrow, written with conditional puts."""

    def __init__(self, *, bucket: str, prefix: str, where: str) -> None:
        self.where = where
        self._bucket = bucket
        self._prefix = prefix
        self._read: ArrowFolder | None = None
        self._client: Any = None

    def names(self, below: str = "") -> list[str]:
        """As :meth:`Folder.names`."""
        found = self._reader().names(below)
        return found or self._nothing()

    def files(self, below: str = "") -> list[FolderEntry]:
        """As :meth:`Folder.files`."""
        found = self._reader().files(below)
        return found or self._nothing()

    def open(self, name: str) -> BinaryIO:
        """As :meth:`Folder.open`."""
        return self._reader().open(name)

    def _nothing(self) -> list[Any]:
        """An empty list. Raises OSError if there is not even a bucket, which Arrow takes for an empty one."""
        try:
            there = self._reader().system.get_file_info(self._bucket)
        except OSError:
            return []  # A user who may list below a prefix need not see the bucket.
        if there.type == arrow_fs.FileType.NotFound:
            raise OSError(errno.ENXIO, "there is no such bucket")
        return []

    def put_if_absent(self, name: str, content: Content) -> bool:
        """As :meth:`Folder.put_if_absent`. After a lost answer the client repeats its request; its own first request
        then looks like another writer's, and the caller reads what is there."""
        put = self._writer().put_object
        try:
            with _as_os_errors():
                if isinstance(content, bytes):
                    put(Bucket=self._bucket, Key=self._key(name), Body=content, IfNoneMatch="*")
                else:
                    with content.open("rb") as body:
                        put(Bucket=self._bucket, Key=self._key(name), Body=body, IfNoneMatch="*")
        except FileExistsError:
            return False
        return True

    def delete(self, name: str) -> None:
        """As :meth:`Folder.delete`."""
        client = self._writer()
        with _as_os_errors():
            client.delete_object(Bucket=self._bucket, Key=self._key(name))

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}".lstrip("/")

    def _reader(self) -> ArrowFolder:
        if self._read is None:
            options = {"region": _region(), "endpoint_override": _endpoint()}
            system = arrow_fs.S3FileSystem(
                connect_timeout=CONNECT_S,
                retry_strategy=arrow_fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
                **{name: value for name, value in options.items() if value},
            )
            root = f"{self._bucket}/{self._prefix}".rstrip("/")
            self._read = ArrowFolder(system=system, root=root, where=self.where)
        return self._read

    def _writer(self) -> Any:
        if self._client is None:
            try:
                import boto3
                from botocore.config import Config
            except ImportError as error:
                fix = f"install it: {command_for('s3')}"
                raise StoreError("boto3 is needed to write to an object storage", self.where, fix) from error
            config = Config(connect_timeout=CONNECT_S, retries={"mode": "standard", "total_max_attempts": ATTEMPTS})
            # A session of its own: the default one keeps the credentials that it found first.
            self._client = boto3.Session().client("s3", region_name=_region(), endpoint_url=_endpoint(), config=config)
        return self._client


def _endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def _region() -> str | None:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Translates the exceptions of boto3."""
    from botocore import exceptions as aws

    try:
        yield
    except aws.ClientError as error:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        if status in (409, 412):
            raise FileExistsError(errno.EEXIST, "the name is taken") from error
        raise _of_service(error.response["Error"].get("Code", ""), str(error), status) from error
    except aws.NoCredentialsError as error:
        raise PermissionError(errno.EACCES, "there are no credentials") from error
    except (aws.ConnectionError, aws.HTTPClientError) as error:
        raise _of_service("NetworkConnection", str(error)) from error
    except aws.BotoCoreError as error:
        raise OSError(errno.EIO, str(error)) from error


def _plain(error: OSError) -> OSError:
    """The errors of Arrow's S3 client in the words of the service."""
    match = _AWS_ERROR.search(str(error))
    if isinstance(error, FileNotFoundError) or not match:
        return error
    return _of_service(match[1], _one_line(error), int(match[2] or 0))


def _of_service(code: str, text: str, status: int = 0) -> OSError:
    """An error of the service as OSError: by its code, as Arrow or boto3 writes the code, or by the status of HTTP."""
    word = code.replace("_", "").lower()
    if word == "nosuchbucket":
        return OSError(errno.ENXIO, "there is no such bucket")
    if word in ("invalidaccesskeyid", "signaturedoesnotmatch", "expiredtoken", "invalidclienttokenid"):
        return PermissionError(errno.EACCES, f"the service does not accept the credentials ({code})")
    if word in ("accessdenied", "forbidden", "403", "allaccessdisabled") or status in (401, 403):
        return PermissionError(errno.EACCES, "access denied by the service")
    if word == "networkconnection":
        return OSError(errno.EHOSTUNREACH, "the service does not answer")
    return OSError(errno.EIO, text)
