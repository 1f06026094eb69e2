import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;

import org.etcli.runner.Runner;
import org.etcli.runner.RunnerException;

/** An app on a desktop's virtual machine: {@code RunnerCheck CONFIG IDS MORE_IDS SEED}, one line for each thing that it sees. */
public final class RunnerCheck {
    private static final List<Integer> said = new ArrayList<>();

    public static void main(String[] words) throws Exception {
        String config = words[0];
        int[] prompt = ids(words[1]);
        int[] more = ids(words[2]);
        System.out.println("version " + Runner.version());
        refuses("load", () -> Runner.load(config + "/nothing-\u00e9\ud83d\ude00"));
        refuses("nul", () -> Runner.load("a\0b"));

        Runner runner = Runner.load(config, 1);
        refuses("decode-first", () -> runner.decode(1, null));
        refuses("threads", () -> Runner.load(config, 2).close());
        try (Runner second = Runner.load(config)) {
            System.out.println("second " + second.info().threads);
        }
        runner.prefill(prompt);
        said("first", runner.decode(3, RunnerCheck::hear));
        said("next", runner.decode(3, RunnerCheck::hear));
        Runner.Stats stats = runner.stats();
        System.out.println("stats " + stats.promptTokens + " " + stats.newTokens + " " + stats.decodeSteps + " "
                + (stats.loadSeconds > 0 && stats.prefillSeconds > 0 && stats.decodeSeconds > 0));
        runner.prefill(more);
        said("turn", runner.decode(3, RunnerCheck::hear));
        Runner.Info info = runner.info();
        System.out.println("info " + info.vocabulary + " " + info.context + " " + info.room + " " + info.threads);
        runner.reset();
        runner.prefill(prompt);
        Runner.DecodeOptions drawn = new Runner.DecodeOptions().temperature(0.8).topP(0.9).seed(Long.parseLong(words[3])).ignoreStopIds(true);
        said("drawn", runner.decode(drawn.maxNewTokens(2), RunnerCheck::hear));
        said("drawn-next", runner.decode(drawn.maxNewTokens(5), RunnerCheck::hear));
        refuses("temperature", () -> runner.decode(new Runner.DecodeOptions().temperature(-1), null));
        refuses("top-p", () -> runner.decode(new Runner.DecodeOptions().topP(Double.NaN), null));
        refuses("options", () -> runner.decode((Runner.DecodeOptions) null, null));
        said("greedy", runner.decode(1, RunnerCheck::hear));
        refuses("ids", () -> runner.prefill(new int[] {-1}));
        refuses("null", () -> runner.prefill(null));

        runner.reset();
        runner.prefill(prompt);
        said("enough", runner.decode(9, (id, index) -> hear(id, index) && index < 1));
        said("stopped", runner.decode(9, (id, index) -> {
            Thread other = new Thread(runner::stop);
            other.start();
            join(other);
            return hear(id, index);
        }));
        refuses("thrown", () -> runner.decode(9, (id, index) -> {
            throw new UnsupportedOperationException("by the listener");
        }));
        said("after", runner.decode(2, RunnerCheck::hear));
        said("inside", runner.decode(1, (id, index) -> {
            refuses("inside-decode", () -> runner.decode(1, null));
            refuses("inside-close", runner::close);
            return hear(id, index);
        }));

        runner.reset();
        runner.prefill(prompt);
        CountDownLatch decoding = new CountDownLatch(1);
        Thread closer = new Thread(() -> {
            try {
                decoding.await();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
            runner.close();
        });
        closer.start();
        Runner.Reason reason = runner.decode(99, true, (id, index) -> {
            decoding.countDown();
            while (closer.getState() != Thread.State.TIMED_WAITING && closer.isAlive()) { // until close() waits for us
                Thread.yield();
            }
            return true;
        });
        join(closer);
        System.out.println("closed " + reason);
        runner.close();
        runner.stop();
        refuses("after-close", runner::info);
    }

    private interface Action {
        void run() throws Exception;
    }

    private static void refuses(String what, Action action) {
        try {
            action.run();
            System.out.println(what + " nothing");
        } catch (RunnerException e) {
            System.out.println(what + " " + e.code() + " " + e.getMessage());
        } catch (Exception e) {
            System.out.println(what + " " + e.getClass().getSimpleName() + " " + e.getMessage());
        }
    }

    private static boolean hear(int id, long index) {
        said.add(id);
        return true;
    }

    private static void said(String what, Runner.Reason reason) {
        StringBuilder line = new StringBuilder(what + " " + reason);
        for (int id : said) {
            line.append(' ').append(id);
        }
        said.clear();
        System.out.println(line);
    }

    private static void join(Thread thread) {
        try {
            thread.join();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private static int[] ids(String words) {
        String[] parts = words.split(",");
        int[] all = new int[parts.length];
        for (int i = 0; i < parts.length; i++) {
            all[i] = Integer.parseInt(parts[i]);
        }
        return all;
    }
}
