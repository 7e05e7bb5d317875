"""New conversations out of known ones: frames and octets change, move, repeat and vanish by chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

Frames = list[bytes]
LENGTH_MAX: Final = 8192
"""Octets of the longest conversation."""
_SIZES: Final = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_KINDS: Final = b"tbBsuIilLxSAFVfdDTn\0\xff"
"""Types of field values, and octets that are none."""


def mutated(chance: Random, frames: Sequence[bytes], others: Sequence[Sequence[bytes]]) -> Frames:
    """One to four changes to a conversation. ``others`` gives frames to mix in."""
    made = list(frames)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 4))):
        chance.choice(_CHANGES)(chance, made, chance.choice(others))
    while made and sum(map(len, made)) > LENGTH_MAX:
        made.pop()
    return made


def _at(chance: Random, frames: Frames) -> int:
    """The place of a frame; those behind the handshake come more often."""
    return max(chance.randrange(len(frames)), chance.randrange(len(frames)))


def _octets(change: Callable[[Random, bytearray, int], None]) -> Callable[[Random, Frames, Sequence[bytes]], None]:
    """A change of the octets of one frame."""

    def changed(chance: Random, frames: Frames, _other: Sequence[bytes]) -> None:
        if frames:
            at = _at(chance, frames)
            octets = bytearray(frames[at])
            if octets:
                change(chance, octets, chance.randrange(len(octets)))
                frames[at] = bytes(octets)

    return changed


def _set(chance: Random, octets: bytearray, at: int) -> None:
    octets[at] = chance.randrange(256)


def _flip(chance: Random, octets: bytearray, at: int) -> None:
    octets[at] ^= 1 << chance.randrange(8)


def _set_kind(chance: Random, octets: bytearray, at: int) -> None:
    octets[at] = chance.choice(_KINDS)


def _insert(chance: Random, octets: bytearray, at: int) -> None:
    octets[at:at] = chance.randbytes(chance.choice((1, 1, 2, 4, 20)))


def _cut(chance: Random, octets: bytearray, at: int) -> None:
    del octets[at : at + chance.choice((1, 1, 2, 4, 1000))]


def _number(chance: Random, octets: bytearray, at: int) -> None:
    """Put an integer there: a length, perhaps."""
    size = chance.choice((1, 2, 4, 8))
    octets[at : at + size] = (chance.choice(_SIZES) & ((1 << 8 * size) - 1)).to_bytes(size, "big")


def _frame_length(chance: Random, octets: bytearray, _at: int) -> None:
    if len(octets) > 7:
        octets[3:7] = (max(0, len(octets) - 8 + chance.choice((-2, -1, 1, 2, 1 << 20)))).to_bytes(4, "big")


def _mended(chance: Random, octets: bytearray, at: int) -> None:
    """Change the payload, and set the length of the frame right, so that what is inside gets read."""
    if len(octets) > 8:
        at = min(max(at, 7), len(octets) - 2)
        chance.choice((_set, _set_kind, _insert, _number))(chance, octets, at)
        octets[-1:] = b"\xce"
        octets[3:7] = (len(octets) - 8).to_bytes(4, "big")


def _channel(chance: Random, octets: bytearray, _at: int) -> None:
    if len(octets) > 3:
        octets[1:3] = chance.choice((0, 1, 2, 3, 2047, 2048, 65535)).to_bytes(2, "big")


def _repeat(chance: Random, frames: Frames, _other: Sequence[bytes]) -> None:
    if frames:
        at = _at(chance, frames)
        frames[at:at] = [frames[at]] * chance.choice((1, 1, 2, 8))


def _drop(chance: Random, frames: Frames, _other: Sequence[bytes]) -> None:
    if frames:
        del frames[_at(chance, frames)]


def _swap(chance: Random, frames: Frames, _other: Sequence[bytes]) -> None:
    if frames:
        one, other = _at(chance, frames), _at(chance, frames)
        frames[one], frames[other] = frames[other], frames[one]


def _mix_in(chance: Random, frames: Frames, other: Sequence[bytes]) -> None:
    if other and frames:
        at, begin = _at(chance, frames), chance.randrange(len(other))
        frames[at:at] = other[begin : begin + chance.choice((1, 1, 2, 5))]


def _go_over(chance: Random, frames: Frames, other: Sequence[bytes]) -> None:
    """Go on as another conversation does."""
    if other and frames:
        at = _at(chance, frames)
        frames[at:] = other[chance.randrange(len(other)) :]


_CHANGES: Final = (
    *map(_octets, (_set, _flip, _set_kind, _insert, _cut, _number, _frame_length, _mended, _mended, _mended, _channel)),
    _repeat, _drop, _swap, _mix_in, _mix_in, _go_over,
)  # fmt: skip
