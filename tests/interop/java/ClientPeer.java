import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Real Java clients, driven by one command a line; each line is answered by "ok ..." or "error ...".
 * What the commands are stands in tests/interop/client_peer.py.
 */
public class ClientPeer {
    private static final String SQL = "sql:";
    private static final int TIMEOUT_MS = 10_000;
    private static final int POLL_MS = 1_000;

    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPushConsumer> pushers = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPullConsumer> pullers = new ConcurrentHashMap<>();
    private final Map<String, DefaultLitePullConsumer> lites = new ConcurrentHashMap<>();
    private final Map<String, List<String>> received = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        ClientPeer peer = new ClientPeer();
        System.out.println("ok started");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = "ok " + peer.run(line.trim().split(" "));
            } catch (Throwable problem) {
                answer = "error " + String.valueOf(problem).replace('\n', ' ');
            }
            System.out.println(answer);
        }
        Runtime.getRuntime().halt(0);
    }

    private String run(String[] words) throws Exception {
        switch (words[0]) {
            case "producer": return producer(words[1], words[2], words[3]);
            case "send": return send(words);
            case "push": return push(words);
            case "got": return String.join(",", copy(words[1]));
            case "count": return String.valueOf(copy(words[1]).size());
            case "take": return String.join(",", take(words[1]));
            case "forget": received.get(words[1]).clear(); return "";
            case "queues": return queues(words[1]);
            case "puller": return puller(words[1], words[2], words[3]);
            case "drain": return drain(words[1], words[2], words[3]);
            case "commit": return commit(words[1], words[2], Integer.parseInt(words[3]), Long.parseLong(words[4]));
            case "committed": return String.valueOf(pullers.get(words[1]).fetchConsumeOffset(
                queue(words[1], words[2], Integer.parseInt(words[3])), true));
            case "bytime": return String.valueOf(pullers.get(words[1]).searchOffset(
                queue(words[1], words[2], Integer.parseInt(words[3])), Long.parseLong(words[4])));
            case "lite": return lite(words);
            case "poll": return poll(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]));
            case "seek": return seek(words[1], Long.parseLong(words[2]));
            case "litecommit": lites.get(words[1]).commitSync(); return "";
            case "stop": return stop(words[1]);
            default: throw new IllegalArgumentException("no command " + words[0]);
        }
    }

    private String producer(String name, String group, String servers) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(servers);
        producer.setInstanceName(name);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setPollNameServerInterval(POLL_MS);
        producer.start();
        producers.put(name, producer);
        return "";
    }

    /** send NAME TOPIC QUEUE COUNT PREFIX TAG: bodies PREFIX-0 and so on; QUEUE -1 takes turns. */
    private String send(String[] words) throws Exception {
        DefaultMQProducer producer = producers.get(words[1]);
        int queueId = Integer.parseInt(words[3]);
        int count = Integer.parseInt(words[4]);
        for (int i = 0; i < count; i++) {
            String body = words[5] + "-" + i;
            String tag = words.length > 6 ? words[6] : "";
            Message message = new Message(words[2], tag, body, body.getBytes(StandardCharsets.UTF_8));
            if (words.length > 7) {
                message.putUserProperty(words[7], String.valueOf(i));
            }
            SendResult result = queueId < 0 ? producer.send(message)
                : producer.send(message, (queues, m, arg) -> at(queues, queueId), null);
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException("send answered " + result);
            }
        }
        return String.valueOf(count);
    }

    private static MessageQueue at(List<MessageQueue> queues, int queueId) {
        return queues.stream().filter(q -> q.getQueueId() == queueId).findFirst().get();
    }

    /** push NAME GROUP SERVERS TOPIC EXPRESSION clustering|broadcasting concurrent|orderly first|last. */
    private String push(String[] words) throws Exception {
        String name = words[1];
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(words[2]);
        consumer.setNamesrvAddr(words[3]);
        consumer.setInstanceName(name);
        String expression = words[5].replace("~", " ");
        if (expression.startsWith(SQL)) {
            consumer.subscribe(words[4], MessageSelector.bySql(expression.substring(SQL.length())));
        } else {
            consumer.subscribe(words[4], expression);
        }
        consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), words[6].toUpperCase()));
        consumer.setConsumeFromWhere(words[8].equals("first")
            ? ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET : ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(POLL_MS);
        consumer.setPollNameServerInterval(POLL_MS);
        List<String> bodies = new ArrayList<>();
        received.put(name, bodies);
        if (words[7].equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                keep(bodies, messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                keep(bodies, messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        pushers.put(name, consumer);
        return "";
    }

    private static void keep(List<String> bodies, List<MessageExt> messages) {
        synchronized (bodies) {
            for (MessageExt message : messages) {
                bodies.add(message.getQueueId() + ":" + message.getQueueOffset() + ":"
                    + new String(message.getBody(), StandardCharsets.UTF_8));
            }
        }
    }

    private List<String> copy(String name) {
        List<String> bodies = received.get(name);
        synchronized (bodies) {
            return new ArrayList<>(bodies);
        }
    }

    private List<String> take(String name) {
        List<String> bodies = received.get(name);
        synchronized (bodies) {
            List<String> taken = new ArrayList<>(bodies);
            bodies.clear();
            return taken;
        }
    }

    private String queues(String name) {
        Set<String> found = new TreeSet<>();
        for (MessageQueue queue : pushers.get(name).getDefaultMQPushConsumerImpl().getRebalanceImpl()
            .getProcessQueueTable().keySet()) {
            if (!queue.getTopic().startsWith("%RETRY%")) {
                found.add(String.valueOf(queue.getQueueId()));
            }
        }
        return String.join(",", found);
    }

    private String puller(String name, String group, String servers) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(servers);
        consumer.setInstanceName(name);
        consumer.start();
        pullers.put(name, consumer);
        return "";
    }

    private MessageQueue queue(String name, String topic, int queueId) throws Exception {
        return at(new ArrayList<>(pullers.get(name).fetchSubscribeMessageQueues(topic)), queueId);
    }

    /** Every message of a topic, by plain pulls from each queue's first offset to its end. */
    private String drain(String name, String topic, String expression) throws Exception {
        DefaultMQPullConsumer consumer = pullers.get(name);
        List<String> bodies = new ArrayList<>();
        for (MessageQueue queue : new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic))) {
            long offset = consumer.minOffset(queue);
            while (true) {
                PullResult result = consumer.pull(queue, expression.replace("~", " "), offset, 32);
                if (result.getPullStatus() == PullStatus.NO_NEW_MSG) {
                    break;
                }
                if (result.getPullStatus() == PullStatus.FOUND) {
                    keep(bodies, result.getMsgFoundList());
                } else if (result.getNextBeginOffset() == offset) {
                    throw new IllegalStateException("stuck at " + offset + ": " + result);
                }
                offset = result.getNextBeginOffset();
            }
        }
        return String.join(",", bodies);
    }

    private String commit(String name, String topic, int queueId, long offset) throws Exception {
        MessageQueue queue = queue(name, topic, queueId);
        DefaultMQPullConsumer consumer = pullers.get(name);
        consumer.updateConsumeOffset(queue, offset);
        consumer.getOffsetStore().persist(queue);
        return "";
    }

    /** lite NAME GROUP SERVERS TOPIC EXPRESSION first|last. */
    private String lite(String[] words) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(words[2]);
        consumer.setNamesrvAddr(words[3]);
        consumer.setInstanceName(words[1]);
        consumer.setConsumeFromWhere(words[6].equals("first")
            ? ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET : ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.setAutoCommit(false);
        String expression = words[5].replace("~", " ");
        if (expression.startsWith(SQL)) {
            consumer.subscribe(words[4], MessageSelector.bySql(expression.substring(SQL.length())));
        } else {
            consumer.subscribe(words[4], expression);
        }
        consumer.start();
        lites.put(words[1], consumer);
        return "";
    }

    private String poll(String name, int count, long timeoutMs) {
        List<String> bodies = new ArrayList<>();
        long end = System.currentTimeMillis() + timeoutMs;
        while (bodies.size() < count && System.currentTimeMillis() < end) {
            keep(bodies, lites.get(name).poll(200));
        }
        return String.join(",", bodies);
    }

    private String seek(String name, long offset) throws Exception {
        DefaultLitePullConsumer consumer = lites.get(name);
        for (MessageQueue queue : consumer.assignment()) {
            consumer.seek(queue, offset);
        }
        return "";
    }

    private String stop(String name) {
        if (producers.containsKey(name)) {
            producers.remove(name).shutdown();
        } else if (pushers.containsKey(name)) {
            pushers.remove(name).shutdown();
        } else if (pullers.containsKey(name)) {
            pullers.remove(name).shutdown();
        } else {
            lites.remove(name).shutdown();
        }
        return "";
    }
}
