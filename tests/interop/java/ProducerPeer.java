import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Real Java producers of every kind, driven by one command a line; each line is answered by
 * "ok ..." or "error ...". What the commands are stands in tests/interop/test_producers.py.
 */
public class ProducerPeer {
    private static final int TIMEOUT_MS = 10_000;
    private static final int POLL_MS = 1_000;
    private static final int WAIT_S = 20;

    private final Map<String, List<String>> received = new ConcurrentHashMap<>();
    private final Map<String, Integer> failures = new ConcurrentHashMap<>();
    private final Map<String, AtomicInteger> checks = new ConcurrentHashMap<>();
    private final String servers;
    private final DefaultMQProducer producer;
    private final TransactionMQProducer transactions;

    private ProducerPeer(String servers) throws Exception {
        this.servers = servers;
        this.producer = new DefaultMQProducer("ProducerGroup");
        this.transactions = new TransactionMQProducer("TransactionGroup");
        for (DefaultMQProducer one : Arrays.asList(producer, transactions)) {
            one.setNamesrvAddr(servers);
            one.setSendMsgTimeout(TIMEOUT_MS);
            one.setPollNameServerInterval(POLL_MS);
            one.setInstanceName(one.getProducerGroup());
        }
        transactions.setTransactionListener(new Decisions());
        producer.start();
        transactions.start();
    }

