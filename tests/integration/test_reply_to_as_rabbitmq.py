"""One script, two brokers: direct reply-to here and in a real RabbitMQ, on one node and from node to node."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import rabbitmq_cluster
from infra.local_cluster import Cluster
from tests.integration.testing.pika_clients import connect

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.processes,
    pytest.mark.skipif(
        not rabbitmq_cluster.is_installed(), reason="rabbitmq-server is not installed (apt-get install rabbitmq-server)"
    ),
]
REPLY_TO = "amq.rabbitmq.reply-to"
DEADLINE_S = 20
Answer = Any


@pytest.fixture(scope="module")
def brokers(rabbitmq: str, cluster: Cluster) -> dict[str, tuple[str, str]]:
    """The URIs for those who ask, and for those who answer."""
    first, second, _third = cluster.uris
    return {"RabbitMQ": (rabbitmq, rabbitmq), "ours": (first, first), "from node to node": (first, second)}


class Scene:
    """Someone who asks, and someone else who answers. Requests go to the queue ``requests``."""

    def __init__(self, asks_at: str, answers_at: str, stack: ExitStack) -> None:
        self._connections = [connect(uri) for uri in (asks_at, answers_at)]
        self.asker, self.answerer = (connection.channel() for connection in self._connections)
        self.answerer.queue_declare("requests", durable=True)
        self.answerer.queue_purge("requests")
        self.replies: list[tuple[str, str, bytes, str | None]] = []
        stack.callback(self._close)

    def consume(self, *, tag: str = "", auto_ack: bool = True) -> str:
        """Consume direct replies."""
        return self.asker.basic_consume(REPLY_TO, self._came, auto_ack=auto_ack, consumer_tag=tag)

    def _came(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.replies.append((method.exchange, named(method.routing_key), body, properties.correlation_id))

    def ask(self, body: bytes = b"?", **more: Any) -> None:
        """Send a request."""
        more = {"reply_to": REPLY_TO, "correlation_id": "c"} | more
        self.asker.basic_publish("", "requests", body, pika.BasicProperties(**more))

    def request(self) -> Any:
        """The properties of the next request."""
        deadline = time.monotonic() + DEADLINE_S
        while (found := self.answerer.basic_get("requests", auto_ack=True))[0] is None:
            assert time.monotonic() < deadline, "no request came"
        return found[1]

    def answer(self, to: str, *bodies: bytes, channel: BlockingChannel | None = None) -> None:
        for body in bodies:
            (channel or self.answerer).basic_publish("", to, body, pika.BasicProperties(correlation_id="c"))

    def wait(self, count: int) -> list[Any]:
        """The replies, once there are so many."""
        deadline = time.monotonic() + DEADLINE_S
        while len(self.replies) < count:
            self._connections[0].process_data_events(0.05)
            assert time.monotonic() < deadline, f"{len(self.replies)} replies of {count}"
        return self.replies

    def fence(self) -> None:
        """What the asker has sent is done."""
        self.asker.basic_qos(prefetch_count=1)

    def _close(self) -> None:
        for connection in self._connections:
            if connection.is_open:
                connection.close()


def named(name: str) -> str:
    """A name for direct replies, without what is random in it."""
    return re.sub(r"^(amq\.rabbitmq\.reply-to\.).*", r"\1*", name)


Script = Callable[[Scene], Answer]
SCRIPTS: list[Script] = []


def script(function: Script) -> Script:
    SCRIPTS.append(function)
    return function


@script
def a_question_and_its_answer(s: Scene) -> Answer:
    s.consume()
    s.ask(type="t", headers={"h": 1})
    request = s.request()
    s.answer(request.reply_to, b"!")
    return named(request.reply_to), request.type, request.headers, s.wait(1)


@script
def many_questions_and_answers(s: Scene) -> Answer:
    s.consume()
    for number in range(50):
        s.ask(correlation_id=str(number))
    for _ in range(50):
        request = s.request()
        s.answer(request.reply_to, request.correlation_id.encode())
    return s.wait(50)


@script
def answers_of_any_size_in_order(s: Scene) -> Answer:
    s.consume()
    s.ask()
    to = s.request().reply_to
    s.answer(to, b"", b"x" * 300_000, b"last")
    return [(len(body), body[:5]) for _exchange, _key, body, _id in s.wait(3)]


@script
def a_consumer_that_wants_to_acknowledge(s: Scene) -> Answer:
    s.consume(auto_ack=False)


@script
def a_second_consumer(s: Scene) -> Answer:
    s.consume()
    s.consume()


@script
def a_request_without_a_consumer(s: Scene) -> Answer:
    s.ask()
    s.fence()


@script
def a_request_after_the_consumer_was_cancelled(s: Scene) -> Answer:
    s.asker.basic_cancel(s.consume())
    s.ask()
    s.fence()


@script
def a_consumer_after_another(s: Scene) -> Answer:
    s.asker.basic_cancel(s.consume(tag="one"))
    s.consume(tag="two")
    s.ask()
    s.answer(s.request().reply_to, b"!")
    return s.wait(1)


@script
def an_answer_to_nobody_is_returned(s: Scene) -> Answer:
    s.answerer.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        s.answerer.basic_publish("", f"{REPLY_TO}.none", b"!", mandatory=True)


@script
def an_answer_after_the_channel_was_closed_is_returned(s: Scene) -> Answer:
    s.consume()
    s.ask()
    to = s.request().reply_to
    s.asker.close()
    s.answerer.confirm_delivery()
    deadline = time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < deadline:
            s.answerer.basic_publish("", to, b"!", mandatory=True)
    except pika.exceptions.UnroutableError as returned:
        return [(each.method.reply_code, named(each.method.routing_key)) for each in returned.messages]
    return "never returned"


@script
def whether_somebody_waits(s: Scene) -> Answer:
    s.consume()
    s.ask()
    declared = s.answerer.queue_declare(s.request().reply_to, passive=True).method
    return named(declared.queue), declared.message_count, declared.consumer_count


@script
def nobody_waits(s: Scene) -> Answer:
    s.answerer.queue_declare(f"{REPLY_TO}.none", passive=True)


@script
def a_request_through_an_exchange(s: Scene) -> Answer:
    s.consume()
    s.answerer.queue_bind("requests", "amq.topic", "k")
    s.asker.basic_publish("amq.topic", "k", b"?", pika.BasicProperties(reply_to=REPLY_TO))
    to = s.request().reply_to
    s.answerer.queue_unbind("requests", "amq.topic", "k")
    s.answer(to, b"!")
    return s.wait(1)


@script
def a_request_in_a_transaction(s: Scene) -> Answer:
    s.consume()
    s.asker.tx_select()
    s.ask()
    s.asker.tx_commit()
    s.answer(s.request().reply_to, b"!")
    return s.wait(1)


@script
def a_confirmed_request(s: Scene) -> Answer:
    s.consume()
    s.asker.confirm_delivery()
    s.ask()
    s.answer(s.request().reply_to, b"!")
    return s.wait(1)


@script
def any_other_address_stays(s: Scene) -> Answer:
    s.consume()
    s.ask(reply_to=f"{REPLY_TO}s")
    s.ask(reply_to="mine")
    return [s.request().reply_to for _ in range(2)]


def outcome(uris: tuple[str, str], play: Script) -> Answer:
    with ExitStack() as stack:
        scene = Scene(*uris, stack)
        try:
            return play(scene)
        except (pika.exceptions.ChannelClosedByBroker, pika.exceptions.ConnectionClosedByBroker) as closed:
            return type(closed).__name__, closed.reply_code, closed.reply_text


@pytest.mark.parametrize("play", SCRIPTS, ids=lambda play: play.__name__)
def test_both_brokers_answer_alike(brokers: dict[str, tuple[str, str]], play: Script) -> None:
    answers = {name: outcome(uris, play) for name, uris in brokers.items()}
    assert answers["ours"] == answers["RabbitMQ"]
    assert answers["from node to node"] == answers["RabbitMQ"]
