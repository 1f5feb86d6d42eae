import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** One real client under load: "send THREADS SECONDS SIZE" and "consume COUNT", by lines. */
public class ClientBench {
    private static final int LATENCIES_MAX = 4_000_000;
    private static String servers;
    private static String topic;
    private static DefaultMQProducer producer;

    public static void main(String[] args) throws Exception {
        servers = args[0];
        topic = args[1];
        producer = new DefaultMQProducer("bench-producers");
        producer.setNamesrvAddr(servers);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        System.out.println("ok");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            try {
                String answer = words[0].equals("send")
                    ? send(Integer.parseInt(words[1]), Double.parseDouble(words[2]), Integer.parseInt(words[3]))
                    : consume(Integer.parseInt(words[1]));
                System.out.println("ok " + answer);
            } catch (Exception error) {
                System.out.println("error " + error.toString().replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    /** Each thread sends one message after another. Answers: count, rate, p50 and p99 in microseconds, failures. */
    private static String send(int threads, double seconds, int size) throws Exception {
        byte[] body = new byte[size];
        Arrays.fill(body, (byte) 'x');
        long[] latencies = new long[LATENCIES_MAX];
        AtomicInteger taken = new AtomicInteger();
        AtomicLong failures = new AtomicLong();
        long begin = System.nanoTime();
        long end = begin + (long) (seconds * 1e9);
        Thread[] workers = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            workers[i] = new Thread(() -> {
                long before;
                while ((before = System.nanoTime()) < end) {
                    try {
                        SendResult result = producer.send(new Message(topic, body));
                        if (result.getSendStatus() != SendStatus.SEND_OK) {
                            failures.incrementAndGet();
                        }
                    } catch (Exception error) {
                        failures.incrementAndGet();
                    }
                    int place = taken.getAndIncrement();
                    if (place < LATENCIES_MAX) {
                        latencies[place] = System.nanoTime() - before;
                    }
                }
            });
            workers[i].start();
        }
        for (Thread worker : workers) {
            worker.join();
        }
        double elapsed = (System.nanoTime() - begin) / 1e9;
        int count = Math.min(taken.get(), LATENCIES_MAX);
        Arrays.sort(latencies, 0, count);
        return taken.get() + " " + taken.get() / elapsed + " " + latencies[count / 2] / 1000.0 + " "
            + latencies[(int) (count * 0.99)] / 1000.0 + " " + failures.get();
    }

    /** From the first message on, until so many have come: messages per second after the first batch. */
    private static String consume(int count) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench-consumers-" + System.nanoTime());
        consumer.setNamesrvAddr(servers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        AtomicInteger got = new AtomicInteger();
        AtomicLong first = new AtomicLong();
        AtomicLong last = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            first.compareAndSet(0, System.nanoTime());
            if (got.addAndGet(messages.size()) >= count && last.compareAndSet(0, System.nanoTime())) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            if (!done.await(120, TimeUnit.SECONDS)) {
                throw new IllegalStateException("only " + got.get() + " of " + count);
            }
        } finally {
            consumer.shutdown();
        }
        return got.get() + " " + got.get() / ((last.get() - first.get()) / 1e9);
    }
}
