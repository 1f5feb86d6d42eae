import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * One replica of the real RocketMQ store with its real AutoSwitch HA, without a broker around it.
 *
 * <p>Commands come as lines on stdin, each is answered by one line on stdout: {@code ok ...} or
 * {@code error ...}. {@code tests/interop/ha_peer.py} speaks the same lines over our own store;
 * {@code tests/interop/peers.py} lists them. While records are loaded, lines {@code acked OFFSET}
 * come in between.
 */
public final class HaPeer {
    private static final String TOPIC = "HaPeer";
    private static final int QUEUES = 4;
    private static final int BLOCK_BYTES = 4 << 20;
    private static final PrintStream OUT = System.out;

    private final MessageStoreConfig storeConfig = new MessageStoreConfig();
    private final BrokerConfig brokerConfig = new BrokerConfig();
    private final InetSocketAddress host = new InetSocketAddress("127.0.0.1", 1234);
    private final byte[] block = new byte[BLOCK_BYTES];
    private final long id;
    private final DefaultMessageStore store;
    private final AutoSwitchHAService ha;
    private volatile boolean agreeing = true;
    private boolean reigns;
    private Load load;

    private HaPeer(long id, Properties settings) throws Exception {
        this.id = id;
        MixAll.properties2Object(settings, storeConfig);
        MixAll.properties2Object(settings, brokerConfig);
        brokerConfig.setEnableControllerMode(true);
        brokerConfig.setBrokerId(id);
        brokerConfig.setBrokerName("broker-a");
        storeConfig.setBrokerRole(BrokerRole.SLAVE);
        storeConfig.setStorePathCommitLog(storeConfig.getStorePathRootDir() + "/commitlog");
        storeConfig.setStorePathEpochFile(storeConfig.getStorePathRootDir() + "/epochFileCheckpoint");
        BrokerStatsManager stats = new BrokerStatsManager("DefaultCluster", true);
        store = new DefaultMessageStore(storeConfig, stats, (topic, queueId, logicOffset, tagsCode,
            msgStoreTimestamp, filterBitMap, properties) -> { }, brokerConfig, new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("the store cannot be loaded");
        }
        store.start();
        ha = (AutoSwitchHAService) store.getHaService();
        ha.setLocalBrokerId(id);
        ha.registerSyncStateSetChangedListener(wished -> {
            if (agreeing) {
                ha.setSyncStateSet(wished);
            }
        });
    }

