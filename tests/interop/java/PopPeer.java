import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Real Java push consumers whose broker assigns queues, and lets them pop where it is told to.
 * Driven by lines as ClientPeer; the commands stand in tests/interop/test_pop.py.
 */
public class PopPeer {
    private static final int TIMEOUT_MS = 10_000;
    private static final int POLL_MS = 1_000;

    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPushConsumer> consumers = new ConcurrentHashMap<>();
    private final Map<String, List<String>> received = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        PopPeer peer = new PopPeer();
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
            case "send": return send(words[1], words[2], Integer.parseInt(words[3]), words[4]);
            case "pop": return pop(words[1], words[2], words[3], words[4], words[5], Long.parseLong(words[6]));
            case "got": return String.join(",", copy(words[1]));
            case "stop": consumers.remove(words[1]).shutdown(); return "";
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

    private String send(String name, String topic, int count, String prefix) throws Exception {
        for (int i = 0; i < count; i++) {
            String body = prefix + "-" + i;
            SendResult result = producers.get(name)
                .send(new Message(topic, "", body, body.getBytes(StandardCharsets.UTF_8)));
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException("send answered " + result);
            }
        }
        return String.valueOf(count);
    }

    private String pop(String name, String group, String servers, String topic, String how, long invisibleMs)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(servers);
        consumer.setInstanceName(name);
        consumer.subscribe(topic, "*");
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(invisibleMs);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(POLL_MS);
        consumer.setHeartbeatBrokerInterval(POLL_MS);
        List<String> bodies = new ArrayList<>();
        received.put(name, bodies);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean first = keep(bodies, messages);
            if (first && how.equals("stuck")) {
                try {
                    Thread.sleep(Long.MAX_VALUE);
                } catch (InterruptedException stopped) {
                    Thread.currentThread().interrupt();
                }
            }
            return first && how.equals("later")
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.put(name, consumer);
        return "";
    }

    /** Writes down how often each message came before, its offset and body; whether none came before. */
    private static boolean keep(List<String> bodies, List<MessageExt> messages) {
        boolean first = true;
        synchronized (bodies) {
            for (MessageExt message : messages) {
                first &= message.getReconsumeTimes() == 0;
                bodies.add(message.getReconsumeTimes() + ":" + message.getQueueOffset() + ":"
                    + new String(message.getBody(), StandardCharsets.UTF_8));
            }
        }
        return first;
    }

    private List<String> copy(String name) {
        List<String> bodies = received.get(name);
        synchronized (bodies) {
            return new ArrayList<>(bodies);
        }
    }
}
