import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Real gRPC clients, driven by one command a line; each line is answered by "ok ..." or "error ...".
 * What the commands are stands in tests/interop/grpc_peer.py.
 */
public class GrpcPeer {
    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final ClientConfiguration configuration;
    private final Map<String, Producer> producers = new ConcurrentHashMap<>();
    private final Map<String, SimpleConsumer> simples = new ConcurrentHashMap<>();
    private final Map<String, PushConsumer> pushers = new ConcurrentHashMap<>();
    private final Map<String, List<String>> received = new ConcurrentHashMap<>();
    private final Map<String, Integer> asked = new ConcurrentHashMap<>();

    private GrpcPeer(String endpoints) {
        configuration = ClientConfiguration.newBuilder().setEndpoints(endpoints).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(5)).build();
    }

    public static void main(String[] args) throws Exception {
        GrpcPeer peer = new GrpcPeer(args[0]);
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
            case "producer": return producer(words[1], words[2]);
            case "send": return send(words);
            case "transaction": return transaction(words[1], words[2], words[3], words[4]);
            case "asked": return String.valueOf(asked.getOrDefault(words[1], 0));
            case "simple": return simple(words[1], words[2], words[3]);
            case "receive": return receive(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]), words[4]);
            case "push": return push(words[1], words[2], words[3], Integer.parseInt(words[4]));
            case "got": return String.join(",", copy(words[1]));
            case "stop": return stop(words[1]);
            default: throw new IllegalArgumentException("no command " + words[0]);
        }
    }

    private String producer(String name, String topic) throws Exception {
        producers.put(name, provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
            .setTransactionChecker(view -> {
                String body = text(view);
                asked.merge(body, 1, Integer::sum);
                return body.startsWith("yes") ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
            }).build());
        return "";
    }

    private String send(String[] words) throws Exception {
        int count = Integer.parseInt(words[3]);
        List<String> ids = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            MessageBuilder builder = provider.newMessageBuilder().setTopic(words[2]).setKeys("key-" + i)
                .setBody((words[4] + "-" + i).getBytes(StandardCharsets.UTF_8));
            for (int at = 5; at < words.length; at++) {
                String[] pair = words[at].split("=");
                switch (pair[0]) {
                    case "tag": builder.setTag(pair[1]); break;
                    case "group": builder.setMessageGroup(pair[1]); break;
                    case "delay": builder.setDeliveryTimestamp(System.currentTimeMillis() + Long.parseLong(pair[1])); break;
                    default: throw new IllegalArgumentException(words[at]);
                }
            }
            ids.add(producers.get(words[1]).send(builder.build()).getMessageId().toString());
        }
        return String.join(",", ids);
    }

    private String transaction(String name, String topic, String body, String how) throws Exception {
        Transaction transaction = producers.get(name).beginTransaction();
        producers.get(name).send(provider.newMessageBuilder().setTopic(topic)
            .setBody(body.getBytes(StandardCharsets.UTF_8)).build(), transaction);
        switch (how) {
            case "commit": transaction.commit(); break;
            case "rollback": transaction.rollback(); break;
            default: break;
        }
        return "";
    }

    private String simple(String name, String group, String topic) throws Exception {
        simples.put(name, provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setAwaitDuration(Duration.ofSeconds(2))
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL)).build());
        return "";
    }

    private String receive(String name, int most, long invisibleMs, String how) throws Exception {
        SimpleConsumer consumer = simples.get(name);
        List<String> found = new ArrayList<>();
        for (MessageView view : consumer.receive(most, Duration.ofMillis(invisibleMs))) {
            found.add(view.getDeliveryAttempt() + ":" + text(view));
            if (how.equals("ack")) {
                consumer.ack(view);
            } else if (how.startsWith("change=")) {
                consumer.changeInvisibleDuration(view, Duration.ofMillis(Long.parseLong(how.substring(7))));
            }
        }
        return String.join(",", found);
    }

    private String push(String name, String group, String topic, int failures) throws Exception {
        List<String> list = Collections.synchronizedList(new ArrayList<>());
        received.put(name, list);
        Map<String, Integer> seen = new HashMap<>();
        pushers.put(name, provider.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setConsumptionThreadCount(4)
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL))
            .setMessageListener(view -> {
                String body = text(view);
                synchronized (seen) {
                    list.add(view.getDeliveryAttempt() + ":" + body);
                    return seen.merge(body, 1, Integer::sum) > failures ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
                }
            }).build());
        return "";
    }

    private String stop(String name) throws Exception {
        for (Map<String, ? extends AutoCloseable> table : List.of(producers, simples, pushers)) {
            AutoCloseable client = table.remove(name);
            if (client != null) {
                client.close();
            }
        }
        return "";
    }

    private List<String> copy(String name) {
        List<String> list = received.get(name);
        synchronized (list) {
            return new ArrayList<>(list);
        }
    }

    private static String text(MessageView view) {
        return StandardCharsets.UTF_8.decode(view.getBody()).toString();
    }
}