    public static void main(String[] args) throws Exception {
        System.out.println("ok started");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ProducerPeer peer = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                String[] words = line.trim().split(" ");
                if (words[0].equals("start")) {
                    peer = new ProducerPeer(words[1]);
                    answer = "ok";
                } else {
                    answer = "ok " + peer.run(words);
                }
            } catch (InvocationTargetException problem) {
                answer = "error " + String.valueOf(problem.getCause()).replace('\n', ' ');
            } catch (Throwable problem) {
                answer = "error " + String.valueOf(problem).replace('\n', ' ');
            }
            System.out.println(answer);
        }
        Runtime.getRuntime().halt(0);
    }

    private String run(String[] words) throws Exception {
        switch (words[0]) {
            case "sync": return sync(words);
            case "async": return async(words[1], Integer.parseInt(words[2]), words[3]);
            case "oneway": return oneway(words[1], Integer.parseInt(words[2]), words[3]);
            case "batch": return batch(words[1], Integer.parseInt(words[2]), words[3]);
            case "ordered": return ordered(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
            case "big": return big(words[1], Integer.parseInt(words[2]));
            case "recall": return recall(words[1], words[2]);
            case "transaction": return transaction(words[1], words[2], words[3]);
            case "checks": return String.valueOf(checks.getOrDefault(words[1], new AtomicInteger()).get());
            case "responder": return responder(words[1]);
            case "request": return request(words[1], words[2]);
            case "push": return push(words[1], words[2], words[3], Integer.parseInt(words[4]));
            case "got": return String.join(",", new ArrayList<>(received.get(words[1])));
            default: throw new IllegalArgumentException("no command " + words[0]);
        }
    }

    private static Message message(String topic, String body) {
        return new Message(topic, "TagA", "key-" + body, body.getBytes(StandardCharsets.UTF_8));
    }

    private static String shown(SendResult result) throws Exception {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("send answered " + result);
        }
        return result.getMessageQueue().getQueueId() + ":" + result.getQueueOffset() + ":" + result.getMsgId()
            + ":" + result.getOffsetMsgId() + ":" + recallHandle(result);
    }

    /** Clients before 5.3.1 know no handle; whatever else goes wrong here is an error. */
    private static Object recallHandle(SendResult result) throws Exception {
        try {
            return SendResult.class.getMethod("getRecallHandle").invoke(result);
        } catch (NoSuchMethodException old) {
            return null;
        }
    }

    /** Timers came with 5.0: the compiler must not see the call when an older client is under test. */
    private static void setTimer(Message message, String setter, String value) throws Exception {
        Message.class.getMethod(setter, long.class).invoke(message, Long.parseLong(value));
    }

    private String recall(String topic, String handle) throws Exception {
        return (String) DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
            .invoke(producer, topic, handle);
    }

    /** sync TOPIC BODY [delay=LEVEL] [seconds=N] [at=MS]. */
    private String sync(String[] words) throws Exception {
        Message message = message(words[1], words[2]);
        for (int i = 3; i < words.length; i++) {
            String[] pair = words[i].split("=");
            switch (pair[0]) {
                case "delay": message.setDelayTimeLevel(Integer.parseInt(pair[1])); break;
                case "seconds": setTimer(message, "setDelayTimeSec", pair[1]); break;
                case "at": setTimer(message, "setDeliverTimeMs", pair[1]); break;
                default: throw new IllegalArgumentException(words[i]);
            }
        }
        return shown(producer.send(message));
    }

    private String async(String topic, int count, String prefix) throws Exception {
        CountDownLatch done = new CountDownLatch(count);
        List<String> problems = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            producer.send(message(topic, prefix + "-" + i), new SendCallback() {
                @Override public void onSuccess(SendResult result) {
                    done.countDown();
                }

                @Override public void onException(Throwable problem) {
                    problems.add(String.valueOf(problem));
                    done.countDown();
                }
            });
        }
        if (!done.await(WAIT_S, TimeUnit.SECONDS) || !problems.isEmpty()) {
            throw new IllegalStateException(done.getCount() + " unanswered, " + problems);
        }
        return String.valueOf(count);
    }

    private String oneway(String topic, int count, String prefix) throws Exception {
        for (int i = 0; i < count; i++) {
            producer.sendOneway(message(topic, prefix + "-" + i));
        }
        return String.valueOf(count);
    }

    private String batch(String topic, int count, String prefix) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            messages.add(message(topic, prefix + "-" + i));
        }
        return shown(producer.send(messages)).replace(',', ';');
    }

    /** Bodies ORDER/STEP; all of one order go to one queue. */
    private String ordered(String topic, int orders, int steps) throws Exception {
        for (int step = 0; step < steps; step++) {
            for (int order = 0; order < orders; order++) {
                producer.send(message(topic, order + "/" + step),
                    (queues, m, arg) -> queues.get((Integer) arg % queues.size()), order);
            }
        }
        return String.valueOf(orders * steps);
    }

    private String big(String topic, int size) throws Exception {
        char[] text = new char[size];
        Arrays.fill(text, 'x');
        return shown(producer.send(new Message(topic, new String(text).getBytes(StandardCharsets.UTF_8))));
    }

    private String transaction(String topic, String body, String decision) throws Exception {
        return shown(transactions.sendMessageInTransaction(message(topic, body), decision));
    }

    private final class Decisions implements TransactionListener {
        @Override public LocalTransactionState executeLocalTransaction(Message message, Object decision) {
            switch ((String) decision) {
                case "commit": return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback": return LocalTransactionState.ROLLBACK_MESSAGE;
                default: return LocalTransactionState.UNKNOW;
            }
        }

        /** A body says what becomes of it when it is asked about. */
        @Override public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            int times = checks.computeIfAbsent(body, key -> new AtomicInteger()).incrementAndGet();
            if (body.startsWith("yes") && message.getTransactionId() != null) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
            if (body.startsWith("no")) {
                return LocalTransactionState.ROLLBACK_MESSAGE;
            }
            return body.startsWith("second") && times > 1 ? LocalTransactionState.COMMIT_MESSAGE
                : LocalTransactionState.UNKNOW;
        }
    }

    private String responder(String topic) throws Exception {
        DefaultMQProducer replier = new DefaultMQProducer("ReplierGroup");
        replier.setNamesrvAddr(servers);
        replier.setInstanceName("replier");
        replier.start();
        consumer("ResponderGroup", topic, (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    byte[] body = ("re:" + new String(message.getBody(), StandardCharsets.UTF_8))
                        .getBytes(StandardCharsets.UTF_8);
                    replier.send(MessageUtil.createReplyMessage(message, body));
                } catch (Exception problem) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return "";
    }

    /** Client 5.3.3 takes the end of the send for an empty reply, before the true one: only a callback sees both. */
    private String request(String topic, String body) throws Exception {
        CompletableFuture<Message> reply = new CompletableFuture<>();
        producer.request(message(topic, body), new RequestCallback() {
            @Override public void onSuccess(Message message) {
                if (message != null) {
                    reply.complete(message);
                }
            }

            @Override public void onException(Throwable problem) {
                reply.completeExceptionally(problem);
            }
        }, TIMEOUT_MS);
        return new String(reply.get(WAIT_S, TimeUnit.SECONDS).getBody(), StandardCharsets.UTF_8);
    }

    /** push NAME GROUP TOPIC FAILURES: each message is sent back so many times. */
    private String push(String name, String group, String topic, int failing) throws Exception {
        received.put(name, new ArrayList<>());
        consumer(group, topic, (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                long now = System.currentTimeMillis();
                String text = body.length() > 60 ? body.length() + "x" : body;
                String line = message.getQueueId() + ":" + message.getQueueOffset() + ":" + text + "|"
                    + message.getReconsumeTimes() + "|" + message.getStoreTimestamp() + "|" + now + "|"
                    + message.getMsgId() + "|" + message.getKeys() + "|" + message.getTransactionId();
                synchronized (received) {
                    received.get(name).add(line);
                }
                if (failures.merge(name + body, 1, Integer::sum) <= failing) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return "";
    }

    private void consumer(String group, String topic, MessageListenerConcurrently listener) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(servers);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(POLL_MS);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.setMaxReconsumeTimes(2);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(listener);
        consumer.start();
    }
}
