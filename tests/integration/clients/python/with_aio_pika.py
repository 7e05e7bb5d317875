"""What an application does with aio-pika. Prints a line for each scenario that went well."""

import asyncio
import sys

import aio_pika
from aio_pika import DeliveryMode, ExchangeType, Message
from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError

QUORUM = {"x-queue-type": "quorum"}
PATIENCE_S = 30


async def confirmed_messages_keep_order_and_properties(connection, name):
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=10)
    exchange = await channel.declare_exchange(f"{name}.x", ExchangeType.TOPIC, durable=True)
    queue = await channel.declare_queue(name, durable=True, arguments=QUORUM)
    await queue.bind(exchange, "orders.*.new")
    for number in range(100):
        message = Message(
            b"%d" % number,
            delivery_mode=DeliveryMode.PERSISTENT,
            correlation_id=str(number),
            content_type="text/plain",
            headers={"n": number, "nested": {"list": [1, "two", None]}},
        )
        await exchange.publish(message, f"orders.{number}.new", mandatory=True)
    async with queue.iterator(timeout=PATIENCE_S) as messages:
        for number in range(100):
            message = await anext(messages)
            async with message.process():
                assert (message.body, message.correlation_id) == (b"%d" % number, str(number))
                assert message.headers["nested"] == {"list": [1, "two", None]} and not message.redelivered
                assert (message.exchange, message.routing_key) == (f"{name}.x", f"orders.{number}.new")


async def a_requeued_message_comes_again_with_the_flag(connection, name):
    channel = await connection.channel()
    queue = await channel.declare_queue(name, durable=True, arguments=QUORUM)
    await channel.default_exchange.publish(Message(b"again"), name)
    first = await got(queue)
    await first.nack(requeue=True)
    second = await got(queue)
    assert second.redelivered and second.body == b"again"
    await second.ack()


async def a_message_without_a_route_comes_back(connection, name):
    channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
    exchange = await channel.declare_exchange(f"{name}.x", ExchangeType.DIRECT, durable=True)
    try:
        await exchange.publish(Message(b"lost"), "nowhere", mandatory=True)
    except DeliveryError as error:
        assert error.message.delivery.reply_code == 312, error
    else:
        raise AssertionError("no basic.return")


async def a_missing_queue_closes_the_channel_only(connection, name):
    channel = await connection.channel()
    try:
        await channel.declare_queue(f"{name}.missing", passive=True)
    except ChannelNotFoundEntity:
        pass
    else:
        raise AssertionError("no 404")
    channel = await connection.channel()
    await channel.declare_queue(name, durable=True, arguments=QUORUM)


async def a_question_is_answered_through_a_queue_of_the_asker(connection, name):
    asking, answering = await connection.channel(), await connection.channel()
    requests = await answering.declare_queue(name, durable=True, arguments=QUORUM)
    replies = await asking.declare_queue(exclusive=True, auto_delete=True)
    assert replies.name.startswith("amq.gen-")

    async def answer(message):
        async with message.process():
            reply = Message(message.body.upper(), correlation_id=message.correlation_id)
            await answering.default_exchange.publish(reply, message.reply_to)

    tag = await requests.consume(answer)
    question = Message(b"question", reply_to=replies.name, correlation_id="7")
    await asking.default_exchange.publish(question, name)
    reply = await got(replies)
    assert (reply.body, reply.correlation_id) == (b"QUESTION", "7")
    await reply.ack()
    await requests.cancel(tag)


async def expired_messages_go_to_the_dead_letter_exchange(connection, name):
    channel = await connection.channel()
    dead_letters = await channel.declare_exchange(f"{name}.dlx", ExchangeType.FANOUT, durable=True)
    dead = await channel.declare_queue(f"{name}.dead", durable=True, arguments=QUORUM)
    await dead.bind(dead_letters)
    arguments = {**QUORUM, "x-dead-letter-exchange": f"{name}.dlx", "x-message-ttl": 50}
    await channel.declare_queue(name, durable=True, arguments=arguments)
    await channel.default_exchange.publish(Message(b"old"), name)
    message = await got(dead)
    (death,) = message.headers["x-death"]
    assert (death["reason"], death["queue"], death["count"]) == ("expired", name, 1)
    await message.ack()


async def a_fanout_reaches_every_queue(connection, name):
    channel = await connection.channel()
    exchange = await channel.declare_exchange(f"{name}.x", ExchangeType.FANOUT, durable=True)
    queues = [await channel.declare_queue(f"{name}.{n}", durable=True, arguments=QUORUM) for n in range(3)]
    for queue in queues:
        await queue.bind(exchange)
    await exchange.publish(Message(b"all"), "")
    for queue in queues:
        message = await got(queue)
        assert message.body == b"all"
        await message.ack()
    await queues[0].unbind(exchange)
    await exchange.delete()


async def a_queue_can_be_purged_and_deleted(connection, name):
    channel = await connection.channel()
    queue = await channel.declare_queue(name, durable=True, arguments=QUORUM)
    for _ in range(5):
        await channel.default_exchange.publish(Message(b"x"), name)
    assert (await queue.purge()).message_count == 5
    assert await queue.get(fail=False) is None
    await queue.delete(if_unused=False, if_empty=False)


async def got(queue):
    """The next message, which may still be on its way."""
    async with queue.iterator(timeout=PATIENCE_S) as messages:
        return await anext(messages)


SCENARIOS = (
    confirmed_messages_keep_order_and_properties,
    a_requeued_message_comes_again_with_the_flag,
    a_message_without_a_route_comes_back,
    a_missing_queue_closes_the_channel_only,
    a_question_is_answered_through_a_queue_of_the_asker,
    expired_messages_go_to_the_dead_letter_exchange,
    a_fanout_reaches_every_queue,
    a_queue_can_be_purged_and_deleted,
)


async def main():
    for scenario in SCENARIOS:
        async with await aio_pika.connect(sys.argv[1], timeout=PATIENCE_S) as connection:
            await scenario(connection, f"aio-pika.{scenario.__name__}")
        print("ok", scenario.__name__, flush=True)


asyncio.run(main())
