import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * The real mqadmin, many commands in one JVM: a line is a command's words, separated by tabs; the
 * answer is "ok" and what the command printed, errors included, in base64.
 */
public class AdminPeer extends MQAdminStartup {
    private static final long EVERY_NS = 20_000_000;

    /**
     * A client that closes waits up to 3 s until a thread of its has looked at its events again.
     * To interrupt that thread at any other time would close a connection.
     */
    private static void hurryClosing(Thread commands) {
        Thread hurry = new Thread(() -> {
            while (!Thread.currentThread().isInterrupted()) {
                if (Arrays.stream(commands.getStackTrace()).anyMatch(AdminPeer::waitsForAThread)) {
                    Thread.getAllStackTraces().keySet().stream()
                        .filter(one -> one.getName().startsWith("NettyEventExecutor"))
                        .forEach(Thread::interrupt);
                }
                LockSupport.parkNanos(EVERY_NS);
            }
        });
        hurry.setDaemon(true);
        hurry.start();
    }

    private static boolean waitsForAThread(StackTraceElement at) {
        return at.getClassName().endsWith("ServiceThread") && at.getMethodName().equals("shutdown");
    }

    public static void main(String[] args) {
        PrintStream answers = System.out;
        hurryClosing(Thread.currentThread());
        answers.println("ok started");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        lines.lines().forEach(line -> {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream stream = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(stream);
            System.setErr(stream);
            // A command keeps its client, which is of no use a second time.
            SUB_COMMANDS.clear();
            MQAdminStartup.main0(line.split("\t"), null);
            stream.flush();
            answers.println("ok " + Base64.getEncoder().encodeToString(printed.toByteArray()));
            answers.flush();
        });
        Runtime.getRuntime().halt(0);
    }
}
