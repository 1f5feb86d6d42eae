// Drives real Go clients by lines on standard input; see ../go_peer.py for the lines.
//
// Answers are "ok REST" or "error REASON". Bodies come back as "queue:offset:body|times|moment",
// separated by commas.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type stopper interface{ Shutdown() error }

var (
	servers  []string
	plain    rocketmq.Producer
	ordered  rocketmq.Producer
	doubtful rocketmq.TransactionProducer
	judge    = &decisions{asked: map[string]int{}}
	pullers  = map[string]rocketmq.PullConsumer{}
	running  = map[string]stopper{}

	guard    sync.Mutex
	received = map[string][]string{}
)

// decisions answers for local transactions: by the body's first word, and later by what the body
// begins with.
type decisions struct {
	sync.Mutex
	asked map[string]int
}

func (d *decisions) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch message.GetProperty("first") {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (d *decisions) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	d.Lock()
	defer d.Unlock()
	body := string(message.Body)
	d.asked[body]++
	if strings.HasPrefix(body, "yes") {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func main() {
	rlog.SetLogLevel("error")
	lines := bufio.NewScanner(os.Stdin)
	fmt.Println("ok")
	for lines.Scan() {
		answer, err := answer(strings.Fields(lines.Text()))
		if err != nil {
			fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok", answer)
		}
	}
}

func answer(words []string) (string, error) {
	switch words[0] {
	case "start":
		return "", start(strings.Split(words[1], ";"))
	case "sync":
		return sendOne(words)
	case "async", "oneway", "batch":
		return sendMany(words[0], words[1], number(words[2]), words[3])
	case "ordered":
		return "", sendOrdered(words[1], number(words[2]), number(words[3]))
	case "transaction":
		return sendInTransaction(words[1], words[2], words[3])
	case "checks":
		judge.Lock()
		defer judge.Unlock()
		return strconv.Itoa(judge.asked[words[1]]), nil
	case "push":
		return "", push(words)
	case "pull":
		return "", pull(words[1], words[2], words[3], words[4])
	case "poll":
		return poll(words[1], number(words[2]), time.Duration(number(words[3]))*time.Millisecond)
	case "got":
		guard.Lock()
		defer guard.Unlock()
		return strings.Join(received[words[1]], ","), nil
	case "stop":
		return "", running[words[1]].Shutdown()
	}
	return "", fmt.Errorf("no such line: %s", words[0])
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}

func start(addresses []string) error {
	servers = addresses
	var err error
	if plain, err = rocketmq.NewProducer(options("plain")...); err != nil {
		return err
	}
	if ordered, err = rocketmq.NewProducer(
		append(options("ordered"), producer.WithQueueSelector(producer.NewHashQueueSelector()))...); err != nil {
		return err
	}
	if doubtful, err = rocketmq.NewTransactionProducer(judge, options("doubtful")...); err != nil {
		return err
	}
	for _, one := range []interface{ Start() error }{plain, ordered, doubtful} {
		if err = one.Start(); err != nil {
			return err
		}
	}
	return nil
}

func options(name string) []producer.Option {
	return []producer.Option{
		producer.WithNameServer(servers), producer.WithGroupName("P-" + name),
		producer.WithInstanceName(name), producer.WithRetry(2),
	}
}

func shown(result *primitive.SendResult) (string, error) {
	if result.Status != primitive.SendOK {
		return "", fmt.Errorf("send status %d", result.Status)
	}
	return fmt.Sprintf("%d:%d:%s", result.MessageQueue.QueueId, result.QueueOffset, result.MsgID), nil
}

func sendOne(words []string) (string, error) {
	message := primitive.NewMessage(words[1], []byte(words[2])).WithKeys([]string{"key-" + words[2]})
	for _, word := range words[3:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "delay":
			message.WithDelayTimeLevel(number(value))
		case "tag":
			message.WithTag(value)
		}
	}
	result, err := plain.SendSync(context.Background(), message)
	if err != nil {
		return "", err
	}
	return shown(result)
}

func sendMany(kind, topic string, count int, prefix string) (string, error) {
	messages := make([]*primitive.Message, count)
	for i := range messages {
		messages[i] = primitive.NewMessage(topic, []byte(fmt.Sprintf("%s-%d", prefix, i)))
	}
	ctx := context.Background()
	switch kind {
	case "batch":
		result, err := plain.SendSync(ctx, messages...)
		if err != nil {
			return "", err
		}
		return shown(result)
	case "oneway":
		for _, message := range messages {
			if err := plain.SendOneWay(ctx, message); err != nil {
				return "", err
			}
		}
		return "", nil
	}
	failures := make(chan error, count)
	for _, message := range messages {
		err := plain.SendAsync(ctx, func(_ context.Context, _ *primitive.SendResult, err error) { failures <- err }, message)
		if err != nil {
			return "", err
		}
	}
	for range messages {
		select {
		case err := <-failures:
			if err != nil {
				return "", err
			}
		case <-time.After(20 * time.Second):
			return "", fmt.Errorf("no answer to an asynchronous send")
		}
	}
	return "", nil
}

func sendOrdered(topic string, orders, steps int) error {
	for step := 0; step < steps; step++ {
		for order := 0; order < orders; order++ {
			message := primitive.NewMessage(topic, []byte(fmt.Sprintf("%d/%d", order, step)))
			message.WithShardingKey(strconv.Itoa(order))
			if _, err := ordered.SendSync(context.Background(), message); err != nil {
				return err
			}
		}
	}
	return nil
}

func sendInTransaction(topic, body, first string) (string, error) {
	message := primitive.NewMessage(topic, []byte(body))
	message.WithProperty("first", first)
	result, err := doubtful.SendMessageInTransaction(context.Background(), message)
	if err != nil {
		return "", err
	}
	return shown(result.SendResult)
}

// push NAME GROUP TOPIC EXPRESSION clustering|broadcasting concurrent|orderly FAILURES
func push(words []string) error {
	name, failures := words[1], number(words[7])
	model := consumer.Clustering
	if words[5] == "broadcasting" {
		model = consumer.BroadCasting
	}
	isOrderly := words[6] == "orderly"
	one, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(servers), consumer.WithGroupName(words[2]), consumer.WithInstance(name),
		consumer.WithConsumerModel(model), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(isOrderly), consumer.WithMaxReconsumeTimes(2),
		consumer.WithSuspendCurrentQueueTimeMillis(100*time.Millisecond),
	)
	if err != nil {
		return err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: strings.ReplaceAll(words[4], "~", " ")}
	err = one.Subscribe(words[3], selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		keep(name, messages)
		if int(messages[0].ReconsumeTimes) < failures {
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err
	}
	running[name] = one
	return one.Start()
}

func keep(name string, messages []*primitive.MessageExt) {
	guard.Lock()
	defer guard.Unlock()
	for _, one := range messages {
		received[name] = append(received[name], fmt.Sprintf("%d:%d:%s|%d|%d",
			one.Queue.QueueId, one.QueueOffset, one.Body, one.ReconsumeTimes, time.Now().UnixMilli()))
	}
}

func pull(name, group, topic, expression string) error {
	one, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer(servers), consumer.WithGroupName(group), consumer.WithInstance(name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return err
	}
	if err = one.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: expression}); err != nil {
		return err
	}
	pullers[name], running[name] = one, one
	return one.Start()
}

// poll takes messages until there are count, or the time is up; each is acknowledged.
func poll(name string, count int, timeout time.Duration) (string, error) {
	ctx, end := context.WithTimeout(context.Background(), timeout)
	defer end()
	for taken := 0; taken < count && ctx.Err() == nil; {
		request, err := pullers[name].Poll(ctx, time.Second)
		if consumer.IsNoNewMsgError(err) || ctx.Err() != nil {
			continue
		}
		if err != nil {
			return "", err
		}
		keep(name, request.GetMsgList())
		taken += len(request.GetMsgList())
		pullers[name].ACK(ctx, request, consumer.ConsumeSuccess)
	}
	guard.Lock()
	defer guard.Unlock()
	answer := strings.Join(received[name], ",")
	received[name] = nil
	return answer, nil
}
