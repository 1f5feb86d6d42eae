import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What rocketmq-exporter and rocketmq-dashboard ask of a cluster in one pass, asked by the admin
 * client that both are made on. The answer is "ok" and NAME=OUTCOME of each call, with tabs between; an
 * outcome is what the tool shows of the answer, or "refused CODE".
 */
public class ToolPeer {
    private static final String TOPIC = "Tools", GROUP = "tools-readers", SENDERS = "tools-senders";
    private static final int SENT = 12;
    private static final String[] TOPIC_STATS = {"TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"};
    private static final String[] GROUP_STATS = {"GROUP_GET_NUMS", "GROUP_GET_SIZE"};

    private final String servers, broker, cluster;
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(10_000);
    private final AtomicInteger consumed = new AtomicInteger();
    private final List<String> outcomes = new ArrayList<>();
    private SendResult first;

    private ToolPeer(String[] args) {
        servers = args[0];
        broker = args[1];
        cluster = args[2];
    }

    public static void main(String[] args) throws Exception {
        ToolPeer peer = new ToolPeer(args);
        System.out.println("ok started");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            peer.outcomes.clear();
            try {
                switch (line.trim()) {
                    case "prepare": peer.prepare(); break;
                    case "consumed": System.out.println("ok " + peer.consumed.get()); continue;
                    case "exporter": peer.exporter(); break;
                    case "dashboard": peer.dashboard(); break;
                    default: throw new IllegalArgumentException(line);
                }
                System.out.println("ok " + String.join("\t", peer.outcomes));
            } catch (Throwable problem) {
                System.out.println("error " + String.valueOf(problem).replace('\n', ' '));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private void prepare() throws Exception {
        admin.setNamesrvAddr(servers);
        admin.start();
        admin.createAndUpdateTopicConfig(broker, new TopicConfig(TOPIC, 4, 4));
        DefaultMQProducer producer = new DefaultMQProducer(SENDERS);
        producer.setNamesrvAddr(servers);
        producer.start();
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(TOPIC);
        for (int i = 0; i < SENT; i++) {
            byte[] body = ("tool-" + i).getBytes(StandardCharsets.UTF_8);
            SendResult sent = producer.send(new Message(TOPIC, "tag", "key-" + i, body), queues.get(i % 4));
            first = first == null ? sent : first;
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(GROUP);
        consumer.setNamesrvAddr(servers);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            consumed.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private void say(String name, Callable<Object> call) {
        String outcome;
        try {
            outcome = String.valueOf(call.call());
        } catch (MQBrokerException problem) {
            outcome = "refused " + problem.getResponseCode();
        } catch (MQClientException problem) {
            outcome = "refused " + problem.getResponseCode();
        } catch (Exception problem) {
            outcome = problem.getClass().getSimpleName();
        }
        outcomes.add(name + "=" + outcome.replace('\n', ' '));
    }

    private Object cell(Object value) {
        return value == null ? "null" : "there";
    }

    private void exporter() {
        say("106 sets", () -> admin.examineBrokerClusterInfo().getBrokerAddrTable().keySet());
        say("206 lists the topic", () -> admin.fetchAllTopicList().getTopicList().contains(TOPIC));
        say("202 queues", () -> admin.examineTopicStats(TOPIC).getOffsetTable().size());
        say("202 messages", () -> admin.examineTopicStats(TOPIC).getOffsetTable().values().stream()
            .mapToLong(one -> one.getMaxOffset() - one.getMinOffset()).sum());
        say("202 of no topic", () -> admin.examineTopicStats("NoSuchTopic"));
        say("105 queues", () -> admin.examineTopicRouteInfo(TOPIC).getQueueDatas().get(0).getWriteQueueNums());
        say("328 our producer", () -> admin.getAllProducerInfo(broker).getData().get(SENDERS).size());
        say("300 groups", () -> new TreeSet<>(admin.queryTopicConsumeByWho(TOPIC).getGroupList()));
        say("203 members", () -> admin.examineConsumerConnectionInfo(GROUP).getConnectionSet().size());
        say("203 topics", () -> new TreeSet<>(admin.examineConsumerConnectionInfo(GROUP).getSubscriptionTable().keySet()));
        say("203 of no group", () -> admin.examineConsumerConnectionInfo("no-such-group"));
        say("208 lag", () -> admin.examineConsumeStats(GROUP, TOPIC).computeTotalDiff());
        say("208 queues", () -> admin.examineConsumeStats(GROUP, TOPIC).getOffsetTable().size());
        say("307 from the consumer", () -> cell(admin.getConsumerRunningInfo(GROUP,
            admin.examineConsumerConnectionInfo(GROUP).getConnectionSet().iterator().next().getClientId(), false).getSubscriptionSet()));
        for (String name : TOPIC_STATS) {
            say("315 " + name, () -> cell(admin.viewBrokerStatsData(broker, name, TOPIC).getStatsMinute()));
        }
        for (String name : GROUP_STATS) {
            say("315 " + name, () -> cell(admin.viewBrokerStatsData(broker, name, TOPIC + "@" + GROUP).getStatsDay()));
        }
        say("315 BROKER_PUT_NUMS", () -> cell(admin.viewBrokerStatsData(broker, "BROKER_PUT_NUMS", cluster).getStatsHour()));
        say("315 BROKER_GET_NUMS", () -> cell(admin.viewBrokerStatsData(broker, "BROKER_GET_NUMS", cluster).getStatsHour()));
        say("315 SNDBCK_PUT_NUMS", () -> cell(admin.viewBrokerStatsData(broker, "SNDBCK_PUT_NUMS", TOPIC + "@" + GROUP)));
        for (String key : new String[] {"putTps", "getTransferredTps", "msgPutTotalTodayNow", "msgGetTotalTodayNow",
            "commitLogDiskRatio", "consumeQueueDiskRatio", "dispatchBehindBytes", "putMessageDistributeTime",
            "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueSize", "bootTimestamp", "brokerVersion",
            "commitLogDirCapacity", "pageCacheLockTimeMills", "getMessageEntireTimeMax", "putMessageTimesTotal",
            "EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity", "remainHowManyDataToFlush"}) {
            say("28 " + key, () -> cell(admin.fetchBrokerRuntimeStats(broker).getTable().get(key)));
        }
    }

    private void dashboard() {
        say("224 lists the topic", () -> admin.fetchTopicsByCLuster(cluster).getTopicList().contains(TOPIC));
        say("351 queues", () -> admin.examineTopicConfig(broker, TOPIC).getReadQueueNums());
        say("201 has the group", () -> admin.getAllSubscriptionGroup(broker, 5_000).getSubscriptionGroupTable().containsKey(GROUP));
        say("352 retries", () -> admin.examineSubscriptionGroupConfig(broker, GROUP).getRetryMaxTimes());
        say("21 has the topic", () -> admin.getAllTopicConfig(broker, 5_000).getTopicConfigTable().containsKey(TOPIC));
        say("26 brokerName", () -> admin.getBrokerConfig(broker).getProperty("brokerName"));
        say("319 servers", () -> admin.getNameServerConfig(List.of(servers)).size());
        say("303 queues", () -> admin.queryConsumeTimeSpan(TOPIC, GROUP).size());
        say("317 rows of it", () -> admin.fetchConsumeStatsInBroker(broker, false, 5_000).getConsumeStatsList().stream()
            .filter(one -> one.containsKey(GROUP)).count());
        say("204 producers", () -> admin.examineProducerConnectionInfo(SENDERS, TOPIC).getConnectionSet().size());
        say("343 groups of the topic", () -> new TreeSet<>(admin.queryTopicsByConsumer(GROUP).getTopicList()).contains(TOPIC));
        say("345 offsets", () -> admin.querySubscription(GROUP, TOPIC).getSubString());
        say("33 by its id", () -> new String(admin.viewMessage(TOPIC, first.getOffsetMsgId()).getBody(), StandardCharsets.UTF_8));
        say("12 by its unique key", () -> new String(admin.viewMessage(TOPIC, first.getMsgId()).getBody(), StandardCharsets.UTF_8));
        say("12 by key", () -> admin.queryMessage(TOPIC, "key-3", 32, 0, Long.MAX_VALUE).getMessageList().size());
        say("29 and 30", () -> {
            MessageQueue queue = new MessageQueue(TOPIC, admin.examineTopicRouteInfo(TOPIC).getBrokerDatas().get(0).getBrokerName(), 1);
            return admin.minOffset(queue) + ".." + admin.maxOffset(queue) + " " + admin.searchOffset(queue, 0L);
        });
        say("309 consumed directly", () -> admin.consumeMessageDirectly(GROUP,
            admin.examineConsumerConnectionInfo(GROUP).getConnectionSet().iterator().next().getClientId(),
            TOPIC, first.getOffsetMsgId()).getConsumeResult());
        say("222 reset", () -> admin.resetOffsetByTimestamp(TOPIC, GROUP, 0L, true).size());
        say("223 status", () -> admin.getConsumeStatus(TOPIC, GROUP, "").size());
        say("306 cleaned", () -> admin.cleanExpiredConsumerQueueByAddr(broker));
        say("316 cleaned", () -> admin.cleanUnusedTopicByAddr(broker));
        say("17 of another topic", () -> {
            admin.createAndUpdateTopicConfig(broker, new TopicConfig("Shortly", 1, 1));
            return admin.examineTopicConfig(broker, "Shortly").getWriteQueueNums();
        });
        say("215 at the broker", () -> {
            admin.deleteTopicInBroker(java.util.Set.of(broker), "Shortly");
            return "deleted";
        });
        say("216 at the name server", () -> {
            admin.deleteTopicInNameServer(java.util.Set.of(servers), "Shortly");
            return "deleted";
        });
        say("351 of no topic", () -> admin.examineTopicConfig(broker, "Shortly").getWriteQueueNums());
        say("200 and 207", () -> {
            SubscriptionGroupConfig config = new SubscriptionGroupConfig();
            config.setGroupName("shortly");
            config.setRetryMaxTimes(3);
            admin.createAndUpdateSubscriptionGroupConfig(broker, config);
            int seen = admin.examineSubscriptionGroupConfig(broker, "shortly").getRetryMaxTimes();
            admin.deleteSubscriptionGroup(broker, "shortly", true);
            return seen;
        });
        say("205 and 327 permissions", () -> admin.wipeWritePermOfBroker(servers, admin.examineTopicRouteInfo(TOPIC)
            .getBrokerDatas().get(0).getBrokerName()) > 0);
        say("327 given back", () -> admin.addWritePermOfBroker(servers, admin.examineTopicRouteInfo(TOPIC)
            .getBrokerDatas().get(0).getBrokerName()) > 0);
    }
}
