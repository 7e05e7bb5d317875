"""The answers that a channel waits for, and the events that wait for them.

A request that needs an answer from the log or from another node (declare, delete, purge, consume, cancel, get) makes
the channel *busy*: the core leaves later frames of the channel unread. So a client that does not wait for its answers
still gets them in order. A request about a queue that is unknown here waits until this node knows all earlier
declarations, because another node may have declared the queue a moment ago.

Invariant: a busy channel waits for one :class:`Awaited`, and ignores answers to any other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from reference_broker.amqp.errors import ReplyCode
from reference_broker.amqp.events import Event
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.node.clients.channel_context import ChannelContext
from reference_broker.node.hosting import declaration
from reference_broker.queues.port import Queue
from reference_broker.types import GroupId

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Awaited:
    """The answer that a busy channel waits for."""

    group: GroupId | None = None
    """The group of the queue that answers; None if the metadata group or a read answers, which always end."""
    correlation: int = 0
    answered: Callable[[int], None] | None = None
    """Gets the queue's reply to the command with that correlation."""
    queue_gone: Callable[[], None] | None = None
    """Answers the client if the queue is deleted first."""
    again: Callable[[], None] | None = None
    """Asks once more, if a mirror becomes the owner of the queue first."""


class Patience:
    """Number of ticks for which a channel has waited for the same thing. While the process is suspended nothing ticks,
    so a node that was stopped for a while does not find all its clients late."""

    __slots__ = ("ticks", "waits_for")

    def __init__(self) -> None:
        self.waits_for: Awaited | Queue | None = None
        """An answer; or a queue whose leader is out of reach."""
        self.ticks = 0

    def tick(self, waits_for: Awaited | Queue | None) -> int:
        """The ticks until now, if the channel waits for this."""
        self.ticks = self.ticks + 1 if waits_for is self.waits_for is not None else 0
        self.waits_for = waits_for
        return self.ticks


class EventHandler(Protocol):
    """The channel, for which the events are."""

    def handle_now(self, event: Any) -> None:
        """Handle an event, whatever the channel waits for."""

    def end(self) -> object:
        """End the channel."""