    /** Args: broker id, then {@code key=value} with the names of broker.conf. */
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        for (int i = 1; i < args.length; i++) {
            int cut = args[i].indexOf('=');
            settings.setProperty(args[i].substring(0, cut), args[i].substring(cut + 1));
        }
        System.setOut(System.err);
        HaPeer peer = new HaPeer(Long.parseLong(args[0]), settings);
        say("ok " + peer.storeConfig.getHaListenPort());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split("\\s+");
            try {
                say("ok " + peer.answer(words));
            } catch (Exception wrong) {
                wrong.printStackTrace();
                say("error " + wrong);
            }
            if (words[0].equals("stop")) {
                System.exit(0);
            }
        }
        // Whoever drove this is gone: end without any tidying up.
        Runtime.getRuntime().halt(1);
    }

    private static void say(String line) {
        synchronized (OUT) {
            OUT.print(line.stripTrailing() + "\n");
            OUT.flush();
        }
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "master":
                return master(Integer.parseInt(words[1]), ids(words[2]));
            case "slave":
                return slave(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]));
            case "set":
                ha.setSyncStateSet(ids(words[1]));
                return "";
            case "agree":
                agreeing = words[1].equals("on");
                return "";
            case "put":
                Load whole = begin(words);
                whole.thread.join();
                return whole.summary();
            case "load":
                load = begin(words);
                return "";
            case "loaded":
                if (words.length > 1) {
                    load.ended.set(true);
                }
                if (words.length > 1 || !load.thread.isAlive()) {
                    load.thread.join();
                    return load.summary();
                }
                return "busy";
            case "offsets":
                return offsets();
            case "sync":
                await(() -> store.dispatchBehindBytes() <= 0);
                return "";
            case "reach":
                return reach(Long.parseLong(words[1]));
            case "read":
                return read();
            case "latency":
                return latency(Integer.parseInt(words[1]), Integer.parseInt(words[2]), Integer.parseInt(words[3]));
            case "stop":
                store.shutdown();
                return "";
            default:
                throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }

    private static Set<Long> ids(String text) {
        return Arrays.stream(text.split(",")).map(Long::valueOf).collect(Collectors.toCollection(TreeSet::new));
    }

    private interface Condition {
        boolean holds();
    }

    private static void await(Condition condition) throws InterruptedException {
        while (!condition.holds()) {
            Thread.sleep(1);
        }
    }

    // -- roles ------------------------------------------------------------------------------------

    private String master(int epoch, Set<Long> set) throws Exception {
        storeConfig.setBrokerRole(BrokerRole.SYNC_MASTER);
        brokerConfig.setBrokerId(MixAll.MASTER_ID);
        ha.setSyncStateSet(set);
        boolean done = reigns ? ha.changeToMasterWhenLastRoleIsMaster(epoch) : ha.changeToMaster(epoch);
        if (!done) {
            throw new IllegalStateException("epoch " + epoch + " was refused");
        }
        reigns = true;
        return "";
    }

    private String slave(String address, int epoch, long masterId) {
        storeConfig.setBrokerRole(BrokerRole.SLAVE);
        brokerConfig.setBrokerId(id);
        reigns = false;
        if (!ha.changeToSlave("", epoch, id)) {
            throw new IllegalStateException("epoch " + epoch + " was refused");
        }
        store.updateHaMasterAddress(address);
        return "";
    }

    private String offsets() {
        String epochs = ha.getEpochEntries().stream()
            .map(entry -> entry.getEpoch() + "-" + entry.getStartOffset()).collect(Collectors.joining(","));
        String members = new TreeSet<>(ha.getSyncStateSet()).stream()
            .map(String::valueOf).collect(Collectors.joining(","));
        return "min=" + store.getMinPhyOffset() + " max=" + store.getMaxPhyOffset() + " confirm="
            + store.getConfirmOffset() + " behind=" + Math.max(0, store.dispatchBehindBytes()) + " set="
            + members + " epochs=" + epochs;
    }

    // -- writing ----------------------------------------------------------------------------------

    private MessageExtBrokerInner message(long number, byte[] body) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(TOPIC);
        message.setQueueId((int) (number % QUEUES));
        message.setTags("t" + number % 3);
        message.setKeys("k" + number);
        message.setBody(body);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(host);
        message.setStoreHost(host);
        message.setWaitStoreMsgOK(true);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    /** put|load BYTES SIZE_MIN SIZE_MAX SEED IN_FLIGHT [BYTES_PER_S]. */
    private Load begin(String[] words) {
        Load begun = new Load(Long.parseLong(words[1]), Integer.parseInt(words[2]), Integer.parseInt(words[3]),
            Long.parseLong(words[4]), Integer.parseInt(words[5]),
            words.length > 6 ? Long.parseLong(words[6]) : Long.MAX_VALUE);
        begun.thread.start();
        return begun;
    }

    /** Writes records of sizes that are even on a logarithmic scale until enough bytes are in. */
    private final class Load {
        private final long bytes;
        private final int sizeMin;
        private final int sizeMax;
        private final Random random;
        private final int inFlight;
        private final long bytesPerSecond;
        private final AtomicBoolean ended = new AtomicBoolean();
        private final AtomicLong succeeded = new AtomicLong();
        private final AtomicLong failed = new AtomicLong();
        private final AtomicLong acked = new AtomicLong();
        private final Thread thread = new Thread(this::run, "load");
        private volatile PutMessageStatus lastFailure;

        private Load(long bytes, int sizeMin, int sizeMax, long seed, int inFlight, long bytesPerSecond) {
            this.bytes = bytes;
            this.sizeMin = sizeMin;
            this.sizeMax = sizeMax;
            this.random = new Random(seed);
            this.inFlight = inFlight;
            this.bytesPerSecond = bytesPerSecond;
            random.nextBytes(block);
        }

        private void run() {
            Semaphore window = new Semaphore(inFlight);
            double low = Math.log(sizeMin);
            double high = Math.log(sizeMax);
            long written = 0;
            long start = System.nanoTime();
            for (long number = 0; written < bytes && !ended.get(); number++) {
                int size = (int) Math.round(Math.exp(low + random.nextDouble() * (high - low)));
                int from = random.nextInt(BLOCK_BYTES - size);
                long due = (long) (written * 1e9 / bytesPerSecond);
                LockSupport.parkNanos(due - (System.nanoTime() - start));
                window.acquireUninterruptibly();
                store.asyncPutMessage(message(number, Arrays.copyOfRange(block, from, from + size)))
                    .whenComplete((result, wrong) -> {
                        count(result);
                        window.release();
                    });
                written += size;
            }
            window.acquireUninterruptibly(inFlight);
        }

        private void count(PutMessageResult result) {
            if (result != null && result.getPutMessageStatus() == PutMessageStatus.PUT_OK) {
                succeeded.incrementAndGet();
                long end = result.getAppendMessageResult().getWroteOffset()
                    + result.getAppendMessageResult().getWroteBytes();
                if (acked.getAndAccumulate(end, Math::max) < end) {
                    say("acked " + end);
                }
            } else {
                lastFailure = result == null ? null : result.getPutMessageStatus();
                failed.incrementAndGet();
            }
        }

        private String summary() {
            return "succeeded=" + succeeded + " failed=" + failed + " acked=" + acked + " status=" + lastFailure;
        }
    }

    // -- reading ----------------------------------------------------------------------------------

    /** Count and checksum of all bodies, queue by queue. */
    private String read() throws Exception {
        CRC32 sum = new CRC32();
        long count = 0;
        for (int queue = 0; queue < QUEUES; queue++) {
            long at = store.getMinOffsetInQueue(TOPIC, queue);
            long end = store.getMaxOffsetInQueue(TOPIC, queue);
            while (at < end) {
                GetMessageResult found = store.getMessage("reader", TOPIC, queue, at, 32, null);
                if (found.getMessageBufferList().isEmpty()) {
                    throw new IllegalStateException("queue " + queue + " at " + at + ": " + found.getStatus());
                }
                for (ByteBuffer buffer : found.getMessageBufferList()) {
                    MessageExt message = MessageDecoder.decode(buffer, true, false);
                    if (message.getQueueOffset() != at) {
                        throw new IllegalStateException("queue " + queue + ": " + message.getQueueOffset());
                    }
                    sum.update(message.getBody());
                    count++;
                    at++;
                }
                found.release();
            }
        }
        return count + " " + sum.getValue();
    }

    // -- measuring --------------------------------------------------------------------------------

    /** Nanoseconds, and bytes, from the first growth of the log that is seen until it ends at {@code target}. */
    private String reach(long target) throws Exception {
        long start = store.getMaxPhyOffset();
        await(() -> store.getMaxPhyOffset() != start || start >= target);
        long firstSeen = System.nanoTime();
        long first = store.getMaxPhyOffset();
        await(() -> store.getMaxPhyOffset() >= target);
        return (System.nanoTime() - firstSeen) + " " + (store.getMaxPhyOffset() - first);
    }

    /** Put-to-acknowledgement times in microseconds: p50, p99, puts per second. */
    private String latency(int count, int size, int inFlight) {
        Semaphore window = new Semaphore(inFlight);
        long[] took = new long[count];
        AtomicLong wrong = new AtomicLong();
        long start = System.nanoTime();
        for (int i = 0; i < count; i++) {
            int number = i;
            window.acquireUninterruptibly();
            long before = System.nanoTime();
            store.asyncPutMessage(message(i, new byte[size])).whenComplete((result, error) -> {
                took[number] = System.nanoTime() - before;
                if (error != null || result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
                    wrong.incrementAndGet();
                }
                window.release();
            });
        }
        window.acquireUninterruptibly(inFlight);
        double seconds = (System.nanoTime() - start) / 1e9;
        if (wrong.get() > 0) {
            throw new IllegalStateException(wrong + " puts failed");
        }
        Arrays.sort(took);
        return took[count / 2] / 1000 + " " + took[count * 99 / 100] / 1000 + " " + Math.round(count / seconds);
    }
}
