import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.constant.ConsumeInitMode;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

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
    private final Map<String, String> handles = new ConcurrentHashMap<>();

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
            case "poporder": return popOrder(words);
            case "ackorder": return ackOrder(words[1], words[2], words[3], words[4]);
            case "laterorder": return laterOrder(words[1], words[2], words[3], words[4], Long.parseLong(words[5]));
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

    /** As proxies ask for it: NAME BROKER TOPIC GROUP QUEUE COUNT INVISIBLE_MS POLL_MS ATTEMPT (or -). */
    private String popOrder(String[] words) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setTopic(words[3]);
        header.setConsumerGroup(words[4]);
        header.setQueueId(Integer.parseInt(words[5]));
        header.setMaxMsgNums(Integer.parseInt(words[6]));
        header.setInvisibleTime(Long.parseLong(words[7]));
        header.setPollTime(Long.parseLong(words[8]));
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(ConsumeInitMode.MIN);
        header.setExpType("TAG");
        header.setExp("*");
        header.setOrder(true);
        header.setAttemptId(words[9].equals("-") ? null : words[9]);
        CompletableFuture<PopResult> popped = new CompletableFuture<>();
        api(words[1]).popMessageAsync(words[2], address(words[1], words[2]), header, TIMEOUT_MS, new PopCallback() {
            @Override public void onSuccess(PopResult result) {
                popped.complete(result);
            }

            @Override public void onException(Throwable problem) {
                popped.completeExceptionally(problem);
            }
        });
        PopResult result = popped.get(2 * TIMEOUT_MS, TimeUnit.MILLISECONDS);
        List<String> bodies = new ArrayList<>();
        if (result.getPopStatus() == PopStatus.FOUND) {
            keep(bodies, result.getMsgFoundList());
            for (MessageExt message : result.getMsgFoundList()) {
                handles.put(message.getTopic() + message.getQueueOffset(), message.getProperty("POP_CK"));
            }
        }
        return String.join(",", bodies);
    }

    /** NAME TOPIC GROUP OFFSET: acknowledges what was popped last at that offset. */
    private String ackOrder(String name, String topic, String group, String offset) throws Exception {
        String[] handle = ExtraInfoUtil.split(handles.get(topic + offset));
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setTopic(topic);
        header.setConsumerGroup(group);
        header.setQueueId(ExtraInfoUtil.getQueueId(handle));
        header.setOffset(Long.parseLong(offset));
        header.setExtraInfo(handles.get(topic + offset));
        Answer answer = new Answer();
        api(name).ackMessageAsync(address(name, ExtraInfoUtil.getBrokerName(handle)), TIMEOUT_MS, answer, header);
        return answer.future.get(TIMEOUT_MS, TimeUnit.MILLISECONDS).getStatus().name();
    }

    /** NAME TOPIC GROUP OFFSET MS: another invisible time; the new handle takes the old one's place. */
    private String laterOrder(String name, String topic, String group, String offset, long invisibleMs)
        throws Exception {
        String[] handle = ExtraInfoUtil.split(handles.get(topic + offset));
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setTopic(topic);
        header.setConsumerGroup(group);
        header.setQueueId(ExtraInfoUtil.getQueueId(handle));
        header.setOffset(Long.parseLong(offset));
        header.setExtraInfo(handles.get(topic + offset));
        header.setInvisibleTime(invisibleMs);
        String broker = ExtraInfoUtil.getBrokerName(handle);
        Answer answer = new Answer();
        api(name).changeInvisibleTimeAsync(broker, address(name, broker), header, TIMEOUT_MS, answer);
        AckResult result = answer.future.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        handles.put(topic + offset, result.getExtraInfo());
        return result.getStatus().name();
    }

    private MQClientInstance factory(String name) {
        return producers.get(name).getDefaultMQProducerImpl().getMqClientFactory();
    }

    private MQClientAPIImpl api(String name) {
        return factory(name).getMQClientAPIImpl();
    }

    private String address(String name, String broker) {
        return factory(name).findBrokerAddressInPublish(broker);
    }

    private static final class Answer implements AckCallback {
        private final CompletableFuture<AckResult> future = new CompletableFuture<>();

        @Override public void onSuccess(AckResult result) {
            future.complete(result);
        }

        @Override public void onException(Throwable problem) {
            future.completeExceptionally(problem);
        }
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
