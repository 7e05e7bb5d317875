"""What ``make bench`` asks of the generator, and how ``make profile`` shares out what the nodes did."""

from __future__ import annotations

import pytest

from tests.bench.generator import options
from tests.bench.profile import PARTS, Function, Spent, part_of

AMQP: Function = ("/x/reference_broker/amqp/fastpath.py", 95, "take")
RAFT: Function = ("/x/reference_broker/raft/core.py", 1, "ready")
FLUSH: Function = ("/x/reference_broker/node/links/peers.py", 162, "flush")
LEN: Function = ("~", 0, "<built-in method builtins.len>")
SYNC: Function = ("~", 0, "<built-in method posix.fdatasync>")


@pytest.mark.parametrize("arguments", [[], ["-c", 1, "-q", 1000], ["-u", "a,b", "-x", 2, "-r", 10]])
def test_no_option_is_given_twice(arguments: list[object]) -> None:
    """The first would count, and every load would be that of the defaults."""
    words = options(arguments)
    assert words[len(words) - len(arguments) :] == [str(each) for each in arguments]
    names = [word for word in words if word.startswith("-")]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (AMQP, "amqp"),
        (FLUSH, "sockets"),
        (("/x/reference_broker/node/shard.py", 1, "flush"), "node"),
        (("/x/reference_broker/message_run.py", 1, "decode"), "amqp"),
        (("/usr/lib/python3.11/asyncio/events.py", 1, "run"), "other"),
        (SYNC, "drive"),
        (LEN, None),
    ],
)
def test_a_function_belongs_to_a_part(function: Function, part: str | None) -> None:
    assert part_of(function) == part
    assert part in {*PARTS, None}


def test_what_is_built_in_counts_for_who_calls_it() -> None:
    """Rows of pstats: primitive calls, calls, own time, time with callees, callers."""
    spent = Spent.of(
        {
            AMQP: (10, 10, 1.0, 2.0, {}),
            RAFT: (5, 5, 0.5, 0.75, {}),
            LEN: (40, 40, 0.5, 0.5, {AMQP: (30, 30, 0.25, 0.25), RAFT: (10, 10, 0.25, 0.25)}),
            SYNC: (2, 2, 3.0, 3.0, {RAFT: (2, 2, 3.0, 3.0)}),
        }
    )
    assert dict(spent.seconds) == {"amqp": 1.25, "raft": 0.75, "drive": 3.0}
    assert dict(spent.calls) == {"amqp": 40, "raft": 15, "drive": 2}
