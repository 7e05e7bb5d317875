"""Random JSON documents of a wanted size, made of a pool of fields; the same seed gives the same documents."""

from __future__ import annotations

import json
import random
import string
from itertools import count as count_from
from typing import Final

_WORD_OCTETS: Final = (3, 12)
_FIELD_OCTETS: Final = 8
"""No field is shorter: so many at most fit."""
_PAD: Final = b',"_":""'
"""What makes up for the last octets costs at least so many."""


def json_documents(count: int, *, size: int, fields: int, seed: int) -> list[bytes]:
    """``count`` documents of exactly ``size`` octets of ASCII. Fields come from a pool of ``fields`` with random names
    and values (texts, numbers, booleans, null, lists); a string fills up what is left."""
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
