import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Java's side of bench_store: one phase over one directory with DefaultMessageStore, one JSON line out.
 * Phases and their figures are those of store_side.py.
 */
public final class StoreBench {
    private static final String TOPIC = "bench";
    private static final int QUEUES = 8;
    private static final int BATCH_COUNT = 32;
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private final String root;
    private final byte[] body = new byte[1024];
    private final String properties;

    private StoreBench(String root, String properties) {
        this.root = root;
        this.properties = properties;
        Arrays.fill(body, (byte) 'b');
    }

    public static void main(String[] args) throws Exception {
        String properties = args[2].replace('=', '\u0001').replace(';', '\u0002');
        StoreBench bench = new StoreBench(args[1], properties);
        switch (args[0]) {
            case "append":
                bench.append(Integer.parseInt(args[3]), Integer.parseInt(args[4]));
                break;
            case "sync":
                bench.sync(Integer.parseInt(args[3]), Double.parseDouble(args[4]));
                break;
            case "read":
                bench.read();
                break;
            case "open":
                bench.open();
                break;
            default:
                throw new IllegalArgumentException(args[0]);
        }
        System.exit(0);
    }

    private DefaultMessageStore store(FlushDiskType flush) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setFlushDiskType(flush);
        config.setBrokerRole(BrokerRole.ASYNC_MASTER);
        config.setHaListenPort(0);
        config.setMessageIndexEnable(false);
        config.setTimerWheelEnable(false);
        config.setDiskMaxUsedSpaceRatio(99);
        config.setSyncFlushTimeout(60_000);
        return new DefaultMessageStore(config, new BrokerStatsManager("bench", false),
            (topic, queue, offset, tags, time, bits, more) -> { }, new BrokerConfig(), new ConcurrentHashMap<>());
    }

    private MessageExtBrokerInner message(int queue) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(TOPIC);
        message.setQueueId(queue);
        message.setBody(body);
        message.setBornTimestamp(1_700_000_000_000L);
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
        message.setTags("TAG1");
        message.setPropertiesString(properties);
        return message;
    }

    private void put(DefaultMessageStore store, int queue) {
        PutMessageResult result = store.putMessage(message(queue));
        if (!result.isOk()) {
            throw new IllegalStateException(String.valueOf(result.getPutMessageStatus()));
        }
    }

    private void append(int count, int warm) throws Exception {
        DefaultMessageStore store = store(FlushDiskType.ASYNC_FLUSH);
        check(store.load(), "load");
        store.start();
        for (int number = 0; number < warm; number++) {
            put(store, number % QUEUES);
        }
        waitDispatched(store);
        long start = System.nanoTime();
        for (int number = 0; number < count; number++) {
            put(store, number % QUEUES);
        }
        double appended = seconds(start);
        waitDispatched(store);
        double dispatched = seconds(start);
        long end = store.getMaxPhyOffset();
        store.shutdown();
        System.out.printf("{\"append_s\": %.6f, \"dispatched_s\": %.6f, \"end\": %d}%n", appended, dispatched, end);
    }

    private static void waitDispatched(DefaultMessageStore store) {
        while (store.dispatchBehindBytes() > 0) {
            Thread.onSpinWait();
        }
    }

    private void sync(int width, double duration) throws Exception {
        DefaultMessageStore store = store(FlushDiskType.SYNC_FLUSH);
        check(store.load(), "load");
        store.start();
        run(store, width, duration / 4);
        long start = System.nanoTime();
        long done = run(store, width, duration);
        double took = seconds(start);
        store.shutdown();
        System.out.printf("{\"puts\": %d, \"seconds\": %.6f}%n", done, took);
    }

    private long run(DefaultMessageStore store, int width, double duration) throws InterruptedException {
        LongAdder done = new LongAdder();
        long stop = System.nanoTime() + (long) (duration * 1e9);
        Thread[] threads = new Thread[width];
        for (int number = 0; number < width; number++) {
            int queue = number % QUEUES;
            threads[number] = new Thread(() -> {
                while (System.nanoTime() < stop) {
                    put(store, queue);
                    done.increment();
                }
            });
            threads[number].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return done.sum();
    }

    private void read() throws Exception {
        DefaultMessageStore store = store(FlushDiskType.ASYNC_FLUSH);
        check(store.load(), "load");
        store.start();
        readQueues(store);
        long start = System.nanoTime();
        long count = readQueues(store);
        double queues = seconds(start);
        look(store);
        start = System.nanoTime();
        long looked = look(store);
        double looks = seconds(start);
        check(looked == count, "records by offset equal those in queues");
        store.shutdown();
        System.out.printf("{\"records\": %d, \"queue_s\": %.6f, \"look_s\": %.6f}%n", count, queues, looks);
    }

    private long readQueues(DefaultMessageStore store) throws Exception {
        long count = 0;
        for (int queue = 0; queue < QUEUES; queue++) {
            long offset = 0;
            while (offset < store.getMaxOffsetInQueue(TOPIC, queue)) {
                GetMessageResult result = store.getMessage("group", TOPIC, queue, offset, BATCH_COUNT, null);
                for (SelectMappedBufferResult part : result.getMessageMapedList()) {
                    ByteBuffer buffer = part.getByteBuffer();
                    check(buffer.getLong(28) == part.getStartOffset(), "record at its offset");
                    count++;
                }
                offset = result.getNextBeginOffset();
                result.release();
            }
        }
        return count;
    }

    private long look(DefaultMessageStore store) {
        long count = 0;
        long offset = 0;
        long end = store.getMaxPhyOffset();
        while (offset < end) {
            MessageExt found = store.lookMessageByOffset(offset);
            check(found.getBody().length == body.length, "body");
            offset += found.getStoreSize();
            count++;
        }
        return count;
    }

    private void open() throws Exception {
        DefaultMessageStore store = store(FlushDiskType.ASYNC_FLUSH);
        long start = System.nanoTime();
        boolean loaded = store.load();
        double took = seconds(start);
        check(loaded, "load");
        long units = 0;
        for (int queue = 0; queue < QUEUES; queue++) {
            units += store.getMaxOffsetInQueue(TOPIC, queue);
        }
        System.out.printf("{\"open_s\": %.6f, \"end\": %d, \"units\": %d}%n", took, store.getMaxPhyOffset(), units);
    }

    private static double seconds(long start) {
        return (System.nanoTime() - start) / 1e9;
    }

    private static void check(boolean good, String what) {
        if (!good) {
            throw new IllegalStateException(what);
        }
    }
}