class Answers:
    """The answers that one channel waits for."""

    __slots__ = (
        "_channel", "_context", "_last_correlation", "_repeated", "awaited", "is_gone", "knows_queues", "patience",
        "unawaited", "waiting",
    )  # fmt: skip

    def __init__(self, context: ChannelContext, channel: EventHandler) -> None:
        self._context = context
        self._channel = channel
        self.awaited: Awaited | None = None
        """Not None while the channel is busy."""
        self.unawaited: dict[int, Callable[[int], None]] = {}
        """The questions to queues that no client waits for, and the receivers of the answers."""
        self.waiting: deque[Any] = deque()
        """Events that wait until the channel is not busy."""
        self.is_gone = False
        """The channel has ended, and stays until the waiting events are handled."""
        self.knows_queues: bool | None = None
        """While waiting events are handled: whether this node knows every queue and exchange that existed when they
        came. None: not asked yet."""
        self.patience = Patience()
        self._repeated: Event | None = None
        """The last request that was repeated because its queue was unknown."""
        self._last_correlation = 0

    def handle(self, event: Any) -> None:
        """Handle an event now, or behind the waiting events."""
        if self.awaited is None:
            self._channel.handle_now(event)
        else:
            self.waiting.append(event)

    # Questions

    def aside(self, answered: Callable[[int], None]) -> int:
        """The correlation of a question to a queue for whose answer no client waits."""
        correlation = self._next()
        self.unawaited[correlation] = answered
        return correlation

    def ask(
        self, queue: Queue, answered: Callable[[int], None], queue_gone: Callable[[], None], again: Callable[[], None]
    ) -> int:
        """Make the channel busy until the queue has applied the command with the returned correlation, or is gone. The
        queue will be told the channel's end."""
        group = queue.record.group
        self._context.used[group] = queue
        correlation = self._next()
        self._await(Awaited(group, correlation, answered, queue_gone, again))
        return correlation

    def request(self, queue: Queue, answered: Callable[[int], None], gone: Callable[[], None], event: Event) -> int:
        """The same for a client's request, which is repeated if the queue gets another owner."""
        return self.ask(queue, answered, gone, lambda: self._channel.handle_now(event))

    def until(self, answered: Callable[[T], None]) -> Callable[[T], None]:
        """Make the channel busy until the returned function is called, which calls ``answered`` if the channel is still
        there."""
        awaited = self._await(Awaited())

        def come(value: T) -> None:
            if self._has_come(awaited):
                answered(value)
                self.resume()

        return come

    def again(self, event: Event) -> None:
        """Handle a request once more."""
        self._channel.handle_now(event)

    def _next(self) -> int:
        self._last_correlation += 1
        return self._last_correlation

    def _await(self, awaited: Awaited) -> Awaited:
        """Leave the channel's later frames unread until the answer comes."""
        self.awaited = awaited
        self._context.core.hold(self._context.number)
        return awaited

    # Answers

    def replied(self, correlation: int, value: int) -> None:
        """A command of the channel was applied."""
        awaited = self.awaited
        if (answered := self.unawaited.pop(correlation, None)) is not None:
            answered(value)
        elif awaited is not None and awaited.answered is not None and awaited.correlation == correlation:
            self.awaited = None
            awaited.answered(value)
            self.resume()

    def _has_come(self, awaited: Awaited) -> bool:
        """Whether the channel still waits for this answer. If so, it stops waiting."""
        if self.awaited is not awaited:
            return False
        self.awaited = None
        return True

    def queue_gone(self, group: GroupId) -> None:
        """A queue is gone: answer the client if the channel waits for this queue."""
        awaited = self.awaited
        if awaited is not None and awaited.group == group and awaited.queue_gone is not None:
            self.awaited = None
            awaited.queue_gone()

    def owner_lost(self, record: QueueRecord) -> None:
        """Another node has the queue now, or none within reach: ask once more, or refuse the request."""
        awaited = self.awaited
        if awaited is None or awaited.group != record.group:
            return
        if awaited.again is not None and record.mirrors:
            self.awaited = None
            awaited.again()
        elif awaited.queue_gone is not None:
            self.awaited = None
            home = self._context.node.home_node_down(record) or "?"
            self.refuse(ReplyCode.NOT_FOUND, declaration.home_down(record, home), "")

    def resume(self) -> None:
        """Read the waiting frames, unless the channel waits for another answer."""
        context = self._context
        if self.awaited is None and not self.is_gone:
            context.core.release(context.number)
        context.ports.read_on()
        context.ports.touch()

    def refuse(self, code: int, text: str, method: str) -> None:
        """Close the channel with an exception."""
        context = self._context
        context.ports.handle(context.core.channel_error(context.number, code, text, method))
        context.ports.read_on()
        context.ports.touch()

    # Queues that are not known here

    def repeats_when_current(self, event: Event) -> bool:
        """Repeat a request for an unknown queue once this node knows all earlier declarations. False if the request was
        already repeated."""
        if self._repeated is event:
            return False
        self._repeated = event
        awaited = self._await(Awaited())

        def current(_found: bool) -> None:
            if self._has_come(awaited):
                self._channel.handle_now(event)
                self.resume()

        self._context.node.when_queues_current(current)
        return True

    def publish_when_current(self, event: Event) -> None:
        """Repeat a publish in the same way. One question serves all events that wait behind the publish."""
        awaited = self._await(Awaited())
        self.waiting.append(event)

        def current(found: bool) -> None:
            if self._has_come(awaited):
                self.knows_queues = found
                while self.waiting:
                    self._channel.handle_now(self.waiting.popleft())
                self.knows_queues = None
                if self.is_gone:
                    self._channel.end()
                self.resume()

        self._context.node.when_queues_current(current)
