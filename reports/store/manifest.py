"""The manifest of a store, and how a publication makes it from the manifest before. Pure: no clock, no file, no chance.

A *batch* is a set of runs of one date and experiment whose rows lie in the same files, one file per table. The manifest
names the batches, and for every run the batch that holds its rows. Invariants:

- A manifest is written once, under its number, and never changed. The highest number is the store.
- The files of a batch are whole before a manifest names the batch, and never change.
- Rows of a run count only in the batch that the manifest names for the run: a batch may hold rows of runs that were
  reported again since. A batch without a run that counts is *dead*.
- The files of a dead batch stay for PUBLICATIONS_KEPT more publications and for READER_NS, so that a reader who began
  with an earlier manifest can finish.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

from reports.store.run_tables import LeftOut
from reports.store.schema import STORE_VERSION

PUBLICATIONS_KEPT: Final = 2
READER_NS: Final = 3600 * 10**9
"""Longest time that a reader may take, in nanoseconds. A reader that is slower starts again with the newest
manifest."""
ANCESTORS_KEPT: Final = 256
"""Ids of earlier manifests in a manifest: enough to see whether one's own publication is among them."""
BATCHES_OF_A_SIZE: Final = 16
"""Batches of one date, experiment and size class that are left as they are; with one more, they become one batch."""
FILE_BYTES: Final = 128 * 1024 * 1024
"""Octets of the largest file of a batch at which the batch takes no more runs."""
NAME_BYTES: Final = 120
"""Longest name of an experiment in a path, escaped; a longer name is cut and gets a digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """Runs of one date and experiment in the same files. ``runs``: runs that were written; ``octets``: size of the
    file of each table that has rows."""

    id: str
    date: str
    experiment: str
    runs: int
    octets: Mapping[str, int]

    def file(self, table: str) -> str:
        """The name of the file with the rows of a table."""
        return f"{TABLES_FOLDER}/{table}/date={self.date}/experiment={escaped(self.experiment)}/{self.id}.parquet"

    @property
    def files(self) -> list[str]:
        """The names of all files."""
        return [self.file(table) for table in self.octets]


TABLES_FOLDER: Final = "tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run whose rows are in the store. ``batch`` is the id of its batch; ``started_ns`` is Unix time."""

    run_id: str
    started_ns: int
    source: str
    signature: str
    batch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadBatch:
    """A batch that nothing names since publication ``number``, at Unix time ``died_ns``."""

    batch: StoredBatch
    number: int
    died_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreManifest:
    """The content of a store after publication ``number``; number 0 is a store without a publication.

    ``left_out``: run directories that could not be reported, by source. A run that was reported before its directory
    was damaged stays in ``runs``, too.
    """

    number: int = 0
    id: str = ""
    published_ns: int = 0
    ancestors: tuple[str, ...] = ()
    batches: Mapping[str, StoredBatch] = field(default_factory=dict)
    runs: Mapping[str, StoredRun] = field(default_factory=dict)
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    dead: tuple[DeadBatch, ...] = ()

    @property
    def known(self) -> dict[str, str]:
        """The signature of every source, reported or left out."""
        reported = {run.source: run.signature for run in self.runs.values()}
        return reported | {source: each.signature for source, each in self.left_out.items()}

    def runs_of(self, run_ids: Sequence[str]) -> dict[str, list[str]]:
        """These runs by the ids of their batches."""
        found: dict[str, list[str]] = defaultdict(list)
        for run_id in run_ids:
            found[self.runs[run_id].batch].append(run_id)
        return dict(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChange:
    """The additions of one publication. ``moved``: runs whose rows were copied, each with its former batch; such a run
    counts in its new batch only if it has not been reported again meanwhile."""

    batches: tuple[StoredBatch, ...] = ()
    runs: tuple[StoredRun, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    moved: tuple[tuple[StoredRun, str], ...] = ()


def after(base: StoreManifest, change: StoreChange, *, id: str, now_ns: int) -> StoreManifest:  # noqa: A002 - its name in JSON
    """The manifest that follows ``base`` when ``change`` is published at ``now_ns`` (Unix time)."""
    number = base.number + 1
    runs = dict(base.runs) | {run.run_id: run for run in change.runs}
    for run, before in change.moved:
        if run.run_id in runs and runs[run.run_id].batch == before:
            runs[run.run_id] = run
    named = {run.batch for run in runs.values()}
    batches = dict(base.batches) | {batch.id: batch for batch in change.batches}
    died = [DeadBatch(batch=each, number=number, died_ns=now_ns) for each in batches.values() if each.id not in named]
    taken_in = {run.source for run in change.runs}
    left_out = {source: each for source, each in base.left_out.items() if source not in taken_in}
    return StoreManifest(
        number=number,
        id=id,
        published_ns=now_ns,
        ancestors=(*base.ancestors, *([base.id] if base.id else []))[-ANCESTORS_KEPT:],
        batches={each: batches[each] for each in batches if each in named},
        runs=runs,
        left_out=left_out | {each.source: each for each in change.left_out},
        dead=(*(each for each in base.dead if not _may_go(each, number, now_ns)), *died),
    )


def to_remove(base: StoreManifest, number: int, now_ns: int) -> list[str]:
    """The files that publication ``number``, at ``now_ns``, may remove: the files of batches that died long enough
    ago."""
    return [name for each in base.dead if _may_go(each, number, now_ns) for name in each.batch.files]


def _may_go(dead: DeadBatch, number: int, now_ns: int) -> bool:
    return number - dead.number >= PUBLICATIONS_KEPT and now_ns - dead.died_ns >= READER_NS


def compaction(manifest: StoreManifest) -> list[tuple[StoredBatch, ...]]:
    """The batches to write anew, each group as one batch: batches of one date, experiment and size class (a factor of
    four), once there are more than BATCHES_OF_A_SIZE of them. A row is copied once per size class at most."""
    alike: dict[tuple[str, str, int], list[StoredBatch]] = defaultdict(list)
    for batch in manifest.batches.values():
        largest = max(batch.octets.values(), default=0)
        if largest < FILE_BYTES // 2:
            alike[batch.date, batch.experiment, largest.bit_length() // 2].append(batch)
    many = [batches for batches in alike.values() if len(batches) > BATCHES_OF_A_SIZE]
    return [group for batches in many for group in _groups(batches) if len(group) > 1]


def _groups(batches: Sequence[StoredBatch]) -> Iterator[tuple[StoredBatch, ...]]:
    """Batches in their order, together until the largest file of a group would exceed FILE_BYTES."""
    group: list[StoredBatch] = []
    octets: dict[str, int] = defaultdict(int)
    for batch in batches:
        if group and max((octets[table] + size for table, size in batch.octets.items()), default=0) > FILE_BYTES:
            yield tuple(group)
            group, octets = [], defaultdict(int)
        group.append(batch)
        for table, size in batch.octets.items():
            octets[table] += size
    yield tuple(group)


def escaped(experiment: str) -> str:
    """The name of an experiment as part of a path: percent-encoded as Hive partitions are; two names never become
    one."""
    name = quote(experiment, safe="")
    if len(name) > NAME_BYTES:
        name = f"{name[:NAME_BYTES]}~{sha256(experiment.encode()).hexdigest()[:16]}"
    return name or "__HIVE_DEFAULT_PARTITION__"


def encode(manifest: StoreManifest) -> bytes:
    """The octets of a manifest: compact JSON with a list per batch and run, because thousands of runs are usual."""
    kept = (*manifest.batches.values(), *(each.batch for each in manifest.dead))
    tables = list(dict.fromkeys(table for batch in kept for table in batch.octets))
    at = {batch: number for number, batch in enumerate(manifest.batches)}

    def record(batch: StoredBatch) -> list[object]:
        return [batch.id, batch.date, batch.experiment, batch.runs, [batch.octets.get(table, 0) for table in tables]]

    content = {
        "version": STORE_VERSION,
        "number": manifest.number,
        "id": manifest.id,
        "published_ns": manifest.published_ns,
        "ancestors": manifest.ancestors,
        "tables": tables,
        "batches": [record(batch) for batch in manifest.batches.values()],
        "runs": [[r.run_id, r.started_ns, r.source, r.signature, at[r.batch]] for r in manifest.runs.values()],
        "left_out": [[each.source, each.signature, each.reason] for each in manifest.left_out.values()],
        "dead": [[record(each.batch), each.number, each.died_ns] for each in manifest.dead],
    }
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


class NotAManifestError(ValueError):
    """The octets are no manifest of this version; ``version`` is the version they state, if any."""

    def __init__(self, problem: str, version: object = None) -> None:
        super().__init__(problem)
        self.version = version


def decode(octets: bytes) -> StoreManifest:
    """The manifest that :func:`encode` wrote.

    :raises NotAManifestError: damaged, or of another version
    """
    try:
        content = json.loads(octets)
    except (ValueError, RecursionError) as error:
        raise NotAManifestError(f"not JSON: {error}") from error
    version = content.get("version") if isinstance(content, dict) else None
    if version != STORE_VERSION:
        raise NotAManifestError(f"version {version!r}", version)
    try:
        return _decoded(content)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise NotAManifestError(f"the content is damaged: {error!r}", version) from error


def _decoded(content: dict[str, Any]) -> StoreManifest:
    tables = [str(name) for name in content["tables"]]

    def batch_of(record: Sequence[Any]) -> StoredBatch:
        ident, date, experiment, runs, sizes = record
        octets = {table: int(size) for table, size in zip(tables, sizes, strict=True) if size}
        return StoredBatch(id=str(ident), date=str(date), experiment=str(experiment), runs=int(runs), octets=octets)

    batches = [batch_of(record) for record in content["batches"]]
    names = [batch.id for batch in batches]
    runs = {
        run_id: StoredRun(run_id=run_id, started_ns=started, source=source, signature=signature, batch=names[at])
        for run_id, started, source, signature, at in content["runs"]
    }
    left_out = {
        source: LeftOut(source=source, signature=signature, reason=reason)
        for source, signature, reason in content["left_out"]
    }
    dead = [DeadBatch(batch=batch_of(record), number=number, died_ns=died) for record, number, died in content["dead"]]
    return StoreManifest(
        number=int(content["number"]),
        id=str(content["id"]),
        published_ns=int(content["published_ns"]),
        ancestors=tuple(map(str, content["ancestors"])),
        batches=dict(zip(names, batches, strict=True)),
        runs=runs,
        left_out=left_out,
        dead=tuple(dead),
    )
