"""The messages of a publisher: the template that they are written from, and random routing keys."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from perftest.amqp.encode import DocumentTemplate, Envelope, PublishTemplate, Template
from perftest.engine.accounting import stamp
from perftest.engine.context import Context
from perftest.engine.publishing import material
from perftest.spec.behaviour import RoutingKeys
from perftest.spec.plan import QueueSpec, Settings

Octets = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]

_CHUNK: Final = 256
"""Number of keys that are drawn together: single draws would cost ten times as much."""

_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_DASHES: Final = (8, 13, 18, 23)
_PLACES: Final = np.array([at for at in range(36) if at not in _DASHES])


class Messages:
    """The messages of publisher number ``number`` for ``queue``. ``source`` names the publisher in every stamp."""

    def __init__(self, context: Context, *, number: int, queue: QueueSpec) -> None:
        self.source = stamp.source(run=context.run, publisher=number)
        self._plan = context.plan
        self._publishing = context.plan.publishing
        self._queue = queue
        self._keys = self._random_keys(number)
        self._cycled_bytes = int(self._publishing.size_cycle[0][0]) if self._publishing.size_cycle else 0
        for size, _ in self._publishing.size_cycle:  # made now, not in the middle of the run
            material.documents(self._publishing.bodies, size=int(size), seed=context.plan.seed)

    def resize(self, size_bytes: int) -> None:
        """The cycle of sizes has changed. Its size counts, whatever the settings say."""
        self._cycled_bytes = size_bytes

    def template(self, settings: Settings, *, channel: int, frame_max: int) -> Template:
        """A template for a channel of a connection with this ``frame_max``."""
        publishing, size = self._publishing, self._cycled_bytes or settings.size_bytes
        fixed = publishing.routing_keys is RoutingKeys.FIXED
        envelope = Envelope(
            channel=channel,
            exchange=self._plan.exchange.name,
            routing_key=publishing.routing_key if fixed else self._queue.name,
            mandatory=settings.mandatory,
            properties=material.properties(publishing, persistent=settings.persistent),
            keys=self._keys,
        )
        documents = material.documents(publishing.bodies, size=size, seed=self._plan.seed)
        if documents is not None:
            return DocumentTemplate(envelope, source=self.source, documents=documents, frame_max=frame_max)
        filler = stamp.filler(size - stamp.SIZE)
        return PublishTemplate(envelope, source=self.source, filler=filler, frame_max=frame_max)

    def _random_keys(self, number: int) -> RandomKeys | None:
        if self._publishing.routing_keys is not RoutingKeys.RANDOM:
            return None
        return RandomKeys(self._plan.seed, number, material.KEYS, cache=self._publishing.routing_key_cache)


class RandomKeys:
    """Version 4 UUIDs in their usual 36 characters, as PerfTest draws them.

    Without ``cache`` each message gets a fresh key. With ``cache`` this number of keys is drawn once, and message ``i``
    gets the key at ``i`` modulo ``cache``. The same ``seed`` gives the same keys.
    """

    length = 36

    def __init__(self, *seed: int, cache: int = 0) -> None:
        self._random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        self._cached = self._draw(cache) if cache else None
        self._ready = np.empty((0, self.length), np.uint8)
        self._given = 0

    def of(self, sequences: Integers) -> Octets:
        """The keys of messages: a row of octets for each."""
        if self._cached is not None:
            return self._cached[sequences % len(self._cached)]
        start, stop = self._given, self._given + len(sequences)
        if stop > len(self._ready):
            fresh = self._draw(max(stop - len(self._ready), _CHUNK))
            self._ready = np.concatenate([self._ready[start:], fresh])
            start, stop = 0, len(sequences)
        self._given = stop
        return self._ready[start:stop]

    def _draw(self, count: int) -> Octets:
        octets = self._random.integers(0, 256, (count, 16), np.uint8)
        octets[:, 6] = octets[:, 6] & 0x0F | 0x40
        octets[:, 8] = octets[:, 8] & 0x3F | 0x80
        keys = np.full((count, self.length), ord("-"), np.uint8)
        nibbles = np.stack([octets >> 4, octets & 15], axis=2).reshape(count, 32)
        keys[:, _PLACES] = _DIGITS[nibbles]
        return keys
