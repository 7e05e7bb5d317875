"""Publishing in a store: numbered manifests in a folder, without locks and without renames.

::

    manifests/00000042.json     the store after publication 42

A writer reads the manifest with the highest number, computes the next one, and puts it under the next number if that
number is free. If another writer was faster, this writer reads the other's manifest and tries again. So two writers at
once both land, one after the other, and a reader sees one manifest or the next.

Old manifests are removed. A writer that was stopped for long could therefore put its manifest under a number that was
taken and removed. So a writer looks at the newest manifest afterwards: the newest manifest is the writer's own or names
it as an ancestor, or the writer takes its manifest back and tries again.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from perftest.results.folder import Folder
from reports.errors import StoreError
from reports.store.manifest import NotAManifestError, StoreChange, StoreManifest, after, decode, encode, to_remove
from reports.store.places import advice, cause_of
from reports.store.schema import STORE_VERSION

MANIFESTS: Final = "manifests"
OLD_MANIFEST: Final = "manifest.json"
"""Name of the only manifest of stores up to version 4."""
TRIES: Final = 100
"""Most attempts to publish. Each lost attempt means that another writer has published."""
MANIFESTS_KEPT: Final = 8
"""The newest manifests that stay; a reader who lists the manifests and finds its choice gone lists them again."""
_NUMBER: Final = re.compile(r"(\d{8,})\.json")

REMAKE: Final = "remove the store, or choose another place, and make the report again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The inputs of a commit besides its folder: the time (Unix, nanoseconds) and an id that no other commit has."""

    now_ns: Callable[[], int] = time.time_ns
    new_id: Callable[[], str] = lambda: secrets.token_hex(4)


def manifest_name(number: int) -> str:
    """The name of a manifest in its store."""
    return f"{MANIFESTS}/{number:08d}.json"


def latest(store: Folder) -> StoreManifest | None:
    """The newest manifest; None if nothing was published.

    :raises StoreError: the store cannot be read, is damaged, or is of another version
    """
    for _ in range(TRIES):
        try:
            numbers = _numbers(store)
            if not numbers:
                _refuse_old(store)
                return None
            with store.open(manifest_name(numbers[-1])) as file:
                return _checked(file.read(), f"{store.where}/{manifest_name(numbers[-1])}")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unreadable(store, error) from error
    raise StoreError("the newest manifest vanishes again and again", f"{store.where}/{MANIFESTS}", "try again")


def commit(store: Folder, change: StoreChange, surroundings: Surroundings | None = None) -> StoreManifest:
    """Publish a change whose files are in the store, and remove what no reader can be reading; the new manifest.

    :raises StoreError: the store cannot be read or written, or other writers were faster TRIES times
    """
    around = surroundings or Surroundings()
    for _ in range(TRIES):
        base = latest(store) or StoreManifest()
        made = after(base, change, id=around.new_id(), now_ns=around.now_ns())
        try:
            landed = store.put_if_absent(manifest_name(made.number), encode(made)) and _is_the_store(store, made)
        except OSError as error:
            raise unwritable(store, error) from error
        if landed:
            _remove(store, to_remove(base, made.number, made.published_ns), made.number)
            return made
    raise StoreError(
        f"other writers published {TRIES} times while this one tried to",
        store.where,
        "let fewer writers publish at once, and try again",
    )


def unreadable(store: Folder, error: OSError) -> StoreError:
    """The error for people when a place cannot be read."""
    return StoreError(f"the store cannot be read: {cause_of(error)}", store.where, advice(store.where, error))


def unwritable(store: Folder, error: OSError) -> StoreError:
    """The error for people when a place cannot be written."""
    fix = f"{advice(store.where, error)}, or choose another --store"
    return StoreError(f"the store cannot be written: {cause_of(error)}", store.where, fix)


def _numbers(store: Folder) -> list[int]:
    matches = (_NUMBER.fullmatch(name) for name in store.names(MANIFESTS))
    return sorted(int(match[1]) for match in matches if match)


def _refuse_old(store: Folder) -> None:
    if OLD_MANIFEST in store.names():
        raise _other_version(store.where, "version 4 or older", f"{store.where}/{OLD_MANIFEST}")


def _other_version(where: str, which: str, at: str) -> StoreError:
    return StoreError(
        f"the store is of {which}, which is not known here",
        f"{at or where}: version",
        f"this tool knows version {STORE_VERSION}: {REMAKE}; a newer store needs a newer perftest",
    )


def _checked(octets: bytes, where: str) -> StoreManifest:
    try:
        return decode(octets)
    except NotAManifestError as error:
        if error.version not in (None, STORE_VERSION):
            raise _other_version(where, f"version {error.version!r}", where) from error
        raise StoreError(f"the manifest of the store is damaged: {error}", where, REMAKE) from error


def _is_the_store(store: Folder, made: StoreManifest) -> bool:
    """Whether the manifest that was just put is the newest or an ancestor of the newest; takes it back otherwise."""
    newest = latest(store)
    if newest is not None and made.id in (newest.id, *newest.ancestors):
        return True
    store.delete(manifest_name(made.number))
    return False


def _remove(store: Folder, files: list[str], number: int) -> None:
    """Remove files and manifests that are no longer needed. The publication stands whether or not this works: what
    stays is removed by a later publication, or by the sweep of files that nothing names."""
    try:
        old = [manifest_name(each) for each in _numbers(store) if each <= number - MANIFESTS_KEPT]
        for name in (*files, *old):
            store.delete(name)
    except OSError:
        return
