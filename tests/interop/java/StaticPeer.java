import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.admin.TopicOffset;
import org.apache.rocketmq.remoting.protocol.statictopic.TopicConfigAndQueueMapping;
import org.apache.rocketmq.remoting.protocol.statictopic.TopicQueueMappingOne;
import org.apache.rocketmq.remoting.protocol.statictopic.TopicQueueMappingUtils;
import org.apache.rocketmq.remoting.protocol.statictopic.TopicRemappingDetailWrapper;
import org.apache.rocketmq.remoting.rpc.ClientMetadata;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.admin.MQAdminUtils;

/**
 * What Java's clients and its admin library see of static topics, one command a line.
 * What the commands are stands in tests/interop/static_peer.py.
 */
public class StaticPeer {
    private static final int TIMEOUT_MS = 10_000;
    private static final int POLL_MS = 1_000;

    private final DefaultMQAdminExt admin = new DefaultMQAdminExt();
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPushConsumer> consumers = new ConcurrentHashMap<>();
    private final Map<String, List<String>> received = new ConcurrentHashMap<>();
    private String servers;

    public static void main(String[] args) throws Exception {
        StaticPeer peer = new StaticPeer();
        System.out.println("ok started");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = "ok " + peer.run(line.trim().split(" "));
            } catch (Throwable problem) {
                answer = "error " + (problem + ", by " + problem.getCause()).replace('\n', ' ');
            }
            System.out.println(answer);
        }
        Runtime.getRuntime().halt(0);
    }

    private String run(String[] words) throws Exception {
        switch (words[0]) {
            case "servers": return use(words[1]);
            case "producer": return producer(words[1]);
            case "known": return known(words[1], words[2]);
            case "refresh": return refresh(words[1], words[2]);
            case "send": return send(words[1], words[2], Integer.parseInt(words[3]), words[4]);
            case "push": return push(words[1], words[2], words[3]);
            case "got": return got(words[1]);
            case "stop": return stop(words[1]);
            case "leaders": return leaders(words[1]);
            case "ends": return ends(words[1]);
            case "group": return group(words[1], words[2]);
            case "maps": return maps(words[1]);
            case "raw": return json(MQAdminUtils.examineTopicConfigAll(words[1], admin));
            case "undecided": return undecided(words[1], words[2]);
            default: throw new IllegalArgumentException("no command " + words[0]);
        }
    }

    private String use(String address) throws Exception {
        servers = address;
        admin.setNamesrvAddr(address);
        admin.setInstanceName("admin");
        admin.setPollNameServerInterval(POLL_MS);
        admin.start();
        return "";
    }

    private String producer(String name) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("Group-" + name);
        producer.setNamesrvAddr(servers);
        producer.setInstanceName(name);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setPollNameServerInterval(POLL_MS);
        producer.start();
        producers.put(name, producer);
        return "";
    }

    private Set<MessageQueue> queues(String name, String topic) throws Exception {
        return new TreeSet<>(producers.get(name).fetchPublishMessageQueues(topic));
    }

    private String known(String name, String topic) throws Exception {
        return queues(name, topic).stream().map(q -> q.getBrokerName() + ":" + q.getQueueId())
            .collect(Collectors.joining(","));
    }

    private String refresh(String name, String topic) {
        producers.get(name).getDefaultMQProducerImpl().getMqClientFactory().updateTopicRouteInfoFromNameServer(topic);
        admin.getDefaultMQAdminExtImpl().getMqClientInstance().updateTopicRouteInfoFromNameServer(topic);
        return "";
    }

    /** The producer sends to a queue it is told, so it tries nothing a second time. */
    private String send(String name, String topic, int count, String prefix) throws Exception {
        List<String> sent = new ArrayList<>();
        for (MessageQueue queue : queues(name, topic)) {
            for (int i = 0; i < count; i++) {
                String body = prefix + "q" + queue.getQueueId() + "-" + i;
                Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
                SendResult result = producers.get(name).send(message, queue);
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    throw new IllegalStateException("send answered " + result);
                }
                sent.add(shown(result.getMessageQueue().getQueueId(), result.getQueueOffset(),
                    result.getMessageQueue().getBrokerName(), body));
            }
        }
        return String.join(",", sent);
    }

    private static String shown(int queueId, long offset, String brokerName, String body) {
        return queueId + ":" + offset + ":" + brokerName + ":" + body;
    }

    private String push(String name, String group, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(servers);
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(POLL_MS);
        consumer.setPollNameServerInterval(POLL_MS);
        consumer.subscribe(topic, "*");
        List<String> mine = new ArrayList<>();
        received.put(name, mine);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            synchronized (mine) {
                for (MessageExt one : messages) {
                    mine.add(shown(one.getQueueId(), one.getQueueOffset(), one.getBrokerName(),
                        new String(one.getBody(), StandardCharsets.UTF_8)));
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.put(name, consumer);
        return "";
    }

    private String got(String name) {
        List<String> mine = received.get(name);
        synchronized (mine) {
            return String.join(",", mine);
        }
    }

    private String stop(String name) {
        if (producers.containsKey(name)) {
            producers.remove(name).shutdown();
        } else {
            consumers.remove(name).shutdown();
        }
        return "";
    }

    /** Where Java's clients would send requests for each queue that the route names. */
    private String leaders(String topic) throws Exception {
        ClientMetadata metadata = MQAdminUtils.getBrokerAndTopicMetadata(topic, admin);
        Map<MessageQueue, String> found = ClientMetadata.topicRouteData2EndpointsForStaticTopic(
            topic, admin.examineTopicRouteInfo(topic));
        return new TreeSet<>(found.keySet()).stream()
            .map(q -> q.getQueueId() + ":" + metadata.getBrokerNameFromMessageQueue(q))
            .collect(Collectors.joining(","));
    }

    /** QUEUE:MIN:MAX of single questions, and the same two of the topic's table. */
    private String ends(String topic) throws Exception {
        Map<MessageQueue, TopicOffset> table = new TreeMap<>(admin.examineTopicStats(topic).getOffsetTable());
        List<String> found = new ArrayList<>();
        for (Map.Entry<MessageQueue, TopicOffset> one : table.entrySet()) {
            MessageQueue queue = one.getKey();
            if (!queue.getBrokerName().startsWith(MixAll.LOGICAL_QUEUE_MOCK_BROKER_PREFIX)) {
                continue; // The table has physical queues, too.
            }
            found.add(queue.getQueueId() + ":" + admin.minOffset(queue) + ":" + admin.maxOffset(queue)
                + ":" + one.getValue().getMinOffset() + ":" + one.getValue().getMaxOffset());
        }
        return String.join(",", found);
    }

    private String group(String group, String topic) throws Exception {
        Map<MessageQueue, OffsetWrapper> table = new TreeMap<>(admin.examineConsumeStats(group).getOffsetTable());
        List<String> found = new ArrayList<>();
        table.forEach((queue, offsets) -> {
            if (queue.getTopic().equals(topic)) {
                found.add(queue.getQueueId() + ":" + queue.getBrokerName() + ":" + offsets.getBrokerOffset() + ":"
                    + offsets.getConsumerOffset() + ":" + offsets.getLastTimestamp());
            }
        });
        return String.join(",", found);
    }

    /** All that brokers know, once Java's own checks have passed it; these throw otherwise. */
    private String maps(String topic) throws Exception {
        Map<String, TopicConfigAndQueueMapping> known = MQAdminUtils.examineTopicConfigAll(topic, admin);
        TopicQueueMappingUtils.checkNameEpochNumConsistence(topic, known);
        TopicQueueMappingUtils.checkPhysicalQueueConsistence(known);
        Map<Integer, TopicQueueMappingOne> queues = TopicQueueMappingUtils.checkAndBuildMappingItems(
            TopicQueueMappingUtils.getMappingDetailFromConfig(known.values()), false, true);
        TopicQueueMappingUtils.checkIfReusePhysicalQueue(queues.values());
        return queues.size() + " " + json(known);
    }

    private static String json(Map<String, TopicConfigAndQueueMapping> known) {
        return RemotingSerializable.toJson(new TreeMap<>(known), false);
    }

    /** Begin a remap as Java's tool does, and stop before anybody decides where the queues go on. */
    private String undecided(String topic, String to) throws Exception {
        TopicRemappingDetailWrapper plan = TopicQueueMappingUtils.remappingStaticTopic(
            topic, MQAdminUtils.examineTopicConfigAll(topic, admin), new TreeSet<>(Set.of(to)));
        ClientMetadata metadata = MQAdminUtils.getBrokerMetadata(admin);
        List<String> told = new ArrayList<>(plan.getBrokerToMapIn());
        told.addAll(plan.getBrokerToMapOut());
        for (String name : told) {
            TopicConfigAndQueueMapping config = plan.getBrokerConfigMap().get(name);
            admin.createStaticTopic(metadata.findMasterBrokerAddr(name), admin.getCreateTopicKey(), config,
                config.getMappingDetail(), false);
        }
        return String.join(",", told);
    }
}
