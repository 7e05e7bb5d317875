"""The material of messages and schedules, which is read from files or drawn: each once in a process."""

from __future__ import annotations

import json
import random
import string
from functools import lru_cache
from itertools import count as count_from
from pathlib import Path
from typing import Final

from perftest.amqp.content import header_frame
from perftest.amqp.encode import Documents
from perftest.amqp.errors import AmqpError
from perftest.engine.schedule.arrivals import ArrivalTimes as ArrivalPositions
from perftest.engine.schedule.arrivals import FixedArrivals, PoissonArrivals, TraceArrivals
from perftest.spec.behaviour import Argument, Arrivals, Bodies, Publishing
from perftest.spec.plan import Plan
from perftest.spec.trace import Offsets, TraceFileError, read_trace

JSON_TYPE: Final = "application/json"
ARRIVALS: Final = 0
KEYS: Final = 1
"""Parts of a seed, so that the arrivals and the routing keys of a publisher are independent."""

_WORD_OCTETS: Final = (3, 12)
_FIELD_OCTETS: Final = 8
"""Length of the shortest field, which limits the number of fields that fit."""
_PAD: Final = b',"_":""'
"""Field that fills up the last octets, without its letters."""


class MaterialError(AmqpError):
    """A file that publishers need cannot be used."""

    def __init__(self, what: str, *, where: str, fix: str) -> None:
        super().__init__(what)
        self.where = where
        self.fix = fix


def prepare(plan: Plan) -> None:
    """Read every file, write every property, draw every document. Large files and documents take seconds, in which no
    connection would be served later. Raises :class:`MaterialError` for the first that cannot be used."""
    publishing = plan.publishing
    if publishing.arrivals is Arrivals.TRACE:
        trace(publishing.trace)
    if publishing.bodies.files:
        _files(publishing.bodies.files)
    cycle = [int(size) for size, _ in publishing.size_cycle]
    for size in cycle or sorted({step.settings.size_bytes for step in plan.steps}):
        documents(publishing.bodies, size=size, seed=plan.seed)
    try:
        header_frame(1, body_size=0, properties=publishing.properties)
    except ValueError as error:
        fix = "see the properties that AMQP knows: priority is 0 to 255, texts have at most 255 octets"
        raise MaterialError(str(error), where="message properties", fix=fix) from error


def own_rate(publishing: Publishing) -> float | None:
    """Messages per second of publishers without a rate: the rate of a trace; None for a closed loop."""
    return trace(publishing.trace).rate if publishing.arrivals is Arrivals.TRACE else None


def arrivals(publishing: Publishing, *, seed: int, publisher: int) -> ArrivalPositions:
    """The arrivals of a publisher. The same seed gives the same arrivals."""
    match publishing.arrivals:
        case Arrivals.POISSON:
            return PoissonArrivals(seed, publisher, ARRIVALS)
        case Arrivals.TRACE:
            return TraceArrivals(trace(publishing.trace))
    return FixedArrivals()


def trace(path: str) -> Offsets:
    """The arrivals of a trace file. Raises :class:`MaterialError`."""
    try:
        return read_trace(path)
    except TraceFileError as error:
        raise MaterialError(error.what, where=error.where, fix=error.fix) from error


def documents(bodies: Bodies, *, size: int, seed: int) -> Documents | None:
    """The bodies of all publishers; None if bodies are stamp and filler. Raises :class:`MaterialError`."""
    if bodies.files:
        return _files(bodies.files)
    return _json(bodies.json_count, size, bodies.json_fields, seed) if bodies.json_count else None


def properties(publishing: Publishing, *, persistent: bool) -> dict[str, Argument]:
    """The properties of every message by PerfTest's names. A property that is given by name overrides a property that
    follows from other options."""
    bodies = publishing.bodies
    kind = bodies.content_type or (JSON_TYPE if bodies.json_count and not bodies.files else "")
    implied: dict[str, Argument] = {"deliveryMode": 2 if persistent else 1}
    return implied | ({"contentType": kind} if kind else {}) | publishing.properties


@lru_cache(maxsize=4)
def _files(paths: tuple[str, ...]) -> Documents:
    found = []
    for path in paths:
        try:
            found.append(Path(path).read_bytes())
        except OSError as error:
            raise _unreadable("a file of bodies", path, error) from error
    return Documents(found)


@lru_cache(maxsize=32)
def _json(count: int, size: int, fields: int, seed: int) -> Documents:
    return Documents(json_documents(count, size=size, fields=fields, seed=seed))


def _unreadable(what: str, path: str, error: OSError) -> MaterialError:
    return MaterialError(
        f"{what} cannot be read: {error.strerror}", where=path, fix="check the path and its permissions"
    )


def json_documents(count: int, *, size: int, fields: int, seed: int) -> list[bytes]:
    """``count`` random JSON documents of exactly ``size`` octets of ASCII; the same seed gives the same documents.

    Fields come from a pool of ``fields`` with random names and values (texts, numbers, booleans, null, lists). A string
    fills up the last octets.
    """
    dice = random.Random(f"{seed} {count} {size} {fields}")
    pool = [(f"{_word(dice)}{number}", _value(dice)) for number in range(max(fields, 1))]
    return [_document(dice, pool, size) for _ in range(count)]


def _document(dice: random.Random, pool: list[tuple[str, str]], size: int) -> bytes:
    if size < len('{"_":""}'):
        return b"{}".ljust(size) if size >= 2 else b"0"[:size]
    room = size - len("{}") - len(_PAD)
    parts: list[str] = []
    for round_number in count_from():
        for name, value in dice.sample(pool, min(len(pool), max(room, 0) // _FIELD_OCTETS + 1)):
            part = f'"{name}_{round_number}":{value}' if round_number else f'"{name}":{value}'
            if len(part) + 1 > room:
                return _padded(dice, parts, size)
            parts.append(part)
            room -= len(part) + 1
    raise AssertionError("the room ends before the rounds do")


def _padded(dice: random.Random, parts: list[str], size: int) -> bytes:
    """The document of ``parts``, and a field of random letters that makes it ``size`` octets."""
    fixed = "{" + "".join(part + "," for part in parts) + '"_":"'
    letters = "".join(dice.choices(string.ascii_letters, k=size - len(fixed) - len('"}')))
    return f'{fixed}{letters}"}}'.encode()


def _word(dice: random.Random) -> str:
    return "".join(dice.choices(string.ascii_lowercase, k=dice.randint(*_WORD_OCTETS)))


def _value(dice: random.Random) -> str:
    kind = dice.randrange(6)
    if kind == 0:
        return json.dumps(dice.randint(-(1 << 40), 1 << 40))
    if kind == 1:
        return json.dumps(round(dice.uniform(-1e6, 1e6), 4))
    if kind == 2:
        return dice.choice(["true", "false", "null"])
    if kind == 3:
        return json.dumps([dice.randint(0, 1000) for _ in range(dice.randint(1, 5))])
    return json.dumps(" ".join(_word(dice) for _ in range(dice.randint(1, 5))))
