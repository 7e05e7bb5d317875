"""Which queues the requests of a channel reach: known here, within reach, and not another connection's."""

from __future__ import annotations

from reference_broker.amqp.errors import ReplyCode
from reference_broker.amqp.events import Consume, Get, QueuePurge
from reference_broker.node.clients.answers import Answers
from reference_broker.node.clients.channel_context import ChannelContext
from reference_broker.node.hosting import declaration
from reference_broker.node.hosting.declaration import DeclarationError
from reference_broker.queues.port import Queue


class QueueAccess:
    """Finds queues for requests, and refuses requests to queues that the client may not use now."""

    __slots__ = ("answers", "context")

    def __init__(self, context: ChannelContext, answers: Answers) -> None:
        self.context = context
        self.answers = answers

    def queue_or_error(self, event: QueuePurge | Consume | Get, method: str) -> Queue | None:
        """The queue that a request names, if the client may use it now. If not, the request is refused or waits."""
        queue = self.context.vhost.queues.get(event.queue)
        if queue is None and not self.answers.repeats_when_current(event):
            self.refuse_missing(event.queue, method)
        if queue is not None and self.refuses(queue, method):
            return None
        return queue

    def refuses(self, queue: Queue, method: str) -> bool:
        """Refuse a request to a queue whose only node is out of reach, or that is another connection's."""
        if self.refuses_down(queue, method):
            return True
        try:
            declaration.check_access(queue.record, self.asker)
        except DeclarationError as refused:
            self.answers.refuse(refused.code, refused.text, method)
            return True
        return False

    def refuses_down(self, queue: Queue, method: str) -> bool:
        """Refuse a queue whose only node is out of reach."""
        if (home := self.context.node.home_node_down(queue.record)) is None:
            return False
        self.answers.refuse(ReplyCode.NOT_FOUND, declaration.home_down(queue.record, home), method)
        return True

    def refuse_missing(self, name: str, method: str) -> None:
        """Refuse a request to a queue that does not exist."""
        self.answers.refuse(ReplyCode.NOT_FOUND, f"no {self.context.vhost.queue_called(name)}", method)

    @property
    def asker(self) -> declaration.Asker:
        """Whose exclusive queues the channel may use."""
        context = self.context
        return context.id.node, context.id.boot_id, context.ports.number
