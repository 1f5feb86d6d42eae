import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Real Java clients with and without signatures; the lines stand in tests/interop/test_acl.py.
 */
public class AclPeer {
    private static final int TIMEOUT_MS = 10_000;

    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPushConsumer> consumers = new ConcurrentHashMap<>();
    private final Map<String, List<String>> received = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        AclPeer peer = new AclPeer();
        System.out.println("ok started");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = "ok " + peer.run(line.trim().split(" "));
            } catch (Throwable problem) {
                Throwable cause = problem.getCause() == null ? problem : problem.getCause();
                if (cause instanceof MQBrokerException) {
                    MQBrokerException refused = (MQBrokerException) cause;
                    answer = "error CODE " + refused.getResponseCode() + " " + refused.getErrorMessage();
                } else {
                    answer = "error " + String.valueOf(problem).replace('\n', ' ');
                }
            }
            System.out.println(answer);
        }
        Runtime.getRuntime().halt(0);
    }

    private static RPCHook hook(String name, String secret) {
        return "-".equals(name) ? null : new AclClientRPCHook(new SessionCredentials(name, secret));
    }

    private String run(String[] words) throws Exception {
        switch (words[0]) {
            case "producer": return producer(words);
            case "send": return send(words[1], words[2], Integer.parseInt(words[3]), words[4]);
            case "batch": return batch(words[1], words[2], Integer.parseInt(words[3]), words[4]);
            case "transaction": return transaction(words);
            case "push": return push(words);
            case "got": return String.join(",", copy(words[1]));
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    private List<String> copy(String name) {
        List<String> list = received.get(name);
        synchronized (list) {
            return new ArrayList<>(list);
        }
    }

    private String producer(String[] words) throws Exception {
        DefaultMQProducer one = new DefaultMQProducer("PG-" + words[1], hook(words[3], words[4]));
        one.setNamesrvAddr(words[2]);
        one.setInstanceName(words[1]);
        one.setSendMsgTimeout(TIMEOUT_MS);
        one.setRetryTimesWhenSendFailed(0);
        one.start();
        producers.put(words[1], one);
        return "";
    }

    private String send(String name, String topic, int count, String prefix) throws Exception {
        for (int i = 0; i < count; i++) {
            byte[] body = (prefix + "-" + i).getBytes(StandardCharsets.UTF_8);
            producers.get(name).send(new Message(topic, "tag", prefix + i, body));
        }
        return "";
    }

    private String batch(String name, String topic, int count, String prefix) throws Exception {
        List<Message> all = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            all.add(new Message(topic, (prefix + "-" + i).getBytes(StandardCharsets.UTF_8)));
        }
        producers.get(name).send(all);
        return "";
    }

    private String transaction(String[] words) throws Exception {
        TransactionMQProducer one = new TransactionMQProducer("TG-" + words[4], hook(words[2], words[3]));
        one.setNamesrvAddr(words[1]);
        one.setInstanceName("T-" + words[4]);
        one.setSendMsgTimeout(TIMEOUT_MS);
        one.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        one.start();
        Message message = new Message(words[4], words[5].getBytes(StandardCharsets.UTF_8));
        return one.sendMessageInTransaction(message, null).getSendStatus().name();
    }

    private String push(String[] words) throws Exception {
        DefaultMQPushConsumer one = new DefaultMQPushConsumer(
            words[3], hook(words[5], words[6]), new AllocateMessageQueueAveragely());
        List<String> list = new ArrayList<>();
        received.put(words[1], list);
        one.setNamesrvAddr(words[2]);
        one.setInstanceName(words[1]);
        one.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        one.subscribe(words[4], "*");
        one.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            synchronized (list) {
                for (MessageExt message : messages) {
                    list.add(new String(message.getBody(), StandardCharsets.UTF_8));
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        one.start();
        consumers.put(words[1], one);
        return "";
    }
}
