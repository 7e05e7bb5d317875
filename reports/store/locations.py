"""The place of a store for its three users: delta-rs, which commits; Arrow's file systems, which read and write Parquet
files; and people, who read its name in messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow.fs as arrow_fs

from reports.errors import StoreError
from reports.store.place_errors import plain_error
from reports.store.places import (
    ATTEMPTS,
    CONNECT_S,
    S3,
    advice,
    cause_of,
    check_scheme,
    endpoint,
    local_path,
    opened,
    region,
    scheme_of,
)

_DELTA_SCHEMES: Final = {"s3a": "s3"}
"""Schemes that delta-rs names in another way than Hadoop."""


@dataclass(frozen=True)
class StoreLocation:
    """A store's folder. ``where``: the path or URI as a person gave it. Goes to executors as it is."""

    where: str

    @property
    def is_local(self) -> bool:
        """Whether it is a directory of this machine."""
        return local_path(self.where) is not None

    @cached_property
    def uri(self) -> str:
        """The folder as delta-rs takes it."""
        if (path := local_path(self.where)) is not None:
            return str(path.absolute())
        scheme, colon, rest = self.where.rstrip("/").partition(":")
        return f"{_DELTA_SCHEMES.get(scheme.lower(), scheme)}{colon}{rest}"

    @cached_property
    def options(self) -> dict[str, str]:
        """The options of delta-rs, by the variables that the clients of AWS know. Commits on an object storage are
        conditional puts, which need no table of locks."""
        if scheme_of(self.where) not in S3:
            return {}
        service, area = endpoint() or "", region() or ""
        options = {"aws_endpoint": service, "aws_region": area or ("us-east-1" if service else "")}
        options["aws_allow_http"] = "true" if service.startswith("http:") else ""
        patience = {"connect_timeout": f"{CONNECT_S:.0f}s", "max_retries": str(ATTEMPTS)}
        return {"conditional_put": "etag", **patience, **{name: value for name, value in options.items() if value}}

    @cached_property
    def files(self) -> tuple[Any, str]:
        """The folder as Arrow takes it: a file system, and the path in it. Raises StoreError."""
        system, path = opened(self.where)
        return system, path.rstrip("/")

    def table(self, name: str) -> str:
        """The folder of a table as delta-rs takes it."""
        return f"{self.uri}/{name}"

    def system_of(self, name: str) -> arrow_fs.SubTreeFileSystem:
        """The file system whose root is the folder of a table."""
        system, path = self.files
        return arrow_fs.SubTreeFileSystem(f"{path}/{name}", system)

    def names(self) -> list[str]:
        """The names in the folder; none if there is no folder. Raises StoreError."""
        system, path = self.files
        try:
            found = system.get_file_info(arrow_fs.FileSelector(path, allow_not_found=True))
        except OSError as error:
            raise self.unreadable(plain_error(error, is_local=self.is_local)) from error
        return sorted(info.base_name for info in found)

    def unreadable(self, error: OSError) -> StoreError:
        """The error for people when the store cannot be read."""
        return StoreError(f"the store cannot be read: {cause_of(error)}", self.where, advice(self.where, error))

    def unwritable(self, error: OSError) -> StoreError:
        """The error for people when the store cannot be written."""
        fix = f"{advice(self.where, error)}, or choose another --store"
        return StoreError(f"the store cannot be written: {cause_of(error)}", self.where, fix)

    def __getstate__(self) -> Mapping[str, str]:
        return {"where": self.where}


Place = Path | str | StoreLocation
"""A path, a URI (file:, s3a:, s3:, gs:, abfs:, hdfs:), or a location."""


def location_of(place: Place) -> StoreLocation:
    """The store's folder at a path or URI.

    :raises StoreError: no such kind of place is known here, or the URI has credentials in it
    """
    if isinstance(place, StoreLocation):
        return place
    if (path := local_path(place)) is not None:
        return StoreLocation(str(path))
    check_scheme(str(place))
    return StoreLocation(str(place).rstrip("/"))
