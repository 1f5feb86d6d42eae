import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Writes or reads records of rare kinds with Java's own store: {@code write|read root fileSize longTopic}.
 * Write: client batches, inner batches, a topic longer than 127 characters, IPv6 hosts.
 * Read: one line a stored record, "topic queueOffset physicalOffset body", tabs between.
 */
public final class StoreSample {
    private static final String BATCH = "client-batch";
    private static final String INNER = "inner-batch";
    private static final int ROUNDS = 40;
    private static final int MEMBERS = 3;

    private final DefaultMessageStore store;
    private final String longTopic;

    private StoreSample(String root, int fileSize, String longTopic) throws Exception {
        this.longTopic = longTopic;
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setMappedFileSizeCommitLog(fileSize);
        config.setBrokerRole(BrokerRole.ASYNC_MASTER);
        config.setHaListenPort(0);
        config.setMessageIndexEnable(false);
        config.setTimerWheelEnable(false);
        config.setDiskMaxUsedSpaceRatio(99);
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        TopicConfig inner = new TopicConfig(INNER, 1, 1);
        inner.getAttributes().put("queue.type", "BatchCQ");
        topics.put(INNER, inner);
        store = new DefaultMessageStore(config, new BrokerStatsManager("sample", false),
            (topic, queue, offset, tags, time, bits, more) -> { }, new BrokerConfig(), topics);
        check(store.load(), "load");
        store.start();
    }

    public static void main(String[] args) throws Exception {
        StoreSample sample = new StoreSample(args[1], Integer.parseInt(args[2]), args[3]);
        if (args[0].equals("write")) {
            for (int round = 0; round < ROUNDS; round++) {
                sample.writeRound(round);
            }
        }
        while (sample.store.dispatchBehindBytes() > 0) {
            Thread.onSpinWait();
        }
        for (String topic : new String[] {BATCH, INNER, sample.longTopic}) {
            sample.print(topic);
        }
        sample.store.shutdown();
        System.exit(0);
    }

    private void writeRound(int round) throws Exception {
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, BATCH, members(BATCH, round));
        ok(store.putMessages(batch));
        MessageExtBrokerInner inner = new MessageExtBrokerInner();
        fill(inner, INNER, members(INNER, round));
        inner.setSysFlag(MessageSysFlag.INNER_BATCH_FLAG | MessageSysFlag.NEED_UNWRAP_FLAG);
        MessageAccessor.putProperty(inner, "INNER_NUM", "" + MEMBERS);
        inner.setPropertiesString(MessageDecoder.messageProperties2String(inner.getProperties()));
        ok(store.putMessage(inner));
        MessageExtBrokerInner wide = new MessageExtBrokerInner();
        fill(wide, longTopic, ("wide-" + round).getBytes(StandardCharsets.UTF_8));
        if (round % 2 == 1) {
            wide.setBornHost(new InetSocketAddress(InetAddress.getByName("2001:db8::1"), 1234));
            wide.setBornHostV6Flag();
        }
        ok(store.putMessage(wide));
    }

    private static byte[] members(String topic, int round) {
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < MEMBERS; number++) {
            byte[] body = (topic + "-" + round + "-" + number).getBytes(StandardCharsets.UTF_8);
            messages.add(new Message(topic, "tag" + number, body));
        }
        return MessageDecoder.encodeMessages(messages);
    }

    private static void fill(MessageExtBrokerInner message, String topic, byte[] body) {
        message.setTopic(topic);
        message.setQueueId(0);
        message.setBody(body);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress("127.0.0.1", 1234));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
        MessageAccessor.putProperty(message, "KEYS", "sample");
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
    }

    private void print(String topic) throws Exception {
        long offset = 0;
        long end = store.getMaxOffsetInQueue(topic, 0);
        while (offset < end) {
            GetMessageResult result = store.getMessage("group", topic, 0, offset, 32, null);
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                MessageExt found = MessageDecoder.decode(buffer, true, false);
                System.out.println(String.join("\t", found.getTopic(), "" + found.getQueueOffset(),
                    "" + found.getCommitLogOffset(), hex(found.getBody())));
            }
            check(result.getNextBeginOffset() > offset, "progress in " + topic);
            offset = result.getNextBeginOffset();
            result.release();
        }
    }

    private static String hex(byte[] data) {
        StringBuilder text = new StringBuilder();
        for (byte value : data) {
            text.append(String.format("%02x", value));
        }
        return text.toString();
    }

    private static void ok(PutMessageResult result) {
        check(result.isOk(), String.valueOf(result.getPutMessageStatus()));
    }

    private static void check(boolean good, String what) {
        if (!good) {
            throw new IllegalStateException(what);
        }
    }
}
