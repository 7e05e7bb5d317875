"""The search: mutate a conversation that is known, play it, keep it if it came to something new."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tests.fuzz.conversations import CONVERSATIONS
from tests.fuzz.mutations import Frames, mutated
from tests.fuzz.play import play

CUT_EVERY: Final = 4
"""One conversation of so many is also played in pieces."""
_NEW_SHARE: Final = 0.5
"""How often a conversation that was kept last is changed again."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Octets that the broker does not bear."""

    octets: bytes
    what: str


@dataclass(slots=True)
class Search:
    """One search. The same seed makes the same search."""

    seed: int
    played: int = 0
    octets: int = 0
    reached: set[Any] = field(default_factory=set)
    corpus: list[Frames] = field(default_factory=list)
    _chance: Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = Random(self.seed)
        for make in CONVERSATIONS:
            self._keep_if_new(make())

    def run(self, inputs: int) -> Iterator[Finding]:
        """Play so many more conversations; yields what the broker does not bear."""
        for _ in range(inputs):
            frames = mutated(self._chance, self._known(), self.corpus)
            try:
                self._keep_if_new(frames)
                if self.played % CUT_EVERY == 0:
                    self._play_in_pieces(b"".join(frames))
            except Exception as error:  # whatever it is, it is a finding
                yield Finding(b"".join(frames), f"{type(error).__name__}: {error}")

    def _known(self) -> Frames:
        """A conversation to change: one of the newest, or any."""
        chance = self._chance
        return chance.choice(self.corpus[-20:]) if chance.random() < _NEW_SHARE else chance.choice(self.corpus)

    def _keep_if_new(self, frames: Frames) -> None:
        octets = b"".join(frames)
        self.played += 1
        self.octets += len(octets)
        outcome = play(octets)
        if not outcome.reached <= self.reached:
            self.reached |= outcome.reached
            self.corpus.append(frames)

    def _play_in_pieces(self, octets: bytes) -> None:
        """However the octets arrive, the server says the same."""
        cuts = sorted(self._chance.randrange(len(octets) + 1) for _ in range(self._chance.choice((1, 3, 20))))
        whole, pieces = play(octets), play(octets, cuts)
        assert whole.said == pieces.said, f"another answer in pieces that end at {cuts}"
