// What an application does with amqplib for Node. Prints a line for each scenario that went well.
"use strict";

const assert = require("node:assert");
const amqplib = require(`${process.env.NODE_MODULES}/amqplib`);

const QUORUM = { durable: true, arguments: { "x-queue-type": "quorum" } };
const PATIENCE_MS = 30_000;

function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not happen`)), PATIENCE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** The next `count` messages of a queue, which stay unacknowledged. */
function taken(channel, queue, count) {
  const messages = [];
  return within(
    new Promise((resolve) => {
      channel.consume(queue, (message) => {
        messages.push(message);
        if (messages.length === count) resolve(messages);
      });
    }),
    `${count} messages`,
  );
}

async function confirmed_messages_keep_their_order(connection, name) {
  const channel = await connection.createConfirmChannel();
  await channel.prefetch(200);
  await channel.assertExchange(`${name}.x`, "direct", { durable: true });
  await channel.assertQueue(name, QUORUM);
  await channel.bindQueue(name, `${name}.x`, "key");
  for (let number = 0; number < 100; number++) {
    const headers = { number, deep: { list: [1, "two", true] } };
    channel.publish(`${name}.x`, "key", Buffer.from(`${number}`), { persistent: true, messageId: `m${number}`, headers });
  }
  await within(channel.waitForConfirms(), "all confirms");
  const messages = await taken(channel, name, 100);
  messages.forEach((message, number) => {
    assert.strictEqual(message.content.toString(), `${number}`);
    assert.strictEqual(message.properties.messageId, `m${number}`);
    assert.deepStrictEqual(message.properties.headers.deep, { list: [1, "two", true] });
    channel.ack(message);
  });
}

async function a_rejected_message_becomes_a_dead_letter(connection, name) {
  const channel = await connection.createConfirmChannel();
  await channel.assertExchange(`${name}.dlx`, "topic", { durable: true });
  await channel.assertQueue(`${name}.dead`, QUORUM);
  await channel.bindQueue(`${name}.dead`, `${name}.dlx`, "dead.*");
  const options = { durable: true, arguments: { ...QUORUM.arguments } };
  await channel.assertQueue(name, { ...options, deadLetterExchange: `${name}.dlx`, deadLetterRoutingKey: "dead.letter" });
  channel.sendToQueue(name, Buffer.from("no"));
  const [refused] = await taken(channel, name, 1);
  channel.nack(refused, false, false);
  const [dead] = await taken(channel, `${name}.dead`, 1);
  assert.strictEqual(dead.properties.headers["x-death"][0].reason, "rejected");
  assert.strictEqual(dead.fields.routingKey, "dead.letter");
  channel.ack(dead);
}

async function a_message_without_a_route_comes_back(connection, name) {
  const channel = await connection.createConfirmChannel();
  await channel.assertExchange(`${name}.x`, "fanout", { durable: false, autoDelete: true });
  const returned = new Promise((resolve) => channel.once("return", resolve));
  channel.publish(`${name}.x`, "", Buffer.from("back"), { mandatory: true });
  const message = await within(returned, "basic.return");
  assert.strictEqual(message.fields.replyCode, 312);
  await within(channel.waitForConfirms(), "the confirm");
}

async function a_wrong_request_closes_the_channel_only(connection, name) {
  const channel = await connection.createChannel();
  const closed = new Promise((resolve) => channel.once("error", resolve));
  await assert.rejects(channel.checkExchange(`${name}.missing`), /404/);
  assert.strictEqual((await within(closed, "channel.close")).code, 404);
  await (await connection.createChannel()).assertQueue(name, QUORUM);
}

async function a_server_named_queue_ends_with_its_connection(connection) {
  const other = await amqplib.connect(process.argv[2]);
  const { queue } = await (await other.createChannel()).assertQueue("", { exclusive: true });
  assert.match(queue, /^amq\.gen-/);
  await other.close();
  const channel = await connection.createChannel();
  channel.on("error", () => {});
  await assert.rejects(channel.checkQueue(queue), /404/);
}

const SCENARIOS = [
  confirmed_messages_keep_their_order,
  a_rejected_message_becomes_a_dead_letter,
  a_message_without_a_route_comes_back,
  a_wrong_request_closes_the_channel_only,
  a_server_named_queue_ends_with_its_connection,
];

(async () => {
  for (const scenario of SCENARIOS) {
    const connection = await amqplib.connect(process.argv[2], { timeout: PATIENCE_MS });
    await scenario(connection, `amqplib.${scenario.name}`);
    await connection.close();
    console.log("ok", scenario.name);
  }
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
