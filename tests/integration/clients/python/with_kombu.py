"""What an application does with kombu. Prints a line for each scenario that went well."""

import contextlib
import sys

from kombu import Connection, Consumer, Exchange, Producer, Queue

QUORUM = {"x-queue-type": "quorum"}
PATIENCE_S = 30


def drained(connection, queues, count):
    """The bodies of the next messages, acknowledged."""
    bodies = []

    def take(body, message):
        bodies.append(body)
        message.ack()

    with Consumer(connection, queues, callbacks=[take], prefetch_count=5):
        while len(bodies) < count:
            connection.drain_events(timeout=PATIENCE_S)
        with contextlib.suppress(TimeoutError):
            connection.drain_events(timeout=0.1)  # a message too many would come now
    return bodies


def objects_reach_the_queues_of_a_topic(connection, name):
    exchange = Exchange(f"{name}.x", type="topic", durable=True)
    errors = Queue(f"{name}.errors", exchange, routing_key="#.error", queue_arguments=QUORUM)
    all_of_them = Queue(f"{name}.all", exchange, routing_key="#", queue_arguments=QUORUM)
    producer = Producer(connection.channel(), exchange=exchange, serializer="json")
    for queue in (errors, all_of_them):
        queue(connection.channel()).declare()
    for number in range(20):
        key = "a.b.error" if number % 2 else "a.b.info"
        producer.publish({"number": number}, routing_key=key, declare=[exchange], retry=True)
    assert drained(connection, [errors], 10) == [{"number": number} for number in range(1, 20, 2)]
    assert drained(connection, [all_of_them], 20) == [{"number": number} for number in range(20)]


def a_simple_queue_is_filled_and_emptied(connection, name):
    with connection.SimpleQueue(name, queue_args=QUORUM) as queue:
        for number in range(10):
            queue.put({"number": number}, compression="zlib")
        assert [taken(queue) for _ in range(10)] == [{"number": number} for number in range(10)]
        queue.clear()


def taken(queue):
    message = queue.get(block=True, timeout=PATIENCE_S)
    message.ack()
    return message.payload


SCENARIOS = (objects_reach_the_queues_of_a_topic, a_simple_queue_is_filled_and_emptied)

for scenario in SCENARIOS:
    with Connection(sys.argv[1], connect_timeout=PATIENCE_S, transport_options={"confirm_publish": True}) as connection:
        scenario(connection, f"kombu.{scenario.__name__}")
    print("ok", scenario.__name__, flush=True)
