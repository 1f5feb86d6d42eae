import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * What Java's decoders make of any bytes. A line is {@code header TYPE HEX}, {@code record HEX} or
 * {@code sql HEX}; the answer is {@code refused}, or all that was read, texts in hex.
 */
public class DecoderPeer {
    private static final Map<String, Object> PROPERTIES = Map.of("a", "1", "b", "x", "c", "2.5", "d", "true");

    public static void main(String[] args) throws Exception {
        System.out.println("ok started");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.trim().split(" ");
            byte[] data = bytes(words[words.length - 1]);
            String said;
            try {
                said = words[0].equals("header") ? header(Integer.parseInt(words[1]), data)
                    : words[0].equals("record") ? record(data) : sql(data);
            } catch (Throwable problem) {
                said = "refused " + problem.getClass().getSimpleName();
            }
            System.out.println("ok " + said);
        }
        Runtime.getRuntime().halt(0);
    }

    private static String header(int type, byte[] data) throws Exception {
        ByteBuffer frame = ByteBuffer.allocate(4 + data.length);
        frame.putInt(type << 24 | data.length).put(data).flip();
        RemotingCommand read = RemotingCommand.decode(frame);
        if (read == null) {
            return "refused";
        }
        List<String> found = new ArrayList<>();
        found.add(read.getCode() + " " + read.getOpaque() + " " + read.getFlag() + " " + read.getVersion());
        found.add(read.getLanguage() == LanguageCode.OTHER ? "null" : String.valueOf(read.getLanguage()));
        found.add(hex(read.getRemark()));
        found.add(read.getExtFields() == null ? "none" : pairs(read.getExtFields()));
        return String.join(" ", found);
    }

    private static String record(byte[] data) {
        MessageExt read = MessageDecoder.decode(ByteBuffer.wrap(data), true, false, false, false, true);
        if (read == null) {
            return "refused";
        }
        return String.join(" ", hex(read.getTopic()), "" + read.getQueueId(), "" + read.getFlag(),
            "" + read.getQueueOffset(), "" + read.getCommitLogOffset(), "" + read.getSysFlag(),
            "" + read.getBornTimestamp(), "" + read.getStoreTimestamp(), "" + read.getReconsumeTimes(),
            "" + read.getPreparedTransactionOffset(), "" + read.getStoreSize(),
            hex(read.getBody() == null ? new byte[0] : read.getBody()),
            pairs(read.getProperties()));
    }

    private static String sql(byte[] data) throws Exception {
        Expression selector = FilterFactory.INSTANCE.get("SQL92").compile(new String(data, StandardCharsets.UTF_8));
        try {
            return String.valueOf(Boolean.TRUE.equals(selector.evaluate(new EvaluationContext() {
                @Override public Object get(String name) {
                    return PROPERTIES.get(name);
                }

                @Override public Map<String, Object> keyValues() {
                    return PROPERTIES;
                }
            })));
        } catch (Throwable problem) {
            return "false";
        }
    }

    private static String pairs(Map<String, String> fields) {
        List<String> found = new ArrayList<>();
        for (Map.Entry<String, String> one : new TreeMap<>(fields).entrySet()) {
            found.add(hex(one.getKey()) + ":" + hex(one.getValue()));
        }
        return found.isEmpty() ? "-" : String.join(",", found);
    }

    private static String hex(String text) {
        return text == null ? "null" : hex(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String hex(byte[] data) {
        StringBuilder text = new StringBuilder("x");
        for (byte one : data) {
            text.append(String.format("%02x", one));
        }
        return text.toString();
    }

    private static byte[] bytes(String hex) {
        byte[] data = new byte[(hex.length() - 1) / 2];
        for (int i = 0; i < data.length; i++) {
            data[i] = (byte) Integer.parseInt(hex.substring(1 + 2 * i, 3 + 2 * i), 16);
        }
        return data;
    }
}
