"""Classic queues on a drive of their own: a start on the wrong directory would silently forget confirmed messages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reference_broker.classic.store import was_used
from reference_broker.log.errors import ForeignDirectoryError
from reference_broker.log.opening import IDENTITY
from reference_broker.node.classic_place import MARK, claim
from reference_broker.node.config import ConfigError, NodeConfig, load
from reference_broker.storage.files import RealFiles
from tests.reference_broker.node.test_config_problems import GOOD

FILES = RealFiles()
PROFILE = {"latency_ns": 1000, "octets_per_second": 10**10}


def config(home: Path, classic: Path | None, **more: object) -> NodeConfig:
    """A node whose data directory has its identity, as the log leaves it."""
    data = home / "data"
    data.mkdir(parents=True, exist_ok=True)
    if not (data / IDENTITY).exists():
        (data / IDENTITY).write_text(f"cluster=c\nnode=1\nstore={home.name}\n")
    file = home / "node.json"
    place = {"classic_dir": str(classic)} if classic else {}
    file.write_text(json.dumps({**GOOD, "data_dir": str(data), **place, **more}))
    return load(file)


def used(directory: Path) -> Path:
    """As the store leaves a directory."""
    (directory / "durable").mkdir(parents=True)
    return directory


def refusal(asked: NodeConfig) -> list[str]:
    with pytest.raises(ForeignDirectoryError) as refused:
        claim(FILES, asked)
    return [line.strip() for line in str(refused.value).splitlines()]


def test_queues_below_the_data_leave_no_mark(tmp_path: Path) -> None:
    """Clusters from before can be started by a broker from before."""
    asked = config(tmp_path, None)
    assert asked.classic_dir == tmp_path / "data" / "classic" and not asked.is_classic_placed
    claim(FILES, asked)
    assert FILES.names(str(tmp_path / "data")) == [IDENTITY]


def test_a_directory_of_their_own_belongs_to_the_data_from_the_first_start_on(tmp_path: Path) -> None:
    asked = config(tmp_path, tmp_path / "own" / "deep")
    assert asked.is_classic_placed and asked.is_classic_apart
    for _start in range(2):
        claim(FILES, asked)
        identity = (tmp_path / "data" / IDENTITY).read_text()
        assert (tmp_path / "own" / "deep" / IDENTITY).read_text() == identity
        assert (tmp_path / "data" / MARK).exists()
    assert not was_used(FILES, str(asked.classic_dir)), "no store is opened for a mark"


def test_a_crash_between_the_two_marks_is_mended(tmp_path: Path) -> None:
    asked = config(tmp_path, tmp_path / "own")
    claim(FILES, asked)
    (tmp_path / "data" / MARK).unlink()
    claim(FILES, asked)
    assert (tmp_path / "data" / MARK).exists()


def test_a_modelled_drive_alone_needs_no_mark(tmp_path: Path) -> None:
    """Its files lie where they always did. The directory is there for who asks how much room it has."""
    drives = [{"name": "c", "profile": PROFILE, "roles": ["classic"]}]
    asked = config(tmp_path, None, drives=drives)
    assert asked.is_classic_placed and not asked.is_classic_apart
    claim(FILES, asked)
    assert FILES.names(str(tmp_path / "data")) == ["classic", IDENTITY]


def lose_drive(home: Path) -> Path:
    """As a drive that is not mounted."""
    shutil.rmtree(home / "own")
    return home / "own"


def leave_out(_home: Path) -> None:
    """As a node.json from before."""


def another(home: Path) -> Path:
    """The directory of another node, or of a former life of this one."""
    claim(FILES, config(home / "other", home / "theirs"))
    return home / "theirs"


@pytest.mark.parametrize(
    ("spoil", "holds", "advice"),
    [
        (lose_drive, "own: holds nothing; this node needs the classic queues", "is the drive of classic_dir mounted?"),
        (leave_out, "data/classic: holds nothing; this node needs the classic", "is the drive of classic_dir mounted?"),
        (another, "theirs: holds classic queues that belong to other data;", "name the directory that was used with"),
    ],
)  # fmt: skip
def test_a_directory_that_is_not_theirs_is_refused(
    tmp_path: Path, spoil: Callable[[Path], Path | None], holds: str, advice: str
) -> None:
    claim(FILES, config(tmp_path, tmp_path / "own"))
    first, where, what_to_do = refusal(config(tmp_path, spoil(tmp_path)))
    assert first == "the directory is not this node's"
    assert holds in where and what_to_do.startswith(advice)


@pytest.mark.parametrize(
    ("octets", "holds"), [(None, "no file 'identity'"), (b"", "other data"), (b"clus", "other data")]
)
def test_an_identity_that_is_damaged_costs_no_queue(tmp_path: Path, octets: bytes | None, holds: str) -> None:
    """The way out must be a copy of a small file, and not a directory without the queues."""
    asked = config(tmp_path, tmp_path / "own")
    claim(FILES, asked)
    (used(tmp_path / "own") / IDENTITY).unlink()
    if octets is not None:
        (tmp_path / "own" / IDENTITY).write_bytes(octets)
    _first, where, advice = refusal(asked)
    assert holds in where
    assert advice.startswith(f"if these are the queues of this node: copy {tmp_path / 'data' / IDENTITY} to ")
    shutil.copy(tmp_path / "data" / IDENTITY, tmp_path / "own" / IDENTITY)
    claim(FILES, asked)


def test_queues_that_lie_in_the_old_place_are_not_forgotten(tmp_path: Path) -> None:
    """They are found again once somebody has moved them, there and back."""
    former, own = used(tmp_path / "data" / "classic"), tmp_path / "own"
    _first, where, advice = refusal(config(tmp_path, own))
    assert where == f"{own}: holds nothing; this node needs the classic queues that lie in {former}"
    assert advice == f"move the content of {former} there, or leave classic_dir out"
    shutil.rmtree(own)
    shutil.move(former, own)
    claim(FILES, config(tmp_path, own))
    shutil.move(own, former)
    claim(FILES, config(tmp_path, None))
    assert was_used(FILES, str(former))


@pytest.mark.parametrize("other", ["data", "data/wal", "data/segments"])
def test_two_roles_do_not_share_a_directory(tmp_path: Path, other: str) -> None:
    with pytest.raises(ConfigError, match=r"classic_dir: .*: must differ from data_dir, wal_dir and segment_dir"):
        config(tmp_path, tmp_path / other)
