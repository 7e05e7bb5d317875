"""What a publisher sends: the template its messages are written from, made again whenever something of it changes."""

from __future__ import annotations

from perftest.amqp.encode import DocumentTemplate, Envelope, PublishTemplate, Template
from perftest.engine.accounting import stamp
from perftest.engine.context import Context
from perftest.engine.publishing import material
from perftest.engine.publishing.keys import RandomKeys
from perftest.spec.behaviour import RoutingKeys
from perftest.spec.plan import QueueSpec, Settings


class Messages:
    """The messages of publisher number ``number`` for ``queue``; ``source`` names it in the stamp of each."""

    def __init__(self, context: Context, *, number: int, queue: QueueSpec) -> None:
        self.source = stamp.source(run=context.run, publisher=number)
        self._plan = context.plan
        self._publishing = context.plan.publishing
        self._queue = queue
        self._keys = self._random_keys(number)
        self._cycled_bytes = int(self._publishing.size_cycle[0][0]) if self._publishing.size_cycle else 0
        for size, _ in self._publishing.size_cycle:  # not in the middle of the run
            material.documents(self._publishing.bodies, size=int(size), seed=context.plan.seed)

    def resize(self, size_bytes: int) -> None:
        """A cycle of sizes has turned: it decides from now on, whatever the settings say."""
        self._cycled_bytes = size_bytes

    def template(self, settings: Settings, *, channel: int, frame_max: int) -> Template:
        """The template for a channel whose connection agreed on ``frame_max``."""
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
