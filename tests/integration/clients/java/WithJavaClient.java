import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** What an application does with the Java client. Prints a line for each scenario that went well. */
public class WithJavaClient {
    static final Map<String, Object> QUORUM = Map.of("x-queue-type", "quorum");
    static final int PATIENCE_MS = 30_000;

    interface Scenario {
        void run(Connection connection, String name) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("confirmed_messages_keep_their_order", WithJavaClient::confirmedMessagesKeepTheirOrder);
        scenarios.put("a_message_without_a_route_comes_back", WithJavaClient::aMessageWithoutARouteComesBack);
        scenarios.put("a_deleted_queue_cancels_its_consumers", WithJavaClient::aDeletedQueueCancelsItsConsumers);
        scenarios.put("a_wrong_request_closes_the_channel_only", WithJavaClient::aWrongRequestClosesTheChannelOnly);
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        factory.setAutomaticRecoveryEnabled(false);
        factory.setConnectionTimeout(PATIENCE_MS);
        for (Map.Entry<String, Scenario> each : scenarios.entrySet()) {
            try (Connection connection = factory.newConnection()) {
                each.getValue().run(connection, "java." + each.getKey());
            }
            System.out.println("ok " + each.getKey());
        }
    }

    static void confirmedMessagesKeepTheirOrder(Connection connection, String name) throws Exception {
        Channel channel = connection.createChannel();
        channel.confirmSelect();
        channel.basicQos(20);
        channel.exchangeDeclare(name + ".x", BuiltinExchangeType.HEADERS, true);
        channel.queueDeclare(name, true, false, false, QUORUM);
        channel.queueBind(name, name + ".x", "", Map.of("x-match", "any", "a", 1, "b", "two"));
        for (int number = 0; number < 100; number++) {
            Map<String, Object> headers = Map.of("b", "two", "number", number, "list", List.of(1L, "x"));
            AMQP.BasicProperties properties =
                    new AMQP.BasicProperties.Builder().deliveryMode(2).headers(headers).type("order").build();
            channel.basicPublish(name + ".x", "ignored", properties, Integer.toString(number).getBytes());
        }
        channel.waitForConfirmsOrDie(PATIENCE_MS);
        BlockingQueue<Delivery> deliveries = new LinkedBlockingQueue<>();
        channel.basicConsume(name, false, (tag, delivery) -> deliveries.add(delivery), tag -> {});
        for (int number = 0; number < 100; number++) {
            Delivery delivery = next(deliveries);
            check(new String(delivery.getBody()).equals(Integer.toString(number)), "order at " + number);
            check(delivery.getProperties().getHeaders().get("number").equals(number), "header of " + number);
            check(delivery.getProperties().getType().equals("order"), "type of " + number);
            channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
        }
    }

    static void aMessageWithoutARouteComesBack(Connection connection, String name) throws Exception {
        Channel channel = connection.createChannel();
        channel.confirmSelect();
        channel.exchangeDeclare(name + ".other", "fanout", true);
        channel.exchangeDeclare(name + ".x", "direct", true, false, Map.of("alternate-exchange", name + ".other"));
        BlockingQueue<Integer> returned = new LinkedBlockingQueue<>();
        channel.addReturnListener((code, text, exchange, key, properties, body) -> returned.add(code));
        channel.basicPublish(name + ".x", "key", true, null, "a".getBytes());
        channel.waitForConfirmsOrDie(PATIENCE_MS);
        check(returned.poll(PATIENCE_MS, TimeUnit.MILLISECONDS) == 312, "basic.return");
        channel.queueDeclare(name, true, false, false, QUORUM);
        channel.queueBind(name, name + ".other", "");
        channel.basicPublish(name + ".x", "key", true, null, "b".getBytes());
        channel.waitForConfirmsOrDie(PATIENCE_MS);
        GetResponse got = channel.basicGet(name, true);
        check(got != null && new String(got.getBody()).equals("b"), "the alternate exchange");
    }

    static void aDeletedQueueCancelsItsConsumers(Connection connection, String name) throws Exception {
        Channel channel = connection.createChannel();
        channel.queueDeclare(name, true, false, false, QUORUM);
        BlockingQueue<String> cancelled = new LinkedBlockingQueue<>();
        String tag = channel.basicConsume(name, false, new DefaultConsumer(channel) {
            @Override
            public void handleCancel(String consumerTag) throws IOException {
                cancelled.add(consumerTag);
            }
        });
        connection.createChannel().queueDelete(name);
        check(tag.equals(cancelled.poll(PATIENCE_MS, TimeUnit.MILLISECONDS)), "basic.cancel");
    }

    static void aWrongRequestClosesTheChannelOnly(Connection connection, String name) throws Exception {
        Channel channel = connection.createChannel();
        try {
            channel.basicAck(42, false);
            channel.queueDeclarePassive(name + ".missing");
            throw new AssertionError("an unknown delivery tag was taken");
        } catch (IOException | AlreadyClosedException error) {
            Throwable signal = error instanceof IOException ? error.getCause() : error;
            AMQP.Channel.Close close = (AMQP.Channel.Close) ((ShutdownSignalException) signal).getReason();
            check(close.getReplyCode() == 406, "406 for an unknown delivery tag, not " + close);
        }
        connection.createChannel().queueDeclare(name, true, false, false, QUORUM);
    }

    static Delivery next(BlockingQueue<Delivery> deliveries) throws InterruptedException {
        Delivery delivery = deliveries.poll(PATIENCE_MS, TimeUnit.MILLISECONDS);
        check(delivery != null, "a message");
        return delivery;
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
