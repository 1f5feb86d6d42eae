import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * {@code LogPeer SERVERS TOPIC}: sends messages of every kind that fills a commit log, then reads the
 * topic to its end. One line a message that was received, tabs between: "row", queue, queue offset,
 * SHA-256 of the body, its size, keys, tags, born timestamp.
 */
public final class LogPeer {
    private static final int TIMEOUT_MS = 20_000;
    private static final int WAIT_MS = 30_000;
    private static final int[] SIZES = {100, 300, 1_000, 3_000, 10_000, 50_000};
    private static final int SINGLES = 240;
    private static final int LARGE = 8;
    private static final int LARGE_SIZE = 1_000_000;
    private static final int COMPRESSED = 5;
    private static final int BATCHES = 2;
    private static final int BATCH_SIZE = 40;
    private static final int DELAYED = 10;
    private static final int COMMITTED = 6;
    private static final int ROLLED_BACK = 4;

    private final Random chance = new Random(1);
    private final String servers;
    private final String topic;
    private int number;

    private LogPeer(String servers, String topic) {
        this.servers = servers;
        this.topic = topic;
    }

    public static void main(String[] args) throws Exception {
        LogPeer peer = new LogPeer(args[0], args[1]);
        peer.send();
        peer.transactions();
        int expected = SINGLES + LARGE + COMPRESSED + BATCHES * BATCH_SIZE + DELAYED + COMMITTED;
        for (MessageExt message : peer.receive(expected)) {
            System.out.println(String.join("\t", "row", String.valueOf(message.getQueueId()),
                String.valueOf(message.getQueueOffset()), hash(message.getBody()),
                String.valueOf(message.getBody().length), message.getKeys(), message.getTags(),
                String.valueOf(message.getBornTimestamp())));
        }
        System.exit(0);
    }

    private void send() throws Exception {
        DefaultMQProducer producer = started(new DefaultMQProducer("LogPeerProducer"));
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        for (int i = 0; i < SINGLES; i++) {
            ok(producer.send(message(SIZES[i % SIZES.length])));
            if (i % (SINGLES / LARGE) == 0) {
                ok(producer.send(message(LARGE_SIZE)));
            }
        }
        for (int i = 0; i < BATCHES; i++) {
            List<Message> messages = new ArrayList<>();
            for (int k = 0; k < BATCH_SIZE; k++) {
                messages.add(message(100 + k));
            }
            ok(producer.send(messages));
        }
        for (int i = 0; i < DELAYED; i++) {
            Message message = message(500);
            message.setDelayTimeLevel(1);
            ok(producer.send(message));
        }
        producer.shutdown();
        DefaultMQProducer compressing = started(new DefaultMQProducer("LogPeerCompressing"));
        for (int i = 0; i < COMPRESSED; i++) {
            Message message = message(0);
            message.setBody("again and again, ".repeat(2_000 + i).getBytes(StandardCharsets.UTF_8));
            ok(compressing.send(message));
        }
        compressing.shutdown();
    }

    private void transactions() throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("LogPeerTransactions");
        producer.setTransactionListener(new TransactionListener() {
            @Override public LocalTransactionState executeLocalTransaction(Message message, Object decision) {
                return (LocalTransactionState) decision;
            }

            @Override public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        started(producer);
        for (int i = 0; i < COMMITTED + ROLLED_BACK; i++) {
            LocalTransactionState decision = i % 5 < 3
                ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
            ok(producer.sendMessageInTransaction(message(700), decision));
        }
        producer.shutdown();
    }

    private <T extends DefaultMQProducer> T started(T producer) throws Exception {
        producer.setNamesrvAddr(servers);
        producer.setInstanceName(producer.getProducerGroup());
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.start();
        return producer;
    }

    private Message message(int size) {
        byte[] body = new byte[size];
        chance.nextBytes(body);
        number++;
        Message message = new Message(topic, "tag" + number % 3, "key" + number, body);
        message.putUserProperty("number", String.valueOf(number));
        return message;
    }

    private static void ok(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("send answered " + result);
        }
    }

    private List<MessageExt> receive(int expected) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("LogPeerConsumer");
        consumer.setNamesrvAddr(servers);
        consumer.start();
        long end = System.currentTimeMillis() + WAIT_MS;
        while (true) {
            List<MessageExt> found = new ArrayList<>();
            for (MessageQueue queue : new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic))) {
                drain(consumer, queue, found);
            }
            if (found.size() >= expected) {
                consumer.shutdown();
                return found;
            }
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("received " + found.size() + " of " + expected);
            }
        }
    }

    private static void drain(DefaultMQPullConsumer consumer, MessageQueue queue, List<MessageExt> found)
        throws Exception {
        long offset = consumer.minOffset(queue);
        while (true) {
            PullResult result = consumer.pull(queue, "*", offset, 32);
            if (result.getPullStatus() != PullStatus.FOUND) {
                return;
            }
            found.addAll(result.getMsgFoundList());
            offset = result.getNextBeginOffset();
        }
    }

    private static String hash(byte[] body) throws Exception {
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(body);
        return String.format("%064x", new BigInteger(1, digest));
    }
}
