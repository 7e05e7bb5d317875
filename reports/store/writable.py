"""Whether a store can be written: a file is put, put again, and removed. Of two that put the same name, the second must
fail: on that all transactions rely, and a service that does not know it would lose runs of two reports at once.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from reports.errors import StoreError
from reports.store.locations import StoreLocation
from reports.store.place_errors import plain_error
from reports.store.places import CLOUDS, CONNECT_S, S3, scheme_of


def check_writable(location: StoreLocation) -> None:
    """:raises StoreError: the store cannot be written, or not safely by several"""
    name = f".writable-{secrets.token_hex(4)}"
    try:
        is_safe = _put_twice(location, name) if scheme_of(location.where) in (*S3, *CLOUDS) else _put(location, name)
    except (BaseError, OSError, ValueError) as error:
        raise location.unwritable(plain_error(error, is_local=location.is_local)) from error
    if not is_safe:
        what = "the place puts a file over another although it was asked not to: two reports at once would lose runs"
        fix = "choose a service with conditional puts (If-None-Match), or a local --store"
        raise StoreError(what, location.where, fix)


def _put(location: StoreLocation, name: str) -> bool:
    """A local disk and HDFS exclude each other's writers by links and renames."""
    system, path = location.files
    system.create_dir(path, recursive=True)
    system.open_output_stream(f"{path}/{name}").close()
    system.delete_file(f"{path}/{name}")
    return True


def _put_twice(location: StoreLocation, name: str) -> bool:
    config: Any = {key: value for key, value in location.options.items() if key in ("aws_endpoint", "aws_region")}
    client: Any = {"connect_timeout": f"{CONNECT_S:.0f}s"}
    if location.options.get("aws_allow_http"):
        client["allow_http"] = True
    store = obstore.store.from_url(location.uri, config=config or None, client_options=client, retry_config=_RETRIES)
    obstore.put(store, name, b"", mode="create")
    try:
        obstore.put(store, name, b"", mode="create")
    except (AlreadyExistsError, PreconditionError):
        return True
    finally:
        with suppress(BaseError):
            obstore.delete(store, name)
    return False


_RETRIES: Any = {"max_retries": 3}
