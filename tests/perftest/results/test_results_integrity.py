"""Damage in a run directory: a file that changed after the run must never pass for what the run measured."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from perftest.results import schema
from perftest.results.errors import NotARunError
from perftest.results.integrity import CHECKSUM, FILES, Damages, Sum
from perftest.results.reader import judged_run, read_manifest, read_run, trust_of
from tests.perftest.testing.earlier_run import forget_checksums

BESIDE = sorted({*schema.BESIDE_MANIFEST} - {schema.CLOCKS, schema.STATED})
"""The files that every finished run on one host has beside its manifest."""


def flip(path: Path, rng: random.Random) -> None:
    """Turn one bit."""
    octets = bytearray(path.read_bytes())
    octets[rng.randrange(len(octets))] ^= 1 << rng.randrange(8)
    path.write_bytes(octets)


DAMAGE: dict[str, Callable[[Path, random.Random], None]] = {
    "flip": flip,
    "cut": lambda path, rng: path.write_bytes(path.read_bytes()[: rng.randrange(1, path.stat().st_size)]) and None,
    "empty": lambda path, rng: path.write_bytes(b"") and None,
    "missing": lambda path, rng: path.unlink(),
    "longer": lambda path, rng: path.write_bytes(path.read_bytes() * 2) and None,
}


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_parts_join_to_the_sum_of_the_whole(seed: int) -> None:
    """Spark reads a large file in parts, and in no order."""
    rng = random.Random(seed)
    content = rng.randbytes(rng.randrange(5000))
    at = rng.randrange(len(content) + 1)
    one, other = (Sum().plus(part) for part in (content[:at], content[at:]))
    assert one.joined(other) == one.plus(content[at:]) == Sum().plus(content), seed


def test_a_finished_run_has_the_checksums_of_all_its_files(tmp_path: Path, records: ModuleType) -> None:
    path = records.write_run(tmp_path).path
    manifest = read_manifest(path)
    assert sorted(manifest[FILES]) == BESIDE == sorted(each.name for each in path.iterdir() if each.stem != "manifest")
    assert {name: told["octets"] for name, told in manifest[FILES].items()} == {
        name: (path / name).stat().st_size for name in BESIDE
    }
    assert read_run(path).damaged == []


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("name", BESIDE)
def test_every_damage_to_a_file_is_named(tmp_path: Path, records: ModuleType, name: str, how: str) -> None:
    """And what is left is used: the figures of the result are those of before."""
    path = records.write_run(tmp_path).path
    rows = (judged_run(read_run(path)).result or {})["steps"]
    DAMAGE[how](path / name, random.Random(f"{name} {how}"))
    run = judged_run(read_run(path))
    assert list(run.damages.files) == [name]
    assert run.result is not None and run.result["steps"] == rows
    (check,) = (each for each in trust_of(run) if each.check == "damaged_records")
    assert check.status == "warn" and f"{name} {run.damages.files[name]}" in check.text


def test_one_turned_bit_of_the_manifest_is_named_or_refused(tmp_path: Path, records: ModuleType) -> None:
    """The manifest says what was measured, and what the other files were: it vouches for itself, too."""
    path = records.write_run(tmp_path).path / schema.MANIFEST
    sound = path.read_bytes()
    for seed in range(200):
        path.write_bytes(sound)
        flip(path, random.Random(seed))
        try:
            assert schema.MANIFEST in read_run(path.parent).damages.files, seed
        except NotARunError as error:
            assert schema.MANIFEST in f"{error.what} {error.where}", seed


@pytest.mark.parametrize("lost", [FILES, CHECKSUM])
def test_a_manifest_that_lost_a_key_of_its_checksums_is_no_manifest_of_an_earlier_version(
    tmp_path: Path, records: ModuleType, lost: str
) -> None:
    path = records.write_run(tmp_path).path / schema.MANIFEST
    path.write_text(path.read_text().replace(f'"{lost}"', '"lost"'))
    assert schema.MANIFEST in read_run(path.parent).damages.files


def test_a_run_of_an_earlier_version_is_not_checked(tmp_path: Path, records: ModuleType) -> None:
    """Its manifest has no checksums: nobody can say what its files were."""
    path = records.write_run(tmp_path).path
    forget_checksums(path)
    (path / schema.INTERVALS_PARQUET).unlink()
    assert read_run(path).damaged == []


def test_a_killed_run_is_not_checked_but_for_its_manifest(tmp_path: Path, records: ModuleType) -> None:
    path = records.write_run(tmp_path, finish=False).path
    assert read_run(path).damaged == []
    plain = json.loads((path / schema.MANIFEST).read_text())
    (path / schema.MANIFEST).write_text(json.dumps(plain | {"started_ns": 7}))
    assert read_run(path).damages == Damages(files={schema.MANIFEST: "has changed since the run wrote it"})
