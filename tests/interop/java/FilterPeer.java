import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * What Java makes of a selector and a message's properties. A line is {@code is SELECTOR NAME VALUE
 * NAME VALUE ...}, each in Base64 ({@code =} for an empty one); the answer is {@code illegal}, or whether
 * the broker would deliver the message.
 */
public class FilterPeer {
    public static void main(String[] args) throws Exception {
        System.out.println("ok started");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println("ok " + wanted(line.trim().split(" ")));
        }
        Runtime.getRuntime().halt(0);
    }

    private static String wanted(String[] words) {
        Expression selector;
        try {
            selector = FilterFactory.INSTANCE.get("SQL92").compile(text(words[1]));
        } catch (Throwable illegal) {
            return "illegal";
        }
        Map<String, Object> properties = new HashMap<>();
        for (int i = 2; i < words.length; i += 2) {
            properties.put(text(words[i]), text(words[i + 1]));
        }
        try {
            return String.valueOf(Boolean.TRUE.equals(selector.evaluate(new EvaluationContext() {
                @Override public Object get(String name) {
                    return properties.get(name);
                }

                @Override public Map<String, Object> keyValues() {
                    return properties;
                }
            })));
        } catch (Throwable problem) {
            return "false";
        }
    }

    private static String text(String word) {
        return word.equals("=") ? "" : new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }
}
