// What an application does with amqp091-go. Prints a line for each scenario that went well.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const patience = 30 * time.Second

var quorum = amqp.Table{"x-queue-type": "quorum"}

type scenario struct {
	name string
	run  func(connection *amqp.Connection, name string) error
}

var scenarios = []scenario{
	{"confirmed_messages_keep_their_order", confirmedMessagesKeepTheirOrder},
	{"a_fanout_reaches_queues_on_other_channels", aFanoutReachesQueuesOnOtherChannels},
	{"a_wrong_request_closes_the_channel_only", aWrongRequestClosesTheChannelOnly},
	{"a_queue_says_what_it_has", aQueueSaysWhatItHas},
}

func main() {
	for _, each := range scenarios {
		connection, err := amqp.Dial(os.Args[1])
		if err == nil {
			err = each.run(connection, "amqp091-go."+each.name)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, each.name+":", err)
			os.Exit(1)
		}
		connection.Close()
		fmt.Println("ok", each.name)
	}
}

func confirmedMessagesKeepTheirOrder(connection *amqp.Connection, name string) error {
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := channel.Confirm(false); err != nil {
		return err
	}
	if err := channel.Qos(50, 0, false); err != nil {
		return err
	}
	if err := channel.ExchangeDeclare(name+".x", "topic", true, false, false, false, nil); err != nil {
		return err
	}
	if _, err := channel.QueueDeclare(name, true, false, false, false, quorum); err != nil {
		return err
	}
	if err := channel.QueueBind(name, "#.new", name+".x", false, nil); err != nil {
		return err
	}
	deliveries, err := channel.Consume(name, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for number := 0; number < 100; number++ {
		publishing := amqp.Publishing{
			DeliveryMode: amqp.Persistent,
			Timestamp:    time.Unix(1700000000, 0),
			Headers:      amqp.Table{"number": int32(number), "deep": amqp.Table{"list": []interface{}{int32(1), "two"}}},
			Body:         []byte(fmt.Sprint(number)),
		}
		confirmation, err := channel.PublishWithDeferredConfirm(name+".x", "an.order.new", true, false, publishing)
		if err != nil {
			return err
		}
		within, cancel := context.WithTimeout(context.Background(), patience)
		acked, err := confirmation.WaitContext(within)
		cancel()
		if err != nil || !acked {
			return fmt.Errorf("message %d was not confirmed: %v", number, err)
		}
	}
	for number := 0; number < 100; number++ {
		delivery, err := next(deliveries)
		if err != nil {
			return err
		}
		if string(delivery.Body) != fmt.Sprint(number) || delivery.Headers["number"] != int32(number) || delivery.Redelivered {
			return fmt.Errorf("message %d came as %q with %v", number, delivery.Body, delivery.Headers)
		}
		if !delivery.Timestamp.Equal(time.Unix(1700000000, 0)) {
			return fmt.Errorf("message %d was sent at %v", number, delivery.Timestamp)
		}
		if err := delivery.Ack(number%10 == 9); err != nil {
			return err
		}
	}
	return nil
}

func aFanoutReachesQueuesOnOtherChannels(connection *amqp.Connection, name string) error {
	var consumers []<-chan amqp.Delivery
	for range [3]struct{}{} {
		channel, err := connection.Channel()
		if err != nil {
			return err
		}
		if err := channel.ExchangeDeclare(name+".x", "fanout", false, true, false, false, nil); err != nil {
			return err
		}
		queue, err := channel.QueueDeclare("", false, true, true, false, nil)
		if err != nil {
			return err
		}
		if err := channel.QueueBind(queue.Name, "", name+".x", false, nil); err != nil {
			return err
		}
		deliveries, err := channel.Consume(queue.Name, "", true, false, false, false, nil)
		if err != nil {
			return err
		}
		consumers = append(consumers, deliveries)
	}
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	publishing := amqp.Publishing{Body: []byte("all")}
	if err := channel.PublishWithContext(context.Background(), name+".x", "", false, false, publishing); err != nil {
		return err
	}
	for _, deliveries := range consumers {
		if delivery, err := next(deliveries); err != nil || string(delivery.Body) != "all" {
			return fmt.Errorf("got %q: %v", delivery.Body, err)
		}
	}
	return nil
}

func aWrongRequestClosesTheChannelOnly(connection *amqp.Connection, name string) error {
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	_, err = channel.QueueDeclarePassive(name+".missing", true, false, false, false, nil)
	var closed *amqp.Error
	if !errors.As(err, &closed) || closed.Code != amqp.NotFound {
		return fmt.Errorf("a missing queue gave %v", err)
	}
	channel, err = connection.Channel()
	if err != nil {
		return err
	}
	_, err = channel.QueueDeclare(name, true, false, false, false, quorum)
	return err
}

func aQueueSaysWhatItHas(connection *amqp.Connection, name string) error {
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := channel.Confirm(false); err != nil {
		return err
	}
	if _, err := channel.QueueDeclare(name, true, false, false, false, quorum); err != nil {
		return err
	}
	for range [5]struct{}{} {
		confirmation, err := channel.PublishWithDeferredConfirm("", name, false, false, amqp.Publishing{Body: []byte("x")})
		if err != nil {
			return err
		}
		if !confirmation.Wait() {
			return errors.New("a message was refused")
		}
	}
	queue, err := channel.QueueDeclarePassive(name, true, false, false, false, nil)
	if err != nil || queue.Messages != 5 || queue.Consumers != 0 {
		return fmt.Errorf("the queue says %+v: %v", queue, err)
	}
	delivery, found, err := channel.Get(name, false)
	if err != nil || !found || delivery.MessageCount != 4 {
		return fmt.Errorf("got %v, %d left: %v", found, delivery.MessageCount, err)
	}
	if err := delivery.Reject(false); err != nil {
		return err
	}
	purged, err := channel.QueuePurge(name, false)
	if err != nil || purged != 4 {
		return fmt.Errorf("purged %d: %v", purged, err)
	}
	_, err = channel.QueueDelete(name, false, false, false)
	return err
}

func next(deliveries <-chan amqp.Delivery) (amqp.Delivery, error) {
	select {
	case delivery, open := <-deliveries:
		if !open {
			return delivery, errors.New("the channel was closed")
		}
		return delivery, nil
	case <-time.After(patience):
		return amqp.Delivery{}, errors.New("no message came")
	}
}
