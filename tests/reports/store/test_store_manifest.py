"""The manifest as octets, and which files become one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.store import manifest
from reports.store.manifest import (
    DeadBatch,
    NotAManifestError,
    StoreChange,
    StoredBatch,
    StoredRun,
    StoreManifest,
    after,
    compaction,
    decode,
    encode,
)
from reports.store.run_tables import LeftOut

texts = st.text(max_size=8)
whole = st.integers(0, 2**62)


@st.composite
def batches(draw: st.DrawFn, ident: str = "") -> StoredBatch:
    octets = draw(st.dictionaries(st.sampled_from(["runs", "steps", "ledger"]), st.integers(1, 2**40)))
    return StoredBatch(
        id=ident or draw(texts), date="2026-11-25", experiment=draw(texts), runs=draw(st.integers(0, 9)), octets=octets
    )


@st.composite
def manifests(draw: st.DrawFn) -> StoreManifest:
    living = {name: draw(batches(name)) for name in draw(st.sets(texts.filter(bool), min_size=1, max_size=4))}
    runs = {
        run_id: StoredRun(
            run_id=run_id,
            started_ns=draw(whole),
            source=draw(texts),
            signature=draw(texts),
            batch=draw(st.sampled_from(sorted(living))),
        )
        for run_id in draw(st.sets(texts, max_size=5))
    }
    left_out = {
        source: LeftOut(source=source, signature=draw(texts), reason=draw(texts)) for source in draw(st.sets(texts))
    }
    dead = tuple(DeadBatch(batch=draw(batches()), number=draw(whole), died_ns=draw(whole)) for _ in range(2))
    ancestors = tuple(draw(st.lists(texts, max_size=3)))
    return StoreManifest(
        number=draw(whole),
        id=draw(texts),
        published_ns=draw(whole),
        ancestors=ancestors,
        batches=living,
        runs=runs,
        left_out=left_out,
        dead=dead,
    )


@given(manifests())
def test_a_manifest_reads_back_as_it_was_written(made: StoreManifest) -> None:
    """Names of plans and paths of runs are texts of any kind."""
    assert decode(encode(made)) == made


def small_manifest() -> StoreManifest:
    run = StoredRun(run_id="a", started_ns=1, source="runs/a", signature="s", batch="b")
    batch = StoredBatch(id="b", date="2026-11-25", experiment="x", runs=1, octets={"runs": 7})
    left_out = (LeftOut(source="runs/b", signature="t", reason="it is empty"),)
    return after(StoreManifest(), StoreChange(batches=(batch,), runs=(run,), left_out=left_out), id="m", now_ns=5)


def test_a_manifest_that_was_cut_is_damaged_wherever_it_was_cut() -> None:
    """Half a manifest must not be taken for a small store."""
    octets = encode(small_manifest())
    for end in range(len(octets)):
        with pytest.raises(NotAManifestError):
            decode(octets[:end])


@pytest.mark.parametrize("key", list(json.loads(encode(small_manifest()))))
@pytest.mark.parametrize("value", [None, "no", -1, [[]], {}])
def test_a_manifest_with_a_strange_part_is_damaged_or_read(key: str, value: object) -> None:
    """Never an error of another kind."""
    content = json.loads(encode(small_manifest())) | {key: value}
    try:
        decode(json.dumps(content).encode())
    except NotAManifestError:
        return


def of_sizes(*sizes: int, experiment: str = "x") -> StoreManifest:
    made = [
        StoredBatch(
            id=f"{experiment}{at:03}", date="2026-11-25", experiment=experiment, runs=1, octets={"runs": size, "t": 1}
        )
        for at, size in enumerate(sizes)
    ]
    return StoreManifest(batches={batch.id: batch for batch in made})


def test_few_small_batches_stay_as_they_are() -> None:
    """Each publication would otherwise copy the store."""
    assert compaction(of_sizes(*[1000] * manifest.BATCHES_OF_A_SIZE)) == []
    assert compaction(of_sizes(*[4**size for size in range(13)] * 2)) == []


def test_many_small_batches_become_one() -> None:
    """With one more than may stay."""
    (group,) = compaction(of_sizes(*[1000] * (manifest.BATCHES_OF_A_SIZE + 1), 10**6))
    assert len(group) == manifest.BATCHES_OF_A_SIZE + 1 and all(batch.octets["runs"] == 1000 for batch in group)


def test_batches_of_two_experiments_stay_apart() -> None:
    """A file holds one date and experiment."""
    both = of_sizes(*[1000] * 16).batches | of_sizes(*[1000] * 16, experiment="y").batches
    assert compaction(StoreManifest(batches=both)) == []


def test_batches_become_no_larger_than_files_should_be() -> None:
    """And large files are not written again."""
    size = manifest.FILE_BYTES // 4
    groups = compaction(of_sizes(*[size] * 17, *[manifest.FILE_BYTES] * 20))
    assert [len(group) for group in groups] == [4, 4, 4, 4]


@given(st.lists(st.integers(100, 3_000_000), min_size=1, max_size=250))
def test_the_number_of_batches_stays_small_and_octets_are_copied_seldom(sizes: list[int]) -> None:
    """Over many publications of one run each, batches grow as the logarithm of what was written, and so do copies."""
    living: dict[str, int] = {}
    copied = 0
    for at, size in enumerate(sizes):
        living[f"x{at:04}"] = size
        made = {
            name: StoredBatch(id=name, date="d", experiment="x", runs=1, octets={"runs": octets})
            for name, octets in living.items()
        }
        for group in compaction(StoreManifest(batches=made)):
            total = sum(living.pop(batch.id) for batch in group)
            copied += total
            living[f"y{at:04}"] = total
    assert len(living) <= manifest.BATCHES_OF_A_SIZE * 9 and sum(living.values()) == sum(sizes)
    assert copied <= 5 * sum(sizes)
