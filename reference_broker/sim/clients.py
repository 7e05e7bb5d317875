"""The clients of a world: AMQP octets through simulated connections, to the production code of the node.

A client has one connection at a time, to any node, with a channel that publishes in confirm mode and some that
consume. It acknowledges, requeues and rejects by chance, subscribes again under the same tag, purges and deletes
fleeting queues, and dies: politely, in the middle of anything, or as soon as it has subscribed. Then it comes back
elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reference_broker.sim.loop import SimLoop
from reference_broker.sim.node import AMQP_PORT, host_of
from reference_broker.sim.sessions import Session

if TYPE_CHECKING:
    from reference_broker.sim.world import World

_MANY: Final = 0.15
_PATIENT: Final = 0.5
_CONSUMERS_MAX: Final = 10


class SimClient:
    """A client over all its connections."""

    def __init__(self, world: World, number: int) -> None:
        chance = world.chance
        self.world = world
        self.host = f"c{number}"
        self.publishes = number == 1 or chance.random() < 0.6
        self.consumers = chance.randint(0 if self.publishes and number != 2 else 1, 2)
        if self.consumers and chance.random() < _MANY:
            self.consumers = chance.randint(3, _CONSUMERS_MAX)
        self.window = chance.choice((1, 10, 100))
        self.burst = min(self.window, chance.choice((1, 5, 20)))
        self.eagerness = chance.choice((0.2, 0.5, 0.9))
        self.diligence = chance.choice((0.1, 0.5, 0.9))
        self.restlessness = chance.choice((0.0, 0.002, 0.02))
        self.is_patient = chance.random() < _PATIENT
        """It does not leave while it waits for an answer."""
        self.zeal = chance.choice((0.0, 0.0, 0.02))
        """How often it purges or deletes a queue."""
        self.gets = chance.choice((0.0, 0.0, 0.1))
        self.disgust = chance.choice((0.0, 0.0, 0.0, 0.5))
        self.haste = chance.choice((0.0, 0.0, 0.0, 0.2))
        self.founds = chance.choice((0.0, 0.01, 0.03))
        """How often it makes a new queue, to which others publish at once."""
        self.think_s = chance.choice((0.001, 0.004, 0.02))
        self._prefetches = chance.choice(((1,), (10,), (1, 5, 30), (100,)))
        self.loop = SimLoop(world.scheduler, world.network, self.host)  # type: ignore[abstract]
        self.session: Session | None = None
        self.loop.call_later(chance.random() * 0.2, self._dial)
        self.loop.call_later(chance.random() * 0.2, self._act)

    @property
    def is_quiet(self) -> bool:
        """Connected, with nothing outstanding."""
        return self.session is not None and self.session.is_quiet

    def prefetch(self) -> int:
        """Of the next subscription."""
        return 200 if self.world.draining else self.world.chance.choice(self._prefetches)

    def session_over(self) -> None:
        """Dial again, somewhere."""
        self.session = None
        self.loop.call_later(0.01 + self.world.chance.random() ** 3, self._dial)

    def restart(self) -> None:
        """For the end: begin anew under the rules of draining."""
        self.consumers = max(self.consumers, len(self.world.queues))
        if self.session is not None and self.session.transport is not None:
            self.session._end()

    def _dial(self) -> None:
        self.loop.create_task(self._connect())

    async def _connect(self) -> None:
        node = self.world.chance.choice(self.world.node_ids)
        self.world.story.client(self.host, "dials n{}".format, node)
        self.session = session = Session(self)
        try:
            await self.loop.create_connection(lambda: session, host_of(node), AMQP_PORT)
        except OSError:
            self.session_over()

    def _act(self) -> None:
        if self.session is not None:
            self.session.act()
        self.loop.call_later(self.think_s * (0.5 + self.world.chance.random()), self._act)
