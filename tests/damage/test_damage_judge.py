"""The judge of the damages: a checker that finds nothing because it looks at nothing would pass every campaign."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.damage.books import QUEUES, Book, Found, problems
from tests.damage.cases import Case, Damage, case
from tests.damage.files import DAMAGES, end_of_data, following, targets
from tests.damage.templates import KINDS
from tests.damage.trial import Result, Start, Verdict, judged

FILE = "node2/wal/00000003.wal"
KEPT = range(10)
EVERYTHING = {queue.name: list(KEPT) for queue in QUEUES}


def verdict(
    came: dict[str, list[int]], *, said: str = "", nodes: tuple[str, ...] = ("node2",), failed: bool = False
) -> Verdict:
    """The worst verdict when these numbers came out of the queues, and all of them are served."""
    does_nothing = not nodes
    it = Case(1, 1, KINDS[1], nodes, (), does_nothing)
    damage = Damage("wal newest", "cut", {} if does_nothing else {FILE: "cut"})
    result = Result(it, damage, Verdict.KEPT, 0.0, [said] if said else [])
    books = {queue.name: Book(queue, sent=len(KEPT), confirmed=set(KEPT)) for queue in QUEUES}
    found = {name: Found(name, numbers, [False] * len(numbers), is_served=True) for name, numbers in came.items()}
    start = Start(result.said, failed, is_hung=False, running=["node1", "node2", "node3"])
    return Verdict.worst(judged(result, books, start, found))


@pytest.mark.parametrize(
    ("lost", "said", "nodes", "failed", "expected"),
    [
        ((), "", ("node2",), False, Verdict.KEPT),
        ((), "node2: entries were lost", ("node2",), False, Verdict.KEPT_AND_SAID),
        ((), "node2 ended while it started", ("node2",), True, Verdict.REFUSED),
        ((), "node2: entries were lost", (), False, Verdict.FALSE_ALARM),
        ((), "node2 ended while it started", (), True, Verdict.UNAVAILABLE),
        (("quorum1",), "", ("node2",), False, Verdict.LOST_SILENTLY),
        (("quorum1",), "it is a nice day", ("node2",), False, Verdict.LOST_SILENTLY),
        (("quorum1",), "node2: entries were lost", ("node2",), False, Verdict.LOST_WITH_MAJORITY),
        (("quorum1",), "node2: entries were lost", ("node1", "node2"), False, Verdict.LOST_ALOUD),
        (("classic2",), "", ("node2",), False, Verdict.LOST_SILENTLY),
        (("classic2",), "00000003.wal is damaged", ("node2",), False, Verdict.LOST_ALOUD),
        (("classic1",), "node2: messages were lost", ("node2",), False, Verdict.LOST_WITH_MAJORITY),
    ],
)
def test_what_is_lost_and_what_is_said_make_the_verdict(
    lost: tuple[str, ...], said: str, nodes: tuple[str, ...], failed: bool, expected: Verdict
) -> None:
    came = EVERYTHING | {name: list(KEPT)[:-1] for name in lost}
    assert verdict(came, said=said, nodes=nodes, failed=failed) is expected


def test_a_queue_that_does_not_answer_is_seen() -> None:
    assert verdict({name: came for name, came in EVERYTHING.items() if name != "classic3"}) is Verdict.HUNG
    assert verdict({name: came for name, came in EVERYTHING.items() if name != "quorum2"}) is Verdict.UNAVAILABLE


def test_what_no_queue_may_do_is_seen() -> None:
    assert verdict(EVERYTHING | {"quorum1": [*KEPT, 9]}) is Verdict.WRONG
    book = Book(QUEUES[0], sent=3)
    found = Found("quorum1", [0, 2, 1, 1, 7], [False, False, False, True, False])
    assert problems(book, found) == [
        "quorum1 delivered message 1 behind 2",
        "quorum1 delivered message 7, which nobody sent",
    ]


def test_the_list_of_cases_is_the_same_each_time_and_has_everything() -> None:
    cases = [case(3, number) for number in range(400)]
    assert cases == [case(3, number) for number in range(400)] != [case(4, number) for number in range(400)]
    assert {each.kind for each in cases} == set(KINDS)
    assert {len(each.nodes) for each in cases} == {0, 1, 2, 3}
    assert any(each.does_nothing for each in cases) and {bool(each.order) for each in cases} == {True, False}


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_changes_what_lies_there(name: str, tmp_path: Path) -> None:
    path, older = tmp_path / "00000007.meta", tmp_path / "older"
    octets = bytes(range(1, 256)) * 40
    path.write_bytes(octets + bytes(5000))
    older.write_bytes(octets)
    assert DAMAGES[name](path, older, random.Random(5))
    changed = tmp_path / "00000008.meta" if name == "duplicate" else path
    assert not changed.exists() or name == "duplicate" or changed.read_bytes() != octets + bytes(5000)
    assert name != "duplicate" or changed.read_bytes() == path.read_bytes()


def test_files_are_classed_by_their_names(tmp_path: Path) -> None:
    for name in (
        "wal/00000001.wal",
        "data/classic/durable/0123456789abcdef/00000001.qi",
        "data/lives",
        "data/new.thing",
    ):
        path = tmp_path / "node1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    found = {target.path: target.kind for target in targets(tmp_path, "node1")}
    assert found["node1/wal/00000001.wal"] == "wal newest"
    assert found["node1/data/classic/durable/0123456789abcdef/00000001.qi"] == "classic index"
    assert found["node1/data/lives"] == "lives" and found["node1/data/new.thing"] == "new.thing"
    assert found["node1/wal"] == "wal folder"


def test_the_end_of_a_wal_file_is_that_of_its_last_batch(tmp_path: Path) -> None:
    """Behind it lie batches of a former use of the file, with another mark."""

    def batch(mark: bytes, payload: int) -> bytes:
        octets = mark + bytes(8) + payload.to_bytes(8, "big") + (1).to_bytes(4, "big") + bytes(8 + 36) + b"x" * payload
        return octets.ljust(-len(octets) // 512 * -512, b"o")

    path = tmp_path / "00000001.wal"
    path.write_bytes(
        b"QWAL".ljust(512, b"\0") + batch(b"new mark", 600) + batch(b"new mark", 9) + batch(b"old mark", 7)
    )
    assert end_of_data(path) == 512 + 1024 + 72 + 9


def test_the_next_name_keeps_its_width() -> None:
    assert following(Path("00000009.wal")) == Path("00000010.wal")
    assert following(Path("identity")) is None
